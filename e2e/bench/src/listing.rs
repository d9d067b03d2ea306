//! A client that lists most of what the controllers list when they start, one kind after the other, to compare a start
//! with.

use std::time::Instant;

use kube::Client;
use kube::api::ListParams;
use local_hub::ocm::Object;

use crate::error::BenchError;
use crate::view::SYNCED_FROM;

/// The size of a page.
const PAGE: u32 = 500;

/// Most of what the controllers list: API version, kind and plural.
const KINDS: [(&str, &str, &str, &str); 5] = [
    ("cluster.open-cluster-management.io", "v1", "ManagedCluster", "managedclusters"),
    ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn", "managedclusteraddons"),
    (
        "authentication.open-cluster-management.io",
        "v1beta1",
        "ManagedServiceAccount",
        "managedserviceaccounts",
    ),
    ("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile", "clusterprofiles"),
    ("", "v1", "Secret", "secrets"),
];

/// The seconds that one client needs to list them, one page after the other.
pub async fn run(client: &Client) -> Result<f64, BenchError> {
    let start = Instant::now();
    for (group, version, kind, plural) in KINDS {
        let api = Object::new((group, version, kind), plural, None, "").api(client);
        let mut page = ListParams::default().limit(PAGE);
        if plural == "secrets" {
            page = page.labels(SYNCED_FROM);
        }
        loop {
            let list = api.list(&page).await.map_err(BenchError::api("list everything"))?;
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}
