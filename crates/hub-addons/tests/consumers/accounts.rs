//! The accounts of declared consumers and their permissions: what the API server, its schemas and other controllers do
//! with these objects.

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{HubBuilder, LocalHub, eventually};
use serde_json::{Value, json};

use crate::support::cluster_permission::{cluster_permission, install_first_cluster_permission};
use crate::support::placement::{install_placement_decisions, sig_decision};
use crate::support::world::{self, get, merge, told};
use crate::support::{Addons, Hub, SOON, USER, rights};
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
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), "hub-addons-consumer-app")
}

async fn hub_with(builder: HubBuilder) -> Hub {
    let hub = Hub::start(builder, rights::consumer_access(&["app"])).await;
    world::create(
        &hub.ocm,
        [ocm::namespace(TEAM), ocm::cluster_set("s"), ocm::cluster_set("other")],
    )
    .await;
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
    eventually(&format!("{cluster} has account and permissions"), SOON, async || {
        get(client, &account(cluster)).await.is_some()
            && get(client, &work(cluster)).await.is_some()
    })
    .await;
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
    eventually("its status says so", SOON, async || {
        let status = get(&hub.ocm, &object).await.unwrap()["status"].clone();
        if status["conditions"][0]["reason"] == "Terminating" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
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
#[allow(clippy::too_many_lines, reason = "a table")]
async fn the_schema_rejects_what_could_not_be_used_with_a_sentence() {
    let hub = hub().await;
    let valid = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let selecting = |expression: &Value| {
        let expression = extended(&json!({ "key": "env" }), expression);
        json!({ "clusters": { "selector": { "matchExpressions": [expression] } } })
    };
    for (patch, words) in [
        (json!({ "identity": "Other" }), "Unsupported value"),
        (json!({ "serviceAccountNames": [] }), "at least 1 items"),
        (
            json!({ "serviceAccountNames": ["a:b"] }),
            "must be the name of a ServiceAccount of this namespace.",
        ),
        (json!({ "managedServiceAccountName": "A" }), "must consist of lower-case letters"),
        (json!({ "managedServiceAccountName": "a".repeat(190) }), "has at most 189 characters."),
        (
            json!({ "identity": "Own", "managedServiceAccountName": "x" }),
            "Only an application with the identity Copy",
        ),
        (json!({ "identity": "Own", "rotation": {} }), "has a token to rotate."),
        (
            json!({ "argoCD": { "ownToken": "/x" } }),
            "Only an application with the identity Own has an ownToken.",
        ),
        (
            json!({ "argoCD": { "command": "cp-creds" } }),
            "The path of the command must be absolute.",
        ),
        (json!({ "rotation": { "validity": "9m" } }), "must be a duration such as 24h"),
        (json!({ "rotation": { "validity": "PT24H" } }), "must be a duration such as 24h"),
        (json!({ "rotation": { "validity": "9999999h" } }), "must be a duration such as 24h"),
        (
            json!({ "rotation": { "validity": "999999h99999h99999h" } }),
            "must be a duration such as 24h",
        ),
        (
            json!({ "clusters": { "placementRef": { "name": "A" } } }),
            "the name of a Placement of this namespace.",
        ),
        (selecting(&json!({ "operator": "Is" })), "Unsupported value"),
        (selecting(&json!({ "operator": "In" })), "The operators In and NotIn need values"),
        (
            selecting(&json!({ "operator": "Exists", "values": ["a"] })),
            "Exists and DoesNotExist have none.",
        ),
        (selecting(&json!({ "operator": "In", "values": ["a b"] })), "must be a valid label value"),
        (selecting(&json!({ "operator": "Exists", "key": "a b" })), "must be a valid label key"),
        (selecting(&json!({ "operator": "Exists", "key": "a..b/x" })), "must be a valid label key"),
        (
            selecting(&json!({ "operator": "Exists", "key": "x".repeat(64) })),
            "must be a valid label key",
        ),
        (
            selecting(&json!({ "operator": "Exists", "key": format!("{}/x", "a".repeat(254)) })),
            "must be a valid label key",
        ),
        (
            json!({ "clusters": { "selector": { "matchLabels": { "a": "b c" } } } }),
            "must be a valid label value",
        ),
        (
            json!({ "permissions": [{ "clusterRole": "a/b" }] }),
            "The name of a ClusterRole has neither",
        ),
        (
            json!({ "permissions": [{ "clusterRole": ".." }] }),
            "The name of a ClusterRole has neither",
        ),
        (
            json!({ "permissions": [{ "clusterRole": "a" }, { "clusterRole": "a", "namespaces": ["b"] }] }),
            "Duplicate value",
        ),
        (
            json!({ "permissions": [{ "clusterRole": "a", "namespaces": ["*"] }] }),
            "Each of namespaces must be the name of a namespace of the cluster.",
        ),
        (json!({ "multiKueue": { "configs": [] } }), "at least 1 items"),
        (
            json!({ "multiKueue": { "configs": [{ "name": "A" }] } }),
            "The name must be that of a MultiKueueConfig.",
        ),
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
    let refused = async |patch: Value, words: &str| {
        let object = access(TEAM, "app");
        let params = kube::api::PatchParams::default();
        let patched =
            object.api(&hub.ocm).patch("app", &params, &kube::api::Patch::Merge(&patch)).await;
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
    let _addons =
        Addons::start(&hub, &[GATE, PERMIT, "--consumer-permissions=ClusterPermission"]).await;
    let note = told(&hub.ocm, &cluster_permission("c1", "app"), "WriteRefused").await;
    assert!(note.contains("clusterpermissions c1/hub-addons-consumer-app"), "{note}");
}
