//! The HTTP endpoints of the process: `/livez`, `/readyz` and `/metrics`.
//!
//! The two probes have different meanings. `/livez` fails if a restart would help: a task that must run as long as the
//! process has ended. `/readyz` fails while the process cannot work: a watch has not received its first list, or could
//! neither list nor watch for a minute. A process that waits for its Lease is ready, since it can take over.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hub_api::text::Text;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::observe::metrics::Metrics;
use crate::observe::serving;

/// The state that the probes report.
#[derive(Clone, Default)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    failed_task: Mutex<Option<String>>,
    syncs: Mutex<BTreeMap<WatchId, Sync>>,
    conditions: Mutex<BTreeMap<&'static str, Result<(), String>>>,
    stopping: Mutex<bool>,
    /// Whether the process is ready while what it needs is unknown.
    tells_clients: AtomicBool,
    /// Wakes waiting tasks in the order of their arrival.
    changed: Notify,
}

/// What identifies a watch, or several late ones: two controllers in a process may watch the same resource, and one may
/// watch it in several namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId {
    controller: &'static str,
    resource: &'static str,
    namespace: Option<Text>,
}

impl WatchId {
    pub(crate) fn new(
        controller: &'static str,
        resource: &'static str,
        namespace: Option<Text>,
    ) -> Self {
        Self { controller, resource, namespace }
    }

    /// The controller and the resource, which are labels of metrics.
    pub(crate) fn names(&self) -> (&'static str, &'static str) {
        (self.controller, self.resource)
    }
}

impl From<(&'static str, &'static str)> for WatchId {
    fn from((controller, resource): (&'static str, &'static str)) -> Self {
        Self::new(controller, resource, None)
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.controller, self.resource)?;
        self.namespace.iter().try_for_each(|namespace| write!(f, " in {namespace}"))
    }
}

/// Whether the process can work without a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The process waits for the first list.
    Required,
    /// The process waits for the first response, even an error: the kind may belong to an addon that is not installed.
    /// What depends on it is unknown until there is a list.
    Optional,
    /// The watch starts while the process already works. Probes do not report it.
    Late,
}

/// The state of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sync {
    Waiting,
    Listed,
    /// It fails, and the process works without it.
    Missing,
    /// What it has shown is unknown, for this reason.
    Unread(Need, String),
}

impl Sync {
    /// Whether the process can work.
    fn is_ready(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Unread(Need::Required, _))
    }
}

/// Where a watch reports that its first list is complete.
#[derive(Clone)]
pub struct SyncState {
    health: Health,
    pub(crate) metrics: Metrics,
    name: WatchId,
    need: Need,
}

impl SyncState {
    #[must_use]
    pub fn resource(&self) -> &'static str {
        self.name.resource
    }

    pub(crate) fn id(&self) -> &WatchId {
        &self.name
    }

    pub(crate) fn need(&self) -> Need {
        self.need
    }

    /// Records that the first list is complete.
    pub fn mark_synced(&self) {
        self.set(Sync::Listed);
    }

    /// Records that a list or watch has failed, which counts only until the first list is complete.
    pub fn mark_failing(&self) {
        let is_waiting = self.health.inner.syncs.lock().get(&self.name) == Some(&Sync::Waiting);
        if self.need == Need::Optional && is_waiting {
            self.set(Sync::Missing);
        }
    }

    /// Records that no object exists, since the hub does not serve the kind.
    pub(crate) fn mark_missing(&self) {
        self.set(Sync::Missing);
    }

    /// Records that what the watch has shown is unknown, and why, until the next list is complete.
    pub(crate) fn mark_unread(&self, why: &str) {
        self.set(Sync::Unread(self.need, why.to_owned()));
    }

    /// The watch has ended, and readiness no longer depends on it.
    pub(crate) fn forget(&self) {
        if self.need != Need::Late {
            self.health.inner.syncs.lock().remove(&self.name);
            self.health.inner.changed.notify_waiters();
        }
    }

    fn set(&self, sync: Sync) {
        if self.need == Need::Late {
            return;
        }
        let mut syncs = self.health.inner.syncs.lock();
        syncs.insert(self.name.clone(), sync);
        let mut alike = syncs.iter().filter(|(name, _)| name.names() == self.name.names());
        self.metrics.watch_synced(self.name.names(), alike.all(|(_, sync)| *sync == Sync::Listed));
        drop(syncs);
        self.health.inner.changed.notify_waiters();
    }
}

