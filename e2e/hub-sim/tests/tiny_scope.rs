//! Every state of a tiny hub, and every change of it: two clusters, two sets and two namespaces.
//!
//! By induction over the changes, no order of events can lead to another decision: in every state, after every single
//! change, each decision is the one that a second implementation of the rule derives from the state alone, and the
//! index reports every decision that changes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes only functions marked as tests for tests"
)]

use hub_api::names::{ClusterName, ClusterSetName, ManagerName, Namespace, ProfileKey};
use hub_core::fleet::{BoundSource, Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet, Touched};
use hub_core::grant::{self, Grant};
use hub_core::label_allow_list::LabelAllowList;
use hub_core::profile::{ObservedProfile, ProfileAction, plan};
use hub_core::project::{self, ProjectionSettings};
use hub_sim::hub::{EXCLUSIVE_LABEL, SETS, condition, selector};
use hub_sim::model::merge_patch;
use serde_json::{Value, json};

const CLUSTERS: [&str; 2] = ["a", "b"];
const NAMESPACES: [&str; 2] = ["team", "other"];

/// The number of variants of each part of a state: two clusters, two sets, four bindings.
const VARIANTS: [u8; 8] = [6, 6, 4, 4, 3, 3, 3, 3];

type State = [u8; 8];

/// A cluster: absent, in no set, in the first, in the second, leaving it, or in it and not accepted.
fn cluster(variant: u8) -> Option<ObservedCluster> {
    let set = match variant {
        0 => return None,
        1 => Value::Null,
        2 => json!(SETS[0]),
        _ => json!(SETS[1]),
    };
    let mut object = json!({
        "metadata": { "uid": "u", "labels": {} }, "spec": { "hubAcceptsClient": variant != 5 },
    });
    if !set.is_null() {
        object["metadata"]["labels"][EXCLUSIVE_LABEL] = set;
    }
    if variant == 4 {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    object["apiVersion"] = json!("cluster.open-cluster-management.io/v1");
    object["kind"] = json!("ManagedCluster");
    Some(ObservedCluster::read(Ok(serde_json::from_value(object).unwrap())))
}

/// A set: absent, with a label selector, of all clusters, or with a selector that cannot be read.
fn set(variant: u8) -> Option<ObservedClusterSet> {
    let spec = match variant {
        0 => return None,
        1 => selector(0),
        2 => selector(2),
        _ => selector(5),
    };
    let object = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet", "metadata": {}, "spec": spec,
    });
    Some(ObservedClusterSet::read(Ok(serde_json::from_value(object).unwrap())))
}

/// A binding: absent, not bound, or bound.
fn binding(set: &str, variant: u8) -> Option<ObservedBinding> {
    let bound = match variant {
        0 => return None,
        1 => "False",
        _ => "True",
    };
    let object = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding", "metadata": {},
        "spec": { "clusterSet": set }, "status": { "conditions": [condition("Bound", bound, "Because")] },
    });
    Some(ObservedBinding::read(Ok(serde_json::from_value(object).unwrap())))
}

/// Every variant of every part, read once.
struct Variants {
    clusters: Vec<Option<ObservedCluster>>,
    sets: Vec<Option<ObservedClusterSet>>,
    bindings: Vec<Vec<Option<ObservedBinding>>>,
}

impl Variants {
    fn read() -> Self {
        Self {
            clusters: (0..6).map(cluster).collect(),
            sets: (0..4).map(set).collect(),
            bindings: SETS.iter().map(|set| (0..3).map(|variant| binding(set, variant)).collect()).collect(),
        }
    }

    /// Changes one part of the index to a variant.
    fn change(&self, fleet: &mut Fleet, part: usize, variant: u8) -> Touched {
        let variant = usize::from(variant);
        match part {
            0 | 1 => {
                let name = ClusterName::from(CLUSTERS[part]);
                match self.clusters[variant].clone() {
                    Some(cluster) => fleet.apply_cluster(name, cluster),
                    None => fleet.delete_cluster(&name),
                }
            }
            2 | 3 => {
                let name = ClusterSetName::from(SETS[part - 2]);
                match self.sets[variant].clone() {
                    Some(set) => fleet.apply_set(name, set),
                    None => fleet.delete_set(&name),
                }
            }
            _ => {
                let (namespace, set) = (Namespace::from(NAMESPACES[(part - 4) / 2]), (part - 4) % 2);
                match self.bindings[set][variant].clone() {
                    Some(binding) => fleet.apply_binding(namespace, SETS[set].into(), binding),
                    None => fleet.delete_binding(&namespace, &SETS[set].into()),
                }
            }
        }
    }

    /// The index of a state.
    fn fleet(&self, state: State) -> Fleet {
        let mut fleet = Fleet::new(BoundSource::Status);
        for (part, variant) in state.into_iter().enumerate() {
            self.change(&mut fleet, part, variant);
        }
        fleet
    }
}

/// The second implementation of the rule.
fn granted(state: State, namespace: usize, cluster: usize) -> Grant {
    let member = state[cluster];
    if member == 0 || member >= 4 {
        return Grant::Refused;
    }
    let by_set = (0..2).map(|set| match (state[4 + 2 * namespace + set], state[2 + set]) {
        (2, 1) if usize::from(member) == 2 + set => Grant::Granted,
        (2, 2) => Grant::Granted,
        (2, 3) => Grant::Unknown,
        _ => Grant::Refused,
    });
    let by_set: Vec<Grant> = by_set.collect();
    for grant in [Grant::Granted, Grant::Unknown] {
        if by_set.contains(&grant) {
            return grant;
        }
    }
    Grant::Refused
}

