//! The program from its image, in a Pod of a Deployment, with its ServiceAccount.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::nodes::Nodes;
use crate::support::pods::{IMAGE, image};
use crate::support::shown::sees;
use crate::support::{PROFILES, SOON, rights, world};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use local_hub::{eventually, ocm};
use serde_json::{Value, json};

const NAMESPACE: &str = "hub-addons";
const ACCOUNT: &str = "profiles";

fn deployment() -> Deployment {
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "probes" } });
    let pod = json!({
        "serviceAccountName": ACCOUNT,
        "securityContext": {
            "runAsNonRoot": true,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [{
            "name": "hub-addons",
            "image": IMAGE,
            "args": ["run", PROFILES],
            "ports": [{ "name": "metrics", "containerPort": 8080 }, { "name": "probes", "containerPort": 8081 }],
            "livenessProbe": probe("/livez"),
            "readinessProbe": probe("/readyz"),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            },
        }],
    });
    serde_json::from_value(json!({
        "metadata": { "name": "profiles" },
        "spec": {
            "selector": { "matchLabels": { "app": "profiles" } },
            "template": { "metadata": { "labels": { "app": "profiles" } }, "spec": pod },
        },
    }))
    .unwrap()
}

/// The Pods of the Deployment, once there are this many and all are ready.
async fn pods(client: &Client, count: usize, is: impl Fn(&Pod) -> bool) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(&format!("there are {count} Pods"), SOON, async || {
        let pods = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let ready = |pod: &&Pod| {
            let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True") && is(pod)
        };
        if pods.len() == count && pods.iter().filter(ready).count() == count {
            Ok(Some(pods))
        } else {
            Err(format!("{:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
        }
    })
    .await
}

async fn change(client: &Client, patch: Value) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    deployments.patch("profiles", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

#[tokio::test]
async fn a_deployment_of_the_image_keeps_profiles_and_hands_over_when_it_is_replaced() {
    let Some(image) = image().await else { return };
    let Some(hub) = Nodes::start(1, &[(IMAGE, &image)]).await else { return };
    let (admin, ocm) = (hub.client_as("admin").await.unwrap(), hub.client_as("ocm").await.unwrap());
    world::create(&admin, [world::restricted(NAMESPACE)]).await;
    hub.service_account(NAMESPACE, ACCOUNT).await.unwrap();
    hub.grant_service_account(NAMESPACE, ACCOUNT, rights::both()).await.unwrap();
    let fleet = ocm::Fleet::of(2, 1);
    fleet.create(&ocm).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), NAMESPACE);
    deployments.create(&PostParams::default(), &deployment()).await.unwrap();

    sees(&ocm, &fleet.namespaces[0], &["cluster-0000", "cluster-0001"]).await;
    let first = pods(&admin, 1, |_| true).await.remove(0);

    change(&admin, json!({ "spec": { "template": { "metadata": { "annotations": { "again": "" } } } } }))
        .await;
    let second = pods(&admin, 1, |pod| pod.uid() != first.uid()).await.remove(0);
    hub.logged(NAMESPACE, &first.name_any(), "hub-addons", "lease released").await;
    // The new leader processes this change.
    world::delete(&ocm, &fleet.cluster("cluster-0001").into()).await;
    sees(&ocm, &fleet.namespaces[0], &["cluster-0000"]).await;

    change(&admin, json!({ "spec": { "replicas": 0 } })).await;
    pods(&admin, 0, |_| true).await;
    hub.logged(NAMESPACE, &second.name_any(), "hub-addons", "SIGTERM").await;
}
