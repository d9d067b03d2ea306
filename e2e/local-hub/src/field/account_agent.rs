//! The agent of OCM's managed-serviceaccount addon, in a Pod of a cluster: with the arguments that its addon gives it,
//! but with all permissions on both sides.

use std::path::Path;

use serde_json::json;

use super::deployments::running;
use super::{Site, reference};
use crate::{HubError, OCM, Pods, agent};

/// The image, and the name of its objects.
pub(super) const NAME: &str = "managed-serviceaccount";
const HUB_KUBECONFIG: &str = "managed-serviceaccount-hub-kubeconfig";

/// Runs the agent for the cluster with this name on the hub, and returns when its Pod runs.
pub async fn run_account_agent(
    name: &str,
    hub: &Path,
    cluster: &Path,
    pods: &Pods,
) -> Result<(), HubError> {
    let (hub, cluster) = (Site::at(hub).await?, Site::at(cluster).await?);
    let metadata = json!({ "namespace": agent::NAMESPACE, "name": NAME });
    let labels = json!({ "addon-agent": NAME });
    cluster.ensure_namespace(agent::NAMESPACE).await?;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": NAME },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": agent::NAMESPACE, "name": NAME }],
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": agent::NAMESPACE, "name": HUB_KUBECONFIG },
        "stringData": { "kubeconfig": hub.kubeconfig_for_pods(OCM)? },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": NAME,
                    "containers": [{
                        "name": "addon-agent", "image": reference(NAME),
                        "command": ["/msa", "agent"],
                        "args": [
                            "--leader-elect=false", format!("--cluster-name={name}"),
                            "--kubeconfig=/etc/hub/kubeconfig",
                        ],
                        "env": [{ "name": "HUB_KUBECONFIG", "value": "/etc/hub/kubeconfig" }],
                        "volumeMounts": [
                            { "name": "hub-kubeconfig", "mountPath": "/etc/hub/", "readOnly": true },
                        ],
                    }],
                    "volumes": [{ "name": "hub-kubeconfig", "secret": { "secretName": HUB_KUBECONFIG } }],
                },
            },
        },
    });
    cluster.kubectl("apply", &[account, binding, kubeconfig, deployment]).await?;
    running(&cluster.client, agent::NAMESPACE, NAME, pods).await.map(drop)
}
