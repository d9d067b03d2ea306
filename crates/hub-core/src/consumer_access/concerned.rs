//! Which objects a change may affect: a superset of those whose plan it changes, and the ClusterAccesses in the namespaces
//! that it concerns. Those that have counted a cluster before are known to the controller. The cost is that of what it
//! concerns: the consumers in the namespaces that can be granted a cluster, and the clusters that can be granted to a
//! namespace.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};

use super::consumers::{AccessName, Changed, Consumer};
use super::desired::AccessSettings;
use super::kind::{AccessKey, AccessKind};
use super::observed::FoundObject;
use crate::fleet::{Fleet, Touched};
use crate::nested;

/// The accounts that have an object or a finding, by cluster and by name.
#[derive(Debug, Default)]
pub struct KnownAccounts {
    on: BTreeMap<ClusterName, BTreeSet<AccountName>>,
    of: BTreeMap<AccountName, BTreeSet<ClusterName>>,
}

impl KnownAccounts {
    pub fn insert(&mut self, key: &AccountKey) {
        self.on.entry(key.cluster.clone()).or_default().insert(key.account.clone());
        self.of.entry(key.account.clone()).or_default().insert(key.cluster.clone());
    }

    pub fn remove(&mut self, key: &AccountKey) {
        nested::remove_value(&mut self.on, &key.cluster, &key.account);
        nested::remove_value(&mut self.of, &key.account, &key.cluster);
    }

    #[must_use]
    pub fn contains(&self, account: &AccountName) -> bool {
        self.of.contains_key(account)
    }

    /// An account on every cluster where it is known.
    #[must_use]
    pub fn of(&self, account: &AccountName) -> Vec<AccountKey> {
        self.clusters_of(account).map(|cluster| cluster.account(account)).collect()
    }

    /// The clusters where an account is known.
    pub fn clusters_of(&self, account: &AccountName) -> impl Iterator<Item = &ClusterName> {
        self.of.get(account).into_iter().flatten()
    }

    /// The clusters with an account.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.on.keys()
    }

    /// Every account on a cluster.
    #[must_use]
    pub fn on(&self, cluster: &ClusterName) -> Vec<AccountKey> {
        self.on.get(cluster).into_iter().flatten().map(|account| cluster.account(account)).collect()
    }
}

impl AccessSettings {
    /// A ClusterAccess, and what it gives on these clusters, or on all that can be granted to its namespace or have its
    /// account.
    #[must_use]
    pub fn objects_of(
        &self,
        fleet: &Fleet,
        name: &AccessName,
        clusters: Option<&BTreeSet<ClusterName>>,
        known: &KnownAccounts,
    ) -> BTreeSet<AccessKey> {
        let mut keys = BTreeSet::from([AccessKey::ClusterAccess(name.clone())]);
        let Some(consumer) = self.consumers.get(name) else { return keys };
        let namespace = consumer.namespace();
        let has_secrets = self.consumers.argo_cd(namespace).is_some_and(|it| it.name == *name);
        let is_of_kueue = self.consumers.is_of_kueue(consumer);
        let all = || {
            // The account of the user server is on nearly every cluster.
            let known = known.of.get(&consumer.account).filter(|_| !consumer.is_own());
            fleet.candidates_in(namespace).chain(known.into_iter().flatten()).collect()
        };
        for cluster in
            clusters.map_or_else(all, |clusters| clusters.iter().collect::<BTreeSet<_>>())
        {
            keys.insert(AccessKind::Account.of(&cluster.account(&consumer.account)));
            if has_secrets {
                keys.insert(AccessKey::ClusterSecret(cluster.in_namespace(namespace)));
            }
            if is_of_kueue {
                keys.insert(AccessKey::MultiKueueCluster(cluster.clone()));
            }
        }
        if is_of_kueue {
            let configs = consumer.multi_kueue_configs.keys();
            keys.extend(configs.cloned().map(AccessKey::MultiKueueConfig));
        }
        keys
    }

