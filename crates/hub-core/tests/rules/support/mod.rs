//! What the tests of decisions share: objects as an API server shows them, and the fleet that comes of
//! reading them one after the other, as a watch does.

#![allow(dead_code, reason = "each file of tests takes from here what it needs")]

pub mod api;
pub mod arbitrary;
pub mod arbitrary_credentials;
pub mod consumer_access;
pub mod credential;
pub mod limits;
pub mod portions;

use hub_api::Unreadable;
use hub_api::names::{ClusterName, ClusterSetName, Namespace, ProfileKey};
use hub_core::fleet::{
    BoundSource, Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet, Touched,
};
use hub_core::protected::ProtectedNamespaces;
use hub_core::rights::PermissionSettings;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::ProptestConfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The label by which a cluster joins an exclusive set.
pub const IN_SET: &str = "cluster.open-cluster-management.io/clusterset";
/// A time, for conditions.
pub const NOON: &str = "2026-05-01T12:00:00Z";

/// A property is tried with so many cases, or with as many as the variable `PROPTEST_CASES` says.
pub fn cases(usual: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = usual;
    }
    config
}

/// The settings of an installation without consumers.
pub fn settings_of_permissions() -> PermissionSettings {
    PermissionSettings {
        namespace: "addons".into(),
        service_account: "syncer".to_owned(),
        copies_role: "copies".to_owned(),
        tokens_role: "tokens".to_owned(),
        protected: ProtectedNamespaces::default(),
        require_namespaces: false,
        access_rules: None,
    }
}

/// A ManagedCluster that works, with these labels.
pub fn cluster(name: &str, labels: &Value) -> Value {
    json!({
        "kind": "ManagedCluster",
        "metadata": {
            "name": name,
            "uid": format!("uid-of-cluster-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
        },
        "spec": { "hubAcceptsClient": true, "leaseDurationSeconds": 60 },
        "status": {
            "version": { "kubernetes": "v1.36.3" },
            "clusterClaims": [
                { "name": "platform.open-cluster-management.io", "value": "AWS" },
                { "name": "id.k8s.io", "value": format!("id-{name}") },
            ],
            "conditions": [
                condition("HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted"),
                condition("ManagedClusterJoined", "True", "ManagedClusterJoined"),
                condition("ManagedClusterConditionAvailable", "True", "ManagedClusterAvailable"),
            ],
        },
    })
}

/// A ManagedCluster in an exclusive set.
pub fn member(name: &str, set: &str) -> Value {
    cluster(name, &json!({ IN_SET: set }))
}

/// A condition of this type, status and reason.
pub fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": format!("{type_} is {status}"),
        "lastTransitionTime": NOON,
    })
}

/// A ManagedClusterSet with this `spec.clusterSelector`.
pub fn set(name: &str, selector: &Value) -> Value {
    json!({
        "kind": "ManagedClusterSet",
        "metadata": { "name": name, "uid": format!("uid-of-set-{name}") },
        "spec": { "clusterSelector": selector },
    })
}

/// A ManagedClusterSet that clusters join by their label.
pub fn exclusive(name: &str) -> Value {
    set(name, &json!({ "selectorType": "ExclusiveClusterSetLabel" }))
}

/// A ManagedClusterSet that selects by labels.
pub fn by_labels(name: &str, selector: &Value) -> Value {
    set(name, &json!({ "selectorType": "LabelSelector", "labelSelector": selector }))
}

/// A ManagedClusterSet whose selector has an operator that does not exist.
pub fn broken(name: &str) -> Value {
    by_labels(
        name,
        &json!({ "matchExpressions": [{ "key": "env", "operator": "Like", "values": ["x"] }] }),
    )
}

/// A ManagedClusterSetBinding that OCM says is in force.
pub fn binding(namespace: &str, name: &str) -> Value {
    json!({
        "kind": "ManagedClusterSetBinding",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-of-{namespace}-{name}") },
        "spec": { "clusterSet": name },
        "status": { "conditions": [condition("Bound", "True", "ClusterSetBound")] },
    })
}

