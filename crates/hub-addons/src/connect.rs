//! Configuration and client for the hub.
//!
//! The client speaks HTTP/2 where the API server has it, so that a connection to a frozen API server is noticed: the
//! kernel of its machine still acknowledges TCP keepalive, but nothing responds to PINGs. Each connection has the CA
//! certificates that the configuration has when it is opened, so that a process survives their rotation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::HeaderValue;
use http::header::USER_AGENT;
use hub_config::{ConfigError, Connector};
use hub_runtime::write::error::summary;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::{BoxError, ServiceExt as _, service_fn};
use tracing::info;

use crate::VERSION;
use crate::connections::Connections;

/// Timeout of a connection attempt, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP keepalive, which detects a peer that is gone without closing the connection, such as a failed machine or a load
/// balancer that lost its state. After this time without data, probes are sent at this interval. The connection ends if
/// this many probes are not acknowledged, or if sent data is not acknowledged for as long as that takes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;

/// The hub's configuration: the given file, else the Pod's ServiceAccount, else kubectl's default.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, String> {
    let mut config = match hub_config::in_cluster() {
        Some(config) if kubeconfig.is_none() => config.map_err(|error| error.to_string())?,
        _ => of_file(kubeconfig).await.map_err(|error| match kubeconfig {
            Some(path) => format!("cannot use the kubeconfig {}: {error}", path.display()),
            None => format!(
                "cannot find the hub: not in a Pod with a ServiceAccount token, and neither $KUBECONFIG nor \
                 ~/.kube/config can be used ({error}); set --kubeconfig to use another file"
            ),
        })?,
    };
    // The queue retries, and knows how to handle the result of a repeated request; a client that repeats a POST by
    // itself turns a lost response into an unexplained conflict.
    config.default_retry = false;
    // Every kind of configuration is read again for new connections.
    config.root_cert_file = None;
    let agent = HeaderValue::try_from(format!("hub-addons/{VERSION}"));
    config.headers.extend(agent.ok().map(|agent| (USER_AGENT, agent)));
    Ok(config)
}

async fn of_file(kubeconfig: Option<&Path>) -> Result<Config, ConfigError> {
    hub_config::config(hub_config::read(kubeconfig)?, None).await
}

/// A client for the hub of this kubeconfig.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, String> {
    client(config(kubeconfig).await?, kubeconfig).await
}

/// A client with this configuration, which is that of [`config`] with the same kubeconfig.
///
/// An exec plugin in the kubeconfig runs here for the first token, without a timeout. It runs on a thread of its own,
/// so that probes get a response meanwhile; kube runs it for later tokens in the same way.
pub async fn client(config: Config, kubeconfig: Option<&Path>) -> Result<Client, String> {
    let kubeconfig = kubeconfig.map(Path::to_owned);
    let client = move || {
        let connections = Connections::new(secured(&config, kubeconfig)?);
        hub_config::client(&config, service_fn(move |request| connections.clone().send(request)))
    };
    let built = tokio::task::spawn_blocking(client).await;
    let built = built.unwrap_or_else(|error| Err(kube::Error::Service(error.into())));
    built.map_err(|error| format!("cannot create a client for the hub: {}", summary(&error)))
}

/// Connects to the hub with the CA certificates that the configuration then has.
fn secured(
    config: &Config,
    kubeconfig: Option<PathBuf>,
) -> kube::Result<impl Connect + Clone + Send + Sync + 'static> {
    let tcp = hub_config::connector(config, connector())?;
    let tls = Arc::new(Mutex::new((https(config, tcp.clone())?, config.root_cert.clone())));
    Ok(service_fn(move |uri| {
        let (tls, tcp, kubeconfig) = (Arc::clone(&tls), tcp.clone(), kubeconfig.clone());
        async move {
            // A kubeconfig that cannot be read may be about to be replaced.
            if let Ok(config) = self::config(kubeconfig.as_deref()).await
                && config.root_cert != tls.lock().1
                && let Ok(https) = https(&config, tcp)
            {
                info!("the CA certificates of the hub have changed");
                *tls.lock() = (https, config.root_cert);
            }
            let https = tls.lock().0.clone();
            timeout(CONNECT_TIMEOUT, https.oneshot(uri)).await?
        }
        .boxed()
    }))
}

