//! Resolves the current context of kubeconfig files to the hub.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::file::{File, KubeconfigCluster, Text, User, filled};
use crate::api_server::{ApiServer, ClientCertificate, Trust};
use crate::names::excerpt;
use crate::proxy::{InvalidProxy, Proxy};
use crate::server_url::{InvalidServerUrl, ServerUrl};
use crate::token::{InvalidToken, Token};

/// Why a context does not lead to the hub.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No file sets the current context.
    #[error("current-context is not set")]
    NotSet,
    /// A referenced entry does not exist.
    #[error("there is no {what} {name}")]
    Missing {
        /// The kind of the entry.
        what: &'static str,
        /// Its name, quoted.
        name: String,
    },
    /// The context has no cluster, or the cluster no server.
    #[error("it has no {0}")]
    Without(&'static str),
    /// The server's URL is rejected.
    #[error("server of cluster {cluster}: {why}")]
    Server {
        /// The cluster's name, quoted.
        cluster: String,
        why: InvalidServerUrl,
    },
    /// The proxy's URL is rejected.
    #[error("proxy-url of cluster {cluster}: {why}")]
    Proxy {
        /// The cluster's name, quoted.
        cluster: String,
        why: InvalidProxy,
    },
    /// The kubeconfig requires an unsupported feature.
    #[error("user {user} has {field}, which cp-creds does not support: {why}")]
    NotDone {
        /// The user's name, quoted.
        user: String,
        field: &'static str,
        /// The reason.
        why: &'static str,
    },
    #[error("{0} is not valid base64")]
    NotBase64(&'static str),
    #[error("{0} and {1} are both specified")]
    Both(&'static str, &'static str),
    /// A referenced file cannot be read.
    #[error("cannot read {field} {path}")]
    Unreadable { field: &'static str, path: PathBuf, source: io::Error },
    /// A token is not valid.
    #[error("{field} of user {user} is not a valid bearer token: {why}")]
    Token {
        field: &'static str,
        /// The user's name, quoted.
        user: String,
        why: InvalidToken,
    },
    /// The cluster's certificate could not be verified.
    #[error(
        "cluster {0} has no certificate-authority: set it, since cp-creds does not use system roots"
    )]
    NoRoots(String),
    /// Two fields contradict each other.
    #[error("cluster {0} has both a certificate-authority and insecure-skip-tls-verify")]
    RootsAndInsecure(String),
    /// A certificate without its key, or a key without its certificate.
    #[error("user {0} has only one of client-certificate and client-key")]
    HalfACertificate(String),
}

/// Follows the current context to the hub and a namespace, if the context sets one. Each file has its directory.
pub fn resolve(files: &[(&Path, File)]) -> Result<(ApiServer, Option<String>), ContextError> {
    let name = files
        .iter()
        .find_map(|(_, file)| filled(&file.current_context))
        .ok_or(ContextError::NotSet)?;
    let context = files
        .iter()
        .flat_map(|(_, file)| file.contexts.iter().flatten())
        .find(|entry| entry.name.0 == name)
        .ok_or_else(|| missing("context", name))?
        .context
        .as_ref()
        .ok_or(ContextError::Without("cluster"))?;

    let name = filled(&context.cluster).ok_or(ContextError::Without("cluster"))?;
    let (directory, cluster) = files
        .iter()
        .flat_map(|(directory, file)| {
            file.clusters.iter().flatten().map(move |entry| (directory, entry))
        })
        .find(|(_, entry)| entry.name.0 == name)
        .ok_or_else(|| missing("cluster", name))?;
    let cluster = cluster.cluster.as_ref().ok_or(ContextError::Without("server"))?;
    let mut api_server = reached(name, cluster, directory)?;

    if let Some(name) = filled(&context.user) {
        let (directory, user) = files
            .iter()
            .flat_map(|(directory, file)| {
                file.users.iter().flatten().map(move |entry| (directory, entry))
            })
            .find(|(_, entry)| entry.name.0 == name)
            .ok_or_else(|| missing("user", name))?;
        if let Some(user) = &user.user {
            identify(&mut api_server, name, user, directory)?;
        }
    }
    Ok((api_server, filled(&context.namespace).map(str::to_owned)))
}

