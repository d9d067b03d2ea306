//! Scenes of the hub as a whole: controllers and their Leases, and other writers.

use std::collections::BTreeMap;

use hub_core::credential::index::CredentialIndex;
use hub_core::explain::Question;
use hub_core::explain::observed::{Lease, Observed};
use hub_core::fleet::Fleet;
use hub_core::known::Known;
use hub_core::project::ProjectionSettings;
use serde_json::{Value, json};

use super::Recorded;
use super::access::no_anchors;
use crate::explain::scene::{Scene, access_without, lease, now, one};
use crate::support::credential::secret_key;
use crate::support::{NOON, binding, fleet};

fn no_lease(hub: &mut Observed) {
    hub.leases = Some(BTreeMap::new());
}

fn stop(hub: &mut Observed, controller: &str) {
    hub.leases.as_mut().unwrap().remove(controller);
}

/// What a person may read whose permissions are for the one namespace.
fn one_namespace(hub: &mut Observed) {
    let copy_key = secret_key("team", "c1-kueue");
    let copy = hub.credentials.copy(&copy_key).unwrap().clone();
    (hub.fleet, hub.credentials) = (fleet([binding("team", "prod")]), CredentialIndex::default());
    (hub.knows_clusters, hub.knows_sets, hub.knows_anchors) = (false, false, false);
    hub.credentials.apply_copy(&copy_key, copy);
    hub.credentials.listed_copies.set(Some(&"team".into()), true);
    hub.leases = None;
}

fn nothing(hub: &mut Observed) {
    let access = access_without(false, Known::Unknown);
    let (settings, credentials) = (ProjectionSettings::default(), CredentialIndex::default());
    *hub = Observed::new(now(), settings, Fleet::default(), access, credentials);
}

fn replace(hub: &mut Observed, lease: Lease) {
    hub.leases.as_mut().unwrap().insert("profile-projector".to_owned(), lease);
}

/// A profile that another field manager has written last, in these fields.
fn written(fields: &Value) -> Scene {
    written_at("2026-05-01T11:30:00Z", fields)
}

/// The same at this time; this project has written it at 11:00.
fn written_at(time: &str, fields: &Value) -> Scene {
    let entry = |manager: &str, time: &str, fields: &Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let ours =
        entry("hub-addons", "2026-05-01T11:00:00Z", &json!({ "f:status": { "f:version": {} } }));
    let theirs = entry("registration", time, fields);
    Scene::in_order().profile(&json!({ "metadata": { "managedFields": [ours, theirs] } }))
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let in_order = Scene::in_order;
    let no_access = || in_order().profile(&json!({ "status": { "accessProviders": null } }));
    vec![
        ("everything is in order", in_order(), one("team", "c1")),
        (
            "there are no Leases, and no write is pending",
            in_order().observing(no_lease),
            one("team", "c1"),
        ),
        (
            "only the syncer has no Lease",
            in_order().observing(|hub| stop(hub, "credential-syncer")),
            one("team", "c1"),
        ),
        (
            "there are no Leases, and the profile is missing; the hub",
            in_order().observing(no_lease).observing(|hub| hub.profiles.clear()),
            Question::default(),
        ),
        (
            "there are no Leases, and only a copy is left; the hub",
            in_order().observing(no_lease).observing(|hub| {
                (hub.fleet, hub.profiles) = (fleet([]), BTreeMap::new());
            }),
            Question::default(),
        ),
        ("one namespace can be read", in_order().observing(one_namespace), one("team", "c1")),
        ("nothing can be read", in_order().observing(nothing), one("team", "c1")),
        (
            "only the provisioner has no Lease, and the access provider is missing; the hub",
            no_access().observing(|hub| stop(hub, "access-provisioner")),
            Question::default(),
        ),
        (
            "only the provisioner has no Lease, and there is no trust anchor; the hub",
            no_access().observing(no_anchors).observing(|hub| stop(hub, "access-provisioner")),
            Question::default(),
        ),
        (
            "there are no Leases, and the access provider is missing; the hub",
            no_access().observing(no_lease),
            Question::default(),
        ),
    ]
}

/// Scenes of which the pair is asked.
#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn pairs() -> Vec<(&'static str, Scene)> {
    let in_order = Scene::in_order;
    let no_access = || in_order().profile(&json!({ "status": { "accessProviders": null } }));
    vec![
        ("the Leases cannot be read", in_order().observing(|hub| hub.leases = None)),
        (
            "the leader cannot read a kind",
            in_order().observing(|hub| {
                let why = "fleet: managedclustersets: neither listed nor watched since 2026-05-01T11:00:00Z (forbidden)";
                replace(hub, Lease { unreadable: Some(why.to_owned()), ..lease(Some("pod-1"), NOON) });
            }),
        ),
        (
            "there are no Leases, and the profile is missing",
            in_order().observing(no_lease).observing(|hub| hub.profiles.clear()),
        ),
        ("there are no Leases, and the access provider is missing", no_access().observing(no_lease)),
        (
            "only the provisioner has no Lease, and the access provider is missing",
            no_access().observing(|hub| stop(hub, "access-provisioner")),
        ),
        (
            "there are no Leases, and the copy is missing",
            in_order()
                .observing(no_lease)
                .observing(|hub| hub.credentials.delete_copy(&secret_key("team", "c1-kueue"))),
        ),
        ("nobody holds the Lease", in_order().observing(|hub| replace(hub, lease(None, NOON)))),
        (
            "the Lease was renewed as long ago as it lasts",
            in_order().observing(|hub| replace(hub, lease(Some("pod-1"), "2026-05-01T11:59:45Z"))),
        ),
        (
            "the Lease was renewed longer ago than it lasts",
            in_order().observing(|hub| replace(hub, lease(Some("pod-1"), "2026-05-01T11:59:44Z"))),
        ),
        (
            "the Lease was never renewed",
            in_order().observing(|hub| replace(hub, Lease { renewed: None, ..lease(Some("pod-1"), NOON) })),
        ),
        ("another writer of the spec", written(&json!({ "f:spec": { "f:clusterManager": {} } }))),
        (
            "another writer of the display name",
            written(&json!({ "f:spec": { "f:displayName": {} } })),
        ),
        ("another writer of the version", written(&json!({ "f:status": { "f:version": {} } }))),
        (
            "another writer of the version, before this project",
            written_at("2026-05-01T10:30:00Z", &json!({ "f:status": { "f:version": {} } })),
        ),
        ("another writer of the properties", written(&json!({ "f:status": { "f:properties": {} } }))),
        (
            "another writer of Joined",
            written(&json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Joined\"}": {} } } })),
        ),
        (
            "another writer of ControlPlaneHealthy",
            written(
                &json!({ "f:status": { "f:conditions": { "k:{\"type\":\"ControlPlaneHealthy\"}": {} } } }),
            ),
        ),
        (
            "another writer of a condition of its own",
            written(&json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Theirs\"}": {} } } })),
        ),
        (
            "another writer of an access provider",
            written(&json!({ "f:status": { "f:accessProviders": {} } })),
        ),
        (
            "another writer, and the projector does not lead",
            written(&json!({ "f:status": { "f:version": {} } }))
                .observing(|hub| replace(hub, lease(None, NOON))),
        ),
    ]
}