impl Health {
    /// Makes readiness depend on a watch.
    #[must_use]
    pub fn expect_sync(
        &self,
        name: impl Into<WatchId>,
        need: Need,
        metrics: &Metrics,
    ) -> SyncState {
        let name = name.into();
        metrics.declare_watch(name.names());
        if need != Need::Late {
            self.inner.syncs.lock().insert(name.clone(), Sync::Waiting);
            metrics.watch_synced(name.names(), false);
        }
        SyncState { health: self.clone(), metrics: metrics.clone(), name, need }
    }

    /// Waits until every watch is as far as the process needs it.
    pub async fn all_synced(&self) {
        loop {
            let changed = self.inner.changed.notified();
            if self.inner.syncs.lock().values().all(Sync::is_ready) {
                return;
            }
            changed.await;
        }
    }

    /// Records that a task has ended that must run as long as the process.
    pub fn task_failed(&self, task: impl Into<String>) {
        self.inner.failed_task.lock().get_or_insert(task.into());
    }

    /// Makes readiness depend on a condition, or updates it: `Err` is why it is not met.
    pub fn set_condition(&self, name: &'static str, condition: Result<(), String>) {
        self.inner.conditions.lock().insert(name, condition);
    }

    /// Lets the process be ready while what it needs is unknown: it tells that to its clients, whom a Service leads to ready
    /// processes alone.
    pub fn tells_clients(&self) {
        self.inner.tells_clients.store(true, Ordering::Relaxed);
    }

    /// The process is stopping: no longer ready.
    pub fn stopping(&self) {
        *self.inner.stopping.lock() = true;
    }

    fn live(&self) -> (bool, String) {
        match &*self.inner.failed_task.lock() {
            None => (true, "ok\n".to_owned()),
            Some(task) => (false, format!("[-] {task} has ended\n")),
        }
    }

    pub(crate) fn ready(&self) -> (bool, String) {
        let mut text = String::new();
        let stopping = *self.inner.stopping.lock();
        if stopping {
            text.push_str("[-] stopping\n");
        }
        let syncs = self.inner.syncs.lock();
        for (name, sync) in syncs.iter() {
            let state = match sync {
                Sync::Waiting => "waiting for the first list",
                Sync::Listed => "ok",
                Sync::Missing => "unavailable, working without it",
                Sync::Unread(_, why) => why,
            };
            let mark = if sync.is_ready() { '+' } else { '-' };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "[{mark}] {name}: {state}");
        }
        let conditions = self.inner.conditions.lock();
        for (name, condition) in conditions.iter() {
            let (mark, state) =
                condition.as_ref().map_or_else(|why| ('-', why.as_str()), |()| ('+', "ok"));
            let _ = writeln!(text, "[{mark}] {name}: {state}");
        }
        let tells_clients = self.inner.tells_clients.load(Ordering::Relaxed);
        let is_ready =
            |sync: &Sync| sync.is_ready() || tells_clients && matches!(sync, Sync::Unread(..));
        let ready =
            !stopping && syncs.values().all(is_ready) && conditions.values().all(Result::is_ok);
        text.push_str(if ready { "ok\n" } else { "not ready\n" });
        (ready, text)
    }
}

/// Why an address cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    address: BindAddress,
    source: std::io::Error,
}

/// Where to listen: `IP:PORT`, or `:PORT` for all addresses of the machine. Port 0 selects a free port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAddress {
    text: String,
    /// The first address that can be bound is used: a machine without IPv6 still has IPv4.
    candidates: Vec<SocketAddr>,
}

