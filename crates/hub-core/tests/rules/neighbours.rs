//! How the owners of a profile get along with each other and with what strangers wrote into it.

use hub_api::cluster_profile::{AccessProvider, ClusterVersion};
use hub_core::finding::Reason;
use hub_core::profile::{Desired, DesiredStatus, ProfileAction, ProfilePlan};
use hub_core::project::ProjectionSettings;
use serde_json::{Value, json};

use crate::support::api::{Settled, observe, plan_of, settle, settle_projection};
use crate::support::{NOON, granting, key, with};

/// The result of the projector for a profile.
fn projected(object: Option<Value>) -> Settled {
    let settings = ProjectionSettings::default();
    settle_projection(&granting(&["c1"]), &key("team", "c1"), &settings, object)
}

/// The profile with nothing left to do.
fn settled() -> Value {
    projected(None).object.unwrap()
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
    let access_providers = vec![(name.to_owned(), entry)];
    Desired {
        status: DesiredStatus { access_providers, ..DesiredStatus::default() },
        ..Desired::default()
    }
}

/// The same for two providers.
fn provisioner_of_two(a: &str, b: &str) -> Desired {
    let mut desired = provisioner("a", Some(a));
    desired.status.access_providers.append(&mut provisioner("b", Some(b)).status.access_providers);
    desired
}

/// What that owner alone plans for a profile.
fn provision(object: Option<&Value>, desired: Desired) -> ProfilePlan {
    plan_of(&key("team", "c1"), &ProjectionSettings::default().manager, object, [desired])
}

/// The patch of the status that it plans for a profile.
fn provided(object: &Value, desired: Desired) -> Value {
    match provision(Some(object), desired) {
        ProfilePlan { action: ProfileAction::PatchStatus(_, patch), .. } => patch,
        other => panic!("{other:?}"),
    }
}

/// A change of the access providers of a profile.
fn providers(list: &Value) -> Value {
    json!({ "status": { "accessProviders": list } })
}

/// The result of that owner alone for a profile.
fn provisioned(object: Value, desired: Desired) -> Settled {
    settle(&key("team", "c1"), &ProjectionSettings::default().manager, Some(object), &[desired])
}

#[test]
fn the_deprecated_list_has_no_entry_under_our_name() {
    let old = provider("old", "https://old");
    let lure = provider("ours", "https://eve.example");
    let status = json!({ "credentialProviders": [lure, old, lure] });
    for server in [Some("https://proxy/c1"), None] {
        let shared = with(settled(), &json!({ "status": status }));
        let left = provisioned(shared, provisioner("ours", server));
        let shown = left.object.unwrap()["status"]["credentialProviders"].clone();
        assert_eq!((shown, left.writes.len()), (json!([old]), 1), "{server:?}");
        // The owner of another name leaves it.
        let shared = with(settled(), &json!({ "status": { "credentialProviders": [lure] } }));
        let left = provisioned(shared, provisioner("another", server)).object.unwrap();
        assert_eq!(left["status"]["credentialProviders"], json!([lure]));
    }
    let projected = projected(Some(with(settled(), &json!({ "status": status }))));
    assert_eq!(projected.writes, [], "what no owner decides stays");
}

#[test]
fn our_entry_keeps_its_position_and_a_new_one_is_appended() {
    let [a, b, z] = ["a", "b", "z"].map(|name| provider(name, &format!("https://{name}")));
    let ours = |server: &str| provider("ours", server);
    let before = providers(&json!([a, ours("https://old"), z]));
    for (desired, after) in [
        (provisioner("ours", Some("https://new")), json!([a, ours("https://new"), z])),
        (provisioner("ours", None), json!([a, z])),
        (provisioner("b", Some("https://b")), json!([a, ours("https://old"), z, b])),
    ] {
        let left = provisioned(with(settled(), &before), desired).object.unwrap();
        assert_eq!(left["status"]["accessProviders"], after);
    }
}

#[test]
fn an_owner_that_withdraws_the_last_provider_takes_the_list_with_it() {
    let withdrawing = || provisioner("ours", None);
    let object = with(settled(), &providers(&json!([provider("ours", "https://a")])));
    assert_eq!(provided(&object, withdrawing()), providers(&json!(null)));
    assert_eq!(provision(Some(&settled()), withdrawing()).action, ProfileAction::Nothing);
}

