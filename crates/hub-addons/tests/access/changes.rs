//! Changes on the hub reach the entries immediately; an object that cannot be read leaves them unchanged.

#![cfg(test)]

use std::collections::BTreeSet;
use std::pin::pin;

use crate::support::proxy::{
    self, ALONE, Authority, HOME, LONG, NAME, TEAM, addon, anchors_of, configuration, cost_since,
    has_written, hub, hub_for_both, install, project, projected, provisioner, publishes, publishes_nothing,
    serving, state,
};
use crate::support::shown::{profile, profiles, provider, sees};
use crate::support::{Addons, Hub, PROFILES, SOON, rights, world};
use futures::StreamExt as _;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use local_hub::{Flavour, LocalHub, eventually, ocm};
use serde_json::{Value, json};

/// The chart's policy allows only entries for the cluster that the profile is named after, so this is not for what is
/// installed.
#[tokio::test]
async fn the_label_and_not_the_name_of_a_profile_identifies_its_cluster() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    let _addons = provisioner(&hub, &[]).await;
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    let named_otherwise = projected(TEAM, "c1").label("open-cluster-management.io/cluster-name", "c2");
    named_otherwise.create(&hub.ocm).await.unwrap();
    profile(&hub.ocm, (TEAM, "c1"), "leads to c2", |profile| {
        proxy::has_entry(profile, &proxy::server(HOME, "c2"), "c2", &[&authority])
    })
    .await;
}

#[tokio::test]
async fn a_configuration_that_is_deleted_takes_every_entry_with_it() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    project(&hub, &["c1", "c2"]).await;
    let addons = provisioner(&hub, &[]).await;
    for cluster in ["c1", "c2"] {
        publishes(&hub, cluster, HOME, &[&authority]).await;
    }
    world::delete(&hub.ocm, &configuration(HOME)).await;
    for cluster in ["c1", "c2"] {
        let shown = publishes_nothing(&hub, cluster).await;
        assert_eq!(shown["status"], json!({ "version": { "kubernetes": "v1.36.3" } }));
    }
    let note = world::told(&hub.ocm, &configuration(HOME), "NoProxyConfiguration").await;
    assert!(note.contains("it does not exist"), "{note}");
    addons.measures(&state("cluster_proxy", "no_configuration"), 2.0).await;
    addons.measures("hub_addons_findings{reason=\"NoProxyConfiguration\"}", 1.0).await;

    configuration(HOME).create(&hub.ocm).await.unwrap();
    for cluster in ["c1", "c2"] {
        publishes(&hub, cluster, HOME, &[&authority]).await;
    }
    addons.measures("hub_addons_findings{reason=\"NoProxyConfiguration\"}", 0.0).await;
    has_written(&addons, 6).await;
}

#[tokio::test]
async fn a_removed_addon_withdraws_the_entries_of_its_cluster_and_no_others() {
    let hub = hub(Flavour::Atomic).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    project(&hub, &["c1", "c2"]).await;
    ocm::namespace("other-team").create(&hub.ocm).await.unwrap();
    projected("other-team", "c1").create(&hub.ocm).await.unwrap();
    let addons = provisioner(&hub, &[]).await;
    has_written(&addons, 3).await;

    let mark = hub.audit().mark().await.unwrap();
    world::delete(&hub.ocm, &addon("c1")).await;
    publishes_nothing(&hub, "c1").await;
    profile(&hub.ocm, ("other-team", "c1"), "has none", |profile| provider(profile, NAME).is_null()).await;
    addon("c1").create(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&authority]).await;
    has_written(&addons, 7).await;
    let cost = cost_since(&hub, &addons, &mark).await;
    assert_eq!(cost.count(|request| request.name == "c1"), 4, "{cost}");
    assert_eq!(cost.writes().len(), 4, "none for c2: {cost}");
}

#[tokio::test]
async fn what_disappeared_while_no_provisioner_ran_is_withdrawn_at_the_start() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    project(&hub, &["c1", "c2"]).await;
    let addons = provisioner(&hub, &[]).await;
    has_written(&addons, 2).await;
    addons.stop().await;
    world::delete(&hub.ocm, &addon("c1")).await;
    let addons = provisioner(&hub, &[]).await;
    publishes_nothing(&hub, "c1").await;
    publishes(&hub, "c2", HOME, &[&authority]).await;
    addons.stop().await;
    world::delete(&hub.ocm, &configuration(HOME)).await;
    let _addons = provisioner(&hub, &[]).await;
    publishes_nothing(&hub, "c2").await;
}

