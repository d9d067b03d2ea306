//! The outputs that a hub should have, computed from its inputs alone: ManagedClusters, their bindings, accounts with
//! their tokens, and the proxy's trust anchors. Uses no code of the program under test.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use local_hub::ocm::{self, Object, SET_LABEL, SYNC_LABEL};
use serde_json::Value;

use super::credentials::{MANAGER, SYNCED_FROM};
use super::proxy::{HOME, NAME, entry, server, take_anchors};
use super::shown::provider;

const BINDING: (&str, &str, &str) =
    ("cluster.open-cluster-management.io", "v1beta2", "ManagedClusterSetBinding");
const ACCOUNT: (&str, &str, &str) =
    ("authentication.open-cluster-management.io", "v1beta1", "ManagedServiceAccount");

/// The differences between the outputs of a hub and those that it should have; empty after convergence. An error is one
/// of the API server.
pub async fn deviations(client: &Client) -> Result<Vec<String>, kube::Error> {
    let inputs = Inputs::read(client).await?;
    let anchors = inputs.anchors();
    let (profiles, copies) = (all(client, &profile()).await?, all(client, &secret()).await?);
    let mut shown: BTreeMap<String, &Value> = BTreeMap::new();
    for object in profiles.iter().filter(|object| object["spec"]["clusterManager"]["name"] == MANAGER) {
        shown.insert(format!("profile {}", place(object)), object);
    }
    for object in copies.iter().filter(|object| !object["metadata"]["labels"][SYNCED_FROM].is_null()) {
        shown.insert(format!("credential {}", place(object)), object);
    }
    let mut wrong = Vec::new();
    for (namespace, cluster) in inputs.granted() {
        let name = text(&cluster["metadata"]["name"]);
        let key = format!("profile {namespace}/{name}");
        let Some(profile) = shown.remove(&key) else {
            wrong.push(format!("{key} is missing"));
            continue;
        };
        wrong.extend(wrong_in_profile(profile, cluster, &anchors).map(|what| format!("{key}: {what}")));
        for source in inputs.tokens_of(name) {
            let key = format!("credential {namespace}/{name}-{}", text(&source["metadata"]["name"]));
            match shown.remove(&key) {
                None => wrong.push(format!("{key} is missing")),
                Some(copy) => {
                    let what = wrong_in_credential(copy, source, profile);
                    wrong.extend(what.map(|what| format!("{key}: {what}")));
                }
            }
        }
    }
    wrong.extend(shown.keys().map(|key| format!("{key} should not be there")));
    Ok(wrong)
}

fn wrong_in_profile(profile: &Value, cluster: &Value, anchors: &BTreeSet<String>) -> Option<String> {
    let (name, labels, spec) =
        (text(&cluster["metadata"]["name"]), &profile["metadata"]["labels"], &profile["spec"]);
    let condition = |object: &Value, kind: &str| {
        let list = object["status"]["conditions"].as_array();
        let found = list.and_then(|list| list.iter().find(|entry| entry["type"] == kind));
        found.map(|entry| (entry["status"].clone(), entry["reason"].clone()))
    };
    let mut shown = provider(profile, NAME).clone();
    let published = take_anchors(&mut shown);
    let conditions =
        [("ControlPlaneHealthy", "ManagedClusterConditionAvailable"), ("Joined", "ManagedClusterJoined")];
    let checks = [
        ("life", profile["metadata"]["deletionTimestamp"].is_null()),
        ("spec", spec["displayName"] == name && spec["clusterManager"]["name"] == MANAGER),
        ("manager", labels["x-k8s.io/cluster-manager"] == MANAGER),
        ("cluster", labels["open-cluster-management.io/cluster-name"] == name),
        ("set", labels["multicluster.x-k8s.io/clusterset"] == cluster["metadata"]["labels"][SET_LABEL]),
        ("version", profile["status"]["version"]["kubernetes"] == cluster["status"]["version"]["kubernetes"]),
        (
            "conditions",
            conditions.iter().all(|(shown, of)| condition(profile, shown) == condition(cluster, of)),
        ),
        ("access provider", published == *anchors && shown == entry(&server(HOME, name), name)),
    ];
    let wrong: Vec<_> = checks.iter().filter(|(_, right)| !right).map(|(what, _)| *what).collect();
    (!wrong.is_empty()).then(|| format!("{wrong:?} of {profile}"))
}

