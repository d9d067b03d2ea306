//! Which objects a change of the fleet may affect: a superset of those whose plan it changes.

use std::collections::BTreeSet;

use hub_api::names::{AccountKey, ClusterName, Namespace};

use super::declaration::Consumer;
use super::desired::AccessSettings;
use super::kueue::KueueKey;
use crate::fleet::{Fleet, Touched};

impl AccessSettings {
    /// The accounts that a change of the fleet may affect. `existing` returns those with an object of ours; it is called
    /// only if the change may affect accounts on every cluster.
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

    /// Kueue's objects that a change of the fleet may affect. `existing` returns those of ours; it is called only if the
    /// change may affect all of them.
    #[must_use]
    pub fn kueue_concerned(
        &self,
        fleet: &Fleet,
        touched: &Touched,
        existing: impl FnOnce() -> BTreeSet<KueueKey>,
    ) -> BTreeSet<KueueKey> {
        let Some(consumer) = self.multi_kueue() else { return BTreeSet::new() };
        let mut keys = match touched {
            _ if touches_all(touched, &consumer.namespace) => {
                let granted = fleet.cluster_names().cloned().map(KueueKey::Cluster);
                existing().into_iter().chain(granted).collect()
            }
            Touched::Cluster(cluster) => BTreeSet::from([KueueKey::Cluster(cluster.clone())]),
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
