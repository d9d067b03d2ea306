//! Which accounts and objects of Kueue a change of the fleet concerns.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, ClusterName};
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessSettings, Concerned, FoundObject, KnownAccess, ObservedObject,
};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::arbitrary::{hub_and_steps, keys};
use crate::support::consumer_access::settings_of;
use crate::support::{arrive, binding, cases, exclusive, fleet, member, with};

/// Two consumers in namespaces of their own, and one in the namespace of a cluster.
fn settings() -> AccessSettings {
    settings_of(&json!([
        { "namespace": "blues", "name": "jobs", "multiKueue": { "configs": [{ "name": "multikueue" }] } },
        { "namespace": "reds", "name": "apps" },
        { "namespace": "b", "name": "own" },
    ]))
}

fn hub() -> Fleet {
    let bindings = ["blues", "reds", "b"].map(|namespace| binding(namespace, "prod"));
    fleet([member("a", "prod"), member("b", "prod"), exclusive("prod")].into_iter().chain(bindings))
}

fn namespaces(names: &[&str]) -> Touched {
    Touched::Namespaces(names.iter().map(|name| (*name).into()).collect())
}

fn known(keys: impl IntoIterator<Item = AccountKey>) -> KnownAccess {
    let mut known = KnownAccess::default();
    keys.into_iter().for_each(|key| known.insert(&key));
    known
}

fn existing(keys: impl IntoIterator<Item = AccessKey>) -> BTreeMap<AccessKey, FoundObject> {
    let object = ObservedObject::read(&ObjectMeta::default(), None);
    let found = FoundObject { object, is_ours: true };
    keys.into_iter().map(|key| (key, found.clone())).collect()
}

/// The declared MultiKueueConfig, which lists this.
pub fn listing(clusters: &Value) -> (AccessKey, FoundObject) {
    let spec = json!({ "spec": { "clusters": clusters } });
    let marks = settings().marks().map(|(mark, value)| (mark.to_owned(), value.to_owned()));
    let metadata = ObjectMeta { labels: Some(marks.into()), ..ObjectMeta::default() };
    let object = ObservedObject::read(&metadata, Some(&spec));
    let config = AccessKey::MultiKueueConfig("multikueue".to_owned());
    (config, FoundObject { object, is_ours: true })
}

/// Every object that a change concerns.
fn concerned(
    settings: &AccessSettings,
    fleet: &Fleet,
    touched: &Touched,
    known: &KnownAccess,
    existing: &BTreeMap<AccessKey, FoundObject>,
) -> BTreeSet<AccessKey> {
    let Concerned { mut keys, names, .. } = settings.concerned(fleet, touched, known, existing);
    keys.extend(names.iter().flat_map(|name| settings.objects_of(fleet, name, None, known)));
    keys
}

/// The accounts that a change concerns where `gone`, which is no longer a cluster, has an account of each consumer.
fn accounts(touched: &Touched) -> Vec<String> {
    let on_gone = |account: &str| AccountKey { cluster: "gone".into(), account: account.into() };
    let known = known(["jobs", "apps", "own"].map(on_gone));
    let concerned = concerned(&settings(), &hub(), touched, &known, &BTreeMap::new());
    let accounts = concerned.iter().filter(|key| matches!(key, AccessKey::Access(..)));
    accounts.map(|key| format!("{}/{}", key.namespace().unwrap(), key.name())).collect()
}

#[test]
fn a_cluster_concerns_the_account_of_each_consumer_and_all_of_the_one_in_its_namespace() {
    assert_eq!(accounts(&Touched::Cluster("a".into())), ["a/apps", "a/jobs", "a/own"]);
    assert_eq!(accounts(&Touched::Cluster("new".into())), [""; 0], "no set selects it");
    assert_eq!(accounts(&Touched::Cluster("gone".into())), ["gone/apps", "gone/jobs", "gone/own"]);
    assert_eq!(
        accounts(&Touched::Cluster("b".into())),
        ["a/own", "b/apps", "b/jobs", "b/own", "gone/own"]
    );
}

#[test]
fn a_namespace_concerns_the_accounts_of_its_consumer_on_every_cluster_that_is_or_was_there() {
    assert_eq!(accounts(&namespaces(&["reds"])), ["a/apps", "b/apps", "gone/apps"]);
    assert_eq!(
        accounts(&namespaces(&["blues", "reds"])),
        ["a/apps", "a/jobs", "b/apps", "b/jobs", "gone/apps", "gone/jobs"]
    );
    assert_eq!(accounts(&namespaces(&["other"])), [""; 0]);
    assert_eq!(accounts(&Touched::Nothing), [""; 0]);
}

