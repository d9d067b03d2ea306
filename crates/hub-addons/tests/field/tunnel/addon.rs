//! What OCM's agents and its addon manager do for the addon of a cluster: the addon manager enables it, the
//! registration agent requests the certificate of the proxy agent, and the work agent applies what cluster-proxy's
//! manager deploys.

use std::net::SocketAddr;

use k8s_openapi::ByteString;
use kube::api::ListParams;
use local_hub::ocm::Object;
use local_hub::{LocalHub, Pods, eventually};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::cluster_proxy::{AGENT, HUB, restart, running};
use crate::support::world::{delete, ensure_namespace, get, gone, merge};
use crate::support::{Hub, SOON, proxy};

/// The group of the agents' user on the hub.
pub const GROUP: &str = "open-cluster-management:cluster-proxy";
/// The agents' user on the hub.
pub const USER: &str = "cluster-proxy-agent";
const SIGNER: &str = "open-cluster-management.io/proxy-agent-signer";

/// The addon of a cluster, and the cluster.
pub struct Addon<'hub> {
    name: &'static str,
    hub: &'hub Hub,
    cluster: &'hub LocalHub,
    pods: Pods,
    /// The subject of the last certificate.
    subject: Value,
    /// What is applied on the cluster.
    manifests: Vec<Value>,
}

impl<'hub> Addon<'hub> {
    /// The addon of a cluster, whose Pods this runner runs. It is not enabled yet.
    pub fn of(name: &'static str, hub: &'hub Hub, cluster: &'hub LocalHub, pods: Pods) -> Self {
        Self { name, hub, cluster, pods, subject: Value::Null, manifests: Vec::new() }
    }

    /// Enables the addon, and returns when its Pod runs on the cluster.
    pub async fn enable(&mut self) {
        let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ClusterManagementAddOn");
        let owner = Object::new(gvk, "clustermanagementaddons", None, "cluster-proxy");
        let shown = get(&self.hub.ocm, &owner).await.unwrap();
        let owner = json!({
            "apiVersion": shown["apiVersion"], "kind": "ClusterManagementAddOn", "name": "cluster-proxy",
            "uid": shown["metadata"]["uid"],
        });
        let metadata = json!({ "namespace": self.name, "name": "cluster-proxy", "ownerReferences": [owner] });
        let addon = proxy::addon(self.name).field("metadata", metadata);
        addon
            .condition("Configured", "True", "ConfigurationsConfigured", "")
            .create(&self.hub.ocm)
            .await
            .unwrap();
        self.subject = Value::Null;
        self.deploy(|_| true).await;
    }

    /// Waits until the manager deploys manifests that are wanted and has announced a subject other than the last, and
    /// applies both; returns the namespace of the Pod when it runs.
    async fn deploy(&mut self, wanted: impl Fn(&[Value]) -> bool) -> String {
        let manifests = self.manifests(wanted).await;
        let (namespace, subject) = self.registration().await;
        ensure_namespace(&self.cluster.client_as("ocm").await.unwrap(), &namespace).await;
        let certificate = self.certificate(&namespace, &subject).await;
        self.apply([certificate, self.hub_kubeconfig(&namespace)].to_vec()).await;
        self.apply(manifests.clone()).await;
        self.subject = subject;
        self.manifests = manifests;
        running(&self.cluster.client_as("ocm").await.unwrap(), &namespace, AGENT, &self.pods).await;
        namespace
    }

    /// Makes the manager deploy again, and replaces the Pod once what is deployed has this authority.
    pub async fn renew(&mut self, authority: &str) {
        let annotations = json!({ "metadata": { "annotations": { "example.com/changed": unique() } } });
        merge(&self.hub.ocm, &proxy::addon(self.name), &annotations).await;
        let secrets =
            [("cluster-proxy-ca", "ca.crt"), ("cluster-proxy-service-proxy-server-certificates", "tls.crt")];
        let has_it = |manifests: &[Value], (name, key): (&str, &str)| {
            let secret = manifests.iter().find(|it| it["kind"] == "Secret" && it["metadata"]["name"] == name);
            let data = secret.map(|secret| secret["data"][key].clone()).unwrap_or_default();
            let data: ByteString = serde_json::from_value(data).unwrap_or_default();
            String::from_utf8(data.0).unwrap().contains(authority)
        };
        let namespace =
            self.deploy(|manifests| secrets.iter().all(|secret| has_it(manifests, *secret))).await;
        restart(&self.cluster.client_as("ocm").await.unwrap(), &namespace, AGENT, &self.pods).await;
    }

    /// Removes the addon, and what it has deployed.
    pub async fn remove(&mut self) {
        let addon = proxy::addon(self.name);
        delete(&self.hub.ocm, &addon).await;
        gone(&self.hub.ocm, &addon).await;
        let works = Self::works(self.name).api(&self.hub.ocm);
        eventually("nothing is deployed any more", SOON, async || {
            works.list(&ListParams::default()).await.is_ok_and(|list| list.items.is_empty())
        })
        .await;
        let of_namespace = |manifest: &Value| manifest["kind"] == "Namespace";
        let manifests = self.manifests.drain(..).filter(|manifest| !of_namespace(manifest)).collect();
        self.kubectl("delete", manifests).await;
    }

