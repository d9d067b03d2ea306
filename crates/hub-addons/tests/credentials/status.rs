//! Reports on copies that are missing: conditions, Events and metrics, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::time::Duration;

use crate::support::credentials::{
    CONDITION, MANAGER, QUEUE, SYNCER, cluster, condition, content, copied, hub, label, narrow, profile,
    rotated, scene, source, syncer, team, token, withdrawn, withheld,
};
use crate::support::flavours::on_each_version;
use crate::support::world::{
    create, delete, ensure_namespace, events, get, merge, merge_status, profile_of, told,
};
use crate::support::{Addons, Hub, SOON, rights};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::PolicyRule;
use local_hub::{Flavour, LocalHub, eventually, ocm};
use serde_json::json;

on_each_version!(
    an_account_says_why_its_token_is_missing_until_it_is_there,
    conditions_of_others_on_an_account_are_preserved,
    a_problem_that_is_resolved_soon_is_not_reported,
    the_profile_of_another_cluster_manager_carries_no_copy,
);

const EXPIRY: &str = "hub_addons_next_token_expiry_seconds{}";
const SYNCS: &str = "hub_addons_credential_sync_seconds_count";

fn counted(state: &str) -> String {
    format!("hub_addons_credentials{{state=\"{state}\"}}")
}

async fn an_account_says_why_its_token_is_missing_until_it_is_there(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "why", &["why-1", "why-2"]).await;
    let [granted, silent, elsewhere, invalid] =
        ["granted", "silent", "elsewhere", "invalid"].map(|account| token("why-1", account));
    let (nowhere, unprofiled) = (token("why-nowhere", "app"), token("why-2", "app"));
    let invalid = invalid.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "why,NOT-ONE");
    let elsewhere = elsewhere.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "why,why-elsewhere");
    delete(&scene.ocm, &profile("why", "why-2")).await;
    create(&scene.ocm, [cluster("why-nowhere", "nobody-binds")]).await;
    let all = [&granted, &elsewhere, &invalid, &nowhere, &unprofiled];
    ocm::create_tokens(&scene.ocm, all.map(Clone::clone)).await.unwrap();
    silent.account().create(&scene.ocm).await.unwrap();

    let message = withheld(&scene.ocm, &nowhere, "NotGranted").await;
    assert!(message.contains("no ManagedClusterSetBinding"), "{message}");
    let message = withheld(&scene.ocm, &elsewhere, "NotGranted").await;
    assert!(message.starts_with("why-elsewhere: "), "{message}");
    withheld(&scene.ocm, &invalid, "InvalidNamespace").await;
    let message = withheld(&scene.ocm, &silent, "NoToken").await;
    assert!(message.starts_with("why: "), "{message}");
    withheld(&scene.ocm, &unprofiled, "NoProfile").await;
    let note = told(&scene.ocm, &silent.account(), "CredentialWithheld").await;
    assert!(note.starts_with("NoToken: why: "), "{note}");
    for token in [&granted, &elsewhere, &invalid] {
        copied(&scene.ocm, "why", token).await;
    }
    assert!(condition(&scene.ocm, &granted).await.is_null());

    // A changed reason is not a transition.
    let since = condition(&scene.ocm, &silent).await["lastTransitionTime"].clone();
    let uid = get(&scene.ocm, &silent.account()).await.unwrap()["metadata"]["uid"].clone();
    silent.clone().token(b"").secret(uid.as_str().unwrap()).create(&scene.ocm).await.unwrap();
    withheld(&scene.ocm, &silent, "UnusableToken").await;
    assert_eq!(condition(&scene.ocm, &silent).await["lastTransitionTime"], since);
    silent.report(&scene.ocm).await.unwrap();
    profile("why", "why-2").create(&scene.ocm).await.unwrap();
    narrow(&scene.ocm, &elsewhere, Some("why")).await;
    narrow(&scene.ocm, &invalid, None).await;
    label(&scene.ocm, &nowhere, None).await;
    for token in [&silent, &unprofiled, &elsewhere, &invalid, &nowhere] {
        content(&scene.ocm, token).await;
    }
    for token in [&silent, &unprofiled] {
        copied(&scene.ocm, "why", token).await;
    }
}

async fn conditions_of_others_on_an_account_are_preserved(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "said", &["said-1"]).await;
    let token = token("said-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "said", &token).await;
    let others = async || {
        let account = get(&scene.ocm, &token.account()).await.unwrap();
        let status = account["status"].clone();
        let conditions = status["conditions"].as_array().unwrap().iter();
        let theirs: Vec<_> = conditions.filter(|entry| entry["type"] != CONDITION).cloned().collect();
        (theirs, status["expirationTimestamp"].clone(), status["tokenSecretRef"].clone())
    };
    let before = others().await;
    assert_eq!(before.0.len(), 2);
    narrow(&scene.ocm, &token, Some("said,nowhere")).await;
    withheld(&scene.ocm, &token, "NotGranted").await;
    assert_eq!(others().await, before);
    narrow(&scene.ocm, &token, None).await;
    content(&scene.ocm, &token).await;
    assert_eq!(others().await, before);

    // A condition that is removed or edited is restored.
    narrow(&scene.ocm, &token, Some("said,nowhere")).await;
    withheld(&scene.ocm, &token, "NotGranted").await;
    merge_status(&scene.ocm, &token.account(), &json!({ "conditions": before.0 })).await;
    withheld(&scene.ocm, &token, "NotGranted").await;
    assert_eq!(others().await, before);
}

