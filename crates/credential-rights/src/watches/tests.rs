//! Which permissions a change queues, and what is known of a role after it.

use std::time::Duration;

use hub_core::consumer_role::CONSUMER_LABELS;
use hub_core::credential::account::Scope;
use hub_core::fleet::Fleet;
use hub_core::protected::ProtectedNamespaces;
use hub_core::rights::{CLEARED_NAMESPACES, GRACE, PermissionSettings};
use hub_process::process::{Process, Setup};
use hub_runtime::queue::Outcome;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::watch::ObjectKey;
use hub_runtime::write::error::{Category, WriteError};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{advance, timeout};
use tokio_util::sync::CancellationToken;

use super::*;

/// The permissions of the object in a namespace and with a name.
fn roles_of(of: &str) -> [String; 2] {
    let (namespace, name) = of.split_once('/').unwrap();
    ["Role", "RoleBinding"]
        .map(|kind| format!("{kind} {namespace}/hub-addons-cluster-access-{name}"))
}

/// These keys, sorted.
fn all(roles: &[&str], others: &[&str]) -> Vec<String> {
    let others = others.iter().map(ToString::to_string);
    let mut all: Vec<_> = roles.iter().flat_map(|of| roles_of(of)).chain(others).collect();
    all.sort();
    all
}

fn asking(annotation: Option<&str>) -> AskingAccount {
    AskingAccount { scope: Scope::read(annotation), is_maintained: true }
}

fn settings() -> PermissionSettings {
    PermissionSettings {
        namespace: "addons".into(),
        service_account: "syncer".to_owned(),
        copies_role: "copies".to_owned(),
        tokens_role: "tokens".to_owned(),
        protected: ProtectedNamespaces::default(),
        require_namespaces: false,
        access_rules: Some(hub_core::consumer_access::AccessRules::default()),
    }
}

/// The state of a process that sends no request.
fn store() -> Arc<Store> {
    let client = Client::try_from(Config::new("http://localhost:1".parse().unwrap())).unwrap();
    let store = Store::new(&Process::new(Setup::new(client)).shared, settings());
    // One of them is in the namespace of a cluster.
    for (namespace, name) in [("team", "app"), ("c1", "own")] {
        let object = json!({
            "metadata": { "name": name, "namespace": namespace, "uid": name },
            "spec": { "identity": "Copy", "serviceAccountNames": ["app"] },
        });
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        access_sink(&store).apply(&key, Ok(serde_json::from_value(object).unwrap()));
    }
    store
}

/// The state without anything queued.
async fn idle() -> Arc<Store> {
    let store = store();
    assert_eq!(queued(&store).await, all(&["team/app", "c1/own"], &[]));
    store
}

/// What is queued, sorted. Afterwards nothing is queued.
async fn queued(store: &Store) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = {
        let seen = Arc::clone(&seen);
        move |key: RightsKey| {
            seen.lock().push(key.to_string());
            std::future::ready(Outcome::Done)
        }
    };
    let run = store.work.run(1, CancellationToken::new(), record);
    assert!(timeout(Duration::from_secs(1), run).await.is_err(), "the workers have ended");
    let mut keys = std::mem::take(&mut *seen.lock());
    keys.sort();
    keys
}

fn ask(store: &Store, account: &AccountKey, asking: AskingAccount) {
    store.set_account(account, Some(asking));
}

fn account(cluster: &str, name: &str) -> AccountKey {
    AccountKey { cluster: cluster.into(), account: name.into() }
}

fn metadata(name: &str, version: u64) -> Value {
    json!({ "namespace": "team", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string() })
}

fn cluster_role(version: u64) -> ClusterRole {
    serde_json::from_value(json!({ "metadata": metadata("tokens", version) })).unwrap()
}

fn role(version: u64) -> Role {
    let rule = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["old"] });
    let mut metadata = metadata("app", version);
    for (key, value) in CONSUMER_LABELS {
        metadata["labels"][key] = value.into();
    }
    serde_json::from_value(json!({ "metadata": metadata, "rules": [rule] })).unwrap()
}

fn copies_role() -> PartialObjectMeta<ClusterRole> {
    serde_json::from_value(json!({ "metadata": metadata("copies", 1) })).unwrap()
}

fn binding(version: u64) -> RoleBinding {
    let role =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "copies" });
    serde_json::from_value(json!({ "metadata": metadata("copies", version), "roleRef": role }))
        .unwrap()
}

/// Completes a list, which shows the object or not.
fn list<K: 'static>(sink: &mut dyn Sink<K>, is_shown: bool) {
    sink.listed();
    if !is_shown {
        sink.none_listed();
    }
}

