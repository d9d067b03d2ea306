//! Copies that do not record their account, as the syncer finds them at its start on a real hub: OCM's syncer made them,
//! or a tenant has removed the annotations.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use local_hub::ocm::{MADE_UP_CA, Object, ServiceAccountToken};
use local_hub::{Fate, FaultProxy, Meddler};
use serde_json::{Value, json};

use super::rights::{PROFILES, SUBJECT, hub_with_permissions, subject};
use crate::support::credentials::{
    SYNCED_FROM, SYNCER, caught_up, copied, copy, hub, label, name_of, profile, syncer, team, token,
    withdrawn, withheld,
};
use crate::support::world::{delete, get, merge, told};
use crate::support::{Addons, USER, rights};

/// Delays the lists of one kind, so that those of all others are complete first.
struct Late(&'static str);

impl Meddler for Late {
    fn fate(&self, _: &Method, path_and_query: &str) -> Fate {
        let is_late = path_and_query.split('?').next().is_some_and(|path| path.ends_with(self.0));
        if is_late { Fate::Delay(Duration::from_secs(1)) } else { Fate::Pass }
    }
}

async fn remove_annotations(client: &Client, namespace: &str, tokens: [&ServiceAccountToken; 3]) {
    for token in tokens {
        let patch = json!({ "metadata": { "annotations": null } });
        merge(client, &copy(namespace, token), &patch).await;
    }
}

/// An account that nothing else shares its name with, one whose name another account has, and one that opts in still.
async fn accounts(client: &Client, namespace: &str) -> [ServiceAccountToken; 4] {
    let [one, two] = ["1", "2"].map(|number| format!("{namespace}-{number}"));
    team(client, namespace, &[&one, &two]).await;
    let (alone, shared) = (format!("{namespace}-alone"), format!("{namespace}-shared"));
    let tokens = [token(&one, &alone), token(&one, &shared), token(&one, "kept"), token(&two, &shared)];
    for token in &tokens {
        token.create(client).await.unwrap();
    }
    tokens
}

#[tokio::test]
async fn a_copy_without_annotations_whose_account_opted_out_while_no_syncer_ran_ends_in_each_order_of_the_first_lists()
 {
    let hub = hub().await;
    for late in ["/secrets", "/managedserviceaccounts"] {
        let namespace = late.trim_start_matches('/');
        let tokens = accounts(&hub.ocm, namespace).await;
        let [alone, shared, kept, other] = &tokens;
        let addons = syncer(&hub, &[]).await;
        for token in &tokens {
            copied(&hub.ocm, namespace, token).await;
        }
        let (kept_copy, others_copy) =
            (get(&hub.ocm, &copy(namespace, kept)).await, copied(&hub.ocm, namespace, other).await);
        addons.stop().await;
        remove_annotations(&hub.ocm, namespace, [alone, shared, kept]).await;
        for token in [alone, shared] {
            label(&hub.ocm, token, None).await;
        }

        let proxy = FaultProxy::start(&hub, Arc::new(Late(late))).await.unwrap();
        let kubeconfig = proxy.kubeconfig_for(&hub, USER).unwrap();
        let addons = Addons::launch_with(&hub, late.trim_start_matches('/'), &kubeconfig, &[SYNCER]).await;
        for token in [alone, shared] {
            withdrawn(&hub.ocm, namespace, token).await;
        }
        let now = copied(&hub.ocm, namespace, kept).await;
        assert_eq!(now["metadata"]["uid"], kept_copy.unwrap()["metadata"]["uid"], "its token is right");
        assert_eq!(copied(&hub.ocm, namespace, other).await, others_copy);
        addons.stop().await;
    }
}

/// Where the syncer reads only the tokens of names that opt in, it does not know that of an account that has opted out.
#[tokio::test]
async fn a_copy_without_annotations_whose_account_opted_out_ends_also_where_its_token_is_not_read() {
    let hub = hub_with_permissions().await;
    let account = hub.service_account(SUBJECT.0, SUBJECT.1).await.unwrap();
    hub.grant_service_account(SUBJECT.0, SUBJECT.1, rights::syncer_granted()).await.unwrap();
    let _profiles = Addons::beside(&hub, &[PROFILES, &subject()]).await;
    let granted = [SYNCER, "--credential-secret-access=granted", "--leader-elect=false"];
    let tokens = accounts(&hub.ocm, "granted").await;
    let [alone, shared, kept, other] = &tokens;
    let syncer = Addons::launch_with(&hub, "syncer", account.kubeconfig(), &granted).await;
    for token in &tokens {
        copied(&hub.ocm, "granted", token).await;
    }
    syncer.stop().await;
    remove_annotations(&hub.ocm, "granted", [alone, shared, kept]).await;
    for token in [alone, shared] {
        label(&hub.ocm, token, None).await;
    }
    let _syncer = Addons::launch_with(&hub, "syncer-again", account.kubeconfig(), &granted).await;
    for token in [alone, shared] {
        withdrawn(&hub.ocm, "granted", token).await;
    }
    copied(&hub.ocm, "granted", kept).await;
    copied(&hub.ocm, "granted", other).await;
}

/// The copy of an earlier token, exactly as OCM's syncer makes it, with a difference.
async fn made_by_ocm(client: &Client, namespace: &str, token: &ServiceAccountToken, patch: &Value) -> Value {
    let cluster = token.account().namespace().unwrap().to_owned();
    let uid = get(client, &profile(namespace, &cluster)).await.unwrap()["metadata"]["uid"].clone();
    let owner = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "name": cluster, "uid": uid,
        "controller": true,
    });
    let secret = of_ocm(namespace, token);
    secret.create(client).await.unwrap();
    merge(client, &secret, &json!({ "metadata": { "ownerReferences": [owner] } })).await;
    merge(client, &secret, patch).await;
    get(client, &secret).await.unwrap()
}

