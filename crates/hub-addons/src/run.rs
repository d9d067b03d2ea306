//! `hub-addons run`: from the command line to running controllers, and an orderly shutdown.

use std::pin::pin;

use access_provisioner::{DIRECT_PROVIDER, Direct, EntryMetrics, Provisioner};
use consumer_access::ConsumerAccess;
use credential_rights::CredentialRights;
use credential_syncer::{CredentialMetrics, Syncer};
use hub_core::access::OWN_IDENTITY_PROVIDER;
use hub_process::process::{Process, ProcessError, Setup};
use hub_runtime::host::lease::Candidate;
use hub_runtime::observe::health::Health;
use hub_runtime::observe::metrics::Metrics;
use profile_projector::Projector;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::RunArgs;
use crate::connect;
use crate::serve;
use crate::{Failure, VERSION};

/// Runs until a signal arrives or an error ends it.
pub async fn run(args: RunArgs) -> Result<(), Failure> {
    let is_on = |gate| args.feature_gates.is_on(gate);
    let requires = |gate: &str, flags: &str| format!("the feature gate {gate} requires {flags}");
    let subject = "--credential-rights-subject, the ServiceAccount that receives permissions";
    let rights = is_on(credential_rights::GATE)
        .then(|| args.rights().ok_or_else(|| requires(credential_rights::GATE, subject)))
        .transpose()?;
    if args.feature_gates.none_is_on() {
        return Err("no controller to run: every feature gate is disabled".into());
    }
    let access = &args.access;
    let server = "--user-server-url and --user-server-ca, where the user server is reached";
    let own_identity = is_on(access_provisioner::OWN_IDENTITY_GATE)
        .then(|| {
            access
                .own_identity()
                .ok_or_else(|| requires(access_provisioner::OWN_IDENTITY_GATE, server))
        })
        .transpose()?;
    let name = &args.decisions.provider.access_provider_name;
    let others = [
        (is_on(access_provisioner::DIRECT_GATE), DIRECT_PROVIDER),
        (own_identity.is_some(), OWN_IDENTITY_PROVIDER),
    ];
    if is_on(access_provisioner::GATE)
        && others.into_iter().any(|(is_used, other)| is_used && name == other)
    {
        let why = "is the name of another access provider that is enabled: the names must differ";
        return Err(format!("--access-provider-name={name:?} {why}").into());
    }
    let signal = signalled()?;
    let health = Health::default();
    let (metrics, (entries, copies)) = Metrics::with(VERSION, |registry| {
        (EntryMetrics::register(registry), CredentialMetrics::register(registry))
    });
    serve::serve(&args.host, &health, &metrics).await?;
    let config = connect::config(args.kubeconfig.as_deref()).await?;
    let hub = config.cluster_url.clone();
    let namespace = args.leader_election_namespace.as_ref().unwrap_or(&config.default_namespace);
    let access_settings = is_on(consumer_access::GATE).then(|| args.consumer_access(namespace));
    let lease =
        args.leader_election_id.clone().unwrap_or_else(|| args.feature_gates.lease().to_owned());
    let candidate = Candidate { namespace: namespace.clone(), lease, identity: identity() };
    let client = connect::client(config, args.kubeconfig.as_deref()).await?;
    serve::serve_authorized(&args.host, &metrics, &client).await?;
    let setup = Setup {
        health,
        metrics,
        manager: args.decisions.cluster_manager_name.clone(),
        bound_source: args.decisions.bound_source(),
        candidate: args.leader_elect.then_some(candidate),
        ..Setup::new(client)
    };
    let provisioner = |shared: &_, settings| Provisioner::new(shared, settings, entries.clone());
    let process = Process::new(setup)
        .add(is_on(profile_projector::GATE).then(|| args.decisions.projection()), Projector::new)
        .add(is_on(access_provisioner::GATE).then(|| args.provisioner()), provisioner)
        .add(is_on(access_provisioner::DIRECT_GATE).then_some(()), |shared, ()| {
            Direct::new(shared, entries.clone())
        })
        .add(own_identity, provisioner)
        .add(is_on(credential_syncer::GATE).then(|| args.syncer()), |shared, settings| {
            Syncer::new(shared, settings, copies)
        })
        .add(rights, CredentialRights::new)
        .add(access_settings, ConsumerAccess::new);
    let controllers = process.controllers.iter().map(|controller| controller.name());
    let controllers = controllers.collect::<Vec<_>>().join(",");
    info!(version = VERSION, %hub, controllers, "starting");

    Ok(run_until(signal, process).await?)
}

/// Runs a process until a signal arrives, and then lets it stop in order.
pub(crate) async fn run_until(
    signal: impl Future<Output = ()>,
    process: Process,
) -> Result<(), ProcessError> {
    let stop = CancellationToken::new();
    let mut running = pin!(process.run(stop.clone()));
    tokio::select! {
        result = &mut running => return result,
        () = signal => stop.cancel(),
    }
    running.await
}

/// Listens from now on, and waits for SIGTERM, as Kubernetes sends it, or Ctrl-C.
pub(crate) fn signalled() -> Result<impl Future<Output = ()>, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM"),
            _ = interrupt.recv() => info!("SIGINT"),
        }
    })
}

/// The identity of this process among its replicas. A restarted container has a new identity, so it has to wait until
/// the Lease of its predecessor expires.
fn identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "unknown-host".to_owned());
    format!("{host}_{}_{:x}", std::process::id(), jiff::Timestamp::now().as_microsecond())
}
