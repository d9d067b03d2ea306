//! The commands of `kubectl clusterprofile` on the hub that the program runs on, for `kubectl exec`.
//!
//! `explain` with `--expect-…`, as `helm test` runs it, checks only the expectations.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clusterprofile_cli::args::Command;
use clusterprofile_cli::{CommandError, Hub};

use crate::cli::ExplainArgs;
use crate::connect::{self, ConnectError};
use crate::working;

/// Why a command cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No client for a hub could be created.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hub refuses a request, or the result cannot be printed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Explains, or checks the expectations.
pub async fn explain(args: ExplainArgs) -> Result<ExitCode, ExplainError> {
    if args.working.is_empty() {
        return run(Command::Explain(args.explain), args.kubeconfig.as_deref()).await;
    }
    let client =
        connect::client(connect::config(args.kubeconfig.as_deref()).await?, args.kubeconfig.as_deref())
            .await?;
    let report = working::look(&client, &args.working).await;
    write!(io::stdout().lock(), "{report}").map_err(CommandError::Print)?;
    if report.works() {
        return Ok(ExitCode::SUCCESS);
    }
    let _ = writeln!(io::stderr(), "error: {}", report.complaint());
    Ok(ExitCode::FAILURE)
}

/// Carries out a command and prints its result.
pub async fn run(command: Command, kubeconfig: Option<&Path>) -> Result<ExitCode, ExplainError> {
    let mut config = connect::config(kubeconfig).await?;
    // Retries as kubectl does, since a person waits, after a response such as "storage is (re)initializing".
    config.default_retry = true;
    let client = connect::client(config, kubeconfig).await?;
    let hub = Hub::new(client, kubeconfig.map(Path::to_owned));
    let outcome = clusterprofile_cli::run(command, &hub).await?;
    Ok(ExitCode::from(outcome.exit_status()))
}
