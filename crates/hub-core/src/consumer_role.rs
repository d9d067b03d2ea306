//! The permissions of an application whose tokens are copied: a Role that names each copy of its ManagedServiceAccount
//! that its namespace is granted, and a RoleBinding of its ServiceAccounts. Both have an owner reference to the
//! ClusterAccess, so they are garbage-collected with it.
//!
//! A ManagedServiceAccount of that name that consumer access does not maintain has another owner, and perhaps more
//! permissions than the author of the ClusterAccess may give: no Role names its copies.
//!
//! As with the copies themselves, the plan removes a name from the Role only if the grant is known to be refused; if in
//! doubt, the name is kept. If the copies of two accounts share a name, no Role contains it: only the Secret records
//! which of the two tokens it contains, and the controller that writes the Role has no permission to read Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountKey, ClusterName, Namespace};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::action::Action;
use crate::consumer_access::{AccessName, Consumer, Consumers};
use crate::credential::account::{self, Scope, accounts_of_copy};
use crate::effort;
use crate::finding::{Finding, Reason, Subject};
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::known::Known;
use crate::rights::{ObservedRole, PermissionSettings, each_name_in, secret_rules};
use crate::version::Uid;

/// The labels of these Roles and RoleBindings. One without them has another owner.
pub const CONSUMER_LABELS: [(&str, &str); 2] =
    [MANAGED_BY, ("app.kubernetes.io/component", "cluster-access")];

/// The prefix of their names, followed by the name of the ClusterAccess.
const PREFIX: &str = "hub-addons-cluster-access-";

/// Annotation of a Role: the account whose copies it names, by which an admission policy limits the names.
const ACCOUNT: &str = "authentication.open-cluster-management.io/managed-serviceaccount";

const RBAC: &str = "rbac.authorization.k8s.io";

/// An account that opts in to copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskingAccount {
    /// The namespaces that it names.
    pub scope: Scope,
    /// Whether consumer access maintains it, as its labels show.
    pub is_maintained: bool,
}

impl AskingAccount {
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        let scope = match metadata.deletion_timestamp {
            None => Scope::read(labels::annotation(metadata, labels::SYNC_TO_NAMESPACES)),
            Some(_) => Scope::nowhere(),
        };
        Self { scope, is_maintained: account::is_maintained(metadata) }
    }
}

/// The accounts that opt in to copies.
pub type AskingAccounts = BTreeMap<AccountKey, AskingAccount>;

/// A Role or a RoleBinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleKind {
    Role,
    RoleBinding,
}

/// The Role or the RoleBinding of a ClusterAccess.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerRole {
    pub kind: RoleKind,
    pub access: AccessName,
}

impl fmt::Display for ConsumerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.access.namespace, self.name())
    }
}

impl ConsumerRole {
    /// Both objects of a ClusterAccess.
    #[must_use]
    pub fn both(access: &AccessName) -> [Self; 2] {
        [RoleKind::Role, RoleKind::RoleBinding].map(|kind| Self { kind, access: access.clone() })
    }

