//! Kueue's objects exist for exactly the clusters of the consumer that declares a MultiKueueConfig, and nothing of
//! another owner is touched.

use std::collections::{BTreeMap, BTreeSet};

use hub_core::consumer_access::{
    AccessAction, AccessKey, AccessSettings, FoundObject, MAX_CLUSTERS,
};
use hub_core::finding::{Finding, Reason};
use hub_core::fleet::Fleet;
use hub_core::grant::Grant;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::consumer_access::{execute, observe, settings_of};
use crate::support::{
    cases, deleting, doubting, exclusive, fleet, granting, granting_all, member, with,
};

fn declaring(config: Option<&str>) -> AccessSettings {
    let kueue = config.map(|config| json!({ "configs": [{ "name": config }] }));
    settings_of(&json!([{ "namespace": "team", "name": "app", "multiKueue": kueue }]))
}

fn settings() -> AccessSettings {
    declaring(Some("multikueue"))
}

fn config() -> AccessKey {
    AccessKey::MultiKueueConfig("multikueue".to_owned())
}

fn cluster(name: &str) -> AccessKey {
    AccessKey::MultiKueueCluster(name.into())
}

/// Kueue's objects on an API server, and what the controller has found.
#[derive(Debug, Clone, Default)]
struct World {
    objects: BTreeMap<AccessKey, Value>,
    found: BTreeMap<AccessKey, FoundObject>,
    writes: Vec<String>,
    findings: BTreeMap<AccessKey, Vec<Finding>>,
}

impl World {
    fn observe(&mut self, settings: &AccessSettings) {
        let before = std::mem::take(&mut self.found);
        for (key, object) in &self.objects {
            let found = FoundObject::seen(settings, before.get(key), observe(object));
            self.found.insert(key.clone(), found);
        }
    }

    /// Carries out what is planned until nothing is left, as an API server with Kueue's CRDs does.
    fn settle(&mut self, settings: &AccessSettings, fleet: &Fleet) {
        for _ in 0..4 {
            let mut keys: Vec<AccessKey> =
                fleet.cluster_names().cloned().map(AccessKey::MultiKueueCluster).collect();
            keys.extend(self.objects.keys().cloned());
            keys.extend(settings.multi_kueue_configs().chain([config()]));
            let before = self.writes.len();
            for key in keys {
                self.observe(settings);
                let plan = settings.plan_kueue(fleet, &key, |key| self.found.get(key));
                self.findings.insert(key.clone(), plan.findings);
                let Some(verb) = plan.action.verb() else { continue };
                self.writes.push(format!("{verb} {key}"));
                let created = execute(&mut self.objects, &key, &key.to_string(), plan.action);
                self.found.extend(created.map(|it| (key, it)));
            }
            let config = self.objects.get(&config());
            if let Some(config) = config.filter(|it| it["metadata"]["uid"] != "theirs") {
                let listed = config["spec"]["clusters"].as_array().unwrap().len();
                assert!((1..=MAX_CLUSTERS).contains(&listed), "the CRD rejects {config}");
            }
            if self.writes.len() == before {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.writes);
    }

    /// Another user edits an object.
    fn edit(&mut self, key: AccessKey, patch: &Value) {
        let object = self.objects.remove(&key).unwrap();
        self.objects.insert(key, with(object, patch));
    }

    fn listed(&self) -> Vec<&str> {
        let listed = self.objects.get(&config()).and_then(|it| it["spec"]["clusters"].as_array());
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn writes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.writes)
    }

    fn reasons(&self, key: &AccessKey) -> Vec<Reason> {
        self.findings.get(key).into_iter().flatten().map(|note| note.reason).collect()
    }
}

/// More names than a MultiKueueConfig may list.
const NAMES: &str = "abcdefghijklmnopqrstuvwxyz";

/// What exists for these clusters.
fn settled(names: &[&str]) -> World {
    let mut world = World::default();
    world.settle(&settings(), &granting(names));
    world.writes.clear();
    world
}

/// An object of another owner.
fn theirs(spec: &Value) -> Value {
    json!({ "metadata": { "name": "any", "uid": "theirs", "resourceVersion": "7" }, "spec": spec })
}

