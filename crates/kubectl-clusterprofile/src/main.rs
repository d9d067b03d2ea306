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
use std::str::FromStr;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clusterprofile_cli::args::{self, Limit};
use clusterprofile_cli::{CommandError, Hub, describe};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Shows which clusters a namespace can see on an Open Cluster Management hub, and why it does not see or reach one
#[derive(Debug, Parser)]
#[command(name = "kubectl-clusterprofile", bin_name = "kubectl clusterprofile", version)]
struct Cli {
    /// How the hub is reached.
    #[command(flatten)]
    hub: HubArgs,

    /// The namespace; by default that of the context
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The command.
    #[command(subcommand)]
    command: Command,
}

/// The options of kubectl for the hub.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of kubectl")]
struct HubArgs {
    /// The kubeconfig of the hub; by default $KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,

    /// The cluster of the kubeconfig to use
    // The names of these fields are those of no argument of a command, which would get their values.
    #[arg(long = "cluster", global = true, value_name = "NAME")]
    hub_cluster: Option<String>,

    /// The user of the kubeconfig to use
    #[arg(long = "user", global = true, value_name = "NAME")]
    hub_user: Option<String>,

    /// User name to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    as_user: Option<String>,

    /// Group to impersonate; can be repeated
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    as_group: Vec<String>,

    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID", requires = "as_user")]
    as_uid: Option<String>,

    /// How long a connection and each response of the hub may take, as 1s or 2m; 0 for no limit
    #[arg(long, global = true, value_name = "DURATION", default_value = "0")]
    request_timeout: RequestTimeout,
}

/// A duration as kubectl's `--request-timeout` has it: with a unit, or in seconds; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RequestTimeout(Option<Duration>);

impl FromStr for RequestTimeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(seconds) = text.parse() {
            return Ok(Self((seconds > 0).then(|| Duration::from_secs(seconds))));
        }
        text.parse().map(|Limit(limit)| Self(Some(limit)))
    }
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
    let mut cli = Cli::parse();
    let command = match &mut cli.command {
        Command::Hub(command) => command,
        Command::Completion { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "kubectl-clusterprofile", &mut io::stdout());
            return ExitCode::SUCCESS;
        }
    };
    if let Some(namespace) = &cli.namespace
        && let Err(error) = command.in_namespace(namespace)
    {
        clap::Error::raw(ErrorKind::ArgumentConflict, format!("{error}\n")).exit();
    }
    let hub = match hub(&cli.hub).await {
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

async fn hub(args: &HubArgs) -> Result<Hub, String> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.hub_cluster.clone(),
        user: args.hub_user.clone(),
    };
    let failed = |error| match &args.kubeconfig {
        Some(path) => format!("cannot use the kubeconfig {}: {error}", path.display()),
        None => format!("no hub to talk to: {error}; --kubeconfig names a kubeconfig"),
    };
    let file = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = file.map_err(failed)?;
    let is_other_context = args.context.is_some() && args.context != file.current_context;
    let mut config = Config::from_custom_kubeconfig(file, &options).await.map_err(failed)?;
    let RequestTimeout(timeout) = args.request_timeout;
    if timeout.is_some() {
        config.connect_timeout = timeout;
        config.read_timeout = timeout;
        config.write_timeout = timeout;
        config.reset_reader_on_write = true;
    }
    if args.as_user.is_some() {
        config.auth_info.impersonate.clone_from(&args.as_user);
        config.auth_info.impersonate_groups = Some(args.as_group.clone());
        config.auth_info.impersonate_uid.clone_from(&args.as_uid);
    }
    let client = Client::try_from(config);
    let client =
        client.map_err(|error| format!("cannot set up a client for the hub: {}", describe(&error)))?;
    let hub = Hub::new(client, args.kubeconfig.clone().or_else(default_kubeconfig));
    let differs_from_kubeconfig = is_other_context
        || [&args.hub_cluster, &args.hub_user, &args.as_user].into_iter().any(Option::is_some);
    Ok(Hub { differs_from_kubeconfig, ..hub })
}

/// The kubeconfig that kubectl uses, if it is a single file.
fn default_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    named.map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".kube").join("config")))
}
