//! One program of a hub, which cannot outlive this process.
//!
//! Killing it on drop is not enough: a test runner that hits its timeout sends SIGKILL, and an etcd left by every
//! interrupted run would fill the machine. So each program runs under a small shell script (`supervisor.sh`) that holds
//! one end of a pipe. The kernel closes our end when this process ends, and then the script kills the program and
//! removes the hub's directory.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::HubError;
use crate::eventually::try_eventually;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/supervisor.sh");

/// Timeout for what takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// What to run.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name in errors.
    pub(crate) name: &'static str,
    /// The file in the hub's directory for its output.
    pub(crate) log: String,
    pub(crate) executable: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// In addition to this process's. Its script runs in it as well.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Whether to remove the hub's directory when this program is dropped: true for the one that is dropped last. If
    /// this process dies, the directory is removed in any case.
    pub(crate) owns_directory: bool,
}

impl Program {
    /// A program whose log has its name.
    pub(crate) fn new<A: Into<OsString>>(
        name: &'static str,
        executable: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            name,
            log: format!("{name}.log"),
            executable: executable.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            owns_directory: false,
        }
    }
}

/// What the script has reported so far.
#[derive(Clone, Debug, Default)]
struct Report {
    started: Option<u32>,
    signals_sent: usize,
    exited: Option<i32>,
    /// The script itself has ended.
    silent: bool,
}

/// A running program of a hub, or beside it. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    log: PathBuf,
    pid: u32,
    owns_directory: bool,
    script: Child,
    /// `None` once the pipe is closed.
    pipe: Option<ChildStdin>,
    report: watch::Receiver<Report>,
}

impl Running {
    /// Starts a program in the hub's directory, which is created if needed.
    pub(crate) async fn start(directory: &Path, program: &Program) -> Result<Self, HubError> {
        let name = program.name;
        let log = directory.join(&program.log);
        let failed = |source| HubError::io(format!("start the supervisor of {name}"), source);

        let mut script = Command::new("sh")
            .args([Path::new(SCRIPT), directory, &log, &program.executable])
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            // ^C reaches every process of the terminal's foreground group, and would end the script before it can clean
            // up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipe = script.stdin.take();
        let (sender, report) = watch::channel(Report::default());
        if let Some(stdout) = script.stdout.take() {
            std::thread::Builder::new()
                .name(format!("{name}-supervisor"))
                .spawn(move || listen(stdout, &sender))
                .map_err(failed)?;
        }

        let mut supervised = Self {
            name,
            log,
            pid: 0,
            owns_directory: program.owns_directory,
            script,
            pipe,
            report,
        };
        supervised.pid = supervised.wait_for("start", |report| report.started).await?;
        Ok(supervised)
    }

