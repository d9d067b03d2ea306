//! What the tests of credentials share: accounts, tokens and profiles as an API server shows them, and a hub in
//! memory that does to Secrets what a plan says. A write that an API server would turn away, or that changes
//! nothing, panics.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_api::labels;
use hub_api::names::{AccountKey, Namespace, SecretKey, is_dns_subdomain, is_label_value};
use hub_api::secret::Secret;
use hub_core::credential::account::Account;
use hub_core::credential::backlog::Backlog;
use hub_core::credential::copy::{FIELD_MANAGER, ObservedCopy};
use hub_core::credential::index::{CreatedCopy, CredentialIndex, ProfileMetadata, SyncSettings};
use hub_core::credential::plan::{CopyAction, CopyPlan, plan};
use hub_core::credential::report::{Recipients, Report, report};
use hub_core::credential::source::TokenSource;
use hub_core::credential::state::State;
use hub_core::credential::tally::Troubles;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant;
use hub_core::version::Version;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::api::raise_version;
use super::{NOON, binding, condition, exclusive, key, member, with};

/// More rounds over all keys than any world needs: exceeding it means an endless loop.
const TOO_MANY_ROUNDS: usize = 6;

/// A ManagedServiceAccount whose token is to be copied wherever its cluster is granted.
pub fn account(cluster: &str, name: &str) -> Value {
    json!({
        "kind": "ManagedServiceAccount",
        "metadata": {
            "namespace": cluster, "name": name, "uid": account_uid(cluster, name), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { labels::SYNC_TO_CLUSTER_PROFILE: "true" },
        },
        "spec": { "rotation": {} },
        "status": {
            "tokenSecretRef": { "name": name, "lastRefreshTimestamp": NOON },
            "conditions": [condition("TokenReported", "True", "TokenReported")],
        },
    })
}

/// The uid that [`account`] gives.
pub fn account_uid(cluster: &str, name: &str) -> String {
    format!("uid-of-account-{cluster}/{name}")
}

