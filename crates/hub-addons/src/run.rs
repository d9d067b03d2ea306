//! `hub-addons run`: from the command line to controllers at work, and back in good order.

use std::sync::Arc;
use std::time::Duration;

use access_provisioner::{DIRECT_GATE, Direct, Provisioner};
use credential_rights::CredentialRights;
use credential_syncer::{SyncSettings, Syncer};
use hub_core::project::ProjectionSettings;
use hub_runtime::fleet::FleetCache;
use hub_runtime::health::{BindError, Health, serve_metrics, serve_probes};
use hub_runtime::host::Host;
use hub_runtime::lease::{Election, Fence, LeaseName};
use hub_runtime::metrics::Metrics;
use hub_runtime::profiles::{Owner, Profiles};
use profile_projector::Projector;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cli::RunArgs;
use crate::connect::{self, ConnectError};

/// Longest wait for writes in flight when the process is told to stop. Kubernetes gives a Pod 30 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Why the program ended although nobody told it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Every gate is off.
    #[error("no controller to run: every feature gate is off")]
    NothingToRun,
    /// A gate is on that cannot work without a flag.
    #[error(
        "the feature gate {} needs --credential-rights-subject: whom to give rights to",
        credential_rights::GATE
    )]
    NoRightsSubject,
    /// An address is taken or not ours.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is no hub to talk to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Signals cannot be caught.
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
    /// Another process leads now, or we cannot know.
    #[error("leadership lost: {0}")]
    LeadershipLost(String),
    /// A task ended that never should.
    #[error("defect: the task {0} has ended")]
    TaskEnded(&'static str),
}

/// Runs until a signal ends it well, or something else does not.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let names = args.feature_gates.controllers();
    if names.is_empty() {
        return Err(RunError::NothingToRun);
    }
    if args.feature_gates.is_on(credential_rights::GATE) && args.rights().is_none() {
        return Err(RunError::NoRightsSubject);
    }
    let mut stop = StopSignal::new()?;
    let (health, metrics) = (Health::default(), Metrics::new(env!("CARGO_PKG_VERSION")));
    if let Some(address) = &args.metrics_bind_address.0 {
        serve_metrics(address, metrics.clone()).await?;
    }
    if let Some(address) = &args.health_probe_bind_address.0 {
        serve_probes(address, health.clone()).await?;
    }
    let config = connect::config(args.kubeconfig.as_deref()).await?;
    info!(version = env!("CARGO_PKG_VERSION"), hub = %config.cluster_url, controllers = names.join(","), "starting");
    let lease = LeaseName {
        namespace: args.leader_election_namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
        name: format!("hub-addons-{}", names.join("-")),
        identity: identity(),
    };
    let client = connect::client(config)?;

    let mut election = args.leader_elect.then(|| Election::new(client.clone(), lease, metrics.clone()));
    if let Some(election) = &mut election {
        tokio::select! {
            () = election.acquire() => {}
            () = stop.received() => return Ok(()),
        }
    }
    let fence = election.as_ref().map_or_else(Fence::open, Election::fence);
    let host = Arc::new(Host::new(client, health.clone(), metrics, fence));
    let controllers = Arc::new(Controllers::start(&host, &args));

    let stopping = CancellationToken::new();
    let mut work = tokio::spawn({
        let (host, stopping, controllers) = (Arc::clone(&host), stopping.clone(), Arc::clone(&controllers));
        async move {
            tokio::select! {
                () = host.health.all_synced() => {}
                () = stopping.cancelled() => return,
            }
            info!("every watch has its first list, working");
            controllers.work().await;
        }
    });
    let lost = async {
        match &mut election {
            Some(election) => election.hold().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        why = lost => return Err(RunError::LeadershipLost(why)),
        task = host.task_ended() => return Err(RunError::TaskEnded(task)),
        _ = &mut work => return Err(RunError::TaskEnded("workers")),
        () = stop.received() => {}
    }
    info!("stopping: finishing what is in flight");
    health.stopping();
    stopping.cancel();
    controllers.stop();
    if tokio::time::timeout(DRAIN_TIMEOUT, &mut work).await.is_err() {
        warn!("some writes did not end in time");
    }
    if let Some(election) = &mut election {
        election.release().await;
    }
    Ok(())
}

