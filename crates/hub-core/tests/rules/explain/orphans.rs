//! What is left of access that has ended is explained, wherever the grant has ended, and what holds it.

use std::collections::BTreeMap;

use hub_api::labels;
use hub_core::consumer_access::AccessKind;
use hub_core::explain::observed::{AccountPermission, Observed};
use hub_core::explain::{Question, Status, Step, explain};
use serde_json::{Value, json};

use super::scene::{Scene, one, parse, work};
use crate::support::consumer_access::object_of;
use crate::support::credential::{account, observe, secret_key, stranger};
use crate::support::{NOON, key, member, with};

/// A patch that moves a cluster to a set that is not bound.
fn elsewhere() -> Value {
    json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": "dev" } } })
}

/// `team` is no longer granted `c1`, and still granted `c2`.
fn moved() -> Scene {
    Scene::in_order().with("ManagedCluster", &elsewhere()).and(member("c2", "prod"))
}

/// Every question that includes `c1` in `team`.
fn questions() -> [Question; 3] {
    [
        one("team", "c1"),
        Question { namespaces: vec!["team".into()], ..Question::default() },
        Question::default(),
    ]
}

/// Step, object and command of the findings with this code about `c1` in `team`.
fn found(scene: &Scene, question: &Question, code: &str) -> Vec<(Step, String, String)> {
    let findings = explain(&scene.observed(), question).findings.into_iter();
    let found =
        findings.filter(|it| it.code.as_str() == code && it.cluster.as_deref() == Some("c1"));
    found
        .map(|it| {
            assert_eq!(
                (it.mark, it.account.as_deref()),
                (Status::Problem, Some("kueue")),
                "{it:?}"
            );
            (it.step, it.object.to_string(), it.fix.unwrap())
        })
        .collect()
}

fn owned<const N: usize>(expected: [(Step, &str, &str); N]) -> Vec<(Step, String, String)> {
    expected.map(|(step, object, fix)| (step, object.to_owned(), fix.to_owned())).into()
}

/// The copy as it was when `c1` was granted.
fn keep_copy(hub: &mut Observed) {
    let key = secret_key("team", "c1-kueue");
    let copy = Scene::in_order().observed().credentials.copy(&key).unwrap().clone();
    hub.credentials.apply_copy(&key, copy);
}

/// The marks of consumer access.
fn marks() -> Value {
    json!({ "app.kubernetes.io/managed-by": "hub-addons", "app.kubernetes.io/component": "consumer-access" })
}

fn maintained() -> Value {
    json!({ "metadata": { "labels": marks(), "annotations": { labels::SYNC_TO_NAMESPACES: "team" } } })
}

#[test]
fn a_copy_that_is_left_after_the_grant_is_a_problem_where_other_clusters_are_granted() {
    let left = |scene: Scene| scene.observing(|hub| hub.profiles.clear()).observing(keep_copy);
    let events = "kubectl events --namespace team --for secret/c1-kueue";
    let expected = owned([(Step::Credential, "Secret team/c1-kueue", events)]);
    let code = "CredentialNotWithdrawn";
    for question in &questions() {
        assert_eq!(found(&left(moved()), question, code), expected);
        assert_eq!(
            found(&moved().observing(keep_copy), question, code),
            expected,
            "beside its profile"
        );
        assert_eq!(found(&moved(), question, code), [], "the syncer has deleted it");
        let unbound = left(Scene::in_order().without("ManagedClusterSetBinding"));
        assert_eq!(
            found(&unbound, question, code),
            expected,
            "the last grant of the namespace has ended"
        );
        let gone = left(moved().without("ManagedCluster").and(member("c2", "prod")));
        assert_eq!(
            found(&gone, question, code),
            expected,
            "the hub does not have the cluster any more"
        );
        let other = moved().observing(|hub| {
            hub.credentials.apply_copy(
                &secret_key("team", "c1-kueue"),
                observe(&stranger("team", "c1-kueue")),
            );
        });
        assert_eq!(found(&other, question, code), [], "a Secret of another owner");
        let stopped = left(moved()).observing(|hub| {
            hub.leases.as_mut().unwrap().remove("credential-syncer");
        });
        let command =
            "kubectl get deployments --all-namespaces --selector app.kubernetes.io/name=hub-addons";
        assert_eq!(
            found(&stopped, question, code),
            owned([(Step::Credential, "Secret team/c1-kueue", command)])
        );
        let codes: Vec<_> = explain(&stopped.observed(), question).findings.into_iter().collect();
        assert!(
            codes
                .iter()
                .any(|it| it.code.as_str() == "ControllerNotFound" && it.mark == Status::Problem)
        );
        let unknown = left(moved()).observing(|hub| hub.knows_sets = false);
        assert_eq!(found(&unknown, question, code), [], "the cluster may be granted");
    }
    let other_account = Question { account: Some("other".into()), ..one("team", "c1") };
    assert_eq!(found(&left(moved()), &other_account, code), []);
}

