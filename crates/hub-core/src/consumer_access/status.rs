//! The status of a ClusterAccess: what it is granted and selects, and cluster by cluster what is missing.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_access::{
    ACCEPTED, CLUSTERS_NOT_READY, ClusterAccessStatus, ClusterCounts, MOST_NOT_READY, NotReady,
    READY,
};
use hub_api::names::{AccountKey, ClusterName};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::consumers::{AccessName, Consumer, Decisions, NotAccepted};
use super::desired::AccessSettings;
use super::kind::AccessKind;
use super::observed::{FoundObject, Owned};
use super::permissions::Part;
use crate::credential::report::to_the_second;
use crate::fleet::Fleet;
use crate::grant::Grant;

/// Why objects that a ClusterAccess gets cannot be read.
pub struct Unread {
    /// The reason of the condition `Ready`: `Unknown` if what is known of them is out of date.
    pub reason: &'static str,
    pub message: String,
    /// The kinds of its objects on clusters that are not listed: one that is not known may exist.
    pub kinds: Vec<AccessKind>,
}

/// What a ClusterAccess has on a cluster that is granted to its namespace, or may be.
#[derive(Debug, Clone)]
pub struct OnCluster {
    bound: Grant,
    /// Whether it also selects the cluster; `None` of the hub itself, to which no object gives access.
    selected: Option<Grant>,
    missing: Option<Box<NotReady>>,
}

