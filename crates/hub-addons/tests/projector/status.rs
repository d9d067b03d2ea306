//! The labels, spec and status of a profile, on real hubs with every flavour of the ClusterProfile CRD.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::flavours::on_each_flavour;
use crate::support::shared::{Stage, stage};
use crate::support::shown::{condition, profile, provider};
use crate::support::world::{events, get, merge, merge_status, profile_of, told};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

on_each_flavour!(
    a_new_profile_is_one_create_and_one_status_write,
    a_change_that_no_profile_shows_writes_nothing,
    claims_are_properties_and_a_repeated_one_is_skipped_and_reported_once,
    a_version_follows_the_cluster_and_none_is_absent,
    conditions_carry_the_status_reason_message_and_time_of_their_source,
    a_source_condition_that_is_missing_is_unknown_since_the_cluster_was_made,
    what_others_write_into_a_status_is_kept,
    a_status_that_is_edited_by_hand_is_repaired,
    labels_and_display_name_are_repaired_and_what_is_not_ours_is_kept,
    the_label_of_the_exclusive_set_follows_the_cluster_and_goes_with_it,
    labels_on_the_allow_list_come_change_and_go_with_the_cluster,
);

/// A namespace with one granted cluster, both with this name.
async fn show(stage: &Stage, cluster: ManagedCluster) -> Object {
    let cluster = Object::from(cluster);
    let name = cluster.name().to_owned();
    stage
        .create([
            ocm::namespace(&name),
            ocm::selecting_cluster_set(&name, &json!({ "matchLabels": { "shown-as": name } })),
            cluster,
            ocm::bound(&name, &name),
        ])
        .await;
    shown(stage, &name, "has a status", |profile| profile["status"].is_object()).await;
    profile_of("open-cluster-management", &name, &name)
}

fn cluster(name: &str) -> ManagedCluster {
    ManagedCluster::named(name).label("shown-as", name)
}

async fn shown(stage: &Stage, name: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    profile(&stage.ocm, (name, name), what, so).await
}

fn properties(profile: &Value) -> Vec<(&str, &str)> {
    let list = profile["status"]["properties"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|entry| (entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap())).collect()
}

fn labels(profile: &Value) -> Vec<(&str, &str)> {
    let labels = profile["metadata"]["labels"].as_object().unwrap();
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect()
}

async fn writes_in(stage: &Stage, namespace: &str) -> Vec<String> {
    let writes = stage.asked_in(namespace).await.writes();
    writes.iter().map(|request| format!("{} {} {}", request.verb, request.target(), request.code)).collect()
}

async fn a_new_profile_is_one_create_and_one_status_write(flavour: Flavour) {
    let stage = stage(flavour).await;
    let profile = show(&stage, cluster("new").claim("id.k8s.io", "1").claim("platform", "KVM")).await;
    stage.caught_up().await;
    assert_eq!(
        writes_in(&stage, "new").await,
        ["create clusterprofiles 201", "patch clusterprofiles/status 200"]
    );
    let profile = get(&stage.ocm, &profile).await.unwrap();
    assert_eq!(
        profile["spec"],
        json!({ "displayName": "new", "clusterManager": { "name": "open-cluster-management" } })
    );
    assert_eq!(
        labels(&profile),
        [
            ("multicluster.x-k8s.io/inventory-member-id", "new"),
            ("open-cluster-management.io/cluster-name", "new"),
            ("x-k8s.io/cluster-manager", "open-cluster-management"),
        ]
    );
    assert_eq!(profile["status"]["version"], json!({ "kubernetes": "v1.36.3" }));
    assert_eq!(properties(&profile), [("id.k8s.io", "1"), ("platform", "KVM")]);
}

