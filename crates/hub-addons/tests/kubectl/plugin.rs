//! The plugin as kubectl finds it: by its name on the path.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use local_hub::{Kubectl, LocalHub};
use serde_json::Value;

use crate::support::plugin::program;

/// The path of the plugin.
pub fn kubectl_clusterprofile() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("kubectl-clusterprofile"))
}

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The codes of the problems in the output, each once.
    pub fn problems(&self) -> Vec<String> {
        let findings = self.json()["findings"].as_array().unwrap().clone();
        let wrong = findings.iter().filter(|finding| finding["mark"] == "problem");
        let mut codes: Vec<_> =
            wrong.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect();
        codes.dedup();
        codes
    }
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
    let output = kubectl.run(&all).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
