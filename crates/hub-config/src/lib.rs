//! Where the hub is and how it is reached, as kubectl reads it from kubeconfig files and the environment.
//!
//! kube reads them as well. This crate adds what it does differently from client-go: files of `KUBECONFIG` that do not
//! exist, an empty current context, users with empty or contradictory fields, token files, credentials for an `http`
//! server, and proxies ([`connector`]).

mod proxy;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use jiff::Timestamp;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret as _;
use tower::util::MapRequestLayer;

pub use crate::proxy::{Connector, connector};

/// Why the hub is not known.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read, is not a kubeconfig, or lacks what is asked for.
    #[error("{}", first_line(.0))]
    Kubeconfig(#[from] KubeconfigError),
    #[error("none of these files exists: {0}")]
    NoFile(String),
    #[error("specifying a certificate-authority with insecure-skip-tls-verify is not allowed")]
    RootsAndInsecure,
    #[error("the user {0} does not exist")]
    NoUser(String),
    /// Two fields contradict each other, or one lacks another.
    #[error("the user {user} {what}")]
    User { user: String, what: &'static str },
    /// It is an object of another kind.
    #[error("{kind} {version} is not a kubeconfig: expected Config v1")]
    NotAConfig { kind: String, version: String },
    /// kubectl would refresh it, and write the new one to the file.
    #[error(
        "the ID token of the user expired at {0}: run a command of kubectl, such as kubectl get namespaces, which \
         refreshes it, or log in again"
    )]
    ExpiredIdToken(Timestamp),
}

/// Reads a file, else those of `KUBECONFIG`, else `~/.kube/config`.
pub fn read(file: Option<&Path>) -> Result<Kubeconfig, ConfigError> {
    if let Some(file) = file {
        return Ok(Kubeconfig::read_from(file)?);
    }
    let files = default_files();
    let mut merged = None;
    for file in files.iter().filter(|file| file.exists()) {
        let mut next = Kubeconfig::read_from(file)?;
        next.current_context = next.current_context.filter(|context| !context.is_empty());
        merged = Some(match merged {
            None => next,
            Some(before) => Kubeconfig::merge(before, next)?,
        });
    }
    merged.ok_or_else(|| {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        ConfigError::NoFile(files.join(", "))
    })
}

/// The files that kubectl reads if none is named.
#[must_use]
pub fn default_files() -> Vec<PathBuf> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<_> = env::split_paths(&named).filter(|path| path.as_os_str() != OsStr::new("")).collect();
    if !named.is_empty() {
        return named;
    }
    env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect()
}