fn in_team() -> ObjectKey {
    ObjectKey { namespace: "team".into(), name: "copies".into() }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_concerns_the_tokens_only_if_an_account_there_opts_in() {
    let (store, fleet) = (idle().await, Fleet::default());
    store.cluster_changed(&fleet, &"c2".into());
    assert_eq!(queued(&store).await, ["copies in c2"]);
    store.cluster_changed(&fleet, &"c1".into());
    // The namespace of a Role.
    assert_eq!(queued(&store).await, all(&["c1/own"], &["copies in c1"]));
    ask(&store, &account("c2", "app"), asking(None));
    queued(&store).await;
    store.cluster_changed(&fleet, &"c2".into());
    assert_eq!(queued(&store).await, ["copies in c2", "tokens"]);
    for other in ["c", "c20", "c3"] {
        store.cluster_changed(&fleet, &other.into());
        assert_eq!(queued(&store).await, [format!("copies in {other}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_concerns_the_tokens_when_it_has_a_new_name_and_a_role_that_must_not_name_it() {
    let store = idle().await;
    let of_app = || roles_of("team/app")[0].clone();
    let key = ObjectKey { namespace: "team".into(), name: "hub-addons-cluster-access-app".into() };
    let mut roles = consumer_role_sink::<Role>(&store, RoleKind::Role);
    let mut named = role(1);
    named.rules.as_mut().unwrap()[0].resource_names = Some(vec!["a-b-app".to_owned()]);
    roles.apply(&key, Ok(named));
    queued(&store).await;
    ask(&store, &account("c1", "app"), asking(None));
    // It is not granted, and the Role has no such name.
    assert_eq!(queued(&store).await, ["tokens"]);
    ask(&store, &account("c1", "app"), asking(None));
    assert_eq!(queued(&store).await, [""; 0]);
    ask(&store, &account("a-b", "app"), asking(Some("team")));
    assert_eq!(queued(&store).await, [of_app(), "tokens".to_owned()]);
    // The copy of `b-app` of the cluster `a` has the name of that of `app` of `a-b`.
    ask(&store, &account("a", "b-app"), asking(None));
    assert_eq!(queued(&store).await, [of_app(), "tokens".to_owned()]);
    let mut tokens = cluster_role(1);
    tokens.rules = role(1).rules;
    tokens_role_sink(&store).apply(&in_team(), Ok(tokens));
    store.set_listed(List::Accounts, true);
    assert_eq!(queued(&store).await, all(&["team/app", "c1/own"], &["tokens"]));
    store.token_names(&Known::Unknown);
    ask(&store, &account("c1", "old"), asking(None));
    assert_eq!(queued(&store).await, [""; 0], "the tokens of this name are watched");
    store.set_account(&account("c1", "old"), None);
    assert_eq!(queued(&store).await, ["tokens"]);
}

#[tokio::test(start_paused = true)]
async fn a_role_binding_concerns_its_namespace_and_their_list_and_their_role_all_of_them() {
    let (store, team) = (idle().await, RightsKey::Copies("team".into()));
    let mut bindings = binding_sink(&store);
    bindings.apply(&in_team(), Ok(binding(1)));
    assert_eq!(queued(&store).await, ["copies in team"]);
    assert_eq!(store.observed(&team), Known::Present(binding(1).into()));
    bindings.listed();
    assert_eq!(queued(&store).await, ["copies in team"], "another may be gone without an event");

    let mut role = copies_role_sink(&store);
    role.apply(&in_team(), Ok(copies_role()));
    assert_eq!(queued(&store).await, ["copies in team"]);
    assert_eq!(store.copies_role(), Known::Present("uid of copies".to_owned()));
    role.delete(&in_team());
    assert_eq!(queued(&store).await, ["copies in team"]);
    assert_eq!(store.copies_role(), Known::Absent);
    role.apply(&in_team(), Ok(copies_role()));
    role.delete(&in_team());
    queued(&store).await;
    role.none_listed();
    assert_eq!(queued(&store).await, ["copies in team"]);
    assert_eq!(store.copies_role(), Known::Absent);

    bindings.delete(&in_team());
    assert_eq!(queued(&store).await, ["copies in team"]);
    assert_eq!(store.observed(&team), Known::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_role_that_a_list_does_not_show_is_missing() {
    let store = idle().await;
    let mut tokens = tokens_role_sink(&store);
    list::<ClusterRole>(&mut tokens, false);
    assert_eq!(queued(&store).await, ["tokens"]);
    assert_eq!(store.observed(&RightsKey::Tokens), Known::Absent);
    tokens.apply(&in_team(), Ok(cluster_role(1)));
    list::<ClusterRole>(&mut tokens, true);
    assert_eq!(queued(&store).await, ["tokens"]);
    assert_eq!(store.observed(&RightsKey::Tokens), Known::Present(cluster_role(1).into()));
    Sink::<ClusterRole>::delete(&mut tokens, &in_team());
    assert_eq!(queued(&store).await, ["tokens"]);
    assert_eq!(store.observed(&RightsKey::Tokens), Known::Absent);
    list::<ClusterRole>(&mut tokens, false);
    assert_eq!(queued(&store).await, ["tokens"], "it was shown before it was deleted");
}

#[tokio::test(start_paused = true)]
async fn the_role_of_an_application_is_absent_when_the_list_does_not_show_it() {
    let store = idle().await;
    let key = ObjectKey { namespace: "team".into(), name: "hub-addons-cluster-access-app".into() };
    let mut roles = consumer_role_sink::<Role>(&store, RoleKind::Role);
    let of_app = ConsumerRole::named(RoleKind::Role, &"team".into(), &key.name).unwrap();
    let shown = |store: &Store| {
        Objects::known(store, &RightsKey::Consumer(of_app.clone())).map(|it| it.uid)
    };
    list::<Role>(&mut roles, false);
    assert_eq!((queued(&store).await, shown(&store)), (all(&["team/app", "c1/own"], &[]), None));
    roles.apply(&key, Ok(role(1)));
    let uid = Some("uid of app".into());
    assert_eq!((queued(&store).await, shown(&store)), (vec![of_app.to_string()], uid));
    Sink::<Role>::delete(&mut roles, &key);
    assert_eq!((queued(&store).await, shown(&store)), (vec![of_app.to_string()], None));
    let other = ObjectKey { namespace: "team".into(), name: "another".into() };
    roles.apply(&other, Ok(role(1)));
    assert_eq!(queued(&store).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn while_a_kind_cannot_be_read_no_permission_is_created_or_replaced_and_no_rule_is_written() {
    let (store, key) = (store(), RightsKey::Copies("team".into()));
    let next = |key: &RightsKey| match store.plan(key, None) {
        Planned::Write(action, _) => action.verb(),
        Planned::Wait(_) | Planned::Unknown => panic!("a plan is a write or none"),
    };
    let mut bindings = binding_sink(&store);
    let mut copies = copies_role_sink(&store);
    copies.apply(&in_team(), Ok(copies_role()));
    // The syncer should have it, and it is that of an earlier role.
    bindings.apply(&in_team(), Ok(settings().binding(&"team".into(), "uid of an earlier role")));
    bindings.listed();
    queued(&store).await;
    assert_eq!(next(&key), Some("delete"));
    for is_read in [false, true] {
        if is_read {
            bindings.listed();
        } else {
            bindings.unread();
        }
        assert_eq!(queued(&store).await, ["copies in team"]);
        assert_eq!(next(&key), is_read.then_some("delete"));
    }
    copies.unread();
    assert_eq!((queued(&store).await, next(&key)), (vec!["copies in team".to_owned()], None));

    let mut tokens = tokens_role_sink(&store);
    let mut observed = cluster_role(1);
    observed.rules = role(1).rules;
    tokens.apply(&in_team(), Ok(observed));
    store.set_listed(List::Accounts, true);
    assert_eq!(next(&RightsKey::Tokens), Some("patch"));
    Sink::<ClusterRole>::unread(&mut tokens);
    advance(Duration::from_secs(1)).await;
    assert_eq!(next(&RightsKey::Tokens), None);
}

#[tokio::test(start_paused = true)]
async fn the_role_for_tokens_is_planned_at_once_then_once_a_second_and_after_a_conflict_at_once() {
    let (store, missing) = (store(), Read { object: None });
    let waits = |read| matches!(store.plan(&RightsKey::Tokens, read), Planned::Wait(_));
    assert_eq!([waits(None), waits(None)], [false; 2], "there is no list of accounts");
    store.set_listed(List::Accounts, true);
    for _ in 0..2 {
        assert_eq!([waits(None), waits(None)], [false, true]);
        advance(Duration::from_millis(999)).await;
        assert_eq!([waits(None), waits(Some(&missing)), waits(None)], [true, false, true]);
        advance(Duration::from_secs(1)).await;
    }
    for (category, waits_on) in [(Category::Held, false), (Category::Internal, true)] {
        assert_eq!([waits(None), waits(None)], [false, true]);
        let error = WriteError::new("patch", "clusterroles", String::new(), category, "");
        store.failed(&RightsKey::Tokens, &None, &error);
        advance(Duration::from_secs(1)).await;
        assert_eq!(waits(None), waits_on);
        advance(Duration::from_secs(4)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_a_permission_passes_only_while_one_lease_of_the_syncer_is_renewed() {
    for is_recreated in [false, true] {
        let (store, team) = (idle().await, Namespace::from("team"));
        let ours = settings().binding(&team, "uid of the role");
        let mut bindings = binding_sink(&store);
        bindings.apply(&in_team(), Ok(ours));
        bindings.listed();
        // It exists, and is not needed any more.
        assert_eq!(store.has_permission(&team), Some(true));
        queued(&store).await;
        let mut sink = lease_sink(&store);
        for second in (0..=2 * GRACE.as_secs()).step_by(10) {
            if is_recreated {
                sink.delete(&in_team());
            }
            let renewed = format!("2026-05-01T12:{:02}:{:02}.000000Z", second / 60, second % 60);
            let spec = json!({ "holderIdentity": "syncer", "leaseDurationSeconds": 15, "renewTime": renewed });
            let cleared = json!({ "annotations": { CLEARED_NAMESPACES: "team" } });
            let lease = json!({ "metadata": cleared, "spec": spec });
            sink.apply(&in_team(), Ok(serde_json::from_value(lease).unwrap()));
            advance(Duration::from_secs(10)).await;
        }
        let over = if is_recreated { &[][..] } else { &["copies in team"] };
        assert_eq!(queued(&store).await, over, "{is_recreated}");
    }
}
