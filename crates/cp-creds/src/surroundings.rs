//! What the process finds around it: a few environment variables and a file system.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::exec_info;

/// Where Kubernetes mounts a pod's ServiceAccount.
const SERVICE_ACCOUNT_DIRECTORY: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// All that is read from outside, apart from the command line and the files that a kubeconfig names. Proxy variables
/// are not among it: the answer is a token, and it takes no way that only the environment knows of.
///
/// An empty variable counts as one that is not set.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// `KUBERNETES_EXEC_INFO`: the caller's question.
    pub exec_info: Option<String>,
    /// `NAMESPACE`: where the synced Secrets are.
    pub namespace: Option<String>,
    /// `KUBERNETES_SERVICE_HOST`: the API server, as a pod sees it.
    pub service_host: Option<String>,
    /// `KUBERNETES_SERVICE_PORT`: its port.
    pub service_port: Option<String>,
    /// `KUBECONFIG`: kubeconfig files, separated by colons.
    pub kubeconfig: Option<OsString>,
    /// `HOME`: where `.kube/config` may be.
    pub home: Option<PathBuf>,
    /// The file system that the in-cluster files are in; `/` outside tests.
    pub root: PathBuf,
}

impl Surroundings {
    /// What is around this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            exec_info: text(exec_info::VARIABLE),
            namespace: text("NAMESPACE"),
            service_host: text("KUBERNETES_SERVICE_HOST"),
            service_port: text("KUBERNETES_SERVICE_PORT"),
            kubeconfig: variable("KUBECONFIG"),
            home: variable("HOME").map(PathBuf::from),
            root: PathBuf::from("/"),
        }
    }

    /// The file `name` of the pod's ServiceAccount.
    #[must_use]
    pub fn service_account_file(&self, name: &str) -> PathBuf {
        self.root.join(SERVICE_ACCOUNT_DIRECTORY).join(name)
    }
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// What is no UTF-8 is no name, host or JSON either, and is refused as such further on.
fn text(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}