fn reached(
    name: &str,
    cluster: &KubeconfigCluster,
    directory: &Path,
) -> Result<ApiServer, ContextError> {
    let server = filled(&cluster.server).ok_or(ContextError::Without("server"))?;
    let url = ServerUrl::parse(server)
        .map_err(|why| ContextError::Server { cluster: excerpt(name), why })?;
    let proxy = filled(&cluster.proxy_url).map(Proxy::parse).transpose();
    let proxy = proxy.map_err(|why| ContextError::Proxy { cluster: excerpt(name), why })?;
    let roots = bytes(
        ("certificate-authority-data", &cluster.certificate_authority_data),
        ("certificate-authority", &cluster.certificate_authority),
        directory,
    )?;
    let trust = match (roots, cluster.insecure_skip_tls_verify.0.unwrap_or(false)) {
        (Some(_), true) => return Err(ContextError::RootsAndInsecure(excerpt(name))),
        (Some(roots), false) => Trust::Roots(roots),
        (None, true) => Trust::Anybody,
        (None, false) => return Err(ContextError::NoRoots(excerpt(name))),
    };
    let tls_server_name = filled(&cluster.tls_server_name).map(str::to_owned);
    Ok(ApiServer { url, proxy, trust, tls_server_name, token: None, certificate: None })
}

fn identify(
    server: &mut ApiServer,
    name: &str,
    user: &User,
    directory: &Path,
) -> Result<(), ContextError> {
    const RECURSION: &str = "cp-creds is a credential plugin and runs no other";
    const PASSWORD: &str = "API servers no longer accept passwords";
    const IMPERSONATION: &str = "grant the user itself get on the Secret instead";
    for (there, field, why) in [
        (&user.exec, "exec", RECURSION),
        (&user.auth_provider, "auth-provider", RECURSION),
        (&user.username, "username", PASSWORD),
        (&user.password, "password", PASSWORD),
        (&user.impersonate, "as", IMPERSONATION),
        (&user.as_uid, "as-uid", IMPERSONATION),
        (&user.as_groups, "as-groups", IMPERSONATION),
        (&user.as_user_extra, "as-user-extra", IMPERSONATION),
    ] {
        if there.as_ref().is_some_and(is_given) {
            return Err(ContextError::NotDone { user: excerpt(name), field, why });
        }
    }
    server.token = token(name, user, directory)?;
    let chain = bytes(
        ("client-certificate-data", &user.client_certificate_data),
        ("client-certificate", &user.client_certificate),
        directory,
    )?;
    let key = bytes(
        ("client-key-data", &user.client_key_data),
        ("client-key", &user.client_key),
        directory,
    )?;
    if chain.is_some() != key.is_some() {
        return Err(ContextError::HalfACertificate(excerpt(name)));
    }
    server.certificate = chain.zip(key).map(|(chain, key)| ClientCertificate { chain, key });
    Ok(())
}

/// As in client-go, a token file takes precedence over a token, which counts while the file is missing or empty.
fn token(name: &str, user: &User, directory: &Path) -> Result<Option<Token>, ContextError> {
    let file = filled(&user.token_file).map(|path| read("tokenFile", &directory.join(path)));
    let token = filled(&user.token).map(|token| token.as_bytes().to_vec());
    let (field, bytes) = match (file, token) {
        (Some(Ok(bytes)), None) => ("tokenFile", bytes.trim_ascii().to_vec()),
        (Some(Ok(bytes)), Some(_)) if !bytes.trim_ascii().is_empty() => {
            ("tokenFile", bytes.trim_ascii().to_vec())
        }
        (Some(Err(error)), None) => return Err(error),
        (_, Some(token)) => ("token", token),
        (None, None) => return Ok(None),
    };
    let token = Token::from_bytes(bytes);
    token.map(Some).map_err(|why| ContextError::Token { field, user: excerpt(name), why })
}

/// As in client-go, a field has data or names a file.
fn bytes(
    (data_field, data): (&'static str, &Text),
    (file_field, file): (&'static str, &Text),
    directory: &Path,
) -> Result<Option<Vec<u8>>, ContextError> {
    if let Some(data) = filled(data) {
        if filled(file).is_some() {
            return Err(ContextError::Both(data_field, file_field));
        }
        let encoded: String = data.split_ascii_whitespace().collect();
        return STANDARD.decode(encoded).map(Some).map_err(|_| ContextError::NotBase64(data_field));
    }
    filled(file).map(|path| read(file_field, &directory.join(path))).transpose()
}

fn read(field: &'static str, path: &Path) -> Result<Vec<u8>, ContextError> {
    fs::read(path).map_err(|source| ContextError::Unreadable {
        field,
        path: path.to_path_buf(),
        source,
    })
}

/// Whether a field has a value: for kubectl, an empty one is none.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

fn missing(what: &'static str, name: &str) -> ContextError {
    ContextError::Missing { what, name: excerpt(name) }
}
