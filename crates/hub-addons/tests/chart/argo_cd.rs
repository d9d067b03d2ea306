//! Cluster Secrets of Argo CD: what consumer access may write, what other users may not, and that it needs each of its
//! permissions for them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, allowed, declare, marks, refused};
use crate::support::chart::{Attempt, install, start, user};
use crate::support::world::{self, get, merge, merge_status, profile_of};
use crate::support::{Hub, SOON};

const ENABLED: [&str; 3] = [
    // Whoever plays Open Cluster Management here also writes what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "consumerAccess.enabled=true",
    "consumerAccess.argoCDNamespaces={team}",
];
const OURS: &str = "'hub-addons-consumers-argocd'";
const OTHERS: &str = "'hub-addons-cluster-secrets'";
const MANAGER: &str = "open-cluster-management";

async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(
        &hub.ocm,
        [ocm::namespace("team"), ocm::namespace("other"), ocm::cluster_set("s")],
    )
    .await;
    install(&hub, &ENABLED).await;
    let argo_cd = json!({ "command": "/plug-ins/cp-creds" });
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "argoCD": argo_cd });
    declare(&hub, ocm::cluster_access("team", "app", &spec)).await;
    hub
}

fn bare(namespace: &str, name: &str) -> Object {
    Object::new(("", "v1", "Secret"), "secrets", Some(namespace), name)
}

fn server(cluster: &str) -> String {
    format!("https://cluster-proxy-addon-user.proxy:9092/{cluster}")
}

/// The configuration that consumer access writes.
fn config(cluster: &str) -> Value {
    json!({
        "execProviderConfig": {
            "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/plug-ins/cp-creds",
            "args": ["--managed-serviceaccount=app", "--namespace=team", format!("--cluster-name={cluster}")],
        },
        "tlsClientConfig": { "caData": STANDARD.encode("anchors") },
    })
}

fn data(cluster: &str, server: &str, config: &Value) -> Value {
    let encoded = |text: &str| STANDARD.encode(text);
    json!({ "name": encoded(cluster), "server": encoded(server), "config": encoded(&config.to_string()) })
}

/// A Secret with our labels and this content.
fn secret_in(namespace: &str, name: &str, data: Value) -> Object {
    let mut labels = marks();
    labels["argocd.argoproj.io/secret-type"] = json!("cluster");
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
    bare(namespace, name)
        .field("metadata", metadata)
        .field("type", json!("Opaque"))
        .field("data", data)
}

fn secret(cluster: &str) -> Object {
    let name = format!("hub-addons-cluster-{cluster}");
    secret_in("team", &name, data(cluster, &server(cluster), &config(cluster)))
}

#[tokio::test]
async fn consumer_access_is_held_to_its_own_cluster_secrets_in_the_namespaces_of_argo_cd() {
    use Attempt::{Create, Delete, Patch};
    let hub = hub().await;
    let labels = "its labels and its name";
    let theirs =
        bare("team", "hub-addons-cluster-theirs").field("stringData", json!({ "name": "x" }));
    world::create(&hub.ocm, [secret("c2"), theirs.clone()]).await;
    let mut adopting = marks();
    adopting["argocd.argoproj.io/secret-type"] = json!("cluster");
    let adopted = json!({ "metadata": { "labels": adopting } });
    allowed(&hub, &user(COMPONENT), vec![Create(secret("c1")), Delete(secret("c2"))]).await;
    let labelled = |labels: Value| json!({ "metadata": { "labels": labels } });
    let cases = vec![
        (
            Create(secret_in(
                "other",
                "hub-addons-cluster-c1",
                data("c1", &server("c1"), &config("c1")),
            )),
            "in the namespaces of Argo CD",
        ),
        (Create(secret_in("team", "mine", data("c1", &server("c1"), &config("c1")))), labels),
        (
            Create(secret("c1").field(
                "metadata",
                json!({ "name": "hub-addons-cluster-c1", "namespace": "team" }),
            )),
            labels,
        ),
        (
            Patch(secret("c2"), json!({ "stringData": { "project": "mine" } })),
            "may only write name, server and config",
        ),
        (
            Patch(
                secret("c2"),
                labelled(json!({ "argocd.argoproj.io/secret-type": "repository" })),
            ),
            labels,
        ),
        (
            Patch(secret("c2"), json!({ "metadata": { "annotations": { "copy-to": "all" } } })),
            "must not annotate",
        ),
        (
            Patch(bare("team", "hub-addons-cluster-theirs"), adopted),
            "only change and delete cluster Secrets",
        ),
        (Delete(theirs), "only change and delete cluster Secrets"),
        (
            Patch(secret("c2"), json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            "must have no owner but its ClusterAccess",
        ),
    ];
    refused(&hub, &user(COMPONENT), cases, OURS).await;

    let change = "only consumer access may set or remove its labels";
    let elsewhere = json!({ "data": { "server": STANDARD.encode("https://elsewhere") } });
    let cases = vec![
        (Create(secret("c3")), "only consumer access may create Secrets"),
        (Patch(secret("c2"), elsewhere), change),
        (Patch(secret("c2"), json!({ "metadata": { "labels": null } })), change),
        (
            Patch(secret("c2"), json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            change,
        ),
    ];
    refused(&hub, "eve", cases, OTHERS).await;
    let attempts = vec![
        Patch(
            secret("c2"),
            json!({ "stringData": { "project": "mine" }, "metadata": { "labels": { "team": "mine" } } }),
        ),
        Delete(secret("c2")),
        Create(bare("team", "own").field("stringData", json!({ "a": "b" }))),
    ];
    allowed(&hub, "eve", attempts).await;
}

async fn joins(hub: &Hub, cluster: &str) {
    world::ensure_namespace(&hub.ocm, cluster).await;
    ManagedCluster::named(cluster).in_set("s").create(&hub.ocm).await.unwrap();
    let profile = profile_of(MANAGER, "team", cluster).label("x-k8s.io/cluster-manager", MANAGER);
    world::create(&hub.ocm, [profile.clone()]).await;
    let stanza = json!({ "server": server(cluster), "certificate-authority-data": STANDARD.encode("anchors") });
    let provider = json!({ "name": MANAGER, "cluster": stanza });
    merge_status(&hub.ocm, &profile, &json!({ "accessProviders": [provider] })).await;
}

#[tokio::test]
async fn consumer_access_maintains_cluster_secrets_with_its_permissions() {
    let hub = hub().await;
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    for cluster in ["edited", "leaves"] {
        joins(&hub, cluster).await;
    }
    let process = start(&hub, COMPONENT).await;
    for cluster in ["edited", "leaves"] {
        eventually("it has its Secret", SOON, async || {
            get(&hub.ocm, &secret(cluster)).await.is_some()
        })
        .await;
    }
    let access = ocm::cluster_access("team", "app", &json!({}));
    eventually("its object has a status", SOON, async || {
        get(&hub.ocm, &access).await.unwrap()["status"]["conditions"][1]["reason"]
            == "ClustersNotReady"
    })
    .await;
    let astray = json!({ "data": { "server": STANDARD.encode("https://elsewhere") } });
    merge(&hub.ocm, &secret("edited"), &astray).await;
    world::delete(&hub.ocm, &ManagedCluster::named("leaves").into()).await;
    eventually("it is repaired", SOON, async || {
        get(&hub.ocm, &secret("edited")).await.unwrap()["data"]["server"]
            == STANDARD.encode(server("edited"))
    })
    .await;
    world::gone(&hub.ocm, &secret("leaves")).await;
    process.stop().await;
}
