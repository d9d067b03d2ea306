//! How the owners of a profile get along with each other and with what strangers wrote into it.

use std::collections::BTreeMap;

use hub_api::cluster_profile::{AccessProvider, ClusterVersion};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::profile::{Desired, DesiredStatus, ProfileAction, ProfilePlan};
use hub_core::project::ProjectionSettings;
use serde_json::{Value, json};

use crate::support::api::{Settled, observe, plan_of, settle, settle_projection};
use crate::support::{NOON, binding, exclusive, fleet, key, member, with};

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
        assert_eq!(
            left.object.unwrap()["status"]["credentialProviders"],
            json!([old]),
            "{server:?}"
        );
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
fn our_entry_keeps_its_position_and_a_new_one_is_appended() {
    let (a, z) = (provider("a", "https://a"), provider("z", "https://z"));
    let ours = |server: &str| provider("ours", server);
    let before = json!({ "status": { "accessProviders": [a, ours("https://old"), z] } });
    for (desired, after) in [
        (provisioner("ours", Some("https://new")), json!([a, ours("https://new"), z])),
        (provisioner("ours", None), json!([a, z])),
        (
            provisioner("b", Some("https://b")),
            json!([a, ours("https://old"), z, provider("b", "https://b")]),
        ),
    ] {
        let left = provisioned(with(settled(), &before), desired).object.unwrap();
        assert_eq!(left["status"]["accessProviders"], after);
    }
}

#[test]
fn an_owner_that_withdraws_the_last_provider_takes_the_list_with_it() {
    let object = with(
        settled(),
        &json!({ "status": { "accessProviders": [provider("ours", "https://a")] } }),
    );
    let ProfilePlan { action: ProfileAction::PatchStatus(_, patch), .. } =
        provision(Some(&object), provisioner("ours", None))
    else {
        panic!("nothing is withdrawn")
    };
    assert_eq!(patch, json!({ "status": { "accessProviders": null } }));
    assert_eq!(
        provision(Some(&settled()), provisioner("ours", None)).action,
        ProfileAction::Nothing
    );
}

#[test]
fn an_owner_that_does_not_project_writes_only_into_living_profiles_that_carry_our_label_and_spec() {
    let desired = || provisioner("ours", Some("https://proxy/c1"));
    assert_eq!(
        provision(None, desired()),
        ProfilePlan::default(),
        "there is no profile to write into"
    );
    for edit in [
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": null } } }),
        json!({ "metadata": { "labels": { "x-k8s.io/cluster-manager": "other" } } }),
        json!({ "spec": { "clusterManager": { "name": "other" } } }),
        json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["argocd.example.com/hold"] } }),
    ] {
        assert_eq!(
            provision(Some(&with(settled(), &edit)), desired()),
            ProfilePlan::default(),
            "{edit}"
        );
    }
    // What else differs is the projector's business.
    let drifted =
        with(settled(), &json!({ "spec": { "displayName": "x" }, "status": { "version": null } }));
    let ProfilePlan { action: ProfileAction::PatchStatus(_, patch), .. } =
        provision(Some(&drifted), desired())
    else {
        panic!("nothing is provided")
    };
    assert_eq!(
        patch,
        json!({ "status": { "accessProviders": [provider("ours", "https://proxy/c1")] } })
    );
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
        assert!(
            plan.findings[0].message.contains(&format!("has {count} entries")),
            "{:?}",
            plan.findings
        );
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
        assert_eq!(
            (after["status"]["version"]["kubernetes"].as_str(), writes.len()),
            (Some("v9"), 1)
        );
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
    assert!(
        plan.findings[0].message.contains("\"b\"") && !plan.findings[0].message.contains("\"a\""),
        "{:?}",
        plan.findings
    );
}

#[test]
fn of_our_entries_in_a_list_that_is_too_long_those_that_differ_are_reported() {
    let before = provisioner_of_two("https://a", "https://b");
    let mut long = provisioned(with_others(62), before).object.unwrap();
    long["status"]["accessProviders"]
        .as_array_mut()
        .unwrap()
        .push(provider("p62", "https://other"));
    let plan = provision(Some(&long), provisioner_of_two("https://new", "https://b"));
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
    let changed =
        provisioned(profile(63), provisioner("ours", Some("https://new"))).object.unwrap();
    assert_eq!(changed["status"]["accessProviders"][63]["cluster"]["server"], "https://new");
}
