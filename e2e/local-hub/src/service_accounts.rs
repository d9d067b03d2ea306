//! ServiceAccounts: the identity of a program in a Pod.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use crate::grants::{self, Grantee};
use crate::ocm::{self, Object};
use crate::{Cluster, HubError};

/// Longer than any test. The API server issues no token for less than ten minutes.
const VALIDITY: Duration = Duration::from_hours(1);

/// A bearer token, which is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn new(token: String) -> Self {
        Self(token)
    }

    /// The token itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A ServiceAccount on a hub, with its own token.
#[derive(Debug)]
pub struct ServiceAccountAccess<'hub> {
    hub: &'hub Cluster,
    namespace: String,
    name: String,
    token: Token,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// A ServiceAccount with a token that is valid for an hour, like that of a program in a Pod. It and its namespace
    /// are created if they do not exist.
    ///
    /// A second call returns another token.
    pub async fn service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<ServiceAccountAccess<'_>, HubError> {
        let harness = self.access().harness()?;
        ensure(&harness, &object(namespace, name)).await?;
        let (token, _) = request_token(&harness, namespace, name, None, VALIDITY).await?;
        // No colon: it separates files in the variable KUBECONFIG.
        let kubeconfig =
            self.directory().join(format!("serviceaccount.{namespace}.{name}.kubeconfig"));
        self.access().write_kubeconfig(&kubeconfig, name, token.expose(), namespace)?;
        Ok(ServiceAccountAccess {
            hub: self,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            token,
            kubeconfig,
        })
    }

    /// Grants a ServiceAccount permissions in all namespaces, and returns when they are effective. It need not exist
    /// yet: permissions refer to its name.
    ///
    /// Returns the name of the `ClusterRole` and its binding.
    pub async fn grant_service_account(
        &self,
        namespace: &str,
        name: &str,
        rules: Vec<PolicyRule>,
    ) -> Result<String, HubError> {
        let grant = self.next_grant(&user_name(namespace, name));
        let grantee = self.grantee(namespace, name)?;
        grants::grant(&self.access().harness()?, &grantee, None, &grant, &rules).await?;
        Ok(grant)
    }

    fn grantee(&self, namespace: &str, name: &str) -> Result<Grantee, HubError> {
        let client = self.access().harness_like(&user_name(namespace, name), &[])?;
        Ok(Grantee::service_account(namespace, name, client))
    }
}

impl ServiceAccountAccess<'_> {
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its user name, also in the audit log.
    #[must_use]
    pub fn user(&self) -> String {
        user_name(&self.namespace, &self.name)
    }

    /// A kubeconfig with its token, in a file that only we can read. Its context uses the ServiceAccount's namespace.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    #[must_use]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Another token, projected for an audience, that is valid for this long: at least ten minutes.
    pub async fn token_for(&self, audience: &str, validity: Duration) -> Result<Token, HubError> {
        let harness = self.hub.access().harness()?;
        let token =
            request_token(&harness, &self.namespace, &self.name, Some(audience), validity).await?;
        Ok(token.0)
    }

    /// Deletes it.
    pub async fn delete(&self) -> Result<(), HubError> {
        delete(&self.hub.access().harness()?, &self.namespace, &self.name).await
    }

    /// A new client with its identity.
    #[allow(
        clippy::unused_async,
        reason = "a client can only be made inside a runtime, and this says so"
    )]
    pub async fn client(&self) -> Result<Client, HubError> {
        self.hub.access().client_with(self.token.expose())
    }

    /// Grants it further permissions in its own namespace, and returns when they are effective.
    pub async fn grant_in_namespace(&self, rules: Vec<PolicyRule>) -> Result<(), HubError> {
        let name = self.hub.next_grant(&self.user());
        let grantee = self.hub.grantee(&self.namespace, &self.name)?;
        let harness = self.hub.access().harness()?;
        grants::grant(&harness, &grantee, Some(&self.namespace), &name, &rules).await
    }
}

/// The user name of a ServiceAccount.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

pub(crate) fn object(namespace: &str, name: &str) -> Object {
    Object::new(("", "v1", "ServiceAccount"), "serviceaccounts", Some(namespace), name)
}

/// Creates a ServiceAccount and its namespace if they do not exist.
pub(crate) async fn ensure(client: &Client, account: &Object) -> Result<(), HubError> {
    ocm::namespace(account.namespace().unwrap_or_default()).ensure(client).await?;
    account.ensure(client).await
}

/// Requests a new token of a ServiceAccount, for an audience or for the API server; returns it with its expiry.
pub(crate) async fn request_token(
    client: &Client,
    namespace: &str,
    name: &str,
    audience: Option<&str>,
    validity: Duration,
) -> Result<(Token, Timestamp), HubError> {
    let doing = || format!("request a token of ServiceAccount {namespace}/{name}");
    let seconds = i64::try_from(validity.as_secs()).unwrap_or(i64::MAX);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audience.map(str::to_owned).into_iter().collect(),
            expiration_seconds: Some(seconds),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(HubError::api(doing()))?;
    let status = answer
        .status
        .ok_or_else(|| HubError::io(doing(), std::io::Error::other("there was none")))?;
    Ok((Token::new(status.token), status.expiration_timestamp.0))
}

/// Deletes a ServiceAccount, if it exists. The API server accepts its tokens for some seconds more.
pub(crate) async fn delete(client: &Client, namespace: &str, name: &str) -> Result<(), HubError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    match accounts.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted
            .map(drop)
            .map_err(HubError::api(format!("delete ServiceAccount {namespace}/{name}"))),
    }
}