/// The controllers of this process.
struct Controllers {
    /// The writer of profiles, where a controller owns a part of them.
    profiles: Option<Arc<Profiles>>,
    /// What has to happen once every watch has its first list, before the first write to a profile.
    begin: Vec<Box<dyn Fn() + Send + Sync>>,
    syncer: Option<Syncer>,
    rights: Option<CredentialRights>,
}

impl Controllers {
    /// Starts those whose gate is on.
    fn start(host: &Arc<Host>, args: &RunArgs) -> Self {
        let manager = &args.cluster_manager_name;
        let is_on = |gate| args.feature_gates.is_on(gate);
        let (projects, provisions) = (is_on(profile_projector::GATE), is_on(access_provisioner::GATE));
        let (direct, syncs) = (is_on(DIRECT_GATE), is_on(credential_syncer::GATE));
        let fleet = FleetCache::new(args.bound_source(), host.reporter.clone());
        let profiles = Profiles::new(Arc::clone(host), manager.clone());
        let mut owners: Vec<Box<dyn Owner>> = Vec::new();
        let mut begin: Vec<Box<dyn Fn() + Send + Sync>> = Vec::new();
        if projects {
            let settings = ProjectionSettings {
                manager: manager.clone(),
                propagated_labels: args.propagate_labels.clone(),
            };
            owners.push(Box::new(Projector::new(fleet.clone(), &profiles, settings)));
        }
        if provisions {
            let provisioner = Provisioner::start(host, &profiles, manager.clone(), args.access.provisioner());
            owners.push(Box::new(provisioner.clone()));
            begin.push(Box::new(move || provisioner.begin()));
        }
        if direct {
            let (settings, metrics) = (args.access.direct(), host.metrics.clone());
            let direct = Direct::new(fleet.clone(), &profiles, manager.clone(), settings, metrics);
            owners.push(Box::new(direct.clone()));
            begin.push(Box::new(move || direct.begin()));
        }
        let syncer = syncs.then(|| {
            let require_namespaces = args.require_sync_namespaces;
            let settings = SyncSettings { manager: manager.clone(), require_namespaces };
            Syncer::start(host, &fleet, settings, args.secret_access())
        });
        let rights = args.rights().filter(|_| is_on(credential_rights::GATE));
        let rights = rights.map(|settings| CredentialRights::start(host, &fleet, settings));
        if projects || syncs || rights.is_some() {
            fleet.watch_grants(host);
        }
        if projects || direct || syncs {
            fleet.watch_clusters(host);
        }
        let profiles = (!owners.is_empty()).then(|| {
            profiles.start(owners);
            profiles
        });
        Self { profiles, begin, syncer, rights }
    }

    async fn work(&self) {
        for begin in &self.begin {
            begin();
        }
        let profiles = async {
            if let Some(profiles) = &self.profiles {
                profiles.work().await;
            }
        };
        let syncer = async {
            if let Some(syncer) = &self.syncer {
                syncer.work().await;
            }
        };
        let rights = async {
            if let Some(rights) = &self.rights {
                rights.work().await;
            }
        };
        tokio::join!(profiles, syncer, rights);
    }

    /// Has [`Self::work`] finish what is in flight, and end.
    fn stop(&self) {
        if let Some(profiles) = &self.profiles {
            profiles.stop();
        }
        if let Some(syncer) = &self.syncer {
            syncer.stop();
        }
        if let Some(rights) = &self.rights {
            rights.stop();
        }
    }
}

/// SIGTERM, as Kubernetes sends it, or Ctrl-C.
struct StopSignal {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignal {
    fn new() -> Result<Self, RunError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(RunError::Signal)?,
            interrupt: signal(SignalKind::interrupt()).map_err(RunError::Signal)?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => info!("SIGTERM"),
            _ = self.interrupt.recv() => info!("SIGINT"),
        }
    }
}

/// This process among its replicas. A restarted container is another process: its predecessor's claim has to
/// run out first.
fn identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "unknown-host".to_owned());
    format!("{host}_{}_{:x}", std::process::id(), jiff::Timestamp::now().as_microsecond())
}
