//! Operations of users and of Open Cluster Management on clusters, sets and bindings, and of cluster-proxy.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Operation, Others, at};
use crate::certificates::CERTIFICATES;
use crate::hub::{
    CLUSTERS, EXCLUSIVE_LABEL, NAMESPACES, PROXIES, SERVING_SECRET, SETS, condition, selector,
};

/// How long after a change of its Secret the proxy serves with the new certificate.
const RELOAD: Duration = Duration::from_secs(15);

impl Others {
    pub(super) fn cluster(&self, operation: Operation) {
        use Operation as O;
        let kind = "managedclusters";
        match operation {
            O::CreateCluster(cluster) => {
                let body = json!({
                    "metadata": { "labels": { "env": "prod" }, "finalizers": ["cluster.open-cluster-management.io/api-resource-cleanup"] },
                    "spec": { "hubAcceptsClient": true },
                    "status": health(0),
                });
                self.ocm.create(kind, "", at(&CLUSTERS, cluster), &body);
            }
            O::LeaveCluster(cluster) => {
                self.tenant.delete(kind, "", at(&CLUSTERS, cluster));
            }
            O::RemoveCluster(cluster) => {
                let name = at(&CLUSTERS, cluster);
                self.tenant.delete(kind, "", name);
                self.ocm.patch(kind, "", name, &json!({ "metadata": { "finalizers": null } }));
            }
            O::MoveCluster(cluster, set) => {
                let set = set.map(|set| at(&SETS, set));
                let patch = json!({ "metadata": { "labels": { EXCLUSIVE_LABEL: set } } });
                self.tenant.patch(kind, "", at(&CLUSTERS, cluster), &patch);
            }
            O::LabelCluster(cluster, prod) => {
                let env = prod.then_some("prod");
                let patch = json!({ "metadata": { "labels": { "env": env } } });
                self.tenant.patch(kind, "", at(&CLUSTERS, cluster), &patch);
            }
            O::Health(cluster, variant) => {
                self.ocm.patch_status(kind, "", at(&CLUSTERS, cluster), &health(variant));
            }
            O::Accept(cluster, accepted) => {
                let patch = json!({ "spec": { "hubAcceptsClient": accepted } });
                self.tenant.patch(kind, "", at(&CLUSTERS, cluster), &patch);
            }
            _ => {}
        }
    }

    pub(super) fn grant(&self, operation: Operation) {
        use Operation as O;
        let (sets, bindings) = ("managedclustersets", "managedclustersetbindings");
        match operation {
            O::CreateSet(set) => {
                self.tenant.create(sets, "", at(&SETS, set), &json!({ "spec": selector(0) }));
            }
            O::DeleteSet(set) => {
                self.tenant.delete(sets, "", at(&SETS, set));
            }
            O::Select(set, variant) => {
                // The first variant is the most likely one.
                let variant = if variant > 6 { 0 } else { variant };
                let mut spec = selector(variant);
                if spec["clusterSelector"].get("labelSelector").is_none() {
                    spec["clusterSelector"]["labelSelector"] = Value::Null;
                } else {
                    for field in ["matchLabels", "matchExpressions"] {
                        if spec["clusterSelector"]["labelSelector"].get(field).is_none() {
                            spec["clusterSelector"]["labelSelector"][field] = Value::Null;
                        }
                    }
                }
                self.tenant.patch(sets, "", at(&SETS, set), &json!({ "spec": spec }));
            }
            O::Bind(namespace, set) => {
                let set = at(&SETS, set);
                let body = json!({
                    "spec": { "clusterSet": set },
                    "status": { "conditions": [condition("Bound", "True", "ClusterSetBound")] },
                });
                self.tenant.create(bindings, at(&NAMESPACES, namespace), set, &body);
            }
            O::Unbind(namespace, set) => {
                self.tenant.delete(bindings, at(&NAMESPACES, namespace), at(&SETS, set));
            }
            O::Bound(namespace, set, bound) => {
                let bound = if bound { "True" } else { "False" };
                let status = json!({ "conditions": [condition("Bound", bound, "Simulated")] });
                self.ocm.patch_status(
                    bindings,
                    at(&NAMESPACES, namespace),
                    at(&SETS, set),
                    &status,
                );
            }
            O::EndNamespace(namespace) => {
                self.tenant.delete("namespaces", "", at(&NAMESPACES, namespace));
            }
            O::CreateNamespace(namespace) => {
                self.tenant.create("namespaces", "", at(&NAMESPACES, namespace), &json!({}));
            }
            _ => {}
        }
    }

