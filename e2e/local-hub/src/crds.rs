//! The CRDs of a hub, served when the call returns.
//!
//! If `HUB_ADDONS_UPSTREAM_CRDS` is the directory of upstream's manifests (`hack/upstream-crds.sh` creates it, and
//! `hack/test.sh` sets the variable), these are used, so that tests use the real schemas. Otherwise those of `hub-api`
//! are used, which its own tests compare with upstream's.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::try_join_all;
pub use hub_api::crds::Flavour;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::HubError;
use crate::eventually::try_eventually;

/// The variable with the directory of upstream's manifests.
const VARIABLE: &str = "HUB_ADDONS_UPSTREAM_CRDS";

/// In the directory of upstream's manifests: Open Cluster Management's kinds, and ClusterProfile as two projects ship
/// it, one of them in two versions.
const OCM: &str = "ocm";
const MAP: &str = "cluster-inventory-api";
const ATOMIC: &str = "ocm-clusterprofile";
const V1ALPHA2: &str = "cluster-inventory-api-v0.2";

const CLUSTER_PROFILE: &str = "clusterprofiles.multicluster.x-k8s.io";

/// This project's own kind.
const CLUSTER_ACCESS: &str = "clusteraccesses.access.open-cluster-management.io";

const PATIENCE: Duration = Duration::from_mins(2);

/// Which CRDs a hub starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CrdSet {
    /// All that [`all`] returns.
    #[default]
    All,
    /// None: a managed cluster, or a hub before Open Cluster Management is installed.
    None,
    /// All except those with these names, such as `managedclusters.cluster.open-cluster-management.io`.
    Without(Vec<String>),
}

impl CrdSet {
    pub(crate) fn choose(
        &self,
        flavour: Flavour,
    ) -> Result<Vec<CustomResourceDefinition>, HubError> {
        match self {
            Self::All => all(flavour),
            Self::None => Ok(Vec::new()),
            Self::Without(names) => {
                let mut crds = all(flavour)?;
                for name in names {
                    // A misspelt name would leave the CRD in, and the test would check nothing.
                    find(&crds, name)?;
                }
                crds.retain(|crd| !names.iter().any(|left_out| left_out == name_of(crd)));
                Ok(crds)
            }
        }
    }
}

/// The CRDs of a hub: Open Cluster Management's, and ClusterProfile in the given flavour.
pub fn all(flavour: Flavour) -> Result<Vec<CustomResourceDefinition>, HubError> {
    let mut crds = serde_saphyr::from_multiple(&hub_api::crds::all(flavour))
        .map_err(|error| HubError::Failed(error.to_string()))?;
    // If the directory is configured but does not exist, there is no fallback.
    if let Some(directory) = std::env::var_os(VARIABLE) {
        replace_by_upstream(&mut crds, Path::new(&directory), flavour)?;
    }
    Ok(crds)
}

/// The CRD with this name among [`all`].
pub fn named(name: &str, flavour: Flavour) -> Result<CustomResourceDefinition, HubError> {
    find(&all(flavour)?, name).cloned()
}

fn find<'a>(
    crds: &'a [CustomResourceDefinition],
    name: &str,
) -> Result<&'a CustomResourceDefinition, HubError> {
    crds.iter().find(|crd| name_of(crd) == name).ok_or_else(|| {
        let known: Vec<_> = crds.iter().map(name_of).collect();
        HubError::Failed(format!("unknown CRD {name:?}; known are {}", known.join(", ")))
    })
}

fn name_of(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().unwrap_or_default()
}

/// Replaces CRDs by those of the same names in the directory of upstream's manifests.
fn replace_by_upstream(
    crds: &mut [CustomResourceDefinition],
    directory: &Path,
    flavour: Flavour,
) -> Result<(), HubError> {
    let profiles = directory.join(match flavour {
        Flavour::Map => MAP,
        Flavour::Atomic => ATOMIC,
        Flavour::V1alpha2 => V1ALPHA2,
    });
    // No release has v1alpha2 yet.
    let has_profiles = flavour != Flavour::V1alpha2 || profiles.exists();
    let mut found = read(&directory.join(OCM))?;
    if has_profiles {
        found.extend(read(&profiles)?);
    }
    for crd in crds {
        let name = name_of(crd);
        if let Some(upstream) = found.remove(name) {
            *crd = upstream;
        } else if name != CLUSTER_ACCESS && (has_profiles || name != CLUSTER_PROFILE) {
            let directory = directory.display();
            return Err(HubError::Failed(format!("CRD {name:?} is not in {directory}")));
        }
    }
    Ok(())
}