async fn a_problem_that_is_resolved_soon_is_not_reported(flavour: Flavour) {
    let scene = scene(flavour).await;
    // In the usual order: the account, then its token, then the grant, then the profile.
    create(&scene.ocm, [ocm::namespace("brief"), ocm::cluster_set("brief"), cluster("brief-1", "brief")])
        .await;
    let token = token("brief-1", "app");
    token.create(&scene.ocm).await.unwrap();
    create(&scene.ocm, [ocm::bound("brief", "brief"), profile("brief", "brief-1")]).await;
    copied(&scene.ocm, "brief", &token).await;
    // A lasting problem of another account is reported after the time at which this one would have been.
    let lasting = crate::support::credentials::token("brief-1", "lasting");
    lasting.account().create(&scene.ocm).await.unwrap();
    withheld(&scene.ocm, &lasting, "NoToken").await;
    assert!(events(&scene.ocm, &token.account(), "CredentialWithheld").await.is_empty());
    assert!(condition(&scene.ocm, &token).await.is_null());
}

#[tokio::test]
async fn a_copy_without_a_profile_is_not_reported_before_many_profiles_have_ceased_to_disappear() {
    let hub = hub().await;
    team(&hub.ocm, "ending", &["ending-1", "ending-2"]).await;
    let others: Vec<_> = (0..200).map(|number| profile("ending", &format!("other-{number}"))).collect();
    ocm::create_all(&hub.ocm, others.clone()).await.unwrap();
    let missing = token("ending-1", "app");
    missing.create(&hub.ocm).await.unwrap();
    let _addons = syncer(&hub, &[]).await;
    copied(&hub.ocm, "ending", &missing).await;

    delete(&hub.ocm, &profile("ending", "ending-1")).await;
    let disappear = async {
        for other in &others {
            delete(&hub.ocm, other).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // A later problem that has nothing to do with profiles is reported meanwhile.
    let lasting = token("ending-2", "lasting");
    ensure_namespace(&hub.ocm, "ending-2").await;
    let reported = async {
        lasting.account().create(&hub.ocm).await.unwrap();
        withheld(&hub.ocm, &lasting, "NoToken").await;
        assert!(condition(&hub.ocm, &missing).await.is_null());
    };
    tokio::select! {
        () = reported => {}
        () = disappear => panic!("no problem was reported while profiles disappeared"),
    }
    withheld(&hub.ocm, &missing, "NoProfile").await;
}

async fn the_profile_of_another_cluster_manager_carries_no_copy(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "theirs", &["theirs-1"]).await;
    let token = token("theirs-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "theirs", &token).await;
    let ours = profile("theirs", "theirs-1");
    // Also one that carries our label: the spec decides.
    for label in ["another", MANAGER] {
        delete(&scene.ocm, &ours).await;
        let theirs = profile_of("another", "theirs", "theirs-1").label("x-k8s.io/cluster-manager", label);
        theirs.create(&scene.ocm).await.unwrap();
        withheld(&scene.ocm, &token, "ForeignProfile").await;
        withdrawn(&scene.ocm, "theirs", &token).await;
        delete(&scene.ocm, &theirs).await;
        ours.create(&scene.ocm).await.unwrap();
        copied(&scene.ocm, "theirs", &token).await;
        content(&scene.ocm, &token).await;
    }
}

#[tokio::test]
async fn metrics_count_copies_and_the_reasons_for_missing_ones() {
    let hub = hub().await;
    team(&hub.ocm, "many", &["many-1", "many-2"]).await;
    create(&hub.ocm, [ocm::namespace("more"), profile("more", "many-1"), ocm::bound("more", "many")]).await;
    let [first, second] = ["many-1", "many-2"].map(|cluster| token(cluster, "app"));
    create(&hub.ocm, ["many-1", "many-2"].map(ocm::namespace)).await;
    create(&hub.ocm, [first.account(), second.account(), token("many-2", "silent").account()]).await;
    // It knows all this before the tokens are reported: the duration of each copy counts from then.
    let addons = syncer(&hub, &[]).await;
    addons.measures(&counted("no_token"), 6.0).await;
    for state in ["synced", "foreign_secret", "no_profile"] {
        addons.measures(&counted(state), 0.0).await;
    }
    assert_eq!(addons.metric(EXPIRY).await, None);
    addons.measures(SYNCS, 0.0).await;

    let soon = Timestamp::now() + SignedDuration::from_hours(1);
    first.clone().expires(soon).report(&hub.ocm).await.unwrap();
    second.report(&hub.ocm).await.unwrap();
    // Two of the first, one of the second; the other namespace has no profile of the second's cluster.
    addons.measures(&counted("synced"), 3.0).await;
    addons.measures(&counted("no_profile"), 1.0).await;
    addons.measures(&counted("no_token"), 2.0).await;
    addons.measures(SYNCS, 3.0).await;
    let expiry = addons.metric(EXPIRY).await.unwrap();
    assert!((1.0..=3600.0).contains(&expiry), "{expiry}");

    first.report(&hub.ocm).await.unwrap();
    addons.measures(SYNCS, 5.0).await;
    eventually("the first end is far", SOON, async || addons.metric(EXPIRY).await > Some(1e6)).await;

    // A place that no account has any more is no longer counted.
    delete(&hub.ocm, &ocm::bound("more", "many")).await;
    addons.measures(&counted("synced"), 2.0).await;
    addons.measures(&counted("no_profile"), 0.0).await;
    addons.measures(&counted("no_token"), 1.0).await;
    ocm::ManagedCluster::named("many-2").update(&hub.ocm).await.unwrap();
    addons.measures(&counted("no_token"), 0.0).await;
    addons.measures(&counted("synced"), 1.0).await;
    delete(&hub.ocm, &first.account()).await;
    addons.measures(&counted("synced"), 0.0).await;
    eventually("there is no end", SOON, async || addons.metric(EXPIRY).await.is_none()).await;
    addons.measures(QUEUE, 0.0).await;
    addons.stop().await;
}

/// The permissions of the syncer without those for these resources.
fn without(resources: &[&str]) -> Vec<PolicyRule> {
    let mut rules = rights::syncer();
    rules.retain(|rule| !rule.resources.iter().flatten().any(|one| resources.contains(&one.as_str())));
    rules
}

#[tokio::test]
async fn without_permission_to_report_tokens_are_copied_all_the_same() {
    let builder = LocalHub::builder().without_controller_manager();
    let hub = Hub::start(builder, without(&["managedserviceaccounts/status", "events"])).await;
    let addons = Addons::beside(&hub, &[SYNCER]).await;
    team(&hub.ocm, "mute", &["mute-1"]).await;
    let [token, silent] = ["app", "silent"].map(|account| token("mute-1", account));
    create(&hub.ocm, [ocm::namespace("mute-1"), silent.account()]).await;
    let refused =
        "hub_addons_reconcile_errors_total{controller=\"managedserviceaccounts\",category=\"forbidden\"}";
    addons.measures_at_least(refused, 1.0).await;
    addons.measures_at_least("hub_addons_events_total{result=\"failed\"}", 1.0).await;
    token.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "mute", &token).await;
    let token = rotated(&token, 1);
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "mute", &token).await;
    merge(&hub.ocm, &source(&token), &json!({ "metadata": { "labels": null } })).await;
    withdrawn(&hub.ocm, "mute", &token).await;
    addons.measures(&counted("no_token"), 2.0).await;
    assert_eq!(addons.lines_with("mute-1/silent"), 2, "an Event's line and a refusal's: {}", addons.log());
    addons.stop().await;
}

