//! Hubs with accounts, tokens, profiles and Secrets out of few names, so that they meet: two clusters and three
//! accounts are named such that copies share names, and every object can be in a state of its own.

use std::collections::BTreeSet;

use hub_api::labels::{
    CLUSTER_MANAGER, IS_MANAGED_SERVICE_ACCOUNT, SYNC_TO_CLUSTER_PROFILE, SYNC_TO_NAMESPACES,
    SYNCED_ACCOUNT, SYNCED_ACCOUNT_UID, SYNCED_CLUSTER, SYNCED_FROM,
};
use hub_api::names::{AccountKey, SecretKey};
use hub_core::credential::copy::FIELD_MANAGER;
use hub_core::credential::index::SyncSettings;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use serde_json::{Value, json};

use super::credential::{
    World, account, account_key, account_uid, base64, names, profile, profile_uid, secret_key,
    stranger, token,
};
use super::{NOON, binding, broken, by_labels, condition, exclusive, member, unreadable, with};

const NAMESPACES: [&str; 2] = ["blues", "reds"];
const SETS: [&str; 2] = ["blue", "red"];
const CLUSTERS: [&str; 3] = ["a", "a-b", "b"];
const ACCOUNTS: [&str; 3] = ["b-b-c", "b-c", "c"];

/// Every account that can be.
pub fn accounts() -> impl Iterator<Item = AccountKey> {
    CLUSTERS.iter().flat_map(|cluster| ACCOUNTS.iter().map(|name| account_key(cluster, name)))
}

/// Every key that a copy can have.
pub fn secret_keys() -> Vec<SecretKey> {
    let names: BTreeSet<String> = accounts().map(|key| key.copy_name()).collect();
    NAMESPACES
        .iter()
        .flat_map(|namespace| names.iter().map(|name| secret_key(namespace, name)))
        .collect()
}

/// A hub: for each possible object its state.
#[derive(Debug, Clone)]
pub struct Hub {
    /// Everything but the Secrets with the keys of copies.
    pub objects: Vec<Option<Value>>,
    /// The Secrets with [`secret_keys`].
    pub secrets: Vec<Option<Value>>,
    /// Whether every account is known.
    pub accounts_listed: bool,
    /// Whether every token is known.
    pub sources_listed: bool,
    /// Whether accounts have to name their namespaces.
    pub require_namespaces: bool,
}

impl Hub {
    /// The hub's objects as they become known, in this order.
    pub fn world(&self) -> World {
        let mut world = self.knowing(self.objects.iter().flatten());
        for secret in self.secrets.iter().flatten() {
            world.put(secret.clone());
        }
        world
    }

    /// What is known of the hub after these objects, and no Secret where a copy belongs.
    pub fn knowing<'a>(&self, objects: impl IntoIterator<Item = &'a Value>) -> World {
        let settings =
            SyncSettings { require_namespaces: self.require_namespaces, ..SyncSettings::default() };
        let mut world = World::unlisted(settings, objects.into_iter().cloned());
        self.list(&mut world);
        world
    }

    /// The number of objects, Secrets and lists of a hub.
    pub const PARTS: usize = 33 + 14 + 3;

    /// What is known of the hub once its objects, its Secrets and the ends of its lists have come in this order.
    pub fn known_in(&self, order: &[usize]) -> World {
        let settings =
            SyncSettings { require_namespaces: self.require_namespaces, ..SyncSettings::default() };
        let mut world = World::unlisted(settings, []);
        let parts: Vec<_> = self.objects.iter().chain(&self.secrets).collect();
        assert_eq!(parts.len() + 3, Self::PARTS);
        for index in order {
            match parts.get(*index) {
                Some(Some(object)) if *index < self.objects.len() => world.arrive_at_syncer(object),
                Some(Some(secret)) => drop(world.put(secret.clone())),
                None if *index == parts.len() && self.accounts_listed => {
                    world.index.knows_accounts = true;
                }
                None if *index == parts.len() + 1 && self.sources_listed => {
                    world.index.listed_sources.set(None, true);
                }
                None if *index == parts.len() + 2 => {
                    world.index.listed_copies.set(None, true);
                }
                Some(None) | None => {}
            }
        }
        world.reach_all();
        world
    }

    fn list(&self, world: &mut World) {
        if self.accounts_listed {
            world.index.knows_accounts = true;
        }
        if self.sources_listed {
            world.index.listed_sources.set(None, true);
        }
        world.index.listed_copies.set(None, true);
    }

    /// The object of that kind, namespace and name.
    pub fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let is_it = |object: &&Value| object["kind"] == kind && names(object) == (namespace, name);
        self.objects.iter().flatten().find(is_it)
    }
}

