//! `kubectl clusterprofile`: the commands of `clusterprofile-cli`, with kubectl's kubeconfig, context and namespace.
//!
//! kubectl runs a program of this name for its subcommand `clusterprofile` and passes on what follows it.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clusterprofile_cli::{CommandError, Hub, args, describe};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Shows which clusters a namespace can see on an Open Cluster Management hub, and why it does not see or reach one
#[derive(Debug, Parser)]
#[command(name = "kubectl-clusterprofile", bin_name = "kubectl clusterprofile", version)]
struct Cli {
    /// The kubeconfig of the hub; by default $KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,

    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Hub(Box<args::Command>),
    /// Print a completion script for a shell
    ///
    /// kubectl runs a program named kubectl_complete-clusterprofile for completions of its plugins; this script
    /// completes kubectl-clusterprofile.
    Completion {
        /// The shell
        shell: Shell,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let command = match &cli.command {
        Command::Hub(command) => command,
        Command::Completion { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "kubectl-clusterprofile", &mut io::stdout());
            return ExitCode::SUCCESS;
        }
    };
    let hub = match hub(&cli).await {
        Ok(hub) => hub,
        Err(error) => clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit(),
    };
    // Colours only on a terminal, and not with NO_COLOR.
    let mut out = anstream::AutoStream::auto(io::stdout());
    let result = clusterprofile_cli::run(command, &hub, &mut out).await;
    match result.and_then(|outcome| out.flush().map(|()| outcome).map_err(CommandError::from)) {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        Err(CommandError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit(),
    }
}

async fn hub(cli: &Cli) -> Result<Hub, String> {
    let options = KubeConfigOptions { context: cli.context.clone(), ..KubeConfigOptions::default() };
    let config = match &cli.kubeconfig {
        Some(path) => {
            let failed = |error| format!("cannot use the kubeconfig {}: {error}", path.display());
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(failed)?
        }
        None => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| format!("no hub to talk to: {error}; --kubeconfig names a kubeconfig"))?,
    };
    let client = Client::try_from(config);
    let client =
        client.map_err(|error| format!("cannot set up a client for the hub: {}", describe(&error)))?;
    Ok(Hub::new(client, cli.kubeconfig.clone().or_else(default_kubeconfig)))
}

/// The kubeconfig that kubectl uses, if it is a single file.
fn default_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    named.map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".kube").join("config")))
}
