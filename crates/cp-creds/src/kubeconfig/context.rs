//! Resolves the current context of kubeconfig files to the hub.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::file::{File, KubeconfigCluster, Text, User, filled};
use crate::api_server::{ApiServer, ClientCertificate, Trust};
use crate::names::excerpt;
use crate::proxy::Proxy;
use crate::server_url::ServerUrl;
use crate::token::Token;

const NO_CLUSTER: &str = "it has no cluster";
const NO_SERVER: &str = "it has no server";

/// Follows the current context to the hub and a namespace, if the context sets one. Each file has its directory.
pub fn resolve(files: &[(&Path, File)]) -> Result<(ApiServer, Option<String>)> {
    let name = files.iter().find_map(|(_, file)| filled(&file.current_context));
    let (_, context) =
        find(files, "context", name.context("current-context is not set")?, File::contexts)?;
    let context = context.as_ref().context(NO_CLUSTER)?;
    let name = filled(&context.cluster).context(NO_CLUSTER)?;
    let (directory, cluster) = find(files, "cluster", name, File::clusters)?;
    let mut api_server = reached(name, cluster.as_ref().context(NO_SERVER)?, directory)?;
    if let Some(name) = filled(&context.user)
        && let (directory, Some(user)) = find(files, "user", name, File::users)?
    {
        identify(&mut api_server, name, user, directory)?;
    }
    Ok((api_server, filled(&context.namespace).map(str::to_owned)))
}

/// The first entry with this name, and the directory of its file.
fn find<'a, E: 'a, I: Iterator<Item = (&'a str, &'a Option<E>)>>(
    files: &'a [(&Path, File)],
    what: &str,
    wanted: &str,
    entries: impl Fn(&'a File) -> I,
) -> Result<(&'a Path, &'a Option<E>)> {
    let found = files.iter().find_map(|(directory, file)| {
        let (_, entry) = entries(file).find(|(name, _)| *name == wanted)?;
        Some((*directory, entry))
    });
    found.with_context(|| format!("there is no {what} {}", excerpt(wanted)))
}

fn reached(name: &str, cluster: &KubeconfigCluster, directory: &Path) -> Result<ApiServer> {
    let server = filled(&cluster.server).context(NO_SERVER)?;
    let url =
        ServerUrl::parse(server).with_context(|| format!("server of cluster {}", excerpt(name)))?;
    let proxy = filled(&cluster.proxy_url).map(Proxy::parse).transpose();
    let proxy = proxy.with_context(|| format!("proxy-url of cluster {}", excerpt(name)))?;
    let roots = bytes(
        ("certificate-authority-data", &cluster.certificate_authority_data),
        ("certificate-authority", &cluster.certificate_authority),
        directory,
    )?;
    let trust = match (roots, cluster.insecure_skip_tls_verify.0.unwrap_or(false)) {
        (Some(_), true) => bail!(
            "cluster {} has both a certificate-authority and insecure-skip-tls-verify",
            excerpt(name)
        ),
        (Some(roots), false) => Trust::Roots(roots),
        (None, true) => Trust::Anybody,
        (None, false) => bail!(
            "cluster {} has no certificate-authority: set it, since cp-creds does not use system roots",
            excerpt(name)
        ),
    };
    let tls_server_name = filled(&cluster.tls_server_name).map(str::to_owned);
    Ok(ApiServer { url, proxy, trust, tls_server_name, token: None, certificate: None })
}

fn identify(server: &mut ApiServer, name: &str, user: &User, directory: &Path) -> Result<()> {
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
        ensure!(
            !there.as_ref().is_some_and(is_given),
            "user {} has {field}, which cp-creds does not support: {why}",
            excerpt(name)
        );
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
    ensure!(
        chain.is_some() == key.is_some(),
        "user {} has only one of client-certificate and client-key",
        excerpt(name)
    );
    server.certificate = chain.zip(key).map(|(chain, key)| ClientCertificate { chain, key });
    Ok(())
}

/// As in client-go, a token file takes precedence over a token, which counts while the file is missing or empty.
fn token(name: &str, user: &User, directory: &Path) -> Result<Option<Token>> {
    let file = filled(&user.token_file).map(|path| read("tokenFile", &directory.join(path)));
    let file = file.map(|file| file.map(|bytes| bytes.trim_ascii().to_vec()));
    let (field, bytes) = match (file, filled(&user.token)) {
        (Some(Ok(bytes)), Some(_)) if !bytes.is_empty() => ("tokenFile", bytes),
        (_, Some(token)) => ("token", token.as_bytes().to_vec()),
        (Some(file), None) => ("tokenFile", file?),
        (None, None) => return Ok(None),
    };
    let token = Token::from_bytes(bytes);
    token
        .map(Some)
        .with_context(|| format!("{field} of user {} is not a valid bearer token", excerpt(name)))
}

/// As in client-go, a field has data or names a file.
fn bytes(
    (data_field, data): (&str, &Text),
    (file_field, file): (&str, &Text),
    directory: &Path,
) -> Result<Option<Vec<u8>>> {
    if let Some(data) = filled(data) {
        ensure!(filled(file).is_none(), "{data_field} and {file_field} are both specified");
        let encoded: String = data.split_ascii_whitespace().collect();
        let decoded = STANDARD.decode(encoded).map(Some);
        return decoded.map_err(|_| anyhow!("{data_field} is not valid base64"));
    }
    filled(file).map(|path| read(file_field, &directory.join(path))).transpose()
}

fn read(field: &str, path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {field} {}", path.display()))
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
