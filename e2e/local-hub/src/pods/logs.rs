//! The logs of containers: those that the kubelet keeps, and those that it removes with their containers.
//!
//! The kubelet of a node of ours writes them on this machine. Those of another cluster are followed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::{Cluster, HubError};

/// How often new logs are looked for. The kubelet removes a log at the earliest when its container has ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same where each look is a request.
const POLL: Duration = Duration::from_millis(500);

/// Links each log of the kubelet to `KEPT/NAMESPACE/POD/CONTAINER/RUN.log`, which remains.
pub(crate) async fn keep(from: PathBuf, kept: PathBuf) {
    loop {
        // A log that disappears meanwhile is an error; the others are linked in the next round.
        let _ = keep_all(&from, &kept);
        sleep(INTERVAL).await;
    }
}

fn keep_all(from: &Path, kept: &Path) -> io::Result<()> {
    for pod in entries(from)? {
        // NAMESPACE_POD_UID
        let name = pod.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut parts = name.split('_');
        let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else { continue };
        for container in entries(&pod)? {
            let into =
                kept.join(namespace).join(name).join(container.file_name().unwrap_or_default());
            for log in entries(&container)? {
                let to = into.join(log.file_name().unwrap_or_default());
                if !to.exists() {
                    fs::create_dir_all(&into)?;
                    fs::hard_link(&log, to)?;
                }
            }
        }
    }
    Ok(())
}

/// The logs of the Pods of a cluster that is not a hub of ours. They remain when Pods are deleted.
#[derive(Debug)]
pub struct FollowedLogs {
    kept: PathBuf,
    task: JoinHandle<()>,
}

impl Cluster {
    /// Follows the logs of all Pods that are created from now on.
    pub async fn follow_logs(&self) -> Result<FollowedLogs, HubError> {
        let client = self.client_as(crate::ADMIN).await?;
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await;
        let earlier =
            pods.map_err(HubError::api("list Pods"))?.into_iter().filter_map(|pod| pod.uid());
        let kept = self.directory().join("logs");
        let task = tokio::spawn(follow(client, earlier.collect(), kept.clone()));
        Ok(FollowedLogs { kept, task })
    }
}

impl FollowedLogs {
    /// The output of all runs of a container, as far as it is known here.
    #[must_use]
    pub fn of(&self, namespace: &str, pod: &str, container: &str) -> String {
        read(&self.kept, namespace, pod, container)
    }
}

impl Drop for FollowedLogs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, earlier: BTreeSet<String>, kept: PathBuf) {
    let mut streams = JoinSet::new();
    loop {
        // An API server that does not respond is asked again.
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await;
        for pod in pods.map(|pods| pods.items).unwrap_or_default() {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            if pod.uid().is_none_or(|uid| earlier.contains(&uid)) {
                continue;
            }
            let containers =
                pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
            for container in containers {
                let has_begun = container
                    .state
                    .is_some_and(|it| it.running.is_some() || it.terminated.is_some());
                let into = kept.join(&namespace).join(&name).join(&container.name);
                let log = into.join(format!("{}.log", container.restart_count));
                let is_ready = has_begun && fs::create_dir_all(&into).is_ok();
                if is_ready && let Ok(file) = fs::File::create_new(&log) {
                    let pods = Api::namespaced(client.clone(), &namespace);
                    let name = name.clone();
                    streams.spawn(async move {
                        if copy(&pods, &name, container.name, file).await.is_err() {
                            // From its beginning, in the next round.
                            let _ = fs::remove_file(&log);
                        }
                    });
                }
            }
        }
        while streams.try_join_next().is_some() {}
        sleep(POLL).await;
    }
}

/// Copies the log of a container's current run as a kubelet would write it.
async fn copy(pods: &Api<Pod>, pod: &str, container: String, mut file: fs::File) -> io::Result<()> {
    let params = LogParams { container: Some(container), follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream(pod, &params).await.map_err(io::Error::other)?.lines();
    while let Some(line) = lines.try_next().await? {
        writeln!(file, "- - F {line}")?;
    }
    Ok(())
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// The output of all runs of a container.
pub(crate) fn read(kept: &Path, namespace: &str, pod: &str, container: &str) -> String {
    let mut runs = entries(&kept.join(namespace).join(pod).join(container)).unwrap_or_default();
    let number =
        |run: &PathBuf| run.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
    runs.sort_by_key(number);
    runs.iter()
        .map(|run| text(&String::from_utf8_lossy(&fs::read(run).unwrap_or_default())))
        .collect()
}

/// What a container has written: each line of its log has a time, a stream, and whether the line is complete before it.
fn text(log: &str) -> String {
    let mut text = String::new();
    for line in log.lines() {
        let mut parts = line.splitn(4, ' ');
        let (tag, content) = (parts.nth(2).unwrap_or_default(), parts.next().unwrap_or_default());
        text.push_str(content);
        if tag != "P" {
            text.push('\n');
        }
    }
    text
}
