//! What fails for one verb in some namespaces, on a real hub: admission webhooks there whose server does not respond.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::net::TcpListener;

use crate::support::SOON;
use crate::support::credentials::{
    content, copied, copy, hub, rotated, secret, syncer, team, token, withdrawn, withheld,
};
use crate::support::world::{create, delete, events, get, told};
use kube::Client;
use kube::api::DeleteParams;
use local_hub::eventually;
use local_hub::ocm::{self, Object};
use serde_json::json;

/// A webhook that the API server calls for one operation on one resource in these namespaces.
fn webhook(name: &str, operation: &str, resource: &str, namespaces: &[&str], url: &str) -> Object {
    let group = if resource == "events" { "events.k8s.io" } else { "" };
    let chosen = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces });
    let gvk = ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    Object::new(gvk, "validatingwebhookconfigurations", None, name).field(
        "webhooks",
        json!([{
            "name": format!("{name}.example.com"),
            "clientConfig": { "url": url },
            "rules": [{
                "apiGroups": [group],
                "apiVersions": ["v1"],
                "operations": [operation],
                "resources": [resource],
            }],
            "namespaceSelector": { "matchExpressions": [chosen] },
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }]),
    )
}

/// Nothing listens there.
const NOT_THERE: &str = "https://127.0.0.1:1/";
const SYNCED: &str = "hub_addons_credentials{state=\"synced\"}";

/// Waits until no Secret can be created there.
async fn refuses_secrets(client: &Client, namespace: &str) {
    let probe = secret(namespace, "probe");
    eventually(&format!("the webhook applies in {namespace}"), SOON, async || {
        let created = probe.create(client).await;
        if created.is_ok() {
            delete(client, &probe).await;
        }
        created.is_err()
    })
    .await;
}

#[tokio::test]
async fn creates_that_fail_in_some_namespaces_delay_no_rotation_elsewhere_and_follow_when_they_can() {
    let hub = hub().await;
    let failing = ["fails-1", "fails-2", "fails-3"];
    let webhook = webhook("creates", "CREATE", "secrets", &failing, NOT_THERE);
    let mut healthy = token("healthy-1", "app");
    let stuck: Vec<_> = failing.iter().map(|name| (*name, token(&format!("{name}-1"), "app"))).collect();
    let addons = syncer(&hub, &[]).await;
    team(&hub.ocm, "healthy", &["healthy-1"]).await;
    healthy.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "healthy", &healthy).await;
    for name in failing {
        team(&hub.ocm, name, &[&format!("{name}-1")]).await;
    }
    create(&hub.ocm, [webhook.clone()]).await;
    for name in failing {
        refuses_secrets(&hub.ocm, name).await;
    }
    ocm::create_tokens(&hub.ocm, stuck.iter().map(|(_, token)| token.clone())).await.unwrap();

    for (name, token) in &stuck {
        let message = withheld(&hub.ocm, token, "WriteRefused").await;
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
        let note = told(&hub.ocm, &copy(name, token), "WriteRefused").await;
        assert!(note.contains("creates.example.com"), "{note}");
    }
    addons.measures(SYNCED, 1.0).await;
    for round in 1..=3 {
        healthy = rotated(&healthy, round);
        healthy.report(&hub.ocm).await.unwrap();
        copied(&hub.ocm, "healthy", &healthy).await;
    }
    for (name, token) in &stuck {
        assert!(get(&hub.ocm, &copy(name, token)).await.is_none(), "the webhook still applies");
    }

    delete(&hub.ocm, &webhook).await;
    for (name, token) in &stuck {
        copied(&hub.ocm, name, token).await;
        content(&hub.ocm, token).await;
    }
    addons.measures(SYNCED, 4.0).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_delete_that_fails_is_reported_and_follows_when_it_can() {
    let hub = hub().await;
    let webhook = webhook("deletes", "DELETE", "secrets", &["kept"], NOT_THERE);
    let (kept, healthy) = (token("kept-1", "app"), token("free-1", "app"));
    let addons = syncer(&hub, &[]).await;
    for (name, token) in [("kept", &kept), ("free", &healthy)] {
        team(&hub.ocm, name, &[&format!("{name}-1")]).await;
        token.create(&hub.ocm).await.unwrap();
        copied(&hub.ocm, name, token).await;
    }
    let probe = secret("kept", "probe");
    create(&hub.ocm, [probe.clone(), webhook.clone()]).await;
    let params = DeleteParams::default().dry_run();
    eventually("the webhook applies", SOON, async || {
        probe.api(&hub.ocm).delete(probe.name(), &params).await.is_err()
    })
    .await;

    for name in ["kept", "free"] {
        delete(&hub.ocm, &ocm::bound(name, name)).await;
    }
    withdrawn(&hub.ocm, "free", &healthy).await;
    withheld(&hub.ocm, &kept, "DeleteRefused").await;
    let note = told(&hub.ocm, &copy("kept", &kept), "WriteRefused").await;
    assert!(note.contains("deletes.example.com"), "{note}");
    assert!(get(&hub.ocm, &copy("kept", &kept)).await.is_some(), "the webhook still applies");
    delete(&hub.ocm, &webhook).await;
    withdrawn(&hub.ocm, "kept", &kept).await;
    addons.stop().await;
}

#[tokio::test]
async fn an_event_that_no_webhook_admits_in_time_delays_no_event_of_another_namespace() {
    let hub = hub().await;
    // Connections are accepted by the kernel, and nothing is ever read.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let webhook = webhook("events", "CREATE", "events", &["mute"], &url);
    let addons = syncer(&hub, &[]).await;
    team(&hub.ocm, "mute", &["mute-1", "mute-2", "mute-3"]).await;
    team(&hub.ocm, "loud", &["loud-1"]).await;
    create(&hub.ocm, [webhook.clone()]).await;
    // Secrets that block a copy are reported in their namespace.
    for name in ["mute-1-app", "mute-2-app", "mute-3-app"] {
        create(&hub.ocm, [secret("mute", name)]).await;
    }
    create(&hub.ocm, [secret("loud", "loud-1-app")]).await;
    ocm::create_tokens(&hub.ocm, ["mute-1", "mute-2", "mute-3"].map(|it| token(it, "app"))).await.unwrap();
    addons.measures_at_least("hub_addons_events_total{result=\"failed\"}", 1.0).await;
    token("loud-1", "app").create(&hub.ocm).await.unwrap();
    told(&hub.ocm, &secret("loud", "loud-1-app"), "ForeignSecret").await;
    assert!(events(&hub.ocm, &secret("mute", "mute-1-app"), "ForeignSecret").await.is_empty());
    delete(&hub.ocm, &webhook).await;
    for name in ["mute-1-app", "mute-2-app", "mute-3-app"] {
        told(&hub.ocm, &secret("mute", name), "ForeignSecret").await;
    }
    addons.stop().await;
}
