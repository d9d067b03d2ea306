//! The client-go exec credential plugin of ClusterProfile access providers: prints the token that the hub synced for a
//! cluster, after one GET.
//!
//! [`credential`] does everything, in these steps:
//!
//! 1. [`exec_info`] reads the cluster and the version of the response from the request;
//! 2. [`names`] validates everything that becomes part of a path;
//! 3. [`in_cluster`], else [`kubeconfig`], finds the hub as an [`api_server`];
//! 4. [`fetch`] gets the Secret, over [`tls`] and [`http`], perhaps through a [`proxy`], under the [`deadline`];
//! 5. [`synced_secret`] validates the Secret and extracts the [`token`];
//! 6. [`answer`] renders it.
//!
//! With `--own-token`, [`credential`] returns the application's own token instead ([`own_token`]), without a request.
//!
//! # Guarantees
//!
//! - **One request**, no discovery, no redirect, no retry: callers retry by themselves.
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
pub mod proxy;
pub mod server_url;
pub mod synced_secret;
pub mod tls;
pub mod token;

use std::time::Instant;

use anyhow::{Context as _, Error, Result, anyhow};
use jiff::Timestamp;

use crate::api_server::ApiServer;
use crate::cli::{Arguments, Source};
use crate::deadline::Progress;
use crate::environment::Environment;
use crate::exec_info::ExecInfo;
use crate::names::{AccountName, ClusterName, Namespace, SecretKey};
use crate::proxy::Proxy;

/// The namespace if nothing else specifies one.
const DEFAULT_NAMESPACE: &str = "default";

/// The variable is not set: the caller is not a client.
const NOT_CALLED_AS_PLUGIN: &str = "no cluster: set KUBERNETES_EXEC_INFO or --cluster-name";

/// An error and its causes on one line: escapes them, since they may contain text from elsewhere.
#[must_use]
pub fn in_one_line(error: &Error) -> String {
    object_names::visible(&format!("{error:#}"))
}

/// Returns an `ExecCredential` in JSON, with the requested token.
pub fn credential(arguments: Arguments, environment: Environment) -> Result<String> {
    deadline::within(arguments.timeout, move |deadline, progress| {
        obtain(&arguments, &environment, deadline, progress)
    })?
}

fn obtain(
    arguments: &Arguments,
    environment: &Environment,
    deadline: Instant,
    progress: &Progress,
) -> Result<String> {
    let info = environment.exec_info.as_deref().map(ExecInfo::parse).transpose()?;
    let info = info.as_ref();
    let credential = match &arguments.source {
        Source::Synced { account, namespace } => {
            let cluster = cluster_of(arguments, info)?;
            check_destination(arguments, info, Some(&cluster))?;
            // Before any file is read, so that an invalid call is reported even without a hub.
            let account = AccountName::parse(account)?;
            let (server, namespace) = hub(namespace.as_ref(), environment)?;
            let key = SecretKey::new(Namespace::parse(&namespace)?, cluster, account)?;
            // Consumers' documentation quotes the beginning of this message.
            let json = fetch::get(&server, &key.path(), deadline, progress).with_context(|| {
                format!("failed to get synced credential secret {key} from {server}")
            })?;
            synced_secret::read(&json, &key, Timestamp::now())
                .with_context(|| format!("synced credential secret {key} is refused"))?
        }
        Source::Own { path, audience } => {
            // The token is the same for every cluster: its name matters only for the server.
            let cluster =
                arguments.server.as_ref().map(|_| cluster_of(arguments, info)).transpose()?;
            check_destination(arguments, info, cluster.as_ref())?;
            own_token::read(path, audience, Timestamp::now())?
        }
    };
    // Without a request, v1.
    let version = info.map_or(exec_info::V1, |info| info.version);
    Ok(answer::render(version, &credential))
}

/// A flag takes precedence over the request.
fn cluster_of(arguments: &Arguments, info: Option<&ExecInfo<'_>>) -> Result<ClusterName> {
    match &arguments.cluster {
        Some(cluster) => ClusterName::parse(cluster),
        None => ClusterName::parse(&info.context(NOT_CALLED_AS_PLUGIN)?.cluster_name()?),
    }
}

/// Checks the server to which the caller is about to send the token.
fn check_destination(
    arguments: &Arguments,
    info: Option<&ExecInfo<'_>>,
    cluster: Option<&ClusterName>,
) -> Result<()> {
    if let Some(info) = info {
        info.check_protected()?;
    }
    if let (Some(template), Some(cluster)) = (&arguments.server, cluster) {
        let info = info.context(NOT_CALLED_AS_PLUGIN)?;
        info.check_server(&template.replace(cli::CLUSTER, cluster.as_str()))?;
    }
    Ok(())
}

/// The hub, and the namespace of the Secret. The kubeconfig's namespace applies only if the kubeconfig leads to the
/// hub.
fn hub(namespace: Option<&String>, environment: &Environment) -> Result<(ApiServer, String)> {
    let mut namespace = namespace.or(environment.namespace.as_ref()).cloned();
    if namespace.is_none() {
        namespace = in_cluster::namespace(environment)?;
    }
    let (mut server, of_context) = match in_cluster::api_server(environment)? {
        Some(server) => (server, None),
        None => kubeconfig::hub(environment)?,
    };
    if server.proxy.is_none()
        && let Some(proxy) = environment.proxies.proxy_for(&server.url.host, server.url.port)
    {
        let proxy = Proxy::of_variable(proxy).map_err(|why| {
            anyhow!("HTTPS_PROXY cannot be used: {why}; NO_PROXY excepts hosts from it")
        })?;
        server.proxy = Some(proxy);
    }
    Ok((server, namespace.or(of_context).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())))
}