/// The Secret that the account's agent has written.
pub fn token(cluster: &str, name: &str) -> Value {
    json!({
        "kind": "Secret",
        "metadata": {
            "namespace": cluster, "name": name, "uid": format!("uid-of-token-{cluster}/{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { labels::IS_MANAGED_SERVICE_ACCOUNT: "true" },
            "ownerReferences": [{
                "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
                "name": name, "uid": account_uid(cluster, name),
            }],
        },
        "type": "Opaque",
        "data": { "token": base64(&format!("token-of-{cluster}/{name}")), "ca.crt": base64(&format!("ca-of-{cluster}")) },
    })
}

/// The metadata of our profile of a cluster.
pub fn profile(namespace: &str, cluster: &str) -> Value {
    json!({
        "kind": "ClusterProfile",
        "metadata": {
            "namespace": namespace, "name": cluster, "uid": profile_uid(namespace, cluster),
            "labels": { labels::CLUSTER_MANAGER: "open-cluster-management", labels::CLUSTER_NAME: cluster },
        },
        "spec": { "clusterManager": { "name": "open-cluster-management" } },
    })
}

/// The uid that [`profile`] gives.
pub fn profile_uid(namespace: &str, cluster: &str) -> String {
    format!("uid-of-profile-{namespace}/{cluster}")
}

/// Bytes as JSON has them.
pub fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// Where a Secret is.
pub fn secret_key(namespace: &str, name: &str) -> SecretKey {
    SecretKey { namespace: namespace.into(), name: name.into() }
}

/// The name of an account.
pub fn account_key(cluster: &str, account: &str) -> AccountKey {
    AccountKey { cluster: cluster.into(), account: account.into() }
}

/// A Secret of another writer.
pub fn stranger(namespace: &str, name: &str) -> Value {
    json!({
        "kind": "Secret",
        "metadata": {
            "namespace": namespace, "name": name, "uid": "uid-of-stranger", "resourceVersion": "7",
            "managedFields": [{ "manager": "kubectl-create", "operation": "Update" }],
        },
        "type": "Opaque",
        "data": { "password": base64("a stranger's") },
    })
}

/// All that it takes for the token of `c1/kueue` to be copied into `team`.
pub fn scene() -> Vec<Value> {
    vec![
        member("c1", "prod"),
        exclusive("prod"),
        binding("team", "prod"),
        account("c1", "kueue"),
        token("c1", "kueue"),
        profile("team", "c1"),
    ]
}

/// The scene with a merge patch in the object of that kind.
pub fn scene_with(kind: &str, patch: &Value) -> Vec<Value> {
    let edit = |object: Value| if object["kind"] == kind { with(object, patch) } else { object };
    scene().into_iter().map(edit).collect()
}

/// The scene with an account whose token is for these namespaces.
pub fn annotated(namespaces: &str) -> Vec<Value> {
    let annotations = json!({ (labels::SYNC_TO_NAMESPACES): namespaces });
    scene_with("ManagedServiceAccount", &json!({ "metadata": { "annotations": annotations } }))
}

/// The scene without the object of that kind.
pub fn scene_without(kind: &str) -> Vec<Value> {
    scene().into_iter().filter(|object| object["kind"] != kind).collect()
}

/// Where the scene's copy is.
pub fn scene_key() -> SecretKey {
    secret_key("team", "c1-kueue")
}

/// A hub: the index, and the Secrets with the keys of copies.
#[derive(Debug)]
pub struct World {
    /// Clusters, sets and bindings.
    pub fleet: Fleet,
    /// All else that plans read.
    pub index: CredentialIndex,
    /// The Secrets with the keys of copies, as the API server has them.
    pub secrets: BTreeMap<SecretKey, Value>,
    made: u64,
}

/// Every key in a namespace, existing or wanted.
pub fn keys_in(
    index: &CredentialIndex,
    fleet: &Fleet,
    namespace: &Namespace,
) -> BTreeSet<SecretKey> {
    let is_asking = |key: &AccountKey| {
        grant::is_among(fleet, namespace, &key.cluster)
            && index.asks_in(index.account(key).unwrap(), namespace)
    };
    let asking = index.accounts().filter(is_asking).map(|account| account.copy_in(namespace));
    index.known_keys(namespace, "").chain(asking).collect()
}

impl World {
    /// A hub of which everything is known.
    pub fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        Self::set_up(SyncSettings::default(), objects)
    }

    /// The same, with these settings.
    pub fn set_up(settings: SyncSettings, objects: impl IntoIterator<Item = Value>) -> Self {
        let mut world = Self::unlisted(settings, objects);
        world.index.knows_accounts = true;
        world.index.listed_sources.set(None, true);
        world.index.listed_copies.set(None, true);
        world
    }

    /// A hub of which these objects are known, and not whether there are others.
    pub fn unlisted(settings: SyncSettings, objects: impl IntoIterator<Item = Value>) -> Self {
        let index = CredentialIndex::new(settings);
        let mut world = Self { fleet: Fleet::default(), index, secrets: BTreeMap::new(), made: 0 };
        for object in objects {
            world.arrive(&object);
        }
        world.reach_all();
        world
    }

    /// Updates the reach of every cluster with accounts.
    pub fn reach_all(&mut self) {
        let clusters: BTreeSet<_> = self.index.accounts().map(|account| account.cluster).collect();
        for cluster in &clusters {
            self.index.reach_cluster(&self.fleet, cluster);
        }
    }

    /// The scene with its copy.
    pub fn settled_scene() -> Self {
        let mut world = Self::of(scene());
        world.settle();
        world
    }

    /// Takes in an object as a watch does; a Secret is the one of an agent.
    pub fn arrive(&mut self, object: &Value) -> Arrival {
        let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        let (namespace, name) = names(object);
        match object["kind"].as_str().unwrap() {
            "ManagedServiceAccount" => {
                let account = Account::read(super::decode(object));
                let changed = self.index.apply_account(account_key(namespace, name), account);
                self.index.reach_cluster(&self.fleet, &namespace.into());
                Arrival::Changes(changed)
            }
            "Secret" => {
                let source = serde_json::from_value::<Secret>(object.clone());
                let source =
                    source.map_or_else(|_| TokenSource::unreadable(), |it| TokenSource::read(&it));
                Arrival::Changes(self.index.set_source(&account_key(namespace, name), Some(source)))
            }
            "ClusterProfile" => {
                let manager = object["spec"]["clusterManager"]["name"].as_str();
                let profile = ProfileMetadata::read(&metadata, manager);
                Arrival::Changes(self.index.apply_profile(key(namespace, name), profile))
            }
            _ => Arrival::Touches(super::arrive(&mut self.fleet, object)),
        }
    }

    /// Takes in an object as the syncer does, which keeps only some of the accounts that do not opt in.
    pub fn arrive_at_syncer(&mut self, object: &Value) {
        if object["kind"] == "ManagedServiceAccount" {
            let (namespace, name) = names(object);
            let account = Account::read(super::decode(object));
            self.index.apply_needed_account(account_key(namespace, name), account);
        } else {
            self.arrive(object);
        }
    }

    /// Takes out the object that has this one's kind and name.
    pub fn leave(&mut self, object: &Value) -> Arrival {
        let (namespace, name) = names(object);
        match object["kind"].as_str().unwrap() {
            "ManagedServiceAccount" => {
                self.index.delete_account(&account_key(namespace, name));
                self.index.reach_cluster(&self.fleet, &namespace.into());
            }
            "Secret" => {
                self.index.set_source(&account_key(namespace, name), None);
            }
            "ClusterProfile" => self.index.delete_profile(&key(namespace, name)),
            _ => return Arrival::Touches(super::leave(&mut self.fleet, object)),
        }
        Arrival::Changes(true)
    }

    /// Puts a Secret with the key of a copy, replacing any other.
    pub fn put(&mut self, secret: Value) -> bool {
        let (namespace, name) = names(&secret);
        let key = secret_key(namespace, name);
        self.secrets.insert(key.clone(), secret);
        self.look_at(&key)
    }

    /// Applies a merge patch to the Secret there, as a user does.
    pub fn edit(&mut self, key: &SecretKey, patch: &Value) {
        let mut secret = with(self.secrets[key].clone(), patch);
        raise_version(&mut secret);
        self.put(secret);
    }

    /// Deletes a Secret, as a user does.
    pub fn remove(&mut self, key: &SecretKey) -> bool {
        self.secrets.remove(key);
        self.look_at(key)
    }

    /// The Secret there.
    pub fn secret(&self, key: &SecretKey) -> &Value {
        self.secrets.get(key).unwrap_or(&Value::Null)
    }

    /// Of which version it is.
    pub fn version(&self, key: &SecretKey) -> Version {
        let text = |field: &str| self.secrets[key]["metadata"][field].as_str().unwrap().to_owned();
        Version {
            uid: text("uid").as_str().into(),
            resource_version: text("resourceVersion").into(),
        }
    }

    /// What is planned there.
    pub fn plan(&self, key: &SecretKey) -> CopyPlan {
        plan(&self.index, &self.fleet, key, self.index.copy(key))
    }

    /// The scene's copy.
    pub fn copy(&self) -> &Value {
        self.secret(&scene_key())
    }

    /// Of which version the scene's copy is.
    pub fn copy_version(&self) -> Version {
        self.version(&scene_key())
    }

    /// What is planned for the scene's copy.
    pub fn copy_plan(&self) -> CopyPlan {
        self.plan(&scene_key())
    }

    /// The next write of the scene's copy.
    pub fn next(&self) -> CopyAction {
        self.copy_plan().action
    }

    /// The state of the scene's account in its namespace.
    pub fn copy_state(&self) -> Option<State> {
        self.state(&scene_key(), &account_key("c1", "kueue"))
    }

    /// Applies a merge patch to the scene's copy, as a user does.
    pub fn edit_copy(&mut self, patch: &Value) {
        self.edit(&scene_key(), patch);
    }

    /// The agent of the scene's account reports another token.
    pub fn rotate(&mut self) {
        let rotated = json!({ "data": { "token": base64("rotated") } });
        self.arrive(&with(token("c1", "kueue"), &rotated));
    }

    /// Every key, existing or wanted.
    pub fn keys(&self) -> BTreeSet<SecretKey> {
        let namespaces = self.index.namespaces(&self.fleet);
        namespaces.iter().flat_map(|it| keys_in(&self.index, &self.fleet, it)).collect()
    }

    /// The copies that a change of the fleet concerns, and the accounts whose report it does.
    pub fn concerned(&mut self, touched: &Touched) -> (BTreeSet<SecretKey>, BTreeSet<AccountKey>) {
        let (Self { index, fleet, .. }, mut backlog) = (self, Backlog::default());
        backlog.add(index, fleet, touched);
        let portions = std::iter::from_fn(|| backlog.next(index, fleet));
        let (copies, accounts): (Vec<_>, Vec<_>) = portions.unzip();
        (copies.into_iter().flatten().collect(), accounts.into_iter().flatten().collect())
    }

    /// What is reported on an account when every key is planned.
    pub fn report(&self, account: &AccountKey) -> Option<Report> {
        let mut troubles = Troubles::new();
        for key in self.keys() {
            for (of, state) in self.plan(&key).states {
                if of == *account && state.is_counted() && state != State::Synced {
                    troubles.entry(state).or_default().insert(key.namespace.clone());
                }
            }
        }
        let recipients = Recipients::of(&self.index, &self.fleet, account);
        report(&self.index, account, Some(&troubles), &recipients)
    }

    /// The state of the account there.
    pub fn state(&self, copy_key: &SecretKey, account: &AccountKey) -> Option<State> {
        let mut states = self.plan(copy_key).states.into_iter();
        states.find_map(|(key, state)| (key == *account).then_some(state))
    }

    /// Plans and writes for every key until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..TOO_MANY_ROUNDS {
            let mut settled = true;
            for key in self.keys() {
                let action = self.plan(&key).action;
                settled &= action == CopyAction::Nothing;
                self.write(&key, &action);
            }
            if settled {
                return;
            }
        }
        panic!("it is written for ever: {self:?}");
    }

    /// Executes a plan, and records the response.
    pub fn write(&mut self, key: &SecretKey, action: &CopyAction) {
        let holder = self.plan(key).holder;
        let managed = json!([{ "manager": FIELD_MANAGER, "operation": "Update" }]);
        match action {
            CopyAction::Nothing => return,
            // The response is AlreadyExists, and the Secret there is read.
            CopyAction::Create(_) if self.secrets.contains_key(key) => {
                assert!(self.index.copy(key).is_none(), "AlreadyExists: {key}");
            }
            CopyAction::Create(secret) => {
                self.made += 1;
                let mut created = serde_json::to_value(secret).unwrap();
                created["metadata"]["uid"] = json!(format!("uid-{}", self.made));
                created["metadata"]["resourceVersion"] = json!("1");
                created["metadata"]["managedFields"] = managed;
                assert_eq!(names(&created), (key.namespace.as_str(), &*key.name));
                self.secrets.insert(key.clone(), created);
                let created = CreatedCopy { uid: self.version(key).uid, account: holder.unwrap() };
                self.index.set_created(key, Some(created));
            }
            CopyAction::PatchStatus(..) => panic!("a Secret has no status"),
            CopyAction::Patch(version, patch) => {
                let patch = serde_json::to_value(patch).unwrap();
                let before = self.secrets.get(key).expect("NotFound").clone();
                assert_eq!(self.version(key), *version, "Conflict: {key}");
                let mut after = with(before.clone(), &patch);
                assert_ne!(before, after, "a write without a difference: {key}");
                let change = [token_of(&before), token_of(&after)];
                assert!(!matches!(&change, [Some(one), Some(other)] if one != other), "{change:?}");
                let frozen = before["immutable"] == true && before["data"] != after["data"];
                assert!(!frozen, "Invalid: the data of {key} is immutable");
                after["metadata"]["managedFields"] = managed;
                raise_version(&mut after);
                self.secrets.insert(key.clone(), after);
            }
            CopyAction::Delete(version) => {
                assert_eq!(self.version(key), *version, "Conflict: {key}");
                let ends = &self.secrets[key]["metadata"]["deletionTimestamp"];
                assert!(ends.is_null(), "{key} is deleted twice");
                self.delete(key);
            }
            CopyAction::DeleteByUid(uid) => {
                let seen = self.index.copy(key);
                assert!(seen.is_none_or(|seen| !seen.terminating), "{key} is deleted twice");
                let is_it = |secret: &Value| secret["metadata"]["uid"] == uid.to_string();
                if self.secrets.get(key).is_some_and(is_it) {
                    self.delete(key);
                } else {
                    self.index.set_created(key, None);
                }
            }
        }
        if let Some(secret) = self.secrets.get(key) {
            assert!(is_dns_subdomain(&key.name), "Invalid: {key}");
            for (_, value) in secret["metadata"]["labels"].as_object().into_iter().flatten() {
                assert!(is_label_value(value.as_str().unwrap()), "Invalid: the label {value}");
            }
        }
        self.look_at(key);
    }

    /// Has the watch on labelled Secrets show the end of the one there, as it does when its label is stripped.
    pub fn lose(&mut self, key: &SecretKey) {
        self.index.delete_copy(key);
    }

    /// Another process takes over: it knows what watches show, and nothing of what the first has created.
    pub fn restart(&mut self) {
        for key in self.keys() {
            self.index.set_created(&key, None);
        }
        let keys: Vec<_> = self.secrets.keys().cloned().collect();
        for key in &keys {
            self.look_at(key);
        }
    }

    fn delete(&mut self, key: &SecretKey) {
        let secret = self.secrets.get_mut(key).unwrap();
        if secret["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
            secret["metadata"]["deletionTimestamp"] = json!(NOON);
            raise_version(secret);
        } else {
            self.secrets.remove(key);
            self.index.set_created(key, None);
        }
    }

    /// Records the Secret with a key, as a watch does.
    fn look_at(&mut self, key: &SecretKey) -> bool {
        if let Some(secret) = self.secrets.get(key) {
            return self.index.apply_copy(key, observe(secret));
        }
        let known = self.index.copy(key).is_some();
        self.index.delete_copy(key);
        known
    }
}

/// What came of an arrival.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// Whether any input of copies differs.
    Changes(bool),
    /// What it touches in the fleet.
    Touches(Touched),
}

/// Reads a Secret where a copy belongs.
pub fn observe(secret: &Value) -> ObservedCopy {
    let (namespace, name) = names(secret);
    ObservedCopy::read(&secret_key(namespace, name), super::decode(secret).as_ref())
}

/// Namespace and name of an object.
pub fn names(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// The account whose token a Secret holds. Readers of a copy never see that change.
fn token_of(secret: &Value) -> Option<String> {
    let token = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
    let token = String::from_utf8(token).ok()?;
    ["token-of-", "rotated-"].iter().find_map(|it| Some(token.strip_prefix(it)?.to_owned()))
}
