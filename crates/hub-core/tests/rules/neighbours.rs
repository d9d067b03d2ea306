//! How the owners of a profile get along with each other and with what strangers wrote into it.

#![cfg(test)]

use std::collections::BTreeMap;

use hub_api::cluster_profile::{AccessProvider, ClusterVersion};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::profile::{Desired, DesiredStatus, ProfileAction, ProfilePlan};
use hub_core::project::{self, ProjectionSettings};
use serde_json::{Value, json};

use crate::support::api::{Settled, observe, plan_of, settle, settle_projection};
use crate::support::{NOON, binding, condition, exclusive, fleet, key, member, with};

/// A fleet that grants `c1` to `team`.
fn granted() -> Fleet {
    fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")])
}

/// The result of the projector for a profile.
fn projected(object: Option<Value>) -> Settled {
    settle_projection(&granted(), &key("team", "c1"), &ProjectionSettings::default(), object)
}

/// The profile with nothing left to do.
fn settled() -> Value {
    projected(None).object.unwrap()
}

/// Everything except the resourceVersion, which counts writes.
fn content(object: &Value) -> Value {
    with(object.clone(), &json!({ "metadata": { "resourceVersion": null } }))
}

/// An access provider as JSON.
fn provider(name: &str, server: &str) -> Value {
    json!({ "name": name, "cluster": { "server": server } })
}

/// What an owner of one access provider desires, in a process that does not project; without a server it
/// withdraws its provider.
fn provisioner(name: &str, server: Option<&str>) -> Desired {
    let entry: Option<AccessProvider> =
        server.map(|server| serde_json::from_value(provider(name, server)).unwrap());
    let access_providers = BTreeMap::from([(name.to_owned(), entry)]);
    Desired { status: DesiredStatus { access_providers, ..DesiredStatus::default() }, ..Desired::default() }
}

/// What that owner alone plans for a profile.
fn provision(object: Option<&Value>, desired: Desired) -> ProfilePlan {
    plan_of(&key("team", "c1"), &ProjectionSettings::default().manager, object, [desired])
}

/// The result of that owner alone for a profile.
fn provisioned(object: Value, desired: Desired) -> Settled {
    settle(&key("team", "c1"), &ProjectionSettings::default().manager, Some(object), &[desired])
}

