//! The logs of containers: those that the kubelet keeps, and those that it removes with their containers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// How often new logs are looked for. The kubelet removes a log at the earliest when its container has ended.
const INTERVAL: Duration = Duration::from_millis(100);

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
