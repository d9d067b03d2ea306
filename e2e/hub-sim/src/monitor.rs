//! Judges each request of the processes when it reaches the server, by rules that always hold.

mod consumer;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use self::consumer::is_marked;
use crate::consumers::{ACCESSES, KINDS, Permissions, ROLE};
use crate::hub::{
    CLUSTER_NAME_LABEL, CONDITION_SYNCED, COPY_ANNOTATIONS, COPY_LABEL, MANAGER, MANAGER_LABEL,
    SET_LABEL,
};
use crate::model::{Answer, Change, Failure, Request, Server, is_terminating, name_of, uid_of};

pub type ProcessId = usize;

/// The counters by name.
pub type Counts = BTreeMap<Cow<'static, str>, u64>;

/// Watches every request.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the schedule")]
pub struct Monitor {
    /// The violations, in the order in which they occurred.
    pub violations: Vec<String>,
    /// The uids of the objects that the processes have created, and which process created each.
    pub made: BTreeMap<String, ProcessId>,
    /// The uids of the objects that earlier processes have created. If a tenant has since stripped such a copy, nothing
    /// identifies it as a copy.
    pub abandoned: BTreeSet<String>,
    /// The identity and the Lease of each process that takes part in leader election.
    pub candidates: BTreeMap<ProcessId, (String, String)>,
    /// Whether RoleBindings and ClusterRoles on the hub limit the permissions for Secrets.
    pub limited_secrets: bool,
    /// The namespaces whose RoleBinding was deleted by another client and not created again by a process.
    pub permission_deleted: BTreeSet<String>,
    /// Whether two replicas both believe that they lead. Then one can restore a permission that the other withdraws.
    pub two_leaders: bool,
    /// The uids of objects of consumers that one of two leaders, or a restore of etcd, marks again. To a process that has
    /// seen them without marks and did not create them, they belong to another owner.
    pub disputed: BTreeSet<String>,
    /// Whether resourceVersions, and thus Leases, have gone backwards.
    pub is_rewound: bool,
    /// The uid and the version of each state that a restore of etcd has undone. If the object gets that version again, a
    /// process cannot tell the new state from the one that it knows.
    pub undone: BTreeSet<(String, String)>,
    /// Whether there are consumers, and the kind of objects that gives them permissions.
    pub has_consumers: bool,
    pub permissions: Permissions,
    /// Whether the API server has refused to delete an account or to show what it is now, or has not served accounts.
    pub is_account_refused: bool,
    /// The plurals whose CRD was removed, whether or not it has returned.
    pub removed_crds: BTreeSet<&'static str>,
    /// Writes that changed something, except Events and Leases.
    pub writes: u64,
    /// A line for each request, in order. Two runs with the same seed have the same lines.
    pub trace: Vec<String>,
    counts: Counts,
    by_minute: BTreeMap<u64, u64>,
}

/// The kinds that every grant rests on.
pub(crate) const GRANTS: [&str; 3] =
    ["managedclusters", "managedclustersets", "managedclustersetbindings"];

/// The names of objects in the rules of a role.
pub(crate) fn names_in_rules(role: Option<&Value>) -> BTreeSet<&str> {
    let rules = role.into_iter().flat_map(|role| role["rules"].as_array().into_iter().flatten());
    rules
        .flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect()
}

/// Whether a RoleBinding refers to a ClusterRole, as those of the syncer do; those of applications refer to a Role.
fn binds_cluster_role(change: &Change) -> bool {
    change.after.as_ref().is_some_and(|object| object["roleRef"]["kind"] == "ClusterRole")
}

/// Kinds whose writes are not part of the state.
const NOISE: [&str; 2] = ["events", "leases"];

