//! The controllers of one process, from their Leases to their end.
//!
//! [`Process::builder`] takes what the process needs from outside, [`Builder::add`] the controllers, and
//! [`Process::run`] does the rest in the one order that is right: Leases, watches, first lists, work, end. Nothing here
//! is global, so several processes can run in one program; one that is dropped leaves no task behind.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::ManagerName;
use hub_core::fleet::BoundSource;
use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::controller::Controller;
use crate::fleet_cache::FleetCache;
use crate::health::Health;
use crate::host::{Host, Watches};
use crate::lease::{Candidate, Fence, Leases};
use crate::metrics::Metrics;
use crate::profiles::Profiles;
use crate::report::Clock;

/// Longest wait for writes in flight when the process is to stop. Kubernetes gives a Pod 30 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// What a process needs from outside.
pub struct Setup {
    /// Talks to the API server.
    pub client: Client,
    /// What the probes report.
    pub health: Health,
    /// What operators measure.
    pub metrics: Metrics,
    /// The cluster manager that we are.
    pub manager: ManagerName,
    /// How bindings are known to be in force.
    pub bound_source: BoundSource,
    /// Under which name it stands for election; without one it always leads.
    pub candidate: Option<Candidate>,
    /// Tells the time of day for what people read.
    pub clock: Clock,
}

impl Setup {
    /// A process that always leads, on a hub with Open Cluster Management.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            health: Health::default(),
            metrics: Metrics::new("0"),
            manager: ManagerName::default(),
            bound_source: BoundSource::default(),
            candidate: None,
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// What the controllers of a process share.
#[derive(Clone)]
pub struct Shared {
    /// The process around them.
    pub host: Arc<Host>,
    /// The hub's clusters, sets and bindings.
    pub fleet: FleetCache,
    /// The cache and the writer of ClusterProfiles.
    pub profiles: Arc<Profiles>,
    /// The cluster manager that we are.
    pub manager: ManagerName,
}

/// Why a process ended although nothing stopped it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Another process leads now, or we cannot know.
    #[error("leadership lost: {0}")]
    LeadershipLost(String),
    /// A task ended that never should.
    #[error("defect: the task {0} has ended")]
    TaskEnded(&'static str),
}

/// A process to which controllers can still be added.
pub struct Builder(Process);

impl Builder {
    /// Adds a controller with its settings, if there are any.
    #[must_use]
    pub fn add<S, C: Controller>(mut self, settings: Option<S>, new: impl FnOnce(&Shared, S) -> C) -> Self {
        if let Some(settings) = settings {
            let controller = new(&self.0.shared, settings);
            if let Some(leases) = &mut self.0.leases {
                leases.add(controller.name());
            }
            self.0.controllers.push(Arc::new(controller));
        }
        self
    }

    /// The process, ready to run.
    #[must_use]
    pub fn build(self) -> Process {
        self.0
    }
}

/// The controllers of one process.
pub struct Process {
    shared: Shared,
    leases: Option<Leases>,
    controllers: Vec<Arc<dyn Controller>>,
}

impl Process {
    /// A process without controllers. Needs a tokio runtime around it.
    #[must_use]
    pub fn builder(setup: Setup) -> Builder {
        let Setup { client, health, metrics, manager, bound_source, candidate, clock } = setup;
        let leases = candidate.map(|candidate| Leases::new(client.clone(), candidate, metrics.clone()));
        let fence = leases.as_ref().map_or_else(Fence::open, Leases::fence);
        let host = Arc::new(Host::new(client, health, metrics, fence, clock));
        let fleet = FleetCache::new(bound_source, &host);
        let profiles = Profiles::new(Arc::clone(&host), manager.clone());
        let shared = Shared { host, fleet, profiles, manager };
        Builder(Process { shared, leases, controllers: Vec::new() })
    }

    /// The names of the controllers.
    pub fn controllers(&self) -> impl Iterator<Item = &'static str> {
        self.controllers.iter().map(|controller| controller.name())
    }

    /// What its controllers share: for whoever looks on.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Leads, watches and works until `stop`. Then it finishes what is in flight and gives its Leases up. One that is
    /// dropped instead ends at once, wherever it is.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ProcessError> {
        if let Some(leases) = &mut self.leases
            && !leases.acquire(&stop).await
        {
            return Ok(());
        }
        let result = self.lead(stop).await;
        self.shared.host.tasks().end();
        if let Some(leases) = &mut self.leases {
            leases.release().await;
        }
        result
    }

    async fn lead(&mut self, stop: CancellationToken) -> Result<(), ProcessError> {
        let Self { shared, leases, controllers } = self;
        let host = &shared.host;
        watch(shared, controllers);
        let mut work = Box::pin(work(shared, controllers, stop.clone()));
        let mut lost = Box::pin(async {
            match leases {
                Some(leases) => leases.hold().await,
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            why = &mut lost => return Err(ProcessError::LeadershipLost(why)),
            task = host.tasks().missing() => return Err(ProcessError::TaskEnded(task)),
            () = &mut work => return Err(ProcessError::TaskEnded("workers")),
        }
        info!("stopping: finishing what is in flight");
        host.health.stopping();
        tokio::select! {
            biased;
            () = work => {}
            _ = lost => warn!("leadership lost while stopping"),
            () = tokio::time::sleep(DRAIN_TIMEOUT) => warn!("some writes did not end in time"),
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.host.tasks().end();
    }
}

/// Starts every watch: what is shared, then what each controller has of its own.
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
    info!("every watch has its first list, working");
    shared.host.set_working();
    for controller in controllers {
        controller.begin();
    }
    let profiles = shared.profiles.work(stop.clone());
    let controllers = controllers.iter().map(|controller| controller.work(stop.clone()));
    tokio::join!(profiles, futures::future::join_all(controllers));
}
