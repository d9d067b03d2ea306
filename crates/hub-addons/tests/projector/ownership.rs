//! Ownership of profiles, on a real hub: what the projector never changes, and what it repairs and deletes.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::flavours::on_each_flavour;
use crate::support::shared::{Stage, stage};
use crate::support::shown::{names, profile, sees};
use crate::support::world::{
    self, delete, events, get, gone, hold, let_go, merge, merge_status, profile_of, told,
};
use crate::support::{Addons, Hub, SOON, rights, user};
use local_hub::Flavour;
use local_hub::eventually;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

on_each_flavour!(
    a_profile_of_another_manager_is_never_changed_and_is_reported_once,
    a_profile_is_deleted_only_where_label_and_spec_are_ours,
    a_label_that_is_removed_manually_is_restored_while_the_cluster_is_granted,
    a_profile_that_was_created_manually_as_ours_is_reconciled,
    a_profile_that_is_deleted_manually_is_recreated,
    a_terminating_profile_is_reported_and_recreated_once_it_is_gone,
    a_profile_that_a_finalizer_keeps_after_its_grant_is_deleted_once_and_comes_back_with_the_grant,
);

const OURS: &str = "open-cluster-management";
const LABEL: &str = "x-k8s.io/cluster-manager";
/// Argo CD adds it to every profile that it uses.
const ARGO: &str = "argoproj.io/cluster-profile-finalizer";

/// A namespace with a bound set, both with this name.
async fn bind(stage: &Stage, name: &str) {
    stage.create([ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name)]).await;
}

fn cluster(name: &str) -> Object {
    ManagedCluster::named(name).in_set(name).into()
}

