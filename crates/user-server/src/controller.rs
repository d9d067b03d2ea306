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
use hub_runtime::watch::{Each, Watch};
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

/// The watch on all accounts.
const ACCOUNTS: &str = "secrets (accounts)";

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
            let sink = Each {
                store: (secrets.clone(), self.entry.admission.clone(), resource),
                set: |(secrets, ..), key, secret| {
                    secrets.set(&key.name, secret.and_then(Result::ok));
                },
                // Without them, no request is admitted.
                set_read: |(_, admission, what), is_read| admission.set_read(what, is_read),
            };
            watches.watch(watch.named(name), sink);
        }
    }

    fn begin(&self) {
        // Not before clusters are known.
        if let Some(watches) = self.watches.get() {
            let watch = Watch::<Secret>::all(ACCOUNTS).named(self.settings.account.as_str());
            let sink = Each {
                store: (self.entry.accounts.clone(), self.entry.admission.clone()),
                set: |(accounts, _), key, secret| accounts.show(key, secret),
                set_read: |(_, admission), is_read| admission.set_read(ACCOUNTS, is_read),
            };
            watches.watch(watch, sink);
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
            let sink = Each {
                store: (self.entry.accounts.clone(), cluster.clone(), Arc::clone(&self.late)),
                set: |(accounts, ..), key, secret| accounts.show(key, secret),
                // What changes later is an event of the watch on all accounts, so this one ends.
                set_read: |(_, cluster, late), is_read| {
                    if is_read {
                        late.lock().remove(cluster);
                    }
                },
            };
            late.insert(cluster.clone(), watches.watch_while_held(account, sink));
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
