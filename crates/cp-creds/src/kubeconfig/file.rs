//! The fields of a kubeconfig that are read. These types have no `Debug`, since they contain credentials.

use serde::Deserialize;
use serde_json::Value;

/// A kubeconfig file. kubectl writes `null` for an empty list.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct File {
    pub current_context: Option<String>,
    pub contexts: Option<Vec<NamedContext>>,
    pub clusters: Option<Vec<NamedCluster>>,
    pub users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
pub struct NamedContext {
    pub name: String,
    pub context: Option<Context>,
}

#[derive(Deserialize)]
pub struct Context {
    pub cluster: Option<String>,
    pub user: Option<String>,
    pub namespace: Option<String>,
}

#[derive(Deserialize)]
pub struct NamedCluster {
    pub name: String,
    pub cluster: Option<KubeconfigCluster>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct KubeconfigCluster {
    pub server: Option<String>,
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub certificate_authority: Option<String>,
    pub certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
}

#[derive(Deserialize)]
pub struct NamedUser {
    pub name: String,
    pub user: Option<User>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct User {
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<String>,
    pub client_certificate: Option<String>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<String>,
    pub client_key_data: Option<String>,
    pub username: Option<Value>,
    pub password: Option<Value>,
    pub exec: Option<Value>,
    pub auth_provider: Option<Value>,
    #[serde(rename = "as")]
    pub impersonate: Option<Value>,
    pub as_uid: Option<Value>,
    pub as_groups: Option<Value>,
    pub as_user_extra: Option<Value>,
}
