//! What the watches have shown, and what our own writes have changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey};
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessName, AccessSettings, Content, FoundObject, KnownAccess,
    ObservedObject, OnCluster, PublishedCluster, secrets_in,
};
use hub_core::in_turn::InTurn;
use hub_core::known::Known;
use hub_core::nested::Pairs;
use hub_core::version::{Uid, Version};
use tokio::time::Instant;

use crate::watch_name::{Scope, WatchName};

/// Whether the objects of a watch can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The list is complete, so that an absent object does not exist.
    Listed,
    /// Lists have failed for a minute: what is known is out of date.
    OutOfDate,
    /// The API server refuses to list them, or does not serve their kind.
    Unavailable,
}

/// What is still to be queued: a portion at a time, so that nothing else waits for long.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The ClusterAccesses that may have lost a grant: what exists for them is still to be queued.
    pub(crate) ending: InTurn<AccessName>,
    /// The ClusterAccesses of which everything is still to be queued.
    pub(crate) names: InTurn<AccessName>,
    /// The clusters whose existing accounts are not queued.
    pub(crate) clusters: InTurn<ClusterName>,
    pub(crate) keys: InTurn<AccessKey>,
    /// The first one that is not queued of the objects by which applications find their clusters.
    integrations: Option<AccessKey>,
    /// Whether all of them are to be queued again after the last one, so that nothing keeps the last ones back.
    integrations_again: bool,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        let names = self.ending.count() + self.names.count();
        names + self.clusters.count() + self.keys.count() == 0 && self.integrations.is_none()
    }
}

/// Before the first of these objects.
fn before_integrations() -> AccessKey {
    AccessKey::MultiKueueCluster("".into())
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) backlog: Backlog,
    pub(crate) objects: BTreeMap<AccessKey, FoundObject>,
    /// What the last object of each kind and account contained: most are the same on all clusters.
    contents: BTreeMap<(AccessKind, AccountName), Arc<Content>>,
    /// The uids of objects that this process has created and no watch has shown yet.
    pub(crate) created: BTreeMap<AccessKey, Uid>,
    /// Whether each watch can read its objects, once that is known.
    pub(crate) read: BTreeMap<WatchName, Reading>,
    /// The accounts and namespaces whose watches may have to begin or to end.
    pub(crate) unfollowed: BTreeSet<Scope>,
    /// What exists and what was planned.
    pub(crate) known: KnownAccess,
    /// The writes, by verb, that have been sent or are blocked: the other objects of the account do not wait for them.
    pub(crate) passed: BTreeMap<AccessKey, &'static str>,
    /// The namespace of the addon managed-serviceaccount on each cluster that shows one, and whether all are known.
    pub(crate) agents: BTreeMap<ClusterName, Namespace>,
    pub(crate) knows_agents: bool,
    /// What the profiles in the namespaces of Argo CD's consumers publish.
    pub(crate) published: BTreeMap<ProfileKey, PublishedCluster>,
    /// The cluster Secrets that have not the name of ours for their cluster.
    pub(crate) rivals: Pairs<(Namespace, String), ProfileKey>,
    /// The namespaces whose Secrets cannot be listed for some seconds.
    pub(crate) failing: BTreeSet<Namespace>,
    /// What the status of each ClusterAccess was last computed from.
    pub(crate) counted: BTreeMap<AccessName, Counted>,
    /// The ClusterAccesses that count each cluster.
    pub(crate) counting: Pairs<ClusterName, AccessName>,
}

/// What a ClusterAccess has, as far as it is counted.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) clusters: BTreeMap<ClusterName, OnCluster>,
    /// The clusters to count again; all without it.
    pub(crate) changed: Option<BTreeSet<ClusterName>>,
    /// When a status was last computed from it.
    pub(crate) computed: Option<Instant>,
}

impl State {
    /// Records on which cluster a ClusterAccess has to be counted again, or that it has to be on all.
    pub(crate) fn changed(&mut self, name: &AccessName, cluster: Option<&ClusterName>) {
        // What was never counted is counted everywhere.
        let Some(counted) = self.counted.get_mut(name) else { return };
        match cluster {
            Some(cluster) => drop(counted.changed.as_mut().map(|it| it.insert(cluster.clone()))),
            None => counted.changed = None,
        }
    }