/// Our profile of the cluster, namespace and set of this name.
fn ours(name: &str) -> Object {
    profile_of(OURS, name, name)
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

async fn finished(stage: &Stage, name: &str) -> Value {
    profile(&stage.ocm, (name, name), "has its status", |profile| profile["status"]["version"].is_object())
        .await
}

async fn a_profile_of_another_manager_is_never_changed_and_is_reported_once(flavour: Flavour) {
    let stage = stage(flavour).await;
    let foreign = profile_of("another-manager", "foreign", "foreign").label(LABEL, "another-manager");
    bind(&stage, "foreign").await;
    stage.create([foreign.clone()]).await;
    let before = get(&stage.ocm, &foreign).await;
    stage.create([cluster("foreign")]).await;
    let note = told(&stage.ocm, &foreign, "ForeignProfile").await;
    assert!(note.contains("\"another-manager\""), "{note}");
    let finding = "hub_addons_findings{reason=\"ForeignProfile\"}";
    stage.shared.addons.measures(finding, 1.0).await;

    // Changes of the cluster and of the profile, and the end of the grant.
    ManagedCluster::named("foreign").in_set("foreign").version("v1.2.3").update(&stage.ocm).await.unwrap();
    stage.caught_up().await;
    assert_eq!(get(&stage.ocm, &foreign).await, before);
    merge_status(&stage.ocm, &foreign, &json!({ "version": { "kubernetes": "v9" } })).await;
    let before = get(&stage.ocm, &foreign).await;
    ManagedCluster::named("foreign").update(&stage.ocm).await.unwrap();
    stage.caught_up().await;
    stage.shared.addons.measures(finding, 0.0).await;
    ManagedCluster::named("foreign").in_set("foreign").update(&stage.ocm).await.unwrap();
    stage.caught_up().await;
    stage.shared.addons.measures(finding, 1.0).await;
    assert_eq!(get(&stage.ocm, &foreign).await, before);
    assert_eq!(stage.asked_in("foreign").await.len(), 0, "no request, and so no hot retry");
    // Once for each time that it blocks a profile.
    assert_eq!(events(&stage.ocm, &foreign, "ForeignProfile").await.len(), 2);

    delete(&stage.ocm, &foreign).await;
    let profile = finished(&stage, "foreign").await;
    assert_eq!(profile["spec"]["clusterManager"]["name"], OURS);
    stage.shared.addons.measures(finding, 0.0).await;
}

async fn a_profile_is_deleted_only_where_label_and_spec_are_ours(flavour: Flavour) {
    let stage = stage(flavour).await;
    stage.create([ocm::namespace("mine"), cluster("mine-cluster")]).await;
    let unlabelled = profile_of(OURS, "mine", "unlabelled");
    let other_label = profile_of(OURS, "mine", "other-label").label(LABEL, "another-manager");
    let other_spec = profile_of("another-manager", "mine", "other-spec").label(LABEL, OURS);
    let both = profile_of(OURS, "mine", "both").label(LABEL, OURS);
    let cluster = profile_of(OURS, "mine", "mine-cluster").label(LABEL, OURS);
    stage.create([unlabelled.clone(), other_label, other_spec, both, cluster]).await;
    stage.sees("mine", &["other-label", "other-spec", "unlabelled"]).await;
    told(&stage.ocm, &unlabelled, "UnlabelledProfile").await;
    stage.caught_up().await;
    assert_eq!(names(&stage.ocm, "mine").await, ["other-label", "other-spec", "unlabelled"]);
    assert_eq!(events(&stage.ocm, &unlabelled, "UnlabelledProfile").await.len(), 1);

    merge(&stage.ocm, &unlabelled, &json!({ "metadata": { "labels": { LABEL: OURS } } })).await;
    stage.sees("mine", &["other-label", "other-spec"]).await;
}

async fn a_label_that_is_removed_manually_is_restored_while_the_cluster_is_granted(flavour: Flavour) {
    let stage = stage(flavour).await;
    bind(&stage, "stripped").await;
    stage.create([cluster("stripped")]).await;
    let before = finished(&stage, "stripped").await;
    merge(&stage.ocm, &ours("stripped"), &json!({ "metadata": { "labels": null } })).await;
    let after = profile(&stage.ocm, ("stripped", "stripped"), "has its labels again", |profile| {
        profile["metadata"]["labels"] == before["metadata"]["labels"]
    })
    .await;
    assert_eq!(uid(&after), uid(&before));
    delete(&stage.ocm, &cluster("stripped")).await;
    stage.sees("stripped", &[]).await;
}

async fn a_profile_that_was_created_manually_as_ours_is_reconciled(flavour: Flavour) {
    let stage = stage(flavour).await;
    bind(&stage, "adopted").await;
    stage.create([ours("adopted")]).await;
    let before = get(&stage.ocm, &ours("adopted")).await.unwrap();
    stage.create([cluster("adopted")]).await;
    let after = finished(&stage, "adopted").await;
    assert_eq!(uid(&after), uid(&before));
    assert_eq!(after["spec"]["displayName"], "adopted");
    assert_eq!(after["metadata"]["labels"][LABEL], OURS);
}

async fn a_profile_that_is_deleted_manually_is_recreated(flavour: Flavour) {
    let stage = stage(flavour).await;
    bind(&stage, "deleted").await;
    stage.create([cluster("deleted")]).await;
    for _ in 0..5 {
        let before = finished(&stage, "deleted").await;
        delete(&stage.ocm, &ours("deleted")).await;
        profile(&stage.ocm, ("deleted", "deleted"), "is a new one", |profile| uid(profile) != uid(&before))
            .await;
    }
    finished(&stage, "deleted").await;
    assert_eq!(stage.asked_in("deleted").await.count(|request| request.code >= 400), 0);
}

async fn a_terminating_profile_is_reported_and_recreated_once_it_is_gone(flavour: Flavour) {
    let stage = stage(flavour).await;
    stage.create([cluster("held")]).await;
    bind(&stage, "held").await;
    let first = finished(&stage, "held").await;
    hold(&stage.ocm, &ours("held"), ARGO).await;
    delete(&stage.ocm, &ours("held")).await;
    let note = told(&stage.ocm, &ours("held"), "ProfileTerminating").await;
    assert!(note.contains(ARGO), "{note}");
    stage.shared.addons.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 1.0).await;

    ManagedCluster::named("held").in_set("held").version("v1.2.3").update(&stage.ocm).await.unwrap();
    stage.caught_up().await;
    let requests = stage.asked_in("held").await;
    assert_eq!(requests.len(), 2, "the create and the status of the first one: {requests}");
    assert_eq!(events(&stage.ocm, &ours("held"), "ProfileTerminating").await.len(), 1);
    let held = get(&stage.ocm, &ours("held")).await.unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!([ARGO]));

    let_go(&stage.ocm, &ours("held")).await;
    let second = profile(&stage.ocm, ("held", "held"), "is a new one", |profile| {
        uid(profile) != uid(&first) && profile["status"]["version"]["kubernetes"] == "v1.2.3"
    })
    .await;
    assert!(second["metadata"].get("deletionTimestamp").is_none());
    stage.shared.addons.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 0.0).await;
}

