//! One failing case for each step: the code, the fact that it rests on and the command that fixes it.

use hub_core::access::{AccessIndex, AccessSource};
use hub_core::explain::observed::Observed;
use hub_core::explain::{Question, Status, Step, explain};
use serde_json::json;

use super::scene::{RSA, Scene};

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
