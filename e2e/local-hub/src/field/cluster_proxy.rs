//! cluster-proxy as its own chart installs it, in Pods: its manager with the permissions of the chart, the proxy server
//! that the manager deploys, and the user server; on each cluster, the Pod of the proxy agent, the addon agent and the
//! service proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;

use super::deployments::{restart, running};
use super::{HUB, PATIENCE, STREAMS, Site, image, install_crds, program, reference, source};
use crate::ocm::Object;
use crate::programs::output_of;
use crate::{HubError, Pods, Relay, Service, try_eventually};

/// The namespace of cluster-proxy on a hub.
pub const HOME: &str = "open-cluster-management-addon";
/// The namespace of the agents on a cluster.
const AGENTS: &str = "open-cluster-management-cluster-proxy";
/// The name by which agents reach the proxy server.
const ENTRYPOINT: &str = "proxy.example";
/// The Secret with the authority and its key.
const SIGNER: &str = "cluster-proxy-signer";
/// The Deployments, on a cluster and on the hub.
pub(super) const AGENT: &str = "cluster-proxy-proxy-agent";
const MANAGER: &str = "cluster-proxy-addon-manager";
const PROXY_SERVER: &str = "cluster-proxy";
const USER_SERVER: &str = "cluster-proxy-addon-user";

/// cluster-proxy on a hub.
pub struct ClusterProxy {
    hub: Site,
    pods: Pods,
    /// Where programs beside the hub reach the proxy server, where agents do, and where applications reach the user server.
    proxy_server: Relay,
    agents: Relay,
    user_server: Relay,
    /// The image of the programs on clusters.
    agent_image: PathBuf,
}

/// Installs cluster-proxy's chart on a hub, whether or not its Pods run there.
pub async fn install_chart(hub: &Path) -> Result<(), HubError> {
    install_crds(hub, "cluster-proxy", "charts/cluster-proxy/crds", |_| true).await?;
    let values = [
        "registry=registry.example.com",
        "image=cluster-proxy",
        "tag=field",
        "proxyServerImage=registry.example.com/proxy-server",
        "proxyAgentImage=registry.example.com/proxy-agent",
        "enableServiceProxy=true",
        "userServer.enabled=true",
        &format!("proxyServer.entrypointAddress={ENTRYPOINT}"),
    ];
    let home = hub.join("helm");
    let mut helm = Command::new(program("helm").await?);
    helm.args(["install", "cluster-proxy"])
        .arg(source("cluster-proxy").await?.join("charts/cluster-proxy"))
        // Its configuration has fields that its CRD does not have, which a server-side apply refuses.
        .args(["--skip-crds", "--server-side=false", "--create-namespace", "--namespace", HOME])
        .args(values.map(|value| format!("--set={value}")))
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .env("KUBECONFIG", Site::at(hub).await?.kubeconfig())
        .env_remove("HELM_NAMESPACE");
    output_of(&mut helm, "install the chart of cluster-proxy").await.map(drop)
}

impl ClusterProxy {
    /// Installs it on a hub, which has the CRDs of OCM, and runs the Pods of the hub, with these further images.
    pub async fn install(
        hub: &Path,
        more: impl IntoIterator<Item = (String, PathBuf)>,
    ) -> Result<Self, HubError> {
        let site = Site::at(hub).await?;
        let images = hub.join("images");
        let server = image(&images.join("server"), &[("proxy-server", "proxy-server")]).await?;
        let programs = [("cluster-proxy-manager", "manager"), ("cluster-proxy", "cluster-proxy")];
        let manager = image(&images.join("manager"), &programs).await?;
        let programs = [
            ("proxy-agent", "proxy-agent"),
            ("cluster-proxy-agent", "agent"),
            ("cluster-proxy", "cluster-proxy"),
        ];
        let agent_image = image(&images.join("agent"), &programs).await?;
        let proxy_server = Relay::listen().await?;
        let mut pods = Pods::on_kubeconfig(&site.kubeconfig())
            .await?
            .image(reference("proxy-server"), server)
            .image(reference("cluster-proxy"), manager);
        for (reference, path) in more {
            pods = pods.image(reference, path);
        }
        let pods = pods.start().await?;
        install_chart(hub).await?;
        let (agents, user_server) = (Relay::listen().await?, Relay::listen().await?);
        Ok(Self { hub: site, pods, proxy_server, agents, user_server, agent_image })
    }

    /// The Pods of the hub.
    #[must_use]
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Waits until all its Pods on the hub run, and leads connections to them.
    pub async fn runs(&self) -> Result<(), HubError> {
        self.running(MANAGER).await?;
        let server = self.running(PROXY_SERVER).await?;
        self.proxy_server.lead_to(self.pods.forward(HOME, &server, 8090)?);
        self.agents.lead_to(self.pods.forward(HOME, &server, 8091)?);
        let server = self.running(USER_SERVER).await?;
        self.user_server.lead_to(self.pods.forward(HOME, &server, 9092)?);
        Ok(())
    }

    async fn running(&self, deployment: &str) -> Result<String, HubError> {
        running(&self.hub.client, HOME, deployment, &self.pods).await
    }