async fn a_change_that_no_profile_shows_writes_nothing(flavour: Flavour) {
    let stage = stage(flavour).await;
    let profile = show(&stage, cluster("quiet").claim("b", "1").claim("a", "1")).await;
    stage.caught_up().await;
    let before = get(&stage.ocm, &profile).await;
    let quiet = Object::from(cluster("quiet").claim("a", "1").claim("b", "1"))
        .label("nobody-propagates", "this")
        .annotation("heard.from/it", "just now")
        .condition("ManagedClusterImportSucceeded", "True", "Imported", "");
    quiet.update(&stage.ocm).await.unwrap();
    merge(&stage.ocm, &profile, &json!({ "metadata": { "annotations": { "a/consumer": "was here" } } }))
        .await;
    stage.caught_up().await;
    assert_eq!(writes_in(&stage, "quiet").await.len(), 2);
    let after = get(&stage.ocm, &profile).await;
    assert_eq!(before.unwrap()["status"], after.unwrap()["status"]);
}

async fn claims_are_properties_and_a_repeated_one_is_skipped_and_reported_once(flavour: Flavour) {
    let stage = stage(flavour).await;
    let name = "claims";
    let claims = || cluster(name).claim("taken", "first").claim("other", "1").claim("taken", "second");
    show(&stage, claims()).await;
    let profile = shown(&stage, name, "has properties", |p| !properties(p).is_empty()).await;
    assert_eq!(properties(&profile), [("other", "1"), ("taken", "first")]);
    let note = told(&stage.ocm, &claims().into(), "ClaimSkipped").await;
    assert!(note.contains("\"taken\" (an earlier claim has the same name)"), "{note}");
    stage.shared.addons.measures("hub_addons_findings{reason=\"ClaimSkipped\"}", 1.0).await;

    claims().claim("more", "2").update(&stage.ocm).await.unwrap();
    shown(&stage, name, "has one more", |p| properties(p).len() == 3).await;
    assert_eq!(events(&stage.ocm, &claims().into(), "ClaimSkipped").await.len(), 1);

    cluster(name).claim("other", "2").update(&stage.ocm).await.unwrap();
    shown(&stage, name, "has what is left", |p| properties(p) == [("other", "2")]).await;
    stage.shared.addons.measures("hub_addons_findings{reason=\"ClaimSkipped\"}", 0.0).await;
    let bare = cluster(name);
    bare.update(&stage.ocm).await.unwrap();
    merge_status(&stage.ocm, &bare.into(), &json!({ "clusterClaims": null })).await;
    shown(&stage, name, "has none", |profile| profile["status"].get("properties").is_none()).await;
}

async fn a_version_follows_the_cluster_and_none_is_absent(flavour: Flavour) {
    let stage = stage(flavour).await;
    show(&stage, cluster("version").version("v1.35.0")).await;
    shown(&stage, "version", "has it", |p| p["status"]["version"]["kubernetes"] == "v1.35.0").await;
    cluster("version").version("v1.36.1").update(&stage.ocm).await.unwrap();
    shown(&stage, "version", "has the new", |p| p["status"]["version"]["kubernetes"] == "v1.36.1").await;
    merge_status(&stage.ocm, &cluster("version").into(), &json!({ "version": null })).await;
    shown(&stage, "version", "has none", |p| p["status"]["version"].get("kubernetes").is_none()).await;
}

async fn conditions_carry_the_status_reason_message_and_time_of_their_source(flavour: Flavour) {
    let stage = stage(flavour).await;
    show(&stage, cluster("source")).await;
    let source = |kind: &str, status: &str| {
        json!({ "type": kind, "status": status, "reason": "Because", "message": "since then",
                "lastTransitionTime": "2026-03-04T05:06:07Z" })
    };
    let conditions =
        [source("ManagedClusterConditionAvailable", "False"), source("ManagedClusterJoined", "Unknown")];
    merge_status(&stage.ocm, &cluster("source").into(), &json!({ "conditions": conditions })).await;
    let profile = shown(&stage, "source", "shows it", |profile| {
        condition(profile, "ControlPlaneHealthy")["status"] == "False"
    })
    .await;
    assert_eq!(*condition(&profile, "ControlPlaneHealthy"), source("ControlPlaneHealthy", "False"));
    assert_eq!(*condition(&profile, "Joined"), source("Joined", "Unknown"));
}

