//! The controller's state: accounts that opt in, RoleBindings, their roles, and which keys a change affects.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};
use hub_core::action::Action;
use hub_core::consumer_access::{AccessName, Changed, Consumers};
use hub_core::consumer_role::{
    self, AskingAccount, AskingAccounts, ConsumerRole, NameChange, ObservedConsumerRole, RoleKind,
};
use hub_core::finding::Finding;
use hub_core::fleet::Fleet;
use hub_core::grant;
use hub_core::known::Known;
use hub_core::observed_lease::ObservedLease;
use hub_core::priority::Priority;
use hub_core::rights::{
    Needs, ObservedRoleBinding, ObservedTokensRole, PermissionSettings, cleared_by, names_in,
};
use hub_core::token_names::{MAX_OF_A_CLUSTER, token_names};
use hub_core::version::Version;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// The name of this loop in logs and metrics.
pub(crate) const CONTROLLER: &str = "credential-rights";
/// The plurals of the written kinds, for logs and metrics.
pub(crate) const BINDINGS: &str = "rolebindings";
pub(crate) const CLUSTER_ROLES: &str = "clusterroles";
pub(crate) const ROLES: &str = "roles";

/// The shortest time between two writes that only add names to a Role: each write has all its names.
const WIDENING: Duration = Duration::from_secs(1);

/// A key of the queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RightsKey {
    /// The permission for tokens, by name.
    Tokens,
    /// The permission for copies in a namespace.
    Copies(Namespace),
    /// An application's permission for the copies that its namespace is granted.
    Consumer(ConsumerRole),
}

impl RightsKey {
    fn namespace(&self) -> Namespace {
        match self {
            Self::Tokens => "".into(),
            Self::Copies(namespace) => namespace.clone(),
            Self::Consumer(role) => role.access.namespace.clone(),
        }
    }
}

impl fmt::Display for RightsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens => f.write_str("tokens"),
            Self::Copies(namespace) => write!(f, "copies in {namespace}"),
            Self::Consumer(role) => role.fmt(f),
        }
    }
}

/// The controller's state: its watches fill it, and its writes are planned from it.
pub(crate) struct Store {
    pub(crate) reporter: Reporter,
    pub(crate) settings: PermissionSettings,
    pub(crate) work: Arc<Work<RightsKey>>,
    fleet: FleetCache,
    state: Mutex<RightsState>,
}

#[derive(Default)]
pub(crate) struct RightsState {
    /// The accounts that opt in, and whether the list is complete.
    accounts: AskingAccounts,
    all_accounts: bool,
    /// A digest of the grants of each cluster with such accounts, when it last changed. A change of a binding or a set
    /// clears this.
    granted: BTreeMap<ClusterName, u64>,
    bindings: BTreeMap<Namespace, ObservedRoleBinding>,
    bindings_unread: bool,
    pub(crate) tokens_role: Known<ObservedTokensRole>,
    /// The uid of the role for copies.
    copies_role: Known<String>,
    /// The ClusterAccesses, and the Roles and RoleBindings of those whose tokens are copied.
    consumers: Consumers,
    consumer_roles: BTreeMap<ConsumerRole, ObservedConsumerRole>,
    /// The kinds of these whose list is complete.
    listed_roles: BTreeSet<RoleKind>,
    /// When a Role was last written.
    written: BTreeMap<ConsumerRole, Instant>,
    needs: Needs,
    /// The syncer's Lease, and the time of its last observation.
    lease: ObservedLease,
    lease_shown: Option<Instant>,
}

impl RightsState {
    /// Whether an account on a cluster opts in.
    fn asks(&self, cluster: &ClusterName) -> bool {
        self.accounts_on(cluster).next().is_some()
    }

    /// The accounts on a cluster that opt in.
    fn accounts_on<'a>(&'a self, cluster: &'a ClusterName) -> impl Iterator<Item = &'a AccountKey> {
        let first = AccountKey { cluster: cluster.clone(), account: "".into() };
        let accounts = self.accounts.range(first..).map(|(account, _)| account);
        accounts.take_while(move |account| account.cluster == *cluster)
    }

    /// Whether the role for tokens names an account, and so few that a further account of this name changes nothing.
    fn names_token(&self, account: &AccountKey) -> bool {
        let rules = self.tokens_role.present().map_or(&[][..], |role| &role.rules);
        let names = names_in(rules);
        names.contains(account.account.as_str()) && names.len() < MAX_OF_A_CLUSTER
    }

