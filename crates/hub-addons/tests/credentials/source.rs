//! Which Secret's token is copied, which of its data, and how a new token reaches existing copies, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    Scene, content, copied, copy, narrow, profile, rotated, scene, secret, secrets, source, team, token,
    withdrawn, withheld,
};
use crate::support::flavours::on_each_version;
use crate::support::world::{create, delete, get, merge, merge_status};
use k8s_openapi::ByteString;
use local_hub::Flavour;
use local_hub::ocm::{self, ServiceAccountToken};
use serde_json::json;

on_each_version!(
    a_secret_that_the_agent_has_not_made_for_the_account_is_not_copied,
    a_status_that_names_another_secret_is_refused,
    nothing_but_token_and_authority_is_copied,
    an_invalid_token_keeps_the_copy_and_the_next_one_replaces_it,
    an_invalid_token_creates_no_copy_and_keeps_none_that_is_not_granted,
    a_new_token_reaches_every_namespace,
    a_recreated_account_is_another_account,
);

/// A token as the agent reports it, except for a test's change.
async fn reported(scene: &Scene, token: &ServiceAccountToken, change: impl Fn(ocm::Object) -> ocm::Object) {
    let account = token.account();
    ocm::namespace(account.namespace().unwrap()).create(&scene.ocm).await.unwrap();
    account.create(&scene.ocm).await.unwrap();
    let uid = get(&scene.ocm, &account).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    change(token.secret(&uid)).create(&scene.ocm).await.unwrap();
}

async fn a_secret_that_the_agent_has_not_made_for_the_account_is_not_copied(flavour: Flavour) {
    let scene = scene(flavour).await;
    let clusters = ["src-label", "src-type", "src-owner", "src-uid", "src-right"];
    team(&scene.ocm, "src", &clusters).await;
    let tokens = clusters.map(|cluster| token(cluster, "app"));
    reported(&scene, &tokens[0], |secret| secret.label(ocm::TOKEN_LABEL, "false")).await;
    reported(&scene, &tokens[1], |secret| secret.field("type", json!("example.com/another"))).await;
    for (token, owner) in [(&tokens[2], None), (&tokens[3], Some("another"))] {
        let account = token.account();
        ocm::namespace(account.namespace().unwrap()).create(&scene.ocm).await.unwrap();
        account.create(&scene.ocm).await.unwrap();
        token.secret(owner.unwrap_or("another")).create(&scene.ocm).await.unwrap();
        if owner.is_none() {
            let patch = json!({ "metadata": { "ownerReferences": null } });
            merge(&scene.ocm, &source(token), &patch).await;
        }
    }
    tokens[4].create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "src", &tokens[4]).await;
    for (token, reason) in tokens.iter().zip(["NoToken", "ForeignToken", "ForeignToken", "ForeignToken"]) {
        withheld(&scene.ocm, token, reason).await;
    }
    assert_eq!(secrets(&scene.ocm, "src").await, ["src-right-app"]);

    // The agent repairs it.
    for token in [&tokens[0], &tokens[2], &tokens[3]] {
        token.report(&scene.ocm).await.unwrap();
        copied(&scene.ocm, "src", token).await;
        content(&scene.ocm, token).await;
    }
}

async fn a_status_that_names_another_secret_is_refused(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "ref", &["ref-1"]).await;
    let [token, other] = ["app", "other"].map(|account| token("ref-1", account));
    ocm::create_tokens(&scene.ocm, [token.clone(), other.clone()]).await.unwrap();
    copied(&scene.ocm, "ref", &token).await;
    // Neither the token of the named Secret nor that of the account's own.
    let reference = |name: &str| {
        let reference = json!({ "name": name, "lastRefreshTimestamp": "2026-01-01T00:00:00Z" });
        json!({ "tokenSecretRef": reference })
    };
    merge_status(&scene.ocm, &token.account(), &reference("other")).await;
    withdrawn(&scene.ocm, "ref", &token).await;
    withheld(&scene.ocm, &token, "TokenElsewhere").await;
    copied(&scene.ocm, "ref", &other).await;
    merge_status(&scene.ocm, &token.account(), &reference("app")).await;
    copied(&scene.ocm, "ref", &token).await;
    content(&scene.ocm, &token).await;
    merge_status(&scene.ocm, &token.account(), &json!({ "tokenSecretRef": null })).await;
    scene.caught_up().await;
    copied(&scene.ocm, "ref", &token).await;
}

async fn nothing_but_token_and_authority_is_copied(flavour: Flavour) {
    let scene = scene(flavour).await;
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

async fn an_invalid_token_keeps_the_copy_and_the_next_one_replaces_it(flavour: Flavour) {
    let scene = scene(flavour).await;
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

async fn an_invalid_token_creates_no_copy_and_keeps_none_that_is_not_granted(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "none", &["none-1"]).await;
    let [empty, huge] = ["empty", "huge"].map(|account| token("none-1", account));
    // The maximum size of a Secret.
    let most = vec![b'a'; 1024 * 1024 - ocm::MADE_UP_CA.len()];
    let (empty, huge) = (empty.token(b""), huge.token(&most));
    ocm::create_tokens(&scene.ocm, [empty.clone(), huge.clone()]).await.unwrap();
    for token in [&empty, &huge] {
        withheld(&scene.ocm, token, "UnusableToken").await;
    }
    assert!(secrets(&scene.ocm, "none").await.is_empty());

    let good = rotated(&empty, 1);
    good.report(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "none", &good).await;
    merge(&scene.ocm, &source(&good), &json!({ "data": { "token": "" } })).await;
    withheld(&scene.ocm, &good, "UnusableToken").await;
    narrow(&scene.ocm, &good, Some("elsewhere")).await;
    withdrawn(&scene.ocm, "none", &good).await;
}

async fn a_new_token_reaches_every_namespace(flavour: Flavour) {
    let scene = scene(flavour).await;
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

async fn a_recreated_account_is_another_account(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "anew", &["anew-1"]).await;
    let first = token("anew-1", "app");
    first.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "anew", &first).await;
    for round in 0..3 {
        let token = rotated(&first, round);
        delete(&scene.ocm, &token.account()).await;
        token.account().create(&scene.ocm).await.unwrap();
        // The Secret of the previous account exists until it is garbage-collected, and does not belong to the new one.
        if round == 0 {
            withheld(&scene.ocm, &token, "ForeignToken").await;
            withdrawn(&scene.ocm, "anew", &token).await;
        }
        delete(&scene.ocm, &secret("anew-1", "app")).await;
        token.report(&scene.ocm).await.unwrap();
        // With the new uid, which `copied` checks.
        copied(&scene.ocm, "anew", &token).await;
    }
    content(&scene.ocm, &first).await;
}
