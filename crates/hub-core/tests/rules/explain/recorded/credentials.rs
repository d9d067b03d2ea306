//! Scenes of accounts, tokens and copies.

use hub_api::labels;
use hub_api::names::AccountName;
use hub_core::credential::index::{CredentialIndex, Listed};
use hub_core::explain::Question;
use hub_core::explain::observed::Observed;
use serde_json::{Value, json};

use super::{Recorded, namespace, pair, thrice};
use crate::explain::scene::{Scene, lease, now, one, parse};
use crate::support::credential::{account, account_key, observe, secret_key, stranger, token};
use crate::support::{NOON, binding, condition, key, member, unreadable};

fn of(account: &str) -> Question {
    Question { account: Some(AccountName::from(account)), ..pair() }
}

fn silent() -> Value {
    json!({ "metadata": { "labels": { labels::SYNC_TO_CLUSTER_PROFILE: null } } })
}

fn for_others() -> Value {
    json!({ "metadata": { "annotations": { labels::SYNC_TO_NAMESPACES: "other" } } })
}

/// The index without one of its parts: accounts and copies as they are.
fn rebuilt(hub: &mut Observed, accounts: bool, sources: bool, copies: bool) {
    let key = account_key("c1", "kueue");
    let mut index = CredentialIndex::default();
    if let Some(known) = hub.credentials.account(&key).filter(|_| accounts) {
        index.apply_account(key.clone(), known.clone());
        index.knows_accounts = true;
    }
    if let Some(source) = hub.credentials.source(&key).filter(|_| sources) {
        index.set_source(&key, Some(source.clone()));
        index.listed_sources.set(None, true);
    }
    let copy_key = secret_key("team", "c1-kueue");
    if let Some(copy) = hub.credentials.copy(&copy_key).filter(|_| copies) {
        index.apply_copy(&copy_key, copy.clone());
    }
    if copies {
        index.listed_copies.set(None, true);
    }
    let profile = hub.credentials.profile(&crate::support::key("team", "c1")).cloned();
    index.apply_profile(crate::support::key("team", "c1"), profile.unwrap());
    hub.credentials = index;
}

/// The syncer's report on the account.
fn reported(status: &str, message: &str) -> Scene {
    let mut synced = condition("SyncedToClusterProfiles", status, "WriteRefused");
    synced["message"] = message.into();
    let report =
        json!({ "status": { "conditions": [condition("TokenReported", "True", "R"), synced] } });
    Scene::in_order().with("ManagedServiceAccount", &report)
}

fn syncer_stopped(hub: &mut Observed) {
    hub.leases.as_mut().unwrap().insert("credential-syncer".to_owned(), lease(None, NOON));
}

/// The token expires at this time.
fn expiring(seconds: i64) -> Scene {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let claims = URL_SAFE_NO_PAD.encode(json!({ "exp": now().as_second() + seconds }).to_string());
    let data = json!({ "data": { "token": STANDARD.encode(format!("e30.{claims}.c2ln")) } });
    Scene::in_order().with("Secret", &data)
}

/// `c1` is granted to a namespace of the hub.
fn protected() -> Scene {
    Scene::in_order().and(binding("kube-system", "prod")).observing(|hub| {
        let profile = hub.profiles[&key("team", "c1")].clone();
        hub.profiles.insert(key("kube-system", "c1"), profile);
    })
}

/// Two accounts whose copies have one name.
fn sharing_a_name() -> Scene {
    let scene = Scene::in_order().and(member("c1-kueue", "prod"));
    let scene = scene.and(account("c1-kueue", "x")).and(token("c1-kueue", "x"));
    let older = json!({ "metadata": { "creationTimestamp": "2025-01-01T00:00:00Z" } });
    let first = crate::support::with(account("c1", "kueue-x"), &older);
    scene.and(first).and(token("c1", "kueue-x")).observing(|hub| {
        let profile = hub.profiles[&key("team", "c1")].clone();
        hub.profiles.insert(key("team", "c1-kueue"), profile);
        let profile = hub.credentials.profile(&key("team", "c1")).unwrap().clone();
        hub.credentials.apply_profile(key("team", "c1-kueue"), profile);
    })
}

fn no_copy(hub: &mut Observed) {
    hub.credentials.delete_copy(&secret_key("team", "c1-kueue"));
}

