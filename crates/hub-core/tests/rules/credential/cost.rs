//! What a start and an event cost the syncer and consumer access, counted: a hub of twice the size costs at most
//! twice as much, whatever is doubled, and an event costs what it concerns.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels::SYNC_TO_NAMESPACES;
use hub_api::names::{AccountKey, Namespace};
use hub_core::consumer_access::{
    AccessKey, AccessSettings, Concerned, KnownAccess, ObservedAccess,
};
use hub_core::consumer_role::{AskingAccount, AskingAccounts, ConsumerRole};
use hub_core::credential::account::Scope;
use hub_core::credential::backlog::{AT_ONCE, Backlog};
use hub_core::credential::report::{Recipients, report};
use hub_core::effort::{self, Effort};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant;
use hub_core::known::Known;
use hub_core::project::ProjectionSettings;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::concerned::{Profiles, concerned_by};
use crate::consumer_concerned::listing;
use crate::support::api::projection_of;
use crate::support::consumer_access::{settings_of, status_of};
use crate::support::credential::{World, account, account_key, keys_in, secret_key, token};
use crate::support::{binding, by_labels, cluster, fleet, key, settings_of_permissions, with};

/// Whether each count is at most twice that of one half as large.
fn at_most_doubled(half: Effort, whole: Effort) -> bool {
    half.counts().into_iter().zip(whole.counts()).all(|(half, whole)| whole <= 2 * half)
}

/// The numbers of objects of a hub: of clusters, namespaces, sets, and accounts of each cluster.
type Shape = [usize; 4];

/// A hub where every set is bound in every namespace, and accounts name them all. No copy can be created, which takes the
/// longest reports.
fn objects(shape: Shape) -> Vec<Value> {
    scoped(shape, |_, names| names.join(","))
}

/// The same, with the namespaces that the account with this number names.
fn scoped(
    [clusters, namespaces, sets, accounts]: Shape,
    scope: impl Fn(usize, &[String]) -> String,
) -> Vec<Value> {
    let names: Vec<_> = (0..namespaces).map(|it| format!("n{it}")).collect();
    let mut objects = Vec::new();
    for set in 0..sets {
        let (set, label) = (format!("s{set}"), format!("in-{set}"));
        objects.push(by_labels(&set, &json!({ "matchLabels": { label: "" } })));
        objects.extend(names.iter().map(|namespace| binding(namespace, &set)));
    }
    for number in 0..clusters {
        let name = format!("c{number}");
        objects.push(cluster(&name, &json!({ format!("in-{}", number % sets): "" })));
        for number in 0..accounts {
            let scope = json!({ SYNC_TO_NAMESPACES: scope(number, &names) });
            let scope = json!({ "metadata": { "annotations": scope } });
            objects.push(with(account(&name, &format!("a{number}")), &scope));
            objects.push(token(&name, &format!("a{number}")));
        }
    }
    objects
}

/// A syncer, as far as its decisions go.
struct Syncer {
    world: World,
    recipients: BTreeMap<AccountKey, Recipients>,
}

impl Syncer {
    fn plan(&mut self, key: &hub_api::names::SecretKey) {
        let states = self.world.plan(key).states;
        let changes = self.world.index.set_planned(key, &states);
        let World { index, fleet, .. } = &self.world;
        for account in changes.into_iter().map(|change| change.account) {
            let recipients = self.recipients.entry(account.clone());
            let recipients = recipients.or_insert_with(|| Recipients::of(index, fleet, &account));
            drop(report(index, &account, index.tally.troubles(&account), recipients));
        }
    }

    fn start(objects: Vec<Value>) -> Self {
        let mut syncer = Self { world: World::of(objects), recipients: BTreeMap::new() };
        syncer.plan_all();
        syncer
    }

    fn plan_all(&mut self) {
        for namespace in self.world.index.namespaces(&self.world.fleet) {
            let touched = Touched::Namespaces([namespace].into());
            for key in self.world.concerned(&touched).0 {
                self.plan(&key);
            }
        }
    }
}

