//! By which ID the profiles of a cluster are known: cluster `c1` in namespace `team`.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels::MEMBER_ID;
use hub_api::names::ProfileKey;
use hub_core::finding::{Finding, Reason};
use hub_core::fleet::Fleet;
use hub_core::member_id::MemberIds;
use hub_core::project::ProjectionSettings;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::api::{projection_of, settle_projection};
use crate::support::{binding, cases, exclusive, fleet, key, member, with};

/// After the cluster of the tests was created, and before.
const LATER: &str = "2026-05-01T12:00:00Z";
const EARLIER: &str = "2025-05-01T12:00:00Z";
/// When it was created.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// A fleet that grants `c1` to `team`, with this value of the cluster's own label.
fn granted(id: &Value) -> Fleet {
    let labelled =
        with(member("c1", "prod"), &json!({ "metadata": { "labels": { MEMBER_ID: id } } }));
    fleet([labelled, exclusive("prod"), binding("team", "prod")])
}

/// The profile of `c1` as it was written when the cluster's label was `id`, with a merge patch in it.
fn profile(id: &Value, patch: &Value) -> Value {
    let settled =
        settle_projection(&granted(id), &key("team", "c1"), &ProjectionSettings::default(), None);
    with(settled.object.unwrap(), patch)
}

/// What the API server records where these field managers set the cluster's name and the member ID.
fn set_by(name: &str, id: &str) -> Value {
    let entry = |manager: &str, label: &str| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha2",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:labels": { ".": {}, label: {} } } },
        })
    };
    let name = entry(name, "f:open-cluster-management.io/cluster-name");
    json!([name, entry(id, &format!("f:{MEMBER_ID}"))])
}

fn carrying(id: &Value, managed_fields: &Value, created: &str) -> Value {
    json!({ "metadata": {
        "labels": { MEMBER_ID: id }, "managedFields": managed_fields, "creationTimestamp": created,
    } })
}

/// The settled ID of a profile, how many writes that took, and the final findings.
fn settled(fleet: &Fleet, profile: Value) -> (Value, usize, Vec<Finding>) {
    let settings = ProjectionSettings::default();
    let settled = settle_projection(fleet, &key("team", "c1"), &settings, Some(profile));
    let profile = settled.object.unwrap();
    let findings = projection_of(fleet, &key("team", "c1"), &settings, Some(&profile)).findings;
    (profile["metadata"]["labels"][MEMBER_ID].clone(), settled.writes.len(), findings)
}

#[test]
fn an_edit_of_every_label_by_the_same_hand_is_repaired_in_one_write() {
    let created = json!({
        "manager": "hub-addons", "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha2",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:clusterManager": { "f:name": {} } } },
    });
    let mut managed_fields = set_by("kubectl-edit", "kubectl-edit");
    managed_fields.as_array_mut().unwrap().push(created);
    let mut edited = carrying(&json!("another"), &managed_fields, LATER);
    edited["metadata"]["labels"]["open-cluster-management.io/cluster-name"] = json!("another");
    let (id, writes, findings) = settled(&granted(&json!(null)), profile(&json!(null), &edited));
    assert_eq!((id, writes, findings), (json!("c1"), 1, vec![]));
}

#[test]
fn a_change_of_the_clusters_id_is_reported_and_not_applied() {
    // Set by this project; by an unknown writer, as in a restored backup; by another projector that created the
    // profile.
    let by_us = set_by("hub-addons", "hub-addons");
    for (managed_fields, created) in [
        (by_us, LATER),
        (json!(null), LATER),
        (set_by("registration", "registration"), LATER),
        (json!(null), CREATED),
    ] {
        let earlier = carrying(&json!("before"), &managed_fields, created);
        let (id, writes, findings) =
            settled(&granted(&json!("after")), profile(&json!("before"), &earlier));
        assert_eq!((id, writes), (json!("before"), 0), "{managed_fields}");
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.reason, Reason::MemberIdChanged);
        for part in ["\"before\"", "\"after\"", "delete the profile"] {
            assert!(finding.message.contains(part), "{}", finding.message);
        }
    }
}

