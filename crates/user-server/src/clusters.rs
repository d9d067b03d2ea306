//! The connections to the API servers of clusters.
//!
//! Ordinary requests and watches of one namespace share connections with HTTP/2: a connection takes as many streams as
//! every server of HTTP/2 should allow, and another one is opened for more. No two namespaces share one, since an API
//! server ends a connection whose client resets many streams, and everything on it. A request that switches protocols
//! has a connection of its own. Each connection is one tunnel, and TLS in it is verified by the CA of the account.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioIo, TokioTimer};
use konnectivity::{Budget, Dialer, Tunnel};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::accounts::Account;
use crate::body::Upload;
use crate::metrics::{Counted, UserServerMetrics};
use crate::sessions::Session;
use crate::streams::{self, STREAM_WINDOW, Streaming, Streams, Unanswered};

/// The name of an API server in its certificate, which it has on every cluster.
const API_SERVER: &str = "kubernetes.default.svc";
/// The port at which cluster-proxy's agent serves its cluster's API server (`enableKubeApiProxy`).
const PORT: u16 = 443;
/// Open streams of one connection: a server should allow at least as many (RFC 9113, section 6.5.2), and more might
/// have to wait.
const STREAMS: usize = 100;
const CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;
/// What a client may send in one stream before it is written to the tunnel, whatever window the cluster has opened.
const SEND_BUFFER: usize = 32 << 10;
/// What TLS may hold for a peer that takes nothing: one record.
pub(crate) const TLS_BUFFER: usize = 16 << 10;
/// The head of a response that switches protocols.
const HEAD: usize = 64 << 10;
/// Timeout of a TLS handshake with an API server.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// PINGs to an API server, which notice a tunnel that delivers nothing.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What may wait in a tunnel to be read, and in all tunnels to one cluster. HTTP/2 makes a cluster wait while its connection
/// is read, and a cluster that takes nothing keeps it from being read.
const UNREAD: usize = 1 << 20;
const UNREAD_OF_CLUSTER: usize = 8 << 20;
/// The same of all clusters.
const UNREAD_OF_ALL: usize = 32 << 20;
/// How long a connection stays open without a new stream, and how long where there are many connections. Each namespace
/// has its own to each cluster that it uses, so they must not add up.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
const IDLE_TIMEOUT_OF_MANY: Duration = Duration::from_secs(10);
const MANY: i64 = 1000;
/// The least number of pools that are added before the unused ones are forgotten.
const MANY_POOLS: usize = 1000;
/// How long no connection is tried after one has failed: the requests that wait for it fail with it.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// The connections to all clusters.
pub(crate) struct Clusters {
    dialer: Dialer,
    pools: Mutex<Pools>,
    unread: Budget,
    /// How many connections of one namespace stay open without a stream.
    idle_per_namespace: usize,
    metrics: UserServerMetrics,
}

#[derive(Default)]
struct Pools {
    /// The connections from each namespace.
    from: HashMap<Namespace, HashMap<ClusterName, Arc<Pool>>>,
    /// The budget of all connections to each cluster, at least of those in `from`.
    to: HashMap<ClusterName, Budget>,
    /// How many may be added before the unused ones are forgotten: as many as there are, so that this costs little.
    room: usize,
}

impl Pools {
    fn forget_unused(&mut self) {
        let Self { from, to, room } = self;
        from.retain(|_, pools| {
            pools.retain(|_, pool| !Pool::is_unused(pool));
            !pools.is_empty()
        });
        let used: HashSet<_> = from.values().flat_map(HashMap::keys).collect();
        // A connection that its pool has dropped counts until its last stream has ended.
        to.retain(|cluster, budget| used.contains(cluster) || budget.is_shared());
        *room = from.values().map(HashMap::len).sum::<usize>().max(MANY_POOLS);
    }
}

/// The connections from one namespace to one cluster.
#[derive(Default)]
struct Pool {
    connections: Mutex<Vec<Connection>>,
    /// Held while a connection is opened; when and why the last attempt has failed.
    opening: Arc<tokio::sync::Mutex<Option<(Instant, String)>>>,
}

struct Connection {
    tls: Arc<ClientConfig>,
    sender: http2::SendRequest<Upload>,
    /// Cancelled when the proxy server does not respond under it.
    doubt: CancellationToken,
    /// Each open stream has a clone.
    streams: Arc<Streaming>,
    /// When the last stream was opened.
    used: Instant,
}

