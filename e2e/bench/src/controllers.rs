//! The controllers that are measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use local_hub::{LocalHub, Requests, Running, end_of, everything};

use crate::error::BenchError;
use crate::place::{SENTINEL, SENTINEL_CLUSTER};
use crate::process::Usage;

/// The namespace of the controllers' ServiceAccounts and Leases.
pub const HOME: &str = "bench";

/// The names of the ServiceAccounts and logs, one for each program.
const NAMES: [&str; 8] = [
    "controllers-0",
    "controllers-1",
    "controllers-2",
    "controllers-3",
    "controllers-4",
    "controllers-5",
    "controllers-6",
    "controllers-7",
];

/// How long a program may take to stop before it is killed.
const STOPPING: Duration = Duration::from_mins(1);

/// The lines of each log in an error.
const LINES: usize = 10;

/// What is run.
#[derive(Clone, Debug)]
pub enum Controllers {
    /// Those of this project.
    Own {
        /// `hub-addons`.
        program: PathBuf,
        /// Whether the syncer has a process of its own.
        split: bool,
        /// Whether the syncer has its permissions by namespace.
        granted: bool,
        /// Whether ClusterAccesses have an effect.
        consumers: bool,
    },
    /// Any other programs, one command for each.
    Given(Vec<String>),
}

/// What scenarios change about the controllers of this project.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long replaced trust anchors are published.
    pub overlap: &'static str,
    /// Whether the syncer's feature gate is on.
    pub syncer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { overlap: "1h", syncer: true }
    }
}

impl Controllers {
    /// Whether the syncer has its permissions by namespace.
    pub fn are_granted(&self) -> bool {
        matches!(self, Self::Own { granted: true, .. })
    }

    /// Whether these are the controllers of this project, whose settings can change.
    pub fn are_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    /// The commands, with `{kubeconfig}` in place of the path.
    pub fn commands(&self, settings: Settings) -> Vec<String> {
        let Self::Own { program, split, granted, consumers } = self else {
            let Self::Given(commands) = self else { return Vec::new() };
            return commands.clone();
        };
        let command = |profiles: bool, syncer: bool| {
            let common = format!(
                "{} run --kubeconfig={{kubeconfig}} --metrics-bind-address=0 --health-probe-bind-address=0 \
                 --log-level=warn --ca-overlap={} --feature-gates=ClusterProfile={profiles},\
                 ClusterProfileAccessProvider={profiles},ClusterProfileCredSyncer={syncer}",
                program.display(),
                settings.overlap,
            );
            if !granted {
                return common;
            }
            let account = NAMES[usize::from(*split)];
            format!(
                "{common},ClusterProfileCredRights={profiles},ClusterProfileConsumers={consumers} \
                 --credential-rights-subject={HOME}/{account} --cluster-access={consumers} --allowed-cluster-roles=view"
            )
        };
        match (split, settings.syncer) {
            (true, true) => vec![command(true, false), command(false, true)],
            (false, true) => vec![command(true, true)],
            (_, false) => vec![command(true, false)],
        }
    }
}

/// Running programs.
#[derive(Debug)]
pub struct Group(Vec<(String, Running)>);

impl Group {
    /// Grants the ServiceAccounts of `programs` every permission, but not the exemption of administrators from API
    /// Priority and Fairness.
    pub async fn allow(hub: &LocalHub, programs: usize) -> Result<(), BenchError> {
        for name in NAMES.iter().take(programs) {
            hub.grant_service_account(HOME, name, vec![everything()]).await?;
        }
        Ok(())
    }

    /// Starts programs.
    pub async fn start(hub: &LocalHub, commands: &[String]) -> Result<Self, BenchError> {
        let mut running = Vec::new();
        for (name, command) in NAMES.into_iter().zip(commands) {
            let account = hub.service_account(HOME, name).await?;
            let kubeconfig = account.kubeconfig().display().to_string();
            let command = command.replace("{kubeconfig}", &kubeconfig);
            let mut words = command.split_whitespace();
            let program = words.next().ok_or_else(|| BenchError::Program {
                command: command.clone(),
                problem: "it is empty".to_owned(),
            })?;
            let program = hub.run(name, Path::new(program), words).await?;
            running.push((command, program));
        }
        Ok(Self(running))
    }

    /// What each program uses, by process id.
    pub fn usage(&self) -> Result<Vec<(u32, Usage)>, BenchError> {
        let usage = |(command, program): &(String, Running)| {
            let usage = Usage::of(program.pid()).ok_or_else(|| BenchError::Program {
                command: command.clone(),
                problem: format!("it has ended; its log:\n{}", program.log()),
            })?;
            Ok((program.pid(), usage))
        };
        self.0.iter().map(usage).collect()
    }

    /// The end of every log.
    pub fn logs(&self) -> String {
        let tail = |(_, program): &(String, Running)| end_of(&program.log(), LINES);
        self.0.iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Stops all programs by SIGTERM, and kills those that do not end.
    pub async fn stop(self) -> Result<(), BenchError> {
        for (_, program) in self.0 {
            program.signal("TERM").await?;
            // Dropping it kills it.
            let _ = tokio::time::timeout(STOPPING, program.exit_status()).await;
        }
        Ok(())
    }
}

/// The requests of the controllers, except what they do for the sentinel.
pub fn of_controllers(requests: &Requests) -> Requests {
    let user = format!("system:serviceaccount:{HOME}:controllers-");
    requests.matching(|request| {
        request.user.starts_with(&user)
            && ![SENTINEL, SENTINEL_CLUSTER].contains(&request.namespace.as_str())
    })
}
