//! Failures of requests to the API server, by category.

use std::time::Duration;

use kube::core::Status;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

/// A write that was not sent, failed, or has no response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {verb} {resource} {name}: {text}")]
pub struct WriteError {
    pub category: Category,
    pub verb: &'static str,
    pub resource: &'static str,
    /// The object, as `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
    pub name: String,
    /// The cause, on one line.
    pub text: String,
    /// The `Retry-After` of the API server, if any.
    pub retry_after: Option<Duration>,
    /// How long the request took; zero if it was not sent.
    pub took: Duration,
}

impl WriteError {
    /// A write that failed.
    #[must_use]
    pub fn new(
        verb: &'static str,
        resource: &'static str,
        name: impl Into<String>,
        category: Category,
        text: impl Into<String>,
    ) -> Self {
        let (name, text) = (name.into(), text.into());
        Self { category, verb, resource, name, text, retry_after: None, took: Duration::ZERO }
    }

    /// A patch that the API server accepted without effect.
    #[must_use]
    pub fn ineffective(resource: &'static str, name: impl Into<String>) -> Self {
        let text = "the API server accepted the patch without effect";
        Self::new("patch", resource, name, Category::Ineffective, text)
    }

    /// A write that another client undoes again and again.
    #[must_use]
    pub fn undone(resource: &'static str, verb: &'static str, name: impl Into<String>) -> Self {
        let text = "another client undoes each write, see the managedFields of the object";
        Self::new(verb, resource, name, Category::Ineffective, text)
    }
}

/// The categories of failures: a small fixed set, so that each can be a label of a metric. The comments are the texts of
/// `docs/reference.md`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Category {
    /// The object has changed since it was read.
    Conflict,
    /// An object of that name exists.
    AlreadyExists,
    /// The object does not exist.
    NotFound,
    /// The namespace of the object does not exist.
    NamespaceNotFound,
    /// The hub does not serve the kind or its version, or its CRD is terminating.
    NotServed,
    /// The namespace is terminating, and nothing can be created in it.
    NamespaceTerminating,
    /// The permission is missing.
    Forbidden,
    /// A `ResourceQuota` of the namespace is exceeded.
    QuotaExceeded,
    /// An admission webhook or policy has denied the write.
    Denied,
    /// The API server does not accept the credentials of the process.
    Unauthorized,
    /// The API server rejects the object.
    Invalid,
    /// The API server throttles requests.
    Throttled,
    /// There is no response in time.
    Timeout,
    /// There is no connection, or the API server is unavailable.
    Unavailable,
    /// The API server or a webhook failed on this request.
    Internal,
    /// Another process leads, so nothing was sent.
    NotLeader,
    /// The API server fails, so nothing was sent (`hub_addons_api_server_outage`). It is not counted.
    Held,
    /// The API server accepted the write without effect, or another client undoes it again and again.
    Ineffective,
    /// The API server no longer has the version of a list or watch, which has to start over.
    Expired,
    /// Anything else.
    Other,
}

impl Category {
    /// Every category, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Whether the API server has understood the write and refuses it.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::Forbidden
                | Self::QuotaExceeded
                | Self::Denied
                | Self::Invalid
                | Self::Ineffective
                | Self::NotFound
                | Self::AlreadyExists
                | Self::NamespaceTerminating
        )
    }

    /// The category as a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The category of a client error.
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

    /// The category of an API server's response.
    #[must_use]
    pub fn of_status(status: &Status) -> Self {
        match (status.code, status.reason.as_str()) {
            (401, _) => Self::Unauthorized,
            (403, _) if caused_by(status, "NamespaceTerminating") => Self::NamespaceTerminating,
            // `exceeded quota: NAME, requested: …`, in the plugin resourcequota of the API server.
            (403, _) if status.message.contains("exceeded quota:") => Self::QuotaExceeded,
            (_, _) if is_denied(status) => Self::Denied,
            (403, _) => Self::Forbidden,
            (404, _) => Self::of_not_found(status),
            // The API server's response for a kind whose CRD is terminating.
            (405, _) => Self::NotServed,
            (409, "AlreadyExists") => Self::AlreadyExists,
            (409, _) => Self::Conflict,
            (410, _) => Self::Expired,
            (400 | 413 | 415 | 422, _) => Self::Invalid,
            (429, _) => Self::Throttled,
            (504, _) => Self::Timeout,
            // Also the API server's response if a webhook cannot be called.
            (500, _) => Self::Internal,
            (501.., _) => Self::Unavailable,
            _ => Self::Other,
        }
    }

    /// What was not found. For a path that it does not serve, the API server responds with the text `404 page not
    /// found`; for a missing object with a Status that has its kind and name, of the namespace or of the object itself.
    fn of_not_found(status: &Status) -> Self {
        match status.details.as_ref().filter(|details| !details.name.is_empty()) {
            Some(details) if details.kind == "namespaces" => Self::NamespaceNotFound,
            Some(_) => Self::NotFound,
            None => Self::NotServed,
        }
    }
}

/// Whether the API server reports this cause.
pub(crate) fn caused_by(status: &Status, reason: &str) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == reason)
}

