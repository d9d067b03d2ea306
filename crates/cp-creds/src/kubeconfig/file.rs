//! The fields of a kubeconfig that are read. These types have no `Debug`, since they contain credentials.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A value of this type. The parser alone would take `"true"` for `true`, and 7 for `"7"`.
#[derive(Default)]
pub struct Exactly<T>(pub T);

pub type Text = Exactly<Option<String>>;

impl<'de, T: DeserializeOwned> Deserialize<'de> for Exactly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::from_value(Value::deserialize(deserializer)?);
        value.map(Self).map_err(|_| D::Error::custom("another type is expected"))
    }
}

/// An empty value is none.
pub fn filled(text: &Text) -> Option<&str> {
    text.0.as_deref().filter(|text| !text.is_empty())
}

/// A kubeconfig file. kubectl writes `null` for an empty list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct File {
    pub kind: Text,
    #[serde(rename = "apiVersion")]
    pub api_version: Text,
    pub current_context: Text,
    contexts: Option<Vec<NamedContext>>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
}

impl File {
    pub fn contexts(&self) -> impl Iterator<Item = (&str, &Option<Context>)> {
        self.contexts.iter().flatten().map(|it| (&*it.name.0, &it.context))
    }

    pub fn clusters(&self) -> impl Iterator<Item = (&str, &Option<KubeconfigCluster>)> {
        self.clusters.iter().flatten().map(|it| (&*it.name.0, &it.cluster))
    }

    pub fn users(&self) -> impl Iterator<Item = (&str, &Option<User>)> {
        self.users.iter().flatten().map(|it| (&*it.name.0, &it.user))
    }
}

#[derive(Deserialize)]
struct NamedContext {
    name: Exactly<String>,
    context: Option<Context>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Context {
    pub cluster: Text,
    pub user: Text,
    pub namespace: Text,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: Exactly<String>,
    cluster: Option<KubeconfigCluster>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct KubeconfigCluster {
    pub server: Text,
    pub tls_server_name: Text,
    pub insecure_skip_tls_verify: Exactly<Option<bool>>,
    pub certificate_authority: Text,
    pub certificate_authority_data: Text,
    pub proxy_url: Text,
}

#[derive(Deserialize)]
struct NamedUser {
    name: Exactly<String>,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct User {
    pub token: Text,
    #[serde(rename = "tokenFile")]
    pub token_file: Text,
    pub client_certificate: Text,
    pub client_certificate_data: Text,
    pub client_key: Text,
    pub client_key_data: Text,
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
