//! What a start costs, as the real controllers and their executors do it, in counts: twice the hub is at most twice the
//! work.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::sync::Arc;
use std::time::Duration;

use hub_core::effort::{self, Effort};
use hub_sim::actor::Actor;
use hub_sim::hub::{ASK_LABEL, EXCLUSIVE_LABEL, SETS, condition};
use hub_sim::operation::Others;
use hub_sim::process::{Gates, start};
use hub_sim::schedule::{Hubs, Setting, furnished};
use hub_sim::world::World;
use serde_json::{Value, json};
use tokio::time::sleep;

/// How many clusters are granted to how many namespaces, and accounts there are on each cluster.
type Shape = [usize; 3];

/// Creates such a hub.
fn hub([clusters, namespaces, accounts]: Shape) -> World {
    let world = World::new(Hubs::default().of(&Setting::PLAIN).unwrap(), 4);
    let others = Others::new(&world);
    for operation in furnished(0, true) {
        others.perform(operation);
    }
    let admin = Actor::new(&world, "admin");
    for namespace in (0..namespaces).map(|number| format!("n{number}")) {
        let binding = json!({
            "spec": { "clusterSet": SETS[0] },
            "status": { "conditions": [condition("Bound", "True", "ClusterSetBound")] },
        });
        admin.create("namespaces", "", &namespace, &json!({}));
        admin.create("managedclustersetbindings", &namespace, SETS[0], &binding);
    }
    for cluster in (0..clusters).map(|number| format!("c{number}")) {
        let labels = json!({ EXCLUSIVE_LABEL: SETS[0] });
        let status = json!({ "conditions": [condition("ManagedClusterConditionAvailable", "True", "Available")] });
        let object = json!({
            "metadata": { "labels": labels }, "spec": { "hubAcceptsClient": true }, "status": status,
        });
        admin.create("managedclusters", "", &cluster, &object);
        admin.create("namespaces", "", &cluster, &json!({}));
        admin.create("managedclusteraddons", &cluster, "cluster-proxy", &json!({ "spec": {} }));
        for account in (0..accounts).map(|number| format!("app{number}")) {
            let asks = json!({ "metadata": { "labels": { ASK_LABEL: "true" } }, "spec": { "rotation": {} } });
            admin.create("managedserviceaccounts", &cluster, &account, &asks);
            others.report(&cluster, &account, "0");
        }
    }
    world
}

/// What a cold start took, and the restart after it.
async fn starts(shape: Shape) -> [Effort; 2] {
    let world = hub(shape);
    let mut spent = [Effort::default(); 2];
    for spent in &mut spent {
        _ = effort::take();
        let process = start(&world, Gates::ALL, Setting::PLAIN.means);
        sleep(Duration::from_mins(1)).await;
        *spent = effort::take();
        world.kill(process);
    }
    let [clusters, namespaces, accounts] = shape;
    let state = world.lock();
    let profiles = state.server.objects_of("clusterprofiles");
    let is_provided = |profile: &&Arc<Value>| profile["status"]["accessProviders"].is_array();
    // The furnished hub binds the first set in a namespace as well.
    let granted = clusters * (namespaces + 1);
    assert_eq!(profiles.filter(is_provided).count(), granted);
    // Beside the tokens and the proxy's serving certificate.
    let copies = state.server.objects_of("secrets").count() - clusters * accounts - 1;
    assert_eq!(copies, granted * accounts);
    spent
}

#[tokio::test(start_paused = true)]
async fn twice_the_clusters_the_namespaces_or_the_accounts_cost_a_start_at_most_twice_the_work() {
    let shape = [10, 10, 2];
    let before = starts(shape).await;
    for doubled in 0..shape.len() {
        let mut shape = shape;
        // One less than twice: the first objects cost a little less than later ones.
        shape[doubled] = 2 * shape[doubled] - 1;
        for (before, after) in before.into_iter().zip(starts(shape).await) {
            assert!(after.is_at_most(2, before), "{shape:?}: {before:?}, {after:?}");
        }
    }
}
