//! ClusterPermission, which consumer access writes, without its fields: those that are written are in
//! `rules/permission_kinds`.

use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::json;

use super::world::{install_crd, install_open_crd};

const KIND: (&str, &str, &str) =
    ("rbac.open-cluster-management.io", "v1alpha1", "ClusterPermission");

/// A ClusterPermission of this name.
pub fn named(cluster: &str, name: &str) -> Object {
    Object::new(KIND, "clusterpermissions", Some(cluster), name)
}

/// The ClusterPermission with the permissions of an account.
pub fn cluster_permission(cluster: &str, account: &str) -> Object {
    named(cluster, &format!("hub-addons-consumer-{account}"))
}

/// Installs the kind.
pub async fn install_cluster_permission(hub: &LocalHub) {
    install_open_crd(hub, KIND, "Namespaced").await;
}

/// The same as in its first versions, which take one binding in the whole cluster
/// (<https://github.com/open-cluster-management-io/cluster-permission/blob/main/api/v1alpha1/clusterpermission_types.go>).
pub async fn install_first_cluster_permission(hub: &LocalHub) {
    let any = json!({ "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({
        "clusterRoleBinding": any, "roleBindings": any, "clusterRole": any, "roles": any,
    });
    let properties = json!({ "spec": { "type": "object", "properties": spec }, "status": any });
    let schema = json!({ "type": "object", "properties": properties });
    install_crd(hub, KIND, "Namespaced", &schema).await;
}
