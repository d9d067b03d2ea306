//! Scenes of what is left of access that has ended: accounts and copies.

use hub_api::labels;
use hub_core::explain::Question;
use hub_core::explain::observed::Observed;
use serde_json::{Value, json};

use super::{Recorded, thrice};
use crate::explain::scene::{Scene, one};
use crate::support::credential::{account, observe, secret_key, stranger};
use crate::support::{key, member, with};

/// `team` is no longer granted `c1`, and still granted `c2`.
fn moved() -> Scene {
    let elsewhere = json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": "dev" } } });
    let scene = Scene::in_order().with("ManagedCluster", &elsewhere).and(member("c2", "prod"));
    scene.observing(|hub| hub.profiles.clear())
}

/// The copy as it was when `c1` was granted.
fn keep_copy(hub: &mut Observed) {
    let key = secret_key("team", "c1-kueue");
    let copy = Scene::in_order().observed().credentials.copy(&key).unwrap().clone();
    hub.credentials.apply_copy(&key, copy);
}

/// OCM's syncer made the copy.
fn adopt(hub: &mut Observed) {
    let owner = json!([{
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": "c1",
        "uid": hub.credentials.profile(&key("team", "c1")).unwrap().uid.to_string(), "controller": true,
    }]);
    let secret = with(
        stranger("team", "c1-kueue"),
        &json!({
            "metadata": { "labels": { labels::SYNCED_FROM: "c1-kueue" }, "ownerReferences": owner },
            "type": "Opaque", "data": { "password": null, "token": "b2xk", "ca.crt": "Y2E=" },
        }),
    );
    hub.credentials.apply_copy(&secret_key("team", "c1-kueue"), observe(&secret));
}

/// The marks of consumer access, and the namespace of the consumer.
fn maintained() -> Value {
    json!({ "metadata": {
        "labels": { "app.kubernetes.io/managed-by": "hub-addons", "app.kubernetes.io/component": "consumer-access" },
        "annotations": { labels::SYNC_TO_NAMESPACES: "team" },
    } })
}

fn with_account(scene: Scene) -> Scene {
    scene.with("ManagedServiceAccount", &maintained())
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let scenes = [
        thrice("the syncer has deleted the copy after the grant", moved),
        thrice("a copy is left after the grant", || moved().observing(keep_copy)),
        thrice("a copy is left, and the namespace is granted nothing", || {
            let scene = Scene::in_order().without("ManagedClusterSetBinding");
            scene.observing(|hub| hub.profiles.clear()).observing(keep_copy)
        }),
        thrice("a copy is left of a cluster that is gone", || {
            moved().without("ManagedCluster").and(member("c2", "prod")).observing(keep_copy)
        }),
        thrice("the Secret after the grant is of another owner", || {
            moved().observing(|hub| {
                let secret = observe(&stranger("team", "c1-kueue"));
                hub.credentials.apply_copy(&secret_key("team", "c1-kueue"), secret);
            })
        }),
        thrice("a copy is left, and the syncer does not run", || {
            moved().observing(keep_copy).observing(|hub| {
                hub.leases.as_mut().unwrap().remove("credential-syncer");
            })
        }),
        thrice("a copy may be left: the sets cannot be read", || {
            moved().observing(keep_copy).observing(|hub| hub.knows_sets = false)
        }),
        thrice("a copy that OCM's syncer made is left after the grant", || {
            moved().observing(adopt)
        }),
        thrice("a copy is left of an account that no longer asks", || {
            let silent =
                json!({ "metadata": { "labels": { labels::SYNC_TO_CLUSTER_PROFILE: null } } });
            let scene = Scene::in_order().with("ManagedServiceAccount", &silent);
            scene.and(account("c1", "other")).observing(keep_copy)
        }),
        thrice("a copy is left of an account that is gone", || {
            Scene::in_order().without("ManagedServiceAccount").observing(keep_copy)
        }),
        thrice("the token is gone, and the copy is left", || {
            Scene::in_order().without("Secret").observing(keep_copy)
        }),
        thrice("an account of a ClusterAccess is granted", || with_account(Scene::in_order())),
        thrice("an account of a ClusterAccess is left after the grant", || with_account(moved())),
        thrice("an account of a ClusterAccess is left of a cluster that is gone", || {
            with_account(moved().without("ManagedCluster").and(member("c2", "prod")))
        }),
        thrice("an account of another namespace's ClusterAccess", || {
            let of_others =
                json!({ "metadata": { "annotations": { labels::SYNC_TO_NAMESPACES: "another" } } });
            with_account(moved()).with("ManagedServiceAccount", &of_others)
        }),
    ];
    let mut scenes: Vec<_> = scenes.into_iter().flatten().collect();
    scenes.push((
        "a copy is left after the grant",
        moved().observing(keep_copy),
        Question { account: Some("other".into()), all: false, ..one("team", "c1") },
    ));
    scenes
}
