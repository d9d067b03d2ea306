//! The projector's plans for one profile, by examples: cluster `c1` and namespace `team`.
//! How it gets along with what others wrote is in `neighbours.rs`.

use hub_core::finding::{Finding, Reason};
use hub_core::fleet::Fleet;
use hub_core::profile::{self, ObservedProfile, ProfileAction, ProfilePlan};
use hub_core::project::{self, ProjectionSettings};
use hub_core::version::Version;
use serde_json::{Value, json};

use crate::support::api::{Settled, observe, projection_of, settle_projection};
use crate::support::{
    IN_SET, NOON, binding, broken, by_labels, cluster, condition, deleting, exclusive, fleet,
    granting, granting_all, key, member, unreadable, with,
};

/// A fleet that grants `c1` to `team`, with a merge patch in the cluster.
fn granted(patch: &Value) -> Fleet {
    granting_all([with(member("c1", "prod"), patch)])
}

/// A fleet that does not say whether `c1` is granted to `team`.
fn unknown(patch: &Value) -> Fleet {
    fleet([with(member("c1", "prod"), patch), broken("prod"), binding("team", "prod")])
}

/// A fleet that refuses `c1` to `team`.
fn refused() -> Fleet {
    fleet([member("c1", "prod"), exclusive("prod")])
}

/// The plan for an existing profile.
fn plan(fleet: &Fleet, profile: &Value) -> ProfilePlan {
    projection_of(fleet, &key("team", "c1"), &ProjectionSettings::default(), Some(profile))
}

/// The plan without a profile.
fn plan_for_none(fleet: &Fleet) -> ProfilePlan {
    projection_of(fleet, &key("team", "c1"), &ProjectionSettings::default(), None)
}

/// What is written until nothing is left to do where the cluster has this patch.
fn settle(patch: &Value) -> Settled {
    settle_projection(&granted(patch), &key("team", "c1"), &ProjectionSettings::default(), None)
}

/// The profile after that.
fn settled(patch: &Value) -> Value {
    settle(patch).object.unwrap()
}

/// The profile of the cluster as it comes, with a merge patch in it that others wrote.
fn edited(patch: &Value) -> Value {
    with(settled(&json!({})), patch)
}

/// What the settled profile is at, which a plan gives back as its precondition.
fn version() -> Version {
    Version { uid: "uid-of-new-profile".into(), resource_version: "2".into() }
}

fn nothing() -> ProfilePlan {
    ProfilePlan::default()
}

/// A plan that has only this action.
fn only(action: ProfileAction) -> ProfilePlan {
    ProfilePlan { action, findings: vec![] }
}

fn labels(labels: &Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

fn reasons(findings: &[Finding]) -> Vec<Reason> {
    findings.iter().map(|note| note.reason).collect()
}

#[test]
fn a_granted_cluster_gets_a_profile_with_labels_and_spec_in_the_first_write() {
    let ProfilePlan { action: ProfileAction::Create(profile), findings } =
        plan_for_none(&granted(&json!({})))
    else {
        panic!("nothing is created")
    };
    assert_eq!(findings, []);
    let expected = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": { "namespace": "team", "name": "c1", "labels": every_label() },
        "spec": { "displayName": "c1", "clusterManager": { "name": "open-cluster-management" } },
    });
    assert_eq!(serde_json::to_value(profile).unwrap(), expected);
}

fn every_label() -> Value {
    json!({
        "x-k8s.io/cluster-manager": "open-cluster-management",
        "open-cluster-management.io/cluster-name": "c1",
        "multicluster.x-k8s.io/inventory-member-id": "c1",
        "multicluster.x-k8s.io/clusterset": "prod",
    })
}

