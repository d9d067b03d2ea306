//! Where tokens are copied: only where a binding grants the cluster and the account opts in, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    cluster, copied, label, narrow, profile, scene, secrets, strict_scene, team, token, withdrawn,
};
use crate::support::flavours::on_each_version;
use crate::support::world::{create, delete, get, merge, merge_status};
use local_hub::Flavour;
use local_hub::ocm;
use serde_json::json;

on_each_version!(
    a_profile_made_by_hand_in_a_namespace_without_a_binding_gets_nothing,
    a_cluster_that_no_bound_set_picks_is_copied_nowhere,
    a_binding_grants_when_it_is_bound_and_not_before,
    a_token_goes_to_every_namespace_that_its_cluster_is_granted_to,
    an_account_asks_with_the_value_true_and_no_other,
    an_annotation_narrows_where_a_token_goes_and_can_change,
    two_clusters_that_swap_namespaces_take_their_tokens_with_them,
);

async fn a_profile_made_by_hand_in_a_namespace_without_a_binding_gets_nothing(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "hand", &["hand-1"]).await;
    // It has every label, and exists beside the right one.
    create(&scene.ocm, [ocm::namespace("hand-none"), profile("hand-none", "hand-1")]).await;
    let token = token("hand-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "hand", &token).await;
    scene.caught_up().await;
    assert!(secrets(&scene.ocm, "hand-none").await.is_empty());

    // The set's name on the profile is not a binding either.
    let labels = json!({ "multicluster.x-k8s.io/clusterset": "hand", "changed": "yes" });
    merge(&scene.ocm, &profile("hand-none", "hand-1"), &json!({ "metadata": { "labels": labels } })).await;
    scene.caught_up().await;
    assert!(secrets(&scene.ocm, "hand-none").await.is_empty());
}

async fn a_cluster_that_no_bound_set_picks_is_copied_nowhere(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "picked", &["picked-1"]).await;
    create(&scene.ocm, [cluster("picked-2", "another"), profile("picked", "picked-2")]).await;
    let [picked, not] = ["picked-1", "picked-2"].map(|cluster| token(cluster, "app"));
    ocm::create_tokens(&scene.ocm, [picked.clone(), not.clone()]).await.unwrap();
    copied(&scene.ocm, "picked", &picked).await;
    scene.caught_up().await;
    assert_eq!(secrets(&scene.ocm, "picked").await, ["picked-1-app"]);

    ocm::ManagedCluster::named("picked-2").in_set("picked").update(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "picked", &not).await;
}

async fn a_binding_grants_when_it_is_bound_and_not_before(flavour: Flavour) {
    let scene = scene(flavour).await;
    let unbound = ocm::unbound("unbound", "unbound");
    create(&scene.ocm, [ocm::namespace("unbound"), ocm::cluster_set("unbound"), unbound.clone()]).await;
    create(&scene.ocm, [cluster("unbound-1", "unbound"), profile("unbound", "unbound-1")]).await;
    let token = token("unbound-1", "app");
    token.create(&scene.ocm).await.unwrap();
    scene.caught_up().await;
    assert!(secrets(&scene.ocm, "unbound").await.is_empty());
    let condition = json!({
        "type": "Bound", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    merge_status(&scene.ocm, &unbound, &json!({ "conditions": [condition] })).await;
    copied(&scene.ocm, "unbound", &token).await;
}

async fn a_token_goes_to_every_namespace_that_its_cluster_is_granted_to(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "every", &["every-1"]).await;
    let token = token("every-1", "app");
    token.create(&scene.ocm).await.unwrap();
    for namespace in ["every-a", "every-b"] {
        let objects = [profile(namespace, "every-1"), ocm::bound(namespace, "every")];
        ocm::namespace(namespace).create(&scene.ocm).await.unwrap();
        create(&scene.ocm, objects).await;
    }
    for namespace in ["every", "every-a", "every-b"] {
        copied(&scene.ocm, namespace, &token).await;
    }
    scene.shared.addons.measures_at_least("hub_addons_credentials_unscoped", 1.0).await;
    // Every account of every cluster, with its own name.
    let other = crate::support::credentials::token("every-1", "other");
    other.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "every-b", &other).await;
    assert_eq!(secrets(&scene.ocm, "every-b").await, ["every-1-app", "every-1-other"]);
}

async fn an_account_asks_with_the_value_true_and_no_other(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "asks", &["asks-1"]).await;
    let silent = ocm::ServiceAccountToken::of("asks-1", "silent");
    let said = ["false", "", "True", "yes"].map(|value| {
        let account = format!("said-{}", value.to_lowercase());
        let account = account.trim_end_matches('-');
        let account = if value == "True" { "said-capital" } else { account };
        ocm::ServiceAccountToken::of("asks-1", account).label(ocm::SYNC_LABEL, value)
    });
    ocm::create_tokens(&scene.ocm, said.iter().cloned().chain([silent.clone()])).await.unwrap();
    scene.caught_up().await;
    assert!(secrets(&scene.ocm, "asks").await.is_empty());

    for token in [&silent, &said[0]] {
        label(&scene.ocm, token, Some("true")).await;
        copied(&scene.ocm, "asks", token).await;
    }
    label(&scene.ocm, &silent, Some("false")).await;
    withdrawn(&scene.ocm, "asks", &silent).await;
    label(&scene.ocm, &said[0], None).await;
    withdrawn(&scene.ocm, "asks", &said[0]).await;
}

