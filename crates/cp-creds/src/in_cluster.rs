//! The hub from inside a pod: two environment variables and the files of the pod's ServiceAccount.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::api_server::{ApiServer, Trust};
use crate::environment::Environment;
use crate::server_url::{InvalidServerUrl, ServerUrl};
use crate::token::{InvalidToken, Token};

/// Why a pod's ServiceAccount cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InClusterError {
    /// A file of the ServiceAccount cannot be read.
    #[error("cannot read {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// The pod's token is not valid.
    #[error("{path} is not a valid bearer token: {why}")]
    Token { path: PathBuf, why: InvalidToken },
    /// The variables do not contain a valid address.
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not a valid address: {0}")]
    Server(InvalidServerUrl),
}

/// The hub, if this process runs in a pod with a ServiceAccount. A pod without one (`automountServiceAccountToken:
/// false`) can use a kubeconfig instead.
pub fn api_server(environment: &Environment) -> Result<Option<ApiServer>, InClusterError> {
    let (Some(host), Some(port)) = (&environment.service_host, &environment.service_port) else {
        return Ok(None);
    };
    let path = environment.service_account_file("token");
    let Some(token) = read(&path)? else { return Ok(None) };
    let token = Token::from_bytes(token).map_err(|why| InClusterError::Token { path, why })?;
    let path = environment.service_account_file("ca.crt");
    let roots = fs::read(&path).map_err(|source| InClusterError::Unreadable { path, source })?;
    Ok(Some(ApiServer {
        url: ServerUrl::in_cluster(host, port).map_err(InClusterError::Server)?,
        proxy: None,
        trust: Trust::Roots(roots),
        tls_server_name: None,
        token: Some(token),
        certificate: None,
    }))
}

/// The namespace of the pod that this process runs in, if any.
pub fn namespace(environment: &Environment) -> Result<Option<String>, InClusterError> {
    let namespace =
        read(&environment.service_account_file("namespace"))?.filter(|bytes| !bytes.is_empty());
    Ok(namespace.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads a file, without white space around its content, if it exists.
fn read(path: &Path) -> Result<Option<Vec<u8>>, InClusterError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.trim_ascii().to_vec())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(InClusterError::Unreadable { path: path.to_owned(), source }),
    }
}
