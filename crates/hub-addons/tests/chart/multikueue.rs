//! What consumer access may write for Kueue, and what other users may not.

use local_hub::ocm::Object;
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, OTHERS, allowed, hub, marks, refused};
use crate::support::chart::{Attempt, user};
use crate::support::kueue::{multi_kueue_cluster, multi_kueue_config};
use crate::support::world;

const KUEUE: &str = "'hub-addons-consumers-multikueue'";

#[tokio::test]
async fn consumer_access_is_held_to_clusters_with_their_own_profiles_and_to_what_it_has_created() {
    use Attempt::{Create, Delete, Patch};
    let hub = hub().await;
    let labels = "must have its labels";
    let own = "only change and delete objects of Kueue that it has created";
    let profile = "must refer to the ClusterProfile of its own name";
    let bare = "must not change owners and finalizers";
    let to =
        |profile: &str| json!({ "clusterSource": { "clusterProfileRef": { "name": profile } } });
    let marked = |object: Object, spec: Value| {
        let metadata = json!({ "name": object.name(), "labels": marks() });
        object.field("metadata", metadata).field("spec", spec)
    };
    let ours = marked(multi_kueue_cluster("c1"), to("c1"));
    let list = marked(multi_kueue_config("multikueue"), json!({ "clusters": ["c1"] }));
    let theirs = multi_kueue_cluster("theirs").field("spec", to("theirs"));
    allowed(&hub, &user(COMPONENT), vec![Create(ours.clone()), Create(list.clone())]).await;
    world::create(&hub.ocm, [ours.clone(), list.clone(), theirs.clone()]).await;
    let kubeconfig = json!({ "clusterSource": { "kubeConfig": { "location": "a" } } });
    let held = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    let cases = vec![
        (Create(multi_kueue_cluster("c2").field("spec", to("c2"))), labels),
        (Create(marked(multi_kueue_cluster("c2"), to("c1"))), profile),
        (Create(marked(multi_kueue_cluster("c2"), kubeconfig)), profile),
        (Patch(ours.clone(), json!({ "metadata": { "labels": null } })), labels),
        (Patch(ours.clone(), json!({ "spec": to("c2") })), profile),
        (Patch(ours.clone(), held.clone()), bare),
        (Patch(theirs.clone(), json!({ "metadata": { "labels": marks() } })), own),
        (Delete(theirs.clone()), own),
    ];
    refused(&hub, &user(COMPONENT), cases, KUEUE).await;
    let more = json!({ "spec": { "clusters": ["c1", "c2"] } });
    let attempts =
        vec![Patch(list.clone(), more.clone()), Delete(list.clone()), Delete(ours.clone())];
    allowed(&hub, &user(COMPONENT), attempts).await;

    let change = "only consumer access may set or remove its labels";
    let forged = marked(multi_kueue_cluster("c3"), to("c3"));
    let cases = vec![
        (Create(forged), "only consumer access may create"),
        (Patch(list.clone(), more), change),
        (Patch(ours.clone(), json!({ "spec": to("c2") })), change),
        (Patch(ours.clone(), json!({ "metadata": { "labels": null } })), change),
        (Patch(list.clone(), held), change),
        (Delete(ours.clone()), "only consumer access may delete"),
        (Delete(list.clone()), "only consumer access may delete"),
    ];
    refused(&hub, "eve", cases, OTHERS).await;
    let attempts = vec![
        Create(multi_kueue_cluster("mine").field("spec", to("mine"))),
        Patch(list.clone(), json!({ "spec": { "quotaManagement": "Manual" } })),
        Attempt::PatchStatus(ours, json!({ "conditions": [] })),
        Delete(theirs),
    ];
    allowed(&hub, "eve", attempts).await;
}
