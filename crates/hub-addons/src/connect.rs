//! Configuration and client for the hub.

use std::path::Path;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Uri};
use hub_runtime::watch::WATCH_DURATION;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::net::TcpStream;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::connections::{Connections, PATIENCE};

/// Timeout of a connection attempt, including a wait of up to [`PATIENCE`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP keepalive, which detects a peer that is gone without closing the connection, such as a failed machine or a load
/// balancer that lost its state. After this time without data, probes are sent at this interval. The connection ends if
/// this many probes are not acknowledged, or if sent data is not acknowledged for as long as that takes. Otherwise a
/// quiet watch would notice only at its timeout.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;

/// Read timeout of a connection, so that no list blocks forever. A watch ends earlier by itself.
const READ_TIMEOUT: Duration = WATCH_DURATION.saturating_add(Duration::from_secs(15));

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file of `--kubeconfig` cannot be used.
    #[error("cannot use the kubeconfig {path}: {}", first_line(.source))]
    Kubeconfig { path: String, source: KubeconfigError },
    /// The Pod's ServiceAccount cannot be used.
    #[error("cannot use the Pod's ServiceAccount: {}", first_line(.0))]
    InCluster(#[source] kube::config::InClusterError),
    /// There is neither a Pod's ServiceAccount nor a kubeconfig.
    #[error(
        "cannot find the hub: not in a Pod, and neither $KUBECONFIG nor ~/.kube/config can be used ({}); \
         set --kubeconfig to use another file",
        first_line(.0)
    )]
    Nothing(#[source] KubeconfigError),
    /// The configuration is not valid for a client.
    #[error("cannot create a client for the hub: {}", hub_runtime::write::error::summary(.0))]
    Client(#[source] kube::Error),
}

/// The hub's configuration: the given file, else the Pod's ServiceAccount, else kubectl's default.
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
    // The queue retries, and knows how to handle the result of a repeated request; a client that repeats a POST by
    // itself turns a lost response into an unexplained conflict.
    config.default_retry = false;
    let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

/// A client with this configuration.
///
/// It consists of the layers of kube's own client, whose connector has no keepalive and cannot be replaced.
/// An exec plugin in the kubeconfig runs here for the first token, without a timeout. It runs on a thread of its own,
/// so that probes get a response meanwhile; kube runs it for later tokens in the same way.
pub async fn client(config: Config) -> Result<Client, ConnectError> {
    let client = move || layered(config, connector(), Connections::new(PATIENCE));
    let built = tokio::task::spawn_blocking(client).await;
    let built = built.unwrap_or_else(|error| Err(kube::Error::Service(error.into())));
    built.map_err(ConnectError::Client)
}

fn layered<C>(config: Config, tcp: C, connections: Connections) -> kube::Result<Client>
where
    C: Service<Uri, Response = TokioIo<TcpStream>, Error: Into<BoxError>, Future: Send>,
    C: Clone + Send + Sync + 'static,
{
    let of_connector = connections.clone();
    let tcp = tcp.map_err(C::Error::into).map_future(move |connect| of_connector.clone().connect(connect));
    let https = config.rustls_https_connector_with_connector(tcp)?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_future(move |response| connections.clone().request(response))
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
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

fn first_line(error: &impl std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use hyper_util::client::legacy::connect::Connection as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Responds to every request, and counts the connections.
    async fn serve(listener: TcpListener, accepted: Arc<AtomicUsize>) {
        while let Ok((mut connection, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while connection.read_buf(&mut request).await.is_ok_and(|length| length > 0) {
                    if request.ends_with(b"\r\n\r\n") {
                        request.clear();
                        tokio::task::yield_now().await;
                        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        connection.write_all(response).await.unwrap();
                    }
                }
            });
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn there_are_never_more_connections_than_there_were_requests_at_once() {
        const REQUESTS: usize = 8;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(serve(listener, Arc::clone(&accepted)));
        // As slow as a handshake with a loaded server.
        let slow = connector().map_future(async |connection| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            connection.await
        });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = layered(config, slow, Connections::new(Duration::MAX)).unwrap();
        join_all((0..REQUESTS).map(async |_| {
            for _ in 0..100 {
                let request = http::Request::get("/").body(Vec::new()).unwrap();
                assert_eq!(client.request_text(request).await.unwrap(), "ok");
            }
        }))
        .await;
        server.abort();
        let accepted = accepted.load(Ordering::Relaxed);
        assert!((1..=REQUESTS).contains(&accepted), "{accepted} connections for {REQUESTS} requests at once");
    }

    #[tokio::test]
    async fn a_client_for_a_command_waits_while_the_storage_of_the_hub_is_initialized() {
        let respond = async |retries: bool| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut config =
                Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
            config.default_retry = retries;
            let server = tokio::spawn(async move {
                let status = br#"{"kind":"Status","status":"Failure","code":429,"message":"storage is (re)initializing"}"#;
                let refusal = format!(
                    "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    status.len()
                );
                let refusal = [refusal.as_bytes(), status].concat();
                let success = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".to_vec();
                for response in [refusal.clone(), refusal, success] {
                    let Ok((mut connection, _)) = listener.accept().await else { return };
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        connection.read_buf(&mut request).await.unwrap();
                    }
                    connection.write_all(&response).await.unwrap();
                }
            });
            let request = http::Request::get("/").body(Vec::new()).unwrap();
            let response = client(config).await.unwrap().request_text(request).await;
            server.abort();
            response
        };
        assert_eq!(respond(true).await.unwrap(), "ok");
        let refused = respond(false).await.unwrap_err();
        assert!(
            matches!(refused, kube::Error::Api(status) if status.code == 429),
            "the queue of a controller retries"
        );
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
        let (client, ()) = tokio::join!(client(config), release);
        assert!(client.is_ok());
    }

    /// The timers of this process's connections between two ports, from the kernel: `02` is keepalive.
    #[cfg(target_os = "linux")]
    fn timer(from: u16, to: u16) -> Option<String> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).ok();
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
        let connection = connector().oneshot(format!("http://{there}").parse().unwrap()).await.unwrap();
        let mut extras = http::Extensions::new();
        connection.connected().get_extras(&mut extras);
        let info = extras.get::<hyper_util::client::legacy::connect::HttpInfo>().unwrap();
        assert_eq!(timer(info.local_addr().port(), there.port()).as_deref(), Some("02"));
    }
}
