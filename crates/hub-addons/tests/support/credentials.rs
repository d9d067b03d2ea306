//! The inputs of the credential syncer, as other controllers and users leave them; and the copies that it makes.

use std::sync::OnceLock;

use hub_api::cluster_profile::ProfileVersion;
use k8s_openapi::ByteString;
use kube::Client;
use kube::api::ListParams;
use local_hub::ocm::{self, ManagedCluster, Object, SYNC_LABEL, ServiceAccountToken};
use local_hub::{HubBuilder, LocalHub, eventually};
use serde_json::{Value, json};

use super::shared::{Shared, share};
use super::shown::condition;
use super::world::{self, get, merge, profile_of};
use super::{Addons, Hub, SOON, rights};

/// Starts the syncer alone.
pub const SYNCER: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false";
/// The name of our cluster manager.
pub const MANAGER: &str = "open-cluster-management";
/// On a copy: its source.
pub const SYNCED_FROM: &str = "authentication.open-cluster-management.io/synced-from";
/// On a copy: the ManagedCluster.
pub const OF_CLUSTER: &str = "authentication.open-cluster-management.io/cluster-name";
/// On a copy: the ManagedServiceAccount.
pub const OF_ACCOUNT: &str = "authentication.open-cluster-management.io/managed-serviceaccount";
/// On a copy: the uid of the ManagedServiceAccount.
pub const OF_UID: &str = "authentication.open-cluster-management.io/managed-serviceaccount-uid";
/// The condition that reports why copies of an account are missing.
pub const CONDITION: &str = "SyncedToClusterProfiles";
/// The length of the syncer's queue.
pub const QUEUE: &str = "hub_addons_queue_depth{controller=\"secrets\"}";

/// One test's view of a hub with the syncer, with a client of its own.
pub struct Scene {
    pub shared: &'static Shared,
    pub ocm: Client,
}

/// The hub that the tests of a program share, with the syncer at work.
pub async fn scene() -> Scene {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    scene_of(&SHARED, LocalHub::builder().without_controller_manager()).await
}

/// A shared hub with the controllers for garbage collection and namespaces. With it, a file shares two hubs, which
/// leaves no room for a test's own.
pub async fn collected_scene() -> Scene {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    scene_of(&SHARED, LocalHub::builder()).await
}

async fn scene_of(shared: &'static OnceLock<Shared>, builder: HubBuilder) -> Scene {
    let (shared, ocm) = share(shared, move || async move {
        let hub = Hub::start(builder, rights::syncer()).await;
        let addons = syncer(&hub, &[]).await;
        (hub, addons)
    })
    .await;
    Scene { shared, ocm }
}

impl Scene {
    /// Waits until the syncer has processed all earlier changes.
    pub async fn caught_up(&self) {
        caught_up(&self.ocm, &self.shared.next_barrier()).await;
    }
}

/// A hub for the syncer alone.
pub async fn hub() -> Hub {
    Hub::of(rights::syncer()).await
}

/// Starts only the syncer, and waits until it works.
pub async fn syncer(hub: &Hub, arguments: &[&str]) -> Addons {
    Addons::start(hub, &[&[SYNCER], arguments].concat()).await
}

/// A cluster of a set.
pub fn cluster(name: &str, set: &str) -> Object {
    ManagedCluster::named(name).in_set(set).into()
}

/// A profile as a projector creates it, without status.
pub fn profile(namespace: &str, cluster: &str) -> Object {
    profile_of(MANAGER, namespace, cluster)
        .label("x-k8s.io/cluster-manager", MANAGER)
        .label("open-cluster-management.io/cluster-name", cluster)
}

/// A namespace in which a set of its name is bound, with clusters of that set and their profiles.
pub async fn team(client: &Client, name: &str, clusters: &[&str]) {
    world::create(client, [ocm::namespace(name), ocm::cluster_set(name)]).await;
    let clusters_of_set = clusters.iter().map(|it| cluster(it, name));
    ocm::create_all(client, clusters_of_set).await.unwrap();
    ocm::create_all(client, clusters.iter().map(|it| profile(name, it))).await.unwrap();
    world::create(client, [ocm::bound(name, name)]).await;
}

/// The token of an opted-in account.
pub fn token(cluster: &str, account: &str) -> ServiceAccountToken {
    ServiceAccountToken::of(cluster, account).synced()
}

/// The token with other bytes.
pub fn rotated(token: &ServiceAccountToken, round: usize) -> ServiceAccountToken {
    token.clone().token(format!("{}.{round}", name_of(token)).as_bytes())
}

/// The name of a token's copies.
pub fn name_of(token: &ServiceAccountToken) -> String {
    let account = token.account();
    format!("{}-{}", account.namespace().unwrap(), account.name())
}

/// A Secret by name.
pub fn secret(namespace: &str, name: &str) -> Object {
    world::object("Secret", Some(namespace), name)
}

/// The copy of a token.
pub fn copy(namespace: &str, token: &ServiceAccountToken) -> Object {
    secret(namespace, &name_of(token))
}

/// The Secret in which the agent has reported a token.
pub fn source(token: &ServiceAccountToken) -> Object {
    token.secret("")
}

