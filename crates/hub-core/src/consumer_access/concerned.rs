//! Which objects a change may affect: a superset of those whose plan it changes, and the ClusterAccesses whose status it may
//! change. Those that have counted a cluster before are known to the controller. The cost is that of what it
//! concerns: the consumers in the namespaces that can be granted a cluster, and the clusters that can be granted to a
//! namespace.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};

use super::consumers::{AccessName, Changed, Consumer};
use super::desired::AccessSettings;
use super::kind::{AccessKey, AccessKind};
use super::observed::FoundObject;
use crate::fleet::{Fleet, Touched};
use crate::grant::{self, Grant};
use crate::nested::Pairs;

/// What exists and what was planned, as far as it is known.
#[derive(Debug, Default)]
pub struct KnownAccess {
    /// The accounts that have an object, shown or created.
    accounts: Pairs<ClusterName, AccountName>,
    /// The ClusterAccesses for which the account of the user server may have something on a cluster.
    sharing: Pairs<ClusterName, AccessName>,
    /// The clusters for which each MultiKueueConfig was last planned.
    selected: Pairs<String, ClusterName>,
}

impl KnownAccess {
    pub fn insert(&mut self, key: &AccountKey) {
        self.accounts.insert(&key.cluster, &key.account);
    }

    pub fn remove(&mut self, key: &AccountKey) {
        self.accounts.remove(&key.cluster, &key.account);
    }

    /// Records for which ClusterAccesses the account of the user server was planned on a cluster. It may have something for
    /// those of before until nothing is left to write.
    pub fn share(&mut self, cluster: &ClusterName, names: &BTreeSet<AccessName>, is_settled: bool) {
        if is_settled {
            self.sharing.set(cluster, names);
        } else {
            for name in names {
                self.sharing.insert(cluster, name);
            }
        }
    }

    /// Records for which clusters a MultiKueueConfig is planned.
    pub fn select(&mut self, config: &str, clusters: &BTreeSet<ClusterName>) {
        self.selected.set(&config.to_owned(), clusters);
    }

    /// Whether a MultiKueueConfig was last planned for a cluster.
    pub(super) fn selects(&self, config: &str, cluster: &ClusterName) -> bool {
        self.selected.contains(&config.to_owned(), cluster)
    }

    #[must_use]
    pub fn contains(&self, account: &AccountName) -> bool {
        self.clusters_of(account).next().is_some()
    }

    /// The clusters where an account is known.
    pub fn clusters_of(&self, account: &AccountName) -> impl Iterator<Item = &ClusterName> {
        self.accounts.of_right(account)
    }

    /// The clusters with an account.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.accounts.lefts()
    }

    /// Every account on a cluster.
    #[must_use]
    pub fn on(&self, cluster: &ClusterName) -> Vec<AccountKey> {
        self.accounts.of_left(cluster).map(|account| cluster.account(account)).collect()
    }
}

/// What a change may affect.
#[derive(Debug, Default)]
pub struct Concerned {
    /// The objects that exist, or may have to.
    pub keys: BTreeSet<AccessKey>,
    /// The ClusterAccesses that it may affect with everything that they give.
    pub names: BTreeSet<AccessName>,
    /// Those that it may affect on the cluster that has changed.
    pub on_cluster: BTreeSet<AccessName>,
}

impl AccessSettings {
    /// The accounts that exist, or may, with something for a ClusterAccess.
    pub fn existing_of(
        &self,
        name: &AccessName,
        known: &KnownAccess,
    ) -> impl Iterator<Item = AccessKey> {
        let of = |cluster: &ClusterName, account: &AccountName| {
            AccessKind::Account.of(&cluster.account(account))
        };
        // Also of an object that has had another account, or cannot be decoded.
        let shared = self.consumers.shared_account().into_iter().flat_map(move |account| {
            known.sharing.of_right(name).map(move |cluster| of(cluster, account))
        });
        // The account of the user server is on nearly every cluster.
        let consumer = self.consumers.get(name).filter(|consumer| !consumer.is_own());
        let copied = consumer.into_iter().flat_map(move |consumer| {
            let account = &consumer.account;
            known.clusters_of(account).map(move |cluster| of(cluster, account))
        });
        shared.chain(copied)
    }