    /// The object of this name in a namespace.
    #[must_use]
    pub fn named(kind: RoleKind, namespace: &Namespace, name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?.to_owned();
        Some(Self { kind, access: AccessName { namespace: namespace.clone(), name } })
    }

    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.access.name)
    }

    /// The subject of a finding.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject::Role(self.access.namespace.clone(), self.name())
    }

    /// Plans the next write. `accounts` is `None` until their list is complete.
    ///
    /// # Errors
    ///
    /// The object has another owner: a person must act.
    pub fn plan(
        &self,
        settings: &PermissionSettings,
        fleet: &Fleet,
        consumers: &Consumers,
        accounts: Option<&AskingAccounts>,
        role: &Known<ObservedRole>,
    ) -> Result<Action<Value, Value>, Finding> {
        effort::count(|spent| spent.plans += 1);
        let (Some(accounts), Some(object)) = (accounts, consumers.object(&self.access)) else {
            return Ok(Action::Nothing);
        };
        let consumer = consumers.get(&self.access).filter(|consumer| !consumer.is_own());
        let observed = match role {
            Known::Unknown => return Ok(Action::Nothing),
            Known::Absent => None,
            Known::Present(role) if role.is_of(CONSUMER_LABELS[1]) => Some(role),
            Known::Present(_) if consumer.is_none() => return Ok(Action::Nothing),
            Known::Present(_) => {
                let [managed_by, component] =
                    CONSUMER_LABELS.map(|(key, value)| format!("{key}={value}"));
                let message = format!(
                    "is not changed, since it does not have the labels {managed_by} and {component}, so the application \
                     cannot read its credentials: rename or delete it"
                );
                return Err(Finding::new(Reason::ForeignRole, message));
            }
        };
        let uid = &object.version.uid;
        let (field, content, is_same) = match self.kind {
            RoleKind::Role => {
                let names = Names { settings, fleet, accounts, is_known: consumers.is_read() };
                // Without a consumer, it names nothing.
                let rules = consumer.map(|it| names.rules(it, observed)).unwrap_or_default();
                ("rules", json!(rules), observed.is_some_and(|role| role.rules == rules))
            }
            RoleKind::RoleBinding => {
                let accounts = consumer.iter().flat_map(|it| &it.spec.service_account_names);
                let namespace = self.access.namespace.as_str();
                let subject = |name| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
                let subjects: Value = accounts.map(subject).collect();
                let bound = observed.and_then(|binding| binding.bound.as_ref());
                let is_same = bound.is_some_and(|(_, bound)| json!(bound) == subjects);
                ("subjects", subjects, is_same)
            }
        };
        let labels: BTreeMap<_, _> = CONSUMER_LABELS.into_iter().collect();
        let owners = self.access.owner(Some(uid));
        let mut metadata = json!({ "labels": labels, "ownerReferences": owners });
        if let Some(consumer) = consumer.filter(|_| self.kind == RoleKind::Role) {
            metadata["annotations"] = json!({ (ACCOUNT): consumer.account.as_str() });
        }
        let mut body = json!({ "metadata": metadata, (field): content });
        Ok(match observed {
            None if consumer.is_none() || !consumers.is_read() || !fleet.is_read() => {
                Action::Nothing
            }
            // The object may name other ServiceAccounts by now.
            Some(_) if self.kind == RoleKind::RoleBinding && !consumers.is_read() => {
                Action::Nothing
            }
            None => {
                body["apiVersion"] = format!("{RBAC}/v1").into();
                body["kind"] = format!("{:?}", self.kind).into();
                body["metadata"]["name"] = self.name().into();
                if self.kind == RoleKind::RoleBinding {
                    body["roleRef"] =
                        json!({ "apiGroup": RBAC, "kind": "Role", "name": self.name() });
                }
                Action::Create(body)
            }
            Some(role) if is_same && is_owned_by(role, uid) => Action::Nothing,
            Some(role) => Action::Patch(role.version.clone(), body),
        })
    }
}

fn is_owned_by(role: &ObservedRole, uid: &Uid) -> bool {
    role.owners.first().is_some_and(|owner| Uid::from(owner.uid.as_str()) == *uid)
}

/// Whether a patch of a Role of an application only adds names.
#[must_use]
pub fn only_widens(patch: &Value, role: &ObservedRole) -> bool {
    let names = patch["rules"][0]["resourceNames"].as_array();
    let after: BTreeSet<_> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    let names = || each_name_in(&role.rules);
    let is_as_written = role.rules == secret_rules(&["get"], names().map(str::to_owned).collect());
    is_as_written && !role.rules.is_empty() && names().all(|name| after.contains(name))
}

