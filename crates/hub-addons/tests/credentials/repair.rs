//! Copies that were edited or deleted, on a real hub: while the syncer runs and while it does not.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    OF_ACCOUNT, OF_CLUSTER, OF_UID, SYNCED_FROM, copied, copy, hub, scene, syncer, team, token,
};
use crate::support::world::{delete, get, merge};
use futures::future::join_all;
use k8s_openapi::ByteString;
use kube::Client;
use local_hub::Flavour;
use local_hub::ocm::{self, ServiceAccountToken};
use serde_json::{Value, json};

/// A change of a copy.
enum Edit {
    Merge(Value),
    /// Adds another owner.
    AddOwner,
    /// Assigns it to an account whose names join to the same copy name.
    Reassign,
    /// Makes it immutable, with other data than it should have.
    Freeze,
    Delete,
}

fn edits() -> Vec<(&'static str, Edit)> {
    let data = |key: &str, value: Option<&[u8]>| {
        let value = value.map(|bytes| ByteString(bytes.to_vec()));
        Edit::Merge(json!({ "data": { key: value } }))
    };
    let labels = |value: Value| Edit::Merge(json!({ "metadata": { "labels": value } }));
    let annotations = |value: Value| Edit::Merge(json!({ "metadata": { "annotations": value } }));
    vec![
        ("token", data("token", Some(b"another"))),
        ("authority", data("ca.crt", Some(b"another"))),
        ("no-token", data("token", None)),
        ("no-authority", data("ca.crt", None)),
        ("more", data("kubeconfig", Some(b"more"))),
        ("nothing", Edit::Merge(json!({ "data": null }))),
        ("no-label", labels(json!({ SYNCED_FROM: null }))),
        ("label", labels(json!({ SYNCED_FROM: "another" }))),
        ("no-annotations", annotations(json!(null))),
        ("no-cluster", annotations(json!({ OF_CLUSTER: null }))),
        ("cluster", annotations(json!({ OF_CLUSTER: "another" }))),
        ("no-account", annotations(json!({ OF_ACCOUNT: null }))),
        ("account", annotations(json!({ OF_ACCOUNT: "another" }))),
        ("no-uid", annotations(json!({ OF_UID: null }))),
        ("uid", annotations(json!({ OF_UID: "another" }))),
        ("other", Edit::Reassign),
        (
            "nothing-of-ours",
            Edit::Merge(
                json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null } }),
            ),
        ),
        ("no-owner", Edit::Merge(json!({ "metadata": { "ownerReferences": [] } }))),
        ("owners", Edit::AddOwner),
        ("frozen", Edit::Freeze),
        ("deleted", Edit::Delete),
    ]
}

impl Edit {
    /// Whether it must be replaced. A copy of an account that does not exist is deleted, whichever account has the name
    /// then.
    fn ends_it(&self, is_seen: bool) -> bool {
        let Self::Merge(patch) = self else {
            // While no syncer runs, a changed record cannot be distinguished from a prepared one.
            return matches!(self, Self::Freeze | Self::Delete) || matches!(self, Self::Reassign) && !is_seen;
        };
        let labels = &patch["metadata"]["labels"];
        let strips_label = patch["metadata"].get("labels").is_some() && labels[SYNCED_FROM].is_null();
        let adds_data = patch["data"]["kubeconfig"].is_string();
        strips_label || adds_data || !is_seen && patch.get("data").is_some()
    }

    async fn make(&self, client: &Client, token: &ServiceAccountToken) {
        let copy = copy("edited", token);
        let patch = match self {
            Self::Delete => return delete(client, &copy).await,
            Self::Merge(patch) => patch.clone(),
            Self::Reassign => {
                json!({ "metadata": { "annotations": { OF_CLUSTER: "edited", OF_ACCOUNT: "1-other" } } })
            }
            Self::Freeze => json!({ "immutable": true, "data": { "token": ByteString(b"frozen".to_vec()) } }),
            Self::AddOwner => {
                let shown = get(client, &copy).await.unwrap();
                let mut owners = shown["metadata"]["ownerReferences"].as_array().unwrap().clone();
                let uid = get(client, &ocm::namespace("edited")).await.unwrap()["metadata"]["uid"].clone();
                owners.push(json!({ "apiVersion": "v1", "kind": "Namespace", "name": "edited", "uid": uid }));
                json!({ "metadata": { "ownerReferences": owners } })
            }
        };
        merge(client, &copy, &patch).await;
    }
}

/// One account for every edit, each with its copy.
async fn accounts(client: &Client) -> Vec<(Edit, ServiceAccountToken, Value)> {
    team(client, "edited", &["edited-1"]).await;
    let accounts: Vec<_> = edits().into_iter().map(|(name, edit)| (edit, token("edited-1", name))).collect();
    ocm::create_tokens(client, accounts.iter().map(|(_, token)| token.clone())).await.unwrap();
    join_all(accounts.into_iter().map(async |(edit, token)| {
        let copy = copied(client, "edited", &token).await;
        (edit, token, copy)
    }))
    .await
}

/// An edited copy is repaired, and not replaced if it is known to be the syncer's own: its watchers see no deletion.
async fn are_mended(client: &Client, accounts: &[(Edit, ServiceAccountToken, Value)], is_seen: bool) {
    for (edit, token, before) in accounts {
        let now = copied(client, "edited", token).await;
        let same = now["metadata"]["uid"] == before["metadata"]["uid"];
        assert_eq!(same, !edit.ends_it(is_seen), "{before} {now}");
    }
}

#[tokio::test]
async fn a_copy_edited_or_deleted_by_hand_is_restored() {
    let scene = scene(Flavour::Map).await;
    let accounts = accounts(&scene.ocm).await;
    for (edit, token, _) in &accounts {
        edit.make(&scene.ocm, token).await;
    }
    are_mended(&scene.ocm, &accounts, true).await;
}

#[tokio::test]
async fn a_copy_edited_or_deleted_while_no_syncer_ran_is_restored() {
    let hub = hub().await;
    let addons = syncer(&hub, &[]).await;
    let accounts = accounts(&hub.ocm).await;
    addons.stop().await;
    for (edit, token, _) in &accounts {
        edit.make(&hub.ocm, token).await;
    }
    let addons = syncer(&hub, &[]).await;
    are_mended(&hub.ocm, &accounts, false).await;
    addons.stop().await;
}
