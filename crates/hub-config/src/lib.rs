//! Where the hub is and how it is reached, as kubectl reads it from kubeconfig files and the environment, or the Pod's
//! ServiceAccount.
//!
//! kube reads them as well. This crate adds what it does differently from client-go: files of `KUBECONFIG` that do not
//! exist, further documents, equal keys, an empty current context, values of another type, fields that contradict each
//! other, token files, credentials for an `http` server, and proxies ([`connector`]).

mod proxy;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client_config::{ProxyVariables, first_document, read_text, repeated};
use http::header::AUTHORIZATION;
use http::uri::{InvalidUri, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Bytes;
use jiff::Timestamp;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{
    AuthInfo, Cluster, Context, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError,
};
use kube::{Client, Config};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;
use tower::retry::RetryLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder};

pub use crate::proxy::{Connector, connector};

/// What Kubernetes mounts of a Pod's ServiceAccount.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why the hub is not known.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read, is not a kubeconfig, or lacks what is asked for.
    #[error("{}", first_line(.0))]
    Kubeconfig(#[from] KubeconfigError),
    #[error("none of these files exists: {0}")]
    NoFile(String),
    /// The Pod's ServiceAccount cannot be used.
    #[error("cannot use the Pod's ServiceAccount: {0}")]
    InCluster(#[from] InClusterError),
    /// A value is not valid, fields contradict each other, or kubectl refuses it for another reason.
    #[error("{0}")]
    Invalid(String),
}

impl ConfigError {
    /// Whether there is no configuration at all, where kubectl uses [`in_cluster`].
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::NoFile(_) | Self::Kubeconfig(KubeconfigError::CurrentContextNotSet))
    }
}

/// The configuration of the Pod's ServiceAccount, if this process has one: with its token, and an address for it.
#[must_use]
pub fn in_cluster() -> Option<Result<Config, ConfigError>> {
    is_in_cluster().then(|| {
        let mut config = Config::incluster()?;
        config.proxy_url = proxy_of_environment(&config.cluster_url)?;
        Ok(config)
    })
}

