//! The other sources: a ConfigMap that the administrator configures, and the cluster's own API server.

use crate::support::proxy::{
    self, Authority, HOME, TEAM, anchors_of, entry, has_entry, has_written, install, project,
    publishes, requests_of, state,
};
use crate::support::shown::{condition, profile, provider};
use crate::support::{Addons, Hub, PROFILES, USER, rights, world};
use k8s_openapi::ByteString;
use local_hub::{Flavour, LocalHub, Mark, Requests, ocm};
use serde_json::{Value, json};

const DIRECT: &str = "open-cluster-management-direct";

#[tokio::test]
async fn cluster_proxy_is_trusted_by_a_config_map_without_a_permission_for_the_secret_with_its_key()
{
    let mut rules = rights::provisioner();
    rules.retain(|rule| rule.resources.as_ref().is_none_or(|it| it != &["secrets"]));
    rules.push(rights::rule("list,watch configmaps named front"));
    let hub = Hub::of(rules).await;
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    install(&hub, &Authority::new("not read"), &["c1"]).await;
    let front = |text: &str| {
        world::object("ConfigMap", Some(HOME), "front").field("data", json!({ "ca.crt": text }))
    };
    front(&a.pem()).create(&hub.ocm).await.unwrap();
    project(&hub, &["c1"]).await;
    let mark = hub.audit().mark().await.unwrap();
    let arguments =
        [proxy::ALONE, "--access-provider-ca=configmap/proxy/front/ca.crt", "--ca-overlap=0"];
    let addons = Addons::start(&hub, &arguments).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    front(&b.pem()).update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&b]).await;
    // Another namespace of the proxy changes the server, and the certificates stay where they are.
    proxy::configuration("elsewhere").update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", "elsewhere", &[&b]).await;
    has_written(&addons, 3).await;

    world::delete(&hub.ocm, &front("")).await;
    let note = world::told(&hub.ocm, &front(""), "NoTrustAnchor").await;
    assert!(note.contains("\"ca.crt\"") && note.contains("does not exist"), "{note}");
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 1.0).await;
    publishes(&hub, "c1", "elsewhere", &[&b]).await;
    front(&b.pem()).create(&hub.ocm).await.unwrap();
    addons.measures(&state("cluster_proxy", "published"), 1.0).await;
    has_written(&addons, 3).await;
    let requests = requests_of(USER, &hub.audit().since(&mark).await.unwrap());
    assert_eq!(requests.count(|request| request.code == 403), 0, "{requests}");
    assert_eq!(requests.count(|request| request.resource == "secrets"), 0, "{requests}");
}

/// URLs and the certificates that clients must trust.
type Configs<'a> = &'a [(&'a str, &'a str)];

/// A cluster that reports how to reach it.
fn cluster_at(name: &str, configs: Configs<'_>) -> ocm::Object {
    let configs: Vec<Value> = configs
        .iter()
        .map(|(url, bundle)| {
            let bundle = ByteString(bundle.as_bytes().to_vec());
            if bundle.0.is_empty() {
                json!({ "url": url })
            } else {
                json!({ "url": url, "caBundle": bundle })
            }
        })
        .collect();
    ocm::Object::from(ocm::ManagedCluster::named(name).in_set(TEAM)).field(
        "spec",
        json!({ "hubAcceptsClient": true, "leaseDurationSeconds": 60, "managedClusterClientConfigs": configs }),
    )
}

fn has_direct(profile: &Value, server: &str, cluster: &str, authorities: &[&Authority]) -> bool {
    let mut shown = provider(profile, DIRECT).clone();
    let mut wanted = entry(server, cluster);
    wanted["name"] = json!(DIRECT);
    proxy::take_anchors(&mut shown) == anchors_of(authorities) && shown == wanted
}

async fn shows_direct(hub: &Hub, cluster: &str, server: &str, authorities: &[&Authority]) -> Value {
    profile(&hub.ocm, (TEAM, cluster), "has its direct entry", |profile| {
        has_direct(profile, server, cluster, authorities)
    })
    .await
}

async fn shows_no_direct(hub: &Hub, cluster: &str) {
    profile(&hub.ocm, (TEAM, cluster), "has no direct entry", |profile| {
        provider(profile, DIRECT).is_null() && !condition(profile, "ControlPlaneHealthy").is_null()
    })
    .await;
}

async fn hub_with_a_set() -> Hub {
    let builder = LocalHub::builder().flavour(Flavour::Atomic).without_controller_manager();
    let hub = Hub::start(builder, rights::both()).await;
    world::grant(&hub.ocm, TEAM, &[]).await;
    hub
}

/// The requests of the program since a mark, once its queue is empty.
async fn cost_since(hub: &Hub, addons: &Addons, mark: &Mark) -> Requests {
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    requests_of(USER, &hub.audit().since(mark).await.unwrap())
}

#[tokio::test]
async fn direct_entries_stand_beside_the_proxy_s_only_behind_their_gate() {
    let hub = hub_with_a_set().await;
    let (of_proxy, a, b) = (Authority::new("proxy"), Authority::new("a"), Authority::new("b"));
    install(&hub, &of_proxy, &["c1"]).await;
    cluster_at("c1", &[("https://api.c1.example:6443", &a.pem())]).create(&hub.ocm).await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES]).await;
    let shown = publishes(&hub, "c1", HOME, &[&of_proxy]).await;
    assert!(provider(&shown, DIRECT).is_null(), "the gate is off: {shown:#}");
    addons.stop().await;

    let gate =
        "--feature-gates=ClusterProfileDirectAccessProvider=true,ClusterProfileCredSyncer=false";
    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[gate]).await;
    let shown = shows_direct(&hub, "c1", "https://api.c1.example:6443", &[&a]).await;
    assert!(has_entry(&shown, &proxy::server(HOME, "c1"), "c1", &[&of_proxy]));
    assert_eq!(condition(&shown, "ControlPlaneHealthy")["status"], "True");
    let cost = cost_since(&hub, &addons, &mark).await;
    // A policy from before the upgrade may refuse the first.
    assert_eq!(cost.writes().count(|request| request.code == 200), 1, "{cost}");

    // A new profile has both.
    install_addon(&hub, "c2").await;
    let mark = hub.audit().mark().await.unwrap();
    cluster_at("c2", &[("https://10.0.0.2:6443", &b.pem())]).create(&hub.ocm).await.unwrap();
    let shown = shows_direct(&hub, "c2", "https://10.0.0.2:6443", &[&b]).await;
    assert!(has_entry(&shown, &proxy::server(HOME, "c2"), "c2", &[&of_proxy]));

    // A changed URL is published immediately, and a removed one is withdrawn.
    cluster_at("c1", &[("https://new.c1.example", &b.pem())]).update(&hub.ocm).await.unwrap();
    shows_direct(&hub, "c1", "https://new.c1.example", &[&b]).await;
    cluster_at("c1", &[]).update(&hub.ocm).await.unwrap();
    shows_no_direct(&hub, "c1").await;
    publishes(&hub, "c1", HOME, &[&of_proxy]).await;
    addons.measures(&state("direct", "published"), 1.0).await;
    addons.measures(&state("direct", "no_endpoint"), 1.0).await;
    let cost = cost_since(&hub, &addons, &mark).await;
    let to_c1 = cost.writes().count(|request| request.name == "c1");
    assert_eq!(to_c1, 2, "{cost}");
}

async fn install_addon(hub: &Hub, cluster: &str) {
    ocm::namespace(cluster).create(&hub.ocm).await.unwrap();
    proxy::addon(cluster).create(&hub.ocm).await.unwrap();
}
