//! Which feature gates of Open Cluster Management's own controllers are on.
//!
//! Tenants can create Deployments with any name, so only those in namespaces of OCM count: the usual ones, and those
//! that cluster-scoped objects of the addons show.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::workloads::Deployment;
use hub_core::access::{CLUSTER_PROXY, Known};
use hub_core::explain::Object;
use hub_core::explain::observed::{NO_KUBE_API_PROXY, OCM_GATES, OcmGate, enabled_gates};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};

use crate::hub::{Hub, HubError};
use crate::requests::{get, kind, list};

/// Where OCM and its addons are installed by clusteradm, by their charts' guides, and by Advanced Cluster Management.
const NAMESPACES: [&str; 4] = [
    "open-cluster-management",
    "open-cluster-management-hub",
    "open-cluster-management-addon",
    "multicluster-engine",
];

/// The addons whose controllers have gates.
const ADDONS: [&str; 2] = [CLUSTER_PROXY, "managed-serviceaccount"];

/// Helm's annotation of every object that it creates.
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// By the name of our controller: the objects that enable OCM's controller for the same objects, each with the name of
/// its gate. Objects that cannot be read are left out.
pub(crate) type Gates = BTreeMap<&'static str, Enabling>;
type Enabling = Vec<(Object, &'static str)>;

/// Reads the gates of OCM, and the Deployment of cluster-proxy whose agents do not connect under the names of their
/// clusters.
pub(crate) async fn gates(hub: &Hub) -> Result<(Gates, Option<Object>), HubError> {
    let namespaces = namespaces(hub).await?;
    let (mut gates, mut no_kube_api_proxy) = (Gates::new(), None);
    for ocm in OCM_GATES {
        let enabling = if ocm.kind == "Deployment" {
            let deployments = deployments(hub, &ocm, &namespaces).await?;
            let mut without = deployments.iter().flatten().filter(|(_, arguments)| {
                arguments.iter().any(|argument| argument == NO_KUBE_API_PROXY)
            });
            no_kube_api_proxy =
                no_kube_api_proxy.or(without.next().map(|(object, _)| object.clone()));
            deployments.map(|found| {
                let named = |arguments: &[String]| {
                    ocm.named(enabled_gates(arguments.iter().map(String::as_str)))
                };
                found.into_iter().filter_map(|(object, it)| Some((object, named(&it)?))).collect()
            })
        } else {
            of_manager(hub, &ocm).await?
        };
        gates.extend(enabling.map(|enabling| (ocm.controller, enabling)));
    }
    Ok((gates, no_kube_api_proxy))
}

/// The namespaces of OCM's addons.
async fn namespaces(hub: &Hub) -> Result<BTreeSet<String>, HubError> {
    let mut namespaces: BTreeSet<_> = NAMESPACES.map(str::to_owned).into();
    let configurations: Api<ManagedProxyConfiguration> = Api::all(hub.client.clone());
    if let Known::Present(configuration) = get(&configurations, CLUSTER_PROXY).await? {
        namespaces.insert(configuration.spec.proxy_server.namespace().to_owned());
    }
    let addons =
        of_kind(hub, ("addon.open-cluster-management.io", "v1alpha1", "ClusterManagementAddOn"));
    for name in ADDONS {
        if let Known::Present(addon) = get(&addons, name).await? {
            namespaces.extend(addon.annotations().get(RELEASE_NAMESPACE).cloned());
        }
    }
    Ok(namespaces)
}

/// The Deployments that can enable a gate, with their arguments.
async fn deployments(
    hub: &Hub,
    gate: &OcmGate,
    namespaces: &BTreeSet<String>,
) -> Result<Option<Vec<(Object, Vec<String>)>>, HubError> {
    let deployments: Api<Deployment> = Api::all(hub.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={}", gate.object));
    let of_ocm = |deployment: &Deployment| {
        let namespace =
            deployment.namespace().filter(|namespace| namespaces.contains(namespace))?;
        let containers = deployment.spec.template.spec.containers.iter();
        let arguments = containers.flat_map(|it| it.command.iter().chain(&it.args)).flatten();
        Some((Object::namespaced(gate.kind, namespace, gate.object), arguments.cloned().collect()))
    };
    let found = list(&deployments, &params).await?;
    Ok(found.map(|found| found.iter().filter_map(of_ocm).collect()))
}

async fn of_manager(hub: &Hub, gate: &OcmGate) -> Result<Option<Enabling>, HubError> {
    let managers = of_kind(hub, ("operator.open-cluster-management.io", "v1", "ClusterManager"));
    let enabled = match get(&managers, gate.object).await? {
        Known::Present(object) => {
            let gates = &object.data["spec"]["registrationConfiguration"]["featureGates"];
            let gates = gates.as_array().into_iter().flatten();
            let enabled = gates.filter(|gate| gate["mode"] == "Enable");
            gate.named(enabled.filter_map(|gate| gate["feature"].as_str()))
        }
        Known::Absent => None,
        Known::Unknown => return Ok(None),
    };
    let object = Object::cluster_scoped(gate.kind, gate.object);
    Ok(Some(enabled.map(|name| (object, name)).into_iter().collect()))
}

fn of_kind(hub: &Hub, gvk: (&str, &str, &str)) -> Api<DynamicObject> {
    Api::all_with(hub.client.clone(), &kind(gvk))
}