#[test]
fn the_second_write_is_the_status_and_there_is_no_third() {
    let settled = settle(&json!({}));
    assert_eq!(settled.writes.len(), 2);
    let of_creation = Version { uid: "uid-of-new-profile".into(), resource_version: "1".into() };
    let status = json!({ "status": {
        "version": { "kubernetes": "v1.36.3" },
        "properties": [
            { "name": "id.k8s.io", "value": "id-c1" },
            { "name": "platform.open-cluster-management.io", "value": "AWS" },
        ],
        "conditions": [
            {
                "type": "ControlPlaneHealthy", "status": "True", "reason": "ManagedClusterAvailable",
                "message": "ManagedClusterConditionAvailable is True", "lastTransitionTime": NOON,
            },
            {
                "type": "Joined", "status": "True", "reason": "ManagedClusterJoined",
                "message": "ManagedClusterJoined is True", "lastTransitionTime": NOON,
            },
        ],
    } });
    assert_eq!(settled.writes[1], ProfileAction::PatchStatus(of_creation, status));
}

#[test]
fn the_manager_that_we_are_is_in_label_and_spec() {
    let settings =
        ProjectionSettings { manager: "fleet-7".parse().unwrap(), ..ProjectionSettings::default() };
    let settled = settle_projection(&granted(&json!({})), &key("team", "c1"), &settings, None);
    let profile = settled.object.unwrap();
    assert_eq!(profile["spec"]["clusterManager"]["name"], "fleet-7");
    assert_eq!(profile["metadata"]["labels"]["x-k8s.io/cluster-manager"], "fleet-7");
    assert_eq!(reasons(&plan(&granted(&json!({})), &profile).findings), [Reason::ForeignProfile]);
}

#[test]
fn a_cluster_that_is_refused_unknown_or_unreadable_gets_no_profile() {
    assert_eq!(plan_for_none(&refused()), nothing());
    assert_eq!(plan_for_none(&unknown(&json!({}))), nothing());
    assert_eq!(plan_for_none(&granting_all([unreadable(member("c1", "prod"))])), nothing());
}

#[test]
fn a_cluster_whose_name_is_no_label_value_gets_no_profile() {
    let long = "x".repeat(64);
    let (fleet, settings) = (granting(&[&long]), ProjectionSettings::default());
    assert_eq!(projection_of(&fleet, &key("team", &long), &settings, None), nothing());
}

#[test]
fn only_the_part_of_the_status_that_differs_is_written() {
    let down = condition("ManagedClusterConditionAvailable", "Unknown", "LeaseExpired");
    let joined = condition("ManagedClusterJoined", "True", "ManagedClusterJoined");
    let (newer, claim) =
        (json!({ "kubernetes": "v1.37.0" }), json!([{ "name": "a", "value": "1" }]));
    let unhealthy = json!({
        "type": "ControlPlaneHealthy", "status": "Unknown", "reason": "LeaseExpired",
        "message": "ManagedClusterConditionAvailable is Unknown", "lastTransitionTime": NOON,
    });
    let conditions = json!([unhealthy, settled(&json!({}))["status"]["conditions"][1]]);
    for (cluster, field, value) in [
        (json!({ "version": newer }), "version", newer.clone()),
        (json!({ "version": null }), "version", json!({ "kubernetes": null })),
        (json!({ "clusterClaims": claim }), "properties", claim.clone()),
        (json!({ "clusterClaims": [] }), "properties", json!(null)),
        (json!({ "conditions": [down, joined] }), "conditions", conditions),
    ] {
        let fleet = granted(&json!({ "status": cluster }));
        let patch = ProfileAction::PatchStatus(version(), json!({ "status": { field: value } }));
        assert_eq!(plan(&fleet, &settled(&json!({}))), only(patch), "{cluster}");
    }
}

