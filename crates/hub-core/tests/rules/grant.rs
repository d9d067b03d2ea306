//! Which clusters are granted to which namespaces, by examples; `laws.rs` has every combination, and `touched.rs` what each
//! change affects.

use hub_core::finding::Reason;
use hub_core::fleet::{BoundSource, Fleet, Part, Touched};
use hub_core::grant::{Grant, decide, is_bound, verdicts};
use hub_core::project;
use serde_json::{Value, json};

use crate::support::{
    IN_SET, arrive, binding, broken, by_labels, cluster, condition, deleting, exclusive, fleet,
    fleet_where, key, leave, member, set, unreadable, with,
};

/// What the namespace `team` may see of cluster `c1`.
fn c1_in_team(fleet: &Fleet) -> Grant {
    decide(fleet, &key("team", "c1"))
}

/// The clusters that a namespace may see.
fn granted_to(fleet: &Fleet, namespace: &str) -> Vec<String> {
    let granted =
        |name: &&_| decide(fleet, &key(namespace, str::to_owned(name).as_str())) == Grant::Granted;
    let names: Vec<String> = fleet.cluster_names().map(ToString::to_string).collect();
    names.iter().map(String::as_str).filter(granted).map(str::to_owned).collect()
}

/// What every binding of the namespace `team` says about cluster `c1`.
fn explained(fleet: &Fleet) -> Vec<String> {
    let key = key("team", "c1");
    verdicts(fleet, &key).map(|(name, verdict)| format!("{name}: {verdict}")).collect()
}

#[test]
fn a_cluster_whose_label_names_the_bound_set_is_granted() {
    for set in [exclusive("prod"), with(exclusive("prod"), &json!({ "spec": null }))] {
        let fleet = fleet([member("c1", "prod"), set.clone(), binding("team", "prod")]);
        assert_eq!(c1_in_team(&fleet), Grant::Granted, "{set}");
    }
}

#[test]
fn a_label_selector_picks_by_labels_where_none_picks_nothing_and_an_empty_one_everything() {
    let prod = json!({ "env": "prod" });
    for (selector, labels, grant) in [
        (json!(null), &prod, Grant::Refused),
        (json!({}), &prod, Grant::Granted),
        (json!({}), &json!(null), Grant::Granted),
        (json!({ "matchLabels": { "env": "prod" } }), &prod, Grant::Granted),
        (json!({ "matchLabels": { "env": "dev" } }), &prod, Grant::Refused),
        // The label of exclusive sets is a label like any other here.
        (json!({ "matchLabels": { IN_SET: "prod" } }), &json!({ IN_SET: "prod" }), Grant::Granted),
    ] {
        let fleet =
            fleet([cluster("c1", labels), by_labels("all", &selector), binding("team", "all")]);
        assert_eq!(c1_in_team(&fleet), grant, "{selector} {labels}");
    }
}

#[test]
fn a_namespace_is_bound_while_one_of_its_bindings_may_grant_it_a_cluster() {
    let mismatched = with(binding("team", "prod"), &json!({ "spec": { "clusterSet": "dev" } }));
    let elsewhere = binding("other", "prod");
    let unread = unreadable(binding("team", "prod"));
    for (objects, bound, why) in [
        (vec![exclusive("prod")], false, "no binding"),
        (vec![exclusive("prod"), elsewhere], false, "a binding of another namespace"),
        (vec![exclusive("prod"), binding("team", "prod")], true, "a set without clusters"),
        (vec![broken("prod"), binding("team", "prod")], true, "the set cannot be read"),
        (vec![exclusive("prod"), unread], true, "the binding cannot be read"),
        (vec![binding("team", "prod")], false, "no set"),
        (vec![exclusive("prod"), unbound().remove(0)], false, "the binding is not Bound"),
        (vec![exclusive("prod"), exclusive("dev"), mismatched], false, "it has the wrong name"),
    ] {
        assert_eq!(is_bound(&fleet(objects), &"team".into()), bound, "{why}");
    }
}

