//! Runs kubectl with its own kubeconfig, environment and cache.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::eventually::try_eventually;
use crate::supervisor::{Program, Running, log_of};
use crate::{Cluster, HubError, random};

/// A shell script that redirects a program's standard output to a file, so that the supervisor's log contains only
/// standard error.
const APART: &str = r#"exec "$@" >"$0""#;

/// Configuration of kubectl. It is not printed: values in the environment may be tokens.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    /// In the hub's directory, which is removed with it.
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Cluster {
    /// kubectl with a kubeconfig, of this hub or another, and its own cache.
    pub fn kubectl_with(&self, kubeconfig: &Path) -> Result<Kubectl, HubError> {
        let kubectl = Kubectl {
            program: self.bin_dir().join("kubectl"),
            directory: self.directory().to_owned(),
            environment: Vec::new(),
        };
        let kubeconfig = std::path::absolute(kubeconfig)
            .map_err(|source| HubError::io(format!("use {}", kubeconfig.display()), source))?;
        let cache = self.directory().join(format!("kubectl-cache-{}", random::hex()?));
        Ok(kubectl.env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", cache))
    }
}

impl Kubectl {
    /// Sets a variable in its environment and that of its exec plugin.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs it until it ends.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output, HubError> {
        Command::new(&self.program)
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| HubError::io("run kubectl", source))
    }

    /// Starts it and leaves it running, as for `get --watch`. Like a hub's programs, it cannot outlive this process.
    pub async fn start(&self, arguments: &[&str]) -> Result<RunningKubectl, HubError> {
        let name = format!("kubectl-{}", random::hex()?);
        let output = self.directory.join(format!("{name}.out"));
        let mut command: Vec<OsString> = vec!["-c".into(), APART.into()];
        command.extend([output.clone().into(), self.program.clone().into()]);
        command.extend(arguments.iter().map(OsString::from));
        let program = Program {
            log: format!("{name}.log"),
            environment: self.environment.clone(),
            ..Program::new("kubectl", "sh", command)
        };
        let running = Running::start(&self.directory, &program).await?;
        Ok(RunningKubectl { running, output, read: 0 })
    }
}

/// A running kubectl, whose log is its standard error. Dropping it kills it.
#[derive(Debug)]
pub struct RunningKubectl {
    running: Running,
    output: PathBuf,
    /// How many lines have been consumed.
    read: usize,
}

impl RunningKubectl {
    /// Waits for a line of standard output that satisfies a condition, and returns it; the next call continues after
    /// it. `what` describes the line in errors.
    ///
    /// Fails immediately if kubectl ends without such a line, with the end of its standard error.
    pub async fn line(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, HubError> {
        let from = self.read;
        let look = || {
            let lines = self.lines();
            let at = lines.iter().skip(from).position(|line| wanted(line)).map(|at| from + at);
            at.map(|at| (at, lines[at].clone()))
        };
        let what = format!("kubectl writes {what}");
        let found = tokio::select! {
            biased;
            // Its last output counts, too.
            death = self.running.death() => look().ok_or(death)?,
            found = try_eventually(&what, within, async || look()) => found?,
        };
        self.read = found.0 + 1;
        Ok(found.1)
    }

    /// All complete lines of its standard output.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = log_of(&self.output);
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }
}

impl Deref for RunningKubectl {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
