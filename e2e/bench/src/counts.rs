//! What controllers asked of the API server, counted from its audit log.

use std::collections::BTreeMap;

use local_hub::{AuditRequest, Requests};
use strum::VariantArray;

/// A counted kind of request. The first eight are writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub enum Counter {
    /// ClusterProfiles created.
    ProfileCreates,
    /// Writes of a ClusterProfile's metadata and spec.
    ProfilePatches,
    /// Writes of a ClusterProfile's status.
    StatusWrites,
    /// ClusterProfiles deleted.
    ProfileDeletes,
    /// Copies of tokens created.
    CopyCreates,
    /// Copies of tokens changed.
    CopyPatches,
    /// Copies of tokens deleted.
    CopyDeletes,
    /// Writes of anything else, except Leases and Events.
    OtherWrites,
    /// GETs, except of Leases.
    Gets,
    /// Responses 409.
    Conflicts,
    /// Responses 429.
    Throttled,
    /// Other responses of 400 and above, except to a delete of what is gone.
    Failures,
    /// Successful writes of profiles and copies that changed nothing.
    NoOpWrites,
}

impl Counter {
    /// Whether it counts writes.
    pub fn is_write(self) -> bool {
        self <= Self::OtherWrites
    }

    /// What it counts, for messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::ProfileCreates => "creates of profiles",
            Self::ProfilePatches => "patches of profiles",
            Self::StatusWrites => "writes of profile status",
            Self::ProfileDeletes => "deletes of profiles",
            Self::CopyCreates => "creates of copies",
            Self::CopyPatches => "patches of copies",
            Self::CopyDeletes => "deletes of copies",
            Self::OtherWrites => "writes of other objects",
            Self::Gets => "GETs",
            Self::Conflicts => "responses 409",
            Self::Throttled => "responses 429",
            Self::Failures => "other failures",
            Self::NoOpWrites => "no-op writes",
        }
    }
}

/// The value of each counter; one that is missing is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Counter, usize>);

impl Counts {
    /// Counts requests. [`Counter::NoOpWrites`] is not among them: see [`with_changes`](Self::with_changes).
    pub fn of(requests: &Requests) -> Self {
        let mut counts = Self::default();
        for request in requests.iter().filter(|request| !is_housekeeping(request)) {
            if let Some(counter) = kind(request) {
                *counts.0.entry(counter).or_default() += 1;
            }
            if let Some(counter) = failure(request) {
                *counts.0.entry(counter).or_default() += 1;
            }
        }
        counts
    }

    /// With the writes that changed nothing: those that were successful, less the `changes` that a watch observed.
    pub fn with_changes(mut self, requests: &Requests, changes: usize) -> Self {
        self.0.insert(Counter::NoOpWrites, successful_writes(requests).saturating_sub(changes));
        self
    }

    /// The value of a counter.
    pub fn get(&self, counter: Counter) -> usize {
        self.0.get(&counter).copied().unwrap_or_default()
    }

    /// All writes, except those of Leases and Events.
    pub fn writes(&self) -> usize {
        self.0.iter().filter(|(counter, _)| counter.is_write()).map(|(_, count)| count).sum()
    }
}

/// Successful writes of profiles and copies that leave an object.
pub fn successful_writes(requests: &Requests) -> usize {
    requests.count(|request| {
        ["clusterprofiles", "secrets"].contains(&request.resource.as_str())
            && ["create", "update", "patch"].contains(&request.verb.as_str())
            && (200..300).contains(&request.code)
    })
}

/// The number of requests by verb and resource, such as `create clusterprofiles`.
pub fn by_verb(requests: &Requests) -> BTreeMap<String, usize> {
    let named = |((verb, target), count)| (format!("{verb} {target}"), count);
    requests.by_verb().into_iter().map(named).collect()
}

/// Leases are renewed as time passes, and Events report what happens.
fn is_housekeeping(request: &AuditRequest) -> bool {
    ["leases", "events"].contains(&request.resource.as_str())
}

fn kind(request: &AuditRequest) -> Option<Counter> {
    if request.verb == "get" {
        return Some(Counter::Gets);
    }
    if !request.is_write() {
        return None;
    }
    Some(match (request.resource.as_str(), request.subresource.as_str(), request.verb.as_str()) {
        ("clusterprofiles", "status", _) => Counter::StatusWrites,
        ("clusterprofiles", "", "create") => Counter::ProfileCreates,
        ("clusterprofiles", "", "update" | "patch") => Counter::ProfilePatches,
        ("clusterprofiles", "", _) => Counter::ProfileDeletes,
        ("secrets", "", "create") => Counter::CopyCreates,
        ("secrets", "", "update" | "patch") => Counter::CopyPatches,
        ("secrets", "", _) => Counter::CopyDeletes,
        _ => Counter::OtherWrites,
    })
}

fn failure(request: &AuditRequest) -> Option<Counter> {
    match request.code {
        409 => Some(Counter::Conflicts),
        429 => Some(Counter::Throttled),
        // Deleted by the namespace controller or the garbage collector in between; a kind that this hub does not serve.
        404 if ["delete", "list"].contains(&request.verb.as_str()) => None,
        400.. => Some(Counter::Failures),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str, subresource: &str, code: u16) -> AuditRequest {
        AuditRequest {
            user: "controllers".to_owned(),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "team".to_owned(),
            name: String::new(),
            code,
            uri: String::new(),
            user_agent: String::new(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_request_is_counted_by_what_it_writes_and_again_by_its_failure() {
        let requests: Requests = [
            request("create", "clusterprofiles", "", 201),
            request("patch", "clusterprofiles", "status", 200),
            request("patch", "clusterprofiles", "status", 409),
            request("update", "clusterprofiles", "", 200),
            request("delete", "secrets", "", 404),
            request("patch", "secrets", "", 429),
            request("get", "secrets", "", 404),
            request("list", "secrets", "", 200),
            request("patch", "managedserviceaccounts", "status", 200),
        ]
        .into_iter()
        .collect();
        let counts = Counts::of(&requests);
        let found: Vec<_> = Counter::VARIANTS.iter().map(|counter| counts.get(*counter)).collect();
        assert_eq!(found, [1, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(counts.writes(), 7);
    }

    #[test]
    fn leases_and_events_are_not_among_the_writes() {
        let requests: Requests =
            [request("update", "leases", "", 200), request("create", "events", "", 201)]
                .into_iter()
                .collect();
        assert_eq!(Counts::of(&requests), Counts::default());
    }

    #[test]
    fn a_write_that_no_watch_observed_changed_nothing() {
        let requests: Requests = [
            request("create", "clusterprofiles", "", 201),
            request("patch", "clusterprofiles", "status", 200),
            request("patch", "clusterprofiles", "status", 409),
            request("delete", "clusterprofiles", "", 200),
        ]
        .into_iter()
        .collect();
        assert_eq!(Counts::of(&requests).with_changes(&requests, 1).get(Counter::NoOpWrites), 1);
        assert_eq!(Counts::of(&requests).with_changes(&requests, 2).get(Counter::NoOpWrites), 0);
    }
}
