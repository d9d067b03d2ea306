//! The plugin as kubectl finds it: by its name on the path.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use local_hub::{Kubectl, LocalHub};

use crate::support::command::Ended;
use crate::support::plugin::program;

/// The path of the plugin.
pub fn kubectl_clusterprofile() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("kubectl-clusterprofile"))
}

/// kubectl with a kubeconfig; it finds the plugin on its path.
pub fn kubectl(hub: &LocalHub, kubeconfig: &Path) -> Kubectl {
    let directory = kubectl_clusterprofile().parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        [directory.to_owned()].into_iter().chain(std::env::split_paths(&path)),
    );
    hub.kubectl_with(kubeconfig).unwrap().env("PATH", path.unwrap())
}

/// Runs `kubectl clusterprofile` until it exits.
pub async fn run(kubectl: &Kubectl, arguments: &[&str]) -> Ended {
    let mut all = vec!["clusterprofile"];
    all.extend(arguments);
    kubectl.run(&all).await.unwrap().into()
}
