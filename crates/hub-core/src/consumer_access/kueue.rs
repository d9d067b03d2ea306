//! Kueue's MultiKueue: MultiKueueClusters for the clusters of the consumers that declare MultiKueueConfigs, and the
//! MultiKueueConfigs that list them.
//!
//! - A MultiKueueConfig lists the clusters whose ManagedCluster has the labels that it selects; without a selector,
//!   all. A cluster that none lists has no MultiKueueCluster, since Kueue connects to each.
//! - A MultiKueueCluster refers to the ClusterProfile of its cluster, which Kueue reads in its own namespace: that of
//!   the consumer.
//! - The list has at most [`MAX_CLUSTERS`] names and at least one, as the CRD requires
//!   (<https://github.com/kubernetes-sigs/kueue/blob/v0.19.0/apis/kueue/v1beta2/multikueue_types.go>): without a
//!   cluster there is no MultiKueueConfig. Listed clusters keep their order, and the others follow by name: Kueue
//!   nominates clusters in this order, and runs the workloads of a cluster that leaves the list elsewhere.
//! - Both objects are ours by the rule of [`FoundObject`], and only while they have our marks.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::ClusterName;
use serde_json::{Map, Value, json};

use super::concerned::KnownAccess;
use super::consumers::Consumer;
use super::desired::{AccessAction, AccessSettings, Desired, IntegrationPlan};
use super::kind::AccessKey;
use super::observed::{FoundObject, ObservedObject};
use crate::finding::{Finding, Reason, first_of};
use crate::fleet::Fleet;
use crate::grant::Grant;
use crate::selector::ClusterSelector;

/// The most clusters that a MultiKueueConfig lists.
pub const MAX_CLUSTERS: usize = 20;

/// The most clusters that a finding names.
const MOST_NAMED: usize = 10;

impl AccessSettings {
    /// The declared MultiKueueConfigs.
    pub fn multi_kueue_configs(&self) -> impl Iterator<Item = AccessKey> {
        let configs =
            self.consumers.multi_kueue().flat_map(|consumer| consumer.multi_kueue_configs.keys());
        configs.cloned().map(AccessKey::MultiKueueConfig)
    }

