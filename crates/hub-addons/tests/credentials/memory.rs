//! The memory of the syncer's process after a tenant has filled its namespace with large Secrets, or a cluster's agent its
//! own with large accounts, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use local_hub::ocm::{self, TOKEN_LABEL};
use local_hub::{LocalHub, eventually};
use serde_json::json;

use super::rights::{SUBJECT, install, permission};
use crate::support::credentials::{SYNCED_FROM, SYNCER, copied, rotated, team, token};
use crate::support::world::{create, get, merge};
use crate::support::{Addons, Hub, SOON, rights};

/// The maximum memory of a process at its start, in kibibytes, whatever the tenant stores.
const MOST: u64 = 64 * 1024;
/// The number of Secrets of the tenant.
const SECRETS: usize = 300;
/// A size close to the maximum that an API server accepts for a Secret, in bytes.
const LARGE: usize = 900 * 1024;
/// A size at which the Secrets are stored and read quickly, in bytes.
const MIDDLE: usize = 64 * 1024;

/// The size of a Secret. All are large only on request, since it takes long to store and read them.
fn bytes(number: usize) -> usize {
    let all = std::env::var_os("BAD_DAYS_LARGE_SECRETS").is_some();
    if all || number.is_multiple_of(15) { LARGE } else { MIDDLE }
}

/// The size of all Secrets, in bytes.
fn total() -> usize {
    (0..SECRETS).map(bytes).sum()
}

/// Fills a namespace with Secrets that carry the labels by which the syncer finds tokens and credentials.
async fn fill(hub: &Hub, namespace: &str) {
    let api: Api<Secret> = Api::namespaced(hub.ocm.clone(), namespace);
    let labels: [(String, String); 2] =
        [(TOKEN_LABEL, "true"), (SYNCED_FROM, "x")].map(|(key, value)| (key.into(), value.into()));
    let secrets = futures::stream::iter(0..SECRETS).map(|number| {
        let (api, labels) = (api.clone(), [labels[number % 2].clone()]);
        async move {
            let metadata = ObjectMeta {
                name: Some(format!("large-{number}")),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            };
            let data = [("token".to_owned(), ByteString(vec![b'x'; bytes(number)]))];
            let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
            api.create(&PostParams::default(), &secret).await
        }
    });
    secrets.buffer_unordered(4).try_for_each(|_| std::future::ready(Ok(()))).await.unwrap();
}

/// The peak memory of a process, in kibibytes.
fn peak(addons: &Addons) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", addons.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap()
}

/// Asserts that the peak memory of a process is within the limit, and that it does not hold all that it reads.
fn assert_bounded(addons: &Addons, without_secrets: u64, read: usize) {
    let peak = peak(addons);
    assert!(peak <= MOST, "{peak} KiB");
    let part = u64::try_from(read * 2 / 3).unwrap() >> 10;
    assert!(peak <= without_secrets + part, "{peak} KiB, and {without_secrets} KiB without the Secrets");
}

/// A RoleBinding that has every mark of the one that the syncer is granted.
async fn forge_permission(hub: &Hub, namespace: &str) {
    let role = ("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let role = ocm::Object::new(role, "clusterroles", None, "hub-addons-copies");
    let uid = get(&hub.ocm, &role).await.unwrap()["metadata"]["uid"].clone();
    let forged = permission(namespace)
        .label("app.kubernetes.io/managed-by", "hub-addons")
        .label("app.kubernetes.io/component", "credential-rights")
        .field(
            "roleRef",
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name() }),
        )
        .field("subjects", json!([{ "kind": "ServiceAccount", "namespace": SUBJECT.0, "name": SUBJECT.1 }]));
    forged.create(&hub.ocm).await.unwrap();
    let owner = json!([{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": role.name(), "uid": uid,
    }]);
    merge(&hub.ocm, &permission(namespace), &json!({ "metadata": { "ownerReferences": owner } })).await;
}

#[allow(clippy::print_stdout, reason = "hack/robustness.sh prints these lines")]
fn report(access: &str, addons: &Addons) {
    println!(
        "| start with {access} | {SECRETS} Secrets of a tenant, {} MiB | peak of {} MiB |",
        total() >> 20,
        peak(addons) >> 10
    );
}

#[tokio::test]
async fn a_tenant_with_300_large_secrets_and_a_forged_permission_does_not_exhaust_the_syncers_memory() {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rights::syncer()).await;
    team(&hub.ocm, "team", &["team-1"]).await;
    let token = token("team-1", "app");
    token.create(&hub.ocm).await.unwrap();
    let empty = Addons::beside(&hub, &[SYNCER]).await;
    let without_secrets = peak(&empty);
    empty.stop().await;
    create(&hub.ocm, [ocm::namespace("hostile")]).await;
    fill(&hub, "hostile").await;
    let token = rotated(&token, 1);
    token.report(&hub.ocm).await.unwrap();

    let every_secret = Addons::beside(&hub, &[SYNCER]).await;
    copied(&hub.ocm, "team", &token).await;
    report("access to every Secret", &every_secret);
    assert_bounded(&every_secret, without_secrets, total());
    every_secret.stop().await;

    install(&hub).await;
    let account = hub.service_account(SUBJECT.0, SUBJECT.1).await.unwrap();
    hub.grant_service_account(SUBJECT.0, SUBJECT.1, rights::syncer_granted()).await.unwrap();
    let role = ("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let names = json!([{
        "apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"], "resourceNames": ["app"],
    }]);
    let role = ocm::Object::new(role, "clusterroles", None, "hub-addons-tokens");
    merge(&hub.ocm, &role, &json!({ "rules": names })).await;
    for namespace in ["team", "hostile"] {
        forge_permission(&hub, namespace).await;
    }
    let mark = hub.audit().mark().await.unwrap();
    let granted = [SYNCER, "--credential-secret-access=granted", "--leader-elect=false"];
    let granted = Addons::launch_with(&hub, "granted", account.kubeconfig(), &granted).await;
    let token = rotated(&token, 2);
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    eventually("it has read the large Secrets", SOON, async || {
        let requests = hub.audit().since(&mark).await.unwrap();
        requests.count(|request| {
            request.verb == "watch" && request.resource == "secrets" && request.namespace == "hostile"
        }) > 0
    })
    .await;
    report("granted access", &granted);
    // Half of the Secrets have the label of copies. Tokens are read by name.
    assert_bounded(&granted, without_secrets, total() / 2);
    granted.stop().await;
}
