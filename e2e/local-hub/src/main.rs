//! `local-hub`: a hub in the foreground, for the demo and for exploring, and stand-ins for parts of Open Cluster
//! Management's addons.

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
