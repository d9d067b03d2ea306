//! `local-hub pods`: nodes in the foreground.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use local_hub::{HubError, Pods};

use super::end::{self, End};
use super::ready::{Ready, ReadyFile};

/// Run nodes of a hub: kubelet, containerd, and what else Pods need
///
/// The hub must be one of local-hub up --workloads, and the kubeconfig one in its
/// directory. A node's programs run on this machine, in a network of their own.
/// This requires root, cgroups, runc, nftables and the CNI plugins; the first call on
/// a machine builds the other programs, which takes minutes.
///
/// When they are ready, the last lines of the output are
///
///     export PODS_LOGS='DIR'
///     export PODS_CONTAINERDS='SOCKET...'
///     ready logs=DIR
///
/// and the ready file contains the exports. kubectl logs, exec and port-forward work.
/// The logs of containers, also of those that are gone, are in
/// DIR/NAMESPACE/POD/CONTAINER/RUN.log. ctr imports further images at the sockets.
/// When the command ends, however it ends, all containers are killed and DIR is
/// removed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// A kubeconfig for the hub, with all permissions
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", required_unless_present = "can")]
    kubeconfig: Option<PathBuf>,

    /// An image name, and its OCI archive or a directory of static programs; can be repeated
    #[arg(long = "image", value_name = "NAME=PATH", value_parser = image)]
    images: Vec<(String, PathBuf)>,

    /// How many nodes: node-1 and so on
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    nodes: u8,

    /// A host name and port that Pods can connect to, and its target; can be repeated
    #[arg(long = "service", value_name = "NAME:PORT=ADDRESS:PORT", value_parser = service)]
    services: Vec<(String, u16, SocketAddr)>,

    /// A file with variables for a shell, which exists while the nodes are ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,

    /// Start nothing: succeed if this machine can run nodes, and report what is missing otherwise
    #[arg(long)]
    can: bool,
}

pub(super) fn image(argument: &str) -> Result<(String, PathBuf), String> {
    match argument.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("expected NAME=PATH".to_owned()),
    }
}

fn service(argument: &str) -> Result<(String, u16, SocketAddr), String> {
    let parts = argument.split_once('=').and_then(|(service, address)| {
        let (name, port) = service.rsplit_once(':')?;
        Some((name.to_owned(), port.parse().ok()?, address.parse().ok()?))
    });
    parts
        .filter(|(name, _, _)| !name.is_empty())
        .ok_or_else(|| "expected NAME:PORT=ADDRESS:PORT".to_owned())
}

impl Options {
    /// Starts the nodes, and returns when they have ended.
    pub async fn run(self) -> Result<(), HubError> {
        let Some(kubeconfig) = self.kubeconfig.filter(|_| !self.can) else {
            return Pods::can_run().await;
        };
        let mut end = End::of(self.until_stdin_closes)?;
        let ready_file = self.ready_file.as_deref().map(ReadyFile::new).transpose()?;
        let mut builder = Pods::on_kubeconfig(&kubeconfig).await?.nodes(self.nodes);
        for (name, path) in self.images {
            builder = builder.image(name, path);
        }
        for (name, port, address) in self.services {
            builder = builder.service(name, port, address);
        }
        let pods = tokio::select! {
            () = end.comes() => return Ok(()),
            pods = builder.start() => pods?,
        };
        let logs = pods.log_directory().display().to_string();
        let sockets = pods
            .containerds()
            .iter()
            .map(|socket| socket.display().to_string())
            .collect::<Vec<_>>();
        let ready = Ready::default()
            .export("PODS_LOGS", &logs)
            .export("PODS_CONTAINERDS", &sockets.join(" "));
        let summary = format!("logs={logs}");
        end::serve(
            end,
            ready_file.as_ref(),
            (&ready, &summary),
            "the Pods are running; stop them with ^C",
        )
        .await?;
        drop(pods);
        Ok(())
    }
}