    fn works(cluster: &str) -> Object {
        let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
        Object::new(gvk, "manifestworks", Some(cluster), "")
    }

    /// The manifests that the manager deploys, with a Deployment, once they are wanted.
    async fn manifests(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let works = Self::works(self.name).api(&self.hub.ocm);
        let addon = proxy::addon(self.name);
        eventually("the manager deploys", SOON, async || {
            let list = works.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let manifests = |work: &kube::api::DynamicObject| {
                work.data["spec"]["workload"]["manifests"].as_array().cloned().unwrap_or_default()
            };
            let manifests: Vec<Value> = list.iter().flat_map(manifests).collect();
            let deploys = manifests.iter().any(|manifest| manifest["kind"] == "Deployment");
            if deploys && wanted(&manifests) {
                return Ok(Some(manifests));
            }
            let addon = get(&self.hub.ocm, &addon).await.unwrap_or_default();
            Err(format!("{} manifests; {}", manifests.len(), addon["status"]))
        })
        .await
    }

    /// The namespace of the agent on the cluster, and the subject of its certificate, once it is another than before.
    async fn registration(&self) -> (String, Value) {
        let addon = proxy::addon(self.name);
        eventually("the manager has announced the subject of certificates", SOON, async || {
            let status = get(&self.hub.ocm, &addon).await.unwrap_or_default()["status"].clone();
            let registrations = status["registrations"].as_array().cloned().unwrap_or_default();
            let ours = registrations.iter().find(|registration| registration["signerName"] == SIGNER);
            let subject = ours.map(|ours| ours["subject"].clone()).filter(|subject| *subject != self.subject);
            match (status["namespace"].as_str(), subject) {
                (Some(namespace), Some(subject)) => Ok(Some((namespace.to_owned(), subject))),
                _ => Err(status.to_string()),
            }
        })
        .await
    }

    /// The Secret with a certificate for the proxy agent, which the manager has approved and signed.
    async fn certificate(&self, namespace: &str, subject: &Value) -> Value {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let texts = |field: &str| subject[field].as_array().cloned().unwrap_or_default();
        params.distinguished_name.push(DnType::CommonName, subject["user"].as_str().unwrap());
        for group in texts("groups") {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str().unwrap());
        }
        for unit in texts("organizationUnit") {
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit.as_str().unwrap());
        }
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let name = format!("addon-{}-cluster-proxy-{}", self.name, unique());
        let gvk = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
        let request = Object::new(gvk, "certificatesigningrequests", None, &name)
            .label("open-cluster-management.io/cluster-name", self.name)
            .label("open-cluster-management.io/addon-name", "cluster-proxy")
            .field(
                "spec",
                json!({
                    "request": ByteString(request.into_bytes()),
                    "signerName": SIGNER,
                    "usages": ["digital signature", "key encipherment", "client auth"],
                }),
            );
        request.create(&self.hub.ocm).await.unwrap();
        let certificate = eventually("the manager has signed a certificate", SOON, async || {
            let status = get(&self.hub.ocm, &request).await.unwrap_or_default()["status"].clone();
            let certificate = status["certificate"].clone();
            if certificate.is_string() { Ok(Some(certificate)) } else { Err(status.to_string()) }
        })
        .await;
        let key = ByteString(key.serialize_pem().into_bytes());
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": namespace, "name": format!("cluster-proxy-{}-client-cert", SIGNER.replace('/', "-")) },
            "data": { "tls.crt": certificate, "tls.key": key },
        })
    }

    /// The Secret with the kubeconfig for the hub.
    fn hub_kubeconfig(&self, namespace: &str) -> Value {
        let mut kubeconfig = kubeconfig_of(self.hub, USER);
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://{}:{}", HUB.0, HUB.1));
        cluster["tls-server-name"] = json!("localhost");
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": namespace, "name": "cluster-proxy-hub-kubeconfig" },
            "stringData": { "kubeconfig": kubeconfig.to_string() },
        })
    }

    async fn apply(&self, objects: Vec<Value>) {
        self.kubectl("apply", objects).await;
    }

    async fn kubectl(&self, verb: &str, objects: Vec<Value>) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let file = self.cluster.directory().join("manifests.json");
        std::fs::write(&file, list.to_string()).unwrap();
        let output = self.cluster.kubectl(&[verb, "--filename", file.to_str().unwrap()]).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A text that is another one each time.
fn unique() -> String {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
}

/// The address of a hub's API server.
pub fn address_of(hub: &LocalHub) -> SocketAddr {
    let kubeconfig = kubeconfig_of(hub, local_hub::OCM);
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    server.trim_start_matches("https://").parse().unwrap()
}

fn kubeconfig_of(hub: &LocalHub, user: &str) -> Value {
    let file = hub.kubeconfig_for(user).unwrap();
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}
