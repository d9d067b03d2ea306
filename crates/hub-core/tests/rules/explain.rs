//! Why a namespace cannot see or reach a cluster.

#![cfg(test)]

mod laws;
mod orphans;
mod own_identity;
mod permissions;
mod recorded;
mod scene;
mod steps;

use std::collections::BTreeMap;

use hub_api::labels;
use hub_core::access::{AccessIndex, AccessSource, Known, Presented, PublishedServer, Sighting};
use hub_core::credential::index::{CredentialIndex, ProfileMetadata};
use hub_core::explain::observed::{Lease, OCM_GATES, Observed, enabled_gates};
use hub_core::explain::{Object, Question, Status, Step, explain};
use hub_core::fleet::Fleet;
use hub_core::project::ProjectionSettings;
use serde_json::{Value, json};

use self::scene::{CONTROLLERS, RSA, Scene, access, access_without, lease, now, one};
use crate::support::credential::secret_key;
use crate::support::{NOON, binding, condition, exclusive, fleet, key, member, with};

#[test]
fn where_everything_is_in_order_every_step_says_so() {
    let explanation = Scene::in_order().explained();
    assert_eq!(explanation.mark(), Status::Ok, "{explanation:#?}");
    let mut steps: Vec<_> = explanation.findings.iter().map(|finding| finding.step).collect();
    steps.dedup();
    // No object asks for access there, no application has an identity of its own, and no server was asked.
    let left_out = [Step::ClusterAccess, Step::OwnIdentity, Step::Server];
    let of_copies: Vec<_> = Step::ALL.iter().copied().filter(|step| !left_out.contains(step)).collect();
    assert_eq!(steps, of_copies);
    assert!(explanation.findings.iter().all(|finding| !finding.object.name.is_empty()));
}

#[test]
fn a_server_that_was_asked_is_in_order_if_clients_accept_its_certificate() {
    let presents = |server: &PublishedServer, names: &[&str]| {
        let verified_by = server.current.anchors().cloned().collect();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Sighting::Presented(Presented { verified_by, names, expires: now(), refused: None })
    };
    let unreachable = |_: &PublishedServer| Sighting::Unreachable("no such host".to_owned());
    let explained = |sighting: &dyn Fn(&PublishedServer) -> Sighting| {
        let mut hub = Scene::in_order().observed();
        let profile = &hub.profiles[&key("team", "c1")].observed;
        let server = PublishedServer::of_profile(profile, hub.access.provider()).unwrap();
        let sighting = sighting(&server);
        hub.servers = vec![(server, sighting)];
        let findings = explain(&hub, &one("team", "c1")).findings;
        let step = findings.into_iter().find(|finding| finding.step == Step::Server).unwrap();
        (step.code.as_str().to_owned(), step.mark, step.message)
    };
    let (code, mark, _) = explained(&|server| presents(server, &[&server.address.host]));
    assert_eq!((&*code, mark), ("ServerChecked", Status::Ok));
    let (code, mark, message) = explained(&|server| presents(server, &[]));
    assert_eq!((&*code, mark), ("ServerCheckFailed", Status::Problem));
    assert!(message.contains("does not name it"), "{message}");
    let (code, mark, message) = explained(&unreachable);
    assert_eq!((&*code, mark), ("ServerNotReached", Status::Unknown));
    assert!(message.contains("cannot be reached: no such host"), "{message}");
}