#[test]
fn a_copy_that_ocms_syncer_made_is_left_like_one_of_ours() {
    let scene = moved().observing(|hub| {
        let owner = json!([{
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": "c1",
            "uid": hub.credentials.profile(&key("team", "c1")).unwrap().uid.to_string(), "controller": true,
        }]);
        let secret = with(
            stranger("team", "c1-kueue"),
            &json!({
                "metadata": { "labels": { labels::SYNCED_FROM: "c1-kueue" }, "ownerReferences": owner },
                "type": "Opaque", "data": { "password": null, "token": "b2xk", "ca.crt": "Y2E=" },
            }),
        );
        hub.credentials.apply_copy(&secret_key("team", "c1-kueue"), observe(&secret));
    });
    for question in &questions() {
        assert_eq!(found(&scene, question, "CredentialNotWithdrawn").len(), 1);
    }
}

#[test]
fn a_copy_of_an_account_that_does_not_ask_for_it_is_a_problem_also_of_a_cluster_that_is_granted() {
    let silent = json!({ "metadata": { "labels": { labels::SYNC_TO_CLUSTER_PROFILE: null } } });
    let code = "CredentialNotWithdrawn";
    for question in &questions() {
        for scene in [
            Scene::in_order().with("ManagedServiceAccount", &silent).and(account("c1", "other")),
            Scene::in_order().without("ManagedServiceAccount"),
        ] {
            assert_eq!(found(&scene, question, code), []);
            assert_eq!(found(&scene.observing(keep_copy), question, code).len(), 1);
        }
        // The step that fails first is the reason.
        let scene = Scene::in_order().without("Secret").observing(keep_copy);
        assert_eq!(found(&scene, question, code), []);
        assert_eq!(found(&scene, question, "NoToken").len(), 1);
    }
}

#[test]
fn an_account_of_a_consumer_that_is_left_after_the_grant_is_a_problem_also_of_the_whole_hub() {
    let delete = "kubectl delete managedserviceaccount kueue --namespace c1";
    let expected = owned([(Step::Account, "ManagedServiceAccount c1/kueue", delete)]);
    let code = "AccountNotWithdrawn";
    for question in &questions() {
        let granted = Scene::in_order().with("ManagedServiceAccount", &maintained());
        assert_eq!(found(&granted, question, code), [], "it is granted");
        assert_eq!(found(&moved(), question, code), [], "a person created the account");
        let scene = || moved().with("ManagedServiceAccount", &maintained());
        assert_eq!(found(&scene(), question, code), expected);
        let bare = scene().observing(|hub| hub.profiles.clear());
        assert_eq!(found(&bare, question, code), expected, "without a profile");
        let gone = bare.without("ManagedCluster").and(member("c2", "prod"));
        assert_eq!(
            found(&gone, question, code),
            expected,
            "the hub does not have the cluster any more"
        );
        let unbound = gone.without("ManagedClusterSetBinding");
        assert_eq!(
            found(&unbound, question, code),
            expected,
            "the last grant of the namespace has ended"
        );
    }
    let of_others =
        json!({ "metadata": { "annotations": { labels::SYNC_TO_NAMESPACES: "another" } } });
    let scene = moved().with("ManagedServiceAccount", &with(maintained(), &of_others));
    assert_eq!(found(&scene, &one("team", "c1"), code), []);
}

