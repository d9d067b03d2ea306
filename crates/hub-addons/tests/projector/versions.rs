//! The version of ClusterProfile in use, on real hubs that serve one, the other or both.

use crate::support::world::grant;
use crate::support::{Hub, SOON, USER};
use hub_api::cluster_profile::ProfileVersion;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use local_hub::ocm::ManagedCluster;
use local_hub::{Flavour, eventually};
use serde_json::{Value, json};

const TEAM: &str = "team";

fn cluster(name: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set(TEAM)
}

fn profiles(hub: &Hub, version: ProfileVersion) -> Api<DynamicObject> {
    Api::namespaced_with(hub.ocm.clone(), TEAM, &version.resource())
}

async fn shown(
    hub: &Hub,
    version: ProfileVersion,
    name: &str,
    what: &str,
    so: impl Fn(&Value) -> bool,
) -> Value {
    let api = profiles(hub, version);
    eventually(&format!("{name} {what} in {version:?}"), SOON, async || {
        let found = api.get_opt(name).await.map_err(|error| error.to_string())?;
        let found = serde_json::to_value(found).map_err(|error| error.to_string())?;
        if so(&found) { Ok(Some(found)) } else { Err(format!("{found:#}")) }
    })
    .await
}

/// The version in which the projector last wrote a profile.
async fn written_in(hub: &Hub, name: &str) -> Option<String> {
    let requests = hub.audit().requests().await.unwrap().of_user(USER).writes();
    let of_profile = requests.matching(|request| {
        request.resource == "clusterprofiles" && request.name == name && request.code < 300
    });
    of_profile.iter().last().and_then(|request| request.uri.split('/').nth(3).map(str::to_owned))
}

#[tokio::test]
async fn a_version_that_appears_or_disappears_is_picked_up_without_a_restart_or_a_write() {
    let hub = Hub::for_projector().await;
    grant(&hub.ocm, TEAM, &["changes", "rests"]).await;
    let projector = hub.projector(&[]).await;
    let v1alpha1 = ProfileVersion::V1alpha1;
    let rests =
        shown(&hub, v1alpha1, "rests", "has its status", |it| it["status"].is_object()).await;

    let steps: [(Flavour, &[&str], ProfileVersion); 4] = [
        (Flavour::V1alpha2, &["v1alpha1", "v1alpha2"], ProfileVersion::V1alpha2),
        (Flavour::V1alpha2, &["v1alpha2"], ProfileVersion::V1alpha2),
        (Flavour::V1alpha2, &["v1alpha1"], ProfileVersion::V1alpha1),
        (Flavour::Map, &["v1alpha1"], ProfileVersion::V1alpha1),
    ];
    for (step, (flavour, served, expected)) in steps.into_iter().enumerate() {
        hub.serve_versions(flavour, |version| served.contains(&version)).await;
        // Each change of the cluster causes a write; those in flight still use the previous version.
        let number = std::cell::Cell::new(0);
        eventually(
            &format!("{expected:?} is used where {served:?} are served"),
            SOON,
            async || {
                number.update(|number| number + 1);
                let version = format!("v1.{step}.{}", number.get());
                cluster("changes").version(&version).update(&hub.ocm).await.unwrap();
                shown(&hub, expected, "changes", "follows", |it| {
                    it["status"]["version"]["kubernetes"] == version
                })
                .await;
                written_in(&hub, "changes").await.as_deref() == Some(expected.as_str())
            },
        )
        .await;
        // A manual change is observed in the remaining version.
        let drift = Patch::Merge(json!({ "spec": { "displayName": "drift" } }));
        profiles(&hub, expected).patch("changes", &PatchParams::default(), &drift).await.unwrap();
        shown(&hub, expected, "changes", "is repaired", |it| {
            it["spec"]["displayName"] == "changes"
        })
        .await;
    }
    let after = shown(&hub, v1alpha1, "rests", "is there", Value::is_object).await;
    assert_eq!(after["metadata"]["resourceVersion"], rests["metadata"]["resourceVersion"]);
    projector.stop().await;
}
