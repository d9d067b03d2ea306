//! Processes in the namespaces of a pod.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::network::{Forward, Network};
use super::plan::{ContainerPlan, Mount};
use super::problem::Problem;
use crate::eventually::try_eventually;
use crate::supervisor::{Program, Supervised};
use crate::{HubError, random};

const SANDBOX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pods/sandbox.sh");
const CONTAINER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pods/container.sh");

/// Timeout for what takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The depth of a container's own process below the supervised one, which is `unshare`: the script, a shell, itself.
const DEPTH: usize = 3;

/// The paths of the required system programs: a container's environment has none of ours.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    env: PathBuf,
    nsenter: PathBuf,
    setpriv: PathBuf,
    unshare: PathBuf,
}

impl Tools {
    /// Fails if a program is missing, or this machine does not allow namespaces.
    pub(crate) async fn find() -> Result<Self, HubError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> =
            std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
        let find = |name: &str| {
            places.iter().map(|place| place.join(name)).find(|file| file.is_file()).ok_or_else(|| {
                HubError::Pods(format!(
                    "they require {name}: on Debian in util-linux, mount, iproute2 and tar"
                ))
            })
        };
        for name in ["cp", "ip", "mount", "tar"] {
            find(name)?;
        }
        let tools = Self {
            env: find("env")?,
            nsenter: find("nsenter")?,
            setpriv: find("setpriv")?,
            unshare: find("unshare")?,
        };
        tools.try_namespaces().await?;
        Ok(tools)
    }

    async fn try_namespaces(&self) -> Result<(), HubError> {
        let output = Command::new(&self.unshare)
            .args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "true"])
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|source| HubError::io("run unshare", source))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(HubError::Pods(format!("they require root and permission to create namespaces: {reason}")))
    }
}

/// The directories of programs and their output.
#[derive(Clone, Debug)]
pub(crate) struct SandboxPlace {
    pub(crate) tools: Tools,
    /// The runner's own: the last program removes it if the runner cannot.
    pub(crate) directory: PathBuf,
}

impl SandboxPlace {
    async fn start(
        &self,
        name: &'static str,
        log: String,
        executable: &Path,
        arguments: Vec<OsString>,
    ) -> Result<Supervised, Problem> {
        let program = Program {
            name,
            log,
            executable: executable.to_owned(),
            arguments,
            environment: Vec::new(),
            owns_directory: false,
        };
        Supervised::start(&self.directory, &program).await.map_err(|error| failed(&error))
    }
}

fn failed(error: &HubError) -> Problem {
    Problem::new("CreateContainerError", format!("{error:?}"))
}

/// What a Pod's containers share. Dropping it ends the Pod and its forwarding.
#[derive(Debug)]
pub(crate) struct Sandbox {
    place: SandboxPlace,
    pid: u32,
    forwards: Vec<AbortHandle>,
    _holder: Supervised,
}

impl Sandbox {
    /// Creates the namespaces. `directory` is the Pod's.
    pub(crate) async fn start(
        place: &SandboxPlace,
        directory: &Path,
        name: &str,
        address: std::net::Ipv4Addr,
        forwards: &[Forward],
    ) -> Result<Self, Problem> {
        let ready = directory.join("sandbox-ready");
        let mut arguments: Vec<OsString> =
            ["--net", "--uts", "--ipc", "--fork", "--kill-child=KILL", "sh", SANDBOX]
                .map(OsString::from)
                .into();
        arguments.push(ready.clone().into());
        arguments.push(name.into());
        let mut addresses = vec![address.to_string()];
        addresses.extend(forwards.iter().map(|forward| forward.address.to_string()));
        addresses.sort_unstable();
        addresses.dedup();
        arguments.extend(addresses.into_iter().map(OsString::from));
        let log = relative(&place.directory, &directory.join("sandbox.log"));
        let holder = place.start("a pod's sandbox", log, &place.tools.unshare, arguments).await?;
        let looked = try_eventually("the sandbox is ready", PATIENCE, async || ready.exists());
        tokio::select! {
            biased;
            death = holder.death() => return Err(failed(&death)),
            looked = looked => looked.map_err(|error| failed(&error.into()))?,
        }
        let pid = descendant(holder.pid(), 1)
            .ok_or_else(|| Problem::new("CreatePodSandboxError", "its process is gone"))?;
        let mut sandbox = Self { place: place.clone(), pid, forwards: Vec::new(), _holder: holder };
        for forward in forwards {
            let doing = format!("forward {} port {}", forward.name, forward.port);
            sandbox.forwards.push(sandbox.network().forward(forward).await.map_err(Problem::io(doing))?);
        }
        Ok(sandbox)
    }

    pub(crate) fn network(&self) -> Network {
        Network::of(self.pid)
    }

