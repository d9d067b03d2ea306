//! `request`: a ClusterAccess, by which an application asks for access to the clusters that its namespace is granted.

use std::io::Write;

use hub_api::cluster_access::{
    CLUSTER_ACCESSES, ClusterAccess, ClusterAccessSpec, Clusters, IdentityKind, Permission, PlacementRef,
};
use kube::Api;
use kube::api::PostParams;

use crate::args::{DryRun, Identity, RequestArgs, RequestOutput};
use crate::hub::{Hub, HubError};
use crate::output::{pretty_json, yaml};
use crate::{CommandError, Conclusion};

pub(crate) async fn request(
    hub: &Hub,
    args: &RequestArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let namespace = args.namespace.as_ref().unwrap_or(&hub.namespace);
    let mut access = wanted(args, namespace);
    let is_dry = args.dry_run == DryRun::Client;
    if !is_dry {
        let api: Api<ClusterAccess> = Api::namespaced(hub.client.clone(), namespace);
        let resource =
            format!("{CLUSTER_ACCESSES} {namespace}/{}", access.metadata.name.as_deref().unwrap_or_default());
        let created = api.create(&PostParams::default(), &access).await;
        access = created.map_err(|source| HubError { verb: "create", resource, source })?;
    }
    match args.output {
        Some(RequestOutput::Json) => pretty_json(&access, out)?,
        Some(RequestOutput::Yaml) => yaml(&access, out)?,
        None => {
            let name = access.metadata.name.as_deref().unwrap_or_default();
            let done = if is_dry { "created (dry run)" } else { "created" };
            writeln!(out, "clusteraccess.access.open-cluster-management.io/{name} {done}")?;
        }
    }
    Ok(Conclusion::Fine)
}

fn wanted(args: &RequestArgs, namespace: &str) -> ClusterAccess {
    let placement_ref = args.placement.clone().map(|name| PlacementRef { name });
    let roles = args.cluster_role.iter().cloned();
    let spec = ClusterAccessSpec {
        identity: match args.identity {
            Identity::Own => IdentityKind::Own,
            Identity::Copy => IdentityKind::Copy,
        },
        service_account_names: args.service_account.clone(),
        clusters: Clusters { placement_ref, ..Clusters::default() },
        permissions: roles.map(|cluster_role| Permission { cluster_role, namespaces: Vec::new() }).collect(),
        ..ClusterAccessSpec::default()
    };
    let mut access = ClusterAccess::new(args.name.as_deref().unwrap_or(namespace), spec);
    access.metadata.namespace = Some(namespace.to_owned());
    access
}
