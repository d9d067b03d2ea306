//! No byte of a token is anywhere but in Secrets, on a real hub: whatever fails, and at every log level.

use crate::support::credentials::{
    SYNCER, caught_up, copied, copy, hub, label, narrow, secret, source, team, token, withdrawn,
    withheld,
};
use crate::support::world::{HOLD, delete, get, hold, let_go, merge, told};
use crate::support::{Addons, SOON};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::ByteString;
use kube::Client;
use kube::api::ListParams;
use local_hub::{eventually, ocm};
use serde_json::{Value, json};

/// A part of every token and every authority here: as long as three times three bytes, so that its base64 is in the
/// base64 of the whole at any offset.
const MARK: &str = "sEcReT-sEcReT-sEcReT-sEcReT-sEcReT";

/// Texts of which at least one occurs in any output that shows a part of a token.
fn traces() -> Vec<String> {
    let mut traces = vec!["sEcReT".to_owned()];
    for skipped in 0..3 {
        let part = &MARK.as_bytes()[skipped..skipped + 24];
        traces.extend([STANDARD.encode(part), URL_SAFE_NO_PAD.encode(part)]);
        // As a list of numbers, as `Debug` prints bytes.
        traces.push(part[..6].iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    }
    // The body of the authority in every cluster's Secret, and the whole.
    let authority = ocm::MADE_UP_CA.lines().nth(1).unwrap().trim_end_matches('=').to_owned();
    traces.extend([authority, STANDARD.encode(ocm::MADE_UP_CA)]);
    traces
}

fn shows(text: &str) -> Option<(usize, String)> {
    traces().into_iter().find_map(|trace| Some((text.find(&trace)?, trace)))
}

/// Asserts that a text contains nothing of a token, and, to prove that it is the right text, something else.
fn assert_silent(what: &str, text: &str, it_has: &str) {
    assert!(text.contains(it_has), "{what} does not show {it_has}: {text}");
    if let Some((at, trace)) = shows(text) {
        let begin = text.floor_char_boundary(at.saturating_sub(300));
        let end = text.floor_char_boundary((at + 100).min(text.len()));
        panic!("{what} shows {trace}: {}", &text[begin..end]);
    }
}

/// Every object of a kind, in all namespaces, as JSON.
async fn everything(client: &Client, kind: (&str, &str, &str), plural: &str) -> String {
    // Without a namespace it lists all.
    let list = ocm::Object::new(kind, plural, None, "")
        .api(client)
        .list(&ListParams::default())
        .await
        .unwrap();
    serde_json::to_string(&list.items).unwrap()
}

/// A token with the mark in its claims and in its signature.
fn jwt(expires: &Value) -> Vec<u8> {
    let claims = json!({ "exp": expires, "sub": MARK }).to_string();
    format!("e30.{}.{MARK}", URL_SAFE_NO_PAD.encode(claims)).into_bytes()
}

/// Every state of tokens, valid and invalid.
async fn live(client: &Client) {
    team(client, "team", &["one", "two"]).await;
    let of = |cluster: &str, account: &str, rest: &str| {
        token(cluster, account).token(format!("{account}{MARK}{rest}").as_bytes())
    };
    let tokens =
        ["right", "foreign", "ends", "held", "frozen"].map(|account| of("one", account, ""));
    // Valid claims, and invalid ones.
    let exp = [json!(4_000_000_000_u32), json!(MARK), json!({ MARK: MARK })];
    let claims = exp.iter().zip(["read", "text", "map"]);
    let claims =
        claims.map(|(exp, account)| token("two", account).token(&jwt(exp))).collect::<Vec<_>>();
    let theirs = secret("team", "one-foreign").field("stringData", json!({ "token": MARK }));
    theirs.create(client).await.unwrap();
    ocm::create_tokens(client, tokens.iter().chain(&claims).cloned()).await.unwrap();
    let [right, _, ends, held, frozen] = &tokens;
    for token in [right, ends, held, frozen].into_iter().chain(&claims) {
        copied(client, "team", token).await;
    }
    told(client, &theirs, "ForeignSecret").await;
    // Repaired, replaced, emptied, deleted.
    let other = json!({ "data": { "token": ByteString(format!("other{MARK}").into_bytes()) } });
    merge(client, &copy("team", right), &other).await;
    copied(client, "team", right).await;
    let frozen_with = json!({ "immutable": true, "data": other["data"] });
    merge(client, &copy("team", frozen), &frozen_with).await;
    copied(client, "team", frozen).await;
    hold(client, &copy("team", held), HOLD).await;
    label(client, held, None).await;
    told(client, &copy("team", held), "CopyTerminating").await;
    let_go(client, &copy("team", held)).await;
    narrow(client, ends, Some("elsewhere")).await;
    withdrawn(client, "team", ends).await;
    // Invalid tokens, each with the mark.
    let broken = [
        ("line", format!("{MARK}\n")),
        ("word", format!("a {MARK}")),
        ("long", MARK.repeat(3000)),
        ("authority", MARK.to_owned()),
    ];
    for (account, bytes) in broken {
        let token = token("two", account).token(bytes.as_bytes());
        token.create(client).await.unwrap();
        if account == "authority" {
            let huge = ByteString(MARK.repeat(9000).into_bytes());
            merge(client, &source(&token), &json!({ "data": { "ca.crt": huge } })).await;
        }
        withheld(client, &token, "UnusableToken").await;
    }
    // Further content of the Secret, and what `kubectl apply` would add to it.
    let more = json!({
        "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": MARK } },
        "data": { "more": ByteString(MARK.as_bytes().to_vec()) },
    });
    for object in [source(right), copy("team", right)] {
        merge(client, &object, &more).await;
    }
    eventually("the copy has no more than it should", SOON, async || {
        get(client, &copy("team", right)).await.is_some_and(|shown| shown["data"]["more"].is_null())
    })
    .await;
}

