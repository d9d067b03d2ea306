//! Why a namespace cannot see or reach a cluster.

mod laws;
mod own_identity;
mod permissions;
mod recorded;
mod scene;
mod steps;

use std::collections::BTreeMap;

use hub_core::access::{AccessIndex, AccessSource};
use hub_core::credential::index::CredentialIndex;
use hub_core::explain::observed::{OCM_GATES, Observed, enabled_gates};
use hub_core::explain::{Object, Question, Status, Step, explain};
use hub_core::project::ProjectionSettings;
use serde_json::json;

use self::scene::{CONTROLLERS, RSA, Scene, access, now, one};
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
fn a_gate_of_ocm_is_a_problem_if_it_is_that_of_a_controller_of_ours_that_runs() {
    let beside = |controllers: &[&str], gate: &'static str| {
        let mut hub = Scene::in_order().observed();
        hub.leases.as_mut().unwrap().retain(|name, _| controllers.contains(&name.as_str()));
        let object = Object::namespaced("Deployment", "ocm", "manager");
        hub.ocm_gates.insert(gate, vec![(object, "ClusterProfile")]);
        let findings = explain(&hub, &one("team", "c1")).findings.into_iter();
        let problems = findings.filter(|finding| finding.mark > Status::Ok);
        problems
            .map(|finding| (finding.code.as_str().to_owned(), finding.fix.unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(OCM_GATES.map(|ocm| ocm.controller), CONTROLLERS);
    let enabled = [(
        "OcmGateEnabled".to_owned(),
        "kubectl --namespace ocm edit deployment manager".to_owned(),
    )];
    for controller in CONTROLLERS {
        assert_eq!(beside(&CONTROLLERS, controller), enabled, "{controller}");
        assert_eq!(beside(&[controller], controller), enabled, "{controller}");
        let others: Vec<_> = CONTROLLERS.into_iter().filter(|other| *other != controller).collect();
        assert_eq!(beside(&others, controller), [], "{controller}");
    }
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
fn each_name_that_a_gate_of_ocm_has_had_counts() {
    let names = |controller: &str| {
        OCM_GATES.into_iter().find(|gate| gate.controller == controller).unwrap()
    };
    for (controller, on, off) in [
        ("profile-projector", &["ClusterProfile"][..], &["ClusterProfileAccessProvider"][..]),
        (
            "access-provisioner",
            &["ClusterProfile", "ClusterProfileAccessProvider"],
            &["ClusterProfileCredSyncer", "DefaultClusterSet"],
        ),
        (
            "credential-syncer",
            &["ClusterProfile", "ClusterProfileCredSyncer"],
            &["ClusterProfileAccessProvider", "EphemeralIdentity"],
        ),
    ] {
        let gate = names(controller);
        for name in on {
            assert_eq!(gate.named(["Other", name].into_iter()), Some(*name), "{controller}");
        }
        assert_eq!(gate.named(off.iter().copied()), None, "{controller}");
    }
}

#[test]
fn the_gates_of_a_program_are_those_that_its_arguments_enable() {
    let table: [(&[&str], &[&str]); 7] = [
        (&[], &[]),
        (&["--leader-elect=true", "--feature-gates=A=true"], &["A"]),
        (&["--feature-gates=A=false,B=True,C=true"], &["B", "C"]),
        (&["--feature-gates=A=true", "--feature-gates=B=true"], &["A", "B"]),
        (&["A=true", "--feature-gates", "--feature-gates=A,=true=,B=tRUE,C=yes"], &[]),
        (&["--feature-gates=A=1,B=t,C=T,D=TRUE, E = true "], &["A", "B", "C", "D", "E"]),
        (&["--feature-gates=A=0,B=f,C=F,D=FALSE,E=False"], &[]),
    ];
    for (arguments, gates) in table {
        let enabled: Vec<_> = enabled_gates(arguments.iter().copied()).collect();
        assert_eq!(enabled, gates, "{arguments:?}");
    }
}

#[test]
fn a_gate_of_ocm_that_cannot_be_read_is_unknown_where_it_matters() {
    let unread = || Scene::in_order().observing(|hub| hub.ocm_gates.clear());
    let unknown = |scene: Scene| {
        let findings =
            scene.explained().findings.into_iter().filter(|finding| finding.mark > Status::Ok);
        let shown = findings
            .map(|it| (it.code.as_str().to_owned(), it.mark, it.object.name, it.fix.unwrap()));
        shown.collect::<Vec<_>>()
    };
    let expected = [
        "get clustermanagers/cluster-manager",
        "list deployments/cluster-proxy-addon-manager",
        "list deployments/managed-serviceaccount-addon-manager",
    ]
    .map(|what| {
        let name = what.split('/').next_back().unwrap().to_owned();
        let fix = format!("kubectl auth can-i {what} --all-namespaces");
        ("NotReadable".to_owned(), Status::Unknown, name, fix)
    });
    assert_eq!(unknown(unread()), expected);
    // Beside a controller of ours that does not run, or writes another entry, it does not matter.
    let none = unread().observing(|hub| hub.leases = Some(BTreeMap::new()));
    assert_eq!(unknown(none), []);
    let mut hub = unread().observed();
    hub.access = AccessIndex::new(
        "ours",
        AccessSource::Static("https://front/{cluster}".parse().unwrap()),
        true,
    );
    let findings = explain(&hub, &one("team", "c1")).findings.into_iter();
    let unread = findings.filter(|finding| finding.code.as_str() == "NotReadable");
    assert_eq!(
        unread.map(|finding| finding.object.name).collect::<Vec<_>>(),
        ["cluster-manager", "managed-serviceaccount-addon-manager"]
    );
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