#[test]
fn controllers_that_do_not_lead_and_others_that_do_their_work_are_named() {
    let trouble = |scene: Scene| scene.trouble();
    let set = |holder: Option<&'static str>, renewed: &'static str| {
        let mut scene = Scene::in_order();
        scene.edits = vec![match (holder, renewed) {
            (None, _) => |hub| replace_lease(hub, lease(None, NOON)),
            _ => |hub| replace_lease(hub, lease(Some("pod-1"), "2026-05-01T11:59:00Z")),
        }];
        scene
    };
    let not_leading = [(Step::Controllers, "ControllerNotLeading".to_owned(), Status::Problem)];
    assert_eq!(trouble(set(None, NOON)), not_leading);
    assert_eq!(trouble(set(Some("pod-1"), "2026-05-01T11:59:00Z")), not_leading);
    // Without leader election there is no Lease: that is wrong where something is left to write.
    let no_leases = Scene::in_order().observing(|hub| hub.leases = Some(BTreeMap::new()));
    assert_eq!(trouble(no_leases), []);
    let nobody_writes = Scene::in_order().observing(|hub| {
        hub.leases = Some(BTreeMap::new());
        hub.profiles.clear();
    });
    let expected = [(Step::Controllers, "ControllerNotFound"), (Step::Profile, "NoProfile")];
    let expected = expected.map(|(step, code)| (step, code.to_owned(), Status::Problem));
    assert_eq!(trouble(nobody_writes), expected);

    // A gate of OCM is a problem if it is that of a controller of ours that runs.
    let beside = |controllers: &[&str], gate: &'static str| {
        let mut hub = Scene::in_order().observed();
        hub.leases.as_mut().unwrap().retain(|name, _| controllers.contains(&name.as_str()));
        let object = Object::namespaced("Deployment", "ocm", "manager");
        hub.ocm_gates.insert(gate, vec![(object, "ClusterProfile")]);
        let findings = explain(&hub, &one("team", "c1")).findings.into_iter();
        let problems = findings.filter(|finding| finding.mark > Status::Ok);
        problems.map(|finding| (finding.code.as_str().to_owned(), finding.fix.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(OCM_GATES.map(|ocm| ocm.controller), CONTROLLERS);
    let enabled =
        [("OcmGateEnabled".to_owned(), "kubectl --namespace ocm edit deployment manager".to_owned())];
    for controller in CONTROLLERS {
        assert_eq!(beside(&CONTROLLERS, controller), enabled, "{controller}");
        assert_eq!(beside(&[controller], controller), enabled, "{controller}");
        let others: Vec<_> = CONTROLLERS.into_iter().filter(|other| *other != controller).collect();
        assert_eq!(beside(&others, controller), [], "{controller}");
    }
    let written = json!({ "metadata": { "managedFields": [
        managed("hub-addons", "2026-05-01T11:00:00Z"), managed("registration", "2026-05-01T11:30:00Z"),
    ] } });
    let scene = Scene::in_order().profile(&written);
    assert_eq!(trouble(scene), [(Step::Profile, "OtherWriter".to_owned(), Status::Problem)]);
    // Once this project has written last, what another has left is no matter.
    let written = json!({ "metadata": { "managedFields": [
        managed("registration", "2026-05-01T11:00:00Z"), managed("hub-addons", "2026-05-01T11:30:00Z"),
    ] } });
    assert_eq!(trouble(Scene::in_order().profile(&written)), []);
}

#[test]
fn a_controller_that_does_not_run_has_no_check_mark_and_its_line_names_it() {
    let controllers = |scene: Scene, question: &Question| {
        let findings = explain(&scene.observed(), question).findings.into_iter();
        let about = findings.filter(|finding| finding.step == Step::Controllers);
        about.map(|finding| (finding.mark, finding.message)).collect::<Vec<_>>()
    };
    let no_syncer = Scene::in_order().observing(|hub| {
        hub.leases.as_mut().unwrap().remove("credential-syncer");
    });
    let lines = controllers(no_syncer, &one("team", "c1"));
    let expected = [
        (Status::Ok, "a process leads: profile-projector, access-provisioner"),
        (Status::Info, "no Lease names credential-syncer: it does not run, and nothing needs it"),
    ];
    assert_eq!(lines, expected.map(|(mark, text)| (mark, text.to_owned())));
    // None runs: one line, before all others, also where there is nothing to write.
    let none = || Scene::in_order().observing(|hub| hub.leases = Some(BTreeMap::new()));
    let lines = controllers(none(), &one("team", "c1"));
    assert!(matches!(&*lines, [(Status::Info, _)]), "the profile shows that they have run: {lines:?}");
    for question in [Question::default(), one("team", "c1")] {
        let mut hub = none().observed();
        hub.profiles.clear();
        let findings = explain(&hub, &question).findings;
        assert_eq!(findings[0].message, "no controller of the hub addons runs: none has a Lease");
        assert_eq!(findings[0].mark, Status::Problem);
    }
    let empty = none().observing(|hub| {
        (hub.fleet, hub.profiles) = (fleet([]), BTreeMap::new());
    });
    let lines = controllers(empty, &Question::default());
    assert!(matches!(&*lines, [(Status::Problem, _)]), "{lines:?}");
}

#[test]
fn a_namespace_that_does_not_exist_is_called_that_and_nothing_else_is_said_about_it() {
    let missing = |namespace: &str, question: &Question| {
        let mut hub = Scene::in_order().observed();
        hub.missing_namespaces.insert(namespace.into());
        let explanation = explain(&hub, question);
        let findings = explanation.findings.into_iter().filter(|it| it.step != Step::Controllers);
        let about = findings.map(|it| (it.code.as_str().to_owned(), it.message, it.fix.unwrap()));
        (explanation.summary.problem, about.collect::<Vec<_>>())
    };
    let code = "NoNamespace".to_owned();
    let (problems, about) = missing("teams", &one("teams", "c1"));
    let text = "the namespace does not exist; did you mean the namespace team?".to_owned();
    let fix = "kubectl clusterprofile explain team/c1".to_owned();
    assert_eq!((problems, about), (1, vec![(code.clone(), text, fix)]));
    let whole = Question { namespaces: vec!["elsewhere".into()], ..Question::default() };
    let (problems, about) = missing("elsewhere", &whole);
    let text = "the namespace does not exist".to_owned();
    assert_eq!((problems, about), (0, vec![(code, text, "kubectl create namespace elsewhere".to_owned())]));
}

#[test]
fn each_name_that_a_gate_of_ocm_has_had_counts() {
    let names = |controller: &str| OCM_GATES.into_iter().find(|gate| gate.controller == controller).unwrap();
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
fn the_fix_for_a_missing_trust_anchor_switches_the_user_server_on() {
    let scene = Scene::in_order().profile(&json!({ "status": { "accessProviders": null } }));
    let scene = scene.observing(|hub| {
        hub.access.set_anchors(hub.access.place(), Err(hub_core::trust::TrustError::NoCertificate));
    });
    let findings = scene.explained().findings.into_iter();
    let fix: Vec<_> =
        findings.filter(|it| it.code.as_str() == "NoTrustAnchor").filter_map(|it| it.fix).collect();
    let [fix] = &*fix else { panic!("{fix:?}") };
    for value in ["enableServiceProxy=true", "userServer.enabled=true"] {
        assert!(fix.contains(value), "{fix}");
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
        let findings = scene.explained().findings.into_iter().filter(|finding| finding.mark > Status::Ok);
        let shown =
            findings.map(|it| (it.code.as_str().to_owned(), it.mark, it.object.name, it.fix.unwrap()));
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
    hub.access =
        AccessIndex::new("ours", AccessSource::Static("https://front/{cluster}".parse().unwrap()), true);
    let findings = explain(&hub, &one("team", "c1")).findings.into_iter();
    let unread = findings.filter(|finding| finding.code.as_str() == "NotReadable");
    assert_eq!(
        unread.map(|finding| finding.object.name).collect::<Vec<_>>(),
        ["cluster-manager", "managed-serviceaccount-addon-manager"]
    );
}

fn replace_lease(hub: &mut Observed, lease: Lease) {
    hub.leases.as_mut().unwrap().insert("profile-projector".to_owned(), lease);
}

fn managed(manager: &str, time: &str) -> Value {
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "multicluster.x-k8s.io/v1alpha1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:version": {} } },
    })
}

