//! What the watches change in the state, and what is queued and planned then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hub_api::labels::SYNC_TO_NAMESPACES;
use hub_core::action::Action;
use hub_core::consumer_access::{AccessName, AccessRules, Consumers, PlacementName};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::known::Known;
use hub_core::profile::ObservedProfile;
use hub_core::protected::ProtectedNamespaces;
use hub_process::process::{Process, Setup};
use hub_runtime::queue::Outcome;
use hub_runtime::reconciler::{Objects as _, Planned};
use hub_runtime::watch::{ObjectKey, Sink as _, Unreadable};
use hub_runtime::written::Left;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::queue::AT_ONCE;
use super::*;
use crate::ConsumerAccess;
use crate::watches::{DecisionSink, WatchSink, now};

/// Two objects, one of them for Kueue.
fn declared() -> Value {
    let access = |namespace: &str, name: &str, kueue: Option<Value>| {
        json!({ "namespace": namespace, "name": name, "spec": {
            "identity": "Copy", "serviceAccountNames": ["app"], "permissions": [{ "clusterRole": "view" }], "multiKueue": kueue,
        } })
    };
    let configs = json!({ "configs": [{ "name": "multikueue" }] });
    json!([access("team", "app", None), access("other", "jobs", Some(configs))])
}

/// The state of a process that sends no request, with them and permissions of each kind.
fn store() -> Arc<Store> {
    store_of(&declared())
}

/// The same with other objects.
fn store_of(objects: &Value) -> Arc<Store> {
    let rules = AccessRules {
        user_server: Some("user-server".into()),
        allowed_cluster_roles: ["view", "edit", "admin"].map(str::to_owned).into(),
        protected: ProtectedNamespaces::none(),
    };
    let mut consumers = Consumers::new(rules);
    consumers.set_read(true);
    for object in objects.as_array().unwrap() {
        let text = |field: &str| object[field].as_str().unwrap();
        let name =
            AccessName { namespace: text("namespace").into(), name: text("name").to_owned() };
        let object = json!({ "metadata": { "name": name.name }, "spec": object["spec"] });
        consumers.apply(&name, Ok(serde_json::from_value(object).unwrap()));
    }
    let settings = AccessSettings {
        consumers,
        permissions: Some(AccessKind::ClusterPermission),
        account_namespace: Some("agents".into()),
        protected: ProtectedNamespaces::none(),
        installation: "hub-addons".into(),
        provider: "open-cluster-management".to_owned(),
        own_provider: "own".to_owned(),
    };
    let client = Client::try_from(Config::new("http://localhost:1".parse().unwrap())).unwrap();
    let (mut store, seconds) = (None, AtomicI64::new(0));
    // A wall clock may step back: this one does whenever it is read.
    let clock = move || Timestamp::from_second(seconds.fetch_sub(1, Ordering::Relaxed)).unwrap();
    let setup = Setup { clock: Arc::new(clock), ..Setup::new(client) };
    let _ = Process::new(setup).add(Some(settings), |shared, settings| {
        store = Some(Store::new(shared, settings.clone()));
        ConsumerAccess::new(shared, settings)
    });
    store.unwrap()
}

/// An object, which has our marks.
fn object(settings: &AccessSettings, uid: &str, version: &str) -> ObservedObject {
    let labels = settings.marks().map(|(mark, value)| (mark.to_owned(), value.to_owned()));
    let metadata = ObjectMeta {
        resource_version: Some(version.to_owned()),
        labels: Some(labels.into()),
        ..metadata(uid)
    };
    ObservedObject::read(&metadata, None)
}

fn metadata(uid: &str) -> ObjectMeta {
    ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() }
}

fn key(account: &str) -> AccountKey {
    AccountKey { cluster: "c1".into(), account: account.into() }
}

fn watch(kind: AccessKind, account: &str) -> WatchName {
    WatchName::of(kind, &account.into())
}

const PERMISSION: AccessKind = AccessKind::ClusterPermission;

/// Completes every list.
fn list(store: &Arc<Store>) {
    store.listed(&watch(AccessKind::Account, "app"));
    for account in ["app", "jobs"] {
        for kind in [AccessKind::ManifestWork, PERMISSION] {
            store.listed(&watch(kind, account));
        }
    }
}

/// The observed versions of an account's objects.
fn versions(store: &Store, account: &str) -> Vec<(AccessKind, String)> {
    let state = store.state.lock();
    let version = |kind: AccessKind| {
        Some((kind, state.version(&kind.of(&key(account)))?.resource_version.into()))
    };
    AccessKind::ALL.into_iter().filter_map(version).collect()
}

