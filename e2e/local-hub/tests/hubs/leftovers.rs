//! However a hub ends, it leaves nothing behind: no process, no file.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use local_hub::{CrdSet, HubBuilder, HubError, LocalHub, eventually};

const SOON: Duration = Duration::from_mins(2);

fn small() -> HubBuilder {
    LocalHub::builder().crds(CrdSet::None).without_controller_manager()
}

/// The command lines of all processes in a hub's directory: its programs and their supervisors.
fn processes_in(directory: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| {
            let process = entry.ok()?.path();
            let working_directory = std::fs::read_link(process.join("cwd")).ok()?;
            // After the directory is removed, its name has a suffix.
            let there = working_directory.to_str()?.starts_with(directory.to_str()?);
            there.then(|| std::fs::read_to_string(process.join("cmdline")).unwrap_or_default())
        })
        .collect()
}

#[track_caller]
fn assert_runs_in(directory: &Path) {
    let processes = processes_in(directory);
    for program in ["etcd", "kube-apiserver"] {
        assert!(
            processes.iter().any(|line| line.contains(program)),
            "{program} is not in {processes:?}"
        );
    }
}

#[track_caller]
fn assert_nothing_in(directory: &Path) {
    assert_eq!(processes_in(directory), Vec::<String>::new());
    assert!(!directory.exists());
}

/// The binary as a process that holds a hub.
struct Holder {
    process: Child,
    directory: PathBuf,
    _parent: tempfile::TempDir,
}

impl Holder {
    fn start(configure: impl FnOnce(&mut Command)) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a hub's");
        let mut command = Command::new(env!("CARGO_BIN_EXE_local-hub"));
        command
            .args(["up", "--no-crds", "--no-controller-manager", "--until-stdin-closes", "--dir"])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        configure(&mut command);
        Self { process: command.spawn().unwrap(), directory, _parent: parent }
    }

    fn wait_until_ready(&mut self) {
        let lines = BufReader::new(self.process.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.map(Result::unwrap).take(4).collect();
        let kubeconfig = self.directory.join("admin.kubeconfig");
        assert!(
            lines[3].starts_with(&format!("ready kubeconfig={} bin=/", kubeconfig.display())),
            "{lines:?}"
        );
        let exports = std::fs::read_to_string(self.directory.join("ready")).unwrap();
        assert_eq!(exports, format!("{}\n", lines[..3].join("\n")));
        assert_runs_in(&self.directory);
    }

    fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").args(["-s", signal, &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

#[tokio::test]
async fn a_dropped_hub_is_gone_when_drop_returns() {
    let hub = small().start().await.unwrap();
    let directory = hub.directory().to_owned();
    assert_runs_in(&directory);
    drop(hub);
    assert_nothing_in(&directory);
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("hub");
    let start = small().directory(&directory).start();
    let started = async {
        eventually("the API server runs", SOON, async || {
            processes_in(&directory).iter().any(|line| line.contains("kube-apiserver"))
        })
        .await;
    };
    tokio::select! {
        hub = start => panic!("too fast for this test: {hub:?}"),
        () = started => {}
    }
    assert_nothing_in(&directory);
}

#[tokio::test]
async fn a_killed_owner_leaves_nothing() {
    let mut holder = Holder::start(|_| {});
    holder.wait_until_ready();
    // Even if it is stopped.
    holder.signal("STOP");
    holder.signal("KILL");
    holder.process.wait().unwrap();
    eventually("its processes are gone", SOON, async || processes_in(&holder.directory).is_empty())
        .await;
    eventually("its directory is gone", SOON, async || !holder.directory.exists()).await;
}

#[tokio::test]
async fn the_binary_ends_cleanly_when_told_to() {
    for how in ["TERM", "stdin"] {
        let mut holder = Holder::start(|_| {});
        holder.wait_until_ready();
        match how {
            "stdin" => drop(holder.process.stdin.take()),
            signal => holder.signal(signal),
        }
        assert!(holder.process.wait().unwrap().success(), "{how}");
        assert_nothing_in(&holder.directory);
    }
}

/// A directory of programs for `KUBEBUILDER_ASSETS`, in which kube-apiserver is a script. `$real` is the real one.
async fn programs_with_api_server(script: &str) -> tempfile::TempDir {
    let hub = small().start().await.unwrap();
    let programs = tempfile::tempdir().unwrap();
    for name in ["etcd", "kube-controller-manager", "kubectl"] {
        std::os::unix::fs::symlink(hub.bin_dir().join(name), programs.path().join(name)).unwrap();
    }
    let api_server = programs.path().join("kube-apiserver");
    let real = hub.bin_dir().join("kube-apiserver");
    std::fs::write(&api_server, format!("#!/bin/sh\nreal='{}'\n{script}\n", real.display()))
        .unwrap();
    std::fs::set_permissions(&api_server, std::fs::Permissions::from_mode(0o755)).unwrap();
    programs
}

#[tokio::test]
async fn an_api_server_that_dies_is_an_error_with_its_last_words() {
    let programs = programs_with_api_server("echo 'no thank you' >&2; exit 3").await;
    let mut holder = Holder::start(|command| {
        command.env("KUBEBUILDER_ASSETS", programs.path()).stderr(Stdio::piped());
    });
    let directory = holder.directory.clone();
    // So that it has only one reason to end.
    let _stdin = holder.process.stdin.take();
    let output = holder.process.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("kube-apiserver ended, with exit status 3"), "{stderr}");
    assert!(stderr.contains("no thank you"), "{stderr}");
    assert_nothing_in(&directory);
}

#[tokio::test]
async fn a_port_that_is_in_use_is_replaced_by_another() {
    let once = "[ -e tried ] || { touch tried; echo 'listen: address already in use'; exit 1; }; exec $real \"$@\"";
    let programs = programs_with_api_server(once).await;
    let mut holder = Holder::start(|command| {
        command.env("KUBEBUILDER_ASSETS", programs.path());
    });
    holder.wait_until_ready();
    assert!(holder.directory.join("tried").exists());
    holder.signal("TERM");
    assert!(holder.process.wait().unwrap().success());
}

#[tokio::test]
async fn what_is_in_a_directory_is_not_removed_by_a_hub() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("precious"), "").unwrap();
    let error = small().directory(directory.path()).start().await.unwrap_err();
    assert!(matches!(error, HubError::Failed(_)), "{error:?}");
    assert!(directory.path().join("precious").exists());
}
