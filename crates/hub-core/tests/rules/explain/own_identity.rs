//! Applications with an identity of their own need no copy of a token, and a cluster that lets them in.

use hub_api::cluster_access::{ClusterAccess, IdentityKind};
use hub_core::consumer_access::AccessName;
use hub_core::explain::observed::{Lease, Observed};
use hub_core::explain::{CheckResult, Object, Question, Status, Step, explain};
use hub_core::known::Known;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::recorded::access::no_anchors;
use super::scene::{Scene, one};
use crate::support::{condition, key, member, with};

/// A ClusterAccess of `team` with the identity Own, and this status of its condition Ready.
fn own(ready: &str) -> (AccessName, ClusterAccess) {
    let spec = json!({ "identity": "Own", "serviceAccountNames": ["app"] });
    let ready = condition("Ready", ready, "R");
    let status = json!({ "conditions": [condition("Accepted", "True", "Accepted"), ready] });
    let object = json!({ "metadata": {}, "spec": spec, "status": status });
    let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
    (name, serde_json::from_value(object).unwrap())
}

/// A hub on which `team` reaches `c1` by its own identity alone.
fn scene() -> Scene {
    let entry = json!({ "name": "open-cluster-management-own-identity", "cluster": { "server": "https://user/c1" } });
    Scene::in_order()
        .without("ManagedServiceAccount")
        .without("Secret")
        .profile(&json!({ "status": { "accessProviders": [entry] } }))
        .observing(|hub| hub.accesses.extend([own("True")]))
}

/// The results of the steps that are about identities: step and code.
fn results(scene: &Scene, question: &Question) -> Vec<(Step, String, Status)> {
    let steps = [Step::OwnIdentity, Step::Account, Step::Token, Step::Credential];
    let findings = explain(&scene.observed(), question).findings.into_iter();
    let findings = findings.filter(|finding| steps.contains(&finding.step));
    findings.map(|finding| (finding.step, finding.code.as_str().to_owned(), finding.mark)).collect()
}

#[test]
fn an_application_with_its_own_identity_needs_no_account_and_what_lets_it_in() {
    let result = |step, code: &str, mark| vec![(step, code.to_owned(), mark)];
    for (scene, expected) in [
        (scene(), result(Step::OwnIdentity, "OwnIdentityAccepted", Status::Ok)),
        // What is missing on the cluster is in the step of the object.
        (scene().observing(|hub| hub.accesses.extend([own("False")])), vec![]),
        (
            scene().profile(&json!({ "status": { "accessProviders": null } })),
            result(Step::OwnIdentity, "OwnIdentityNotPublished", Status::Problem),
        ),
        (
            scene().observing(|hub| {
                let name = "cluster-proxy-addon-manager";
                let deployment = Object::namespaced("Deployment", "multicluster-engine", name);
                hub.no_kube_api_proxy = Known::Present(deployment);
            }),
            result(Step::OwnIdentity, "OwnIdentityUnsupported", Status::Problem),
        ),
        (
            scene().observing(|hub| hub.no_kube_api_proxy = Known::Unknown),
            result(Step::OwnIdentity, "OwnIdentityAccepted", Status::Unknown),
        ),
        // The object does not select the cluster.
        (
            scene().observing(|hub| {
                let selector = json!({ "selector": { "matchLabels": { "env": "prod" } } });
                let selector = serde_json::from_value(selector).unwrap();
                hub.accesses.values_mut().next().unwrap().spec.clusters = selector;
            }),
            result(Step::Account, "NoAccount", Status::Problem),
        ),
    ] {
        assert_eq!(results(&scene, &one("team", "c1")), expected);
    }
}

#[test]
fn a_hub_for_own_identities_alone_needs_no_provisioner_and_no_trust_anchor() {
    let explained = |scene: Scene| {
        let scene = scene.observing(no_anchors).observing(|hub| {
            hub.leases.as_mut().unwrap().remove("access-provisioner");
        });
        explain(&scene.observed(), &one("team", "c1")).findings
    };
    let is_problem = |findings: &[CheckResult]| {
        findings.iter().any(|finding| finding.step == Step::AccessProvider)
    };
    assert!(!is_problem(&explained(scene())));
    let copies = scene().observing(|hub| {
        hub.accesses.values_mut().next().unwrap().spec.identity = IdentityKind::Copy;
    });
    assert!(is_problem(&explained(copies)));
}

#[test]
fn a_question_about_an_account_is_about_its_copy() {
    let question = Question { account: Some("kueue".into()), ..one("team", "c1") };
    let no_account = (Step::Account, "NoAccount".to_owned(), Status::Problem);
    assert!(results(&scene(), &question).contains(&no_account));
}

#[test]
fn an_application_with_both_has_the_steps_of_both() {
    let both = Scene::in_order().observing(|hub| hub.accesses.extend([own("True")]));
    let codes: Vec<_> =
        results(&both, &one("team", "c1")).into_iter().map(|(_, code, _)| code).collect();
    let expected = ["OwnIdentityNotPublished", "AccountAsks", "TokenReported", "Synced"];
    assert_eq!(codes, expected);
}

#[test]
fn a_cluster_that_the_tunnel_cannot_lead_to_by_its_name_is_no_cluster_for_own_identities() {
    let odd = scene().and(member("2107au", "prod")).observing(|hub| {
        let metadata = ObjectMeta { name: Some("2107au".to_owned()), ..ObjectMeta::default() };
        hub.apply_profile(key("team", "2107au"), &metadata, &json!({}));
    });
    let expected = (Step::OwnIdentity, "ClusterNameNotRoutable".to_owned(), Status::Problem);
    assert_eq!(results(&odd, &one("team", "2107au"))[..1], [expected]);
}

