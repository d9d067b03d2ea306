//! What can go wrong between us and the API server, in few words and few kinds.

use std::error::Error as _;

use kube::core::Status;

/// The kinds of failures: few and fixed, so that each can be a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Category {
    /// The object changed since it was read.
    Conflict,
    /// An object of that name is there already.
    AlreadyExists,
    /// The object, its namespace or its kind is not there.
    NotFound,
    /// The namespace is being deleted and takes nothing new.
    NamespaceTerminating,
    /// We lack the right.
    Forbidden,
    /// The API server does not know us.
    Unauthorized,
    /// The API server does not accept what we sent.
    Invalid,
    /// The API server asks to slow down.
    Throttled,
    /// No answer in time.
    Timeout,
    /// No connection, or the API server is in trouble itself.
    Unavailable,
    /// Another process leads, so nothing was sent.
    NotLeader,
    /// The write was accepted and changed nothing.
    Ineffective,
    /// Anything else.
    Other,
}

impl Category {
    /// Every category, for metrics that start at zero.
    pub const ALL: [Self; 13] = [
        Self::Conflict,
        Self::AlreadyExists,
        Self::NotFound,
        Self::NamespaceTerminating,
        Self::Forbidden,
        Self::Unauthorized,
        Self::Invalid,
        Self::Throttled,
        Self::Timeout,
        Self::Unavailable,
        Self::NotLeader,
        Self::Ineffective,
        Self::Other,
    ];

    /// The category as a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::AlreadyExists => "already_exists",
            Self::NotFound => "not_found",
            Self::NamespaceTerminating => "namespace_terminating",
            Self::Forbidden => "forbidden",
            Self::Unauthorized => "unauthorized",
            Self::Invalid => "invalid",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::NotLeader => "not_leader",
            Self::Ineffective => "ineffective",
            Self::Other => "other",
        }
    }

    /// The category of a client's error.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Self::Unavailable
            }
            _ => Self::Other,
        }
    }

    /// The category of an answer.
    #[must_use]
    pub fn of_status(status: &Status) -> Self {
        let caused_by = |reason: &str| {
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            causes.any(|cause| cause.reason == reason)
        };
        match (status.code, status.reason.as_str()) {
            (403, _) if caused_by("NamespaceTerminating") => Self::NamespaceTerminating,
            (401, _) => Self::Unauthorized,
            (403, _) => Self::Forbidden,
            (404 | 410, _) => Self::NotFound,
            (409, "AlreadyExists") => Self::AlreadyExists,
            (409, _) => Self::Conflict,
            (400 | 413 | 415 | 422, _) => Self::Invalid,
            (429, _) => Self::Throttled,
            (504, _) => Self::Timeout,
            (500.., _) => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

/// An error in one line: the API server's own sentence where it gave one, else the error and its causes,
/// each once (some errors quote their source, some do not).
#[must_use]
pub fn summary(error: &kube::Error) -> String {
    let mut text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} ({})", status.reason, status.code),
        error => error.to_string(),
    };
    let mut source = if matches!(error, kube::Error::Api(_)) { None } else { error.source() };
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_terminating_namespace_is_told_apart_from_a_missing_right() {
        let terminating = answer(
            json!({"code": 403, "reason": "Forbidden", "message": "m", "status": "Failure",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}}),
        );
        let forbidden =
            answer(json!({"code": 403, "reason": "Forbidden", "message": "m", "status": "Failure"}));
        assert_eq!(Category::of(&terminating), Category::NamespaceTerminating);
        assert_eq!(Category::of(&forbidden), Category::Forbidden);
    }

    #[test]
    fn answers_have_the_category_that_decides_what_to_do_next() {
        for (code, reason, category) in [
            (409, "AlreadyExists", Category::AlreadyExists),
            (409, "Conflict", Category::Conflict),
            (404, "NotFound", Category::NotFound),
            (422, "Invalid", Category::Invalid),
            (429, "TooManyRequests", Category::Throttled),
            (503, "ServiceUnavailable", Category::Unavailable),
            (504, "Timeout", Category::Timeout),
            (401, "Unauthorized", Category::Unauthorized),
        ] {
            let error = answer(json!({"code": code, "reason": reason, "message": "", "status": "Failure"}));
            assert_eq!(Category::of(&error), category, "{code} {reason}");
        }
    }

    #[test]
    fn the_summary_is_one_line_and_says_nothing_twice() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "nobody\nhome");
        let text = summary(&kube::Error::ReadEvents(refused));
        assert_eq!(text, "Error reading events stream: nobody home");
    }
}
