//! Scenes of access that a ClusterAccess asks for: by copies of tokens, and by an application's own identity.

use hub_core::consumer_access::AccessName;
use hub_core::explain::observed::{Lease, Observed};
use hub_core::explain::{Object, Question};
use hub_core::known::Known;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::Recorded;
use super::access::no_anchors;
use crate::explain::scene::{Scene, one, parse};
use crate::support::{condition, key, member, with};

/// A ClusterAccess of its second generation.
fn access(identity: &str, clusters: &Value, status: &Value) -> Value {
    let spec =
        json!({ "identity": identity, "serviceAccountNames": ["app"], "clusters": clusters });
    json!({ "metadata": { "generation": 2 }, "spec": spec, "status": status })
}

fn request(hub: &mut Observed, namespace: &str, access: Value) {
    let name = AccessName { namespace: namespace.into(), name: "app".to_owned() };
    hub.accesses.insert(name, parse(access));
}

fn accepted(status: &str, reason: &str) -> Value {
    json!({ "conditions": [condition("Accepted", status, reason)] })
}

fn ready(status: &str, reason: &str) -> Value {
    let accepted = condition("Accepted", "True", "Accepted");
    json!({ "conditions": [accepted, condition("Ready", status, reason)] })
}

/// A cluster that is not ready, and how many more are not.
fn not_ready(cluster: &str, more: Option<u8>) -> Value {
    let cluster = json!([{ "cluster": cluster, "reason": "TokenMissing", "message": "no token" }]);
    let status = ready("False", "ClustersNotReady");
    with(status, &json!({ "notReady": cluster, "moreNotReady": more }))
}

/// An object asks for copies, and one of the same name in another namespace.
fn copies(clusters: Value, status: Value) -> Scene {
    Scene::in_order().observing(move |hub| {
        for (placement, cluster) in [("here", "c1"), ("elsewhere", "c2")] {
            hub.decisions.insert(("team".into(), placement.to_owned()), [cluster.into()].into());
        }
        for namespace in ["team", "elsewhere"] {
            request(hub, namespace, access("Copy", &clusters, &status));
        }
    })
}

/// Consumer access has observed this generation, and has a Lease with this holder.
fn observed(generation: Option<i64>, holder: Option<&'static str>) -> Scene {
    copies(json!({}), json!({ "observedGeneration": generation })).observing(move |hub| {
        let Some(holder) = holder else { return };
        let leases = hub.leases.as_mut().unwrap();
        let lease = Lease {
            name: "hub-addons-consumer-access".to_owned(),
            holder: Some(holder.to_owned()).filter(|it| !it.is_empty()),
            ..leases["credential-syncer"].clone()
        };
        leases.insert("consumer-access".to_owned(), lease);
    })
}

fn request_own(hub: &mut Observed, status: &str) {
    request(hub, "team", access("Own", &json!({}), &ready(status, "R")));
}

/// `team` reaches `c1` by the identity of an application alone.
fn own() -> Scene {
    let entry = json!({ "name": "open-cluster-management-own-identity", "cluster": { "server": "https://user/c1" } });
    Scene::in_order()
        .without("ManagedServiceAccount")
        .without("Secret")
        .profile(&json!({ "status": { "accessProviders": [entry] } }))
        .observing(|hub| request_own(hub, "True"))
}

/// Where the provisioner does not run, and has no trust anchor.
fn without_provisioner(scene: Scene) -> Scene {
    scene.observing(no_anchors).observing(|hub| {
        hub.leases.as_mut().unwrap().remove("access-provisioner");
    })
}

