//! The guarantees of a hub, checked on real hubs.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use local_hub::{CrdSet, HubBuilder, LocalHub};
use serde_json::json;

/// The smallest hub, enough for most tests.
fn small() -> HubBuilder {
    LocalHub::builder().crds(CrdSet::None).without_controller_manager()
}

fn may(verbs: &[&str], resource: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

#[tokio::test]
async fn every_request_is_counted_once_for_the_user_who_made_it() {
    let hub = small().start().await.unwrap();
    hub.grant("projector", vec![may(&["create", "list", "watch"], "configmaps")]).await.unwrap();
    let maps: Api<ConfigMap> =
        Api::namespaced(hub.client_as("projector").await.unwrap(), "default");
    let others: Api<ConfigMap> = Api::namespaced(hub.client_as("syncer").await.unwrap(), "default");

    // An open watch on either side of the mark.
    let before = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let mut watch = std::pin::pin!(watch);
    try_join_all((0..40).map(async |number| {
        maps.create(&PostParams::default(), &config_map(&format!("map-{number}"))).await
    }))
    .await
    .unwrap();
    for _ in 0..3 {
        maps.list(&ListParams::default()).await.unwrap();
    }
    let refused = maps.delete("map-0", &DeleteParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), Some(403));
    let refused = others.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), Some(403));
    // It is open and works.
    while !matches!(watch.try_next().await.unwrap().unwrap(), WatchEvent::Added(_)) {}
    drop(before);

    let requests = hub.audit().since(&mark).await.unwrap();
    let own = requests.of_user("projector");
    assert_eq!(
        own.to_string(),
        "40x projector create configmaps, 1x projector delete configmaps (403), \
         3x projector list configmaps, 1x projector watch configmaps"
    );
    assert_eq!(own.by_verb()[&("create".to_owned(), "configmaps".to_owned())], 40);
    assert_eq!(own.writes().len(), 41);
    assert_eq!(own.count(|request| request.code == 403 && request.name == "map-0"), 1);
    assert_eq!(requests.of_user("syncer").to_string(), "1x syncer list configmaps (403)");

    // The requests to start a hub and to read its log are not counted.
    let all = hub.audit().requests().await.unwrap();
    assert_eq!(all.of_user("projector").len(), own.len() + 1, "{all}");
    assert!(all.of_user("admin").is_empty() && all.of_user("ocm").is_empty(), "{all}");
    let mark = hub.audit().mark().await.unwrap();
    let requests = hub.audit().since(&mark).await.unwrap();
    assert!(requests.of_user("projector").is_empty(), "{requests}");
    assert!(!requests.iter().any(|request| request.uri.contains("mark")), "{requests}");
}
