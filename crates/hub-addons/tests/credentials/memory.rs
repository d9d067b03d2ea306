//! The memory of the syncer's process on a real hub full of Secrets: of others, and of a tenant who has filled its namespace
//! with large ones.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use local_hub::eventually;
use local_hub::ocm::{self, TOKEN_LABEL};
use serde_json::json;

use crate::support::credentials::{SYNCED_FROM, SYNCER, copied, rotated, secret, team, token};
use crate::support::world::{self, create, delete, get, merge};
use crate::support::{Addons, Hub, SOON, rights};

/// The maximum memory of a process at its start, in kibibytes, whatever the tenant stores.
const MOST: u64 = 64 * 1024;
/// The number of Secrets of the tenant.
const SECRETS: usize = 300;
/// A size close to the maximum that an API server accepts for a Secret, in bytes.
const LARGE: usize = 900 * 1024;
/// A size at which the Secrets are stored and read quickly, in bytes.
const MIDDLE: usize = 64 * 1024;

/// The size of a Secret. It takes long to store and read large ones.
fn bytes(number: usize) -> usize {
    if number.is_multiple_of(15) { LARGE } else { MIDDLE }
}

/// The size of all Secrets, in bytes.
fn total() -> usize {
    (0..SECRETS).map(bytes).sum()
}

/// Creates Secrets, each in a namespace, with a label or none, and of a size in bytes.
async fn fill<'a>(
    hub: &Hub,
    count: usize,
    secret: impl Fn(usize) -> (&'a str, Option<(&'a str, &'a str)>, usize),
) {
    let secrets = futures::stream::iter(0..count).map(|number| {
        let (namespace, label, bytes) = secret(number);
        let api: Api<Secret> = Api::namespaced(hub.ocm.clone(), namespace);
        let label = label.map(|(key, value)| (key.to_owned(), value.to_owned()));
        async move {
            let metadata = ObjectMeta {
                name: Some(format!("other-{number}")),
                labels: Some(label.into_iter().collect()),
                ..ObjectMeta::default()
            };
            let data = [("token".to_owned(), ByteString(vec![b'x'; bytes]))];
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
    assert!(
        peak <= without_secrets + part,
        "{peak} KiB, and {without_secrets} KiB without the Secrets"
    );
}

/// The ServiceAccount of the syncer.
const SUBJECT: (&str, &str) = ("addons", "hub-addons");

/// The two roles of an installation, of which the syncer has the one that lets it read this account's tokens.
async fn install(hub: &Hub, account: &str) {
    let read = rights::rule(&format!("list,watch secrets named {account}"));
    let copies = rights::rule("create,delete,get,list,patch,watch secrets");
    for (name, rule) in [("hub-addons-tokens", read), ("hub-addons-copies", copies)] {
        let role = world::object("ClusterRole", None, name).field("rules", json!([rule]));
        create(&hub.ocm, [role]).await;
    }
    let subject = world::account(SUBJECT.0, SUBJECT.1);
    let tokens = world::binding(None, "tokens", ("ClusterRole", "hub-addons-tokens"), subject);
    create(&hub.ocm, [tokens]).await;
}

/// A RoleBinding that has every mark of the one that the syncer is granted.
async fn forge_permission(hub: &Hub, namespace: &str) {
    let role = world::object("ClusterRole", None, "hub-addons-copies");
    let uid = get(&hub.ocm, &role).await.unwrap()["metadata"]["uid"].clone();
    let subject = world::account(SUBJECT.0, SUBJECT.1);
    let forged =
        world::binding(Some(namespace), role.name(), ("ClusterRole", role.name()), subject)
            .label("app.kubernetes.io/managed-by", "hub-addons")
            .label("app.kubernetes.io/component", "credential-rights");
    forged.create(&hub.ocm).await.unwrap();
    let owner = json!([{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": role.name(), "uid": uid,
    }]);
    merge(&hub.ocm, &forged, &json!({ "metadata": { "ownerReferences": owner } })).await;
}

#[tokio::test]
async fn a_tenant_with_300_large_secrets_and_a_forged_permission_does_not_exhaust_the_syncers_memory()
 {
    let hub = Hub::of(rights::syncer()).await;
    team(&hub.ocm, "team", &["team-1"]).await;
    let token = token("team-1", "app");
    token.create(&hub.ocm).await.unwrap();
    let empty = Addons::start(&hub, &[SYNCER]).await;
    let without_secrets = peak(&empty);
    empty.stop().await;
    create(&hub.ocm, [ocm::namespace("hostile")]).await;
    // With the labels by which the syncer finds tokens and copies.
    let labels = [(TOKEN_LABEL, "true"), (SYNCED_FROM, "x")];
    fill(&hub, SECRETS, |number| ("hostile", Some(labels[number % 2]), bytes(number))).await;
    let token = rotated(&token, 1);
    token.report(&hub.ocm).await.unwrap();

    let every_secret = Addons::start(&hub, &[SYNCER]).await;
    copied(&hub.ocm, "team", &token).await;
    assert_bounded(&every_secret, without_secrets, total());
    every_secret.stop().await;

    install(&hub, "app").await;
    let account = hub.service_account(SUBJECT.0, SUBJECT.1).await.unwrap();
    hub.grant_service_account(SUBJECT.0, SUBJECT.1, rights::syncer_granted()).await.unwrap();
    for namespace in ["team", "hostile"] {
        forge_permission(&hub, namespace).await;
    }
    let mark = hub.audit().mark().await.unwrap();
    let subject = format!("--credential-rights-subject={}/{}", SUBJECT.0, SUBJECT.1);
    let granted = [SYNCER, &subject, "--leader-elect=false"];
    let granted = Addons::launch_with(&hub, "granted", account.kubeconfig(), &granted).await;
    let token = rotated(&token, 2);
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    eventually("it has read the large Secrets", SOON, async || {
        let requests = hub.audit().since(&mark).await.unwrap();
        requests.count(|request| {
            request.verb == "watch"
                && request.resource == "secrets"
                && request.namespace == "hostile"
        }) > 0
    })
    .await;
    // Half of the Secrets have the label of copies. Tokens are read by name.
    assert_bounded(&granted, without_secrets, total() / 2);
    granted.stop().await;
}

/// The number and size of Secrets that are neither tokens nor copies: 20 MB in all, five times what they may add.
const OTHERS: (usize, usize) = (2_500, 8 * 1024);

#[tokio::test]
async fn thousands_of_other_secrets_of_the_hub_never_enter_the_process() {
    let hub = Hub::of(rights::syncer()).await;
    team(&hub.ocm, "team", &["team-1"]).await;
    let token = token("team-1", "app");
    token.create(&hub.ocm).await.unwrap();
    let addons = Addons::start(&hub, &[SYNCER]).await;
    copied(&hub.ocm, "team", &token).await;
    let most = peak(&addons) + 4 * 1024;
    addons.stop().await;
    // In a namespace without copies, and in one with copies.
    create(&hub.ocm, [ocm::namespace("others")]).await;
    fill(&hub, OTHERS.0, |number| (["others", "team"][number % 2], None, OTHERS.1)).await;

    let addons = Addons::start(&hub, &[SYNCER]).await;
    let token = rotated(&token, 1);
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    assert!(peak(&addons) < most, "{} KiB", peak(&addons));
    // Nor when they change.
    delete(&hub.ocm, &secret("team", "other-1")).await;
    let token = rotated(&token, 2);
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    assert!(!addons.log().contains("other-1"), "{}", addons.log());
    assert!(peak(&addons) < most, "{} KiB", peak(&addons));
    addons.stop().await;
}
