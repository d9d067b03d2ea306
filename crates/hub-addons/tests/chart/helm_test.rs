//! `helm test`: its Pod fails if a controller does not work. No node runs Pods here, so this test runs its container.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use local_hub::eventually;
use serde_json::json;

use crate::support::chart::{NAMESPACE, RELEASE, helm, install, run, run_container, start};
use crate::support::command::Ended;
use crate::support::{Hub, SOON};

const TEST: &str = "hub-addons-test";

/// Runs the container of the test's Pod, with its ServiceAccount.
async fn container(hub: &Hub, pod: &Pod) -> Ended {
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some(TEST));
    run_container(hub, spec, &spec.containers[0]).await
}

fn pods(hub: &Hub) -> Api<Pod> {
    Api::namespaced(hub.ocm.clone(), NAMESPACE)
}

/// Runs `helm test` and its Pod.
async fn helm_test(hub: &Hub) -> (Ended, Ended) {
    let before = pods(hub).get_opt(TEST).await.unwrap().and_then(|pod| pod.metadata.uid);
    let node = async {
        let pod = eventually("the Pod is made", SOON, async || {
            pods(hub).get_opt(TEST).await.unwrap().filter(|pod| pod.metadata.uid != before)
        })
        .await;
        let ended = container(hub, &pod).await;
        let phase = if ended.code == Some(0) { "Succeeded" } else { "Failed" };
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        pods(hub).patch_status(TEST, &PatchParams::default(), &status).await.unwrap();
        ended
    };
    let arguments = ["test", RELEASE, "--namespace", NAMESPACE, "--timeout=60s"];
    tokio::join!(run(helm(), Some(&hub.hub), &arguments), node)
}

/// Sets how many replicas of a component are available, as the Deployment controller would.
async fn available(hub: &Hub, component: &str, replicas: i32) {
    let api: Api<Deployment> = Api::namespaced(hub.ocm.clone(), NAMESPACE);
    let counts = json!({ "replicas": 2, "readyReplicas": replicas, "availableReplicas": replicas });
    let status = Patch::Merge(json!({ "status": counts }));
    let name = format!("{RELEASE}-{component}");
    api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn helm_test_passes_while_every_controller_works_and_fails_otherwise() {
    let hub = Hub::plain().await;
    install(&hub, &[]).await;
    let profiles = start(&hub, "profiles").await;
    let credentials = start(&hub, "credentials").await;
    for addons in [&profiles, &credentials] {
        addons.works().await;
    }
    available(&hub, "profiles", 1).await;
    available(&hub, "credentials", 2).await;
    let (helm, command) = helm_test(&hub).await;
    assert_eq!((helm.code, command.code), (Some(0), Some(0)), "{}{}", helm.stderr, command.stdout);
    assert!(command.stdout.contains("held and renewed by"), "{}", command.stdout);

    let pod = pods(&hub).get(TEST).await.unwrap();
    available(&hub, "credentials", 0).await;
    let (helm, command) = helm_test(&hub).await;
    assert_eq!((helm.code == Some(0), command.code), (false, Some(1)), "{}", command.stdout);
    assert!(command.stdout.contains("0 of 2 replicas are available"), "{}", command.stdout);
    assert_eq!(command.stderr.lines().count(), 1, "{}", command.stderr);
    available(&hub, "credentials", 1).await;

    credentials.stop().await;
    let (helm, command) = helm_test(&hub).await;
    assert_eq!((helm.code == Some(0), command.code), (false, Some(1)), "{}", command.stdout);
    assert!(command.stdout.contains("no controller holds it"), "{}", command.stdout);

    // A stopped process holds its lease and does not renew it.
    profiles.signal("STOP").await;
    let ended = container(&hub, &pod).await;
    assert!(ended.stdout.contains("holds it and does not renew it"), "{}", ended.stdout);
    profiles.signal("CONT").await;
    profiles.kill().await;
}
