//! Our entry in `status.accessProviders`: its content, the profiles that have it, and what it preserves.

#![cfg(test)]

use crate::support::command::hub_addons;
use crate::support::flavours::on_each_flavour;
use crate::support::proxy::{
    self, Authority, HOME, NAME, TEAM, addon, configuration, entry, hub, hub_for_both, install, project,
    projected, provisioner, publishes, publishes_nothing, serving,
};
use crate::support::shown::{condition, profile, provider};
use crate::support::{Addons, Hub, PROFILES, SOON, USER, rights, world};
use local_hub::{Flavour, LocalHub, eventually, ocm};
use serde_json::{Value, json};

on_each_flavour!(a_list_that_others_have_filled_gets_our_entry_when_there_is_room);

const FULL: &str = "hub_addons_findings{reason=\"TooManyAccessProviders\"}";

/// Whether there is a null, an empty string or an empty list anywhere.
fn has_nothing_empty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty() && list.iter().all(has_nothing_empty),
        Value::Object(fields) => !fields.is_empty() && fields.values().all(has_nothing_empty),
        _ => true,
    }
}

async fn the_entry_says_how_to_reach_the_cluster_and_no_more(lists: Flavour) {
    let hub = hub(lists).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    project(&hub, &["c1", "c2", "c3"]).await;
    let addons = provisioner(&hub, &[]).await;
    for cluster in ["c1", "c2"] {
        let shown = publishes(&hub, cluster, HOME, &[&authority]).await;
        let ours = provider(&shown, NAME);
        assert!(has_nothing_empty(ours), "{ours:#}");
        assert_eq!(
            ours["cluster"]["server"],
            format!("https://cluster-proxy-addon-user.proxy:9092/{cluster}")
        );
        assert_eq!(shown["status"]["version"]["kubernetes"], "v1.36.3", "the projector's part is left alone");
        assert_eq!(shown["status"]["conditions"], Value::Null, "{shown:#}");
    }
    let without = publishes_nothing(&hub, "c3").await;
    assert_eq!(without["status"]["accessProviders"], Value::Null, "c3 does not have the addon");
    addons.measures(&proxy::state("cluster_proxy", "published"), 2.0).await;
    addons.measures(&proxy::state("cluster_proxy", "no_addon"), 1.0).await;
}

#[tokio::test]
async fn the_entry_says_how_to_reach_the_cluster_and_no_more_in_a_map_list() {
    the_entry_says_how_to_reach_the_cluster_and_no_more(Flavour::Map).await;
}

#[tokio::test]
async fn the_entry_says_how_to_reach_the_cluster_and_no_more_in_an_atomic_list() {
    the_entry_says_how_to_reach_the_cluster_and_no_more(Flavour::Atomic).await;
}

#[tokio::test]
async fn the_entry_says_how_to_reach_the_cluster_and_no_more_where_v1alpha2_is_served() {
    the_entry_says_how_to_reach_the_cluster_and_no_more(Flavour::V1alpha2).await;
}

#[tokio::test]
async fn profiles_are_found_by_their_label_and_must_name_us_in_their_spec() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    let clusters = ["c1", "foreign", "unlabelled", "nameless", "odd", "last"];
    install(&hub, &authority, &clusters).await;
    let addons = provisioner(&hub, &[]).await;

    let in_team = |name: &str| world::profile_of(NAME, TEAM, name);
    let manager = "x-k8s.io/cluster-manager";
    let cluster = "open-cluster-management.io/cluster-name";
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    let others = [
        // Its label names our manager, its spec another one.
        world::profile_of("somebody-else", TEAM, "foreign").label(manager, NAME).label(cluster, "foreign"),
        in_team("unlabelled").label(cluster, "unlabelled"),
        in_team("nameless").label(manager, NAME),
        // A label value need not be a cluster's name.
        in_team("odd").label(manager, NAME).label(cluster, "Not_A.Cluster"),
    ];
    for object in &others {
        object.create(&hub.ocm).await.unwrap();
    }
    for name in ["c1", "last"] {
        in_team(name).label(manager, NAME).label(cluster, name).create(&hub.ocm).await.unwrap();
        publishes(&hub, name, HOME, &[&authority]).await;
    }
    for object in &others {
        let shown = world::get(&hub.ocm, object).await.unwrap();
        assert_eq!(shown["status"], Value::Null, "{shown:#}");
    }
    addons.measures(&proxy::state("cluster_proxy", "published"), 2.0).await;
    addons.measures(&proxy::state("cluster_proxy", "invalid_cluster_name"), 2.0).await;

    // Adding the label makes it ours, and removing the label leaves it unchanged.
    world::merge(&hub.ocm, &others[1], &json!({ "metadata": { "labels": { manager: NAME } } })).await;
    let before = publishes(&hub, "unlabelled", HOME, &[&authority]).await;
    world::merge(&hub.ocm, &others[1], &json!({ "metadata": { "labels": { manager: null } } })).await;
    addons.measures(&proxy::state("cluster_proxy", "published"), 2.0).await;
    let after = world::get(&hub.ocm, &others[1]).await.unwrap();
    assert_eq!(after["status"], before["status"]);
}

