//! `local-hub up`: a hub in the foreground.

use std::path::PathBuf;

use clap::Args;
use local_hub::{CrdSet, HubBuilder, HubError, LocalHub};

use super::end::{self, End};
use super::ready::ReadyFile;
use super::say;

/// Start a hub and keep it running until it is interrupted
///
/// A hub is etcd, kube-apiserver and kube-controller-manager, with the CRDs of
/// Open Cluster Management and ClusterProfile. The first start on a machine
/// builds them, which takes minutes; later ones take seconds.
///
/// While the hub is ready, the file DIR/ready is
///
///     export KUBECONFIG='DIR/admin.kubeconfig'
///     export LOCAL_HUB_BIN='the directory of kubectl'
///
/// A bash script starts a hub that ends when the script does, waits for that file
/// and sources it:
///
///     exec 3> >(exec local-hub up --dir "$dir" --until-stdin-closes)
///     until [ -e "$dir/ready" ]; do kill -0 $! || exit 1; sleep 0.1; done
///     . "$dir/ready"
///
/// The directory also contains a kubeconfig for every user. admin and ocm have all
/// permissions; projector, provisioner, syncer, addons and consumer have what RBAC
/// grants them, initially nothing. DIR/audit.log has a line for each request.
///
/// When the command ends, however it ends, all programs are killed and DIR is
/// removed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[allow(clippy::struct_excessive_bools, reason = "flags are")]
pub struct Up {
    /// The hub's directory, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Install no CRDs, as on a managed cluster
    #[arg(long)]
    no_crds: bool,

    /// Start no kube-controller-manager: nothing is garbage-collected, and no namespace is finalized
    #[arg(long)]
    no_controller_manager: bool,

    /// Run the controllers of workloads, nodes and Services; local-hub pods runs a node
    #[arg(long, conflicts_with = "no_controller_manager")]
    workloads: bool,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,
}

impl Up {
    /// Starts the hub, and returns when it has ended.
    pub async fn run(self) -> Result<(), HubError> {
        let mut end = End::of(self.until_stdin_closes)?;
        say("starting a hub");
        let hub = tokio::select! {
            // If it ends during startup, dropping the future stops what has been started.
            () = end.comes() => return Ok(()),
            hub = self.builder().start() => hub?,
        };
        let ready_file = ReadyFile::new(hub.directory().join("ready"))?;
        let kubeconfig = hub.kubeconfig_for(local_hub::ADMIN)?.display().to_string();
        let bin = hub.bin_dir().display().to_string();
        let variables = [("KUBECONFIG", &*kubeconfig), ("LOCAL_HUB_BIN", &bin)];
        end::serve(end, &ready_file, &variables, "the hub is").await
    }

    fn builder(self) -> HubBuilder {
        let mut builder = LocalHub::builder().directory(self.dir);
        if self.no_crds {
            builder = builder.crds(CrdSet::None);
        }
        if self.no_controller_manager {
            builder = builder.without_controller_manager();
        }
        if self.workloads {
            builder = builder.workloads();
        }
        builder
    }
}