    /// Whether the object of this key is ours.
    pub(crate) fn is_ours(&self, key: &AccessKey) -> bool {
        self.objects.get(key).is_some_and(|found| found.is_ours)
    }

    /// Whether the object of this key exists and belongs to another owner.
    pub(crate) fn is_foreign(&self, settings: &AccessSettings, key: &AccessKey) -> bool {
        self.objects.get(key).is_some_and(|found| !settings.is_ours(found))
    }

    /// Puts the objects by which applications find their clusters into the backlog, and those that such a Secret of another
    /// name may keep from existing.
    pub(crate) fn add_integrations(&mut self) {
        let rivalled = self.rivals.rights_from(ClusterName::from("").in_namespace(&"".into()));
        self.backlog.keys.extend(rivalled.cloned().map(AccessKey::ClusterSecret));
        let next = self.backlog.integrations.get_or_insert_with(before_integrations);
        self.backlog.integrations_again = *next != before_integrations();
    }

    /// Takes so many of these objects from the backlog.
    pub(crate) fn take_integrations(&mut self, count: usize) -> Vec<AccessKey> {
        let Some(first) = self.backlog.integrations.take() else { return Vec::new() };
        let mut existing = self.objects.range(first..).map(|(key, _)| key.clone());
        let taken = existing.by_ref().take(count).collect();
        let again =
            || std::mem::take(&mut self.backlog.integrations_again).then(before_integrations);
        self.backlog.integrations = existing.next().or_else(again);
        taken
    }

    pub(crate) fn version(&self, key: &AccessKey) -> Option<Version> {
        self.objects.get(key).map(|found| found.object.version.clone())
    }

    /// Whether the list of this watch is complete.
    pub(crate) fn is_listed(&self, watch: &WatchName) -> bool {
        self.read.get(watch) == Some(&Reading::Listed)
    }

    /// The namespace of the addon managed-serviceaccount on a cluster.
    pub(crate) fn agent_namespace(&self, cluster: &ClusterName) -> Known<Namespace> {
        match self.agents.get(cluster) {
            _ if !self.knows_agents => Known::Unknown,
            Some(namespace) => Known::Present(namespace.clone()),
            None => Known::Absent,
        }
    }

    /// A Secret of another name in the namespace of this profile for its cluster.
    pub(crate) fn rival(&self, profile: &ProfileKey) -> Option<&str> {
        self.rivals.of_right(profile).next().map(|(_, secret)| secret.as_str())
    }

    /// The keys of our Secrets in this namespace for whose clusters there is one of another name.
    pub(crate) fn rivalled_in(&self, namespace: &Namespace) -> impl Iterator<Item = AccessKey> {
        let first = ClusterName::from("").in_namespace(namespace);
        let profiles = self.rivals.rights_from(first);
        let profiles = profiles.take_while(move |profile| profile.namespace == *namespace);
        profiles.cloned().map(AccessKey::ClusterSecret)
    }

    /// Whether there is no cluster Secret of ours in a namespace, as far as its Secrets can be read.
    pub(crate) fn have_secrets_ended(
        &self,
        settings: &AccessSettings,
        namespace: &Namespace,
    ) -> bool {
        let is_known = match self.read.get(&WatchName::Secrets(namespace.clone())) {
            Some(Reading::Listed) => true,
            Some(Reading::Unavailable) => self.failing.contains(namespace),
            Some(Reading::OutOfDate) | None => false,
        };
        is_known
            && secrets_in(&self.created, namespace).next().is_none()
            && secrets_in(&self.objects, namespace).all(|key| self.is_foreign(settings, key))
    }

    /// Forgets the Secrets in a namespace. Returns the keys of those that exist or are rivalled.
    pub(crate) fn forget_secrets(&mut self, namespace: &Namespace) -> Vec<AccessKey> {
        let existing = secrets_in(&self.objects, namespace).cloned();
        let keys: Vec<_> = existing.chain(self.rivalled_in(namespace)).collect();
        for key in &keys {
            self.objects.remove(key);
            if let AccessKey::ClusterSecret(profile) = key {
                self.rivals.remove_right(profile);
            }
        }
        self.failing.remove(namespace);
        keys
    }

