//! The guarantees of a hub, checked on real hubs.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use local_hub::{CrdSet, Flavour, HubBuilder, HubError, LocalHub, eventually, ocm};
use serde_json::json;

const SOON: Duration = Duration::from_mins(2);

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

fn cluster_profiles() -> ApiResource {
    let gvk = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
    ApiResource::from_gvk_with_plural(&gvk, "clusterprofiles")
}

fn profile(namespace: &str, name: &str) -> ocm::Object {
    ocm::Object::new(
        ("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"),
        "clusterprofiles",
        Some(namespace),
        name,
    )
    .field("spec", json!({ "displayName": name, "clusterManager": { "name": "open-cluster-management" } }))
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
async fn controllers_collect_what_lost_its_owner_and_end_namespaces() {
    let hub = LocalHub::builder().start().await.unwrap();
    let admin = hub.client_as("admin").await.unwrap();
    ocm::namespace("team").create(&admin).await.unwrap();
    profile("team", "owner").create(&admin).await.unwrap();

    let profiles: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "team", &cluster_profiles());
    let owner = profiles.get("owner").await.unwrap();
    let property: Secret = serde_json::from_value(json!({
        "metadata": { "name": "owned", "ownerReferences": [{
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ClusterProfile",
            "name": "owner",
            "uid": owner.metadata.uid,
        }]},
    }))
    .unwrap();
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "team");
    secrets.create(&PostParams::default(), &property).await.unwrap();
    profiles.delete("owner", &DeleteParams::background()).await.unwrap();
    eventually("the secret goes with its owner", SOON, async || {
        secrets.get_opt("owned").await.map(|found| found.is_none())
    })
    .await;

    let namespaces: Api<Namespace> = Api::all(admin);
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    eventually("the namespace ends", SOON, async || {
        namespaces.get_opt("team").await.map(|found| found.is_none())
    })
    .await;

    // Properties of the hub throughout.
    let programs: Vec<_> = hub.memory().await.into_iter().map(|memory| memory.program).collect();
    assert_eq!(programs, ["etcd", "kube-apiserver", "kube-controller-manager"]);
    let output = hub.kubectl(&["get", "clusterprofiles", "--all-namespaces"]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn every_request_is_counted_once_for_the_user_who_made_it() {
    let hub = small().start().await.unwrap();
    hub.grant("projector", vec![may(&["create", "list", "watch"], "configmaps")]).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(hub.client_as("projector").await.unwrap(), "default");
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

#[tokio::test]
async fn a_user_has_the_given_groups_and_permissions_and_no_others() {
    let hub = small().user("auditor", &["readers", "system:monitoring"]).start().await.unwrap();
    let question = SelfSubjectReview::default();
    let who: Api<SelfSubjectReview> = Api::all(hub.client_as("auditor").await.unwrap());
    let answer =
        who.create(&PostParams::default(), &question).await.unwrap().status.unwrap().user_info.unwrap();
    assert_eq!(answer.username.as_deref(), Some("auditor"));
    let groups = answer.groups.unwrap();
    assert!(groups.contains(&"readers".to_owned()) && groups.contains(&"system:monitoring".to_owned()));

    for (user, allowed) in [("auditor", false), ("consumer", false), ("ocm", true), ("admin", true)] {
        let maps: Api<ConfigMap> = Api::default_namespaced(hub.client_as(user).await.unwrap());
        let answer = maps.list(&ListParams::default()).await;
        assert_eq!(answer.is_ok(), allowed, "{user}: {answer:?}");
    }

    // Effective immediately, and in addition to earlier permissions.
    let maps: Api<ConfigMap> = Api::default_namespaced(hub.client_as("consumer").await.unwrap());
    hub.grant("consumer", vec![may(&["list"], "configmaps")]).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    let one = PolicyRule { resource_names: Some(vec!["one".to_owned()]), ..may(&["get"], "configmaps") };
    hub.grant("consumer", vec![one]).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    assert!(maps.get_opt("one").await.unwrap().is_none());
    assert_eq!(code(&maps.get_opt("two").await.unwrap_err()), Some(403));

    assert!(matches!(hub.client_as("nobody").await, Err(HubError::UnknownUser { .. })));
    let kubeconfig = hub.kubeconfig_for("consumer").unwrap();
    assert_eq!(kubeconfig.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    maps.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn two_owners_of_list_entries_get_along_on_map_lists_only() {
    let flavour = |lists| LocalHub::builder().flavour(lists).without_controller_manager();
    let [map, atomic] =
        LocalHub::start_many([flavour(Flavour::Map), flavour(Flavour::Atomic)]).await.unwrap();
    assert_ne!(map.url(), atomic.url());
    assert_ne!(map.ca_pem(), atomic.ca_pem());

    for (hub, expected) in [(map, vec!["one", "two"]), (atomic, vec!["two"])] {
        let client = hub.client_as("ocm").await.unwrap();
        profile("default", "shared").create(&client).await.unwrap();
        let profiles: Api<DynamicObject> = Api::namespaced_with(client, "default", &cluster_profiles());
        for owner in ["one", "two"] {
            let part = json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1",
                "kind": "ClusterProfile",
                "metadata": { "name": "shared" },
                "status": { "properties": [{ "name": owner, "value": "value" }] },
            });
            let apply = PatchParams::apply(owner).force();
            profiles.patch_status("shared", &apply, &Patch::Apply(part)).await.unwrap();
        }
        let shared = profiles.get("shared").await.unwrap();
        let properties = shared.data["status"]["properties"].as_array().unwrap();
        let names: Vec<_> = properties.iter().map(|property| property["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn a_crd_can_come_late_and_go_early() {
    let name = "managedclusters.cluster.open-cluster-management.io";
    let hub = LocalHub::builder().without_crds([name]).without_controller_manager().start().await.unwrap();
    let ocm = hub.client_as("ocm").await.unwrap();
    let cluster = ocm::ManagedCluster::named("late").claim("id.k8s.io", "late");

    for _ in 0..2 {
        assert!(matches!(cluster.create(&ocm).await, Err(HubError::Api { .. })));
        hub.install_crd(&hub.crd(name).unwrap()).await.unwrap();
        cluster.create(&ocm).await.unwrap();
        hub.remove_crd(name).await.unwrap();
    }
    ocm::cluster_set("others").create(&ocm).await.unwrap();
}

#[tokio::test]
async fn a_killed_api_server_starts_again_with_its_address_and_its_objects() {
    let hub = small().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(hub.client_as("admin").await.unwrap());
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let url = hub.url();

    hub.stop_api_server().await.unwrap();
    hub.stop_api_server().await.unwrap();
    assert!(code(&maps.get("kept").await.unwrap_err()).is_none(), "nobody may answer");
    assert!(hub.audit().mark().await.is_err());
    hub.start_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    assert_eq!(hub.url(), url);
    maps.get("kept").await.unwrap();

    hub.pause_api_server().await.unwrap();
    let hung = tokio::time::timeout(Duration::from_millis(200), maps.get("kept")).await;
    assert!(hung.is_err(), "{hung:?}");
    hub.resume_api_server().await.unwrap();
    maps.get("kept").await.unwrap();

    // The log continues as well. How often the pending request was sent depends on the client.
    let requests = hub.audit().since(&mark).await.unwrap();
    assert!(requests.count(|request| request.verb == "get" && request.name == "kept") >= 2, "{requests}");
    // A paused server can be stopped.
    hub.pause_api_server().await.unwrap();
    hub.stop_api_server().await.unwrap();
}

#[tokio::test]
async fn hubs_start_from_the_same_data_and_have_nothing_of_each_other() {
    // As long as no hub has been ready, each one starts from nothing.
    drop(small().start().await.unwrap());
    let second = small().start().await.unwrap();
    let mine = second.client_as("admin").await.unwrap();
    ocm::namespace("second").create(&mine).await.unwrap();
    let third = small().start().await.unwrap();
    let theirs = third.client_as("admin").await.unwrap();

    let uid = async |client: &Client, name: &str| {
        Api::<Namespace>::all(client.clone())
            .get_opt(name)
            .await
            .unwrap()
            .and_then(|found| found.metadata.uid)
    };
    assert_eq!(uid(&mine, "kube-system").await, uid(&theirs, "kube-system").await);
    assert!(uid(&mine, "second").await.is_some());
    assert_eq!(uid(&theirs, "second").await, None);
}

#[tokio::test]
async fn a_large_fleet_is_made_in_seconds() {
    let hub = LocalHub::builder().without_controller_manager().start().await.unwrap();
    let admin = hub.client_as("admin").await.unwrap();
    let fleet = ocm::Fleet::of(200, 5);
    let start = Instant::now();
    fleet.create(&admin).await.unwrap();
    println!("200 clusters, bound in 5 namespaces: {:?}; {:?}", start.elapsed(), hub.memory().await);

    let clusters: Api<DynamicObject> = ocm::Object::from(fleet.cluster("any")).api(&admin);
    let clusters = clusters.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(clusters.len(), 200);
    for cluster in &clusters {
        assert_eq!(cluster.data["status"]["clusterClaims"].as_array().unwrap().len(), 4);
        assert_eq!(cluster.data["status"]["conditions"].as_array().unwrap().len(), 3);
    }
    let binding = ocm::bound("fleet-04", "fleet");
    let bindings = binding.api(&admin);
    assert_eq!(bindings.get("fleet").await.unwrap().data["status"]["conditions"][0]["status"], "True");

    ocm::unbound("fleet-04", "fleet").label("kept", "yes").update(&admin).await.unwrap();
    let changed = bindings.get("fleet").await.unwrap();
    assert_eq!(changed.data["status"]["conditions"][0]["status"], "False");
    assert_eq!(changed.metadata.labels.unwrap()["kept"], "yes");
}