#[tokio::test]
async fn a_kind_that_is_not_served_ends_the_objects_of_that_watch() {
    let store = store();
    list(&store);
    for account in ["app", "jobs"] {
        store.set(&PERMISSION.of(&key(account)), Some(object(&store.settings(), "one", "5")));
    }
    assert!(!store.not_served(&watch(PERMISSION, "app")), "a consumer declares it");
    assert_eq!((versions(&store, "app").len(), versions(&store, "jobs").len()), (0, 1));
}

/// What is queued, without the statuses.
async fn queued(store: &Store) -> Vec<String> {
    queued_of(store, |key| matches!(key, AccessKey::Access(..))).await
}

async fn queued_of(store: &Store, is_asked: fn(&AccessKey) -> bool) -> Vec<String> {
    while store.queue_portion() {}
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = {
        let seen = Arc::clone(&seen);
        move |key: AccessKey| {
            if is_asked(&key) {
                seen.lock().push(key.to_string());
            }
            std::future::ready(Outcome::Done)
        }
    };
    let run = store.work.run(1, CancellationToken::new(), record);
    assert!(timeout(Duration::from_secs(1), run).await.is_err(), "the workers have ended");
    std::mem::take(&mut *seen.lock())
}

#[tokio::test(start_paused = true)]
async fn what_no_object_asks_for_is_queued_once_the_last_object_that_cannot_be_decoded_is_gone() {
    let store = store();
    store.host.set_working();
    list(&store);
    let unread = AccessName { namespace: "team".into(), name: "odd".to_owned() };
    let error = Unreadable { metadata: Box::default(), spec: None, error: "odd".to_owned() };
    store.change_objects(|consumers| consumers.apply(&unread, Err(error)));
    store.queue_everything();
    let statuses = queued_of(&store, |key| matches!(key, AccessKey::ClusterAccess(_))).await;
    assert!(statuses.iter().any(|key| key.contains("odd")), "it is reported: {statuses:?}");
    store.set(&AccessKind::Account.of(&key("former")), Some(object(&store.settings(), "one", "5")));
    queued(&store).await;
    store.change_objects(|consumers| consumers.remove(&unread));
    assert!(queued(&store).await.iter().any(|key| key.contains("former")));
}

