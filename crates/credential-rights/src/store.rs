//! What there is: accounts that ask, RoleBindings, the roles they go with, and which keys a change of them concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{AccountKey, AccountName, Namespace};
use hub_core::grant;
use hub_core::rights::PermissionSettings;
use hub_core::version::Version;
use hub_runtime::fleet_cache::FleetCache;
use hub_runtime::host::Host;
use hub_runtime::process::Shared;
use hub_runtime::work::Work;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How this loop is named in logs and metrics.
pub(crate) const CONTROLLER: &str = "credential-rights";

/// What a worker looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// The permission for tokens, by name.
    Tokens,
    /// The permission for copies in a namespace.
    Copies(Namespace),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens => f.write_str("tokens"),
            Self::Copies(namespace) => write!(f, "copies in {namespace}"),
        }
    }
}

/// The controller's state, which its watches fill and its writes are made of.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) settings: PermissionSettings,
    pub(crate) work: Arc<Work<Key>>,
    fleet: FleetCache,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The accounts that ask for copies, and whether these are all.
    accounts: BTreeSet<AccountKey>,
    all_accounts: bool,
    bindings: BTreeMap<Namespace, ObservedRoleBinding>,
    tokens_role: Option<TokensRole>,
    copies_role: Option<String>,
    /// Since when a permission is not needed.
    idle: BTreeMap<Namespace, Instant>,
}

/// A RoleBinding of ours.
#[derive(Clone)]
pub(crate) struct ObservedRoleBinding {
    pub(crate) version: Version,
    /// Nothing where it cannot be read.
    pub(crate) object: Option<RoleBinding>,
}

impl ObservedRoleBinding {
    pub(crate) fn read(metadata: &ObjectMeta, object: Option<RoleBinding>) -> Self {
        Self { version: Version::of(metadata), object }
    }
}

/// The role that names the tokens.
#[derive(Clone)]
pub(crate) struct TokensRole {
    pub(crate) version: Version,
    pub(crate) rules: Vec<PolicyRule>,
}

impl From<ClusterRole> for TokensRole {
    fn from(role: ClusterRole) -> Self {
        Self { version: Version::of(&role.metadata), rules: role.rules.unwrap_or_default() }
    }
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: PermissionSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        host.metrics.declare_written("rolebindings");
        host.metrics.declare_written("clusterroles");
        let (work, fleet) = (Work::new(&host, CONTROLLER), shared.fleet.clone());
        Arc::new(Self { host, settings, work, fleet, state: Mutex::default() })
    }

    /// Queues everything.
    pub(crate) fn begin(&self) {
        self.work.add(Key::Tokens);
        let bound: Vec<Namespace> = self.fleet.read().namespaces().cloned().collect();
        self.namespaces_changed(&bound);
        self.queue_bindings();
    }

    /// The bindings of these namespaces, or what they bind, have changed.
    pub(crate) fn namespaces_changed<'a>(&self, namespaces: impl IntoIterator<Item = &'a Namespace>) {
        for namespace in namespaces {
            self.work.resume(namespace);
            self.work.add(Key::Copies(namespace.clone()));
        }
    }

    /// An account asks for copies.
    pub(crate) fn add_account(&self, account: AccountKey) {
        if self.state.lock().accounts.insert(account) {
            self.work.add(Key::Tokens);
        }
    }

    /// An account no longer asks, or is gone.
    pub(crate) fn remove_account(&self, account: &AccountKey) {
        self.state.lock().accounts.remove(account);
        self.work.add(Key::Tokens);
    }

    /// The list of accounts is complete.
    pub(crate) fn accounts_listed(&self) {
        self.state.lock().all_accounts = true;
        self.work.add(Key::Tokens);
    }

    /// The RoleBinding of a namespace, or that there is none.
    pub(crate) fn set_binding(&self, namespace: &Namespace, binding: Option<ObservedRoleBinding>) {
        {
            let bindings = &mut self.state.lock().bindings;
            match binding {
                Some(binding) => bindings.insert(namespace.clone(), binding),
                None => bindings.remove(namespace),
            };
        }
        self.work.add(Key::Copies(namespace.clone()));
    }

    /// The role that names the tokens, if it exists and can be read.
    pub(crate) fn set_tokens_role(&self, role: Option<TokensRole>) {
        self.state.lock().tokens_role = role;
        self.work.add(Key::Tokens);
    }

    /// Takes in the role that names the tokens as our own write left it.
    pub(crate) fn keep_tokens_role(&self, role: TokensRole) {
        self.state.lock().tokens_role = Some(role);
    }

    /// The uid of the role of copies, if it exists: RoleBindings go with it.
    pub(crate) fn set_copies_role(&self, uid: Option<String>) {
        self.state.lock().copies_role = uid;
        self.queue_bindings();
    }

    /// The role that names the tokens.
    pub(crate) fn tokens_role(&self) -> Option<TokensRole> {
        self.state.lock().tokens_role.clone()
    }

    /// The names of the accounts that ask, once these are all.
    pub(crate) fn token_names(&self) -> Option<BTreeSet<AccountName>> {
        let state = self.state.lock();
        state.all_accounts.then(|| state.accounts.iter().map(|key| key.account.clone()).collect())
    }

    /// The RoleBinding of a namespace.
    pub(crate) fn binding(&self, namespace: &Namespace) -> Option<ObservedRoleBinding> {
        self.state.lock().bindings.get(namespace).cloned()
    }

    /// The uid of the role of copies.
    pub(crate) fn copies_role(&self) -> Option<String> {
        self.state.lock().copies_role.clone()
    }

    /// Whether the syncer needs its permission in a namespace.
    pub(crate) fn is_needed(&self, namespace: &Namespace) -> bool {
        let needed = grant::is_bound(&self.fleet.read(), namespace);
        if needed {
            self.state.lock().idle.remove(namespace);
        }
        needed
    }

    /// For how long the permission in a namespace has not been needed.
    pub(crate) fn idle_for(&self, namespace: &Namespace) -> Duration {
        let now = Instant::now();
        self.state.lock().idle.entry(namespace.clone()).or_insert(now).elapsed()
    }

    /// There is no permission in a namespace, and none is needed.
    pub(crate) fn end_idle(&self, namespace: &Namespace) {
        self.state.lock().idle.remove(namespace);
    }

    fn queue_bindings(&self) {
        let namespaces: Vec<Namespace> = self.state.lock().bindings.keys().cloned().collect();
        self.work.add_all(namespaces.into_iter().map(Key::Copies));
    }
}