/// What decides which copies a Role names.
struct Names<'a> {
    settings: &'a PermissionSettings,
    fleet: &'a Fleet,
    accounts: &'a AskingAccounts,
    /// Whether it is known what the consumers ask for. Unless it is, no name is added.
    is_known: bool,
}

impl Names<'_> {
    /// The rules of a Role.
    fn rules(&self, consumer: &Consumer, observed: Option<&ObservedRole>) -> Vec<PolicyRule> {
        let suffix = format!("-{}", consumer.account);
        let before = observed.into_iter().flat_map(|role| each_name_in(&role.rules));
        let known = before.filter_map(|name| name.strip_suffix(suffix.as_str()));
        let candidates = self.fleet.candidates_in(consumer.namespace()).cloned();
        let clusters: BTreeSet<_> = candidates.chain(known.map(ClusterName::from)).collect();
        let mut names = Vec::new();
        for cluster in clusters {
            let key = AccountKey { cluster, account: consumer.account.clone() };
            let name = key.copy_name();
            if self.has(consumer, &key, observed.is_some_and(|role| role.names(&name))) {
                names.push(name);
            }
        }
        names.sort();
        secret_rules(&["get"], names)
    }

    /// Whether a Role should name the copy of an account of its application, which it names so far or not.
    fn has(&self, consumer: &Consumer, key: &AccountKey, is_named: bool) -> bool {
        let Some(asking) = self.accounts.get(key).filter(|asking| asking.is_maintained) else {
            return false;
        };
        let namespace = consumer.namespace();
        let mut grant = self.grant(namespace, key, &asking.scope);
        for other in accounts_of_copy(&key.copy_name()).filter(|other| other != key) {
            let Some(asking) = self.accounts.get(&other) else { continue };
            grant = match self.grant(namespace, &other, &asking.scope) {
                Grant::Granted => Grant::Refused,
                Grant::Unknown => grant.min(Grant::Unknown),
                Grant::Refused => grant,
            };
        }
        is_named && grant != Grant::Refused || self.is_known && grant == Grant::Granted
    }

    /// Whether a namespace may get the copy of an account that opts in to copies.
    fn grant(&self, namespace: &Namespace, key: &AccountKey, scope: &Scope) -> Grant {
        let is_protected = || self.settings.protected.protects(self.fleet, namespace);
        if !scope.has(namespace, self.settings.require_namespaces)
            || !account::can_have_copies(key)
            || is_protected()
        {
            return Grant::Refused;
        }
        grant::decide(self.fleet, &key.cluster.in_namespace(namespace))
    }
}

/// What a change of an account, or of its cluster, changes in a Role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameChange {
    Remove,
    Add,
}

/// The ClusterAccesses whose Roles, as they are shown, have to change for an account: those of accounts whose copies can
/// have the name of its copy. Costs one decision for each.
#[must_use]
pub fn changes<'a, 'b>(
    settings: &PermissionSettings,
    fleet: &Fleet,
    consumers: &'a Consumers,
    accounts: &AskingAccounts,
    shown: impl Fn(&ConsumerRole) -> Option<&'b ObservedRole>,
    account: &AccountKey,
) -> Vec<(&'a AccessName, NameChange)> {
    let copy = account.copy_name();
    let names = Names { settings, fleet, accounts, is_known: consumers.is_read() };
    let mut changes = Vec::new();
    for key in accounts_of_copy(&copy) {
        for consumer in consumers.of(&key.account).filter(|consumer| !consumer.is_own()) {
            let access = &consumer.name;
            let role = ConsumerRole { kind: RoleKind::Role, access: access.clone() };
            // A Role that is not shown is planned when it is.
            let Some(role) = shown(&role) else { continue };
            let is_named = role.names(&copy);
            match (is_named, names.has(consumer, &key, is_named)) {
                (true, false) => changes.push((access, NameChange::Remove)),
                (false, true) => changes.push((access, NameChange::Add)),
                (true, true) | (false, false) => {}
            }
        }
    }
    changes
}
