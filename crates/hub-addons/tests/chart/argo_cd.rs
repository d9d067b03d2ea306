//! Cluster Secrets of Argo CD: what consumer access may write, what other users may not, and that it needs each of its
//! permissions for them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, declare, marks};
use crate::support::Hub;
use crate::support::chart::Attempt::{Create, Delete, Patch};
use crate::support::chart::{held, install, judged_as, labels, metadata, start, user};
use crate::support::world::{self, merge, merge_status, profile_of};

const ENABLED: [&str; 3] = [
    // Whoever plays Open Cluster Management here also writes what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "consumerAccess.enabled=true",
    "consumerAccess.argoCDNamespaces={team}",
];
const MANAGER: &str = "open-cluster-management";

async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, ["team", "other"].map(ocm::namespace)).await;
    ocm::cluster_set("s").create(&hub.ocm).await.unwrap();
    install(&hub, &ENABLED).await;
    let argo_cd = json!({ "command": "/plug-ins/cp-creds" });
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "argoCD": argo_cd });
    declare(&hub, ocm::cluster_access("team", "app", &spec)).await;
    hub
}

fn bare(namespace: &str, name: &str) -> Object {
    world::object("Secret", Some(namespace), name)
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
    let hub = hub().await;
    let named = "its labels and its name";
    let theirs =
        bare("team", "hub-addons-cluster-theirs").field("stringData", json!({ "name": "x" }));
    let ours = secret("c2");
    world::create(&hub.ocm, [ours.clone(), theirs.clone()]).await;
    let mut adopting = marks();
    adopting["argocd.argoproj.io/secret-type"] = json!("cluster");
    let of_c1 = data("c1", &server("c1"), &config("c1"));
    let unlabelled = json!({ "name": "hub-addons-cluster-c1", "namespace": "team" });
    let own = "only change and delete cluster Secrets";
    let of_project = |more: Value| {
        let mut patch = json!({ "stringData": { "project": "mine" } });
        patch.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Patch(ours.clone(), patch)
    };
    let cases = vec![
        (
            Create(secret_in("other", "hub-addons-cluster-c1", of_c1.clone())),
            "in the namespaces of Argo CD",
        ),
        (Create(secret_in("team", "mine", of_c1)), named),
        (Create(secret("c1").field("metadata", unlabelled)), named),
        (of_project(json!({})), "may only write name, server and config"),
        (labels(&ours, json!({ "argocd.argoproj.io/secret-type": "repository" })), named),
        (metadata(&ours, json!({ "annotations": { "copy-to": "all" } })), "must not annotate"),
        (labels(&theirs, adopting), own),
        (Delete(theirs), own),
        (held(&ours), "must have no owner but its ClusterAccess"),
        (Create(secret("c1")), ""),
        (Delete(ours.clone()), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;

    let change = "only consumer access may set or remove its labels";
    let elsewhere = json!({ "data": { "server": STANDARD.encode("https://elsewhere") } });
    let cases = vec![
        (Create(secret("c3")), "only consumer access may create Secrets"),
        (Patch(ours.clone(), elsewhere), change),
        (labels(&ours, Value::Null), change),
        (held(&ours), change),
        (of_project(json!({ "metadata": { "labels": { "team": "mine" } } })), ""),
        (Delete(ours.clone()), ""),
        (Create(bare("team", "own").field("stringData", json!({ "a": "b" }))), ""),
    ];
    judged_as(&hub, "eve", cases).await;
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
        world::exists(&hub.ocm, &secret(cluster)).await;
    }
    let access = ocm::cluster_access("team", "app", &json!({}));
    world::becomes(&hub.ocm, &access, "says what it waits for", |it| {
        it["status"]["conditions"][1]["reason"] == "ClustersNotReady"
    })
    .await;
    let astray = json!({ "data": { "server": STANDARD.encode("https://elsewhere") } });
    merge(&hub.ocm, &secret("edited"), &astray).await;
    world::delete(&hub.ocm, &ManagedCluster::named("leaves").into()).await;
    let repaired = |it: &Value| it["data"]["server"] == STANDARD.encode(server("edited"));
    world::becomes(&hub.ocm, &secret("edited"), "is repaired", repaired).await;
    world::gone(&hub.ocm, &secret("leaves")).await;
    process.stop().await;
}
