//! Which clusters a namespace sees, on a real hub: every rule of grants.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::flavours::on_each_flavour;
use crate::support::shared::{Stage, stage};
use crate::support::shown::names;
use crate::support::world::{HOLD, delete, events, get, hold, let_go, merge_status, told};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::json;

on_each_flavour!(
    an_exclusive_set_shows_the_clusters_whose_label_names_it,
    a_label_selector_shows_the_clusters_that_it_picks,
    no_label_selector_picks_nothing_and_an_empty_one_everything,
    only_a_binding_that_is_bound_grants,
    a_binding_that_does_not_have_its_sets_name_grants_nothing_and_is_reported,
    a_set_that_is_missing_grants_nothing_until_it_exists,
    several_bindings_make_a_union_and_each_cluster_is_there_once,
    a_cluster_that_is_being_deleted_leaves_at_once,
    a_cluster_that_is_not_accepted_any_more_leaves_and_returns_once_it_is_accepted_again,
    two_clusters_that_swap_sets_are_both_right,
    a_set_with_a_new_selector_changes_what_its_namespaces_see,
    a_broken_selector_neither_adds_nor_removes_and_affects_no_other_set,
);

fn in_set(name: &str, set: &str) -> Object {
    ManagedCluster::named(name).in_set(set).into()
}

fn labelled(name: &str, key: &str, value: &str) -> Object {
    ManagedCluster::named(name).label(key, value).into()
}

async fn move_to(stage: &Stage, cluster: &str, set: &str) {
    ManagedCluster::named(cluster).in_set(set).update(&stage.ocm).await.unwrap();
}