fn counted(work: impl FnOnce()) -> Effort {
    _ = effort::take();
    work();
    effort::take()
}

#[test]
fn a_start_on_a_hub_of_twice_the_size_costs_at_most_twice_as_much() {
    let shape = [4, 6, 2, 3];
    let one = counted(|| drop(Syncer::start(objects(shape))));
    assert_eq!(one.plans, 4 * 6 * 3, "each copy is planned once");
    for part in 0..shape.len() {
        let mut twice = shape;
        twice[part] *= 2;
        let other = counted(|| drop(Syncer::start(objects(twice))));
        assert!(at_most_doubled(one, other), "{shape:?}: {one:?}, {part} doubled: {other:?}");
    }
}

/// As many accounts on each cluster as there are namespaces, each for one of them: as of ClusterAccesses.
fn of_one_namespace_each(clusters: usize, namespaces: usize) -> Vec<Value> {
    scoped([clusters, namespaces, 1, namespaces], |number, names| names[number].clone())
}

#[test]
fn accounts_cost_the_namespaces_that_they_name_and_not_those_that_others_name() {
    let start = |namespaces| {
        let world = World::of(of_one_namespace_each(4, namespaces));
        let mut syncer = Syncer { world, recipients: BTreeMap::new() };
        counted(|| syncer.plan_all())
    };
    let (one, other) = (start(6), start(12));
    assert_eq!(one.plans, 4 * 6, "each copy is planned once, and nothing else");
    assert!(other.plans == 2 * one.plans && other.decisions <= 2 * one.decisions, "{other:?}");

    let mut world = World::of(of_one_namespace_each(4, 6));
    let World { index, fleet, .. } = &world;
    let account = account_key("c1", "a1");
    let of_account = counted(|| assert_eq!(index.keys_of(fleet, &account).len(), 1));
    let report = counted(|| drop(Recipients::of(index, fleet, &account)));
    assert_eq!((of_account.decisions, report.decisions), (1, 1));
    assert_eq!(index.keys_at(fleet, &key("n1", "c1")).len(), 1);
    for (touched, keys, accounts) in
        [(Touched::Cluster("c1".into()), 6, 6), (Touched::Namespaces(["n1".into()].into()), 4, 4)]
    {
        let concerned = world.concerned(&touched);
        assert_eq!((concerned.0.len(), concerned.1.len()), (keys, accounts), "{touched:?}");
    }
}

#[test]
fn what_concerns_a_namespace_or_everything_is_found_in_portions_and_in_the_backlog_until_then() {
    let World { mut index, fleet, .. } = Syncer::start(objects([2 * AT_ONCE + 1, 1, 1, 2])).world;
    for everything in [false, true] {
        let mut left = keys_in(&index, &fleet, &"n0".into());
        let (mut backlog, mut reports, mut next) = (Backlog::default(), left.len(), None);
        backlog.add_namespaces(["n0".into()], !everything);
        backlog.everything = everything;
        while counted(|| next = backlog.next(&mut index, &fleet)).decisions <= AT_ONCE
            && let Some((copies, accounts)) = next.take()
        {
            assert!(copies.len().max(accounts.len()) <= AT_ONCE);
            left.retain(|key| !copies.contains(key));
            assert!(left.iter().all(|key| backlog.has(key)));
            reports -= accounts.len();
        }
        assert_eq!((left.len(), reports), (0, 0), "{everything}");
    }
}

#[test]
fn a_namespace_that_changes_again_and_again_and_many_accounts_keep_no_copy_back() {
    let World { mut index, fleet, .. } = Syncer::start(objects([2 * AT_ONCE + 1, 2, 1, 1])).world;
    let (mut backlog, namespaces) = (Backlog::default(), ["n0", "n1"].map(Namespace::from));
    let mut left: BTreeSet<_> =
        namespaces.iter().flat_map(|it| keys_in(&index, &fleet, it)).collect();
    backlog.add_namespaces(namespaces.clone(), false);
    for _ in 0..12 {
        backlog.add_namespaces([namespaces[0].clone()], false);
        backlog.copies_of.extend(index.accounts().take(1));
        let (copies, _) = backlog.next(&mut index, &fleet).unwrap();
        left.retain(|key| !copies.contains(key));
    }
    assert_eq!(left.len(), 0);
}

