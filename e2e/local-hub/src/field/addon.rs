//! What OCM's agents and its addon manager do for the addon of a cluster: the addon manager enables it, the
//! registration agent requests the certificate of the proxy agent, and the work agent applies what cluster-proxy's
//! manager deploys.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::ByteString;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::cluster_proxy::AGENT;
use super::deployments::{restart, running};
use super::{PATIENCE, Site};
use crate::ocm::{Object, namespace};
use crate::{HubError, Pods, try_eventually};

/// The group of the agents' user on the hub.
pub const AGENT_GROUP: &str = "open-cluster-management:cluster-proxy";
/// The agents' user on the hub.
pub const AGENT_USER: &str = "cluster-proxy-agent";
const SIGNER: &str = "open-cluster-management.io/proxy-agent-signer";

/// The addon of a cluster, and the cluster.
pub struct Addon {
    name: String,
    hub: Site,
    cluster: Site,
    pods: Pods,
    /// The namespace of the Pod, once it is deployed.
    namespace: String,
    /// The subject of the last certificate.
    subject: Value,
    /// What is applied on the cluster.
    manifests: Vec<Value>,
    /// The configurations that the addon manager has found for it.
    configurations: Vec<Value>,
}

impl Addon {
    /// The addon of a cluster, whose Pods this runner runs. It is not enabled yet. The hub must have the user
    /// [`AGENT_USER`], in [`AGENT_GROUP`].
    pub async fn of(name: &str, hub: &Path, cluster: &Path, pods: Pods) -> Result<Self, HubError> {
        let (hub, cluster) = (Site::at(hub).await?, Site::at(cluster).await?);
        let name = name.to_owned();
        let (namespace, subject, manifests) = (String::new(), Value::Null, Vec::new());
        let configurations = Vec::new();
        Ok(Self { name, hub, cluster, pods, namespace, subject, manifests, configurations })
    }

    /// The Pods of the cluster.
    #[must_use]
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    fn object(&self) -> Object {
        let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
        Object::new(gvk, "managedclusteraddons", Some(&self.name), "cluster-proxy")
            .field("spec", json!({}))
    }

    /// Refers to an `AddOnDeploymentConfig`, which counts when the addon is enabled.
    pub fn configure(&mut self, namespace: &str, name: &str) {
        self.configurations = vec![json!({
            "group": "addon.open-cluster-management.io", "resource": "addondeploymentconfigs",
            "namespace": namespace, "name": name, "lastObservedGeneration": 1,
            // The manager does not compare the hash.
            "desiredConfig": { "namespace": namespace, "name": name, "specHash": "any" },
        })];
    }

    /// Enables the addon, and returns when its Pod runs on the cluster.
    pub async fn enable(&mut self) -> Result<(), HubError> {
        let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ClusterManagementAddOn");
        let owner = Object::new(gvk, "clustermanagementaddons", None, "cluster-proxy");
        let shown = self.hub.get(&owner).await?;
        let owner = json!({
            "apiVersion": shown["apiVersion"], "kind": "ClusterManagementAddOn", "name": "cluster-proxy",
            "uid": shown["metadata"]["uid"],
        });
        let metadata =
            json!({ "namespace": self.name, "name": "cluster-proxy", "ownerReferences": [owner] });
        namespace(&self.name).ensure(&self.hub.client).await?;
        let addon = self.object().field("metadata", metadata);
        addon
            .condition("Configured", "True", "ConfigurationsConfigured", "")
            .status("configReferences", json!(self.configurations))
            .create(&self.hub.client)
            .await?;
        self.subject = Value::Null;
        self.deploy(|_| true).await
    }

    /// Waits until the manager deploys manifests that are wanted and has announced a subject other than the last, and
    /// applies both; returns when the Pod runs.
    async fn deploy(&mut self, wanted: impl Fn(&[Value]) -> bool) -> Result<(), HubError> {
        let manifests = self.manifests(wanted).await?;
        let (agents, subject) = self.registration().await?;
        namespace(&agents).ensure(&self.cluster.client).await?;
        let certificate = self.certificate(&agents, &subject).await?;
        self.cluster.kubectl("apply", &[certificate, self.hub_kubeconfig(&agents)?]).await?;
        self.cluster.kubectl("apply", &manifests).await?;
        self.subject = subject;
        self.manifests = manifests;
        running(&self.cluster.client, &agents, AGENT, &self.pods).await?;
        self.namespace = agents;
        Ok(())
    }

    /// Makes the manager deploy again, and replaces the Pod once what is deployed has this authority.
    pub async fn renew(&mut self, authority: &str) -> Result<(), HubError> {
        let annotations =
            json!({ "metadata": { "annotations": { "example.com/changed": unique() } } });
        let addon = self.object();
        addon
            .api(&self.hub.client)
            .patch(addon.name(), &PatchParams::default(), &Patch::Merge(annotations))
            .await
            .map_err(HubError::api(format!("annotate {addon}")))?;
        let secrets = [
            ("cluster-proxy-ca", "ca.crt"),
            ("cluster-proxy-service-proxy-server-certificates", "tls.crt"),
        ];
        let has_it = |manifests: &[Value], (name, key): (&str, &str)| {
            let secret = manifests
                .iter()
                .find(|it| it["kind"] == "Secret" && it["metadata"]["name"] == name);
            let data = secret.map(|secret| secret["data"][key].clone()).unwrap_or_default();
            let data: ByteString = serde_json::from_value(data).unwrap_or_default();
            String::from_utf8_lossy(&data.0).contains(authority)
        };
        self.deploy(|manifests| secrets.iter().all(|secret| has_it(manifests, *secret))).await?;
        self.restart().await
    }

