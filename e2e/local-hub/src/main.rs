//! `local-hub`: a hub in the foreground, for the demo and for looking around, and the parts that Open Cluster
//! Management's addons would play around it.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::Cli::parse().run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::say(&format!("{error:?}"));
            ExitCode::FAILURE
        }
    }
}
