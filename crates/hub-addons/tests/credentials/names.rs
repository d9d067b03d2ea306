//! Foreign Secrets in place of copies, and accounts whose copies would have the same name, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    OF_ACCOUNT, OF_CLUSTER, SYNCED_FROM, content, copied, copy, label, name_of, profile, scene, secret, team,
    token, withheld,
};
use crate::support::world::{delete, get, merge, told};
use crate::support::{SOON, USER};
use kube::Client;
use local_hub::Flavour;
use local_hub::eventually;
use local_hub::ocm::{self, Object, ServiceAccountToken};
use serde_json::json;

/// A Secret of another owner.
fn foreign(namespace: &str, name: &str) -> Object {
    secret(namespace, name).field("stringData", json!({ "token": "theirs" }))
}

/// A way in which a foreign Secret resembles a copy.
type Guise = fn(Object) -> Object;

/// Every way that does not make it a copy.
const GUISES: [(&str, Guise); 8] = [
    ("bare", |secret| secret),
    ("type", |secret| secret.field("type", json!("example.com/another"))),
    ("immutable", |secret| secret.field("immutable", json!(true))),
    ("label", labelled),
    ("label-other", |secret| secret.label(SYNCED_FROM, "another")),
    ("label-immutable", |secret| labelled(secret).field("immutable", json!(true))),
    ("label-type", |secret| labelled(secret).field("type", json!("example.com/another"))),
    ("record", |secret| {
        let account = secret.name().strip_prefix("foreign-1-").unwrap().to_owned();
        secret.annotation(OF_CLUSTER, "foreign-1").annotation(OF_ACCOUNT, &account)
    }),
];

/// With the label of a copy of its name.
fn labelled(secret: Object) -> Object {
    let name = secret.name().to_owned();
    secret.label(SYNCED_FROM, &name)
}

/// Waits until the copy of a token has replaced a Secret that is gone: after a long time, the syncer checks for it
/// rarely.
async fn takes_its_place(client: &Client, namespace: &str, token: &ServiceAccountToken) {
    let copy = copy(namespace, token);
    eventually(&format!("{copy} is created"), SOON, async || get(client, &copy).await.is_some()).await;
    copied(client, namespace, token).await;
}

#[tokio::test]
async fn a_secret_of_another_owner_is_never_changed_and_replaced_by_the_copy_when_it_is_deleted() {
    let scene = scene(Flavour::Map).await;
    team(&scene.ocm, "foreign", &["foreign-1"]).await;
    let mut theirs = Vec::new();
    for (name, guise) in GUISES {
        let token = token("foreign-1", name);
        let secret = guise(foreign("foreign", &name_of(&token)));
        secret.create(&scene.ocm).await.unwrap();
        let before = get(&scene.ocm, &secret).await;
        theirs.push((token, secret, before));
    }
    // Nor because of its owner.
    let (bare, profile) = (&theirs[0].1, profile("foreign", "foreign-1"));
    let uid = get(&scene.ocm, &profile).await.unwrap()["metadata"]["uid"].clone();
    let owner = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": "foreign-1", "uid": uid,
        "controller": true,
    });
    merge(&scene.ocm, bare, &json!({ "metadata": { "ownerReferences": [owner] } })).await;
    theirs[0].2 = get(&scene.ocm, &theirs[0].1).await;

    let mark = scene.shared.hub.audit().mark().await.unwrap();
    ocm::create_tokens(&scene.ocm, theirs.iter().map(|(token, ..)| token.clone())).await.unwrap();
    for (token, secret, before) in &theirs {
        let note = told(&scene.ocm, secret, "ForeignSecret").await;
        assert!(note.contains(&format!("foreign-1/{}", token.account().name())), "{note}");
        withheld(&scene.ocm, token, "ForeignSecret").await;
        assert_eq!(get(&scene.ocm, secret).await, *before);
        // Nor when its account no longer opts in.
        label(&scene.ocm, token, None).await;
        content(&scene.ocm, token).await;
        label(&scene.ocm, token, Some("true")).await;
    }
    scene.caught_up().await;
    let asked = scene.shared.hub.audit().since(&mark).await.unwrap().of_user(USER);
    let asked = asked.matching(|request| request.namespace == "foreign" && request.resource == "secrets");
    assert_eq!(asked.count(|request| request.is_write() && request.verb != "create"), 0, "{asked}");
    // Rarely: a few times at first, and then once a minute.
    assert!(asked.count(|request| request.verb == "create") <= 10 * GUISES.len(), "{asked}");
    for (_, secret, before) in &theirs {
        assert_eq!(get(&scene.ocm, secret).await, *before);
        delete(&scene.ocm, secret).await;
    }
    for (token, ..) in &theirs {
        takes_its_place(&scene.ocm, "foreign", token).await;
        content(&scene.ocm, token).await;
    }
}
