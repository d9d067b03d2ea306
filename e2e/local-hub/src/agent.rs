//! A stand-in for the agent of Open Cluster Management's managed-serviceaccount addon: creates a ServiceAccount on a
//! managed cluster and reports its token to the hub.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::ocm::{self, Object};
use crate::service_accounts::{self, Token};
use crate::{HubError, LocalHub, OCM, access};

/// The namespace of the agent, and of its ServiceAccounts, on every managed cluster.
pub const NAMESPACE: &str = "open-cluster-management-agent-addon";

/// The agent of one managed cluster. It acts only when it is called.
///
/// The permissions of its ServiceAccounts are granted on the managed cluster, by
/// [`grant_service_account`](crate::Cluster::grant_service_account) in [`NAMESPACE`].
#[derive(Clone)]
pub struct Agent {
    cluster: String,
    hub: Client,
    managed: Client,
    ca: String,
}

/// A token that was reported to the hub.
#[derive(Clone, Debug)]
pub struct ReportedToken {
    pub token: Token,
    /// Its expiry.
    pub expires: Timestamp,
}

impl Agent {
    /// The agent of the cluster with this name on the hub; clients of the cluster trust the authorities in `ca_pem`.
    /// Both clients need all permissions of the agent.
    #[must_use]
    pub fn new(cluster: &str, hub: Client, managed: Client, ca_pem: &str) -> Self {
        Self { cluster: cluster.to_owned(), hub, managed, ca: ca_pem.to_owned() }
    }

    /// The same between two hubs of this machine, as their user [`OCM`].
    pub async fn between(
        cluster: &str,
        hub: &LocalHub,
        managed: &LocalHub,
    ) -> Result<Self, HubError> {
        let (at_hub, at_managed) = (hub.client_as(OCM).await?, managed.client_as(OCM).await?);
        Ok(Self::new(cluster, at_hub, at_managed, managed.ca_pem()))
    }

    /// The same between the current contexts of two kubeconfigs.
    pub async fn from_kubeconfigs(
        cluster: &str,
        hub: &Path,
        managed: &Path,
    ) -> Result<Self, HubError> {
        let client = |config| Client::try_from(config).map_err(HubError::api("make a client"));
        let managed = access::config_from(managed).await?;
        let authorities = managed.root_cert.iter().flatten();
        let certificates: Vec<_> =
            authorities.map(|der| pem::Pem::new("CERTIFICATE", der.clone())).collect();
        let format = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let ca = pem::encode_many_config(&certificates, format);
        Ok(Self::new(cluster, client(access::config_from(hub).await?)?, client(managed)?, &ca))
    }

    /// Creates the ServiceAccount of a ManagedServiceAccount if it does not exist, and reports a new token, replacing
    /// the previous one.
    ///
    /// The API server of the managed cluster requires a validity of at least ten minutes.
    pub async fn report(
        &self,
        account: &str,
        validity: Duration,
    ) -> Result<ReportedToken, HubError> {
        let on_hub = ocm::managed_service_account(&self.cluster, account);
        let accounts = on_hub.api(&self.hub);
        let reported = accounts
            .get(account)
            .await
            .map_err(HubError::api(format!("read the {on_hub} of the hub")))?;
        let uid = reported.metadata.uid.clone().unwrap_or_default();

        let labels = [(ocm::TOKEN_LABEL.to_owned(), "true".to_owned())].into();
        let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
        service_accounts::ensure(&self.managed, NAMESPACE, account, metadata).await?;
        let (token, expires) =
            service_accounts::request_token(&self.managed, NAMESPACE, account, None, validity)
                .await?;

        let secret = ocm::token_secret_with(
            &self.cluster,
            account,
            &uid,
            token.expose().as_bytes(),
            &self.ca,
        );
        secret.create_or_replace(&self.hub).await?;
        write_status(&accounts, &on_hub, &reported, expires).await?;
        Ok(ReportedToken { token, expires })
    }

    /// Deletes the ServiceAccount on the managed cluster, if it exists. Its tokens become invalid, after the seconds
    /// for which the API server caches authentications. Nothing changes on the hub.
    pub async fn delete_service_account(&self, account: &str) -> Result<(), HubError> {
        service_accounts::delete(&self.managed, NAMESPACE, account).await
    }
}

async fn write_status(
    accounts: &Api<DynamicObject>,
    account: &Object,
    before: &DynamicObject,
    expires: Timestamp,
) -> Result<(), HubError> {
    let now = whole_seconds(Timestamp::now());
    let mut conditions =
        before.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for type_ in ["TokenReported", "SecretCreated"] {
        set_condition(&mut conditions, type_, &now);
    }
    let status = json!({
        "conditions": conditions,
        "expirationTimestamp": whole_seconds(expires),
        "tokenSecretRef": { "name": account.name(), "lastRefreshTimestamp": now },
    });
    accounts
        .patch_status(
            account.name(),
            &PatchParams::default(),
            &Patch::Merge(json!({ "status": status })),
        )
        .await
        .map(drop)
        .map_err(HubError::api(format!("write the status of {account}")))
}

/// Sets a condition to true, with the current time if it was not.
fn set_condition(conditions: &mut Vec<Value>, type_: &str, now: &str) {
    let is_it = |condition: &Value| condition["type"] == type_;
    if conditions.iter().any(|condition| is_it(condition) && condition["status"] == "True") {
        return;
    }
    conditions.retain(|condition| !is_it(condition));
    conditions.push(json!({
        "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": now,
    }));
}

/// The format of Kubernetes timestamps.
fn whole_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
