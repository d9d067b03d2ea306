//! `docs/plain-kubectl.md`: its commands, run one after the other on a real hub, lead to a real cluster.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use local_hub::{agent, eventually, ocm};
use serde_json::json;

use super::plugin::kubectl_clusterprofile;
use crate::support::chain::{LOST, Stage, in_one_process, may};
use crate::support::plugin::cp_creds;
use crate::support::{SOON, world};

const NAME: &str = "reports";

/// The blocks of commands of the guide, for this cluster.
fn blocks(cluster: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plain-kubectl.md");
    let guide = std::fs::read_to_string(guide).unwrap().replace("cluster1", cluster);
    let mut blocks = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        let Some((indent, "")) = line.split_once("```sh") else { continue };
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        blocks
            .push(block.map(|line| line.strip_prefix(indent).unwrap_or(line)).collect::<Vec<_>>().join("\n"));
    }
    blocks
}

/// What Open Cluster Management does: its registration controller reports that the binding is bound, and the agent
/// reports the token. Ends when both are done.
async fn managed(stage: &Stage, cluster: &str) {
    let view = vec![may(&["list"], "namespaces")];
    stage.cluster(cluster).grant_service_account(agent::NAMESPACE, NAME, view).await.unwrap();
    let binding = ocm::binding(NAME, NAME);
    created(stage, &binding).await;
    let bound = json!({
        "type": "Bound", "status": "True", "reason": "ClusterSetBound", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    world::merge_status(&stage.ocm, &binding, &json!({ "conditions": [bound] })).await;
    created(stage, &ocm::managed_service_account(cluster, NAME)).await;
    stage.agent(cluster).await.report(NAME, Duration::from_hours(1)).await.unwrap();
}

async fn created(stage: &Stage, object: &ocm::Object) {
    eventually(&format!("{object} exists"), SOON, async || world::get(&stage.ocm, object).await.is_some())
        .await;
}

/// A shell as the reader of the guide has it.
struct Reader {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
    path: std::ffi::OsString,
}

impl Reader {
    async fn runs(&self, block: &str) -> Output {
        tokio::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(self.directory.path())
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.directory.path())
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn the_commands_of_the_guide_lead_to_a_cluster_and_away_from_it() {
    let (stage, cluster) = (in_one_process().await, "one");
    let hub = &stage.chain.hub;
    let programs =
        [hub.bin_dir().join("kubectl"), kubectl_clusterprofile().to_owned(), cp_creds().to_owned()];
    let own = programs.iter().map(|program| program.parent().unwrap().to_owned());
    let inherited = std::env::var_os("PATH").unwrap();
    let reader = Reader {
        directory: tempfile::tempdir().unwrap(),
        kubeconfig: hub.kubeconfig_for("admin").unwrap(),
        path: std::env::join_paths(own.chain(std::env::split_paths(&inherited))).unwrap(),
    };
    let blocks = blocks(cluster);
    let (using, ending) = (&blocks[..blocks.len() - 1], &blocks[blocks.len() - 1]);
    let mut outputs = Vec::new();
    let reading = async {
        for block in using {
            let output = reader.runs(block).await;
            assert!(output.status.success(), "{block}\n{output:?}");
            outputs.push(String::from_utf8(output.stdout).unwrap());
        }
    };
    tokio::join!(reading, managed(&stage, cluster));
    let text = outputs.concat();
    assert!(text.contains("only-in-one") && !text.contains("only-in-two"), "{text}");
    assert!(text.contains("1 cluster in 1 namespace: 1 in order"), "{text}");
    assert!(text.contains("Kubernetes v1."), "{text}");
    let printed = std::fs::read_to_string(reader.directory.path().join("one.kubeconfig")).unwrap();
    assert!(!printed.contains("token:") && !printed.contains("client-key"), "{printed}");
    let hub = std::fs::read_to_string(reader.directory.path().join("hub.kubeconfig")).unwrap();
    assert!(!hub.contains("client-key"), "the reader's own credentials stay out of it");

    let output = reader.runs(ending).await;
    assert!(output.status.success(), "{output:?}");
    let use_again = using.iter().find(|block| block.contains("get namespaces")).unwrap();
    let output = reader.runs(use_again).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(LOST), "{error}");
}