    /// The certificate of the authority that signs all its certificates.
    pub async fn authority(&self) -> Result<String, HubError> {
        Ok(self.secret(SIGNER, "ca.crt").await?.unwrap_or_default())
    }

    /// A text in one of its Secrets.
    async fn secret(&self, name: &str, key: &str) -> Result<Option<String>, HubError> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.client.clone(), HOME);
        let secret =
            secrets.get_opt(name).await.map_err(HubError::api(format!("read Secret {name}")))?;
        let text = secret.and_then(|secret| secret.data?.remove(key));
        Ok(text.map(|text| String::from_utf8_lossy(&text.0).into_owned()))
    }

    /// Makes the manager generate another authority and sign all certificates anew, as far as it does by itself.
    /// Returns the new authority. All programs but the manager still run with the certificates of the old one.
    pub async fn rotate(&self) -> Result<String, HubError> {
        let before = self.authority().await?;
        let secrets: Api<Secret> = Api::namespaced(self.hub.client.clone(), HOME);
        let deleted = secrets.delete(SIGNER, &DeleteParams::default()).await;
        deleted.map_err(HubError::api(format!("delete Secret {SIGNER}")))?;
        restart(&self.hub.client, HOME, MANAGER, &self.pods).await?;
        let after =
            try_eventually("the manager has generated another authority", PATIENCE, async || {
                let authority = self.secret(SIGNER, "ca.crt").await?;
                Ok::<_, HubError>(authority.filter(|authority| *authority != before))
            })
            .await?;
        for name in ["cluster-proxy-user-serving-cert", "cluster-proxy-service-proxy-server-cert"] {
            try_eventually(&format!("{name} contains the new authority"), PATIENCE, async || {
                let shown = self.secret(name, "tls.crt").await?;
                Ok::<_, HubError>(shown.is_some_and(|shown| shown.contains(&after)))
            })
            .await?;
        }
        Ok(after)
    }

    /// Makes the programs on the hub use the new authority. The manager updates the Secret with the authority's
    /// certificate only with the configuration, and no program reads a certificate again.
    pub async fn renew(&self, authority: &str) -> Result<(), HubError> {
        let is_deployed = async || {
            Ok::<_, HubError>(
                self.secret("proxy-server-ca", "ca.crt").await?.as_deref() == Some(authority),
            )
        };
        if is_deployed().await? {
            return Err(HubError::Failed(
                "the manager has deployed the authority by itself".to_owned(),
            ));
        }
        let gvk = ("proxy.open-cluster-management.io", "v1alpha1", "ManagedProxyConfiguration");
        let configuration = Object::new(gvk, "managedproxyconfigurations", None, "cluster-proxy");
        let change = json!({ "spec": { "proxyServer": { "additionalArgs": ["--v=1"] } } });
        let api = configuration.api(&self.hub.client);
        api.patch(configuration.name(), &PatchParams::default(), &Patch::Merge(change))
            .await
            .map_err(HubError::api(format!("change {configuration}")))?;
        let deployments: Api<Deployment> = Api::namespaced(self.hub.client.clone(), HOME);
        try_eventually("the manager deploys the changed configuration", PATIENCE, async || {
            deployments.get(PROXY_SERVER).await.map(|shown| format!("{shown:?}").contains("--v=1"))
        })
        .await?;
        try_eventually("the manager deploys the new authority", PATIENCE, is_deployed).await?;
        restart(&self.hub.client, HOME, USER_SERVER, &self.pods).await?;
        self.runs().await
    }

    /// Replaces the Pod of the proxy server, and leads connections to the new one.
    pub async fn restart_proxy_server(&self) -> Result<(), HubError> {
        restart(&self.hub.client, HOME, PROXY_SERVER, &self.pods).await?;
        self.runs().await
    }

    /// The address of the user server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.user_server.address()
    }

    /// The Service of the user server.
    pub async fn service(&self) -> Result<Service, HubError> {
        Service::start(format!("cluster-proxy-addon-user.{HOME}:9092"), self.address()).await
    }

    /// The address of the proxy server for its clients, which its certificate names as that of this machine.
    #[must_use]
    pub fn entrypoint(&self) -> SocketAddr {
        self.proxy_server.address()
    }

    /// Runs the Pods of the cluster with this name, which reach the proxy server and the hub, and by the name of the
    /// cluster its API server: cluster-proxy's chart deploys a Service of type `ExternalName` for that.
    pub async fn on_cluster(&self, name: &str, cluster: &Path) -> Result<Pods, HubError> {
        let cluster = Site::at(cluster).await?;
        Pods::on_kubeconfig(&cluster.kubeconfig())
            .await?
            .image(reference("proxy-agent"), &self.agent_image)
            .node_program(STREAMS, "streams")
            .service(ENTRYPOINT, 8091, self.agents.address())
            .service(HUB.0, HUB.1, self.hub.address().await?)
            // The Service that leads agents to their API server, in place of the answer that the cluster would give.
            .service(format!("{name}.{AGENTS}.svc.cluster.local"), 443, cluster.address().await?)
            .start()
            .await
    }
}
