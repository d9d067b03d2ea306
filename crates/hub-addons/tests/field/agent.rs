//! The agent of OCM's managed-serviceaccount addon, between a hub and a cluster: what it reports is copied, what it
//! rotates is copied again, and what is gone there is removed here.

use std::ffi::OsStr;

use kube::Client;
use kube::api::PostParams;
use local_hub::ocm::{self, Object};
use local_hub::{CrdSet, LocalHub, Running, agent, eventually};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::credentials::{OF_UID, secret};
use crate::support::field::{self, UPSTREAM};
use crate::support::world::{self, create, delete, get, gone, merge, merge_status};
use crate::support::{Addons, Hub, SOON, rights};

const CLUSTER: &str = "one";
const TEAM: &str = "team";
const GATES: &str = "--feature-gates=ClusterProfileAccessProvider=false";

/// A hub with our controllers, and a cluster.
struct Field {
    _addons: Addons,
    hub: Hub,
    cluster: LocalHub,
    at_cluster: Client,
    /// The agent serves its health on a fixed port, so that only one runs on a machine.
    _alone: MutexGuard<'static, ()>,
}

impl Field {
    /// Starts both; [`TEAM`] is granted the cluster.
    async fn start() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let builders =
            [LocalHub::builder(), LocalHub::builder().crds(CrdSet::None)].map(field::prepare);
        let [hub, cluster] = LocalHub::start_many(builders).await.unwrap();
        let hub = Hub::with_rights(hub, [rights::projector(), rights::syncer()].concat()).await;
        let addons = Addons::start(&hub, &[GATES]).await;
        let at_cluster = cluster.client_as("ocm").await.unwrap();
        create(&at_cluster, [ocm::namespace(agent::NAMESPACE)]).await;
        create(&hub.ocm, [ocm::namespace(CLUSTER)]).await;
        world::grant(&hub.ocm, TEAM, &[CLUSTER]).await;
        Self { _addons: addons, hub, cluster, at_cluster, _alone: alone }
    }

    /// Starts the agent.
    async fn agent(&self) -> Running {
        let [hub, cluster] =
            [&self.hub.hub, &self.cluster].map(|hub| hub.kubeconfig_for(UPSTREAM).unwrap());
        let environment = [
            ("KUBECONFIG", hub.as_os_str()),
            ("HUB_KUBECONFIG", hub.as_os_str()),
            ("NAMESPACE", OsStr::new(agent::NAMESPACE)),
        ];
        let arguments = [
            "agent",
            "--cluster-name=one",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            &format!("--spoke-kubeconfig={}", cluster.display()),
        ];
        let program = field::program("managed-serviceaccount").await;
        field::run(&self.cluster, "agent", &program, &environment, &arguments).await
    }

    /// Creates an account whose token is to be copied.
    async fn account(&self, name: &str) -> Object {
        let account = ocm::managed_service_account(CLUSTER, name).label(ocm::SYNC_LABEL, "true");
        account.create(&self.hub.ocm).await.unwrap();
        account
    }

    /// Waits until the copy of an account's token has what the agent has reported for the account's present uid, other
    /// than `before`, and the cluster accepts it. Returns the token, encoded.
    async fn copied(&self, account: &Object, before: Option<&Value>) -> Value {
        let (source, copy) = (secret(CLUSTER, account.name()), copy_of(account));
        eventually(&format!("{copy} has the token of {source}"), SOON, async || {
            let source = get(&self.hub.ocm, &source).await.unwrap_or_default();
            let shown = get(&self.hub.ocm, &copy).await.unwrap_or_default();
            let uid =
                get(&self.hub.ocm, account).await.unwrap_or_default()["metadata"]["uid"].clone();
            let token = &shown["data"]["token"];
            let same =
                ["token", "ca.crt"].iter().all(|key| shown["data"][key] == source["data"][key]);
            let of_account = shown["metadata"]["annotations"][OF_UID] == uid
                && source["metadata"]["ownerReferences"][0]["uid"] == uid;
            if !token.is_string() || Some(token) == before || !same || !of_account {
                return Err(format!("same: {same}, of the account: {of_account}"));
            }
            // The agent may report twice in a row, and the token of a deleted ServiceAccount until it has noticed.
            let user = self.user_of(token).await;
            let wanted = format!("system:serviceaccount:{}:{}", agent::NAMESPACE, account.name());
            if user == wanted {
                Ok(Some(token.clone()))
            } else {
                Err(format!("the cluster takes it for {user:?}"))
            }
        })
        .await
    }

    /// The user that the cluster takes the bearer of a token for.
    async fn user_of(&self, token: &Value) -> String {
        let token: k8s_openapi::ByteString = serde_json::from_value(token.clone()).unwrap();
        let token = String::from_utf8(token.0).unwrap();
        let review =
            world::object("TokenReview", None, "").field("spec", json!({ "token": token }));
        let review = review
            .api(&self.at_cluster)
            .create(&PostParams::default(), &review.parse().unwrap())
            .await;
        review.unwrap().data["status"]["user"]["username"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the cluster does not accept a token.
    async fn refused(&self, token: &Value) {
        eventually("the cluster does not accept the token", SOON, async || {
            self.user_of(token).await.is_empty()
        })
        .await;
    }

    fn service_account(account: &Object) -> Object {
        world::object("ServiceAccount", Some(agent::NAMESPACE), account.name())
    }
}

fn copy_of(account: &Object) -> Object {
    secret(TEAM, &format!("{CLUSTER}-{}", account.name()))
}

#[tokio::test]
async fn what_the_agent_reports_and_rotates_is_copied_and_what_it_removes_is_removed() {
    let field = Field::start().await;
    let _agent = field.agent().await;
    let account = field.account("app").await;
    let first = field.copied(&account, None).await;

    // The agent rotates a token at 80 % of its validity, and one that it has not reported.
    merge_status(
        &field.hub.ocm,
        &account,
        &json!({ "tokenSecretRef": null, "expirationTimestamp": null }),
    )
    .await;
    let second = field.copied(&account, Some(&first)).await;

    // It replaces a token that the cluster no longer accepts. The cluster still does for some seconds after it has
    // accepted it, so the agent may notice only at the next change of the account.
    delete(&field.at_cluster, &Field::service_account(&account)).await;
    field.refused(&second).await;
    merge(
        &field.hub.ocm,
        &account,
        &json!({ "metadata": { "annotations": { "changed": "yes" } } }),
    )
    .await;
    let third = field.copied(&account, Some(&second)).await;

    // The agent restores what it has reported.
    delete(&field.hub.ocm, &secret(CLUSTER, "app")).await;
    let last = field.copied(&account, Some(&third)).await;

    delete(&field.hub.ocm, &account).await;
    gone(&field.hub.ocm, &copy_of(&account)).await;
    gone(&field.at_cluster, &Field::service_account(&account)).await;
    gone(&field.hub.ocm, &secret(CLUSTER, "app")).await;
    field.refused(&last).await;
}
