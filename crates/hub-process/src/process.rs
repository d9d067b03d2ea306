//! The controllers of one process, from acquiring its Lease to shutdown.
//!
//! [`Process::new`] takes what the process needs from outside, [`Process::add`] the controllers, and
//! [`Process::run`] does the rest in a fixed order: Lease, watches, first lists, work, shutdown. There is no global
//! state, so several processes can run in one program; a process that is dropped leaves no task behind.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use hub_api::labels;
use hub_api::names::ManagerName;
use hub_core::fleet::BoundSource;
use jiff::Timestamp;
use kube::Client;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::controller::Controller;
use crate::fleet_cache::FleetCache;
use crate::profiles::Profiles;
use crate::served::ServedVersion;
use crate::subjects::reference;
use hub_runtime::host::lease::{Annotations, Candidate, Claim, Election};
use hub_runtime::host::{Host, Watches};
use hub_runtime::observe::health::Health;
use hub_runtime::observe::metrics::Metrics;
use hub_runtime::observe::report::Clock;
use hub_runtime::reconciler;

/// How long a stopping process waits for writes in flight. Kubernetes gives a Pod 30 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// What a process needs from outside.
pub struct Setup {
    pub client: Client,
    /// The state that the probes report.
    pub health: Health,
    pub metrics: Metrics,
    pub manager: ManagerName,
    /// How to determine whether bindings are in effect.
    pub bound_source: BoundSource,
    /// The identity for leader election; without one the process always leads.
    pub candidate: Option<Candidate>,
    /// Whether its controllers write nothing: then it publishes no Events either.
    pub is_read_only: bool,
    /// The wall clock, for timestamps that people read.
    pub clock: Clock,
}

impl Setup {
    /// A process without leader election, on a hub with Open Cluster Management.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            health: Health::default(),
            metrics: Metrics::new("0"),
            manager: ManagerName::default(),
            bound_source: BoundSource::default(),
            candidate: None,
            is_read_only: false,
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// What the controllers of a process share.
#[derive(Clone)]
pub struct Shared {
    pub host: Arc<Host>,
    /// The hub's clusters, sets and bindings.
    pub fleet: FleetCache,
    /// The version of ClusterProfile in use.
    pub served: ServedVersion,
    /// The cache and the writer of ClusterProfiles.
    pub profiles: Arc<Profiles>,
    pub manager: ManagerName,
}

/// Why a process ended without being stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Another process leads, or this one can no longer be sure that it leads.
    #[error("leadership lost: {0}")]
    LeadershipLost(String),
    /// A task that must run as long as the process has ended.
    #[error("internal error: the task {0} has ended")]
    TaskEnded(&'static str),
}

/// The controllers of one process.
#[must_use]
pub struct Process {
    /// What the controllers share.
    pub shared: Shared,
    election: Option<Election>,
    /// Those that [`Self::add`] has added.
    pub controllers: Vec<Arc<dyn Controller>>,
}

impl Process {
    /// A process without controllers. Requires a tokio runtime.
    pub fn new(setup: Setup) -> Self {
        let Setup { client, metrics, manager, .. } = setup;
        let election = setup
            .candidate
            .map(|candidate| Election::new(client.clone(), candidate, metrics.clone()));
        let claim = match &election {
            _ if setup.is_read_only => Claim::Never,
            Some(election) => election.claim(),
            None => Claim::Always,
        };
        let served = ServedVersion::default();
        let version = served.clone();
        let references = Arc::new(move |subject: &_| reference(subject, version.current()));
        let host =
            Arc::new(Host::new(client, setup.health, metrics, claim, setup.clock, references));
        let fleet = FleetCache::new(setup.bound_source, &host);
        let profiles = Profiles::new(Arc::clone(&host), manager.clone(), served.clone());
        let shared = Shared { host, fleet, served, profiles, manager };
        Self { shared, election, controllers: Vec::new() }
    }

    /// Adds a controller with its settings, if there are any.
    pub fn add<S, C: Controller>(
        mut self,
        settings: Option<S>,
        new: impl FnOnce(&Shared, S) -> C,
    ) -> Self {
        if let Some(settings) = settings {
            self.controllers.push(Arc::new(new(&self.shared, settings)));
        }
        self
    }

    /// Acquires the Lease, watches and works until `stop`. Then it finishes the writes in flight and releases the Lease.
    /// A process that is dropped instead ends immediately.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ProcessError> {
        if let Some(election) = &mut self.election {
            election.annotations =
                annotations(self.controllers.clone(), Arc::clone(&self.shared.host));
            if !election.acquire(&stop).await {
                return Ok(());
            }
        }
        let result = self.lead(stop).await;
        self.shared.host.tasks.end();
        if let Some(election) = &mut self.election {
            election.release().await;
        }
        result
    }

    async fn lead(&mut self, stop: CancellationToken) -> Result<(), ProcessError> {
        let Self { shared, election, controllers } = self;
        let host = &shared.host;
        watch(shared, controllers);
        let mut work = Box::pin(work(shared, controllers, stop.clone()));
        let mut lost = Box::pin(async {
            match election {
                Some(election) => election.hold().await,
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            why = &mut lost => return Err(ProcessError::LeadershipLost(why)),
            task = host.tasks.missing() => return Err(ProcessError::TaskEnded(task)),
            () = &mut work => return Err(ProcessError::TaskEnded("workers")),
        }
        info!("stopping: finishing writes in flight");
        host.health.stopping();
        tokio::select! {
            biased;
            () = work => {}
            _ = lost => warn!("leadership lost while stopping"),
            () = tokio::time::sleep(DRAIN_TIMEOUT) => warn!("some writes did not finish in time"),
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.host.tasks.end();
    }
}

/// The annotations of the Lease: the names of the controllers, the kinds that cannot be read, and those of each
/// controller.
fn annotations(controllers: Vec<Arc<dyn Controller>>, host: Arc<Host>) -> Annotations {
    let names: Vec<_> = controllers.iter().map(|controller| controller.name()).collect();
    let names = names.join(",");
    Box::new(move || {
        let mut annotations = vec![
            (labels::CONTROLLERS, Some(names.clone())),
            (labels::UNREADABLE, host.unreadable()),
        ];
        annotations
            .extend(controllers.iter().filter_map(|controller| controller.lease_annotation()));
        annotations
    })
}

/// Starts every watch: the shared ones, then those of each controller.
fn watch(shared: &Shared, controllers: &[Arc<dyn Controller>]) {
    shared.fleet.watch(controllers);
    shared.profiles.watch(controllers);
    for controller in controllers {
        let watches = Watches::new(&shared.host, controller.name());
        controller.watch(&watches);
    }
}

async fn work(shared: &Shared, controllers: &[Arc<dyn Controller>], stop: CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        () = shared.host.health.all_synced() => {}
    }
    info!("all watches are synced, starting to work");
    shared.host.set_working();
    for controller in controllers {
        controller.begin();
        yield_now().await;
    }
    let profiles = reconciler::run(Arc::clone(&shared.profiles), stop.clone()).boxed();
    let controllers = controllers.iter().map(|controller| controller.work(stop.clone()));
    // Unlike `join!`, this polls only the queue that is woken.
    controllers.chain([profiles]).collect::<FuturesUnordered<_>>().collect::<()>().await;
}