    pub(super) fn proxy(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Configure(place) => {
                let kind = "managedproxyconfigurations";
                let Some(place) = place else {
                    self.ocm.delete(kind, "", "cluster-proxy");
                    return;
                };
                let spec = json!({
                    "authentication": { "signer": { "type": "SelfSigned" } },
                    "proxyServer": { "namespace": at(&PROXIES, place), "image": "server" },
                    "proxyAgent": { "image": "agent" },
                });
                let body = json!({ "spec": spec });
                self.ocm.create(kind, "", "cluster-proxy", &body);
                self.ocm.patch(kind, "", "cluster-proxy", &body);
            }
            O::Addon(cluster, there) => {
                let (kind, namespace) = ("managedclusteraddons", at(&CLUSTERS, cluster));
                if there {
                    self.ocm.create(kind, namespace, "cluster-proxy", &json!({ "spec": {} }));
                } else {
                    self.ocm.delete(kind, namespace, "cluster-proxy");
                }
            }
            O::Serve(place, variant) => {
                let (namespace, name) = (at(&PROXIES, place), SERVING_SECRET);
                let Some(variant) = variant else {
                    self.ocm.delete("secrets", namespace, name);
                    return;
                };
                let certificate = CERTIFICATES[usize::from(variant) % CERTIFICATES.len()];
                let body = json!({ "stringData": { "tls.crt": certificate } });
                self.ocm.create("secrets", namespace, name, &body);
                self.ocm.patch("secrets", namespace, name, &body);
                let world = self.world.clone();
                tokio::spawn(async move {
                    sleep(RELOAD).await;
                    world.lock().network.proxy.insert(namespace, certificate);
                });
            }
            _ => {}
        }
    }

    /// Lets the proxies reload their certificates from their Secrets, which are others after a restore.
    pub(super) fn reload_proxies(&self, pause: Duration) {
        let world = self.world.clone();
        tokio::spawn(async move {
            sleep(pause + RELOAD).await;
            let mut state = world.lock();
            for place in PROXIES {
                let secret = state.server.object("secrets", place, SERVING_SECRET);
                let text = secret
                    .and_then(|secret| secret["data"]["tls.crt"].as_str())
                    .unwrap_or_default();
                let certificate =
                    CERTIFICATES.iter().find(|it| STANDARD.encode(it) == text).copied();
                if let Some(certificate) = certificate {
                    state.network.proxy.insert(place, certificate);
                }
            }
        });
    }
}

/// The status that a cluster's agent reports.
fn health(variant: u8) -> Value {
    let available = ["True", "False", "Unknown"][usize::from(variant) % 3];
    let version = ["v1.35.0", "v1.36.3"][usize::from(variant / 3) % 2];
    let claims = match variant / 6 % 4 {
        0 => json!([]),
        1 => json!([{ "name": "id", "value": "1" }]),
        2 => json!([{ "name": "id", "value": "2" }, { "name": "region", "value": "eu" }]),
        _ => {
            json!([{ "name": "id", "value": "1" }, { "name": "id", "value": "2" }, { "name": "x", "value": "" }])
        }
    };
    json!({
        "version": { "kubernetes": version },
        "clusterClaims": claims,
        "conditions": [
            condition("ManagedClusterConditionAvailable", available, "ManagedClusterAvailable"),
            condition("ManagedClusterJoined", "True", "ManagedClusterJoined"),
        ],
    })
}
