//! The kinds that a server knows: some built-in kinds of Kubernetes, and those of the CRDs that it was given.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema::Schema;

/// A kind, as an API server serves it.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The `kind` of its objects.
    pub kind: String,
    /// The plural of the resource, as paths have it.
    pub plural: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The served versions, by name.
    pub versions: BTreeMap<String, Version>,
    /// The versions that are not served.
    pub(super) unserved: BTreeMap<String, Version>,
    /// Whether a CRD defines it.
    pub custom: bool,
    /// Whether the CRD exists. Built-in kinds are always served.
    pub serving: Serving,
    /// The CRD without its schemas.
    pub(super) definition: Value,
    /// How often the CRD has changed: each change ends the watches of the kind.
    pub(super) revision: u64,
}

/// The state of a CRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// The kind is served.
    Served,
    /// The CRD is being deleted: its objects can be read and deleted, and none can be created.
    Terminating,
    /// The CRD does not exist.
    Missing,
}

/// A version of a kind.
#[derive(Debug, Clone, Default)]
pub struct Version {
    /// Whether the status is a subresource.
    pub status: bool,
    /// The schema of the CRD; none for built-in kinds.
    pub schema: Option<Schema>,
}

impl Kind {
    fn builtin(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
            versions: [(version.to_owned(), Version::default())].into(),
            unserved: BTreeMap::new(),
            custom: false,
            serving: Serving::Served,
            definition: Value::Null,
            revision: 0,
        }
    }

    /// The built-in kinds that the controllers or their environment use.
    pub(crate) fn builtins() -> Vec<Self> {
        vec![
            Self::builtin("", "v1", "Namespace", "namespaces", false),
            Self::builtin("", "v1", "Secret", "secrets", true),
            Self::builtin("", "v1", "ConfigMap", "configmaps", true),
            Self::builtin(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
                false,
            ),
            Self::builtin("events.k8s.io", "v1", "Event", "events", true),
            Self::builtin("coordination.k8s.io", "v1", "Lease", "leases", true),
            Self::builtin("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
            Self::builtin("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true),
            Self::builtin("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
        ]
    }

    /// The kind that a `CustomResourceDefinition` defines; `None` if the object is not a valid one.
    pub(crate) fn from_crd(crd: &Value) -> Option<Self> {
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let versions = |served: bool| {
            let versions = spec["versions"].as_array().into_iter().flatten();
            versions.filter(move |version| (version["served"] == true) == served).filter_map(
                |version| {
                    let schema = &version["schema"]["openAPIV3Schema"];
                    let status = version["subresources"]["status"].is_object();
                    Some((
                        version["name"].as_str()?.to_owned(),
                        Version { status, schema: Schema::read(schema) },
                    ))
                },
            )
        };
        let mut definition = crd.clone();
        for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
            version.as_object_mut()?.remove("schema");
        }
        Some(Self {
            group: text(&spec["group"])?,
            kind: text(&spec["names"]["kind"])?,
            plural: text(&spec["names"]["plural"])?,
            namespaced: spec["scope"] == "Namespaced",
            versions: versions(true).collect(),
            unserved: versions(false).collect(),
            custom: true,
            serving: Serving::Served,
            definition,
            revision: 0,
        })
    }

    /// The `apiVersion` of the objects.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The `apiVersion` of the objects in the first version that is served.
    pub(crate) fn first_api_version(&self) -> String {
        let first = self.versions.keys().next();
        first.map_or(String::new(), |version| self.api_version(version))
    }

    /// The resource as error messages name it: `secrets`, `clusterprofiles.multicluster.x-k8s.io`.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}
