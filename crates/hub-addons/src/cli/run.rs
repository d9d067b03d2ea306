//! The arguments of `run`. Each flag can also be set by the environment variable of its name.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use access_provisioner::ProvisionerSettings;
use clap::{ArgAction, Args, ValueEnum};
use clusterprofile_cli::args::DecisionArgs;
use credential_syncer::SyncerSettings;
use futures::FutureExt as _;
use hub_core::access::{self, AccessSource};
use hub_core::endpoint::ServerTemplate;
use hub_core::trust::CaReference;
use hub_runtime::observe::health::{BindAddress, InvalidBindAddress};
use jiff::SignedDuration;

use crate::cli::consumers::ConsumersArgs;
use crate::cli::{ObjectName, with_variable};
use crate::features::FeatureGates;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    mut_args(with_variable),
    mut_arg("access_provider_server", |flag| flag.requires("access_provider_ca"))
)]
pub struct RunArgs {
    /// Feature gates, as GATE=true,GATE=false
    ///
    /// ClusterProfile (default true): the profile projector writes a ClusterProfile for every granted cluster.
    ///
    /// ClusterProfileAccessProvider (default true): the access-provider provisioner publishes in each profile how to
    /// reach its cluster.
    ///
    /// ClusterProfileCredSyncer (default true): the credential syncer copies the token of each labelled
    /// ManagedServiceAccount into the namespaces that its cluster is granted to.
    ///
    /// ClusterProfileCredRights (default false): credential rights maintains the permissions for Secrets, by namespace
    /// and by name, of the credential syncer, which then runs in another process; and with --cluster-access of
    /// applications.
    ///
    /// ClusterProfileConsumers (default false, alpha): consumer access maintains, on the clusters that a namespace
    /// is granted, the ManagedServiceAccount and the permissions that a ClusterAccess there asks for.
    ///
    /// ClusterProfileDirectAccessProvider (default false): direct access publishes a second access provider with the
    /// cluster's own API server.
    ///
    /// ClusterProfileOwnIdentityProvider (default false, alpha): the own-identity provisioner publishes an access
    /// provider that leads to the user server (hub-addons user-server), for applications that reach clusters by their
    /// own identity.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub feature_gates: FeatureGates,

    /// Kubeconfig of the hub; by default the Pod's ServiceAccount, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// What the controllers decide by
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// ServiceAccount of the credential syncer, as NAMESPACE/NAME, whose permissions for Secrets the gate
    /// ClusterProfileCredRights maintains
    ///
    /// For the gate ClusterProfileCredSyncer: read tokens by the names of the accounts that opt in, and copies in the
    /// namespaces with a RoleBinding NAME-copies. Without it, both are read by label in all namespaces, which requires
    /// permission to list every Secret of the hub.
    ///
    /// For the gate ClusterProfileCredRights: bind the ClusterRole NAME-copies, by a RoleBinding of the same name, in
    /// every namespace with a bound ManagedClusterSetBinding, and list the names of tokens in the only rule of the
    /// ClusterRole NAME-tokens, which must exist. The Lease hub-addons-credential-syncer is expected in NAMESPACE.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub credential_rights_subject: Option<ObjectName>,

    /// What the gate ClusterProfileConsumers maintains
    #[command(flatten)]
    pub consumers: ConsumersArgs,

    /// The content of access providers
    #[command(flatten)]
    pub access: AccessArgs,

    /// Metrics, probes and the log
    #[command(flatten)]
    pub host: HostArgs,

    /// Write only while holding a Lease, so that several replicas can run
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub leader_elect: bool,

    /// Namespace of the Lease; by default the Pod's own, else that of the kubeconfig's context
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// Name of the Lease: the same for all replicas of a Deployment; by default that of one of its controllers, such
    /// as hub-addons-credential-syncer
    ///
    /// Credential rights, and kubectl clusterprofile explain, expect the default.
    #[arg(long, value_name = "NAME")]
    pub leader_election_id: Option<String>,
}

/// Metrics, probes and the log.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Where to serve /metrics; 0 to disable
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: Listen,

    /// Serve /metrics over TLS, to clients that the hub authenticates by their bearer token and authorizes to get
    /// /metrics (RBAC: nonResourceURLs): `self-signed`, or the directory of tls.crt and tls.key, which are reloaded when
    /// they change. Requires permission to create TokenReviews and SubjectAccessReviews
    #[arg(long, value_name = "DIRECTORY")]
    pub metrics_certificate: Option<MetricsCertificate>,

    /// Where to serve /livez and /readyz; 0 to disable
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: Listen,

    /// Format of the log on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug, or directives such as hub_runtime=debug
    #[arg(long, default_value = "info")]
    pub log_level: String,
}

/// The ClusterRole for the copies of a syncer, and its RoleBindings.
fn copies_role(subject: &ObjectName) -> String {
    format!("{}-copies", subject.name)
}

/// Settings of access providers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access providers")]
pub struct AccessArgs {
    /// How long to publish replaced trust anchors together with the new ones, as 10m or 0. Servers reload their
    /// certificate with a delay; the time ends earlier when TLS handshakes show the new certificate, and is extended
    /// while they show the old one
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10m")]
    pub ca_overlap: Duration,

    /// How often to check the certificate of the published server by a TLS handshake, as 2m; 0 switches these checks
    /// off. It must name the server, and the published trust anchors must verify it
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "2m")]
    pub server_check_interval: Duration,

    /// URL of the user server, with {cluster} in place of the cluster's name. Without it, ClusterAccesses with the identity
    /// Own are not accepted: the gates ClusterProfileConsumers and ClusterProfileCredRights need the same value
    #[arg(long, value_name = "URL")]
    pub user_server_url: Option<ServerTemplate>,

    /// The user server's CA certificates, as configmap/NAMESPACE/NAME/KEY or secret/NAMESPACE/NAME/KEY
    #[arg(long, value_name = "REFERENCE")]
    pub user_server_ca: Option<CaReference>,
}