#[tokio::test]
async fn the_name_is_what_the_administrator_says() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &[]).await;
    project(&hub, &["c1"]).await;
    let arguments = ["--access-provider-name=mine", "--cluster-proxy-require-addon=false"];
    let _addons = provisioner(&hub, &arguments).await;
    let mut wanted = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    wanted["name"] = json!("mine");
    profile(&hub.ocm, (TEAM, "c1"), "has the entry", |profile| {
        let mut shown = provider(profile, "mine").clone();
        proxy::take_anchors(&mut shown) == proxy::anchors_of(&[&authority]) && shown == wanted
    })
    .await;
}

/// ClusterProfile as a later version may define it: with an unknown field in the cluster of an access provider.
async fn hub_with_a_later_profile(lists: Flavour) -> Hub {
    const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";
    let builder = LocalHub::builder().without_controller_manager().flavour(lists).without_crds([PROFILES]);
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
            { "name": "x", "extension": { "deep": { "list": [1, 2.5, "three", {}] } } },
        ] } },
    ]);
    if lists == Flavour::V1alpha2 {
        // v1alpha2 does not have it, so no writer of v1alpha2 can preserve it.
        theirs[0]["cluster"].as_object_mut().unwrap().remove("certificate-authority");
    }
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    let made = projected(TEAM, "c1")
        .status("accessProviders", theirs)
        .condition("TheirsToo", "True", "Theirs", "kept")
        .status("properties", json!([{ "name": "kept", "value": "too" }]));
    made.create(&hub.ocm).await.unwrap();
    let before = world::get(&hub.ocm, &made).await.unwrap();
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
    has_said_nothing_of_the_profile(&addons);
}

/// There are no findings about profiles.
fn has_said_nothing_of_the_profile(addons: &Addons) {
    assert!(!addons.log().contains("WriteRefused"), "{}", addons.log());
}

#[tokio::test]
async fn entries_of_others_keep_every_field_in_a_map_list() {
    entries_of_others_keep_every_field(Flavour::Map).await;
}

#[tokio::test]
async fn entries_of_others_keep_every_field_in_an_atomic_list() {
    entries_of_others_keep_every_field(Flavour::Atomic).await;
}

#[tokio::test]
async fn entries_of_others_keep_every_field_where_v1alpha2_is_served() {
    entries_of_others_keep_every_field(Flavour::V1alpha2).await;
}

/// Entries of others. v1alpha2 would refuse the first and the second in a change, and accepts them unchanged.
fn others(count: usize) -> Vec<Value> {
    let entry = |number: usize| match number {
        0 => json!({ "name": "p0" }),
        1 => json!({ "name": "p1", "cluster": { "server": "nowhere" } }),
        _ => json!({ "name": format!("p{number}"), "cluster": { "server": "https://other.example" } }),
    };
    (0..count).map(entry).collect()
}

async fn a_list_that_others_have_filled_gets_our_entry_when_there_is_room(flavour: Flavour) {
    let hub = hub(flavour).await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1"]).await;
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    let made = projected(TEAM, "c1").status("accessProviders", json!(others(64)));
    made.create(&hub.ocm).await.unwrap();
    let before = world::get(&hub.ocm, &made).await.unwrap();
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    let note = world::told(&hub.ocm, &made, "TooManyAccessProviders").await;
    assert!(note.contains("has 64 entries and the API takes at most 64") && note.contains(NAME), "{note}");
    addons.measures(FULL, 1.0).await;
    addons.measures(&proxy::state("cluster_proxy", "no_room"), 1.0).await;
    addons.measures(&proxy::state("cluster_proxy", "published"), 0.0).await;
    assert_eq!(world::get(&hub.ocm, &made).await.unwrap(), before);

    // There is room, and the entries of all others stay as they are.
    world::merge_status(&hub.ocm, &made, &json!({ "accessProviders": others(63) })).await;
    let shown = publishes(&hub, "c1", HOME, &[&old]).await;
    let list = shown["status"]["accessProviders"].as_array().unwrap();
    assert_eq!(list[..63], others(63));
    let ours = list[63].clone();
    addons.measures(FULL, 0.0).await;
    addons.measures(&proxy::state("cluster_proxy", "published"), 1.0).await;

    // Others go on past the limit, which v1alpha1 does not have: no change of the list is taken, and none is tried.
    let too_many = [vec![ours], others(65)].concat();
    world::merge_status(&hub.ocm, &made, &json!({ "accessProviders": too_many })).await;
    serving(HOME, &new.chain()).update(&hub.ocm).await.unwrap();
    addons.measures(FULL, 1.0).await;
    let full = world::get(&hub.ocm, &made).await.unwrap();
    assert_eq!(full["status"]["accessProviders"], json!(too_many));
    world::merge_status(&hub.ocm, &made, &json!({ "accessProviders": too_many[..64] })).await;
    let shown = publishes(&hub, "c1", HOME, &[&new]).await;
    assert_eq!(shown["status"]["accessProviders"].as_array().unwrap()[1..], others(63));
    addons.measures(FULL, 0.0).await;
    proxy::has_written(&addons, 2).await;
    has_said_nothing_of_the_profile(&addons);
}

