//! Which decisions a change of the fleet touches: no less than it changes, and nothing where no decision
//! reads what changed.

use std::collections::BTreeSet;

use hub_core::fleet::{Fleet, Touched};
use serde_json::{Value, json};

use crate::support::{
    arrive, binding, broken, condition, exclusive, fleet, granting_all, leave, member, unreadable,
    with,
};

/// Every decision in these namespaces.
fn namespaces(names: &[&str]) -> Touched {
    Touched::Namespaces(names.iter().map(|name| (*name).into()).collect::<BTreeSet<_>>())
}

/// Every decision about `c1`.
fn c1() -> Touched {
    Touched::Cluster("c1".into())
}

/// A fleet with one cluster in a set that two namespaces bind.
fn prod() -> Fleet {
    granting_all([member("c1", "prod"), binding("ops", "prod")])
}

/// What it touches when the object changes by this merge patch, in a fleet that has the object.
fn change(object: &Value, patch: &Value) -> Touched {
    let mut fleet = prod();
    arrive(&mut fleet, object);
    arrive(&mut fleet, &with(object.clone(), patch))
}

#[test]
fn what_no_decision_reads_of_an_object_touches_nothing() {
    let metadata = json!({ "metadata": {
        "annotations": { "note": "x" }, "resourceVersion": "7", "generation": 3,
        "managedFields": [{ "manager": "kubectl", "operation": "Update" }], "finalizers": ["example.com/hold"],
    } });
    for object in [member("c1", "prod"), exclusive("prod"), binding("team", "prod")] {
        assert_eq!(change(&object, &metadata), Touched::Nothing, "{object}");
        assert_eq!(change(&object, &json!({})), Touched::Nothing, "{object}");
    }
    let conditions = [condition("ClusterSetEmpty", "False", "ClustersSelected")];
    let status = json!({ "status": { "conditions": conditions } });
    assert_eq!(change(&exclusive("prod"), &status), Touched::Nothing);
}

#[test]
fn a_part_of_a_cluster_that_its_profiles_do_not_show_touches_nothing() {
    let joined = condition("ManagedClusterJoined", "True", "ManagedClusterJoined");
    let available =
        condition("ManagedClusterConditionAvailable", "True", "ManagedClusterAvailable");
    for patch in [
        json!({ "spec": { "leaseDurationSeconds": 30, "taints": [{ "key": "a" }] } }),
        json!({ "status": { "capacity": { "cpu": "8" }, "allocatable": { "cpu": "4" } } }),
        json!({ "status": { "conditions": [available, joined, condition("HubAccepted", "False", "Denied")] } }),
        json!({ "status": { "version": { "kubernetes": "v1.36.3", "other": "v2" } } }),
    ] {
        assert_eq!(change(&member("c1", "prod"), &patch), Touched::Nothing, "{patch}");
    }
}

#[test]
fn fractions_of_a_second_which_no_profile_can_show_touch_nothing() {
    let since = |time: &str| {
        let mut condition = condition("ManagedClusterJoined", "True", "Joined");
        condition["lastTransitionTime"] = json!(time);
        with(member("c1", "prod"), &json!({ "status": { "conditions": [condition] } }))
    };
    let mut fleet = fleet([since("2026-05-01T12:00:00Z")]);
    assert_eq!(arrive(&mut fleet, &since("2026-05-01T12:00:00.25Z")), Touched::Nothing);
    assert_eq!(arrive(&mut fleet, &since("2026-05-01T14:00:00+02:00")), Touched::Nothing);
    assert_eq!(arrive(&mut fleet, &since("2026-05-01T12:00:01Z")), Touched::Report("c1".into()));
}

