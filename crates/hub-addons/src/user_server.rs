//! `hub-addons user-server`: from the command line to a serving process, and an orderly shutdown.

use std::pin::pin;
use std::sync::Arc;

use hub_core::fleet::BoundSource;
use hub_process::process::{Process, Setup};
use hub_runtime::observe::health::Health;
use hub_runtime::observe::metrics::Metrics;
use hub_runtime::observe::serving_certificate::ServingCertificate;
use tracing::info;
use user_server::{Authority, UserServer, UserServerMetrics};

use crate::cli::UserServerArgs;
use crate::connect;
use crate::run::{run_until, signalled};
use crate::serve;
use crate::{Failure, VERSION};

/// The protocols for applications: HTTP/2, and HTTP/1.1, which alone supports upgrades.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Serves until a signal arrives or an error ends it.
pub async fn user_server(args: UserServerArgs) -> Result<(), Failure> {
    let mut signal = pin!(signalled()?);
    let (metrics, of_server) = Metrics::with(VERSION, UserServerMetrics::register);
    let health = Health::default();
    serve::serve(&args.host, &health, &metrics).await?;
    let config = connect::config(args.kubeconfig.as_deref()).await?;
    let from_files = args.certificate_directory.clone();
    let from_files =
        from_files.map(|directory| ServingCertificate::new(Some(directory), PROTOCOLS));
    let from_files = from_files.transpose()?.map(Arc::new);
    let listener = args.bind_address.bind("applications").await?;
    let hub = config.cluster_url.clone();
    let client = connect::client(config, args.kubeconfig.as_deref()).await?;
    serve::serve_authorized(&args.host, &metrics, &client).await?;
    let certificate = match (from_files, args.authority(PROTOCOLS)) {
        (Some(certificate), _) => certificate,
        (None, Some(settings)) => {
            let authority = tokio::select! {
                authority = Authority::begin(&client, &health, settings) => authority,
                () = &mut signal => return Ok(()),
            };
            let certificate = Arc::clone(&authority.certificate);
            tokio::spawn(authority.run());
            certificate
        }
        (None, None) => return Err("--certificate-directory or --authority is required".into()),
    };
    let settings = args.settings(of_server);
    let setup = Setup {
        health,
        metrics,
        bound_source: if args.compute_bound { BoundSource::Computed } else { BoundSource::Status },
        is_read_only: true,
        ..Setup::new(client)
    };
    let process = Process::new(setup).add(Some(settings), |shared, settings| {
        UserServer::new(shared, settings, listener, certificate)
    });
    info!(version = VERSION, %hub, "starting");
    Ok(run_until(signal, process).await?)
}