#[test]
fn each_granted_cluster_takes_one_write_and_the_list_of_all_one_more() {
    let mut world = World::default();
    world.settle(&settings(), &granting(&["b", "a"]));
    let objects = ["MultiKueueCluster a", "MultiKueueCluster b", "MultiKueueConfig multikueue"];
    assert_eq!(world.writes(), objects.map(|object| format!("create {object}")));
    assert_eq!(world.listed(), ["a", "b"]);
    let object = &world.objects[&cluster("a")];
    let source = json!({ "clusterProfileRef": { "name": "a" } });
    assert_eq!(object["spec"], json!({ "clusterSource": source }));
    assert_eq!(object["apiVersion"], "kueue.x-k8s.io/v1beta2");
    assert_eq!(object["metadata"]["labels"]["hub-addons/installation"], "addons");
    // As after a restart: nothing is known.
    world.found.clear();
    world.settle(&settings(), &granting(&["a", "b"]));
    assert!(world.writes().is_empty());
    world.settle(&settings(), &granting(&["a", "b", "c"]));
    assert_eq!(world.writes(), ["create MultiKueueCluster c", "patch MultiKueueConfig multikueue"]);
}

#[test]
fn another_object_in_the_namespace_takes_a_list_over_without_a_write() {
    let of = |name: &str, created: u64, identity: &str| {
        let kueue = json!({ "configs": [{ "name": "multikueue" }] });
        json!({ "namespace": "team", "name": name, "created": created, "identity": identity, "multiKueue": kueue })
    };
    let (old, new) = (of("app", 1, "Copy"), of("app-own", 2, "Own"));
    let (mut world, fleet) = (settled(&["a", "b"]), granting(&["a", "b"]));
    for objects in [json!([old, new]), json!([new])] {
        world.settle(&settings_of(&objects), &fleet);
        assert!(world.writes().is_empty(), "{objects}");
    }
    assert_eq!(world.listed(), ["a", "b"]);
}

#[test]
fn what_is_no_longer_granted_or_declared_is_deleted_and_an_empty_list_with_it() {
    let protected = AccessSettings { protected: "team".parse().unwrap(), ..settings() };
    let unbound = fleet([member("a", "prod"), member("b", "prod"), exclusive("prod")]);
    let both = || granting(&["a", "b"]);
    for (what, settings, fleet) in [
        ("unbound", settings(), unbound),
        ("no object", settings_of(&json!([])), both()),
        ("protected", protected, both()),
        ("not declared", declaring(None), both()),
    ] {
        let mut world = settled(&["a", "b"]);
        world.settle(&settings, &fleet);
        assert!(world.objects.is_empty(), "{what}: {world:?}");
        assert_eq!(world.writes().len(), 3, "{what}");
    }
    let mut world = settled(&["a", "b"]);
    world.settle(&settings(), &granting(&["b"]));
    assert_eq!(world.listed(), ["b"]);
    assert!(!world.objects.contains_key(&cluster("a")));
    // Another name: the list moves.
    world.settle(&declaring(Some("other")), &granting(&["b"]));
    assert!(!world.objects.contains_key(&config()));
}