#[test]
fn an_id_that_was_edited_by_hand_or_is_of_an_older_cluster_of_the_name_is_repaired() {
    for (setter, created) in [("kubectl-edit", LATER), ("hub-addons", EARLIER)] {
        let other = carrying(&json!("other"), &set_by("hub-addons", setter), created);
        let (id, writes, findings) =
            settled(&granted(&json!("own")), profile(&json!("own"), &other));
        assert_eq!((id, writes, findings), (json!("own"), 1, vec![]), "{setter}");
    }
}

#[test]
fn the_cluster_decides_its_id_whatever_labels_are_propagated() {
    let propagated_labels = "multicluster.x-k8s.io/*".parse().unwrap();
    let settings = ProjectionSettings { propagated_labels, ..ProjectionSettings::default() };
    let before = profile(&json!("own"), &json!({}));
    let fleet = granted(&json!(null));
    let kept =
        settle_projection(&fleet, &key("team", "c1"), &settings, Some(before)).object.unwrap();
    assert_eq!(kept["metadata"]["labels"][MEMBER_ID], "own");
}

/// Every namespace's clusters and IDs, as plainly as can be.
fn shared(carried: &BTreeMap<ProfileKey, String>, key: &ProfileKey) -> bool {
    let same = |(other, id): (&ProfileKey, &String)| {
        other != key
            && other.namespace == key.namespace
            && carried.get(key) == Some(id)
            && !id.is_empty()
    };
    carried.iter().any(same)
}

#[test]
fn clusters_with_one_id_in_one_namespace_are_named_and_those_in_two_are_not() {
    let mut ids = MemberIds::default();
    for name in ["a", "b", "c"] {
        ids.set(&key("team", name), Some("same"));
    }
    ids.set(&key("other", "d"), Some("same"));
    let note = ids.finding(&key("team", "b")).unwrap();
    assert_eq!(note.reason, Reason::MemberIdShared);
    assert!(note.message.contains("a, c;"), "{}", note.message);
    assert_eq!(ids.finding(&key("other", "d")), None);
    assert_eq!(ids.finding(&key("team", "d")), None);
    for (count, more) in [(3, None), (4, Some("1 more")), (200, Some("197 more"))] {
        for number in 0..count {
            ids.set(&key("team", &format!("cluster-{number}")), Some("same"));
        }
        let note = ids.finding(&key("team", "b")).unwrap();
        let shown = note.message.split_once("; set the label").unwrap().0;
        assert_eq!(shown.split_once(" and ").map(|(_, more)| more), more, "{shown}");
        assert!(note.message.len() < 1000, "{}", note.message);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// A profile has a finding exactly if two clusters of its namespace have the same ID, and the profiles whose
    /// finding begins or ends are among the returned ones.
    #[test]
    fn a_shared_id_is_known_after_any_changes(
        steps in proptest::collection::vec((0..2_usize, 0..4_usize, proptest::option::of(0..3_usize)), 0..40),
    ) {
        let keys: Vec<_> =
            ["x", "y"].iter().flat_map(|namespace| ["a", "b", "c", "d"].map(|name| key(namespace, name))).collect();
        let (mut ids, mut carried) = (MemberIds::default(), BTreeMap::new());
        for (namespace, cluster, id) in steps {
            let changed = &keys[namespace * 4 + cluster];
            let before: BTreeSet<_> = keys.iter().filter(|key| shared(&carried, key)).cloned().collect();
            let now = id.map(|id| ["", "1", "2"][id].to_owned());
            let concerned = ids.set(changed, now.as_deref());
            carried.remove(changed);
            carried.extend(now.map(|now| (changed.clone(), now)));
            let after: BTreeSet<_> = keys.iter().filter(|key| shared(&carried, key)).cloned().collect();
            for key in &keys {
                prop_assert_eq!(ids.finding(key).is_some(), after.contains(key), "{}", key);
            }
            for key in before.symmetric_difference(&after) {
                prop_assert!(concerned.contains(key), "{key} after {changed}");
            }
        }
    }
}