/// The configuration of a client, whose connections are made by a [`connector`].
pub async fn config(mut file: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, ConfigError> {
    let (kind, version) =
        (file.kind.as_deref().unwrap_or("Config"), file.api_version.as_deref().unwrap_or("v1"));
    if (kind, version) != ("Config", "v1") {
        return Err(ConfigError::NotAConfig { kind: kind.to_owned(), version: version.to_owned() });
    }
    let context = options.context.as_ref().or(file.current_context.as_ref());
    let context = file.contexts.iter().find(|entry| Some(&entry.name) == context);
    let context = context.and_then(|entry| entry.context.clone()).unwrap_or_default();
    let user = options.user.clone().or(context.user).filter(|user| !user.is_empty());
    if let Some(user) = user {
        let entry = file.auth_infos.iter_mut().find(|entry| entry.name == user);
        let entry = entry.ok_or_else(|| ConfigError::NoUser(user.clone()))?;
        if let Some(info) = &mut entry.auth_info {
            drop_empty(info);
            check(info).map_err(|what| ConfigError::User { user, what })?;
        }
    }
    let cluster = options.cluster.clone().unwrap_or(context.cluster);
    let cluster = file.clusters.iter().find(|entry| entry.name == cluster);
    let proxy = cluster.and_then(|entry| entry.cluster.as_ref()?.proxy_url.clone());

    let mut config = Config::from_custom_kubeconfig(file, options).await?;
    if config.accept_invalid_certs && config.root_cert.is_some() {
        return Err(ConfigError::RootsAndInsecure);
    }
    if let Some(expired) = expired_id_token(&config.auth_info) {
        return Err(ConfigError::ExpiredIdToken(expired));
    }
    if config.cluster_url.scheme().is_none() {
        let url = format!("http://{}", config.cluster_url);
        config.cluster_url = url.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    }
    if config.cluster_url.scheme_str() == Some("http") {
        // No credential is sent in clear text.
        config.auth_info = AuthInfo::default();
    }
    if let Some(token) = config.auth_info.token_file.as_deref().and_then(token_in) {
        // For kube, which would send a line break at the end of the file; see `token_of_file`.
        config.auth_info.token = Some(token.into());
    }
    let proxy = proxy.filter(|url| !url.is_empty()).or_else(|| proxy::of_environment(&config.cluster_url));
    config.proxy_url = proxy.map(|url| url.parse()).transpose().map_err(KubeconfigError::ParseProxyUrl)?;
    Ok(config)
}

/// Sends the token that the user's token file then contains with each request, where [`config`] has found one.
///
/// Whatever replaces the file does so before the token expires. If the file is gone, the token that was read first remains.
#[must_use]
pub fn token_of_file<B>(
    config: &Config,
) -> Option<MapRequestLayer<impl Fn(Request<B>) -> Request<B> + Clone + use<B>>> {
    let AuthInfo { token: Some(_), token_file: Some(file), .. } = &config.auth_info else { return None };
    let file = file.clone();
    Some(MapRequestLayer::new(move |mut request: Request<B>| {
        let header = token_in(&file).and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        if let Some(mut header) = header {
            header.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        request
    }))
}

/// The token in a file, if there is one.
fn token_in(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// Drops empty fields of a user, which kube would send.
fn drop_empty(user: &mut AuthInfo) {
    for field in [
        &mut user.username,
        &mut user.token_file,
        &mut user.client_certificate,
        &mut user.client_certificate_data,
        &mut user.client_key,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ] {
        field.take_if(|value| value.is_empty());
    }
    for field in [&mut user.password, &mut user.token, &mut user.client_key_data] {
        field.take_if(|value| value.expose_secret().is_empty());
    }
    user.impersonate_groups.take_if(|groups| groups.is_empty());
    user.impersonate_user_extra.take_if(|extra| extra.is_empty());
}

/// What client-go refuses in a user.
fn check(user: &AuthInfo) -> Result<(), &'static str> {
    let has_token = user.token.is_some() || user.token_file.is_some();
    if has_token && (user.username.is_some() || user.password.is_some()) {
        return Err("has both a token and a password: only one is allowed");
    }
    let is_more = user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    if user.impersonate.is_none() && is_more {
        return Err("has as-uid, as-groups or as-user-extra without as");
    }
    let plugin = user.exec.as_ref();
    let is_v1 = |version: &String| version == "client.authentication.k8s.io/v1";
    if plugin.is_some_and(|plugin| {
        plugin.interactive_mode.is_none() && plugin.api_version.as_ref().is_some_and(is_v1)
    }) {
        return Err("has an exec plugin without interactiveMode, which its apiVersion requires");
    }
    Ok(())
}

/// When the ID token of a user of an OIDC provider expired.
fn expired_id_token(user: &AuthInfo) -> Option<Timestamp> {
    let provider = user.auth_provider.as_ref().filter(|provider| provider.name == "oidc")?;
    let claims = URL_SAFE_NO_PAD.decode(provider.config.get("id-token")?.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    let expires = Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()?;
    Some(expires).filter(|expires| *expires <= Timestamp::now())
}

/// Parsers quote the lines around an error, which may be credentials.
fn first_line(error: &KubeconfigError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use tower::{Layer as _, Service as _, service_fn};

    use super::*;

    #[test]
    fn a_token_file_that_is_replaced_is_read_again_without_its_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let mut config = Config::new("https://hub.example".parse().unwrap());
        assert!(token_of_file::<()>(&config).is_none());
        config.auth_info.token = Some("of the start".to_owned().into());
        config.auth_info.token_file = Some(file.display().to_string());
        let echo = service_fn(|request: Request<()>| ready(Ok::<_, Infallible>(request)));
        let mut service = token_of_file(&config).unwrap().layer(echo);
        let mut sent = || {
            let sent = service.call(Request::new(())).into_inner().unwrap();
            sent.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
        };
        for (content, expected) in [("second\n", "Bearer second"), ("third", "Bearer third")] {
            fs::write(&file, content).unwrap();
            assert_eq!(sent().as_deref(), Some(expected));
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(sent(), None, "that of the start stays");
    }
}