/// The namespace for commands of kubectl in a Pod, where the context of a kubeconfig sets none.
#[must_use]
pub fn pod_namespace() -> Option<String> {
    let variable = env::var("POD_NAMESPACE").ok().filter(|namespace| !namespace.is_empty());
    let file = || fs::read_to_string(format!("{SERVICE_ACCOUNT}/namespace")).ok();
    let namespace = is_in_cluster().then(|| variable.or_else(file)).flatten()?;
    Some(namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

fn is_in_cluster() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("KUBERNETES_SERVICE_HOST")
        && is_set("KUBERNETES_SERVICE_PORT")
        && Path::new(SERVICE_ACCOUNT).join("token").is_file()
}

/// Reads a file, else those of `KUBECONFIG`, else `~/.kube/config`.
pub fn read(file: Option<&Path>) -> Result<Kubeconfig, ConfigError> {
    if let Some(file) = file {
        return read_file(file);
    }
    let files = default_files();
    let mut merged = None;
    for file in &files {
        let next = match read_file(file) {
            Err(ConfigError::Kubeconfig(KubeconfigError::ReadConfig(error, _)))
                if error.kind() == ErrorKind::NotFound =>
            {
                continue;
            }
            next => next?,
        };
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

/// The first document of a file, with the last of equal keys. By way of JSON, which keeps the types apart: kube reads
/// `"true"` as `true`, and 7 as `"7"`.
fn read_file(file: &Path) -> Result<Kubeconfig, ConfigError> {
    let text =
        read_text(file).map_err(|error| KubeconfigError::ReadConfig(error, file.to_owned()))?;
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let document: Option<Value> =
        serde_saphyr::from_str_with_options(first_document(&text), options)
            .map_err(|error| KubeconfigError::Parse(Box::new(error)))?;
    let Some(document) = document else { return Ok(Kubeconfig::default()) };
    let mut config: Kubeconfig = serde_json::from_value(document).map_err(|error| {
        // What is before that may quote a credential.
        let text = error.to_string();
        let why = text.rsplit(", ").next().unwrap_or_default();
        ConfigError::Invalid(format!("{} is not a valid kubeconfig: {why}", file.display()))
    })?;
    let names = [
        config.clusters.iter().map(|it| &*it.name).collect(),
        config.auth_infos.iter().map(|it| &*it.name).collect(),
        config.contexts.iter().map(|it| &*it.name).collect(),
    ];
    if let Some(name) = repeated(names) {
        let file = file.display();
        return Err(ConfigError::Invalid(format!(
            "{file} has two clusters, users or contexts with the name {name}"
        )));
    }
    config.current_context.take_if(|context| context.is_empty());
    make_absolute(&mut config, file.parent().unwrap_or(Path::new("")));
    Ok(config)
}

/// Resolves paths that are relative to the directory of a file. A plugin without a slash is in one of `PATH`.
fn make_absolute(config: &mut Kubeconfig, directory: &Path) {
    let clusters = config.clusters.iter_mut().filter_map(|entry| entry.cluster.as_mut());
    let users = config.auth_infos.iter_mut().filter_map(|entry| entry.auth_info.as_mut());
    let of_users = users.flat_map(|user| {
        let plugin = user.exec.as_mut().map(|exec| &mut exec.command);
        let plugin = plugin.filter(|it| it.as_ref().is_some_and(|it| it.contains('/')));
        [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]
            .into_iter()
            .chain(plugin)
    });
    let paths = clusters.map(|cluster| &mut cluster.certificate_authority).chain(of_users);
    for path in paths.flatten().filter(|path| !path.is_empty()) {
        if let Some(absolute) = directory.join(&*path).to_str() {
            absolute.clone_into(path);
        }
    }
}

/// The files that kubectl reads if none is named.
#[must_use]
pub fn default_files() -> Vec<PathBuf> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<_> =
        env::split_paths(&named).filter(|path| path.as_os_str() != OsStr::new("")).collect();
    if !named.is_empty() {
        return named;
    }
    env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect()
}

/// The chosen or the current context, or an empty one.
#[must_use]
pub fn context(file: &Kubeconfig, chosen: Option<&str>) -> Context {
    let name = chosen.or(file.current_context.as_deref());
    let entry = file.contexts.iter().find(|entry| Some(&*entry.name) == name);
    entry.and_then(|entry| entry.context.clone()).unwrap_or_default()
}

/// The configuration of a [`client`] by the chosen or the current context.
pub async fn config(mut file: Kubeconfig, chosen: Option<&str>) -> Result<Config, ConfigError> {
    let kind = given(&file.kind).unwrap_or("Config");
    let version = given(&file.api_version).unwrap_or("v1");
    if (kind, version) != ("Config", "v1") {
        return Err(ConfigError::Invalid(format!(
            "{kind} {version} is not a kubeconfig: expected Config v1"
        )));
    }
    let context = context(&file, chosen);
    if let Some(user) = context.user.filter(|user| !user.is_empty()) {
        let wrong = |what| ConfigError::Invalid(format!("the user {user} {what}"));
        let entry = file.auth_infos.iter_mut().find(|entry| entry.name == user);
        let entry = entry.ok_or_else(|| wrong("does not exist"))?;
        if let Some(info) = &mut entry.auth_info {
            drop_empty(info);
            info.client_certificate_data.iter_mut().for_each(join_lines);
            if let Some(key) = &mut info.client_key_data {
                *key = key.expose_secret().replace(['\r', '\n'], "").into();
            }
            check_user(info).map_err(wrong)?;
        }
    }
    let name = context.cluster;
    let entry = file.clusters.iter_mut().find(|entry| entry.name == name);
    let entry = entry.and_then(|entry| entry.cluster.as_mut());
    let cluster = entry.as_deref().cloned().unwrap_or_default();
    let wrong = |what| ConfigError::Invalid(format!("the cluster {name} {what}"));
    check_cluster(&cluster).map_err(wrong)?;
    if let Some(entry) = entry {
        // Otherwise kube parses the variable, also where it does not concern the hub. Replaced below.
        entry.proxy_url = Some("http://proxy".to_owned());
        entry.certificate_authority_data.iter_mut().for_each(join_lines);
    }

    let options = KubeConfigOptions { context: chosen.map(str::to_owned), ..Default::default() };
    let mut config = Config::from_custom_kubeconfig(file, &options).await?;
    if let Some(expired) = expired_id_token(&config.auth_info) {
        // kubectl would refresh it, and write the new one to the file.
        return Err(ConfigError::Invalid(format!(
            "the ID token of the user expired at {expired}: run a command of kubectl, such as kubectl get \
             namespaces, which refreshes it, or log in again"
        )));
    }
    if config.cluster_url.scheme().is_none() {
        let url = format!("http://{}", config.cluster_url);
        config.cluster_url = url.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    }
    if config.cluster_url.authority().is_some_and(|it| it.as_str().contains('@')) {
        return Err(wrong("has credentials in the URL of its server: write them into the user"));
    }
    if config.cluster_url.scheme_str() == Some("http") {
        // No credential is sent in clear text.
        config.auth_info = AuthInfo::default();
    }
    let token = config.auth_info.token_file.as_deref().and_then(token_in);
    if let Some(token) = token.filter(|token| bearer(token).is_some()) {
        // For kube, which would send a line break at the end of the file; see `token_of_file`.
        config.auth_info.token = Some(token.into());
    }
    config.proxy_url = match given(&cluster.proxy_url) {
        Some(url) => Some(with_lower_scheme(url).parse().map_err(KubeconfigError::ParseProxyUrl)?),
        None => proxy_of_environment(&config.cluster_url)?,
    };
    Ok(config)
}

fn with_lower_scheme(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
        None => url.to_owned(),
    }
}

fn proxy_of_environment(hub: &Uri) -> Result<Option<Uri>, ConfigError> {
    let Some(host) = hub.host().filter(|_| hub.scheme() == Some(&Scheme::HTTPS)) else {
        return Ok(None);
    };
    let (variables, port) = (ProxyVariables::of_process(), hub.port_u16().unwrap_or(443));
    let proxy = variables.proxy_for(host.trim_matches(['[', ']']), port);
    let proxy = proxy.map(|url| with_lower_scheme(url).parse()).transpose();
    proxy.map_err(|error: InvalidUri| {
        ConfigError::Invalid(format!(
            "HTTPS_PROXY cannot be used: {error}; NO_PROXY excepts hosts from it"
        ))
    })
}

/// A client that sends its requests by `http`, through the layers of kube's own client, whose connector cannot be
/// replaced.
pub fn client<S, B>(config: &Config, http: S) -> kube::Result<Client>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S: Service<Request<Body>, Future: Send, Error: Into<BoxError>>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(token_of_file(config))
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .layer(config.extra_headers_layer()?)
        .map_err(S::Error::into as fn(S::Error) -> BoxError)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Sends the token that the user's token file then contains with each request, where [`config`] has found one.
///
/// Whatever replaces the file does so before the token expires. If the file is gone, the token that was read first remains.
fn token_of_file<B>(
    config: &Config,
) -> Option<MapRequestLayer<impl Fn(Request<B>) -> Request<B> + Clone + use<B>>> {
    let AuthInfo { token: Some(_), token_file: Some(file), .. } = &config.auth_info else {
        return None;
    };
    let file = file.clone();
    Some(MapRequestLayer::new(move |mut request: Request<B>| {
        if let Some(mut header) = token_in(&file).as_deref().and_then(bearer) {
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

fn bearer(token: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("Bearer {token}")).ok()
}

/// Base64 in several lines, as client-go accepts it.
fn join_lines(data: &mut String) {
    data.retain(|character| !matches!(character, '\r' | '\n'));
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

/// An empty value is none.
#[expect(clippy::ref_option, reason = "fields of kube's types")]
fn given(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|value| !value.is_empty())
}

/// What client-go refuses in a cluster.
fn check_cluster(cluster: &Cluster) -> Result<(), &'static str> {
    let file = given(&cluster.certificate_authority).is_some();
    let data = given(&cluster.certificate_authority_data).is_some();
    if file && data {
        return Err("has both certificate-authority and certificate-authority-data");
    }
    if (file || data) && cluster.insecure_skip_tls_verify == Some(true) {
        return Err(
            "has a certificate-authority, which is not allowed with insecure-skip-tls-verify",
        );
    }
    let schemes = ["http://", "https://", "socks5://"];
    let proxy = given(&cluster.proxy_url).map(with_lower_scheme);
    if proxy.is_some_and(|url| !schemes.iter().any(|scheme| url.starts_with(scheme))) {
        return Err("has a proxy-url that does not begin with http://, https:// or socks5://");
    }
    Ok(())
}

/// What client-go refuses in a user.
fn check_user(user: &AuthInfo) -> Result<(), &'static str> {
    let has_token = user.token.is_some() || user.token_file.is_some();
    if has_token && (user.username.is_some() || user.password.is_some()) {
        return Err("has both a token and a password: only one is allowed");
    }
    if user.token.as_ref().is_some_and(|token| bearer(token.expose_secret()).is_none()) {
        return Err(
            "has a token with a character that no header may contain, such as a line break",
        );
    }
    let both = (user.client_certificate.is_some() && user.client_certificate_data.is_some())
        || (user.client_key.is_some() && user.client_key_data.is_some());
    if both {
        return Err("has both a file and data of its client-certificate or client-key");
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
    let claims =
        URL_SAFE_NO_PAD.decode(provider.config.get("id-token")?.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
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