/// The message contains no token.
fn wrong_in_credential(copy: &Value, source: &Value, profile: &Value) -> Option<String> {
    let (cluster, account) = (&source["metadata"]["namespace"], &source["metadata"]["name"]);
    let metadata = &copy["metadata"];
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let annotation =
        |name: &str| &metadata["annotations"][format!("authentication.open-cluster-management.io/{name}")];
    let checks = [
        ("life", metadata["deletionTimestamp"].is_null()),
        ("data", copy["data"] == source["data"]),
        ("cluster", annotation("cluster-name") == cluster),
        ("account", annotation("managed-serviceaccount") == account),
        ("owner", owners.len() == 1 && owners[0]["uid"] == profile["metadata"]["uid"]),
    ];
    let wrong: Vec<_> = checks.iter().filter(|(_, right)| !right).map(|(what, _)| *what).collect();
    (!wrong.is_empty()).then(|| format!("{wrong:?} of {metadata}"))
}

/// The inputs of a hub: the objects of its users and other controllers.
struct Inputs {
    clusters: Vec<Value>,
    bindings: Vec<Value>,
    sets: Vec<Value>,
    namespaces: Vec<Value>,
    accounts: Vec<Value>,
    sources: Vec<Value>,
}

impl Inputs {
    async fn read(client: &Client) -> Result<Self, kube::Error> {
        Ok(Self {
            clusters: all(client, &ocm::ManagedCluster::named("").into()).await?,
            bindings: all(client, &Object::new(BINDING, "managedclustersetbindings", None, "")).await?,
            sets: all(client, &ocm::cluster_set("")).await?,
            namespaces: all(client, &ocm::namespace("")).await?,
            accounts: all(client, &Object::new(ACCOUNT, "managedserviceaccounts", None, "")).await?,
            sources: all(client, &secret()).await?,
        })
    }

    /// The certificates of the proxy's authorities: those behind the leaf in its serving certificate.
    fn anchors(&self) -> BTreeSet<String> {
        const END: &str = "-----END CERTIFICATE-----\n";
        let serving = self.sources.iter().find(|secret| {
            let metadata = &secret["metadata"];
            metadata["namespace"] == HOME && metadata["name"] == "cluster-proxy-user-serving-cert"
        });
        let chain = serving.map(|secret| secret["data"]["tls.crt"].clone()).unwrap_or_default();
        let chain = serde_json::from_value::<ByteString>(chain).unwrap_or_default().0;
        String::from_utf8(chain).unwrap().split_inclusive(END).skip(1).map(str::to_owned).collect()
    }

    /// Each cluster, with a namespace that is granted it.
    fn granted(&self) -> Vec<(&str, &Value)> {
        let alive = |list: &[Value], name: &str| {
            let found = list.iter().find(|object| object["metadata"]["name"] == name);
            found.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null())
        };
        let is_bound = |binding: &Value| {
            let conditions = binding["status"]["conditions"].as_array();
            conditions.is_some_and(|list| {
                list.iter().any(|entry| entry["type"] == "Bound" && entry["status"] == "True")
            })
        };
        let mut granted = Vec::new();
        for binding in self.bindings.iter().filter(|binding| is_bound(binding)) {
            let (namespace, set) =
                (text(&binding["metadata"]["namespace"]), text(&binding["spec"]["clusterSet"]));
            if !alive(&self.namespaces, namespace) || !alive(&self.sets, set) {
                continue;
            }
            for cluster in &self.clusters {
                let is_alive = cluster["metadata"]["deletionTimestamp"].is_null();
                if is_alive && cluster["metadata"]["labels"][SET_LABEL] == set {
                    granted.push((namespace, cluster));
                }
            }
        }
        granted
    }

    /// The reported tokens of a cluster's accounts that opt in to copies.
    fn tokens_of(&self, cluster: &str) -> impl Iterator<Item = &Value> {
        let of_cluster = move |object: &&Value| object["metadata"]["namespace"] == cluster;
        let asks = |account: &&Value| account["metadata"]["labels"][SYNC_LABEL] == "true";
        self.accounts.iter().filter(of_cluster).filter(asks).filter_map(move |account| {
            self.sources.iter().filter(of_cluster).find(|source| {
                source["metadata"]["name"] == account["metadata"]["name"]
                    && source["metadata"]["ownerReferences"][0]["uid"] == account["metadata"]["uid"]
            })
        })
    }
}

async fn all(client: &Client, kind: &Object) -> Result<Vec<Value>, kube::Error> {
    let list = kind.api(client).list(&ListParams::default()).await?;
    let value = |object: DynamicObject| serde_json::to_value(object).map_err(kube::Error::SerdeError);
    list.items.into_iter().map(value).collect()
}

fn profile() -> Object {
    let gvk = ("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
    Object::new(gvk, "clusterprofiles", None, "")
}

fn secret() -> Object {
    Object::new(("", "v1", "Secret"), "secrets", None, "")
}

fn place(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