fn of_ocm(namespace: &str, token: &ServiceAccountToken) -> Object {
    let name = name_of(token);
    copy(namespace, token)
        .label(SYNCED_FROM, &name)
        .field("type", json!("Opaque"))
        .field("stringData", json!({ "token": "an earlier one", "ca.crt": MADE_UP_CA }))
}

#[tokio::test]
async fn a_copy_of_ocms_syncer_whose_token_was_rotated_is_replaced_and_one_whose_account_is_gone_ends() {
    let hub = hub().await;
    team(&hub.ocm, "left", &["left-1"]).await;
    let account = |name: &str| token("left-1", name);
    let [turned, gone, silent] = ["turned", "gone", "silent"].map(account);
    let near_misses = [
        ("labelled", json!({ "metadata": { "labels": { "team": "x" } } })),
        ("annotated", json!({ "metadata": { "annotations": { "note": "x" } } })),
        ("disowned", json!({ "metadata": { "ownerReferences": null } })),
        ("immutable", json!({ "immutable": true })),
        ("fuller", json!({ "stringData": { "more": "x" } })),
        ("emptier", json!({ "data": { "ca.crt": null } })),
    ];
    let unchanged = json!({});
    let mut foreign = Vec::new();
    for (name, patch) in &near_misses {
        account(name).create(&hub.ocm).await.unwrap();
        foreign.push((account(name), made_by_ocm(&hub.ocm, "left", &account(name), patch).await));
    }
    for token in [&turned, &gone, &silent] {
        token.create(&hub.ocm).await.unwrap();
    }
    let before = made_by_ocm(&hub.ocm, "left", &turned, &unchanged).await;
    for token in [&gone, &silent] {
        made_by_ocm(&hub.ocm, "left", token, &unchanged).await;
    }
    delete(&hub.ocm, &gone.account()).await;
    label(&hub.ocm, &silent, None).await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = syncer(&hub, &[]).await;
    let now = copied(&hub.ocm, "left", &turned).await;
    assert_ne!(now["metadata"]["uid"], before["metadata"]["uid"], "no token is written into it");
    for token in [&gone, &silent] {
        withdrawn(&hub.ocm, "left", token).await;
    }
    for (token, before) in &foreign {
        told(&hub.ocm, &copy("left", token), "ForeignSecret").await;
        withheld(&hub.ocm, token, "ForeignSecret").await;
        assert_eq!(get(&hub.ocm, &copy("left", token)).await.as_ref(), Some(before));
    }
    caught_up(&hub.ocm, "later").await;
    let writes = hub.audit().since(&mark).await.unwrap().of_user(USER);
    let writes = writes.matching(|it| it.namespace == "left" && it.resource == "secrets" && it.is_write());
    assert_eq!(writes.count(|it| it.verb == "patch"), 0, "{writes}");
    assert_eq!(writes.count(|it| it.verb == "delete"), 3, "{writes}");
    addons.stop().await;
}