    /// What a change of the fleet may affect: of what exists, and of what may have to.
    #[must_use]
    pub fn concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        known: &KnownAccounts,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> BTreeSet<AccessKey> {
        let mut keys = BTreeSet::new();
        let namespaces = match touched {
            Touched::Nothing | Touched::Report(_) => return keys,
            Touched::Namespaces(namespaces) => namespaces,
            Touched::Cluster(cluster) => {
                keys.extend(known.on(cluster).iter().map(|key| AccessKind::Account.of(key)));
                let secrets = self.consumers.argo_cd_namespaces();
                let secrets = secrets.map(|it| AccessKey::ClusterSecret(cluster.in_namespace(it)));
                let others = secrets.chain([AccessKey::MultiKueueCluster(cluster.clone())]);
                keys.extend(others.filter(|key| existing.contains_key(key)));
                keys.extend(self.multi_kueue_configs());
                let only = BTreeSet::from([cluster.clone()]);
                let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
                for name in candidates.into_iter().flat_map(|it| self.consumers.names_in(it)) {
                    keys.extend(self.objects_of(fleet, name, Some(&only), known));
                }
                // The namespace of a cluster is protected while the cluster exists.
                &[cluster.as_str().into()].into()
            }
        };
        let kueue = self.consumers.multi_kueue().next().map(Consumer::namespace);
        let mut shared: Option<&Consumer> = None;
        for namespace in namespaces {
            for name in self.consumers.names_in(namespace) {
                keys.extend(self.objects_of(fleet, name, None, known));
            }
            let mut consumers = self.consumers.in_namespace(namespace);
            shared = shared.or_else(|| consumers.find(|consumer| consumer.is_own()));
            keys.extend(secrets_in(existing, namespace).cloned());
            if kueue == Some(namespace) {
                keys.extend(of_kueue(existing).cloned());
            }
        }
        // The account of the user server is the same for all, and on nearly every cluster.
        let known = shared.into_iter().flat_map(|consumer| known.of(&consumer.account));
        keys.extend(known.map(|key| AccessKind::Account.of(&key)));
        keys
    }

    /// What a change of ClusterAccesses may affect.
    #[must_use]
    pub fn concerned_by(
        &self,
        fleet: &Fleet,
        changed: &Changed,
        known: &KnownAccounts,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> BTreeSet<AccessKey> {
        // The namespace of Kueue may have been another one, and what exists may have to end.
        let mut keys: BTreeSet<_> = of_kueue(existing).cloned().collect();
        for (name, accounts) in changed {
            keys.extend(self.objects_of(fleet, name, None, known));
            keys.extend(secrets_in(existing, &name.namespace).cloned());
            // The account that it has now is among its objects.
            let has_now = self.consumers.get(name).map(|consumer| &consumer.account);
            for account in accounts.iter().filter(|account| Some(*account) != has_now) {
                let candidates = fleet.candidates_in(&name.namespace);
                let candidates = candidates.map(|cluster| cluster.account(account));
                // The account of the user server has parts of many objects, and this one has changed where it counts.
                let is_own = self.consumers.of(account).next().is_some_and(Consumer::is_own);
                let known = if is_own { Vec::new() } else { known.of(account) };
                keys.extend(candidates.chain(known).map(|key| AccessKind::Account.of(&key)));
            }
        }
        keys
    }
}

/// The objects of Kueue, of these.
fn of_kueue(existing: &BTreeMap<AccessKey, FoundObject>) -> impl Iterator<Item = &AccessKey> {
    let first = AccessKey::MultiKueueCluster("".into());
    let keys = existing.range(first..).map(|(key, _)| key);
    keys.take_while(|key| key.namespace().is_none())
}

/// The cluster Secrets in a namespace, of these objects.
pub fn secrets_in<'a, T>(
    objects: &'a BTreeMap<AccessKey, T>,
    namespace: &Namespace,
) -> impl Iterator<Item = &'a AccessKey> {
    let first = AccessKey::ClusterSecret(ClusterName::from("").in_namespace(namespace));
    let keys = objects.range(first..).map(|(key, _)| key);
    keys.take_while(move |key| key.namespace() == Some(namespace.as_str()))
}