/// All readable outputs of the syncer; accounts contain `on_accounts`.
async fn are_silent(client: &Client, on_accounts: &str) {
    for (kind, plural, it_has) in [
        (("events.k8s.io", "v1", "Event"), "events", "UnusableToken"),
        (
            ("authentication.open-cluster-management.io", "v1beta1", "ManagedServiceAccount"),
            "managedserviceaccounts",
            on_accounts,
        ),
        (("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"), "clusterprofiles", "\"one\""),
    ] {
        assert_silent(plural, &everything(client, kind, plural).await, it_has);
    }
    // The check would find it: it is in Secrets.
    assert!(shows(&everything(client, ("", "v1", "Secret"), "secrets").await).is_some());
}

/// At a log level at which the log contains `it_says`.
async fn nothing_is_shown_at(level: &str, it_says: &str) {
    let hub = hub().await;
    let addons = Addons::start(&hub, &[SYNCER, level, "--leader-elect=false"]).await;
    live(&hub.ocm).await;
    are_silent(&hub.ocm, "UnusableToken").await;
    delete(&hub.ocm, &ocm::bound("team", "team")).await;
    // Interrupted responses.
    hub.stop_api_server().await.unwrap();
    addons
        .measures_at_least(
            "hub_addons_watch_errors_total{resource=\"secrets (tokens)\",category=\"unavailable\"}",
            1.0,
        )
        .await;
    hub.start_api_server().await.unwrap();
    caught_up(&hub.ocm, "later").await;
    withheld(&hub.ocm, &token("two", "line"), "NotGranted").await;

    assert_silent("the log", &addons.log(), it_says);
    assert_silent("a metric", &addons.metrics().await, "hub_addons_credentials{");
    are_silent(&hub.ocm, "NotGranted").await;
    addons.signal("TERM").await;
    addons.exit_status().await;
    assert_silent("the log", &addons.log(), it_says);
}

#[tokio::test]
async fn no_byte_of_a_token_is_shown_at_the_highest_level_of_the_log() {
    nothing_is_shown_at("--log-level=trace", "object=\"team/one-right\"").await;
}

#[tokio::test]
async fn no_byte_of_a_token_is_shown_where_every_library_logs_all_it_can() {
    let level =
        "--log-level=trace,kube_client=trace,kube_client::client=trace,hyper=trace,rustls=trace";
    nothing_is_shown_at(level, "TRACE hyper").await;
}

#[test]
fn a_trace_is_found_wherever_a_token_begins() {
    for before in ["", "a", "ab", "abc"] {
        let token = format!("{before}{MARK}");
        let (encoded, claims) = (STANDARD.encode(&token), URL_SAFE_NO_PAD.encode(&token));
        let numbers = format!("{:?}", token.as_bytes());
        for shown in [token, encoded, claims, numbers] {
            assert!(shows(&format!("before {shown} behind")).is_some(), "{shown}");
        }
    }
    for shown in [ocm::MADE_UP_CA.to_owned(), STANDARD.encode(ocm::MADE_UP_CA)] {
        assert!(shows(&shown).is_some(), "{shown}");
    }
    assert!(shows("one-right is there").is_none());
}