    /// What a ClusterAccess gives on these clusters, or on all that can be granted to its namespace or have its account.
    #[must_use]
    pub fn objects_of(
        &self,
        fleet: &Fleet,
        name: &AccessName,
        clusters: Option<&BTreeSet<ClusterName>>,
        known: &KnownAccess,
    ) -> BTreeSet<AccessKey> {
        let mut keys = BTreeSet::new();
        if clusters.is_none() {
            keys.extend(self.existing_of(name, known));
        }
        let Some(consumer) = self.consumers.get(name) else { return keys };
        let all = || {
            let known = known.clusters_of(&consumer.account).filter(|_| !consumer.is_own());
            fleet.candidates_in(consumer.namespace()).chain(known).collect()
        };
        let clusters = clusters.map_or_else(all, |clusters| clusters.iter().collect());
        keys.extend(self.objects_on(consumer, clusters));
        if self.consumers.is_of_kueue(consumer) {
            let configs = consumer.multi_kueue_configs.keys();
            keys.extend(configs.cloned().map(AccessKey::MultiKueueConfig));
        }
        keys
    }

    /// What a consumer may have for these clusters: accounts, and what tells the application of them.
    fn objects_on(
        &self,
        consumer: &Consumer,
        clusters: BTreeSet<&ClusterName>,
    ) -> impl Iterator<Item = AccessKey> {
        let (account, namespace) = (&consumer.account, consumer.namespace());
        let has_secrets =
            self.consumers.argo_cd(namespace).is_some_and(|it| it.name == consumer.name);
        let is_of_kueue = self.consumers.is_of_kueue(consumer);
        clusters.into_iter().flat_map(move |cluster| {
            let of_account = AccessKind::Account.of(&cluster.account(account));
            let secret =
                has_secrets.then(|| AccessKey::ClusterSecret(cluster.in_namespace(namespace)));
            let of_kueue = is_of_kueue.then(|| AccessKey::MultiKueueCluster(cluster.clone()));
            [of_account].into_iter().chain(secret).chain(of_kueue)
        })
    }

    /// The ClusterAccesses for which the account of the user server is planned on a cluster: those that may be granted it,
    /// and those that cannot be decoded. Empty where it is refused.
    #[must_use]
    pub fn sharing(&self, fleet: &Fleet, key: &AccountKey) -> BTreeSet<AccessName> {
        if self.grant(fleet, key) == Grant::Refused {
            return BTreeSet::new();
        }
        // While sets cannot be read, every consumer is a user, and none is given anything new.
        let users = fleet.knows_selections().then(|| self.users(fleet, key));
        let users = users.into_iter().flatten().map(|consumer| &consumer.name);
        let unreadable = self.consumers.unreadable();
        let unreadable =
            unreadable.filter(|it| grant::is_possible(fleet, &it.namespace, &key.cluster));
        users.chain(unreadable).cloned().collect()
    }

    /// An account on every cluster where one of its consumers may be granted it, or where it is known.
    #[must_use]
    pub fn accounts_of(
        &self,
        fleet: &Fleet,
        account: &AccountName,
        known: &KnownAccess,
    ) -> BTreeSet<AccessKey> {
        let namespaces: BTreeSet<_> = self.consumers.of(account).map(Consumer::namespace).collect();
        let clusters = namespaces.into_iter().flat_map(|it| fleet.candidates_in(it));
        let clusters: BTreeSet<_> = clusters.chain(known.clusters_of(account)).collect();
        let keys = clusters.into_iter().map(|it| AccessKind::Account.of(&it.account(account)));
        keys.collect()
    }