#[test]
fn twenty_clusters_are_listed_and_the_others_are_named_in_a_finding() {
    let names: Vec<String> = (10..42).map(|index| format!("c{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = settled(&names[..20]);
    assert_eq!(world.reasons(&config()), []);
    world.settle(&settings(), &granting(&names[..21]));
    assert_eq!(world.writes(), ["create MultiKueueCluster c30"], "the list stays as it is");
    world.settle(&settings(), &granting(&names));
    assert_eq!(world.listed(), names[..20]);
    assert_eq!(world.reasons(&config()), [Reason::MultiKueueConfigFull]);
    let message = &world.findings[&config()][0].message;
    let advice = "c39 and 2 more: grant fewer clusters to the namespace, or divide them by label";
    assert!(message.contains("not c30, c31") && message.contains(advice), "{message}");
    let has_own = |name: &&str| world.objects.contains_key(&cluster(name));
    assert!(names.iter().all(has_own));
}

#[test]
fn a_listed_cluster_is_not_displaced_and_keeps_its_place() {
    let names: Vec<String> = (10..30).map(|index| format!("c{index}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = settled(&names);
    let mut reordered = names.clone();
    reordered.reverse();
    world.edit(config(), &json!({ "spec": { "clusters": reordered } }));
    names.push("a");
    world.settle(&settings(), &granting(&names));
    assert_eq!(world.writes(), ["create MultiKueueCluster a"]);
    assert_eq!(world.listed(), reordered);
    // A place that becomes free goes to the one that waited, at the end.
    names.remove(0);
    world.settle(&settings(), &granting(&names));
    assert_eq!(world.listed(), [&reordered[..19], &["a"]].concat());
}

#[test]
fn a_list_that_cannot_be_read_is_kept_while_a_grant_is_in_doubt() {
    let mut world = settled(&["a"]);
    world.edit(config(), &json!({ "spec": null }));
    world.observe(&settings());
    let plan = settings().plan_kueue(&doubting(&["a"]), &config(), |key| world.found.get(key));
    assert_eq!(plan.action, AccessAction::Nothing);
    let plan = settings().plan_kueue(&granting(&["a"]), &config(), |key| world.found.get(key));
    assert!(matches!(plan.action, AccessAction::Patch(..)), "{plan:?}");
}

#[test]
fn objects_of_other_owners_are_reported_left_alone_and_not_listed() {
    let mut world = World::default();
    let elsewhere = theirs(&json!({ "clusterSource": { "kubeConfig": { "location": "a" } } }));
    let list = theirs(&json!({ "clusters": ["x"] }));
    world.objects.insert(cluster("a"), elsewhere.clone());
    world.settle(&settings(), &granting(&["a", "b"]));
    assert_eq!(world.listed(), ["b"]);
    assert_eq!(world.reasons(&cluster("a")), [Reason::ForeignKueueObject]);
    world.settle(&settings(), &granting(&[]));
    assert_eq!(world.objects[&cluster("a")], elsewhere);
    assert_eq!(world.objects.len(), 1);
    world.writes.clear();
    world.objects.insert(config(), list.clone());
    world.settle(&settings(), &granting(&["b"]));
    assert_eq!(world.writes(), ["create MultiKueueCluster b"]);
    assert_eq!(world.reasons(&config()), [Reason::ForeignKueueObject]);
    assert_eq!(world.objects[&config()], list);
    // Labels that are set later change nothing.
    let labels = world.objects[&cluster("b")]["metadata"]["labels"].clone();
    world.edit(config(), &json!({ "metadata": { "labels": labels } }));
    for fleet in [granting(&["b"]), granting(&[])] {
        world.settle(&settings(), &fleet);
        assert_eq!(world.objects[&config()]["spec"], json!({ "clusters": ["x"] }));
    }
}

#[test]
fn an_edit_is_undone_and_what_users_of_kueue_set_is_kept() {
    let by_kubeconfig = json!({ "clusterProfileRef": null, "kubeConfig": { "location": "a" } });
    let mut world = settled(&["a", "b"]);
    for (key, spec) in [
        (cluster("a"), json!({ "clusterSource": { "clusterProfileRef": { "name": "b" } } })),
        (cluster("a"), json!({ "clusterSource": by_kubeconfig })),
        (config(), json!({ "clusters": ["x"] })),
    ] {
        let right = world.objects[&key].clone();
        world.edit(key.clone(), &json!({ "spec": spec }));
        world.settle(&settings(), &granting(&["a", "b"]));
        assert_eq!(world.writes(), [format!("patch {key}")]);
        assert_eq!(world.objects[&key]["spec"], right["spec"]);
    }
    world.edit(config(), &json!({ "spec": { "quotaManagement": "Automated" } }));
    world.settle(&settings(), &granting(&["a", "b"]));
    assert!(world.writes().is_empty());
    world.settle(&settings(), &granting(&["a"]));
    assert_eq!(world.objects[&config()]["spec"]["quotaManagement"], "Automated");
}

#[test]
fn an_object_that_is_being_deleted_is_waited_for() {
    let mut world = settled(&["a"]);
    for key in [cluster("a"), config()] {
        world.objects.insert(key.clone(), deleting(world.objects[&key].clone()));
    }
    for fleet in [granting(&["a"]), granting(&[]), granting(&["a", "b"])] {
        world.settle(&settings(), &fleet);
        let writes = world.writes().join(", ");
        assert!(!writes.contains("patch") && !writes.contains("delete"), "{writes}");
        assert!(world.reasons(&config()).contains(&Reason::KueueObjectTerminating));
    }
}

/// Clusters with a label `tier`, of the set `prod`, which is bound in the consumer's namespace.
fn tiers(clusters: &[(&str, &str)]) -> Fleet {
    let labelled = |(name, tier): &(&str, &str)| {
        with(member(name, "prod"), &json!({ "metadata": { "labels": { "tier": tier } } }))
    };
    granting_all(clusters.iter().map(labelled))
}

fn by_tier() -> AccessSettings {
    let list = |name: &str, tiers: &[&str]| {
        let expression = json!({ "key": "tier", "operator": "In", "values": tiers });
        json!({ "name": name, "selector": { "matchExpressions": [expression] } })
    };
    settings_of(&json!([{
        "namespace": "team", "name": "app",
        "multiKueue": { "configs": [list("gpu", &["gpu"]), list("any", &["gpu", "cpu"])] },
    }]))
}

#[test]
fn each_multi_kueue_config_lists_the_granted_clusters_that_it_selects_by_label() {
    let settings = by_tier();
    let mut world = World::default();
    world.settle(&settings, &tiers(&[("a", "gpu"), ("b", "cpu"), ("c", "edge")]));
    let listed = |world: &World, name: &str| {
        let config = world.objects.get(&AccessKey::MultiKueueConfig(name.to_owned()));
        config.map(|config| config["spec"]["clusters"].clone())
    };
    assert_eq!(listed(&world, "gpu"), Some(json!(["a"])));
    assert_eq!(listed(&world, "any"), Some(json!(["a", "b"])));
    // Kueue connects to every MultiKueueCluster, so a cluster that no list selects has none.
    assert!(!world.objects.contains_key(&cluster("c")));
    assert!(settings.kueue_grant(&tiers(&[("c", "edge")]), &"c".into()) == Grant::Refused);
    world.writes();

    // A label moves a cluster, and without a cluster there is no list.
    world.settle(&settings, &tiers(&[("a", "cpu"), ("b", "edge"), ("c", "cpu")]));
    assert_eq!(listed(&world, "gpu"), None);
    assert_eq!(listed(&world, "any"), Some(json!(["a", "c"])));
    assert!(!world.objects.contains_key(&cluster("b")));
    let writes = world.writes();
    assert_eq!(writes.len(), 4, "{writes:?}");
}

#[test]
fn each_list_has_its_own_limit() {
    let names: Vec<String> = (0..MAX_CLUSTERS + 5).map(|number| format!("c{number:02}")).collect();
    let tier = |index: usize| if index < MAX_CLUSTERS { "gpu" } else { "cpu" };
    let clusters: Vec<_> =
        names.iter().enumerate().map(|(index, name)| (name.as_str(), tier(index))).collect();
    let mut world = World::default();
    world.settle(&by_tier(), &tiers(&clusters));
    let is_full = |name: &str| {
        let findings = &world.findings[&AccessKey::MultiKueueConfig(name.to_owned())];
        findings.iter().any(|note| note.reason == Reason::MultiKueueConfigFull)
    };
    assert!(!is_full("gpu") && is_full("any"));
    let clusters = world.objects.keys().filter(|it| matches!(it, AccessKey::MultiKueueCluster(_)));
    assert_eq!(clusters.count(), names.len());
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_doubt_creates_and_deletes_nothing(
        existing in proptest::collection::btree_set(0..NAMES.len(), 0..30),
        fleet in proptest::collection::btree_set(0..NAMES.len(), 0..30),
        lost in proptest::collection::btree_set(0..NAMES.len(), 0..5),
    ) {
        let names = |places: &BTreeSet<usize>| places.iter().map(|at| &NAMES[*at..=*at]).collect::<Vec<_>>();
        let mut world = settled(&names(&existing));
        for name in names(&lost) {
            world.objects.remove(&cluster(name));
        }
        let before: Vec<AccessKey> = world.objects.keys().cloned().collect();
        let listed: Vec<String> = world.listed().into_iter().map(str::to_owned).collect();
        world.settle(&settings(), &doubting(&names(&(&existing | &fleet))));
        prop_assert!(world.objects.keys().eq(before.iter()));
        prop_assert_eq!(world.listed(), listed);
    }
}
