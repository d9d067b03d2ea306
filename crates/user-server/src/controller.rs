//! The user server as a controller.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_api::names::ClusterName;
use hub_api::secret::Secret;
use hub_core::fleet::{Fleet, Touched};
use hub_process::controller::{Controller, FleetKind};
use hub_process::process::Shared;
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::observe::health::Health;
use hub_runtime::observe::serving_certificate::ServingCertificate;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use konnectivity::Dialer;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access_log::AccessLog;
use crate::accounts::{Accounts, ProxySecrets};
use crate::admission::Admission;
use crate::clusters::Clusters;
use crate::forward::Entry;
use crate::review::Reviews;
use crate::serve;
use crate::settings::UserServerSettings;

/// The interval of the checks behind readiness.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The names of the readiness conditions.
const PROXY_SERVER: &str = "proxy server";
const REVIEWS: &str = "token reviews";

/// The watches on accounts that were reported before their clusters.
type LateWatches = Arc<Mutex<HashMap<ClusterName, HeldWatch>>>;

pub struct UserServer {
    settings: UserServerSettings,
    dialer: Dialer,
    entry: Arc<Entry>,
    health: Health,
    watches: OnceLock<Watches>,
    late: LateWatches,
    /// The listener and its certificate, until it serves.
    listener: Mutex<Option<(TcpListener, Arc<ServingCertificate>)>>,
}

impl UserServer {
    /// A user server that serves at this listener.
    #[must_use]
    pub fn new(
        shared: &Shared,
        settings: UserServerSettings,
        listener: TcpListener,
        certificate: Arc<ServingCertificate>,
    ) -> Self {
        let dialer = Dialer::new(settings.proxy_server.host.clone(), settings.proxy_server.port);
        let metrics = settings.metrics.clone();
        let admission =
            Admission::new(shared, settings.protected.clone(), settings.requests_per_namespace);
        let entry = Arc::new(Entry {
            reviews: Reviews::new(shared.host.client.clone(), settings.audience.clone()),
            accounts: Accounts::new(
                shared.fleet.clone(),
                shared.host.reporter("user-server"),
                settings.refuse_shared_authorities.then(|| admission.sessions.clone()),
            ),
            admission,
            clusters: Arc::new(Clusters::new(
                dialer.clone(),
                settings.requests_per_namespace,
                metrics.clone(),
            )),
            metrics,
            log: AccessLog(settings.access_log),
            upgraded: TaskTracker::new(),
            end: CancellationToken::new(),
        });
        let health = shared.host.health.clone();
        health.tells_clients();
        for condition in [PROXY_SERVER, REVIEWS] {
            health.set_condition(condition, Err("not checked yet".to_owned()));
        }
        let (watches, late, listener) =
            (OnceLock::new(), LateWatches::default(), Mutex::new(Some((listener, certificate))));
        Self { settings, dialer, entry, health, watches, late, listener }
    }

    fn needed<S>(&self, resource: &'static str, sink: S) -> Needed<S> {
        Needed { sink, resource, admission: self.entry.admission.clone() }
    }
}

/// Secrets without which no request is admitted.
struct Needed<S> {
    sink: S,
    resource: &'static str,
    admission: Admission,
}

impl<S: Sink<Secret>> Sink<Secret> for Needed<S> {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        self.sink.apply(key, object);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.sink.delete(key);
    }

    fn listed(&mut self) {
        self.admission.set_read(self.resource, true);
    }

    fn unread(&mut self) {
        self.admission.set_read(self.resource, false);
    }
}

/// Lists the account of one cluster. What changes later is an event of the watch on all accounts, so this one ends.
struct Late {
    accounts: Accounts,
    cluster: ClusterName,
    watches: LateWatches,
}

impl Sink<Secret> for Late {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        self.accounts.apply(key, object);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.accounts.delete(key);
    }

    fn listed(&mut self) {
        self.watches.lock().remove(&self.cluster);
    }
}

impl Controller for UserServer {
    fn name(&self) -> &'static str {
        self.entry.admission.name()
    }

    fn needs(&self) -> &'static [FleetKind] {
        self.entry.admission.needs()
    }

    fn watch(&self, watches: &Watches) {
        let _ = self.watches.set(watches.clone());
        let proxy = &self.settings.proxy_server;
        let secrets = ProxySecrets::new(self.dialer.clone(), proxy.clone());
        for (resource, name) in [
            ("secrets (client certificate)", &proxy.client_secret),
            ("secrets (CA of the proxy server)", &proxy.ca_secret),
        ] {
            let watch = Watch::<Secret>::all(resource).in_namespace(proxy.namespace.as_str());
            watches.watch(watch.named(name), self.needed(resource, secrets.clone()));
        }
    }

    fn begin(&self) {
        // Not before clusters are known.
        if let Some(watches) = self.watches.get() {
            let resource = "secrets (accounts)";
            let accounts = Watch::<Secret>::all(resource).named(self.settings.account.as_str());
            watches.watch(accounts, self.needed(resource, self.entry.accounts.clone()));
        }
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.entry.admission.fleet_changed(fleet, touched);
        let Touched::Cluster(cluster) = touched else { return };
        if self.entry.accounts.cluster_changed(fleet, cluster)
            && let Some(watches) = self.watches.get()
        {
            let namespace = Some(cluster.as_str());
            let account =
                Watch::<Secret>::dynamic("secrets (account of a cluster)", &(), namespace).late();
            let account = account.named(self.settings.account.as_str());
            let mut late = self.late.lock();
            late.remove(cluster);
            let accounts = self.entry.accounts.clone();
            let listed =
                Late { accounts, cluster: cluster.clone(), watches: Arc::clone(&self.late) };
            late.insert(cluster.clone(), watches.watch_while_held(account, listed));
        }
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let Some((listener, certificate)) = self.listener.lock().take() else {
            return stop.cancelled_owned().boxed();
        };
        let (entry, idle) = (Arc::clone(&self.entry), self.settings.idle_connections);
        let (health, dialer) = (self.health.clone(), self.dialer.clone());
        async move {
            let serving = serve::serve(listener, certificate, Arc::clone(&entry), idle, stop);
            tokio::select! {
                () = serving => {}
                () = check(&health, &dialer, &entry.reviews) => {}
            }
        }
        .boxed()
    }
}

/// Keeps the readiness conditions up to date: whether the proxy server can be reached, and the hub reviews tokens.
async fn check(health: &Health, dialer: &Dialer, reviews: &Reviews) {
    reviews.check().await;
    loop {
        let proxy = dialer.check().await.map_err(|error| error.to_string());
        health.set_condition(PROXY_SERVER, proxy);
        // While the reviews for requests succeed, no further one is needed.
        let reviewed = !reviews.is_failing() || reviews.check().await;
        health.set_condition(
            REVIEWS,
            reviewed.then_some(()).ok_or_else(|| "the hub does not review tokens".to_owned()),
        );
        sleep(CHECK_INTERVAL).await;
    }
}
