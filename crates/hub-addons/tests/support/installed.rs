//! The program as users install it: the chart with helm, and its Pods from the image, with only the permissions and
//! policies that the chart renders.
//!
//! With `HUB_ADDONS_INSTALLED=1`, the tests that start the program install it this way. Their arguments become values
//! of the chart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use local_hub::{HubBuilder, LocalHub, Pods, eventually, ocm};
use serde_json::{Value, json};

use super::chart::{self, NAMESPACE};
use super::pods::{IMAGE, image};
use super::{Hub, chain, proxy, world};

/// Timeout for a Pod to start or to end: it copies its image first, and several start at once.
const PATIENCE: Duration = Duration::from_mins(4);
const CONTAINER: &str = "hub-addons";
/// The user that writes profiles.
pub const PROFILES: &str = "system:serviceaccount:addons:hub-addons-profiles";
/// The user that writes copies of tokens.
pub const CREDENTIALS: &str = "system:serviceaccount:addons:hub-addons-credentials";

/// Whether to install the program.
pub fn is_wanted() -> bool {
    std::env::var_os("HUB_ADDONS_INSTALLED").is_some_and(|wanted| wanted == "1")
}

/// A hub on which the program can be installed, if required.
pub fn prepare(builder: HubBuilder) -> HubBuilder {
    if is_wanted() { builder.workloads() } else { builder }
}

/// Runs the hub's Pods, if the program is installed.
pub async fn runner(hub: &LocalHub) -> Option<Arc<Pods>> {
    if !is_wanted() {
        return None;
    }
    let image = image().await.unwrap();
    Some(Arc::new(Pods::on(hub).unwrap().image(IMAGE, image).start().await.unwrap()))
}

/// The program, installed and running.
pub struct Installed {
    runner: Arc<Pods>,
    admin: Client,
    parts: Vec<Part>,
}

/// One Pod.
struct Part {
    pod: String,
    metrics: SocketAddr,
    probes: SocketAddr,
}

impl Installed {
    /// Installs or upgrades the chart, and returns when each of its Deployments has a running Pod.
    pub async fn start(hub: &Hub, runner: Arc<Pods>, arguments: &[&str]) -> Self {
        let admin = hub.client_as("admin").await.unwrap();
        // helm finds it there the second time.
        world::ensure(&admin, &world::restricted(NAMESPACE)).await;
        world::ensure_namespace(&admin, proxy::HOME).await;
        let file = hub.directory().join("values.json");
        let home = ocm::namespace(chain::HOME);
        let home = if world::get(&admin, &home).await.is_some() { chain::HOME } else { proxy::HOME };
        std::fs::write(&file, values(arguments, home).to_string()).unwrap();
        let mut command = chart::install_arguments(&[]);
        // A test that stopped it has scaled it.
        command.extend([format!("--values={}", file.display()), "--force-conflicts".to_owned()]);
        let ended = chart::run(chart::helm(), Some(&hub.hub), &command).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);