/// The CRDs in a directory's files, one per file, by name.
pub(crate) fn read(
    directory: &Path,
) -> Result<BTreeMap<String, CustomResourceDefinition>, HubError> {
    let failed = |source| HubError::io(format!("read {}", directory.display()), source);
    let mut crds = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        crds.extend(named_crd(&std::fs::read_to_string(&path).map_err(failed)?));
    }
    Ok(crds)
}

/// The CRD in a file, if it is one, and its name.
fn named_crd(yaml: &str) -> Option<(String, CustomResourceDefinition)> {
    let mut crd = parse(yaml)?;
    // controller-gen used to write an empty status, which is not valid.
    crd.status = None;
    Some((name_of(&crd).to_owned(), crd))
}

/// A CRD; `None` if it is another object. Of one that is a template, which OCM's operator fills in with a webhook
/// that converts its versions, only the first version.
fn parse(yaml: &str) -> Option<CustomResourceDefinition> {
    if !yaml.contains("{{") {
        return serde_saphyr::from_str(yaml).ok();
    }
    let filled_in = yaml.replace("{{", "'{{").replace("}}", "}}'");
    let mut crd: Value = serde_saphyr::from_str(&filled_in).ok()?;
    crd["spec"]["conversion"] = Value::Null;
    let mut crd: CustomResourceDefinition = serde_json::from_value(crd).ok()?;
    crd.spec.versions.truncate(1);
    crd.spec.versions.iter_mut().for_each(|version| version.storage = true);
    Some(crd)
}

/// Installs CRDs and waits until their resources are served to every kind of client.
pub(crate) async fn install(
    harness: &Client,
    crds: &[CustomResourceDefinition],
) -> Result<(), HubError> {
    try_join_all(crds.iter().map(async |crd| {
        let name = name_of(crd);
        Api::all(harness.clone())
            .create(&PostParams::default(), crd)
            .await
            .map_err(HubError::api(format!("create CustomResourceDefinition {name}")))?;
        Ok::<_, HubError>(())
    }))
    .await?;
    wait_until_served(harness, crds).await
}

/// Waits until the resources of CRDs that exist are served to every kind of client.
pub(crate) async fn wait_until_served(
    harness: &Client,
    crds: &[CustomResourceDefinition],
) -> Result<(), HubError> {
    try_join_all(crds.iter().map(async |crd| {
        let what = format!("{} is served", name_of(crd));
        try_eventually(&what, PATIENCE, async || is_served(harness, crd).await).await
    }))
    .await?;
    Ok(())
}

/// Replaces the spec of an existing CRD, and waits until each version is served or not accordingly.
pub(crate) async fn update(
    harness: &Client,
    crd: &CustomResourceDefinition,
) -> Result<(), HubError> {
    let name = name_of(crd);
    let crds: Api<CustomResourceDefinition> = Api::all(harness.clone());
    let doing = || format!("update CustomResourceDefinition {name}");
    let before = crds.get(name).await.map_err(HubError::api(doing()))?;
    let patch = Patch::Merge(json!({ "spec": crd.spec }));
    crds.patch(name, &PatchParams::default(), &patch).await.map_err(HubError::api(doing()))?;
    try_eventually(&format!("{name} is served as it says"), PATIENCE, async || {
        for version in served_versions(&before) {
            let is_served = served_versions(crd).any(|served| served == version);
            if !is_served && !is_gone(harness, crd, version).await? {
                return Ok(false);
            }
        }
        is_served(harness, crd).await
    })
    .await?;
    Ok(())
}

async fn is_gone(
    client: &Client,
    crd: &CustomResourceDefinition,
    version: &str,
) -> Result<bool, kube::Error> {
    match list(client, crd, version).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    }
}

/// Established is a condition of the CRD. Discovery (kubectl, the garbage collector) and the request handler follow it
/// with separate delays.
async fn is_served(client: &Client, crd: &CustomResourceDefinition) -> Result<bool, kube::Error> {
    let current: CustomResourceDefinition = Api::all(client.clone()).get(name_of(crd)).await?;
    let conditions = current.status.and_then(|status| status.conditions).unwrap_or_default();
    if !conditions
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
    {
        return Ok(false);
    }
    for version in served_versions(crd) {
        let known =
            client.list_api_group_resources(&format!("{}/{version}", crd.spec.group)).await?;
        if !known.resources.iter().any(|resource| resource.name == crd.spec.names.plural) {
            return Ok(false);
        }
        list(client, crd, version).await?;
    }
    Ok(true)
}

fn served_versions(crd: &CustomResourceDefinition) -> impl Iterator<Item = &str> {
    crd.spec.versions.iter().filter(|version| version.served).map(|version| version.name.as_str())
}

async fn list(
    client: &Client,
    crd: &CustomResourceDefinition,
    version: &str,
) -> Result<(), kube::Error> {
    let path = format!("/apis/{}/{version}/{}?limit=1", crd.spec.group, crd.spec.names.plural);
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}