#[tokio::test]
async fn an_entry_ends_with_the_grant_of_its_cluster() {
    let hub = hub_for_both(LocalHub::builder()).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("blue"), ocm::bound(TEAM, "blue")]).await;
    for name in ["c1", "c2"] {
        ocm::ManagedCluster::named(name).in_set("blue").create(&hub.ocm).await.unwrap();
    }
    let addons = Addons::start(&hub, &[PROFILES]).await;
    for cluster in ["c1", "c2"] {
        publishes(&hub, cluster, HOME, &[&authority]).await;
    }
    ocm::ManagedCluster::named("c1").update(&hub.ocm).await.unwrap();
    sees(&hub.ocm, TEAM, &["c2"]).await;
    addons.measures(&state("cluster_proxy", "published"), 1.0).await;
    // And returns with it.
    ocm::ManagedCluster::named("c1").in_set("blue").update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&authority]).await;
}

/// A hub that accepts configurations of any shape.
async fn hub_without_validation() -> Hub {
    const CONFIGURATIONS: &str = "managedproxyconfigurations.proxy.open-cluster-management.io";
    let builder = LocalHub::builder().without_controller_manager().without_crds([CONFIGURATIONS]);
    let hub = Hub::start(builder, rights::provisioner()).await;
    let mut crd = serde_json::to_value(hub.crd(CONFIGURATIONS).unwrap()).unwrap();
    *crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").unwrap() =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
    hub
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_keeps_every_entry() {
    let hub = hub_without_validation().await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    publishes(&hub, "c1", HOME, &[&old]).await;

    let unreadable = configuration(HOME).field("spec", json!({ "proxyServer": { "namespace": 7 } }));
    unreadable.update(&hub.ocm).await.unwrap();
    let note = world::told(&hub.ocm, &unreadable, "Unreadable").await;
    assert!(note.contains("kept"), "{note}");
    // Nor one that would change the host of the URL.
    configuration("elsewhere.example/x").update(&hub.ocm).await.unwrap();
    addons
        .logs("told", "spec.proxyServer.namespace is not a valid namespace name: \"elsewhere.example/x\"")
        .await;
    // The last known namespace of the proxy is still watched.
    serving(HOME, &new.chain()).update(&hub.ocm).await.unwrap();
    let kept = publishes(&hub, "c1", HOME, &[&new]).await;
    addons.stop().await;

    // A process that has never read it knows less, and keeps the entries all the same.
    let mark = hub.audit().mark().await.unwrap();
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    projected(TEAM, "c2").create(&hub.ocm).await.unwrap();
    ocm::namespace("c2").create(&hub.ocm).await.unwrap();
    addon("c2").create(&hub.ocm).await.unwrap();
    addons.measures(&state("cluster_proxy", "configuration_unknown"), 2.0).await;
    let cost = cost_since(&hub, &addons, &mark).await;
    assert_eq!(cost.writes().len(), 0, "{cost}");
    assert_eq!(world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap(), kept);

    configuration(HOME).update(&hub.ocm).await.unwrap();
    publishes(&hub, "c2", HOME, &[&new]).await;
    assert_eq!(world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap(), kept);
    addons.measures("hub_addons_findings{reason=\"Unreadable\"}", 0.0).await;
}

/// Every version of the team's profile of c1 from now on, as server and trust anchors, until the final one.
async fn history(
    hub: &Hub,
    until: impl Fn(&str, &BTreeSet<String>) -> bool,
) -> Vec<(String, BTreeSet<String>)> {
    let api = profiles(&hub.ocm, TEAM);
    let from = api.get("c1").await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().fields("metadata.name=c1");
    let mut events = pin!(api.watch(&params, &from).await.unwrap());
    let mut seen = Vec::new();
    let look = async {
        while let Some(event) = events.next().await {
            let WatchEvent::Modified(object) = event.unwrap() else { continue };
            let version: Value = serde_json::to_value::<DynamicObject>(object).unwrap();
            let server =
                provider(&version, NAME)["cluster"]["server"].as_str().unwrap_or_default().to_owned();
            let anchors = proxy::anchors_in(&version);
            let last = until(&server, &anchors);
            seen.push((server, anchors));
            if last {
                return;
            }
        }
        panic!("the watch has ended");
    };
    tokio::time::timeout(SOON * 3, look).await.expect("the last version comes");
    seen
}

#[tokio::test]
async fn a_proxy_that_moves_is_never_shown_with_the_anchors_of_its_old_place_alone() {
    const MOVES: usize = 60;
    let hub = hub(Flavour::Map).await;
    let places: Vec<(String, Authority)> =
        ["proxy", "north", "south"].map(|name| (name.to_owned(), Authority::new(name))).into();
    install(&hub, &places[0].1, &["c1"]).await;
    for (namespace, authority) in &places[1..] {
        ocm::namespace(namespace).create(&hub.ocm).await.unwrap();
        serving(namespace, &authority.chain()).create(&hub.ocm).await.unwrap();
    }
    project(&hub, &["c1"]).await;
    let addons = Addons::beside(&hub, &[ALONE, "--ca-overlap=0"]).await;
    publishes(&hub, "c1", HOME, &[&places[0].1]).await;

    let last = MOVES % places.len();
    assert_eq!(last, 0);
    let end = Authority::new("end");
    let watching = history(&hub, |_, anchors| *anchors == anchors_of(&[&end]));
    let moving = async {
        for step in 1..=MOVES {
            let namespace = &places[step % places.len()].0;
            configuration(namespace).update(&hub.ocm).await.unwrap();
            // After the previous move, or during it.
            if step % 4 == 0 {
                publishes(&hub, "c1", namespace, &[&places[step % places.len()].1]).await;
            }
        }
        publishes(&hub, "c1", HOME, &[&places[0].1]).await;
        serving(HOME, &end.chain()).update(&hub.ocm).await.unwrap();
    };
    let (seen, ()) = tokio::join!(watching, moving);
    for (server, anchors) in &seen[..seen.len() - 1] {
        let right = places.iter().any(|(namespace, authority)| {
            *server == proxy::server(namespace, "c1") && *anchors == anchors_of(&[authority])
        });
        assert!(right, "{server} with {anchors:?}");
    }
    // Each move that was waited for, except the first ones, which may precede the watch.
    assert!(seen.len() >= MOVES / 5, "{}", seen.len());
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 0.0).await;
}

