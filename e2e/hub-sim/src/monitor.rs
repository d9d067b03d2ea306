//! What is seen of the processes' requests at the moment they reach the server: rules that hold for each of them,
//! whatever else happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::hub::{CLUSTER_NAME_LABEL, CONDITION_SYNCED, MANAGER, MANAGER_LABEL, SET_LABEL};
use crate::model::{Answer, Change, Request, Server, name_of, uid_of};
use crate::world::Counts;

/// Watches every request.
#[derive(Debug, Default)]
pub struct Monitor {
    /// What was broken, in the order in which it was.
    pub violations: Vec<String>,
    /// The uids of what the processes have made.
    pub made: BTreeSet<String>,
    /// Writes that changed something, but for Events and Leases.
    pub writes: u64,
    /// A line for each request, in order: two runs of one seed have the same.
    pub trace: Vec<String>,
    counts: Counts,
    by_minute: BTreeMap<u64, u64>,
}

/// Kinds of which writes are neither state nor difference.
const NOISE: [&str; 2] = ["events", "leases"];

impl Monitor {
    /// Counts something.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The requests of the busiest minute.
    #[must_use]
    pub fn busiest_minute(&self) -> u64 {
        self.by_minute.values().copied().max().unwrap_or(0)
    }

    /// The requests of all minutes since a moment.
    #[must_use]
    pub fn requests_since(&self, begin: Duration) -> u64 {
        self.by_minute.range(begin.as_secs() / 60..).map(|(_, count)| count).sum()
    }

    /// Notes a request that reached the server.
    pub fn request(&mut self, now: Duration, request: &Request) {
        self.count("requests");
        *self.by_minute.entry(now.as_secs() / 60).or_default() += 1;
        self.trace.push(format!("{:?} {} {}", now, request.method, request.path));
    }

    /// Judges a write that reached the server.
    pub fn write(
        &mut self,
        server: &Server,
        request: &Request,
        answer: &Answer,
        changes: &[Change],
        is_idle: bool,
    ) {
        if NOISE.iter().any(|plural| request.path.contains(plural)) {
            return;
        }
        self.count("writes");
        let what = format!("{} {}", request.method, request.path);
        if is_idle {
            self.violations.push(format!("a write without a difference: {what}"));
        }
        if ["PATCH", "PUT", "DELETE"].contains(&request.method.as_str()) && !names_a_version(request) {
            self.violations.push(format!("a write that could meet a newer state: {what}"));
        }
        if matches!(answer, Answer::Failure(_)) {
            self.count("refused writes");
        }
        for change in changes {
            self.writes += 1;
            if let Err(rule) = self.judge(server, change) {
                let object = change.before.as_ref().or(change.after.as_ref());
                let object = object.map(ToString::to_string).unwrap_or_default();
                self.violations.push(format!("{rule}: {what}\n  of {object}"));
            }
            if let (None, Some(made)) = (&change.before, &change.after) {
                self.made.insert(uid_of(made).to_owned());
            }
        }
    }

    fn judge(&self, server: &Server, change: &Change) -> Result<(), String> {
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        match server.kinds[change.key.kind].plural.as_str() {
            "clusterprofiles" => judge_profile(before, after),
            "secrets" => match before {
                Some(before) if !self.made.contains(uid_of(before)) => {
                    Err("a Secret of somebody else is changed or deleted".to_owned())
                }
                _ => Ok(()),
            },
            "managedserviceaccounts" => judge_account(before, after),
            "rolebindings" => match before {
                Some(before) if !self.made.contains(uid_of(before)) => {
                    Err("a RoleBinding of somebody else is changed or deleted".to_owned())
                }
                _ => Ok(()),
            },
            "clusterroles" => match (before, after) {
                (Some(before), Some(after))
                    if name_of(before) == "tokens" && others(before) == others(after) =>
                {
                    Ok(())
                }
                _ => Err("a ClusterRole is changed that is not the one of tokens".to_owned()),
            },
            plural => Err(format!("something is written among {plural}")),
        }
    }
}

/// A ClusterRole but for its rules and its version.
fn others(role: &Value) -> Value {
    let mut role = role.clone();
    role["rules"] = Value::Null;
    for field in ["resourceVersion", "managedFields"] {
        role["metadata"][field] = Value::Null;
    }
    role
}

/// Whether a write names the version that it is for. To delete a Secret, its uid is enough: one that the syncer created
/// goes with its grant whatever its present state is, and after its label is gone no watch shows its version.
fn names_a_version(request: &Request) -> bool {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let names = |value: &Value| value["uid"].is_string() && value["resourceVersion"].is_string();
    let deletes_a_secret = request.method == "DELETE" && request.path.contains("/secrets/");
    names(&body["metadata"])
        || names(&body["preconditions"])
        || deletes_a_secret && body["preconditions"]["uid"].is_string()
}

fn judge_profile(before: Option<&Value>, after: Option<&Value>) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let labelled = before["metadata"]["labels"][MANAGER_LABEL] == MANAGER;
    if before["spec"]["clusterManager"]["name"] != MANAGER {
        return Err("a profile of another manager is changed or deleted".to_owned());
    }
    let Some(after) = after else {
        return if labelled {
            Ok(())
        } else {
            Err("a profile is deleted that is not labelled as ours".to_owned())
        };
    };
    let kept = |object: &Value| {
        let metadata = &object["metadata"];
        let labels: Map<String, Value> = metadata["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| {
                ![MANAGER_LABEL, CLUSTER_NAME_LABEL, SET_LABEL, MEMBER_LABEL].contains(&key.as_str())
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let of_others = |list: &Value, key: &str, ours: &[&str]| {
            let entries = list.as_array().into_iter().flatten();
            let others =
                entries.filter(|entry| !entry[key].as_str().is_some_and(|name| ours.contains(&name)));
            others.cloned().collect::<Vec<_>>()
        };
        (
            labels,
            metadata["annotations"].clone(),
            metadata["finalizers"].clone(),
            metadata["ownerReferences"].clone(),
            of_others(&object["status"]["conditions"], "type", &["ControlPlaneHealthy", "Joined"]),
            of_others(&object["status"]["accessProviders"], "name", &[MANAGER]),
            object["status"]["credentialProviders"].clone(),
        )
    };
    if kept(before) == kept(after) {
        return Ok(());
    }
    // What ends by our delete gets a deletionTimestamp and nothing else.
    Err("parts of a profile that are not ours are changed".to_owned())
}

/// KEP-4322's label, which may come.
const MEMBER_LABEL: &str = "multicluster.x-k8s.io/inventory-member-id";

fn judge_account(before: Option<&Value>, after: Option<&Value>) -> Result<(), String> {
    let (Some(before), Some(after)) = (before, after) else {
        return Err("a ManagedServiceAccount is created or deleted".to_owned());
    };
    let kept = |object: &Value| {
        let mut object = object.clone();
        for field in ["resourceVersion", "managedFields"] {
            object["metadata"][field] = Value::Null;
        }
        if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
            conditions.retain(|condition| condition["type"] != CONDITION_SYNCED);
        }
        let none = object["status"]["conditions"].as_array().is_none_or(Vec::is_empty);
        if let Some(status) = object["status"].as_object_mut().filter(|_| none) {
            status.remove("conditions");
        }
        if object["status"].as_object().is_some_and(Map::is_empty) {
            object["status"] = Value::Null;
        }
        object
    };
    if kept(before) == kept(after) {
        Ok(())
    } else {
        Err("parts of a ManagedServiceAccount that are not ours are changed".to_owned())
    }
}
