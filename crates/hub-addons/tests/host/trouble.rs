//! An API server that is unavailable or refuses requests, and signals to the process, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::proxy::Authority;
use crate::support::shared::caught_up;
use crate::support::shown::{profile, profiles, sees};
use crate::support::world::{self, events, told};
use crate::support::{Addons, Hub, SOON, USER, rights, user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::Kubeconfig;
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{LocalHub, eventually};

const PROJECTOR: &str = "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";
const WATCHED: [&str; 4] =
    ["managedclusters", "managedclustersets", "managedclustersetbindings", "clusterprofiles"];

fn watch_errors(resource: &str, category: &str) -> String {
    format!("hub_addons_watch_errors_total{{resource=\"{resource}\",category=\"{category}\"}}")
}

fn bare() -> local_hub::HubBuilder {
    LocalHub::builder().without_controller_manager()
}

/// The permissions of the projector without one verb on one resource.
fn without(resource: &str, verb: &str) -> Vec<PolicyRule> {
    let mut rules = rights::projector();
    for rule in &mut rules {
        if rule.resources.as_ref().is_some_and(|resources| resources.iter().any(|one| one == resource)) {
            rule.verbs.retain(|one| one != verb);
        }
    }
    rules.retain(|rule| !rule.verbs.is_empty());
    rules
}

#[tokio::test]
async fn an_api_server_that_cannot_be_reached_is_waited_for_with_one_line() {
    let hub = Hub::start(bare(), rights::projector()).await;
    hub.grant("projector", rights::projector()).await.unwrap();
    hub.stop_api_server().await.unwrap();
    let candidate = Addons::launch(&hub, "candidate", USER, &[PROJECTOR]).await;
    let alone = Addons::launch(&hub, "alone", "projector", &[PROJECTOR, "--leader-elect=false"]).await;
    // Profiles are watched once the served version is known.
    let watched = WATCHED.map(|it| if it == "clusterprofiles" { "customresourcedefinitions" } else { it });
    for resource in watched {
        alone.measures_at_least(&watch_errors(resource, "unavailable"), 4.0).await;
    }
    assert_eq!(alone.lines_with("cannot watch managedcluster"), 1, "{}", alone.log());
    assert_eq!(alone.lines_with("WARN"), 1, "{}", alone.log());
    assert!(alone.log().contains("onnection refused"), "{}", alone.log());
    assert_eq!(alone.probe("/readyz").await.0, 503);
    assert_eq!(alone.probe("/livez").await.0, 200, "a restart would not help");
    assert_eq!(candidate.lines_with("cannot acquire the lease, retrying"), 1, "{}", candidate.log());
    assert_eq!(candidate.lines_with("WARN"), 1, "{}", candidate.log());

    hub.start_api_server().await.unwrap();
    for addons in [&candidate, &alone] {
        addons.logs("working", "all watches are synced").await;
        assert_eq!(addons.probe("/readyz").await.0, 200);
    }
    caught_up(&hub.ocm, "there").await;
    alone.stop().await;
    caught_up(&hub.ocm, "there-again").await;
    candidate.stop().await;
}

#[tokio::test]
async fn an_api_server_with_a_certificate_of_another_authority_receives_no_request() {
    let hub = Hub::start(bare(), rights::projector()).await;
    let mut config = Kubeconfig::read_from(hub.kubeconfig_for(USER).unwrap()).unwrap();
    for cluster in config.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
        cluster.certificate_authority = None;
        cluster.certificate_authority_data = Some(STANDARD.encode(Authority::new("another").pem()));
    }
    let path = hub.directory().join("another-authority.kubeconfig");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::launch_with(&hub, "hub-addons", &path, &[PROJECTOR, "--leader-elect=false"]).await;
    addons.measures_at_least(&watch_errors("managedclusters", "unavailable"), 2.0).await;
    assert!(addons.log().contains("invalid peer certificate: UnknownIssuer"), "{}", addons.log());
    assert_eq!(addons.probe("/readyz").await.0, 503);
    // No request, and so no credential either.
    let requests = hub.audit().since(&mark).await.unwrap().of_user(user());
    assert_eq!(requests.count(|_| true), 0, "{requests}");

    // Once the kubeconfig has the authority, as after a rotation, the process trusts it without a restart.
    std::fs::copy(hub.kubeconfig_for(USER).unwrap(), &path).unwrap();
    addons.logs("working", "all watches are synced").await;
    assert_eq!(addons.lines_with("the CA certificates of the hub have changed"), 1, "{}", addons.log());
    addons.stop().await;
}

#[tokio::test]
async fn missing_permissions_are_one_line_each_and_work_begins_when_they_are_granted() {
    let hub = Hub::start(bare(), Vec::new()).await;
    let addons = Addons::launch(&hub, "hub-addons", USER, &[PROJECTOR]).await;
    addons.logs("without a permission", "cannot acquire the lease, retrying").await;
    let line =
        addons.log().lines().find(|line| line.contains("cannot acquire the lease")).unwrap().to_owned();
    assert!(line.contains("category=\"forbidden\""), "{line}");
    assert!(line.contains("cannot get resource \\\"leases\\\""), "{line}");

    hub.grant(USER, rights::host()).await.unwrap();
    for resource in WATCHED {
        addons.measures_at_least(&watch_errors(resource, "forbidden"), 3.0).await;
        let line = format!("cannot watch {resource}, retrying");
        assert_eq!(addons.lines_with(&line), 1, "{}", addons.log());
    }
    // The Lease, and the CRD, without which it can work.
    assert_eq!(addons.lines_with("WARN"), 2 + WATCHED.len(), "{}", addons.log());
    assert_eq!(addons.probe("/readyz").await.0, 503);

    hub.grant(USER, rights::projector()).await.unwrap();
    addons.logs("working", "all watches are synced").await;
    caught_up(&hub.ocm, "granted").await;
    addons.stop().await;
}