    /// Records to which namespaces a cluster is granted, if its accounts opt in; returns whether that may have changed.
    fn grant_changed(&mut self, fleet: &Fleet, cluster: &ClusterName) -> bool {
        if fleet.cluster(cluster).is_none() || !self.asks(cluster) {
            self.granted.remove(cluster);
            return true;
        }
        let grants = grant::digest(fleet, cluster);
        self.granted.insert(cluster.clone(), grants) != Some(grants)
    }
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: PermissionSettings) -> Arc<Self> {
        let host = &shared.host;
        host.metrics.declare_written(BINDINGS);
        host.metrics.declare_written(CLUSTER_ROLES);
        if settings.access_rules.is_some() {
            host.metrics.declare_written(ROLES);
        }
        let (work, fleet) =
            (Work::new(host, CONTROLLER, RightsKey::namespace), shared.fleet.clone());
        let consumers = Consumers::new(settings.access_rules.clone().unwrap_or_default());
        let state = Mutex::new(RightsState { consumers, ..RightsState::default() });
        Arc::new(Self { reporter: host.reporter(CONTROLLER), settings, work, fleet, state })
    }

    /// Queues everything.
    pub(crate) fn begin(&self) {
        self.add(RightsKey::Tokens);
        self.queue_bindings();
        self.queue_all_roles();
    }

    /// Queues a permission before all other work: there are few of them, and credentials wait for them.
    fn add(&self, key: RightsKey) {
        self.work.add_with(key, Priority::End);
    }

    fn add_all(&self, keys: impl IntoIterator<Item = RightsKey>) {
        for key in keys {
            self.add(key);
        }
    }

    /// Queues the Role and the RoleBinding of ClusterAccesses.
    fn queue_roles(&self, names: impl IntoIterator<Item = AccessName>) {
        let roles = names.into_iter().flat_map(|name| ConsumerRole::both(&name));
        self.add_all(roles.map(RightsKey::Consumer));
    }

    fn queue_all_roles(&self) {
        let names: Vec<_> = self.state.lock().consumers.names().cloned().collect();
        self.queue_roles(names);
    }

    /// Queues the Roles in a namespace.
    fn queue_roles_in(&self, namespace: &Namespace) {
        let names: Vec<_> = self.state.lock().consumers.names_in(namespace).cloned().collect();
        self.queue_roles(names);
    }

    /// Queues the Roles that have to change for an account.
    fn queue_roles_of(&self, fleet: &Fleet, account: &AccountKey) {
        let state = self.state.lock();
        let RightsState { consumers, accounts, consumer_roles, .. } = &*state;
        let settings = &self.settings;
        let changes =
            consumer_role::changes(settings, fleet, consumers, accounts, consumer_roles, account);
        for (access, change) in changes {
            let role = ConsumerRole { kind: RoleKind::Role, access: access.clone() };
            match change {
                NameChange::Remove => self.add(RightsKey::Consumer(role)),
                // Together with those that follow.
                NameChange::Add => {
                    self.work.add_within(RightsKey::Consumer(role), Priority::End, WIDENING);
                }
            }
        }
    }

    /// Records a change of ClusterAccesses.
    pub(crate) fn change_objects(&self, change: impl FnOnce(&mut Consumers) -> Changed) {
        let changed = change(&mut self.state.lock().consumers);
        self.queue_roles(changed.into_keys());
    }

    /// Records whether all ClusterAccesses are known.
    pub(crate) fn objects_read(&self, is_read: bool) {
        if self.state.lock().consumers.set_read(is_read) && is_read {
            self.queue_all_roles();
        }
    }

    /// Records the Role or the RoleBinding of a ClusterAccess, or that there is none.
    pub(crate) fn set_consumer_role(
        &self,
        role: &ConsumerRole,
        observed: Option<ObservedConsumerRole>,
    ) {
        let key = RightsKey::Consumer(role.clone());
        if observed.is_none() {
            self.ended(&key);
        }
        let mut state = self.state.lock();
        if let Some(observed) = observed {
            state.consumer_roles.insert(role.clone(), observed);
        } else {
            state.consumer_roles.remove(role);
            state.written.remove(role);
        }
        drop(state);
        self.add(key);
    }

    /// Records whether all Roles, or all RoleBindings, of ClusterAccesses are known.
    pub(crate) fn roles_listed(&self, kind: RoleKind, is_listed: bool) {
        let mut state = self.state.lock();
        let is_new = if is_listed {
            state.listed_roles.insert(kind)
        } else {
            state.listed_roles.remove(&kind)
        };
        drop(state);
        if is_new && is_listed {
            self.queue_all_roles();
        }
    }

    /// Records that the bindings of these namespaces, or their sets, have changed.
    pub(crate) fn namespaces_changed<'a>(
        &self,
        namespaces: impl IntoIterator<Item = &'a Namespace>,
    ) {
        self.state.lock().granted.clear();
        for namespace in namespaces {
            self.add(RightsKey::Copies(namespace.clone()));
            self.queue_roles_in(namespace);
        }
        self.add(RightsKey::Tokens);
    }

    /// Records a change of a cluster: whether it exists, and in which set, decides whether its accounts count.
    pub(crate) fn cluster_changed(&self, fleet: &Fleet, cluster: &ClusterName) {
        let mut state = self.state.lock();
        let accounts: Vec<_> = state.accounts_on(cluster).cloned().collect();
        // The names are computed from every account of the hub, and a cluster changes often.
        let is_moved = state.grant_changed(fleet, cluster);
        drop(state);
        if is_moved && !accounts.is_empty() {
            self.add(RightsKey::Tokens);
        }
        for account in &accounts {
            self.queue_roles_of(fleet, account);
        }
        // The namespace of a cluster is protected while the cluster exists.
        self.add(RightsKey::Copies(cluster.as_str().into()));
        self.queue_roles_in(&cluster.as_str().into());
    }

    /// Records an account that opts in.
    pub(crate) fn add_account(&self, account: &AccountKey, asking: AskingAccount) {
        let fleet = self.fleet.read();
        let mut state = self.state.lock();
        let before = state.accounts.insert(account.clone(), asking.clone());
        let is_named = state.names_token(account);
        drop(state);
        if before.is_none() && !is_named {
            self.add(RightsKey::Tokens);
        }
        if before != Some(asking) {
            self.queue_roles_of(&fleet, account);
        }
    }

    /// Records that an account no longer opts in, or is gone.
    pub(crate) fn remove_account(&self, account: &AccountKey) {
        let fleet = self.fleet.read();
        self.state.lock().accounts.remove(account);
        self.add(RightsKey::Tokens);
        self.queue_roles_of(&fleet, account);
    }

    /// Records whether the accounts are known.
    pub(crate) fn set_accounts_read(&self, is_read: bool) {
        self.state.lock().all_accounts = is_read;
        if is_read {
            self.add(RightsKey::Tokens);
            self.queue_all_roles();
        }
    }

    /// Records the RoleBinding of a namespace, or that there is none.
    pub(crate) fn set_binding(&self, namespace: &Namespace, binding: Option<ObservedRoleBinding>) {
        if binding.is_none() {
            self.ended(&RightsKey::Copies(namespace.clone()));
        }
        {
            let bindings = &mut self.state.lock().bindings;
            match binding {
                Some(binding) => bindings.insert(namespace.clone(), binding),
                None => bindings.remove(namespace),
            };
        }
        self.add(RightsKey::Copies(namespace.clone()));
    }

    /// Records whether RoleBindings can be read, and queues the permission for copies in every namespace: one that we
    /// created may be gone without any event.
    pub(crate) fn set_bindings_read(&self, is_read: bool) {
        self.state.lock().bindings_unread = !is_read;
        self.queue_bindings();
    }

    /// Records the role for tokens, whose rules are written.
    pub(crate) fn set_tokens_role(&self, role: Known<ObservedTokensRole>) {
        if role == Known::Absent {
            self.ended(&RightsKey::Tokens);
        }
        self.state.lock().tokens_role = role;
        self.add(RightsKey::Tokens);
    }

    /// Records the uid of the role for copies, which owns RoleBindings: with another one, all of them are replaced.
    pub(crate) fn set_copies_role(&self, uid: Known<String>) {
        self.state.lock().copies_role = uid;
        self.queue_bindings();
    }

    /// Plans the next write to the Role or the RoleBinding of a ClusterAccess.
    pub(crate) fn plan_consumer(
        &self,
        role: &ConsumerRole,
        read: Option<&Known<ObservedConsumerRole>>,
    ) -> Result<Action<Value, Value>, Finding> {
        let fleet = self.fleet.read();
        let state = self.state.lock();
        let shown = match state.consumer_roles.get(role) {
            Some(observed) => Known::Present(observed.clone()),
            None if state.listed_roles.contains(&role.kind) => Known::Absent,
            None => Known::Unknown,
        };
        let accounts = state.all_accounts.then_some(&state.accounts);
        role.plan(&self.settings, &fleet, &state.consumers, accounts, read.unwrap_or(&shown))
    }

    /// How long a patch of a Role has to wait, if it only adds names.
    pub(crate) fn wait(&self, role: &ConsumerRole, patch: &Value) -> Option<Duration> {
        let state = self.state.lock();
        let left = WIDENING.checked_sub(state.written.get(role)?.elapsed())?;
        let is_widened = state.consumer_roles.get(role)?.is_widened_by(patch);
        (is_widened && !left.is_zero()).then_some(left)
    }

    /// Records that a Role was written.
    pub(crate) fn wrote_role(&self, role: &ConsumerRole) {
        self.state.lock().written.insert(role.clone(), Instant::now());
    }

    /// The version of the object of this key.
    pub(crate) fn known(&self, key: &RightsKey) -> Option<Version> {
        let state = self.state.lock();
        match key {
            RightsKey::Tokens => state.tokens_role.present().map(|role| role.version.clone()),
            RightsKey::Copies(namespace) => {
                state.bindings.get(namespace).map(|binding| binding.version.clone())
            }
            RightsKey::Consumer(role) => {
                state.consumer_roles.get(role).map(|role| role.version.clone())
            }
        }
    }

    /// Records that the watch shows the end of the object of this key.
    fn ended(&self, key: &RightsKey) {
        if let Some(known) = self.known(key) {
            self.work.written.ended(key, &known.uid);
        }
    }

    pub(crate) fn tokens_role(&self) -> Known<ObservedTokensRole> {
        self.state.lock().tokens_role.clone()
    }

    /// The names by which tokens are watched, once the list of accounts is complete. While the fleet cannot be read,
    /// none is added to the role.
    pub(crate) fn token_names(
        &self,
        role: &Known<ObservedTokensRole>,
    ) -> Option<BTreeSet<AccountName>> {
        let fleet = self.fleet.read();
        let state = self.state.lock();
        let mut names =
            state.all_accounts.then(|| token_names(&fleet, state.accounts.keys()).names)?;
        if !fleet.is_read() {
            let before = names_in(role.present().map_or(&[], |role| &role.rules));
            names.retain(|name| before.contains(name.as_str()));
        }
        Some(names)
    }

    pub(crate) fn binding(&self, namespace: &Namespace) -> Option<ObservedRoleBinding> {
        self.state.lock().bindings.get(namespace).cloned()
    }

    /// The uid of the role for copies.
    pub(crate) fn copies_role(&self) -> Known<String> {
        self.state.lock().copies_role.clone()
    }

    /// Records the syncer's Lease, or that none can be read. The grace period of a permission passes only while the
    /// Lease is renewed and shows that the syncer has nothing left to delete.
    pub(crate) fn set_lease(&self, lease: Option<&Lease>) {
        let over = {
            let (now, mut state) = (Instant::now(), self.state.lock());
            let passed =
                state.lease_shown.replace(now).map(|before| now - before).unwrap_or_default();
            let spec = lease.and_then(|lease| lease.spec.as_ref());
            let Some(ran) = state.lease.observe(spec, passed) else { return };
            let Some(lease) = lease else { return };
            state.needs.advance(ran, &cleared_by(&lease.metadata))
        };
        self.add_all(over.into_iter().map(RightsKey::Copies));
    }

    /// Whether the syncer should have the permission in a namespace; `None` if a permission that it should have must not
    /// be created or replaced, since a kind cannot be read.
    pub(crate) fn has_permission(&self, namespace: &Namespace) -> Option<bool> {
        let fleet = self.fleet.read();
        let is_needed = grant::is_bound(&fleet, namespace)
            && !self.settings.protected.protects(&fleet, namespace);
        let is_read = fleet.is_read();
        drop(fleet);
        let mut state = self.state.lock();
        let is_certain = is_read && !state.bindings_unread;
        let exists = state.bindings.get(namespace).is_some_and(|binding| binding.is_ours);
        let has = state.needs.has(namespace, is_needed, exists);
        (!has || is_certain).then_some(has)
    }

    /// Records that a namespace is gone or being deleted. Returns whether it does not need the permission any more.
    pub(crate) fn namespace_ended(&self, namespace: &Namespace) -> bool {
        self.state.lock().needs.end(namespace)
    }

    /// Queues the permission for copies in every namespace that is bound or has one.
    pub(crate) fn queue_bindings(&self) {
        let mut namespaces: BTreeSet<Namespace> = self.fleet.read().namespaces().cloned().collect();
        namespaces.extend(self.state.lock().bindings.keys().cloned());
        self.add_all(namespaces.into_iter().map(RightsKey::Copies));
    }
}
