//! Fleets and profiles with few names, so that they meet: any state of a hub that users, other controllers and broken
//! agents can cause.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hub_api::names::ProfileKey;
use hub_core::claim_allow_list::ClaimAllowList;
use hub_core::fleet::{BoundSource, Fleet};
use hub_core::profile::{Desired, Presence};
use hub_core::project::{self, ProjectionSettings};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use serde_json::{Value, json};

use super::api::settle;
use super::{
    IN_SET, NOON, arrive, binding, by_labels, cluster, condition, deleting, key, leave, set,
    unreadable, with,
};

const NAMESPACES: [&str; 2] = ["blues", "reds"];
const SETS: [&str; 3] = ["blue", "green", "red"];
const CLUSTERS: [&str; 3] = ["a", "a-b", "b"];

/// The key of every profile that can be.
pub fn keys() -> Vec<ProfileKey> {
    NAMESPACES
        .iter()
        .flat_map(|namespace| CLUSTERS.map(|cluster| key(namespace, cluster)))
        .collect()
}

/// What became of one object: its versions in their order, `None` where it was gone.
pub type History = Vec<Option<Value>>;

/// A hub: the histories of its objects, the source of `Bound`, and the settings of its profiles.
#[derive(Debug, Clone)]
pub struct Hub {
    /// The histories of its objects.
    pub histories: Vec<History>,
    /// How it knows which bindings are in force.
    pub bound: BoundSource,
    /// The settings of its profiles.
    pub settings: ProjectionSettings,
}

impl Hub {
    /// The fleet of the last versions, in the order of the histories.
    pub fn fleet(&self) -> Fleet {
        let last = self.histories.iter().filter_map(|history| history.last()?.clone());
        super::fleet_where(self.bound, last)
    }
}

/// A step of a history: a new version or, for a deletion, the previous one.
#[derive(Debug, Clone)]
pub enum Step {
    /// The object exists as shown.
    Arrive(Value),
    /// The object with this name is gone.
    Leave(Value),
}

impl Step {
    /// Takes the step in a fleet.
    pub fn take(&self, fleet: &mut Fleet) -> hub_core::fleet::Touched {
        match self {
            Self::Arrive(object) => arrive(fleet, object),
            Self::Leave(object) => leave(fleet, object),
        }
    }
}

/// A hub whose objects have as many versions as `versions` says.
pub fn hub(versions: RangeInclusive<usize>) -> impl Strategy<Value = Hub> {
    let clusters = CLUSTERS.map(|name| history(a_cluster(name).boxed(), 0.9, versions.clone()));
    let sets = SETS.map(|name| history(a_set(name).boxed(), 0.85, versions.clone()));
    let bindings = NAMESPACES.iter().flat_map(|namespace| {
        SETS.map(|name| history(a_binding(namespace, name).boxed(), 0.6, versions.clone()))
    });
    let histories: Vec<_> = clusters.into_iter().chain(sets).chain(bindings).collect();
    let bound = prop_oneof![4 => Just(BoundSource::Status), 1 => Just(BoundSource::Computed)];
    let settings =
        prop_oneof![2 => Just(""), 1 => Just("region"), 1 => Just("region, team.example.com/*")]
            .prop_map(|keys| ProjectionSettings {
                propagated_labels: keys.parse().unwrap(),
                ..ProjectionSettings::default()
            });
    (histories, bound, settings).prop_map(|(histories, bound, settings)| Hub {
        histories,
        bound,
        settings,
    })
}

/// A hub, and all the steps of its histories in an order that keeps each history's own.
pub fn hub_and_steps() -> impl Strategy<Value = (Hub, Vec<Step>)> {
    hub(1..=3).prop_flat_map(|hub| {
        let turns: Vec<usize> = hub
            .histories
            .iter()
            .enumerate()
            .flat_map(|(index, history)| vec![index; history.len()])
            .collect();
        Just(turns)
            .prop_shuffle()
            .prop_map(move |turns| (hub.clone(), interleaved(&hub.histories, &turns)))
    })
}

fn interleaved(histories: &[History], turns: &[usize]) -> Vec<Step> {
    let mut left: Vec<_> = histories.iter().map(|history| history.iter()).collect();
    let mut last: BTreeMap<usize, Value> = BTreeMap::new();
    let mut steps = Vec::new();
    for turn in turns {
        match left[*turn].next().unwrap() {
            Some(object) => {
                last.insert(*turn, object.clone());
                steps.push(Step::Arrive(object.clone()));
            }
            None => steps.extend(last.get(turn).cloned().map(Step::Leave)),
        }
    }
    steps
}

