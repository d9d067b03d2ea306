//! The command line of `kubectl clusterprofile`.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hub_api::names::{ManagerName, is_dns_label, is_dns_subdomain, is_label_key, is_label_value};
use hub_core::access;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub use crate::decisions::DecisionArgs;

use crate::CommandError;
use crate::hub::Hub;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the clusters that namespaces can see
    List(ListArgs),
    /// Create a ClusterAccess, which asks for access to the clusters that are granted to a namespace
    ///
    /// With --dry-run=client and an output format, prints what to commit.
    Request(RequestArgs),
    /// Print why a namespace cannot see or reach a cluster
    ///
    /// Checks everything that an application depends on: ClusterAccess, binding, set, profile, access provider, account,
    /// token and credential. What it may do on a cluster, `test` tries. Without --all it prints problems only, and each
    /// problem once. A step that you do not have permission to read is marked with "?", and the others are explained.
    ///
    /// Exit status: 0 if everything is in order, 1 if there is a problem, 2 if the command cannot be carried out, 3 if
    /// there is no problem in what could be read, and something could not be read.
    Explain(ExplainArgs),
    /// Write one HTML file that shows which namespace reaches which cluster
    ///
    /// The file loads nothing from elsewhere, and contains no secret.
    Report(ReportArgs),
    /// Reach a cluster as an application does, and print every hop with its duration
    ///
    /// Runs the exec plugin and asks the cluster for its version through the endpoint that the profile publishes.
    ///
    /// Exit status: 0 if the cluster responds, 1 if a hop fails, 2 if the command cannot be carried out.
    Test(TestArgs),
    /// Print a kubeconfig for the clusters that a namespace can see
    ///
    /// It runs the exec plugin cp-creds, which reads the token on the hub, and contains no secret itself.
    Kubeconfig(KubeconfigArgs),
}

/// A namespace and a cluster in it, in each of the forms that people type.
#[derive(Debug, Args)]
#[group(skip)]
pub struct PlaceArgs {
    /// The namespace and the cluster; with --namespace, the cluster alone
    #[arg(value_name = "NAMESPACE[/CLUSTER]", num_args = 0..=2, value_parser = name)]
    pub names: Vec<String>,
}

impl PlaceArgs {
    /// The namespace, which is by default that of the context, and the cluster.
    pub(crate) fn target(&self, hub: &Hub) -> Result<Target, CommandError> {
        let (namespace, cluster) = self.named(hub)?;
        Ok(Target { namespace: namespace.unwrap_or_else(|| hub.namespace.clone()), cluster })
    }

    /// The namespace and the cluster in `NAMESPACE`, `NAMESPACE/CLUSTER` and `NAMESPACE CLUSTER`; with `--namespace`,
    /// which must not contradict them, also in `CLUSTER`.
    pub(crate) fn named(
        &self,
        hub: &Hub,
    ) -> Result<(Option<String>, Option<String>), CommandError> {
        let (first, cluster) = match &*self.names {
            [] => (None, None),
            [one] => match one.split_once('/') {
                Some((first, cluster)) => (Some(first), Some(cluster)),
                None if hub.named.is_some() => (None, Some(one.as_str())),
                None => (Some(one.as_str()), None),
            },
            [first, cluster, ..] => (Some(first.as_str()), Some(cluster.as_str())),
        };
        let first = first.map(namespace).transpose().map_err(CommandError::Refused)?;
        if let Some((first, option)) = first.as_ref().zip(hub.named.as_ref())
            && first != option
        {
            let message =
                format!("the command names {first}, and --namespace is {option}: choose one");
            return Err(CommandError::Refused(message));
        }
        let cluster = cluster.map(self::cluster).transpose().map_err(CommandError::Refused)?;
        Ok((hub.named.clone().or(first), cluster))
    }
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// The settings of the controllers that decide what they write, as flags of the commands that are no controllers.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, args_override_self = true, disable_help_flag = true)]
pub(crate) struct Setup {
    #[command(flatten)]
    pub(crate) decisions: DecisionArgs,
}

impl Setup {
    /// The settings by these flags, and otherwise by the arguments of each Deployment with the same cluster manager, or
    /// with that of the first. Those of another version may not be valid here.
    pub(crate) fn new(
        mut deployments: Vec<Vec<String>>,
        flags: &[String],
    ) -> Result<Self, clap::Error> {
        for arguments in &mut deployments {
            arguments.retain(|it| flag(it).is_ok());
        }
        let manager = |arguments: &[String]| match Self::try_parse_from(arguments) {
            Ok(setup) => setup.decisions.cluster_manager_name,
            Err(_) => ManagerName::default(),
        };
        let is_named = flags.iter().any(|it| it.starts_with("--cluster-manager-name="));
        let first = if is_named { Some(flags) } else { deployments.first().map(Vec::as_slice) };
        if let Some(wanted) = first.map(manager) {
            deployments.retain(|it| manager(it) == wanted);
        }
        Self::try_parse_from(deployments.iter().flatten().chain(flags))
    }
}

/// A flag of the controllers that is one of [`Setup`].
fn flag(text: &str) -> Result<String, String> {
    let is_flag = text != "--" && Setup::try_parse_from([text]).is_ok();
    is_flag.then(|| text.to_owned()).ok_or_else(|| {
        "expected a flag of the controllers with a valid value, such as --compute-bound=true"
            .to_owned()
    })
}

/// The flags of the controllers, in place of those in their Deployments.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ControllerArgs {
    /// Flags of the controllers, such as --compute-bound=true, in place of those in their Deployments
    #[arg(last = true, value_name = "FLAG", value_parser = flag)]
    pub(crate) flags: Vec<String>,
}

