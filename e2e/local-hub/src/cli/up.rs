//! `local-hub up`: a hub in the foreground.

use std::path::PathBuf;

use clap::Args;
use local_hub::{CrdSet, HubBuilder, HubError, LocalHub};

use super::end::{self, End};
use super::ready::Ready;
use super::say;

/// Start a hub and keep it running until it is interrupted
///
/// A hub is etcd, kube-apiserver and kube-controller-manager, with the CRDs of
/// Open Cluster Management and ClusterProfile. The first start on a machine
/// builds them, which takes minutes; later ones take seconds.
///
/// When the hub is ready, the last lines of the output are
///
///     export KUBECONFIG='DIR/admin.kubeconfig'
///     export LOCAL_HUB_BIN='the directory of kubectl'
///     export LOCAL_HUB_URL='https://127.0.0.1:PORT'
///     ready kubeconfig=DIR/admin.kubeconfig bin=DIRECTORY
///
/// and the file DIR/ready contains the exports. A bash script starts a hub that
/// ends when the script does, waits for that file and sources it:
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
    /// The hub's directory, which must be empty or not exist; by default a new temporary one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

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
        let kubeconfig = hub.kubeconfig_for(local_hub::ADMIN)?;
        let ready = Ready::default()
            .export("KUBECONFIG", &kubeconfig.display().to_string())
            .export("LOCAL_HUB_BIN", &hub.bin_dir().display().to_string())
            .export("LOCAL_HUB_URL", &hub.url());
        ready.write(&hub.directory().join("ready"))?;
        let summary =
            format!("kubeconfig={} bin={}", kubeconfig.display(), hub.bin_dir().display());
        end::serve(end, None, (&ready, &summary), "the hub is ready; stop it with ^C").await?;
        drop(hub);
        Ok(())
    }

    fn builder(self) -> HubBuilder {
        let mut builder = LocalHub::builder();
        if self.no_crds {
            builder = builder.crds(CrdSet::None);
        }
        if self.no_controller_manager {
            builder = builder.without_controller_manager();
        }
        if self.workloads {
            builder = builder.workloads();
        }
        if let Some(directory) = self.dir {
            builder = builder.directory(directory);
        }
        builder
    }
}
