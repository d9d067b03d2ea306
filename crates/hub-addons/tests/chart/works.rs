//! The chart installed by helm on a hub, and the program with its Deployments' arguments, permissions and policies:
//! profiles, access providers and copies are created, updated, repaired and deleted, and no write is refused.

use crate::support::chart::{
    self, NAMESPACE, RELEASE, in_force, install, refused_writes, start_all,
};
use crate::support::credentials::{
    OF_CLUSTER, SYNCED_FROM, content, copied, copy, label, rotated, source, token, withdrawn,
    withheld,
};
use crate::support::flavours::on_each_flavour;
use crate::support::proxy::{
    Authority, HOME, NAME, TEAM, addon, anchors_of, publishes, take_anchors,
};
use crate::support::shown::{condition, profile, provider, sees};
use crate::support::world::{self, get, merge, merge_status};
use crate::support::{Hub, SOON, proxy};
use k8s_openapi::ByteString;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use local_hub::{Flavour, LocalHub, eventually, ocm};
use serde_json::{Value, json};

on_each_flavour!(what_is_installed_works);

/// The namespace of the proxy in these tests.
const PROXY: &str = "accessProvider.clusterProxy.namespace=proxy";
/// Whoever plays Open Cluster Management here also edits what the policies protect.
const HANDS: &str = "policies.clusterManagers.users={ocm}";
const DIRECT: &str = "open-cluster-management-direct";

/// A hub with a proxy and the chart with these values.
async fn installed(lists: Flavour, values: &[&str]) -> (Hub, Authority) {
    let builder = LocalHub::builder().without_controller_manager().flavour(lists);
    let hub = Hub::start(builder, Vec::new()).await;
    let authority = Authority::new("first");
    proxy::install(&hub, &authority, &["c1", "c2"]).await;
    install(&hub, &[&[PROXY, HANDS][..], values].concat()).await;
    in_force(&hub).await;
    (hub, authority)
}

/// A cluster with every field that a profile shows.
fn cluster(name: &str) -> ocm::ManagedCluster {
    ocm::ManagedCluster::named(name)
        .in_set("fleet")
        .label("region", "eu")
        .version("v1.34.1")
        .claim("id.k8s.io", name)
}

async fn granted(hub: &Hub) {
    let objects = [ocm::namespace(TEAM), ocm::namespace("other"), ocm::cluster_set("fleet")];
    world::create(&hub.ocm, objects).await;
    cluster("c1").create(&hub.ocm).await.unwrap();
    world::create(&hub.ocm, [ocm::bound(TEAM, "fleet")]).await;
}

