//! Scenes of the hub as a whole: controllers and their Leases, and OCM's own gate.

use std::collections::BTreeMap;

use hub_core::explain::observed::{Lease, Observed};
use hub_core::explain::{Object, Question};
use serde_json::{Value, json};

use super::{Recorded, pair};
use crate::explain::scene::{Scene, lease, one};
use crate::support::NOON;
use crate::support::credential::secret_key;

fn no_lease(hub: &mut Observed) {
    hub.leases = Some(BTreeMap::new());
}

fn replace(hub: &mut Observed, lease: Lease) {
    hub.leases.as_mut().unwrap().insert("profile-projector".to_owned(), lease);
}

fn ocm_gate(hub: &mut Observed) {
    let object = Object::cluster_scoped("ClusterManager", "cluster-manager");
    hub.ocm_gates.insert("profile-projector", vec![(object, "ClusterProfile")]);
}

/// A profile that another field manager has written last, in these fields.
fn written(fields: &Value) -> Scene {
    let entry = |manager: &str, time: &str, fields: &Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let ours = entry("hub-addons", "2026-05-01T11:00:00Z", &json!({ "f:status": { "f:version": {} } }));
    let theirs = entry("registration", "2026-05-01T11:30:00Z", fields);
    Scene::in_order().profile(&json!({ "metadata": { "managedFields": [ours, theirs] } }))
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let in_order = Scene::in_order;
    let no_access = || in_order().profile(&json!({ "status": { "accessProviders": null } }));
    vec![
        ("everything is in order", in_order(), one("team", "c1")),
        ("the Leases cannot be read", in_order().observing(|hub| hub.leases = None), pair()),
        ("there are no Leases, and no write is pending", in_order().observing(no_lease), one("team", "c1")),
        (
            "the leader cannot read a kind",
            in_order().observing(|hub| {
                let why = "fleet: managedclustersets: neither listed nor watched since 2026-05-01T11:00:00Z (forbidden)";
                replace(hub, Lease { unreadable: Some(why.to_owned()), ..lease(Some("pod-1"), NOON) });
            }),
            pair(),
        ),
        (
            "there are no Leases, and the profile is missing",
            in_order().observing(no_lease).observing(|hub| hub.profiles.clear()),
            pair(),
        ),
        ("there are no Leases, and the access provider is missing", no_access().observing(no_lease), pair()),
        (
            "only the provisioner has no Lease, and the access provider is missing",
            no_access().observing(|hub| {
                hub.leases.as_mut().unwrap().remove("access-provisioner");
            }),
            pair(),
        ),
        (
            "only the provisioner has no Lease, and the access provider is missing; the hub",
            no_access().observing(|hub| {
                hub.leases.as_mut().unwrap().remove("access-provisioner");
            }),
            Question::default(),
        ),
        (
            "there are no Leases, and the access provider is missing; the hub",
            no_access().observing(no_lease),
            Question::default(),
        ),
        (
            "there are no Leases, and the copy is missing",
            in_order()
                .observing(no_lease)
                .observing(|hub| hub.credentials.delete_copy(&secret_key("team", "c1-kueue"))),
            pair(),
        ),
        ("nobody holds the Lease", in_order().observing(|hub| replace(hub, lease(None, NOON))), pair()),
        (
            "the Lease was renewed as long ago as it lasts",
            in_order().observing(|hub| replace(hub, lease(Some("pod-1"), "2026-05-01T11:59:45Z"))),
            pair(),
        ),
        (
            "the Lease was renewed longer ago than it lasts",
            in_order().observing(|hub| replace(hub, lease(Some("pod-1"), "2026-05-01T11:59:44Z"))),
            pair(),
        ),
        (
            "the Lease was never renewed",
            in_order().observing(|hub| replace(hub, Lease { renewed: None, ..lease(Some("pod-1"), NOON) })),
            pair(),
        ),
        ("OCM's gate is on", in_order().observing(ocm_gate), pair()),
        (
            "OCM's gate is on, and the projector does not lead",
            in_order().observing(ocm_gate).observing(|hub| replace(hub, lease(None, NOON))),
            pair(),
        ),
        (
            "OCM's gate is on, and the Leases cannot be read",
            in_order().observing(ocm_gate).observing(|hub| hub.leases = None),
            pair(),
        ),
        ("another writer of the spec", written(&json!({ "f:spec": { "f:clusterManager": {} } })), pair()),
        (
            "another writer of the display name",
            written(&json!({ "f:spec": { "f:displayName": {} } })),
            pair(),
        ),
        ("another writer of the version", written(&json!({ "f:status": { "f:version": {} } })), pair()),
        ("another writer of the properties", written(&json!({ "f:status": { "f:properties": {} } })), pair()),
        (
            "another writer of Joined",
            written(&json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Joined\"}": {} } } })),
            pair(),
        ),
        (
            "another writer of ControlPlaneHealthy",
            written(
                &json!({ "f:status": { "f:conditions": { "k:{\"type\":\"ControlPlaneHealthy\"}": {} } } }),
            ),
            pair(),
        ),
        (
            "another writer of a condition of its own",
            written(&json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Theirs\"}": {} } } })),
            pair(),
        ),
        (
            "another writer of an access provider",
            written(&json!({ "f:status": { "f:accessProviders": {} } })),
            pair(),
        ),
        (
            "another writer, and the projector does not lead",
            written(&json!({ "f:status": { "f:version": {} } }))
                .observing(|hub| replace(hub, lease(None, NOON))),
            pair(),
        ),
    ]
}
