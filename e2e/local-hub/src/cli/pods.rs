//! `local-hub pods`: a node in the foreground.

use std::path::PathBuf;

use clap::Args;
use local_hub::{HubError, Pods};

use super::end::{self, End};
use super::ready::ReadyFile;

/// Run a node of a hub: kubelet, containerd, and what else Pods need
///
/// The hub must be one of local-hub up --workloads, and the kubeconfig one in its
/// directory. Its programs run on this machine, in a network of their own.
/// This requires root, cgroups, runc, nftables and the CNI plugins; the first call on
/// a machine builds the other programs, which takes minutes.
///
/// While it is ready, the ready file is
///
///     export PODS_LOGS='DIR'
///
/// kubectl logs, exec and port-forward work. The logs of containers, also of those
/// that are gone, are in DIR/NAMESPACE/POD/CONTAINER/RUN.log.
/// When the command ends, however it ends, all containers are killed and DIR is
/// removed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// A kubeconfig for the hub, with all permissions
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,

    /// An image name, and its OCI archive or a directory of static programs; can be repeated
    #[arg(long = "image", value_name = "NAME=PATH", value_parser = file_of)]
    images: Vec<(String, PathBuf)>,

    /// A file with variables for a shell, which exists while the node is ready
    #[arg(long, value_name = "FILE")]
    ready_file: PathBuf,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,
}

/// A name and its file.
pub(super) fn file_of(argument: &str) -> Result<(String, PathBuf), String> {
    match argument.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("expected NAME=FILE".to_owned()),
    }
}

impl Options {
    /// Starts the node, and returns when it has ended.
    pub async fn run(self) -> Result<(), HubError> {
        let mut end = End::of(self.until_stdin_closes)?;
        let ready_file = ReadyFile::new(self.ready_file)?;
        let mut builder = Pods::on_kubeconfig(&self.kubeconfig).await?;
        for (name, path) in self.images {
            builder = builder.image(name, path);
        }
        let pods = tokio::select! {
            () = end.comes() => return Ok(()),
            pods = builder.start() => pods?,
        };
        let logs = pods.log_directory().display().to_string();
        end::serve(end, &ready_file, &[("PODS_LOGS", &logs)], "the node is").await
    }
}
