//! Kueue's MultiKueue with the configuration of its release, which consumer access configures for the granted clusters, and
//! which finds them by their profiles and reaches them through cp-creds.

use std::path::Path;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::ListParams;
use local_hub::ocm::{self, Object};
use local_hub::{LocalHub, Running, agent, eventually};
use serde_json::{Value, json};

use crate::support::chain::{Application, CLUSTERS, Stage, in_one_process};
use crate::support::field::{self, UPSTREAM};
use crate::support::kueue::multi_kueue_cluster;
use crate::support::proxy::NAME;
use crate::support::shown::sees;
use crate::support::world::{self, create, delete, get, gone, install_open_crd, merge_status};
use crate::support::{Addons, WHOLE_FLEET, examples};

const KUEUE: &str = "kueue-system";
/// The namespace of the jobs, on the hub and on the clusters.
const JOBS: &str = "jobs";
/// Runs a program with a certificate for its metrics in the only place where Kueue looks for it, which nothing else on
/// this machine sees.
const WITH_CERTIFICATES: &str = r#"
set -e
mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics/certs && cp "$0"/tls.crt "$0"/tls.key /etc/kueue/metrics/certs
exec "$@""#;

fn kueue_object(kind: &str, plural: &str, namespace: Option<&str>, name: &str) -> Object {
    Object::new(("kueue.x-k8s.io", "v1beta2", kind), plural, namespace, name)
}

/// What Kueue needs on a cluster, as the guide has it.
fn permissions() -> Vec<PolicyRule> {
    let role = examples::documents("multikueue", "cluster-role.yaml").remove(0);
    serde_json::from_value(role["rules"].clone()).unwrap()
}

/// What Kueue watches on each cluster with its default integrations, besides kinds of Kubernetes.
const INTEGRATIONS: [(&str, &str, &str); 8] = [
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("kubeflow.org", "v2beta1", "MPIJob"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
    ("ray.io", "v1", "RayService"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    ("workload.codeflare.dev", "v1beta2", "AppWrapper"),
];

/// Installs Kueue's kinds, and queues in the namespace of the jobs.
async fn install_at(hub: &LocalHub, more: &Value) {
    field::install_crds(hub, "kueue", "config/components/crd/bases", |_| true).await;
    let mut queue = json!({
        "namespaceSelector": {},
        "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "100" }] }],
        }],
    });
    json_patch::merge(&mut queue, more);
    create(
        &hub.client_as("ocm").await.unwrap(),
        [
            ocm::namespace(JOBS),
            kueue_object("ResourceFlavor", "resourceflavors", None, "default")
                .field("spec", json!({})),
            kueue_object("ClusterQueue", "clusterqueues", None, "queue").field("spec", queue),
            kueue_object("LocalQueue", "localqueues", Some(JOBS), "queue")
                .field("spec", json!({ "clusterQueue": "queue" })),
        ],
    )
    .await;
}

/// Installs Kueue on the hub and on the clusters.
async fn install(stage: &Stage) {
    for cluster in CLUSTERS.map(|name| stage.cluster(name)) {
        install_at(cluster, &json!({})).await;
        for gvk in INTEGRATIONS {
            install_open_crd(cluster, gvk, "Namespaced").await;
        }
    }
    let checks =
        json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "multikueue" }] } });
    install_at(&stage.chain.hub, &checks).await;
    let check = examples::documents("multikueue", "access.yaml").remove(1);
    assert_eq!(check["kind"], "AdmissionCheck");
    let name = check["metadata"]["name"].as_str().unwrap();
    let object = kueue_object("AdmissionCheck", "admissionchecks", None, name);
    create(&stage.ocm, [object.field("spec", check["spec"].clone())]).await;
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

/// Starts Kueue on the hub as the guide configures it, with the plugin that it runs.
async fn kueue(stage: &Stage, exec: &Value) -> Running {
    let mut configuration = examples::documents("multikueue", "configuration.yaml").remove(0);
    configuration["multiKueue"]["clusterProfile"]["accessProviders"] =
        json!([{ "name": NAME, "execConfig": exec }]);
    start(&stage.chain.hub, UPSTREAM, &configuration).await
}

