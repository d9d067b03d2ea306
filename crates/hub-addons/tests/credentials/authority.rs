//! Where tokens are copied: only where a binding grants the cluster and the account opts in, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    copied, narrow, profile, scene, secrets, strict_scene, team, token, withdrawn,
};
use crate::support::world::{create, merge};
use local_hub::Flavour;
use local_hub::ocm;
use serde_json::json;

#[tokio::test]
async fn a_profile_made_by_hand_in_a_namespace_without_a_binding_gets_nothing() {
    let scene = scene(Flavour::Map).await;
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

#[tokio::test]
async fn a_token_goes_to_every_namespace_that_its_cluster_is_granted_to() {
    let scene = scene(Flavour::Map).await;
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

#[tokio::test]
async fn an_annotation_narrows_where_a_token_goes_and_can_change() {
    let scene = scene(Flavour::Map).await;
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
