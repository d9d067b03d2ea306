//! Where a release of the chart is installed, and with which flags. Tenants can create Deployments and Leases with any name and label, but no
//! ClusterRoleBindings: those of the release show its namespace.

use std::collections::BTreeSet;

use hub_api::workloads::{Container, Deployment};
use hub_core::known::Known;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::hub::{Hub, HubError};
use crate::requests::{get, list};

/// The label of the objects of a release.
const RELEASE: &str = "app.kubernetes.io/part-of=hub-addons";

/// The releases on a hub.
#[derive(Default)]
pub(crate) struct Releases {
    pub(crate) namespaces: BTreeSet<String>,
    /// The variables of each of their Deployments, as flags, and its arguments; `None` without permission to get any.
    pub(crate) arguments: Option<Vec<Vec<String>>>,
}

impl Releases {
    /// Reads the ClusterRoleBindings of releases, whose names and subjects show which Deployments there may be. Without
    /// permission to list them, no release is known.
    pub(crate) async fn read(hub: &Hub) -> Result<Self, HubError> {
        let bindings: Api<ClusterRoleBinding> = Api::all(hub.client.clone());
        let params = ListParams::default().labels(RELEASE);
        let Some(bindings) = list(&bindings, &params).await? else { return Ok(Self::default()) };
        let of_binding = |binding: ClusterRoleBinding| {
            let name = binding.name_any();
            let accounts =
                binding.subjects.into_iter().flatten().filter(|it| it.kind == "ServiceAccount");
            accounts.filter_map(move |account| Some((account.namespace?, name.clone())))
        };
        let deployments: BTreeSet<_> = bindings.into_iter().flat_map(of_binding).collect();
        let mut arguments = Vec::new();
        let mut is_refused = false;
        for (namespace, name) in &deployments {
            match get(&hub.api::<Deployment>(&(), Some(namespace)), name).await? {
                Known::Present(found) => {
                    let containers = found.spec.template.spec.containers.into_iter();
                    let all: Vec<String> = containers.flat_map(flags).collect();
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
        let arguments = Some(arguments).filter(|found| !found.is_empty() || !is_refused);
        let namespaces = deployments.into_iter().map(|(namespace, _)| namespace).collect();
        Ok(Self { namespaces, arguments })
    }
}

/// What a container runs with. The program prefers its arguments, which come last.
fn flags(container: Container) -> impl Iterator<Item = String> {
    let variables = container.env.into_iter().flatten().filter_map(|variable| {
        let flag = variable.name.strip_prefix("HUB_ADDONS_")?.to_lowercase().replace('_', "-");
        Some(format!("--{flag}={}", variable.value?))
    });
    variables.chain([container.command, container.args].into_iter().flatten().flatten())
}
