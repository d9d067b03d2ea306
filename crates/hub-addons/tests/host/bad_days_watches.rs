//! Watches in rare failures, on real hubs: a restored etcd, an object that no client library decodes, and deletions
//! while no watch is open.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use k8s_openapi::api::rbac::v1::PolicyRule;
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{LocalHub, eventually};

use crate::support::credentials::{self, copied, label, token, withdrawn};
use crate::support::shared::caught_up;
use crate::support::shown::{profile, sees};
use crate::support::world::{create, delete, get, profile_of};
use crate::support::{Addons, Hub, SOON, rights};

const MANAGER: &str = "open-cluster-management";
const PROFILES_AND_COPIES: &str = "--feature-gates=ClusterProfileAccessProvider=false";
/// An API server that is away for longer than a lease ends the leader, which another test covers.
const ALONE: &str = "--leader-elect=false";

async fn hub() -> Hub {
    let mut rules = rights::projector();
    rules.extend(rights::syncer());
    Hub::start(LocalHub::builder().without_controller_manager(), rules).await
}

fn in_red(name: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set("red")
}

async fn team_red(hub: &Hub, clusters: &[&str]) {
    create(&hub.ocm, [ocm::namespace("red"), ocm::cluster_set("red"), ocm::bound("red", "red")]).await;
    for cluster in clusters {
        in_red(cluster).version("v1.30.0").create(&hub.ocm).await.unwrap();
    }
}

async fn shows_version(hub: &Hub, cluster: &str, version: &str) {
    let what = format!("shows {version}");
    profile(&hub.ocm, ("red", cluster), &what, |p| p["status"]["version"]["kubernetes"] == version).await;
}

#[tokio::test]
async fn a_hub_that_is_restored_to_an_older_state_is_followed_without_a_restart() {
    let hub = hub().await;
    let addons = Addons::start(&hub, &[PROFILES_AND_COPIES, ALONE]).await;
    team_red(&hub, &["red-1", "red-2", "red-3"]).await;
    let (stays, revoked, ended) = (token("red-1", "app"), token("red-2", "app"), token("red-3", "app"));
    for token in [&stays, &revoked, &ended] {
        token.create(&hub.ocm).await.unwrap();
        copied(&hub.ocm, "red", token).await;
    }
    shows_version(&hub, "red-1", "v1.30.0").await;

    // The snapshot contains what is no longer granted, and copies and a profile that were deleted afterwards.
    addons.signal("STOP").await;
    label(&hub.ocm, &revoked, None).await;
    in_red("red-3").in_set("blue").update(&hub.ocm).await.unwrap();
    let snapshot = hub.snapshot().await.unwrap();
    addons.signal("CONT").await;
    withdrawn(&hub.ocm, "red", &revoked).await;
    withdrawn(&hub.ocm, "red", &ended).await;
    sees(&hub.ocm, "red", &["red-1", "red-2"]).await;
    // It does not contain a cluster, a change of status, a rotated token; and there is a lot of later history.
    in_red("red-4").create(&hub.ocm).await.unwrap();
    in_red("red-1").version("v1.31.0").update(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-4"]).await;
    shows_version(&hub, "red-1", "v1.31.0").await;
    for round in 0..100 {
        in_red("red-4").label("round", &round.to_string()).update(&hub.ocm).await.unwrap();
    }

    hub.restore(&snapshot).await.unwrap();
    withdrawn(&hub.ocm, "red", &revoked).await;
    withdrawn(&hub.ocm, "red", &ended).await;
    sees(&hub.ocm, "red", &["red-1", "red-2"]).await;
    shows_version(&hub, "red-1", "v1.30.0").await;
    copied(&hub.ocm, "red", &stays).await;
    // Changes in the new history take effect.
    in_red("red-2").version("v1.32.0").update(&hub.ocm).await.unwrap();
    shows_version(&hub, "red-2", "v1.32.0").await;
    in_red("red-5").create(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-5"]).await;
    label(&hub.ocm, &stays, None).await;
    withdrawn(&hub.ocm, "red", &stays).await;
    label(&hub.ocm, &revoked, Some("true")).await;
    copied(&hub.ocm, "red", &revoked).await;
    delete(&hub.ocm, &ocm::bound("red", "red")).await;
    withdrawn(&hub.ocm, "red", &revoked).await;
    sees(&hub.ocm, "red", &[]).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_profile_that_nests_too_deep_stops_nothing() {
    let hub = hub().await;
    let addons = Addons::start(&hub, &[PROFILES_AND_COPIES, ALONE]).await;
    team_red(&hub, &["red-1"]).await;
    shows_version(&hub, "red-1", "v1.30.0").await;
    let app = token("red-1", "app");
    app.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "red", &app).await;

    let deep = format!("{}1{}", r#"{"a":"#.repeat(150), "}".repeat(150));
    let patch = format!(
        r#"{{"status":{{"accessProviders":[{{"name":"tenant","cluster":{{"server":"https://tenant.example.com",
            "extensions":[{{"name":"deep","extension":{deep}}}]}}}}]}}}}"#
    );
    let kubectl = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let hub = &hub;
        async move {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = hub.kubectl(&arguments).await.unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        }
    };
    let resource = "clusterprofiles.multicluster.x-k8s.io";
    let patched = kubectl(&[
        "patch",
        resource,
        "red-1",
        "-n",
        "red",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ])
    .await;
    assert!(patched.0, "{}", patched.1);
    // In an event, in a list after an outage, and in the first list of a process.
    let unreadable = "hub_addons_findings{reason=\"Unreadable\"}";
    addons.measures(unreadable, 1.0).await;
    caught_up(&hub.ocm, "after-the-event").await;
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    caught_up(&hub.ocm, "after-the-outage").await;
    addons.stop().await;
    let addons = Addons::start(&hub, &[PROFILES_AND_COPIES, ALONE]).await;
    caught_up(&hub.ocm, "after-the-restart").await;
    addons.measures(unreadable, 1.0).await;
    let rotated = credentials::rotated(&app, 1);
    rotated.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "red", &rotated).await;

    // Its status is not written, and it is deleted with its grant like any other.
    let shown = kubectl(&["get", resource, "red-1", "-n", "red", "-o", "jsonpath={.status}"]).await.1;
    assert!(shown.contains("tenant.example.com") && shown.contains("v1.30.0"), "{shown}");
    in_red("red-1").in_set("blue").update(&hub.ocm).await.unwrap();
    withdrawn(&hub.ocm, "red", &rotated).await;
    eventually("the profile is deleted", SOON, async || {
        kubectl(&["get", resource, "-n", "red", "-o", "name"]).await == (true, String::new())
    })
    .await;
    addons.stop().await;
}

