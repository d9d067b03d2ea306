//! The cost of the credential syncer: requests, counted in the API server's audit log (the scenarios of the benchmark
//! count the same for 200 clusters in 5 namespaces); and memory on a hub full of unrelated Secrets.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::proxy::has_written;
use crate::support::{Addons, Hub, SOON, USER, WHOLE_FLEET, rights};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use local_hub::ocm::{ServiceAccountToken, create_tokens};
use local_hub::{LocalHub, Requests, eventually, ocm};
use serde_json::json;

/// Starts only the syncer.
const SYNCER: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false";
/// Starts the projector, too.
const BOTH: &str = "--feature-gates=ClusterProfile=true,ClusterProfileAccessProvider=false";
const SYNCED: &str = "hub_addons_credentials{state=\"synced\"}";
const IDLE: &str = "hub_addons_queue_depth{controller=\"secrets\"}";
const ACCOUNT: &str = "app";

/// A hub with the permissions of projector and syncer, whose fleet has its profiles.
async fn hub_with_profiles(fleet: &ocm::Fleet) -> Hub {
    let mut rules = rights::projector();
    rules.extend(rights::syncer());
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    fleet.create(&hub.ocm).await.unwrap();
    let projector = hub.projector(&[]).await;
    let profiles = fleet.clusters.len() * fleet.namespaces.len();
    has_written(&projector, u32::try_from(profiles).unwrap()).await;
    projector.stop().await;
    hub
}

/// The program's requests, except those for its Lease.
fn of_addons(requests: &Requests) -> Requests {
    requests.of_user(USER).matching(|request| request.resource != "leases")
}

fn token_of(cluster: &str) -> ServiceAccountToken {
    ServiceAccountToken::of(cluster, ACCOUNT).synced()
}

#[tokio::test]
async fn a_fleet_costs_one_create_a_copy_a_rotation_one_patch_and_a_restart_nothing() {
    let fleet = ocm::Fleet::of(40, 5);
    let hub = hub_with_profiles(&fleet).await;
    create_tokens(&hub.ocm, fleet.clusters.iter().map(|cluster| token_of(cluster))).await.unwrap();

    let before = hub.audit().mark().await.unwrap();
    let addons = Addons::beside(&hub, &[SYNCER]).await;
    addons.measures_within(SYNCED, 200.0, WHOLE_FLEET).await;
    addons.measures(IDLE, 0.0).await;
    let cold = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(cold.count(|r| r.verb == "create" && r.resource == "secrets"), 200, "{cold}");
    assert_eq!(cold.writes().len(), 200, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "get"), 0, "{cold}");
    // Clusters, sets, bindings, profiles and their definition, accounts, tokens, copies: one list each.
    assert_eq!(cold.count(|r| r.verb == "list"), 8, "{cold}");
    assert_eq!(cold.count(|r| r.code >= 400), 0, "{cold}");

    let before = hub.audit().mark().await.unwrap();
    token_of("cluster-0007").token(b"rotated").report(&hub.ocm).await.unwrap();
    for namespace in &fleet.namespaces {
        holds(&hub.ocm, namespace, "cluster-0007-app", b"rotated").await;
    }
    addons.measures("hub_addons_credential_sync_seconds_count", 5.0).await;
    addons.measures(IDLE, 0.0).await;
    let rotation = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(rotation.count(|r| r.verb == "patch" && r.resource == "secrets"), 5, "{rotation}");
    assert_eq!(rotation.writes().len(), 5, "{rotation}");
    assert_eq!(rotation.count(|r| r.verb == "get" || r.verb == "list" || r.code >= 400), 0, "{rotation}");
    addons.stop().await;

    // Profiles are watched once for all controllers of a process.
    let before = hub.audit().mark().await.unwrap();
    let addons = Addons::beside(&hub, &[BOTH]).await;
    addons.measures_within(SYNCED, 200.0, WHOLE_FLEET).await;
    addons.measures(IDLE, 0.0).await;
    let restart = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(restart.writes().len(), 0, "{restart}");
    assert_eq!(restart.count(|r| r.verb == "get"), 0, "{restart}");
    assert_eq!(restart.count(|r| r.verb == "list"), 8, "{restart}");

    // Changes of every input that affect no copy; the deleted cluster proves that they were processed.
    let before = hub.audit().mark().await.unwrap();
    fleet.cluster("cluster-0001").label("nobody-asks", "for-this").update(&hub.ocm).await.unwrap();
    let leaving = fleet.cluster("cluster-0002").label(ocm::SET_LABEL, "elsewhere");
    leaving.update(&hub.ocm).await.unwrap();
    addons.measures(SYNCED, 195.0).await;
    addons.measures(IDLE, 0.0).await;
    let change = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(change.count(|r| r.verb == "delete" && r.resource == "secrets"), 5, "{change}");
    assert_eq!(change.count(|r| r.resource == "secrets" && r.verb != "delete"), 0, "{change}");
}

