//! What the process reads from its environment: a few environment variables and a file system.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use client_config::ProxyVariables;

use crate::exec_info;

/// Where Kubernetes mounts a pod's ServiceAccount.
const SERVICE_ACCOUNT_DIRECTORY: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Everything that is read from outside, except the command line and the files that it or a kubeconfig names.
///
/// White space around a value, such as the line break of a YAML block, is ignored; an empty variable is not set.
#[derive(Clone, Debug)]
pub struct Environment {
    /// `KUBERNETES_EXEC_INFO`: the caller's request.
    pub exec_info: Option<String>,
    /// `NAMESPACE`: the namespace of the synced Secrets.
    pub namespace: Option<String>,
    /// `KUBERNETES_SERVICE_HOST`: the API server's host, in a pod.
    pub service_host: Option<String>,
    /// `KUBERNETES_SERVICE_PORT`: its port.
    pub service_port: Option<String>,
    /// `KUBECONFIG`: kubeconfig files, separated by colons.
    pub kubeconfig: Option<OsString>,
    /// `HTTPS_PROXY` and `NO_PROXY`: the proxy to the hub, in a pod too, as in client-go.
    pub proxies: ProxyVariables,
    /// `HOME`: where `.kube/config` may be.
    pub home: Option<PathBuf>,
    /// The root of the in-cluster files; `/` outside tests.
    pub root: PathBuf,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            exec_info: text(exec_info::VARIABLE),
            namespace: text("NAMESPACE"),
            service_host: text("KUBERNETES_SERVICE_HOST"),
            service_port: text("KUBERNETES_SERVICE_PORT"),
            kubeconfig: variable("KUBECONFIG"),
            proxies: ProxyVariables::of_process(),
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
    let value = env::var_os(name)?;
    let value = value.to_str().map(|text| text.trim().into()).unwrap_or(value);
    (!value.is_empty()).then_some(value)
}

/// Text that is not UTF-8 is not a valid name, host or JSON either, and is rejected there.
fn text(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}