/// Permissions of each kind, as consumer access gives them.
fn permitted(hub: &mut Observed) {
    let marked = with(work("kueue", "True"), &json!({ "metadata": { "labels": marks() } }));
    let permission = object_of(AccessKind::ClusterPermission).to_string().replace("app", "kueue");
    let permission = with(
        serde_json::from_str(&permission).unwrap(),
        &json!({ "metadata": { "labels": marks() } }),
    );
    let mut permissions = AccountPermission::of_manifest_work(&marked);
    permissions.extend(AccountPermission::of_manifest_work(&marked));
    permissions.extend(AccountPermission::of_cluster_permission(&permission));
    hub.permissions.insert("c1".into(), permissions);
}

/// The permissions of `permitted`, with the commands that delete them.
fn both() -> Vec<(Step, String, String)> {
    owned([
        (
            Step::AccountPermission,
            "ManifestWork c1/permissions",
            "kubectl delete manifestwork permissions --namespace c1",
        ),
        (
            Step::AccountPermission,
            "ClusterPermission c1/hub-addons-consumer-kueue",
            "kubectl delete clusterpermission hub-addons-consumer-kueue --namespace c1",
        ),
    ])
}

/// `c1`, in every namespace.
fn of_cluster() -> Question {
    Question { clusters: vec!["c1".into()], ..Question::default() }
}

#[test]
fn permissions_of_an_account_that_is_left_after_the_grant_are_a_problem_of_its_namespace() {
    let code = "PermissionsNotWithdrawn";
    let granted =
        Scene::in_order().with("ManagedServiceAccount", &maintained()).observing(permitted);
    let left = moved().with("ManagedServiceAccount", &maintained()).observing(permitted);
    for question in [one("team", "c1"), of_cluster()] {
        assert_eq!(found(&granted, &question, code), [], "it is granted");
        assert_eq!(found(&left, &question, code), both());
        let findings = explain(&left.observed(), &question).findings.into_iter();
        let mut of_code = findings.filter(|it| it.code.as_str() == code);
        assert!(of_code.all(|it| it.namespace.as_deref() == Some("team")));
    }
    assert_eq!(found(&left, &one("other", "c1"), code), [], "another namespace");
}

#[test]
fn permissions_without_their_account_are_a_problem_of_the_cluster_once_and_of_no_namespace() {
    let code = "PermissionsNotWithdrawn";
    let gone = || Scene::in_order().without("ManagedServiceAccount").observing(permitted);
    let replaced = Scene::in_order().observing(permitted);
    // Of two namespaces, one is granted the cluster; without any, there is no pair.
    let nowhere = gone().without("ManagedClusterSetBinding").observing(|hub| hub.profiles.clear());
    for scene in [&gone(), &replaced, &nowhere] {
        assert_eq!(found(scene, &of_cluster(), code), both());
        let explained = explain(&scene.observed(), &of_cluster());
        let left = || explained.findings.iter().filter(|it| it.code.as_str() == code);
        assert!(left().all(|it| it.namespace.is_none()), "{explained:?}");
        let several = Question { namespaces: vec!["team".into(), "other".into()], ..of_cluster() };
        for question in [one("team", "c1"), one("other", "c1"), several] {
            let with = explain(&scene.observed(), &question);
            let left: Vec<_> = with.findings.iter().filter(|it| it.code.as_str() == code).collect();
            assert_eq!(left.len(), 2, "{with:?}");
            for finding in left {
                assert_eq!(
                    (finding.mark, &finding.namespace),
                    (Status::Unknown, &None),
                    "{finding:?}"
                );
                assert!(finding.message.contains("does not record the namespace"), "{finding:?}");
            }
            let mut without = scene.observed();
            without.permissions.values_mut().flatten().for_each(|it| it.is_maintained = false);
            let without = explain(&without, &question);
            assert_eq!(with.summary.problem, without.summary.problem, "no problem of a namespace");
        }
        let account = |name: &str| Question { account: Some(name.into()), ..of_cluster() };
        assert_eq!(found(scene, &account("kueue"), code), both());
        assert_eq!(found(scene, &account("other"), code), []);
    }
    // Permissions that people give are theirs.
    let by_hand = Scene::in_order().without("ManagedServiceAccount");
    assert_eq!(found(&by_hand, &of_cluster(), code), []);
    let unknown = gone().observing(|hub| {
        hub.credentials = hub_core::credential::index::CredentialIndex::default();
    });
    assert_eq!(found(&unknown, &of_cluster(), code), [], "the accounts cannot be read");
}