impl RunArgs {
    /// The settings of the permission controller, if a subject is given.
    pub fn rights(&self) -> Option<credential_rights::PermissionSettings> {
        let subject = self.credential_rights_subject.clone()?;
        Some(credential_rights::PermissionSettings {
            namespace: subject.namespace.as_str().into(),
            copies_role: copies_role(&subject),
            tokens_role: format!("{}-tokens", subject.name),
            service_account: subject.name,
            protected: self.decisions.protected_namespaces.clone(),
            require_namespaces: self.decisions.require_sync_namespaces,
            access_rules: self.consumers.cluster_access.then(|| self.access_rules()),
        })
    }

    /// The settings of the syncer.
    pub fn syncer(&self) -> SyncerSettings {
        SyncerSettings {
            sync: self.decisions.sync(),
            copies_binding: self.credential_rights_subject.as_ref().map(copies_role),
        }
    }

    /// The settings of the provisioner.
    pub fn provisioner(&self) -> ProvisionerSettings {
        let provider = &self.decisions.provider;
        let ca = provider.access_provider_ca.clone();
        let source = match &provider.access_provider_server {
            // Clap requires the CA with it.
            Some(server) => AccessSource::Static(server.clone()),
            None => AccessSource::ClusterProxy {
                require_addon: provider.cluster_proxy_require_addon,
                ca: ca.clone(),
            },
        };
        self.access.settings(&provider.access_provider_name, source, ca)
    }
}

impl AccessArgs {
    /// The settings of the provisioner of the entry that leads to the user server, if it is known where that is.
    pub fn own_identity(&self) -> Option<ProvisionerSettings> {
        let (server, ca) = (self.user_server_url.clone()?, self.user_server_ca.clone()?);
        let source = AccessSource::UserServer(server);
        Some(self.settings(access::OWN_IDENTITY_PROVIDER, source, Some(ca)))
    }

    fn settings(
        &self,
        provider: &str,
        source: AccessSource,
        ca: Option<CaReference>,
    ) -> ProvisionerSettings {
        ProvisionerSettings {
            provider: provider.to_owned(),
            source,
            ca,
            overlap: self.ca_overlap,
            check_interval: self.server_check_interval,
            handshake: Arc::new(|server| server_check::check(server).boxed()),
        }
    }
}

/// Parses a duration, such as `10m`, `90s` or `0`.
fn period(text: &str) -> Result<Duration, String> {
    let text = if text == "0" { "0s" } else { text };
    let period: SignedDuration = text
        .parse()
        .map_err(|error| format!("{error}; expected a duration such as 10m, 90s or 0"))?;
    Duration::try_from(period).map_err(|_| "must not be negative".to_owned())
}

/// An optional address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen(pub Option<BindAddress>);

impl FromStr for Listen {
    type Err = InvalidBindAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" { Ok(Self(None)) } else { text.parse().map(|address| Self(Some(address))) }
    }
}

/// The certificate of metrics over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsCertificate {
    /// Where its files are, unless it is generated at the start.
    pub directory: Option<PathBuf>,
}

impl FromStr for MetricsCertificate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("expected self-signed or a directory".to_owned()),
            "self-signed" => Ok(Self { directory: None }),
            directory => Ok(Self { directory: Some(directory.into()) }),
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::{Cli, Command};

    fn run(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let args = ["hub-addons", "run"].iter().chain(args);
        match Cli::try_parse_from(args)?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_flag_of_run_has_its_environment_variable() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        for flag in
            run.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        {
            let name = format!("HUB_ADDONS_{}", flag.get_id().as_str().to_uppercase());
            assert_eq!(flag.get_env().and_then(|env| env.to_str()), Some(name.as_str()));
        }
    }

    #[test]
    fn switches_take_a_value_or_none() {
        assert!(run(&[]).unwrap().leader_elect);
        assert!(!run(&["--leader-elect=false"]).unwrap().leader_elect);
        assert!(run(&["--compute-bound"]).unwrap().decisions.compute_bound);
        assert!(!run(&["--compute-bound=false"]).unwrap().decisions.compute_bound);
    }

    #[test]
    fn errors_say_what_is_expected() {
        for (args, hint) in [
            (&["--feature-gates=ClusterProfiles=true"][..], "ClusterProfile (default true)"),
            (&["--cluster-manager-name=a b"], "label value"),
            (&["--propagate-labels=*"], "label key"),
            (&["--access-provider-name="], "1 to 253 characters"),
            (&["--metrics-bind-address=localhost"], "IP:PORT"),
            (&["--log-format=xml"], "json"),
            (&["--ca-overlap=10"], "10m"),
            (&["--ca-overlap=-1s"], "negative"),
            (&["--access-provider-server=https://proxy/{cluster}"], "--access-provider-ca"),
            (&["--access-provider-ca=secret/a"], "secret/NAMESPACE/NAME/KEY"),
        ] {
            let error = run(args).unwrap_err().to_string();
            assert!(error.contains(hint), "{args:?}: {error}");
        }
    }

    #[test]
    fn an_overlap_of_0_is_none() {
        assert_eq!(run(&["--ca-overlap=0"]).unwrap().access.ca_overlap, Duration::ZERO);
        assert_eq!(run(&[]).unwrap().access.ca_overlap, Duration::from_mins(10));
    }

    #[test]
    fn an_address_of_0_serves_nothing() {
        assert_eq!(
            run(&["--metrics-bind-address=0"]).unwrap().host.metrics_bind_address,
            Listen(None)
        );
    }
}