    /// Whether an account has an object that matters: if it is declared any, else one of ours.
    pub(crate) fn concerns(&self, key: &AccountKey, is_declared: bool) -> bool {
        AccessKind::ALL.into_iter().any(|kind| {
            let key = kind.of(key);
            (is_declared && self.objects.contains_key(&key))
                || self.is_ours(&key)
                || self.created.contains_key(&key)
        })
    }

    /// Records what is known of the account of an object after a change.
    fn refresh(&mut self, key: &AccessKey, is_declared: bool) {
        let AccessKey::Access(_, account) = key else { return };
        if self.concerns(account, is_declared) {
            self.known.insert(account);
        } else {
            self.known.remove(account);
            if !self.known.contains(&account.account) {
                for kind in AccessKind::ALL {
                    self.contents.remove(&(kind, account.account.clone()));
                }
            }
        }
    }

    /// Records an object that a watch shows; of one of another owner, only the version, unless it has the name of one of
    /// a declared account. Returns whether a status may depend on what has changed.
    pub(crate) fn show(
        &mut self,
        settings: &AccessSettings,
        key: &AccessKey,
        object: ObservedObject,
        is_declared: bool,
    ) -> bool {
        let mut found = self.found(settings, key, object);
        if self.created.get(key) == Some(&found.object.version.uid) {
            self.created.remove(key);
        }
        if !found.is_ours && !is_declared {
            found.object.forget_content();
        }
        if let AccessKey::Access(kind, account) = key {
            let last = self.contents.entry((*kind, account.account.clone())).or_default();
            found.object.share_content(last);
        }
        let is_same = self.objects.get(key).is_some_and(|before| {
            before.is_ours == found.is_ours && before.object.is_like(&found.object)
        });
        self.objects.insert(key.clone(), found);
        self.refresh(key, is_declared);
        !is_same
    }

    /// An object as a watch or a read shows it.
    pub(crate) fn found(
        &self,
        settings: &AccessSettings,
        key: &AccessKey,
        object: ObservedObject,
    ) -> FoundObject {
        let mut found = FoundObject::seen(settings, self.objects.get(key), object);
        found.is_ours |= self.created.get(key) == Some(&found.object.version.uid);
        found
    }

    /// Records that this process has created the object with this uid, which makes it ours, even if a webhook has
    /// changed it. Returns whether it was shown as another owner's.
    pub(crate) fn created(&mut self, key: &AccessKey, uid: &Uid) -> bool {
        let shown = self.objects.get_mut(key).filter(|found| found.object.version.uid == *uid);
        let is_recognized = if let Some(found) = shown {
            !std::mem::replace(&mut found.is_ours, true)
        } else {
            self.created.insert(key.clone(), uid.clone());
            false
        };
        self.refresh(key, true);
        is_recognized
    }

    /// Records that the API server has deleted the object with this uid.
    pub(crate) fn deleted(&mut self, key: &AccessKey, uid: &Uid) {
        if self.created.get(key).is_some_and(|created| created == uid) {
            self.created.remove(key);
            self.refresh(key, true);
        }
    }

    /// Removes an object whose end the watch shows. Returns its uid.
    pub(crate) fn ended(&mut self, key: &AccessKey, is_declared: bool) -> Option<Uid> {
        let ended = self.objects.remove(key);
        self.refresh(key, is_declared);
        ended.map(|found| found.object.version.uid)
    }

    /// Forgets the permissions that a watch has shown: it has ended, or the hub does not serve the kind. Where that is not
    /// installed, it has none, and this costs nothing. Returns whether there were any.
    pub(crate) fn forget(&mut self, kind: AccessKind, account: &AccountName) -> bool {
        let first = kind.of(&AccountKey { cluster: "".into(), account: "".into() });
        let of_kind = self.objects.range(first..).map_while(|(key, _)| match key {
            AccessKey::Access(of, key) if *of == kind => Some(key),
            _ => None,
        });
        let gone: Vec<_> = of_kind.filter(|key| key.account == *account).cloned().collect();
        for key in &gone {
            self.objects.remove(&kind.of(key));
            self.refresh(&kind.of(key), true);
        }
        !gone.is_empty()
    }
}

/// Sets or removes a value. Returns the one before.
pub(crate) fn set<K: Clone + Ord, V: Clone>(
    all: &mut BTreeMap<K, V>,
    key: &K,
    value: Option<&V>,
) -> Option<V> {
    match value {
        Some(value) => all.insert(key.clone(), value.clone()),
        None => all.remove(key),
    }
}
