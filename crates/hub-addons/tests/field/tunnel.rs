//! The whole tunnel of OCM's cluster-proxy, from the entry of a profile to the API servers of two clusters: the user
//! server, the proxy server, and on each cluster the proxy agent and the service proxy, with the certificates that
//! cluster-proxy's controllers issue.

pub mod upgrade;

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use local_hub::field::{AGENT_GROUP, AGENT_USER, Addon, ClusterProxy};
use local_hub::{CrdSet, Kubectl, LocalHub, ocm};
use serde_json::{Value, json};

use crate::support::chain::{self, Application, CLUSTERS, Stage, UNAUTHORIZED, fails, lists};
use crate::support::guides::blocks;
use crate::support::proxy::{NAME, anchors_in};
use crate::support::shown::{profile, provider, sees};
use crate::support::{Hub, field, pods, rights, world};

const TEAM: &str = "team";
/// The size of the large response.
pub const PARTS: usize = 8;
const PART: usize = 900_000;
/// kubectl's message if it does not trust a server.
const UNKNOWN: &str = "certificate signed by unknown authority";

/// A hub with cluster-proxy, and the addons of two clusters.
pub struct Tunnel {
    pub stage: Stage,
    pub proxy: ClusterProxy,
    /// Of the two clusters.
    pub addons: Vec<Addon>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stage.chain.end();
    }
}

impl Tunnel {
    pub async fn start() -> Self {
        let cluster = || LocalHub::builder().crds(CrdSet::None).workloads();
        let hub = field::prepare(LocalHub::builder().workloads()).user(AGENT_USER, &[AGENT_GROUP]);
        let (hub, clusters) = chain::start_hubs([hub, cluster(), cluster()]).await;
        let hub = Hub::with_rights(hub, [rights::both(), rights::syncer()].concat()).await;
        field::install_ocm(&hub).await;
        let proxy = ClusterProxy::install(hub.directory(), []).await.unwrap();
        let service = proxy.service().await.unwrap();
        let stage = chain::with_cluster_proxy(hub, clusters, service, &["--ca-overlap=1h"]).await;
        proxy.runs().await.unwrap();
        let hub = &stage.chain.hub;
        let mut addons = Vec::new();
        for name in CLUSTERS {
            let cluster = stage.cluster(name).directory();
            let pods = proxy.on_cluster(name, cluster).await.unwrap();
            let mut addon = Addon::of(name, hub.directory(), cluster, pods).await.unwrap();
            addon.enable().await.unwrap();
            addons.push(addon);
        }
        Self { stage, proxy, addons }
    }
}

/// Creates what makes a response of as many megabytes as there are parts, or slightly less.
pub async fn fill(cluster_hub: &LocalHub, parts: usize) {
    let at_cluster = cluster_hub.client_as("ocm").await.unwrap();
    ocm::namespace("large").create(&at_cluster).await.unwrap();
    let objects: Api<ConfigMap> = Api::namespaced(at_cluster, "large");
    for number in 0..parts {
        let part = ConfigMap {
            metadata: ObjectMeta { name: Some(format!("part-{number}")), ..ObjectMeta::default() },
            data: Some([("text".to_owned(), part_text(number))].into()),
            ..ConfigMap::default()
        };
        objects.create(&PostParams::default(), &part).await.unwrap();
    }
}