        let deployments: Api<Deployment> = Api::namespaced(admin.clone(), NAMESPACE);
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        let mut parts = Vec::new();
        for deployment in deployments.list(&ListParams::default()).await.unwrap() {
            let selector = deployment.spec.as_ref().unwrap().selector.match_labels.as_ref().unwrap();
            let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let params = ListParams::default().labels(&selector.join(","));
            let name = deployment.name_any();
            let pod = eventually(&format!("{name} has a Pod that runs"), PATIENCE, async || {
                let found = pods.list(&params).await.unwrap().items;
                let [pod] = found.as_slice() else { return Err(format!("{} Pods", found.len())) };
                let status = pod.status.clone().unwrap_or_default();
                let runs = status
                    .container_statuses
                    .iter()
                    .flatten()
                    .all(|it| it.state.as_ref().is_some_and(|state| state.running.is_some()));
                let runs = runs && status.phase.as_deref() == Some("Running");
                if runs { Ok(Some(pod.name_any())) } else { Err(format!("{status:?}")) }
            })
            .await;
            let metrics = runner.forward(NAMESPACE, &pod, 8080).unwrap();
            let probes = runner.forward(NAMESPACE, &pod, 8081).unwrap();
            parts.push(Part { pod, metrics, probes });
        }
        Self { runner, admin, parts }
    }

    /// The number of processes.
    pub fn processes(&self) -> usize {
        self.parts.len()
    }

    /// The logs of all processes.
    pub fn log(&self) -> String {
        self.parts.iter().map(|part| self.runner.logs(NAMESPACE, &part.pod, CONTAINER)).collect()
    }

    /// Where the processes serve metrics.
    pub fn metrics(&self) -> impl Iterator<Item = String> {
        self.parts.iter().map(|part| part.metrics.to_string())
    }

    /// Where the processes serve probes.
    pub fn probes(&self) -> impl Iterator<Item = String> {
        self.parts.iter().map(|part| part.probes.to_string())
    }

    /// Sends a signal by name to every process.
    pub async fn signal(&self, signal: &'static str) {
        for part in &self.parts {
            self.runner.signal(NAMESPACE, &part.pod, CONTAINER, signal).await.unwrap();
        }
    }

    /// Stops it gracefully, and keeps it stopped.
    pub async fn stop(self) {
        let deployments: Api<Deployment> = Api::namespaced(self.admin.clone(), NAMESPACE);
        for deployment in deployments.list(&ListParams::default()).await.unwrap() {
            let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
            let name = deployment.name_any();
            deployments.patch_scale(&name, &PatchParams::default(), &none).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), NAMESPACE);
        eventually("no Pod is left", PATIENCE, async || {
            pods.list(&ListParams::default()).await.unwrap().items.is_empty()
        })
        .await;
    }

    /// Kills it, and keeps it stopped.
    pub async fn kill(self) {
        self.signal("KILL").await;
        self.stop().await;
    }
}

/// The chart's values for these arguments.
fn values(arguments: &[&str], home: &str) -> Value {
    let (registry, rest) = IMAGE.split_once('/').unwrap();
    let (repository, tag) = rest.split_once(':').unwrap();
    let mut values = json!({
        "image": { "registry": registry, "repository": repository, "tag": tag },
        "replicaCount": 1,
        "log": { "level": "debug" },
        "featureGates": {},
        "credentials": {},
        // Tests create profiles as another cluster's projector would.
        "policies": { "clusterManagers": { "users": ["ocm"] } },
        "accessProvider": { "clusterProxy": { "namespace": home }, "static": {} },
    });
    for argument in arguments {
        let (flag, value) = argument.split_once('=').unwrap_or((argument, "true"));
        let truth = || Value::from(value == "true");
        let text = || Value::from(value);
        let access = &mut values["accessProvider"];
        match flag {
            "--feature-gates" => {
                for gate in value.split(',') {
                    let (name, on) = gate.split_once('=').unwrap();
                    values["featureGates"][format!("c{}", &name[1..])] = json!(on == "true");
                }
            }
            "--cluster-manager-name" => values["clusterManagerName"] = text(),
            "--propagate-labels" => values["propagateLabels"] = value.split(',').collect(),
            "--propagate-claims" => values["propagateClaims"] = value.split(',').collect(),
            "--compute-bound" => values["computeBound"] = truth(),
            "--leader-elect" => values["leaderElection"] = truth(),
            "--log-level" => values["log"]["level"] = text(),
            "--require-sync-namespaces" => values["credentials"]["requireSyncNamespaces"] = truth(),
            "--protected-namespaces" => {
                values["credentials"]["protectedNamespaces"] = value.split(',').collect();
            }
            "--trust-restored-tokens" => values["credentials"]["trustRestoredTokens"] = truth(),
            "--ca-overlap" => access["caOverlap"] = text(),
            "--server-check-interval" => access["serverCheckInterval"] = text(),
            "--access-provider-name" => access["name"] = text(),
            "--access-provider-server" => access["static"]["server"] = text(),
            "--access-provider-ca" => access["static"]["ca"] = text(),
            "--cluster-proxy-require-addon" => access["clusterProxy"]["requireAddon"] = truth(),
            _ => panic!("the chart has no value for {argument}"),
        }
    }
    values
}
