//! `docs/plain-kubectl.md`: its commands, run one after the other on a real hub, lead to a real cluster; and the commands
//! of other pages with this program.

use std::collections::BTreeSet;
use std::time::Duration;

use local_hub::{agent, ocm};
use serde_json::json;

use super::plugin::kubectl_clusterprofile;
use crate::support::chain::{LOST, Stage, in_one_process, may};
use crate::support::guides::{Block, Reader, blocks, commands};
use crate::support::plugin::cp_creds;
use crate::support::rights::rule;
use crate::support::world;

const NAME: &str = "reports";

/// The blocks of commands of a guide.
fn of_shell(guide: &str) -> impl Iterator<Item = Block> {
    blocks(guide).into_iter().filter(|block| block.language == "sh")
}

/// What Open Cluster Management does: its registration controller reports that the binding is bound, and the agent
/// reports the token; and what the chart's controllers do with the ClusterAccess, which other tests show. Ends when all is
/// done.
async fn managed(stage: &Stage, cluster: &str) {
    let view = vec![may(&["list"], "namespaces")];
    stage.cluster(cluster).grant_service_account(agent::NAMESPACE, NAME, view).await.unwrap();
    let binding = ocm::binding(NAME, NAME);
    world::exists(&stage.ocm, &binding).await;
    let bound = json!({
        "type": "Bound", "status": "True", "reason": "ClusterSetBound", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    world::merge_status(&stage.ocm, &binding, &json!({ "conditions": [bound] })).await;
    let access = ocm::cluster_access(NAME, NAME, &json!({}));
    world::exists(&stage.ocm, &access).await;
    let account = ocm::managed_service_account(cluster, NAME).label(ocm::SYNC_LABEL, "true");
    let copy = format!("{cluster}-{NAME}");
    let name = "hub-addons-cluster-access-reports";
    let may_get = rule(&format!("get secrets named {copy}"));
    let role = world::object("Role", Some(NAME), name).field("rules", json!([may_get]));
    let bound = world::binding(Some(NAME), name, ("Role", name), world::account(NAME, NAME));
    world::create(&stage.ocm, [account, role, bound]).await;
    stage.agent(cluster).await.report(NAME, Duration::from_hours(1)).await.unwrap();
    world::exists(&stage.ocm, &world::object("Secret", Some(NAME), &copy)).await;
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let conditions = json!({ "observedGeneration": 1, "conditions": [condition("Accepted"), condition("Ready")] });
    world::merge_status(&stage.ocm, &access, &conditions).await;
}

#[tokio::test]
async fn the_commands_of_the_guide_lead_to_a_cluster_and_away_from_it() {
    let (stage, cluster) = (in_one_process().await, "one");
    let hub = &stage.chain.hub;
    let reader = Reader::of(hub, &[kubectl_clusterprofile(), cp_creds()]);
    let blocks: Vec<_> = of_shell("docs/plain-kubectl.md")
        .map(|block| block.text.replace("cluster1", cluster))
        .collect();
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
    let printed = std::fs::read_to_string(reader.directory().join("one.kubeconfig")).unwrap();
    assert!(!printed.contains("token:") && !printed.contains("client-key"), "{printed}");
    let hub = std::fs::read_to_string(reader.directory().join("hub.kubeconfig")).unwrap();
    assert!(!hub.contains("client-key"), "the reader's own credentials stay out of it");

    let output = reader.runs(ending).await;
    assert!(output.status.success(), "{output:?}");
    let use_again = using.iter().find(|block| block.contains("get namespaces")).unwrap();
    let output = reader.runs(use_again).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(LOST), "{error}");
}

/// The beginnings of commands that other tests run: `chart::krew` and `field::own_identity`; and of those that build this program.
const ELSEWHERE: [&str; 4] = [
    "kubectl krew install",
    "cargo install",
    "kubectl --namespace page create token page-controller-manager --audience hub-addons",
    "kubectl clusterprofile test page/one --own-token token",
];

#[tokio::test]
async fn every_command_of_a_page_with_this_program_can_be_carried_out() {
    let stage = in_one_process().await;
    let application = stage.bound_application("page", &["one"]).await;
    application.reaches("one").await;
    let nodes = vec![may(&["list"], "nodes")];
    stage
        .cluster("one")
        .grant_service_account(agent::NAMESPACE, application.account(), nodes)
        .await
        .unwrap();
    let reader = Reader::of(&stage.chain.hub, &[kubectl_clusterprofile(), cp_creds()]);
    let mut elsewhere = BTreeSet::new();
    let mut ran = 0;
    for guide in ["docs/kubectl.md", "docs/multicluster-runtime.md"] {
        for command in of_shell(guide).flat_map(|block| commands(&block)) {
            let command = command.replace("--account multikueue", "--account page-account");
            let command = command.replace("--account fleet-operator", "--account page-account");
            let command = command.replace("fleet-operator/cluster1", "page/one");
            let command = command.replace("kueue", "page").replace("berlin", "one");
            if command.contains("fleet-operator") || command.starts_with("helm ") {
                // In the namespace of that guide, and with its chart: `chart::guide_commands`.
                continue;
            }
            if let Some(other) = ELSEWHERE.into_iter().find(|it| command.starts_with(it)) {
                elsewhere.insert(other);
                continue;
            }
            let output = reader.runs(&command).await;
            // What is explained depends on the hub, which tests share.
            let is_explained = command.starts_with("kubectl clusterprofile explain");
            let code = output.status.code();
            let is_fine = code == Some(0) || (is_explained && matches!(code, Some(1 | 3)));
            assert!(is_fine, "{guide}: {command}\n{output:?}");
            ran += 1;
        }
    }
    assert_eq!(elsewhere, BTreeSet::from(ELSEWHERE), "a command is no longer on a page");
    assert!(ran > 10, "{ran} commands");
}