/// The objects of Kueue that a change concerns where those of `gone` and of an earlier list exist.
fn of_kueue(settings: &AccessSettings, touched: &Touched) -> Vec<String> {
    let existing = existing([
        AccessKey::MultiKueueCluster("gone".into()),
        AccessKey::MultiKueueConfig("earlier".to_owned()),
    ]);
    let concerned = concerned(settings, &hub(), touched, &known([]), &existing);
    concerned.iter().filter(|key| key.namespace().is_none()).map(AccessKey::name).collect()
}

#[test]
fn a_cluster_concerns_its_object_of_kueue_and_the_list() {
    assert_eq!(of_kueue(&settings(), &Touched::Cluster("a".into())), ["a", "multikueue"]);
    assert_eq!(of_kueue(&settings(), &Touched::Cluster("gone".into())), ["gone"], "not listed");
    let new = of_kueue(&settings(), &Touched::Cluster("new".into()));
    assert_eq!(new, [""; 0], "no set selects it");
}

#[test]
fn a_cluster_concerns_a_list_only_where_it_joins_or_leaves_it() {
    for (cluster, list, was_selected, is_concerned) in [
        ("a", json!(["a"]), true, false),
        ("a", json!(["b"]), true, false),
        ("a", json!(["b"]), false, true),
        ("gone", json!(["gone"]), false, true),
        ("gone", json!(["a"]), true, true),
        ("gone", json!(["a"]), false, false),
        ("gone", json!("unreadable"), false, true),
    ] {
        let (config, found) = listing(&list);
        let (mut known, existing) = (known([]), BTreeMap::from([(config.clone(), found)]));
        let selected = was_selected.then_some(ClusterName::from(cluster));
        known.select("multikueue", &selected.into_iter().collect());
        let touched = Touched::Cluster(cluster.into());
        let keys = concerned(&settings(), &hub(), &touched, &known, &existing);
        assert_eq!(keys.contains(&config), is_concerned, "{cluster} of {list}, {was_selected}");
    }
}

#[test]
fn the_namespace_of_the_consumer_concerns_every_object_of_kueue_also_as_the_name_of_a_cluster() {
    let all = ["a", "b", "gone", "earlier", "multikueue"];
    assert_eq!(of_kueue(&settings(), &namespaces(&["blues"])), all);
    assert_eq!(of_kueue(&settings(), &Touched::Cluster("blues".into())), all);
    assert_eq!(of_kueue(&settings(), &namespaces(&["reds", "b"])), [""; 0]);
    assert_eq!(of_kueue(&settings(), &Touched::Nothing), [""; 0]);
    let without = settings_of(&json!([{ "namespace": "blues", "name": "jobs" }]));
    assert_eq!(of_kueue(&without, &namespaces(&["blues"])), [""; 0]);
}

#[test]
fn a_cluster_that_joins_under_the_name_of_a_consumers_namespace_changes_all_of_its_grants() {
    let (settings, mut fleet) = (settings(), hub());
    let key = AccountKey { cluster: "a".into(), account: "jobs".into() };
    assert_eq!(settings.grant(&fleet, &key), Grant::Granted);
    let touched = arrive(&mut fleet, &member("blues", "prod"));
    assert_eq!(settings.grant(&fleet, &key), Grant::Refused, "its namespace is protected");
    let concerned = concerned(&settings, &fleet, &touched, &known([]), &BTreeMap::new());
    let cluster = AccessKey::MultiKueueCluster("a".into());
    assert!([AccessKind::Account.of(&key), cluster].iter().all(|key| concerned.contains(key)));
}

