//! The commands of `local-hub`, and shared code.

mod end;
mod pods;
mod ready;
mod report_token;
mod up;
mod user_server;

use clap::{Parser, Subcommand};
use local_hub::HubError;

/// Run Kubernetes control planes on this machine, without containers or nodes, and leave nothing behind
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    UserServer(user_server::Options),
    ReportToken(report_token::ReportToken),
    Pods(pods::Options),
}

impl Cli {
    /// Runs the command.
    pub async fn run(self) -> Result<(), HubError> {
        match self.command {
            Command::Up(up) => up.run().await,
            Command::UserServer(options) => options.run().await,
            Command::ReportToken(report) => report.run().await,
            Command::Pods(options) => options.run().await,
        }
    }
}

/// Reports progress to the user.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn say(what: &str) {
    eprintln!("local-hub: {what}");
}