#[test]
fn an_account_that_waits_for_its_copies_does_not_visit_all_of_them_after_each() {
    let World { index, fleet, .. } = World::of(objects([1, 40, 1, 1]));
    let account = account_key("c0", "a0");
    let mut queued: BTreeSet<_> = index.keys_of(&fleet, &account).into_iter().collect();
    let (mut waits_for, mut asked) = (None, 0);
    let waiting = counted(|| {
        while queued.pop_first().is_some() {
            waits_for =
                index.unsettled(&fleet, &account, waits_for.as_ref(), |key| queued.contains(key));
            asked += 1;
        }
    });
    assert_eq!((waits_for, asked), (None, 40));
    assert!(waiting.decisions <= 3 * asked, "{waiting:?}");
}

#[test]
fn the_change_of_a_copy_costs_the_same_on_a_hub_of_any_size() {
    let of_one = |shape: Shape| {
        let mut syncer = Syncer::start(objects(shape));
        let key = secret_key("n1", "c1-a1");
        syncer.world.index.set_source(&account_key("c1", "a1"), None);
        counted(|| syncer.plan(&key))
    };
    let small = of_one([2, 2, 1, 2]);
    assert_eq!((small.plans, small.decisions), (1, 1));
    assert_eq!(of_one([8, 2, 1, 2]), small);
    assert_eq!(of_one([2, 8, 1, 2]), small);
    assert_eq!(of_one([2, 2, 1, 8]), small);
}

#[test]
fn each_profile_is_decided_once_however_many_sets_select_its_cluster_and_refuse_others() {
    let hub = |sets: usize, others: usize| {
        let mut objects: Vec<_> =
            (0..5).map(|it| cluster(&format!("c{it}"), &json!({ "in": "" }))).collect();
        objects.extend((0..others).map(|it| cluster(&format!("other{it}"), &json!({}))));
        for set in (0..sets).map(|it| format!("s{it}")) {
            objects.push(by_labels(&set, &json!({ "matchLabels": { "in": "" } })));
            objects.extend(["n0", "n1", "n2"].map(|namespace| binding(namespace, &set)));
        }
        fleet(objects)
    };
    let profiles = Profiles::default();
    for (sets, others) in [(1, 0), (4, 0), (1, 100)] {
        let fleet = hub(sets, others);
        let settings = ProjectionSettings::default();
        for (touched, profiles_of) in
            [(Touched::Cluster("c1".into()), 3), (Touched::Namespaces(["n1".into()].into()), 5)]
        {
            let keys = counted(|| drop(concerned_by(&fleet, &touched, &profiles)));
            assert_eq!(keys.decisions, profiles_of, "{sets} sets, {others} others");
            let plans = counted(|| {
                for key in concerned_by(&fleet, &touched, &profiles).keys() {
                    drop(projection_of(&fleet, key, &settings, None));
                }
            });
            assert_eq!(plans.plans, profiles_of, "{sets} sets, {others} others");
        }
        let cluster = counted(|| _ = grant::namespaces_of(&fleet, &"c1".into()).count());
        assert_eq!((cluster.decisions, cluster.matches), (3, 3 * sets));
    }
}

/// A hub with so many clusters and namespaces, of which each has so many objects that select clusters by their labels. The
/// first has cluster Secrets of Argo CD, and that of the first namespace a MultiKueueConfig.
fn with_objects([clusters, namespaces, each]: [usize; 3]) -> (AccessSettings, Fleet) {
    let names = (0..namespaces)
        .flat_map(|it| (0..each).map(move |each| (format!("n{it}"), format!("n{it}-{each}"))));
    let access = names.map(|(namespace, name)| {
        let argo_cd = name.ends_with("-0").then(|| json!({}));
        let kueue = (name == "n0-0").then(|| json!({ "configs": [{ "name": "multikueue" }] }));
        json!({
            "namespace": namespace, "name": name, "argoCD": argo_cd, "multiKueue": kueue,
            "clusters": { "selector": { "matchLabels": { "in-0": "" } } },
        })
    });
    (settings_of(&access.collect()), fleet(objects([clusters, namespaces, 1, 0])))
}

