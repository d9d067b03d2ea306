//! `hub-addons`: the controllers in one program, each behind a feature gate.

mod cleanup;
mod cli;
mod connect;
mod connections;
mod crds;
mod explain;
mod features;
mod run;
mod serve;
mod user_server;
mod working;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use clusterprofile_cli::{CommandError, args};
use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

use crate::cli::{Cli, Command, HostArgs, LogFormat, OnHub};
use crate::explain::ExplainError;

/// One thread: the controllers wait for the API server most of the time, and musl's allocator, which is compact, has
/// one lock. A long list is decoded in portions, so that probes get a response and the Lease is renewed in between.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => {
            init_log(&args.host);
            return outcome(run::run(*args).await);
        }
        Command::UserServer(args) => {
            init_log(&args.host);
            return outcome(user_server::user_server(*args).await);
        }
        Command::Explain(args) => return ended(explain::explain(args).await),
        Command::List(OnHub { kubeconfig, args }) => {
            return ended(explain::run(&args::Command::List(args), kubeconfig.as_deref()).await);
        }
        Command::Test(OnHub { kubeconfig, args }) => {
            return ended(explain::run(&args::Command::Test(args), kubeconfig.as_deref()).await);
        }
        Command::Kubeconfig(OnHub { kubeconfig, args }) => {
            return ended(explain::run(&args::Command::Kubeconfig(args), kubeconfig.as_deref()).await);
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "hub-addons", &mut script);
            std::io::stdout().lock().write_all(&script)
        }
        Command::Crds(args) => match crds::crds(&args).await {
            Ok(text) => print(&text),
            Err(error) => clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit(),
        },
        Command::Cleanup(args) => match cleanup::cleanup(&args).await {
            Ok(lines) => print(&lines),
            Err(error) => clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit(),
        },
        Command::Version => print(concat!("hub-addons ", env!("CARGO_PKG_VERSION"), "\n")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            clap::Error::raw(ErrorKind::Io, format!("cannot write to standard output: {error}\n")).exit()
        }
    }
}

/// The exit code of a command that has its own exit statuses.
fn ended(result: Result<ExitCode, ExplainError>) -> ExitCode {
    match result {
        Ok(code) => code,
        // The reader has closed the pipe.
        Err(ExplainError::Command(CommandError::Print(error)))
            if error.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit(),
    }
}

/// The exit code of a command that runs until a signal.
fn outcome<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn init_log(args: &HostArgs) {
    if let Err(error) = start_log(args.log_format, &args.log_level) {
        clap::Error::raw(ErrorKind::InvalidValue, format!("invalid --log-level: {error}\n")).exit();
    }
}

fn start_log(format: LogFormat, level: &str) -> Result<(), ParseError> {
    let log = tracing_subscriber::fmt().with_env_filter(filter(level)?).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The filter for a level or for directives.
fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    // At every level: kube-client logs the whole of a response that it cannot decode as a warning, and that may be a
    // Secret. h2's HPACK logs headers, and one of these is a token.
    const SILENT: &str = "kube_client::client=error,h2::hpack=error";
    // A bare level applies to our crates; libraries log from warnings upwards. kube-runtime's warnings are about
    // watches, one for every attempt, and we log those ourselves.
    match level.parse::<LevelFilter>() {
        Ok(_) => EnvFilter::try_new(format!(
            "{level},kube=warn,kube_client=warn,kube_runtime=error,h2=warn,hyper=warn,hyper_util=warn,rustls=warn,tonic=warn,tower=warn,{SILENT}"
        )),
        // Errors are always logged; a later bare level takes precedence.
        Err(_) => EnvFilter::try_new(format!("error,{level},{SILENT}")),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_level_has_a_library_print_what_may_be_a_token() {
        for level in [
            "warn",
            "trace",
            "kube_client=trace",
            "kube_client::client=trace",
            "trace,kube_client=trace",
            "h2=trace,kube_client=trace",
        ] {
            let written = Written::default();
            let writer = written.clone();
            let log = tracing_subscriber::fmt().with_env_filter(filter(level).unwrap());
            tracing::subscriber::with_default(log.with_writer(move || writer.clone()).finish(), || {
                tracing::warn!(target: "kube_client::client", "sEcReT");
                tracing::trace!(target: "h2::hpack::decoder", "sEcReT");
                tracing::error!(target: "kube_client::client", "an error");
            });
            let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(written.contains("an error") && !written.contains("sEcReT"), "{level}: {written}");
        }
    }
}