#[test]
fn an_owner_that_does_not_project_writes_only_into_living_profiles_that_carry_our_label_and_spec() {
    let desired = || provisioner("ours", Some("https://proxy/c1"));
    assert_eq!(provision(None, desired()), ProfilePlan::default(), "there is no profile");
    for edit in [
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": null } } }),
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": "other" } } }),
        json!({ "spec": { "clusterManager": { "name": "other" } } }),
        json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["argocd.example.com/hold"] } }),
    ] {
        let plan = provision(Some(&with(settled(), &edit)), desired());
        assert_eq!(plan, ProfilePlan::default(), "{edit}");
    }
    // What else differs is the projector's business.
    let drifted =
        with(settled(), &json!({ "spec": { "displayName": "x" }, "status": { "version": null } }));
    let entry = json!([provider("ours", "https://proxy/c1")]);
    assert_eq!(provided(&drifted, desired()), providers(&entry));
}

/// An up-to-date profile with this number of access providers of others.
fn with_others(count: usize) -> Value {
    let others = (0..count).map(|number| provider(&format!("p{number}"), "https://other"));
    with(settled(), &providers(&others.collect()))
}

/// Asserts that nothing is written into a list that is too long, and returns the message that reports it.
fn reported(plan: &ProfilePlan) -> String {
    let [finding] = &plan.findings[..] else { panic!("{plan:?}") };
    assert_eq!(plan.action, ProfileAction::Nothing);
    assert_eq!(finding.reason, Reason::TooManyAccessProviders);
    finding.message.clone()
}

#[test]
fn a_list_that_others_have_filled_gets_no_entry_of_ours_until_there_is_room() {
    let ours = || provisioner("ours", Some("https://ours"));
    for count in [64, 65] {
        let full = with_others(count);
        let message = reported(&provision(Some(&full), ours()));
        assert!(message.contains(&format!("has {count} entries")), "{message}");
        assert!(!observe(&full).has_room_for("ours"));
        // Another owner in the same process is not delayed.
        let mut desired = ours();
        desired.status.version = Some(ClusterVersion { kubernetes: Some("v9".to_owned()) });
        let Settled { object, writes } = provisioned(full.clone(), desired);
        let after = object.unwrap();
        assert_eq!(after["status"]["version"]["kubernetes"], "v9");
        assert_eq!(writes.len(), 1);
        assert_eq!(after["status"]["accessProviders"], full["status"]["accessProviders"]);
    }
    let after = provisioned(with_others(63), ours()).object.unwrap();
    assert_eq!(after["status"]["accessProviders"].as_array().unwrap().len(), 64);
    let plan = provision(Some(&after), ours());
    assert_eq!((plan.action, plan.findings), (ProfileAction::Nothing, Vec::new()));
}

#[test]
fn of_two_new_entries_the_one_for_which_there_is_room_is_added() {
    let desired = || provisioner_of_two("https://a", "https://b");
    let after = provisioned(with_others(63), desired()).object.unwrap();
    assert_eq!(after["status"]["accessProviders"][63]["name"], "a");
    let plan = provision(Some(&after), desired());
    let message = &plan.findings[0].message;
    assert!(message.contains("\"b\"") && !message.contains("\"a\""), "{message}");
}

#[test]
fn of_our_entries_in_a_list_that_is_too_long_those_that_differ_are_reported() {
    let before = provisioner_of_two("https://a", "https://b");
    let mut long = provisioned(with_others(62), before).object.unwrap();
    let list = long["status"]["accessProviders"].as_array_mut().unwrap();
    list.push(provider("p62", "https://other"));
    let message = reported(&provision(Some(&long), provisioner_of_two("https://new", "https://b")));
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
        reported(&provision(Some(&profile(65)), provisioner("ours", server)));
    }
    let same = provision(Some(&profile(65)), provisioner("ours", Some("https://old")));
    assert_eq!((same.action, same.findings), (ProfileAction::Nothing, Vec::new()));
    // Without our entry the list is as long as the API accepts.
    let withdrawn = provisioned(profile(64), provisioner("ours", None)).object.unwrap();
    assert_eq!(withdrawn["status"]["accessProviders"].as_array().unwrap().len(), 64);
    let changed =
        provisioned(profile(63), provisioner("ours", Some("https://new"))).object.unwrap();
    assert_eq!(changed["status"]["accessProviders"][63]["cluster"]["server"], "https://new");
}
