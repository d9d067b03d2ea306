//! The declaration: what the application in a namespace gets on each cluster that is granted to it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use hub_api::names::{AccountName, Namespace, is_dns_label, is_dns_subdomain};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Deserialize;

use super::kind::{AccessKind, permissions_name};
use crate::selector::{ClusterSelector, SelectorError};

/// The validity of tokens if none is declared: the default of ManagedServiceAccount.
const DEFAULT_VALIDITY: &str = "8640h0m0s";
/// Where the guides install `cp-creds`.
const DEFAULT_COMMAND: &str = "/plugins/cp-creds";
/// Where the guides mount the projected token.
const DEFAULT_OWN_TOKEN: &str = "/var/run/secrets/hub-addons/token";
/// The shortest validity for which an API server issues tokens
/// (<https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>).
const MIN_VALIDITY: SignedDuration = SignedDuration::from_mins(10);

/// An application and what it is on each cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The namespace of the application.
    pub namespace: Namespace,
    /// The account on each cluster that it uses: its own, or that of the user server.
    pub account: AccountName,
    /// As whom it reaches clusters.
    pub identity: Identity,
    /// Its permissions.
    pub cluster_roles: Vec<BoundClusterRole>,
    /// The kind of object that gives it its permissions, if it is declared.
    pub permissions: Option<PermissionKind>,
    /// For Kueue: the MultiKueueConfigs that list its clusters, by name.
    pub multi_kueue_configs: BTreeMap<String, ClusterSelector>,
    /// For Argo CD: how its cluster Secrets call the plugin, if it gets them.
    pub argo_cd: Option<ArgoCd>,
}

/// As whom an application reaches its clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// An account on each cluster, whose token is copied.
    Account(Rotation),
    /// Its own: the account is that of the user server, which acts as the [users](crate::own_identity::user) of its
    /// ServiceAccounts.
    Own {
        /// The name of the consumer, by which its permissions are recognized.
        name: String,
        /// The names of its ServiceAccounts on the hub.
        service_accounts: BTreeSet<String>,
    },
}

/// Argo CD's cluster Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgoCd {
    /// The path of `cp-creds` in Argo CD's Pods.
    pub command: String,
    /// The path of the projected token there, if its identity is its own.
    pub own_token: String,
}

/// The kinds of objects that give permissions on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PermissionKind {
    /// Every hub of Open Cluster Management has it.
    ManifestWork,
    /// Requires the controller cluster-permission (<https://github.com/open-cluster-management-io/cluster-permission>).
    ClusterPermission,
}

/// A ClusterRole that an application has on each cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundClusterRole {
    pub name: String,
    /// The namespaces on the cluster in which it is bound; if empty, it is bound in the whole cluster.
    pub namespaces: BTreeSet<Namespace>,
}

/// How tokens of an account are issued: `spec.rotation` of a ManagedServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Whether the agent renews the token before it expires.
    pub enabled: bool,
    /// How long a token is valid, as Go writes durations.
    pub validity: String,
}

/// Every declared consumer, by the account that it uses. Consumers with an identity of their own share the account of
/// the user server; no other account has two consumers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumers(BTreeMap<AccountName, Vec<Consumer>>);

impl Consumers {
    /// The consumers that use this account.
    #[must_use]
    pub fn of(&self, account: &AccountName) -> &[Consumer] {
        self.0.get(account).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Consumer> {
        self.0.values().flatten()
    }

    pub fn accounts(&self) -> impl Iterator<Item = &AccountName> {
        self.0.keys()
    }

    /// Whether a consumer uses this account.
    #[must_use]
    pub fn contains(&self, account: &AccountName) -> bool {
        self.0.contains_key(account)
    }

    /// The kind of object that gives permissions to those who use this account: a ManifestWork unless another one is
    /// declared.
    #[must_use]
    pub fn permission_kind(&self, account: &AccountName) -> AccessKind {
        match self.of(account).first().and_then(|consumer| consumer.permissions) {
            None | Some(PermissionKind::ManifestWork) => AccessKind::ManifestWork,
            Some(PermissionKind::ClusterPermission) => AccessKind::ClusterPermission,
        }
    }

    /// The kinds of objects that may give permissions to those who use this account. If the kind is declared, one of
    /// the other kind may exist from before, and is replaced. Without a consumer, none is known.
    #[must_use]
    pub fn permission_kinds(&self, account: &AccountName) -> &'static [AccessKind] {
        match self.of(account).first() {
            None => &[],
            Some(consumer) if consumer.permissions.is_some() => &AccessKind::PERMISSIONS,
            Some(_) => &[AccessKind::ManifestWork],
        }
    }
}

