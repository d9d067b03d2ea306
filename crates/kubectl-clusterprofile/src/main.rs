//! `kubectl clusterprofile`: the commands of `clusterprofile-cli`, with kubectl's kubeconfig, context and namespace.
//!
//! kubectl runs a program of this name for its subcommand `clusterprofile` and passes on what follows it.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clusterprofile_cli::args::{self, DryRun};
use clusterprofile_cli::{CommandError, Hub, describe};
use hub_config::ConfigError;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{ClientBuilder, ConfigExt as _};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use object_names::visible;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// The version, which `hack/version.sh` sets for what is released.
const VERSION: &str = match option_env!("HUB_ADDONS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Shows which clusters a namespace can see on an Open Cluster Management hub, and why it cannot see or reach one
#[derive(Debug, Parser)]
#[command(name = "kubectl-clusterprofile", bin_name = "kubectl clusterprofile", version = VERSION)]
struct Cli {
    /// How the hub is reached.
    #[command(flatten)]
    hub: HubArgs,

    /// The namespace; by default that of the context
    #[arg(long, short, global = true, value_name = "NAMESPACE", value_parser = args::namespace)]
    namespace: Option<String>,

    #[command(subcommand)]
    command: Command,
}

/// The options of kubectl for the hub.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of kubectl")]
struct HubArgs {
    /// The kubeconfig of the hub; by default $KUBECONFIG, else ~/.kube/config, else the Pod's ServiceAccount
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,

    /// The cluster of the kubeconfig to use
    // These fields must not have the name of an argument of a command: clap would give them its value.
    #[arg(long = "cluster", global = true, value_name = "NAME")]
    hub_cluster: Option<String>,

    /// The user of the kubeconfig to use
    #[arg(long = "user", global = true, value_name = "NAME")]
    hub_user: Option<String>,

    /// User name to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    as_user: Option<String>,

    /// Group to impersonate; can be repeated, on one side of the command
    #[arg(long, global = true, value_name = "GROUP")]
    as_group: Vec<String>,

    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID")]
    as_uid: Option<String>,

    /// How long a connection and each response of the hub may take, as 1s or 2m; 0 for no limit
    #[arg(long, global = true, value_name = "DURATION", default_value = "0", value_parser = request_timeout)]
    request_timeout: Duration,
}

/// A duration as kubectl's `--request-timeout` has it: with a unit, or in seconds.
fn request_timeout(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| args::duration(text))
}

impl Cli {
    /// Parses the arguments. The options of kubectl can be before and after the command.
    fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(arguments)?;
        // clap would require the user on the same side of the command.
        if cli.hub.as_user.is_none() && (!cli.hub.as_group.is_empty() || cli.hub.as_uid.is_some()) {
            let message = "--as-group and --as-uid require --as <USER>";
            return Err(Self::command().error(ErrorKind::MissingRequiredArgument, message));
        }
        Ok(cli)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Hub(Box<args::Command>),
    /// Print a completion script for a shell
    ///
    /// This script completes kubectl-clusterprofile, which is the name of the program.
    Completion { shell: Shell },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let command = match cli.command {
        Command::Hub(command) => *command,
        Command::Completion { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "kubectl-clusterprofile",
                &mut io::stdout(),
            );
            return ExitCode::SUCCESS;
        }
    };
    let ended = match (hub(&cli.hub).await, command) {
        (Err(_), args::Command::Request(request)) if request.dry_run == DryRun::Client => {
            clusterprofile_cli::preview(&request, cli.namespace.as_deref().unwrap_or("default"))
        }
        (Err(error), _) => fail(&error),
        (Ok(mut hub), command) => {
            hub.namespace = cli.namespace.clone().unwrap_or(hub.namespace);
            hub.named = cli.namespace;
            clusterprofile_cli::run(command, &hub).await
        }
    };
    match ended {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        Err(CommandError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(error: &str) -> ! {
    clap::Error::raw(ErrorKind::Io, format!("{}\n", visible(error))).exit()
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
    let file = hub_config::read(args.kubeconfig.as_deref());
    let current = file.as_ref().ok().and_then(|file| file.current_context.clone());
    let context = file.as_ref().map(|file| hub_config::context(file, &options)).unwrap_or_default();
    let of_files = match file {
        Ok(file) => hub_config::config(file, &options).await,
        Err(error) => Err(error),
    };
    let is_set = |flags: &[&Option<String>]| flags.iter().any(|flag| flag.is_some());
    let is_chosen = is_set(&[&args.context, &args.hub_cluster, &args.hub_user]);
    // With --as or --request-timeout, kubectl would connect to localhost:8080.
    let is_none = of_files.as_ref().is_err_and(ConfigError::is_none) && !is_chosen;
    let of_pod = is_none.then(hub_config::in_cluster).flatten();
    let is_of_pod = of_pod.is_some();
    let mut config = of_pod.unwrap_or(of_files).map_err(failed)?;
    if context.namespace.is_none_or(|namespace| namespace.is_empty())
        && let Some(namespace) = hub_config::pod_namespace()
    {
        config.default_namespace = namespace;
    }
    if !args.request_timeout.is_zero() {
        let timeout = Some(args.request_timeout);
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
    let client = client(&config);
    let client = client
        .map_err(|error| format!("cannot set up a client for the hub: {}", describe(&error)))?;
    let kubeconfig = args.kubeconfig.clone().or_else(default_kubeconfig).filter(|_| !is_of_pod);
    let mut hub = Hub::new(client, kubeconfig);
    hub.differs_from_kubeconfig = args.context.is_some() && args.context != current
        || is_set(&[&args.hub_cluster, &args.hub_user, &args.as_user]);
    Ok(hub)
}

/// kube's own client, whose proxies are not those of kubectl, with the connector of ours.
fn client(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    // The next layer adds TLS.
    tcp.enforce_http(false);
    let connector = hub_config::connector(config, tcp)?;
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(hub_config::token_of_file(config))
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// The files that kubectl reads, as a value of `KUBECONFIG`.
fn default_kubeconfig() -> Option<PathBuf> {
    let files = hub_config::default_files();
    std::env::join_paths(&files).ok().filter(|_| !files.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads arguments that are separated by spaces; `''` is an empty one.
    fn read(arguments: &str) -> Result<Cli, clap::Error> {
        let arguments =
            arguments.split(' ').map(|argument| if argument == "''" { "" } else { argument });
        Cli::read(["kubectl-clusterprofile"].into_iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_request_timeout_of_zero_in_any_unit_is_none_and_a_negative_one_is_invalid() {
        for (text, expected) in [
            ("0", Some(Duration::ZERO)),
            ("0s", Some(Duration::ZERO)),
            ("0m", Some(Duration::ZERO)),
            ("30", Some(Duration::from_secs(30))),
            ("2m", Some(Duration::from_mins(2))),
            ("500ms", Some(Duration::from_millis(500))),
            ("-1", None),
            ("-1s", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(request_timeout(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_name_that_is_part_of_a_path_of_the_hub_is_valid() {
        for arguments in [
            "-n '' list",
            "-n a/b list",
            "-n A explain",
            "--namespace .. list",
            "list -n a/b",
            "explain -n ''",
            "explain --managed-cluster a/b",
            "explain --managed-cluster ''",
            "test x/../y",
            "list x ..",
        ] {
            let error = read(arguments).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{arguments}: {error}");
        }
    }
}
