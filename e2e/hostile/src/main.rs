//! `hostile-client`: attacks a user server, and reports what an honest tenant notices of it.

#![allow(clippy::print_stdout, reason = "it prints its report")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Attacks hub-addons user-server as hostile clients do, all at once, with an honest tenant beside them
///
/// It fails if a request of the honest tenant fails, or the program needs more memory than it may.
#[derive(Debug, Parser)]
struct Options {
    /// The program hub-addons
    #[arg(long, value_name = "FILE")]
    program: PathBuf,

    /// How long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,

    /// The most memory that the program may have, in MiB; by default what the chart requests
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    memory: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let report = hostile::run::run(&options.program, Duration::from_secs(options.seconds)).await;
    println!("{report:#?}");
    let is_fine = report.failed.is_empty() && report.memory < options.memory << 10;
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
