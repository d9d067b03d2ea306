//! Ownership of profiles, on a real hub: what the projector never changes, and what it repairs and deletes.

use crate::support::shared::{Stage, stage};
use crate::support::shown::{profile, sees};
use crate::support::world::{self, delete, events, get, hold, let_go, profile_of, told};
use crate::support::{Addons, Hub, rights, user};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

const OURS: &str = "open-cluster-management";
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

#[tokio::test]
async fn a_terminating_profile_is_reported_and_recreated_once_it_is_gone() {
    let stage = stage(Flavour::Map).await;
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
