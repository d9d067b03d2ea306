//! What decisions read of a ManagedServiceAccount.

use std::collections::BTreeSet;

use hub_api::Unreadable;
use hub_api::labels::{self, MANAGED_BY};
use hub_api::managed_service_account::{ManagedServiceAccount, ManagedServiceAccountStatus};
use hub_api::names::{AccountKey, Namespace, is_dns_label, is_dns_subdomain};
use hub_api::text::Text;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::consumer_access::COMPONENT;
use crate::version::Version;

/// The condition of a ManagedServiceAccount that reports why copies of its token are missing. If none is missing, the
/// condition is absent, since it would cost a write for every account of a hub, except for an account that consumer
/// access maintains: that the copy exists is a part of what a ClusterAccess reports.
pub const CONDITION_SYNCED: &str = "SyncedToClusterProfiles";

/// The maximum length of the annotation [`labels::SYNC_TO_NAMESPACES`], in bytes: some 250 of the longest names. Anyone
/// who may write in the namespace of a cluster chooses it, and a process keeps it in memory for every account.
pub const MAX_ANNOTATION: usize = 16 << 10;
/// The maximum length of `status.conditions` as JSON text, in bytes. The API limits the message of a condition to half
/// of it.
pub const MAX_CONDITIONS: usize = 64 << 10;

/// A ManagedServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub version: Version,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether it opts in, by the label [`labels::SYNC_TO_CLUSTER_PROFILE`], and is not being deleted.
    pub opts_in: bool,
    /// The namespaces that it opts in to.
    pub scope: Scope,
    /// Whether consumer access maintains it, as its labels show.
    pub is_maintained: bool,
    /// Its status, or why it cannot be read.
    pub state: Result<AccountState, String>,
}

/// The status of a ManagedServiceAccount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountState {
    /// `status.tokenSecretRef.name`.
    pub token_secret: Option<Text>,
    /// `status.conditions` as JSON text: a fraction of the memory of the parsed tree. Accounts that are created together have
    /// the same.
    conditions: Text,
}

impl AccountState {
    fn read(status: ManagedServiceAccountStatus) -> Result<Self, String> {
        let token_secret =
            status.token_secret_ref.map(|it| it.name).filter(|name| !name.is_empty());
        let conditions = Value::from(status.conditions).to_string();
        if conditions.len() > MAX_CONDITIONS {
            Err(format!("status.conditions are longer than {MAX_CONDITIONS} bytes"))
        } else if token_secret.as_ref().is_some_and(|name| !is_dns_subdomain(name)) {
            Err("status.tokenSecretRef.name is not the name of a Secret".to_owned())
        } else {
            Ok(Self { token_secret: token_secret.map(Text::from), conditions: conditions.into() })
        }
    }

    #[must_use]
    pub fn conditions(&self) -> Vec<Value> {
        serde_json::from_str(&self.conditions).unwrap_or_default()
    }
}

/// The namespaces to which an account opts in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All that its cluster is granted to.
    EveryGrantedNamespace,
    /// Those of these namespaces that its cluster is granted to, by the annotation [`labels::SYNC_TO_NAMESPACES`].
    Only {
        /// In order, each once, as the others: a set of one name is ten times as large.
        namespaces: Box<[Namespace]>,
        /// Entries of the annotation that are not valid namespace names.
        invalid: Box<[String]>,
    },
    /// No namespace: the annotation is longer than [`MAX_ANNOTATION`].
    TooLong,
}

impl Scope {
    /// Opts in to no namespace.
    #[must_use]
    pub fn nowhere() -> Self {
        Self::Only { namespaces: Box::default(), invalid: Box::default() }
    }

    /// Whether it has a namespace. The settings may require the annotation.
    pub(crate) fn has(&self, namespace: &Namespace, require_namespaces: bool) -> bool {
        match self {
            Self::EveryGrantedNamespace => !require_namespaces,
            Self::Only { namespaces, .. } => namespaces.binary_search(namespace).is_ok(),
            Self::TooLong => false,
        }
    }