/// Waits until a copy contains a token.
async fn holds(client: &Client, namespace: &str, name: &str, token: &[u8]) {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    eventually(&format!("{namespace}/{name} contains the token"), SOON, async || {
        let data = api.get_opt(name).await.unwrap().and_then(|secret| secret.data).unwrap_or_default();
        data.get("token").is_some_and(|held| held.0 == token)
    })
    .await;
}

/// The size and number of the other Secrets: 20 MB in all, five times what is allowed to be added.
const OTHERS: (usize, usize) = (8 * 1024, 2_500);

#[tokio::test]
async fn thousands_of_other_secrets_of_the_hub_never_enter_the_process() {
    let fleet = ocm::Fleet::of(20, 2);
    let hub = hub_with_profiles(&fleet).await;
    create_tokens(&hub.ocm, fleet.clusters.iter().map(|cluster| token_of(cluster))).await.unwrap();
    let addons = Addons::beside(&hub, &[SYNCER]).await;
    addons.measures(SYNCED, 40.0).await;
    let alone = peak_memory(&addons);
    addons.stop().await;

    // In a namespace without copies, and in one with copies.
    let namespaces = ["others".to_owned(), fleet.namespaces[0].clone()];
    ocm::namespace(&namespaces[0]).create(&hub.ocm).await.unwrap();
    let filling = "x".repeat(OTHERS.0);
    futures::stream::iter(0..OTHERS.1)
        .map(async |number: usize| {
            let secret = json!({
                "metadata": { "name": format!("other-{number}") },
                "stringData": { "token": filling },
            });
            let secret: Secret = serde_json::from_value(secret).unwrap();
            let api: Api<Secret> = Api::namespaced(hub.ocm.clone(), &namespaces[number % 2]);
            api.create(&PostParams::default(), &secret).await.map(drop)
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await
        .unwrap();

    let addons = Addons::beside(&hub, &[SYNCER]).await;
    addons.measures(SYNCED, 40.0).await;
    let beside = peak_memory(&addons);
    println!(
        "peak memory: {alone} KiB alone, {beside} KiB beside {} other Secrets of {} bytes",
        OTHERS.1, OTHERS.0
    );
    assert!(beside < alone + 4 * 1024, "{beside} KiB beside others, {alone} KiB alone");

    // Nor when they change.
    let api: Api<Secret> = Api::namespaced(hub.ocm.clone(), &namespaces[1]);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().fields("metadata.name=other-1"))
        .await
        .unwrap();
    token_of(&fleet.clusters[0]).token(b"rotated").report(&hub.ocm).await.unwrap();
    holds(&hub.ocm, &namespaces[1], &format!("{}-app", fleet.clusters[0]), b"rotated").await;
    assert!(!addons.log().contains("other-1"), "{}", addons.log());
    assert!(peak_memory(&addons) < alone + 4 * 1024);
    addons.stop().await;
}

/// The peak memory of the program in KiB, as the kernel counts it.
fn peak_memory(addons: &Addons) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", addons.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