#[test]
fn the_order_of_claims_properties_and_conditions_is_no_difference() {
    let profile = settled(&json!({}));
    let reversed = |list: &Value| {
        let mut list = list.as_array().unwrap().clone();
        list.reverse();
        Value::Array(list)
    };
    for field in ["properties", "conditions"] {
        let list = reversed(&profile["status"][field]);
        let turned = with(profile.clone(), &json!({ "status": { field: list } }));
        assert_ne!(turned, profile);
        assert_eq!(plan(&granted(&json!({})), &turned), nothing(), "{field}");
    }
    let status = member("c1", "prod")["status"].clone();
    for field in ["clusterClaims", "conditions"] {
        let turned = granted(&json!({ "status": { field: reversed(&status[field]) } }));
        assert_eq!(plan(&turned, &profile), nothing(), "{field}");
        assert_eq!(plan_for_none(&turned), plan_for_none(&granted(&json!({}))));
    }
}

#[test]
fn labels_and_display_name_that_drifted_are_repaired_before_the_status() {
    let in_set = |set: Value| labels(&json!({ "multicluster.x-k8s.io/clusterset": set }));
    let shown = |set: Value, name: &str| json!({ "metadata": in_set(set)["metadata"], "spec": { "displayName": name } });
    for (edit, repair) in [
        (labels(&json!(null)), labels(&every_label())),
        (shown(json!(null), ""), shown(json!("prod"), "c1")),
    ] {
        for fleet in [granted(&json!({})), unknown(&json!({}))] {
            let repair = only(ProfileAction::Patch(version(), repair.clone()));
            let drifted = with(edited(&edit), &json!({ "status": null }));
            assert_eq!(plan(&fleet, &drifted), repair, "{edit}");
        }
    }
}

#[test]
fn an_empty_label_of_no_set_is_kept_as_ocms_projector_sets_it() {
    let everything = by_labels("all", &json!({}));
    let no_set = with(member("c1", "prod"), &labels(&json!({ IN_SET: null })));
    let fleet = fleet([no_set, everything, binding("team", "all")]);
    let in_set = |set: &str| labels(&json!({ "multicluster.x-k8s.io/clusterset": set }));
    let empty = in_set("");
    assert_eq!(plan(&fleet, &edited(&empty)), nothing());

    // A cluster with a set has its name.
    let ProfilePlan { action, .. } = plan(&granted(&json!({})), &edited(&empty));
    assert_eq!(action, ProfileAction::Patch(version(), in_set("prod")));
}

#[test]
fn labels_on_the_allow_list_come_and_go_with_the_cluster_and_others_stay() {
    let propagated_labels = "region, team.example.com/*".parse().unwrap();
    let settings = ProjectionSettings { propagated_labels, ..ProjectionSettings::default() };
    let of_cluster = labels(&json!({ "region": "eu", "team.example.com/a": "", "env": "x" }));
    let key = key("team", "c1");
    let profile = settle_projection(&granted(&of_cluster), &key, &settings, None).object.unwrap();
    let shown = &profile["metadata"]["labels"];
    assert_eq!((&shown["region"], &shown["team.example.com/a"]), (&json!("eu"), &json!("")));
    assert_eq!(shown.as_object().unwrap().len(), 6, "{shown}");

    let labelled = with(profile, &labels(&json!({ "env": "y", "team.example.com/b": "z" })));
    let moved = granted(&labels(&json!({ "region": "us" })));
    let plan = projection_of(&moved, &key, &settings, Some(&labelled));
    let repair = json!({ "region": "us", "team.example.com/a": null, "team.example.com/b": null });
    assert_eq!(plan, only(ProfileAction::Patch(version(), labels(&repair))));
}

#[test]
fn the_labels_that_join_the_hubs_objects_never_come_from_the_cluster() {
    let propagated_labels =
        "multicluster.x-k8s.io/*, open-cluster-management.io/cluster-name".parse().unwrap();
    let settings = ProjectionSettings { propagated_labels, ..ProjectionSettings::default() };
    let labels = json!({
        "multicluster.x-k8s.io/clusterset": "by-hand",
        "open-cluster-management.io/cluster-name": "c2",
    });
    let everything = by_labels("all", &json!({}));
    let fleet = fleet([cluster("c1", &labels), everything, binding("team", "all")]);
    let profile = settle_projection(&fleet, &key("team", "c1"), &settings, None).object.unwrap();
    let without_set = with(every_label(), &json!({ "multicluster.x-k8s.io/clusterset": null }));
    assert_eq!(profile["metadata"]["labels"], without_set);
}

