//! The objects of Open Cluster Management's managed-serviceaccount addon on a hub, with tokens that no API server
//! issued.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::Client;
use kube::api::PostParams;
use serde_json::json;

use super::{CHANGED, Object, PARALLEL, namespace};
use crate::HubError;

/// On a ManagedServiceAccount: opts in to copies of its token if the value is `true`.
pub const SYNC_LABEL: &str = "authentication.open-cluster-management.io/sync-to-clusterprofile";

/// On a ManagedServiceAccount: the namespaces to which its token is copied, separated by commas.
pub const SYNC_NAMESPACES_ANNOTATION: &str =
    "authentication.open-cluster-management.io/sync-to-namespaces";

/// On a Secret of the hub: it contains the token of the ManagedServiceAccount of the same name if the value is `true`.
pub const TOKEN_LABEL: &str = "authentication.open-cluster-management.io/is-managed-serviceaccount";

/// The authority of clusters that do not exist. Its bytes are not a certificate.
pub const MADE_UP_CA: &str =
    "-----BEGIN CERTIFICATE-----\nbWFkZSB1cA==\n-----END CERTIFICATE-----\n";

/// The default expiry of made-up tokens: after every test.
const FAR: &str = "2100-01-01T00:00:00Z";

/// A ManagedServiceAccount of a cluster, whose token is rotated but not copied.
#[must_use]
pub fn managed_service_account(cluster: &str, name: &str) -> Object {
    let gvk = ("authentication.open-cluster-management.io", "v1beta1", "ManagedServiceAccount");
    Object::new(gvk, "managedserviceaccounts", Some(cluster), name)
        .field("spec", json!({ "rotation": { "enabled": true, "validity": "8640h0m0s" } }))
}

/// The Secret in which the agent reports the token of a ManagedServiceAccount with the uid `owner_uid`; its authority
/// is [`MADE_UP_CA`].
#[must_use]
pub fn token_secret(cluster: &str, name: &str, owner_uid: &str, token: &[u8]) -> Object {
    token_secret_with(cluster, name, owner_uid, token, MADE_UP_CA)
}

fn token_secret_with(
    cluster: &str,
    name: &str,
    owner_uid: &str,
    token: &[u8],
    ca_pem: &str,
) -> Object {
    let owner = managed_service_account(cluster, name);
    let mut secret = Object::new(("", "v1", "Secret"), "secrets", Some(cluster), name)
        .label(TOKEN_LABEL, "true")
        .field("type", json!("Opaque"))
        .field(
            "data",
            json!({ "token": ByteString(token.to_vec()), "ca.crt": ByteString(ca_pem.as_bytes().to_vec()) }),
        );
    secret.body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner.resource.api_version, "kind": owner.resource.kind, "name": name, "uid": owner_uid,
    }]);
    secret
}

/// A token with the right format and claims that no API server accepts, since it is not signed.
#[must_use]
pub fn unsigned_token(subject: &str, expires: Timestamp) -> String {
    let claims = json!({ "exp": expires.as_second(), "sub": subject });
    // `{}` and `sig`.
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A ManagedServiceAccount whose agent has reported a token, without an agent or a cluster. It is not printed: a test may
/// use a real token.
#[derive(Clone)]
pub struct ServiceAccountToken {
    account: Object,
    token: Option<Vec<u8>>,
    expires: Timestamp,
    ca_pem: String,
}

impl ServiceAccountToken {
    /// An account with its own [`unsigned_token`], which expires after every test.
    #[must_use]
    pub fn of(cluster: &str, name: &str) -> Self {
        let expires = FAR.parse().unwrap_or(Timestamp::MAX);
        let account = managed_service_account(cluster, name);
        Self { account, token: None, expires, ca_pem: MADE_UP_CA.to_owned() }
    }

    /// Opts in: with the label [`SYNC_LABEL`].
    #[must_use]
    pub fn synced(self) -> Self {
        self.label(SYNC_LABEL, "true")
    }

    /// With a label on the ManagedServiceAccount.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        Self { account: self.account.label(key, value), ..self }
    }

    /// With an annotation on the ManagedServiceAccount.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        Self { account: self.account.annotation(key, value), ..self }
    }

    /// With a token of these bytes.
    #[must_use]
    pub fn token(self, token: &[u8]) -> Self {
        Self { token: Some(token.to_vec()), ..self }
    }

    /// With a token that expires then, by its claim (unless its [bytes](Self::token) are given) and by the status.
    #[must_use]
    pub fn expires(self, expires: Timestamp) -> Self {
        Self { expires, ..self }
    }

    /// With the authority of its cluster, instead of [`MADE_UP_CA`].
    pub(crate) fn authority(self, ca_pem: &str) -> Self {
        Self { ca_pem: ca_pem.to_owned(), ..self }
    }

    /// The ManagedServiceAccount, with its status.
    #[must_use]
    pub fn account(&self) -> Object {
        let name = self.account.name();
        self.account
            .clone()
            .condition("TokenReported", "True", "TokenReported", "")
            .condition("SecretCreated", "True", "SecretCreated", "")
            .status(
                "expirationTimestamp",
                json!(self.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            )
            .status("tokenSecretRef", json!({ "name": name, "lastRefreshTimestamp": CHANGED }))
    }

    #[must_use]
    pub fn token_bytes(&self) -> Vec<u8> {
        if let Some(token) = &self.token {
            return token.clone();
        }
        let cluster = self.account.namespace().unwrap_or_default();
        unsigned_token(&format!("{cluster}/{}", self.account.name()), self.expires).into_bytes()
    }

    /// The Secret, owned by the ManagedServiceAccount with this uid.
    #[must_use]
    pub fn secret(&self, owner_uid: &str) -> Object {
        let cluster = self.account.namespace().unwrap_or_default();
        let (name, token) = (self.account.name(), self.token_bytes());
        token_secret_with(cluster, name, owner_uid, &token, &self.ca_pem)
    }

    /// Creates the ManagedServiceAccount, its Secret and its status, in this order, and returns the
    /// ManagedServiceAccount's uid. The cluster's namespace is created if it does not exist.
    pub async fn create(&self, client: &Client) -> Result<String, HubError> {
        let account = self.account();
        namespace(account.namespace().unwrap_or_default()).ensure(client).await?;
        let created = account
            .api(client)
            .create(&PostParams::default(), &account.parse()?)
            .await
            .map_err(HubError::api(format!("create {account}")))?;
        let uid = created.metadata.uid.unwrap_or_default();
        self.secret(&uid).create(client).await?;
        account.write_status(client).await?;
        Ok(uid)
    }

    /// Reports the token for an existing ManagedServiceAccount, whose labels, annotations and other conditions are
    /// preserved: creates or replaces the Secret, then writes the status.
    pub async fn report(&self, client: &Client) -> Result<(), HubError> {
        let account = &self.account;
        let found = account
            .api(client)
            .get(account.name())
            .await
            .map_err(HubError::api(format!("read {account}")))?;
        self.secret(&found.metadata.uid.unwrap_or_default()).create_or_replace(client).await?;
        let conditions = found.data["status"]["conditions"].clone();
        let account = account.clone().status("conditions", conditions);
        Self { account, ..self.clone() }.account().write_status(client).await
    }
}

/// [Creates](ServiceAccountToken::create) accounts, concurrently and in no order.
pub async fn create_tokens(
    client: &Client,
    tokens: impl IntoIterator<Item = ServiceAccountToken>,
) -> Result<(), HubError> {
    futures::stream::iter(tokens)
        .map(async |token: ServiceAccountToken| token.create(client).await.map(drop))
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}
