//! The accounts of declared consumers and their permissions, on the clusters that a binding grants to the consumer's
//! namespace and on no others.

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{HubBuilder, LocalHub, Requests, eventually};
use serde_json::{Value, json};

use crate::support::cluster_permission::{cluster_permission, install_first_cluster_permission};
use crate::support::placement::{decision, decisions, install_placement_decisions, sig_decision};
use crate::support::world::{self, get, merge, told};
use crate::support::{Addons, Hub, SOON, USER, rights};
use crate::{GATE, cluster};

const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const TEAM: &str = "team";

const PERMIT: &str = "--grant-permissions";

fn access(namespace: &str, name: &str) -> Object {
    let roles = json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": roles });
    ocm::cluster_access(namespace, name, &spec)
}

fn account(cluster: &str) -> Object {
    ocm::managed_service_account(cluster, "app")
}

fn work(cluster: &str) -> Object {
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), "hub-addons-consumer-app")
}

async fn hub_with(builder: HubBuilder) -> Hub {
    let hub = Hub::start(builder, rights::consumer_access(&["app"])).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("s"), ocm::cluster_set("other")]).await;
    world::create(&hub.ocm, [access(TEAM, "app")]).await;
    hub
}

async fn hub() -> Hub {
    hub_with(LocalHub::builder().without_controller_manager()).await
}

async fn start(hub: &Hub) -> Addons {
    Addons::beside(hub, &[GATE, PERMIT]).await
}

/// Waits until a cluster has the account and its permissions.
async fn equipped(client: &Client, cluster: &str) -> (Value, Value) {
    eventually(&format!("{cluster} has account and permissions"), SOON, async || {
        Some((get(client, &account(cluster)).await?, get(client, &work(cluster)).await?))
    })
    .await
}

/// Waits until a cluster has neither.
async fn bare(client: &Client, cluster: &str) {
    world::gone(client, &account(cluster)).await;
    world::gone(client, &work(cluster)).await;
}

/// The program's writes, except those for its Lease, Events and statuses.
fn writes(requests: &Requests) -> Requests {
    writes_of(requests, USER)
}

fn writes_of(requests: &Requests, user: &str) -> Requests {
    requests
        .of_user(user)
        .writes()
        .matching(|request| !["leases", "events", "clusteraccesses"].contains(&&*request.resource))
}

fn targets(requests: &Requests) -> Vec<String> {
    requests.iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.namespace)).collect()
}

