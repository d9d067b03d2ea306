//! Random but repeatable changes of clusters, sets and bindings under a projector that is killed again and again. In
//! the end each namespace sees what a full recomputation yields.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::shared::caught_up;
use crate::support::shown::{names, profile, profiles, sees};
use crate::support::world::{create, delete};
use crate::support::{Addons, Hub, user};
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::json;

const CLUSTERS: u64 = 50;
const NAMESPACES: [&str; 3] = ["team-0", "team-1", "team-2"];
const EXCLUSIVE: [&str; 3] = ["set-0", "set-1", "set-2"];
const SELECTING: [&str; 2] = ["tiers-0", "tiers-1"];
const TIERS: [&str; 3] = ["gold", "silver", "bronze"];
const STEPS: u64 = 400;
/// The program runs in each, and is killed at its end.
const RUNS: u64 = 5;

/// Splitmix64: the same numbers for the same seed on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (number ^ (number >> 31)) % sides
    }

    fn of<const N: usize>(&mut self, from: [&'static str; N]) -> &'static str {
        from[usize::try_from(self.below(N as u64)).unwrap()]
    }
}

/// The desired state of the hub.
#[derive(Default)]
struct Model {
    /// The exclusive set and the tier of each cluster.
    clusters: BTreeMap<String, (Option<&'static str>, &'static str)>,
    /// The tier that each set selects.
    selecting: BTreeMap<&'static str, &'static str>,
    /// Whether each binding is bound, by namespace and set.
    bindings: BTreeMap<(&'static str, &'static str), bool>,
}

impl Model {
    fn seen_by(&self, namespace: &str) -> BTreeSet<&str> {
        let sets = self.bindings.iter().filter(|((bound_in, _), bound)| **bound && *bound_in == namespace);
        sets.flat_map(|((_, set), _)| {
            let tier = self.selecting.get(set);
            self.clusters.iter().filter(move |(_, (exclusive, of_tier))| match tier {
                Some(tier) => of_tier == tier,
                None => *exclusive == Some(set),
            })
        })
        .map(|(name, _)| name.as_str())
        .collect()
    }
}

fn cluster(name: &str, (set, tier): (Option<&str>, &str)) -> ManagedCluster {
    let cluster = ManagedCluster::named(name).label("tier", tier);
    match set {
        Some(set) => cluster.in_set(set),
        None => cluster,
    }
}

fn selecting(set: &str, tier: &str) -> Object {
    ocm::selecting_cluster_set(set, &json!({ "matchLabels": { "tier": tier } }))
}

fn binding(namespace: &str, set: &str, bound: bool) -> Object {
    if bound { ocm::bound(namespace, set) } else { ocm::unbound(namespace, set) }
}

async fn begin(hub: &Hub, dice: &mut Dice) -> Model {
    let mut model = Model::default();
    for name in NAMESPACES {
        create(&hub.ocm, [ocm::namespace(name), ocm::bound(name, EXCLUSIVE[0])]).await;
        model.bindings.insert((name, EXCLUSIVE[0]), true);
    }
    for set in EXCLUSIVE {
        create(&hub.ocm, [ocm::cluster_set(set)]).await;
    }
    for set in SELECTING {
        create(&hub.ocm, [selecting(set, TIERS[0])]).await;
        model.selecting.insert(set, TIERS[0]);
    }
    for number in 0..CLUSTERS {
        let (name, place) = (format!("cluster-{number:02}"), (Some(dice.of(EXCLUSIVE)), dice.of(TIERS)));
        create(&hub.ocm, [cluster(&name, place).into()]).await;
        model.clusters.insert(name, place);
    }
    model
}

/// One change that users or Open Cluster Management could make.
async fn step(hub: &Hub, dice: &mut Dice, model: &mut Model) {
    let name = format!("cluster-{:02}", dice.below(CLUSTERS));
    let (namespace, set) = (dice.of(NAMESPACES), dice.of(["set-0", "set-1", "set-2", "tiers-0", "tiers-1"]));
    let place =
        (Some(dice.of(EXCLUSIVE)).filter(|set| *set != "set-2" || name.ends_with('7')), dice.of(TIERS));
    match dice.below(20) {
        0..8 => {
            let now = cluster(&name, place);
            if model.clusters.insert(name, place).is_some() {
                now.update(&hub.ocm).await.unwrap();
            } else {
                now.create(&hub.ocm).await.unwrap();
            }
        }
        8..11 => {
            if let Some(place) = model.clusters.remove(&name) {
                delete(&hub.ocm, &cluster(&name, place).into()).await;
            }
        }
        11 => {
            let (set, tier) = (dice.of(SELECTING), dice.of(TIERS));
            selecting(set, tier).update(&hub.ocm).await.unwrap();
            model.selecting.insert(set, tier);
        }
        12..15 => {
            if model.bindings.remove(&(namespace, set)).is_some() {
                delete(&hub.ocm, &binding(namespace, set, true)).await;
            } else {
                create(&hub.ocm, [binding(namespace, set, true)]).await;
                model.bindings.insert((namespace, set), true);
            }
        }
        15..17 => {
            if let Some(bound) = model.bindings.get_mut(&(namespace, set)) {
                *bound = !*bound;
                binding(namespace, set, *bound).update(&hub.ocm).await.unwrap();
            }
        }
        _ => {
            // A manual deletion, if there is a profile.
            let seen = names(&hub.ocm, namespace).await;
            let Some(victim) = seen.get(usize::try_from(dice.below(CLUSTERS)).unwrap()) else { return };
            let victim = crate::support::world::profile_of("open-cluster-management", namespace, victim);
            let api = victim.api(&hub.ocm);
            if dice.below(2) == 0 {
                // It may already be gone.
                let _ = api.delete(victim.name(), &kube::api::DeleteParams::default()).await;
            } else if api
                .get_opt(victim.name())
                .await
                .unwrap()
                .is_some_and(|found| found.data["status"].is_object())
            {
                let patch =
                    kube::api::Patch::Merge(json!({ "status": { "version": null, "conditions": null } }));
                let _ = api.patch_status(victim.name(), &kube::api::PatchParams::default(), &patch).await;
            }
        }
    }
}

async fn is_right(hub: &Hub, model: &Model) {
    for namespace in NAMESPACES {
        let seen: Vec<&str> = model.seen_by(namespace).into_iter().collect();
        sees(&hub.ocm, namespace, &seen).await;
        for name in seen {
            profile(&hub.ocm, (namespace, name), "is true to its cluster", |profile| {
                let label = &profile["metadata"]["labels"]["multicluster.x-k8s.io/clusterset"];
                label.as_str() == model.clusters[name].0
                    && profile["status"]["version"]["kubernetes"] == "v1.36.3"
                    && profile["status"]["conditions"]
                        .as_array()
                        .is_some_and(|conditions| conditions.len() == 2)
            })
            .await;
        }
    }
}

#[tokio::test]
async fn whatever_changes_and_whenever_it_is_killed_each_namespace_sees_what_is_granted_in_the_end() {
    let hub = Hub::for_projector().await;
    let mut dice = Dice(20_260_711);
    let mut model = begin(&hub, &mut dice).await;
    for run in 0..RUNS {
        let addons: Addons = hub.projector(&["--leader-elect=false"]).await;
        for _ in 0..STEPS / RUNS {
            step(&hub, &mut dice, &mut model).await;
        }
        // During the last changes of a run, without a chance to finish.
        if run % 2 == 0 {
            is_right(&hub, &model).await;
            step(&hub, &mut dice, &mut model).await;
        }
        addons.kill().await;
        for _ in 0..10 {
            step(&hub, &mut dice, &mut model).await;
        }
    }
    let addons = hub.projector(&[]).await;
    is_right(&hub, &model).await;
    let granted: usize = NAMESPACES.iter().map(|namespace| model.seen_by(namespace).len()).sum();
    assert!(granted > 10, "the seed leaves something to see: {granted}");

    // And then it is idle.
    let mark = hub.audit().mark().await.unwrap();
    caught_up(&hub.ocm, "rest").await;
    let writes = hub.audit().since(&mark).await.unwrap().of_user(user()).writes();
    let writes = writes.matching(|request| NAMESPACES.contains(&request.namespace.as_str()));
    assert!(writes.is_empty(), "{writes}");
    let all = profiles(&hub.ocm, "team-0").list(&kube::api::ListParams::default()).await.unwrap();
    assert!(all.iter().all(|profile| profile.metadata.deletion_timestamp.is_none()));
    addons.stop().await;
}