async fn an_annotation_narrows_where_a_token_goes_and_can_change(flavour: Flavour) {
    let scene = scene(flavour).await;
    let namespaces = ["narrow", "narrow-a", "narrow-b"];
    team(&scene.ocm, "narrow", &["narrow-1"]).await;
    for namespace in &namespaces[1..] {
        create(&scene.ocm, [ocm::namespace(namespace), profile(namespace, "narrow-1")]).await;
        create(&scene.ocm, [ocm::bound(namespace, "narrow")]).await;
    }
    let token = token("narrow-1", "app").annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "narrow-a, elsewhere");
    token.create(&scene.ocm).await.unwrap();
    let is_in = async |expected: &[&str]| {
        for namespace in namespaces {
            if expected.contains(&namespace) {
                copied(&scene.ocm, namespace, &token).await;
            } else {
                withdrawn(&scene.ocm, namespace, &token).await;
            }
        }
    };
    is_in(&["narrow-a"]).await;
    scene.caught_up().await;
    is_in(&["narrow-a"]).await;
    let before = copied(&scene.ocm, "narrow-a", &token).await;
    narrow(&scene.ocm, &token, Some("narrow-b,narrow-a")).await;
    is_in(&["narrow-a", "narrow-b"]).await;
    assert_eq!(copied(&scene.ocm, "narrow-a", &token).await, before, "it may stay, and is not touched");
    narrow(&scene.ocm, &token, Some("narrow-b")).await;
    is_in(&["narrow-b"]).await;
    // An empty annotation opts in to no namespace.
    narrow(&scene.ocm, &token, Some("")).await;
    is_in(&[]).await;
    narrow(&scene.ocm, &token, None).await;
    is_in(&namespaces).await;
    narrow(&scene.ocm, &token, Some(" , narrow-a,, NOT-ONE, narrow/b")).await;
    is_in(&["narrow-a"]).await;
}

#[tokio::test]
async fn where_accounts_must_name_their_namespaces_one_that_does_not_is_copied_nowhere() {
    let scene = strict_scene().await;
    team(&scene.ocm, "strict", &["strict-1"]).await;
    let [silent, named] = ["silent", "named"].map(|account| token("strict-1", account));
    let named = named.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "strict");
    ocm::create_tokens(&scene.ocm, [silent.clone(), named.clone()]).await.unwrap();
    copied(&scene.ocm, "strict", &named).await;
    let message = crate::support::credentials::withheld(&scene.ocm, &silent, "OutOfScope").await;
    assert!(message.contains("sync-to-namespaces"), "{message}");
    assert_eq!(secrets(&scene.ocm, "strict").await, ["strict-1-named"]);

    narrow(&scene.ocm, &silent, Some("strict")).await;
    copied(&scene.ocm, "strict", &silent).await;
    narrow(&scene.ocm, &named, None).await;
    withdrawn(&scene.ocm, "strict", &named).await;
}

async fn two_clusters_that_swap_namespaces_take_their_tokens_with_them(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "swap-a", &["swap-1"]).await;
    team(&scene.ocm, "swap-b", &["swap-2"]).await;
    create(&scene.ocm, [profile("swap-a", "swap-2"), profile("swap-b", "swap-1")]).await;
    let [one, two] = ["swap-1", "swap-2"].map(|cluster| token(cluster, "app"));
    ocm::create_tokens(&scene.ocm, [one.clone(), two.clone()]).await.unwrap();
    let (mut of_a, mut of_b) = ((&one, "swap-1"), (&two, "swap-2"));
    for _ in 0..4 {
        for (namespace, mine, others) in [("swap-a", of_a, of_b), ("swap-b", of_b, of_a)] {
            copied(&scene.ocm, namespace, mine.0).await;
            withdrawn(&scene.ocm, namespace, others.0).await;
        }
        (of_a, of_b) = (of_b, of_a);
        for (set, (_, cluster)) in [("swap-a", of_a), ("swap-b", of_b)] {
            ocm::ManagedCluster::named(cluster).in_set(set).update(&scene.ocm).await.unwrap();
        }
    }
    // No profile of a cluster is changed because of its token.
    assert!(get(&scene.ocm, &profile("swap-a", "swap-2")).await.is_some());
    delete(&scene.ocm, &ocm::bound("swap-a", "swap-a")).await;
    withdrawn(&scene.ocm, "swap-a", of_a.0).await;
    copied(&scene.ocm, "swap-b", of_b.0).await;
}
