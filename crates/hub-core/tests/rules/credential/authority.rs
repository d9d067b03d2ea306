//! The preconditions of a copy: a binding that grants the cluster, an account that opts in, and the Secret that its own
//! agent has written. The scene is account `kueue` of cluster `c1` and namespace `team`.

use hub_api::labels::{
    CLUSTER_MANAGER, CLUSTER_NAME, IS_MANAGED_SERVICE_ACCOUNT, SYNC_TO_CLUSTER_PROFILE,
};
use hub_core::credential::index::{Refused, SyncSettings};
use hub_core::credential::plan::CopyAction;
use hub_core::credential::state::State;
use hub_core::token_names::token_names;
use serde_json::{Value, json};

use crate::support::credential::{
    Arrival, World, account_key, annotated, base64, profile, scene, scene_key, scene_with,
    secret_key, token,
};
use crate::support::{binding, member, with};

/// The state of the scene's account in `team`, which agrees with whether a copy is created.
fn state(world: &World) -> State {
    let plan = world.copy_plan();
    let state = world.copy_state().unwrap_or(State::NotAsked);
    assert_eq!(matches!(plan.action, CopyAction::Create(_)), state == State::Synced, "{plan:?}");
    assert!(matches!(plan.action, CopyAction::Create(_) | CopyAction::Nothing), "{plan:?}");
    state
}

/// The same with an existing copy or Secret.
fn standing(world: &World) -> State {
    world.copy_state().unwrap()
}

#[test]
fn a_copy_contains_token_and_certificates_is_owned_by_the_profile_and_records_its_account() {
    let CopyAction::Create(made) = World::of(scene()).plan(&scene_key()).action else {
        panic!("no copy")
    };
    assert_eq!(
        serde_json::to_value(made).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "namespace": "team",
                "name": "c1-kueue",
                "labels": { "authentication.open-cluster-management.io/synced-from": "c1-kueue" },
                "annotations": {
                    "authentication.open-cluster-management.io/cluster-name": "c1",
                    "authentication.open-cluster-management.io/managed-serviceaccount": "kueue",
                    "authentication.open-cluster-management.io/managed-serviceaccount-uid":
                        "uid-of-account-c1/kueue",
                },
                "ownerReferences": [{
                    "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": "c1",
                    "uid": "uid-of-profile-team/c1", "controller": true,
                }],
            },
            "type": "Opaque",
            "data": { "ca.crt": base64("ca-of-c1"), "token": base64("token-of-c1/kueue") },
        })
    );
}

#[test]
fn a_profile_that_was_created_manually_grants_nothing_whatever_its_labels() {
    for labels in [
        json!({ CLUSTER_MANAGER: "open-cluster-management", CLUSTER_NAME: "c1" }),
        json!({ "multicluster.x-k8s.io/clusterset": "prod" }),
        json!({ SYNC_TO_CLUSTER_PROFILE: "true", IS_MANAGED_SERVICE_ACCOUNT: "true" }),
    ] {
        let forged = with(profile("mallory", "c1"), &json!({ "metadata": { "labels": labels } }));
        let mut world = World::of(scene());
        world.arrive(&forged);
        world.settle();
        assert_eq!(world.secrets.keys().collect::<Vec<_>>(), [&scene_key()]);
        let key = secret_key("mallory", "c1-kueue");
        assert_eq!(world.state(&key, &account_key("c1", "kueue")), Some(State::NotGranted));
    }
}

#[test]
fn only_the_label_value_true_asks() {
    let values = ["True", "TRUE", "1", "yes", "", "false", " true"];
    let labels = values.map(|value| json!({ SYNC_TO_CLUSTER_PROFILE: value }));
    for labels in labels.into_iter().chain([json!(null)]) {
        let patch = json!({ "metadata": { "labels": labels } });
        let world = World::of(scene_with("ManagedServiceAccount", &patch));
        assert_eq!(state(&world), State::NotAsked, "{labels}");
    }
}

#[test]
fn the_annotation_narrows_and_an_empty_one_narrows_to_nothing() {
    for (annotation, expected) in [
        ("team", State::Synced),
        ("ops, team", State::Synced),
        ("ops", State::OutOfScope),
        ("teams,tea", State::OutOfScope),
        ("*", State::OutOfScope),
        ("TEAM", State::OutOfScope),
        (",", State::OutOfScope),
        ("", State::OutOfScope),
    ] {
        assert_eq!(state(&World::of(annotated(annotation))), expected, "{annotation:?}");
    }
}

#[test]
fn the_annotation_never_widens_what_is_granted() {
    let mut world = World::of(annotated("team,kube-system"));
    world.arrive(&profile("kube-system", "c1"));
    world.settle();
    assert_eq!(world.secrets.keys().collect::<Vec<_>>(), [&scene_key()]);
}