#[test]
fn a_refused_profile_that_label_and_spec_do_not_both_name_ours_is_left_alone_and_noted() {
    let label = |value: Value| labels(&json!({ "x-k8s.io/cluster-manager": value }));
    let nameless = json!({ "clusterManager": { "name": "" } });
    let manager = |name: Value| json!({ "spec": { "clusterManager": { "name": name } } });
    let (unlabelled, foreign) = (Some(Reason::UnlabelledProfile), Some(Reason::ForeignProfile));
    for (edit, noted) in [
        (label(json!(null)), unlabelled),
        (label(json!("other")), unlabelled),
        (labels(&json!(null)), unlabelled),
        // Our label, and no manager.
        (manager(json!("")), foreign),
        (manager(json!(null)), foreign),
        (manager(json!(7)), foreign),
        (json!({ "spec": null }), foreign),
        (manager(json!("other")), None),
        (json!({ "spec": nameless, "metadata": { "labels": null } }), None),
        (json!({ "spec": null, "metadata": { "labels": null } }), None),
    ] {
        let ProfilePlan { action, findings } = plan(&refused(), &edited(&edit));
        assert_eq!(action, ProfileAction::Nothing, "{edit}");
        assert_eq!(reasons(&findings), Vec::from_iter(noted), "{edit}");
    }
    let ours = plan(&refused(), &edited(&json!({ "spec": { "displayName": "by hand" } })));
    assert_eq!(ours, only(ProfileAction::Delete(version())));
}

#[test]
fn a_foreign_profile_is_left_alone_and_noted_only_where_ours_should_stand() {
    for edit in [
        json!({ "spec": { "clusterManager": { "name": "other" } } }),
        json!({ "spec": { "clusterManager": { "name": "other" }, "displayName": "x" }, "status": null }),
        json!({ "spec": { "clusterManager": { "name": "other" } }, "metadata": { "labels": null } }),
        json!({ "spec": { "clusterManager": null }, "metadata": { "labels": null } }),
        deleting(json!({ "spec": { "clusterManager": { "name": "other" } } })),
    ] {
        let foreign = edited(&edit);
        let ProfilePlan { action, findings } = plan(&granted(&json!({})), &foreign);
        assert_eq!(action, ProfileAction::Nothing, "{edit}");
        assert_eq!(reasons(&findings), [Reason::ForeignProfile]);
        assert_eq!(plan(&unknown(&json!({})), &foreign), nothing(), "{edit}");
        assert_eq!(plan(&refused(), &foreign), nothing(), "{edit}");
    }
    let other = edited(&json!({ "spec": { "clusterManager": { "name": "capi" } } }));
    assert!(plan(&granted(&json!({})), &other).findings[0].message.contains("\"capi\""));
}

#[test]
fn a_profile_that_is_being_deleted_is_reported_with_its_finalizers_and_left_alone() {
    let held = json!({ "metadata": {
        "deletionTimestamp": NOON, "finalizers": ["argocd.example.com/a", "sveltos.example.com/b"], "labels": null,
    }, "spec": { "displayName": "x" }, "status": null });
    let ProfilePlan { action, findings } = plan(&granted(&json!({})), &edited(&held));
    assert_eq!(action, ProfileAction::Nothing);
    assert_eq!(reasons(&findings), [Reason::ProfileTerminating]);
    let message = &findings[0].message;
    assert!(message.contains("argocd.example.com/a, sveltos.example.com/b"), "{message}");

    let going = json!({ "metadata": { "deletionTimestamp": NOON } });
    assert_eq!(plan(&granted(&json!({})), &edited(&going)), nothing(), "nobody holds it");
    for fleet in [unknown(&json!({})), refused()] {
        let ProfilePlan { action, findings } = plan(&fleet, &edited(&held));
        assert_eq!(action, ProfileAction::Nothing, "it is not wanted");
        assert_eq!(reasons(&findings), [Reason::ProfileTerminating]);
        assert!(!findings[0].message.contains("granted"), "{}", findings[0].message);
    }
}

