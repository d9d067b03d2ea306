//! cluster-proxy as its own chart installs it, in Pods: its manager with the permissions of the chart, the proxy server
//! that the manager deploys, and the user server; on each cluster, the Pod of the proxy agent, the addon agent and the
//! service proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use local_hub::ocm::Object;
use local_hub::{LocalHub, Pods, eventually};
use serde_json::json;

use super::relay::Relay;
use crate::support::chain::HOME;
use crate::support::service::Service;
use crate::support::world::merge;
use crate::support::{chart, field};

/// The user of the programs in upstream's images.
const NONROOT: u32 = 65532;
/// Timeout for Pods, which copy their images first.
const PATIENCE: Duration = Duration::from_mins(4);
/// The name by which agents reach the proxy server.
const ENTRYPOINT: &str = "proxy.example";
/// The name by which clusters reach the hub, and the port.
pub const HUB: (&str, u16) = ("hub.example", 6443);
/// The Secret with the authority and its key.
const SIGNER: &str = "cluster-proxy-signer";
/// The Deployments, on a cluster and on the hub.
pub const AGENT: &str = "cluster-proxy-proxy-agent";
const MANAGER: &str = "cluster-proxy-addon-manager";
const PROXY_SERVER: &str = "cluster-proxy";
const USER_SERVER: &str = "cluster-proxy-addon-user";

/// cluster-proxy on a hub.
pub struct ClusterProxy {
    hub: Client,
    pods: Pods,
    /// Where the user server reaches the proxy server, where agents do, and where applications reach the user server.
    proxy_server: Relay,
    agents: Relay,
    user_server: Relay,
    /// The image of the programs on clusters.
    agent_image: PathBuf,
}

fn reference(image: &str) -> String {
    format!("registry.example.com/{image}:field")
}

/// An image with these programs of upstream's, under the names that they have there.
async fn image(directory: &Path, programs: &[(&str, &str)]) -> PathBuf {
    std::fs::create_dir_all(directory).unwrap();
    for (program, name) in programs {
        let (program, file) = (field::program(program).await, directory.join(name));
        // A copy takes time if the cache is on another file system.
        std::fs::hard_link(&program, &file).or_else(|_| std::fs::copy(&program, &file).map(drop)).unwrap();
    }
    directory.to_owned()
}