impl AccessSettings {
    /// Counts what an object has on these clusters, or on all that can be granted to its namespace or were counted. Returns
    /// the clusters. `observed` returns an object of an account.
    pub fn count<'a>(
        &self,
        fleet: &Fleet,
        name: &AccessName,
        clusters: Option<BTreeSet<ClusterName>>,
        unread: Option<&Unread>,
        observed: impl Fn(AccessKind, &AccountKey) -> Option<&'a FoundObject>,
        counted: &mut BTreeMap<ClusterName, OnCluster>,
    ) -> BTreeSet<ClusterName> {
        let consumer = self.consumers.get(name);
        let consumer = consumer.map(|it| (it, Part::new(it, self.permission_kind())));
        let all = || {
            let candidates = fleet.candidates_in(&name.namespace);
            candidates.chain(counted.keys()).cloned().collect()
        };
        let clusters = clusters.filter(|_| consumer.is_some()).unwrap_or_else(all);
        for cluster in &clusters {
            let on = consumer.as_ref().and_then(|(consumer, part)| {
                self.on_cluster(fleet, consumer, part, cluster, unread, &observed)
            });
            match on {
                Some(on) => counted.insert(cluster.clone(), on),
                None => counted.remove(cluster),
            };
        }
        clusters
    }

    /// What a consumer has on a cluster, unless it is refused.
    fn on_cluster<'a>(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        part: &Part,
        cluster: &ClusterName,
        unread: Option<&Unread>,
        observed: impl Fn(AccessKind, &AccountKey) -> Option<&'a FoundObject>,
    ) -> Option<OnCluster> {
        let bound = self.bound_grant(fleet, consumer, cluster);
        if bound == Grant::Refused {
            return None;
        }
        if fleet.is_hub(cluster) {
            return Some(OnCluster { bound, selected: None, missing: None });
        }
        let is_decided = self.consumers.counts_as_decided(consumer, cluster);
        let selected = self.grant_if_decided(fleet, consumer, cluster, is_decided);
        let key = cluster.account(&consumer.account);
        let is_unread = |kind| unread.is_some_and(|unread| unread.kinds.contains(&kind));
        let observed = |kind| self.owned(&key, kind, observed(kind, &key));
        let missing = match selected {
            Grant::Refused => None,
            Grant::Granted | Grant::Unknown => {
                self.missing(consumer, part, &key, is_unread, observed)
            }
        };
        let missing = missing.map(|(reason, message)| NotReady {
            cluster: cluster.to_string(),
            reason: reason.to_owned(),
            message,
        });
        Some(OnCluster { bound, selected: Some(selected), missing: missing.map(Box::new) })
    }

    /// The status that an object should have, from what it has on each cluster; `None` if there is no such object.
    #[must_use]
    pub fn status(
        &self,
        fleet: &Fleet,
        name: &AccessName,
        unread: Option<Unread>,
        counted: &BTreeMap<ClusterName, OnCluster>,
        now: Timestamp,
    ) -> Option<ClusterAccessStatus> {
        let object = self.consumers.object(name)?;
        let consumer = self.consumers.get(name);
        let is_protected = self.protected.protects(fleet, &name.namespace);
        let not_accepted = self.consumers.not_accepted(name).or_else(|| {
            let message = NotAccepted::PROTECTED.to_owned();
            is_protected.then_some(NotAccepted { reason: "ProtectedNamespace", message })
        });
        let mut counts = ClusterCounts::default();
        let (mut unknown, mut missing, mut not_ready) = (0, 0, Vec::new());
        for on in counted.values() {
            let Some(selected) = on.selected else { continue };
            counts.granted += i64::from(on.bound == Grant::Granted);
            unknown += i64::from(selected == Grant::Unknown);
            if selected == Grant::Granted {
                counts.selected += 1;
                counts.ready += i64::from(on.missing.is_none());
            }
            if let Some(why) = &on.missing {
                missing += 1;
                if not_ready.len() < MOST_NOT_READY {
                    not_ready.push(NotReady::clone(why));
                }
            }
        }
        if let Some(consumer) = consumer {
            let decided =
                self.consumers.decisions(consumer).into_iter().flat_map(Decisions::clusters);
            let not_granted = decided.filter(|cluster| !counted.contains_key(*cluster));
            counts.not_granted = count(not_granted.count());
        }
        let mut ready = match consumer {
            None => (
                "False",
                "NotAccepted",
                "This object is not accepted, and gives no access.".to_owned(),
            ),
            Some(_) => match unread {
                Some(Unread { reason: "Unknown", message, .. }) => ("Unknown", "Unknown", message),
                Some(Unread { reason, message, .. }) => ("False", reason, message),
                None => ready(&counts, unknown, missing, not_ready.first()),
            },
        };
        if counted.values().any(|on| on.selected.is_none()) {
            ready.2.push_str(
                " It gives no access to the hub itself, which is granted to this namespace.",
            );
        }
        let placed = consumer.filter(|_| unknown > 0 || counts.selected == 0);
        ready.2.push_str(&placed.and_then(|it| self.placement(it, &counts)).unwrap_or_default());
        let accepted = match not_accepted {
            Some(NotAccepted { reason, message }) => ("False", reason, message),
            None => ("True", "Accepted", "The whole object is accepted.".to_owned()),
        };
        let condition = |type_: &str, (status, reason, message): (&str, &str, String)| {
            let before =
                object.status.conditions.iter().find(|it| it.type_ == type_ && it.status == status);
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: object.generation,
                last_transition_time: before.map_or_else(
                    || Time(to_the_second(now)),
                    |before| before.last_transition_time.clone(),
                ),
            }
        };
        let more = missing.saturating_sub(MOST_NOT_READY);
        Some(ClusterAccessStatus {
            observed_generation: object.generation,
            conditions: vec![condition(ACCEPTED, accepted), condition(READY, ready)],
            clusters: consumer.map(|_| counts),
            not_ready,
            more_not_ready: (more > 0).then(|| count(more)),
        })
    }

    /// By which Placement a consumer selects clusters, and what that has decided.
    fn placement(&self, consumer: &Consumer, counts: &ClusterCounts) -> Option<String> {
        let name = &consumer.spec.clusters.placement_ref.as_ref()?.name;
        let decided =
            match self.consumers.decisions(consumer).filter(|decisions| decisions.are_read()) {
                None => "whose decisions cannot be read: see the log of the controller.".to_owned(),
                Some(decisions) if decisions.are_missing() => {
                    "which has no PlacementDecision: does it exist?".to_owned()
                }
                Some(decisions) => {
                    let decided = decisions.clusters().len();
                    format!(
                        "which has decided for {decided} clusters, {} of them not granted.",
                        counts.not_granted
                    )
                }
            };
        Some(format!(" It selects by the Placement {name}, {decided}"))
    }

    /// What a consumer lacks on a cluster: a reason and a message.
    fn missing<'a>(
        &self,
        consumer: &Consumer,
        part: &Part,
        key: &AccountKey,
        is_unread: impl Fn(AccessKind) -> bool,
        observed: impl Fn(AccessKind) -> Owned<'a>,
    ) -> Option<(&'static str, String)> {
        let unknown = |what: &str| {
            let message = format!("Whether the {what} exists is not known: it cannot be listed.");
            Some(("Unknown", message))
        };
        let account = match observed(AccessKind::Account) {
            Owned::Ours(account) => account,
            Owned::Absent if is_unread(AccessKind::Account) => {
                return unknown(&format!("ManagedServiceAccount {key}"));
            }
            Owned::Absent => {
                return Some((
                    "AccountMissing",
                    format!("The ManagedServiceAccount {key} does not exist."),
                ));
            }
            Owned::Foreign => {
                let message = format!(
                    "The ManagedServiceAccount {key} has another owner: rename or delete it."
                );
                return Some(("AccountConflict", message));
            }
        };
        if account.is_deleting {
            let message = format!(
                "The ManagedServiceAccount {key} is being deleted and waits for a finalizer."
            );
            return Some(("AccountTerminating", message));
        }
        if !account.has_token {
            let message = format!(
                "The ManagedServiceAccount {key} has no token: check the addon managed-serviceaccount of the cluster."
            );
            return Some(("TokenMissing", message));
        }
        if consumer.is_own() || !consumer.spec.permissions.is_empty() {
            let kind = self.permission_kind();
            let what = format!("{} {}/{}", kind.api().kind, key.cluster, kind.name(key));
            match observed(kind) {
                Owned::Absent if is_unread(kind) => return unknown(&what),
                Owned::Absent => {
                    return Some(("PermissionsMissing", format!("The {what} does not exist.")));
                }
                Owned::Foreign => {
                    let message = format!("The {what} has another owner: rename or delete it.");
                    return Some(("PermissionsConflict", message));
                }
                Owned::Ours(object) if !part.is_in(object) => {
                    let message =
                        format!("The {what} does not contain every permission that is asked for.");
                    return Some(("PermissionsMissing", message));
                }
                Owned::Ours(object) => {
                    if let Err(why) = object.applied.of(|(name, _)| part.needs(name)) {
                        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                        let message = format!("The cluster has not applied the {what}{why}.");
                        return Some(("PermissionsNotApplied", message));
                    }
                }
            }
        }
        let why = match &account.copied {
            _ if consumer.is_own() => None,
            Some(Ok(())) => None,
            Some(Err(why)) => Some(why.as_str()),
            None => {
                Some("no credential syncer reports a copy (is it enabled, and of this version?)")
            }
        };
        why.map(|why| {
            (
                "CopyMissing",
                format!("The token of the ManagedServiceAccount {key} is not copied: {why}."),
            )
        })
    }
}

/// The condition `Ready` of an object whose accounts are known: its status, its reason and its message.
fn ready(
    counts: &ClusterCounts,
    unknown: i64,
    missing: usize,
    first: Option<&NotReady>,
) -> (&'static str, &'static str, String) {
    match first {
        _ if unknown > 0 => {
            let message =
                format!("Whether {unknown} clusters are granted or selected is not known.");
            ("Unknown", "Unknown", message)
        }
        _ if counts.granted == 0 => {
            let message = "No cluster is granted to this namespace: bind a ManagedClusterSet.";
            ("False", "NoCluster", message.to_owned())
        }
        _ if counts.selected == 0 => {
            let message = "This object selects no cluster that is granted to this namespace.";
            ("False", "NoCluster", message.to_owned())
        }
        Some(NotReady { cluster, message, .. }) => {
            let selected = counts.selected;
            let message =
                format!("{missing} of {selected} clusters are not ready. {cluster}: {message}");
            ("False", CLUSTERS_NOT_READY, message)
        }
        None => ("True", "Ready", format!("{} clusters are ready.", counts.selected)),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
