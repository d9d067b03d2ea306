//! Scenes of profiles and access providers.

use hub_api::labels;
use hub_core::access::{AccessIndex, AccessSource};
use hub_core::credential::index::Listed;
use hub_core::explain::Question;
use hub_core::explain::observed::Observed;
use hub_core::known::Known;
use hub_core::trust::TrustError;
use serde_json::{Value, json};

use super::{Recorded, namespace, thrice};
use crate::explain::scene::{
    EXPIRED, P521, Scene, access_without, cluster_proxy, home, lease, one,
};
use crate::support::{NOON, key, member, unreadable};

const LONG: &str = "a-cluster-with-a-name-that-is-longer-than-the-63-characters-of-a-label";

fn elsewhere() -> Value {
    json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": "dev" } } })
}

fn without_access(edit: impl Fn(&mut Observed) + 'static) -> Scene {
    Scene::in_order().profile(&json!({ "status": { "accessProviders": null } })).observing(edit)
}

/// The certificate of the proxy is missing, or cannot be read.
pub fn no_anchors(hub: &mut Observed) {
    hub.access = access_without(true, home());
    let place = hub.access.place();
    hub.access.set_anchors(place, Err(TrustError::NoCertificate));
}

fn addons_unread(hub: &mut Observed) {
    hub.access = cluster_proxy();
    hub.access.set_configuration(home());
}

/// The entry leads to another server.
fn leading_elsewhere() -> Scene {
    let cluster = json!({ "server": "https://proxy.example/c1" });
    let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
    Scene::in_order().profile(&json!({ "status": { "accessProviders": provider } }))
}

/// The server is stated: that of this host.
fn stated(scene: Scene, host: &str) -> Scene {
    let source = format!("https://{host}/{{cluster}}");
    scene.observing(move |hub| {
        let source = AccessSource::Static(source.parse().unwrap());
        hub.access = AccessIndex::new("open-cluster-management", source, true);
    })
}

fn provisioner_stopped(hub: &mut Observed) {
    hub.leases.as_mut().unwrap().insert("access-provisioner".to_owned(), lease(None, NOON));
}

/// The profiles of `c1` and `c2` have the same member ID.
fn same_member(hub: &mut Observed) {
    let id = hub.profiles[&key("team", "c1")].observed.member_id().map(str::to_owned);
    hub.member_ids.set(&key("team", "c2"), id.as_deref());
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let in_order = Scene::in_order;
    let mut scenes: Vec<Recorded> = [
        thrice("the profiles cannot be read", || {
            Scene::in_order().observing(|hub| {
                hub.profiles.clear();
                hub.profiles_of = Listed::default();
            })
        }),
        thrice("no profile", || Scene::in_order().observing(|hub| hub.profiles.clear())),
        thrice("no profile, and the sets cannot be read", || {
            Scene::in_order().observing(|hub| {
                hub.profiles.clear();
                hub.knows_sets = false;
            })
        }),
        thrice("no profile, and the cluster is not granted", || {
            let scene = Scene::in_order().with("ManagedCluster", &elsewhere());
            scene.observing(|hub| hub.profiles.clear())
        }),
        thrice("a profile, and the cluster is not granted", || {
            Scene::in_order().with("ManagedCluster", &elsewhere())
        }),
        thrice("a profile without label, and the cluster is not granted", || {
            let scene = Scene::in_order().with("ManagedCluster", &elsewhere());
            scene.profile(&json!({ "metadata": { "labels": { labels::CLUSTER_MANAGER: null } } }))
        }),
        thrice("a profile, and no binding", || {
            Scene::in_order().without("ManagedClusterSetBinding")
        }),
        thrice("the cluster is unreadable", || Scene::in_order().map("ManagedCluster", unreadable)),
    ]
    .into_iter()
    .flatten()
    .collect();
    scenes.extend([
        (
            "the name of the cluster is too long",
            in_order().and(member(LONG, "prod")),
            Question { all: false, ..one("team", LONG) },
        ),
        (
            "the name of a cluster is too long; the namespace",
            in_order().and(member(LONG, "prod")),
            namespace("team"),
        ),
        (
            "no ManagedProxyConfiguration, and an access provider",
            in_order().observing(|hub| hub.access = access_without(true, Known::Absent)),
            one("team", "c1"),
        ),
        (
            "the trust anchor is on the curve P-521, which TLS here lacks",
            Scene { ca: P521, ..in_order() },
            one("team", "c1"),
        ),
    ]);
    scenes
}

