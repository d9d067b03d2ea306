//! A node leaves nothing behind, and reports where it cannot run. `crates/hub-addons/tests/pods` runs Pods on it.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use local_hub::{CrdSet, LocalHub, Pods, eventually};
use serde_json::json;

/// Timeout for what takes a second or two, such as the copy of an image.
const SOON: Duration = Duration::from_mins(2);

const IMAGE: &str = "registry.example.com/program:1";

/// Whether this machine can run Pods; reports why not.
async fn can_run() -> bool {
    let Err(error) = Pods::can_run().await else { return true };
    // Not with `eprintln!`: the test harness captures the output of passing tests.
    let _ = writeln!(io::stderr(), "SKIPPED, nodes: {error}");
    false
}

#[tokio::test]
async fn a_node_that_is_dropped_leaves_no_process_cgroup_mount_interface_setting_or_file() {
    if !can_run().await {
        return;
    }
    let before = surroundings();
    let hub = LocalHub::builder().crds(CrdSet::None).workloads().start().await.unwrap();
    let pods = Pods::on(&hub).unwrap().node_program(IMAGE, "streams").start().await.unwrap();
    let marked = format!("marked-{}", std::process::id());
    let container =
        json!({ "name": "main", "image": IMAGE, "command": ["/streams", "stay", marked] });
    let pod = json!({
        "metadata": { "name": "left" },
        "spec": { "containers": [container], "terminationGracePeriodSeconds": 1 },
    });
    let api: Api<Pod> = Api::default_namespaced(hub.client_as("admin").await.unwrap());
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually("its program runs", SOON, async || !processes_with(&marked).is_empty()).await;

    let directory = pods.log_directory().parent().unwrap().to_owned();
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!cgroups_of(&name).is_empty());
    drop(pods);
    assert_eq!(processes_with(&marked), Vec::<String>::new());
    assert_eq!(processes_with(&name), Vec::<String>::new());
    assert_eq!(cgroups_of(&name), Vec::<PathBuf>::new());
    assert!(!directory.exists(), "{}", directory.display());
    assert_eq!(surroundings(), before);
    drop(hub);
}

/// The command lines that have a word in them.
fn processes_with(word: &str) -> Vec<String> {
    processes()
        .filter_map(|process| std::fs::read_to_string(process.join("cmdline")).ok())
        .filter(|line| line.contains(word))
        .collect()
}

/// The cgroups with a word in their path.
fn cgroups_of(word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
        left.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
        if directory.display().to_string().contains(word) {
            found.push(directory);
        }
    }
    found
}

/// The interfaces and mounts of this process's namespaces, and the settings of the kernel that a kubelet changes.
fn surroundings() -> (Vec<PathBuf>, String, Vec<String>) {
    let mut interfaces: Vec<_> =
        std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().path()).collect();
    interfaces.sort();
    let settings = [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    ];
    let settings =
        settings.map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap());
    (interfaces, std::fs::read_to_string("/proc/self/mounts").unwrap(), settings.to_vec())
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()))
}