fn history(
    object: BoxedStrategy<Value>,
    there: f64,
    versions: RangeInclusive<usize>,
) -> impl Strategy<Value = History> {
    vec(option::weighted(there, object), versions)
}

fn one_of<T: Into<Value> + Clone, const N: usize>(values: [T; N]) -> impl Strategy<Value = Value> {
    select(values.map(Into::into).to_vec())
}

/// An object with each of these parts or without it.
fn parts(
    parts: impl IntoIterator<Item = (&'static str, f64, BoxedStrategy<Value>)>,
) -> BoxedStrategy<Value> {
    let fields: Vec<_> = parts
        .into_iter()
        .map(|(name, likely, value)| {
            option::weighted(likely, value.prop_map(move |value| (name, value)))
        })
        .collect();
    fields
        .prop_map(|fields| {
            let fields = fields.into_iter().flatten();
            Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect())
        })
        .boxed()
}

fn list(entries: Vec<Value>) -> BoxedStrategy<Value> {
    vec(select(entries), 0..4).prop_map(Value::Array).boxed()
}

fn a_cluster(name: &'static str) -> impl Strategy<Value = Value> {
    let labels = parts([
        (IN_SET, 0.8, one_of(["blue", "red", "red", "green", ""]).boxed()),
        ("env", 0.5, one_of(["dev", "prod", ""]).boxed()),
        ("region", 0.5, one_of(["eu", "us"]).boxed()),
        ("team.example.com/a", 0.2, one_of(["x", ""]).boxed()),
        ("multicluster.x-k8s.io/inventory-member-id", 0.3, one_of(["id-1", "id-2", ""]).boxed()),
        // A label that must never be copied from the cluster.
        ("x-k8s.io/cluster-manager", 0.1, one_of(["other"]).boxed()),
    ]);
    let version = parts([("kubernetes", 0.9, one_of(["v1.36.3", "v1.37.0", ""]).boxed())]);
    let conditions = vec(a_source_condition(), 0..4).prop_map(Value::Array);
    let status = parts([
        ("version", 0.8, version),
        ("clusterClaims", 0.8, vec(a_claim(), 0..4).prop_map(Value::Array).boxed()),
        ("conditions", 0.8, conditions.boxed()),
    ]);
    let fate = prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)];
    (labels, option::weighted(0.9, status), fate).prop_map(move |(labels, status, fate)| {
        let mut object = cluster(name, &labels);
        object["status"] = status.unwrap_or_default();
        match fate {
            1 => deleting(object),
            2 => unreadable(object),
            3 => with(object, &json!({ "metadata": { "creationTimestamp": null } })),
            4 => with(object, &json!({ "spec": { "hubAcceptsClient": false } })),
            _ => object,
        }
    })
}

fn a_claim() -> impl Strategy<Value = Value> {
    let (long_name, long_value) = ("n".repeat(254), "v".repeat(1025));
    let name = select(vec![
        "id.k8s.io".to_owned(),
        "a".to_owned(),
        "b".to_owned(),
        String::new(),
        long_name,
    ]);
    let value =
        select(vec!["1".to_owned(), "2".to_owned(), "ü".repeat(512), String::new(), long_value]);
    (name, value).prop_map(|(name, value)| json!({ "name": name, "value": value }))
}

fn a_source_condition() -> impl Strategy<Value = Value> {
    let type_ = one_of(["ManagedClusterConditionAvailable", "ManagedClusterJoined", "HubAccepted"]);
    let status = one_of(["True", "False", "Unknown", "Maybe", ""]);
    let reason =
        select(vec!["Fine".to_owned(), String::new(), "404: no!".to_owned(), "x:".repeat(600)]);
    let message = prop_oneof![
        20 => Just(String::new()), 20 => Just("all is well".to_owned()), 1 => Just("ü".repeat(32_769)),
    ];
    let time = one_of([
        NOON,
        "2026-05-01T12:00:00.5Z",
        "2026-05-01T14:00:00+02:00",
        "9999-12-31T23:59:59Z",
        "0000-01-01T00:00:00+23:59",
    ]);
    (type_, status, reason, message, time).prop_map(|(type_, status, reason, message, time)| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": time,
        })
    })
}

