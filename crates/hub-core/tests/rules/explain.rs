//! Why a namespace cannot see or reach a cluster.

mod laws;
mod own_identity;
mod recorded;
mod scene;
mod steps;

use hub_core::credential::index::CredentialIndex;
use hub_core::explain::observed::Observed;
use hub_core::explain::{Question, Status, Step, explain};
use hub_core::project::ProjectionSettings;
use serde_json::json;

use self::scene::{RSA, Scene, access, now};
use crate::support::{binding, condition, exclusive, fleet, member, with};

#[test]
fn where_everything_is_in_order_every_step_says_so() {
    let explanation = Scene::in_order().explained();
    assert_eq!(explanation.mark(), Status::Ok, "{explanation:#?}");
    let mut steps: Vec<_> = explanation.findings.iter().map(|finding| finding.step).collect();
    steps.dedup();
    // No object asks for access there, and no application has an identity of its own.
    let left_out = [Step::ClusterAccess, Step::OwnIdentity];
    let of_copies: Vec<_> =
        Step::ALL.iter().copied().filter(|step| !left_out.contains(step)).collect();
    assert_eq!(steps, of_copies);
    assert!(explanation.findings.iter().all(|finding| !finding.object.name.is_empty()));
}

#[test]
fn what_another_writer_has_left_is_no_matter_once_this_project_has_written_last() {
    let written = |manager: &str, time: &str| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "time": time, "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:version": {} } },
        })
    };
    let written = [
        written("registration", "2026-05-01T11:00:00Z"),
        written("hub-addons", "2026-05-01T11:30:00Z"),
    ];
    let scene = Scene::in_order().profile(&json!({ "metadata": { "managedFields": written } }));
    assert_eq!(scene.trouble(), []);
}

#[test]
fn a_whole_hub_is_explained_by_its_problems_alone() {
    let mut objects = vec![exclusive("prod")];
    objects.extend((0..40).map(|number| member(&format!("c{number}"), "prod")));
    objects.extend(["blues", "reds"].map(|namespace| binding(namespace, "prod")));
    objects.push(with(
        binding("greens", "prod"),
        &json!({ "status": { "conditions": [condition("Bound", "False", "R")] } }),
    ));
    let mut hub = Observed::new(
        now(),
        ProjectionSettings::default(),
        fleet(objects),
        access(RSA),
        CredentialIndex::default(),
    );
    (hub.knows_clusters, hub.knows_sets) = (true, true);
    hub.bindings_of.set(None, true);
    hub.profiles_of.set(None, true);
    hub.credentials.set_accounts_read(true);
    let explanation = explain(&hub, &Question::default());
    assert_eq!((explanation.summary.namespaces, explanation.summary.pairs), (3, 80));
    assert_eq!(explanation.summary.problem, 80);
    let bound: Vec<_> =
        explanation.findings.iter().filter(|it| it.code.as_str() == "NotBound").collect();
    assert_eq!(bound.len(), 1, "once for the binding, not for each cluster");
    assert!(explanation.findings.iter().all(|finding| finding.mark != Status::Ok));
}
