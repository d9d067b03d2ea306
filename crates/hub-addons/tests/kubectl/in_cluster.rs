//! `test --in-cluster` where no node runs Pods: what it reports, and that no Pod stays. `pods` runs them.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use local_hub::ocm::Object;
use local_hub::{LocalHub, eventually, ocm};
use serde_json::json;

use super::plugin::{kubectl, run};
use crate::support::rights::rule;
use crate::support::{Hub, SOON, world};

const TEST: [&str; 4] = ["test", "team/one", "--account=kueue", "--in-cluster"];

/// A hub where `team` has a profile of the cluster `one`, and the ServiceAccount `app`.
async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    ocm::namespace("team").create(&hub.ocm).await.unwrap();
    let profile = world::profile_of("karmada", "team", "one");
    profile.create(&hub.ocm).await.unwrap();
    let provider =
        json!({ "name": "open-cluster-management", "cluster": { "server": "https://proxy/one" } });
    world::merge_status(&hub.ocm, &profile, &json!({ "accessProviders": [provider] })).await;
    hub
}

async fn pods(client: &Client) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "team");
    let list = pods.list(&ListParams::default()).await.unwrap();
    list.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

#[tokio::test]
async fn a_test_in_a_pod_says_what_it_lacks() {
    let hub = hub().await;
    let admin = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let fails = async |kubectl: &local_hub::Kubectl, more: &[&str], text: &str| {
        let ended = run(kubectl, &[&TEST[..], more].concat()).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(text), "{text}: {ended:?}");
    };
    // What only has a meaning in a Pod.
    let ended = run(&admin, &["test", "team/one", "--account=kueue", "--image=i"]).await;
    assert!(ended.code == Some(2) && ended.stderr.contains("--in-cluster"), "{ended:?}");

    fails(&admin, &[], "state the image with --image").await;
    let none = "no ServiceAccount of team may read the Secret one-kueue: state the ServiceAccount";
    fails(&admin, &["--image=i"], none).await;
    for name in ["app", "second"] {
        let account = hub.service_account("team", name).await.unwrap();
        account.grant_in_namespace(vec![rule("get secrets named one-kueue")]).await.unwrap();
    }
    fails(&admin, &["--image=i"], "several may read the Secret one-kueue: app, second").await;
    fails(&admin, &["--image=i", "--service-account=gone"], "cannot create the Pod team/").await;
    let waited = "has not ended within 1 s: Pending";
    fails(&admin, &["--image=i", "--service-account=app", "--timeout=1s"], waited).await;

    // A user who sees the profile and may not create Pods.
    let user = hub.service_account("team", "user").await.unwrap();
    user.grant_in_namespace(vec![rule("get clusterprofiles.multicluster.x-k8s.io")]).await.unwrap();
    let user = kubectl(&hub, user.kubeconfig());
    eventually("the permission is in force", SOON, async || {
        let ended =
            run(&user, &[&TEST[..], &["--image=i", "--service-account=app"]].concat()).await;
        let is_refused = ended.stderr.contains("cannot create the Pod team/")
            && ended.stderr.contains("forbidden");
        if ended.code == Some(2) && is_refused { Ok(()) } else { Err(format!("{ended:?}")) }
    })
    .await;
    fails(&user, &["--image=i"], "you do not have permission to read who may read the Secret")
        .await;
    assert_eq!(pods(&hub.client_as("admin").await.unwrap()).await, Vec::<String>::new());
}

/// A Deployment with a label of the release.
pub fn deployment(namespace: &str, name: &str, image: &str, arguments: &[&str]) -> Object {
    let labels = json!({ "app.kubernetes.io/name": "hub-addons", "app.kubernetes.io/part-of": "hub-addons" });
    let template = json!({
        "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": image, "args": arguments }] },
    });
    Object::new(("apps", "v1", "Deployment"), "deployments", Some(namespace), name)
        .label("app.kubernetes.io/name", "hub-addons")
        .label("app.kubernetes.io/part-of", "hub-addons")
        .field("spec", json!({ "selector": { "matchLabels": labels }, "template": template }))
}

/// What shows the namespace of a release: tenants cannot create it.
pub fn binding(namespace: &str) -> Object {
    let role =
        json!({ "kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io" });
    let subject =
        json!({ "kind": "ServiceAccount", "namespace": namespace, "name": "hub-addons-profiles" });
    let gvk = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");
    Object::new(gvk, "clusterrolebindings", None, &format!("hub-addons-{namespace}"))
        .label("app.kubernetes.io/part-of", "hub-addons")
        .field("roleRef", role)
        .field("subjects", json!([subject]))
}

#[tokio::test]
async fn the_image_is_that_of_the_only_release_and_never_a_tenants() {
    let hub = hub().await;
    hub.service_account("team", "app").await.unwrap();
    let admin = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let tries = async || {
        run(&admin, &[&TEST[..], &["--service-account=app", "--timeout=1s"]].concat()).await
    };
    // The first of all images by name.
    world::create(&hub.ocm, [ocm::namespace("addons"), ocm::namespace("second")]).await;
    deployment("team", "hub-addons", "a.evil.example/x", &[]).create(&hub.ocm).await.unwrap();
    let ended = tries().await;
    assert!(
        ended.code == Some(2) && ended.stderr.contains("found no namespace of a release"),
        "{ended:?}"
    );

    let ours = deployment("addons", "hub-addons-profiles", "registry.example/hub-addons:1", &[]);
    world::create(&hub.ocm, [binding("addons"), ours]).await;
    let ended = tries().await;
    let shown = "running registry.example/hub-addons:1 as the ServiceAccount team/app";
    assert!(ended.stderr.contains(shown) && ended.stderr.contains("has not ended"), "{ended:?}");

    let other =
        deployment("addons", "hub-addons-credentials", "registry.example/hub-addons:2", &[]);
    other.create(&hub.ocm).await.unwrap();
    let ended = tries().await;
    assert!(ended.stderr.contains("found more than one image of the Deployments"), "{ended:?}");
    binding("second").create(&hub.ocm).await.unwrap();
    let ended = tries().await;
    assert!(ended.stderr.contains("found more than one namespace of a release"), "{ended:?}");
    assert!(!ended.stderr.contains("evil"), "{ended:?}");
}

#[tokio::test]
async fn an_interrupted_test_leaves_no_pod_behind() {
    let hub = hub().await;
    hub.service_account("team", "app").await.unwrap();
    let client = hub.client_as("admin").await.unwrap();
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let test = [&["clusterprofile"], &TEST[..], &["--image=i", "--service-account=app"]].concat();
    for signal in ["INT", "TERM", "HUP"] {
        let running = kubectl.start(&test).await.unwrap();
        eventually("its Pod is there", SOON, async || pods(&client).await.len() == 1).await;
        running.signal(signal).await.unwrap();
        assert_eq!(running.exit_status().await, Some(2), "{}", running.errors());
        assert!(running.errors().contains("interrupted"), "{}", running.errors());
        assert_eq!(pods(&client).await, Vec::<String>::new());
    }
}
