//! The hub from inside a pod: two environment variables and the files of the pod's ServiceAccount.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::api_server::{ApiServer, Trust};
use crate::environment::Environment;
use crate::server_url::ServerUrl;
use crate::token::Token;

/// The hub, if this process runs in a pod with a ServiceAccount. A pod without one (`automountServiceAccountToken:
/// false`) can use a kubeconfig instead.
pub fn api_server(environment: &Environment) -> Result<Option<ApiServer>> {
    let (Some(host), Some(port)) = (&environment.service_host, &environment.service_port) else {
        return Ok(None);
    };
    let path = environment.service_account_file("token");
    let Some(token) = read(&path)? else { return Ok(None) };
    let token = Token::from_bytes(token)
        .with_context(|| format!("{} is not a valid bearer token", path.display()))?;
    let path = environment.service_account_file("ca.crt");
    let roots = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let url = ServerUrl::in_cluster(host, port)
        .context("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not a valid address")?;
    Ok(Some(ApiServer {
        url,
        proxy: None,
        trust: Trust::Roots(roots),
        tls_server_name: None,
        token: Some(token),
        certificate: None,
    }))
}

/// The namespace of the pod that this process runs in, if any.
pub fn namespace(environment: &Environment) -> Result<Option<String>> {
    let namespace =
        read(&environment.service_account_file("namespace"))?.filter(|bytes| !bytes.is_empty());
    Ok(namespace.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads a file, without white space around its content, if it exists.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.trim_ascii().to_vec())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
