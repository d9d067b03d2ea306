//! The ClusterProfiles of a namespace on the API server.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use local_hub::eventually;
use serde_json::Value;

use super::SOON;

/// The kind ClusterProfile.
pub fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
    ApiResource::from_gvk_with_plural(&gvk, "clusterprofiles")
}

/// The profiles of a namespace.
pub fn profiles(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

/// The names of a namespace's profiles, in order.
pub async fn names(client: &Client, namespace: &str) -> Vec<String> {
    let list = profiles(client, namespace).list(&ListParams::default()).await.unwrap();
    let mut names: Vec<String> = list.into_iter().filter_map(|profile| profile.metadata.name).collect();
    names.sort();
    names
}

/// Waits until a namespace sees exactly these clusters.
pub async fn sees(client: &Client, namespace: &str, clusters: &[&str]) {
    eventually(&format!("{namespace} sees {clusters:?}"), SOON, async || {
        let names = names(client, namespace).await;
        if names == clusters { Ok(()) } else { Err(format!("it sees {names:?}")) }
    })
    .await;
}

/// Waits until a profile satisfies a condition, and returns it.
pub async fn profile(
    client: &Client,
    (namespace, name): (&str, &str),
    what: &str,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let api = profiles(client, namespace);
    eventually(&format!("{namespace}/{name} {what}"), SOON, async || {
        let Some(profile) = api.get_opt(name).await.map_err(|error| error.to_string())? else {
            return Err("it does not exist".to_owned());
        };
        let profile = serde_json::to_value(profile).map_err(|error| error.to_string())?;
        if condition(&profile) { Ok(Some(profile)) } else { Err(format!("{profile:#}")) }
    })
    .await
}

/// A condition of a profile.
pub fn condition<'a>(profile: &'a Value, kind: &str) -> &'a Value {
    let conditions = profile["status"]["conditions"].as_array();
    conditions.and_then(|list| list.iter().find(|entry| entry["type"] == kind)).unwrap_or(&Value::Null)
}

/// An access provider of a profile.
pub fn provider<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let providers = profile["status"]["accessProviders"].as_array();
    providers.and_then(|list| list.iter().find(|entry| entry["name"] == name)).unwrap_or(&Value::Null)
}
