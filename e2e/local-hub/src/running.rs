//! A program that a test runs beside a hub: like the hub's own programs, it cannot outlive this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::supervisor::{Program, Supervised};
use crate::{HubError, LocalHub};

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    pub(crate) supervised: Supervised,
    log: PathBuf,
}

impl LocalHub {
    /// Starts a program in the hub's directory. `name` is the name of its log there, and must be unique among running
    /// programs.
    pub async fn run<A: Into<OsString>>(
        &self,
        name: &'static str,
        executable: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Running, HubError> {
        let program = Program {
            name,
            log: format!("{name}.log"),
            executable: executable.to_owned(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            owns_directory: false,
        };
        let log = self.directory().join(&program.log);
        // Removes the log of an earlier program with this name.
        if let Err(source) = std::fs::remove_file(&log)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(HubError::io(format!("remove {}", log.display()), source));
        }
        Running::start(self.directory(), &program).await
    }
}

impl Running {
    pub(crate) async fn start(directory: &Path, program: &Program) -> Result<Self, HubError> {
        let supervised = Supervised::start(directory, program).await?;
        Ok(Self { supervised, log: directory.join(&program.log) })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.supervised.pid()
    }

    /// Its standard output and standard error.
    #[must_use]
    pub fn log(&self) -> String {
        log_of(&self.log)
    }

    /// Sends it a signal by name, such as `TERM`.
    pub async fn signal(&self, signal: &'static str) -> Result<(), HubError> {
        self.supervised.signal(signal).await
    }

    /// Waits until it ends, and returns its exit status, or 128 plus the number of the signal that ended it.
    pub async fn exit_status(&self) -> Option<i32> {
        self.supervised.exit_status().await
    }
}

/// What a program has written into a file until now.
pub(crate) fn log_of(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}
