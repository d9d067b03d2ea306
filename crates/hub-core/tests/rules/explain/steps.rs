//! One failing case for each step: the code, the fact that it rests on and the command that fixes it.

use hub_core::access::{AccessIndex, AccessSource};
use hub_core::explain::observed::Observed;
use hub_core::explain::{Question, Status, Step, explain};
use serde_json::json;

use super::scene::{P521, RSA, Scene, one};

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
fn that_tls_here_lacks_the_curve_of_a_published_ca_is_a_part_of_the_fact() {
    for (ca, is_on_p521) in [(P521, true), (RSA, false)] {
        let explanation =
            explain(&Scene { ca, ..Scene::in_order() }.observed(), &one("team", "c1"));
        let step = explanation.findings.iter().find(|it| it.code.as_str() == "AccessPublished");
        let shown = &step.unwrap().value;
        assert_eq!(shown.contains("the curve P-521"), is_on_p521, "{shown}");
    }
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
