//! What a change queues: a few keys at once, and many in portions, so that nothing else waits for long.

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::{AccountKey, AccountName, ClusterName, ProfileKey};
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessName, Changed, Concerned, PlacementName,
};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::priority::Priority;
use tokio::task::yield_now;

use super::Store;
use crate::state::State;
use crate::watch_name::Scope;

/// How many keys are queued at once, each with its decisions.
pub(super) const AT_ONCE: usize = 100;

/// With so many keys in the backlog, only what exists for further ClusterAccesses becomes keys: all that they may give
/// together can be millions.
const MANY_KEYS: usize = 50_000;

impl Store {
    /// Queues what a change of ClusterAccesses affects, and watches what they need.
    pub(super) fn objects_changed(&self, changed: &Changed, concerns_kueue: bool) {
        for (name, accounts) in changed {
            self.mark(name);
            self.follow(Scope::Namespace(name.namespace.clone()));
            for account in accounts {
                self.follow(Scope::Account(account.clone()));
            }
        }
        if changed.is_empty() || !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let state = self.state.lock();
        let (known, existing) = (&state.known, &state.objects);
        let mut keys = settings.concerned_by(&fleet, changed, concerns_kueue, known, existing);
        keys.extend(changed.keys().flat_map(|name| state.rivalled_in(&name.namespace)));
        // Another object may ask for the Secrets that kept the status of one behind.
        let names = changed.keys().flat_map(|name| settings.consumers.names_in(&name.namespace));
        let object = |name| settings.consumers.object(name);
        let held = names.filter(|name| object(name).is_some_and(|object| object.has_secrets));
        keys.extend(held.cloned().map(AccessKey::ClusterAccess));
        drop(state);
        self.queue_all(&fleet, keys);
    }

    /// Queues what a change of the decisions of a Placement affects: for these clusters, or for all.
    pub(crate) fn decided(
        &self,
        placement: &PlacementName,
        clusters: Option<&BTreeSet<ClusterName>>,
    ) {
        if !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let consumers = settings.consumers.in_namespace(&placement.0);
        for consumer in consumers.filter(|it| it.placement_name().as_ref() == Some(placement)) {
            let keys =
                settings.objects_of(&fleet, &consumer.name, clusters, &self.state.lock().known);
            if let Some(clusters) = clusters {
                let mut state = self.state.lock();
                for cluster in clusters {
                    state.changed(&consumer.name, Some(cluster));
                }
                drop(state);
                // Also without clusters: it says whether there is any decision.
                self.queue_status(&consumer.name);
            } else {
                self.mark(&consumer.name);
            }
            self.queue_all(&fleet, keys);
        }
    }

    /// Makes [`Self::queue_backlog`] queue every object that exists or should exist.
    pub(crate) fn queue_everything(&self) {
        let settings = self.settings();
        let names = settings.consumers.names().chain(settings.consumers.unreadable());
        let mut state = self.state.lock();
        let State { backlog, known, .. } = &mut *state;
        backlog.names.extend(names.cloned());
        backlog.clusters.extend(known.clusters().cloned());
        state.add_integrations();
        drop(state);
        self.has_backlog.notify_one();
    }

    /// Queues the backlog, for as long as the process runs.
    pub(crate) async fn queue_backlog(self: Arc<Self>) {
        loop {
            self.has_backlog.notified().await;
            while self.queue_portion() {
                yield_now().await;
            }
        }
    }

    /// Queues a portion of the backlog: what exists on a cluster, some keys, what exists for a ClusterAccess that may have
    /// lost a grant, and all that another one gives: both become keys. Returns whether there was any.
    pub(super) fn queue_portion(&self) -> bool {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let mut state = self.state.lock();
        if state.backlog.is_empty() {
            return false;
        }
        let integrations = state.take_integrations(AT_ONCE);
        let State { backlog, known, .. } = &mut *state;
        let cluster = backlog.clusters.pop();
        let accounts = cluster.as_ref().map(|cluster| known.on(cluster)).unwrap_or_default();
        let keys = backlog.keys.take(AT_ONCE);
        let ending = backlog.ending.pop();
        let has_room = backlog.keys.count() < MANY_KEYS;
        let name = if has_room { backlog.names.pop() } else { None };
        let existing = ending.iter().flat_map(|name| settings.existing_of(name, known));
        let wanted = name.iter().flat_map(|name| settings.objects_of(&fleet, name, None, known));
        let found: BTreeSet<_> = existing.chain(wanted).collect();
        drop(state);
        for account in accounts {
            self.queue_access(&fleet, &account, None);
        }
        for key in keys.into_iter().chain(integrations) {
            self.queue(&fleet, key);
        }
        for name in ending.iter().chain(&name) {
            self.mark(name);
        }
        self.queue_all(&fleet, found);
        true
    }

    /// Queues a few keys at once, and many in portions, so that nothing else waits for long.
    pub(super) fn queue_all(&self, fleet: &Fleet, keys: BTreeSet<AccessKey>) {
        if keys.len() > AT_ONCE {
            self.state.lock().backlog.keys.extend(keys);
            return self.has_backlog.notify_one();
        }
        for key in keys {
            self.queue(fleet, key);
        }
    }