#[test]
fn a_hub_can_ask_for_the_annotation() {
    let settings = || SyncSettings { require_namespaces: true, ..SyncSettings::default() };
    assert_eq!(state(&World::set_up(settings(), scene())), State::OutOfScope);
    assert_eq!(state(&World::set_up(settings(), annotated("team"))), State::Synced);
    assert_eq!(state(&World::set_up(settings(), annotated(""))), State::OutOfScope);
}

#[test]
fn no_token_of_the_user_servers_account_is_copied_or_watched_whatever_its_labels() {
    for name in ["hub-addons-user-server", "hub-addons-user-server-2"] {
        let objects: Vec<_> = scene()
            .into_iter()
            .map(|object| serde_json::from_str(&object.to_string().replace("kueue", name)).unwrap())
            .collect();
        let mut world = World::of(objects);
        world.settle();
        let key = account_key("c1", name);
        let state = world.state(&secret_key("team", &key.copy_name()), &key);
        assert_eq!(state, Some(State::ReservedAccount));
        assert!(world.secrets.is_empty() && token_names(&world.fleet, [&key]).names.is_empty());
        assert!(world.index.reach.changed_names().is_none_or(|(names, _)| names.is_empty()));
        assert_eq!(world.report(&key).unwrap().reason, "ReservedAccount");
    }
}

#[test]
fn only_the_secret_that_the_accounts_agent_has_made_is_copied() {
    let owner = |uid: &str| json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ManagedServiceAccount", "name": "kueue", "uid": uid }] } });
    for patch in [
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "labels": { IS_MANAGED_SERVICE_ACCOUNT: "True" } } }),
        json!({ "type": "kubernetes.io/service-account-token" }),
        json!({ "type": null }),
        json!({ "metadata": { "ownerReferences": null } }),
        owner("uid-of-an-earlier-account"),
    ] {
        assert_eq!(state(&World::of(scene_with("Secret", &patch))), State::ForeignToken, "{patch}");
    }
    let one_of_two = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" },
        { "apiVersion": "v1", "kind": "ManagedServiceAccount", "name": "kueue", "uid": "uid-of-account-c1/kueue" },
    ] } });
    assert_eq!(state(&World::of(scene_with("Secret", &one_of_two))), State::Synced);
}

#[test]
fn a_secret_of_another_name_is_not_read_whatever_the_status_says() {
    let elsewhere = json!({ "status": { "tokenSecretRef": { "name": "cluster-admin" } } });
    let mut world = World::of(scene_with("ManagedServiceAccount", &elsewhere));
    // Even where it looks like the account's own.
    let lure = with(token("c1", "kueue"), &json!({ "metadata": { "name": "cluster-admin" } }));
    world.arrive(&lure);
    assert_eq!(state(&world), State::TokenElsewhere);
    world.settle();
    assert!(world.secrets.is_empty());
}

#[test]
fn a_profile_that_does_not_name_our_manager_never_becomes_the_owner_of_a_copy_and_keeps_the_one_it_owns()
 {
    let stripped = json!({ "metadata": { "labels": null } });
    let unreadable = json!({ "spec": null });
    for nameless in [stripped, unreadable] {
        let world = World::of(scene_with("ClusterProfile", &nameless));
        assert_eq!(state(&world), State::ForeignProfile);
        let mut world = World::settled_scene();
        let nameless = with(profile("team", "c1"), &nameless);
        world.arrive(&nameless);
        assert_eq!(world.next(), CopyAction::Nothing);
        world.arrive(&with(nameless, &json!({ "metadata": { "uid": "uid-of-another" } })));
        assert_eq!(world.next(), CopyAction::DeleteByUid(world.copy_version().uid));
    }
}

#[test]
fn the_hubs_own_namespaces_and_those_of_clusters_receive_no_credential() {
    for namespace in ["open-cluster-management-addon", "multicluster-engine", "kube-system", "c2"] {
        let mut world = World::of(scene());
        for object in [binding(namespace, "prod"), profile(namespace, "c1"), member("c2", "dev")] {
            world.arrive(&object);
        }
        let key = secret_key(namespace, "c1-kueue");
        assert_eq!(world.state(&key, &account_key("c1", "kueue")), Some(State::ProtectedNamespace));
        world.settle();
        assert_eq!(world.secrets.keys().collect::<Vec<_>>(), [&scene_key()], "{namespace}");
    }
}

#[test]
fn a_namespace_becomes_protected_when_a_cluster_of_its_name_joins_and_not_when_one_is_created() {
    let mut world = World::settled_scene();
    let named = with(member("team", "dev"), &json!({ "status": { "conditions": [] } }));
    world.arrive(&named);
    assert_eq!(world.next(), CopyAction::Nothing);
    let Arrival::Touches(touched) = world.arrive(&member("team", "dev")) else {
        panic!("no cluster")
    };
    assert!(world.concerned(&touched).0.contains(&scene_key()));
    world.settle();
    assert!(world.secrets.is_empty());
}