impl Monitor {
    /// Adds one to a counter.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Counts a failure that a process receives as a response.
    pub fn failed(&mut self, failure: &Failure) {
        let is = |text: &str| failure.message.contains(text);
        let what = match (failure.code, failure.reason) {
            (403, _) if is("quota") => "refused: quota",
            (403, _) if is("being terminated") => "refused: terminating namespace",
            (403, _) => "refused: missing permission",
            (404, "") => "refused: kind that is not served",
            (404, _) => "refused: object that is gone",
            (405, _) => "refused: terminating CRD",
            (409, "AlreadyExists") => "refused: object that exists",
            (409, _) => "refused: object that has changed",
            (410, _) => "refused: expired page of a list",
            (422, _) => "refused: invalid object",
            _ => return,
        };
        self.count(what);
    }

    /// Records a request of a process that failed.
    pub(crate) fn refused(&mut self, request: &Request, failure: &Failure) {
        let delays_end = request.method == "DELETE" || matches!(failure.code, 404 | 405);
        if delays_end && request.path.contains("/managedserviceaccounts") && !is_stale(failure) {
            self.is_account_refused = true;
        }
    }

    /// Records that a process has ended.
    pub fn abandon(&mut self, process: ProcessId) {
        let made = self.made.iter().filter(|(_, maker)| **maker == process);
        self.abandoned.extend(made.map(|(uid, _)| uid.clone()));
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The requests of the busiest minute.
    #[must_use]
    pub fn busiest_minute(&self) -> u64 {
        self.by_minute.values().copied().max().unwrap_or(0)
    }

    /// Records a request that reached the server.
    pub fn request(&mut self, now: Duration, request: &Request) {
        self.count("requests");
        *self.by_minute.entry(now.as_secs() / 60).or_default() += 1;
        self.trace.push(format!("{now:?} {} {}", request.method, request.path));
    }

    /// Judges a write that reached the server.
    pub fn write(
        &mut self,
        server: &Server,
        process: ProcessId,
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
        // A restored object can have the version under which a process knows another state of it.
        if is_idle && !self.is_rewound {
            self.violations.push(format!("a write without a difference: {what}"));
        }
        let precondition = precondition(request);
        let needs_one = ["PATCH", "PUT", "DELETE"].contains(&request.method.as_str());
        if needs_one && !is_sufficient(request, &precondition) {
            self.violations.push(format!("a write without a precondition: {what}"));
        }
        let is_mistaken = self.undone.contains(&precondition);
        if let Answer::Failure(_) = answer {
            self.count("failed writes");
        }
        if let Some(other) = self.other_leader(server, process) {
            self.violations.push(format!("a write beside the leader: {what}, while {other} leads"));
        }
        for change in changes {
            // Two leaders can disagree without end, also about what keeps a copy: only one of them may know it.
            let is_contested = self.two_leaders
                && (request.path.contains("rolebindings") || is_condition(&request.path))
                || !self.disputed.is_empty() && is_consumers(&request.path);
            self.writes += u64::from(!is_contested);
            let plural = server.kinds[change.key.kind].plural.as_str();
            let verdict = if KINDS.contains(&plural) {
                self.judge_access(server, plural, change)
            } else {
                self.judge(server, change)
            };
            if let Err(rule) = verdict
                && !is_mistaken
            {
                let object = change.before.as_ref().or(change.after.as_ref());
                let object = object.map(ToString::to_string).unwrap_or_default();
                self.violations.push(format!("{rule}: {what}\n  of {object}"));
            }
            if let (None, Some(made)) = (&change.before, &change.after) {
                if plural == "secrets" && is_marked(made) {
                    self.count("consumers: cluster Secrets created");
                }
                if plural == "rolebindings" && !name_of(made).starts_with(ROLE) {
                    self.permission_deleted.remove(&change.key.namespace);
                }
                self.made.insert(uid_of(made).to_owned(), process);
            }
        }
    }

    /// Judges a write while some kinds could not be read for more than a minute: no object, no token and no permission is
    /// created on a grant that rests on one of them.
    pub fn judge_knowledge(
        &mut self,
        server: &Server,
        request: &Request,
        changes: &[Change],
        unread: &[&str],
    ) {
        for change in changes {
            let plural = server.kinds[change.key.kind].plural.as_str();
            let token = |object: &Option<Arc<Value>>| {
                Some(object.as_ref()?["data"]["token"].as_str()?.to_owned())
            };
            let is_new = change.before.is_none() && change.after.is_some();
            let has_new_token =
                token(&change.after).is_some() && token(&change.after) != token(&change.before);
            let is_wider = !names_in_rules(change.after.as_deref())
                .is_subset(&names_in_rules(change.before.as_deref()));
            if NOISE.contains(&plural) || !(is_new || has_new_token || is_wider) {
                continue;
            }
            let is_copy = plural == "secrets" && !change.after.as_deref().is_some_and(is_marked);
            let rests_on = |kind: &str| {
                GRANTS.contains(&kind)
                    || kind == plural
                    || is_copy && ["managedserviceaccounts", "clusterprofiles"].contains(&kind)
                    || is_copy && self.limited_secrets && kind == "rolebindings"
                    || kind == "clusterroles" && binds_cluster_role(change)
            };
            if let Some(kind) = unread.iter().find(|kind| rests_on(kind)) {
                let what = format!("{} {}", request.method, request.path);
                self.violations.push(format!(
                    "a write although {kind} could not be read for a minute: {what}"
                ));
            }
        }
    }

    /// Records that the server was restored from a backup, and which changes it has lost, as far as it remembers them.
    /// Objects that processes have created, and perhaps deleted since, can exist again.
    pub fn rewound(&mut self, lost: &[Change]) {
        if !lost.is_empty() {
            self.count("rewound histories");
        }
        let states =
            lost.iter().filter_map(|change| Some((change.after.as_ref()?, change.version)));
        self.undone
            .extend(states.map(|(state, version)| (uid_of(state).to_owned(), version.to_string())));
        self.abandoned.extend(self.made.keys().cloned());
        self.is_rewound = true;
    }

    /// Another process that holds the Lease which this process needs for its writes.
    fn other_leader(&self, server: &Server, process: ProcessId) -> Option<String> {
        let (own, lease) = self.candidates.get(&process).filter(|_| !self.is_rewound)?;
        let lease = server.objects_of("leases").find(|it| name_of(it) == lease)?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        (!holder.is_empty() && holder != own).then(|| holder.to_owned())
    }

    fn judge(&self, server: &Server, change: &Change) -> Result<(), String> {
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        match server.kinds[change.key.kind].plural.as_str() {
            "clusterprofiles" => judge_profile(before, after),
            "secrets" => match before {
                None if after.is_some_and(is_marked) => {
                    // It has the server and the trust anchors, and a token in it would be one more field.
                    let has = |key: &str| after.is_some_and(|it| it["data"][key].is_string());
                    let fields =
                        after.and_then(|it| it["data"].as_object()).map_or(0, serde_json::Map::len);
                    if ["name", "server", "config"].into_iter().all(has) && fields == 3 {
                        Ok(())
                    } else {
                        Err("a cluster Secret with other fields is created".to_owned())
                    }
                }
                Some(before) if !self.made.contains_key(uid_of(before)) => {
                    judge_foreign_secret(before, after)
                }
                _ => Ok(()),
            },
            "rolebindings" => match before {
                Some(before) if !self.made.contains_key(uid_of(before)) => {
                    Err("a foreign RoleBinding is changed or deleted".to_owned())
                }
                _ => Ok(()),
            },
            "roles" if after.is_some_and(|role| name_of(role).starts_with(ROLE)) => Ok(()),
            ACCESSES => match (before, after) {
                (Some(before), Some(after)) if before["spec"] == after["spec"] => Ok(()),
                _ => Err("more than the status of an object is written".to_owned()),
            },
            "clusterroles" => match (before, after) {
                (Some(before), Some(after))
                    if name_of(before) == "tokens" && others(before) == others(after) =>
                {
                    Ok(())
                }
                _ => Err("a role other than those that list Secrets by name is changed".to_owned()),
            },
            plural => Err(format!("an object of {plural} is written")),
        }
    }
}

/// Whether a path is that of objects of consumers, or of what is said of them.
fn is_consumers(path: &str) -> bool {
    KINDS.into_iter().chain([ACCESSES]).any(|plural| path.contains(plural))
}

/// Whether a path is that of the condition of an account.
fn is_condition(path: &str) -> bool {
    path.contains("/managedserviceaccounts/") && path.ends_with("/status")
}

/// Whether a write was refused because its object exists, has changed or is gone.
fn is_stale(failure: &Failure) -> bool {
    failure.code == 409 || failure.reason == "NotFound"
}

/// A role without its rules and version.
fn others(role: &Value) -> Value {
    let mut role = role.clone();
    role["rules"] = Value::Null;
    for field in ["resourceVersion", "managedFields"] {
        role["metadata"][field] = Value::Null;
    }
    role
}

/// The uid and the version that a write is for, as far as it names them.
fn precondition(request: &Request) -> (String, String) {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let part = if request.method == "DELETE" { &body["preconditions"] } else { &body["metadata"] };
    let text = |field: &str| part[field].as_str().unwrap_or_default().to_owned();
    (text("uid"), text("resourceVersion"))
}

/// Whether a write names the version that it is for. For the deletion of a Secret the uid is enough: the syncer deletes
/// a Secret that it created when the grant ends, whatever state the Secret is in, and without its label no watch shows
/// its version. So it is for RoleBindings, which the controller replaces whatever a tenant makes of them, and for objects
/// of consumers that no watch has shown yet.
fn is_sufficient(request: &Request, (uid, version): &(String, String)) -> bool {
    let is_copied = ["/secrets/", "/rolebindings/"].iter().any(|kind| request.path.contains(kind));
    let by_uid = request.method == "DELETE" && (is_copied || is_consumers(&request.path));
    !uid.is_empty() && (!version.is_empty() || by_uid)
}

/// A Secret that no process has created may be deleted only if it has every mark of a copy, and then be emptied while a
/// finalizer keeps it. No other Secret may be changed, and none may receive a token.
fn judge_foreign_secret(before: &Value, after: Option<&Value>) -> Result<(), String> {
    if !is_dressed_up(before) {
        return Err("a foreign Secret is changed or deleted".to_owned());
    }
    match after {
        Some(after) if after["data"].is_object() && after["data"] != before["data"] => {
            Err("a Secret that a tenant has forged receives data".to_owned())
        }
        Some(after) if !is_terminating(after) => {
            Err("a Secret that a tenant has forged is changed".to_owned())
        }
        _ => Ok(()),
    }
}

/// Whether a Secret has every mark of a copy.
#[must_use]
pub fn is_dressed_up(secret: &Value) -> bool {
    let metadata = &secret["metadata"];
    let annotation = |key: &str| metadata["annotations"][key].as_str().unwrap_or_default();
    let [cluster, account, _] = COPY_ANNOTATIONS;
    let name = format!("{}-{}", annotation(cluster), annotation(account));
    metadata["labels"][COPY_LABEL] == name_of(secret)
        && name == name_of(secret)
        && secret["type"] == "Opaque"
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
                ![MANAGER_LABEL, CLUSTER_NAME_LABEL, SET_LABEL, MEMBER_LABEL]
                    .contains(&key.as_str())
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let of_others = |list: &Value, key: &str, ours: &[&str]| {
            let entries = list.as_array().into_iter().flatten();
            let others = entries
                .filter(|entry| !entry[key].as_str().is_some_and(|name| ours.contains(&name)));
            others.cloned().collect::<Vec<_>>()
        };
        (
            labels,
            metadata["annotations"].clone(),
            metadata["finalizers"].clone(),
            metadata["ownerReferences"].clone(),
            of_others(&object["status"]["conditions"], "type", &["ControlPlaneHealthy", "Joined"]),
            of_others(&object["status"]["accessProviders"], "name", &[MANAGER]),
            of_others(&object["status"]["credentialProviders"], "name", &[MANAGER]),
        )
    };
    if kept(before) == kept(after) {
        return Ok(());
    }
    // A delete of an object with finalizers only sets its deletionTimestamp.
    Err("parts of a profile that are not ours are changed".to_owned())
}

/// The label of KEP-4322, which may be added.
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