/// One stream of a connection.
pub(crate) struct Slot {
    pub(crate) sender: http2::SendRequest<Upload>,
    /// The stream counts until this is dropped.
    pub(crate) stream: Arc<Streaming>,
}

impl Slot {
    /// A request is sent in the stream.
    pub(crate) fn sent(&self) -> Unanswered {
        Unanswered::new(&self.stream)
    }
}

impl Pool {
    /// A stream on a connection with this TLS configuration, if one has room. Drops connections that are closed or in
    /// doubt or have another TLS configuration, and all idle ones but one; streams that are open on them go on.
    fn take(&self, tls: &Arc<ClientConfig>) -> Option<Slot> {
        let mut connections = self.connections.lock();
        let mut is_one_idle = false;
        connections.retain(|connection| {
            let is_idle = connection.open_streams() == 0;
            let is_over = connection.sender.is_closed() || connection.doubt.is_cancelled();
            let is_current = !is_over && Arc::ptr_eq(&connection.tls, tls);
            is_current && !(is_idle && std::mem::replace(&mut is_one_idle, true))
        });
        connections
            .iter_mut()
            .find(|connection| connection.open_streams() < STREAMS)
            .map(Connection::take)
    }

    /// A stream on a connection that has room, or on a new one. One is opened at a time; requests that come meanwhile wait
    /// for it.
    async fn stream<F>(
        &self,
        tls: &Arc<ClientConfig>,
        open: impl FnOnce() -> F,
    ) -> Result<Slot, String>
    where
        F: Future<Output = Result<Slot, String>> + Send + 'static,
    {
        if let Some(slot) = self.take(tls) {
            return Ok(slot);
        }
        let mut failed = Arc::clone(&self.opening).lock_owned().await;
        // Another request may have opened a connection meanwhile.
        if let Some(slot) = self.take(tls) {
            return Ok(slot);
        }
        if let Some(cause) = remembered(failed.as_ref()) {
            return Err(cause.to_owned());
        }
        let opening = open();
        finish(async move {
            let opened = opening.await;
            *failed = opened.as_ref().err().map(|cause| (Instant::now(), cause.clone()));
            opened
        })
        .await
    }

    /// When the connections without an open stream were last used.
    fn idle(&self) -> Vec<Instant> {
        let connections = self.connections.lock();
        connections.iter().filter(|it| it.open_streams() == 0).map(|it| it.used).collect()
    }

    /// Drops connections without an open stream, as the time of their last use decides.
    fn drop_idle(&self, is_over: impl Fn(Instant) -> bool) {
        let mut connections = self.connections.lock();
        connections.retain(|it| it.open_streams() > 0 || !is_over(it.used));
    }

    /// Whether it has no connection and opens none, and no attempt has failed within [`FAILED_FOR`].
    fn is_unused(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1
            && this.connections.lock().is_empty()
            && this.opening.try_lock().is_ok_and(|failed| remembered(failed.as_ref()).is_none())
    }
}

/// Why the last attempt to connect has failed, if that was within [`FAILED_FOR`].
fn remembered(failed: Option<&(Instant, String)>) -> Option<&str> {
    let (at, cause) = failed?;
    (at.elapsed() < FAILED_FOR).then_some(cause)
}

impl Connection {
    fn open_streams(&self) -> usize {
        // The connection itself has one.
        Arc::strong_count(&self.streams) - 1
    }

    fn take(&mut self) -> Slot {
        self.used = Instant::now();
        Slot { sender: self.sender.clone(), stream: Arc::clone(&self.streams) }
    }
}

impl Clusters {
    pub(crate) fn new(
        dialer: Dialer,
        idle_per_namespace: usize,
        metrics: UserServerMetrics,
    ) -> Self {
        Self {
            dialer,
            pools: Mutex::default(),
            unread: Budget::new(UNREAD_OF_ALL),
            idle_per_namespace,
            metrics,
        }
    }

