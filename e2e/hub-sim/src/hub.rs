//! The objects of a small hub, and the requests by which users, agents and other controllers change them.

use hub_core::consumer_access::{CLUSTER_SECRET, cluster_secret_name};
use serde_json::{Value, json};

use crate::model::{Request, Server};

/// The name of this project's cluster manager, and of its access provider.
pub const MANAGER: &str = "open-cluster-management";
/// The label that names the manager of a profile.
pub const MANAGER_LABEL: &str = "x-k8s.io/cluster-manager";
/// The label that names the cluster of a profile.
pub const CLUSTER_NAME_LABEL: &str = "open-cluster-management.io/cluster-name";
/// The label that names the set of a profile's cluster.
pub const SET_LABEL: &str = "multicluster.x-k8s.io/clusterset";
/// The label that puts a ManagedCluster into a set.
pub const EXCLUSIVE_LABEL: &str = "cluster.open-cluster-management.io/clusterset";
/// The label by which a ManagedServiceAccount opts in to copies.
pub const ASK_LABEL: &str = "authentication.open-cluster-management.io/sync-to-clusterprofile";
/// The annotation by which a ManagedServiceAccount limits the namespaces that receive copies.
pub const SCOPE_ANNOTATION: &str = "authentication.open-cluster-management.io/sync-to-namespaces";
/// The label of a token that an agent has reported.
pub const TOKEN_LABEL: &str = "authentication.open-cluster-management.io/is-managed-serviceaccount";
pub const COPY_LABEL: &str = "authentication.open-cluster-management.io/synced-from";
/// The annotations of a copy: its cluster, account and the account's uid.
pub const COPY_ANNOTATIONS: [&str; 3] = [
    "authentication.open-cluster-management.io/cluster-name",
    "authentication.open-cluster-management.io/managed-serviceaccount",
    "authentication.open-cluster-management.io/managed-serviceaccount-uid",
];
/// The condition that the syncer sets on a ManagedServiceAccount.
pub const CONDITION_SYNCED: &str = "SyncedToClusterProfiles";

/// The clusters. The copies of account `c` of the second and of account `b-c` of the first have the same name.
pub const CLUSTERS: [&str; 3] = ["a", "a-b", "east"];
pub const SETS: [&str; 2] = ["prod", "test"];
/// The namespaces of applications.
pub const NAMESPACES: [&str; 2] = ["team", "other"];
pub const ACCOUNTS: [&str; 2] = ["c", "b-c"];
/// The namespaces in which cluster-proxy can run.
pub const PROXIES: [&str; 2] = ["proxy", "proxy-2"];

/// The namespace of the processes.
pub const HOME: &str = "hub-addons";
/// The ServiceAccount of the syncer.
pub const SYNCER_ACCOUNT: &str = "syncer";
/// The ClusterRole that the RoleBindings for copies bind, and the name of these RoleBindings.
pub const COPIES_ROLE: &str = "copies";
/// The ClusterRole that lists the tokens by name.
pub const TOKENS_ROLE: &str = "tokens";
/// The Secret with the proxy's serving certificate.
pub const SERVING_SECRET: &str = "cluster-proxy-user-serving-cert";

/// Whether a syncer that may not read all Secrets has permission for a request about Secrets: by the RoleBinding in the
/// namespace, or by the ClusterRole that lists the tokens.
pub(crate) fn may_touch_secrets(server: &Server, request: &Request) -> bool {
    // The Role of consumer access for the cluster Secrets of Argo CD.
    let of_argo_cd = |text: &str| {
        text.contains(cluster_secret_name(&"".into()).as_str()) || text.contains(CLUSTER_SECRET.0)
    };
    let body = String::from_utf8_lossy(&request.body);
    if of_argo_cd(&request.path)
        || of_argo_cd(request.parameter("labelSelector"))
        || of_argo_cd(&body)
    {
        return true;
    }
    let parts: Vec<&str> = request.path.split('/').collect();
    if let ["", "api", "v1", "namespaces", namespace, "secrets", ..] = parts[..] {
        let binding = server.object("rolebindings", namespace, COPIES_ROLE);
        if binding.is_some_and(|binding| gives_copies(binding)) {
            return true;
        }
    }
    let Some(name) = request.parameter("fieldSelector").strip_prefix("metadata.name=") else {
        return false;
    };
    let role = server.object("clusterroles", "", TOKENS_ROLE);
    let rules = role.and_then(|role| role["rules"].as_array()).into_iter().flatten();
    let mut named = rules.flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten());
    name == SERVING_SECRET || named.any(|it| it == name)
}

/// Whether a RoleBinding grants the syncer the permissions that it needs for copies.
pub(crate) fn gives_copies(binding: &Value) -> bool {
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    let mut subjects =
        subjects.map(|subject| [&subject["kind"], &subject["namespace"], &subject["name"]]);
    binding["roleRef"]["name"] == COPIES_ROLE
        && subjects.any(|subject| subject == ["ServiceAccount", HOME, SYNCER_ACCOUNT])
}

#[must_use]
pub fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "said by the simulation",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// The spec of a set with this variant of the selector.
#[must_use]
pub fn selector(variant: u8) -> Value {
    let by_labels = |selector: Value| json!({ "clusterSelector": { "selectorType": "LabelSelector", "labelSelector": selector } });
    match variant % 6 {
        0 => json!({ "clusterSelector": { "selectorType": "ExclusiveClusterSetLabel" } }),
        1 => by_labels(json!({ "matchLabels": { "env": "prod" } })),
        2 => by_labels(json!({})),
        3 => json!({ "clusterSelector": { "selectorType": "LabelSelector" } }),
        4 => by_labels(json!({ "matchExpressions": [{ "key": "env", "operator": "Exists" }] })),
        _ => by_labels(json!({ "matchExpressions": [{ "key": "env", "operator": "Sometimes" }] })),
    }
}

/// A server with the CRDs of a hub and the namespaces that always exist.
#[must_use]
pub fn server(crds: impl IntoIterator<Item = Value>) -> Server {
    let mut server = Server::new(crds);
    let fixed = CLUSTERS.iter().chain(&PROXIES).chain(&[HOME, "kube-system"]).chain(&NAMESPACES);
    for name in fixed {
        let request = server.creation("namespaces", "", name, &json!({}));
        server.handle(&request);
    }
    for name in [COPIES_ROLE, TOKENS_ROLE] {
        let request = server.creation("clusterroles", "", name, &json!({ "rules": [] }));
        server.handle(&request);
    }
    server
}
