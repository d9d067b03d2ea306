//! A hub that is reset for the next test.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use local_hub::{HubBuilder, LocalHub, eventually, ocm};
use serde_json::{Value, json};

use crate::hub::may;

const SOON: Duration = Duration::from_mins(2);

const CLUSTERS: &str = "managedclusters.cluster.open-cluster-management.io";

/// A hub that is kept for the next hub with this user.
fn kept_for(user: &str) -> HubBuilder {
    LocalHub::builder().without_controller_manager().user(user, &[]).reused()
}

fn from<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

async fn may_list_secrets(client: &Client, namespace: &str) -> bool {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    secrets.list(&ListParams::default()).await.is_ok()
}

#[tokio::test]
async fn a_reused_hub_has_nothing_of_the_last_test() {
    let hub = kept_for("nothing").start().await.unwrap();
    let fresh = names_of_everything(&hub).await;
    hub.grant("consumer", vec![may(&["list"], "secrets")]).await.unwrap();
    let admin = hub.client_as("admin").await.unwrap();
    for object in [
        ocm::namespace("team"),
        ocm::cluster_set("all"),
        ocm::bound("team", "all"),
        ocm::ManagedCluster::named("one").in_set("all").into(),
    ] {
        object.create(&admin).await.unwrap();
    }
    let account = hub.service_account("team", "app").await.unwrap();
    account.grant_in_namespace(vec![may(&["list"], "secrets")]).await.unwrap();
    assert!(may_list_secrets(&account.client().await.unwrap(), "team").await);
    std::fs::write(hub.directory().join("note"), "left").unwrap();
    let running = hub.run("program", Path::new("/bin/sleep"), ["1000"]).await.unwrap();
    let (url, directory) = (hub.url(), hub.directory().to_owned());
    drop(running);
    drop(hub);

    let hub = kept_for("nothing").start().await.unwrap();
    assert_eq!((hub.url(), hub.directory()), (url, directory.as_path()), "the same hub");
    assert_eq!(names_of_everything(&hub).await, fresh);
    let consumer = hub.client_as("consumer").await.unwrap();
    assert!(!may_list_secrets(&consumer, "default").await);
    assert!(!directory.join("note").exists() && !directory.join("program.log").exists());
    let requests = hub.audit().requests().await.unwrap();
    assert_eq!(requests.of_user("consumer").len(), 1, "{requests}");
    assert_eq!(requests.count(|request| request.name == "team"), 0, "{requests}");

    // The same names can be used again, with other permissions.
    let account = hub.service_account("team", "app").await.unwrap();
    assert!(!may_list_secrets(&account.client().await.unwrap(), "team").await);
    hub.grant("consumer", vec![may(&["list"], "secrets")]).await.unwrap();
    assert!(may_list_secrets(&consumer, "default").await);
}

/// The names of all objects that the API server has, of the kinds that these tests create.
async fn names_of_everything(hub: &LocalHub) -> String {
    let kinds = "namespaces,secrets,serviceaccounts,configmaps,clusterroles,clusterrolebindings,roles,rolebindings,\
                 managedclusters,managedclustersets,managedclustersetbindings,clusterprofiles";
    let output = hub.kubectl(&["get", kinds, "--all-namespaces", "--output=name"]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a hub, lets a test use it, and returns whether the next one gets another.
async fn is_replaced_after(user: &str, test: impl AsyncFnOnce(&LocalHub, Client)) -> bool {
    let hub = kept_for(user).start().await.unwrap();
    let directory = hub.directory().to_owned();
    test(&hub, hub.client_as("admin").await.unwrap()).await;
    drop(hub);
    let next = kept_for(user).start().await.unwrap();
    let replaced = next.directory() != directory;
    assert_eq!(directory.exists(), !replaced, "what is not used is removed");
    replaced
}

#[tokio::test]
async fn a_hub_is_not_reused_after_its_servers_were_stopped() {
    let stopped = async |hub: &LocalHub, _| {
        hub.stop_api_server().await.unwrap();
        hub.start_api_server().await.unwrap();
    };
    assert!(is_replaced_after("stopped", stopped).await);
}

#[tokio::test]
async fn a_hub_is_not_reused_if_an_object_of_its_start_was_changed() {
    let changed = async |_: &LocalHub, admin| {
        let namespaces: Api<Namespace> = Api::all(admin);
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "team": "mine" } } }));
        namespaces.patch("default", &PatchParams::default(), &patch).await.unwrap();
    };
    assert!(is_replaced_after("changed", changed).await);
    let deleted = async |hub: &LocalHub, _: Client| hub.remove_crd(CLUSTERS).await.unwrap();
    assert!(is_replaced_after("deleted", deleted).await);
}

#[tokio::test]
async fn a_hub_is_not_reused_after_objects_that_the_api_server_acts_on() {
    let limited = async |_: &LocalHub, admin| {
        let quotas: Api<ResourceQuota> = Api::namespaced(admin, "default");
        let quota =
            from(json!({ "metadata": { "name": "few" }, "spec": { "hard": { "secrets": "1" } } }));
        quotas.create(&PostParams::default(), &quota).await.unwrap();
    };
    assert!(is_replaced_after("limited", limited).await);
}

#[tokio::test]
async fn a_hub_is_not_reused_while_a_program_runs_beside_it() {
    let mut running = None;
    let leaked = async |hub: &LocalHub, _| {
        running = Some(hub.run("program", Path::new("/bin/sleep"), ["1000"]).await.unwrap());
    };
    assert!(is_replaced_after("running", leaked).await);
}

#[tokio::test]
async fn a_failed_test_keeps_no_hub() {
    let (sender, receiver) = tokio::sync::oneshot::channel::<PathBuf>();
    let test = tokio::spawn(async {
        let hub = kept_for("failed").start().await.unwrap();
        sender.send(hub.directory().to_owned()).unwrap();
        assert!(hub.directory().as_os_str().is_empty(), "this test fails");
    });
    let directory = receiver.await.unwrap();
    test.await.unwrap_err();
    eventually("the hub is gone", SOON, async || !directory.exists()).await;
}