    /// Parses the annotation. Empty entries are ignored; an annotation without a namespace opts in to none, since its
    /// author intended a limit.
    #[must_use]
    pub fn read(annotation: Option<&str>) -> Self {
        let Some(annotation) = annotation else { return Self::EveryGrantedNamespace };
        if annotation.len() > MAX_ANNOTATION {
            return Self::TooLong;
        }
        let entries = annotation.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let (names, invalid): (BTreeSet<&str>, BTreeSet<&str>) =
            entries.partition(|entry| is_dns_label(entry));
        Self::Only {
            namespaces: names.into_iter().map(Namespace::from).collect(),
            invalid: invalid.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl Account {
    #[must_use]
    pub fn read(account: Result<ManagedServiceAccount, Unreadable>) -> Self {
        let (metadata, state) = match account {
            Ok(ManagedServiceAccount { metadata, status, .. }) => {
                (metadata, AccountState::read(status.unwrap_or_default()))
            }
            Err(Unreadable { metadata, error, .. }) => (*metadata, Err(error)),
        };
        Self {
            version: Version::of(&metadata),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            opts_in: labels::has(&metadata, (labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE))
                && metadata.deletion_timestamp.is_none(),
            scope: Scope::read(labels::annotation(&metadata, labels::SYNC_TO_NAMESPACES)),
            is_maintained: is_maintained(&metadata),
            state,
        }
    }

    /// Whether its status has our condition.
    #[must_use]
    pub fn has_our_condition(&self) -> bool {
        let is_ours = |condition: &Value| condition["type"] == CONDITION_SYNCED;
        self.state.as_ref().is_ok_and(|state| state.conditions().iter().any(is_ours))
    }

    /// Whether its condition reports that every copy exists, for which only consumer access waits. Until the agent has named
    /// the token that it created, it is about to write the same status, and one of two writers is refused.
    #[must_use]
    pub fn reports_success(&self) -> bool {
        let names_token = self.state.as_ref().is_ok_and(|state| state.token_secret.is_some());
        self.is_maintained && self.opts_in && names_token
    }

    /// Whether two readings agree in everything that copies depend on: they may differ in the version and the
    /// conditions.
    pub(crate) fn asks_the_same_as(&self, other: &Self) -> bool {
        let token_secret =
            |account: &Self| account.state.as_ref().map(|state| state.token_secret.clone()).ok();
        (&self.version.uid, self.created, self.opts_in, &self.scope)
            == (&other.version.uid, other.created, other.opts_in, &other.scope)
            && token_secret(self) == token_secret(other)
    }
}

/// Whether consumer access maintains an account, as its labels show.
pub(crate) fn is_maintained(metadata: &ObjectMeta) -> bool {
    [MANAGED_BY, COMPONENT].into_iter().all(|label| labels::has(metadata, label))
}

/// Each way to split the name of a copy into those of a cluster and an account: it does not show where the first one ends.
pub(crate) fn splits(name: &str) -> impl Iterator<Item = (&str, &str)> {
    name.match_indices('-').map(|(dash, _)| (&name[..dash], &name[dash + 1..]))
}

/// The accounts whose copies can have this name.
pub(crate) fn accounts_of_copy(name: &str) -> impl Iterator<Item = AccountKey> {
    splits(name)
        .map(|(cluster, account)| AccountKey { cluster: cluster.into(), account: account.into() })
}

/// Whether an account can have copies: their name must be valid.
pub(crate) fn can_have_copies(key: &AccountKey) -> bool {
    is_dns_subdomain(&key.copy_name())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_narrows_whatever_it_says() {
        assert_eq!(Scope::read(None), Scope::EveryGrantedNamespace);
        for (annotation, namespaces, invalid) in [
            ("a,b", &["a", "b"][..], &[][..]),
            (" a , ,b,", &["a", "b"], &[]),
            ("", &[], &[]),
            ("*", &[], &["*"]),
            ("a,B,../c,a.b", &["a"], &["../c", "B", "a.b"]),
        ] {
            let only = Scope::Only {
                namespaces: namespaces.iter().copied().map(Namespace::from).collect(),
                invalid: invalid.iter().map(ToString::to_string).collect(),
            };
            assert_eq!(Scope::read(Some(annotation)), only, "{annotation:?}");
        }
        let most = format!("a,{}", "b".repeat(MAX_ANNOTATION - 2));
        assert!(matches!(Scope::read(Some(&most)), Scope::Only { .. }));
        assert_eq!(Scope::read(Some(&format!("{most},"))), Scope::TooLong);
    }

    fn account(status: &Value) -> Account {
        let account = json!({ "metadata": {}, "spec": {}, "status": status });
        Account::read(Ok(serde_json::from_value(account).unwrap()))
    }

    fn token_secret(name: &str) -> Value {
        json!({ "tokenSecretRef": { "name": name, "lastRefreshTimestamp": "2026-01-01T00:00:00Z" } })
    }

    #[test]
    fn that_copies_exist_is_said_once_the_agent_names_the_token_and_to_consumer_access_alone() {
        for (is_maintained, opts_in, status, reports_success) in [
            (true, true, token_secret("app"), true),
            (true, true, json!({}), false),
            (true, false, token_secret("app"), false),
            (false, true, token_secret("app"), false),
        ] {
            let account = Account { opts_in, is_maintained, ..account(&status) };
            assert_eq!(account.reports_success(), reports_success, "{account:?}");
        }
    }

    #[test]
    fn a_status_that_is_too_large_to_keep_is_unreadable_and_not_kept() {
        let conditions =
            |length| json!({ "conditions": [{ "type": "A", "message": "x".repeat(length) }] });
        assert!(account(&conditions(MAX_CONDITIONS / 2)).state.is_ok());
        let refused = account(&conditions(MAX_CONDITIONS)).state.unwrap_err();
        assert!(refused.len() < 100, "{refused}");
        assert!(account(&token_secret(&"x".repeat(1000))).state.is_err());
    }
}
