//! What is left of access that has ended: accounts, copies of tokens and permissions that a controller deletes, and
//! that still exist.

use std::collections::BTreeSet;

use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey, SecretKey};

use super::observed::{LeaseState, Observed, SYNCER};
use super::permission::AccountPermission;
use super::{CheckResult, Code, Findings, Object, Pair, Question, Status, Step};
use crate::credential::account::{Account, Scope};
use crate::credential::copy::ObservedCopy;
use crate::credential::plan::plan;

/// The namespaces for which consumer access maintains an account.
fn maintained_for(account: &Account) -> Option<&BTreeSet<Namespace>> {
    match &account.scope {
        Scope::Only { namespaces, .. } => account.is_maintained.then_some(namespaces),
        Scope::EveryGrantedNamespace | Scope::TooLong => None,
    }
}

fn is_maintained_for(account: &Account, namespace: &Namespace) -> bool {
    maintained_for(account).is_some_and(|namespaces| namespaces.contains(namespace))
}

/// The namespaces for which copies or maintained accounts exist.
pub(super) fn namespaces(hub: &Observed) -> BTreeSet<Namespace> {
    let accounts = hub.credentials.accounts();
    let of_accounts =
        accounts.filter_map(|key| maintained_for(hub.credentials.account(&key)?).cloned());
    let of_copies = hub.credentials.namespaces_of_copies().cloned();
    of_accounts.flatten().chain(of_copies).collect()
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

    /// The names of the accounts that consumer access maintains for the namespace.
    fn maintained(&self) -> impl Iterator<Item = &AccountName> {
        let accounts = self.hub.credentials.accounts_on(&self.key.cluster);
        accounts
            .filter(|(_, account)| is_maintained_for(account, &self.key.namespace))
            .map(|(name, _)| name)
    }

    /// Accounts that consumer access deletes, since their namespace is not granted the cluster.
    pub(super) fn left_accounts(&self, findings: &mut Findings) {
        let cluster = &self.key.cluster;
        for account in self.maintained().filter(|account| self.is_named(account)) {
            let object = Object::namespaced("ManagedServiceAccount", cluster, account);
            let field = format!("metadata.annotations[{}]", labels::SYNC_TO_NAMESPACES);
            findings.add(
                self.finding(Step::Account, Code::AccountNotWithdrawn, object)
                    .of_account(account)
                    .field(field, self.key.namespace.as_str())
                    .fix(format!(
                        "kubectl delete managedserviceaccount {account} --namespace {cluster}"
                    )),
            );
        }
    }

    /// Copies that the syncer removes, except those of these accounts.
    pub(super) fn left_copies(&self, explained: &BTreeSet<AccountName>, findings: &mut Findings) {
        let (hub, ProfileKey { namespace, cluster }) = (self.hub, self.key);
        let of_cluster = copies(hub, namespace).filter(|(.., account)| account.cluster == *cluster);
        for (copy_key, copy, AccountKey { account, .. }) in of_cluster {
            let is_other = explained.contains(&account) || !self.is_named(&account);
            if is_other || !plan(&hub.credentials, &hub.fleet, &copy_key, Some(copy)).is_removal {
                continue;
            }
            let fix = match hub.leading(SYNCER) {
                LeaseState::Held(_) | LeaseState::Unknown => {
                    format!("kubectl events --namespace {namespace} --for secret/{}", copy_key.name)
                }
                LeaseState::NoLease | LeaseState::NotHeld(_) => self.controller_command(SYNCER),
            };
            let object = Object::namespaced("Secret", namespace, &copy_key.name);
            findings.add(
                self.finding(Step::Credential, Code::CredentialNotWithdrawn, object)
                    .of_account(&account)
                    .field("data.token", if copy.holds_data { "set" } else { "removed" })
                    .fix(fix),
            );
        }
    }

    /// Permissions of accounts that consumer access maintains for the namespace, which is not granted the cluster.
    pub(super) fn left_permissions(&self, findings: &mut Findings) {
        for (account, permission) in maintained_permissions(self.hub, &self.key.cluster) {
            if self.maintained().any(|it| *it == account) && self.is_named(&account) {
                findings.add(left_permission(&account, permission).about(self.key));
            }
        }
    }
}

/// The permissions on a cluster that consumer access maintains, with their account: one for each object.
fn maintained_permissions<'a>(
    hub: &'a Observed,
    cluster: &ClusterName,
) -> impl Iterator<Item = (AccountName, &'a AccountPermission)> {
    let mut seen = BTreeSet::new();
    let permissions = hub.permissions.get(cluster).into_iter().flatten();
    permissions
        .filter(|permission| permission.is_maintained && permission.service_account().is_none())
        .filter(move |permission| seen.insert(&permission.object))
        .map(|permission| (AccountName::from(permission.account.as_str()), permission))
}

fn left_permission(account: &AccountName, permission: &AccountPermission) -> CheckResult {
    let object = &permission.object;
    let Object { kind, namespace, name } = object;
    let namespace = namespace.as_deref().unwrap_or_default();
    CheckResult::new(Step::AccountPermission, Code::PermissionsNotWithdrawn, object.clone())
        .of_account(account)
        .field("roleRef", permission.role.as_str())
        .fix(format!("kubectl delete {} {name} --namespace {namespace}", kind.to_lowercase()))
}

/// Permissions that consumer access has to delete, and whose account it no longer maintains. They do not record the
/// namespace of their consumer, so they are reported once for their cluster. If the question names namespaces, it is
/// unknown whether they belong to consumers there.
pub(super) fn permissions_without_account(
    hub: &Observed,
    question: &Question,
    findings: &mut Findings,
) {
    if !hub.credentials.knows_accounts() {
        return;
    }
    for cluster in hub.permissions.keys() {
        for (account, permission) in maintained_permissions(hub, cluster) {
            let key = cluster.account(&account);
            let is_maintained = hub.credentials.account(&key).is_some_and(|it| it.is_maintained);
            if is_maintained || question.account.as_ref().is_some_and(|asked| *asked != account) {
                continue;
            }
            let mut finding = left_permission(&account, permission);
            finding.cluster = Some(cluster.to_string());
            if !question.namespaces.is_empty() {
                finding.mark = Status::Unknown;
                finding.message = format!(
                    "{}; the object does not record the namespace of the consumer",
                    finding.message
                );
            }
            findings.add(finding);
        }
    }
}

/// Names the finalizers that delay the deletion of the object that a problem depends on: until they are removed, no
/// other command helps.
pub(super) fn name_finalizers(hub: &Observed, finding: &mut CheckResult) {
    if finding.mark == Status::Ok {
        return;
    }
    let Some(finalizers) = hub.held.get(&finding.object) else { return };
    let names = finalizers.join(", ");
    let advice = match finalizers.as_slice() {
        [_] => "a finalizer holds it: find the controller that owns the finalizer",
        _ => "finalizers hold it: find the controllers that own the finalizers",
    };
    finding.message = format!("{}; {advice} {names}", finding.message);
    // This shows which field manager has set the finalizer, and no data of a Secret.
    finding.fix = Some(finding.object.get_command("jsonpath='{.metadata.managedFields}'"));
    finding.field = "metadata.finalizers".into();
    finding.value = names;
}
