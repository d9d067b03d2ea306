//! `hub-bench`: counts what controllers cost a hub, and compares it with the least that the API allows.
//!
//! It starts a hub, creates a fleet, runs controllers through scenarios, and reads the requests from the API server's
//! audit log, bytes from a relay, transactions from etcd, and memory and CPU time from /proc.

mod authority;
mod bare_loop;
mod bench;
mod cli;
mod controllers;
mod counts;
mod error;
mod etcd;
mod fleet;
mod limit;
mod listing;
mod measurement;
mod model;
mod neighbour;
mod place;
mod process;
mod progress;
mod relay;
mod report;
mod scenario;
mod size;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

use crate::bench::{Bench, machine};
use crate::cli::{Cli, Format};
use crate::controllers::Settings;
use crate::error::BenchError;
use crate::progress::say;
use crate::report::Subject;
use crate::scenario::Results;

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
    let options = cli.options().map_err(BenchError::io("find hub-addons"))?;
    let subject = Subject {
        size: options.size,
        commands: options.controllers.commands(Settings::default()),
        machine: machine(),
    };
    let fails = options.controllers.are_own();
    let mut bench = Bench::prepare(options).await?;
    let mut results = Results::default();
    let outcome = scenario::run(&mut bench, &cli.scenarios(), &mut results).await;
    drop(bench);
    // After an error, what was measured before it: a large fleet takes long.
    if !results.measurements.is_empty() {
        publish(cli, &subject, &results)?;
    }
    outcome?;
    let deviations = report::deviations(&results);
    for line in &deviations {
        say(&format!("not the limit: {line}"));
    }
    Ok(deviations.is_empty() || !fails)
}

#[allow(clippy::print_stdout, reason = "the result for the user")]
fn publish(cli: &Cli, subject: &Subject, results: &Results) -> Result<(), BenchError> {
    let json = report::json(subject, results);
    match cli.output {
        Format::Table => print!("{}", report::text(subject, results)),
        Format::Json => println!("{json:#}"),
    }
    if let Some(file) = &cli.json {
        std::fs::write(file, format!("{json:#}\n")).map_err(BenchError::io("write the result"))?;
    }
    Ok(())
}
