//! Foreign Secrets in place of copies, and accounts whose copies would have the same name, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    OF_ACCOUNT, OF_CLUSTER, SYNCED_FROM, Scene, caught_up, content, copied, copy, hub, label, name_of,
    profile, rotated, scene, secret, secrets, syncer, team, token, withdrawn, withheld,
};
use crate::support::flavours::on_each_version;
use crate::support::world::{create, delete, events, get, merge, told};
use crate::support::{SOON, USER};
use kube::Client;
use local_hub::Flavour;
use local_hub::eventually;
use local_hub::ocm::{self, Object, ServiceAccountToken};
use serde_json::json;

on_each_version!(
    a_secret_of_another_owner_is_never_changed_and_replaced_by_the_copy_when_it_is_deleted,
    a_secret_in_the_way_that_is_deleted_soon_gives_way_soon,
    a_secret_that_comes_before_the_grant_and_one_that_is_labelled_later_are_left_alone,
    of_two_accounts_with_one_name_the_first_stays_whichever_it_is,
    a_name_too_long_for_a_label_is_shortened_there_and_whole_in_the_annotations,
    a_name_too_long_for_a_secret_is_refused_and_affects_no_other_account,
);

const FOREIGN: &str = "hub_addons_findings{reason=\"ForeignSecret\"}";

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

async fn a_secret_of_another_owner_is_never_changed_and_replaced_by_the_copy_when_it_is_deleted(
    flavour: Flavour,
) {
    let scene = scene(flavour).await;
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

async fn a_secret_in_the_way_that_is_deleted_soon_gives_way_soon(flavour: Flavour) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "soon", &["soon-1"]).await;
    let token = token("soon-1", "app");
    let theirs = foreign("soon", &name_of(&token));
    theirs.create(&scene.ocm).await.unwrap();
    token.create(&scene.ocm).await.unwrap();
    told(&scene.ocm, &theirs, "ForeignSecret").await;
    delete(&scene.ocm, &theirs).await;
    copied(&scene.ocm, "soon", &token).await;
}

