//! `hub-addons user-server`: from the command line to a serving process, and an orderly shutdown.

use std::sync::Arc;

use hub_process::process::{Process, ProcessError, Setup};
use hub_runtime::observe::health::{BindError, Health};
use hub_runtime::observe::metrics::Metrics;
use hub_runtime::observe::serving_certificate::{CertificateError, ServingCertificate};
use tracing::info;
use user_server::{Authority, UserServer, UserServerMetrics};

use crate::cli::UserServerArgs;
use crate::connect::{self, ConnectError};
use crate::run::{Signals, run_until_signal};
use crate::serve::{self, ServeError};

/// The protocols for applications: HTTP/2, and HTTP/1.1, which alone supports upgrades.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Why the program ended without a signal.
#[derive(Debug, thiserror::Error)]
pub enum UserServerError {
    /// The address for applications cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Neither a directory nor an authority is set.
    #[error("--certificate-directory or --authority is required")]
    NoCertificate,
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Probes or metrics cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The hub cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signal(#[source] std::io::Error),
    /// The process cannot continue.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Serves until a signal arrives or an error ends it.
pub async fn user_server(args: UserServerArgs) -> Result<(), UserServerError> {
    let mut signals = Signals::new().map_err(UserServerError::Signal)?;
    let mut registered = None;
    let metrics = Metrics::with(env!("CARGO_PKG_VERSION"), |registry| {
        registered = Some(UserServerMetrics::register(registry));
    });
    let health = Health::default();
    // Always set here, since the closure has run.
    let Some(of_server) = registered else { return Ok(()) };
    serve::serve(&args.metrics, &args.host, &health, &metrics).await?;
    let config = connect::config(args.kubeconfig.as_deref()).await?;
    let from_files = args.certificate_directory.clone();
    let from_files = from_files.map(|directory| ServingCertificate::new(Some(directory), PROTOCOLS));
    let from_files = from_files.transpose()?.map(Arc::new);
    let listener = args.bind_address.bind("applications").await?;
    let hub = config.cluster_url.clone();
    let client = connect::client(config).await?;
    serve::serve_authorized(&args.metrics, &metrics, &client).await?;
    let certificate = match (from_files, args.authority(PROTOCOLS)) {
        (Some(certificate), _) => certificate,
        (None, Some(settings)) => {
            let authority = tokio::select! {
                authority = Authority::begin(&client, &health, settings) => authority,
                () = signals.received() => return Ok(()),
            };
            let certificate = authority.certificate();
            tokio::spawn(authority.run());
            certificate
        }
        (None, None) => return Err(UserServerError::NoCertificate),
    };
    let settings = args.settings(of_server);
    let setup = Setup {
        health,
        metrics,
        bound_source: args.bound_source(),
        is_read_only: true,
        ..Setup::new(client)
    };
    let process = Process::new(setup)
        .add(Some(settings), |shared, settings| UserServer::new(shared, settings, listener, certificate));
    info!(version = env!("CARGO_PKG_VERSION"), %hub, "starting");
    Ok(run_until_signal(process, signals).await?)
}
