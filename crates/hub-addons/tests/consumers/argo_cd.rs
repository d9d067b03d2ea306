//! Argo CD's cluster Secrets for the consumer that asks for them: one for each cluster that its namespace is granted, with
//! what the ClusterProfile publishes and without a token.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use local_hub::ocm::{self, Object};
use local_hub::{LocalHub, Mark, eventually};
use serde_json::{Value, json};

use crate::GATE;
use crate::support::world::{self, get, merge, merge_status, profile_of};
use crate::support::{Addons, Hub, SOON, USER, rights};

const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const ARGO_CD: &str = "argocd";
const MANAGER: &str = "open-cluster-management";

async fn hub() -> Hub {
    let rules = [rights::consumer_access(&["argocd"]), rights::argo_cd()].concat();
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    world::create(&hub.ocm, [ocm::namespace(ARGO_CD), ocm::cluster_set("s"), ocm::bound(ARGO_CD, "s")]).await;
    hub
}

async fn start(hub: &Hub) -> Addons {
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["argocd"], "argoCD": {} });
    world::ensure(&hub.ocm, &ocm::cluster_access(ARGO_CD, "argocd", &spec)).await;
    Addons::beside(hub, &[GATE]).await
}

fn profile(cluster: &str) -> Object {
    profile_of(MANAGER, ARGO_CD, cluster)
        .label("x-k8s.io/cluster-manager", MANAGER)
        .label("open-cluster-management.io/cluster-name", cluster)
}

async fn publishes(client: &Client, cluster: &str, anchors: &str) {
    let stanza = json!({
        "server": format!("https://proxy:9092/{cluster}"), "certificate-authority-data": STANDARD.encode(anchors),
    });
    let provider = json!({ "name": MANAGER, "cluster": stanza });
    merge_status(client, &profile(cluster), &json!({ "accessProviders": [provider] })).await;
}

/// A granted cluster with its profile, as the controllers of profiles write it.
async fn joins(client: &Client, cluster: &str) {
    crate::cluster(client, cluster, "s").await;
    world::create(client, [profile(cluster)]).await;
    publishes(client, cluster, "anchors").await;
}

fn secret(cluster: &str) -> Object {
    Object::new(("", "v1", "Secret"), "secrets", Some(ARGO_CD), &format!("hub-addons-cluster-{cluster}"))
}

fn fields(secret: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    secret["data"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Waits until the Secret of a cluster has these trust anchors.
async fn leads(client: &Client, cluster: &str, anchors: &str) -> Value {
    eventually(&format!("the Secret of {cluster} has {anchors:?}"), SOON, async || {
        let shown = get(client, &secret(cluster)).await.unwrap_or_default();
        let config = fields(&shown).remove("config").unwrap_or_default();
        if config.contains(&STANDARD.encode(anchors)) { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    get(client, &secret(cluster)).await.unwrap()
}

async fn writes(hub: &Hub, mark: &Mark) -> Vec<String> {
    let requests = hub.audit().since(mark).await.unwrap().of_user(USER).writes();
    let requests = requests.matching(|it| it.resource == "secrets");
    requests.iter().map(|it| format!("{} {}", it.verb, it.name)).collect()
}

#[tokio::test]
async fn a_cluster_secret_follows_the_grant_and_the_profile() {
    let hub = hub().await;
    for cluster in ["c1", "c2"] {
        joins(&hub.ocm, cluster).await;
    }
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    let shown = leads(&hub.ocm, "c1", "anchors").await;
    leads(&hub.ocm, "c2", "anchors").await;
    assert_eq!(shown["metadata"]["labels"]["argocd.argoproj.io/secret-type"], "cluster");
    assert_eq!(shown["metadata"]["labels"]["open-cluster-management.io/cluster-name"], "c1");
    let content = fields(&shown);
    assert_eq!((&*content["name"], &*content["server"]), ("c1", "https://proxy:9092/c1"));
    let config: Value = serde_json::from_str(&content["config"]).unwrap();
    assert_eq!(config["execProviderConfig"]["command"], "/plugins/cp-creds");
    assert_eq!(config["execProviderConfig"]["args"][2], "--cluster-name=c1");
    assert!(config.get("bearerToken").is_none());
    addons.measures(IDLE, 0.0).await;
    let mut created = writes(&hub, &mark).await;
    created.sort();
    assert_eq!(created, ["create hub-addons-cluster-c1", "create hub-addons-cluster-c2"]);
    addons.stop().await;

    // A restart writes nothing; a rotation and a new label are one write each, and what users add stays.
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    let users =
        json!({ "metadata": { "labels": { "team": "mine" } }, "data": { "project": STANDARD.encode("p") } });
    merge(&hub.ocm, &secret("c1"), &users).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(writes(&hub, &mark).await, [""; 0]);
    publishes(&hub.ocm, "c1", "new").await;
    leads(&hub.ocm, "c1", "new").await;
    merge(&hub.ocm, &profile("c1"), &json!({ "metadata": { "labels": { "tier": "gpu" } } })).await;
    eventually("the label follows", SOON, async || {
        let shown = get(&hub.ocm, &secret("c1")).await.unwrap();
        let labels = &shown["metadata"]["labels"];
        if labels["tier"] == "gpu" && labels["team"] == "mine" && fields(&shown)["project"] == "p" {
            Ok(())
        } else {
            Err(shown.to_string())
        }
    })
    .await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(writes(&hub, &mark).await, ["patch hub-addons-cluster-c1"; 2]);

    // An edit is undone, a profile that loses its access provider changes nothing, and the end of the grant ends both.
    merge(&hub.ocm, &secret("c2"), &json!({ "data": { "server": STANDARD.encode("https://elsewhere") } }))
        .await;
    eventually("the server is restored", SOON, async || {
        let server = fields(&get(&hub.ocm, &secret("c2")).await.unwrap())["server"].clone();
        if server == "https://proxy:9092/c2" { Ok(()) } else { Err(server) }
    })
    .await;
    merge_status(&hub.ocm, &profile("c2"), &json!({ "accessProviders": null })).await;
    addons.measures(IDLE, 0.0).await;
    assert!(get(&hub.ocm, &secret("c2")).await.is_some());
    world::delete(&hub.ocm, &ocm::bound(ARGO_CD, "s")).await;
    for cluster in ["c1", "c2"] {
        world::gone(&hub.ocm, &secret(cluster)).await;
    }
    addons.stop().await;
}