#[test]
fn a_finalizer_that_holds_the_object_of_a_problem_is_named_and_no_deletion_is_suggested() {
    let held = |kind: &'static str, namespace: Option<&str>, name: &str, finalizers: &[&str]| {
        let metadata = json!({
            "namespace": namespace, "name": name, "deletionTimestamp": NOON, "finalizers": finalizers,
        });
        (kind, parse(metadata))
    };
    let leaving = json!({ "metadata": { "deletionTimestamp": NOON } });
    let left = || moved().observing(keep_copy);
    let two = ["a/b", "c/d"];
    let finalizer = "a finalizer holds it: find the controller that owns the finalizer a/b";
    let cases = [
        (
            left(),
            held("Secret", Some("team"), "c1-kueue", &["a/b"]),
            ("CredentialNotWithdrawn", finalizer, "kubectl get secret c1-kueue --namespace team"),
        ),
        (
            left(),
            held("Secret", Some("team"), "c1-kueue", &two),
            (
                "CredentialNotWithdrawn",
                "finalizers hold it: find the controllers that own the finalizers a/b, c/d",
                "kubectl get secret c1-kueue --namespace team",
            ),
        ),
        (
            moved().with("ManagedServiceAccount", &maintained()),
            held("ManagedServiceAccount", Some("c1"), "kueue", &["a/b"]),
            (
                "AccountNotWithdrawn",
                finalizer,
                "kubectl get managedserviceaccount kueue --namespace c1",
            ),
        ),
        (
            Scene::in_order().with("ManagedCluster", &leaving),
            held("ManagedCluster", None, "c1", &["a/b"]),
            ("ClusterDeleting", finalizer, "kubectl get managedcluster c1"),
        ),
        (
            Scene::in_order().observing(|hub| {
                let permissions = AccountPermission::of_manifest_work(&work("kueue", "False"));
                hub.permissions.insert("c1".into(), permissions);
            }),
            held("ManifestWork", Some("c1"), "permissions", &["a/b"]),
            (
                "PermissionsNotApplied",
                finalizer,
                "kubectl get manifestwork permissions --namespace c1",
            ),
        ),
    ];
    for (scene, (kind, metadata), (code, message, command)) in cases {
        let mut hub = scene.observed();
        hub.apply_finalizers(kind, &metadata);
        let findings = explain(&hub, &one("team", "c1")).findings;
        let finding = findings.iter().find(|it| it.code.as_str() == code).unwrap();
        assert!(finding.message.ends_with(message), "{finding:?}");
        assert_eq!(
            (&*finding.field, &*finding.value),
            ("metadata.finalizers", &*metadata.finalizers.unwrap().join(", "))
        );
        let command = format!("{command} --output jsonpath='{{.metadata.managedFields}}'");
        assert_eq!(finding.fix.as_ref(), Some(&command));
    }
    // Where nothing is wrong, and where nothing is deleted, a finalizer is of no interest.
    let mut hub = Scene::in_order().observed();
    let (kind, mut metadata) = held("Secret", Some("team"), "c1-kueue", &["a/b"]);
    hub.apply_finalizers(kind, &metadata);
    assert_eq!(explain(&hub, &one("team", "c1")), Scene::in_order().explained());
    hub.held = BTreeMap::new();
    metadata.deletion_timestamp = None;
    hub.apply_finalizers(kind, &metadata);
    assert!(hub.held.is_empty());
    // A profile is read with its finalizers.
    let profile = json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["a/b"] } });
    let held = Scene::in_order().profile(&profile).explained();
    let finding = held.findings.iter().find(|it| it.code.as_str() == "ProfileTerminating").unwrap();
    assert!(finding.message.ends_with(finalizer), "{finding:?}");
}
