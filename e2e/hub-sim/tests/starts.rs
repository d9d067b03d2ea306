//! What a start costs, as the real controllers and their executors do it, in counts.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::sync::Arc;
use std::time::Duration;

use hub_core::consumer_access::CLUSTER_SECRET;
use hub_core::effort::{self, Effort};
use hub_sim::actor::Actor;
use hub_sim::consumers::{ACCESSES, VALIDITY};
use hub_sim::hub::{ASK_LABEL, COPY_LABEL, EXCLUSIVE_LABEL, condition, selector};
use hub_sim::operation::{Operation, Others};
use hub_sim::process::{Gates, start};
use hub_sim::schedule::{Hubs, Setting};
use hub_sim::world::World;
use serde_json::{Value, json};
use tokio::time::sleep;

/// How large a hub is.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Clusters, which are granted to every namespace.
    clusters: usize,
    namespaces: usize,
    /// Accounts on each cluster, whose tokens are copied.
    accounts: usize,
    /// Sets, in which the clusters are in turn, and which every namespace has bound.
    sets: usize,
    /// Namespaces with a ClusterAccess.
    consumers: usize,
}

const SMALL: Shape = Shape { clusters: 6, namespaces: 8, accounts: 1, sets: 2, consumers: 2 };

/// Creates such a hub.
fn hub(shape: Shape) -> World {
    let world = World::new(Hubs::default().of(&Setting::PLAIN).unwrap(), 4);
    let others = Others::new(&world);
    for operation in [Operation::Configure(Some(0)), Operation::Serve(0, Some(0))] {
        others.perform(operation);
    }
    let admin = Actor::new(&world, "admin");
    let numbered = |kind: char, count| (0..count).map(move |number| format!("{kind}{number}"));
    for set in numbered('s', shape.sets) {
        admin.create("managedclustersets", "", &set, &json!({ "spec": selector(0) }));
    }
    for (number, namespace) in numbered('n', shape.namespaces).enumerate() {
        admin.create("namespaces", "", &namespace, &json!({}));
        for set in numbered('s', shape.sets) {
            let binding = json!({
                "spec": { "clusterSet": set },
                "status": { "conditions": [condition("Bound", "True", "ClusterSetBound")] },
            });
            admin.create("managedclustersetbindings", &namespace, &set, &binding);
        }
        if number < shape.consumers {
            let access = json!({ "spec": {
                "identity": "Copy", "serviceAccountNames": ["app"], "rotation": { "validity": VALIDITY },
                "permissions": [{ "clusterRole": "view" }], "clusters": {}, "argoCD": {},
            } });
            admin.create(ACCESSES, &namespace, &format!("of-{namespace}"), &access);
        }
    }
    for (number, cluster) in numbered('c', shape.clusters).enumerate() {
        let labels = json!({ EXCLUSIVE_LABEL: format!("s{}", number % shape.sets) });
        let status = json!({ "conditions": [condition("ManagedClusterConditionAvailable", "True", "Available")] });
        let object = json!({
            "metadata": { "labels": labels }, "spec": { "hubAcceptsClient": true }, "status": status,
        });
        admin.create("managedclusters", "", &cluster, &object);
        admin.create("namespaces", "", &cluster, &json!({}));
        admin.create("managedclusteraddons", &cluster, "cluster-proxy", &json!({ "spec": {} }));
        for account in numbered('a', shape.accounts) {
            let asks = json!({ "metadata": { "labels": { ASK_LABEL: "true" } }, "spec": { "rotation": {} } });
            admin.create("managedserviceaccounts", &cluster, &account, &asks);
            others.report(&cluster, &account, "0");
        }
    }
    world
}

/// What a cold start took, and the restart after it.
async fn starts(shape: Shape) -> [Effort; 2] {
    // The jitter of backoffs comes from this thread's random number generator.
    fastrand::seed(4);
    let world = hub(shape);
    let others = Others::new(&world);
    let mut spent = [Effort::default(); 2];
    for spent in &mut spent {
        _ = effort::take();
        let gates = Gates { consumers: true, ..Gates::ALL };
        let process = start(&world, gates, Setting::PLAIN.means);
        for _ in 0..3 {
            sleep(Duration::from_mins(1)).await;
            others.agents();
        }
        *spent = effort::take();
        world.kill(process);
    }
    let state = world.lock();
    let count = |plural, label: &str| {
        let objects = state.server.objects_of(plural);
        objects.filter(|object| object["metadata"]["labels"][label].is_string()).count()
    };
    let profiles = state.server.objects_of("clusterprofiles");
    let is_provided = |profile: &&Arc<Value>| profile["status"]["accessProviders"].is_array();
    let granted = shape.clusters * shape.namespaces;
    assert_eq!(profiles.filter(is_provided).count(), granted);
    let accessed = shape.clusters * shape.consumers;
    assert_eq!(count("secrets", COPY_LABEL), granted * shape.accounts + accessed);
    assert_eq!(count("secrets", CLUSTER_SECRET.0), accessed);
    spent
}

/// Whether what a size cost at first, doubled, and doubled again grows in proportion: the second step is twice as long as
/// the first, or longer by at most a fiftieth of the whole.
fn is_proportional(costs: [usize; 3]) -> bool {
    let [once, twice, four_times] = costs;
    four_times.saturating_sub(twice) <= 2 * twice.saturating_sub(once) + four_times / 50
}

#[tokio::test(start_paused = true)]
async fn a_start_costs_in_proportion_to_each_size_of_the_hub() {
    type Grow = fn(&mut Shape, usize);
    let sizes: [(&str, Grow); 5] = [
        ("clusters", |shape, times| shape.clusters *= times),
        ("namespaces", |shape, times| shape.namespaces *= times),
        ("accounts", |shape, times| shape.accounts *= times),
        ("sets", |shape, times| shape.sets *= times),
        ("consumers", |shape, times| shape.consumers *= times),
    ];
    let once = starts(SMALL).await;
    for (size, grow) in sizes {
        let mut spent = [once; 3];
        for (spent, times) in spent[1..].iter_mut().zip([2, 4]) {
            let mut shape = SMALL;
            grow(&mut shape, times);
            *spent = starts(shape).await;
        }
        let cold = spent.map(|[cold, _]| cold.counts());
        for count in 0..cold[0].len() {
            assert!(is_proportional(cold.map(|counts| counts[count])), "{size}: {spent:#?}");
        }
        // How often a key is queued before its turn comes differs from one restart to the next, so it has a bound.
        for [cold, restart] in spent {
            let is_bounded = |of: fn(Effort) -> usize| 4 * of(restart) <= 3 * of(cold);
            assert!(
                is_bounded(|it| it.plans) && is_bounded(|it| it.decisions),
                "{size}: {spent:#?}"
            );
            assert!(is_bounded(|it| it.matches) && restart.parses <= 2, "{size}: {spent:#?}");
        }
    }
}
