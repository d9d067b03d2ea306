//! Our entry in `status.accessProviders`: its content, the profiles that have it, and what it preserves.

use crate::support::command::hub_addons;
use crate::support::flavours::on_each_flavour;
use crate::support::proxy::{
    Authority, HOME, NAME, TEAM, addon, hub, install, project, projected, provisioner, publishes,
    publishes_nothing, serving,
};
use crate::support::shown::provider;
use crate::support::{Hub, rights, world};
use kube::api::PostParams;
use local_hub::{Flavour, LocalHub, ocm};
use serde_json::{Value, json};
on_each_flavour!(entries_of_others_keep_every_field);

/// ClusterProfile as a later version may define it: with an unknown field in the cluster of an access provider.
async fn hub_with_a_later_profile(lists: Flavour) -> Hub {
    const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";
    let builder =
        LocalHub::builder().without_controller_manager().flavour(lists).without_crds([PROFILES]);
    let hub = Hub::start(builder, rights::provisioner()).await;
    let mut crd = serde_json::to_value(hub.crd(PROFILES).unwrap()).unwrap();
    for version in crd["spec"]["versions"].as_array_mut().unwrap() {
        let status = "/schema/openAPIV3Schema/properties/status/properties";
        let provider = format!("{status}/accessProviders/items/properties");
        version.pointer_mut(&provider).unwrap()["expires"] = json!({ "type": "string" });
        let cluster = format!("{provider}/cluster/properties");
        version.pointer_mut(&cluster).unwrap()["region"] = json!({ "type": "object", "properties": {
            "name": { "type": "string" }, "nothing": { "type": "string", "nullable": true },
        } });
    }
    hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
    hub
}

async fn entries_of_others_keep_every_field(lists: Flavour) {
    let hub = hub_with_a_later_profile(lists).await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1"]).await;
    let mut theirs = json!([
        { "name": "aaa", "expires": "tomorrow", "cluster": {
            "server": "https://a.example", "region": { "name": "eu", "nothing": null },
            "insecure-skip-tls-verify": false, "certificate-authority": "/a/path", "tls-server-name": "",
        } },
        { "name": "zzz", "cluster": { "server": "https://z.example", "extensions": [
            { "name": "x", "extension": { "deep": { "list": [1, 2.5, "three", {}, null] }, "nothing": null } },
        ] } },
    ]);
    if lists == Flavour::V1alpha2 {
        // v1alpha2 does not have it, so no writer of v1alpha2 can preserve it.
        theirs[0]["cluster"].as_object_mut().unwrap().remove("certificate-authority");
    }
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    let made = projected(TEAM, "c1")
        .condition("TheirsToo", "True", "Theirs", "kept")
        .status("properties", json!([{ "name": "kept", "value": "too" }]));
    made.create(&hub.ocm).await.unwrap();
    // Without a merge patch, which would drop the nulls.
    let api = made.api(&hub.ocm);
    let mut whole = api.get("c1").await.unwrap();
    whole.data["status"]["accessProviders"] = theirs;
    api.replace_status("c1", &PostParams::default(), &whole).await.unwrap();
    let before = world::get(&hub.ocm, &made).await.unwrap();
    let extension = &provider(&before, "zzz")["cluster"]["extensions"][0]["extension"];
    assert!(
        extension["nothing"].is_null() && extension.as_object().unwrap().len() == 2,
        "{before:#}"
    );
    assert_eq!(provider(&before, "aaa")["cluster"]["region"]["name"], "eu", "the field is served");
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;

    let rest = |profile: &Value| {
        let mut status = profile["status"].clone();
        status["accessProviders"].as_array_mut().unwrap().retain(|entry| entry["name"] != NAME);
        status
    };
    let shown = publishes(&hub, "c1", HOME, &[&old]).await;
    assert_eq!(rest(&shown), before["status"]);
    serving(HOME, &new.chain()).update(&hub.ocm).await.unwrap();
    let shown = publishes(&hub, "c1", HOME, &[&new]).await;
    assert_eq!(rest(&shown), before["status"]);
    world::delete(&hub.ocm, &addon("c1")).await;
    let shown = publishes_nothing(&hub, "c1").await;
    assert_eq!(shown["status"], before["status"]);
    assert!(!addons.log().contains("WriteRefused"), "{}", addons.log());
}

#[tokio::test]
async fn entries_of_a_renamed_access_provider_are_withdrawn_by_cleanup_and_nothing_else_is() {
    let hub = hub(Flavour::Atomic).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &["--access-provider-name=before"]).await;
    let published = |shown: &Value| shown["status"]["accessProviders"][0].is_object();
    let ours = projected(TEAM, "c1");
    let before = world::becomes(&hub.ocm, &ours, "has the entry", published).await;
    addons.stop().await;
    let theirs = json!({ "name": "theirs", "cluster": { "server": "https://theirs.example" } });
    let list = json!([before["status"]["accessProviders"][0], theirs]);
    world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": list }))
        .await;

    let kubeconfig = format!("--kubeconfig={}", hub.kubeconfig_for("admin").unwrap().display());
    let cleanup = async |more: &[&str]| {
        let arguments = [&["cleanup", "--access-provider=before", &kubeconfig], more].concat();
        hub_addons(&arguments, &[]).await.succeeded()
    };
    assert_eq!(
        cleanup(&["--dry-run"]).await,
        format!("would withdraw from ClusterProfile {TEAM}/c1\n")
    );
    let shown = async || world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap();
    assert_eq!(shown().await["status"]["accessProviders"], list);
    assert_eq!(cleanup(&[]).await, format!("withdrew from ClusterProfile {TEAM}/c1\n"));
    assert_eq!(shown().await["status"]["accessProviders"], json!([theirs]));
    assert_eq!(cleanup(&[]).await, "", "nothing is left to do");

    // And where the hub serves v1alpha2 alone.
    world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": list }))
        .await;
    hub.serve_versions(Flavour::V1alpha2, |version| version == "v1alpha2").await;
    assert_eq!(cleanup(&[]).await, format!("withdrew from ClusterProfile {TEAM}/c1\n"));
    assert_eq!(cleanup(&[]).await, "", "nothing is left to do");
}