#[test]
fn what_a_cluster_reports_touches_its_profiles_and_no_grant_of_it() {
    let joined = condition("ManagedClusterJoined", "True", "Joined");
    for patch in [
        json!({ "status": { "version": { "kubernetes": "v1.99.0" } } }),
        json!({ "status": { "clusterClaims": [{ "name": "a", "value": "b" }] } }),
        json!({ "spec": { "managedClusterClientConfigs": [{ "url": "https://c1" }] } }),
        json!({ "status": { "conditions": [joined] } }),
    ] {
        let touched = change(&member("c1", "prod"), &patch);
        assert_eq!(touched, Touched::Report("c1".into()), "{patch}");
    }
    for patch in [
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } }),
        json!({ "metadata": { "deletionTimestamp": "2030-01-01T00:00:00Z" } }),
        json!({ "metadata": { "uid": "another" } }),
        json!({ "spec": { "hubAcceptsClient": false } }),
        json!({ "status": { "conditions": [] } }),
    ] {
        assert_eq!(change(&member("c1", "prod"), &patch), c1(), "{patch}");
    }
    let (mut fleet, id) = (prod(), json!([{ "name": "id.k8s.io", "value": "the hub" }]));
    fleet.set_hub_id(Some("the hub".to_owned()));
    let hub = with(member("c1", "prod"), &json!({ "status": { "clusterClaims": id } }));
    assert_eq!(arrive(&mut fleet, &hub), c1(), "it is the hub itself");
}

#[test]
fn a_set_touches_exactly_the_namespaces_that_have_a_binding_of_its_name() {
    let mut fleet = fleet([
        binding("team", "prod"),
        unreadable(binding("ops", "prod")),
        with(binding("waiting", "prod"), &json!({ "status": null })),
        binding("developers", "dev"),
        // Binds nothing, whichever set is created.
        with(binding("misnamed", "other"), &json!({ "spec": { "clusterSet": "prod" } })),
    ]);
    let bound = namespaces(&["ops", "team", "waiting"]);
    assert_eq!(arrive(&mut fleet, &exclusive("prod")), bound);
    assert_eq!(arrive(&mut fleet, &broken("prod")), bound);
    assert_eq!(arrive(&mut fleet, &unreadable(exclusive("prod"))), bound);
    assert_eq!(arrive(&mut fleet, &unreadable(exclusive("prod"))), Touched::Nothing);
    assert_eq!(leave(&mut fleet, &exclusive("prod")), bound);
    assert_eq!(leave(&mut fleet, &exclusive("prod")), Touched::Nothing);
}

#[test]
fn a_binding_touches_its_own_namespace() {
    let mut fleet = prod();
    let team = namespaces(&["team"]);
    assert_eq!(arrive(&mut fleet, &binding("team", "dev")), team);
    let unbound = with(binding("team", "prod"), &json!({ "status": null }));
    assert_eq!(arrive(&mut fleet, &unbound), team);
    assert_eq!(arrive(&mut fleet, &binding("team", "prod")), team);
    assert_eq!(arrive(&mut fleet, &unreadable(binding("team", "prod"))), team);
    assert_eq!(arrive(&mut fleet, &unreadable(binding("team", "prod"))), Touched::Nothing);
    assert_eq!(leave(&mut fleet, &binding("team", "prod")), team);
    assert_eq!(leave(&mut fleet, &binding("team", "prod")), Touched::Nothing);
    assert_eq!(leave(&mut fleet, &binding("nobody", "prod")), Touched::Nothing);
}

#[test]
fn a_bindings_other_conditions_and_what_bound_says_beside_true_touch_nothing() {
    let bound = |reason: &str| condition("Bound", "True", reason);
    let not_ready = condition("Ready", "False", "NotYet");
    for conditions in
        [json!([bound("AnotherReason")]), json!([not_ready, bound("ClusterSetBound")])]
    {
        let patch = json!({ "status": { "conditions": conditions } });
        assert_eq!(change(&binding("team", "prod"), &patch), Touched::Nothing, "{patch}");
    }
    let unbound =
        json!({ "status": { "conditions": [condition("Bound", "False", "ClusterSetNotFound")] } });
    assert_eq!(change(&binding("team", "prod"), &unbound), namespaces(&["team"]));
}