/// Installs cluster-proxy's chart on a hub, whether or not its Pods run there.
pub async fn install_chart(hub: &LocalHub) {
    let chart = field::source("cluster-proxy").await.join("charts/cluster-proxy").display().to_string();
    // Some of its CRDs are there, as other tests need them.
    field::install_crds(hub, "cluster-proxy", "charts/cluster-proxy/crds", |_| true).await;
    // Its configuration has fields that its CRD does not have, which a server-side apply refuses.
    let flags = ["--skip-crds", "--server-side=false", "--create-namespace", "--namespace", HOME];
    let install = ["install", "cluster-proxy", &chart];
    let mut arguments: Vec<String> = install.iter().chain(&flags).map(ToString::to_string).collect();
    for value in [
        "registry=registry.example.com",
        "image=cluster-proxy",
        "tag=field",
        "proxyServerImage=registry.example.com/proxy-server",
        "proxyAgentImage=registry.example.com/proxy-agent",
        "enableServiceProxy=true",
        "userServer.enabled=true",
        &format!("proxyServer.entrypointAddress={ENTRYPOINT}"),
    ] {
        arguments.push(format!("--set={value}"));
    }
    let ended = chart::run(chart::helm(), Some(hub), &arguments).await;
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

impl ClusterProxy {
    /// Installs it on a hub.
    pub async fn install(hub: &LocalHub) -> Self {
        let images = hub.directory().join("images");
        let server = image(&images.join("server"), &[("proxy-server", "proxy-server")]).await;
        let programs = [("cluster-proxy-manager", "manager"), ("cluster-proxy", "cluster-proxy")];
        let manager = image(&images.join("manager"), &programs).await;
        let programs = [
            ("proxy-agent", "proxy-agent"),
            ("cluster-proxy-agent", "agent"),
            ("cluster-proxy", "cluster-proxy"),
        ];
        let agent_image = image(&images.join("agent"), &programs).await;
        let proxy_server = Relay::listen().await;
        let pods = Pods::on(hub)
            .unwrap()
            .image_as(NONROOT, reference("proxy-server"), server)
            .image_as(NONROOT, reference("cluster-proxy"), manager)
            // The proxy server itself listens on that port.
            .service_for(USER_SERVER, format!("proxy-entrypoint.{HOME}.svc"), 8090, proxy_server.address())
            .start()
            .await
            .unwrap();

        install_chart(hub).await;
        let (agents, user_server) = (Relay::listen().await, Relay::listen().await);
        let hub = hub.client_as("admin").await.unwrap();
        Self { hub, pods, proxy_server, agents, user_server, agent_image }
    }

    /// Waits until all its Pods on the hub run, and leads connections to them.
    pub async fn runs(&self) {
        self.running(MANAGER).await;
        let server = self.running(PROXY_SERVER).await;
        self.proxy_server.lead_to(self.pods.forward(HOME, &server, 8090).unwrap());
        self.agents.lead_to(self.pods.forward(HOME, &server, 8091).unwrap());
        let server = self.running(USER_SERVER).await;
        self.user_server.lead_to(self.pods.forward(HOME, &server, 9092).unwrap());
    }

    async fn running(&self, deployment: &str) -> String {
        running(&self.hub, HOME, deployment, &self.pods).await
    }

    /// The certificate of the authority that signs all its certificates.
    pub async fn authority(&self) -> String {
        self.secret(SIGNER, "ca.crt").await.unwrap()
    }

    /// A text in one of its Secrets.
    async fn secret(&self, name: &str, key: &str) -> Option<String> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HOME);
        let data = secrets.get_opt(name).await.unwrap()?.data?;
        Some(String::from_utf8(data.get(key)?.0.clone()).unwrap())
    }

    /// Waits until the text in one of its Secrets contains another.
    async fn contains(&self, name: &str, key: &str, text: &str) {
        eventually(&format!("{name} contains the new authority"), PATIENCE, async || {
            self.secret(name, key).await.is_some_and(|shown| shown.contains(text))
        })
        .await;
    }

    /// Makes the manager generate another authority and sign all certificates anew, as far as it does by itself.
    /// Returns the new authority. All programs but the manager still run with the certificates of the old one.
    pub async fn rotate(&self) -> String {
        let before = self.authority().await;
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HOME);
        secrets.delete(SIGNER, &DeleteParams::default()).await.unwrap();
        restart(&self.hub, HOME, MANAGER, &self.pods).await;
        let after = eventually("the manager has generated another authority", PATIENCE, async || {
            self.secret(SIGNER, "ca.crt").await.filter(|authority| *authority != before)
        })
        .await;
        for name in ["cluster-proxy-user-serving-cert", "cluster-proxy-service-proxy-server-cert"] {
            self.contains(name, "tls.crt", &after).await;
        }
        after
    }

    /// Makes the programs on the hub use the new authority. The manager updates the Secret with the authority's
    /// certificate only with the configuration, and no program reads a certificate again.
    pub async fn renew(&self, authority: &str) {
        assert_ne!(self.secret("proxy-server-ca", "ca.crt").await.as_deref(), Some(authority));
        let gvk = ("proxy.open-cluster-management.io", "v1alpha1", "ManagedProxyConfiguration");
        let configuration = Object::new(gvk, "managedproxyconfigurations", None, "cluster-proxy");
        let change = json!({ "spec": { "proxyServer": { "additionalArgs": ["--v=1"] } } });
        merge(&self.hub, &configuration, &change).await;
        let deployments: Api<Deployment> = Api::namespaced(self.hub.clone(), HOME);
        eventually("the manager deploys the changed configuration", PATIENCE, async || {
            deployments.get(PROXY_SERVER).await.map(|shown| format!("{shown:?}").contains("--v=1"))
        })
        .await;
        assert_eq!(self.secret("proxy-server-ca", "ca.crt").await.as_deref(), Some(authority));
        restart(&self.hub, HOME, USER_SERVER, &self.pods).await;
        self.runs().await;
    }

    /// The address of the user server.
    pub fn address(&self) -> SocketAddr {
        self.user_server.address()
    }

    /// The Service of the user server.
    pub async fn service(&self) -> Service {
        Service::start(format!("cluster-proxy-addon-user.{HOME}:9092"), self.address()).await
    }

    /// Runs the Pods of a cluster, which reach the proxy server and the hub.
    pub async fn on_cluster(&self, cluster: &LocalHub, hub: SocketAddr) -> Pods {
        Pods::on(cluster)
            .unwrap()
            .image_as(NONROOT, reference("proxy-agent"), &self.agent_image)
            .service(ENTRYPOINT, 8091, self.agents.address())
            .service(HUB.0, HUB.1, hub)
            .start()
            .await
            .unwrap()
    }
}

/// Replaces the Pods of a Deployment, and waits until the new one runs.
pub async fn restart(client: &Client, namespace: &str, deployment: &str, runner: &Pods) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&labels(client, namespace, deployment).await);
    pods.delete_collection(&DeleteParams::default(), &params).await.unwrap();
    running(client, namespace, deployment, runner).await;
}

/// The labels of a Deployment's Pods, once it exists.
async fn labels(client: &Client, namespace: &str, deployment: &str) -> String {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = eventually(&format!("there is a Deployment {deployment}"), PATIENCE, async || {
        deployments.get_opt(deployment).await
    })
    .await;
    let labels = found.spec.unwrap().selector.match_labels.unwrap();
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Waits until a Deployment is rolled out and has one Pod, which runs. Returns the Pod's name.
pub async fn running(client: &Client, namespace: &str, deployment: &str, runner: &Pods) -> String {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&labels(client, namespace, deployment).await);
    eventually(&format!("{deployment} runs"), PATIENCE, async || {
        let shown = deployments.get(deployment).await.map_err(|error| error.to_string())?;
        let status = shown.status.unwrap_or_default();
        if status.observed_generation != shown.metadata.generation || status.updated_replicas != Some(1) {
            return Err(format!("{status:?}"));
        }
        let found = pods.list(&params).await.map_err(|error| error.to_string())?.items;
        let [pod] = found.as_slice() else { return Err(format!("{} Pods", found.len())) };
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let containers = containers.unwrap_or_default();
        let runs = |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
        if pod.metadata.deletion_timestamp.is_none() && !containers.is_empty() && containers.iter().all(runs)
        {
            return Ok(Some(pod.name_any()));
        }
        let logs = containers.iter().map(|it| (&it.name, runner.logs(namespace, &pod.name_any(), &it.name)));
        let ends: Vec<_> = logs.map(|(name, log)| format!("{name}: {}", end_of(&log))).collect();
        Err(format!("{containers:?}\n{}", ends.join("\n")))
    })
    .await
}

/// The end of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
