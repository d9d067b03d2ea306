//! The user server, as it is released, under all attacks of clients and clusters at once. An unoptimised program would
//! need most of a machine for them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the attacks last, in seconds, if this variable is not set.
const PERIOD: (&str, u64) = ("HUB_ADDONS_HOSTILE_SECONDS", 15);

#[tokio::test(flavor = "multi_thread")]
#[allow(
    clippy::print_stdout,
    reason = "figures for information: only the failures and the memory are conditions"
)]
async fn an_honest_tenant_is_served_while_hostile_clients_and_clusters_do_all_they_can() {
    let program = std::env::var_os("HUB_ADDONS_PROGRAM").map_or_else(release, PathBuf::from);
    let seconds = std::env::var(PERIOD.0).map_or(PERIOD.1, |text| text.parse().unwrap());
    let report = hostile::run::run(&program, Duration::from_secs(seconds)).await;
    println!("{report:#?}");
    assert!(report.failed.is_empty() && !report.requests.0.is_empty(), "{report:#?}");
    assert!(report.memory < hostile::run::MEMORY, "{report:#?}");
}

/// Builds the program as it is released.
fn release() -> PathBuf {
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/program.sh"));
    let output = script.arg("hub-addons").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "hack/program.sh has failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
}
