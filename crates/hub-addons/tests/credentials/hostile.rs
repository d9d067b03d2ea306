//! A tenant that creates Secrets in place of copies, removes labels of copies, makes the API server refuse writes or
//! inherits a cluster's name, on a real hub.

use crate::support::SOON;
use crate::support::credentials::{
    OF_ACCOUNT, OF_CLUSTER, OF_UID, SYNCED_FROM, caught_up, copied, copy, hub, name_of, profile, rotated,
    scene, secret, syncer, team, token, withdrawn,
};
use crate::support::world::{delete, get, merge};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use local_hub::Flavour;
use local_hub::eventually;
use local_hub::ocm;
use serde_json::{Value, json};

/// Removes everything that identifies a copy, including the API server's record of its writer.
fn stripped() -> Value {
    json!({ "metadata": {
        "labels": null, "annotations": null, "ownerReferences": null, "managedFields": [{}],
    } })
}

async fn unbind(client: &Client, name: &str) {
    delete(client, &ocm::bound(name, name)).await;
}

#[tokio::test]
async fn a_copy_is_deleted_with_its_grant_whatever_was_stripped_from_it() {
    let scene = scene(Flavour::Map).await;
    let more = json!({ "data": { "more": "eA==" } });
    for (name, patch) in [("strip", json!({})), ("strip-more", more)] {
        let cluster = format!("{name}-1");
        team(&scene.ocm, name, &[&cluster]).await;
        let token = token(&cluster, "app");
        token.create(&scene.ocm).await.unwrap();
        copied(&scene.ocm, name, &token).await;
        // In this order: the syncer sees the deletion of a Secret that it has not deleted, where none should exist.
        unbind(&scene.ocm, name).await;
        let mut stripped = stripped();
        stripped["data"] = patch["data"].clone();
        let stripping = copy(name, &token).api(&scene.ocm);
        // It may already be gone.
        let params = PatchParams::default();
        let _ = stripping.patch(&name_of(&token), &params, &Patch::Merge(&stripped)).await;
        withdrawn(&scene.ocm, name, &token).await;

        // And the other way round, before the syncer has repaired it.
        ocm::bound(name, name).create(&scene.ocm).await.unwrap();
        copied(&scene.ocm, name, &token).await;
        merge(&scene.ocm, &copy(name, &token), &stripped).await;
        unbind(&scene.ocm, name).await;
        withdrawn(&scene.ocm, name, &token).await;
    }
}

/// A client changes the copy all the time; nothing waits for it.
async fn patch_until_gone(client: Client, namespace: &'static str, name: String) {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    for count in 0.. {
        let patch = json!({ "metadata": { "annotations": { "tenant.example/count": count.to_string() } } });
        match secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_tenant_who_patches_a_copy_all_the_time_does_not_delay_its_delete() {
    let hub = hub().await;
    let (namespace, app) = ("patched", token("patched-1", "app"));
    let _addons = syncer(&hub, &[]).await;
    team(&hub.ocm, namespace, &["patched-1"]).await;
    ocm::create_tokens(&hub.ocm, [app.clone()]).await.unwrap();
    copied(&hub.ocm, namespace, &app).await;
    let clients: Vec<_> = (0..6)
        .map(|_| tokio::spawn(patch_until_gone(hub.ocm.clone(), namespace, "patched-1-app".to_owned())))
        .collect();
    eventually("a client patches", SOON, async || {
        get(&hub.ocm, &copy(namespace, &app))
            .await
            .is_some_and(|copy| copy["metadata"]["annotations"]["tenant.example/count"].is_string())
    })
    .await;
    let mark = hub.audit().mark().await.unwrap();
    unbind(&hub.ocm, namespace).await;
    for client in clients {
        client.await.unwrap();
    }
    let requests = hub.audit().since(&mark).await.unwrap();
    let deletes = requests.matching(|request| {
        request.verb == "delete" && request.resource == "secrets" && request.namespace == namespace
    });
    let codes: Vec<_> = deletes.iter().map(|request| request.code).collect();
    assert_eq!(codes, [200], "one request is enough");
}

#[tokio::test]
async fn a_secret_prepared_while_no_syncer_ran_never_gets_a_token() {
    let hub = hub().await;
    team(&hub.ocm, "bait", &["bait-1"]).await;
    let token = token("bait-1", "app");
    token.create(&hub.ocm).await.unwrap();
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let account = uid(&get(&hub.ocm, &token.account()).await.unwrap());
    let owner = uid(&get(&hub.ocm, &profile("bait", "bait-1")).await.unwrap());
    let name = name_of(&token);
    let bait = secret("bait", &name)
        .label(SYNCED_FROM, &name)
        .annotation(OF_CLUSTER, "bait-1")
        .annotation(OF_ACCOUNT, "app")
        .annotation(OF_UID, &account)
        .annotation("replicator.v1.mittwald.de/replicate-to", ".*")
        .field("stringData", json!({ "token": "a guess" }));
    let params = PostParams {
        field_manager: Some("hub-addons-credential-syncer".to_owned()),
        ..PostParams::default()
    };
    let made = bait.api(&hub.ocm).create(&params, &bait.parse().unwrap()).await.unwrap();
    let ownership = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": "bait-1", "uid": owner,
        "controller": true,
    }] } });
    merge(&hub.ocm, &bait, &ownership).await;

    let addons = syncer(&hub, &[]).await;
    let shown = copied(&hub.ocm, "bait", &token).await;
    assert_ne!(Some(uid(&shown)), made.metadata.uid);
    assert_eq!(shown["metadata"]["annotations"].as_object().unwrap().len(), 3, "{shown}");
    addons.stop().await;

    // After a restart, an unchanged copy stays; one with additional metadata stays until a token would be written into
    // it.
    let before = copied(&hub.ocm, "bait", &token).await;
    let addons = syncer(&hub, &[]).await;
    caught_up(&hub.ocm, "later").await;
    assert_eq!(copied(&hub.ocm, "bait", &token).await, before);
    addons.stop().await;
    let marked = json!({ "metadata": { "annotations": { "replicator.v1.mittwald.de/replicate-to": ".*" } } });
    merge(&hub.ocm, &copy("bait", &token), &marked).await;
    let addons = syncer(&hub, &[]).await;
    caught_up(&hub.ocm, "later-still").await;
    assert_eq!(uid(&copied(&hub.ocm, "bait", &token).await), uid(&before));
    let token = rotated(&token, 1);
    token.report(&hub.ocm).await.unwrap();
    let shown = copied(&hub.ocm, "bait", &token).await;
    assert_ne!(uid(&shown), uid(&before));
    assert_eq!(shown["metadata"]["annotations"].as_object().unwrap().len(), 3, "{shown}");
    addons.stop().await;
}
