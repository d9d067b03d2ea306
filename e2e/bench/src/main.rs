//! `hub-bench`: counts what controllers cost a hub, and compares it with the least that the API allows.
//!
//! It starts a hub, creates a fleet, runs controllers through scenarios, and reads the requests from the API server's
//! audit log, and memory and CPU time from /proc.

mod agents;
mod authority;
mod bench;
mod cli;
mod controllers;
mod counts;
mod error;
mod fleet;
mod limit;
mod measurement;
mod model;
mod neighbour;
mod place;
mod process;
mod progress;
mod report;
mod scenario;
mod size;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

use crate::bench::{Bench, Options};
use crate::cli::Cli;
use crate::error::BenchError;
use crate::measurement::Measurement;
use crate::progress::say;
use crate::size::Size;

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(2)
        }
    }
}

/// Runs the benchmark; returns whether every count is its limit.
async fn run(cli: &Cli) -> Result<bool, BenchError> {
    let all = cli.options().map_err(BenchError::io("find hub-addons"))?;
    let fails = all.controllers.are_own();
    let (mut runs, mut outcome) = (Vec::new(), Ok(()));
    for size in all.size.varied(&cli.vary) {
        let options = Options { size, ..all.clone() };
        let mut measurements = Vec::new();
        outcome = match Bench::prepare(options).await {
            Ok(mut bench) => scenario::run(&mut bench, &cli.scenarios(), &mut measurements).await,
            Err(error) => Err(error),
        };
        runs.push((size, measurements));
        if outcome.is_err() {
            break;
        }
    }
    // After an error, what was measured before it: a large fleet takes long.
    runs.retain(|(_, measurements)| !measurements.is_empty());
    publish(cli, &runs);
    outcome?;
    let deviations: Vec<String> =
        runs.iter().flat_map(|(_, measurements)| report::deviations(measurements)).collect();
    for line in &deviations {
        say(&format!("not the limit: {line}"));
    }
    Ok(deviations.is_empty() || !fails)
}

#[allow(clippy::print_stdout, reason = "the result for the user")]
fn publish(cli: &Cli, runs: &[(Size, Vec<Measurement>)]) {
    if !cli.vary.is_empty() {
        return print!("{}", report::varied(runs));
    }
    for (size, measurements) in runs {
        print!("{}", report::text(*size, measurements));
    }
}
