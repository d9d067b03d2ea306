//! The commands of `kubectl clusterprofile`: they show which clusters a namespace can see, why it cannot see or reach a
//! cluster, and how to reach it.
//!
//! The commands read the hub and write nothing, except `request`, which creates a ClusterAccess. They use the decisions of
//! the controllers ([`hub_core::explain`]), and never print a token.

mod account;
pub mod args;
mod connectivity;
mod decisions;
mod explain;
mod hub;
mod kubeconfig;
mod list;
mod output;
mod read;
mod release;
mod report;
mod request;
mod requests;
pub mod table;

use std::io::{self, Write as _};

use strum::{EnumMessage, VariantArray};

use crate::explain::explain;
use crate::kubeconfig::kubeconfig;
use crate::list::list;
use crate::report::report;
use crate::request::request;

pub use crate::hub::{Hub, HubError, describe};
pub use crate::requests::profile_version;

/// The result of a command that could be carried out, and its exit status. The comments are the texts of
/// `docs/reference.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumMessage, VariantArray)]
pub enum Conclusion {
    /// The command was carried out. `explain`: everything is in order. `test`: the cluster responds.
    Fine = 0,
    /// `explain`: there is a problem. `test`: a hop fails.
    Problem = 1,
    /// `explain`: there is no problem in what could be read, and something could not be read.
    Unknown = 3,
}

impl Conclusion {
    /// The exit status; a command that cannot be carried out has 2.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        self as u8
    }
}

/// Why a command cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The hub cannot be reached, or refuses a request that the command depends on.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The arguments contradict each other or name what does not exist.
    #[error("{0}")]
    Refused(String),
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Carries out a command and prints its result.
pub async fn run(command: args::Command, hub: &Hub) -> Result<Conclusion, CommandError> {
    // Colours only on a terminal, and not with NO_COLOR.
    let out = &mut anstream::AutoStream::auto(io::stdout());
    let conclusion = match command {
        args::Command::List(args) => list(hub, &args, out).await?,
        args::Command::Explain(args) => explain(hub, &args, out).await?,
        args::Command::Request(args) => request(hub, &args, out).await?,
        args::Command::Report(args) => report(hub, &args, out).await?,
        args::Command::Test(mut args) => {
            args.target = args.place.target(hub)?;
            if args.target.cluster.is_none() {
                let namespace = &args.target.namespace;
                return Err(CommandError::Refused(format!(
                    "expected NAMESPACE/CLUSTER, got {namespace:?}"
                )));
            }
            account::complete(hub, &args.target, &mut args.reach).await?;
            connectivity::test(hub, &args, out).await?
        }
        args::Command::Kubeconfig(mut args) => {
            args.target = args.place.target(hub)?;
            account::complete(hub, &args.target, &mut args.reach).await?;
            kubeconfig(hub, &args, out).await?
        }
    };
    out.flush()?;
    Ok(conclusion)
}

/// Prints the object of a `request` with `--dry-run=client`, of which no hub learns.
pub fn preview(args: &args::RequestArgs, namespace: &str) -> Result<Conclusion, CommandError> {
    request::print(args, &request::wanted(args, namespace)?, &mut io::stdout())
}
