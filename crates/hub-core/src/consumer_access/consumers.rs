//! The consumers: what each ClusterAccess asks for, and which object has what two of them ask for.
//!
//! - A schema validates the objects, so nearly every one that exists is accepted. One that is not gives nothing, and
//!   its condition `Accepted` says why. One that is being deleted gives nothing, whatever finalizer it waits for.
//! - Of two accepted objects that ask for one account, one MultiKueueConfig or the cluster Secrets of a namespace, the
//!   older one has it; the last two only if it has its account. Kueue reads the profiles of one namespace: that of the
//!   oldest such object that asks for a MultiKueueConfig.
//! - An object whose selector cannot be used, or whose Placement cannot be read, is in doubt: it keeps what it has.
//!   So is a cluster that the Placement's decisions have just lost: Open Cluster Management moves one between two
//!   PlacementDecisions by two writes, and the first is that of the one that loses it.

mod decisions;

pub(super) use self::decisions::Decisions;
pub use self::decisions::PlacementName;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hub_api::Unreadable;
use hub_api::cluster_access::{
    ClusterAccess, ClusterAccessSpec, ClusterAccessStatus, IdentityKind,
};
use hub_api::names::{AccountName, Namespace, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use crate::finding::Finding;
use crate::nested;
use crate::own_identity;
use crate::protected::ProtectedNamespaces;
use crate::selector::{ClusterSelector, SelectorError};
use crate::version::{Uid, Version};

/// The namespace and the name of a ClusterAccess.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessName {
    pub namespace: Namespace,
    pub name: String,
}

impl From<&ObjectKey> for AccessName {
    /// A ClusterAccess.
    fn from(key: &ObjectKey) -> Self {
        Self { namespace: Namespace::new(key.namespace.clone()), name: key.name.to_string() }
    }
}

impl fmt::Display for AccessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl AccessName {
    /// The owner reference to the object with this uid.
    pub(crate) fn owner(&self, uid: Option<&Uid>) -> Value {
        json!([{
            "apiVersion": "access.open-cluster-management.io/v1alpha1", "kind": "ClusterAccess", "name": self.name,
            "uid": uid,
        }])
    }
}

/// What the objects may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// The account of the user server; without it, no application has an identity of its own.
    pub user_server: Option<AccountName>,
    /// The ClusterRoles that objects may ask for. An admission policy checks their authors.
    pub allowed_cluster_roles: BTreeSet<String>,
    /// The namespaces in which no object is accepted.
    pub protected: ProtectedNamespaces,
}

/// An application and what it is on each cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Consumer {
    /// The object that asks for it.
    pub name: AccessName,
    /// What it asks for. The names of ServiceAccounts, and of namespaces, are sorted.
    pub spec: ClusterAccessSpec,
    /// The account on each cluster that it uses: its own, or that of the user server, which acts as the
    /// [users](crate::own_identity::user) of its ServiceAccounts.
    pub account: AccountName,
    /// The labels of its clusters; without a selector, all. `Err` if the selector cannot be used.
    pub selector: Result<Option<ClusterSelector>, SelectorError>,
    /// For Kueue: the MultiKueueConfigs that list its clusters, by name.
    pub multi_kueue_configs: BTreeMap<String, Result<ClusterSelector, SelectorError>>,
}

/// Why an object, or a part of it, is not accepted: the reason and the message of its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAccepted {
    pub reason: &'static str,
    pub message: String,
}

impl NotAccepted {
    /// The message of the reason `ProtectedNamespace`.
    pub(super) const PROTECTED: &str = "This namespace gets no access to clusters.";
}

