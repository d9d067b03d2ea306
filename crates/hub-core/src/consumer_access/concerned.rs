//! Which objects a change of the fleet may affect: a superset of those whose plan it changes.

use std::collections::BTreeSet;

use hub_api::names::{AccountKey, ClusterName, Namespace, ProfileKey};

use super::declaration::Consumer;
use super::desired::AccessSettings;
use super::integration::IntegrationKey;
use crate::fleet::{Fleet, Touched};

impl AccessSettings {
    /// The accounts that a change of the fleet may affect. `existing` returns those with an object of ours; it is
    /// called only if the change may affect accounts on every cluster.
    #[must_use]
    pub fn concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        existing: impl FnOnce() -> BTreeSet<AccountKey>,
    ) -> BTreeSet<AccountKey> {
        let on = |consumer: &Consumer, cluster: &ClusterName| AccountKey {
            cluster: cluster.clone(),
            account: consumer.account.clone(),
        };
        let mut keys = BTreeSet::new();
        if let Touched::Cluster(cluster) = touched {
            keys.extend(self.consumers.iter().map(|consumer| on(consumer, cluster)));
        }
        let mut everywhere =
            self.consumers.iter().filter(|it| touches_all(touched, &it.namespace)).peekable();
        if everywhere.peek().is_some() {
            let existing = existing();
            for consumer in everywhere {
                keys.extend(fleet.cluster_names().map(|cluster| on(consumer, cluster)));
                keys.extend(existing.iter().filter(|key| key.account == consumer.account).cloned());
            }
        }
        keys
    }

    /// The objects of integrations that a change of the fleet may affect. `existing` returns those of ours; it is
    /// called only if the change may affect all of them.
    #[must_use]
    pub fn integrations_concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        existing: impl FnOnce() -> BTreeSet<IntegrationKey>,
    ) -> BTreeSet<IntegrationKey> {
        let kueue = self.multi_kueue().map(|consumer| &consumer.namespace);
        let namespaces: Vec<_> = self.argo_cds().map(|consumer| &consumer.namespace).collect();
        let of_cluster = |cluster: &ClusterName| -> Vec<IntegrationKey> {
            let secret = |namespace: &&Namespace| {
                let (namespace, cluster) = ((*namespace).clone(), cluster.clone());
                IntegrationKey::ClusterSecret(ProfileKey { namespace, cluster })
            };
            let of_kueue = kueue.map(|_| IntegrationKey::MultiKueueCluster(cluster.clone()));
            of_kueue.into_iter().chain(namespaces.iter().map(secret)).collect()
        };
        let mut keys: BTreeSet<_> = match touched {
            _ if kueue.iter().chain(&namespaces).any(|namespace| touches_all(touched, namespace)) => {
                existing().into_iter().chain(fleet.cluster_names().flat_map(of_cluster)).collect()
            }
            Touched::Cluster(cluster) => of_cluster(cluster).into_iter().collect(),
            Touched::Nothing | Touched::Namespaces(_) => return BTreeSet::new(),
        };
        keys.extend(self.multi_kueue_configs());
        keys
    }
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
