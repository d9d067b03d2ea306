//! What is left of access that has ended: accounts and copies of tokens that a controller deletes, and that still exist.

use std::collections::BTreeSet;

use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey, SecretKey};

use super::observed::Observed;
use super::{CheckResult, Code, Findings, Object, Pair, Step};
use crate::credential::account::{Account, Scope};
use crate::credential::copy::ObservedCopy;
use crate::credential::plan::plan;

/// The namespaces for which consumer access maintains an account.
fn maintained_for(account: &Account) -> Option<&[Namespace]> {
    match &account.scope {
        Scope::Only { namespaces, .. } => account.is_maintained.then_some(&**namespaces),
        Scope::EveryGrantedNamespace | Scope::TooLong => None,
    }
}

fn is_maintained_for(account: &Account, namespace: &Namespace) -> bool {
    maintained_for(account).is_some_and(|namespaces| namespaces.contains(namespace))
}

/// The namespaces for which copies or maintained accounts exist.
pub(super) fn namespaces(hub: &Observed) -> BTreeSet<Namespace> {
    let accounts = hub.credentials.accounts();
    let of_accounts = accounts.filter_map(|key| maintained_for(hub.credentials.account(&key)?));
    let of_copies = hub.credentials.namespaces_of_copies().cloned();
    of_accounts.flatten().cloned().chain(of_copies).collect()
}

/// The clusters of which copies or maintained accounts exist for a namespace.
pub(super) fn clusters(hub: &Observed, namespace: &Namespace) -> BTreeSet<ClusterName> {
    let accounts = hub.credentials.accounts().filter(|key| {
        hub.credentials.account(key).is_some_and(|account| is_maintained_for(account, namespace))
    });
    let copies = copies(hub, namespace).map(|(_, _, account)| account);
    accounts.chain(copies).map(|key| key.cluster).collect()
}

/// The copies in a namespace, with the account whose token each contains.
fn copies<'a>(
    hub: &'a Observed,
    namespace: &Namespace,
) -> impl Iterator<Item = (SecretKey, &'a ObservedCopy, AccountKey)> {
    let secrets = hub.credentials.copies_in(namespace);
    secrets.filter_map(|(name, copy)| {
        let key = SecretKey { namespace: namespace.clone(), name: name.clone() };
        let account = hub.credentials.account_in(&key, copy)?;
        Some((key, copy, account))
    })
}

impl Pair<'_> {
    /// Whether the question is about this account.
    pub(super) fn is_named(&self, account: &AccountName) -> bool {
        self.account.is_none_or(|asked| asked == account)
    }

    /// Accounts that consumer access deletes, since their namespace is not granted the cluster.
    pub(super) fn left_accounts(&self, findings: &mut Findings) {
        let ProfileKey { namespace, cluster } = self.key;
        for (account, known) in self.hub.credentials.accounts_on(cluster) {
            if is_maintained_for(known, namespace) && self.is_named(account) {
                let object = Object::namespaced("ManagedServiceAccount", cluster, account);
                let field = format!("metadata.annotations[{}]", labels::SYNC_TO_NAMESPACES);
                let finding = left(Step::Account, object, account).about(self.key);
                findings.add(finding.field(field, namespace.as_str()));
            }
        }
    }

    /// Copies that the syncer removes, except those of these accounts.
    pub(super) fn left_copies(&self, explained: &BTreeSet<AccountName>, findings: &mut Findings) {
        let (hub, ProfileKey { namespace, cluster }) = (self.hub, self.key);
        let of_cluster = copies(hub, namespace).filter(|(.., account)| account.cluster == *cluster);
        for (copy_key, copy, AccountKey { account, .. }) in of_cluster {
            let is_other = explained.contains(&account) || !self.is_named(&account);
            if !is_other && plan(&hub.credentials, &hub.fleet, &copy_key, Some(copy)).is_removal {
                let object = Object::namespaced("Secret", namespace, &copy_key.name);
                let finding = left(Step::Credential, object, &account).about(self.key);
                let value = if copy.holds_data { "set" } else { "removed" };
                findings.add(finding.field("data.token", value));
            }
        }
    }
}

/// What is left, with the command that deletes it: what the API server responds shows what holds it.
fn left(step: Step, object: Object, account: &AccountName) -> CheckResult {
    let Object { kind, namespace, name } = &object;
    let namespace = namespace.as_deref().unwrap_or_default();
    let fix = format!("kubectl delete {} {name} --namespace {namespace}", kind.to_lowercase());
    CheckResult::new(step, Code::NotWithdrawn, object).of_account(account).fix(fix)
}