#[tokio::test]
async fn a_proxy_that_moves_before_its_certificate_keeps_its_old_entry_until_both_are_there() {
    let hub = hub(Flavour::Map).await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = Addons::beside(&hub, &[ALONE, LONG]).await;
    publishes(&hub, "c1", HOME, &[&old]).await;

    ocm::namespace("north").create(&hub.ocm).await.unwrap();
    configuration("north").update(&hub.ocm).await.unwrap();
    let missing = serving("north", &new.chain());
    let note = world::told(&hub.ocm, &missing, "NoTrustAnchor").await;
    assert!(note.contains("does not exist"), "{note}");
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 1.0).await;
    // The old location is no longer watched.
    serving(HOME, &Authority::new("nobody's").chain()).update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&old]).await;

    missing.create(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", "north", &[&old, &new]).await;
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 0.0).await;
    has_written(&addons, 2).await;

    // Findings about the old location are resolved.
    ocm::namespace("south").create(&hub.ocm).await.unwrap();
    configuration("south").update(&hub.ocm).await.unwrap();
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 1.0).await;
    configuration("north").update(&hub.ocm).await.unwrap();
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 0.0).await;
    addons.measures(&state("cluster_proxy", "published"), 1.0).await;
    has_written(&addons, 2).await;
}

#[tokio::test]
async fn changes_reach_entries_when_watches_have_broken_off() {
    let hub = hub(Flavour::Map).await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1", "c2"]).await;
    project(&hub, &["c1", "c2"]).await;
    let addons = provisioner(&hub, &[LONG]).await;
    has_written(&addons, 2).await;
    hub.stop_api_server().await.unwrap();
    eventually("it has noticed", SOON, async || addons.log().contains("cannot watch")).await;
    hub.start_api_server().await.unwrap();
    serving(HOME, &new.chain()).update(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &addon("c2")).await;
    publishes(&hub, "c1", HOME, &[&old, &new]).await;
    publishes_nothing(&hub, "c2").await;
}
