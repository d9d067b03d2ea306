//! The accounts of declared consumers and their permissions: what the API server, its schemas and other controllers do
//! with these objects.

use kube::Client;
use kube::api::{Patch, PatchParams};
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{HubBuilder, LocalHub};
use serde_json::{Value, json};

use crate::support::cluster_permission::{cluster_permission, install_first_cluster_permission};
use crate::support::placement::{install_placement_decisions, sig_decision};
use crate::support::world::{self, get, merge, told};
use crate::support::{Addons, Hub, USER, rights};
use crate::{GATE, cluster};

const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const TEAM: &str = "team";

const PERMIT: &str = "--allowed-cluster-roles=view,edit";

fn access(namespace: &str, name: &str) -> Object {
    let roles =
        json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": roles });
    ocm::cluster_access(namespace, name, &spec)
}

fn account(cluster: &str) -> Object {
    ocm::managed_service_account(cluster, "app")
}

fn work(cluster: &str) -> Object {
    world::object("ManifestWork", Some(cluster), "hub-addons-consumer-app")
}

async fn hub_with(builder: HubBuilder) -> Hub {
    let hub = Hub::start(builder, rights::consumer_access(&["app"])).await;
    let objects = [ocm::namespace(TEAM), ocm::cluster_set("s"), ocm::cluster_set("other")];
    world::create(&hub.ocm, objects).await;
    world::create(&hub.ocm, [access(TEAM, "app")]).await;
    hub
}

async fn hub() -> Hub {
    hub_with(LocalHub::builder().without_controller_manager()).await
}

async fn start(hub: &Hub) -> Addons {
    Addons::start(hub, &[GATE, PERMIT]).await
}

/// Waits until a cluster has the account and its permissions.
async fn equipped(client: &Client, cluster: &str) {
    world::exists(client, &account(cluster)).await;
    world::exists(client, &work(cluster)).await;
}

/// Waits until a cluster has neither.
async fn bare(client: &Client, cluster: &str) {
    world::gone(client, &account(cluster)).await;
    world::gone(client, &work(cluster)).await;
}

#[tokio::test]
async fn the_hub_itself_is_excluded() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    world::ensure_namespace(&hub.ocm, "hub").await;
    // Only its ID is that of the hub.
    let system = get(&hub.ocm, &ocm::namespace("kube-system")).await.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    let itself = ManagedCluster::named("hub").in_set("s").claim("id.k8s.io", id);
    itself.create(&hub.ocm).await.unwrap();
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("hub")).await, None);
}

#[tokio::test]
async fn a_namespace_that_goes_takes_the_object_and_the_access_with_it() {
    let hub = hub_with(LocalHub::builder()).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let _addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    // A finalizer holds the object, and not the access.
    let (object, held) =
        (access(TEAM, "app"), |finalizers| json!({ "metadata": { "finalizers": finalizers } }));
    merge(&hub.ocm, &object, &held(json!(["example.com/hold"]))).await;
    world::delete(&hub.ocm, &ocm::namespace(TEAM)).await;
    bare(&hub.ocm, "c1").await;
    let terminating = |it: &Value| it["status"]["conditions"][0]["reason"] == "Terminating";
    world::becomes(&hub.ocm, &object, "says that it ends", terminating).await;
    merge(&hub.ocm, &object, &held(json!(null))).await;
    world::gone(&hub.ocm, &ocm::namespace(TEAM)).await;
}

#[tokio::test]
async fn decisions_of_sig_multicluster_count_where_only_v1alpha2_is_served() {
    let hub = hub().await;
    install_placement_decisions(&hub, "v1alpha2").await;
    cluster(&hub.ocm, "c1", "s").await;
    cluster(&hub.ocm, "c2", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let placed = json!({ "spec": { "clusters": { "placementRef": { "name": "gpus" } } } });
    merge(&hub.ocm, &access(TEAM, "app"), &placed).await;
    let addons = start(&hub).await;
    // They refer to profiles, in their own namespace unless they name another one.
    let profiles = json!([
        { "clusterProfileRef": { "name": "c1", "namespace": "elsewhere" } },
        { "clusterProfileRef": { "name": "c2" } },
    ]);
    let decision = sig_decision("v1alpha2", TEAM, "gpus", &profiles);
    world::create(&hub.ocm, [decision.clone()]).await;
    equipped(&hub.ocm, "c2").await;
    world::delete(&hub.ocm, &decision).await;
    bare(&hub.ocm, "c2").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("c1")).await, None);
}

