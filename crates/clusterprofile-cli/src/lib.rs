//! The commands of `kubectl clusterprofile`, which `hub-addons` offers as well: which clusters a namespace sees, why it
//! does not see or reach one, and how to reach it.
//!
//! Reads the hub and writes nothing, except for `test --in-cluster`, which creates one Pod and deletes it. The decisions
//! are those of the controllers ([`hub_core::explain`]). No token is ever printed.

pub mod args;
mod explain;
mod hub;
mod kubeconfig;
mod list;
mod read;
mod table;
mod trial;

use std::io::{self, Write};

pub use crate::explain::explain;
pub use crate::hub::{Hub, HubError, describe};
pub use crate::kubeconfig::kubeconfig;
pub use crate::list::list;
pub use crate::trial::test;

/// How a command ends, where it could be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong.
    Fine,
    /// Something is wrong.
    Problem,
    /// Nothing that could be read is wrong, and not everything could be read.
    Unknown,
}

impl Outcome {
    /// The exit status; 2 is that of a command that cannot be carried out.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Problem => 1,
            Self::Unknown => 3,
        }
    }
}

/// Why a command cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The hub cannot be reached, or does not permit what the command is about.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// What was asked for does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Carries out a command and prints its result.
pub async fn run(command: &args::Command, hub: &Hub, out: &mut impl Write) -> Result<Outcome, CommandError> {
    match command {
        args::Command::List(args) => list(hub, args, out).await,
        args::Command::Explain(args) => explain(hub, args, out).await,
        args::Command::Test(args) => test(hub, args, out).await,
        args::Command::Kubeconfig(args) => kubeconfig(hub, args, out).await,
    }
}
