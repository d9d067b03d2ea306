//! Where a release of the chart is installed. Tenants can create Deployments and Leases with any name and label, but no
//! ClusterRoleBindings: those of the release show its namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::ListParams;

use crate::hub::{Hub, HubError};
use crate::requests::list;

/// The label of the objects of a release.
pub(crate) const RELEASE: &str = "app.kubernetes.io/part-of=hub-addons";

/// The namespaces of releases; `None` without permission to list ClusterRoleBindings.
pub(crate) async fn release_namespaces(hub: &Hub) -> Result<Option<BTreeSet<String>>, HubError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(hub.client.clone());
    let bindings = list(&bindings, &ListParams::default().labels(RELEASE)).await?;
    Ok(bindings.map(|bindings| {
        let subjects = bindings.into_iter().flat_map(|binding| binding.subjects.unwrap_or_default());
        let accounts = subjects.filter(|subject| subject.kind == "ServiceAccount");
        accounts.filter_map(|subject| subject.namespace).collect()
    }))
}