/// What a change costs consumer access and the permissions of the syncer: the accounts that it concerns, their plans and
/// statuses, and the objects of Kueue and Argo CD; for namespaces also the Roles. A MultiKueueConfig lists every cluster.
fn of_consumers((settings, fleet): &(AccessSettings, Fleet), touched: &Touched) -> Effort {
    let account = AskingAccount { scope: Scope::EveryGrantedNamespace, is_maintained: true };
    let names = settings.consumers.iter().map(|consumer| &consumer.account);
    let keys = names.flat_map(|name| fleet.cluster_names().map(|cluster| cluster.account(name)));
    let asking: AskingAccounts = keys.map(|key| (key, account.clone())).collect();
    let clusters: Vec<_> = fleet.cluster_names().map(ToString::to_string).collect();
    let existing = BTreeMap::from([listing(&json!(clusters))]);
    let mut known = KnownAccess::default();
    known.select("multikueue", &settings.selected(fleet, "multikueue"));
    let mut counted_before = BTreeMap::new();
    counted(|| {
        let Concerned { mut keys, names, on_cluster } =
            settings.concerned(fleet, touched, &known, &existing);
        if let Touched::Cluster(cluster) = touched {
            for name in on_cluster {
                let only = Some([cluster.clone()].into());
                settings.count(fleet, &name, only, None, |_, _| None, &mut counted_before);
            }
        }
        for name in names {
            keys.extend(settings.objects_of(fleet, &name, None, &known));
            drop(status_of(settings, fleet, &name, None, |_, _| None, Timestamp::UNIX_EPOCH));
            for role in ConsumerRole::both(&name) {
                let permissions = settings_of_permissions();
                let (consumers, absent) = (&settings.consumers, &Known::Absent);
                let plan = role.plan(&permissions, fleet, consumers, Some(&asking), absent);
                assert!(plan.is_ok());
            }
        }
        for key in keys {
            match &key {
                AccessKey::Access(_, key) => {
                    drop(settings.plan(fleet, key, &ObservedAccess::default()));
                }
                AccessKey::ClusterSecret(key) => {
                    drop(settings.plan_cluster_secret(fleet, key, None, None, None));
                }
                key => drop(settings.plan_kueue(fleet, key, |_| None)),
            }
        }
    })
}

#[test]
fn a_hub_with_twice_as_many_clusters_namespaces_or_objects_costs_consumer_access_at_most_twice_as_much()
 {
    let shape = [4, 3, 2];
    let start = |shape: [usize; 3]| {
        let all =
            Touched::Namespaces((0..shape[1]).map(|it| format!("n{it}").as_str().into()).collect());
        of_consumers(&with_objects(shape), &all)
    };
    let of_cluster = |shape| of_consumers(&with_objects(shape), &Touched::Cluster("c1".into()));
    let (one, event) = (start(shape), of_cluster(shape));
    assert!(one.decisions > 0 && one.matches > 0 && event.matches > 0);
    let [clusters, namespaces, each] = shape;
    let objects = namespaces * each;
    assert_eq!(one.plans, objects * (clusters + 2), "each account and Role is planned once");
    assert_eq!(event.plans, objects, "the accounts on the cluster");
    for part in 0..shape.len() {
        let mut twice = shape;
        twice[part] *= 2;
        let (other, of_event) = (start(twice), of_cluster(twice));
        assert!(at_most_doubled(one, other), "{shape:?}: {one:?}, {part} doubled: {other:?}");
        assert!(at_most_doubled(event, of_event), "{event:?}, {part} doubled: {of_event:?}");
    }
    assert_eq!(of_cluster([8, 3, 2]), event, "an event costs what it concerns");
}