fn a_set(name: &'static str) -> impl Strategy<Value = Value> {
    let expression = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "env", "operator": operator, "values": values }] });
    let label_selector = select(vec![
        json!(null),
        json!({}),
        json!({ "matchLabels": { "env": "prod" } }),
        json!({ "matchLabels": { "env": "" } }),
        expression("In", json!(["dev", "prod"])),
        expression("NotIn", json!(["dev"])),
        expression("DoesNotExist", json!([])),
        // Broken ones.
        expression("Like", json!(["x"])),
        expression("In", json!([])),
        json!({ "matchLabels": { "not a key": "x" } }),
    ]);
    prop_oneof![
        3 => one_of(["", "ExclusiveClusterSetLabel"]).prop_map(move |type_| set(name, &json!({ "selectorType": type_ }))),
        4 => label_selector.prop_map(move |selector| by_labels(name, &selector)),
        1 => Just(set(name, &json!({ "selectorType": "ClusterClaims" }))),
        1 => Just(unreadable(set(name, &json!({})))),
    ]
}

fn a_binding(namespace: &'static str, name: &'static str) -> impl Strategy<Value = Value> {
    let bound = binding(namespace, name);
    let not_bound =
        json!({ "status": { "conditions": [condition("Bound", "False", "ClusterSetNotFound")] } });
    prop_oneof![
        6 => Just(bound.clone()),
        1 => Just(with(bound.clone(), &not_bound)),
        1 => Just(with(bound.clone(), &json!({ "status": null }))),
        1 => one_of(SETS).prop_map({
            let bound = bound.clone();
            move |other| with(bound.clone(), &json!({ "spec": { "clusterSet": other } }))
        }),
        1 => Just(unreadable(bound)),
    ]
}

/// The history of a profile.
#[derive(Debug, Clone)]
pub enum Past {
    /// It does not exist.
    None,
    /// Another writer created it.
    CreatedCopy(Value),
    /// It was right, then another writer applied this patch and added these entries before ours.
    Edited(Value, Value),
}

impl Past {
    /// The current profile at `key`.
    pub fn profile(&self, hub: &Hub, fleet: &Fleet, key: &ProfileKey) -> Option<Value> {
        let identity = json!({ "metadata": {
            "namespace": key.namespace.as_str(), "name": key.cluster.as_str(), "uid": "uid-of-profile",
            "resourceVersion": "7",
        } });
        match self {
            Self::None => None,
            Self::CreatedCopy(edit) => Some(with(identity, edit)),
            Self::Edited(edit, before) => {
                let mut object = with(with(as_it_should_be(hub, fleet, key), &identity), edit);
                for (field, entries) in before.as_object().unwrap() {
                    if let Some(list) =
                        object["status"].get_mut(field).and_then(Value::as_array_mut)
                    {
                        list.splice(0..0, entries.as_array().unwrap().iter().cloned());
                    }
                }
                Some(object)
            }
        }
    }
}

/// The profile at `key` as it would be if its cluster were granted, where there is such a cluster.
fn as_it_should_be(hub: &Hub, fleet: &Fleet, key: &ProfileKey) -> Value {
    let Some(cluster) = fleet.cluster(&key.cluster) else { return json!({}) };
    let status = cluster
        .state
        .as_ref()
        .map(|state| project::status(cluster, state, &ClaimAllowList::default()))
        .unwrap_or_default();
    let presence = Presence::Wanted(project::identity(&key.cluster, cluster, &hub.settings));
    settle(key, &hub.settings.manager, None, &[Desired { presence, status }]).object.unwrap()
}

/// The past of the profile at each key.
pub fn pasts() -> impl Strategy<Value = BTreeMap<ProfileKey, Past>> {
    vec(past(), keys().len()).prop_map(|pasts| keys().into_iter().zip(pasts).collect())
}

fn past() -> impl Strategy<Value = Past> {
    let before = parts([
        ("conditions", 0.5, list(conditions())),
        ("accessProviders", 0.5, list(providers())),
        ("properties", 0.2, list(properties())),
    ]);
    prop_oneof![
        1 => Just(Past::None),
        3 => an_edit(0.9).prop_map(Past::CreatedCopy),
        3 => (an_edit(0.15), before).prop_map(|(edit, before)| Past::Edited(edit, before)),
    ]
}

