//! Other objects that a Pod uses: ConfigMaps, Secrets, and tokens of its ServiceAccount.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

use super::problem::Problem;
use crate::Token;

/// Reads for one Pod.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Client,
    namespace: String,
    account: String,
    bound_to: BoundObjectReference,
}

impl Objects {
    pub(crate) fn of(pod: &Pod, client: Client) -> Self {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        Self {
            client,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            account: account.unwrap_or_else(|| "default".to_owned()),
            bound_to: BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            },
        }
    }

    /// The data of a ConfigMap; empty if it is optional and missing.
    pub(crate) async fn config_map(
        &self,
        name: &str,
        optional: bool,
    ) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.get_opt(name).await.map_err(Problem::api(format!("read ConfigMap {name}")))?;
        let Some(map) = found else { return missing("configmap", name, optional) };
        let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// The data of a Secret; empty if it is optional and missing.
    pub(crate) async fn secret(
        &self,
        name: &str,
        optional: bool,
    ) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.get_opt(name).await.map_err(Problem::api(format!("read Secret {name}")))?;
        let Some(secret) = found else { return missing("secret", name, optional) };
        Ok(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect())
    }

    /// A new token of the Pod's ServiceAccount, bound to the Pod.
    pub(crate) async fn token(&self, audience: Option<&str>, seconds: i64) -> Result<Token, Problem> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]).unwrap_or_default(),
                bound_object_ref: Some(self.bound_to.clone()),
                expiration_seconds: Some(seconds),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let answer = accounts
            .create_token_request(&self.account, &PostParams::default(), &request)
            .await
            .map_err(Problem::api(format!("request a token of ServiceAccount {}", self.account)))?;
        let status = answer.status.ok_or_else(|| Problem::config("the response has no token"))?;
        Ok(Token::new(status.token))
    }
}

fn missing(kind: &'static str, name: &str, optional: bool) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    if optional { Ok(BTreeMap::new()) } else { Err(Problem::config(format!("{kind} {name:?} not found"))) }
}
