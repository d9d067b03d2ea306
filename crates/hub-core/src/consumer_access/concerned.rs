//! Which objects a change may affect: a superset of those whose plan it changes. The cost is that of what it concerns:
//! the consumers in the namespaces that can be granted a cluster, and the clusters that can be granted to a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};

use super::consumers::{AccessName, Changed, Consumer};
use super::desired::AccessSettings;
use super::kind::{AccessKey, AccessKind};
use crate::fleet::{Fleet, Touched};
use crate::{grant, nested};

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
        self.of.get(account).into_iter().flatten().map(|cluster| cluster.account(account)).collect()
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

/// Objects of ours by which applications find their clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integrations<'a> {
    /// For this cluster.
    Of(&'a ClusterName),
    /// The cluster Secrets in this namespace.
    In(&'a Namespace),
    /// Those of Kueue.
    Kueue,
}

/// A digest of what plans read of a cluster. A change that leaves it as it is, such as that of a version, concerns
/// nothing.
#[must_use]
pub fn digest(fleet: &Fleet, cluster: &ClusterName) -> u64 {
    let mut digest = DefaultHasher::new();
    let observed = fleet.cluster(cluster).map(|it| (&it.labels, it.may_have_joined()));
    observed.hash(&mut digest);
    (fleet.is_hub(cluster), grant::digest(fleet, cluster)).hash(&mut digest);
    digest.finish()
}

impl AccessSettings {
    /// The accounts that a change of the fleet may affect.
    #[must_use]
    pub fn concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        known: &KnownAccounts,
    ) -> BTreeSet<AccountKey> {
        let mut keys = BTreeSet::new();
        let (cluster, namespaces) = match touched {
            Touched::Nothing => return keys,
            // The namespace of a cluster is protected while the cluster exists.
            Touched::Cluster(cluster) => (Some(cluster), BTreeSet::from([cluster.as_str().into()])),
            Touched::Namespaces(namespaces) => (None, namespaces.clone()),
        };
        if let Some(cluster) = cluster {
            let on = |account: &AccountName| cluster.account(account);
            keys.extend(known.on.get(cluster).into_iter().flatten().map(on));
            let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
            let consumers =
                candidates.into_iter().flat_map(|namespace| self.consumers.in_namespace(namespace));
            keys.extend(consumers.map(|consumer| on(&consumer.account)));
        }
        let mut accounts = BTreeSet::new();
        for consumer in
            namespaces.iter().flat_map(|namespace| self.consumers.in_namespace(namespace))
        {
            accounts.insert(&consumer.account);
            keys.extend(of_candidates(fleet, consumer.namespace(), &consumer.account));
        }
        for account in accounts {
            keys.extend(known.of(account));
        }
        keys
    }

    /// The accounts that a change of objects may affect.
    #[must_use]
    pub fn concerned_by(
        &self,
        fleet: &Fleet,
        changed: &Changed,
        known: &KnownAccounts,
    ) -> BTreeSet<AccountKey> {
        let mut keys = BTreeSet::new();
        for (AccessName { namespace, .. }, accounts) in changed {
            for account in accounts {
                keys.extend(of_candidates(fleet, namespace, account));
                // The account of the user server has parts of many objects, and this one has changed where it counts.
                if !self.consumers.of(account).next().is_some_and(Consumer::is_own) {
                    keys.extend(known.of(account));
                }
            }
        }
        keys
    }

    /// What a change of the decisions of a consumer's Placement may affect: on these clusters, or on all that can be granted
    /// to its namespace, or have its account.
    #[must_use]
    pub fn concerned_by_decisions(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        clusters: Option<&BTreeSet<ClusterName>>,
        known: &KnownAccounts,
    ) -> BTreeSet<AccessKey> {
        let namespace = consumer.namespace();
        let is_it = |it: &Consumer| it.name == consumer.name;
        let has_secrets = self.consumers.argo_cd(namespace).is_some_and(is_it);
        let is_of_kueue = self.consumers.multi_kueue().any(is_it);
        let all = || {
            // The account of the user server is on nearly every cluster.
            let known = known.of.get(&consumer.account).filter(|_| !consumer.is_own());
            fleet.candidates_in(namespace).chain(known.into_iter().flatten()).collect()
        };
        let mut keys = BTreeSet::new();
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

    /// The objects of integrations that a change of the fleet may affect. `existing` returns those of ours.
    #[must_use]
    pub fn integrations_concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        existing: impl Fn(Integrations<'_>) -> Vec<AccessKey>,
    ) -> BTreeSet<AccessKey> {
        let secret = |namespace: &Namespace, cluster: &ClusterName| {
            AccessKey::ClusterSecret(cluster.in_namespace(namespace))
        };
        let mut keys = BTreeSet::new();
        let kueue = self.consumers.multi_kueue().next().map(Consumer::namespace);
        if let Some(namespace) = kueue.filter(|namespace| touches_all(touched, namespace)) {
            keys.extend(existing(Integrations::Kueue));
            keys.extend(fleet.candidates_in(namespace).cloned().map(AccessKey::MultiKueueCluster));
            keys.extend(self.multi_kueue_configs());
        }
        for namespace in
            self.consumers.argo_cd_namespaces().filter(|namespace| touches_all(touched, namespace))
        {
            keys.extend(existing(Integrations::In(namespace)));
            keys.extend(fleet.candidates_in(namespace).map(|cluster| secret(namespace, cluster)));
        }
        if let Touched::Cluster(cluster) = touched {
            keys.extend(existing(Integrations::Of(cluster)));
            if kueue.is_some() {
                keys.insert(AccessKey::MultiKueueCluster(cluster.clone()));
                keys.extend(self.multi_kueue_configs());
            }
            let candidates = fleet.candidates_for(cluster);
            let candidates =
                candidates.filter(|namespace| self.consumers.argo_cd(namespace).is_some());
            keys.extend(candidates.map(|namespace| secret(namespace, cluster)));
        }
        keys
    }
}

/// An account on the clusters that can be granted to a namespace.
fn of_candidates(fleet: &Fleet, namespace: &Namespace, account: &AccountName) -> Vec<AccountKey> {
    fleet.candidates_in(namespace).map(|cluster| cluster.account(account)).collect()
}

/// Whether a change may affect every decision about a namespace. The namespace of a cluster is protected while the
/// cluster exists.
fn touches_all(touched: &Touched, namespace: &Namespace) -> bool {
    match touched {
        Touched::Nothing => false,
        Touched::Cluster(cluster) => cluster.as_str() == namespace.as_str(),
        Touched::Namespaces(namespaces) => namespaces.contains(namespace),
    }
}