#[test]
fn what_is_explained_of_a_cluster_begins_with_the_object_that_asks_for_the_access() {
    let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-05-01T12:00:00Z" });
    let missing = json!([{ "cluster": "c1", "reason": "TokenMissing", "message": "no token" }]);
    let in_order = json!({ "conditions": [condition("Accepted", "True", "Accepted"), condition("Ready", "True", "Ready")] });
    let by_labels = json!({ "selector": { "matchLabels": { "env": "prod" } } });
    let by_placement = |name: &str| json!({ "placementRef": { "name": name } });
    let ready = |status: &str, reason: &str| json!({ "conditions": [condition("Accepted", "True", "Accepted"), condition("Ready", status, reason)] });
    let others = |last: &str, more: Option<u8>| {
        let last = json!([{ "cluster": last, "reason": "TokenMissing", "message": "no token" }]);
        with(ready("False", "ClustersNotReady"), &json!({ "notReady": last, "moreNotReady": more }))
    };
    for (clusters, status, expected) in [
        (json!({}), others("b", None), ("AccessReady", Status::Ok)),
        (json!({}), others("c2", Some(1)), ("AccessReady", Status::Ok)),
        (json!({}), others("b", Some(1)), ("AccessNotReady", Status::Problem)),
        (json!({}), ready("False", "Unavailable"), ("AccessNotReady", Status::Problem)),
        (json!({}), ready("Unknown", "Unknown"), ("AccessNotReady", Status::Unknown)),
        (json!({}), json!({}), ("AccessNotReady", Status::Problem)),
        (by_labels, in_order.clone(), ("AccessNotSelected", Status::Info)),
        (by_placement("elsewhere"), in_order.clone(), ("AccessNotSelected", Status::Info)),
        (by_placement("here"), in_order.clone(), ("AccessReady", Status::Ok)),
        (by_placement("unread"), in_order.clone(), ("AccessReady", Status::Ok)),
        (json!({}), in_order, ("AccessReady", Status::Ok)),
        (
            json!({}),
            json!({ "conditions": [condition("Accepted", "True", "Accepted")], "notReady": missing }),
            ("AccessNotReady", Status::Problem),
        ),
        (
            json!({}),
            json!({ "conditions": [condition("Accepted", "False", "Conflict")] }),
            ("AccessNotAccepted", Status::Problem),
        ),
    ] {
        let mut hub = Scene::in_order().observed();
        for (placement, cluster) in [("here", "c1"), ("elsewhere", "c2")] {
            hub.decisions.insert(("team".into(), placement.to_owned()), [cluster.into()].into());
        }
        for namespace in ["team", "elsewhere"] {
            let namespace = namespace.into();
            let name = AccessName { namespace, name: "app".to_owned() };
            let spec =
                json!({ "identity": "Copy", "serviceAccountNames": ["app"], "clusters": clusters });
            let object = json!({ "metadata": {}, "spec": spec, "status": status });
            hub.accesses.insert(name, serde_json::from_value(object).unwrap());
        }
        let findings = explain(&hub, &one("team", "c1")).findings;
        let steps: Vec<_> =
            findings.iter().filter(|finding| finding.step == Step::ClusterAccess).collect();
        let [step] = steps[..] else { panic!("{steps:?}") };
        assert_eq!((step.code.as_str(), step.mark), expected);
        assert_eq!(step.object, Object::namespaced("ClusterAccess", "team", "app"));
        let first = findings.iter().find(|finding| finding.step != Step::Controllers).unwrap();
        assert_eq!(first.step, Step::ClusterAccess, "{findings:?}");
    }
}

#[test]
fn consumer_access_that_does_not_run_is_a_problem_where_an_object_waits_for_it() {
    let access = |observed: Option<i64>| {
        let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
        json!({ "metadata": { "generation": 2 }, "spec": spec, "status": { "observedGeneration": observed } })
    };
    let held = |hub: &mut Observed, by: &str| {
        let lease = hub.leases.as_ref().unwrap()["credential-syncer"].clone();
        let name = "hub-addons-consumer-access".to_owned();
        let holder = Some(by.to_owned()).filter(|it| !it.is_empty());
        let lease = Lease { name, holder, ..lease };
        hub.leases.as_mut().unwrap().insert("consumer-access".to_owned(), lease);
    };
    for (access, by, expected) in [
        (None, None, None),
        (Some(access(Some(2))), None, Some(("ControllerNotFound", Status::Info))),
        (Some(access(Some(1))), None, Some(("ControllerNotFound", Status::Problem))),
        (Some(access(None)), None, Some(("ControllerNotFound", Status::Problem))),
        (Some(access(Some(2))), Some(""), Some(("ControllerNotLeading", Status::Problem))),
        (Some(access(Some(1))), Some("pod-2"), Some(("ControllerLeads", Status::Ok))),
    ] {
        let mut hub = Scene::in_order().observed();
        if let Some(by) = by {
            held(&mut hub, by);
        }
        if let Some(access) = access {
            let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
            hub.accesses.insert(name, serde_json::from_value(access).unwrap());
        }
        let findings = explain(&hub, &one("team", "c1")).findings;
        let of_it = |it: &&CheckResult| {
            it.message.contains("consumer-access") || it.value.contains("consumer-access")
        };
        let step = findings.iter().find(of_it);
        assert_eq!(step.map(|it| (it.code.as_str(), it.mark)), expected, "{findings:?}");
    }
}