    /// The cluster Secrets in a namespace that exist, or may have to.
    #[must_use]
    pub fn cluster_secrets(
        &self,
        fleet: &Fleet,
        namespace: &Namespace,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> BTreeSet<AccessKey> {
        let consumer = self.consumers.argo_cd(namespace);
        let clusters = consumer.into_iter().flat_map(|_| fleet.candidates_in(namespace));
        let wanted = clusters.map(|it| AccessKey::ClusterSecret(it.in_namespace(namespace)));
        secrets_in(existing, namespace).cloned().chain(wanted).collect()
    }

    /// What a change of the fleet may affect.
    #[must_use]
    pub fn concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        known: &KnownAccess,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> Concerned {
        let Concerned { mut keys, mut names, mut on_cluster } = Concerned::default();
        let namespaces = match touched {
            Touched::Nothing | Touched::Report(_) => return Concerned::default(),
            Touched::Namespaces(namespaces) => namespaces,
            Touched::Cluster(cluster) => {
                keys.extend(known.on(cluster).iter().map(|key| AccessKind::Account.of(key)));
                let secrets = self.consumers.argo_cd_namespaces();
                let secrets = secrets.map(|it| AccessKey::ClusterSecret(cluster.in_namespace(it)));
                let others = secrets.chain([AccessKey::MultiKueueCluster(cluster.clone())]);
                keys.extend(others.filter(|key| existing.contains_key(key)));
                keys.extend(self.lists_of(fleet, cluster, known, existing));
                let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
                for name in candidates.into_iter().flat_map(|it| self.consumers.names_in(it)) {
                    on_cluster.insert(name.clone());
                    let consumer = self.consumers.get(name).into_iter();
                    keys.extend(consumer.flat_map(|it| self.objects_on(it, [cluster].into())));
                }
                // The namespace of a cluster is protected while the cluster exists.
                &[cluster.as_str().into()].into()
            }
        };
        let kueue = self.consumers.multi_kueue().next().map(Consumer::namespace);
        let unreadable =
            self.consumers.unreadable().filter(|it| namespaces.contains(&it.namespace));
        names.extend(unreadable.cloned());
        for namespace in namespaces {
            names.extend(self.consumers.names_in(namespace).cloned());
            keys.extend(secrets_in(existing, namespace).cloned());
            if kueue == Some(namespace) {
                keys.extend(of_kueue(existing).cloned());
            }
        }
        Concerned { keys, names, on_cluster }
    }

    /// What a change of ClusterAccesses may affect beside their statuses; if one of them asks for objects of Kueue, or did,
    /// all of these.
    #[must_use]
    pub fn concerned_by(
        &self,
        fleet: &Fleet,
        changed: &Changed,
        concerns_kueue: bool,
        known: &KnownAccess,
        existing: &BTreeMap<AccessKey, FoundObject>,
    ) -> BTreeSet<AccessKey> {
        // The namespace of Kueue may have been another one, and what exists may have to end.
        let mut keys: BTreeSet<_> =
            of_kueue(existing).filter(|_| concerns_kueue).cloned().collect();
        // Each account once: a change concerns all that ask for it, which may be many.
        let mut namespaces = BTreeSet::new();
        let mut before = BTreeMap::<_, BTreeSet<_>>::new();
        for (name, accounts) in changed {
            keys.extend(self.objects_of(fleet, name, None, known));
            namespaces.insert(&name.namespace);
            // The account that it has now is among its objects.
            let has_now = self.consumers.get(name).map(|consumer| &consumer.account);
            for account in accounts.iter().filter(|account| Some(*account) != has_now) {
                before.entry(account).or_default().insert(&name.namespace);
            }
        }
        keys.extend(namespaces.into_iter().flat_map(|it| secrets_in(existing, it)).cloned());
        for (account, namespaces) in before {
            let is_shared = self.consumers.is_shared(account);
            let there = known.clusters_of(account).filter(|_| !is_shared);
            let granted = namespaces.into_iter().flat_map(|it| fleet.candidates_in(it));
            keys.extend(
                granted.chain(there).map(|it| AccessKind::Account.of(&it.account(account))),
            );
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