async fn a_profile_that_a_finalizer_keeps_after_its_grant_is_deleted_once_and_comes_back_with_the_grant(
    flavour: Flavour,
) {
    let stage = stage(flavour).await;
    bind(&stage, "kept").await;
    stage.create([cluster("kept")]).await;
    let first = finished(&stage, "kept").await;
    hold(&stage.ocm, &ours("kept"), ARGO).await;
    delete(&stage.ocm, &ocm::bound("kept", "kept")).await;
    eventually("the profile is being deleted", SOON, async || {
        get(&stage.ocm, &ours("kept")).await.unwrap()["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    // A change that queues it.
    merge(&stage.ocm, &ours("kept"), &json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    stage.caught_up().await;
    assert_eq!(stage.asked_in("kept").await.count(|request| request.verb == "delete"), 1);

    stage.create([ocm::bound("kept", "kept")]).await;
    stage.caught_up().await;
    let_go(&stage.ocm, &ours("kept")).await;
    profile(&stage.ocm, ("kept", "kept"), "is a new one", |profile| {
        uid(profile) != uid(&first) && profile["status"].is_object()
    })
    .await;
    delete(&stage.ocm, &ocm::bound("kept", "kept")).await;
    gone(&stage.ocm, &ours("kept")).await;
}

#[tokio::test]
async fn two_managers_on_one_hub_leave_each_other_alone() {
    // A hub of its own: the second manager would affect every other test.
    let hub = Hub::for_projector().await;
    hub.grant("projector", rights::projector()).await.unwrap();
    let fleet = ocm::Fleet::of(3, 2);
    fleet.create(&hub.ocm).await.unwrap();
    let first = hub.projector(&["--leader-elect=false"]).await;
    let created = "hub_addons_writes_total{resource=\"clusterprofiles\",verb=\"patch_status\",result=\"ok\"}";
    first.measures(created, 6.0).await;

    let mark = hub.audit().mark().await.unwrap();
    let second = Addons::launch(
        &hub,
        "second-manager",
        "projector",
        &[
            "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false",
            "--cluster-manager-name=another",
            "--leader-elect=false",
        ],
    )
    .await;
    second.measures("hub_addons_findings{reason=\"ForeignProfile\"}", 6.0).await;
    let profile = profile_of(OURS, "fleet-00", "cluster-0000");
    told(&hub.ocm, &profile, "ForeignProfile").await;
    // Where the first has no profile, the second writes its own, and the first does not change it.
    let theirs = profile_of("another", "theirs", "cluster-0000");
    first.signal("STOP").await;
    world::create(&hub.ocm, [ocm::namespace("theirs"), ocm::bound("theirs", "fleet")]).await;
    let seen = ["cluster-0000", "cluster-0001", "cluster-0002"];
    sees(&hub.ocm, "theirs", &seen).await;
    first.signal("CONT").await;
    first.measures("hub_addons_findings{reason=\"ForeignProfile\"}", 3.0).await;
    let requests = hub.audit().since(&mark).await.unwrap();
    let of_second = requests.of_user("projector").writes().matching(|r| r.resource == "clusterprofiles");
    assert_eq!(of_second.count(|request| request.namespace != "theirs"), 0, "{of_second}");
    let of_first = requests.of_user(user()).writes().matching(|r| r.resource == "clusterprofiles");
    assert!(of_first.iter().all(|request| request.code == 409), "{of_first}");
    assert_eq!(get(&hub.ocm, &theirs).await.unwrap()["spec"]["clusterManager"]["name"], "another");

    // Each deletes only its own.
    delete(&hub.ocm, &ocm::cluster_set("fleet")).await;
    for namespace in ["theirs", "fleet-00", "fleet-01"] {
        sees(&hub.ocm, namespace, &[]).await;
    }
    let requests = hub.audit().since(&mark).await.unwrap().matching(|r| r.verb == "delete" && r.code == 200);
    let deleted = requests.matching(|request| request.resource == "clusterprofiles");
    assert_eq!(deleted.of_user(user()).count(|request| request.namespace != "theirs"), 6, "{deleted}");
    assert_eq!(deleted.of_user("projector").count(|request| request.namespace == "theirs"), 3, "{deleted}");
    assert_eq!(deleted.len(), 9, "{deleted}");
    first.stop().await;
    second.stop().await;
}