/// A hub in any state.
pub fn hub() -> impl Strategy<Value = Hub> {
    let listed = || prop_oneof![9 => Just(true), 1 => Just(false)];
    let secrets: Vec<_> =
        secret_keys().into_iter().map(|key| option::weighted(0.4, a_secret(&key))).collect();
    let demanding = prop_oneof![9 => Just(false), 1 => Just(true)];
    (objects(), secrets, listed(), listed(), demanding).prop_map(
        |(objects, secrets, accounts_listed, sources_listed, require_namespaces)| Hub {
            objects,
            secrets,
            accounts_listed,
            sources_listed,
            require_namespaces,
        },
    )
}

/// An object or Secret that is replaced by another, or deleted.
#[derive(Debug, Clone)]
pub enum Change {
    /// The object of that index.
    Object(usize, Option<Value>),
    /// The Secret of that index.
    Secret(usize, Option<Value>),
    /// Every account is known now.
    AccountsListed,
    /// Every token is known now.
    SourcesListed,
}

/// Any change.
pub fn change() -> impl Strategy<Value = Change> {
    let objects = objects().into_iter().enumerate();
    let object =
        Union::new(objects.map(|(index, slot)| {
            slot.prop_map(move |object| Change::Object(index, object)).boxed()
        }));
    let secrets = secret_keys().into_iter().enumerate();
    let secret = Union::new(secrets.map(|(index, key)| {
        let secret = option::weighted(0.7, a_secret(&key));
        secret.prop_map(move |secret| Change::Secret(index, secret)).boxed()
    }));
    prop_oneof![
        20 => object,
        5 => secret,
        1 => Just(Change::AccountsListed),
        1 => Just(Change::SourcesListed),
    ]
}

/// For each object its states.
pub fn objects() -> Vec<BoxedStrategy<Option<Value>>> {
    let there =
        |likely: f64, object: BoxedStrategy<Value>| option::weighted(likely, object).boxed();
    let clusters = CLUSTERS.map(|name| there(0.95, a_cluster(name)));
    let sets = SETS.map(|name| there(0.95, a_set(name)));
    let bindings = NAMESPACES
        .iter()
        .flat_map(|namespace| SETS.map(|name| there(0.8, a_binding(namespace, name))));
    let profiles = NAMESPACES
        .iter()
        .flat_map(|namespace| CLUSTERS.map(|cluster| there(0.9, a_profile(namespace, cluster))));
    let accounts = CLUSTERS
        .iter()
        .flat_map(|cluster| ACCOUNTS.map(|name| there(0.85, an_account(cluster, name))));
    let tokens =
        CLUSTERS.iter().flat_map(|cluster| ACCOUNTS.map(|name| there(0.9, a_token(cluster, name))));
    clusters
        .into_iter()
        .chain(sets)
        .chain(bindings)
        .chain(profiles)
        .chain(accounts)
        .chain(tokens)
        .collect()
}

/// An object in its usual state, or with one of these merge patches.
fn mostly(weight: u32, object: Value, patches: Vec<Value>) -> BoxedStrategy<Value> {
    let other = {
        let object = object.clone();
        select(patches).prop_map(move |patch| with(object.clone(), &patch))
    };
    prop_oneof![weight => Just(object), 1 => other].boxed()
}

fn deletion() -> Value {
    json!({ "metadata": { "deletionTimestamp": NOON } })
}

fn a_cluster(name: &'static str) -> BoxedStrategy<Value> {
    prop_oneof![
        5 => select(SETS.to_vec()).prop_map(move |set| member(name, set)),
        1 => Just(member(name, "none")),
        1 => Just(with(member(name, "red"), &deletion())),
        1 => Just(with(member(name, "red"), &json!({ "spec": { "hubAcceptsClient": false } }))),
    ]
    .boxed()
}

fn a_set(name: &'static str) -> BoxedStrategy<Value> {
    prop_oneof![
        6 => Just(exclusive(name)),
        2 => Just(by_labels(name, &json!({}))),
        2 => Just(broken(name)),
        1 => Just(by_labels(name, &json!({ "matchLabels": { "env": "prod" } }))),
    ]
    .boxed()
}

fn a_binding(namespace: &'static str, name: &'static str) -> BoxedStrategy<Value> {
    let not_bound =
        json!({ "status": { "conditions": [condition("Bound", "False", "NoSuchSet")] } });
    prop_oneof![
        8 => Just(binding(namespace, name)),
        1 => Just(with(binding(namespace, name), &not_bound)),
        1 => Just(unreadable(binding(namespace, name))),
    ]
    .boxed()
}

fn a_profile(namespace: &str, cluster: &str) -> BoxedStrategy<Value> {
    let patches = vec![
        deletion(),
        json!({ "metadata": { "uid": format!("uid-of-next-profile-{namespace}/{cluster}") } }),
        json!({ "metadata": { "labels": { CLUSTER_MANAGER: "karmada" } } }),
        json!({ "metadata": { "labels": null } }),
    ];
    mostly(4, profile(namespace, cluster), patches)
}