#[tokio::test]
async fn an_entry_that_is_edited_is_repaired() {
    let hub = hub(Flavour::Atomic).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &[]).await;
    let whole = publishes(&hub, "c1", HOME, &[&authority]).await["status"]["accessProviders"][0].clone();
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut entry = whole.clone();
        change(&mut entry);
        entry
    };
    for (writes, list) in (2..).zip([
        json!([]),
        json!([edited(&|entry| entry["cluster"]["server"] = json!("https://elsewhere.example"))]),
        json!([edited(&|entry| entry["cluster"]["proxy-url"] = json!("socks5://listener.example"))]),
        json!([edited(&|entry| entry["cluster"]["insecure-skip-tls-verify"] = json!(true))]),
        json!([edited(&|entry| entry["cluster"]["certificate-authority-data"] = json!("bm9uZQ=="))]),
        json!([edited(&|entry| _ = entry.as_object_mut().unwrap().remove("cluster"))]),
        // An atomic list allows duplicate names.
        json!([whole, whole]),
    ]) {
        world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": list })).await;
        proxy::has_written(&addons, writes).await;
        let shown = publishes(&hub, "c1", HOME, &[&authority]).await;
        assert_eq!(shown["status"]["accessProviders"], json!([whole]), "{list:#}");
    }
    has_said_nothing_of_the_profile(&addons);
}

#[tokio::test]
async fn kinds_that_are_not_installed_do_not_delay_the_projector() {
    let missing = [
        "managedproxyconfigurations.proxy.open-cluster-management.io",
        "managedclusteraddons.addon.open-cluster-management.io",
    ];
    let hub = hub_for_both(LocalHub::builder().without_crds(missing)).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("blue"), ocm::bound(TEAM, "blue")]).await;
    ocm::ManagedCluster::named("c1").in_set("blue").create(&hub.ocm).await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES]).await;
    let healthy = |profile: &Value| condition(profile, "ControlPlaneHealthy")["status"] == "True";
    let shown = profile(&hub.ocm, (TEAM, "c1"), "is healthy", healthy).await;
    assert_eq!(shown["status"]["accessProviders"], Value::Null, "{shown:#}");
    addons.measures(&proxy::state("cluster_proxy", "no_configuration"), 1.0).await;
    assert_eq!(addons.probe("/readyz").await.0, 200);

    for name in missing {
        hub.install_crd(&hub.crd(name).unwrap()).await.unwrap();
    }
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1"]).await;
    let shown = publishes(&hub, "c1", HOME, &[&authority]).await;
    assert!(healthy(&shown), "{shown:#}");
}

#[tokio::test]
async fn without_permission_for_the_secret_entries_stay_and_the_projector_continues() {
    let builder = LocalHub::builder().without_controller_manager();
    let mut rules = rights::both();
    rules.retain(|rule| rule.resources.as_deref() != Some(&["secrets".to_owned()]));
    let hub = Hub::start(builder, rules).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1", "c2"]).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("blue"), ocm::bound(TEAM, "blue")]).await;
    ocm::ManagedCluster::named("c1").in_set("blue").create(&hub.ocm).await.unwrap();
    // An entry from before the permission was removed.
    let mut old = entry("https://cluster-proxy-addon-user.before:9092/c1", "c1");
    old["cluster"]["certificate-authority-data"] = json!("bm9uZQ==");
    projected(TEAM, "c1").status("accessProviders", json!([old])).create(&hub.ocm).await.unwrap();

    let addons = Addons::beside(&hub, &[PROFILES]).await;
    let healthy = |profile: &Value| condition(profile, "ControlPlaneHealthy")["status"] == "True";
    let shown = profile(&hub.ocm, (TEAM, "c1"), "is healthy", healthy).await;
    assert_eq!(provider(&shown, NAME), &old);
    ocm::ManagedCluster::named("c2").in_set("blue").create(&hub.ocm).await.unwrap();
    let shown = profile(&hub.ocm, (TEAM, "c2"), "is healthy", healthy).await;
    assert!(provider(&shown, NAME).is_null(), "{shown:#}");
    addons.measures(&proxy::state("cluster_proxy", "no_trust_anchor"), 2.0).await;
    assert_eq!(addons.probe("/readyz").await.0, 200);

    hub.grant(USER, rights::provisioner()).await.unwrap();
    publishes(&hub, "c1", HOME, &[&authority]).await;
    publishes(&hub, "c2", HOME, &[&authority]).await;
}

