//! The status of a ClusterAccess: what it is granted and selects, and cluster by cluster what is missing.

use std::collections::BTreeSet;

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

impl AccessSettings {
    /// The status that an object should have, and the clusters that it is about; `None` if there is no such object.
    /// `observed` returns an object of an account.
    #[must_use]
    pub fn status<'a>(
        &self,
        fleet: &Fleet,
        name: &AccessName,
        unread: Option<Unread>,
        observed: impl Fn(AccessKind, &AccountKey) -> Option<&'a FoundObject>,
        now: Timestamp,
    ) -> Option<(ClusterAccessStatus, BTreeSet<ClusterName>)> {
        let object = self.consumers.object(name)?;
        let consumer = self.consumers.get(name);
        let is_protected = self.protected.protects(fleet, &name.namespace);
        let not_accepted = self.consumers.not_accepted(name).or_else(|| {
            let message = NotAccepted::PROTECTED.to_owned();
            is_protected.then_some(NotAccepted { reason: "ProtectedNamespace", message })
        });
        let mut counts = ClusterCounts::default();
        let (mut granted, mut unknown, mut not_ready) = (BTreeSet::new(), 0, Vec::new());
        let mut left_out = BTreeSet::new();
        if let Some(consumer) = consumer {
            let part = Part::new(consumer, self.permission_kind());
            for cluster in fleet.candidates_in(&name.namespace).collect::<BTreeSet<_>>() {
                match self.bound_grant(fleet, consumer, cluster) {
                    Grant::Refused => continue,
                    _ if fleet.is_hub(cluster) => {
                        left_out.insert(cluster.clone());
                        continue;
                    }
                    Grant::Granted => counts.granted += 1,
                    Grant::Unknown => {}
                }
                granted.insert(cluster.clone());
                let is_decided = self.consumers.counts_as_decided(consumer, cluster);
                let grant = self.grant_if_decided(fleet, consumer, cluster, is_decided);
                if grant == Grant::Refused {
                    continue;
                }
                let key = cluster.account(&consumer.account);
                let is_unread =
                    |kind| unread.as_ref().is_some_and(|unread| unread.kinds.contains(&kind));
                let observed = |kind| self.owned(&key, kind, observed(kind, &key));
                let missing = self.missing(consumer, &part, &key, is_unread, observed);
                if grant == Grant::Granted {
                    counts.selected += 1;
                    counts.ready += i64::from(missing.is_none());
                } else {
                    unknown += 1;
                }
                not_ready.extend(missing.map(|(reason, message)| NotReady {
                    cluster: cluster.to_string(),
                    reason: reason.to_owned(),
                    message,
                }));
            }
            let decided =
                self.consumers.decisions(consumer).into_iter().flat_map(Decisions::clusters);
            let is_granted =
                |cluster: &ClusterName| granted.contains(cluster) || left_out.contains(cluster);
            counts.not_granted = count(decided.filter(|cluster| !is_granted(cluster)).count());
        }
        let missing = not_ready.len();
        not_ready.truncate(MOST_NOT_READY);
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
        if !left_out.is_empty() {
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
        let status = ClusterAccessStatus {
            observed_generation: object.generation,
            conditions: vec![condition(ACCEPTED, accepted), condition(READY, ready)],
            clusters: consumer.map(|_| counts),
            not_ready,
            more_not_ready: (more > 0).then(|| count(more)),
        };
        Some((status, &granted | &left_out))
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