async fn a_source_condition_that_is_missing_is_unknown_since_the_cluster_was_made(flavour: Flavour) {
    let stage = stage(flavour).await;
    show(&stage, cluster("silent").without_conditions()).await;
    let created = get(&stage.ocm, &cluster("silent").into()).await.unwrap();
    let profile = shown(&stage, "silent", "has conditions", |p| p["status"]["conditions"].is_array()).await;
    for kind in ["ControlPlaneHealthy", "Joined"] {
        let condition = condition(&profile, kind);
        assert_eq!(condition["status"], "Unknown", "{profile}");
        assert_eq!(condition["lastTransitionTime"], created["metadata"]["creationTimestamp"]);
    }
}

async fn what_others_write_into_a_status_is_kept(flavour: Flavour) {
    let stage = stage(flavour).await;
    let profile = show(&stage, cluster("others")).await;
    let theirs = json!({ "type": "SomebodyElses", "status": "True", "reason": "Theirs", "message": "m",
                         "lastTransitionTime": "2026-02-02T02:02:02Z", "observedGeneration": 7 });
    let before = get(&stage.ocm, &profile).await.unwrap();
    let mut conditions = before["status"]["conditions"].as_array().unwrap().clone();
    conditions.insert(1, theirs.clone());
    let access = json!({ "name": "theirs", "cluster": { "server": "https://elsewhere", "proxy-url": "http://p",
                         "extensions": [{ "name": "x", "extension": { "deep": [1, { "k": null }] } }] } });
    merge_status(&stage.ocm, &profile, &json!({ "conditions": conditions, "accessProviders": [access] }))
        .await;
    let before = get(&stage.ocm, &profile).await.unwrap();
    stage.caught_up().await;
    assert_eq!(get(&stage.ocm, &profile).await.unwrap(), before, "changes of others cause no write");

    // A change that writes every part that is ours.
    let changed = cluster("others").claim("a", "1").version("v1.37.0").condition(
        "ManagedClusterJoined",
        "False",
        "Left",
    );
    changed.update(&stage.ocm).await.unwrap();
    let after = shown(&stage, "others", "shows it", |p| condition(p, "Joined")["status"] == "False").await;
    assert_eq!(*condition(&after, "SomebodyElses"), theirs);
    assert_eq!(*provider(&after, "theirs"), *provider(&before, "theirs"));
    assert!(provider(&after, "theirs").is_object(), "{after}");
}

async fn a_status_that_is_edited_by_hand_is_repaired(flavour: Flavour) {
    let stage = stage(flavour).await;
    let profile = show(&stage, cluster("drift").claim("a", "1").claim("b", "2")).await;
    stage.caught_up().await;
    let good = get(&stage.ocm, &profile).await.unwrap()["status"].clone();
    let lie = json!({ "type": "Joined", "status": "False", "reason": "Lie", "message": "",
                      "lastTransitionTime": "2026-01-01T00:00:00Z" });
    for edit in [
        json!({ "version": { "kubernetes": "v0.0.1" } }),
        json!({ "version": null }),
        json!({ "properties": [{ "name": "a", "value": "edited" }, { "name": "c", "value": "added" }] }),
        json!({ "properties": null }),
        json!({ "conditions": [lie] }),
        json!({ "conditions": null }),
        json!({ "version": null, "properties": null, "conditions": null }),
    ] {
        merge_status(&stage.ocm, &profile, &edit).await;
        shown(&stage, "drift", "is repaired", |profile| {
            let status = &profile["status"];
            status["version"] == good["version"]
                && status["properties"] == good["properties"]
                && ["ControlPlaneHealthy", "Joined"]
                    .iter()
                    .all(|kind| condition(profile, kind) == condition(&json!({ "status": good }), kind))
        })
        .await;
    }
}