#[tokio::test]
async fn a_cluster_takes_two_writes_the_account_first_and_a_restart_none() {
    let hub = hub().await;
    for index in 0..20 {
        cluster(&hub.ocm, &format!("c{index}"), "s").await;
    }
    cluster(&hub.ocm, "elsewhere", "other").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    for index in 0..20 {
        equipped(&hub.ocm, &format!("c{index}")).await;
    }
    addons.measures(IDLE, 0.0).await;
    let cold = hub.audit().since(&mark).await.unwrap();
    assert_eq!(writes(&cold).len(), 40, "{cold}");
    assert_eq!(cold.of_user(USER).count(|request| request.verb == "get" && request.resource != "leases"), 0);
    assert_eq!(cold.of_user(USER).count(|request| request.resource == "secrets"), 0, "{cold}");

    let (shown, permissions) = equipped(&hub.ocm, "c7").await;
    let metadata = &shown["metadata"];
    assert_eq!(metadata["labels"][ocm::SYNC_LABEL], "true");
    assert_eq!(metadata["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION], TEAM);
    assert_eq!(shown["spec"]["rotation"], json!({ "enabled": true, "validity": "8640h0m0s" }));
    assert_eq!(permissions["metadata"]["ownerReferences"][0]["uid"], metadata["uid"]);
    let manifests = permissions["spec"]["workload"]["manifests"].as_array().unwrap();
    let kinds: Vec<_> = manifests.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ClusterRoleBinding", "RoleBinding"]);

    // A restart writes nothing, and a cluster that joins takes two writes.
    addons.stop().await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    cluster(&hub.ocm, "later", "s").await;
    equipped(&hub.ocm, "later").await;
    addons.measures(IDLE, 0.0).await;
    let warm = writes(&hub.audit().since(&mark).await.unwrap());
    assert_eq!(targets(&warm), ["create managedserviceaccounts later", "create manifestworks later"]);
    assert_eq!(get(&hub.ocm, &account("elsewhere")).await, None);
}

#[tokio::test]
async fn the_hub_itself_is_excluded_until_it_is_included() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    world::ensure_namespace(&hub.ocm, "hub").await;
    let itself = ManagedCluster::named("hub").in_set("s").label("local-cluster", "true");
    itself.create(&hub.ocm).await.unwrap();
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    let leaves_out_the_hub = async || {
        eventually("the status says that the hub is left out", SOON, async || {
            let shown = get(&hub.ocm, &access(TEAM, "app")).await.unwrap()["status"].to_string();
            if shown.contains("no access to the hub itself") { Ok(()) } else { Err(shown) }
        })
        .await;
        assert_eq!(get(&hub.ocm, &account("hub")).await, None);
    };
    leaves_out_the_hub().await;
    // Without the label, its ID is that of the hub.
    let system = get(&hub.ocm, &ocm::namespace("kube-system")).await.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    itself.label("local-cluster", "false").claim("id.k8s.io", id).update(&hub.ocm).await.unwrap();
    cluster(&hub.ocm, "c2", "s").await;
    equipped(&hub.ocm, "c2").await;
    leaves_out_the_hub().await;
    addons.stop().await;

    let addons = Addons::beside(&hub, &[GATE, PERMIT, "--consumer-local-cluster"]).await;
    equipped(&hub.ocm, "hub").await;
    addons.stop().await;
    // What was created while it was included is withdrawn.
    let _addons = start(&hub).await;
    bare(&hub.ocm, "hub").await;
    equipped(&hub.ocm, "c1").await;
}

#[tokio::test]
async fn a_namespace_that_goes_takes_the_object_and_the_access_with_it() {
    let hub = hub_with(LocalHub::builder()).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let _addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    world::delete(&hub.ocm, &ocm::namespace(TEAM)).await;
    bare(&hub.ocm, "c1").await;
    world::gone(&hub.ocm, &ocm::namespace(TEAM)).await;
}

/// Waits until a condition of an object has this status and reason, and returns the object.
async fn shows(client: &Client, access: &Object, kind: &str, expected: [&str; 2]) -> Value {
    eventually(&format!("{access} is {kind} {expected:?}"), SOON, async || {
        let shown = get(client, access).await.unwrap_or_default()["status"].clone();
        let conditions = shown["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
        if [&found["status"], &found["reason"]] == expected { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    get(client, access).await.unwrap()
}

#[tokio::test]
async fn the_status_names_what_is_missing_until_every_cluster_is_ready() {
    let hub = hub().await;
    let object = access(TEAM, "app");
    let addons = start(&hub).await;
    shows(&hub.ocm, &object, "Ready", ["False", "NoCluster"]).await;
    for name in ["c1", "c2"] {
        cluster(&hub.ocm, name, "s").await;
    }
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let shown = shows(&hub.ocm, &object, "Ready", ["False", "ClustersNotReady"]).await;
    assert_eq!(
        shown["status"]["clusters"],
        json!({ "granted": 2, "selected": 2, "ready": 0, "notGranted": 0 })
    );
    let condition = json!({ "conditions": [{
        "type": "Applied", "status": "True", "reason": "Applied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    for name in ["c1", "c2"] {
        equipped(&hub.ocm, name).await;
        let token =
            json!({ "tokenSecretRef": { "name": "app", "lastRefreshTimestamp": "2026-01-01T00:00:00Z" } });
        world::merge_status(&hub.ocm, &account(name), &token).await;
        world::merge_status(&hub.ocm, &work(name), &condition).await;
    }
    let shown = shows(&hub.ocm, &object, "Ready", ["True", "Ready"]).await;
    assert_eq!(shown["status"]["clusters"]["ready"], 2);
    assert_eq!(shown["status"].get("notReady"), None);
    addons.stop().await;
    // A restart writes no status.
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    addons.measures("hub_addons_queue_depth{controller=\"consumer-access\"}", 0.0).await;
    let requests = hub.audit().since(&mark).await.unwrap().of_user(USER).writes();
    assert_eq!(requests.count(|it| it.resource == "clusteraccesses"), 0, "{requests}");
}

#[tokio::test]
async fn a_placement_narrows_the_grant_and_grants_nothing() {
    a_placement_narrows_the_grant("v1alpha1").await;
}

#[tokio::test]
async fn decisions_of_sig_multicluster_count_where_only_v1alpha2_is_served() {
    a_placement_narrows_the_grant("v1alpha2").await;
}

async fn a_placement_narrows_the_grant(sig_version: &'static str) {
    let hub = hub().await;
    install_placement_decisions(&hub, sig_version).await;
    for (name, set) in [("c1", "s"), ("c2", "s"), ("c3", "other")] {
        cluster(&hub.ocm, name, set).await;
    }
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let object = access(TEAM, "app");
    merge(&hub.ocm, &object, &json!({ "spec": { "clusters": { "placementRef": { "name": "gpus" } } } }))
        .await;
    let decision = decision(TEAM, "gpus");
    let decides = async |clusters: &[&str]| {
        world::merge_status(&hub.ocm, &decision, &decisions(clusters)).await;
    };
    world::create(&hub.ocm, [decision.clone()]).await;
    decides(&["c1", "c3"]).await;
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    let counts = async |expected: Value| {
        eventually(&format!("the status counts {expected}"), SOON, async || {
            let shown = get(&hub.ocm, &object).await.unwrap()["status"]["clusters"].clone();
            if shown == expected { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    };
    counts(json!({ "granted": 2, "selected": 1, "ready": 0, "notGranted": 1 })).await;
    decides(&["c2"]).await;
    bare(&hub.ocm, "c1").await;
    equipped(&hub.ocm, "c2").await;
    counts(json!({ "granted": 2, "selected": 1, "ready": 0, "notGranted": 0 })).await;
    // SIG Multicluster's kind refers to profiles, in this namespace unless it names another one.
    let profiles = json!([
        { "clusterProfileRef": { "name": "c1", "namespace": "elsewhere" } },
        { "clusterProfileRef": { "name": "c2" } },
    ]);
    let theirs = sig_decision(sig_version, TEAM, "gpus", &profiles);
    world::create(&hub.ocm, [theirs.clone()]).await;
    decides(&["c1", "c3"]).await;
    equipped(&hub.ocm, "c1").await;
    counts(json!({ "granted": 2, "selected": 2, "ready": 0, "notGranted": 1 })).await;
    world::delete(&hub.ocm, &decision).await;
    bare(&hub.ocm, "c1").await;
    equipped(&hub.ocm, "c2").await;
    world::delete(&hub.ocm, &theirs).await;
    bare(&hub.ocm, "c2").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!((get(&hub.ocm, &account("c1")).await, get(&hub.ocm, &account("c3")).await), (None, None));
}

#[tokio::test]
async fn the_schema_rejects_what_could_not_be_used_with_a_sentence() {
    let hub = hub().await;
    let valid = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    for (patch, words) in [
        (json!({ "identity": "Other" }), "Unsupported value"),
        (json!({ "serviceAccountNames": [] }), "at least 1 items"),
        (json!({ "serviceAccountNames": ["a:b"] }), "should match"),
        (
            json!({ "identity": "Own", "managedServiceAccountName": "x" }),
            "Only an application with the identity Copy",
        ),
        (json!({ "identity": "Own", "rotation": {} }), "has a token to rotate."),
        (
            json!({ "argoCD": { "ownToken": "/x" } }),
            "Only an application with the identity Own has an ownToken.",
        ),
        (json!({ "rotation": { "validity": "9m" } }), "A token is valid for at least 10m."),
        (json!({ "rotation": { "validity": "PT24H" } }), "should match"),
        (json!({ "permissions": [{ "clusterRole": "a/b" }] }), "should match"),
        (json!({ "permissions": [{ "clusterRole": ".." }] }), "This is not a valid name of a ClusterRole."),
        (
            json!({ "permissions": [{ "clusterRole": "a" }, { "clusterRole": "a", "namespaces": ["b"] }] }),
            "Duplicate value",
        ),
        (json!({ "permissions": [{ "clusterRole": "a", "namespaces": ["*"] }] }), "should match"),
        (json!({ "multiKueue": { "configs": [] } }), "at least 1 items"),
    ] {
        let spec = extended(&valid, &patch);
        let error = cause(&ocm::cluster_access(TEAM, "odd", &spec).create(&hub.ocm).await.unwrap_err());
        assert!(error.contains(words), "{patch}: {error}");
    }
    let long = "a".repeat(64);
    let error = cause(&ocm::cluster_access(TEAM, &long, &valid).create(&hub.ocm).await.unwrap_err());
    assert!(error.contains("at most 63 characters."), "{error}");
    let refused = async |patch: Value, words: &str| {
        let object = access(TEAM, "app");
        let params = kube::api::PatchParams::default();
        let patched = object.api(&hub.ocm).patch("app", &params, &kube::api::Patch::Merge(&patch)).await;
        let error = patched.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(json!({ "spec": { "identity": "Own" } }), "The identity cannot change").await;
    refused(
        json!({ "spec": { "managedServiceAccountName": "x" } }),
        "The managedServiceAccountName cannot change",
    )
    .await;
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

fn extended(base: &Value, patch: &Value) -> Value {
    let mut spec = base.clone();
    spec.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
    spec
}

#[tokio::test]
async fn a_version_of_cluster_permission_that_drops_bindings_is_reported() {
    let hub = hub().await;
    hub.grant(USER, rights::cluster_permissions(&["app"])).await.unwrap();
    install_first_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let _addons = Addons::beside(&hub, &[GATE, PERMIT, "--consumer-permissions=ClusterPermission"]).await;
    let note = told(&hub.ocm, &cluster_permission("c1", "app"), "WriteRefused").await;
    assert!(note.contains("clusterpermissions c1/hub-addons-consumer-app"), "{note}");
}
