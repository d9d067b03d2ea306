//! `hub-addons`: the controllers in one program, each behind a feature gate.

mod check;
mod cleanup;
mod cli;
mod connect;
mod connections;
mod crds;
mod features;
mod run;
mod serve;
mod user_server;

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{self, ExitCode};

use clap::Parser as _;
use clap::error::ErrorKind;
use mimalloc::MiMalloc;
use tracing::error;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Cli, Command, HostArgs, LogFormat};

/// Less CPU time than with musl's allocator (`docs/dev/process.md`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The version, which `hack/version.sh` sets for what is released or run in Pods.
pub const VERSION: &str = match option_env!("HUB_ADDONS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Why a command has failed: a text for people, which nothing distinguishes from another.
type Failure = Box<dyn std::error::Error>;

/// One thread: the controllers wait for the API server most of the time. A long list is decoded in portions, so that
/// probes get a response and the Lease is renewed in between.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    trim_variables();
    match Cli::parse().command {
        Command::Run(args) => {
            init_log(&args.host);
            outcome(run::run(*args).await)
        }
        Command::UserServer(args) => {
            init_log(&args.host);
            outcome(user_server::user_server(*args).await)
        }
        Command::Check(args) => match check::check(&args).await {
            Ok((report, None)) => print(&report),
            Ok((report, Some(complaint))) => {
                print(&report);
                // A closed stderr leaves the exit status.
                let _ = writeln!(io::stderr(), "error: {complaint}");
                ExitCode::FAILURE
            }
            Err(error) => fail(&error),
        },
        Command::Crds(args) => printed(crds::crds(&args).await),
        Command::Cleanup(args) => printed(cleanup::cleanup(&args).await),
        Command::Version => print(format!("hub-addons {VERSION}\n").as_bytes()),
    }
}

/// A variable that is a block of YAML ends in a line break. clap reads the variables of its flags as they are, so the
/// program starts again with these trimmed.
fn trim_variables() {
    let variables = env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let trimmed = value.trim();
        (name.starts_with("HUB_ADDONS_") && trimmed != value).then(|| (name, trimmed.to_owned()))
    });
    let variables: Vec<_> = variables.collect();
    if !variables.is_empty()
        && let Ok(program) = env::current_exe()
    {
        // It returns only if that fails: then clap reports the value.
        let _ = process::Command::new(program).args(env::args_os().skip(1)).envs(variables).exec();
    }
}

/// The exit code of a command that runs until a signal.
fn outcome(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn init_log(args: &HostArgs) {
    let filter = filter(&args.log_level).unwrap_or_else(|error| {
        clap::Error::raw(ErrorKind::InvalidValue, format!("invalid --log-level: {error}\n")).exit()
    });
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(io::stderr);
    match args.log_format {
        LogFormat::Text => {
            log.with_ansi(io::stderr().is_terminal()).finish().with(filter).init();
        }
        LogFormat::Json => log.json().flatten_event(true).finish().with(filter).init(),
    }
}

/// The filter for a level or for directives.
fn filter(level: &str) -> Result<Targets, ParseError> {
    // At every level: kube-client logs the whole of a response that it cannot decode as a warning, and that may be a
    // Secret. h2's HPACK logs headers, and one of these is a token.
    const SILENT: &str = "kube_client::client=error,h2::hpack=error";
    // A bare level applies to our crates; libraries log from warnings upwards. kube-runtime's warnings are about
    // watches, one for every attempt, and we log those ourselves.
    match level.parse::<LevelFilter>() {
        Ok(_) => format!(
            "{level},kube=warn,kube_client=warn,kube_runtime=error,h2=warn,hyper=warn,hyper_util=warn,rustls=warn,tonic=warn,tower=warn,{SILENT}"
        )
        .parse(),
        // Errors are always logged; a later bare level takes precedence.
        Err(_) => format!("error,{level},{SILENT}").parse(),
    }
}

/// Prints the output of a command.
fn printed<E: Display>(output: Result<String, E>) -> ExitCode {
    match output {
        Ok(text) => print(text.as_bytes()),
        Err(error) => fail(&error),
    }
}

fn print(text: &[u8]) -> ExitCode {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format_args!("cannot write to standard output: {error}"))
        }
        // With an error, the reader has closed the pipe.
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Ends the program with an error.
fn fail(error: &dyn Display) -> ! {
    clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit()
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
            let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
            tracing::subscriber::with_default(
                log.with_writer(move || writer.clone()).finish().with(filter(level).unwrap()),
                || {
                    tracing::warn!(target: "kube_client::client", "sEcReT");
                    tracing::trace!(target: "h2::hpack::decoder", "sEcReT");
                    tracing::error!(target: "kube_client::client", "an error");
                },
            );
            let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(
                written.contains("an error") && !written.contains("sEcReT"),
                "{level}: {written}"
            );
        }
    }
}
