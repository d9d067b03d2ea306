//! A stand-in for Open Cluster Management on a hub: creates its objects, and writes the statuses of its controllers.
//!
//! Objects are JSON here, not the types of `hub-api`: tests that write with the types under test would not notice their
//! mistakes.

mod credentials;

use std::fmt::Display;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

pub use self::credentials::{
    MADE_UP_CA, SYNC_LABEL, SYNC_NAMESPACES_ANNOTATION, ServiceAccountToken, TOKEN_LABEL,
    create_tokens, managed_service_account, token_secret, unsigned_token,
};
use crate::HubError;
use crate::eventually::try_eventually;

/// The label of a cluster with its exclusive set.
pub const SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// The variable that says that OCM's own registration controller runs on each hub, and writes the status of bindings.
pub const REGISTRATION: &str = "HUB_ADDONS_REGISTRATION";

/// Concurrent requests when a fleet is created. More would only wait in the API server.
const PARALLEL: usize = 32;

/// The transition time of conditions. It is fixed, so that the same fixture is always the same object.
const CHANGED: &str = "2026-01-01T00:00:00Z";

const PATIENCE: Duration = Duration::from_mins(2);

/// A desired object on the hub, including its status.
#[derive(Clone, Debug)]
pub struct Object {
    resource: ApiResource,
    /// Without its status.
    body: Value,
    status: Option<Value>,
}

impl Object {
    /// An object of any kind, in a namespace if its kind has them. `plural` is the resource's name.
    #[must_use]
    pub fn new(gvk: (&str, &str, &str), plural: &str, namespace: Option<&str>, name: &str) -> Self {
        let (group, version, kind) = gvk;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let mut metadata = json!({ "name": name });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        let body =
            json!({ "apiVersion": resource.api_version, "kind": kind, "metadata": metadata });
        Self { resource, body, status: None }
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.body["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The object's namespace.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.body["metadata"]["namespace"].as_str()
    }

    /// Objects of this kind, in this one's namespace.
    #[must_use]
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][key] = json!(value);
        self
    }

    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// With a field beside `metadata`, such as `spec` or `data`.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.body[name] = value;
        self
    }

    /// With a field of the status.
    #[must_use]
    pub fn status(mut self, name: &str, value: Value) -> Self {
        self.status.get_or_insert_with(|| json!({}))[name] = value;
        self
    }

    /// With a condition, in place of the one of the same type.
    #[must_use]
    pub fn condition(self, type_: &str, status: &str, reason: &str, message: &str) -> Self {
        let conditions = self.status.as_ref().and_then(|status| status["conditions"].as_array());
        let mut conditions = conditions.cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != type_);
        conditions.push(json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": CHANGED,
        }));
        self.status("conditions", Value::from(conditions))
    }

    /// Creates the object, then writes its status.
    pub async fn create(&self, client: &Client) -> Result<(), HubError> {
        let doing = || format!("create {self}");
        let object = self.parse()?;
        self.api(client)
            .create(&PostParams::default(), &object)
            .await
            .map_err(HubError::api(doing()))?;
        self.write_status(client).await
    }

    /// Creates the object, unless one with its name exists.
    pub(crate) async fn ensure(&self, client: &Client) -> Result<(), HubError> {
        match self.create(client).await {
            Err(HubError::Api { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 409) => {
                Ok(())
            }
            created => created,
        }
    }

    /// Updates an existing object to this one, including its status. Finalizers and owners are preserved.
    pub async fn update(&self, client: &Client) -> Result<(), HubError> {
        let api = self.api(client);
        let wanted = self.parse()?;
        // Retries after a conflict.
        try_eventually(&format!("{self} is updated"), PATIENCE, async || {
            let current = api.get(self.name()).await?;
            let mut object = wanted.clone();
            object.metadata.resource_version = current.metadata.resource_version;
            object.metadata.finalizers = current.metadata.finalizers;
            object.metadata.owner_references = current.metadata.owner_references;
            api.replace(self.name(), &PostParams::default(), &object).await.map(drop)
        })
        .await?;
        self.write_status(client).await
    }

    /// Creates the object, or replaces it completely, including its owners.
    pub(crate) async fn create_or_replace(&self, client: &Client) -> Result<(), HubError> {
        let api = self.api(client);
        let wanted = self.parse()?;
        // Retries after a conflict.
        try_eventually(&format!("{self} is written"), PATIENCE, async || {
            let Some(current) = api.get_opt(self.name()).await? else {
                return api.create(&PostParams::default(), &wanted).await.map(drop);
            };
            let mut object = wanted.clone();
            object.metadata.resource_version = current.metadata.resource_version;
            api.replace(self.name(), &PostParams::default(), &object).await.map(drop)
        })
        .await?;
        self.write_status(client).await
    }

    async fn write_status(&self, client: &Client) -> Result<(), HubError> {
        let Some(status) = &self.status else { return Ok(()) };
        self.api(client)
            .patch_status(
                self.name(),
                &PatchParams::default(),
                &Patch::Merge(json!({ "status": status })),
            )
            .await
            .map_err(HubError::api(format!("write the status of {self}")))?;
        Ok(())
    }

    /// The object without its status, as a client sends it.
    pub fn parse(&self) -> Result<DynamicObject, HubError> {
        serde_json::from_value(self.body.clone())
            .map_err(|error| HubError::api(format!("write {self}"))(kube::Error::SerdeError(error)))
    }
}

