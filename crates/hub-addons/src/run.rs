//! `hub-addons run`: from the command line to running controllers, and an orderly shutdown.

use std::pin::pin;

use access_provisioner::{Direct, Provisioner};
use consumer_access::ConsumerAccess;
use credential_rights::CredentialRights;
use credential_syncer::Syncer;
use hub_runtime::flow::write_limit::WriteLimit;
use hub_runtime::health::{BindError, Health, serve_metrics, serve_probes};
use hub_runtime::lease::Candidate;
use hub_runtime::metrics::Metrics;
use hub_runtime::process::{Process, ProcessError, Setup};
use hub_runtime::secure_metrics::{SecureMetricsError, serve_secure_metrics};
use profile_projector::Projector;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::RunArgs;
use crate::connect::{self, ConnectError};

/// Why the program ended without a signal.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Every gate is disabled.
    #[error("no controller to run: every feature gate is disabled")]
    NothingToRun,
    /// A gate is enabled without a required flag.
    #[error(
        "the feature gate {} requires --credential-rights-subject, the ServiceAccount that receives permissions",
        credential_rights::GATE
    )]
    NoRightsSubject,
    /// A gate is enabled without a declaration.
    #[error(
        "the feature gate {} requires --consumers, the declaration of what each consumer gets on its clusters",
        consumer_access::GATE
    )]
    NoConsumers,
    /// Two controllers would write the same entry.
    #[error("--access-provider-name and --direct-access-provider-name are both {0:?}: the names must differ")]
    OneProviderName(String),
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Metrics over TLS cannot be served.
    #[error(transparent)]
    SecureMetrics(#[from] SecureMetricsError),
    /// A certificate is given but not used.
    #[error(
        "--metrics-certificate-directory is set without --metrics-secure: metrics would be served without TLS"
    )]
    CertificateWithoutTls,
    /// The hub cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
    /// The controllers cannot continue.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Runs until a signal arrives or an error ends it.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let is_on = |gate| args.feature_gates.is_on(gate);
    let rights = is_on(credential_rights::GATE).then(|| args.rights().ok_or(RunError::NoRightsSubject));
    let rights = rights.transpose()?;
    if is_on(consumer_access::GATE) && args.consumers.consumers.is_none() {
        return Err(RunError::NoConsumers);
    }
    if args.feature_gates.none_is_on() {
        return Err(RunError::NothingToRun);
    }
    let access = &args.access;
    let has_both = is_on(access_provisioner::GATE) && is_on(access_provisioner::DIRECT_GATE);
    if has_both && access.access_provider_name == access.direct_access_provider_name {
        return Err(RunError::OneProviderName(access.access_provider_name.clone()));
    }
    let mut signals = Signals::new()?;
    let (health, metrics) = (Health::default(), Metrics::new(env!("CARGO_PKG_VERSION")));
    if args.metrics.metrics_certificate_directory.is_some() && !args.metrics.metrics_secure {
        return Err(RunError::CertificateWithoutTls);
    }
    if let Some(address) =
        args.metrics.metrics_bind_address.0.as_ref().filter(|_| !args.metrics.metrics_secure)
    {
        serve_metrics(address, metrics.clone()).await?;
    }
    if let Some(address) = &args.health_probe_bind_address.0 {
        serve_probes(address, health.clone(), metrics.clone()).await?;
    }
    let config = connect::config(args.kubeconfig.as_deref()).await?;
    let hub = config.cluster_url.clone();
    let namespace = args.leader_election_namespace.as_ref().unwrap_or(&config.default_namespace);
    let access_settings = args.consumer_access(namespace).filter(|_| is_on(consumer_access::GATE));
    let candidate = Candidate { namespace: namespace.clone(), identity: identity() };
    let client = connect::client(config).await?;
    if let Some(address) =
        args.metrics.metrics_bind_address.0.as_ref().filter(|_| args.metrics.metrics_secure)
    {
        let certificates = args.metrics.metrics_certificate_directory.clone();
        serve_secure_metrics(address, metrics.clone(), client.clone(), certificates).await?;
    }
    let setup = Setup {
        health,
        metrics,
        manager: args.cluster_manager_name.clone(),
        bound_source: args.bound_source(),
        candidate: args.leader_elect.then_some(candidate),
        limit: WriteLimit::per_second(args.max_writes_per_second),
        ..Setup::new(client)
    };
    let process = Process::builder(setup)
        .add(is_on(profile_projector::GATE).then(|| args.projector()), Projector::new)
        .add(is_on(access_provisioner::GATE).then(|| args.access.provisioner()), Provisioner::new)
        .add(is_on(access_provisioner::DIRECT_GATE).then(|| args.access.direct()), Direct::new)
        .add(is_on(credential_syncer::GATE).then(|| args.syncer()), Syncer::new)
        .add(rights, CredentialRights::new)
        .add(access_settings, ConsumerAccess::new)
        .build();
    let controllers = process.controllers().collect::<Vec<_>>().join(",");
    info!(version = env!("CARGO_PKG_VERSION"), %hub, controllers, "starting");

    let stop = CancellationToken::new();
    let mut running = pin!(process.run(stop.clone()));
    tokio::select! {
        result = &mut running => return Ok(result?),
        () = signals.received() => stop.cancel(),
    }
    Ok(running.await?)
}

/// SIGTERM, as Kubernetes sends it, or Ctrl-C.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
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

/// The identity of this process among its replicas. A restarted container is another process: the claim of its
/// predecessor must expire first.
fn identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "unknown-host".to_owned());
    format!("{host}_{}_{:x}", std::process::id(), jiff::Timestamp::now().as_microsecond())
}