/// Lists it, and compares every byte.
pub async fn lists_all(kubectl: &Kubectl, parts: usize) {
    let output =
        kubectl.run(&["get", "configmaps", "--namespace=large", "--output=json"]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    has_all(&serde_json::from_slice(&output.stdout).unwrap(), parts);
}

/// Compares every byte of a list.
pub fn has_all(list: &Value, parts: usize) {
    for number in 0..parts {
        let name = format!("part-{number}");
        let part =
            list["items"].as_array().unwrap().iter().find(|part| part["metadata"]["name"] == name);
        assert!(part.unwrap()["data"]["text"] == part_text(number), "{name} is whole");
    }
}

fn part_text(number: usize) -> String {
    format!("{number:09}").repeat(PART / 9)
}

/// kubectl for the published entry of a cluster, with this authority alone.
async fn trusting(application: &Application, cluster: &str, authority: &str) -> Kubectl {
    let mut stanza = application.stanza(cluster).await;
    stanza["certificate-authority-data"] = json!(ByteString(authority.as_bytes().to_vec()));
    application.kubectl_by(&stanza, &application.exec()).0
}

/// Waits until the profile of a cluster publishes exactly these authorities.
async fn publishes(stage: &Stage, cluster: &str, authorities: &[&str]) {
    let wanted: BTreeSet<String> = authorities.iter().map(ToString::to_string).collect();
    profile(&stage.ocm, (TEAM, cluster), "publishes the authorities", |profile| {
        anchors_in(profile) == wanted
    })
    .await;
}

#[tokio::test]
async fn applications_reach_two_clusters_through_cluster_proxys_own_tunnel() {
    if !pods::can_run("cluster-proxy's tunnel, in pods").await {
        return;
    }
    let mut tunnel = Box::pin(Tunnel::start()).await;
    let stage = &tunnel.stage;
    let application = stage.bound_application(TEAM, &CLUSTERS).await;
    sees(&stage.ocm, TEAM, &CLUSTERS).await;
    for cluster in CLUSTERS {
        application.reaches(cluster).await;
    }

    // Its authority is replaced. What serves with a certificate of the old one is accepted, and what then serves with
    // one of the new.
    let old = tunnel.proxy.authority().await.unwrap();
    publishes(stage, "one", &[&old]).await;
    let new = tunnel.proxy.rotate().await.unwrap();
    for cluster in CLUSTERS {
        publishes(stage, cluster, &[&old, &new]).await;
        application.reaches(cluster).await;
    }
    let only_old = trusting(&application, "one", &old).await;
    let only_new = trusting(&application, "one", &new).await;
    lists(&only_old, "one").await;
    fails(&only_new, &["get", "namespaces"], UNKNOWN).await;
    tunnel.proxy.renew(&new).await.unwrap();
    for addon in &mut tunnel.addons {
        addon.renew(&new).await.unwrap();
    }
    for cluster in CLUSTERS {
        application.reaches(cluster).await;
    }
    lists(&only_new, "one").await;
    fails(&only_old, &["get", "namespaces"], UNKNOWN).await;
    stage.restart_with(&["--ca-overlap=1s"]).await;
    for cluster in CLUSTERS {
        publishes(stage, cluster, &[&new]).await;
        application.reaches(cluster).await;
    }

    // An application comes in by its token of the hub, as a user without permissions on the cluster.
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": application.access.token().expose() },
    });
    let prints = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "echo",
        "args": [credential.to_string()],
    });
    let comes_in = async |cluster: &str, message: &str| {
        let (kubectl, _) = application.kubectl_by(&application.stanza(cluster).await, &prints);
        fails(&kubectl, &["get", "namespaces"], message).await;
    };
    let user = format!("cluster:hub:system:serviceaccount:{TEAM}:application");
    comes_in("two", &user).await;

    // The addon of a cluster is removed, and returns as the guide configures it: no token of the hub is accepted.
    let two = &mut tunnel.addons[1];
    let kubectl = application.kubectl("two").await;
    two.remove().await.unwrap();
    profile(&stage.ocm, (TEAM, "two"), "has no entry", |profile| provider(profile, NAME).is_null())
        .await;
    fails(&kubectl, &["get", "namespaces"], "proxy to anp-proxy-server failed").await;
    application.reaches("one").await;
    let guide = blocks("docs/own-identity.md");
    let configuration = guide.iter().find(|it| it.text.contains("kind: AddOnDeploymentConfig"));
    let configuration: Value = serde_saphyr::from_str(&configuration.unwrap().text).unwrap();
    let [namespace, name] =
        ["namespace", "name"].map(|key| configuration["metadata"][key].as_str().unwrap());
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "AddOnDeploymentConfig");
    let object = ocm::Object::new(gvk, "addondeploymentconfigs", Some(namespace), name);
    world::create(&stage.ocm, [object.field("spec", configuration["spec"].clone())]).await;
    two.configure(namespace, name);
    two.enable().await.unwrap();
    application.reaches("two").await;
    comes_in("one", &user).await;
    comes_in("two", UNAUTHORIZED).await;
}