async fn labels_and_display_name_are_repaired_and_what_is_not_ours_is_kept(flavour: Flavour) {
    let stage = stage(flavour).await;
    let profile = show(&stage, cluster("metadata").in_set("its-set")).await;
    stage.caught_up().await;
    let good = get(&stage.ocm, &profile).await.unwrap();
    let edit = json!({
        "metadata": {
            "labels": {
                "x-k8s.io/cluster-manager": null,
                "open-cluster-management.io/cluster-name": "another",
                "multicluster.x-k8s.io/clusterset": "another",
                "multicluster.x-k8s.io/inventory-member-id": "another",
                "kueue.x-k8s.io/theirs": "kept",
            },
            "annotations": { "argoproj.io/theirs": "kept" },
            "finalizers": ["argoproj.io/cluster-profile-finalizer"],
        },
        "spec": { "displayName": "by hand" },
    });
    merge(&stage.ocm, &profile, &edit).await;
    let after = shown(&stage, "metadata", "is repaired", |profile| {
        profile["spec"] == good["spec"]
            && profile["metadata"]["labels"]["x-k8s.io/cluster-manager"].is_string()
    })
    .await;
    let mut wanted = good["metadata"]["labels"].clone();
    wanted["kueue.x-k8s.io/theirs"] = json!("kept");
    assert_eq!(after["metadata"]["labels"], wanted);
    assert_eq!(after["metadata"]["annotations"], json!({ "argoproj.io/theirs": "kept" }));
    assert_eq!(after["metadata"]["finalizers"], json!(["argoproj.io/cluster-profile-finalizer"]));

    // Also after a write of the status.
    cluster("metadata").in_set("its-set").version("v1.99.0").update(&stage.ocm).await.unwrap();
    let after =
        shown(&stage, "metadata", "has it", |p| p["status"]["version"]["kubernetes"] == "v1.99.0").await;
    assert_eq!(after["metadata"]["labels"], wanted);
    assert_eq!(after["metadata"]["finalizers"], json!(["argoproj.io/cluster-profile-finalizer"]));
    crate::support::world::let_go(&stage.ocm, &profile).await;
}

async fn the_label_of_the_exclusive_set_follows_the_cluster_and_goes_with_it(flavour: Flavour) {
    let stage = stage(flavour).await;
    show(&stage, cluster("set-label").in_set("one")).await;
    let label = |profile: &Value| profile["metadata"]["labels"]["multicluster.x-k8s.io/clusterset"].clone();
    shown(&stage, "set-label", "names its set", |profile| label(profile) == "one").await;
    cluster("set-label").in_set("two").update(&stage.ocm).await.unwrap();
    shown(&stage, "set-label", "names its new set", |profile| label(profile) == "two").await;
    cluster("set-label").update(&stage.ocm).await.unwrap();
    shown(&stage, "set-label", "names none", |profile| label(profile).is_null()).await;
}

async fn labels_on_the_allow_list_come_change_and_go_with_the_cluster(flavour: Flavour) {
    let stage = stage(flavour).await;
    let labelled = |region: &str| {
        cluster("propagate")
            .label("region", region)
            .label("team.example.com/name", "blue")
            .label("team.example.org/name", "not-this")
    };
    let profile = show(&stage, labelled("eu")).await;
    let label = |profile: &Value, key: &str| profile["metadata"]["labels"][key].clone();
    let first = shown(&stage, "propagate", "has the label", |profile| label(profile, "region") == "eu").await;
    assert_eq!(label(&first, "team.example.com/name"), "blue");
    assert_eq!(label(&first, "team.example.org/name"), Value::Null);

    labelled("us").update(&stage.ocm).await.unwrap();
    shown(&stage, "propagate", "has the new value", |profile| label(profile, "region") == "us").await;
    merge(
        &stage.ocm,
        &profile,
        &json!({ "metadata": { "labels": { "region": "moon", "team.example.com/x": "y" } } }),
    )
    .await;
    shown(&stage, "propagate", "is repaired", |profile| {
        label(profile, "region") == "us" && label(profile, "team.example.com/x").is_null()
    })
    .await;
    cluster("propagate").update(&stage.ocm).await.unwrap();
    let last = shown(&stage, "propagate", "has lost it", |profile| label(profile, "region").is_null()).await;
    assert_eq!(label(&last, "team.example.com/name"), Value::Null);
    assert_eq!(label(&last, "open-cluster-management.io/cluster-name"), "propagate");
}