/// Bindings that OCM has not, or not yet, put in force.
fn unbound() -> Vec<Value> {
    let with_conditions = |conditions: Value| {
        with(binding("team", "prod"), &json!({ "status": { "conditions": conditions } }))
    };
    vec![
        with(binding("team", "prod"), &json!({ "status": null })),
        with_conditions(json!(null)),
        with_conditions(json!([])),
        with_conditions(json!([condition("Bound", "False", "ClusterSetNotFound")])),
        with_conditions(json!([condition("Bound", "Unknown", "Waiting")])),
        with_conditions(json!([condition("Bound", "true", "NotATruth")])),
        with_conditions(json!([condition("Ready", "True", "AnotherType")])),
    ]
}

#[test]
fn a_binding_whose_condition_bound_is_not_true_grants_nothing() {
    for binding in unbound() {
        let fleet = fleet([member("c1", "prod"), exclusive("prod"), binding.clone()]);
        assert_eq!(c1_in_team(&fleet), Grant::Refused, "{binding}");
        assert_eq!(explained(&fleet), ["prod: the binding is not Bound"]);
    }
}

#[test]
fn a_stand_alone_hub_takes_a_binding_for_bound_when_its_set_exists() {
    let computed = |objects: Vec<Value>| c1_in_team(&fleet_where(BoundSource::Computed, objects));
    for binding in unbound() {
        let prod = [member("c1", "prod"), exclusive("prod"), binding.clone()];
        assert_eq!(computed(prod.to_vec()), Grant::Granted, "{binding}");
        let without_set = vec![member("c1", "prod"), binding.clone()];
        assert_eq!(computed(without_set), Grant::Refused, "{binding}");
        let mismatched = with(binding, &json!({ "metadata": { "name": "dev" } }));
        let both = vec![member("c1", "prod"), exclusive("prod"), exclusive("dev"), mismatched];
        assert_eq!(computed(both), Grant::Refused);
    }
}

#[test]
fn a_binding_whose_name_is_not_the_name_of_its_set_or_that_cannot_be_read_is_reported() {
    let findings = |spec: Value| {
        let fleet = fleet([with(binding("team", "prod"), &json!({ "spec": spec }))]);
        let (name, binding) = fleet.bindings_in(&"team".into()).next().unwrap();
        binding.findings(name)
    };
    for (spec, quoted) in [
        (json!({ "clusterSet": "dev" }), "\"dev\""),
        (json!({ "clusterSet": "" }), "\"\""),
        (json!(null), "\"\""),
    ] {
        let findings = findings(spec);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].reason, Reason::BindingNameMismatch);
        assert!(findings[0].message.contains(quoted), "{findings:?}");
    }
    assert_eq!(findings(json!({ "clusterSet": 7 }))[0].reason, Reason::Unreadable);
    assert_eq!(findings(json!({})), []);
}

#[test]
fn a_cluster_that_is_leaving_or_gone_is_refused() {
    let mut fleet =
        fleet([deleting(member("c1", "prod")), exclusive("prod"), binding("team", "prod")]);
    assert_eq!(c1_in_team(&fleet), Grant::Refused);
    assert_eq!(explained(&fleet), ["prod: the ManagedCluster is being deleted"]);
    leave(&mut fleet, &member("c1", "prod"));
    assert_eq!(c1_in_team(&fleet), Grant::Refused);
    assert_eq!(explained(&fleet), ["prod: the hub has no such ManagedCluster"]);
    arrive(&mut fleet, &member("c1", "prod"));
    assert_eq!(c1_in_team(&fleet), Grant::Granted);
}