/// Adds TLS with the CA certificates of the configuration.
fn https(config: &Config, tcp: Connector) -> kube::Result<HttpsConnector<Connector>> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let invalid = |error| kube::Error::Service(BoxError::from(error));
    Ok(match config.tls_server_name.clone() {
        Some(name) => {
            let resolver = FixedServerNameResolver::new(name.try_into().map_err(invalid)?);
            HttpsConnector::new(tcp, tls, false, Arc::new(resolver))
        }
        None => {
            HttpsConnector::new(tcp, tls, false, Arc::new(DefaultServerNameResolver::default()))
        }
    })
}

/// Connects over TCP and detects dead peers.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // The next layer adds TLS.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_AFTER));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(KEEPALIVE_AFTER + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES));
    connector
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hyper_util::client::legacy::connect::Connection as _;

    use super::*;
    use crate::connections::tests::{Server, certificate};

    #[tokio::test]
    async fn a_process_survives_the_rotation_of_the_hubs_certificate_authority() {
        let directory = tempfile::tempdir().unwrap();
        let (kubeconfig, ca) =
            (directory.path().join("kubeconfig"), directory.path().join("ca.crt"));
        for is_inline in [true, false] {
            let (first, trusted) = certificate();
            let mut server = Server::start(first).await;
            let address = server.address;
            let trust = |pem: String| {
                std::fs::write(&ca, &pem).unwrap();
                let trusted = if is_inline {
                    format!("certificate-authority-data: {}", STANDARD.encode(pem))
                } else {
                    "certificate-authority: ca.crt".to_owned()
                };
                let text = format!(
                    "{{clusters: [{{name: hub, cluster: {{server: 'https://{address}', {trusted}}}}}], \
                     users: [{{name: us, user: {{token: t}}}}], current-context: at, \
                     contexts: [{{name: at, context: {{cluster: hub, user: us}}}}]}}"
                );
                std::fs::write(&kubeconfig, text).unwrap();
            };
            trust(trusted.pem());
            let config = config(Some(&kubeconfig)).await.unwrap();
            let client = client(config, Some(&kubeconfig)).await.unwrap();
            let get = || client.request_text(http::Request::get("/").body(Vec::new()).unwrap());
            assert_eq!(get().await.unwrap(), "ok");
            let (second, trusted) = certificate();
            server.restart(second).await;
            assert!(get().await.is_err(), "the new certificate is of an unknown authority");
            trust(trusted.pem());
            assert_eq!(get().await.unwrap(), "ok", "inline: {is_inline}");
        }
    }

    #[tokio::test]
    async fn other_tasks_run_while_an_exec_plugin_gets_the_first_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("released");
        let response = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
        // It gives up after some time, so that the test fails instead of waiting for ever.
        let script = format!(
            "for i in $(seq 600); do [ -e \"$0\" ] && echo '{response}' && exit; sleep 0.05; done; exit 1"
        );
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info = serde_json::from_value(serde_json::json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script, path],
        } }))
        .unwrap();
        let release = async { std::fs::write(&path, "").unwrap() };
        let (client, ()) = tokio::join!(client(config, None), release);
        assert!(client.is_ok());
    }

    /// The timers of this process's connections between two ports, from the kernel: `02` is keepalive.
    #[cfg(target_os = "linux")]
    fn timer(from: u16, to: u16) -> Option<String> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port =
            |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).ok();
        table.lines().skip(1).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = port(fields[1]) == Some(from) && port(fields[2]) == Some(to);
            is_it.then(|| fields[5].split(':').next().unwrap().to_owned())
        })
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_that_is_silent_is_probed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let connection =
            connector().oneshot(format!("http://{there}").parse().unwrap()).await.unwrap();
        let mut extras = http::Extensions::new();
        connection.connected().get_extras(&mut extras);
        let info = extras.get::<hyper_util::client::legacy::connect::HttpInfo>().unwrap();
        assert_eq!(timer(info.local_addr().port(), there.port()).as_deref(), Some("02"));
    }
}