/// Whether an admission webhook or policy has denied the write. The webhook or policy chooses the status code, so only
/// the message identifies a denial: `admission webhook "NAME" denied the request` (apiserver, plugin/webhook/errors)
/// and `ValidatingAdmissionPolicy 'NAME' with binding 'NAME' denied request` (plugin/policy/validating).
fn is_denied(status: &Status) -> bool {
    let message = &status.message;
    let by_webhook = match status.code {
        400..500 => message.contains("admission webhook "),
        // A webhook that cannot be called is not a denial.
        500.. => message.starts_with("admission webhook "),
        _ => false,
    };
    (by_webhook && message.contains("denied the request"))
        || ((400..500).contains(&status.code)
            && message.contains("ValidatingAdmissionPolicy ")
            && message.contains("denied request"))
}

/// The `retryAfterSeconds` of the Status, if any.
#[must_use]
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// An error on one line: the API server's message if there is one, else the error and its causes.
#[must_use]
pub fn summary(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} ({})", status.reason, status.code),
        error => server_check::explained(error),
    };
    object_names::visible(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_terminating_namespace_is_distinguished_from_a_missing_permission() {
        let terminating = answer(
            json!({"code": 403, "reason": "Forbidden", "message": "m", "status": "Failure",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}}),
        );
        let forbidden = answer(
            json!({"code": 403, "reason": "Forbidden", "message": "m", "status": "Failure"}),
        );
        assert_eq!(Category::of(&terminating), Category::NamespaceTerminating);
        assert_eq!(Category::of(&forbidden), Category::Forbidden);
    }

    #[test]
    fn answers_have_the_category_that_decides_what_to_do_next() {
        for (code, reason, category) in [
            (409, "AlreadyExists", Category::AlreadyExists),
            (409, "Conflict", Category::Conflict),
            (404, "Failed to parse error data", Category::NotServed),
            (405, "MethodNotAllowed", Category::NotServed),
            (410, "Expired", Category::Expired),
            (422, "Invalid", Category::Invalid),
            (429, "TooManyRequests", Category::Throttled),
            (503, "ServiceUnavailable", Category::Unavailable),
            (504, "Timeout", Category::Timeout),
            (401, "Unauthorized", Category::Unauthorized),
        ] {
            let error =
                answer(json!({"code": code, "reason": reason, "message": "", "status": "Failure"}));
            assert_eq!(Category::of(&error), category, "{code} {reason}");
        }
    }

    #[test]
    fn what_is_not_found_is_the_object_its_namespace_or_its_kind() {
        for (details, category) in [
            (json!({"name": "c1", "kind": "clusterprofiles"}), Category::NotFound),
            (json!({"name": "app", "kind": "namespaces"}), Category::NamespaceNotFound),
            (json!({}), Category::NotServed),
        ] {
            let error = answer(
                json!({"code": 404, "reason": "NotFound", "message": "m", "status": "Failure", "details": details}),
            );
            assert_eq!(Category::of(&error), category, "{details}");
        }
    }

    #[test]
    fn a_refusal_names_who_refuses() {
        for (code, message, category) in [
            (
                403,
                "secrets \"c1-a\" is forbidden: exceeded quota: few, requested: count/secrets=1",
                Category::QuotaExceeded,
            ),
            (400, "admission webhook \"a.b.c\" denied the request: no", Category::Denied),
            (403, "admission webhook \"a.b.c\" denied the request: no", Category::Denied),
            (
                422,
                "secrets \"c1-a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Category::Denied,
            ),
            (403, "secrets is forbidden: User \"u\" cannot create resource", Category::Forbidden),
            (403, "forbidden: admission webhook \"a.b.c\" is not known", Category::Forbidden),
            (403, "forbidden: the proxy has denied the request", Category::Forbidden),
            (403, "forbidden: ValidatingAdmissionPolicy 'p' cannot be read", Category::Forbidden),
            (403, "forbidden: a policy has denied request 7", Category::Forbidden),
            (503, "admission webhook \"a.b.c\" denied the request: no", Category::Denied),
            (
                500,
                "failed calling webhook: admission webhook \"a\" denied the request",
                Category::Internal,
            ),
        ] {
            let error = answer(
                json!({"code": code, "reason": "r", "message": message, "status": "Failure"}),
            );
            assert_eq!(Category::of(&error), category, "{code} {message}");
        }
    }

    #[test]
    fn the_api_server_s_own_wait_is_read() {
        let status = |details| json!({"code": 503, "reason": "r", "message": "m", "status": "Failure", "details": details});
        assert_eq!(
            retry_after(&answer(status(json!({"retryAfterSeconds": 3})))),
            Some(Duration::from_secs(3))
        );
        assert_eq!(retry_after(&answer(status(json!({})))), None);
    }

    #[test]
    fn the_summary_is_one_line_and_says_nothing_twice() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "nobody\nhome");
        let text = summary(&kube::Error::ReadEvents(refused));
        assert_eq!(text, "Error reading events stream: nobody home");
        let cases = [
            ("no\nspace", "no space"),
            ("\u{202e}ecaps on", "\u{fffd}ecaps on"),
            ("", "Invalid (422)"),
        ];
        for (message, summarized) in cases {
            let status =
                json!({"code": 422, "reason": "Invalid", "message": message, "status": "Failure"});
            assert_eq!(summary(&answer(status)), summarized);
        }
    }
}