#[tokio::test]
async fn an_addon_and_a_configuration_that_come_reach_profiles_at_once() {
    let hub = hub(Flavour::Map).await;
    let authority = Authority::new("authority");
    world::create(&hub.ocm, [ocm::namespace(HOME), ocm::namespace("c1"), serving(HOME, &authority.chain())])
        .await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &[]).await;
    addons.measures(&proxy::state("cluster_proxy", "no_configuration"), 1.0).await;
    // The configuration of another proxy, and another addon, are ignored.
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
    let other = ocm::Object::new(gvk, "managedclusteraddons", Some("c1"), "other").field("spec", json!({}));
    other.create(&hub.ocm).await.unwrap();
    configuration(HOME).create(&hub.ocm).await.unwrap();
    addons.measures(&proxy::state("cluster_proxy", "no_addon"), 1.0).await;
    addon("c1").create(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&authority]).await;
    eventually("one write was enough", crate::support::SOON, async || {
        addons.metric(proxy::WRITTEN).await == Some(1.0)
    })
    .await;
}

#[tokio::test]
async fn entries_of_a_renamed_access_provider_are_withdrawn_by_cleanup_and_nothing_else_is() {
    let hub = hub(Flavour::Atomic).await;
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &["--access-provider-name=before"]).await;
    let before = eventually("the entry is published", SOON, async || {
        let shown = world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap();
        shown["status"]["accessProviders"][0].is_object().then_some(shown)
    })
    .await;
    addons.stop().await;
    let theirs = json!({ "name": "theirs", "cluster": { "server": "https://theirs.example" } });
    let list = json!([before["status"]["accessProviders"][0], theirs]);
    world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": list })).await;

    let kubeconfig = format!("--kubeconfig={}", hub.kubeconfig_for("admin").unwrap().display());
    let cleanup = async |more: &[&str]| {
        let arguments = [&["cleanup", "--access-provider=before", &kubeconfig], more].concat();
        let ended = hub_addons(&arguments, &[]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    assert_eq!(cleanup(&["--dry-run"]).await, format!("would withdraw from ClusterProfile {TEAM}/c1\n"));
    let shown = async || world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap();
    assert_eq!(shown().await["status"]["accessProviders"], list);
    assert_eq!(cleanup(&[]).await, format!("withdrew from ClusterProfile {TEAM}/c1\n"));
    assert_eq!(shown().await["status"]["accessProviders"], json!([theirs]));
    assert_eq!(cleanup(&[]).await, "", "nothing is left to do");

    // And where the hub serves v1alpha2 alone.
    world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": list })).await;
    hub.serve_versions(Flavour::V1alpha2, |version| version == "v1alpha2").await;
    assert_eq!(cleanup(&[]).await, format!("withdrew from ClusterProfile {TEAM}/c1\n"));
    assert_eq!(cleanup(&[]).await, "", "nothing is left to do");
}

#[tokio::test]
async fn the_entry_is_withdrawn_when_the_crd_of_the_configuration_is_removed_while_no_process_runs() {
    let hub = hub_for_both(LocalHub::builder()).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("blue"), ocm::bound(TEAM, "blue")]).await;
    ocm::ManagedCluster::named("c1").in_set("blue").create(&hub.ocm).await.unwrap();
    let authority = Authority::new("authority");
    install(&hub, &authority, &["c1"]).await;
    let addons = Addons::start(&hub, &[PROFILES]).await;
    publishes(&hub, "c1", HOME, &[&authority]).await;
    addons.stop().await;
    hub.remove_crd("managedproxyconfigurations.proxy.open-cluster-management.io").await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES]).await;
    let has_no_entry =
        |profile: &Value| profile["status"]["accessProviders"].as_array().is_none_or(Vec::is_empty);
    profile(&hub.ocm, (TEAM, "c1"), "has no entry", has_no_entry).await;
    addons.measures("hub_addons_findings{reason=\"NoProxyConfiguration\"}", 1.0).await;
}
