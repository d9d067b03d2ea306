//! `ClusterProfile`: what consumers know about one cluster (`multicluster.x-k8s.io`, SIG Multicluster).
//!
//! KEP-4322 (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory>)
//! defines the profile, KEP-5339 its access providers. The schema is upstream's, limit by limit;
//! [`Flavour`](crate::crds::Flavour) lists the published CRDs. The Rust types are those of v1alpha1 and also read and
//! write v1alpha2: objects of the two versions differ only in `apiVersion`. A status has several writers, so it is read
//! and written as JSON.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::ApiResource;
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode;

/// The name of the CRD.
pub const CRD: &str = "clusterprofiles.multicluster.x-k8s.io";

/// The versions of ClusterProfile that this crate's types read and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProfileVersion {
    /// The storage version, and the only one that cluster-inventory-api v0.1 and Open Cluster Management serve.
    #[default]
    V1alpha1,
    /// The version that cluster-inventory-api serves beside v1alpha1 since v0.2.
    V1alpha2,
}

impl ProfileVersion {
    // In the order of their declaration, which [`ServedVersions`] depends on.
    pub const ALL: [Self; 2] = [Self::V1alpha1, Self::V1alpha2];

    /// The version's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
        }
    }

    /// The latest of the versions that a hub serves, if it serves any.
    #[must_use]
    pub fn latest<'a>(served: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let known = |name| Self::ALL.into_iter().find(|version| version.as_str() == name);
        served.into_iter().filter_map(known).max()
    }

    /// The kind in this version, for clients that learn the version at run time.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let mut resource = ApiResource::erase::<ClusterProfile>(&());
        self.as_str().clone_into(&mut resource.version);
        resource.api_version = format!("{}/{}", resource.group, self.as_str());
        resource
    }
}

/// The versions of ClusterProfile that a hub serves and this project supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedVersions {
    latest: ProfileVersion,
    is_served: [bool; ProfileVersion::ALL.len()],
}

impl ServedVersions {
    /// Parses the names of the served versions; `None` if no supported one is among them.
    #[must_use]
    pub fn read(served: &[&str]) -> Option<Self> {
        let latest = ProfileVersion::latest(served.iter().copied())?;
        let is_served = ProfileVersion::ALL.map(|version| served.contains(&version.as_str()));
        Some(Self { latest, is_served })
    }

    /// The latest version, which is the one to use.
    #[must_use]
    pub fn latest(self) -> ProfileVersion {
        self.latest
    }

    /// Whether the hub serves a version, as far as is known.
    #[must_use]
    pub fn has(self, version: ProfileVersion) -> bool {
        self.is_served[version as usize]
    }
}

impl Default for ServedVersions {
    /// Before the served versions are known: v1alpha1 is used, and every version counts as served.
    fn default() -> Self {
        Self { latest: ProfileVersion::default(), is_served: [true; ProfileVersion::ALL.len()] }
    }
}

/// The cluster that the profile represents, and its manager (KEP-4322).
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ClusterProfile",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileSpec {
    /// The human-readable name of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The manager of the cluster, which owns this object.
    pub cluster_manager: ClusterManager,
}

/// The cluster manager that owns a profile; immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterManager {
    /// The name of the cluster manager.
    pub name: String,
}

/// A ClusterProfile as it is stored, whether or not its spec and status match the schema.
#[derive(Clone, Debug, Default, Resource, Deserialize)]
#[resource(inherit = ClusterProfile)]
pub struct StoredProfile {
    pub metadata: ObjectMeta,
    /// `spec`, null if it is absent.
    #[serde(default)]
    pub spec: Value,
    /// `status` as valid JSON text. A hub has thousands of them, and a parsed tree takes ten times the memory.
    #[serde(default, deserialize_with = "decode::text")]
    pub status: Option<Box<RawValue>>,
}

/// The versions that a cluster runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterVersion {
    /// The version of Kubernetes, such as v1.36.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
}

/// A property of the cluster (KEP-4322).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Property {
    /// The name of the property, unique in the list.
    pub name: String,
    /// The value; its meaning depends on the property.
    pub value: String,
}

/// One way to reach the cluster (KEP-5339): a consumer selects a provider by name and runs its own plugin for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessProvider {
    /// The name of the provider, unique in the list.
    pub name: String,
    /// The cluster's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
}

/// The address of an API server and how to verify it: the cluster of a kubeconfig (client-go, `clientcmd/api/v1`).
// Absent, empty and false are distinct, so that an entry of another provider is written back unchanged.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cluster {
    /// The address of the API server, `https://hostname:port`.
    pub server: String,
    /// The name to verify the server's certificate against, if it is not the host name of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Whether verification of the server's certificate is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_tls_verify: Option<bool>,
    /// The path of a CA file on the consumer's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// The CA certificates (PEM) that sign the server's certificate.
    #[serde(default, deserialize_with = "decode::bytes", skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<ByteString>,
    /// The proxy URL: `http`, `https` or `socks5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// Whether the client requests uncompressed responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_compression: Option<bool>,
    /// Further data for plugins, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<NamedExtension>,
}

/// An extension of a cluster. An exec plugin receives the one named `client.authentication.k8s.io/exec` as its config.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedExtension {
    /// The name of the extension.
    pub name: String,
    /// The content, whose shape the extension defines.
    pub extension: Value,
}

/// An owner reference that makes the profile of this name and uid the controller of another object.
///
/// It does not set `blockOwnerDeletion`: the admission plugin `OwnerReferencesPermissionEnforcement` would require
/// permission to update the finalizers of profiles, and foreground deletion of a profile need not wait for its
/// dependents.
#[must_use]
pub fn owner_reference(version: ProfileVersion, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: version.resource().api_version,
        kind: ClusterProfile::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// The version of ClusterProfile in an owner reference, if it is a supported one.
#[must_use]
pub fn version_of(reference: &OwnerReference) -> Option<ProfileVersion> {
    let (_, name) = reference.api_version.split_once('/')?;
    ProfileVersion::latest([name])
}

/// Whether an owner reference names a ClusterProfile, in any version of the API, as the controller of an object.
#[must_use]
pub fn controls(reference: &OwnerReference) -> bool {
    let group = reference.api_version.split('/').next();
    reference.controller == Some(true)
        && reference.kind == ClusterProfile::kind(&())
        && group == Some(&*ClusterProfile::group(&()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_set_is_not_written() {
        let cluster = Cluster { server: "https://proxy:9092/a".into(), ..Cluster::default() };
        let entry = AccessProvider { name: "ours".into(), cluster: Some(cluster) };
        assert_eq!(
            serde_json::to_value(entry).unwrap(),
            json!({ "name": "ours", "cluster": { "server": "https://proxy:9092/a" } })
        );
        let profile = ClusterProfile::new("a", ClusterProfileSpec::default());
        assert_eq!(
            serde_json::to_value(&profile).unwrap(),
            json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1",
                "kind": "ClusterProfile",
                "metadata": { "name": "a" },
                "spec": { "clusterManager": { "name": "" } },
            })
        );
    }

    #[test]
    fn false_and_empty_come_back_as_they_were() {
        let cluster =
            json!({ "server": "https://a", "disable-compression": false, "proxy-url": "" });
        let read: Cluster = serde_json::from_value(cluster.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), cluster);
    }
}
