//! `hub-bench`: counts what controllers cost a hub, and compares it with the least that the API allows.
//!
//! It starts a hub, creates a fleet, runs controllers through scenarios, and reads the requests from the API server's
//! audit log, and memory and CPU time from /proc.

mod agents;
mod bench;
mod cli;
mod controllers;
mod counts;
mod error;
mod fleet;
mod large;
mod limit;
mod measurement;
mod memory;
mod model;
mod place;
mod process;
mod progress;
mod report;
mod scenario;
mod size;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

use local_hub::HubError;

use crate::bench::Bench;
use crate::cli::Cli;
use crate::error::BenchError;
use crate::progress::say;

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
    let options = cli.options().map_err(|error| HubError::io("find hub-addons", error))?;
    let (size, fails) = (options.size, options.controllers.are_own());
    if cli.in_memory() {
        publish(&large::run(&options).await?);
        return Ok(true);
    }
    let mut measurements = Vec::new();
    let outcome = match Bench::prepare(options).await {
        Ok(mut bench) => scenario::run(&mut bench, &cli.scenarios(), &mut measurements).await,
        Err(error) => Err(error),
    };
    // After an error, what was measured before it: a large fleet takes long.
    if !measurements.is_empty() {
        publish(&report::text(size, &measurements));
    }
    outcome?;
    let deviations = report::deviations(&measurements);
    for line in &deviations {
        say(&format!("not the limit: {line}"));
    }
    Ok(deviations.is_empty() || !fails)
}

#[allow(clippy::print_stdout, reason = "the result for the user")]
fn publish(report: &str) {
    print!("{report}");
}
