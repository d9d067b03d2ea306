//! The version of ClusterProfile in owner references of copies, on a real hub with the garbage collector.

use crate::support::credentials::{SYNCER, copied, copy, team, token, withdrawn};
use crate::support::world::{becomes, get, merge};
use crate::support::{Addons, Hub, SOON, rights};
use hub_api::cluster_profile::ProfileVersion;
use kube::api::{Api, DeleteParams, DynamicObject};
use local_hub::{Flavour, LocalHub, eventually};
use serde_json::{Value, json};

fn owner(copy: &Value) -> (&str, &str) {
    let owner = &copy["metadata"]["ownerReferences"][0];
    (owner["apiVersion"].as_str().unwrap(), owner["uid"].as_str().unwrap())
}

/// Whether the owner of a copy is named in v1alpha2.
fn in_v1alpha2(copy: &Value) -> bool {
    owner(copy).0 == "multicluster.x-k8s.io/v1alpha2"
}

/// Waits until the garbage collector watches profiles in the version that is now served: it looks for new kinds every
/// half minute, and does not notice what is deleted before.
async fn collector_follows(hub: &Hub) {
    eventually("the collector watches v1alpha2", SOON, async || {
        let requests =
            hub.audit().requests().await.unwrap().of_user("system:kube-controller-manager");
        let profiles = "/apis/multicluster.x-k8s.io/v1alpha2/clusterprofiles";
        requests.count(|it| it.verb == "watch" && it.code == 200 && it.uri.starts_with(profiles))
            > 0
    })
    .await;
}

/// Kubernetes' garbage collector looks up an owner in the version of the reference. In a version that is not served it
/// cannot, and retries without end.
#[tokio::test]
async fn a_copy_whose_owner_is_named_in_a_version_that_is_gone_stays_and_is_collected_again() {
    let hub = Hub::start(LocalHub::builder(), rights::syncer()).await;
    let syncer = Addons::start(&hub, &[SYNCER]).await;
    team(&hub.ocm, "one", &["c1", "c2", "c3"]).await;
    let tokens = ["c1", "c2", "c3"].map(|cluster| token(cluster, "app"));
    let mut before = Vec::new();
    for token in &tokens {
        token.create(&hub.ocm).await.unwrap();
        before.push(copied(&hub.ocm, "one", token).await);
    }

    // v1alpha1 disappears at run time: each copy is written once, and stays the same object.
    hub.serve(Flavour::V1alpha2).await;
    hub.serve_versions(Flavour::V1alpha2, |version| version == "v1alpha2").await;
    for (token, before) in tokens.iter().zip(&before) {
        let after =
            becomes(&hub.ocm, &copy("one", token), "has the new version", in_v1alpha2).await;
        assert_eq!(owner(&after).1, owner(before).1);
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["data"], before["data"]);
    }

    // The same while no syncer runs, and with a profile that is deleted in the meantime.
    syncer.stop().await;
    let stale = json!([{
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "controller": true,
    }]);
    for ((token, before), cluster) in tokens.iter().zip(&before).zip(["c1", "c2"]) {
        let mut stale = stale.clone();
        stale[0]["name"] = json!(cluster);
        stale[0]["uid"] = json!(owner(before).1);
        merge(&hub.ocm, &copy("one", token), &json!({ "metadata": { "ownerReferences": stale } }))
            .await;
    }
    let resource = ProfileVersion::V1alpha2.resource();
    let profiles: Api<DynamicObject> = Api::namespaced_with(hub.ocm.clone(), "one", &resource);
    collector_follows(&hub).await;
    for cluster in ["c1", "c3"] {
        profiles.delete(cluster, &DeleteParams::background()).await.unwrap();
    }
    withdrawn(&hub.ocm, "one", &tokens[2]).await;
    assert!(get(&hub.ocm, &copy("one", &tokens[1])).await.is_some(), "its profile exists");
    let syncer = Addons::start(&hub, &[SYNCER]).await;
    withdrawn(&hub.ocm, "one", &tokens[0]).await;
    becomes(&hub.ocm, &copy("one", &tokens[1]), "has the new version", in_v1alpha2).await;
    syncer.stop().await;

    // Afterwards the copy is garbage-collected with its profile.
    profiles.delete("c2", &DeleteParams::background()).await.unwrap();
    withdrawn(&hub.ocm, "one", &tokens[1]).await;
}
