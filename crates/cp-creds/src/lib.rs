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
//! [`own_credential`] returns the application's own token instead ([`own_token`]), without a request.
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
pub mod own_token;
pub mod server_url;
pub mod synced_secret;
pub mod tls;
pub mod token;

mod error;

use std::time::Instant;

use jiff::Timestamp;

use crate::api_server::ApiServer;
use crate::cli::{Arguments, OwnTokenArguments};
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

/// Returns an `ExecCredential` in JSON, with the application's own token.
pub fn own_credential(arguments: OwnTokenArguments, environment: Environment) -> Result<String, Error> {
    // The file may be one that blocks.
    deadline::within(arguments.timeout, move |_, _| own(&arguments, &environment))?
}

fn own(arguments: &OwnTokenArguments, environment: &Environment) -> Result<String, Error> {
    let info = environment.exec_info.as_deref().map(ExecInfo::parse).transpose()?;
    // The token is the same for every cluster: its name matters only for the server.
    let cluster = arguments.server.as_ref().map(|_| cluster_of(arguments.cluster.as_deref(), info.as_ref()));
    check_destination(arguments.server.as_deref(), info.as_ref(), cluster.transpose()?.as_ref())?;
    let credential = own_token::read(&arguments.path, &arguments.audience, Timestamp::now())?;
    let version = info.as_ref().map_or(ApiVersion::V1, ExecInfo::version);
    answer::render(version, &credential).map_err(|_| Error::Answer)
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
    let cluster = cluster_of(arguments.cluster.as_deref(), info.as_ref())?;
    check_destination(arguments.server.as_deref(), info.as_ref(), Some(&cluster))?;
    Ok((version, cluster))
}

fn cluster_of(flag: Option<&str>, info: Option<&ExecInfo>) -> Result<ClusterName, Error> {
    match (flag, info) {
        (Some(cluster), _) => Ok(ClusterName::parse(cluster)?),
        (None, Some(info)) => Ok(ClusterName::parse(info.cluster_name()?)?),
        (None, None) => Err(ExecInfoError::NotCalledAsPlugin.into()),
    }
}

/// Checks the server to which the caller is about to send the token.
fn check_destination(
    template: Option<&str>,
    info: Option<&ExecInfo>,
    cluster: Option<&ClusterName>,
) -> Result<(), Error> {
    if let Some(info) = info {
        info.check_protected()?;
    }
    if let (Some(template), Some(cluster)) = (template, cluster) {
        let info = info.ok_or(ExecInfoError::NotCalledAsPlugin)?;
        info.check_server(&template.replace(cli::CLUSTER, cluster.as_str()))?;
    }
    Ok(())
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