#[test]
fn a_cluster_that_the_hub_does_not_accept_is_refused_and_unknown_if_this_cannot_be_read() {
    let spec = |spec: Value| with(member("c1", "prod"), &json!({ "spec": spec }));
    let odd = json!({ "spec": { "hubAcceptsClient": "yes" } });
    let (denied, unread) = (
        "the hub does not accept the ManagedCluster",
        "whether the hub accepts the ManagedCluster cannot be read",
    );
    for (cluster, grant, why) in [
        (
            spec(json!({ "hubAcceptsClient": true })),
            Grant::Granted,
            "the binding grants the cluster",
        ),
        (spec(json!({ "hubAcceptsClient": false })), Grant::Refused, denied),
        (unreadable(spec(json!({ "hubAcceptsClient": false }))), Grant::Refused, denied),
        (spec(json!({ "hubAcceptsClient": null })), Grant::Refused, denied),
        (unreadable(spec(json!({ "hubAcceptsClient": null }))), Grant::Refused, denied),
        (spec(json!(null)), Grant::Refused, denied),
        (with(member("c1", "prod"), &odd), Grant::Unknown, unread),
        (with(member("c1", "dev"), &odd), Grant::Refused, "the set does not select the cluster"),
    ] {
        let fleet = fleet([cluster.clone(), exclusive("prod"), binding("team", "prod")]);
        assert_eq!(c1_in_team(&fleet), grant, "{cluster}");
        assert_eq!(explained(&fleet), [format!("prod: {why}")], "{cluster}");
    }
}

#[test]
fn several_bindings_make_a_union_with_each_cluster_once() {
    let mut fleet = fleet([
        member("c1", "prod"),
        cluster("c2", &json!({ "env": "dev" })),
        cluster("c3", &json!({ IN_SET: "prod", "env": "dev" })),
        member("c4", "elsewhere"),
        exclusive("prod"),
        by_labels("developers", &json!({ "matchLabels": { "env": "dev" } })),
        binding("team", "prod"),
        binding("team", "developers"),
    ]);
    assert_eq!(granted_to(&fleet, "team"), ["c1", "c2", "c3"]);
    leave(&mut fleet, &binding("team", "prod"));
    assert_eq!(granted_to(&fleet, "team"), ["c2", "c3"]);
    leave(&mut fleet, &binding("team", "developers"));
    assert_eq!(granted_to(&fleet, "team"), [""; 0]);
    assert_eq!(fleet.namespaces().count(), 0);
}

#[test]
fn a_set_that_cannot_be_used_or_read_leaves_the_grant_unknown() {
    let unknown_type = set("prod", &json!({ "selectorType": "ClusterClaims" }));
    for (set, reason) in [
        (unknown_type, Reason::InvalidSelector),
        (broken("prod"), Reason::InvalidSelector),
        (unreadable(exclusive("prod")), Reason::Unreadable),
    ] {
        let fleet = fleet([member("c1", "prod"), set.clone(), binding("team", "prod")]);
        assert_eq!(c1_in_team(&fleet), Grant::Unknown, "{set}");
        let findings = fleet.set(&"prod".into()).unwrap().findings();
        assert_eq!(findings.iter().map(|note| note.reason).collect::<Vec<_>>(), [reason], "{set}");
    }
}

/// What happens, the kinds without which it still ends the grant, and the change.
type End<'a> = (&'a str, Vec<Part>, &'a dyn Fn(&mut Fleet));

