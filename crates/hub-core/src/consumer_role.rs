//! The permissions of a consumer whose Role follows the grant: to read, by name, each copy of its ManagedServiceAccount
//! that its namespace is granted.
//!
//! As with the copies themselves, the plan removes a name from the Role only if the grant is known to be refused; if in
//! doubt, the name is kept. If the copies of two accounts share a name, no Role contains it: only the Secret records
//! which of the two tokens it contains, and the controller that writes the Role has no permission to read Secrets.

use std::collections::BTreeMap;
use std::str::FromStr;

use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, Namespace, ProfileKey, is_dns_label, is_dns_subdomain};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};

use crate::access::Known;
use crate::credential::account::{self, Scope};
use crate::finding::{Finding, Reason, Subject};
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::rights::{PermissionSettings, RulesAction, names_in, secret_rules};
use crate::version::Version;

/// The labels of the Roles that the chart creates for consumers. A Role without them has another owner.
pub const CONSUMER_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/part-of", "hub-addons"), ("app.kubernetes.io/component", "consumer")];

/// A Role that follows the grant of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerRole {
    pub namespace: Namespace,
    pub name: String,
    /// The account whose copies it names.
    pub account: AccountName,
}

impl FromStr for ConsumerRole {
    type Err = String;

    /// Reads `NAMESPACE/ROLE/ACCOUNT`. The name of a Role can be any path segment: anything but `.`, `..`, `/` and `%`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_role = |role: &str| !["", ".", ".."].contains(&role) && !role.contains('%');
        match parts[..] {
            [namespace, role, account]
                if is_dns_label(namespace) && is_role(role) && is_dns_subdomain(account) =>
            {
                Ok(Self { namespace: namespace.into(), name: role.to_owned(), account: account.into() })
            }
            _ => Err(format!("expected NAMESPACE/ROLE/MANAGEDSERVICEACCOUNT, got {text:?}")),
        }
    }
}

/// The state of a consumer's Role on the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedConsumerRole {
    pub version: Version,
    pub rules: Vec<PolicyRule>,
    /// Whether it carries [`CONSUMER_LABELS`].
    pub is_ours: bool,
}

impl From<Role> for ObservedConsumerRole {
    fn from(role: Role) -> Self {
        Self {
            version: Version::of(&role.metadata),
            is_ours: CONSUMER_LABELS.into_iter().all(|label| labels::has(&role.metadata, label)),
            rules: role.rules.unwrap_or_default(),
        }
    }
}

impl ConsumerRole {
    /// The Role as the subject of a finding.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject::Role(self.namespace.clone(), self.name.clone())
    }

    /// Plans the next write to the Role. `accounts` are those that opt in to copies, with their scopes; `None` until
    /// their list is complete.
    ///
    /// # Errors
    ///
    /// The Role does not exist, or is not one of the chart: a person must act.
    pub fn plan(
        &self,
        settings: &PermissionSettings,
        fleet: &Fleet,
        accounts: Option<&BTreeMap<AccountKey, Scope>>,
        role: &Known<ObservedConsumerRole>,
    ) -> Result<RulesAction, Finding> {
        let role = match role {
            Known::Unknown => return Ok(RulesAction::Nothing),
            Known::Absent => {
                let message =
                    "does not exist, so the consumer cannot read its credentials: install the chart again";
                return Err(Finding::new(Reason::MissingRole, message));
            }
            Known::Present(role) => role,
        };
        if !role.is_ours {
            let [part_of, component] = CONSUMER_LABELS.map(|(key, value)| format!("{key}={value}"));
            let message = format!(
                "is not changed, since it does not have the labels {part_of} and {component} of the chart's Roles for \
                 consumers: delete it and install the chart again"
            );
            return Err(Finding::new(Reason::ForeignRole, message));
        }
        Ok(match accounts.map(|accounts| self.rules(settings, fleet, accounts, &role.rules)) {
            Some(rules) if rules != role.rules => RulesAction::Patch(role.version.clone(), rules),
            _ => RulesAction::Nothing,
        })
    }

    /// The rules of the Role.
    fn rules(
        &self,
        settings: &PermissionSettings,
        fleet: &Fleet,
        accounts: &BTreeMap<AccountKey, Scope>,
        observed: &[PolicyRule],
    ) -> Vec<PolicyRule> {
        let before = names_in(observed);
        let grant = |key: &AccountKey, scope: &Scope| self.grant(settings, fleet, key, scope);
        let mut names = BTreeMap::new();
        for (key, scope) in accounts.iter().filter(|(key, _)| key.account == self.account) {
            names.insert(key.copy_name(), grant(key, scope));
        }
        for (key, scope) in accounts.iter().filter(|(key, _)| key.account != self.account) {
            if let Some(own) = names.get_mut(&key.copy_name()) {
                *own = match (*own, grant(key, scope)) {
                    (Grant::Refused, _) | (_, Grant::Granted) => Grant::Refused,
                    (_, Grant::Unknown) => Grant::Unknown,
                    (own, Grant::Refused) => own,
                };
            }
        }
        names.retain(|name, grant| match grant {
            Grant::Granted => true,
            Grant::Refused => false,
            Grant::Unknown => before.contains(name.as_str()),
        });
        secret_rules(&["get"], names.into_keys().collect())
    }

    /// Whether the namespace may get the copy of an account that opts in to copies.
    fn grant(&self, settings: &PermissionSettings, fleet: &Fleet, key: &AccountKey, scope: &Scope) -> Grant {
        let is_offered = match scope {
            Scope::EveryGrantedNamespace => !settings.require_namespaces,
            Scope::Only { namespaces, .. } => namespaces.contains(&self.namespace),
            Scope::TooLong => false,
        };
        let is_protected = || settings.protected.protection(fleet, &self.namespace).is_some();
        if !is_offered || !account::can_have_copies(key) || is_protected() {
            return Grant::Refused;
        }
        grant::decide(fleet, &ProfileKey { namespace: self.namespace.clone(), cluster: key.cluster.clone() })
    }
}