    /// Queues an account on every cluster, and the statuses of its consumers.
    pub(super) fn queue_account(&self, account: &AccountName) {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        settings.consumers.of(account).for_each(|consumer| self.mark(&consumer.name));
        let keys = settings.accounts_of(&fleet, account, &self.state.lock().known);
        self.queue_all(&fleet, keys);
    }

    /// Queues what a change of the fleet affects: what concerns whole ClusterAccesses, in portions.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let settings = self.settings();
        let mut state = self.state.lock();
        let Concerned { mut keys, names, mut on_cluster } =
            settings.concerned(fleet, touched, &state.known, &state.objects);
        if !names.is_empty() {
            // The ends of grants are among what exists: they need no room in the backlog.
            state.backlog.ending.extend(names.iter().cloned());
            state.backlog.names.extend(names);
            self.has_backlog.notify_one();
        }
        // A finding on a Secret that does not exist ends with the grant.
        match touched {
            Touched::Nothing | Touched::Report(_) => {}
            Touched::Namespaces(namespaces) => {
                keys.extend(namespaces.iter().flat_map(|it| state.rivalled_in(it)));
            }
            Touched::Cluster(cluster) => {
                let secrets = settings.consumers.argo_cd_namespaces();
                let secrets = secrets.map(|namespace| cluster.in_namespace(namespace));
                let rivalled = secrets.filter(|secret| state.rival(secret).is_some());
                keys.extend(rivalled.map(AccessKey::ClusterSecret));
                keys.extend(state.rivalled_in(&cluster.as_str().into()));
                on_cluster.extend(state.counting.of_left(cluster).cloned());
            }
        }
        drop(state);
        if let Touched::Cluster(cluster) = touched {
            for name in on_cluster {
                self.mark_on(&name, cluster);
            }
        }
        self.queue_all(fleet, keys);
    }

    /// Queues an account, unless it is refused and has no object, of whomever, and no attempt to create it is under way.
    fn queue_if_needed(&self, fleet: &Fleet, key: &AccountKey) {
        let settings = self.settings();
        let exists = self.state.lock().concerns(key, true);
        let is_needed = exists || settings.grant(fleet, key) != Grant::Refused;
        if is_needed || self.work.holds(&AccessKind::Account.of(key)) {
            self.queue_access(fleet, key, None);
        }
    }

    /// Queues the objects of an account, except for one of this kind.
    pub(crate) fn queue_access(&self, fleet: &Fleet, key: &AccountKey, except: Option<AccessKind>) {
        let settings = self.settings();
        let exists = self.state.lock().objects.contains_key(&AccessKind::Account.of(key));
        // If several consumers share the account, one of them may have lost its grant.
        let is_shared = settings.consumers.is_shared(&key.account);
        let grant = if is_shared && exists { Grant::Refused } else { settings.grant(fleet, key) };
        let kinds = settings.permission_kinds().iter().copied().chain([AccessKind::Account]);
        for kind in kinds.filter(|kind| Some(*kind) != except) {
            self.work.add_with(kind.of(key), Priority::of_profile(grant, exists));
        }
    }

    /// Queues an object. Of those by which an application finds its clusters, revocations and MultiKueueConfigs go first;
    /// a MultiKueueConfig is a single write.
    pub(super) fn queue(&self, fleet: &Fleet, key: AccessKey) {
        let priority = match &key {
            AccessKey::Access(_, account) => return self.queue_if_needed(fleet, account),
            AccessKey::ClusterAccess(name) => return self.mark(name),
            AccessKey::MultiKueueConfig(_) => Priority::End,
            key => Priority::of_profile(
                self.settings().grant_of(fleet, key),
                self.state.lock().is_ours(key),
            ),
        };
        self.work.add_with(key, priority);
    }

    /// Queues the status of a ClusterAccess: what it has on every cluster may have changed.
    pub(crate) fn mark(&self, name: &AccessName) {
        self.state.lock().changed(name, None);
        self.queue_status(name);
    }

    /// Queues the status of a ClusterAccess: what it has on a cluster may have changed.
    fn mark_on(&self, name: &AccessName, cluster: &ClusterName) {
        self.state.lock().changed(name, Some(cluster));
        self.queue_status(name);
    }

    /// Queues the status of a ClusterAccess, which is computed from what was counted.
    pub(crate) fn queue_status(&self, name: &AccessName) {
        if self.host.is_working() {
            self.work.add_with(AccessKey::ClusterAccess(name.clone()), Priority::Update);
        }
    }

    /// Queues the statuses that may depend on an account.
    pub(crate) fn account_changed(&self, fleet: &Fleet, account: &AccountKey) {
        for consumer in self.settings().users(fleet, account) {
            self.mark_on(&consumer.name, &account.cluster);
        }
    }

    /// Queues the cluster Secret of a profile.
    pub(super) fn secret_changed(&self, profile: ProfileKey) {
        if self.host.is_working() {
            self.queue(&self.fleet.read(), AccessKey::ClusterSecret(profile));
        }
    }
}
