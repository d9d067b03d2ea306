//! Where a release of the chart is installed, and with which arguments. Tenants can create Deployments and Leases with any name and label, but no
//! ClusterRoleBindings: those of the release show its namespace.

use std::collections::BTreeSet;

use hub_api::workloads::Deployment;
use hub_core::access::Known;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::hub::{Hub, HubError};
use crate::requests::{get, list};

/// The label of the objects of a release.
const RELEASE: &str = "app.kubernetes.io/part-of=hub-addons";

/// The Deployments that releases may have, as namespaces and names: those of the ClusterRoleBindings and their subjects.
/// `None` without permission to list ClusterRoleBindings.
async fn deployments(hub: &Hub) -> Result<Option<BTreeSet<(String, String)>>, HubError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(hub.client.clone());
    let bindings = list(&bindings, &ListParams::default().labels(RELEASE)).await?;
    Ok(bindings.map(|bindings| {
        let of_binding = |binding: ClusterRoleBinding| {
            let name = binding.name_any();
            let accounts =
                binding.subjects.into_iter().flatten().filter(|it| it.kind == "ServiceAccount");
            accounts.filter_map(move |account| Some((account.namespace?, name.clone())))
        };
        bindings.into_iter().flat_map(of_binding).collect()
    }))
}

/// The namespaces of releases; `None` without permission to list ClusterRoleBindings.
pub(crate) async fn release_namespaces(hub: &Hub) -> Result<Option<BTreeSet<String>>, HubError> {
    let deployments = deployments(hub).await?;
    Ok(deployments
        .map(|deployments| deployments.into_iter().map(|(namespace, _)| namespace).collect()))
}

/// The arguments of each Deployment of releases; `None` without permission to get any of them.
pub(crate) async fn release_arguments(hub: &Hub) -> Result<Option<Vec<Vec<String>>>, HubError> {
    let Some(deployments) = deployments(hub).await? else { return Ok(None) };
    let mut arguments = Vec::new();
    let mut is_refused = false;
    for (namespace, name) in deployments {
        match get(&hub.api::<Deployment>(&(), Some(&namespace)), &name).await? {
            Known::Present(found) => {
                let containers = found.spec.template.spec.containers.into_iter();
                let all = containers.flat_map(|it| [it.command, it.args]).flatten().flatten();
                let all: Vec<String> = all.collect();
                // The user server has few of the flags.
                if all.iter().any(|argument| argument == "run") {
                    arguments.push(all);
                }
            }
            // A role for viewers names the Deployments, and not all bindings have one.
            Known::Unknown => is_refused = true,
            Known::Absent => {}
        }
    }
    Ok(Some(arguments).filter(|arguments| !arguments.is_empty() || !is_refused))
}