    /// The MultiKueueConfigs whose list, or what is reported on it, a change of a cluster may change.
    pub(super) fn lists_of(
        &self,
        fleet: &Fleet,
        cluster: &ClusterName,
        known: &KnownAccess,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> Vec<AccessKey> {
        let concerns = |consumer: &Consumer, config: &str, key: &AccessKey| {
            let ours = existing.get(key).filter(|found| self.is_ours(found));
            let lists = |found: &FoundObject| {
                Some(clusters_of(&found.object)?.iter().any(|it| it == cluster.as_str()))
            };
            // What an unreadable list contains is unknown.
            let Some(is_listed) = ours.map_or(Some(false), lists) else { return true };
            let was_selected = known.selects(config, cluster);
            let may_be_listed = was_selected || is_listed;
            (may_be_listed || fleet.is_candidate(consumer.namespace(), cluster))
                && match self.config_grant(fleet, consumer, config, cluster) {
                    Grant::Granted => !was_selected,
                    Grant::Refused => may_be_listed,
                    Grant::Unknown => true,
                }
        };
        let mut keys = Vec::new();
        for consumer in self.consumers.multi_kueue() {
            for config in consumer.multi_kueue_configs.keys() {
                let key = AccessKey::MultiKueueConfig(config.clone());
                if concerns(consumer, config, &key) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// The clusters that a MultiKueueConfig selects and that are certainly granted.
    #[must_use]
    pub fn selected(&self, fleet: &Fleet, config: &str) -> BTreeSet<ClusterName> {
        let consumer = self.consumers.with_config(config).into_iter();
        let clusters = consumer.flat_map(|consumer| {
            let clusters = fleet.candidates_in(consumer.namespace());
            clusters.filter(|it| self.config_grant(fleet, consumer, config, it) == Grant::Granted)
        });
        clusters.cloned().collect()
    }

    /// Plans the next write to an object of Kueue; `observed` returns the object of a key. The caller must not call
    /// this before both lists are complete.
    #[must_use]
    pub fn plan_kueue<'a>(
        &self,
        fleet: &Fleet,
        key: &AccessKey,
        observed: impl Fn(&AccessKey) -> Option<&'a FoundObject>,
    ) -> IntegrationPlan {
        let mut findings = Vec::new();
        let found = observed(key);
        let ours = found.filter(|found| self.is_ours(found)).map(|found| &found.object);
        // What it should contain, unless it should not exist; and whether that is certain.
        let (desired, grant) = match key {
            AccessKey::MultiKueueCluster(cluster) => {
                let grant = self.kueue_grant(fleet, cluster);
                let source = json!({ "clusterProfileRef": { "name": cluster.as_str() } });
                ((grant != Grant::Refused).then_some(("clusterSource", source)), grant)
            }
            AccessKey::MultiKueueConfig(name) => {
                let consumer = self.consumers.with_config(name);
                // What an unreadable list contains is unknown, so a cluster in doubt may be in it.
                let is_unreadable = ours.is_some_and(|object| clusters_of(object).is_none());
                let is_in_doubt = match consumer {
                    Some(consumer) => is_unreadable && self.is_in_doubt(fleet, consumer, name),
                    None => !self.consumers.is_complete(),
                };
                if is_in_doubt {
                    return IntegrationPlan { action: AccessAction::Nothing, findings };
                }
                let listed = |consumer| self.listed(fleet, consumer, name, ours, &observed);
                let mut clusters = consumer.map(listed).unwrap_or_default();
                let left_out = clusters.split_off(clusters.len().min(MAX_CLUSTERS));
                if !left_out.is_empty() && (found.is_none() || ours.is_some()) {
                    findings.push(full(&left_out));
                }
                ((!clusters.is_empty()).then(|| ("clusters", json!(clusters))), Grant::Granted)
            }
            _ => return IntegrationPlan { action: AccessAction::Nothing, findings },
        };
        if ours.is_some_and(|object| object.is_deleting) {
            let message = "is being deleted and waits for a finalizer; when it is gone, it is created again if a cluster \
                           is still granted";
            findings.push(Finding::new(Reason::KueueObjectTerminating, message));
        }
        let desired = desired.map(|(field, value)| Map::from_iter([(field.to_owned(), value)]));
        let action = match (desired, ours) {
            (Some(_), None) if found.is_some() => {
                let message = "belongs to another owner: it is not changed; rename or delete it, or remove the \
                               MultiKueueConfig from the ClusterAccess";
                findings.push(Finding::new(Reason::ForeignKueueObject, message));
                AccessAction::Nothing
            }
            (Some(spec), None) if grant == Grant::Granted => {
                let desired = Desired { labels: self.labels(), spec, ..Desired::default() };
                AccessAction::Create(desired.object(key))
            }
            (Some(spec), Some(object)) if !object.is_deleting && !has(object, &spec) => {
                AccessAction::Patch(object.version.clone(), patch(spec))
            }
            (None, Some(object)) if !object.is_deleting => {
                AccessAction::Delete(object.version.clone())
            }
            _ => AccessAction::Nothing,
        };
        IntegrationPlan { action, findings }
    }

    /// Whether an object by which applications find their clusters is ours. It must also have our marks: the admission
    /// policies, which know no history, recognize it by these.
    #[must_use]
    pub fn is_ours(&self, found: &FoundObject) -> bool {
        found.is_ours && found.object.is_marked(self)
    }

    /// Whether the grant of any cluster to a MultiKueueConfig is unknown.
    fn is_in_doubt(&self, fleet: &Fleet, consumer: &Consumer, config: &str) -> bool {
        fleet
            .cluster_names()
            .any(|name| self.config_grant(fleet, consumer, config, name) == Grant::Unknown)
    }

    /// Whether a consumer is granted a cluster that its MultiKueueConfig selects.
    fn config_grant(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        config: &str,
        cluster: &ClusterName,
    ) -> Grant {
        let grant = self.grant_to(fleet, consumer, cluster);
        match consumer.multi_kueue_configs.get(config) {
            Some(Err(_)) => grant.min(Grant::Unknown),
            Some(Ok(selector)) if !is_selected(fleet, selector, cluster) => Grant::Refused,
            Some(_) => grant,
            None => Grant::Refused,
        }
    }

    /// Whether a MultiKueueConfig may list a cluster.
    #[must_use]
    pub fn kueue_grant(&self, fleet: &Fleet, cluster: &ClusterName) -> Grant {
        let grants = self.consumers.multi_kueue().flat_map(|consumer| {
            let configs = consumer.multi_kueue_configs.keys();
            configs.map(move |config| self.config_grant(fleet, consumer, config, cluster))
        });
        grants.fold(self.undeclared_grant(), Grant::max)
    }

    /// The clusters that a MultiKueueConfig should list, of those that it selects: granted ones, and ones in doubt that
    /// are listed already, except those whose MultiKueueCluster belongs to another owner. Listed ones come first, in
    /// their order.
    fn listed<'a>(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        name: &str,
        config: Option<&ObservedObject>,
        observed: &impl Fn(&AccessKey) -> Option<&'a FoundObject>,
    ) -> Vec<String> {
        let listed = config.and_then(clusters_of);
        let position = |name: &str| listed.into_iter().flatten().position(|it| it == name);
        let is_wanted = |cluster: &ClusterName| {
            let found = observed(&AccessKey::MultiKueueCluster(cluster.clone()));
            match (self.config_grant(fleet, consumer, name, cluster), found) {
                (Grant::Unknown, _) if position(cluster.as_str()).is_none() => false,
                (Grant::Granted | Grant::Unknown, found) => {
                    found.is_none_or(|found| self.is_ours(found))
                }
                (Grant::Refused, _) => false,
            }
        };
        let before = listed.into_iter().flatten().filter_map(Value::as_str).map(ClusterName::from);
        let candidates = fleet.candidates_in(consumer.namespace()).cloned();
        let candidates: BTreeSet<_> = candidates.chain(before).collect();
        let mut names: Vec<String> =
            candidates.iter().filter(|name| is_wanted(name)).map(ToString::to_string).collect();
        names.sort_by_cached_key(|name| (position(name).unwrap_or(usize::MAX), name.clone()));
        names
    }
}

/// Whether a cluster has the labels that a MultiKueueConfig selects.
fn is_selected(fleet: &Fleet, selector: &ClusterSelector, cluster: &ClusterName) -> bool {
    fleet.cluster(cluster).is_some_and(|cluster| selector.matches(&cluster.labels))
}

/// The list of a MultiKueueConfig, if it can be read.
fn clusters_of(config: &ObservedObject) -> Option<&Vec<Value>> {
    config.content.spec.as_ref()?.get("clusters")?.as_array()
}

/// The finding on a MultiKueueConfig that cannot list every cluster.
fn full(left_out: &[String]) -> Finding {
    let message = format!(
        "lists {MAX_CLUSTERS} clusters, which is the limit of Kueue, and not {}: grant fewer clusters to the namespace, or \
         divide them by label among several MultiKueueConfigs",
        first_of(left_out, MOST_NAMED)
    );
    Finding::new(Reason::MultiKueueConfigFull, message)
}

/// Whether an object has these fields. Other fields of a MultiKueueConfig belong to Kueue's users, and other fields of
/// a source to later versions of Kueue.
fn has(object: &ObservedObject, desired: &Map<String, Value>) -> bool {
    let Some(spec) = &object.content.spec else { return false };
    desired.iter().all(|(field, value)| match (field.as_str(), spec.get(field)) {
        ("clusterSource", Some(source)) => {
            source["clusterProfileRef"]["name"] == value["clusterProfileRef"]["name"]
                && source.get("kubeConfig").is_none_or(Value::is_null)
        }
        (_, found) => found == Some(value),
    })
}

/// The merge patch that sets these fields.
fn patch(mut spec: Map<String, Value>) -> Value {
    // The two sources exclude each other.
    if let Some(source) = spec.get_mut("clusterSource") {
        source["kubeConfig"] = Value::Null;
    }
    json!({ "spec": spec })
}