async fn write_bound(stage: &Stage, binding: &Object, status: &str) {
    let condition = json!({
        "type": "Bound", "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    merge_status(&stage.ocm, binding, &json!({ "conditions": [condition] })).await;
}

async fn an_exclusive_set_shows_the_clusters_whose_label_names_it(flavour: Flavour) {
    let stage = stage(flavour).await;
    let unsaid = ocm::cluster_set("exclusive-unsaid").field("spec", json!({ "clusterSelector": {} }));
    stage
        .create([
            ocm::namespace("exclusive"),
            ocm::namespace("exclusive-unsaid"),
            ocm::cluster_set("exclusive"),
            unsaid,
            in_set("exclusive-1", "exclusive"),
            in_set("exclusive-2", "exclusive-unsaid"),
            ManagedCluster::named("exclusive-3").into(),
            ocm::bound("exclusive", "exclusive"),
            ocm::bound("exclusive-unsaid", "exclusive-unsaid"),
        ])
        .await;
    stage.sees("exclusive", &["exclusive-1"]).await;
    stage.sees("exclusive-unsaid", &["exclusive-2"]).await;

    move_to(&stage, "exclusive-3", "exclusive").await;
    stage.sees("exclusive", &["exclusive-1", "exclusive-3"]).await;
    ManagedCluster::named("exclusive-1").update(&stage.ocm).await.unwrap();
    stage.sees("exclusive", &["exclusive-3"]).await;
    delete(&stage.ocm, &in_set("exclusive-3", "exclusive")).await;
    stage.sees("exclusive", &[]).await;
}

async fn a_label_selector_shows_the_clusters_that_it_picks(flavour: Flavour) {
    let stage = stage(flavour).await;
    let selector = json!({
        "matchLabels": { "picked/by": "label" },
        "matchExpressions": [{ "key": "picked/not", "operator": "NotIn", "values": ["this"] }],
    });
    stage
        .create([
            ocm::namespace("selector"),
            ocm::selecting_cluster_set("selector", &selector),
            labelled("selector-1", "picked/by", "label"),
            labelled("selector-2", "picked/by", "nobody"),
            ManagedCluster::named("selector-3")
                .label("picked/by", "label")
                .label("picked/not", "this")
                .into(),
            // Its exclusive label names the set, which selects by other labels.
            in_set("selector-4", "selector"),
            ocm::bound("selector", "selector"),
        ])
        .await;
    stage.sees("selector", &["selector-1"]).await;
    labelled("selector-2", "picked/by", "label").update(&stage.ocm).await.unwrap();
    stage.sees("selector", &["selector-1", "selector-2"]).await;
    labelled("selector-1", "picked/by", "nobody").update(&stage.ocm).await.unwrap();
    stage.sees("selector", &["selector-2"]).await;
}

async fn no_label_selector_picks_nothing_and_an_empty_one_everything(flavour: Flavour) {
    let stage = stage(flavour).await;
    let nil = ocm::cluster_set("nil")
        .field("spec", json!({ "clusterSelector": { "selectorType": "LabelSelector" } }));
    stage
        .create([
            ocm::namespace("nil"),
            ocm::namespace("everything"),
            nil,
            ocm::selecting_cluster_set("everything", &json!({})),
            ManagedCluster::named("nil-1").into(),
            in_set("nil-2", "nil"),
            ocm::bound("nil", "nil"),
            ocm::bound("everything", "everything"),
        ])
        .await;
    local_hub::eventually("everything is seen", crate::support::SOON, async || {
        let seen = names(&stage.ocm, "everything").await;
        ["nil-1", "nil-2"].iter().all(|cluster| seen.iter().any(|name| name == cluster))
    })
    .await;
    stage.caught_up().await;
    assert!(names(&stage.ocm, "nil").await.is_empty());
    // This set would select every other test's clusters.
    delete(&stage.ocm, &ocm::bound("everything", "everything")).await;
    stage.sees("everything", &[]).await;
}

async fn only_a_binding_that_is_bound_grants(flavour: Flavour) {
    let stage = stage(flavour).await;
    let silent = ocm::binding("bound-absent", "bound");
    let refused = ocm::unbound("bound-false", "bound");
    stage
        .create([
            ocm::namespace("bound-absent"),
            ocm::namespace("bound-false"),
            ocm::cluster_set("bound"),
            in_set("bound-1", "bound"),
            silent.clone(),
            refused.clone(),
        ])
        .await;
    stage.caught_up().await;
    assert!(names(&stage.ocm, "bound-absent").await.is_empty());
    assert!(names(&stage.ocm, "bound-false").await.is_empty());

    write_bound(&stage, &silent, "True").await;
    write_bound(&stage, &refused, "True").await;
    stage.sees("bound-absent", &["bound-1"]).await;
    stage.sees("bound-false", &["bound-1"]).await;
    write_bound(&stage, &refused, "Unknown").await;
    stage.sees("bound-false", &[]).await;
    merge_status(&stage.ocm, &silent, &json!({ "conditions": null })).await;
    stage.sees("bound-absent", &[]).await;
}

async fn a_binding_that_does_not_have_its_sets_name_grants_nothing_and_is_reported(flavour: Flavour) {
    let stage = stage(flavour).await;
    let mismatch =
        ocm::bound("mismatch", "mismatch-alias").field("spec", json!({ "clusterSet": "mismatch" }));
    stage
        .create([
            ocm::namespace("mismatch"),
            ocm::cluster_set("mismatch"),
            ocm::cluster_set("mismatch-alias"),
            in_set("mismatch-1", "mismatch"),
            in_set("mismatch-2", "mismatch-alias"),
            mismatch.clone(),
        ])
        .await;
    let note = told(&stage.ocm, &mismatch, "BindingNameMismatch").await;
    assert!(note.contains("\"mismatch\""), "{note}");
    stage.caught_up().await;
    assert!(names(&stage.ocm, "mismatch").await.is_empty());
}

async fn a_set_that_is_missing_grants_nothing_until_it_exists(flavour: Flavour) {
    let stage = stage(flavour).await;
    stage
        .create([
            ocm::namespace("missing"),
            in_set("missing-1", "missing"),
            // Bound, as a registration controller that lags behind leaves it.
            ocm::bound("missing", "missing"),
        ])
        .await;
    stage.caught_up().await;
    assert!(names(&stage.ocm, "missing").await.is_empty());
    stage.create([ocm::cluster_set("missing")]).await;
    stage.sees("missing", &["missing-1"]).await;
    delete(&stage.ocm, &ocm::cluster_set("missing")).await;
    stage.sees("missing", &[]).await;
}

async fn several_bindings_make_a_union_and_each_cluster_is_there_once(flavour: Flavour) {
    let stage = stage(flavour).await;
    let by_label = json!({ "matchLabels": { "union": "yes" } });
    stage
        .create([
            ocm::namespace("union"),
            ocm::cluster_set("union"),
            ocm::selecting_cluster_set("union-label", &by_label),
            in_set("union-1", "union"),
            ManagedCluster::named("union-2").in_set("union").label("union", "yes").into(),
            labelled("union-3", "union", "yes"),
            ocm::bound("union", "union"),
            ocm::bound("union", "union-label"),
        ])
        .await;
    stage.sees("union", &["union-1", "union-2", "union-3"]).await;
    stage.caught_up().await;
    let before = get(&stage.ocm, &crate::support::world::profile_of("", "union", "union-2")).await;

    // A profile that both bindings grant is not written when one is deleted.
    delete(&stage.ocm, &ocm::bound("union", "union-label")).await;
    stage.sees("union", &["union-1", "union-2"]).await;
    stage.caught_up().await;
    assert_eq!(get(&stage.ocm, &crate::support::world::profile_of("", "union", "union-2")).await, before);
    delete(&stage.ocm, &ocm::bound("union", "union")).await;
    stage.sees("union", &[]).await;
}

async fn a_cluster_that_is_being_deleted_leaves_at_once(flavour: Flavour) {
    let stage = stage(flavour).await;
    let leaving = in_set("leaving-1", "leaving");
    stage
        .create([
            ocm::namespace("leaving"),
            ocm::cluster_set("leaving"),
            leaving.clone(),
            in_set("leaving-2", "leaving"),
            ocm::bound("leaving", "leaving"),
        ])
        .await;
    stage.sees("leaving", &["leaving-1", "leaving-2"]).await;
    hold(&stage.ocm, &leaving, HOLD).await;
    delete(&stage.ocm, &leaving).await;
    stage.sees("leaving", &["leaving-2"]).await;
    assert!(get(&stage.ocm, &leaving).await.is_some(), "the cluster itself is still there");
    let_go(&stage.ocm, &leaving).await;
    crate::support::world::gone(&stage.ocm, &leaving).await;

    // A new cluster of that name.
    stage.create([leaving]).await;
    stage.sees("leaving", &["leaving-1", "leaving-2"]).await;
}

async fn a_cluster_that_is_not_accepted_any_more_leaves_and_returns_once_it_is_accepted_again(
    flavour: Flavour,
) {
    let stage = stage(flavour).await;
    let denied = ManagedCluster::named("denied-1").in_set("denied");
    stage
        .create([
            ocm::namespace("denied"),
            ocm::cluster_set("denied"),
            denied.clone().into(),
            in_set("denied-2", "denied"),
            ocm::bound("denied", "denied"),
        ])
        .await;
    stage.sees("denied", &["denied-1", "denied-2"]).await;
    denied.clone().not_accepted().update(&stage.ocm).await.unwrap();
    stage.sees("denied", &["denied-2"]).await;
    denied.update(&stage.ocm).await.unwrap();
    stage.sees("denied", &["denied-1", "denied-2"]).await;
}

async fn two_clusters_that_swap_sets_are_both_right(flavour: Flavour) {
    let stage = stage(flavour).await;
    stage
        .create([
            ocm::namespace("swap-a"),
            ocm::namespace("swap-b"),
            ocm::cluster_set("swap-a"),
            ocm::cluster_set("swap-b"),
            in_set("swap-1", "swap-a"),
            in_set("swap-2", "swap-b"),
            ocm::bound("swap-a", "swap-a"),
            ocm::bound("swap-b", "swap-b"),
        ])
        .await;
    let (mut of_a, mut of_b) = ("swap-1", "swap-2");
    for _ in 0..6 {
        stage.sees("swap-a", &[of_a]).await;
        stage.sees("swap-b", &[of_b]).await;
        (of_a, of_b) = (of_b, of_a);
        tokio::join!(move_to(&stage, of_a, "swap-a"), move_to(&stage, of_b, "swap-b"));
    }
}

async fn a_set_with_a_new_selector_changes_what_its_namespaces_see(flavour: Flavour) {
    let stage = stage(flavour).await;
    let set = |value: &str| {
        ocm::selecting_cluster_set("reselect", &json!({ "matchLabels": { "reselect": value } }))
    };
    stage
        .create([
            ocm::namespace("reselect-a"),
            ocm::namespace("reselect-b"),
            set("one"),
            labelled("reselect-1", "reselect", "one"),
            labelled("reselect-2", "reselect", "two"),
            ocm::bound("reselect-a", "reselect"),
            ocm::bound("reselect-b", "reselect"),
        ])
        .await;
    stage.sees("reselect-a", &["reselect-1"]).await;
    stage.sees("reselect-b", &["reselect-1"]).await;
    set("two").update(&stage.ocm).await.unwrap();
    stage.sees("reselect-a", &["reselect-2"]).await;
    stage.sees("reselect-b", &["reselect-2"]).await;
    delete(&stage.ocm, &ocm::bound("reselect-b", "reselect")).await;
    stage.sees("reselect-b", &[]).await;
    stage.caught_up().await;
    assert_eq!(names(&stage.ocm, "reselect-a").await, ["reselect-2"]);
}

async fn a_broken_selector_neither_adds_nor_removes_and_affects_no_other_set(flavour: Flavour) {
    let stage = stage(flavour).await;
    let set = |operator: &str| {
        let expression = json!({ "key": "broken", "operator": operator, "values": ["yes"] });
        ocm::selecting_cluster_set("broken", &json!({ "matchExpressions": [expression] }))
    };
    stage
        .create([
            ocm::namespace("broken"),
            ocm::namespace("broken-not"),
            set("In"),
            ocm::cluster_set("broken-not"),
            labelled("broken-1", "broken", "yes"),
            labelled("broken-2", "broken", "yes"),
            labelled("broken-3", "broken", "no"),
            ocm::bound("broken", "broken"),
            ocm::bound("broken-not", "broken-not"),
        ])
        .await;
    stage.sees("broken", &["broken-1", "broken-2"]).await;

    set("Like").update(&stage.ocm).await.unwrap();
    let note = told(&stage.ocm, &set("Like"), "InvalidSelector").await;
    assert!(note.contains("\"Like\""), "{note}");
    let finding = "hub_addons_findings{reason=\"InvalidSelector\"}";
    stage.shared.addons.measures(finding, 1.0).await;

    // One that would leave, one that would join, and one of another set.
    labelled("broken-1", "broken", "no").update(&stage.ocm).await.unwrap();
    labelled("broken-3", "broken", "yes").update(&stage.ocm).await.unwrap();
    stage.create([in_set("broken-4", "broken-not")]).await;
    stage.sees("broken-not", &["broken-4"]).await;
    stage.caught_up().await;
    assert_eq!(names(&stage.ocm, "broken").await, ["broken-1", "broken-2"]);
    assert_eq!(events(&stage.ocm, &set("Like"), "InvalidSelector").await.len(), 1);

    // A cluster that is known not to be granted is removed: it is being deleted.
    delete(&stage.ocm, &labelled("broken-2", "broken", "yes")).await;
    stage.sees("broken", &["broken-1"]).await;

    set("In").update(&stage.ocm).await.unwrap();
    stage.sees("broken", &["broken-3"]).await;
    stage.shared.addons.measures(finding, 0.0).await;
}
