//! `kubectl clusterprofile`: the commands of `clusterprofile-cli`, with kubectl's kubeconfig, context and namespace.
//!
//! kubectl runs a program of this name for its subcommand `clusterprofile` and passes on what follows it.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clusterprofile_cli::args::{self, DryRun};
use clusterprofile_cli::{CommandError, Hub, describe};
use hub_config::ConfigError;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use object_names::visible;

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

    /// User name to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    as_user: Option<String>,
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
    let cli = Cli::parse();
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
    let chosen = args.context.as_deref();
    let failed = |error| match &args.kubeconfig {
        Some(path) => format!("cannot use the kubeconfig {}: {error}", path.display()),
        None => format!("no hub to talk to: {error}; --kubeconfig names a kubeconfig"),
    };
    let file = hub_config::read(args.kubeconfig.as_deref());
    let current = file.as_ref().ok().and_then(|file| file.current_context.clone());
    let context = file.as_ref().map(|file| hub_config::context(file, chosen)).unwrap_or_default();
    let of_files = match file {
        Ok(file) => hub_config::config(file, chosen).await,
        Err(error) => Err(error),
    };
    // With --as, kubectl would connect to localhost:8080.
    let is_none = of_files.as_ref().is_err_and(ConfigError::is_none) && chosen.is_none();
    let of_pod = is_none.then(hub_config::in_cluster).flatten();
    let is_of_pod = of_pod.is_some();
    let mut config = of_pod.unwrap_or(of_files).map_err(failed)?;
    if context.namespace.is_none_or(|namespace| namespace.is_empty())
        && let Some(namespace) = hub_config::pod_namespace()
    {
        config.default_namespace = namespace;
    }
    if args.as_user.is_some() {
        config.auth_info.impersonate.clone_from(&args.as_user);
        // Those of the kubeconfig are of its user.
        config.auth_info.impersonate_groups = None;
        config.auth_info.impersonate_uid = None;
    }
    let client = client(&config)
        .map_err(|error| format!("cannot set up a client for the hub: {}", describe(&error)))?;
    let kubeconfig = args.kubeconfig.clone().or_else(default_kubeconfig).filter(|_| !is_of_pod);
    let mut hub = Hub::new(client, kubeconfig);
    hub.differs_from_kubeconfig =
        chosen.is_some() && chosen != current.as_deref() || args.as_user.is_some();
    Ok(hub)
}

/// A client that connects as ours do. A command retries what the hub refuses for a moment.
fn client(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    // The next layer adds TLS.
    tcp.enforce_http(false);
    let connector = hub_config::connector(config, tcp)?;
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    hub_config::client(config, http)
}

/// The files that kubectl reads, as a value of `KUBECONFIG`.
fn default_kubeconfig() -> Option<PathBuf> {
    let files = hub_config::default_files();
    std::env::join_paths(&files).ok().filter(|_| !files.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Reads arguments that are separated by spaces; `''` is an empty one.
    fn read(arguments: &str) -> Result<Cli, clap::Error> {
        let arguments =
            arguments.split(' ').map(|argument| if argument == "''" { "" } else { argument });
        Cli::try_parse_from(["kubectl-clusterprofile"].into_iter().chain(arguments))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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

    #[tokio::test]
    async fn a_client_for_a_command_waits_while_the_storage_of_the_hub_is_initialized() {
        let respond = async |retries: bool| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut config =
                Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
            config.default_retry = retries;
            let server = tokio::spawn(async move {
                let status = br#"{"kind":"Status","status":"Failure","code":429,"message":"storage is (re)initializing"}"#;
                let refusal = format!(
                    "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    status.len()
                );
                let refusal = [refusal.as_bytes(), status].concat();
                let success =
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".to_vec();
                for response in [refusal.clone(), refusal, success] {
                    let Ok((mut connection, _)) = listener.accept().await else { return };
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        connection.read_buf(&mut request).await.unwrap();
                    }
                    connection.write_all(&response).await.unwrap();
                }
            });
            let request = http::Request::get("/").body(Vec::new()).unwrap();
            let response = client(&config).unwrap().request_text(request).await;
            server.abort();
            response
        };
        assert_eq!(respond(true).await.unwrap(), "ok");
        let refused = respond(false).await.unwrap_err();
        assert!(
            matches!(refused, kube::Error::Api(status) if status.code == 429),
            "the queue of a controller retries"
        );
    }
}
