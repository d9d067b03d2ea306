//! Kueue's MultiKueue, which consumer access configures for the granted clusters, and which finds them by their profiles
//! and reaches them through cp-creds.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::Path;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::ListParams;
use local_hub::ocm::{self, Object};
use local_hub::{Running, agent, eventually};
use serde_json::{Value, json};

use crate::support::chain::{Application, CLUSTERS, Stage, in_one_process};
use crate::support::field::{self, UPSTREAM};
use crate::support::kueue::multi_kueue_cluster;
use crate::support::proxy::NAME;
use crate::support::shown::sees;
use crate::support::world::{create, delete, get, gone, merge_status};
use crate::support::{Addons, WHOLE_FLEET};

pub const KUEUE: &str = "kueue-system";
/// The namespace of the jobs, on the hub and on the clusters.
const JOBS: &str = "jobs";
/// Runs a program with a certificate for its metrics in the only place where Kueue looks for it, which nothing else on
/// this machine sees.
const WITH_CERTIFICATES: &str = r#"
set -e
mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics/certs && cp "$0"/tls.crt "$0"/tls.key /etc/kueue/metrics/certs
exec "$@""#;

pub fn kueue_object(kind: &str, plural: &str, namespace: Option<&str>, name: &str) -> Object {
    Object::new(("kueue.x-k8s.io", "v1beta2", kind), plural, namespace, name)
}

/// What Kueue needs on a cluster.
pub fn permissions() -> Vec<PolicyRule> {
    let rule = |group: &str, resources: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: ["create", "delete", "get", "list", "patch", "update", "watch"].map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    };
    vec![rule("batch", &["jobs", "jobs/status"]), rule("kueue.x-k8s.io", &["workloads", "workloads/status"])]
}

/// Installs Kueue on the hub and its Workloads on the clusters.
pub async fn install(stage: &Stage) {
    let bases = "config/components/crd/bases";
    field::install_crds(&stage.chain.hub, "kueue", bases, |_| true).await;
    for name in CLUSTERS {
        let cluster = stage.cluster(name);
        field::install_crds(cluster, "kueue", bases, |crd| crd.starts_with("workloads.")).await;
        create(&cluster.client_as("ocm").await.unwrap(), [ocm::namespace(JOBS)]).await;
    }
    let check = json!({
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": { "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "multikueue" },
    });
    let queue = json!({
        "namespaceSelector": {},
        "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "100" }] }],
        }],
        "admissionChecksStrategy": { "admissionChecks": [{ "name": "multikueue" }] },
    });
    create(
        &stage.ocm,
        [
            ocm::namespace(JOBS),
            kueue_object("ResourceFlavor", "resourceflavors", None, "default").field("spec", json!({})),
            kueue_object("AdmissionCheck", "admissionchecks", None, "multikueue").field("spec", check),
            kueue_object("ClusterQueue", "clusterqueues", None, "queue").field("spec", queue),
            kueue_object("LocalQueue", "localqueues", Some(JOBS), "queue")
                .field("spec", json!({ "clusterQueue": "queue" })),
        ],
    )
    .await;
}

/// Starts consumer access, which has Kueue use the clusters of an application. The application's account is not its own.
async fn consumer_access(stage: &Stage, application: &Application) -> Addons {
    let gates = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false,\
                 ClusterProfileConsumers=true";
    let spec = json!({
        "identity": "Copy", "serviceAccountNames": ["kueue"], "managedServiceAccountName": application.account(),
        "multiKueue": { "configs": [{ "name": "multikueue" }] },
    });
    create(&stage.ocm, [ocm::cluster_access(KUEUE, "kueue", &spec)]).await;
    Addons::launch(&stage.chain.hub, "consumers", UPSTREAM, &[gates]).await
}

/// Starts Kueue with an access provider, and the plugin that it runs for it.
pub async fn kueue(stage: &Stage, provider: &str, exec: &Value) -> Running {
    let hub = &stage.chain.hub.hub;
    let certificates = hub.directory().join("kueue-certificates");
    std::fs::create_dir(&certificates).unwrap();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(certificates.join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(certificates.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": { "healthProbeBindAddress": "0" },
        "metrics": { "bindAddress": "0" },
        "webhook": { "port": field::free_port(), "certDir": certificates },
        "leaderElection": { "leaderElect": false },
        "internalCertManagement": { "enable": false },
        "integrations": { "frameworks": ["batch/job"] },
        "featureGates": { "MultiKueueClusterProfile": true, "VisibilityOnDemand": false },
        "multiKueue": { "clusterProfile": { "accessProviders": [{ "name": provider, "execConfig": exec }] } },
    });
    let file = hub.directory().join("kueue.json");
    std::fs::write(&file, configuration.to_string()).unwrap();
    let kubeconfig = hub.kubeconfig_for(UPSTREAM).unwrap();
    let program = field::program("kueue").await;
    let arguments = [
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        WITH_CERTIFICATES,
        certificates.to_str().unwrap(),
        program.to_str().unwrap(),
        &format!("--config={}", file.display()),
        "--zap-log-level=3",
    ];
    let environment = [("KUBECONFIG", kubeconfig.as_os_str()), ("NAMESPACE", KUEUE.as_ref())];
    field::run(hub, "kueue", Path::new("unshare"), &environment, &arguments).await
}