#[tokio::test]
async fn a_condition_that_the_api_server_refuses_is_written_soon_after_it_no_longer_does() {
    let builder = LocalHub::builder().without_controller_manager();
    let hub = Hub::start(builder, without(&["managedserviceaccounts/status"])).await;
    let addons = Addons::beside(&hub, &[SYNCER]).await;
    let silent = token("late-1", "silent");
    create(&hub.ocm, [ocm::namespace("late-1"), silent.account()]).await;
    addons.logs("refused", "cannot patch_status managedserviceaccounts late-1/silent").await;
    assert!(condition(&hub.ocm, &silent).await.is_null());
    hub.grant(crate::support::USER, rights::syncer()).await.unwrap();
    withheld(&hub.ocm, &silent, "NotGranted").await;
    addons.stop().await;
}

#[tokio::test]
async fn without_permission_to_write_copies_it_is_reported_once_and_retried_with_backoff() {
    let builder = LocalHub::builder().without_controller_manager();
    let mut rules = without(&["secrets"]);
    rules.push(PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    });
    let hub = Hub::start(builder, rules).await;
    let addons = Addons::beside(&hub, &[SYNCER]).await;
    team(&hub.ocm, "barred", &["barred-1"]).await;
    let token = token("barred-1", "app");
    token.create(&hub.ocm).await.unwrap();
    let copy = crate::support::credentials::copy("barred", &token);
    let note = told(&hub.ocm, &copy, "WriteRefused").await;
    assert!(note.contains("cannot create resource \"secrets\""), "{note}");
    let lasting = crate::support::credentials::token("barred-1", "lasting");
    lasting.account().create(&hub.ocm).await.unwrap();
    withheld(&hub.ocm, &lasting, "NoToken").await;
    let asked = hub.audit().requests().await.unwrap().of_user(crate::support::USER);
    assert!(
        asked.count(|request| request.verb == "create" && request.resource == "secrets") <= 10,
        "{asked}"
    );
    addons.stop().await;
}