impl BindAddress {
    /// Binds the first available address, and logs what is served at it.
    pub async fn bind(&self, served: &str) -> Result<TcpListener, BindError> {
        let bound = TcpListener::bind(&self.candidates[..]).await;
        let listener = bound.map_err(|source| BindError { address: self.clone(), source })?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "serving {served}");
        }
        Ok(listener)
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text is not a valid [`BindAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid address to listen on: must be IP:PORT, such as 127.0.0.1:8080, or :PORT for all addresses"
)]
pub struct InvalidBindAddress(String);

impl FromStr for BindAddress {
    type Err = InvalidBindAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidBindAddress(text.to_owned());
        let candidates = match text.strip_prefix(':') {
            Some(port) => {
                let port = port.parse().map_err(|_| invalid())?;
                vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
            }
            None => vec![text.parse().map_err(|_| invalid())?],
        };
        Ok(Self { text: text.to_owned(), candidates })
    }
}

/// Serves the probes until the process ends.
pub async fn serve_probes(
    address: &BindAddress,
    health: Health,
    metrics: Metrics,
) -> Result<(), BindError> {
    let livez = {
        let health = health.clone();
        move || async move { probe(health.live()) }
    };
    let readyz = move || async move { probe(health.ready()) };
    let router = Router::new().route("/livez", get(livez)).route("/readyz", get(readyz));
    serve("probes", address, router, metrics).await
}

pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the metrics until the process ends.
pub async fn serve_metrics(address: &BindAddress, metrics: Metrics) -> Result<(), BindError> {
    let counts = metrics.clone();
    let text = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) };
    serve("metrics", address, Router::new().route("/metrics", get(text)), counts).await
}

async fn serve(
    what: &'static str,
    address: &BindAddress,
    router: Router,
    metrics: Metrics,
) -> Result<(), BindError> {
    let listener = address.bind(what).await?;
    tokio::spawn(serving::serve(what, listener, router, metrics, async |stream| Ok(stream)));
    Ok(())
}

fn probe((ok, text): (bool, String)) -> impl IntoResponse {
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_means_that_every_watch_has_seen_its_first_list() {
        let (health, metrics) = (Health::default(), Metrics::new("0"));
        assert!(health.ready().0, "standing by is ready");
        let clusters = health.expect_sync(("fleet", "managedclusters"), Need::Required, &metrics);
        let sets = health.expect_sync(("fleet", "managedclustersets"), Need::Required, &metrics);
        clusters.mark_synced();
        let (ready, text) = health.ready();
        assert!(!ready);
        assert!(
            text.contains("[-] fleet: managedclustersets: waiting for the first list"),
            "{text}"
        );
        sets.mark_synced();
        health.all_synced().await;
        assert!(health.ready().0);
    }

    #[test]
    fn a_process_that_tells_its_clients_is_ready_while_a_kind_is_unknown_and_not_before_its_first_list()
     {
        for tells_clients in [false, true] {
            let (health, metrics) = (Health::default(), Metrics::new("0"));
            if tells_clients {
                health.tells_clients();
            }
            let clusters =
                health.expect_sync(("fleet", "managedclusters"), Need::Required, &metrics);
            assert!(!health.ready().0);
            clusters.mark_synced();
            clusters.mark_unread("could not be read for a minute");
            let (ready, text) = health.ready();
            assert_eq!(ready, tells_clients);
            assert!(
                text.contains("[-] fleet: managedclusters: could not be read for a minute"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_kind_that_is_not_installed_delays_only_what_needs_it() {
        let (health, metrics) = (Health::default(), Metrics::new("0"));
        let needed = health.expect_sync(("fleet", "managedclusters"), Need::Required, &metrics);
        let addon =
            health.expect_sync(("provisioner", "managedclusteraddons"), Need::Optional, &metrics);
        needed.mark_synced();
        assert!(!health.ready().0, "the addon's watch has no response yet");
        let is_synced = |count: u8| {
            let line = format!(
                "watch_synced{{controller=\"provisioner\",resource=\"managedclusteraddons\"}} {count}\n"
            );
            metrics.text().contains(&line)
        };
        addon.mark_failing();
        assert!(health.ready().0 && is_synced(0));
        addon.mark_synced();
        addon.mark_failing();
        assert!(health.ready().1.contains("[+] provisioner: managedclusteraddons: ok"));
        assert!(is_synced(1));
    }

    #[test]
    fn two_controllers_that_watch_the_same_resource_wait_for_their_own_lists() {
        let (health, metrics) = (Health::default(), Metrics::new("0"));
        let expect = |controller| {
            health.expect_sync((controller, "managedserviceaccounts"), Need::Optional, &metrics)
        };
        let is_synced = |controller, count: u8| {
            let labels = format!("controller=\"{controller}\",resource=\"managedserviceaccounts\"");
            assert!(
                metrics.text().contains(&format!("watch_synced{{{labels}}} {count}\n")),
                "{controller}"
            );
        };
        let (one, other) = (expect("one"), expect("other"));
        one.mark_synced();
        let (ready, text) = health.ready();
        assert!(!ready && text.contains("[-] other: managedserviceaccounts: waiting"), "{text}");
        is_synced("one", 1);
        is_synced("other", 0);
        other.mark_failing();
        let (ready, text) = health.ready();
        assert!(ready && text.contains("[+] other: managedserviceaccounts: unavailable"), "{text}");
        assert!(text.contains("[+] one: managedserviceaccounts: ok"), "{text}");
        other.forget();
        assert!(health.ready().1.contains("[+] one: managedserviceaccounts: ok"));
    }

    #[test]
    fn a_resource_that_is_watched_in_two_namespaces_waits_for_both() {
        let (health, metrics) = (Health::default(), Metrics::new("0"));
        let expect = |namespace: &str| {
            let name = WatchId::new("argocd", "secrets", Some(namespace.into()));
            health.expect_sync(name, Need::Optional, &metrics)
        };
        let (one, two) = (expect("one"), expect("two"));
        let synced = "watch_synced{controller=\"argocd\",resource=\"secrets\"}";
        one.mark_synced();
        let (ready, text) = health.ready();
        assert!(
            !ready && text.contains("[-] argocd: secrets in two: waiting for the first list"),
            "{text}"
        );
        assert!(metrics.text().contains(&format!("{synced} 0")));
        two.mark_synced();
        assert!(health.ready().0 && metrics.text().contains(&format!("{synced} 1")));
    }

    #[test]
    fn ready_means_that_every_condition_is_met() {
        let health = Health::default();
        health.set_condition("proxy server", Err("it cannot be reached".to_owned()));
        let (ready, text) = health.ready();
        assert!(!ready && text.contains("[-] proxy server: it cannot be reached\n"), "{text}");
        health.set_condition("proxy server", Ok(()));
        let (ready, text) = health.ready();
        assert!(ready && text.contains("[+] proxy server: ok\n"), "{text}");
    }

    #[test]
    fn an_address_is_a_port_or_an_address_with_a_port() {
        for good in [":8080", "127.0.0.1:0", "[::1]:9"] {
            assert_eq!(good.parse::<BindAddress>().unwrap().to_string(), good);
        }
        for bad in ["", "8080", ":http", "localhost:80", "127.0.0.1"] {
            assert!(
                bad.parse::<BindAddress>().unwrap_err().to_string().contains("IP:PORT"),
                "{bad}"
            );
        }
    }

    #[test]
    fn alive_means_that_no_task_of_ours_has_ended() {
        let health = Health::default();
        assert!(health.live().0);
        health.stopping();
        assert!(health.live().0, "a process that is stopping is alive");
        assert!(!health.ready().0);
        health.task_failed("profiles worker");
        assert_eq!(health.live(), (false, "[-] profiles worker has ended\n".to_owned()));
    }
}