#[tokio::test(start_paused = true)]
async fn everything_includes_each_object_of_kueue_and_argo_cd_however_many_there_are() {
    let store = store();
    store.host.set_working();
    let clusters = (0..3 * AT_ONCE).map(|number| ClusterName::from(format!("c{number}").as_str()));
    let keys: BTreeSet<_> = clusters.map(AccessKey::MultiKueueCluster).collect();
    for key in &keys {
        store.set(key, Some(object(&store.settings(), "one", "5")));
    }
    let of_kueue = |key: &AccessKey| matches!(key, AccessKey::MultiKueueCluster(_));
    queued_of(&store, of_kueue).await;
    store.queue_everything();
    assert_eq!(queued_of(&store, of_kueue).await.len(), keys.len());

    // Again and again: the last ones have their turn.
    let portion = |_| {
        store.queue_everything();
        store.state.lock().take_integrations(AT_ONCE)
    };
    assert_eq!((0..3).flat_map(portion).collect::<BTreeSet<_>>(), keys);
    assert_eq!(store.state.lock().take_integrations(AT_ONCE).len(), AT_ONCE, "and then the first");
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_reported_until_it_can_be() {
    let store = store();
    list(&store);
    let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
    let findings = |spec: Option<Value>| {
        let object = Unreadable { metadata: Box::default(), spec, error: "odd".to_owned() };
        store.change_objects(|consumers| consumers.apply(&name, Err(object)));
        compute_again(&store);
        let Planned::Write(action, findings) = store.plan_status(&name, false) else {
            panic!("nothing is planned")
        };
        let reasons = findings.into_iter().flatten().map(|finding| finding.reason);
        (action.verb().is_some(), reasons.collect::<Vec<_>>())
    };
    assert_eq!(findings(None), (false, vec![Reason::Unreadable]));
    assert_eq!(findings(Some(declared()[0]["spec"].clone())), (true, vec![]));
    assert_eq!(findings(None), (false, vec![Reason::Unreadable]));
    store.change_objects(|consumers| consumers.remove(&name));
    let planned = store.plan_status(&name, false);
    assert!(matches!(planned, Planned::Write(_, Some(findings)) if findings.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_concerns_an_account_that_exists_although_it_is_not_granted() {
    let (store, fleet) = (store(), Fleet::default());
    list(&store);
    let touched = Touched::Cluster("c1".into());
    let queued = async || {
        store.fleet_changed(&fleet, &touched);
        queued(&store).await
    };
    assert_eq!(queued().await, [""; 0]);
    store.set(&AccessKind::Account.of(&key("app")), Some(object(&store.settings(), "one", "5")));
    assert_eq!(queued().await.len(), 3, "each object has its key");
    store.set(&AccessKind::Account.of(&key("app")), None);
    assert_eq!(queued().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_computed_again_when_more_than_the_version_of_an_object_has_changed() {
    let store = store();
    list(&store);
    store.host.set_working();
    let key = AccessKind::Account.of(&key("app"));
    let statuses =
        async || queued_of(&store, |key| matches!(key, AccessKey::ClusterAccess(_))).await.len();
    statuses().await;
    let token = json!({ "status": { "tokenSecretRef": { "name": "app" } } });
    let with_token = ObservedObject::read(&metadata("one"), Some(&token));
    let [first, second] = ["5", "6"].map(|version| object(&store.settings(), "one", version));
    for (object, count) in [(first, 1), (second, 0), (with_token.clone(), 1), (with_token, 0)] {
        store.set(&key, Some(object));
        assert_eq!(statuses().await, count);
    }
    store.set(&key, None);
    assert_eq!(statuses().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_computed_at_most_once_in_some_seconds_whatever_changes() {
    let store = store();
    list(&store);
    let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
    assert!(matches!(store.plan_status(&name, false), Planned::Write(..)));
    let Planned::Wait(wait) = store.plan_status(&name, false) else { panic!("it is planned") };
    tokio::time::advance(wait).await;
    assert!(matches!(store.plan_status(&name, false), Planned::Write(..)));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_the_name_of_a_namespace_concerns_the_statuses_there() {
    let store = store();
    store.host.set_working();
    store.fleet_changed(&Fleet::default(), &Touched::Cluster("team".into()));
    let is_status = |key: &AccessKey| matches!(key, AccessKey::ClusterAccess(_));
    assert_eq!(queued_of(&store, is_status).await, ["ClusterAccess team/app"]);
}

fn object_with(annotations: &[(&str, &str)]) -> ObservedObject {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let metadata = ObjectMeta { annotations: Some(annotations), ..metadata("one") };
    ObservedObject::read(&metadata, None)
}

#[tokio::test]
async fn only_what_plans_read_of_another_owners_object_is_kept_and_only_for_a_declared_account() {
    let store = store();
    list(&store);
    let read = (SYNC_TO_NAMESPACES, "team");
    for (account, is_kept) in [("app", true), ("undeclared", false)] {
        let object = AccessKind::Account.of(&key(account));
        store.set(&object, Some(object_with(&[read, ("of-an-agent", "long")])));
        let found = store.state.lock().objects.get(&object).cloned().unwrap();
        assert_eq!(found.object == object_with(&[read]), is_kept, "{account}");
    }
}

/// Lets every status be computed at once.
fn compute_again(store: &Store) {
    store.state.lock().counted.values_mut().for_each(|counted| counted.computed = None);
}

/// The status that is planned for an object when it is computed again.
fn status(store: &Store, name: &AccessName) -> Option<Value> {
    compute_again(store);
    match store.plan_status(name, false) {
        Planned::Write(Action::PatchStatus(_, patch), _) => Some(patch["status"].clone()),
        _ => None,
    }
}

fn is_planned(store: &Store, key: &AccessKey) -> bool {
    matches!(store.plan(key, None), Planned::Write(..))
}

#[tokio::test]
async fn nothing_is_planned_for_kueue_before_both_lists_are_complete() {
    for first in [0, 1] {
        let store = store();
        let mut sinks = WatchName::KUEUE.map(|name| WatchSink { store: Arc::clone(&store), name });
        let config = AccessKey::MultiKueueConfig("multikueue".to_owned());
        assert!(!is_planned(&store, &config));
        sinks[first].listed();
        assert!(!is_planned(&store, &config), "the other list is missing");
        sinks[1 - first].listed();
        assert!(is_planned(&store, &config));
    }
}

#[tokio::test]
async fn cluster_secrets_wait_for_the_lists_of_their_own_namespace() {
    let own = |namespace: &str| {
        json!({ "namespace": namespace, "name": "argocd", "spec": {
            "identity": "Own", "serviceAccountNames": ["argocd"], "argoCD": {},
        } })
    };
    let store = store_of(&json!([own("one"), own("two")]));
    let secret_in = |namespace: &str| {
        AccessKey::ClusterSecret(ProfileKey { namespace: namespace.into(), cluster: "c1".into() })
    };
    let (one, two) = (secret_in("one"), secret_in("two"));
    store.listed(&WatchName::Secrets("one".into()));
    store.listed(&WatchName::Profiles("two".into(), "own".to_owned()));
    assert!(!is_planned(&store, &one) && !is_planned(&store, &two));
    store.listed(&WatchName::Secrets("two".into()));
    assert!(!is_planned(&store, &one), "the profiles are missing");
    assert!(is_planned(&store, &two));
}

#[tokio::test]
async fn the_permissions_of_an_account_are_watched_while_it_is_declared_or_has_an_object_of_ours() {
    let store = store();
    let scope_of = |account: &str| Scope::Account(account.into());
    // Whether the watches of an account are queued, and none is needed.
    let ends = |account: &str| {
        let is_followed = store.state.lock().unfollowed.remove(&scope_of(account));
        is_followed && store.needed(&scope_of(account)).is_empty()
    };
    let app = AccessKind::Account.of(&key("app"));
    store.set(&app, Some(ObservedObject::read(&metadata("one"), None)));
    let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
    store.change_objects(|consumers| consumers.remove(&name));
    assert!(ends("app"), "what exists is another owner's");
    let permissions = watch(PERMISSION, "app");
    assert!(!store.end(&permissions), "the first list may show what is left");
    store.listed(&permissions);
    assert!(ends("app") && store.end(&permissions));
    let former = PERMISSION.of(&key("former"));
    store.set(&former, Some(object(&store.settings(), "one", "5")));
    assert!(!ends("former"));
    // The hub no longer serves the former kind of permissions.
    store.settings.write().permissions = Some(AccessKind::ManifestWork);
    store.listed(&watch(PERMISSION, "former"));
    store.state.lock().unfollowed.clear();
    assert!(store.not_served(&watch(PERMISSION, "former")));
    assert!(ends("former"), "it has no object any more");
    let created = AccessKind::Account.of(&key("created"));
    store.state.lock().created(&created, &"two".into());
    assert!(!store.needed(&scope_of("created")).is_empty());
    store.wrote(&created, &None, "delete", &Left::Gone("two".into()));
    assert!(ends("created"), "it was never shown");
    let state = store.state.lock();
    let known = state.known.clusters().flat_map(|cluster| state.known.on(cluster));
    assert_eq!(known.collect::<Vec<_>>(), [key("app")], "that of the other owner");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_namespaces_queues_what_their_objects_give_one_object_at_a_time() {
    let names = ["team-0", "team-1", "team-2"];
    let objects = names.into_iter().chain(["other"]).map(|name| {
        json!({ "namespace": name, "name": name, "spec": { "identity": "Copy", "serviceAccountNames": ["app"] } })
    });
    let store = store_of(&objects.collect());
    store.set(&AccessKind::Account.of(&key("team-1")), Some(object(&store.settings(), "one", "5")));
    store.set_rival(&"team-2".into(), "other", Some("c2".into()));
    store.host.set_working();
    let waiting = || store.state.lock().backlog.names.count();
    for (touched, count) in [(&["no object"][..], 0), (&names, names.len())] {
        let touched = touched.iter().map(|name| Namespace::from(*name)).collect();
        store.fleet_changed(&Fleet::default(), &Touched::Namespaces(touched));
        assert_eq!(waiting(), count);
    }
    for left in [2, 1, 0] {
        assert!(store.queue_portion() && waiting() == left);
    }
    let queued = queued_of(&store, |_| true).await;
    let account = format!("ManagedServiceAccount {}", key("team-1"));
    for key in [&account, "Secret team-2/hub-addons-cluster-c2"] {
        assert!(queued.iter().any(|it| it == key), "{queued:?}");
    }
    let statuses = queued.iter().filter(|key| key.starts_with("ClusterAccess"));
    assert_eq!(statuses.count(), names.len(), "{queued:?}");
}

/// What each kind of change queues where so many clusters have what the change does not concern.
async fn queued_beside(others: usize) -> Vec<Vec<String>> {
    let access = |name: &str, identity: &str, kueue: Value| {
        json!({ "namespace": name, "name": name, "spec": {
            "identity": identity, "serviceAccountNames": ["app"], "multiKueue": kueue,
        } })
    };
    let configs = json!({ "configs": [{ "name": "multikueue" }] });
    let objects = [
        access("own", "Own", Value::Null),
        access("app", "Copy", Value::Null),
        access("jobs", "Copy", configs),
    ];
    let store = store_of(&json!(objects));
    list(&store);
    let cluster = |it: usize| ClusterName::new(format!("c{it}"));
    for cluster in (0..=others).map(cluster) {
        for account in ["user-server", "jobs"] {
            let key = AccessKind::Account.of(&cluster.account(&account.into()));
            store.set(&key, Some(object(&store.settings(), "one", "5")));
        }
        let of_kueue = AccessKey::MultiKueueCluster(cluster);
        store.set(&of_kueue, Some(object(&store.settings(), "one", "5")));
    }
    store.host.set_working();
    // As the plan of that account on the cluster records it.
    let own = AccessName { namespace: "own".into(), name: "own".to_owned() };
    store.state.lock().known.share(&cluster(0), &[own].into(), false);
    let fleet = Fleet::default();
    let mut queued = Vec::new();
    for touched in [Touched::Namespaces(["own".into()].into()), Touched::Cluster(cluster(0))] {
        store.fleet_changed(&fleet, &touched);
        queued.push(queued_of(&store, |_| true).await);
    }
    let name = AccessName { namespace: "app".into(), name: "app".to_owned() };
    store.change_objects(|consumers| consumers.remove(&name));
    queued.push(queued_of(&store, |_| true).await);
    queued
}

#[tokio::test(start_paused = true)]
async fn a_change_queues_what_it_concerns_however_many_other_clusters_have_an_account() {
    let few = queued_beside(2).await;
    let counts: Vec<_> = few.iter().map(Vec::len).collect();
    // The three objects of an account, and the status; on the cluster two accounts, and its object of Kueue.
    assert_eq!(counts, [3 + 1, 2 * 3 + 1, 1], "{few:?}");
    assert_eq!(few, queued_beside(4).await);
}

/// The cluster Secret of `c2` in the namespace `team`.
fn secret() -> AccessKey {
    AccessKey::ClusterSecret(ProfileKey { namespace: "team".into(), cluster: "c2".into() })
}

/// An object for Argo CD.
fn for_argo_cd() -> (Arc<Store>, AccessName) {
    let store = store_of(&json!([{ "namespace": "team", "name": "app", "spec": {
        "identity": "Copy", "serviceAccountNames": ["app"], "argoCD": {},
    } }]));
    (store, AccessName { namespace: "team".into(), name: "app".to_owned() })
}

#[tokio::test]
async fn secrets_and_profiles_are_watched_until_no_secret_of_ours_is_left() {
    let (store, name) = for_argo_cd();
    let scope = Scope::Namespace("team".into());
    let secrets = WatchName::Secrets("team".into());
    let profiles = WatchName::Profiles("team".into(), store.settings().provider.clone());
    assert_eq!(store.needed(&scope), BTreeSet::from([secrets.clone(), profiles.clone()]));
    let provider = json!({
        "name": store.settings().provider,
        "cluster": { "server": "https://c2", "certificate-authority-data": "YQ==" },
    });
    let profile = json!({ "status": { "accessProviders": [provider] } });
    let profile = ObservedProfile::read(&metadata("one"), &profile);
    let published = PublishedCluster::read(&profile, &store.settings().provider).unwrap();
    store.set_published(&ClusterName::from("c2").in_namespace(&"team".into()), Some(&published));
    store.set_rival(&"team".into(), "other", Some("c3".into()));
    store.change_objects(|consumers| consumers.remove(&name));
    assert!(store.needed(&scope).is_empty());
    assert!(store.end(&profiles) && store.state.lock().published.is_empty());
    let is_looked_at = || store.state.lock().unfollowed.remove(&scope);
    let unread: fn(&Store, &WatchName) = Store::unread;
    for (unread, can_end) in
        [(unread, false), (Store::refused, false), (Store::still_failing, true)]
    {
        assert!(!store.end(&secrets), "the first list may show what is left");
        is_looked_at();
        unread(&store, &secrets);
        assert!(is_looked_at() && store.end(&secrets) == can_end);
    }
    assert!(store.state.lock().rivals.lefts().next().is_none());
    store.listed(&secrets);
    store.set(&secret(), Some(object(&store.settings(), "one", "5")));
    assert!(is_looked_at() && !store.end(&secrets));
    store.set(&secret(), None);
    assert!(is_looked_at());
    store.state.lock().created(&secret(), &"two".into());
    assert!(!store.end(&secrets));
    let planned = store.plan(&secret(), None);
    assert!(matches!(planned, Planned::Write(Action::DeleteByUid(_), _)), "it may be there");
    store.wrote(&secret(), &None, "delete", &Left::Gone("two".into()));
    assert!(is_looked_at());
    store.set(&secret(), Some(ObservedObject::read(&metadata("three"), None)));
    assert!(is_looked_at() && store.end(&secrets), "it is another owner's");
    assert!(store.state.lock().objects.is_empty());
}

#[tokio::test]
async fn secrets_that_are_no_longer_asked_for_after_a_restart_are_looked_for_until_they_have_ended()
{
    let named = |name: &str| AccessName { namespace: "team".into(), name: name.to_owned() };
    let name = named("app");
    let secrets = WatchName::Secrets("team".into());
    let apply_named = |store: &Store, of, (generation, seen): (_, Option<i64>), argo_cd| {
        let object = json!({
            "metadata": { "name": of, "generation": generation },
            "spec": { "identity": "Copy", "serviceAccountNames": ["app"], "argoCD": argo_cd },
            "status": { "observedGeneration": seen },
        });
        let object = serde_json::from_value(object).unwrap();
        store.change_objects(|consumers| consumers.apply(&named(of), Ok(object)));
        store.needed(&Scope::Namespace("team".into())).contains(&secrets)
    };
    let apply = |store: &Store, generations: (i64, _), argo_cd: Option<Value>| {
        apply_named(store, "app", generations, argo_cd)
    };
    let none = || store_of(&json!([]));
    assert!(!apply(&none(), (1, None), None), "it is new");
    assert!(apply(&none(), (2, None), None), "it never had a status");
    let store = none();
    assert!(!apply(&store, (1, Some(1)), None));
    assert!(!apply(&store, (2, Some(1)), None), "this process has seen what it asked for before");
    assert!(apply(&store, (3, Some(2)), Some(json!({}))));
    assert!(apply(&store, (4, Some(3)), None));
    let store = none();
    assert!(apply(&store, (2, Some(1)), None));
    list(&store);
    let seen = || status(&store, &name)?["observedGeneration"].as_i64();
    assert_eq!(seen(), Some(1));
    store.listed(&secrets);
    store.set(&secret(), Some(object(&store.settings(), "one", "5")));
    assert_eq!(seen(), Some(1));
    store.host.set_working();
    store.set(&secret(), None);
    assert!(store.work.holds(&AccessKey::ClusterAccess(name.clone())));
    assert_eq!(seen(), Some(2));
    store.state.lock().unfollowed.clear();
    assert!(!apply(&store, (2, Some(2)), None));
    assert!(store.state.lock().unfollowed.contains(&Scope::Namespace("team".into())));
    assert!(store.end(&secrets));
    apply(&store, (3, Some(2)), Some(json!({})));
    apply(&store, (4, Some(3)), None);
    queued_of(&store, |_| true).await;
    apply_named(&store, "other", (1, None), Some(json!({})));
    assert!(store.work.holds(&AccessKey::ClusterAccess(name)), "the other asks for them now");
}

#[tokio::test(start_paused = true)]
async fn what_an_object_of_another_owner_kept_from_existing_is_queued_when_it_is_not_asked_for() {
    let (store, name) = for_argo_cd();
    list(&store);
    let account = AccessKind::Account.of(&key("app"));
    store.set(&account, Some(ObservedObject::read(&metadata("one"), None)));
    store.set_rival(&"team".into(), "other", Some("c2".into()));
    store.host.set_working();
    let is_queued = async |key: &AccessKey| {
        let queued = queued_of(&store, |key| !matches!(key, AccessKey::ClusterAccess(_))).await;
        queued.contains(&key.to_string())
    };
    for cluster in ["c2", "team"] {
        store.fleet_changed(&Fleet::default(), &Touched::Cluster(cluster.into()));
        assert!(is_queued(&secret()).await, "{cluster}");
    }
    store.fleet_changed(&Fleet::default(), &Touched::Namespaces(["team".into()].into()));
    assert!(is_queued(&secret()).await);
    store.change_objects(|consumers| consumers.remove(&name));
    let queued = queued_of(&store, |_| true).await;
    for key in [account, secret()] {
        assert!(queued.contains(&key.to_string()), "{key}");
    }
}

#[tokio::test]
async fn an_object_for_argo_cd_is_not_ready_where_secrets_or_profiles_cannot_be_read() {
    let (store, name) = for_argo_cd();
    list(&store);
    let condition = || Some(status(&store, &name)?["conditions"][1].clone());
    let ready = || Some(condition()?["reason"].as_str()?.to_owned());
    let sink = |name| WatchSink { store: Arc::clone(&store), name };
    let mut profiles = sink(WatchName::Profiles("team".into(), store.settings().provider.clone()));
    assert!(!profiles.not_served());
    assert_eq!(ready(), None, "that is not known yet");
    let mut sink = sink(WatchName::Secrets("team".into()));
    sink.refused();
    assert_eq!(ready().as_deref(), Some("Unavailable"));
    // Why lists fail for a minute is known.
    sink.unread();
    assert_eq!(ready().as_deref(), Some("Unavailable"));
    sink.listed();
    let message = condition().unwrap()["message"].to_string();
    let profile = "v1alpha1 of the CRD clusterprofiles.multicluster.x-k8s.io";
    assert!(message.contains(profile), "{message}");
    profiles.listed();
    assert_eq!(ready().as_deref(), Some("NoCluster"));
    // A watch may continue after a refusal, without another list.
    sink.refused();
    assert_eq!(ready().as_deref(), Some("NoCluster"));
    sink.unread();
    assert_eq!(ready().as_deref(), Some("Unknown"), "an outage is no lack of permission");
    sink.refused();
    assert_eq!(ready().as_deref(), Some("Unavailable"));
}

/// Three objects, one of which refers to a Placement.
fn placed() -> (Arc<Store>, PlacementName) {
    let store = store_of(&json!([
        { "namespace": "team", "name": "app", "spec": {
            "identity": "Copy", "serviceAccountNames": ["app"], "clusters": { "placementRef": { "name": "gpus" } },
        } },
        { "namespace": "team", "name": "other", "spec": { "identity": "Copy", "serviceAccountNames": ["app"] } },
        { "namespace": "other", "name": "jobs", "spec": { "identity": "Copy", "serviceAccountNames": ["app"] } },
    ]));
    (store, ("team".into(), "gpus".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_decision_queues_the_objects_of_its_placement_on_its_clusters_alone() {
    let (store, placement) = placed();
    list(&store);
    for account in ["app", "other", "jobs"] {
        for cluster in ["c1", "c2"] {
            let key = AccountKey { cluster: cluster.into(), account: account.into() };
            store.set(&AccessKind::Account.of(&key), Some(object(&store.settings(), "one", "5")));
        }
    }
    store.host.set_working();
    queued_of(&store, |_| true).await;
    let of_app = |key: &String| key.contains("/app") || key.contains("-app");
    for (clusters, count) in [(Some(["c1".into()].into()), 1), (None, 2)] {
        store.decided(&placement, clusters.as_ref());
        let queued = queued_of(&store, |_| true).await;
        // Three objects on each cluster, and the status.
        assert_eq!(queued.len(), 3 * count + 1, "{queued:?}");
        assert!(queued.iter().all(of_app), "{queued:?}");
    }
    store.decided(&("other".into(), "gpus".to_owned()), None);
    assert_eq!(queued_of(&store, |_| true).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_about_decisions_ends_some_seconds_after_no_watch_fails() {
    let (store, placement) = placed();
    store.host.set_working();
    let mut sinks = DecisionKind::ALL.map(|kind| DecisionSink::new(&store, kind, &placement));
    // Whether the status is queued within ten seconds.
    let is_queued = async || {
        let mut is_any = false;
        for _ in 0..10 {
            is_any |= !queued_of(&store, |_| true).await.is_empty();
        }
        is_any
    };
    for sink in &mut sinks {
        sink.set_read(true);
        queued_of(&store, |_| true).await;
    }
    assert!(is_queued().await, "the doubt about the first list ends");
    let slice = ObjectKey { namespace: "team".into(), name: "gpus-1".into() };
    let decision = json!({ "metadata": {}, "status": { "decisions": [{ "clusterName": "c1" }] } });
    sinks[0].apply(&slice, Ok(serde_json::from_value(decision).unwrap()));
    assert!(is_queued().await && !is_queued().await);
    sinks[1].failing(Some(Duration::ZERO));
    sinks[0].delete(&slice);
    queued_of(&store, |_| true).await;
    assert!(!is_queued().await, "another slice may have it");
    sinks[1].failing(None);
    assert!(is_queued().await && !is_queued().await);
    let decision =
        json!({ "metadata": {}, "decisions": [{ "clusterProfileRef": { "name": "c1" } }] });
    sinks[1].apply(&slice, Ok(serde_json::from_value(decision).unwrap()));
    assert!(is_queued().await && !is_queued().await);
    // Another version may have the decisions of one that is no longer served, and is not looked for at once, whatever
    // fails before or meanwhile.
    sinks[1].failing(Some(Duration::ZERO));
    assert!(sinks[1].not_served());
    sinks[1].failing(None);
    queued_of(&store, |_| true).await;
    assert!(!is_queued().await);
    sinks[0].failing(Some(Duration::ZERO));
    sinks[0].failing(None);
    assert!(!is_queued().await);
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert_eq!(queued_of(&store, |_| true).await, [""; 0]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_queued().await);
}

#[tokio::test]
async fn decisions_that_were_listed_stay_known_through_a_refusal() {
    let (store, placement) = (store(), ("team".into(), "gpus".to_owned()));
    let was_known = || {
        let (kind, listed, now) = (DecisionKind::Ocm, Known::Present(()), now());
        !store.change(|consumers| consumers.set_decisions(&placement, kind, listed, now))
    };
    let mut sink = DecisionSink::new(&store, DecisionKind::Ocm, &placement);
    sink.refused();
    assert!(!was_known());
    sink.set_read(true);
    // A watch may continue after it, without another list.
    sink.refused();
    assert!(was_known());
    sink.set_read(false);
    assert!(!was_known(), "an outage");
}

#[tokio::test]
async fn an_object_is_not_ready_where_its_permissions_are_not_served_and_unknown_in_an_outage() {
    let store = store();
    let name = AccessName { namespace: "team".into(), name: "app".to_owned() };
    let status = || status(&store, &name);
    let reason = |status: &Value| status["conditions"][1]["reason"].as_str().unwrap().to_owned();
    store.listed(&watch(AccessKind::Account, "app"));
    assert_eq!(status(), None, "permissions are not listed yet");
    let permissions = watch(PERMISSION, "app");
    for _ in 0..2 {
        assert!(!store.not_served(&permissions));
        let status = status().unwrap();
        assert_eq!(reason(&status), "Unavailable");
        let message = status["conditions"][1]["message"].as_str().unwrap();
        let crd = "clusterpermissions.rbac.open-cluster-management.io";
        assert!(message.contains(crd), "{message}");
        store.unread(&permissions);
    }
    store.listed(&permissions);
    assert_eq!(reason(&status().unwrap()), "NoCluster");
    store.unread(&watch(AccessKind::Account, "app"));
    assert_eq!(reason(&status().unwrap()), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_in_a_namespace_concerns_its_objects_alone() {
    let store = store();
    store.host.set_working();
    list(&store);
    queued(&store).await;
    let secrets = WatchName::Secrets("team".into());
    for unread in [Store::refused, Store::unread] {
        store.state.lock().read.remove(&secrets);
        unread(&store, &secrets);
        assert_eq!(queued_of(&store, |_| true).await, ["ClusterAccess team/app"]);
    }
}

#[tokio::test]
async fn what_was_created_and_not_shown_yet_is_known_until_it_is_shown_or_deleted() {
    let (store, [shown, deleted]) =
        (store(), ["app", "jobs"].map(|name| AccessKind::Account.of(&key(name))));
    let created = |key: &AccessKey| store.state.lock().created.get(key).cloned();
    store.state.lock().created(&shown, &"one".into());
    assert_eq!(created(&shown), Some("one".into()));
    store.set(&shown, Some(ObservedObject::read(&metadata("one"), None)));
    assert!(store.state.lock().is_ours(&shown) && created(&shown).is_none());
    store.state.lock().created(&deleted, &"two".into());
    store.state.lock().deleted(&deleted, &"one".into());
    assert_eq!(created(&deleted), Some("two".into()));
    store.state.lock().deleted(&deleted, &"two".into());
    assert_eq!(created(&deleted), None);
}
