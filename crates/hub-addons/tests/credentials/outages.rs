//! How the syncer handles unknown state, and an API server or a namespace that is unavailable, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::credentials::{
    QUEUE, caught_up, cluster, content, copied, copy, hub, label, profile, rotated, scene, secrets, syncer,
    team, token, withdrawn, withheld,
};
use crate::support::flavours::on_each_version;
use crate::support::shown::sees;
use crate::support::world::{create, delete, get, told};
use crate::support::{Addons, Hub, SOON, USER, rights, syncer_user};
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{Flavour, LocalHub, eventually};
use serde_json::json;
use std::time::Duration;

on_each_version!(
    a_set_whose_selector_does_not_parse_keeps_its_copies_as_they_are,
    a_namespace_that_ends_gets_no_copy_and_is_not_asked_hot,
);

async fn a_set_whose_selector_does_not_parse_keeps_its_copies_as_they_are(flavour: Flavour) {
    let scene = scene(flavour).await;
    let set = |operator: &str| {
        let expression = json!({ "key": "picked", "operator": operator, "values": ["yes"] });
        ocm::selecting_cluster_set("doubt", &json!({ "matchExpressions": [expression] }))
    };
    let cluster = |number: usize, picked: &str| {
        ManagedCluster::named(&format!("doubt-{number}")).label("picked", picked)
    };
    create(&scene.ocm, [ocm::namespace("doubt"), set("In"), ocm::bound("doubt", "doubt")]).await;
    let mut tokens = Vec::new();
    for (number, picked) in [(1, "yes"), (2, "yes"), (3, "no"), (4, "yes")] {
        cluster(number, picked).create(&scene.ocm).await.unwrap();
        let token = token(&format!("doubt-{number}"), "app");
        create(&scene.ocm, [profile("doubt", &format!("doubt-{number}"))]).await;
        token.create(&scene.ocm).await.unwrap();
        tokens.push(token);
    }
    let [stays, leaves, comes, goes] = <[_; 4]>::try_from(tokens).unwrap();
    for token in [&stays, &leaves, &goes] {
        copied(&scene.ocm, "doubt", token).await;
    }

    set("Like").update(&scene.ocm).await.unwrap();
    told(&scene.ocm, &set("Like"), "InvalidSelector").await;
    cluster(2, "no").update(&scene.ocm).await.unwrap();
    cluster(3, "yes").update(&scene.ocm).await.unwrap();
    let before = get(&scene.ocm, &copy("doubt", &stays)).await;
    let stays = rotated(&stays, 1);
    stays.report(&scene.ocm).await.unwrap();
    withheld(&scene.ocm, &stays, "GrantUnknown").await;
    // Facts that are known still apply.
    label(&scene.ocm, &goes, None).await;
    withdrawn(&scene.ocm, "doubt", &goes).await;
    withheld(&scene.ocm, &comes, "GrantUnknown").await;
    scene.caught_up().await;
    assert_eq!(secrets(&scene.ocm, "doubt").await, ["doubt-1-app", "doubt-2-app"]);
    assert_eq!(get(&scene.ocm, &copy("doubt", &stays)).await, before);

    set("In").update(&scene.ocm).await.unwrap();
    withdrawn(&scene.ocm, "doubt", &leaves).await;
    for token in [&comes, &stays] {
        copied(&scene.ocm, "doubt", token).await;
        content(&scene.ocm, token).await;
    }
}

#[tokio::test]
async fn without_the_kind_of_accounts_the_others_work_and_nothing_is_deleted() {
    const KIND: &str = "managedserviceaccounts.authentication.open-cluster-management.io";
    let hub = hub().await;
    let (team_a, app, leaving) = ("kind", token("kind-1", "app"), token("kind-0", "app"));
    let addons = syncer(&hub, &[]).await;
    team(&hub.ocm, team_a, &["kind-0", "kind-1"]).await;
    ocm::create_tokens(&hub.ocm, [app.clone(), leaving.clone()]).await.unwrap();
    copied(&hub.ocm, team_a, &leaving).await;
    let before = copied(&hub.ocm, team_a, &app).await;
    addons.stop().await;
    // The Secrets stay, since nothing is garbage-collected here.
    hub.remove_crd(KIND).await.unwrap();

    hub.grant(USER, rights::projector()).await.unwrap();
    let addons = Addons::start(&hub, &["--feature-gates=ClusterProfileAccessProvider=false"]).await;
    let waiting = addons.lines_with("waiting for the CustomResourceDefinition of managedserviceaccounts");
    assert_eq!(waiting, addons.processes(), "each says it once");
    assert_eq!(addons.probe("/readyz").await.0, 200);
    create(&hub.ocm, [cluster("kind-2", team_a)]).await;
    sees(&hub.ocm, team_a, &["kind-0", "kind-1", "kind-2"]).await;
    // Known facts still apply: a deleted cluster. The other copy was checked before.
    delete(&hub.ocm, &cluster("kind-0", team_a)).await;
    withdrawn(&hub.ocm, team_a, &leaving).await;
    assert_eq!(get(&hub.ocm, &copy(team_a, &app)).await, Some(before));

    hub.install_crd(&hub.crd(KIND).unwrap()).await.unwrap();
    let token = token("kind-2", "app");
    token.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, team_a, &token).await;
    // Now it is known that this account does not exist.
    withdrawn(&hub.ocm, team_a, &app).await;
    addons.stop().await;
}

