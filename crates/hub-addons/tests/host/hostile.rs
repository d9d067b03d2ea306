//! The user server under all attacks of clients and clusters at once (`e2e/hostile`).

use std::path::Path;
use std::time::Duration;

/// How long the attacks last, in seconds, if this variable is not set.
const PERIOD: (&str, u64) = ("HUB_ADDONS_HOSTILE_SECONDS", 15);
/// What the chart requests for the user server, in KiB. A program that is not optimised has larger futures.
const MEMORY: u64 = 96 << 10;
const MEMORY_UNOPTIMISED: u64 = 2 * MEMORY;

#[tokio::test(flavor = "multi_thread")]
#[allow(
    clippy::print_stdout,
    reason = "figures for information: only the failures and the memory are conditions"
)]
async fn an_honest_tenant_is_served_while_hostile_clients_and_clusters_do_all_they_can() {
    let (program, limit) = match std::env::var("HUB_ADDONS_PROGRAM") {
        Ok(program) => (program, MEMORY),
        Err(_) => (env!("CARGO_BIN_EXE_hub-addons").to_owned(), MEMORY_UNOPTIMISED),
    };
    let seconds = std::env::var(PERIOD.0).map_or(PERIOD.1, |text| text.parse().unwrap());
    let report = hostile::run::run(Path::new(&program), Duration::from_secs(seconds)).await;
    println!("{report:#?}");
    assert!(report.failed.is_empty() && !report.requests.0.is_empty(), "{report:#?}");
    assert!(report.memory < limit, "{report:#?}");
}
