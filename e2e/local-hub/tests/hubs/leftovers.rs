//! However a hub ends, it leaves nothing behind: no process, no file.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

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
    fn start() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a hub's");
        let mut command = Command::new(env!("CARGO_BIN_EXE_local-hub"));
        command
            .args(["up", "--no-crds", "--no-controller-manager", "--until-stdin-closes", "--dir"])
            .arg(&directory)
            .stdin(Stdio::piped());
        Self { process: command.spawn().unwrap(), directory, _parent: parent }
    }

    async fn wait_until_ready(&self) {
        let file = self.directory.join("ready");
        let ready =
            eventually("the hub is ready", SOON, async || std::fs::read_to_string(&file).ok());
        let quoted = self.directory.display().to_string().replace('\'', r"'\''");
        let begin =
            format!("export KUBECONFIG='{quoted}/admin.kubeconfig'\nexport LOCAL_HUB_BIN='/");
        assert!(ready.await.starts_with(&begin));
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
    let mut holder = Holder::start();
    holder.wait_until_ready().await;
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
        let mut holder = Holder::start();
        holder.wait_until_ready().await;
        match how {
            "stdin" => drop(holder.process.stdin.take()),
            signal => holder.signal(signal),
        }
        assert!(holder.process.wait().unwrap().success(), "{how}");
        assert_nothing_in(&holder.directory);
    }
}

#[tokio::test]
async fn what_is_in_a_directory_is_not_removed_by_a_hub() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("precious"), "").unwrap();
    let error = small().directory(directory.path()).start().await.unwrap_err();
    assert!(matches!(error, HubError::Failed(_)), "{error:?}");
    assert!(directory.path().join("precious").exists());
}
