//! `local-hub field`: OCM's own addons in the foreground.

use std::path::PathBuf;

use clap::Args;
use local_hub::field::{self, Addon, ClusterProxy};
use local_hub::{HubError, Service};

use super::end::{self, End};
use super::pods;
use super::ready::{Ready, ReadyFile};

/// Run OCM's own cluster-proxy, and the agent of its managed-serviceaccount, between a hub and clusters
///
/// These programs are upstream's, built from their modules by hack/go-program.sh, which
/// takes minutes the first time:
///
///     hub       cluster-proxy, installed by its chart: the manager, the proxy server
///               that it deploys, and the user server
///     clusters  the Pod of cluster-proxy, which its manager deploys: the proxy agent,
///               the addon agent and the service proxy; and the agent of
///               managed-serviceaccount
///
/// This command plays the other programs of Open Cluster Management, once, when it
/// starts: it enables the addon, requests the certificates of the agents, and applies
/// on the clusters what the manager deploys. Nothing reports the clusters' state.
///
/// The hub and the clusters are the directories of local-hub up, started with
///
///     export HUB_ADDONS_UPSTREAM_CRDS="$(hack/upstream-crds.sh)"
///     local-hub up --dir "$dir/hub" --workloads \
///         --user cluster-proxy-agent=open-cluster-management:cluster-proxy
///     local-hub up --dir "$dir/one" --workloads --no-crds
///
/// All Pods of the hub and of the clusters run on this machine, as with local-hub
/// pods, which must not run on them at the same time. This requires root. For each
/// cluster, the hub needs a ManagedCluster with hubAcceptsClient.
///
/// When it is ready, the last lines of the output are
///
///     export PODS_LOGS='DIR'
///     export FIELD_PROXY='http://127.0.0.1:PORT'
///     ready proxy=http://127.0.0.1:PORT
///
/// and the ready file contains the exports. The first is the directory of the logs of
/// the hub's Pods, the second an HTTP proxy through which clients on this machine reach
/// the user server by the name of its Service. When the command ends, however it ends,
/// all containers are killed; the objects on the hub and the clusters remain.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// The directory of the hub
    #[arg(long, value_name = "DIR")]
    hub: PathBuf,

    /// A cluster's name on the hub, and its directory; can be repeated
    #[arg(long = "cluster", value_name = "NAME=DIR", required = true, value_parser = pods::image)]
    clusters: Vec<(String, PathBuf)>,

    /// An image of other Pods of the hub, and its OCI archive or a directory of static programs; can be repeated
    #[arg(long = "image", value_name = "NAME=PATH", value_parser = pods::image)]
    images: Vec<(String, PathBuf)>,

    /// A file with variables for a shell, which exists while the programs are ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,
}

/// What runs.
struct Running {
    proxy: ClusterProxy,
    _addons: Vec<Addon>,
    service: Service,
}

impl Options {
    /// Starts the programs, and returns when they have ended.
    pub async fn run(self) -> Result<(), HubError> {
        let mut end = End::of(self.until_stdin_closes)?;
        let ready_file = self.ready_file.as_deref().map(ReadyFile::new).transpose()?;
        let running = tokio::select! {
            () = end.comes() => return Ok(()),
            running = self.start() => running?,
        };
        let logs = running.proxy.pods().log_directory().display().to_string();
        let proxy = running.service.url();
        let ready = Ready::default().export("PODS_LOGS", &logs).export("FIELD_PROXY", &proxy);
        let summary = format!("proxy={proxy}");
        end::serve(
            end,
            ready_file.as_ref(),
            (&ready, &summary),
            "the programs are running; stop them with ^C",
        )
        .await?;
        drop(running);
        Ok(())
    }

    async fn start(&self) -> Result<Running, HubError> {
        field::install_ocm(&self.hub).await?;
        let mut proxy = ClusterProxy::install(&self.hub, self.images.clone()).await?;
        let service = proxy.service().await?;
        proxy.runs().await?;
        let mut addons = Vec::new();
        for (name, cluster) in &self.clusters {
            let mut addon =
                Addon::of(name, &self.hub, cluster, proxy.on_cluster(name, cluster).await?).await?;
            addon.enable().await?;
            field::run_account_agent(name, &self.hub, cluster, addon.pods()).await?;
            addons.push(addon);
        }
        Ok(Running { proxy, _addons: addons, service })
    }
}