/// The same object with a merge patch in it.
pub fn with(mut object: Value, patch: &Value) -> Value {
    json_patch::merge(&mut object, patch);
    object
}

/// The same object with an invalid part: only its metadata is readable.
pub fn unreadable(object: Value) -> Value {
    let patch = match object["kind"].as_str() {
        Some("ManagedCluster") => json!({ "status": { "clusterClaims": "none" } }),
        Some("ManagedClusterSet") => json!({ "spec": { "clusterSelector": "all" } }),
        _ => json!({ "spec": { "clusterSet": 7 } }),
    };
    with(object, &patch)
}

/// The same object on its way out, held by a finalizer.
pub fn deleting(object: Value) -> Value {
    let patch =
        json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["example.com/hold"] } });
    with(object, &patch)
}

/// A fleet of these objects, on a hub where OCM says which bindings are in force.
pub fn fleet(objects: impl IntoIterator<Item = Value>) -> Fleet {
    fleet_where(BoundSource::Status, objects)
}

/// A hub where these clusters are in the set `prod`, which is bound in `team`.
pub fn granting(clusters: &[&str]) -> Fleet {
    granting_all(clusters.iter().map(|name| member(name, "prod")))
}

/// The same with clusters that have more than a name.
pub fn granting_all(clusters: impl IntoIterator<Item = Value>) -> Fleet {
    fleet(clusters.into_iter().chain([exclusive("prod"), binding("team", "prod")]))
}

/// The same where the selector of the set cannot be read.
pub fn doubting(clusters: &[&str]) -> Fleet {
    let clusters = clusters.iter().map(|name| member(name, "prod"));
    fleet(clusters.chain([broken("prod"), binding("team", "prod")]))
}

/// A fleet of these objects.
pub fn fleet_where(bound: BoundSource, objects: impl IntoIterator<Item = Value>) -> Fleet {
    let mut fleet = Fleet::new(bound);
    for object in objects {
        arrive(&mut fleet, &object);
    }
    fleet
}

/// Decodes an object as a watch does: where it does not decode, its metadata.
pub fn decode<K: DeserializeOwned>(object: &Value) -> Result<K, Unreadable> {
    serde_json::from_value(object.clone()).map_err(|error| {
        let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
        Unreadable { metadata, spec: object.get("spec").cloned(), error: error.to_string() }
    })
}

/// Takes in an object as a watch does.
pub fn arrive(fleet: &mut Fleet, object: &Value) -> Touched {
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    let name = metadata.name.clone().unwrap();
    match object["kind"].as_str().unwrap() {
        "ManagedCluster" => {
            fleet.apply_cluster(ClusterName::new(name), ObservedCluster::read(decode(object)))
        }
        "ManagedClusterSet" => {
            fleet.apply_set(ClusterSetName::new(name), ObservedClusterSet::read(decode(object)))
        }
        "ManagedClusterSetBinding" => {
            let namespace = Namespace::new(metadata.namespace.unwrap());
            fleet.apply_binding(
                namespace,
                ClusterSetName::new(name),
                ObservedBinding::read(decode(object)),
            )
        }
        kind => panic!("a fleet holds no {kind}"),
    }
}

/// Takes out the object that has this one's kind and name.
pub fn leave(fleet: &mut Fleet, object: &Value) -> Touched {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match object["kind"].as_str().unwrap() {
        "ManagedCluster" => fleet.delete_cluster(&text("name").into()),
        "ManagedClusterSet" => fleet.delete_set(&text("name").into()),
        "ManagedClusterSetBinding" => {
            fleet.delete_binding(&text("namespace").into(), &text("name").into())
        }
        kind => panic!("a fleet holds no {kind}"),
    }
}

/// The key of a cluster's profile in a namespace.
pub fn key(namespace: &str, cluster: &str) -> ProfileKey {
    ProfileKey { namespace: namespace.into(), cluster: cluster.into() }
}