#[tokio::test]
async fn a_missing_permission_for_events_fails_no_work() {
    let hub = Hub::start(bare(), without("events", "create")).await;
    let addons = hub.projector(&[]).await;
    let cluster = ManagedCluster::named("mute").in_set("mute").claim("a", "1").claim("a", "2");
    let objects =
        [ocm::namespace("mute"), ocm::cluster_set("mute"), ocm::bound("mute", "mute"), cluster.into()];
    world::create(&hub.ocm, objects).await;
    addons.measures_at_least("hub_addons_events_total{result=\"failed\"}", 1.0).await;
    addons.measures("hub_addons_findings{reason=\"ClaimSkipped\"}", 1.0).await;
    profile(&hub.ocm, ("mute", "mute"), "has its properties", |p| p["status"]["properties"].is_array()).await;
    assert_eq!(addons.metric("hub_addons_events_total{result=\"published\"}").await, Some(0.0));
    caught_up(&hub.ocm, "after").await;
    addons.stop().await;
}

#[tokio::test]
async fn a_refused_write_is_reported_once_and_retried_with_backoff() {
    let hub = Hub::start(bare(), without("clusterprofiles", "create")).await;
    let addons = hub.projector(&[]).await;
    let refused = |version: &str| ManagedCluster::named("refused").in_set("refused").version(version);
    let objects = [
        refused("v1.1.0").into(),
        ocm::namespace("refused"),
        ocm::cluster_set("refused"),
        ocm::bound("refused", "refused"),
    ];
    let mark = hub.audit().mark().await.unwrap();
    world::create(&hub.ocm, objects).await;
    let about = world::profile_of("open-cluster-management", "refused", "refused");
    let note = told(&hub.ocm, &about, "WriteRefused").await;
    assert!(note.contains("cannot create resource \"clusterprofiles\""), "{note}");
    let errors = "hub_addons_reconcile_errors_total{controller=\"clusterprofiles\",category=\"forbidden\"}";
    let finding = "hub_addons_findings{reason=\"WriteRefused\"}";
    addons.measures_at_least(errors, 1.0).await;
    addons.measures(finding, 1.0).await;

    // A change causes an immediate retry, and the finding is not reported again.
    for (version, tries) in [("v1.2.0", 2.0), ("v1.3.0", 3.0)] {
        refused(version).update(&hub.ocm).await.unwrap();
        addons.measures_at_least(errors, tries).await;
    }
    addons.measures(finding, 1.0).await;
    let tries = hub.audit().since(&mark).await.unwrap().of_user(USER);
    // An update here is two changes: the object, then its status. Without changes, retries back off, starting with two
    // seconds.
    let creates = tries.count(|request| request.verb == "create" && request.target() == "clusterprofiles");
    assert!(creates <= 9, "{tries}");
    assert_eq!(addons.lines_with("WriteRefused"), 1, "{}", addons.log());
    assert_eq!(events(&hub.ocm, &about, "WriteRefused").await.len(), 1);

    // Without the grant there is nothing to write, and so no refused write.
    let binding = ocm::bound("refused", "refused");
    world::delete(&hub.ocm, &binding).await;
    addons.measures(finding, 0.0).await;
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    world::create(&hub.ocm, [binding]).await;
    addons.measures(finding, 1.0).await;

    hub.grant(USER, rights::projector()).await.unwrap();
    refused("v1.4.0").update(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "refused", &["refused"]).await;
    addons.measures(finding, 0.0).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_signal_in_the_middle_of_a_cold_start_leaves_no_profile_half_done() {
    let hub = Hub::start(bare(), rights::projector()).await;
    let fleet = ocm::Fleet::of(60, 10);
    fleet.create(&hub.ocm).await.unwrap();
    let all: Api<DynamicObject> = Api::all_with(hub.ocm.clone(), &crate::support::shown::resource());
    let count = async || all.list_metadata(&ListParams::default()).await.unwrap().items.len();
    let mut before = 0;
    for _ in 0..2 {
        let addons = hub.projector(&[]).await;
        eventually("some more profiles are there", SOON, async || count().await > before + 10).await;
        addons.signal("TERM").await;
        assert_eq!(addons.exit_status().await, Some(0), "{}", addons.log());
        assert_eq!(addons.lines_with("lease released"), 1, "{}", addons.log());
        let profiles = all.list(&ListParams::default()).await.unwrap().items;
        for profile in &profiles {
            assert!(profile.data["status"]["version"].is_object(), "{profile:?}\n{}", addons.log());
        }
        before = profiles.len();
        assert!(before < 600, "it was not in the middle");
    }
    // The next process continues.
    let addons = hub.projector(&[]).await;
    eventually("all are there", SOON, async || count().await == 600).await;
    for namespace in &fleet.namespaces {
        let api = profiles(&hub.ocm, namespace);
        eventually("each has a status", SOON, async || {
            let list = api.list(&ListParams::default()).await?.items;
            Ok::<_, kube::Error>(list.iter().all(|profile| profile.data["status"].is_object()))
        })
        .await;
    }
    addons.stop().await;
}