/// Starts Kueue with the configuration of its release, this, and what lets it run beside others, without webhooks.
async fn start(hub: &LocalHub, user: &str, more: &Value) -> Running {
    let certificates = hub.directory().join("kueue-certificates");
    std::fs::create_dir(&certificates).unwrap();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(certificates.join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(certificates.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let release = field::source("kueue")
        .await
        .join("config/components/manager/controller_manager_config.yaml");
    let release = std::fs::read_to_string(release).unwrap();
    let mut configuration: Value = serde_saphyr::from_str(&release).unwrap();
    let frameworks = &configuration["integrations"]["frameworks"];
    assert!(frameworks.as_array().unwrap().len() > INTEGRATIONS.len(), "{frameworks}");
    json_patch::merge(&mut configuration, more);
    let beside_others = json!({
        "health": { "healthProbeBindAddress": "0" },
        "metrics": { "bindAddress": "0" },
        "webhook": { "port": field::free_port(), "certDir": certificates },
        "leaderElection": { "leaderElect": false },
        "internalCertManagement": { "enable": false },
        "featureGates": { "VisibilityOnDemand": false },
    });
    json_patch::merge(&mut configuration, &beside_others);
    let file = hub.directory().join("kueue.json");
    std::fs::write(&file, configuration.to_string()).unwrap();
    let kubeconfig = hub.kubeconfig_for(user).unwrap();
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
async fn active(stage: &Stage, kueue: &Running, name: &str, status: &str) -> String {
    eventually(&format!("MultiKueueCluster {name} has Active={status}"), WHOLE_FLEET, async || {
        let shown = get(&stage.ocm, &multi_kueue_cluster(name)).await.unwrap_or_default();
        let conditions = shown["status"]["conditions"].as_array();
        let active =
            conditions.and_then(|list| list.iter().find(|it| it["type"] == "Active")).cloned();
        match active {
            Some(active) if active["status"] == status => {
                Ok(active["reason"].as_str().map(str::to_owned))
            }
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

/// Creates the job of the guide, and waits until it has a Workload on both clusters.
async fn placed(stage: &Stage, kueue: &Running, name: &str) {
    let example = examples::documents("multikueue", "job.yaml").remove(0);
    let job = job(name)
        .label("kueue.x-k8s.io/queue-name", "queue")
        .field("spec", example["spec"].clone());
    job.create(&stage.ocm).await.unwrap();
    for cluster in CLUSTERS {
        let client = stage.cluster(cluster).client_as("ocm").await.unwrap();
        let workloads = kueue_object("Workload", "workloads", Some(JOBS), "").api(&client);
        eventually(&format!("{cluster} has a Workload of {name}"), WHOLE_FLEET, async || {
            let list =
                workloads.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let names: Vec<_> = list.into_iter().filter_map(|it| it.metadata.name).collect();
            let prefix = format!("job-{name}-");
            if names.iter().any(|it| it.starts_with(&prefix)) {
                Ok(())
            } else {
                let here = kueue_object("Workload", "workloads", Some(JOBS), "").api(&stage.ocm);
                let here =
                    here.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
                let here: Vec<_> =
                    here.into_iter().map(|it| it.data["status"].to_string()).collect();
                Err(format!("{names:?}; on the hub {here:?}; {}", last_errors(kueue)))
            }
        })
        .await;
    }
}

fn job(name: &str) -> Object {
    world::object("Job", Some(JOBS), name)
}

/// Plays what runs the Pods of a Job on a cluster, once Kueue there has started it, and waits until the hub shows its end.
async fn runs(stage: &Stage, cluster: &str, kueue: &[&Running], name: &str) {
    let errors = || kueue.iter().map(|it| last_errors(it)).collect::<Vec<_>>().join("\n");
    let client = stage.cluster(cluster).client_as("ocm").await.unwrap();
    eventually(&format!("Kueue starts {name} on {cluster}"), WHOLE_FLEET, async || {
        let there = get(&client, &job(name)).await.unwrap_or_default();
        if there["spec"]["suspend"] == false {
            Ok(())
        } else {
            Err(format!("{there}; {}", errors()))
        }
    })
    .await;
    let now = "2026-11-23T00:00:00Z";
    let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": now, "reason": "It" });
    let conditions = ["SuccessCriteriaMet", "Complete"].map(condition);
    let status = json!({
        "conditions": conditions, "succeeded": 1, "startTime": now, "completionTime": now,
    });
    merge_status(&client, &job(name), &status).await;
    eventually(&format!("{name} is complete on the hub"), WHOLE_FLEET, async || {
        let here = get(&stage.ocm, &job(name)).await.unwrap()["status"].clone();
        if here["succeeded"] == 1 { Ok(()) } else { Err(format!("{here}; {}", errors())) }
    })
    .await;
    let workloads = kueue_object("Workload", "workloads", Some(JOBS), "").api(&stage.ocm);
    let workloads = workloads.list(&ListParams::default()).await.unwrap();
    let prefix = format!("job-{name}-");
    let of_job = workloads
        .iter()
        .find(|it| it.metadata.name.as_ref().is_some_and(|it| it.starts_with(&prefix)));
    assert_eq!(of_job.unwrap().data["status"]["clusterName"], cluster, "what the guide shows");
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
    let kueue = kueue(&stage, &application.exec()).await;
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
            merge_status(
                &stage.ocm,
                &cluster,
                &json!({ "allocatable": { "cpu": beat.to_string() } }),
            )
            .await;
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

    // With Kueue on a cluster, a job runs there.
    let alone = json!({ "integrations": { "frameworks": ["batch/job"] } });
    let there = start(stage.cluster("one"), "ocm", &alone).await;
    runs(&stage, "one", &[&kueue, &there], "fourth").await;
}