impl Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.resource.kind)?;
        if let Some(namespace) = self.namespace() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name())
    }
}

/// A cluster that is accepted, joined and available by default.
#[derive(Clone, Debug)]
pub struct ManagedCluster(Object);

impl ManagedCluster {
    /// A cluster in no set, with no claims.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let gvk = ("cluster.open-cluster-management.io", "v1", "ManagedCluster");
        let object = Object::new(gvk, "managedclusters", None, name)
            .field("spec", json!({ "hubAcceptsClient": true, "leaseDurationSeconds": 60 }));
        Self(object)
            .version("v1.36.3")
            .condition("HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted")
            .condition("ManagedClusterJoined", "True", "ManagedClusterJoined")
            .condition("ManagedClusterConditionAvailable", "True", "ManagedClusterAvailable")
    }

    /// In an exclusive set.
    #[must_use]
    pub fn in_set(self, set: &str) -> Self {
        self.label(SET_LABEL, set)
    }

    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        Self(self.0.label(key, value))
    }

    /// With the Kubernetes version that the agent reports.
    #[must_use]
    pub fn version(self, kubernetes: &str) -> Self {
        Self(self.0.status("version", json!({ "kubernetes": kubernetes })))
    }

    /// Adds a claim. Names may repeat: the API allows this.
    #[must_use]
    pub fn claim(self, name: &str, value: &str) -> Self {
        let claims = self.0.status.as_ref().and_then(|status| status["clusterClaims"].as_array());
        let mut claims = claims.cloned().unwrap_or_default();
        claims.push(json!({ "name": name, "value": value }));
        Self(self.0.status("clusterClaims", Value::from(claims)))
    }

    /// With a condition, in place of the one of the same type.
    #[must_use]
    pub fn condition(self, type_: &str, status: &str, reason: &str) -> Self {
        Self(self.0.condition(type_, status, reason, ""))
    }

    /// Creates the cluster, then writes its status.
    pub async fn create(&self, client: &Client) -> Result<(), HubError> {
        self.0.create(client).await
    }

    /// Updates an existing cluster to this one.
    pub async fn update(&self, client: &Client) -> Result<(), HubError> {
        self.0.update(client).await
    }
}

impl From<ManagedCluster> for Object {
    fn from(cluster: ManagedCluster) -> Self {
        cluster.0
    }
}

#[must_use]
pub fn namespace(name: &str) -> Object {
    Object::new(("", "v1", "Namespace"), "namespaces", None, name)
}

/// A ManagedClusterSet of the clusters that name it in [`SET_LABEL`].
#[must_use]
pub fn cluster_set(name: &str) -> Object {
    set(name, &json!({ "selectorType": "ExclusiveClusterSetLabel" }))
}

