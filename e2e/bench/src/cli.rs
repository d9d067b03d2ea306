//! The command line.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::bench::Options;
use crate::controllers::Controllers;
use crate::model::Part;
use crate::scenario::Scenario;
use crate::size::Size;

/// Count what controllers cost a hub, and compare it with the least that the API allows
///
/// Starts a hub on this machine, creates a fleet, runs controllers through a cold start and further scenarios, and
/// prints a table on standard output.
///
/// Exit status: 0 if no count deviates from its limit, 1 if one does, 2 if a scenario has no result; those before it are
/// printed. Times and memory have no limit. Other controllers than those of this project are measured and compared, and
/// do not fail.
#[derive(Debug, Parser)]
#[command(name = "hub-bench", version)]
pub struct Cli {
    /// N: clusters
    #[arg(long, default_value_t = 200, value_parser = at_least::<3>)]
    clusters: usize,

    /// B: namespaces in which the set of the clusters is bound
    #[arg(long, default_value_t = 5, value_parser = at_least::<2>)]
    namespaces: usize,

    /// M: ManagedServiceAccounts per cluster whose token is copied
    #[arg(long, default_value_t = 1, value_parser = at_least::<1>)]
    accounts: usize,

    /// Further clusters that no namespace is granted, with the same accounts
    #[arg(long, default_value_t = 0)]
    ungranted: usize,

    /// C: claims per cluster
    #[arg(long, default_value_t = 4)]
    claims: usize,

    /// Sets that select the same clusters, all bound in every namespace
    #[arg(long, default_value_t = 1, value_parser = at_least::<1>)]
    sets: usize,

    /// K: consumers, which are ClusterAccesses with an account and permissions on every cluster
    ///
    /// With scenarios that change no grant.
    #[arg(long, default_value_t = 0, conflicts_with_all = ["run", "split"])]
    consumers: usize,

    /// Measure a cold start and a restart on a server that keeps objects in memory, for hubs that are larger than etcd
    /// holds
    ///
    /// The server has no rules and no audit log: nothing is compared with a limit.
    #[arg(long, conflicts_with_all = ["run", "split", "granted", "scenarios"])]
    in_memory: bool,

    /// What happens after the cold start; by default everything
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    scenarios: Option<Vec<Scenario>>,

    /// The program hub-addons; by default the one next to this program
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Run the credential syncer in a process of its own, as the chart does
    #[arg(long, conflicts_with = "run")]
    split: bool,

    /// Give the credential syncer its permissions by namespace, as the chart does
    #[arg(long, conflicts_with = "run")]
    granted: bool,

    /// Run this command instead of hub-addons; can be repeated
    ///
    /// Words are separated by spaces, and {kubeconfig} stands for the path of a kubeconfig of the hub, whose user has
    /// every permission.
    #[arg(long, value_name = "COMMAND", conflicts_with = "program")]
    run: Vec<String>,

    /// What the controllers of --run do not do
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", requires = "run")]
    without: Vec<Part>,

    /// Install the CRDs in this directory that the hub does not have, for the controllers of --run
    #[arg(long, value_name = "DIRECTORY", requires = "run")]
    crds: Option<PathBuf>,

    /// Length of the idle scenario in seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    idle: u64,

    /// How long the controllers may take for each scenario, in seconds
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    timeout: u64,
}

impl Cli {
    /// What happens after the cold start.
    pub fn scenarios(&self) -> Vec<Scenario> {
        self.scenarios.clone().unwrap_or_else(|| Scenario::value_variants().to_vec())
    }

    /// Whether the server keeps objects in memory.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// What to measure.
    pub fn options(&self) -> std::io::Result<Options> {
        let controllers = if self.run.is_empty() {
            let program = match &self.program {
                Some(program) => std::path::absolute(program)?,
                None => std::env::current_exe()?.with_file_name("hub-addons"),
            };
            let granted = self.granted || self.consumers > 0;
            let consumers = self.consumers > 0;
            Controllers::Own { program, split: self.split, granted, consumers }
        } else {
            Controllers::Given(self.run.clone())
        };
        Ok(Options {
            size: Size {
                clusters: self.clusters,
                namespaces: self.namespaces,
                accounts: self.accounts,
                ungranted: self.ungranted,
                claims: self.claims,
                sets: self.sets,
                consumers: self.consumers,
            },
            controllers,
            without: self.without.clone(),
            crds: self.crds.clone(),
            idle: Duration::from_secs(self.idle),
            timeout: Duration::from_secs(self.timeout),
        })
    }
}

/// A number of at least `LEAST`, which the scenarios need.
fn at_least<const LEAST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number >= LEAST => Ok(number),
        Ok(number) => Err(format!("must be at least {LEAST}, got {number}")),
        Err(error) => Err(format!("not a valid number: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_fleet_that_is_too_small_for_the_scenarios_is_refused() {
        for arguments in ["--clusters=2", "--namespaces=1", "--accounts=0", "--clusters=many"] {
            assert!(Cli::try_parse_from(["hub-bench", arguments]).is_err(), "{arguments}");
        }
    }
}