    /// Creates a directory, which will contain credentials: it is removed, however this process ends.
    pub(crate) async fn hold(directory: &Path) -> Result<Self, HubError> {
        let sleep = Program::new("directory-holder", "sleep", ["infinity"]);
        Self::start(directory, &Program { owns_directory: true, ..sleep }).await
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its standard output and standard error.
    #[must_use]
    pub fn log(&self) -> String {
        log_of(&self.log)
    }

    /// Waits until the program ends, and returns its exit status, or 128 plus the number of the signal that ended it;
    /// `None` if that is unknown.
    pub async fn exit_status(&self) -> Option<i32> {
        let mut report = self.report.clone();
        // An error means that the listener, and so the script, has ended.
        let _ = report.wait_for(|report| report.exited.is_some() || report.silent).await;
        self.report.borrow().exited
    }

    /// Waits until the program ends unexpectedly.
    pub(crate) async fn death(&self) -> HubError {
        let status = self.exit_status().await;
        self.ended(status)
    }

    /// The last lines of the program's output.
    pub(crate) fn log_tail(&self) -> LogTail {
        LogTail(end_of(&self.log(), LogTail::LINES))
    }

    /// Stops the program with SIGSTOP: it keeps its connections and does not respond.
    pub(crate) async fn pause(&self) -> Result<(), HubError> {
        self.signal("STOP").await?;
        // Its threads stop one by one, when each is next scheduled, and respond until then.
        let what = format!("every thread of {} has stopped", self.name);
        try_eventually(&what, PATIENCE, async || threads_have_stopped(self.pid)).await?;
        Ok(())
    }

    /// Continues a paused program.
    pub(crate) async fn resume(&self) -> Result<(), HubError> {
        self.signal("CONT").await
    }

    /// Kills the program like drop, without blocking the thread.
    pub(crate) async fn stop(self) -> Result<(), HubError> {
        self.write("KILL")?;
        self.wait_for("end", |report| report.exited).await?;
        Ok(())
    }

    /// The same for a program that is started again: keeps the hub's directory.
    pub(crate) async fn stop_and_keep_directory(mut self) -> Result<(), HubError> {
        self.owns_directory = false;
        self.stop().await
    }

    /// Sends the program a signal by its name, such as `TERM`, which may end it before the script reports that it was
    /// sent.
    pub async fn signal(&self, signal: &'static str) -> Result<(), HubError> {
        let (before, exited) = {
            let report = self.report.borrow();
            (report.signals_sent, report.exited)
        };
        if exited.is_some() {
            return Err(self.ended(exited));
        }
        self.write(signal)?;
        let is_sent = |report: &Report| report.signals_sent > before || report.exited.is_some();
        self.wait_for("take a signal", |report| is_sent(report).then_some(())).await
    }

    fn write(&self, word: &str) -> Result<(), HubError> {
        let Some(mut pipe) = self.pipe.as_ref() else { return Ok(()) };
        writeln!(pipe, "{word}")
            .map_err(|source| HubError::io(format!("tell {} to {word}", self.name), source))
    }

    /// Waits until `told` returns a value for the script's report.
    async fn wait_for<T>(
        &self,
        what: &'static str,
        told: impl Fn(&Report) -> Option<T>,
    ) -> Result<T, HubError> {
        let mut report = self.report.clone();
        let enough = report
            .wait_for(|report| told(report).is_some() || report.exited.is_some() || report.silent);
        let report = match tokio::time::timeout(PATIENCE, enough).await {
            Ok(Ok(report)) => report.clone(),
            // The listener, and so the script, has ended.
            Ok(Err(_)) => self.report.borrow().clone(),
            Err(_) => {
                return Err(HubError::Failed(format!(
                    "{} did not {what} within {PATIENCE:?}, its supervisor did not answer; {}",
                    self.name,
                    self.log_tail()
                )));
            }
        };
        told(&report).ok_or_else(|| self.ended(report.exited))
    }

    fn ended(&self, status: Option<i32>) -> HubError {
        HubError::Ended { program: self.name, status, log: self.log_tail() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        if !self.owns_directory {
            // Errors mean that the script has ended, which the wait notices.
            let _ = self.write("KILL");
            let report = self.report.clone();
            wait_until(deadline, || report.borrow().exited.is_some() || report.borrow().silent);
            let _ = self.write("leave");
        }
        drop(self.pipe.take());
        wait_until(deadline, || !matches!(self.script.try_wait(), Ok(None)));
    }
}

/// Blocks until a condition holds, which takes milliseconds, or the deadline passes, so that a hub has ended when its
/// test has.
fn wait_until(deadline: Instant, mut condition: impl FnMut() -> bool) {
    while !condition() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Also true without /proc.
fn threads_have_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.filter_map(Result::ok).all(|thread| {
        // `TID (NAME) STATE ...`, where the name can contain anything. A thread that has ended in between cannot be
        // read.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Passes on the script's reports until it ends.
fn listen(stdout: ChildStdout, report: &watch::Sender<Report>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let (event, detail) = line.split_once(' ').unwrap_or((&line, ""));
        report.send_modify(|report| match event {
            "started" => report.started = detail.parse().ok(),
            "sent" => report.signals_sent += 1,
            "exited" => report.exited = Some(detail.parse().unwrap_or(-1)),
            _ => {}
        });
    }
    report.send_modify(|report| report.silent = true);
}

/// The end of a program's log, for errors.
#[derive(Clone, Debug, Default)]
pub struct LogTail(String);

impl LogTail {
    const LINES: usize = 20;

    /// Whether the end of the log contains a text.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }
}

impl std::fmt::Display for LogTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("its log is empty");
        }
        write!(f, "the end of its log:\n{}", self.0)
    }
}

/// What a program has written into a file until now.
pub(crate) fn log_of(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

/// The last lines of a text.
#[must_use]
pub fn end_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