/// Scenes of which the pair is asked.
#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn pairs() -> Vec<(&'static str, Scene)> {
    let in_order = Scene::in_order;
    let providers = |providers: Vec<Value>| {
        in_order().profile(&json!({ "status": { "accessProviders": providers } }))
    };
    let others = (0..64).map(
        |number| json!({ "name": format!("p{number}"), "cluster": { "server": "https://p" } }),
    );
    vec![
        (
            "no profile, and the cluster is unreadable",
            in_order().map("ManagedCluster", unreadable).observing(|hub| hub.profiles.clear()),
        ),
        ("another display name", in_order().profile(&json!({ "spec": { "displayName": "by hand" } }))),
        (
            "another version",
            in_order().profile(&json!({ "status": { "version": { "kubernetes": "v1.0.0" } } })),
        ),
        (
            "another version, and the projector does not lead",
            in_order().profile(&json!({ "status": { "version": { "kubernetes": "v1.0.0" } } })).observing(|hub| {
                hub.leases.as_mut().unwrap().insert("profile-projector".to_owned(), lease(Some("a"), "2026-01-01T00:00:00Z"));
            }),
        ),
        (
            "another version, and the Leases cannot be read",
            in_order()
                .profile(&json!({ "status": { "version": { "kubernetes": "v1.0.0" } } }))
                .observing(|hub| hub.leases = None),
        ),
        (
            "a profile of another manager",
            in_order().profile(&json!({ "spec": { "clusterManager": { "name": "karmada" } } })),
        ),
        (
            "a profile that a finalizer holds",
            in_order().profile(&json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["a/b"] } })),
        ),
        ("the member ID is that of another cluster", in_order().observing(same_member)),
        (
            "another member ID",
            in_order().with("ManagedCluster", &json!({ "metadata": { "labels": { labels::MEMBER_ID: "new" } } })),
        ),
        ("no access provider", without_access(|_| ())),
        ("an access provider of others", providers(vec![json!({ "name": "p", "cluster": { "server": "https://p" } })])),
        ("64 access providers of others", providers(others.collect())),
        ("no ManagedProxyConfiguration", without_access(|hub| hub.access = access_without(true, Known::Absent))),
        (
            "the ManagedProxyConfiguration cannot be read",
            without_access(|hub| hub.access = access_without(true, Known::Unknown)),
        ),
        (
            "the ManagedProxyConfiguration cannot be read, and there is an access provider",
            in_order().observing(|hub| hub.access = access_without(true, Known::Unknown)),
        ),
        ("no addon", without_access(|hub| hub.access = access_without(false, home()))),
        ("no addon, and an access provider", in_order().observing(|hub| hub.access = access_without(false, home()))),
        ("the addons cannot be read", without_access(addons_unread)),
        ("no trust anchor", without_access(no_anchors)),
        (
            "the trust anchor cannot be read",
            without_access(no_anchors).observing(|hub| hub.knows_anchors = false),
        ),
        (
            "the cluster label of the profile is not valid",
            in_order().profile(&json!({
                "metadata": { "labels": { labels::CLUSTER_NAME: "No Name" } }, "status": { "accessProviders": null },
            })),
        ),
        ("the trust anchor has expired", Scene { ca: EXPIRED, ..in_order() }),
        (
            "the trust anchor expires now",
            Scene { ca: EXPIRED, ..in_order() }.observing(|hub| {
                let provider = hub.access.provider().to_owned();
                let observed = &hub.profiles[&key("team", "c1")].observed;
                let anchors = hub_core::access::published_anchors(observed, &provider).unwrap();
                hub.now = anchors.first_expiry().unwrap();
            }),
        ),
        (
            "the trust anchor expires in a second",
            Scene { ca: EXPIRED, ..in_order() }.observing(|hub| {
                let provider = hub.access.provider().to_owned();
                let observed = &hub.profiles[&key("team", "c1")].observed;
                let anchors = hub_core::access::published_anchors(observed, &provider).unwrap();
                hub.now = anchors.first_expiry().unwrap() - jiff::SignedDuration::from_secs(1);
                hub.leases = None;
            }),
        ),
        ("the access provider leads elsewhere", leading_elsewhere()),
        (
            "the access provider leads elsewhere, and the provisioner does not lead",
            leading_elsewhere().observing(provisioner_stopped),
        ),
        (
            "the access provider leads elsewhere, and the Leases cannot be read",
            leading_elsewhere().observing(|hub| hub.leases = None),
        ),
        (
            "the access provider leads where the server is stated to be",
            stated(leading_elsewhere(), "proxy.example"),
        ),
        (
            "the access provider leads elsewhere than the server is stated to be",
            stated(leading_elsewhere(), "another.example"),
        ),
        ("no access provider, and the server is stated", stated(without_access(|_| ()), "proxy.example")),
        (
            "the access provider has another authority",
            in_order().observing(|hub| {
                let place = hub.access.place();
                let other = include_str!("../../certificates/ecdsa-root.crt");
                let anchors = hub_core::trust::TrustBundle::from_published(other.as_bytes()).unwrap();
                hub.access.set_anchors(place, Ok(anchors));
            }),
        ),
    ]
}