/// The life of a profile with projector and provisioner, with each of their writes.
async fn profiles_live(hub: &Hub, first: &Authority) {
    profile(&hub.ocm, (TEAM, "c1"), "has its status", |profile| {
        condition(profile, "ControlPlaneHealthy")["status"] == "True"
            && profile["status"]["version"]["kubernetes"] == "v1.34.1"
            && profile["metadata"]["labels"]["region"] == "eu"
    })
    .await;
    publishes(hub, "c1", HOME, &[first]).await;

    // Other writers' parts are preserved.
    let shown = world::profile_of(NAME, TEAM, "c1");
    let foreign = json!({ "name": "theirs", "cluster": { "server": "https://theirs.example" } });
    let now = get(&hub.ocm, &shown).await.unwrap();
    let mut providers = now["status"]["accessProviders"].as_array().unwrap().clone();
    providers.push(foreign);
    let mut conditions = now["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({
        "type": "Theirs", "status": "True", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let status = json!({ "accessProviders": providers, "conditions": conditions });
    merge_status(&hub.ocm, &shown, &status).await;
    let metadata =
        json!({ "annotations": { "theirs": "1" }, "finalizers": ["example.com/theirs"] });
    merge(&hub.ocm, &shown, &json!({ "metadata": metadata })).await;

    // The source changes, and every field with it.
    cluster("c1")
        .label("region", "us")
        .version("v1.35.0")
        .claim("more", "1")
        .condition("ManagedClusterConditionAvailable", "False", "Down")
        .update(&hub.ocm)
        .await
        .unwrap();
    let second = Authority::new("second");
    let renewed = json!({ "stringData": { "tls.crt": second.chain() } });
    merge(&hub.ocm, &proxy::serving(HOME, ""), &renewed).await;
    let changed = profile(&hub.ocm, (TEAM, "c1"), "follows its sources", |profile| {
        condition(profile, "ControlPlaneHealthy")["status"] == "False"
            && profile["status"]["version"]["kubernetes"] == "v1.35.0"
            && profile["metadata"]["labels"]["region"] == "us"
            && take_anchors(&mut provider(profile, NAME).clone()) == anchors_of(&[first, &second])
    })
    .await;
    assert_eq!(condition(&changed, "Theirs")["status"], "True");
    assert_eq!(provider(&changed, "theirs")["cluster"]["server"], "https://theirs.example");
    assert_eq!(changed["metadata"]["annotations"]["theirs"], "1");

    // A manual change, which the policies allow where it claims nothing.
    merge(&hub.ocm, &shown, &json!({ "metadata": { "labels": null } })).await;
    merge_status(&hub.ocm, &shown, &json!({ "version": null, "accessProviders": null })).await;
    profile(&hub.ocm, (TEAM, "c1"), "is mended", |profile| {
        profile["metadata"]["labels"]["x-k8s.io/cluster-manager"] == NAME
            && profile["status"]["version"]["kubernetes"] == "v1.35.0"
            && !provider(profile, NAME).is_null()
    })
    .await;
    world::let_go(&hub.ocm, &shown).await;

    // Another cluster is created where another manager's profile exists, and deleted; the addon is removed, then the
    // proxy.
    let theirs = world::profile_of("somebody", TEAM, "c2");
    theirs.create(&hub.ocm).await.unwrap();
    cluster("c2").create(&hub.ocm).await.unwrap();
    world::told(&hub.ocm, &theirs, "ForeignProfile").await;
    world::delete(&hub.ocm, &theirs).await;
    sees(&hub.ocm, TEAM, &["c1", "c2"]).await;
    world::delete(&hub.ocm, &cluster("c2").into()).await;
    sees(&hub.ocm, TEAM, &["c1"]).await;
    world::delete(&hub.ocm, &addon("c1")).await;
    profile(&hub.ocm, (TEAM, "c1"), "has no entry", |profile| provider(profile, NAME).is_null())
        .await;
    world::delete(&hub.ocm, &proxy::configuration(HOME)).await;
    world::told(&hub.ocm, &proxy::configuration(HOME), "NoProxyConfiguration").await;
}

/// The life of a copy with the syncer, with each of its writes.
async fn copies_live(hub: &Hub) {
    let app = token("c1", "app");
    app.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, TEAM, &app).await;
    // A name that is too long for the label.
    let long = token("c1", "long-".repeat(20).trim_end_matches('-'));
    long.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, TEAM, &long).await;
    let app = rotated(&app, 1);
    app.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, TEAM, &app).await;

    for patch in [
        json!({ "data": { "token": null, "more": "bW9yZQ==" } }),
        json!({ "metadata": { "labels": { SYNCED_FROM: null } } }),
        json!({ "metadata": { "annotations": { OF_CLUSTER: "another" } } }),
        json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null } }),
    ] {
        merge(&hub.ocm, &copy(TEAM, &app), &patch).await;
        copied(&hub.ocm, TEAM, &app).await;
    }
    // A change that requires a new object.
    let frozen = json!({ "immutable": true, "data": { "token": "ZnJvemVu" } });
    merge(&hub.ocm, &copy(TEAM, &app), &frozen).await;
    let recreated = |copy: &Value| copy["immutable"].is_null();
    world::becomes(&hub.ocm, &copy(TEAM, &app), "is recreated", recreated).await;
    copied(&hub.ocm, TEAM, &app).await;

    // An account without a token has the condition until it has one.
    world::delete(&hub.ocm, &source(&app)).await;
    withdrawn(&hub.ocm, TEAM, &app).await;
    withheld(&hub.ocm, &app, "NoToken").await;
    app.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, TEAM, &app).await;
    content(&hub.ocm, &app).await;

    // A copy that a finalizer delays is emptied.
    world::hold(&hub.ocm, &copy(TEAM, &long), world::HOLD).await;
    label(&hub.ocm, &long, None).await;
    world::becomes(&hub.ocm, &copy(TEAM, &long), "is emptied", |it| it["data"].is_null()).await;
    world::let_go(&hub.ocm, &copy(TEAM, &long)).await;

    // A foreign Secret in place of a copy is not changed.
    let stands = token("c1", "stands");
    chart::opaque(TEAM, "c1-stands").create(&hub.ocm).await.unwrap();
    stands.create(&hub.ocm).await.unwrap();
    world::told(&hub.ocm, &copy(TEAM, &stands), "ForeignSecret").await;
    world::delete(&hub.ocm, &stands.account()).await;

    // Another namespace, and the end of the grant.
    ocm::bound("other", "fleet").create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "other", &app).await;
    world::delete(&hub.ocm, &ocm::bound("other", "fleet")).await;
    withdrawn(&hub.ocm, "other", &app).await;
    copied(&hub.ocm, TEAM, &app).await;
}

