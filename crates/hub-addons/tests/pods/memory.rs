//! The memory that the chart requests, and its limit.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::Path;

use kube::ResourceExt as _;
use local_hub::ocm;

use crate::stage::Stage;
use crate::support::chart::NAMESPACE;

/// One Pod for each controller.
const ONE: &str = "replicaCount=1";

/// A number in a file of the cgroup of a process, by its names in versions 1 and 2.
fn memory_of(process: u32, [v1, v2]: [&str; 2]) -> u64 {
    let cgroups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let file = cgroups
        .lines()
        .find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            match controllers {
                "memory" => Some(Path::new("/sys/fs/cgroup/memory").join(path).join(v1)),
                "" => Some(Path::new("/sys/fs/cgroup").join(path).join(v2)).filter(|file| file.exists()),
                _ => None,
            }
        })
        .unwrap();
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Fails unless a component runs since its start within a limit, which the kernel enforces. Prints how much it needed.
async fn within(stage: &Stage, component: &str, limit: u64) {
    let pod = stage.rolled_out(component).await.remove(0);
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.restart_count, 0, "{component}: {status:?}");
    if let Some((_, runner)) = stage.hub.own("the limit of memory, as the kernel shows it") {
        let process = runner.processes(NAMESPACE, &pod.name_any(), &status.name).await.unwrap()[0];
        assert_eq!(memory_of(process, ["memory.limit_in_bytes", "memory.max"]), limit, "{component}");
        let peak = memory_of(process, ["memory.max_usage_in_bytes", "memory.peak"]);
        println!("{component}: at most {} MiB of {} MiB", peak >> 20, limit >> 20);
        assert!(peak < limit, "{component} reached its limit");
    }
}

#[tokio::test]
async fn thousands_of_profiles_are_kept_within_the_memory_that_the_chart_requests() {
    const REQUESTED: u64 = 64 << 20;
    let Some(stage) = Stage::start(1, &["resources.limits.memory=64Mi", ONE]).await else {
        return;
    };
    let fleet = ocm::Fleet::of(500, 6);
    fleet.create(&stage.ocm).await.unwrap();
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
    within(&stage, "profiles", REQUESTED).await;
    stage.each_was_written_once(500 * 6).await;
}