/// Bindings can no longer be read: what rests on them is unknown after a minute.
#[tokio::test]
async fn while_bindings_cannot_be_read_no_token_and_no_profile_is_written_and_then_everything_converges() {
    const BINDINGS: &str = "managedclustersetbindings";
    let mut rules = rights::syncer();
    rules.extend(rights::projector());
    for rule in &mut rules {
        rule.resources.iter_mut().for_each(|resources| resources.retain(|resource| resource != BINDINGS));
    }
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    let permission = hub.grant(USER, rights::bindings()).await.unwrap();
    let addons = Addons::beside(&hub, &["--feature-gates=ClusterProfileAccessProvider=false"]).await;
    let [first, second, third] = ["age-1", "age-2", "age-3"].map(|name| cluster(name, "age"));
    create(&hub.ocm, [ocm::namespace("age"), ocm::cluster_set("age"), ocm::bound("age", "age")]).await;
    create(&hub.ocm, [first, second.clone()]).await;
    let (app, leaving) = (token("age-1", "app"), token("age-2", "app"));
    ocm::create_tokens(&hub.ocm, [app.clone(), leaving.clone()]).await.unwrap();
    copied(&hub.ocm, "age", &leaving).await;
    let before = copied(&hub.ocm, "age", &app).await;

    let removed = hub.kubectl(&["delete", "clusterrolebinding", &permission]).await.unwrap();
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    // Ends the open watches.
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    let unread = format!("hub_addons_unread_watches{{controller=\"fleet\",resource=\"{BINDINGS}\"}}");
    addons.measures_within(&unread, 1.0, Duration::from_mins(4)).await;
    let (status, text) = addons.probe("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains(&format!("[-] fleet: {BINDINGS}: neither listed nor watched since 20")), "{text}");
    let crd = ocm::Object::new(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "customresourcedefinitions",
        None,
        &format!("{BINDINGS}.cluster.open-cluster-management.io"),
    );
    let told = told(&hub.ocm, &crd, "KindUnreadable").await;
    assert!(told.contains("fleet: managedclustersetbindings") && told.contains("(forbidden)"), "{told}");
    // For `explain`, as long as it lasts.
    let lease = ocm::Object::new(
        ("coordination.k8s.io", "v1", "Lease"),
        "leases",
        Some("default"),
        "hub-addons-credential-syncer",
    );
    let unreadable = async || {
        let lease = get(&hub.ocm, &lease).await.unwrap();
        lease["metadata"]["annotations"]["hub-addons/unreadable"].as_str().map(str::to_owned)
    };
    eventually("the Lease names the kind", SOON, async || {
        unreadable().await.is_some_and(|it| it.contains("fleet: managedclustersetbindings: neither listed"))
    })
    .await;

    delete(&hub.ocm, &ocm::bound("age", "age")).await;
    create(&hub.ocm, [third]).await;
    let new = token("age-3", "app");
    new.create(&hub.ocm).await.unwrap();
    rotated(&app, 1).report(&hub.ocm).await.unwrap();
    withheld(&hub.ocm, &new, "NoProfile").await;
    // What other kinds show still ends a grant.
    delete(&hub.ocm, &second).await;
    withdrawn(&hub.ocm, "age", &leaving).await;
    sees(&hub.ocm, "age", &["age-1"]).await;
    assert_eq!(get(&hub.ocm, &copy("age", &app)).await, Some(before));
    assert_eq!(secrets(&hub.ocm, "age").await, ["age-1-app"]);

    hub.grant(USER, rights::bindings()).await.unwrap();
    withdrawn(&hub.ocm, "age", &app).await;
    sees(&hub.ocm, "age", &[]).await;
    addons.measures(&unread, 0.0).await;
    assert_eq!(addons.probe("/readyz").await.0, 200);
    eventually("the Lease names no kind", SOON, async || unreadable().await.is_none()).await;
    create(&hub.ocm, [ocm::bound("age", "age")]).await;
    copied(&hub.ocm, "age", &rotated(&app, 1)).await;
    copied(&hub.ocm, "age", &new).await;
    addons.stop().await;
}

async fn a_namespace_that_ends_gets_no_copy_and_is_not_asked_hot(flavour: Flavour) {
    // Without the namespace controller, it stays terminating.
    let scene = scene(flavour).await;
    let clusters: Vec<String> = (0..30).map(|number| format!("end-{number}")).collect();
    let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
    team(&scene.ocm, "end", &clusters).await;
    let first = token("end-0", "first");
    first.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "end", &first).await;
    delete(&scene.ocm, &ocm::namespace("end")).await;
    let mark = scene.shared.hub.audit().mark().await.unwrap();
    ocm::create_tokens(&scene.ocm, clusters.iter().map(|cluster| token(cluster, "app"))).await.unwrap();
    // The existing copy is still updated, and can be deleted.
    let first = rotated(&first, 1);
    first.report(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "end", &first).await;
    delete(&scene.ocm, &copy("end", &first)).await;
    for cluster in &clusters {
        rotated(&token(cluster, "app"), 1).report(&scene.ocm).await.unwrap();
    }
    scene.caught_up().await;
    let asked = scene.shared.hub.audit().since(&mark).await.unwrap().of_user(syncer_user());
    let creates = asked.matching(|r| r.namespace == "end" && r.verb == "create" && r.resource == "secrets");
    assert!(creates.iter().all(|request| request.code == 403), "{creates}");
    // As many as were in flight when the first was refused, and a probe in a second.
    assert!((1..=40).contains(&creates.len()), "{creates}");
    assert!(secrets(&scene.ocm, "end").await.is_empty());
}