#[tokio::test]
async fn the_schema_rejects_what_could_not_be_used_with_a_sentence() {
    let hub = hub().await;
    let valid = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let selecting = |expression: &Value| {
        let expression = extended(&json!({ "key": "env" }), expression);
        json!({ "clusters": { "selector": { "matchExpressions": [expression] } } })
    };
    let key = |key: &str| selecting(&json!({ "operator": "Exists", "key": key }));
    let values = |operator: &str, values: &[&str]| {
        selecting(&json!({ "operator": operator, "values": values }))
    };
    let valid_for = |validity: &str| json!({ "rotation": { "validity": validity } });
    let roles = |permissions: Value| json!({ "permissions": permissions });
    let (duration, valid_key, valid_value) = (
        "must be a duration such as 24h",
        "must be a valid label key",
        "must be a valid label value",
    );
    let role_name = "The name of a ClusterRole has neither";
    let twice = json!([{ "clusterRole": "a" }, { "clusterRole": "a", "namespaces": ["b"] }]);
    let everywhere = json!([{ "clusterRole": "a", "namespaces": ["*"] }]);
    let own = |field: &str, value: Value| json!({ "identity": "Own", (field): value });
    for (patch, words) in [
        (json!({ "identity": "Other" }), "Unsupported value"),
        (json!({ "serviceAccountNames": [] }), "at least 1 items"),
        (json!({ "serviceAccountNames": ["a:b"] }), "a ServiceAccount of this namespace."),
        (json!({ "managedServiceAccountName": "A" }), "must consist of lower-case letters"),
        (json!({ "managedServiceAccountName": "a".repeat(190) }), "has at most 189 characters."),
        (
            own("managedServiceAccountName", json!("x")),
            "Only an application with the identity Copy",
        ),
        (own("rotation", json!({})), "has a token to rotate."),
        (json!({ "argoCD": { "ownToken": "/x" } }), "the identity Own has an ownToken."),
        (json!({ "argoCD": { "command": "cp-creds" } }), "path of the command must be absolute."),
        (valid_for("9m"), duration),
        (valid_for("PT24H"), duration),
        (valid_for("9999999h"), duration),
        (valid_for("999999h99999h99999h"), duration),
        (
            json!({ "clusters": { "placementRef": { "name": "A" } } }),
            "a Placement of this namespace.",
        ),
        (selecting(&json!({ "operator": "Is" })), "Unsupported value"),
        (selecting(&json!({ "operator": "In" })), "The operators In and NotIn need values"),
        (values("Exists", &["a"]), "Exists and DoesNotExist have none."),
        (values("In", &["a b"]), valid_value),
        (key("a b"), valid_key),
        (key("a..b/x"), valid_key),
        (key(&"x".repeat(64)), valid_key),
        (key(&format!("{}/x", "a".repeat(254))), valid_key),
        (json!({ "clusters": { "selector": { "matchLabels": { "a": "b c" } } } }), valid_value),
        (roles(json!([{ "clusterRole": "a/b" }])), role_name),
        (roles(json!([{ "clusterRole": ".." }])), role_name),
        (roles(twice), "Duplicate value"),
        (roles(everywhere), "must be the name of a namespace of the cluster."),
        (json!({ "multiKueue": { "configs": [] } }), "at least 1 items"),
        (json!({ "multiKueue": { "configs": [{ "name": "A" }] } }), "that of a MultiKueueConfig."),
    ] {
        let spec = extended(&valid, &patch);
        let error =
            cause(&ocm::cluster_access(TEAM, "odd", &spec).create(&hub.ocm).await.unwrap_err());
        assert!(error.contains(words), "{patch}: {error}");
    }
    let usable = json!({
        "managedServiceAccountName": "a".repeat(189),
        "rotation": { "validity": "0h10m" }, "argoCD": { "command": "/x" }, "permissions": [{ "clusterRole": "system:a" }],
        "clusters": { "placementRef": { "name": "a.b" }, "selector": { "matchLabels": { "a.b/c": "" }, "matchExpressions": [
            { "key": "a.b/c_d", "operator": "NotIn", "values": ["", "E.f"] }, { "key": "g", "operator": "DoesNotExist" },
            { "key": format!("{}/{}", "a".repeat(253), "x".repeat(63)), "operator": "Exists" },
        ] } },
    });
    ocm::cluster_access(TEAM, "usable", &extended(&valid, &usable)).create(&hub.ocm).await.unwrap();
    let long = "a".repeat(64);
    let error =
        cause(&ocm::cluster_access(TEAM, &long, &valid).create(&hub.ocm).await.unwrap_err());
    assert!(error.contains("at most 63 characters."), "{error}");
    for (patch, words) in [
        (json!({ "identity": "Own" }), "The identity cannot change"),
        (
            json!({ "managedServiceAccountName": "x" }),
            "The managedServiceAccountName cannot change",
        ),
    ] {
        let patch = Patch::Merge(json!({ "spec": patch }));
        let api = access(TEAM, "app").api(&hub.ocm);
        let patched = api.patch("app", &PatchParams::default(), &patch).await;
        assert!(patched.unwrap_err().to_string().contains(words), "{words}");
    }
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
    let _addons =
        Addons::start(&hub, &[GATE, PERMIT, "--consumer-permissions=ClusterPermission"]).await;
    let note = told(&hub.ocm, &cluster_permission("c1", "app"), "WriteRefused").await;
    assert!(note.contains("clusterpermissions c1/hub-addons-consumer-app"), "{note}");
}
