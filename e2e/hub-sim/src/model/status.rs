//! The errors of an API server, with the messages of the real one.

use serde_json::{Value, json};

/// A failed request.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// `Status.reason`.
    pub reason: &'static str,
    /// `Status.message`.
    pub message: String,
    /// `Status.details`.
    pub details: Value,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}) }
    }

    /// The `Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self.details.as_object().is_some_and(|details| !details.is_empty()) {
            status["details"] = self.details.clone();
        }
        status
    }

    /// The path is not served. The real server sends plain text here instead of a `Status`, and so does the model.
    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "", "404 page not found\n")
    }

    /// The object does not exist.
    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// The object already exists.
    pub(crate) fn already_exists(resource: &str, name: &str, is_terminating: bool) -> Self {
        let why = if is_terminating { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{why}{resource} {name:?} already exists"))
            .about(resource, name)
    }

    /// A conflict: the object has changed.
    pub(crate) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// A conflict: the object has changed since it was read.
    pub(crate) fn modified(resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// A precondition of a delete does not hold.
    #[must_use]
    pub fn precondition(
        resource: &str,
        name: &str,
        field: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let (field, meta) = (field, if field == "UID" { "UID" } else { "ResourceVersion" });
        let why = format!(
            "Precondition failed: {field} in precondition: {wanted}, {meta} in object meta: {found}"
        );
        Self::conflict(resource, name, &why)
    }

    /// The object is not valid.
    pub(crate) fn invalid(kind: &str, name: &str, causes: &[(String, String)]) -> Self {
        let list: Vec<String> =
            causes.iter().map(|(field, why)| format!("{field}: {why}")).collect();
        let message = match &list[..] {
            [one] => format!("{kind} {name:?} is invalid: {one}"),
            many => format!("{kind} {name:?} is invalid: [{}]", many.join(", ")),
        };
        let mut failure = Self::new(422, "Invalid", message);
        let causes = causes.iter().map(
            |(field, why)| json!({ "reason": "FieldValueInvalid", "field": field, "message": why }),
        );
        failure.details =
            json!({ "name": name, "kind": kind, "causes": causes.collect::<Vec<_>>() });
        failure
    }

    /// The request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The resource does not support the verb.
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(405, "MethodNotAllowed", message)
    }

    /// The namespace is being deleted.
    pub(crate) fn namespace_terminating(resource: &str, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut failure = Self::forbidden(resource, name, &why);
        let message = format!("namespace {namespace} is being terminated");
        failure.details["causes"] = json!([{ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" }]);
        failure
    }

    /// A missing permission, a quota or a webhook refuses the request.
    #[must_use]
    pub fn forbidden(resource: &str, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{resource} {name:?} is forbidden: {why}"))
            .about(resource, name)
    }

    /// The version from which the client continues has been compacted.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The client has to send fewer requests.
    pub(crate) fn too_many_requests(retry_after: u64) -> Self {
        let mut failure = Self::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        failure.details = json!({ "retryAfterSeconds": retry_after });
        failure
    }

    /// The server cannot reach its storage.
    pub(crate) fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// An internal error of the server.
    pub(crate) fn internal() -> Self {
        Self::new(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
    }

    /// The version that the client requests is newer than the latest.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message);
        failure.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        failure
    }

    fn about(mut self, resource: &str, name: &str) -> Self {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.details = json!({ "name": name, "kind": plural });
        if !group.is_empty() {
            self.details["group"] = group.into();
        }
        self
    }
}