#[test]
fn a_profile_under_an_unknown_grant_is_kept_true() {
    let newer = json!({ "status": { "version": { "kubernetes": "v1.37.0" } } });
    let patch = only(ProfileAction::PatchStatus(version(), newer.clone()));
    assert_eq!(plan(&unknown(&newer), &settled(&json!({}))), patch);
    assert_eq!(plan(&unknown(&newer), &settled(&newer)), nothing());
}

#[test]
fn a_profile_of_a_cluster_that_cannot_be_read_keeps_its_status() {
    let unread = || unreadable(member("c1", "prod"));
    for set in [exclusive("prod"), broken("prod")] {
        let fleet = fleet([unread(), set, binding("team", "prod")]);
        for status in [json!({}), json!({ "conditions": null }), json!(null)] {
            assert_eq!(plan(&fleet, &edited(&json!({ "status": status }))), nothing(), "{status}");
        }
        let renamed = edited(&json!({ "spec": { "displayName": "x" } }));
        let repair = json!({ "spec": { "displayName": "c1" } });
        assert_eq!(plan(&fleet, &renamed).action, ProfileAction::Patch(version(), repair));
    }
    let fleet = fleet([unread(), exclusive("prod")]);
    let deleted = only(ProfileAction::Delete(version()));
    assert_eq!(plan(&fleet, &settled(&json!({}))), deleted, "it is refused");
}

#[test]
fn a_profile_has_a_status_if_it_shows_any_part_of_it_or_cannot_be_read() {
    let observed = |status: Value| observe(&edited(&json!({ "status": status })));
    assert!(!observed(json!(null)).has_status());
    assert!(observed(json!({ "properties": [] })).has_status());
    let metadata = serde_json::from_value(settled(&json!({}))["metadata"].clone()).unwrap();
    assert!(ObservedProfile::unreadable(&metadata, &json!(null), "unreadable").has_status());
}

#[test]
fn a_status_that_cannot_be_read_is_left_alone_and_reported_and_all_else_follows_the_plan() {
    let plan = |fleet: &Fleet, edit: Value| {
        let profile = edited(&edit);
        let metadata = serde_json::from_value(profile["metadata"].clone()).unwrap();
        let observed =
            ObservedProfile::unreadable(&metadata, &profile["spec"], "recursion limit exceeded");
        let (key, settings) = (key("team", "c1"), ProjectionSettings::default());
        let desired = project::desired(fleet, &key, &settings);
        let plan = profile::plan(&key, &settings.manager, Some(&observed), [desired]);
        (plan.action, reasons(&plan.findings))
    };
    let granted = granted(&json!({}));
    let unreadable = vec![Reason::Unreadable];
    assert_eq!(plan(&granted, json!({ "status": null })), (ProfileAction::Nothing, unreadable));
    let (action, _) = plan(&granted, json!({ "spec": { "displayName": "drift" } }));
    assert_eq!(action, ProfileAction::Patch(version(), json!({ "spec": { "displayName": "c1" } })));
    assert_eq!(plan(&refused(), json!({})).0, ProfileAction::Delete(version()));
    let foreign = json!({ "spec": { "clusterManager": { "name": "other" } } });
    assert_eq!(plan(&granted, foreign), (ProfileAction::Nothing, vec![Reason::ForeignProfile]));
}
