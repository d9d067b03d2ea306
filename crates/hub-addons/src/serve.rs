//! The probes and the metrics of a process, as its command line has them.

use hub_runtime::observe::health::{Health, serve_metrics, serve_probes};
use hub_runtime::observe::metrics::Metrics;
use hub_runtime::observe::secure_metrics::serve_secure_metrics;
use kube::Client;

use crate::Failure;
use crate::cli::HostArgs;

/// Serves the probes and, if they need no authorization, the metrics: before connecting to the hub, which may take
/// long.
pub async fn serve(args: &HostArgs, health: &Health, metrics: &Metrics) -> Result<(), Failure> {
    if let (Some(address), None) = (&args.metrics_bind_address.0, &args.metrics_certificate) {
        serve_metrics(address, metrics.clone()).await?;
    }
    if let Some(address) = &args.health_probe_bind_address.0 {
        serve_probes(address, health.clone(), metrics.clone()).await?;
    }
    Ok(())
}

/// Serves the metrics for clients that the hub authorizes.
pub async fn serve_authorized(
    args: &HostArgs,
    metrics: &Metrics,
    client: &Client,
) -> Result<(), Failure> {
    if let (Some(address), Some(certificate)) =
        (&args.metrics_bind_address.0, &args.metrics_certificate)
    {
        let directory = certificate.directory.clone();
        serve_secure_metrics(address, metrics.clone(), client.clone(), directory).await?;
    }
    Ok(())
}