/// Stops the API server until a watch has noticed.
async fn outage(hub: &Hub, addons: &Addons, watch: &str) {
    hub.stop_api_server().await.unwrap();
    let noticed = format!("hub_addons_watch_errors_total{{resource=\"{watch}\",category=\"unavailable\"}}");
    addons.measures_at_least(&noticed, 1.0).await;
    hub.start_api_server().await.unwrap();
}

/// These rules without permission to watch a resource: the program lists it, and then sees no changes.
fn without_watch(mut rules: Vec<PolicyRule>, resource: &str) -> Vec<PolicyRule> {
    for rule in &mut rules {
        if rule.resources.as_ref().is_some_and(|resources| resources.iter().any(|one| one == resource)) {
            rule.verbs.retain(|verb| verb != "watch");
        }
    }
    rules
}

#[tokio::test]
async fn a_profile_that_we_made_and_that_is_deleted_while_no_watch_sees_it_is_made_again() {
    let builder = LocalHub::builder().without_controller_manager();
    let hub = Hub::start(builder, without_watch(rights::projector(), "clusterprofiles")).await;
    let addons = hub.projector(&[ALONE]).await;
    team_red(&hub, &["red-1"]).await;
    shows_version(&hub, "red-1", "v1.30.0").await;
    delete(&hub.ocm, &profile_of(MANAGER, "red", "red-1")).await;
    assert_eq!(get(&hub.ocm, &profile_of(MANAGER, "red", "red-1")).await, None, "no watch saw it");
    outage(&hub, &addons, "clusterprofiles").await;
    sees(&hub.ocm, "red", &["red-1"]).await;
    shows_version(&hub, "red-1", "v1.30.0").await;
    addons.stop().await;
}

#[tokio::test]
async fn a_quiet_watch_logs_that_an_outage_is_over() {
    let hub = Hub::for_projector().await;
    let addons = hub.projector(&[ALONE]).await;
    hub.stop_api_server().await.unwrap();
    addons.logs("cut off", "cannot watch").await;
    hub.start_api_server().await.unwrap();
    // No binding changes. (An API server that starts may also refuse what it allows later: that is logged by resource.)
    eventually("it says so", SOON, async || {
        addons.log().lines().any(|line| line.contains("watching ") && line.contains(" again"))
    })
    .await;
    addons.stop().await;
}