#[test]
fn which_namespaces_are_protected_can_be_configured() {
    let settings = SyncSettings { protected: "team".parse().unwrap(), ..SyncSettings::default() };
    assert_eq!(state(&World::set_up(settings, scene())), State::ProtectedNamespace);
}

const OLD: Option<&str> = Some("2026-01-01T00:00:00Z");
const NEW: Option<&str> = Some("2026-02-01T00:00:00Z");

/// The scene where the cluster was created, the account created and the token written at these times.
fn at(
    cluster: Option<&str>,
    account: Option<&str>,
    created: Option<&str>,
    written: Option<&str>,
) -> Vec<Value> {
    let fields = json!({ "f:data": { ".": {}, "f:token": {} } });
    let entry = |time| json!({ "manager": "agent", "operation": "Update", "time": time, "fieldsV1": fields });
    let managed = json!({ "metadata": { "creationTimestamp": created, "managedFields": written.map(|time| [entry(time)]) } });
    let created = |time| json!({ "metadata": { "creationTimestamp": time } });
    let edit = |object: Value| match object["kind"].as_str() {
        Some("ManagedCluster") => with(object, &created(cluster)),
        Some("ManagedServiceAccount") => with(object, &created(account)),
        Some("Secret") => with(object, &managed),
        _ => object,
    };
    scene().into_iter().map(edit).collect()
}

#[test]
fn a_token_that_was_reported_before_its_cluster_was_created_is_not_synced_until_it_is_reported_again()
 {
    const LATER: Option<&str> = Some("2026-02-01T00:00:01Z");
    for (what, objects, expected) in [
        ("inherited", at(NEW, OLD, OLD, OLD), State::EarlierToken),
        ("and nobody recorded who wrote it", at(NEW, OLD, OLD, None), State::EarlierToken),
        ("rotated in place", at(NEW, OLD, OLD, LATER), State::Synced),
        ("in the same second", at(NEW, OLD, OLD, NEW), State::Synced),
        ("made anew", at(NEW, OLD, LATER, None), State::Synced),
        ("of a later account", at(NEW, LATER, OLD, OLD), State::Synced),
        ("of a cluster that was there before", at(OLD, OLD, NEW, NEW), State::Synced),
        ("where no time is known", at(None, None, None, None), State::Synced),
    ] {
        assert_eq!(state(&World::of(objects)), expected, "{what}");
    }
    let settings = SyncSettings { trust_restored: true, ..SyncSettings::default() };
    let from_backup = World::set_up(settings, at(NEW, OLD, OLD, OLD));
    assert_eq!(state(&from_backup), State::Synced);
}

#[test]
fn a_change_of_a_label_does_not_make_a_token_younger() {
    let fields = json!({ "f:metadata": { "f:labels": { "f:x": {} } } });
    let entry = json!({ "manager": "kubectl-label", "operation": "Update", "time": "2026-03-01T00:00:00Z", "fieldsV1": fields });
    let mut objects = at(NEW, OLD, OLD, None);
    for object in objects.iter_mut().filter(|object| object["kind"] == "Secret") {
        object["metadata"]["managedFields"] = json!([entry]);
    }
    assert_eq!(state(&World::of(objects)), State::EarlierToken);
}

#[test]
fn a_write_that_the_api_server_refuses_is_a_state_of_its_own_and_is_planned_all_the_same() {
    let mut world = World::of(scene());
    world.index.set_refused(&scene_key(), Some(Refused::Write));
    assert_eq!(standing(&world), State::WriteRefused);
    assert!(matches!(world.next(), CopyAction::Create(_)));
    let mut world = World::settled_scene();
    world.index.set_refused(&scene_key(), Some(Refused::Write));
    assert_eq!(standing(&world), State::Synced, "nothing is left to write");
    world.rotate();
    assert_eq!(standing(&world), State::WriteRefused);
    world.index.set_refused(&scene_key(), None);
    assert_eq!(standing(&world), State::Synced);

    let mut world = World::settled_scene();
    world.leave(&binding("team", "prod"));
    assert_eq!(standing(&world), State::NotGranted);
    world.index.set_refused(&scene_key(), Some(Refused::Delete));
    assert_eq!(standing(&world), State::DeleteRefused);
    assert_eq!(world.copy_plan().refused(), Refused::Delete);
    world.arrive(&binding("team", "prod"));
    assert_eq!(standing(&world), State::Synced, "it is wanted again");
}

#[test]
fn a_copy_that_is_about_to_exist_counts_as_one_that_does() {
    let mut world = World::of(scene());
    assert_eq!(world.copy_state(), Some(State::Synced));
    world.settle();
    assert_eq!(world.copy_state(), Some(State::Synced));
    world.leave(&binding("team", "prod"));
    assert_eq!(world.copy_state(), Some(State::NotGranted));
}
