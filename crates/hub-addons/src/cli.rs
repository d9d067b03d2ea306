//! The command line. Every flag of `run` and `user-server` can also be set by an environment variable.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

mod consumers;
mod run;
mod user_server;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser,
};
use clap::{Arg, Args, Parser, Subcommand};
use hub_api::crds::Flavour;
use hub_api::names::{ManagerName, is_dns_label, is_dns_subdomain};

pub use self::run::{HostArgs, LogFormat, RunArgs};
pub use self::user_server::UserServerArgs;

/// Publishes an Open Cluster Management hub's clusters as ClusterProfiles
///
/// Controllers for a hub: for every ManagedClusterSet that is bound to a namespace, they maintain one ClusterProfile
/// per cluster in that namespace, so that applications there find their clusters without kubeconfigs.
#[derive(Debug, Parser)]
#[command(name = "hub-addons", version = crate::VERSION, propagate_version = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers whose feature gate is enabled
    Run(Box<RunArgs>),
    /// Serve applications that reach their clusters by their own identity
    ///
    /// A request is https://USER-SERVER/CLUSTER/PATH, with the token of the application's ServiceAccount, projected for
    /// the audience of the user server. If the cluster is granted to the application's namespace, the request is sent
    /// through the tunnel of cluster-proxy to the cluster's API server, as the user
    /// cluster:hub:system:serviceaccount:NAMESPACE:NAME. When the grant ends, what is open ends.
    UserServer(Box<UserServerArgs>),
    /// Check that an installation works, as `helm test` and `helm uninstall` do
    ///
    /// Exit status: 0 if what is expected works, 1 if not.
    Check(Box<CheckArgs>),
    /// Withdraw the entries of access providers that no controller writes any more
    ///
    /// If an access provider is renamed or its feature gate is disabled, its entries stay in the ClusterProfiles of
    /// this cluster manager, and consumers continue to use them.
    Cleanup(CleanupArgs),
    /// Print the CustomResourceDefinitions of all kinds that the controllers use, as YAML
    ///
    /// A hub with Open Cluster Management has all of them except possibly ClusterProfile. For a hub without it, pipe
    /// the output into `kubectl apply -f -`.
    Crds(CrdsArgs),
    /// Print the version
    Version,
}

/// The expectations.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct CheckArgs {
    /// Kubeconfig of the hub; by default the Pod's ServiceAccount, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "HUB_ADDONS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Deployments that must have an available replica, as NAMESPACE/NAME,NAMESPACE/NAME; also expects that the hub
    /// serves ClusterProfiles
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub expect_deployments: Vec<ObjectName>,

    /// Leases that must be held and renewed by a controller, as NAMESPACE/NAME,NAMESPACE/NAME
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub expect_leases: Vec<ObjectName>,

    /// Name of an access provider: a server that ClusterProfiles publish under that name must present a certificate that
    /// names it and that the published CA verifies; met if no ClusterProfile has it yet
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub expect_server: Option<String>,

    /// Namespace of an installation, of whose consumer access nothing must be left
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub expect_withdrawn: Option<String>,
}

/// What to withdraw.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    /// Kubeconfig of the hub; by default the Pod's ServiceAccount, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "HUB_ADDONS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Name of the cluster manager in ClusterProfiles: only its profiles are changed
    #[arg(long, env = "HUB_ADDONS_CLUSTER_MANAGER_NAME", default_value = ManagerName::DEFAULT)]
    pub cluster_manager_name: ManagerName,

    /// Name of an access provider whose entries to withdraw; can be repeated. Entries that a controller still writes
    /// come back
    #[arg(long, value_name = "NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub access_provider: Vec<String>,

    /// Only print what would be changed
    #[arg(long)]
    pub dry_run: bool,
}

/// Which CRDs to print.
#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// List types in the status of ClusterProfile: `map` as in cluster-inventory-api v0.1.0 and later, `atomic` as in
    /// Open Cluster Management; `v1alpha2` also serves v1alpha2, as planned for cluster-inventory-api v0.2.0
    #[arg(long, value_parser = flavour(), default_value = "map")]
    pub cluster_profile_lists: Flavour,

    /// Create the CustomResourceDefinition of ClusterProfile on the hub if it is missing, instead of printing
    ///
    /// An existing one is not changed.
    #[arg(long)]
    pub create_missing: bool,

    /// With --create-missing: kubeconfig of the hub; by default the Pod's ServiceAccount, else $KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, env = "HUB_ADDONS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Parses a published flavour of the ClusterProfile CRD.
fn flavour() -> impl TypedValueParser<Value = Flavour> {
    let flavours = [
        (Flavour::Map, "Lists are maps by name or type"),
        (Flavour::Atomic, "Lists are replaced as a whole"),
        (Flavour::V1alpha2, "Lists are maps, and v1alpha2 is served beside v1alpha1"),
    ];
    let values = flavours.map(|(flavour, help)| PossibleValue::new(flavour.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|text| text.parse::<Flavour>())
}

/// A namespaced object on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_label(namespace) && is_dns_subdomain(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("expected NAMESPACE/NAME, got {text:?}")),
        }
    }
}

/// Lets the variable `HUB_ADDONS_<FLAG>` set a flag, too.
fn with_variable(flag: Arg) -> Arg {
    let variable = format!("HUB_ADDONS_{}", flag.get_id().as_str().to_uppercase());
    flag.env(variable)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
