//! A stand-in for the agents of clusters: reports the tokens of the accounts that ClusterAccesses ask for, and that their
//! permissions are applied.

use std::pin::pin;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt as _};
use local_hub::HubError;
use local_hub::ocm::{self, Object};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fleet::{merge_status, token};
use crate::progress::say;

/// The label of the objects of consumer access.
const CONSUMER_ACCESS: &str = "app.kubernetes.io/component=consumer-access";

/// Concurrent reports.
const PARALLEL: usize = 16;

/// Runs the agents until the result is dropped.
pub fn start(client: &Client) -> JoinSet<()> {
    let accounts =
        ("authentication.open-cluster-management.io", "v1beta1", "ManagedServiceAccount");
    let works = ("work.open-cluster-management.io", "v1", "ManifestWork");
    let kinds = [(accounts, "managedserviceaccounts"), (works, "manifestworks")];
    kinds.into_iter().map(|(gvk, plural)| follow(client.clone(), gvk, plural)).collect()
}

async fn follow(client: Client, gvk: (&str, &str, &str), plural: &str) {
    let all = Object::new(gvk, plural, None, "").api(&client);
    let events = watcher(all, Config::default().labels(CONSUMER_ACCESS)).default_backoff();
    let objects = events.applied_objects().filter_map(async |object| object.ok());
    let reports = objects.map(|object| {
        let (cluster, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let target = Object::new(gvk, plural, Some(&cluster), &name);
        report(client.clone(), target, object)
    });
    let mut reports = pin!(reports.buffer_unordered(PARALLEL));
    while let Some(reported) = reports.next().await {
        if let Err(error) = reported {
            say(&format!("an agent failed: {error}"));
        }
    }
}

/// Reports what an object lacks.
async fn report(client: Client, target: Object, object: DynamicObject) -> Result<(), HubError> {
    let (cluster, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let (status, generation) = (&object.data["status"], object.metadata.generation);
    if !object.data["spec"]["rotation"].is_object() {
        let applied = json!([{
            "type": "Applied", "status": "True", "reason": "Applied", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        if status["conditions"][0]["observedGeneration"] == json!(generation) {
            return Ok(());
        }
        return merge_status(&client, &target, &json!({ "status": { "conditions": applied } }))
            .await;
    }
    if status["tokenSecretRef"].is_object() {
        return Ok(());
    }
    let token = token(&cluster, &name, 0);
    let uid = object.uid().unwrap_or_default();
    ocm::token_secret(&cluster, &name, &uid, token.as_bytes()).create(&client).await?;
    let reported = json!({ "status": {
        "expirationTimestamp": "2100-01-01T00:00:00Z",
        "tokenSecretRef": { "name": name, "lastRefreshTimestamp": "2026-01-01T00:00:00Z" },
    } });
    merge_status(&client, &target, &reported).await
}