#[test]
fn a_misspelt_name_is_answered_with_the_nearest() {
    let message = |scene: Scene, namespace: &str, cluster: &str| {
        let explanation = explain(&scene.observed(), &one(namespace, cluster));
        let wrong = explanation.findings.into_iter().find(|finding| finding.mark == Status::Problem).unwrap();
        (wrong.code.as_str().to_owned(), wrong.message)
    };
    let berlin = || Scene::in_order().and(member("berlin", "prod"));
    let (code, text) = message(berlin(), "team", "berlni");
    assert_eq!(code, "NoSuchCluster");
    assert!(text.ends_with("did you mean berlin?"), "{text}");
    let (code, text) = message(berlin(), "teams", "berlin");
    assert_eq!(code, "NoBinding");
    assert!(text.ends_with("did you mean the namespace team?"), "{text}");
    let set = Scene::in_order().and(exclusive("product")).and(binding("other", "produtc"));
    let (code, text) = message(set, "other", "c1");
    assert_eq!(code, "NoSuchSet");
    assert!(text.ends_with("did you mean product?"), "{text}");
}

#[test]
fn what_cannot_be_read_is_a_question_mark_and_the_rest_is_explained() {
    let marks = |scene: Scene| -> Vec<(Step, Status)> {
        let findings = scene.explained().findings.into_iter();
        let mut marks: Vec<_> = findings.map(|finding| (finding.step, finding.mark)).collect();
        marks.dedup();
        marks
    };
    // Somebody with permissions in the one namespace.
    let scene = Scene::in_order().observing(|hub| {
        hub.fleet = fleet([binding("team", "prod")]);
        (hub.knows_clusters, hub.knows_sets, hub.knows_anchors) = (false, false, false);
        hub.leases = None;
        let mut credentials = CredentialIndex::default();
        let copy = hub.credentials.copy(&secret_key("team", "c1-kueue")).unwrap().clone();
        credentials.apply_copy(&secret_key("team", "c1-kueue"), copy);
        credentials.copies_listed(Some("team".into()));
        hub.credentials = credentials;
        hub.permissions.clear();
    });
    assert_eq!(
        marks(scene),
        [
            (Step::Controllers, Status::Unknown),
            (Step::ClusterSet, Status::Unknown),
            (Step::Profile, Status::Ok),
            (Step::AccessProvider, Status::Ok),
            (Step::Credential, Status::Ok),
            (Step::ConsumerPermission, Status::Ok),
        ]
    );
    let nothing = Scene::in_order().observing(|hub| {
        let access = access_without(false, Known::Unknown);
        let settings = ProjectionSettings::default();
        *hub = Observed::new(now(), settings, Fleet::default(), access, CredentialIndex::default());
    });
    let marks = marks(nothing);
    assert!(marks.iter().all(|(_, mark)| *mark == Status::Unknown), "{marks:?}");
}

