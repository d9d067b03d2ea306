//! The user server under all attacks of clients at once. `hostile-client` (`e2e/hostile`) does the same for longer, such
//! as with a release build.

use std::path::Path;
use std::time::Duration;

/// What the chart requests, in KiB. A program that is not optimised has larger futures.
const MEMORY: u64 = 64 << 10;
const MEMORY_UNOPTIMISED: u64 = 2 * MEMORY;

#[tokio::test(flavor = "multi_thread")]
#[allow(
    clippy::print_stdout,
    reason = "figures for information: only the failures and the memory are conditions"
)]
async fn an_honest_tenant_is_served_while_hostile_clients_do_all_they_can() {
    let (program, limit) = match std::env::var("HUB_ADDONS_PROGRAM") {
        Ok(program) => (program, MEMORY),
        Err(_) => (env!("CARGO_BIN_EXE_hub-addons").to_owned(), MEMORY_UNOPTIMISED),
    };
    let report = hostile::run::run(Path::new(&program), Duration::from_secs(15)).await;
    println!("{report:#?}");
    assert!(report.failed.is_empty() && report.honest > 0, "{report:#?}");
    assert!(report.memory < limit, "{report:#?}");
}