/// The arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The namespace and the cluster
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Every namespace
    #[arg(long, short = 'A', conflicts_with = "names")]
    pub all_namespaces: bool,

    /// The output format; by default one for people
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
}

/// The arguments of `explain`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ExplainArgs {
    /// The namespace, or the namespace and the cluster; by default every namespace that has a binding or a profile
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Only this managed cluster; can be repeated
    #[arg(long, short = 'c', value_name = "CLUSTER", value_parser = cluster)]
    pub managed_cluster: Vec<String>,

    /// Only this ManagedServiceAccount
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,

    /// Print every step, including those that are in order
    #[arg(long)]
    pub all: bool,

    /// The output format; by default one for people
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,

    /// The flags of the controllers
    #[command(flatten)]
    pub controllers: ControllerArgs,
}

/// As whom an application reaches clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Identity {
    /// As its own ServiceAccount.
    Own,
    /// As an account on each cluster, whose token is copied.
    #[default]
    Copy,
}

/// Whether something is only printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is created.
    #[default]
    None,
    /// It is only printed. No hub is needed.
    Client,
}

/// A ClusterRole, and the namespaces of each cluster in which it is bound; without one, the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleArg {
    pub name: String,
    pub namespaces: Vec<String>,
}

/// The arguments of `request`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct RequestArgs {
    /// The name of the ClusterAccess, and of the account on each cluster; by default that of the namespace
    #[arg(value_name = "NAME", value_parser = short_name)]
    pub name: Option<String>,

    /// ServiceAccount of the application; can be repeated. By default the one with the name of the ClusterAccess
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub service_account: Vec<String>,

    /// ClusterRole that the application has on each cluster, or in these namespaces of it; can be repeated
    #[arg(long, value_name = "NAME[=NAMESPACE,...]", value_parser = role)]
    pub cluster_role: Vec<RoleArg>,

    /// As whom the application reaches clusters
    #[arg(long, value_enum, default_value_t)]
    pub identity: Identity,

    /// Only ManagedClusters with these labels, as a=b,c!=d,e
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    pub selector: Option<LabelSelector>,

    /// Only clusters that this Placement of the namespace has decided for
    #[arg(long, value_name = "NAME", value_parser = short_name)]
    pub placement: Option<String>,

    /// MultiKueueConfig that lists the clusters; can be repeated
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub multi_kueue: Vec<String>,

    /// Create a cluster Secret of Argo CD for each cluster
    #[arg(long)]
    pub argo_cd: bool,

    /// Print the object without creating it
    #[arg(long, value_enum, default_value_t)]
    pub dry_run: DryRun,

    /// Print the object in this format
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
}

/// The arguments of `report`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ReportArgs {
    /// The output format
    #[arg(long, short, value_parser = ["html"], default_value = "html")]
    pub output: String,

    /// The flags of the controllers
    #[command(flatten)]
    pub controllers: ControllerArgs,
}

/// How an application reaches its clusters: by which access provider, and by which exec plugin for which account.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ReachArgs {
    /// The ManagedServiceAccount whose token is used; by default the only one of which the namespace has a copy
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,

    /// The application reaches clusters by its own identity: the file with its ServiceAccount token, projected for the
    /// user server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["account", "hub_kubeconfig"])]
    pub own_token: Option<PathBuf>,

    /// Name of the access provider in ClusterProfiles; by default open-cluster-management, and with --own-token
    /// open-cluster-management-own-identity
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub access_provider_name: Option<String>,

    /// The exec plugin
    #[arg(long, value_name = "COMMAND", default_value = "cp-creds")]
    pub plugin: String,

    /// Kubeconfig of the hub for the exec plugin; by default the one that this command uses
    #[arg(long, value_name = "FILE")]
    pub hub_kubeconfig: Option<PathBuf>,
}