/// A ManagedClusterSet of the clusters that a label selector selects, such as `{"matchLabels": {"region": "eu"}}`.
#[must_use]
pub fn selecting_cluster_set(name: &str, selector: &Value) -> Object {
    set(name, &json!({ "selectorType": "LabelSelector", "labelSelector": selector }))
}

fn set(name: &str, selector: &Value) -> Object {
    let gvk = ("cluster.open-cluster-management.io", "v1beta2", "ManagedClusterSet");
    Object::new(gvk, "managedclustersets", None, name)
        .field("spec", json!({ "clusterSelector": selector }))
}

/// A ManagedClusterSetBinding without status.
#[must_use]
pub fn binding(namespace: &str, set: &str) -> Object {
    let gvk = ("cluster.open-cluster-management.io", "v1beta2", "ManagedClusterSetBinding");
    Object::new(gvk, "managedclustersetbindings", Some(namespace), set)
        .field("spec", json!({ "clusterSet": set }))
}

/// A ManagedClusterSetBinding with the status of the registration controller if the set exists. Without status if
/// [`REGISTRATION`] is set.
#[must_use]
pub fn bound(namespace: &str, set: &str) -> Object {
    let binding = binding(namespace, set);
    if std::env::var_os(REGISTRATION).is_some() {
        return binding;
    }
    binding.condition("Bound", "True", "ClusterSetBound", "")
}

/// A ClusterAccess.
#[must_use]
pub fn cluster_access(namespace: &str, name: &str, spec: &Value) -> Object {
    let gvk = ("access.open-cluster-management.io", "v1alpha1", "ClusterAccess");
    Object::new(gvk, "clusteraccesses", Some(namespace), name).field("spec", spec.clone())
}

/// A ManagedClusterSetBinding with the status of the registration controller if the set does not exist.
#[must_use]
pub fn unbound(namespace: &str, set: &str) -> Object {
    binding(namespace, set).condition("Bound", "False", "ClusterSetNotFound", "")
}

/// Creates objects with their statuses, concurrently and in no order.
pub async fn create_all<O: Into<Object>>(
    client: &Client,
    objects: impl IntoIterator<Item = O>,
) -> Result<(), HubError> {
    futures::stream::iter(objects.into_iter().map(Into::into))
        .map(async |object: Object| object.create(client).await)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

/// Many clusters in one set, which is bound in several namespaces.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The set's name.
    pub set: String,
    /// The clusters' names.
    pub clusters: Vec<String>,
    /// The namespaces in which the set is bound.
    pub namespaces: Vec<String>,
}

impl Fleet {
    /// Names for a fleet of this size: `cluster-0000` and so on in set `fleet`, bound in `fleet-00` and so on.
    #[must_use]
    pub fn of(clusters: usize, namespaces: usize) -> Self {
        Self {
            set: "fleet".to_owned(),
            clusters: (0..clusters).map(|number| format!("cluster-{number:04}")).collect(),
            namespaces: (0..namespaces).map(|number| format!("fleet-{number:02}")).collect(),
        }
    }

    /// Creates everything, bindings last.
    pub async fn create(&self, client: &Client) -> Result<(), HubError> {
        self.create_clusters(client).await?;
        self.bind(client).await
    }

    /// Creates everything but the bindings.
    pub async fn create_clusters(&self, client: &Client) -> Result<(), HubError> {
        create_all(client, self.namespaces.iter().map(|name| namespace(name))).await?;
        create_all(client, [cluster_set(&self.set)]).await?;
        create_all(client, self.clusters.iter().map(|name| self.cluster(name))).await
    }

    /// Creates the bindings.
    pub async fn bind(&self, client: &Client) -> Result<(), HubError> {
        create_all(client, self.namespaces.iter().map(|namespace| bound(namespace, &self.set)))
            .await
    }

    /// One of its clusters, with the claims that OCM's agent reports by default.
    #[must_use]
    pub fn cluster(&self, name: &str) -> ManagedCluster {
        ManagedCluster::named(name)
            .in_set(&self.set)
            .claim("id.k8s.io", name)
            .claim("kubeversion.open-cluster-management.io", "v1.36.3")
            .claim("platform.open-cluster-management.io", "Other")
            .claim("product.open-cluster-management.io", "Other")
    }
}
