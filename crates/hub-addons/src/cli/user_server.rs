//! The arguments of `user-server`. Each flag can also be set by the environment variable of its name.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use hub_api::names::{AccountName, Namespace, is_dns_subdomain};
use hub_core::own_identity::{self, DEFAULT_AUDIENCE};
use hub_core::protected::{self, ProtectedNamespaces};
use hub_runtime::observe::health::BindAddress;
use user_server::{AuthoritySettings, ProxyServerSettings, UserServerMetrics, UserServerSettings};

use super::consumers::namespace;
use super::run::HostArgs;
use super::{ObjectName, with_variable};

/// Arguments of `user-server`.
#[derive(Debug, Args)]
#[command(mut_args(with_variable))]
pub struct UserServerArgs {
    /// Kubeconfig of the hub; by default the Pod's ServiceAccount, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Where to serve applications
    #[arg(long, default_value = ":9092")]
    pub bind_address: BindAddress,

    /// Directory of the serving certificate, tls.crt and tls.key, which are reloaded when they change
    #[arg(long, value_name = "DIRECTORY")]
    pub certificate_directory: Option<PathBuf>,

    /// Without a directory: the Secret of its own certificate authority, and the ConfigMap of the same name in which it
    /// publishes ca.crt. Both must exist
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "serving_names")]
    pub authority: Option<ObjectName>,

    /// DNS names of the serving certificate that this authority issues
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = object_name)]
    pub serving_names: Vec<String>,

    /// Audience that an application's token must be projected for
    #[arg(long, default_value = DEFAULT_AUDIENCE)]
    pub audience: String,

    /// Name of the ManagedServiceAccount by which each cluster is reached, which begins with the default. On the cluster
    /// it needs permission to impersonate the applications' users
    #[arg(long, value_name = "NAME", value_parser = account, default_value = own_identity::ACCOUNT)]
    pub account: AccountName,

    /// Namespaces whose applications reach no cluster, as NAME,PREFIX*; the namespaces of joined clusters are always
    /// included
    #[arg(long, value_name = "NAMESPACES", default_value = protected::DEFAULT)]
    pub protected_namespaces: ProtectedNamespaces,

    /// On a hub without Open Cluster Management: treat a ManagedClusterSetBinding as bound if its set exists
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub compute_bound: bool,

    /// How many requests of one namespace may be open at once, watches included, of which half may go to one cluster. One
    /// that switches protocols, as exec does, counts as 20
    #[arg(long, value_name = "NUMBER", default_value = "500")]
    pub max_requests_per_namespace: NonZeroUsize,

    /// How many connections without an admitted request are kept, a quarter of them from one address. IPv6 networks of
    /// 64 bits count as one address; beyond the number, the oldest are closed
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    pub max_idle_connections: NonZeroUsize,

    /// Refuse requests to clusters whose accounts have a CA in common, each of which can receive requests for the other.
    /// Not the default: whoever reports the CA of another cluster as its own would take it from its applications
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub refuse_shared_authorities: bool,

    /// Write each request to standard output, as a line of JSON. It has the user, the cluster, the method, the path
    /// without its query, and the status code
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub access_log: bool,

    /// How cluster-proxy's proxy server is reached
    #[command(flatten)]
    pub proxy_server: ProxyServerArgs,

    /// Metrics, probes and the log
    #[command(flatten)]
    pub host: HostArgs,
}

/// How cluster-proxy's proxy server is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "The proxy server of cluster-proxy")]
#[allow(clippy::struct_field_names, reason = "these are the names of the flags")]
pub struct ProxyServerArgs {
    /// Namespace of the proxy server and its Secrets
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace, default_value = "open-cluster-management-addon")]
    pub proxy_server_namespace: Namespace,

    /// Host of the proxy server, which its certificate must name; by default the Service proxy-entrypoint in its
    /// namespace
    #[arg(long, value_name = "HOST")]
    pub proxy_server_host: Option<String>,

    /// Port for clients of the proxy server
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    pub proxy_server_port: u16,

    /// Secret with the certificate of clients of the proxy server
    #[arg(long, value_name = "NAME", value_parser = object_name, default_value = "proxy-client")]
    pub proxy_server_client_secret: String,

    /// Secret with the CA of the proxy server, in ca.crt
    #[arg(long, value_name = "NAME", value_parser = object_name, default_value = "proxy-server-ca")]
    pub proxy_server_ca_secret: String,
}

impl UserServerArgs {
    /// The settings of the user server.
    pub fn settings(&self, metrics: UserServerMetrics) -> UserServerSettings {
        let proxy = &self.proxy_server;
        let in_cluster = || format!("proxy-entrypoint.{}.svc", proxy.proxy_server_namespace);
        UserServerSettings {
            audience: self.audience.clone(),
            account: self.account.clone(),
            protected: self.protected_namespaces.clone(),
            requests_per_namespace: self.max_requests_per_namespace.get(),
            idle_connections: self.max_idle_connections.get(),
            refuse_shared_authorities: self.refuse_shared_authorities,
            access_log: self.access_log,
            proxy_server: ProxyServerSettings {
                host: proxy.proxy_server_host.clone().unwrap_or_else(in_cluster),
                port: proxy.proxy_server_port,
                namespace: proxy.proxy_server_namespace.clone(),
                client_secret: proxy.proxy_server_client_secret.clone(),
                ca_secret: proxy.proxy_server_ca_secret.clone(),
            },
            metrics,
        }
    }

    /// Where the authority of the serving certificate is, if the user server issues it.
    pub fn authority(&self, protocols: &'static [&'static [u8]]) -> Option<AuthoritySettings> {
        let ObjectName { namespace, name } = self.authority.clone()?;
        Some(AuthoritySettings {
            namespace,
            name,
            dns_names: self.serving_names.clone(),
            protocols,
        })
    }
}

fn account(text: &str) -> Result<AccountName, String> {
    let name = AccountName::from(object_name(text)?.as_str());
    // Only the token of such an account is never copied.
    if own_identity::is_reserved(&name) {
        Ok(name)
    } else {
        Err(format!("must begin with {}", own_identity::ACCOUNT))
    }
}

fn object_name(text: &str) -> Result<String, String> {
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a valid name"))
    }
}
