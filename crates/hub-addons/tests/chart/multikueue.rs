//! What consumer access may write for Kueue, and what other users may not.

use local_hub::ocm::Object;
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, hub, marks};
use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{held, judged_as, labels, user};
use crate::support::kueue::{multi_kueue_cluster, multi_kueue_config};
use crate::support::world;

#[tokio::test]
async fn consumer_access_is_held_to_clusters_with_their_own_profiles_and_to_what_it_has_created() {
    let hub = hub().await;
    let is_labelled = "must have its labels";
    let own = "only change and delete objects of Kueue that it has created";
    let profile = "must refer to the ClusterProfile of its own name";
    let to =
        |profile: &str| json!({ "clusterSource": { "clusterProfileRef": { "name": profile } } });
    let marked = |object: Object, spec: Value| {
        let metadata = json!({ "name": object.name(), "labels": marks() });
        object.field("metadata", metadata).field("spec", spec)
    };
    let spec = |object: &Object, spec: Value| Patch(object.clone(), json!({ "spec": spec }));
    let ours = marked(multi_kueue_cluster("c1"), to("c1"));
    let list = marked(multi_kueue_config("multikueue"), json!({ "clusters": ["c1"] }));
    let theirs = multi_kueue_cluster("theirs").field("spec", to("theirs"));
    world::create(&hub.ocm, [ours.clone(), list.clone(), theirs.clone()]).await;
    let kubeconfig = json!({ "clusterSource": { "kubeConfig": { "location": "a" } } });
    let more = json!({ "clusters": ["c1", "c2"] });
    let cases = vec![
        (Create(multi_kueue_cluster("c2").field("spec", to("c2"))), is_labelled),
        (Create(marked(multi_kueue_cluster("c2"), to("c1"))), profile),
        (Create(marked(multi_kueue_cluster("c2"), kubeconfig)), profile),
        (labels(&ours, Value::Null), is_labelled),
        (spec(&ours, to("c2")), profile),
        (held(&ours), "must not change owners and finalizers"),
        (labels(&theirs, marks()), own),
        (Delete(theirs.clone()), own),
        (Create(marked(multi_kueue_cluster("c3"), to("c3"))), ""),
        (spec(&list, more.clone()), ""),
        (Delete(list.clone()), ""),
        (Delete(ours.clone()), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
    let change = "only consumer access may set or remove its labels";
    let cases = vec![
        (Create(marked(multi_kueue_cluster("c3"), to("c3"))), "only consumer access may create"),
        (spec(&list, more), change),
        (spec(&ours, to("c2")), change),
        (labels(&ours, Value::Null), change),
        (held(&list), change),
        (Delete(ours.clone()), "only consumer access may delete"),
        (Delete(list.clone()), "only consumer access may delete"),
        (Create(multi_kueue_cluster("mine").field("spec", to("mine"))), ""),
        (spec(&list, json!({ "quotaManagement": "Manual" })), ""),
        (PatchStatus(ours, json!({ "conditions": [] })), ""),
        (Delete(theirs), ""),
    ];
    judged_as(&hub, "eve", cases).await;
}