/// The copy is another Secret.
fn foreign(hub: &mut Observed) {
    let key = secret_key("team", "c1-kueue");
    hub.credentials.set_created(&key, None);
    hub.credentials.apply_copy(&key, observe(&stranger("team", "c1-kueue")));
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let in_order = Scene::in_order;
    let account_with = |patch: &Value| in_order().with("ManagedServiceAccount", patch);
    let mut scenes: Vec<Recorded> = [
        thrice("no account", || Scene::in_order().without("ManagedServiceAccount")),
        thrice("no account, and another cluster has one", || {
            let scene = Scene::in_order().without("ManagedServiceAccount");
            scene.and(member("c2", "prod")).and(account("c2", "kueue"))
        }),
        thrice("the account does not ask", || {
            Scene::in_order().with("ManagedServiceAccount", &silent())
        }),
        thrice("the account asks for another namespace", || {
            Scene::in_order().with("ManagedServiceAccount", &for_others())
        }),
        thrice("no token", || Scene::in_order().without("Secret")),
        thrice("the accounts cannot be read", || {
            Scene::in_order().observing(|hub| rebuilt(hub, false, true, true))
        }),
        thrice("the accounts cannot be read, and there is no copy", || {
            Scene::in_order().observing(|hub| rebuilt(hub, false, true, true)).observing(no_copy)
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    scenes.extend([
        ("no account of this name", in_order(), of("other")),
        ("the named account does not ask", account_with(&silent()), of("kueue")),
        ("the named account asks for another namespace", account_with(&for_others()), of("kueue")),
        (
            "one of two accounts",
            in_order().and(account("c1", "other")),
            Question { all: true, ..of("kueue") },
        ),
        (
            "the names are too long",
            in_order().and(account("c1", &"x".repeat(251))).without("Secret"),
            Question { account: Some(AccountName::from("x".repeat(251).as_str())), ..pair() },
        ),
        ("the token expires in a second", expiring(1), one("team", "c1")),
        (
            "the tokens cannot be read, and the syncer leads",
            in_order().observing(|hub| rebuilt(hub, true, false, true)),
            one("team", "c1"),
        ),
        (
            "the copies cannot be read, and the syncer leads",
            in_order().observing(|hub| rebuilt(hub, true, true, false)),
            one("team", "c1"),
        ),
        (
            "two copies share a name",
            sharing_a_name(),
            Question { all: false, ..one("team", "c1-kueue") },
        ),
        ("a protected namespace", protected(), Question { all: false, ..one("kube-system", "c1") }),
        ("a protected namespace as a whole", protected(), namespace("kube-system")),
        ("the grant is unknown", in_order().map("ManagedClusterSet", unreadable), of("kueue")),
        (
            "the accounts cannot be read, and the copy is of another account",
            in_order().observing(|hub| rebuilt(hub, false, false, true)),
            of("other"),
        ),
        (
            "neither clusters nor sets can be read; a namespace",
            in_order().observing(|hub| {
                (hub.knows_clusters, hub.knows_sets) = (false, false);
                hub.bindings_of = Listed::default();
            }),
            namespace("team"),
        ),
    ]);
    scenes
}

/// Scenes of which the pair is asked.
#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn pairs() -> Vec<(&'static str, Scene)> {
    let in_order = Scene::in_order;
    let account_with = |patch: &Value| in_order().with("ManagedServiceAccount", patch);
    let token_with = |patch: &Value| in_order().with("Secret", patch);
    vec![
        (
            "the status names another Secret",
            account_with(&json!({ "status": { "tokenSecretRef": { "name": "x" } } })),
        ),
        ("the account is unreadable", account_with(&json!({ "status": { "conditions": 7 } }))),
        ("an empty token", token_with(&json!({ "data": { "token": "" } }))),
        ("a Secret without token", token_with(&json!({ "data": { "token": null } }))),
        ("the Secret has no owner", token_with(&json!({ "metadata": { "ownerReferences": [] } }))),
        (
            "the token is older than the cluster",
            in_order().with(
                "ManagedCluster",
                &json!({ "metadata": { "creationTimestamp": "2026-03-01T00:00:00Z" } }),
            ),
        ),
        ("the token expires now", expiring(0)),
        (
            "the tokens cannot be read",
            in_order().observing(|hub| rebuilt(hub, true, false, true)).observing(syncer_stopped),
        ),
        (
            "the copies cannot be read",
            in_order().observing(|hub| rebuilt(hub, true, true, false)).observing(syncer_stopped),
        ),
        (
            "the copies cannot be read, and no token is reported",
            account_with(
                &json!({ "status": { "conditions": [condition("TokenReported", "False", "R")] } }),
            )
            .observing(|hub| rebuilt(hub, true, true, false)),
        ),
        (
            "the syncer reports the namespace",
            reported("False", "team: refused").observing(|hub| rebuilt(hub, true, false, false)),
        ),
        (
            "the syncer reports a namespace whose name contains this one's",
            reported("False", "teams, my-team: refused")
                .observing(|hub| rebuilt(hub, true, false, false)),
        ),
        (
            "the syncer reports that all is well",
            reported("True", "team: fine").observing(|hub| rebuilt(hub, true, false, false)),
        ),
        ("the copy is missing", in_order().observing(no_copy)),
        (
            "the copy is missing, and the syncer does not lead",
            in_order().observing(no_copy).observing(syncer_stopped),
        ),
        ("another Secret has the name of the copy", in_order().observing(foreign)),
        (
            "the copy is being deleted",
            in_order().observing(|hub| {
                let copy_key = secret_key("team", "c1-kueue");
                let mut copy = hub.credentials.copy(&copy_key).unwrap().clone();
                copy.terminating = true;
                hub.credentials.apply_copy(&copy_key, copy);
            }),
        ),
        (
            "the profile that owns the copy is of another manager",
            in_order().observing(|hub| {
                let metadata =
                    parse(json!({ "uid": "u", "labels": { labels::CLUSTER_MANAGER: "other" } }));
                let profile =
                    hub_core::credential::index::ProfileMetadata::read(&metadata, Some("other"));
                hub.credentials.apply_profile(key("team", "c1"), profile);
                hub.credentials.delete_copy(&secret_key("team", "c1-kueue"));
            }),
        ),
        (
            "the syncer does not know the profile",
            in_order().observing(|hub| {
                hub.credentials.delete_profile(&key("team", "c1"));
                hub.credentials.delete_copy(&secret_key("team", "c1-kueue"));
            }),
        ),
        (
            "the accounts and the clusters cannot be read",
            in_order()
                .observing(|hub| rebuilt(hub, false, false, true))
                .observing(|hub| hub.knows_clusters = false),
        ),
    ]
}