fn key(namespace: usize, cluster: usize) -> ProfileKey {
    ProfileKey { namespace: NAMESPACES[namespace].into(), cluster: CLUSTERS[cluster].into() }
}

fn announced(touched: &Touched, key: &ProfileKey) -> bool {
    match touched {
        Touched::Nothing => false,
        Touched::Cluster(cluster) => *cluster == key.cluster,
        Touched::Namespaces(namespaces) => namespaces.contains(&key.namespace),
    }
}

fn states() -> impl Iterator<Item = State> {
    let count: u32 = VARIANTS.iter().map(|variants| u32::from(*variants)).product();
    (0..count).map(|mut number| {
        VARIANTS.map(|variants| {
            let variant = number % u32::from(variants);
            number /= u32::from(variants);
            u8::try_from(variant).unwrap()
        })
    })
}

#[test]
fn no_order_of_changes_leads_to_another_decision() {
    let variants = Variants::read();
    let (mut visited, mut changes) = (0_u64, 0_u64);
    for state in states() {
        visited += 1;
        let mut fleet = variants.fleet(state);
        for part in 0..VARIANTS.len() {
            for variant in (0..VARIANTS[part]).filter(|variant| *variant != state[part]) {
                let mut next = state;
                next[part] = variant;
                let touched = variants.change(&mut fleet, part, variant);
                for (namespace, cluster) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let (key, wanted) = (key(namespace, cluster), granted(next, namespace, cluster));
                    assert_eq!(grant::decide(&fleet, &key), wanted, "{next:?} {key}");
                    let is_new = wanted != granted(state, namespace, cluster);
                    assert!(
                        !is_new || announced(&touched, &key),
                        "{state:?} to {next:?}: {key} in {touched:?}"
                    );
                }
                variants.change(&mut fleet, part, state[part]);
                changes += 1;
            }
        }
    }
    println!("{visited} states of the fleet, {changes} changes");
}

/// The objects that can exist where a profile belongs.
fn profiles() -> Vec<Option<Value>> {
    let of = |manager: &str, labelled: bool| {
        let mut object = json!({
            "metadata": { "uid": "u", "resourceVersion": "1", "labels": { "mine": "x" } },
            "spec": { "displayName": "x", "clusterManager": { "name": manager } },
            "status": { "accessProviders": [{ "name": "theirs", "cluster": { "server": "https://x" } }] },
        });
        if labelled {
            object["metadata"]["labels"]["x-k8s.io/cluster-manager"] = json!(manager);
        }
        object
    };
    let mut leaving = of("open-cluster-management", true);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    vec![
        None,
        Some(of("open-cluster-management", true)),
        Some(of("open-cluster-management", false)),
        Some(of("someone", true)),
        Some(leaving),
    ]
}

#[test]
fn every_plan_comes_to_an_end_where_the_profile_is_what_the_grant_says() {
    let manager = ManagerName::default();
    let settings =
        ProjectionSettings { manager: manager.clone(), propagated_labels: LabelAllowList::default() };
    let variants = Variants::read();
    let (mut plans, mut longest) = (0_u64, 0);
    // One namespace is enough: the bindings of the other concern no profile here.
    for state in states().filter(|state| state[6..] == [0, 0]) {
        let fleet = variants.fleet(state);
        for cluster in 0..2 {
            let key = key(0, cluster);
            for before in profiles() {
                let mut object = before.clone();
                let mut writes = 0;
                loop {
                    let observed = object.as_ref().map(|object| {
                        let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
                        ObservedProfile::read(&metadata, object)
                    });
                    let desired = project::desired(&fleet, &key, &settings);
                    let action = plan(&key, &manager, observed.as_ref(), [desired]).action;
                    plans += 1;
                    match action {
                        ProfileAction::Nothing => break,
                        ProfileAction::Create(created) => {
                            let mut created = serde_json::to_value(created).unwrap();
                            created["metadata"]["uid"] = json!("new");
                            object = Some(created);
                        }
                        ProfileAction::Patch(_, patch) | ProfileAction::PatchStatus(_, patch) => {
                            merge_patch(object.as_mut().unwrap(), &patch);
                        }
                        ProfileAction::Delete(_) | ProfileAction::DeleteByUid(_) => object = None,
                    }
                    writes += 1;
                    assert!(writes <= 3, "{state:?} {key}: {before:?}");
                }
                longest = longest.max(writes);
                let is_ours = |object: &Value| object["spec"]["clusterManager"]["name"] == manager.as_str();
                let ends = before.as_ref().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string());
                match (&before, granted(state, 0, cluster)) {
                    (Some(before), _) if !is_ours(before) || ends => {
                        assert_eq!(
                            object.as_ref(),
                            Some(before),
                            "{state:?} {key}: fields of other owners change"
                        );
                    }
                    (_, Grant::Granted) => {
                        let shown = object.unwrap();
                        assert_eq!(shown["spec"]["displayName"], key.cluster.as_str());
                        let theirs = before.map_or(Value::Null, |it| it["status"]["accessProviders"].clone());
                        assert_eq!(shown["status"]["accessProviders"], theirs, "{state:?} {key}");
                    }
                    (Some(_), Grant::Unknown) => {
                        assert!(object.is_some(), "{state:?} {key}: an unknown grant deletes the profile");
                    }
                    (None, Grant::Unknown | Grant::Refused) => assert_eq!(object, None, "{state:?} {key}"),
                    (Some(before), Grant::Refused) => {
                        let labelled = before["metadata"]["labels"]["x-k8s.io/cluster-manager"].is_string();
                        assert_eq!(object.is_none(), labelled, "{state:?} {key}: {before}");
                    }
                }
            }
        }
    }
    println!("{plans} plans, at most {longest} writes until nothing differs");
}
