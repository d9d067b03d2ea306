//! Scenes of bindings, sets and clusters.

use hub_core::credential::index::Listed;
use hub_core::explain::Question;
use hub_core::explain::observed::Observed;
use hub_core::fleet::BoundSource;
use serde_json::{Value, json};

use super::{Recorded, namespace, thrice};
use crate::explain::scene::{Scene, one};
use crate::support::{
    binding, broken, by_labels, cluster, condition, deleting, exclusive, fleet, fleet_where,
    member, unreadable, with,
};

fn not_bound() -> Value {
    json!({ "status": { "conditions": [condition("Bound", "False", "R")] } })
}

/// The set of the binding selects by these labels.
fn selecting(selector: &Value) -> Scene {
    Scene::in_order().without("ManagedClusterSet").and(by_labels("prod", selector))
}

fn bindings_unread(hub: &mut Observed) {
    hub.bindings_of = Listed::default();
}

/// Only the bindings can be read.
fn bindings_alone(hub: &mut Observed) {
    hub.fleet = fleet([binding("team", "prod")]);
    (hub.knows_clusters, hub.knows_sets) = (false, false);
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let in_order = Scene::in_order;
    let of_pair = |cluster| Question { all: false, ..one("teams", cluster) };
    let mut scenes: Vec<Recorded> = [
        thrice("no binding", || Scene::in_order().without("ManagedClusterSetBinding")),
        thrice("no binding and no cluster", || {
            Scene::in_order().without("ManagedClusterSetBinding").without("ManagedCluster")
        }),
        thrice("no binding, and the cluster has no set", || {
            let scene =
                Scene::in_order().without("ManagedClusterSetBinding").without("ManagedCluster");
            scene.and(cluster("c1", &json!({})))
        }),
        thrice("the name of the binding is not that of its set", || {
            let patch = json!({ "spec": { "clusterSet": "other" } });
            Scene::in_order().with("ManagedClusterSetBinding", &patch)
        }),
        thrice("the binding is not bound", || {
            Scene::in_order().with("ManagedClusterSetBinding", &not_bound())
        }),
        thrice("the binding is unreadable", || {
            Scene::in_order().map("ManagedClusterSetBinding", unreadable)
        }),
        thrice("no set", || Scene::in_order().without("ManagedClusterSet")),
        thrice("no set, and one with a similar name", || {
            Scene::in_order().without("ManagedClusterSet").and(exclusive("prods"))
        }),
        thrice("the cluster is in another set", || {
            Scene::in_order().without("ManagedCluster").and(member("c1", "dev"))
        }),
        thrice("the cluster is in no set", || {
            Scene::in_order().without("ManagedCluster").and(cluster("c1", &json!({})))
        }),
        thrice("the set selects by labels that the cluster has", || {
            let labels = json!({ "cluster.open-cluster-management.io/clusterset": "prod" });
            selecting(&json!({ "matchLabels": labels }))
        }),
        thrice("the set selects by other values", || {
            let labels =
                json!({ "cluster.open-cluster-management.io/clusterset": "x", "env": "y" });
            selecting(&json!({ "matchLabels": labels }))
        }),
        thrice("the set selects by a label that the cluster must not have", || {
            let key = "cluster.open-cluster-management.io/clusterset";
            selecting(&json!({ "matchExpressions": [{ "key": key, "operator": "DoesNotExist" }] }))
        }),
        thrice("the set selects every cluster", || selecting(&json!({}))),
        thrice("the set selects no cluster", || selecting(&Value::Null)),
        thrice("the selector is not valid", || {
            Scene::in_order().without("ManagedClusterSet").and(broken("prod"))
        }),
        thrice("the set is unreadable", || Scene::in_order().map("ManagedClusterSet", unreadable)),
        thrice("the selector is not valid, and another set selects another cluster", || {
            let scene = Scene::in_order().without("ManagedClusterSet").and(broken("prod"));
            scene.and(exclusive("dev")).and(binding("team", "dev")).and(member("c2", "dev"))
        }),
        thrice("no cluster", || Scene::in_order().without("ManagedCluster")),
        thrice("no cluster, and one with a similar name", || {
            Scene::in_order().without("ManagedCluster").and(member("c11", "prod"))
        }),
        thrice("the cluster is being deleted", || {
            Scene::in_order().map("ManagedCluster", deleting)
        }),
        thrice("the hub does not accept the cluster", || {
            Scene::in_order()
                .with("ManagedCluster", &json!({ "spec": { "hubAcceptsClient": false } }))
        }),
        thrice("the bindings cannot be read", || Scene::in_order().observing(bindings_unread)),
        thrice("no cluster, and the clusters cannot be read", || {
            let scene = Scene::in_order().without("ManagedCluster");
            scene.observing(|hub| hub.knows_clusters = false)
        }),
        thrice("no cluster, and the sets cannot be read", || {
            let scene = Scene::in_order().without("ManagedCluster");
            scene.observing(|hub| hub.knows_sets = false)
        }),
        thrice("the clusters cannot be read", || {
            Scene::in_order().observing(|hub| hub.knows_clusters = false)
        }),
        thrice("the sets cannot be read", || {
            Scene::in_order().observing(|hub| hub.knows_sets = false)
        }),
        thrice("only the bindings can be read", || Scene::in_order().observing(bindings_alone)),
        thrice("only the bindings can be read, and none is bound", || {
            Scene::in_order().observing(|hub| {
                let unbound = crate::support::with(binding("team", "prod"), &not_bound());
                hub.fleet = fleet([unbound]);
                (hub.knows_clusters, hub.knows_sets) = (false, false);
            })
        }),
        thrice("the clusters cannot be read, and the set does not exist", || {
            Scene::in_order()
                .without("ManagedClusterSet")
                .observing(|hub| hub.knows_clusters = false)
        }),
        thrice("two sets select nothing", || {
            let scene = Scene::in_order().without("ManagedCluster").and(member("c1", "dev"));
            let labels = json!({ "matchLabels": { "env": "prod" } });
            scene.and(by_labels("second", &labels)).and(binding("team", "second"))
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    scenes.extend([
        (
            "the binding counts by its set",
            in_order().observing(|hub| {
                let objects = [member("c1", "prod"), exclusive("prod"), binding("team", "prod")];
                hub.fleet = fleet_where(BoundSource::Computed, objects);
            }),
            one("team", "c1"),
        ),
        (
            "the set selects by labels that the cluster has; every step",
            selecting(&json!({ "matchExpressions": [
                { "key": "cluster.open-cluster-management.io/clusterset", "operator": "Exists" },
            ] })),
            one("team", "c1"),
        ),
        (
            "one of two bindings grants the cluster",
            in_order().and(exclusive("dev")).and(binding("team", "dev")),
            one("team", "c1"),
        ),
        (
            "one of three bindings is not bound, which is a problem once and not for each cluster",
            in_order()
                .and(member("c2", "prod"))
                .and(binding("blues", "prod"))
                .and(with(binding("greens", "prod"), &not_bound())),
            Question::default(),
        ),
        ("a namespace without binding and profile", in_order(), namespace("empty")),
        ("a namespace with a similar name", in_order(), namespace("teams")),
        ("a pair of a namespace with a similar name", in_order(), of_pair("c1")),
        ("a cluster and a namespace with similar names", in_order(), of_pair("c11")),
        (
            "two namespaces and two clusters",
            in_order().and(member("c2", "prod")).and(binding("other", "prod")),
            Question {
                namespaces: vec!["team".into(), "other".into()],
                clusters: vec!["c1".into(), "c2".into()],
                ..Question::default()
            },
        ),
    ]);
    scenes
}