#[test]
fn decisions_concern_the_objects_of_the_consumer_that_refers_to_the_placement() {
    let of = |extra: Value, account: &str| {
        let object = json!({
            "namespace": "blues", "name": "jobs", "clusters": { "placementRef": { "name": "gpus" } },
        });
        let settings = settings_of(&json!([
            with(object, &extra),
            { "namespace": "blues", "name": "other" },
            { "namespace": "reds", "name": "apps" },
        ]));
        let consumer = settings.consumers.iter().find(|it| it.name.name == "jobs").unwrap();
        let mut known = known(
            ["jobs", "other", "apps", "user-server"]
                .map(|account| AccountKey { cluster: "gone".into(), account: account.into() }),
        );
        let sharing: BTreeSet<_> =
            consumer.is_own().then(|| consumer.name.clone()).into_iter().collect();
        for (cluster, is_settled) in [("shared", false), ("settled", true)] {
            known.share(&cluster.into(), &sharing, false);
            known.share(&cluster.into(), &BTreeSet::new(), is_settled);
        }
        let concerned = |clusters: Option<&BTreeSet<ClusterName>>| -> Vec<_> {
            let keys = settings.objects_of(&hub(), &consumer.name, clusters, &known);
            keys.iter().map(ToString::to_string).collect()
        };
        let account = |cluster: &&str| format!("ManagedServiceAccount {cluster}/{account}");
        let of_account = |clusters: &[&str]| clusters.iter().map(account).collect::<Vec<_>>();
        let moved = concerned(Some(&["c9".into()].into()));
        (moved, concerned(None), of_account(&["c9"]), of_account(&["a", "b", "gone"]))
    };
    let (moved, all, account, accounts) = of(json!({}), "jobs");
    assert_eq!((moved, all), (account, accounts));
    let (moved, all, account, mut accounts) = of(json!({ "identity": "Own" }), "user-server");
    accounts[2] = "ManagedServiceAccount shared/user-server".to_owned();
    assert_eq!((moved, all), (account, accounts), "the account of the user server is everywhere");
    let kueue = json!({ "multiKueue": { "configs": [{ "name": "multikueue" }] }, "argoCD": {} });
    let (moved, all, mut account, _) = of(kueue, "jobs");
    account.extend(
        [
            "MultiKueueCluster c9",
            "MultiKueueConfig multikueue",
            "Secret blues/hub-addons-cluster-c9",
        ]
        .map(str::to_owned),
    );
    assert_eq!((moved, all.len()), (account, 3 * 3 + 1));
}

/// The grant of each account, and of each object of Kueue.
fn grants(settings: &AccessSettings, fleet: &Fleet) -> Vec<(AccountKey, Grant, Grant)> {
    let clusters: BTreeSet<_> = keys().into_iter().map(|key| key.cluster).collect();
    let accounts = clusters.iter().flat_map(|cluster| {
        settings.consumers.iter().map(|consumer| AccountKey {
            cluster: cluster.clone(),
            account: consumer.account.clone(),
        })
    });
    let decided = accounts.map(|key| {
        let (grant, of_kueue) =
            (settings.grant(fleet, &key), settings.kueue_grant(fleet, &key.cluster));
        (key, grant, of_kueue)
    });
    decided.collect()
}

proptest! {
    #![proptest_config(cases(256))]

    /// Whoever queues only what a change concerns misses no grant that it changes.
    #[test]
    fn a_change_concerns_every_account_and_object_of_kueue_whose_grant_it_changes((hub, steps) in hub_and_steps()) {
        let (settings, mut fleet) = (settings(), Fleet::new(hub.bound));
        let mut before = grants(&settings, &fleet);
        for step in &steps {
            let touched = step.take(&mut fleet);
            let after = grants(&settings, &fleet);
            // Where a grant was anything but refused, the object exists.
            let granted = |grant: Grant| grant != Grant::Refused;
            let accounts = before.iter().filter(|(_, grant, _)| granted(*grant));
            let mut known = known(accounts.map(|(key, ..)| key.clone()));
            let clusters = before.iter().filter(|(_, _, grant)| granted(*grant));
            let clusters: BTreeSet<_> = clusters.map(|(key, ..)| key.cluster.clone()).collect();
            let mut existing =
                existing(clusters.iter().cloned().map(AccessKey::MultiKueueCluster));
            let certain = before.iter().filter(|(_, _, grant)| *grant == Grant::Granted);
            let certain: BTreeSet<_> = certain.map(|(key, ..)| key.cluster.clone()).collect();
            known.select("multikueue", &certain);
            let names: Vec<_> = clusters.iter().map(ToString::to_string).collect();
            existing.extend([listing(&json!(names))]);
            let concerned = concerned(&settings, &fleet, &touched, &known, &existing);
            for (was, is) in before.iter().zip(&after) {
                let key = &is.0;
                prop_assert!(was.1 == is.1 || concerned.contains(&AccessKind::Account.of(key)), "{key} is not concerned by {step:?}");
                let cluster = AccessKey::MultiKueueCluster(key.cluster.clone());
                prop_assert!(was.2 == is.2 || concerned.contains(&cluster), "{cluster} is not concerned by {step:?}");
                let list = AccessKey::MultiKueueConfig("multikueue".to_owned());
                prop_assert!(granted(was.2) == granted(is.2) || concerned.contains(&list), "{key} moves by {step:?}");
            }
            before = after;
        }
    }
}