    /// Forgets the connections to a cluster on which there is no account any more.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        let Pools { from, to, .. } = &mut *self.pools.lock();
        // A client can ask for such a cluster at any rate.
        if to.remove(cluster).is_none() {
            return;
        }
        from.retain(|_, pools| {
            pools.remove(cluster);
            !pools.is_empty()
        });
    }

    /// The connections from a namespace to a cluster, and the budget of all to the cluster.
    fn pool(&self, key: &ProfileKey) -> (Arc<Pool>, Budget) {
        let mut pools = self.pools.lock();
        let is_known =
            pools.from.get(&key.namespace).is_some_and(|it| it.contains_key(&key.cluster));
        if !is_known {
            match pools.room.checked_sub(1) {
                Some(room) => pools.room = room,
                None => pools.forget_unused(),
            }
        }
        let Pools { from, to, .. } = &mut *pools;
        let unread = to.entry(key.cluster.clone());
        let unread = unread.or_insert_with(|| self.unread.part(UNREAD_OF_CLUSTER)).clone();
        let pools = from.entry(key.namespace.clone()).or_default();
        (Arc::clone(pools.entry(key.cluster.clone()).or_default()), unread)
    }

    /// Leaves a namespace, which may have grants to thousands of clusters, its newest idle connections.
    fn limit_idle(&self, namespace: &Namespace) {
        let pools = self.pools.lock();
        let Some(pools) = pools.from.get(namespace) else { return };
        let mut idle: Vec<_> = pools.values().flat_map(|pool| pool.idle()).collect();
        if idle.len() > self.idle_per_namespace {
            idle.sort_unstable();
            let newest = idle.split_off(idle.len() - self.idle_per_namespace);
            for pool in pools.values() {
                pool.drop_idle(|used| newest.first().is_none_or(|first| used < *first));
            }
        }
    }

    /// A stream for a request to the API server of a cluster, or why that cannot be reached.
    pub(crate) async fn stream(
        self: &Arc<Self>,
        session: &Arc<Session>,
        account: &Account,
    ) -> Result<Slot, String> {
        let (pool, unread) = self.pool(session.key());
        let open = || {
            // The request counts until what it has begun has ended.
            let (this, pool, session) = (Arc::clone(self), Arc::clone(&pool), Arc::clone(session));
            let (tls, unread) = (Arc::clone(&account.tls), unread.part(UNREAD));
            async move {
                let key = session.key();
                let mut connection = this.connect(&key.cluster, tls, &unread, &pool).await?;
                let slot = connection.take();
                pool.connections.lock().push(connection);
                this.limit_idle(&key.namespace);
                Ok(slot)
            }
        };
        pool.stream(&account.tls, open).await
    }

    async fn connect(
        &self,
        name: &ClusterName,
        tls: Arc<ClientConfig>,
        unread: &Budget,
        pool: &Arc<Pool>,
    ) -> Result<Connection, String> {
        let stream = self.dial(name, Arc::clone(&tls), unread).await?;
        let doubt = stream.get_ref().0.doubt();
        let (streams, tunnels) = (Arc::default(), &self.metrics.tunnels);
        let pool = Arc::downgrade(pool);
        let sender = open(TokioIo::new(stream), name, pool, &streams, tunnels).await?;
        Ok(Connection { tls, sender, doubt, streams, used: Instant::now() })
    }

    /// A connection for one request, which can switch protocols. What its client does not read counts in this budget, which
    /// keeps the request counted until a dial that was given up has ended.
    pub(crate) async fn upgradable(
        self: &Arc<Self>,
        name: &ClusterName,
        account: &Account,
        budget: &Budget,
    ) -> Result<http1::SendRequest<Upload>, String> {
        let (this, name) = (Arc::clone(self), name.clone());
        let (tls, budget) = (Arc::clone(&account.upgradable_tls), budget.clone());
        let stream = finish(async move { this.dial(&name, tls, &budget).await }).await?;
        let handshake =
            http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| error.to_string())?;
        let counted = Counted::new(&self.metrics.tunnels);
        tokio::spawn(streams::run(CancellationToken::new(), async move {
            let _ = connection.with_upgrades().await;
            drop(counted);
        }));
        Ok(sender)
    }

    async fn dial(
        &self,
        name: &ClusterName,
        tls: Arc<ClientConfig>,
        budget: &Budget,
    ) -> Result<Box<TlsStream<Tunnel>>, String> {
        let tunnel = self.dialer.dial(&format!("{name}:{PORT}"), budget).await;
        let tunnel = tunnel.map_err(|error| error.to_string())?;
        let server = ServerName::try_from(API_SERVER).map_err(|error| error.to_string())?;
        match timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(tls).connect(server, tunnel)).await {
            Ok(Ok(mut stream)) => {
                stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
                Ok(Box::new(stream))
            }
            Ok(Err(error)) => Err(format!(
                "the TLS handshake with its API server failed: {}",
                server_check::explained(&error)
            )),
            Err(_) => Err("the TLS handshake with its API server timed out".to_owned()),
        }
    }
}