/// Why a whole declaration is refused: leaving out the invalid part would withdraw access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConsumers {
    /// It does not have the expected fields.
    #[error("expected a JSON list of consumers: {0}")]
    Form(String),
    #[error("{value:?} is not a valid {what}")]
    Name {
        /// What it should name.
        what: &'static str,
        value: String,
    },
    /// A field belongs to another identity, or one of this identity is missing.
    #[error("the consumer of the namespace {namespace} has the identity {identity}: {problem}")]
    Identity {
        namespace: Namespace,
        identity: &'static str,
        /// What does not belong to it.
        problem: &'static str,
    },
    /// Consumers with an identity of their own that declare different kinds of permissions: one object has those of
    /// all.
    #[error(
        "the consumers {first} and {second} have the identity own and declare different permissions: they must be the same"
    )]
    TwoPermissionKinds { first: String, second: String },
    /// Two consumers with an identity of their own have the same name, which is part of the names of their bindings on
    /// each cluster.
    #[error("two consumers have the name {0}")]
    NameTwice(String),
    /// A ClusterRole is bound in no namespace.
    #[error(
        "the ClusterRole {0} has an empty list of namespaces: omit it to bind the role in the whole cluster"
    )]
    NoNamespaces(String),
    #[error("{0:?} is not a valid validity of tokens: must be a duration such as 720h, and at least 10m")]
    Validity(String),
    #[error("the consumer of the namespace {namespace} lists the ClusterRole {role} twice")]
    RoleTwice { namespace: Namespace, role: String },
    /// Two consumers declare one account. Each would get the permissions of the other, and one would get no token.
    #[error(
        "the consumers of the namespaces {first} and {second} both declare the ManagedServiceAccount {account}: each \
         consumer needs an account of its own, since its permissions are those of the account"
    )]
    SharedAccount { account: AccountName, first: Namespace, second: Namespace },
    #[error("the clusterSelector of the MultiKueueConfig {config} is not valid: {error}")]
    Selector { config: String, error: SelectorError },
    #[error("the account {account} declares the MultiKueueConfig {config} twice")]
    ConfigTwice { account: AccountName, config: String },
    #[error(
        "two consumers of the namespace {0} declare argoCD: a cluster has one Secret there, so only one consumer can"
    )]
    TwoArgoCds(Namespace),
    /// Two consumers declare MultiKueueConfigs. Kueue reads profiles in one namespace.
    #[error(
        "the accounts {first} and {second} both declare a MultiKueueConfig: Kueue reads the profiles of one namespace, so \
         only one consumer can"
    )]
    TwoMultiKueueConsumers { first: AccountName, second: AccountName },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsumerFields {
    namespace: String,
    #[serde(default)]
    identity: IdentityFields,
    /// For the identity `own`, that of the user server.
    managed_service_account: String,
    name: Option<String>,
    service_accounts: Option<Vec<String>>,
    #[serde(default)]
    cluster_roles: Vec<ClusterRoleFields>,
    permissions: Option<PermissionKind>,
    rotation: Option<RotationFields>,
    multi_kueue_config: Option<String>,
    #[serde(default)]
    multi_kueue_configs: Vec<MultiKueueConfigFields>,
    #[serde(rename = "argoCD")]
    argo_cd: Option<ArgoCdFields>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IdentityFields {
    #[default]
    Account,
    Own,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ArgoCdFields {
    command: Option<String>,
    own_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MultiKueueConfigFields {
    name: String,
    /// Absent for every cluster.
    cluster_selector: Option<SelectorFields>,
}

/// A [`LabelSelector`] that rejects unknown fields, which would otherwise be ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SelectorFields {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterRoleFields {
    name: String,
    /// Absent for the whole cluster.
    namespaces: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RotationFields {
    enabled: Option<bool>,
    validity: Option<String>,
}

impl FromStr for Consumers {
    type Err = InvalidConsumers;

    /// Reads a JSON list of `{namespace, managedServiceAccount, clusterRoles: [{name, namespaces}], permissions,
    /// rotation: {enabled, validity}, multiKueueConfig, multiKueueConfigs: [{name, clusterSelector}], argoCD:
    /// {command}}`; with `identity: own`, `managedServiceAccount` is the account of the user server, `name` and
    /// `serviceAccounts` take the place of `rotation`, and `argoCD` has `ownToken`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list: Vec<ConsumerFields> =
            serde_json::from_str(text).map_err(|error| InvalidConsumers::Form(error.to_string()))?;
        let mut consumers: BTreeMap<AccountName, Vec<Consumer>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for fields in list {
            let consumer = Consumer::read(fields)?;
            if let Some(name) = consumer.own_name()
                && !names.insert(name.to_owned())
            {
                return Err(InvalidConsumers::NameTwice(name.to_owned()));
            }
            let others = consumers.entry(consumer.account.clone()).or_default();
            if let Some(other) = others.iter().find_map(|other| other.conflict(&consumer)) {
                return Err(other);
            }
            others.push(consumer);
        }
        let all = || consumers.values().flatten();
        let mut kueue = all().filter(|consumer| !consumer.multi_kueue_configs.is_empty());
        if let (Some(first), Some(second)) = (kueue.next(), kueue.next()) {
            let (first, second) = (first.account.clone(), second.account.clone());
            return Err(InvalidConsumers::TwoMultiKueueConsumers { first, second });
        }
        let mut argo_cds = BTreeSet::new();
        for consumer in all().filter(|consumer| consumer.argo_cd.is_some()) {
            if !argo_cds.insert(&consumer.namespace) {
                return Err(InvalidConsumers::TwoArgoCds(consumer.namespace.clone()));
            }
        }
        Ok(Self(consumers))
    }
}

impl Consumer {
    fn read(fields: ConsumerFields) -> Result<Self, InvalidConsumers> {
        let namespace = namespace("namespace", &fields.namespace)?;
        let invalid = |identity, problem| {
            let namespace = namespace.clone();
            InvalidConsumers::Identity { namespace, identity, problem }
        };
        let identity = match fields.identity {
            IdentityFields::Account => {
                if fields.name.is_some() || fields.service_accounts.is_some() {
                    return Err(invalid("account", "name and serviceAccounts cannot be set"));
                }
                Identity::Account(Rotation::read(fields.rotation.unwrap_or_default())?)
            }
            IdentityFields::Own => {
                if fields.rotation.is_some() {
                    return Err(invalid(
                        "own",
                        "rotation cannot be set, since it has no token on the clusters",
                    ));
                }
                let name = fields.name.ok_or_else(|| invalid("own", "name is required"))?;
                let service_accounts: BTreeSet<String> =
                    fields.service_accounts.into_iter().flatten().collect();
                if service_accounts.is_empty() {
                    return Err(invalid("own", "serviceAccounts must name its ServiceAccounts on the hub"));
                }
                for (what, value) in std::iter::once(("name of a consumer", &name))
                    .chain(service_accounts.iter().map(|account| ("name of a ServiceAccount", account)))
                {
                    if !is_dns_subdomain(value) {
                        return Err(InvalidConsumers::Name { what, value: value.clone() });
                    }
                }
                Identity::Own { name, service_accounts }
            }
        };
        let account = AccountName::from(fields.managed_service_account.as_str());
        // The name of its permissions is longer, and cluster-permission adds a dash and five characters to it.
        let suffix = match fields.permissions {
            Some(PermissionKind::ClusterPermission) => "-00000",
            None | Some(PermissionKind::ManifestWork) => "",
        };
        let longest = permissions_name(&account) + suffix;
        if !is_dns_subdomain(account.as_str()) || !is_dns_subdomain(&longest) {
            let value = fields.managed_service_account;
            return Err(InvalidConsumers::Name { what: "name of a ManagedServiceAccount", value });
        }
        let cluster_roles =
            fields.cluster_roles.into_iter().map(BoundClusterRole::read).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = cluster_roles.iter().find(|role| !names.insert(&role.name)) {
            return Err(InvalidConsumers::RoleTwice { namespace, role: twice.name.clone() });
        }
        let of_all = |name| MultiKueueConfigFields { name, cluster_selector: None };
        let configs = fields.multi_kueue_config.map(of_all).into_iter().chain(fields.multi_kueue_configs);
        let mut multi_kueue_configs = BTreeMap::new();
        for config in configs {
            let (name, selector) = config.read()?;
            if multi_kueue_configs.insert(name.clone(), selector).is_some() {
                return Err(InvalidConsumers::ConfigTwice { account, config: name });
            }
        }
        if matches!(&identity, Identity::Account(_))
            && fields.argo_cd.as_ref().is_some_and(|argo_cd| argo_cd.own_token.is_some())
        {
            return Err(invalid("account", "argoCD.ownToken cannot be set"));
        }
        let argo_cd = fields.argo_cd.map(|fields| ArgoCd {
            command: fields.command.unwrap_or_else(|| DEFAULT_COMMAND.to_owned()),
            own_token: fields.own_token.unwrap_or_else(|| DEFAULT_OWN_TOKEN.to_owned()),
        });
        let permissions = fields.permissions;
        Ok(Self { namespace, account, identity, cluster_roles, permissions, multi_kueue_configs, argo_cd })
    }

    /// Whether it reaches clusters by its own identity.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.own_name().is_some()
    }

    /// Its name, if its identity is its own.
    fn own_name(&self) -> Option<&str> {
        match &self.identity {
            Identity::Account(_) => None,
            Identity::Own { name, .. } => Some(name),
        }
    }

    /// Why it cannot use the same account as another consumer.
    fn conflict(&self, other: &Self) -> Option<InvalidConsumers> {
        match self.own_name().zip(other.own_name()) {
            None => Some(InvalidConsumers::SharedAccount {
                account: self.account.clone(),
                first: self.namespace.clone(),
                second: other.namespace.clone(),
            }),
            Some((first, second)) if self.permissions != other.permissions => {
                let (first, second) = (first.to_owned(), second.to_owned());
                Some(InvalidConsumers::TwoPermissionKinds { first, second })
            }
            Some(_) => None,
        }
    }
}

impl Rotation {
    fn read(fields: RotationFields) -> Result<Self, InvalidConsumers> {
        let validity = fields.validity.unwrap_or_else(|| DEFAULT_VALIDITY.to_owned());
        if duration(&validity).is_none_or(|validity| validity < MIN_VALIDITY) {
            return Err(InvalidConsumers::Validity(validity));
        }
        Ok(Self { enabled: fields.enabled.unwrap_or(true), validity })
    }
}

impl MultiKueueConfigFields {
    fn read(self) -> Result<(String, ClusterSelector), InvalidConsumers> {
        if !is_dns_subdomain(&self.name) {
            return Err(InvalidConsumers::Name { what: "name of a MultiKueueConfig", value: self.name });
        }
        let fields = self.cluster_selector.unwrap_or_default();
        let (match_labels, match_expressions) = (fields.match_labels, fields.match_expressions);
        let selector = ClusterSelector::of_labels(&LabelSelector { match_labels, match_expressions });
        match selector {
            Ok(selector) => Ok((self.name, selector)),
            Err(error) => Err(InvalidConsumers::Selector { config: self.name, error }),
        }
    }
}

impl BoundClusterRole {
    /// The name of a ClusterRole can be any path segment: anything but `.`, `..`, `/` and `%`.
    fn read(fields: ClusterRoleFields) -> Result<Self, InvalidConsumers> {
        let name = fields.name;
        if ["", ".", ".."].contains(&name.as_str()) || name.contains(['/', '%']) {
            return Err(InvalidConsumers::Name { what: "name of a ClusterRole", value: name });
        }
        // An empty list can come from a template without a value, and would bind the role in the whole cluster.
        if fields.namespaces.as_ref().is_some_and(Vec::is_empty) {
            return Err(InvalidConsumers::NoNamespaces(name));
        }
        let what = "namespace of a ClusterRole";
        let namespaces = fields.namespaces.unwrap_or_default();
        let namespaces = namespaces.iter().map(|text| namespace(what, text)).collect::<Result<_, _>>()?;
        Ok(Self { name, namespaces })
    }
}

/// A duration as Go writes it, the text of a `metav1.Duration`; `None` if it is not one.
///
/// jiff also reads other formats, none of which consists of these characters alone.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let is_of_go = |char: char| char.is_ascii_digit() || "+-.hmsun\u{b5}\u{3bc}".contains(char);
    text.chars().all(is_of_go).then(|| text.parse().ok()).flatten()
}

fn namespace(what: &'static str, text: &str) -> Result<Namespace, InvalidConsumers> {
    if is_dns_label(text) {
        return Ok(text.into());
    }
    Err(InvalidConsumers::Name { what, value: text.to_owned() })
}
