//! How the program finds its hub and talks to it.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use hub_runtime::watch::WATCH_DURATION;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Longest wait for a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence of the API server on a connection that waits for it, so that no list hangs for ever. A watch
/// ends of itself before that.
const READ_TIMEOUT: Duration = WATCH_DURATION.saturating_add(Duration::from_secs(15));

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file named by `--kubeconfig` cannot be used.
    #[error("cannot use the kubeconfig {path}: {}", first_line(.source))]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The Pod's own account cannot be used.
    #[error("cannot use the Pod's service account: {}", first_line(.0))]
    InCluster(#[source] kube::config::InClusterError),
    /// There is neither a Pod's account nor a kubeconfig.
    #[error(
        "no hub to talk to: this is no Pod, and neither $KUBECONFIG nor ~/.kube/config can be used ({}); \
         --kubeconfig names another file",
        first_line(.0)
    )]
    Nothing(#[source] KubeconfigError),
    /// The configuration makes no client.
    #[error("cannot set up a client for the hub: {}", hub_runtime::error::summary(.0))]
    Client(#[source] kube::Error),
}

/// The hub's configuration: the file that was named, else the Pod's own account, else what kubectl would use.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions::default();
    let mut config = if let Some(path) = kubeconfig {
        let unusable = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
        let file = Kubeconfig::read_from(path).map_err(unusable)?;
        Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Config::incluster().map_err(ConnectError::InCluster)?
    } else {
        Config::from_kubeconfig(&options).await.map_err(ConnectError::Nothing)?
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // What failed is tried again by the queue, which knows what a second try means; a client that repeats a
    // POST by itself turns a lost answer into a conflict that nobody understands.
    config.default_retry = false;
    let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

/// A client with this configuration.
pub fn client(config: Config) -> Result<Client, ConnectError> {
    Client::try_from(config).map_err(ConnectError::Client)
}

fn first_line(error: &impl std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