async fn a_secret_that_comes_before_the_grant_and_one_that_is_labelled_later_are_left_alone(
    flavour: Flavour,
) {
    let scene = scene(flavour).await;
    team(&scene.ocm, "late", &["late-1"]).await;
    let token = token("late-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "late", &token).await;
    create(&scene.ocm, [ocm::namespace("late-b"), profile("late-b", "late-1")]).await;
    let theirs = foreign("late-b", "late-1-app");
    create(&scene.ocm, [theirs.clone(), ocm::bound("late-b", "late")]).await;
    told(&scene.ocm, &theirs, "ForeignSecret").await;
    // With our label it is watched, but still not ours.
    let labels = json!({ "metadata": { "labels": { SYNCED_FROM: "late-1-app" } } });
    merge(&scene.ocm, &theirs, &labels).await;
    let before = get(&scene.ocm, &theirs).await;
    scene.caught_up().await;
    delete(&scene.ocm, &ocm::bound("late-b", "late")).await;
    scene.caught_up().await;
    assert_eq!(get(&scene.ocm, &theirs).await, before);
    assert_eq!(events(&scene.ocm, &theirs, "ForeignSecret").await.len(), 1, "told once");

    // Without the label, it is as before.
    ocm::bound("late-b", "late").create(&scene.ocm).await.unwrap();
    merge(&scene.ocm, &theirs, &json!({ "metadata": { "labels": null } })).await;
    let before = get(&scene.ocm, &theirs).await;
    scene.caught_up().await;
    assert_eq!(get(&scene.ocm, &theirs).await, before);
    scene.shared.addons.measures_at_least(FOREIGN, 1.0).await;
    delete(&scene.ocm, &theirs).await;
    takes_its_place(&scene.ocm, "late-b", &token).await;
}

/// Two accounts whose copies have the same name, `<name>-1-b-c`.
async fn twins(client: &Client, name: &str) -> [ServiceAccountToken; 2] {
    let (shorter, longer) = (format!("{name}-1"), format!("{name}-1-b"));
    team(client, name, &[&shorter, &longer]).await;
    [token(&shorter, "b-c"), token(&longer, "c")]
}

async fn first_stays(scene: &Scene, first: &ServiceAccountToken, second: &ServiceAccountToken, name: &str) {
    first.create(&scene.ocm).await.unwrap();
    let before = copied(&scene.ocm, name, first).await;
    second.create(&scene.ocm).await.unwrap();
    let message = withheld(&scene.ocm, second, "NameTaken").await;
    assert!(message.contains(name), "{message}");
    let note = told(&scene.ocm, &copy(name, first), "CopyNameTaken").await;
    let of = |token: &ServiceAccountToken| {
        format!("{}/{}", token.account().namespace().unwrap(), token.account().name())
    };
    assert!(note.contains(&of(first)) && note.contains(&of(second)), "{note}");
    assert_eq!(copied(&scene.ocm, name, first).await, before);
    content(&scene.ocm, first).await;

    // It only ever contains the token of the first.
    let (first, second) = (&rotated(first, 1), &rotated(second, 1));
    second.report(&scene.ocm).await.unwrap();
    first.report(&scene.ocm).await.unwrap();
    copied(&scene.ocm, name, first).await;

    label(&scene.ocm, first, None).await;
    copied(&scene.ocm, name, second).await;
    content(&scene.ocm, second).await;
    label(&scene.ocm, first, Some("true")).await;
    withheld(&scene.ocm, first, "NameTaken").await;
    copied(&scene.ocm, name, second).await;
}

async fn of_two_accounts_with_one_name_the_first_stays_whichever_it_is(flavour: Flavour) {
    let scene = scene(flavour).await;
    let [shorter, longer] = twins(&scene.ocm, "twin").await;
    first_stays(&scene, &shorter, &longer, "twin").await;
    let [shorter, longer] = twins(&scene.ocm, "niwt").await;
    first_stays(&scene, &longer, &shorter, "niwt").await;
}

#[tokio::test]
async fn of_two_accounts_with_one_name_the_older_gets_the_copy_at_a_fresh_start() {
    let hub = hub().await;
    let [shorter, longer] = twins(&hub.ocm, "twin").await;
    longer.create(&hub.ocm).await.unwrap();
    // The age of an object has a resolution of seconds.
    let age = |token: &ServiceAccountToken| {
        let (account, ocm) = (token.account(), hub.ocm.clone());
        async move { get(&ocm, &account).await.unwrap()["metadata"]["creationTimestamp"].clone() }
    };
    let older = age(&longer).await;
    shorter.create(&hub.ocm).await.unwrap();
    eventually("the other is younger", SOON, async || {
        if age(&shorter).await != older {
            return true;
        }
        delete(&hub.ocm, &shorter.account()).await;
        shorter.account().create(&hub.ocm).await.unwrap();
        shorter.report(&hub.ocm).await.unwrap();
        false
    })
    .await;

    let addons = syncer(&hub, &[]).await;
    copied(&hub.ocm, "twin", &longer).await;
    withheld(&hub.ocm, &shorter, "NameTaken").await;
    addons.stop().await;
    // It stays through a restart, and is replaced by the other if it is deleted while no syncer runs.
    let before = copied(&hub.ocm, "twin", &longer).await;
    let addons = syncer(&hub, &[]).await;
    caught_up(&hub.ocm, "later").await;
    assert_eq!(copied(&hub.ocm, "twin", &longer).await, before);
    addons.stop().await;
    delete(&hub.ocm, &longer.account()).await;
    let addons = syncer(&hub, &[]).await;
    copied(&hub.ocm, "twin", &shorter).await;
    content(&hub.ocm, &shorter).await;
    addons.stop().await;
}

async fn a_name_too_long_for_a_label_is_shortened_there_and_whole_in_the_annotations(flavour: Flavour) {
    let scene = scene(flavour).await;
    let cluster = format!("long-{}", "x".repeat(40));
    team(&scene.ocm, "long", &[&cluster]).await;
    let accounts = ["a", "b"].map(|end| format!("{}{end}", "y".repeat(100)));
    let tokens = accounts.each_ref().map(|account| token(&cluster, account));
    ocm::create_tokens(&scene.ocm, tokens.clone()).await.unwrap();
    let mut labels = Vec::new();
    for (token, account) in tokens.iter().zip(&accounts) {
        let shown = copied(&scene.ocm, "long", token).await;
        let metadata = &shown["metadata"];
        assert_eq!(metadata["annotations"][OF_CLUSTER], *cluster);
        assert_eq!(metadata["annotations"][OF_ACCOUNT], **account);
        labels.push(metadata["labels"][SYNCED_FROM].as_str().unwrap().to_owned());
    }
    assert_ne!(labels[0], labels[1]);
    for token in &tokens {
        // It is watched by the label, found without it, and recreated.
        let copy = copy("long", token);
        merge(&scene.ocm, &copy, &json!({ "data": { "token": null } })).await;
        copied(&scene.ocm, "long", token).await;
        merge(&scene.ocm, &copy, &json!({ "metadata": { "labels": null } })).await;
        copied(&scene.ocm, "long", token).await;
        delete(&scene.ocm, &copy).await;
        copied(&scene.ocm, "long", token).await;
        label(&scene.ocm, token, None).await;
        withdrawn(&scene.ocm, "long", token).await;
    }
}

async fn a_name_too_long_for_a_secret_is_refused_and_affects_no_other_account(flavour: Flavour) {
    let scene = scene(flavour).await;
    let cluster = format!("longer-{}", "x".repeat(50));
    team(&scene.ocm, "longer", &[&cluster]).await;
    let fits = 253 - cluster.len() - 1;
    let [too_long, fits] = [fits + 1, fits].map(|length| token(&cluster, &"y".repeat(length)));
    ocm::create_tokens(&scene.ocm, [too_long.clone(), fits.clone()]).await.unwrap();
    copied(&scene.ocm, "longer", &fits).await;
    withheld(&scene.ocm, &too_long, "NameTooLong").await;
    assert_eq!(secrets(&scene.ocm, "longer").await, [name_of(&fits)]);
    content(&scene.ocm, &fits).await;
}
