//! `helm uninstall`: its hook fails while access is declared or accounts are left. No Job runs here, so this test runs its
//! container.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams};
use local_hub::eventually;
use local_hub::ocm::{self, Object};
use serde_json::json;

use crate::consumers::declare;
use crate::support::chart::{NAMESPACE, RELEASE, helm, install, run, run_container};
use crate::support::command::Ended;
use crate::support::world::{self, get};
use crate::support::{Hub, SOON};

const HOOK: &str = "hub-addons-uninstall";
const ENABLED: &str = "consumerAccess.enabled=true";

/// Runs `helm uninstall` with more arguments, and the container of its Job.
pub async fn uninstall(hub: &Hub, more: &[&str]) -> (Ended, Ended) {
    let jobs: Api<Job> = Api::namespaced(hub.ocm.clone(), NAMESPACE);
    let before = jobs.get_opt(HOOK).await.unwrap().and_then(|job| job.metadata.uid);
    let node = async {
        let job = eventually("the Job is made", SOON, async || {
            jobs.get_opt(HOOK).await.unwrap().filter(|job| job.metadata.uid != before)
        })
        .await;
        let pod = job.spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.service_account_name.as_deref(), Some(HOOK));
        let ended = run_container(hub, &pod, &pod.containers[0]).await;
        let now = "2026-11-23T00:00:00Z";
        let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": now, "reason": "It" });
        let status = if ended.code == Some(0) {
            let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
            json!({ "conditions": conditions, "succeeded": 1, "startTime": now, "completionTime": now })
        } else {
            let conditions = [condition("FailureTarget"), condition("Failed")];
            json!({ "conditions": conditions, "failed": 1, "startTime": now })
        };
        let status = Patch::Merge(json!({ "status": status }));
        jobs.patch_status(HOOK, &PatchParams::default(), &status).await.unwrap();
        ended
    };
    let arguments = ["uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout=60s"];
    let arguments = [&arguments[..], more].concat();
    tokio::join!(run(helm(), Some(&hub.hub), &arguments), node)
}

#[tokio::test]
async fn an_uninstallation_stops_while_applications_have_access_to_clusters() {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, ["team", "c1"].map(ocm::namespace)).await;
    install(&hub, &[ENABLED]).await;
    let mark = |object: Object, installation: &str| {
        object
            .label("app.kubernetes.io/component", "consumer-access")
            .label("hub-addons/installation", installation)
    };
    let (left, other) =
        (ocm::managed_service_account("c1", "app"), ocm::managed_service_account("c1", "other"));
    // Besides the chart's own account, only a cluster manager may set the labels.
    install(&hub, &[ENABLED, "policies.clusterManagers.users={ocm}"]).await;
    eventually("the account is there", SOON, async || {
        mark(left.clone(), NAMESPACE).create(&hub.ocm).await
    })
    .await;
    world::create(&hub.ocm, [mark(other, "elsewhere")]).await;
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let declared = ocm::cluster_access("team", "app", &spec);
    declare(&hub, declared.clone()).await;

    let (helm, command) = uninstall(&hub, &[]).await;
    assert_eq!((helm.code == Some(0), command.code), (false, Some(1)), "{}", command.stdout);
    for left in ["1 are left (team/app): delete every ClusterAccess", "1 are left (c1/app)"] {
        assert!(command.stdout.contains(left), "{}", command.stdout);
    }
    let deployment = world::object("Deployment", Some(NAMESPACE), "hub-addons-consumers");
    assert!(get(&hub.ocm, &deployment).await.is_some(), "the controller that withdraws still runs");

    world::delete(&hub.ocm, &left).await;
    let (helm, command) = uninstall(&hub, &[]).await;
    assert_eq!((helm.code == Some(0), command.code), (false, Some(1)), "{}", command.stdout);
    world::delete(&hub.ocm, &declared).await;
    let (helm, command) = uninstall(&hub, &[]).await;
    assert_eq!((helm.code, command.code), (Some(0), Some(0)), "{}{}", helm.stderr, command.stdout);
    assert!(get(&hub.ocm, &deployment).await.is_none());
    let role = world::object("ClusterRole", None, HOOK);
    assert!(get(&hub.ocm, &role).await.is_none(), "the hook leaves nothing");
}