#[test]
fn without_secrets_the_agent_and_the_syncer_are_taken_at_their_word() {
    fn forget_secrets(hub: &mut Observed) {
        let known = hub.credentials.accounts().next().unwrap();
        let account = hub.credentials.account(&known).unwrap().clone();
        let mut credentials = CredentialIndex::default();
        credentials.apply_account(known, account);
        credentials.accounts_listed();
        let metadata =
            json!({ "uid": "u", "labels": { labels::CLUSTER_MANAGER: "open-cluster-management" } });
        let metadata = serde_json::from_value(metadata).unwrap();
        let profile = ProfileMetadata::read(&metadata, Some("open-cluster-management"));
        credentials.apply_profile(key("team", "c1"), profile);
        hub.credentials = credentials;
    }
    assert_eq!(Scene::in_order().observing(forget_secrets).trouble(), []);
    let report = |message: &str| {
        let mut synced = condition("SyncedToClusterProfiles", "False", "WriteRefused");
        synced["message"] = message.into();
        json!({ "status": { "conditions": [condition("TokenReported", "True", "R"), synced] } })
    };
    let reported = |message: &str| {
        Scene::in_order().with("ManagedServiceAccount", &report(message)).observing(forget_secrets).trouble()
    };
    let refused = [(Step::Credential, "WriteRefused".to_owned(), Status::Problem)];
    assert_eq!(reported("team: the API server refuses to write the Secret"), refused);
    assert_eq!(reported("teams, my-team: the API server refuses to write the Secret"), []);
    let silent = Scene::in_order().observing(forget_secrets).observing(|hub| hub.leases = None);
    let unknown = [(Step::Controllers, "NotReadable"), (Step::Token, "NotReadable")];
    let mut trouble = silent.trouble();
    trouble.dedup();
    assert_eq!(trouble, unknown.map(|(step, code)| (step, code.to_owned(), Status::Unknown)));
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
    hub.bindings_of.add(None);
    hub.profiles_of.add(None);
    hub.credentials.accounts_listed();
    let explanation = explain(&hub, &Question::default());
    assert_eq!((explanation.summary.namespaces, explanation.summary.pairs), (3, 80));
    assert_eq!(explanation.summary.problem, 80);
    let bound: Vec<_> = explanation.findings.iter().filter(|it| it.code.as_str() == "NotBound").collect();
    assert_eq!(bound.len(), 1, "once for the binding, not for each cluster");
    assert!(explanation.findings.iter().all(|finding| finding.mark != Status::Ok));
}
