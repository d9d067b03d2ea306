//! One failing case for each step: the code, the fact that it rests on and the command that fixes it.

use hub_core::access::{AccessIndex, AccessSource};
use hub_core::consumer_access::AccessKind;
use hub_core::explain::observed::{AccountPermission, Observed};
use hub_core::explain::{Question, Status, Step, explain};
use serde_json::{Value, json};

use super::scene::{RSA, Scene, one};
use crate::support::consumer_access::object_of;

#[test]
fn permissions_that_are_being_replaced_are_missing_only_if_the_new_ones_fail() {
    let permission = |status: &str, reason: &str| {
        let permission =
            object_of(AccessKind::ClusterPermission).to_string().replace("app", "kueue");
        let mut permission: Value = serde_json::from_str(&permission).unwrap();
        let condition =
            json!({ "type": "AppliedRBACManifestWork", "status": status, "reason": reason });
        permission["metadata"]["labels"] = Value::Null;
        permission["status"] = json!({ "conditions": [condition] });
        AccountPermission::of_cluster_permission(&permission)
    };
    let work = |is_applied: bool| {
        let work = object_of(AccessKind::ManifestWork).to_string().replace("app", "kueue");
        let mut work: Value = serde_json::from_str(&work).unwrap();
        work["metadata"]["labels"] = Value::Null;
        work["metadata"]["generation"] = json!(2);
        let condition = json!({ "type": "Applied", "status": "True", "observedGeneration": 1 + u8::from(is_applied) });
        work["status"] = json!({ "conditions": [condition] });
        AccountPermission::of_manifest_work(&work)
    };
    for (permissions, is_problem) in [
        ([work(true), permission("True", "AppliedRBACManifestWork")].concat(), false),
        ([work(true), permission("False", "ApplyRBACManifestWorkNotComplete")].concat(), false),
        ([work(true), permission("False", "FailedBuildManifestWork")].concat(), true),
        // What is applied is an earlier generation.
        ([work(false), permission("True", "AppliedRBACManifestWork")].concat(), true),
        (permission("True", "AppliedRBACManifestWork"), true),
        // Another ClusterRole, or in fewer namespaces.
        ([work(true)[..1].to_vec(), permission("True", "AppliedRBACManifestWork")].concat(), true),
        ([work(true)[..2].to_vec(), permission("True", "AppliedRBACManifestWork")].concat(), true),
    ] {
        let mut hub = Scene::in_order().observed();
        hub.permissions.insert("c1".into(), permissions.clone());
        let explanation = explain(&hub, &one("team", "c1"));
        let found: Vec<_> =
            explanation.findings.iter().filter(|it| it.mark == Status::Problem).collect();
        assert_eq!(found.len(), usize::from(is_problem), "{permissions:#?} {found:#?}");
        assert!(found.iter().all(|it| it.code.as_str() == "PermissionsNotApplied"), "{found:#?}");
    }
}

#[test]
fn once_the_server_is_stated_an_entry_that_leads_elsewhere_is_a_problem() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let leading_to = |server: &str| {
        let cluster =
            json!({ "server": server, "certificate-authority-data": STANDARD.encode(RSA) });
        let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
        Scene::in_order().profile(&json!({ "status": { "accessProviders": provider } }))
    };
    let outdated = (Step::AccessProvider, "AccessOutdated".to_owned(), Status::Problem);
    let configured: fn(&mut Observed) = |hub| {
        let source = AccessSource::Static("https://proxy.example/{cluster}".parse().unwrap());
        hub.access = AccessIndex::new("open-cluster-management", source, true);
    };
    assert_eq!(leading_to("https://proxy.example/c1").observing(configured).trouble(), []);
    let wrong = leading_to("https://another.example/c1").observing(configured);
    assert_eq!(wrong.trouble(), std::slice::from_ref(&outdated));
    let none = Scene::in_order().profile(&json!({ "status": { "accessProviders": null } }));
    assert_eq!(none.observing(configured).trouble(), [outdated]);
}

#[test]
fn a_set_selects_nothing_only_where_all_clusters_and_sets_are_known() {
    for (clusters, sets) in [(true, true), (true, false), (false, true)] {
        let mut hub = Scene::in_order().without("ManagedCluster").observed();
        (hub.knows_clusters, hub.knows_sets) = (clusters, sets);
        let question = Question { namespaces: vec!["team".into()], ..Question::default() };
        let explanation = explain(&hub, &question);
        let selects_nothing =
            explanation.findings.iter().any(|it| it.code.as_str() == "NothingSelected");
        assert_eq!(selects_nothing, clusters && sets, "clusters: {clusters}, sets: {sets}");
    }
}