/// Runs an attempt to connect to its end, also if its request is given up. Otherwise each request that waits would begin a
/// dial and reset it: some servers of HTTP/2 end a connection for that, and all tunnels on it.
fn finish<T: Send + 'static>(
    attempt: impl Future<Output = Result<T, String>> + Send + 'static,
) -> impl Future<Output = Result<T, String>> {
    tokio::spawn(attempt).map(|ended| ended.unwrap_or_else(|error| Err(error.to_string())))
}

/// Begins HTTP/2 on a stream. The connection ends once its pool has dropped it and none of its streams is open, also if the
/// cluster does not take the end of it.
async fn open<S>(
    stream: S,
    name: &ClusterName,
    pool: Weak<Pool>,
    streams: &Arc<Streaming>,
    tunnels: &Gauge,
) -> Result<http2::SendRequest<Upload>, String>
where
    S: Read + Write + Send + Unpin + 'static,
{
    let handshake = http2::Builder::new(Streams)
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(stream);
    let (name, tunnels, end) = (name.clone(), tunnels.clone(), streams.end.clone());
    let (streams, (opened, opening)) = (Arc::downgrade(streams), oneshot::channel());
    // Not within the request that opens it: everything of the connection is spawned in this task, and ends with it.
    tokio::spawn(streams::run(end.clone(), async move {
        let (opening, connection) = handshake
            .await
            .map_or_else(|error| (Err(error), None), |(sender, it)| (Ok(sender), Some(it)));
        let (Ok(()), Some(connection)) = (opened.send(opening), connection) else { return };
        let _counted = Counted::new(&tunnels);
        let closing = async {
            while streams.strong_count() > 0 {
                sleep(IDLE_TIMEOUT_OF_MANY).await;
                if let Some(pool) = pool.upgrade() {
                    let timeout =
                        if tunnels.get() > MANY { IDLE_TIMEOUT_OF_MANY } else { IDLE_TIMEOUT };
                    pool.drop_idle(|used| used.elapsed() >= timeout);
                }
            }
        };
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(cluster = %name, "a connection has ended: {error}");
            },
            () = closing => end.cancel(),
        }
    }));
    let opened = opening.await.map_err(|_| "its connection has ended".to_owned())?;
    opened.map_err(|error| format!("its API server does not speak HTTP/2: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hub_runtime::observe::metrics::Metrics;
    use hyper::body::Incoming;
    use hyper::server::conn::http2 as server;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioExecutor;
    use rustls::RootCertStore;
    use rustls::crypto::ring;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    fn tls() -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
    }

    /// Adds a connection to a pool.
    async fn connect(
        pool: &Arc<Pool>,
        tls: &Arc<ClientConfig>,
        stream: DuplexStream,
        tunnels: &Gauge,
    ) {
        let (streams, weak) = (Arc::default(), Arc::downgrade(pool));
        let (stream, name, doubt) = (TokioIo::new(stream), "c1".into(), CancellationToken::new());
        let sender = open(stream, &name, weak, &streams, tunnels).await.unwrap();
        let connection =
            Connection { tls: Arc::clone(tls), sender, doubt, streams, used: Instant::now() };
        pool.connections.lock().push(connection);
    }

    /// The API server at the other end.
    fn serve(stream: DuplexStream) {
        let answer = service_fn(async |_: Request<Incoming>| {
            Ok::<_, hyper::Error>(Response::new(String::new()))
        });
        tokio::spawn(
            server::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer),
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_once_it_has_been_idle_and_none_with_an_open_stream() {
        for (others, timeout) in [(0, IDLE_TIMEOUT), (MANY, IDLE_TIMEOUT_OF_MANY)] {
            let (ours, theirs) = duplex(64 << 10);
            serve(theirs);
            let (pool, tls, tunnels) = (Arc::<Pool>::default(), tls(), Gauge::default());
            tunnels.inc_by(others);
            connect(&pool, &tls, ours, &tunnels).await;
            let slot = pool.take(&tls).unwrap();
            sleep(10 * IDLE_TIMEOUT).await;
            assert_eq!((tunnels.get(), Pool::is_unused(&pool)), (others + 1, false));

            drop((slot, pool.take(&tls).unwrap()));
            sleep(timeout / 2).await;
            assert!(!Pool::is_unused(&pool));
            sleep(timeout / 2 + IDLE_TIMEOUT_OF_MANY).await;
            assert_eq!((tunnels.get(), Pool::is_unused(&pool)), (others, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_its_pool_has_dropped_ends_although_the_cluster_takes_nothing() {
        // The preface of HTTP/2 fits in, and nothing after it.
        let (ours, theirs) = duplex(24);
        let (pool, tls, tunnels) = (Arc::<Pool>::default(), tls(), Gauge::default());
        connect(&pool, &tls, ours, &tunnels).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(tunnels.get(), 1);
        pool.connections.lock().clear();
        sleep(2 * IDLE_TIMEOUT_OF_MANY).await;
        assert_eq!(tunnels.get(), 0);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_leave_one_attempt_to_connect_to_those_that_follow() {
        let (pool, tls, attempts) = (Arc::<Pool>::default(), tls(), Arc::new(AtomicUsize::new(0)));
        let request = || {
            let (pool, tls, attempts) =
                (Arc::clone(&pool), Arc::clone(&tls), Arc::clone(&attempts));
            let opening = (Arc::clone(&pool), Arc::clone(&tls));
            tokio::spawn(async move {
                let open = || async move {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_secs(1)).await;
                    let ((pool, tls), (ours, theirs)) = (opening, duplex(64 << 10));
                    serve(theirs);
                    connect(&pool, &tls, ours, &Gauge::default()).await;
                    pool.take(&tls).ok_or_else(String::new)
                };
                pool.stream(&tls, open).await.is_ok()
            })
        };
        for request in [(); 50].map(|()| request()) {
            sleep(Duration::from_millis(1)).await;
            request.abort();
        }
        assert!(request().await.unwrap());
        assert_eq!(attempts.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_keeps_its_newest_idle_connections_and_no_more() {
        let (_, metrics) = Metrics::with("0", UserServerMetrics::register);
        let (tls, tunnels) = (tls(), Gauge::default());
        let clusters = Clusters::new(Dialer::new("proxy".to_owned(), 1), 2, metrics);
        let mut pools = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let (pool, _) =
                clusters.pool(&ProfileKey { namespace: "team".into(), cluster: name.into() });
            let (ours, theirs) = duplex(64 << 10);
            serve(theirs);
            connect(&pool, &tls, ours, &tunnels).await;
            pools.push(pool);
            sleep(Duration::from_secs(1)).await;
        }
        let busy = pools[0].take(&tls).unwrap();
        let other = clusters.pool(&ProfileKey { namespace: "other".into(), cluster: "b".into() }).0;
        connect(&other, &tls, duplex(64 << 10).0, &tunnels).await;
        clusters.limit_idle(&"team".into());
        let kept: Vec<_> = pools.iter().map(|pool| pool.connections.lock().len()).collect();
        assert_eq!((kept, other.connections.lock().len()), (vec![1, 0, 1, 1], 1));
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn unused_pools_are_forgotten_in_time_and_none_while_its_failure_is_remembered() {
        let (_, metrics) = Metrics::with("0", UserServerMetrics::register);
        let clusters = Clusters::new(Dialer::new("proxy".to_owned(), 1), 2, metrics);
        let pool = |namespace: &str, name: &str| {
            clusters.pool(&ProfileKey { namespace: namespace.into(), cluster: name.into() }).0
        };
        let (tls, failing) = (tls(), pool("team", "failing"));
        let fail = || async { Err("no route".to_owned()) };
        assert!(failing.stream(&tls, fail).await.is_err());
        drop(failing);
        for is_remembered in [true, false] {
            for number in 0..=MANY_POOLS {
                pool(&format!("{is_remembered}-{number}"), "idle");
            }
            let (namespaces, to) = {
                let pools = clusters.pools.lock();
                (pools.from.len(), pools.to.len())
            };
            assert!(namespaces <= MANY_POOLS + 2 && to <= 2, "{namespaces} {to}");
            let failed = pool("team", "failing").opening.lock().await.is_some();
            assert_eq!(failed, is_remembered);
            sleep(FAILED_FOR).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_stream_is_opened_on_a_connection_with_the_ca_of_before() {
        let (ours, theirs) = duplex(64 << 10);
        serve(theirs);
        let (pool, tls_of_before, tunnels) = (Arc::<Pool>::default(), tls(), Gauge::default());
        connect(&pool, &tls_of_before, ours, &tunnels).await;
        assert!(pool.take(&tls_of_before).is_some());
        assert!(pool.take(&tls()).is_none());
        assert!(pool.connections.lock().is_empty());
    }
}
