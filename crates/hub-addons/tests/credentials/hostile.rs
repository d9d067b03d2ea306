//! A tenant who changes a copy all the time, on a real hub.

use crate::support::credentials::{copied, copy, hub, syncer, team, token};
use crate::support::world::{becomes, delete};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use local_hub::ocm;
use serde_json::json;

/// A client changes the copy all the time; nothing waits for it.
async fn patch_until_gone(client: Client, namespace: &'static str, name: String) {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    for count in 0.. {
        let patch =
            json!({ "metadata": { "annotations": { "tenant.example/count": count.to_string() } } });
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
        .map(|_| {
            tokio::spawn(patch_until_gone(hub.ocm.clone(), namespace, "patched-1-app".to_owned()))
        })
        .collect();
    becomes(&hub.ocm, &copy(namespace, &app), "is patched", |copy| {
        copy["metadata"]["annotations"]["tenant.example/count"].is_string()
    })
    .await;
    let mark = hub.audit().mark().await.unwrap();
    delete(&hub.ocm, &ocm::bound(namespace, namespace)).await;
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
