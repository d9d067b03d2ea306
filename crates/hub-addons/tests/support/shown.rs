//! The ClusterProfiles of a namespace on the API server.

use std::error::Error;
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams,
};
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
    let mut names: Vec<String> =
        list.into_iter().filter_map(|profile| profile.metadata.name).collect();
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

/// Waits until a profile satisfies a condition, and returns it. It is watched, so that no state is missed, however short,
/// except between one watch and the next.
pub async fn profile(
    client: &Client,
    (namespace, name): (&str, &str),
    what: &str,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let api = profiles(client, namespace);
    let of_name = format!("metadata.name={name}");
    eventually(
        &format!("{namespace}/{name} {what}"),
        SOON,
        async || -> Result<Option<Value>, Box<dyn Error>> {
            let list = api.list(&ListParams::default().fields(&of_name)).await?;
            let version = list.metadata.resource_version.unwrap_or_default();
            let mut shown = Value::Null;
            for profile in list.items {
                shown = serde_json::to_value(profile)?;
                if condition(&shown) {
                    return Ok(Some(shown));
                }
            }
            let parameters = WatchParams::default().fields(&of_name).timeout(60);
            let mut events = pin!(api.watch(&parameters, &version).await?);
            while let Some(event) = events.try_next().await? {
                shown = match event {
                    WatchEvent::Added(profile) | WatchEvent::Modified(profile) => {
                        serde_json::to_value(profile)?
                    }
                    WatchEvent::Deleted(_) => Value::Null,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => return Err(status.message.into()),
                };
                if condition(&shown) {
                    return Ok(Some(shown));
                }
            }
            Err(if shown.is_null() {
                "it does not exist".into()
            } else {
                format!("{shown:#}").into()
            })
        },
    )
    .await
}

/// A condition of a profile.
pub fn condition<'a>(profile: &'a Value, kind: &str) -> &'a Value {
    let conditions = profile["status"]["conditions"].as_array();
    conditions
        .and_then(|list| list.iter().find(|entry| entry["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// An access provider of a profile.
pub fn provider<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let providers = profile["status"]["accessProviders"].as_array();
    providers
        .and_then(|list| list.iter().find(|entry| entry["name"] == name))
        .unwrap_or(&Value::Null)
}