/// A ClusterAccess.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredAccess {
    pub version: Version,
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`: of two objects that ask for one thing, the older has it.
    pub created: Option<Timestamp>,
    pub consumer: Result<Consumer, NotAccepted>,
    /// Whether it asks for cluster Secrets, which it may have had before it was not accepted any more; or may have asked
    /// for them, until its status has caught up.
    pub has_secrets: bool,
    /// What its status reports.
    pub status: ClusterAccessStatus,
}

/// What only one object can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Account(AccountName),
    /// Kueue's objects, for one namespace: whoever asks for a MultiKueueConfig asks for these.
    Kueue,
    ClusterSecrets(Namespace),
}

/// Every ClusterAccess.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Consumers {
    rules: AccessRules,
    /// Whether all objects are known: the list is complete, and not out of date.
    is_read: bool,
    /// The objects whose spec cannot be decoded, and why.
    unreadable: BTreeMap<AccessName, String>,
    objects: BTreeMap<AccessName, DeclaredAccess>,
    /// The objects that ask for a thing, the oldest first.
    claims: BTreeMap<Claim, BTreeSet<(Option<Timestamp>, AccessName)>>,
    decisions: BTreeMap<PlacementName, Decisions>,
}

/// The names of objects whose consumers have changed, and their accounts.
pub type Changed = BTreeMap<AccessName, BTreeSet<AccountName>>;

impl Consumers {
    #[must_use]
    pub fn new(rules: AccessRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Records whether all objects are known.
    pub fn set_read(&mut self, is_read: bool) -> bool {
        std::mem::replace(&mut self.is_read, is_read) != is_read
    }

    /// Records an object. Returns the objects whose consumers change with it.
    pub fn apply(
        &mut self,
        name: &AccessName,
        object: Result<ClusterAccess, Unreadable>,
    ) -> Changed {
        let object = match object.or_else(without_status) {
            Ok(object) => object,
            Err(error) => {
                // The last readable state stays in use.
                self.unreadable.insert(name.clone(), error);
                return Changed::new();
            }
        };
        let mut after = DeclaredAccess::read(&self.rules, name, object);
        let before = self.objects.get(name);
        // What it asked for is unknown if it has changed while no process led, and the last one may not have ended that.
        let seen = after.status.observed_generation.unwrap_or(1);
        after.has_secrets |= after.generation.is_some_and(|generation| generation != seen)
            && before.is_none_or(|before| before.has_secrets);
        if before.is_some_and(|before| {
            before.consumer == after.consumer
                && before.created == after.created
                && before.has_secrets == after.has_secrets
        }) {
            self.unreadable.remove(name);
            self.objects.insert(name.clone(), after);
            return Changed::new();
        }
        let mut changed = self.remove(name);
        for claim in after.claims() {
            self.claims.entry(claim).or_default().insert((after.created, name.clone()));
        }
        self.concern(&mut changed, name, &after);
        self.objects.insert(name.clone(), after);
        changed
    }

    /// Records that an object is gone. Returns the objects whose consumers change with it.
    pub fn remove(&mut self, name: &AccessName) -> Changed {
        let mut changed = Changed::new();
        if self.unreadable.remove(name).is_some() {
            changed.entry(name.clone()).or_default();
        }
        let Some(before) = self.objects.remove(name) else { return changed };
        self.concern(&mut changed, name, &before);
        for claim in before.claims() {
            nested::remove_value(&mut self.claims, &claim, &(before.created, name.clone()));
        }
        changed
    }

    /// Adds an object, and those that ask for something that it asks for. Who loses an account to it loses the rest, too:
    /// hence also those that ask for something that these ask for.
    fn concern(&self, changed: &mut Changed, name: &AccessName, object: &DeclaredAccess) {
        let (mut seen, mut next) = (BTreeSet::new(), vec![(name, object)]);
        while let Some((name, object)) = next.pop() {
            let accounts = changed.entry(name.clone()).or_default();
            accounts.extend(object.consumer.as_ref().ok().map(|consumer| consumer.account.clone()));
            let is_shared =
                |claim: &Claim| matches!(claim, Claim::Account(account) if self.is_shared(account));
            for claim in object.claims().into_iter().filter(|claim| !is_shared(claim)) {
                let rivals = self.claims.get(&claim).filter(|_| seen.insert(claim));
                let rivals =
                    rivals.into_iter().flatten().filter(|(_, rival)| !changed.contains_key(rival));
                next.extend(rivals.filter_map(|(_, rival)| self.objects.get_key_value(rival)));
            }
        }
    }

    #[must_use]
    pub fn object(&self, name: &AccessName) -> Option<&DeclaredAccess> {
        self.objects.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &AccessName> {
        self.objects.keys()
    }

    /// The names of the objects in a namespace.
    pub fn names_in(&self, namespace: &Namespace) -> impl Iterator<Item = &AccessName> {
        let namespace = namespace.clone();
        let first = AccessName { namespace: namespace.clone(), name: String::new() };
        let names = self.objects.range(first..).map(|(name, _)| name);
        names.take_while(move |name| name.namespace == namespace)
    }

    /// The account that several objects can use: that of the user server.
    pub(super) fn shared_account(&self) -> Option<&AccountName> {
        self.rules.user_server.as_ref()
    }

    /// Whether several objects can use an account.
    #[must_use]
    pub fn is_shared(&self, account: &AccountName) -> bool {
        self.shared_account() == Some(account)
    }

    /// The objects that cannot be decoded and were not read before.
    pub fn unreadable(&self) -> impl Iterator<Item = &AccessName> {
        self.unreadable.keys().filter(|name| !self.objects.contains_key(*name))
    }

    /// The finding on an object that cannot be decoded.
    #[must_use]
    pub fn finding(&self, name: &AccessName) -> Option<Finding> {
        self.unreadable.get(name).map(|error| Finding::unreadable(error))
    }

    /// Whether what no known object asks for is asked for by none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_read && self.unreadable().next().is_none()
    }

    /// Whether the objects are not out of date.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// The consumer of an object, if that is accepted and has its account.
    #[must_use]
    pub fn get(&self, name: &AccessName) -> Option<&Consumer> {
        let consumer = self.objects.get(name)?.consumer.as_ref().ok()?;
        (consumer.is_own() || self.has(&Claim::Account(consumer.account.clone()), name))
            .then_some(consumer)
    }

    /// Whether an object is the one that has this.
    fn has(&self, claim: &Claim, name: &AccessName) -> bool {
        self.owner(claim).is_some_and(|owner| owner == name)
    }

    /// The oldest object that asks for this and can have it.
    fn owner(&self, claim: &Claim) -> Option<&AccessName> {
        let mut claimants = self.claims.get(claim)?.iter().map(|(_, name)| name);
        claimants.find(|name| matches!(claim, Claim::Account(_)) || self.get(name).is_some())
    }

    /// Every consumer.
    pub fn iter(&self) -> impl Iterator<Item = &Consumer> {
        self.objects.keys().filter_map(|name| self.get(name))
    }

    /// The consumers in a namespace.
    pub fn in_namespace(&self, namespace: &Namespace) -> impl Iterator<Item = &Consumer> {
        self.names_in(namespace).filter_map(|name| self.get(name))
    }

    /// The consumers that use this account: several share that of the user server.
    pub fn of<'a>(&'a self, account: &AccountName) -> impl Iterator<Item = &'a Consumer> + use<'a> {
        let claims = self.claims.get(&Claim::Account(account.clone()));
        claims.into_iter().flatten().filter_map(|(_, name)| self.get(name))
    }

    /// Whether a consumer uses this account.
    #[must_use]
    pub fn contains(&self, account: &AccountName) -> bool {
        self.of(account).next().is_some()
    }

    /// The consumers whose clusters Kueue lists: all in one namespace.
    pub fn multi_kueue(&self) -> impl Iterator<Item = &Consumer> {
        let namespace = self.owner(&Claim::Kueue).map(|owner| &owner.namespace);
        let consumers = namespace.into_iter().flat_map(|namespace| self.in_namespace(namespace));
        consumers.filter(|consumer| !consumer.multi_kueue_configs.is_empty())
    }

    /// The objects that ask for a MultiKueueConfig, whether or not they get one.
    pub fn asking_for_kueue(&self) -> impl Iterator<Item = &AccessName> {
        self.claims.get(&Claim::Kueue).into_iter().flatten().map(|(_, name)| name)
    }

    /// Whether a consumer is one of these.
    pub(super) fn is_of_kueue(&self, consumer: &Consumer) -> bool {
        let owner = self.owner(&Claim::Kueue).filter(|_| !consumer.multi_kueue_configs.is_empty());
        owner.is_some_and(|owner| owner.namespace == *consumer.namespace())
    }

    /// The consumer that has this MultiKueueConfig.
    #[must_use]
    pub fn with_config(&self, config: &str) -> Option<&Consumer> {
        // A claim in another namespace counts for nothing.
        self.multi_kueue()
            .filter(|consumer| consumer.multi_kueue_configs.contains_key(config))
            .min_by_key(|consumer| {
                (self.objects.get(&consumer.name).and_then(|it| it.created), &consumer.name)
            })
    }

    /// The consumer in a namespace that gets cluster Secrets of Argo CD.
    #[must_use]
    pub fn argo_cd(&self, namespace: &Namespace) -> Option<&Consumer> {
        self.get(self.owner(&Claim::ClusterSecrets(namespace.clone()))?)
    }

    /// The namespaces with cluster Secrets of Argo CD.
    pub fn argo_cd_namespaces(&self) -> impl Iterator<Item = &Namespace> {
        let claims = self.claims.range(Claim::ClusterSecrets("".into())..);
        claims.filter_map(|(claim, _)| match claim {
            Claim::ClusterSecrets(namespace) => Some(namespace),
            _ => None,
        })
    }

    /// What keeps an object from having everything that it asks for.
    #[must_use]
    pub fn not_accepted(&self, name: &AccessName) -> Option<NotAccepted> {
        let consumer = match &self.objects.get(name)?.consumer {
            Ok(consumer) => consumer,
            Err(error) => return Some(error.clone()),
        };
        let lost = |claim: &Claim| self.owner(claim).filter(|owner| *owner != name);
        let conflict = |what: String, owner: &AccessName| {
            let message = format!("{what} belongs to the ClusterAccess {owner}, which is older.");
            Some(NotAccepted { reason: "Conflict", message })
        };
        if !consumer.is_own()
            && let Some(owner) = lost(&Claim::Account(consumer.account.clone()))
        {
            return conflict(format!("The ManagedServiceAccount {}", consumer.account), owner);
        }
        let selectors =
            consumer.multi_kueue_configs.values().filter_map(|selector| selector.as_ref().err());
        if let Some(error) = consumer.selector.as_ref().err().into_iter().chain(selectors).next() {
            let message = format!("A selector is not valid: {error}. What exists is kept.");
            return Some(NotAccepted { reason: "InvalidSelector", message });
        }
        if !consumer.multi_kueue_configs.is_empty()
            && let Some(owner) =
                lost(&Claim::Kueue).filter(|owner| owner.namespace != name.namespace)
        {
            return conflict("Kueue reads the profiles of one namespace, which".to_owned(), owner);
        }
        for config in consumer.multi_kueue_configs.keys() {
            if let Some(owner) = self.with_config(config).filter(|owner| owner.name != *name) {
                return conflict(format!("The MultiKueueConfig {config}"), &owner.name);
            }
        }
        let secrets = Claim::ClusterSecrets(name.namespace.clone());
        match lost(&secrets).filter(|_| consumer.spec.argo_cd.is_some()) {
            Some(owner) => conflict("The cluster Secrets of this namespace".to_owned(), owner),
            None => None,
        }
    }
}

/// An object by its metadata and its spec, or why these cannot be read. Its status is written again as a whole, and one
/// that is being deleted gives nothing, whatever it asks for.
fn without_status(object: Unreadable) -> Result<ClusterAccess, String> {
    let Unreadable { metadata, spec, error } = object;
    let spec = match spec.and_then(|spec| serde_json::from_value(spec).ok()) {
        Some(spec) => spec,
        None if metadata.deletion_timestamp.is_some() => ClusterAccessSpec::default(),
        None => return Err(error),
    };
    Ok(ClusterAccess { metadata: *metadata, spec, status: None })
}

impl DeclaredAccess {
    fn read(rules: &AccessRules, name: &AccessName, object: ClusterAccess) -> Self {
        let metadata = &object.metadata;
        Self {
            version: Version::of(metadata),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            has_secrets: object.spec.argo_cd.is_some(),
            consumer: match metadata.deletion_timestamp {
                None => Consumer::read(rules, name, object.spec),
                Some(_) => Err(NotAccepted {
                    reason: "Terminating",
                    message: "This object is being deleted, and what it gave is withdrawn."
                        .to_owned(),
                }),
            },
            status: object.status.unwrap_or_default(),
        }
    }

    /// What it asks for.
    fn claims(&self) -> Vec<Claim> {
        let Ok(consumer) = &self.consumer else { return Vec::new() };
        let mut claims = vec![Claim::Account(consumer.account.clone())];
        if !consumer.multi_kueue_configs.is_empty() {
            claims.push(Claim::Kueue);
        }
        if consumer.spec.argo_cd.is_some() {
            claims.push(Claim::ClusterSecrets(consumer.name.namespace.clone()));
        }
        claims
    }
}

impl Consumer {
    fn read(
        rules: &AccessRules,
        name: &AccessName,
        spec: ClusterAccessSpec,
    ) -> Result<Self, NotAccepted> {
        let refused =
            |reason, message: &str| Err(NotAccepted { reason, message: message.to_owned() });
        if rules.protected.contains(&name.namespace) {
            return refused("ProtectedNamespace", NotAccepted::PROTECTED);
        }
        // The object as a whole: for own identities, what one asks for is in one object with what others ask for, which the
        // policies would refuse with it.
        let mut asked = spec.permissions.iter().map(|permission| &permission.cluster_role);
        if let Some(role) = asked.find(|role| !rules.allowed_cluster_roles.contains(*role)) {
            let message = format!(
                "The platform does not give the ClusterRole {role}: --allowed-cluster-roles, which is \
                 consumerAccess.allowedClusterRoles in the values of the chart, does not list it."
            );
            return refused("ClusterRoleNotAllowed", &message);
        }
        let account = match (spec.identity, &rules.user_server) {
            (IdentityKind::Own, None) => {
                return refused("OwnIdentityUnavailable", "The platform has no user server.");
            }
            (IdentityKind::Own, Some(account)) => account.clone(),
            (IdentityKind::Copy, user_server) => {
                let account =
                    spec.managed_service_account_name.as_deref().unwrap_or(&name.name).into();
                let is_reserved =
                    own_identity::is_reserved(&account) || own_identity::is_of_others(&account);
                if is_reserved || user_server.as_ref() == Some(&account) {
                    return refused(
                        "ReservedAccount",
                        "On clusters, the ServiceAccount with the name of this ManagedServiceAccount is that of another \
                         component.",
                    );
                }
                account
            }
        };
        let configs = spec.multi_kueue.iter().flat_map(|kueue| &kueue.configs);
        let all = LabelSelector::default();
        let configs = configs.map(|config| {
            let selector = ClusterSelector::of_labels(config.selector.as_ref().unwrap_or(&all));
            (config.name.clone(), selector)
        });
        let mut consumer = Self {
            name: name.clone(),
            account,
            selector: spec.clusters.selector.as_ref().map(ClusterSelector::of_labels).transpose(),
            multi_kueue_configs: configs.collect(),
            spec,
        };
        // Another order is no difference.
        consumer.spec.service_account_names.sort_unstable();
        for role in &mut consumer.spec.permissions {
            role.namespaces.sort_unstable();
        }
        Ok(consumer)
    }

    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.name.namespace
    }

    /// Whether it reaches clusters by its own identity.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.spec.identity == IdentityKind::Own
    }

    /// The Placement that it refers to.
    #[must_use]
    pub fn placement_name(&self) -> Option<PlacementName> {
        Some((self.namespace().clone(), self.spec.clusters.placement_ref.as_ref()?.name.clone()))
    }
}

/// A duration as Go writes it, the text of a `metav1.Duration`; `None` if it is not one.
///
/// jiff also reads other formats, none of which consists of these characters alone.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let is_of_go = |char: char| char.is_ascii_digit() || "+-.hmsun\u{b5}\u{3bc}".contains(char);
    text.chars().all(is_of_go).then(|| text.parse().ok()).flatten()
}