impl ReachArgs {
    /// The account, which is set before a command runs. An own identity has none.
    pub(crate) fn account(&self) -> &str {
        self.account.as_deref().unwrap_or_default()
    }

    /// The name of the access provider.
    pub(crate) fn provider(&self) -> &str {
        let default = match self.own_token {
            Some(_) => access::OWN_IDENTITY_PROVIDER,
            None => access::DEFAULT_PROVIDER,
        };
        self.access_provider_name.as_deref().unwrap_or(default)
    }

    /// The argument that tells the exec plugin which credential to return.
    pub(crate) fn plugin_argument(&self) -> String {
        match &self.own_token {
            Some(path) => format!("--own-token={}", absolute(path).display()),
            None => format!("--managed-serviceaccount={}", self.account()),
        }
    }
}

pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The arguments of `test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The namespace of the application, and the cluster
    #[command(flatten)]
    pub place: PlaceArgs,

    /// What these name, which is set before the command runs
    #[arg(skip)]
    pub(crate) target: Target,

    /// How to reach a cluster
    #[command(flatten)]
    pub reach: ReachArgs,

    /// The output format; by default one for people
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
}

/// The arguments of `kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// The namespace that can see the clusters, and perhaps one of these
    #[command(flatten)]
    pub place: PlaceArgs,

    /// What these name, which is set before the command runs
    #[arg(skip)]
    pub(crate) target: Target,

    /// How to reach a cluster
    #[command(flatten)]
    pub reach: ReachArgs,

    /// Reach the clusters through a port that kubectl forwards from the hub; a comment contains the command for that
    #[arg(long)]
    pub port_forward: bool,

    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
}

/// A namespace, and optionally a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    pub namespace: String,
    pub cluster: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{}/{cluster}", self.namespace),
            None => f.write_str(&self.namespace),
        }
    }
}

/// Parses a positional argument: `NAME` or `NAME/NAME`.
fn name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None => valid(text, is_dns_subdomain, "namespace or ManagedCluster"),
        Some((first, cluster)) if is_dns_subdomain(first) && is_dns_subdomain(cluster) => {
            Ok(text.to_owned())
        }
        Some(_) => Err(format!("expected NAMESPACE/CLUSTER, got {text:?}")),
    }
}

/// The name of a namespace.
///
/// # Errors
///
/// It is not a valid name: a request for it would have another path on the API server.
pub fn namespace(text: &str) -> Result<String, String> {
    valid(text, is_dns_label, "namespace")
}

fn cluster(text: &str) -> Result<String, String> {
    valid(text, is_dns_subdomain, "name of a ManagedCluster")
}

fn object_name(text: &str) -> Result<String, String> {
    valid(text, is_dns_subdomain, "name of an object")
}

fn short_name(text: &str) -> Result<String, String> {
    valid(text, |text| is_dns_subdomain(text) && text.len() <= 63, "name of at most 63 characters")
}

fn role(text: &str) -> Result<RoleArg, String> {
    let (name, namespaces) =
        text.split_once('=').map_or((text, None), |(name, list)| (name, Some(list)));
    let is_name = |text: &str| {
        !["", ".", ".."].contains(&text) && !text.contains(['/', '%']) && text.len() <= 253
    };
    Ok(RoleArg {
        name: valid(name, is_name, "name of a ClusterRole")?,
        namespaces: namespaces
            .iter()
            .flat_map(|list| list.split(','))
            .map(namespace)
            .collect::<Result<_, _>>()?,
    })
}

/// The conditions of a label selector that kubectl writes without parentheses.
fn selector(text: &str) -> Result<LabelSelector, String> {
    let expression = |text: &str| {
        let (key, operator, value) = match (text.split_once("!="), text.split_once('=')) {
            (Some((key, value)), _) => (key, "NotIn", Some(value)),
            (_, Some((key, value))) => (key, "In", Some(value.strip_prefix('=').unwrap_or(value))),
            _ => text
                .strip_prefix('!')
                .map_or((text, "Exists", None), |key| (key, "DoesNotExist", None)),
        };
        let values =
            value.map(|value| valid(value.trim(), is_label_value, "label value")).transpose()?;
        Ok(LabelSelectorRequirement {
            key: valid(key.trim(), is_label_key, "label key")?,
            operator: operator.to_owned(),
            values: values.map(|value| vec![value]),
        })
    };
    let expressions =
        text.split(',').map(str::trim).map(expression).collect::<Result<_, String>>()?;
    Ok(LabelSelector { match_expressions: Some(expressions), match_labels: None })
}

fn valid(text: &str, is_valid: fn(&str) -> bool, what: &str) -> Result<String, String> {
    if is_valid(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a valid {what}"))
    }
}
