//! An application on multicluster-runtime (`e2e/multicluster-client`): its manager engages the clusters of the
//! application's profiles, and reaches them through cp-creds.

use k8s_openapi::api::rbac::v1::PolicyRule;
use local_hub::ocm::{self, Object};
use local_hub::{Running, agent, eventually};
use serde_json::json;

use crate::support::chain::{Application, CLUSTERS, Stage, in_one_process, may};
use crate::support::proxy::NAME;
use crate::support::world::{create, delete, get, merge, merge_status, profile_of};
use crate::support::{SOON, WHOLE_FLEET, field, go_program};

const TEAM: &str = "multicluster";

/// Starts the application with the plugin and the ServiceAccount of its namespace, whose permissions are those of
/// `docs/multicluster-runtime.md`, and permits its account to write ConfigMaps on the clusters.
async fn start(stage: &Stage, application: &Application) -> Running {
    for name in CLUSTERS {
        let rules = vec![may(&["get", "list", "watch", "update"], "configmaps")];
        let cluster = stage.cluster(name);
        cluster
            .grant_service_account(agent::NAMESPACE, application.account(), rules)
            .await
            .unwrap();
    }
    let profiles = PolicyRule {
        api_groups: Some(vec!["multicluster.x-k8s.io".to_owned()]),
        ..may(&["get", "list", "watch"], "clusterprofiles")
    };
    application.access.grant_in_namespace(vec![profiles]).await.unwrap();
    let hub = &stage.chain.hub.hub;
    let file = hub.directory().join("multicluster.json");
    let providers = json!({ "providers": [{ "name": NAME, "execConfig": application.exec() }] });
    std::fs::write(&file, providers.to_string()).unwrap();
    let program =
        tokio::task::spawn_blocking(|| go_program::build("multicluster-client")).await.unwrap();
    let arguments = [
        &format!("--kubeconfig={}", application.access.kubeconfig().display()),
        &format!("--namespace={TEAM}"),
        &format!("--clusterprofile-provider-file={}", file.display()),
    ];
    field::run(hub, "multicluster", &program, &[], &arguments.map(String::as_str)).await
}

/// How often each cluster has been `engaged` or `disengaged`.
fn count(running: &Running, what: &str) -> [usize; 2] {
    let log = running.log();
    CLUSTERS.map(|cluster| {
        let line = format!("{what} {TEAM}/{cluster}");
        log.lines().filter(|shown| **shown == line).count()
    })
}

/// Creates a ConfigMap on a cluster, and waits until the application's controller has written there the name of the
/// cluster.
async fn reconciles(stage: &Stage, running: &Running, cluster: &str, name: &str) {
    let at_cluster = stage.cluster(cluster).client_as("ocm").await.unwrap();
    let object = Object::new(("", "v1", "ConfigMap"), "configmaps", Some("default"), name)
        .field("data", json!({ "cluster": "" }));
    object.create(&at_cluster).await.unwrap();
    eventually(
        &format!("the controller has written {name} on {cluster}"),
        WHOLE_FLEET,
        async || {
            let shown = get(&at_cluster, &object).await.unwrap_or_default();
            if shown["data"]["cluster"] == format!("{TEAM}/{cluster}") {
                Ok(())
            } else {
                let log = running.log();
                let lines: Vec<_> = log.lines().collect();
                Err(format!(
                    "{}: {}",
                    shown["data"],
                    lines[lines.len().saturating_sub(5)..].join("\n")
                ))
            }
        },
    )
    .await;
}

#[tokio::test]
async fn multicluster_runtime_engages_each_cluster_once_until_its_grant_ends() {
    let stage = in_one_process().await;
    let application = stage.bound_application(TEAM, &["one"]).await;
    let running = start(&stage, &application).await;
    reconciles(&stage, &running, "one", "first").await;
    assert_eq!(count(&running, "engaged"), [1, 0]);

    stage.select(TEAM, &CLUSTERS).await;
    reconciles(&stage, &running, "two", "first").await;
    assert_eq!(count(&running, "engaged"), [1, 1]);

    // Neither heartbeats nor a restart engage a cluster again, because they write no profile.
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
    for cluster in CLUSTERS {
        reconciles(&stage, &running, cluster, "second").await;
    }
    assert_eq!(count(&running, "engaged"), [1, 1]);

    // A write of a profile does: so the counts above would show one.
    let written = json!({ "metadata": { "annotations": { "example.com/written": "yes" } } });
    merge(&stage.ocm, &profile_of(NAME, TEAM, "one"), &written).await;
    eventually("the cluster of the profile is engaged again", SOON, async || {
        let engaged = count(&running, "engaged");
        if engaged == [2, 1] { Ok(()) } else { Err(format!("{engaged:?}")) }
    })
    .await;

    // The next token is copied after the old one has become invalid.
    for cluster in CLUSTERS {
        stage.invalidate(cluster, &application).await;
        stage.rotate(cluster, application.account()).await;
        reconciles(&stage, &running, cluster, "third").await;
    }
    assert_eq!(count(&running, "engaged"), [2, 1]);
    assert_eq!(count(&running, "disengaged"), [1, 0]);

    let binding = ocm::bound(TEAM, TEAM);
    delete(&stage.ocm, &binding).await;
    eventually("both clusters are disengaged", SOON, async || {
        let disengaged = count(&running, "disengaged");
        if disengaged == [2, 1] { Ok(()) } else { Err(format!("{disengaged:?}")) }
    })
    .await;
    create(&stage.ocm, [binding]).await;
    for cluster in CLUSTERS {
        reconciles(&stage, &running, cluster, "fourth").await;
    }
    assert_eq!(count(&running, "engaged"), [3, 2]);
    assert_eq!(count(&running, "disengaged"), [2, 1]);
}