    /// Starts a container in a fresh copy of its image's root.
    pub(crate) async fn container(
        &self,
        image: &Path,
        directory: &Path,
        log: &Path,
        plan: &ContainerPlan,
        files: &[Mount],
    ) -> Result<Process, Problem> {
        let root = directory.join("root");
        copy(image, &root).await?;
        let tools = &self.place.tools;
        let namespace = |kind: &str| format!("--{kind}=/proc/{}/ns/{kind}", self.pid);
        let mut arguments: Vec<OsString> = ["net", "uts", "ipc"].map(|kind| namespace(kind).into()).into();
        arguments.push(tools.unshare.clone().into());
        arguments.extend(
            ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL", "sh", CONTAINER]
                .map(OsString::from),
        );
        arguments.push(root.clone().into());
        arguments.push(if plan.read_only_root { "ro" } else { "rw" }.into());
        for mount in files.iter().chain(&plan.mounts) {
            arguments.push(mount.source.clone().into());
            arguments.push(mount.target.clone().into());
            arguments.push(if mount.read_only { "ro" } else { "rw" }.into());
        }
        arguments.push("--".into());
        arguments.push(tools.env.clone().into());
        arguments.push("-i".into());
        arguments.extend(plan.environment.assignments().map(OsString::from));
        arguments.extend(self.become_of(plan));
        arguments.push(tools.unshare.clone().into());
        arguments.push(option("--root=", &root));
        arguments.push(format!("--wd={}", plan.directory).into());
        arguments.push(format!("--setuid={}", plan.user).into());
        arguments.push("--".into());
        arguments.extend(plan.command.iter().map(OsString::from));
        let log = relative(&self.place.directory, log);
        let supervised = self.place.start("a container", log, &tools.nsenter, arguments).await?;
        Ok(Process { supervised, tools: tools.clone(), plan: plan.clone() })
    }

    /// The container's groups and capabilities; its user can only be set by `unshare` after its chroot.
    fn become_of(&self, plan: &ContainerPlan) -> Vec<OsString> {
        let groups: Vec<String> = plan.groups.iter().map(ToString::to_string).collect();
        vec![
            self.place.tools.setpriv.clone().into(),
            "--no-new-privs".into(),
            "--bounding-set=-all,+sys_chroot,+setuid".into(),
            format!("--regid={}", plan.group).into(),
            if groups.is_empty() {
                "--clear-groups".into()
            } else {
                format!("--groups={}", groups.join(",")).into()
            },
            "--".into(),
        ]
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for forward in &self.forwards {
            forward.abort();
        }
    }
}

/// A container's process. Dropping it kills everything in the container.
#[derive(Debug)]
pub(crate) struct Process {
    supervised: Supervised,
    tools: Tools,
    plan: ContainerPlan,
}

impl Process {
    /// Waits until it ends, and returns its exit status, or 128 plus the number of the signal that ended it.
    pub(crate) async fn exit_status(&self) -> i32 {
        self.supervised.exit_status().await.unwrap_or(137)
    }

    /// Sends SIGTERM to the container's first process, once it exists.
    pub(crate) async fn terminate(&self) {
        // At most until the container ends: the caller waits for that concurrently.
        while !self.signal("TERM").await {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills everything in the container.
    pub(crate) async fn kill(&self) {
        // The first process of the container's namespace, whose death makes the kernel end the rest; if it does not
        // exist, the one above.
        if !self.signal("KILL").await {
            let _ = self.supervised.signal("KILL").await;
        }
    }

    /// Whether there was a process to signal.
    async fn signal(&self, signal: &str) -> bool {
        let Some(pid) = self.pid() else { return false };
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).output().await;
        sent.is_ok_and(|output| output.status.success())
    }

    /// The container's first process, in the machine's PID namespace.
    fn pid(&self) -> Option<u32> {
        descendant(self.supervised.pid(), DEPTH)
    }

    /// Runs a command in the container, as its user, and returns whether it succeeded.
    pub(crate) async fn succeeds(&self, command: &[String]) -> bool {
        let Some(pid) = self.pid() else { return false };
        let groups = format!("--setgid={}", self.plan.group);
        Command::new(&self.tools.nsenter)
            .arg(format!("--target={pid}"))
            .args(["--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd"])
            .args([groups, format!("--setuid={}", self.plan.user)])
            .arg("--")
            .args(command)
            .env_clear()
            .kill_on_drop(true)
            .output()
            .await
            .is_ok_and(|output| output.status.success())
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// The log of a program is relative to its directory.
fn relative(directory: &Path, file: &Path) -> String {
    file.strip_prefix(directory).unwrap_or(file).display().to_string()
}

/// The process this many generations below another, with no siblings on the way.
fn descendant(of: u32, generations: usize) -> Option<u32> {
    (0..generations).try_fold(of, |parent, _| child(parent))
}

fn child(parent: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.filter_map(Result::ok).find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        // `PID (NAME) STATE PARENT ...`, where the name can contain anything.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        (rest.split(' ').nth(1)?.parse() == Ok(parent)).then_some(pid)
    })
}

async fn copy(image: &Path, root: &Path) -> Result<(), Problem> {
    // A container restarts from its image.
    let fresh = root.with_extension(random::hex().map_err(|error| failed(&error))?);
    if root.exists() {
        std::fs::rename(root, &fresh).map_err(Problem::io("move the last root away"))?;
    }
    let output = Command::new("cp")
        .args(["--archive", "--reflink=auto", "--no-target-directory"])
        .args([image, root])
        .output()
        .await
        .map_err(Problem::io("run cp"))?;
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).map_err(Problem::io("remove the last root"))?;
    }
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Problem::new("CreateContainerError", format!("cannot copy the image: {reason}")))
}