/// A merge patch of a profile, in which each part is as likely as `likely` says.
fn an_edit(likely: f64) -> BoxedStrategy<Value> {
    let us = "open-cluster-management";
    let labels = parts([
        (
            "x-k8s.io/cluster-manager",
            likely,
            one_of([json!(us), json!(us), json!("other"), json!(null)]).boxed(),
        ),
        ("open-cluster-management.io/cluster-name", likely, one_of(["a", "b", "zzz"]).boxed()),
        ("multicluster.x-k8s.io/clusterset", likely, one_of([json!("red"), json!(null)]).boxed()),
        ("multicluster.x-k8s.io/inventory-member-id", likely, one_of(["id-1", "id-3", ""]).boxed()),
        ("region", likely, one_of(["eu", "moon"]).boxed()),
        ("team.example.com/b", likely, one_of(["x"]).boxed()),
        ("example.com/stranger", 0.5, one_of(["x", ""]).boxed()),
    ]);
    let managed_fields = one_of([json!([]), managed_by("hub-addons"), managed_by("kubectl-edit")]);
    let metadata = parts([
        ("creationTimestamp", 0.5, one_of(["2025-01-01T00:00:00Z", NOON]).boxed()),
        ("managedFields", 0.5, managed_fields.boxed()),
        ("labels", 0.9, labels),
        ("annotations", 0.3, Just(json!({ "example.com/note": "x", "empty": "" })).boxed()),
        (
            "finalizers",
            0.3,
            one_of([json!(["argocd.example.com/a"]), json!(["b/c", "d/e"])]).boxed(),
        ),
        ("deletionTimestamp", 0.1, one_of([NOON]).boxed()),
    ]);
    let manager =
        one_of([json!(us), json!(us), json!(us), json!(us), json!("other"), json!(""), json!(7)]);
    let spec = parts([
        ("clusterManager", likely, manager.prop_map(|name| json!({ "name": name })).boxed()),
        ("displayName", likely, one_of([json!("a"), json!("b"), json!(""), json!(null)]).boxed()),
        ("stranger", 0.1, Just(json!({ "field": [1] })).boxed()),
    ]);
    parts([
        ("metadata", 0.95, metadata),
        ("spec", 0.95, spec),
        ("status", likely, Union::new_weighted(vec![(8, a_status()), (1, odd_values())]).boxed()),
    ])
}

/// What the API server records where this project labelled a profile, and `manager` set its member ID.
fn managed_by(manager: &str) -> Value {
    let entry = |manager: &str, label: &str| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:labels": { label: {} } } },
        })
    };
    json!([
        entry("hub-addons", "f:open-cluster-management.io/cluster-name"),
        entry(manager, "f:multicluster.x-k8s.io/inventory-member-id"),
    ])
}

fn odd_values() -> BoxedStrategy<Value> {
    one_of([json!(null), json!("text"), json!(7), json!([]), json!({})]).boxed()
}

fn a_status() -> BoxedStrategy<Value> {
    let or_odd = |value: BoxedStrategy<Value>| {
        Union::new_weighted(vec![(8, value), (1, odd_values())]).boxed()
    };
    let version = parts([
        (
            "kubernetes",
            0.8,
            one_of([json!("v1.36.3"), json!("v0"), json!(""), json!(null)]).boxed(),
        ),
        ("stranger", 0.3, one_of(["v2"]).boxed()),
    ]);
    parts([
        ("version", 0.7, or_odd(version)),
        ("properties", 0.7, or_odd(list(properties()))),
        ("conditions", 0.7, or_odd(list(conditions()))),
        ("accessProviders", 0.7, or_odd(list(providers()))),
        ("credentialProviders", 0.2, list(providers())),
        ("stranger", 0.2, Just(json!({ "field": { "a": 1.5 } })).boxed()),
    ])
}

fn properties() -> Vec<Value> {
    vec![
        json!({ "name": "a", "value": "1" }),
        json!({ "name": "a", "value": "1", "lastObservedTime": NOON }),
        json!({ "name": "stranger", "value": "x" }),
        json!({ "value": "nameless" }),
        json!("no entry"),
    ]
}

fn conditions() -> Vec<Value> {
    let unknown_field = json!({ "stranger": { "field": ["", 0] }, "observedGeneration": 3 });
    vec![
        condition("ControlPlaneHealthy", "True", "Fine"),
        condition("Joined", "False", "Spoilt"),
        with(condition("Joined", "True", "Fine"), &unknown_field),
        condition("Ready.example.com", "True", "Fine"),
        with(condition("Ready.example.com", "False", "Twice"), &unknown_field),
        json!({ "status": "True", "reason": "NoType" }),
        json!({ "type": 7 }),
        json!("no entry"),
    ]
}

fn providers() -> Vec<Value> {
    vec![
        json!({ "name": "eks", "cluster": { "server": "https://eks", "stranger": { "field": true } } }),
        json!({ "name": "gke", "cluster": { "server": "", "proxy-url": "" } }),
        json!({ "name": "ours", "cluster": { "server": "https://proxy/a" } }),
        json!({ "name": "ours", "cluster": { "server": "https://old" }, "stranger": 1 }),
        json!({ "cluster": { "server": "https://nameless" } }),
        json!("no entry"),
    ]
}
