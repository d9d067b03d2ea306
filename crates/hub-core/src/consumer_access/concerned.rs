//! Which objects a change may affect: a superset of those whose plan it changes. The cost is that of what it concerns:
//! the consumers in the namespaces that can be granted a cluster, and the clusters that can be granted to a namespace.

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
        if let Touched::Cluster(cluster) = touched {
            let on = |account: &AccountName| cluster.account(account);
            keys.extend(known.on.get(cluster).into_iter().flatten().map(on));
            let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
            let consumers =
                candidates.into_iter().flat_map(|namespace| self.consumers.in_namespace(namespace));
            keys.extend(consumers.map(|consumer| on(&consumer.account)));
        }
        let namespaces = namespaces_of(touched);
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

    /// The objects by which applications find their clusters that a change of the fleet may affect: of those with a name of
    /// ours that exist, and of those that may have to.
    #[must_use]
    pub fn integrations_concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> BTreeSet<AccessKey> {
        let secret = |namespace: &Namespace, cluster: &ClusterName| {
            AccessKey::ClusterSecret(cluster.in_namespace(namespace))
        };
        let mut keys = BTreeSet::new();
        let kueue = self.consumers.multi_kueue().next().map(Consumer::namespace);
        for namespace in &namespaces_of(touched) {
            if kueue == Some(namespace) {
                keys.extend(of_kueue(existing).cloned());
                let candidates = fleet.candidates_in(namespace).cloned();
                keys.extend(candidates.map(AccessKey::MultiKueueCluster));
                keys.extend(self.multi_kueue_configs());
            }
            let secrets = existing.range(secret(namespace, &"".into())..).map(|(key, _)| key);
            let here = |key: &&AccessKey| key.namespace() == Some(namespace.as_str());
            keys.extend(secrets.take_while(here).cloned());
            if self.consumers.argo_cd(namespace).is_some() {
                let candidates = fleet.candidates_in(namespace);
                keys.extend(candidates.map(|cluster| secret(namespace, cluster)));
            }
        }
        if let Touched::Cluster(cluster) = touched {
            if kueue.is_some() {
                keys.extend(self.multi_kueue_configs());
            }
            let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
            let secrets = self.consumers.argo_cd_namespaces().map(|namespace| {
                let is_candidate = candidates.contains(namespace);
                (secret(namespace, cluster), is_candidate)
            });
            let of_kueue = (AccessKey::MultiKueueCluster(cluster.clone()), kueue.is_some());
            let all = secrets.chain([of_kueue]);
            let concerned = all.filter(|(key, may_exist)| *may_exist || existing.contains_key(key));
            keys.extend(concerned.map(|(key, _)| key));
        }
        keys
    }
}

/// The objects of Kueue, of these.
pub fn of_kueue(existing: &BTreeMap<AccessKey, FoundObject>) -> impl Iterator<Item = &AccessKey> {
    let first = AccessKey::MultiKueueCluster("".into());
    let keys = existing.range(first..).map(|(key, _)| key);
    keys.take_while(|key| key.namespace().is_none())
}

/// An account on the clusters that can be granted to a namespace.
fn of_candidates(fleet: &Fleet, namespace: &Namespace, account: &AccountName) -> Vec<AccountKey> {
    fleet.candidates_in(namespace).map(|cluster| cluster.account(account)).collect()
}

/// The namespaces about which a change may affect every decision. That of a cluster is protected while the cluster exists.
fn namespaces_of(touched: &Touched) -> BTreeSet<Namespace> {
    match touched {
        Touched::Nothing | Touched::Report(_) => BTreeSet::new(),
        Touched::Cluster(cluster) => [cluster.as_str().into()].into(),
        Touched::Namespaces(namespaces) => namespaces.clone(),
    }
}
