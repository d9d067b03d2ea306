//! Kueue's kinds that consumer access writes. The field tests have Kueue's own CRDs.

use local_hub::LocalHub;
use local_hub::ocm::Object;

use super::world::install_open_crd;

const CLUSTER: (&str, &str, &str) = ("kueue.x-k8s.io", "v1beta2", "MultiKueueCluster");
const CONFIG: (&str, &str, &str) = ("kueue.x-k8s.io", "v1beta2", "MultiKueueConfig");

/// The MultiKueueCluster of this name.
pub fn multi_kueue_cluster(name: &str) -> Object {
    Object::new(CLUSTER, "multikueueclusters", None, name)
}

/// The MultiKueueConfig of this name.
pub fn multi_kueue_config(name: &str) -> Object {
    Object::new(CONFIG, "multikueueconfigs", None, name)
}

/// Installs the kinds.
pub async fn install_kueue(hub: &LocalHub) {
    for gvk in [CLUSTER, CONFIG] {
        install_open_crd(hub, gvk, "Cluster").await;
    }
}
