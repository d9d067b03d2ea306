//! Requests to an API server, to be counted.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use jiff::Timestamp;

/// One request. Missing fields are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRequest {
    /// The user; empty if unknown.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for non-resource requests
    /// the HTTP method in lower case.
    pub verb: String,
    /// The API group; empty for the core group and for non-resource requests.
    pub group: String,
    /// The resource in the plural.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name; empty for a list and a create.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
    /// The path and query.
    pub uri: String,
    pub user_agent: String,
    /// When the response was complete; for a watch, when it began.
    pub timestamp: Timestamp,
}

impl AuditRequest {
    #[must_use]
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }

    /// `resource` or `resource/subresource`, else the path.
    #[must_use]
    pub fn target(&self) -> String {
        match (self.resource.as_str(), self.subresource.as_str()) {
            ("", _) => self.uri.split('?').next().unwrap_or_default().to_owned(),
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        }
    }
}

/// Requests in the order of the log. A slice of [`AuditRequest`] with methods to filter and count; its `Display` is for
/// assertion messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(Vec<AuditRequest>);

impl Requests {
    pub(crate) fn new(requests: Vec<AuditRequest>) -> Self {
        Self(requests)
    }

    /// The requests of one user.
    #[must_use]
    pub fn of_user(&self, user: &str) -> Self {
        self.matching(|request| request.user == user)
    }

    #[must_use]
    pub fn writes(&self) -> Self {
        self.matching(AuditRequest::is_write)
    }

    /// The requests that satisfy a condition.
    #[must_use]
    pub fn matching(&self, condition: impl Fn(&AuditRequest) -> bool) -> Self {
        self.0.iter().filter(|request| condition(request)).cloned().collect()
    }

    /// How many satisfy a condition.
    #[must_use]
    pub fn count(&self, condition: impl Fn(&AuditRequest) -> bool) -> usize {
        self.0.iter().filter(|request| condition(request)).count()
    }

    /// The number of requests by verb and [`target`](AuditRequest::target).
    #[must_use]
    pub fn by_verb(&self) -> BTreeMap<(String, String), usize> {
        self.0.iter().fold(BTreeMap::new(), |mut counts, request| {
            *counts.entry((request.verb.clone(), request.target())).or_default() += 1;
            counts
        })
    }
}

impl Deref for Requests {
    type Target = [AuditRequest];

    fn deref(&self) -> &[AuditRequest] {
        &self.0
    }
}

impl FromIterator<AuditRequest> for Requests {
    fn from_iter<I: IntoIterator<Item = AuditRequest>>(requests: I) -> Self {
        Self(requests.into_iter().collect())
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no requests");
        }
        let mut counts = BTreeMap::<_, usize>::new();
        for request in &self.0 {
            *counts
                .entry((&request.user, &request.verb, request.target(), request.code))
                .or_default() += 1;
        }
        for (position, ((user, verb, target, code), count)) in counts.into_iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            let user = if user.is_empty() { "nobody" } else { user };
            write!(f, "{separator}{count}x {user} {verb} {target}")?;
            // Success is not mentioned.
            if !(200..300).contains(&code) {
                write!(f, " ({code})")?;
            }
        }
        Ok(())
    }
}