#[allow(clippy::too_many_lines, reason = "a list of scenes")]
pub fn scenes() -> Vec<Recorded> {
    let (all, is_ready) = (|| json!({}), || ready("True", "Ready"));
    let labelled = || json!({ "selector": { "matchLabels": { "env": "prod" } } });
    let placed = |name: &str| json!({ "placementRef": { "name": name } });
    let waits = json!([{ "cluster": "c1", "reason": "TokenMissing", "message": "no token" }]);
    let waits = with(accepted("True", "Accepted"), &json!({ "notReady": waits }));
    let no_proxy = |hub: &mut Observed| {
        let name = "cluster-proxy-addon-manager";
        let deployment = Object::namespaced("Deployment", "multicluster-engine", name);
        hub.no_kube_api_proxy = Known::Present(deployment);
    };
    let odd = own().and(member("2107au", "prod")).observing(|hub| {
        let metadata = ObjectMeta { name: Some("2107au".to_owned()), ..ObjectMeta::default() };
        hub.apply_profile(key("team", "2107au"), &metadata, &json!({}));
    });
    let mut scenes: Vec<Recorded> = [
        ("a ClusterAccess is ready", copies(all(), is_ready())),
        ("an earlier cluster of a ClusterAccess is not ready", copies(all(), not_ready("b", None))),
        (
            "a later cluster of a ClusterAccess is not ready, and one that is not listed",
            copies(all(), not_ready("c2", Some(1))),
        ),
        (
            "a cluster that is not listed in a ClusterAccess is not ready",
            copies(all(), not_ready("b", Some(1))),
        ),
        ("the cluster of a ClusterAccess is not ready", copies(all(), waits)),
        (
            "a ClusterAccess is not ready on any cluster",
            copies(all(), ready("False", "Unavailable")),
        ),
        ("a ClusterAccess may be ready", copies(all(), ready("Unknown", "Unknown"))),
        ("a ClusterAccess has no status", copies(all(), json!({}))),
        ("a ClusterAccess is not accepted", copies(all(), accepted("False", "Conflict"))),
        ("a ClusterAccess selects other clusters", copies(labelled(), is_ready())),
        ("a Placement decides for another cluster", copies(placed("elsewhere"), is_ready())),
        ("a Placement decides for the cluster", copies(placed("here"), is_ready())),
        ("a Placement whose decisions are not known", copies(placed("unread"), is_ready())),
        ("consumer access does not run, and has done its work", observed(Some(2), None)),
        ("consumer access does not run, and an object has changed", observed(Some(1), None)),
        ("consumer access has never run", observed(None, None)),
        ("consumer access does not lead", observed(Some(2), Some(""))),
        ("consumer access leads", observed(Some(1), Some("pod-2"))),
        ("an own identity needs no account", own()),
        (
            "an own identity that is not ready on the cluster, which its object says",
            own().observing(|hub| request_own(hub, "False")),
        ),
        (
            "an own identity, and no entry of the user server",
            own().profile(&json!({ "status": { "accessProviders": null } })),
        ),
        ("an own identity that the proxy does not carry", own().observing(no_proxy)),
        (
            "an own identity that the proxy may carry",
            own().observing(|hub| hub.no_kube_api_proxy = Known::Unknown),
        ),
        (
            "an own identity whose object selects other clusters",
            own().observing(move |hub| {
                request(hub, "team", access("Own", &labelled(), &ready("True", "R")));
            }),
        ),
        ("an own identity needs no provisioner and no trust anchor", without_provisioner(own())),
        (
            "a copy needs the provisioner and a trust anchor",
            without_provisioner(own()).observing(|hub| {
                request(hub, "team", access("Copy", &json!({}), &ready("True", "R")));
            }),
        ),
        (
            "an application with an own identity and with copies",
            Scene::in_order().without("Secret").observing(|hub| request_own(hub, "True")),
        ),
    ]
    .map(|(name, scene)| (name, scene, one("team", "c1")))
    .into();
    scenes.extend([
        (
            "an own identity; the account of copies",
            own(),
            Question { account: Some("kueue".into()), ..one("team", "c1") },
        ),
        (
            "an own identity, and a cluster whose name the tunnel does not carry",
            odd,
            one("team", "2107au"),
        ),
    ]);
    scenes
}