/// Opts an account in or out.
pub async fn label(client: &Client, token: &ServiceAccountToken, value: Option<&str>) {
    merge(client, &token.account(), &json!({ "metadata": { "labels": { SYNC_LABEL: value } } }))
        .await;
}

/// Limits the namespaces of an account's copies, or removes the limit.
pub async fn narrow(client: &Client, token: &ServiceAccountToken, namespaces: Option<&str>) {
    let annotations = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: namespaces });
    merge(client, &token.account(), &json!({ "metadata": { "annotations": annotations } })).await;
}

async fn uid_of(client: &Client, object: &Object) -> Option<Value> {
    get(client, object).await.map(|shown| shown["metadata"]["uid"].clone())
}

/// How a Secret differs from the copy of a token.
async fn differences(
    client: &Client,
    namespace: &str,
    token: &ServiceAccountToken,
    shown: &Value,
) -> Vec<&'static str> {
    let account = token.account();
    let cluster = account.namespace().unwrap();
    let (uid, owner) =
        (uid_of(client, &account).await, uid_of(client, &profile(namespace, cluster)).await);
    let metadata = &shown["metadata"];
    let name = name_of(token);
    let from = metadata["labels"][SYNCED_FROM].as_str().unwrap_or_default();
    // Long names are shortened; another test covers this.
    let is_labelled = if name.len() > 63 { from.get(..50) == name.get(..50) } else { from == name };
    let base64 = |bytes: &[u8]| serde_json::to_value(ByteString(bytes.to_vec())).unwrap();
    let data = json!({ "token": base64(&token.token_bytes()), "ca.crt": base64(ocm::MADE_UP_CA.as_bytes()) });
    // The version in use when it was written; another test covers this.
    let owner_version = &metadata["ownerReferences"][0]["apiVersion"];
    let is_known =
        ProfileVersion::ALL.iter().any(|version| version.resource().api_version == *owner_version);
    let owners = json!([{
        "apiVersion": owner_version, "kind": "ClusterProfile", "name": cluster, "uid": owner,
        "controller": true,
    }]);
    let checks = [
        ("type", shown["type"] == "Opaque"),
        ("label", is_labelled),
        ("cluster", metadata["annotations"][OF_CLUSTER] == cluster),
        ("account", metadata["annotations"][OF_ACCOUNT] == account.name()),
        ("uid", uid.is_some_and(|uid| metadata["annotations"][OF_UID] == uid)),
        ("owner", is_known && metadata["ownerReferences"] == owners),
        ("data", shown["data"] == data),
        ("life", metadata["deletionTimestamp"].is_null()),
    ];
    checks.into_iter().filter(|(_, right)| !right).map(|(what, _)| what).collect()
}

/// Waits until a namespace has a correct copy of a token, and returns it.
pub async fn copied(client: &Client, namespace: &str, token: &ServiceAccountToken) -> Value {
    let copy = copy(namespace, token);
    eventually(&format!("{copy} holds its token"), SOON, async || {
        let Some(shown) = get(client, &copy).await else {
            return Err("it does not exist".to_owned());
        };
        let wrong = differences(client, namespace, token, &shown).await;
        if wrong.is_empty() { Ok(Some(shown)) } else { Err(format!("{wrong:?} of {shown}")) }
    })
    .await
}

/// Waits until there is no Secret with the name of a token's copy.
pub async fn withdrawn(client: &Client, namespace: &str, token: &ServiceAccountToken) {
    world::gone(client, &copy(namespace, token)).await;
}

/// The names of a namespace's Secrets, in order.
pub async fn secrets(client: &Client, namespace: &str) -> Vec<String> {
    let list = secret(namespace, "").api(client).list(&ListParams::default()).await.unwrap();
    let mut names: Vec<String> =
        list.into_iter().filter_map(|secret| secret.metadata.name).collect();
    names.sort();
    names
}

/// Waits until an account's condition has this reason, and returns its message.
pub async fn withheld(client: &Client, token: &ServiceAccountToken, reason: &str) -> String {
    let says = |account: &Value| {
        let said = condition(account, CONDITION);
        said["status"] == "False" && said["reason"] == reason
    };
    let account = world::becomes(client, &token.account(), reason, says).await;
    condition(&account, CONDITION)["message"].as_str().unwrap().to_owned()
}

/// Waits until an account does not have our condition.
pub async fn content(client: &Client, token: &ServiceAccountToken) {
    let silent = |account: &Value| condition(account, CONDITION).is_null();
    world::becomes(client, &token.account(), "says nothing", silent).await;
}

/// Waits until a syncer has processed all earlier changes: each of its watches delivers events in order, and this makes
/// a change in each, with names that are not used yet.
pub async fn caught_up(client: &Client, name: &str) {
    // The namespace of a cluster receives no credential.
    let barrier = format!("{name}-cluster");
    team(client, name, &[&barrier]).await;
    let token = token(&barrier, "app");
    token.create(client).await.unwrap();
    copied(client, name, &token).await;
    for patch in [json!({ "data": { "token": null } }), json!({ "metadata": { "labels": null } })] {
        merge(client, &copy(name, &token), &patch).await;
        copied(client, name, &token).await;
    }
    world::delete(client, &cluster(&barrier, name)).await;
    withdrawn(client, name, &token).await;
}
