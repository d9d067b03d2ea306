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
    self, AskingAccount, AskingAccounts, ConsumerRole, NameChange, RoleKind, only_widens,
};
use hub_core::finding::Finding;
use hub_core::fleet::Fleet;
use hub_core::grant;
use hub_core::known::Known;
use hub_core::observed_lease::ObservedLease;
use hub_core::priority::Priority;
use hub_core::rights::{COMPONENT, Needs, ObservedRole, PermissionSettings, cleared_by};
use hub_core::token_names::{MAX_OF_A_CLUSTER, TokenNames, token_names};
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

/// The shortest time between two writes that only add names to a Role, since each write has all its names, and between two
/// plans of the role for tokens, since each visits all accounts.
const WIDENING: Duration = Duration::from_secs(1);
/// For each so many names of a Role, the time between its writes is longer by [`WIDENING`].
const MANY_NAMES: usize = 1000;

/// The time between two plans of the role for tokens while its writes fail.
const FAILING: Duration = Duration::from_secs(5);

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

    /// The list that shows its object.
    fn list(&self) -> List {
        match self {
            Self::Tokens => List::Tokens,
            Self::Copies(_) => List::Copies,
            Self::Consumer(role) => List::Consumers(role.kind),
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

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// The accounts that opt in.
    Accounts,
    /// The role for tokens.
    Tokens,
    /// The RoleBindings of the role for copies.
    Copies,
    /// The Roles, or the RoleBindings, of ClusterAccesses.
    Consumers(RoleKind),
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
    /// The accounts that opt in.
    accounts: AskingAccounts,
    /// What is written, as the watches have shown it.
    objects: BTreeMap<RightsKey, ObservedRole>,
    /// The lists that are complete, so that what is missing does not exist.
    listed: BTreeSet<List>,
    /// Whether each cluster with such accounts was granted to any namespace when it last changed, or when the role for
    /// tokens was last planned, which a change of a binding or a set queues.
    granted: BTreeMap<ClusterName, bool>,
    /// The last plan of the role for tokens.
    tokens: Option<TokensPlan>,
    /// The uid of the role for copies.
    copies_role: Known<String>,
    /// The ClusterAccesses.
    consumers: Consumers,
    /// When the Role of a ClusterAccess was last written.
    written: BTreeMap<RightsKey, Instant>,
    needs: Needs,
    /// The syncer's Lease, and the time of its last observation.
    lease: ObservedLease,
    lease_shown: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct TokensPlan {
    at: Instant,
    /// Whether all names were within the limits.
    is_complete: bool,
    /// How long after it the next one follows at the earliest.
    pace: Duration,
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

    /// The object of a key.
    fn observed(&self, key: &RightsKey) -> Known<ObservedRole> {
        match self.objects.get(key) {
            Some(observed) => Known::Present(observed.clone()),
            None if self.listed.contains(&key.list()) => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// How long names cannot yet be added to a Role that was written.
    fn widens_in(&self, key: &RightsKey) -> Option<Duration> {
        let names = self.objects.get(key)?.count_names();
        let pace = WIDENING * u32::try_from(1 + names / MANY_NAMES).unwrap_or(u32::MAX);
        pace.checked_sub(self.written.get(key)?.elapsed()).filter(|left| !left.is_zero())
    }

    /// Whether the role for tokens names a new account, and no name exceeds the limits, nor does one of its cluster with it:
    /// it changes nothing.
    fn names_token(&self, account: &AccountKey) -> bool {
        let role = self.objects.get(&RightsKey::Tokens);
        self.tokens.is_some_and(|plan| plan.is_complete)
            && self.accounts_on(&account.cluster).nth(MAX_OF_A_CLUSTER - 1).is_none()
            && role.is_some_and(|role| role.names(account.account.as_str()))
    }

    /// The names by which tokens are watched, for a plan of the role for tokens.
    fn token_names(&mut self, fleet: &Fleet) -> BTreeSet<AccountName> {
        let TokenNames { names, left_out, granted } = token_names(fleet, self.accounts.keys());
        let (at, is_complete) = (Instant::now(), left_out.is_empty());
        self.tokens = Some(TokensPlan { at, is_complete, pace: WIDENING });
        self.granted = granted;
        names
    }

    /// Records whether a cluster is granted to any namespace, if accounts there opt in; returns whether that may have
    /// changed.
    fn grant_changed(&mut self, fleet: &Fleet, cluster: &ClusterName) -> bool {
        if fleet.cluster(cluster).is_none() || !self.asks(cluster) {
            self.granted.remove(cluster);
            return true;
        }
        let is_granted = grant::is_anywhere(fleet, cluster);
        self.granted.insert(cluster.clone(), is_granted) != Some(is_granted)
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
        let RightsState { consumers, accounts, objects, .. } = &*state;
        let shown = |role: &ConsumerRole| objects.get(&RightsKey::Consumer(role.clone()));
        let changes =
            consumer_role::changes(&self.settings, fleet, consumers, accounts, shown, account);
        for (access, change) in changes {
            let role = ConsumerRole { kind: RoleKind::Role, access: access.clone() };
            match change {
                NameChange::Remove => self.add(RightsKey::Consumer(role)),
                // Together with those that follow.
                NameChange::Add => {
                    let key = RightsKey::Consumer(role);
                    let within = state.widens_in(&key).unwrap_or_default().max(WIDENING);
                    self.work.add_within(key, Priority::End, within);
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

    /// Records the object of a key.
    pub(crate) fn set(&self, key: RightsKey, observed: Known<ObservedRole>) {
        let mut state = self.state.lock();
        let is_absent = observed == Known::Absent;
        let before = match observed {
            Known::Present(observed) => state.objects.insert(key.clone(), observed),
            Known::Absent | Known::Unknown => state.objects.remove(&key),
        };
        if is_absent {
            state.written.remove(&key);
            if let Some(before) = before {
                self.work.written.ended(&key, &before.version.uid);
            }
        }
        drop(state);
        self.add(key);
    }

    /// Records whether a list is complete, and queues what depends on that.
    pub(crate) fn set_listed(&self, list: List, is_listed: bool) {
        let mut state = self.state.lock();
        let is_new = if is_listed { state.listed.insert(list) } else { state.listed.remove(&list) };
        drop(state);
        match list {
            // One that we created may be gone without any event.
            List::Copies => self.queue_bindings(),
            List::Consumers(_) if is_listed && is_new => self.queue_all_roles(),
            List::Accounts if is_listed => {
                self.add(RightsKey::Tokens);
                self.queue_all_roles();
            }
            List::Tokens | List::Consumers(_) | List::Accounts => {}
        }
    }

    /// Records that the bindings of these namespaces, or their sets, have changed.
    pub(crate) fn namespaces_changed<'a>(
        &self,
        namespaces: impl IntoIterator<Item = &'a Namespace>,
    ) {
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

    /// Records an account that opts in, or that it does not any more.
    pub(crate) fn set_account(&self, account: &AccountKey, asking: Option<AskingAccount>) {
        let fleet = self.fleet.read();
        let mut state = self.state.lock();
        let before = state.accounts.remove(account);
        let is_named = asking.is_some() && (before.is_some() || state.names_token(account));
        let is_changed = asking.is_none() || before != asking;
        state.accounts.extend(asking.map(|asking| (account.clone(), asking)));
        drop(state);
        if !is_named {
            self.add(RightsKey::Tokens);
        }
        if is_changed {
            self.queue_roles_of(&fleet, account);
        }
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
        observed: &Known<ObservedRole>,
    ) -> Result<Action<Value, Value>, Finding> {
        let fleet = self.fleet.read();
        let state = self.state.lock();
        let accounts = state.listed.contains(&List::Accounts).then_some(&state.accounts);
        role.plan(&self.settings, &fleet, &state.consumers, accounts, observed)
    }

    /// How long a patch of a Role has to wait, if it only adds names.
    pub(crate) fn wait(&self, key: &RightsKey, patch: &Value) -> Option<Duration> {
        let state = self.state.lock();
        let left = state.widens_in(key)?;
        only_widens(patch, state.objects.get(key)?).then_some(left)
    }

    /// Records that the Role of a ClusterAccess was written.
    pub(crate) fn wrote_role(&self, key: &RightsKey) {
        self.state.lock().written.insert(key.clone(), Instant::now());
    }

    /// The object of a key, as its watch has shown it.
    pub(crate) fn observed(&self, key: &RightsKey) -> Known<ObservedRole> {
        self.state.lock().observed(key)
    }

    /// The names by which tokens are watched, once the list of accounts is complete. While the fleet cannot be read,
    /// none is added to the role.
    pub(crate) fn token_names(&self, role: &Known<ObservedRole>) -> Option<BTreeSet<AccountName>> {
        let fleet = self.fleet.read();
        let mut state = self.state.lock();
        let is_listed = state.listed.contains(&List::Accounts);
        let mut names = is_listed.then(|| state.token_names(&fleet))?;
        if !fleet.is_read() {
            names.retain(|name| role.present().is_some_and(|role| role.names(name.as_str())));
        }
        Some(names)
    }

    /// Records that the API server has not accepted a write of the role for tokens.
    pub(crate) fn tokens_failed(&self) {
        if let Some(plan) = &mut self.state.lock().tokens {
            plan.pace = FAILING;
        }
    }

    /// How long the next plan of the role for tokens has to wait.
    pub(crate) fn wait_for_tokens(&self) -> Option<Duration> {
        let plan = self.state.lock().tokens?;
        plan.pace.checked_sub(plan.at.elapsed()).filter(|left| !left.is_zero())
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
        let is_certain = is_read && state.listed.contains(&List::Copies);
        let binding = state.objects.get(&RightsKey::Copies(namespace.clone()));
        let exists = binding.is_some_and(|binding| binding.is_of(COMPONENT));
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
        let existing = |key: &RightsKey| match key {
            RightsKey::Copies(namespace) => Some(namespace.clone()),
            RightsKey::Tokens | RightsKey::Consumer(_) => None,
        };
        namespaces.extend(self.state.lock().objects.keys().filter_map(existing));
        self.add_all(namespaces.into_iter().map(RightsKey::Copies));
    }
}