async fn nothing_was_refused(hub: &Hub, components: &[&'static str]) {
    for component in components {
        let refused = refused_writes(hub, component).await;
        assert!(refused.is_empty(), "{component}: {refused}");
    }
}

/// The names in the role for tokens, or `*` for all.
async fn token_names(hub: &Hub) -> Vec<String> {
    let api: Api<ClusterRole> = Api::all(hub.ocm.clone());
    let role = api.get(&format!("{RELEASE}-credentials-tokens")).await.unwrap();
    let rules = role.rules.unwrap_or_default();
    rules.into_iter().flat_map(|rule| rule.resource_names.unwrap_or(vec!["*".to_owned()])).collect()
}

async fn what_is_installed_works(lists: Flavour) {
    let (hub, authority) = installed(lists, &["propagateLabels={region}"]).await;
    let components = ["profiles", "credentials"];
    granted(&hub).await;
    let all = start_all(&hub, &components).await;
    profiles_live(&hub, &authority).await;
    copies_live(&hub).await;

    // Manual changes of the syncer's permissions are repaired as well, by a process without permission for Secrets.
    eventually("one token is named", SOON, async || token_names(&hub).await == ["app"]).await;
    let binding = chart::role_binding(TEAM, &format!("{RELEASE}-credentials-copies"));
    merge(&hub.ocm, &binding, &json!({ "subjects": null })).await;
    world::becomes(&hub.ocm, &binding, "is recreated", |it| it["subjects"].is_array()).await;
    // An upgrade does not change them: the syncer keeps its permissions throughout.
    let role = world::object("ClusterRole", None, "hub-addons-credentials-tokens");
    let version = |role: Value| role["metadata"]["resourceVersion"].clone();
    let before = version(get(&hub.ocm, &role).await.unwrap());
    let values = [PROXY, HANDS, "propagateLabels={region}"];
    install(&hub, &values).await;
    chart::install_by(chart::helm3(), &hub, &values).await;
    assert_eq!(token_names(&hub).await, ["app"]);
    assert_eq!(version(get(&hub.ocm, &role).await.unwrap()), before, "an upgrade has written it");
    label(&hub.ocm, &token("c1", "app"), None).await;
    withdrawn(&hub.ocm, TEAM, &token("c1", "app")).await;
    eventually("no token is named", SOON, async || token_names(&hub).await.is_empty()).await;

    nothing_was_refused(&hub, &components).await;
    let profiles = hub.audit().requests().await.unwrap().of_user(&chart::user("profiles"));
    let secrets = profiles.matching(|r| r.resource == "secrets" && r.namespace != HOME);
    assert!(secrets.is_empty(), "{secrets}");
    drop(all);
}

#[tokio::test]
async fn four_gates_with_permissions_for_all_secrets_work() {
    let values = [
        "credentials.secretAccess=cluster",
        "featureGates.clusterProfileDirectAccessProvider=true",
        "propagateLabels={region}",
    ];
    let (hub, authority) = installed(Flavour::Atomic, &values).await;
    let components = ["profiles", "credentials"];
    granted(&hub).await;
    let _all = start_all(&hub, &components).await;
    let config = json!({
        "url": "https://c1.example:6443", "caBundle": ByteString(Authority::new("c1").pem().into_bytes()),
    });
    let direct = json!({ "spec": { "managedClusterClientConfigs": [config] } });
    merge(&hub.ocm, &cluster("c1").into(), &direct).await;
    profile(&hub.ocm, (TEAM, "c1"), "has a direct entry", |profile| {
        provider(profile, DIRECT)["cluster"]["server"] == "https://c1.example:6443"
    })
    .await;
    profiles_live(&hub, &authority).await;
    copies_live(&hub).await;
    // Its source has gone on the way.
    profile(&hub.ocm, (TEAM, "c1"), "has no direct entry", |profile| {
        provider(profile, DIRECT).is_null()
    })
    .await;
    nothing_was_refused(&hub, &components).await;
}

#[tokio::test]
async fn the_syncer_beside_a_projector_of_open_cluster_management_works() {
    let values =
        ["featureGates.clusterProfile=false", "featureGates.clusterProfileAccessProvider=false"];
    let (hub, _) = installed(Flavour::Atomic, &values).await;
    let components = ["rights", "credentials"];
    granted(&hub).await;
    let profile = crate::support::credentials::profile;
    world::create(&hub.ocm, [profile(TEAM, "c1"), profile("other", "c1")]).await;
    let _all = start_all(&hub, &components).await;
    copies_live(&hub).await;
    nothing_was_refused(&hub, &components).await;
    let deployment = world::object("Deployment", Some(NAMESPACE), "hub-addons-profiles");
    assert_eq!(get(&hub.ocm, &deployment).await, None);
}

#[tokio::test]
async fn a_proxy_of_ones_own_and_the_user_server_are_trusted_by_config_maps() {
    let values = [
        "accessProvider.static.server=https://front.example/{cluster}",
        "accessProvider.static.ca=configmap/proxy/front/ca.crt",
        "userServer.enabled=true",
        "userServer.proxyServer.namespace=proxy",
    ];
    let (hub, authority) = installed(Flavour::Map, &values).await;
    granted(&hub).await;
    let front = world::object("ConfigMap", Some(HOME), "front");
    world::create(&hub.ocm, [front.field("data", json!({ "ca.crt": authority.pem() }))]).await;
    let issuer = "hub-addons-user-server-authority";
    let own = world::object("ConfigMap", Some(NAMESPACE), issuer);
    merge(&hub.ocm, &own, &json!({ "data": { "ca.crt": authority.pem() } })).await;
    let _all = start_all(&hub, &["profiles"]).await;
    profile(&hub.ocm, (TEAM, "c1"), "has both entries", |profile| {
        [NAME, "open-cluster-management-own-identity"].iter().all(|name| {
            take_anchors(&mut provider(profile, name).clone()) == anchors_of(&[&authority])
        })
    })
    .await;
    nothing_was_refused(&hub, &["profiles"]).await;
}
