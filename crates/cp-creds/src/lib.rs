//! The client-go exec credential plugin of ClusterProfile access providers: prints the token that the hub synced for a
//! cluster, after one GET.
//!
//! [`credential`] does everything, in these steps:
//!
//! 1. [`exec_info`] reads the cluster and the version of the response from the request;
//! 2. [`names`] validates everything that becomes part of a path;
//! 3. [`in_cluster`], else [`kubeconfig`], finds the hub as an [`api_server`];
//! 4. [`fetch`] gets the Secret, over [`tls`] and [`http`], under the [`deadline`];
//! 5. [`synced_secret`] validates the Secret and extracts the [`token`];
//! 6. [`answer`] renders it.
//!
//! # Guarantees
//!
//! - **One request**, no discovery, no redirect, no proxy, no retry: callers retry by themselves.
//! - **It ends in time**, and reports the step that took too long.
//! - **No secret byte in an error**: messages of parsers, which may quote their input, are omitted, and types that
//!   contain a secret have a `Debug` that prints nothing of it, or none.
//! - **It needs only** what the kernel and the pod provide: no shell, no system roots, no `/tmp`. It reads no locale,
//!   writes no file and starts no other program.

pub mod answer;
pub mod api_server;
pub mod cli;
pub mod deadline;
pub mod environment;
pub mod exec_info;
pub mod fetch;
pub mod http;
pub mod in_cluster;
pub mod install;
pub mod kubeconfig;
pub mod names;
pub mod server_url;
pub mod synced_secret;
pub mod tls;
pub mod token;

mod error;

use std::time::Instant;

use jiff::Timestamp;

use crate::api_server::ApiServer;
use crate::cli::Arguments;
use crate::deadline::Progress;
use crate::environment::Environment;
pub use crate::error::{Error, in_one_line};
use crate::exec_info::{ApiVersion, ExecInfo, ExecInfoError};
use crate::kubeconfig::Kubeconfig;
use crate::names::{AccountName, ClusterName, Namespace, SecretKey};

/// The namespace if nothing else specifies one.
const DEFAULT_NAMESPACE: &str = "default";

/// Returns an `ExecCredential` in JSON, with the requested token.
pub fn credential(arguments: Arguments, environment: Environment) -> Result<String, Error> {
    deadline::within(arguments.timeout, move |deadline, progress| {
        obtain(&arguments, &environment, deadline, progress)
    })?
}

fn obtain(
    arguments: &Arguments,
    environment: &Environment,
    deadline: Instant,
    progress: &Progress,
) -> Result<String, Error> {
    let (version, cluster) = question(arguments, environment)?;
    // Before any file is read, so that an invalid call is reported even without a hub.
    let account = AccountName::parse(&arguments.account)?;
    let (server, namespace) = hub(arguments, environment)?;
    let key = SecretKey::new(Namespace::parse(&namespace)?, cluster, account)?;
    let json = fetch::get(&server, &key.path(), deadline, progress).map_err(|source| Error::Fetch {
        secret: key.to_string(),
        server: server.url.to_string(),
        source,
    })?;
    let credential = synced_secret::read(&json, &key, Timestamp::now())
        .map_err(|why| Error::Refused { secret: key.to_string(), why })?;
    answer::render(version, &credential).map_err(|_| Error::Answer)
}

/// The cluster, and the version of the response. A flag takes precedence over the request.
fn question(arguments: &Arguments, environment: &Environment) -> Result<(ApiVersion, ClusterName), Error> {
    let info = environment.exec_info.as_deref().map(ExecInfo::parse).transpose()?;
    let version = info.as_ref().map_or(ApiVersion::V1, ExecInfo::version);
    let cluster = match (&arguments.cluster, &info) {
        (Some(cluster), _) => ClusterName::parse(cluster)?,
        (None, Some(info)) => ClusterName::parse(info.cluster_name()?)?,
        (None, None) => return Err(ExecInfoError::NotCalledAsPlugin.into()),
    };
    if let Some(info) = &info {
        info.check_protected()?;
    }
    if let Some(template) = &arguments.server {
        let info = info.as_ref().ok_or(ExecInfoError::NotCalledAsPlugin)?;
        info.check_server(&template.replace(cli::CLUSTER, cluster.as_str()))?;
    }
    Ok((version, cluster))
}

/// The hub, and the namespace of the Secret. The kubeconfig's namespace applies only if the kubeconfig leads to the
/// hub.
fn hub(arguments: &Arguments, environment: &Environment) -> Result<(ApiServer, String), Error> {
    let mut namespace = arguments.namespace.clone().or_else(|| environment.namespace.clone());
    if namespace.is_none() {
        namespace = in_cluster::namespace(environment)?;
    }
    let or_default = |namespace: Option<String>| namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    if let Some(server) = in_cluster::api_server(environment)? {
        return Ok((server, or_default(namespace)));
    }
    let hub = Kubeconfig::load(environment)?.hub()?;
    Ok((hub.api_server, or_default(namespace.or(hub.namespace))))
}