#[tokio::test]
async fn an_api_server_that_is_away_for_a_while_is_waited_for() {
    let hub = hub().await;
    team(&hub.ocm, "away", &["away-1", "away-2"]).await;
    let tokens = ["away-1", "away-2"].map(|cluster| token(cluster, "app"));
    ocm::create_tokens(&hub.ocm, tokens.clone()).await.unwrap();
    let addons = syncer(&hub, &["--leader-elect=false"]).await;
    let before = copied(&hub.ocm, "away", &tokens[1]).await;
    for round in 1..3 {
        copied(&hub.ocm, "away", &rotated_to(&tokens[0], round - 1)).await;
        let watches = ["secrets (copies)", "secrets (tokens)", "managedserviceaccounts"];
        let errors = watches.map(|watch| {
            format!("hub_addons_watch_errors_total{{resource=\"{watch}\",category=\"unavailable\"}}")
        });
        let mut seen = Vec::new();
        for series in &errors {
            seen.push(addons.metric(series).await.unwrap_or_default());
        }
        hub.stop_api_server().await.unwrap();
        for (series, seen) in errors.iter().zip(seen) {
            addons.measures_at_least(series, seen + 1.0).await;
        }
        assert_eq!(addons.probe("/livez").await.0, 200);
        hub.start_api_server().await.unwrap();
        rotated_to(&tokens[0], round).report(&hub.ocm).await.unwrap();
        copied(&hub.ocm, "away", &rotated_to(&tokens[0], round)).await;
    }
    caught_up(&hub.ocm, "later").await;
    assert_eq!(copied(&hub.ocm, "away", &tokens[1]).await, before, "nothing was treated as deleted");
    addons.measures(QUEUE, 0.0).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_token_rotated_while_no_syncer_could_see_it_is_copied_afterwards() {
    let hub = hub().await;
    team(&hub.ocm, "unseen", &["unseen-1", "unseen-2"]).await;
    let [turned, other] = ["unseen-1", "unseen-2"].map(|cluster| token(cluster, "app"));
    ocm::create_tokens(&hub.ocm, [turned.clone(), other.clone()]).await.unwrap();
    let addons = syncer(&hub, &["--leader-elect=false"]).await;
    copied(&hub.ocm, "unseen", &turned).await;
    let before = copied(&hub.ocm, "unseen", &other).await;
    // In an outage: its watches end here, and this happens before it can start others.
    addons.signal("STOP").await;
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    rotated(&turned, 1).report(&hub.ocm).await.unwrap();
    hub.stop_api_server().await.unwrap();
    addons.signal("CONT").await;
    let errors = "hub_addons_watch_errors_total{resource=\"secrets (tokens)\",category=\"unavailable\"}";
    addons.measures_at_least(errors, 1.0).await;
    hub.start_api_server().await.unwrap();
    copied(&hub.ocm, "unseen", &rotated(&turned, 1)).await;
    addons.stop().await;

    // And while it was stopped.
    rotated(&turned, 2).report(&hub.ocm).await.unwrap();
    let addons = syncer(&hub, &[]).await;
    copied(&hub.ocm, "unseen", &rotated(&turned, 2)).await;
    assert_eq!(copied(&hub.ocm, "unseen", &other).await, before);
    addons.stop().await;
}

fn rotated_to(token: &ocm::ServiceAccountToken, round: usize) -> ocm::ServiceAccountToken {
    if round == 0 { token.clone() } else { rotated(token, round) }
}