#[test]
fn what_strangers_wrote_is_still_there_after_everything_of_ours_was_repaired() {
    let ours = settled();
    let strange_condition =
        with(condition("Ready.example.com", "False", "No"), &json!({ "x": { "y": [1, 2.5] } }));
    let strange_provider =
        with(provider("eks", "https://eks"), &json!({ "cluster": { "new-field": { "a": true } } }));
    let strange = json!({
        "metadata": {
            "annotations": { "example.com/note": "x", "empty": "" },
            "labels": { "example.com/tier": "1", "empty": "" },
            "finalizers": ["argocd.example.com/hold"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b" }],
        },
        "spec": { "taints": [{ "key": "a" }] },
        "status": {
            "version": { "kubernetes": ours["status"]["version"]["kubernetes"], "other": "v2" },
            "conditions": [strange_condition, ours["status"]["conditions"][1], ours["status"]["conditions"][0]],
            "accessProviders": [strange_provider],
            "credentialProviders": [provider("old", "https://old")],
            "later": { "field": [] },
        },
    });
    let beside = with(ours.clone(), &strange);
    assert_eq!(projected(Some(beside.clone())).writes, [], "nothing of ours differs");

    let spoilt = with(
        beside.clone(),
        &json!({
            "metadata": { "labels": { "x-k8s.io/cluster-manager": null } },
            "spec": { "displayName": "spoilt" },
            "status": {
                "version": { "kubernetes": "v0" },
                "properties": null,
                "conditions": [strange_condition, condition("Joined", "False", "No"), ours["status"]["conditions"][0]],
            },
        }),
    );
    let repaired = projected(Some(spoilt));
    assert_eq!(content(&repaired.object.unwrap()), content(&beside));
    assert_eq!(repaired.writes.len(), 2);
}

#[test]
fn the_deprecated_list_has_no_entry_under_our_name() {
    let old = provider("old", "https://old");
    let lure = provider("ours", "https://eve.example");
    let status = json!({ "credentialProviders": [lure, old, lure] });
    for server in [Some("https://proxy/c1"), None] {
        let shared = with(settled(), &json!({ "status": status }));
        let left = provisioned(shared, provisioner("ours", server));
        assert_eq!(left.object.unwrap()["status"]["credentialProviders"], json!([old]), "{server:?}");
        assert_eq!(left.writes.len(), 1);
        // The owner of another name leaves it.
        let shared = with(settled(), &json!({ "status": { "credentialProviders": [lure] } }));
        let left = provisioned(shared, provisioner("another", server)).object.unwrap();
        assert_eq!(left["status"]["credentialProviders"], json!([lure]));
    }
    let projected = projected(Some(with(settled(), &json!({ "status": status }))));
    assert_eq!(projected.writes, [], "what no owner decides stays");
}

#[test]
fn a_version_that_is_withdrawn_leaves_the_versions_of_others() {
    let silent = with(member("c1", "prod"), &json!({ "status": { "version": null } }));
    let fleet = fleet([silent, exclusive("prod"), binding("team", "prod")]);
    let shared = with(settled(), &json!({ "status": { "version": { "other": "v2" } } }));
    let left = settle_projection(&fleet, &key("team", "c1"), &ProjectionSettings::default(), Some(shared));
    assert_eq!(left.object.unwrap()["status"]["version"], json!({ "other": "v2" }));
    assert_eq!(left.writes.len(), 1);
}

#[test]
fn a_status_of_another_shape_is_repaired_without_loss_to_others() {
    let stranger = condition("Ready", "True", "Yes");
    let twice = condition("Joined", "Unknown", "Twice");
    let nameless = json!({ "status": "True", "reason": "NoType" });
    let right = settled()["status"].clone();
    for (status, conditions_of_others) in [
        (json!(null), vec![]),
        (json!("broken"), vec![]),
        (json!(7), vec![]),
        (json!([right]), vec![]),
        (json!({ "version": "v1", "properties": {}, "conditions": "none" }), vec![]),
        (json!({ "conditions": { "type": "Joined" }, "properties": "none" }), vec![]),
        (json!({ "version": { "kubernetes": ["v1"] }, "conditions": [] , "properties": [null] }), vec![]),
        (
            json!({ "conditions": [null, 7, "Joined", []] }),
            vec![json!(null), json!(7), json!("Joined"), json!([])],
        ),
        (json!({ "conditions": [nameless, stranger] }), vec![nameless.clone(), stranger.clone()]),
        (
            json!({ "conditions": [{ "type": 7 }, { "type": null }] }),
            vec![json!({ "type": 7 }), json!({ "type": null })],
        ),
        (json!({ "conditions": [twice, stranger, twice, twice] }), vec![stranger.clone()]),
        (
            json!({ "conditions": [right["conditions"][1], stranger, right["conditions"][1], stranger] }),
            vec![stranger.clone(), stranger.clone()],
        ),
        (
            json!({ "properties": [
                { "name": "id.k8s.io", "value": "id-c1" }, { "name": "id.k8s.io", "value": "id-c1" }, { "value": "x" }, 7,
            ] }),
            vec![],
        ),
    ] {
        let mut object = settled();
        object["status"] = status.clone();
        let repaired = projected(Some(object));
        assert_eq!(repaired.writes.len(), 1, "{status}");
        let now = &repaired.object.unwrap()["status"];
        assert_eq!(now["version"]["kubernetes"], right["version"]["kubernetes"], "{status}");
        assert_eq!(now["properties"], right["properties"], "{status}");
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for condition in now["conditions"].as_array().unwrap() {
            let is_ours = matches!(condition["type"].as_str(), Some("ControlPlaneHealthy" | "Joined"));
            if is_ours { ours.push(condition.clone()) } else { others.push(condition.clone()) }
        }
        ours.sort_by_key(ToString::to_string);
        assert_eq!(Value::Array(others), Value::Array(conditions_of_others), "{status}");
        let mut expected = right["conditions"].as_array().unwrap().clone();
        expected.sort_by_key(ToString::to_string);
        assert_eq!(ours, expected, "{status}");
    }
}

#[test]
fn our_entry_keeps_its_position_and_a_new_one_is_appended() {
    let providers =
        json!([provider("a", "https://a"), provider("ours", "https://old"), provider("z", "https://z")]);
    let object = with(settled(), &json!({ "status": { "accessProviders": providers } }));
    let names = |settled: Settled| -> Vec<String> {
        let list = settled.object.unwrap()["status"]["accessProviders"].as_array().unwrap().clone();
        list.iter()
            .map(|provider| format!("{} {}", provider["name"], provider["cluster"]["server"]))
            .collect()
    };
    assert_eq!(
        names(provisioned(object.clone(), provisioner("ours", Some("https://new")))),
        [r#""a" "https://a""#, r#""ours" "https://new""#, r#""z" "https://z""#]
    );
    assert_eq!(
        names(provisioned(object.clone(), provisioner("b", Some("https://b")))),
        [r#""a" "https://a""#, r#""ours" "https://old""#, r#""z" "https://z""#, r#""b" "https://b""#]
    );
    assert_eq!(
        names(provisioned(object, provisioner("ours", None))),
        [r#""a" "https://a""#, r#""z" "https://z""#]
    );
}

#[test]
fn an_owner_that_withdraws_the_last_provider_takes_the_list_with_it() {
    let object =
        with(settled(), &json!({ "status": { "accessProviders": [provider("ours", "https://a")] } }));
    let ProfilePlan { action: ProfileAction::PatchStatus(_, patch), .. } =
        provision(Some(&object), provisioner("ours", None))
    else {
        panic!("nothing is withdrawn")
    };
    assert_eq!(patch, json!({ "status": { "accessProviders": null } }));
    assert_eq!(provision(Some(&settled()), provisioner("ours", None)).action, ProfileAction::Nothing);
}

#[test]
fn an_owner_that_does_not_project_writes_only_into_living_profiles_that_carry_our_label_and_spec() {
    let desired = || provisioner("ours", Some("https://proxy/c1"));
    assert_eq!(provision(None, desired()), ProfilePlan::default(), "there is no profile to write into");
    for edit in [
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": null } } }),
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": "other" } } }),
        json!({ "spec": { "clusterManager": { "name": "other" } } }),
        json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["argocd.example.com/hold"] } }),
    ] {
        assert_eq!(provision(Some(&with(settled(), &edit)), desired()), ProfilePlan::default(), "{edit}");
    }
    // What else differs is the projector's business.
    let drifted = with(settled(), &json!({ "spec": { "displayName": "x" }, "status": { "version": null } }));
    let ProfilePlan { action: ProfileAction::PatchStatus(_, patch), .. } =
        provision(Some(&drifted), desired())
    else {
        panic!("nothing is provided")
    };
    assert_eq!(patch, json!({ "status": { "accessProviders": [provider("ours", "https://proxy/c1")] } }));
}

#[test]
fn two_owners_in_one_process_cost_a_new_profile_two_writes_and_in_two_processes_three() {
    let key = key("team", "c1");
    let settings = ProjectionSettings::default();
    let projector = || project::desired(&granted(), &key, &settings);
    let provisioner = || provisioner("ours", Some("https://proxy/c1"));
    let one = settle(&key, &settings.manager, None, &[projector(), provisioner()]);
    let other = settle(&key, &settings.manager, None, &[provisioner(), projector()]);
    assert_eq!(one, other);
    assert_eq!(one.writes.len(), 2);

    let first = projected(None);
    let second = provisioned(first.object.unwrap(), provisioner());
    assert_eq!(first.writes.len() + second.writes.len(), 3);
    assert_eq!(content(&second.object.unwrap()), content(&one.object.unwrap()));
}

#[test]
fn a_refused_profile_is_deleted_with_the_parts_of_all_owners() {
    let refused = fleet([member("c1", "prod"), exclusive("prod")]);
    let key = key("team", "c1");
    let settings = ProjectionSettings::default();
    let desired =
        [provisioner("ours", Some("https://proxy/c1")), project::desired(&refused, &key, &settings)];
    let gone = settle(&key, &settings.manager, Some(settled()), &desired);
    assert_eq!(gone.object, None);
    assert_eq!(gone.writes.len(), 1);
}

/// An up-to-date profile with this number of access providers of others.
fn with_others(count: usize) -> Value {
    let others = (0..count).map(|number| provider(&format!("p{number}"), "https://other"));
    with(settled(), &json!({ "status": { "accessProviders": others.collect::<Vec<_>>() } }))
}

fn reasons(plan: &ProfilePlan) -> Vec<Reason> {
    plan.findings.iter().map(|note| note.reason).collect()
}

#[test]
fn a_list_that_others_have_filled_gets_no_entry_of_ours_until_there_is_room() {
    let ours = || provisioner("ours", Some("https://ours"));
    for count in [64, 65] {
        let full = with_others(count);
        let plan = provision(Some(&full), ours());
        assert_eq!(
            (&plan.action, reasons(&plan)),
            (&ProfileAction::Nothing, vec![Reason::TooManyAccessProviders])
        );
        assert!(plan.findings[0].message.contains(&format!("has {count} entries")), "{:?}", plan.findings);
        assert!(!observe(&full).has_room_for("ours"));
        // Another owner in the same process is not delayed.
        let desired = Desired {
            status: DesiredStatus {
                version: Some(ClusterVersion { kubernetes: Some("v9".to_owned()) }),
                ..ours().status
            },
            ..ours()
        };
        let Settled { object, writes } = provisioned(full.clone(), desired);
        let after = object.unwrap();
        assert_eq!((after["status"]["version"]["kubernetes"].as_str(), writes.len()), (Some("v9"), 1));
        assert_eq!(after["status"]["accessProviders"], full["status"]["accessProviders"]);
    }
    let after = provisioned(with_others(63), ours()).object.unwrap();
    assert_eq!(after["status"]["accessProviders"].as_array().unwrap().len(), 64);
    let plan = provision(Some(&after), ours());
    assert_eq!((plan.action, plan.findings), (ProfileAction::Nothing, Vec::new()));
}

#[test]
fn of_two_new_entries_the_one_for_which_there_is_room_is_added() {
    let mut desired = provisioner("a", Some("https://a"));
    desired.status.access_providers.append(&mut provisioner("b", Some("https://b")).status.access_providers);
    let after = provisioned(with_others(63), desired.clone()).object.unwrap();
    assert_eq!(after["status"]["accessProviders"][63]["name"], "a");
    let plan = provision(Some(&after), desired);
    assert!(
        plan.findings[0].message.contains("\"b\"") && !plan.findings[0].message.contains("\"a\""),
        "{:?}",
        plan.findings
    );
}

#[test]
fn of_our_entries_in_a_list_that_is_too_long_those_that_differ_are_reported() {
    let desired = |a: &str| {
        let mut desired = provisioner("a", Some(a));
        desired
            .status
            .access_providers
            .append(&mut provisioner("b", Some("https://b")).status.access_providers);
        desired
    };
    let mut long = provisioned(with_others(62), desired("https://a")).object.unwrap();
    long["status"]["accessProviders"].as_array_mut().unwrap().push(provider("p62", "https://other"));
    let plan = provision(Some(&long), desired("https://new"));
    assert_eq!(
        (&plan.action, reasons(&plan)),
        (&ProfileAction::Nothing, vec![Reason::TooManyAccessProviders])
    );
    let message = &plan.findings[0].message;
    assert!(message.contains("the entry \"a\" is"), "{message}");
}

#[test]
fn an_entry_of_ours_in_a_list_that_is_too_long_follows_when_the_list_is_shorter() {
    let profile = |others: usize| {
        let mut profile =
            provisioned(with_others(63), provisioner("ours", Some("https://old"))).object.unwrap();
        let list = profile["status"]["accessProviders"].as_array_mut().unwrap();
        list.extend((63..others).map(|number| provider(&format!("p{number}"), "https://other")));
        profile
    };
    for server in [Some("https://new"), None] {
        let long = provision(Some(&profile(65)), provisioner("ours", server));
        assert_eq!(
            (&long.action, reasons(&long)),
            (&ProfileAction::Nothing, vec![Reason::TooManyAccessProviders])
        );
    }
    let same = provision(Some(&profile(65)), provisioner("ours", Some("https://old")));
    assert_eq!((same.action, same.findings), (ProfileAction::Nothing, Vec::new()));
    // Without our entry the list is as long as the API accepts.
    let withdrawn = provisioned(profile(64), provisioner("ours", None)).object.unwrap();
    assert_eq!(withdrawn["status"]["accessProviders"].as_array().unwrap().len(), 64);
    let changed = provisioned(profile(63), provisioner("ours", Some("https://new"))).object.unwrap();
    assert_eq!(changed["status"]["accessProviders"][63]["cluster"]["server"], "https://new");
}