    /// Replaces the Pod on the cluster.
    pub async fn restart(&self) -> Result<(), HubError> {
        restart(&self.cluster.client, &self.namespace, AGENT, &self.pods).await
    }

    /// Removes the addon, and what it has deployed.
    pub async fn remove(&mut self) -> Result<(), HubError> {
        let addon = self.object();
        let deleted =
            addon.api(&self.hub.client).delete(addon.name(), &DeleteParams::background()).await;
        deleted.map_err(HubError::api(format!("delete {addon}")))?;
        try_eventually(&format!("{addon} is gone"), PATIENCE, async || {
            self.hub.get(&addon).await.map(|shown| shown.is_null())
        })
        .await?;
        let works = self.works().api(&self.hub.client);
        try_eventually("nothing is deployed any more", PATIENCE, async || {
            works.list(&ListParams::default()).await.map(|list| list.items.is_empty())
        })
        .await?;
        let of_namespace = |manifest: &Value| manifest["kind"] == "Namespace";
        let manifests: Vec<_> =
            self.manifests.drain(..).filter(|manifest| !of_namespace(manifest)).collect();
        self.cluster.kubectl("delete", &manifests).await
    }

    fn works(&self) -> Object {
        let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
        Object::new(gvk, "manifestworks", Some(&self.name), "")
    }

    /// The manifests that the manager deploys, with a Deployment, once they are wanted.
    async fn manifests(&self, wanted: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>, HubError> {
        let works = self.works().api(&self.hub.client);
        let manifests = try_eventually("the manager deploys", PATIENCE, async || {
            let list =
                works.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let manifests = |work: &DynamicObject| {
                work.data["spec"]["workload"]["manifests"].as_array().cloned().unwrap_or_default()
            };
            let manifests: Vec<Value> = list.iter().flat_map(manifests).collect();
            let deploys = manifests.iter().any(|manifest| manifest["kind"] == "Deployment");
            if deploys && wanted(&manifests) {
                return Ok(Some(manifests));
            }
            let addon = self.hub.get(&self.object()).await.unwrap_or_default();
            Err(format!("{} manifests; {}", manifests.len(), addon["status"]))
        })
        .await?;
        Ok(manifests)
    }

    /// The namespace of the agent on the cluster, and the subject of its certificate, once it is another than before.
    async fn registration(&self) -> Result<(String, Value), HubError> {
        let addon = self.object();
        let announced = "the manager has announced the subject of certificates";
        let registration = try_eventually(announced, PATIENCE, async || {
            let status = self.hub.get(&addon).await.unwrap_or_default()["status"].clone();
            let registrations = status["registrations"].as_array().cloned().unwrap_or_default();
            let ours =
                registrations.iter().find(|registration| registration["signerName"] == SIGNER);
            let subject =
                ours.map(|ours| ours["subject"].clone()).filter(|subject| *subject != self.subject);
            match (status["namespace"].as_str(), subject) {
                (Some(namespace), Some(subject)) => Ok(Some((namespace.to_owned(), subject))),
                _ => Err(status.to_string()),
            }
        })
        .await?;
        Ok(registration)
    }

    /// The Secret with a certificate for the proxy agent, which the manager has approved and signed.
    async fn certificate(&self, namespace: &str, subject: &Value) -> Result<Value, HubError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let texts = |field: &str| {
            let list = subject[field].as_array().cloned().unwrap_or_default();
            list.into_iter().filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        params
            .distinguished_name
            .push(DnType::CommonName, subject["user"].as_str().unwrap_or_default());
        for group in texts("groups") {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        for unit in texts("organizationUnit") {
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        let request = params.serialize_request(&key)?.pem()?;
        let name = format!("addon-{}-cluster-proxy-{}", self.name, unique());
        let gvk = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
        let request = Object::new(gvk, "certificatesigningrequests", None, &name)
            .label("open-cluster-management.io/cluster-name", &self.name)
            .label("open-cluster-management.io/addon-name", "cluster-proxy")
            .field(
                "spec",
                json!({
                    "request": ByteString(request.into_bytes()),
                    "signerName": SIGNER,
                    "usages": ["digital signature", "key encipherment", "client auth"],
                }),
            );
        request.create(&self.hub.client).await?;
        let certificate =
            try_eventually("the manager has signed a certificate", PATIENCE, async || {
                let status = self.hub.get(&request).await.unwrap_or_default()["status"].clone();
                let certificate = status["certificate"].clone();
                if certificate.is_string() {
                    Ok(Some(certificate))
                } else {
                    Err(status.to_string())
                }
            })
            .await?;
        let key = ByteString(key.serialize_pem().into_bytes());
        let name = format!("cluster-proxy-{}-client-cert", SIGNER.replace('/', "-"));
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": namespace, "name": name },
            "data": { "tls.crt": certificate, "tls.key": key },
        }))
    }

    /// The Secret with the kubeconfig for the hub.
    fn hub_kubeconfig(&self, namespace: &str) -> Result<Value, HubError> {
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": namespace, "name": "cluster-proxy-hub-kubeconfig" },
            "stringData": { "kubeconfig": self.hub.kubeconfig_for_pods(AGENT_USER)? },
        }))
    }
}

/// A text that is another one each time.
fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed).to_string()
}