#[test]
fn while_a_kind_cannot_be_read_nothing_is_granted_and_ends_only_by_the_other_kinds() {
    let (c1, prod, bound) = (member("c1", "prod"), exclusive("prod"), binding("team", "prod"));
    let other = || by_labels("prod", &json!({ "matchLabels": { "a": "b" } }));
    let unbound = || with(bound.clone(), &json!({ "status": null }));
    let ends: [End<'_>; 7] = [
        ("the cluster is deleted", vec![Part::Sets, Part::Bindings], &|fleet| {
            drop(leave(fleet, &c1));
        }),
        ("the cluster is leaving", vec![Part::Sets, Part::Bindings], &|fleet| {
            drop(arrive(fleet, &deleting(c1.clone())));
        }),
        ("the set is deleted", vec![Part::Clusters, Part::Bindings], &|fleet| {
            drop(leave(fleet, &prod));
        }),
        ("the binding is deleted", vec![Part::Clusters, Part::Sets], &|fleet| {
            drop(leave(fleet, &bound));
        }),
        ("the binding is not Bound", vec![Part::Clusters, Part::Sets], &|fleet| {
            drop(arrive(fleet, &unbound()));
        }),
        // The selection depends on both sides.
        ("the cluster is moved", vec![Part::Bindings], &|fleet| {
            drop(arrive(fleet, &member("c1", "dev")));
        }),
        ("the set selects others", vec![Part::Bindings], &|fleet| drop(arrive(fleet, &other()))),
    ];
    let all = [Part::Clusters, Part::Sets, Part::Bindings];
    for (why, ended_without, end) in ends {
        for part in all {
            let mut fleet = fleet([c1.clone(), prod.clone(), bound.clone()]);
            let of_team = Touched::Namespaces(["team".into()].into());
            assert_eq!(fleet.set_read(part, false), of_team);
            assert_eq!(fleet.set_read(part, false), Touched::Nothing);
            assert_eq!((c1_in_team(&fleet), fleet.is_read()), (Grant::Unknown, false), "{part:?}");
            end(&mut fleet);
            let is_known = ended_without.contains(&part);
            // An end that a process sees of a kind that it could not read is no news of that kind as a whole.
            let is_own = why.starts_with("the cluster is") && part == Part::Clusters
                || why.starts_with("the set") && part == Part::Sets
                || why.starts_with("the binding") && part == Part::Bindings;
            if !is_own {
                let grant = if is_known { Grant::Refused } else { Grant::Unknown };
                assert_eq!(c1_in_team(&fleet), grant, "{why} while {part:?} cannot be read");
            }
            fleet.set_read(part, true);
            assert_eq!(c1_in_team(&fleet), Grant::Refused, "{why}");
        }
    }
}

#[test]
fn every_binding_explains_itself() {
    let fleet = fleet([
        member("c1", "granted"),
        exclusive("granted"),
        exclusive("other"),
        exclusive("unbound"),
        by_labels("doubtful", &json!({})),
        broken("broken"),
        binding("team", "granted"),
        binding("team", "other"),
        binding("team", "missing"),
        binding("team", "broken"),
        with(binding("team", "unbound"), &json!({ "status": null })),
        with(binding("team", "misnamed"), &json!({ "spec": { "clusterSet": "granted" } })),
        unreadable(binding("team", "doubtful")),
    ]);
    assert_eq!(
        explained(&fleet),
        [
            "broken: the set's selector cannot be used",
            "doubtful: the binding cannot be read",
            "granted: the binding grants the cluster",
            "misnamed: the binding's name is not the name of its set",
            "missing: the hub has no such ManagedClusterSet",
            "other: the set does not select the cluster",
            "unbound: the binding is not Bound",
        ]
    );
}

#[test]
fn a_cluster_that_cannot_be_shown_completely_is_reported() {
    let reasons = |object: Value| -> Vec<Reason> {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let fleet = fleet([object]);
        let name = name.as_str().into();
        let findings = project::cluster_findings(&name, fleet.cluster(&name).unwrap());
        findings.iter().map(|note| note.reason).collect()
    };
    assert_eq!(reasons(cluster("c1", &json!(null))), []);
    assert_eq!(reasons(cluster(&"x".repeat(63), &json!(null))), []);
    assert_eq!(reasons(cluster(&"x".repeat(64), &json!(null))), [Reason::NameTooLong]);
    assert_eq!(reasons(unreadable(cluster("c1", &json!(null)))), [Reason::Unreadable]);
}