/// Waits until a `MultiKueueCluster` has this status of its condition `Active`, and returns its reason.
pub async fn active(stage: &Stage, kueue: &Running, name: &str, status: &str) -> String {
    eventually(&format!("MultiKueueCluster {name} has Active={status}"), WHOLE_FLEET, async || {
        let shown = get(&stage.ocm, &multi_kueue_cluster(name)).await.unwrap_or_default();
        let conditions = shown["status"]["conditions"].as_array();
        let active = conditions.and_then(|list| list.iter().find(|it| it["type"] == "Active")).cloned();
        match active {
            Some(active) if active["status"] == status => Ok(active["reason"].as_str().map(str::to_owned)),
            other => Err(format!("{other:?}; {}", last_errors(kueue))),
        }
    })
    .await
}

/// The end of what it logs as an error.
fn last_errors(kueue: &Running) -> String {
    let log = kueue.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("\"error\"")).collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Creates a job, and waits until it has a Workload on both clusters.
pub async fn placed(stage: &Stage, kueue: &Running, name: &str) {
    let container = json!({
        "name": "main", "image": "example.com/main", "resources": { "requests": { "cpu": "1" } },
    });
    let job = Object::new(("batch", "v1", "Job"), "jobs", Some(JOBS), name)
        .label("kueue.x-k8s.io/queue-name", "queue")
        .field(
            "spec",
            json!({
                "suspend": true,
                "managedBy": "kueue.x-k8s.io/multikueue",
                "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
            }),
        );
    job.create(&stage.ocm).await.unwrap();
    for cluster in CLUSTERS {
        let client = stage.cluster(cluster).client_as("ocm").await.unwrap();
        let workloads = kueue_object("Workload", "workloads", Some(JOBS), "").api(&client);
        eventually(&format!("{cluster} has a Workload of {name}"), WHOLE_FLEET, async || {
            let list = workloads.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let names: Vec<_> = list.into_iter().filter_map(|it| it.metadata.name).collect();
            let prefix = format!("job-{name}-");
            if names.iter().any(|it| it.starts_with(&prefix)) {
                Ok(())
            } else {
                let here = kueue_object("Workload", "workloads", Some(JOBS), "").api(&stage.ocm);
                let here = here.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
                let here: Vec<_> = here.into_iter().map(|it| it.data["status"].to_string()).collect();
                Err(format!("{names:?}; on the hub {here:?}; {}", last_errors(kueue)))
            }
        })
        .await;
    }
}

/// How many watches on clusters it has started.
fn watches(kueue: &Running) -> usize {
    kueue.log().matches("Starting watch").count()
}

#[tokio::test]
async fn multikueue_reaches_its_clusters_and_keeps_its_connections_until_a_grant_ends() {
    let stage = in_one_process().await;
    let application = stage.bound_application(KUEUE, &CLUSTERS).await;
    sees(&stage.ocm, KUEUE, &CLUSTERS).await;
    install(&stage).await;
    for cluster in CLUSTERS {
        let (cluster, account) = (stage.cluster(cluster), application.account());
        cluster.grant_service_account(agent::NAMESPACE, account, permissions()).await.unwrap();
    }
    let _consumers = consumer_access(&stage, &application).await;
    let kueue = kueue(&stage, NAME, &application.exec()).await;
    for cluster in CLUSTERS {
        assert_eq!(active(&stage, &kueue, cluster, "True").await, "Active");
    }
    placed(&stage, &kueue, "first").await;

    // Heartbeats and a restart cost no connection.
    let before = watches(&kueue);
    assert!(before > 0, "{}", last_errors(&kueue));
    for beat in 0..20 {
        for cluster in CLUSTERS {
            let cluster = ocm::ManagedCluster::named(cluster).into();
            merge_status(&stage.ocm, &cluster, &json!({ "allocatable": { "cpu": beat.to_string() } })).await;
        }
    }
    stage.restart().await;
    placed(&stage, &kueue, "second").await;
    assert_eq!(watches(&kueue), before, "no watch is restarted");

    // The next token is copied after the old one has become invalid.
    for cluster in CLUSTERS {
        stage.invalidate(cluster, &application).await;
        stage.rotate(cluster, application.account()).await;
    }
    placed(&stage, &kueue, "third").await;

    let binding = ocm::bound(KUEUE, KUEUE);
    delete(&stage.ocm, &binding).await;
    for cluster in CLUSTERS {
        gone(&stage.ocm, &multi_kueue_cluster(cluster)).await;
    }
    create(&stage.ocm, [binding]).await;
    for cluster in CLUSTERS {
        assert_eq!(active(&stage, &kueue, cluster, "True").await, "Active");
    }
    placed(&stage, &kueue, "fourth").await;
}