fn an_account(cluster: &str, name: &str) -> BoxedStrategy<Value> {
    let scope = |namespaces: &str| json!({ "metadata": { "annotations": { SYNC_TO_NAMESPACES: namespaces } } });
    let created = |time: Value| json!({ "metadata": { "creationTimestamp": time } });
    let patches = vec![
        created(json!("2025-01-01T00:00:00Z")),
        created(json!("2027-01-01T00:00:00Z")),
        created(json!(null)),
        scope("reds"),
        scope("blues,reds,No"),
        scope("greens"),
        scope(""),
        deletion(),
        json!({ "metadata": { "labels": { SYNC_TO_CLUSTER_PROFILE: "True" } } }),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "uid": "uid-of-a-later-account" } }),
        json!({ "status": "text" }),
        json!({ "status": null }),
        json!({ "status": { "tokenSecretRef": { "name": "elsewhere" } } }),
    ];
    mostly(2, account(cluster, name), patches)
}

fn a_token(cluster: &str, name: &str) -> BoxedStrategy<Value> {
    let rotated = json!({ "data": { "token": base64(&format!("rotated-{cluster}/{name}")) } });
    let owner = |uid: &str| json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ManagedServiceAccount", "name": name, "uid": uid }] } });
    let patches = vec![
        rotated.clone(),
        rotated,
        json!({ "data": { "ca.crt": null } }),
        json!({ "data": { "more": base64("x") } }),
        json!({ "data": { "token": "" } }),
        json!({ "data": "text" }),
        json!({ "type": "kubernetes.io/tls" }),
        json!({ "metadata": { "labels": { IS_MANAGED_SERVICE_ACCOUNT: null } } }),
        owner("uid-of-a-later-account"),
        owner("uid-of-nobody"),
    ];
    mostly(3, token(cluster, name), patches)
}

/// A copy as the syncer would create it.
fn a_copy(copy_key: &SecretKey, key: &AccountKey) -> Value {
    let (namespace, cluster, name) =
        (copy_key.namespace.as_str(), key.cluster.as_str(), key.account.as_str());
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": namespace, "name": &*copy_key.name, "resourceVersion": "3",
            "uid": format!("uid-of-copy-{copy_key}"),
            "labels": { SYNCED_FROM: &*copy_key.name },
            "annotations": {
                SYNCED_CLUSTER: cluster, SYNCED_ACCOUNT: name, SYNCED_ACCOUNT_UID: account_uid(cluster, name),
            },
            "ownerReferences": [{
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": cluster,
                "uid": profile_uid(namespace, cluster), "controller": true,
            }],
            "managedFields": [{ "manager": FIELD_MANAGER, "operation": "Update" }],
        },
        "type": "Opaque",
        "data": token(cluster, name)["data"],
    })
}

fn a_secret(copy_key: &SecretKey) -> BoxedStrategy<Value> {
    let keys: Vec<_> = accounts().filter(|key| key.copy_name() == *copy_key.name).collect();
    let ours = (select(keys.clone()), select(edits(&keys[0])), select(edits(&keys[0])), 0..3);
    let at = copy_key.clone();
    let ours = ours.prop_map(move |(key, one, other, edits)| match edits {
        0 => a_copy(&at, &key),
        1 => with(a_copy(&at, &key), &one),
        _ => with(with(a_copy(&at, &key), &one), &other),
    });
    let foreign = stranger(copy_key.namespace.as_str(), &copy_key.name);
    let foreign = mostly(
        1,
        foreign,
        vec![
            json!({ "immutable": true }),
            json!({ "metadata": { "labels": { SYNCED_FROM: &*copy_key.name } } }),
            json!({ "metadata": { "annotations": { SYNCED_CLUSTER: keys[0].cluster.as_str() } } }),
            with(json!({ "metadata": { "finalizers": ["example.com/hold"] } }), &deletion()),
        ],
    );
    prop_oneof![5 => ours, 1 => foreign].boxed()
}

/// Manual changes of copies; `key` is an account whose record could be forged.
fn edits(key: &AccountKey) -> Vec<Value> {
    let forged =
        json!({ SYNCED_CLUSTER: key.cluster.as_str(), SYNCED_ACCOUNT: key.account.as_str() });
    vec![
        json!({ "data": { "token": base64("mallory's") } }),
        json!({ "data": { "more": base64("x") } }),
        json!({ "data": null }),
        json!({ "immutable": true }),
        json!({ "type": "kubernetes.io/tls" }),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "annotations": null } }),
        json!({ "metadata": { "annotations": forged } }),
        json!({ "metadata": { "annotations": { SYNCED_ACCOUNT: "x" } } }),
        json!({ "metadata": { "ownerReferences": null } }),
        json!({ "metadata": { "managedFields": null } }),
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
        with(json!({ "metadata": { "finalizers": ["example.com/hold"] } }), &deletion()),
    ]
}
