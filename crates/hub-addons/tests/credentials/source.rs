//! Which Secret's token is copied, which of its data, and how a new token reaches existing copies, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    Scene, content, copied, copy, profile, rotated, scene, source, team, token, withheld,
};
use crate::support::world::{create, get, merge};
use k8s_openapi::ByteString;
use local_hub::Flavour;
use local_hub::ocm::{self, ServiceAccountToken};
use serde_json::json;

/// A token as the agent reports it, except for a test's change.
async fn reported(scene: &Scene, token: &ServiceAccountToken, change: impl Fn(ocm::Object) -> ocm::Object) {
    let account = token.account();
    ocm::namespace(account.namespace().unwrap()).create(&scene.ocm).await.unwrap();
    account.create(&scene.ocm).await.unwrap();
    let uid = get(&scene.ocm, &account).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    change(token.secret(&uid)).create(&scene.ocm).await.unwrap();
}

#[tokio::test]
async fn nothing_but_token_and_authority_is_copied() {
    let scene = scene(Flavour::Map).await;
    team(&scene.ocm, "more", &["more-1", "more-2"]).await;
    let [token, bare] = ["more-1", "more-2"].map(|cluster| token(cluster, "app"));
    let more = json!({ "data": { "kubeconfig": "eA==", "huge": ByteString(vec![b'x'; 900_000]) } });
    reported(&scene, &token, |secret| secret.field("stringData", json!({ "namespace": "x" }))).await;
    copied(&scene.ocm, "more", &token).await;
    merge(&scene.ocm, &source(&token), &more).await;
    let token = rotated(&token, 1);
    merge(&scene.ocm, &source(&token), &json!({ "data": { "token": ByteString(token.token_bytes()) } }))
        .await;
    // Exactly these two keys, which `copied` checks.
    copied(&scene.ocm, "more", &token).await;

    // A cluster whose API server has a publicly trusted certificate.
    bare.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "more", &bare).await;
    merge(&scene.ocm, &source(&bare), &json!({ "data": { "ca.crt": null } })).await;
    local_hub::eventually("the copy has no authority", crate::support::SOON, async || {
        let shown = get(&scene.ocm, &copy("more", &bare)).await.unwrap();
        shown["data"] == json!({ "token": ByteString(bare.token_bytes()) })
    })
    .await;
}

#[tokio::test]
async fn an_invalid_token_keeps_the_copy_and_the_next_one_replaces_it() {
    let scene = scene(Flavour::Map).await;
    let long = vec![b'a'; 65 * 1024];
    let broken: [(&str, &[u8]); 6] = [
        ("no-utf8", &[0xff, 0xfe, b'a']),
        ("line", b"with a\nline end"),
        ("empty", b""),
        ("zero", b"a\0b"),
        ("huge", &long),
        ("no", b""),
    ];
    team(&scene.ocm, "bad", &["bad-1"]).await;
    let tokens = broken.map(|(account, _)| token("bad-1", account));
    let good = token("bad-1", "good");
    ocm::create_tokens(&scene.ocm, tokens.iter().cloned().chain([good.clone()])).await.unwrap();
    let mut before = Vec::new();
    for token in &tokens {
        before.push(copied(&scene.ocm, "bad", token).await);
    }
    for (token, (account, bytes)) in tokens.iter().zip(broken) {
        let bytes = (account != "no").then(|| ByteString(bytes.to_vec()));
        merge(&scene.ocm, &source(token), &json!({ "data": { "token": bytes } })).await;
    }
    // Other copies are still updated.
    let good = rotated(&good, 1);
    good.report(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "bad", &good).await;
    for (token, before) in tokens.iter().zip(&before) {
        let message = withheld(&scene.ocm, token, "UnusableToken").await;
        assert!(message.contains("an existing copy is kept"), "{message}");
        assert_eq!(get(&scene.ocm, &copy("bad", token)).await.as_ref(), Some(before));
    }
    for token in &tokens {
        let token = rotated(token, 1);
        token.report(&scene.ocm).await.unwrap();
        copied(&scene.ocm, "bad", &token).await;
        content(&scene.ocm, &token).await;
    }
}

#[tokio::test]
async fn a_new_token_reaches_every_namespace() {
    let scene = scene(Flavour::Map).await;
    team(&scene.ocm, "rot", &["rot-1"]).await;
    let others: Vec<String> = (0..6).map(|number| format!("rot-{number}")).collect();
    for namespace in &others {
        create(&scene.ocm, [ocm::namespace(&format!("{namespace}-ns"))]).await;
        let namespace = format!("{namespace}-ns");
        create(&scene.ocm, [profile(&namespace, "rot-1"), ocm::bound(&namespace, "rot")]).await;
    }
    let first = token("rot-1", "app");
    first.create(&scene.ocm).await.unwrap();
    for round in 0..4 {
        let token = if round == 0 { first.clone() } else { rotated(&first, round) };
        token.report(&scene.ocm).await.unwrap();
        for namespace in &others {
            copied(&scene.ocm, &format!("{namespace}-ns"), &token).await;
        }
        copied(&scene.ocm, "rot", &token).await;
    }
    // As with many concurrent writes: the last one counts.
    for round in 10..30 {
        rotated(&first, round).report(&scene.ocm).await.unwrap();
    }
    for namespace in &others {
        copied(&scene.ocm, &format!("{namespace}-ns"), &rotated(&first, 29)).await;
    }
}
