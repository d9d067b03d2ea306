//! Whether the namespace has the credential for the cluster.

use std::collections::BTreeSet;

use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, Namespace, ProfileKey};

use super::observed::{Observed, SYNCER};
use super::{CheckResult, Code, Findings, Object, Pair, Step};
use crate::credential::account::{Account, CONDITION_SYNCED};
use crate::credential::plan::{CopyAction, CopyPlan, plan};
use crate::credential::state::State;
use crate::grant::{self, Grant};

const ACCOUNT: &str = "ManagedServiceAccount";
const SECRET: &str = "Secret";
/// The condition by which the agent reports that it has written a token.
const CONDITION_REPORTED: &str = "TokenReported";

/// The state of the copy of an account in a namespace, as the syncer decides it.
fn planned(hub: &Observed, namespace: &Namespace, account: &AccountKey) -> (CopyPlan, State) {
    let copy_key = account.copy_in(namespace);
    let plan = plan(&hub.credentials, &hub.fleet, &copy_key, hub.credentials.copy(&copy_key));
    let state = plan.states.iter().find(|(key, _)| key == account).map(|(_, state)| *state);
    let state = match state.unwrap_or(State::NotAsked) {
        State::NotGranted if !hub.knows_fleet(namespace) => State::GrantUnknown,
        state => state,
    };
    (plan, state)
}

/// Whether an account of any of these clusters opts in to the namespace: then every granted cluster should have one
/// that does.
pub(super) fn expected(hub: &Observed, namespace: &Namespace, keys: &[ProfileKey]) -> bool {
    let is_granted = |account: &AccountKey| {
        let key = account.cluster.in_namespace(namespace);
        keys.binary_search(&key).is_ok() && grant::decide(&hub.fleet, &key) == Grant::Granted
    };
    hub.credentials
        .accounts()
        .any(|account| is_granted(&account) && is_meant(planned(hub, namespace, &account).1))
}

/// Whether the account opts in to the namespace, explicitly or not.
fn is_meant(state: State) -> bool {
    !matches!(state, State::NotAsked | State::OutOfScope | State::ProtectedNamespace)
}

impl Pair<'_> {
    /// The steps from the accounts of the cluster to their copies.
    /// If there are applications with an identity of their own, a missing account is no problem: they need none.
    pub(super) fn credential_steps(&self, has_own_identity: bool, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let mut explained = BTreeSet::new();
        for (name, _) in
            hub.credentials.accounts_on(&key.cluster).filter(|(name, _)| self.is_named(name))
        {
            let account = &key.cluster.account(name);
            let (plan, state) = planned(hub, &key.namespace, account);
            // An account that does not opt in to the namespace is explained only if the question names it.
            if !is_meant(state) && self.account.is_none() && state != State::ProtectedNamespace {
                continue;
            }
            if state == State::ProtectedNamespace && !self.is_asked {
                continue;
            }
            explained.insert(name.clone());
            self.account_steps(account, &plan, state, findings);
        }
        if hub.knows_fleet(&key.namespace) {
            self.left_copies(&explained, findings);
        }
        if !explained.is_empty() {
            return;
        }
        if hub.credentials.knows_accounts {
            let needs_none = has_own_identity && self.account.is_none();
            if (self.is_asked || self.expects_accounts) && !needs_none {
                findings.add(self.no_account());
            }
        } else if !has_own_identity {
            self.copies_alone(findings);
        }
    }

    fn no_account(&self) -> CheckResult {
        let cluster = &self.key.cluster;
        let name = self.account.map_or("*", AccountName::as_str);
        let object = Object::namespaced(ACCOUNT, cluster, name);
        let label = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
        let name = self.account.map_or("NAME", AccountName::as_str);
        self.finding(Step::Account, Code::NoAccount, object)
            .field("metadata.labels", label.as_str())
            .fix(format!(
                "kubectl label managedserviceaccount {name} --namespace {cluster} {label}"
            ))
    }

    /// The accounts cannot be read: only the copies in the namespace are known.
    fn copies_alone(&self, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let keys = hub.credentials.keys_at(&hub.fleet, key);
        let copies = keys.iter().filter_map(|copy_key| {
            let record = hub.credentials.copy(copy_key)?.record.as_ref()?;
            (record.account.cluster == key.cluster).then_some((copy_key, &record.account.account))
        });
        let mut found = false;
        for (copy_key, account) in copies.filter(|(_, account)| self.is_named(account)) {
            found = true;
            let account_key = key.cluster.account(account);
            let (plan, state) = planned(hub, &key.namespace, &account_key);
            let unknown = [State::Synced, State::AccountUnknown, State::TokenUnknown];
            if hub.knows_fleet(&key.namespace) && !unknown.contains(&state) {
                self.account_steps(&account_key, &plan, state, findings);
                continue;
            }
            let object = Object::namespaced(SECRET, &copy_key.namespace, &copy_key.name);
            let finding = self.finding(Step::Credential, Code::Credential(State::Synced), object);
            findings.add(finding.of_account(account).field("data.token", "set"));
        }
        if !found {
            let object = Object::namespaced(ACCOUNT, &key.cluster, "*");
            let finding = self.finding(Step::Account, Code::NotReadable, object);
            findings.add(finding.fix_by_can_list("managedserviceaccounts"));
        }
    }

    fn account_steps(
        &self,
        account: &AccountKey,
        plan: &CopyPlan,
        state: State,
        findings: &mut Findings,
    ) {
        let (hub, key) = (self.hub, self.key);
        let name = &account.account;
        let copy_key = account.copy_in(&key.namespace);
        let copy = || Object::namespaced(SECRET, &copy_key.namespace, &copy_key.name);
        let source = || Object::namespaced(SECRET, &account.cluster, name);
        let object = || Object::namespaced(ACCOUNT, &account.cluster, name);
        let about = |step, code, object| self.finding(step, code, object).of_account(name);
        // Both states are of tokens and copies of an account that opts in.
        let is_unread = match state {
            State::TokenUnknown => !hub.credentials.listed_sources.has(name),
            State::CopiesUnknown => !hub.credentials.listed_copies.has(&key.namespace),
            _ => false,
        };
        let (step, field, value) = facts_of(state);
        if step > Step::Account {
            findings.add(about(Step::Account, Code::AccountAsks, object()).field(
                format!("metadata.labels[{}]", labels::SYNC_TO_CLUSTER_PROFILE),
                labels::TRUE,
            ));
        }
        if is_unread {
            self.by_report(account, state, findings);
            return;
        }
        if step > Step::Token {
            let token = |code, value| about(Step::Token, code, source()).field("data.token", value);
            match hub.credentials.expiry(account) {
                Some(expiry) if expiry <= hub.now => findings.add(
                    token(Code::TokenExpired, format!("expired {expiry:.0}"))
                        .fix(agent_command(account)),
                ),
                Some(expiry) => {
                    findings.add(token(Code::TokenReported, format!("expires {expiry:.0}")));
                }
                None => findings.add(token(Code::TokenReported, "set".to_owned())),
            }
        }
        if state == State::Synced && plan.action == CopyAction::Nothing {
            findings.add(
                about(Step::Credential, Code::Credential(state), copy())
                    .field("data.token", "that of the account")
                    .fix(format!(
                        "kubectl auth can-i get secret/{copy} --namespace {namespace} \
                         --as system:serviceaccount:{namespace}:SERVICEACCOUNT",
                        copy = copy_key.name,
                        namespace = copy_key.namespace
                    )),
            );
            return;
        }
        let object = match step {
            Step::Account => object(),
            Step::Token => source(),
            _ => copy(),
        };
        let code =
            if state == State::Synced { Code::CredentialOutdated } else { Code::Credential(state) };
        let fix = self.credential_command(account, state);
        findings.add(about(step, code, object).field(field, value).fix(fix));
    }

    /// The Secrets cannot be read: uses the reports of the agent and the syncer on the account.
    fn by_report(&self, account: &AccountKey, state: State, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let name = &account.account;
        let object = || Object::namespaced(ACCOUNT, &account.cluster, name);
        let copy_key = account.copy_in(&key.namespace);
        let about = |step, code, object| self.finding(step, code, object).of_account(name);
        let condition = |kind: &str| condition(hub.credentials.account(account), kind);
        let names_namespace = |message: &str| {
            let mut words = message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            words.any(|word| word == key.namespace.as_str())
        };
        let synced = condition(CONDITION_SYNCED);
        let shown = synced.as_ref().map_or("none", |(status, ..)| status).to_owned();
        if let Some((status, reason, message)) = synced
            && status == "False"
            && names_namespace(&message)
        {
            findings.add(
                about(Step::Credential, Code::Reported(reason), object())
                    .field(format!("status.conditions[{CONDITION_SYNCED}]"), "False")
                    .message(message)
                    .fix(self.credential_command(account, state)),
            );
            return;
        }
        let reported = condition(CONDITION_REPORTED).is_some_and(|(status, ..)| status == "True");
        if reported && hub.leads(SYNCER) {
            findings.add(
                about(Step::Token, Code::TokenReported, object())
                    .field(format!("status.conditions[{CONDITION_REPORTED}]"), "True"),
            );
            findings.add(
                about(Step::Credential, Code::Credential(State::Synced), object())
                    .field(format!("status.conditions[{CONDITION_SYNCED}]"), shown)
                    .message("the credential syncer reports no missing copy"),
            );
            return;
        }
        let secret = match state {
            State::TokenUnknown => Object::namespaced(SECRET, &account.cluster, name),
            _ => Object::namespaced(SECRET, &copy_key.namespace, &copy_key.name),
        };
        findings
            .add(about(facts_of(state).0, Code::NotReadable, secret).fix_by_can_list("secrets"));
    }

    fn credential_command(&self, account: &AccountKey, state: State) -> String {
        let (namespace, copy) = (&self.key.namespace, account.copy_name());
        let AccountKey { cluster, account: name } = account;
        let label = labels::SYNC_TO_CLUSTER_PROFILE;
        match state {
            State::NotAsked => {
                format!(
                    "kubectl label managedserviceaccount {name} --namespace {cluster} --overwrite {label}={}",
                    labels::TRUE
                )
            }
            State::OutOfScope => format!(
                "kubectl annotate managedserviceaccount {name} --namespace {cluster} --overwrite {}={namespace}",
                labels::SYNC_TO_NAMESPACES
            ),
            State::ForeignSecret => format!("kubectl delete secret {copy} --namespace {namespace}"),
            State::NoToken
            | State::EarlierToken
            | State::UnusableToken(_)
            | State::ForeignToken => agent_command(account),
            State::WriteRefused | State::DeleteRefused | State::Terminating | State::NameTaken => {
                format!("kubectl events --namespace {namespace} --for secret/{copy}")
            }
            State::Synced | State::CopiesUnknown | State::NoProfile | State::ProfileUnknown => {
                self.controller_command(SYNCER)
            }
            _ => format!(
                "kubectl get managedserviceaccount {name} --namespace {cluster} --output yaml"
            ),
        }
    }
}

/// The command that shows the state of a cluster's agent.
fn agent_command(account: &AccountKey) -> String {
    let AccountKey { cluster, account } = account;
    format!(
        "kubectl get managedclusteraddon managed-serviceaccount --namespace {cluster}; kubectl get managedserviceaccount {account} --namespace {cluster} --output yaml"
    )
}

/// Status, reason and message of a condition of an account.
fn condition(account: Option<&Account>, kind: &str) -> Option<(String, String, String)> {
    let state = account?.state.as_ref().ok()?;
    let entry = state.conditions().into_iter().find(|entry| entry["type"] == kind)?;
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// The step that fails in a state, and the field and the value that it depends on.
fn facts_of(state: State) -> (Step, String, &'static str) {
    let (step, field, value) = match state {
        State::NotAsked => {
            let field = format!("metadata.labels[{}]", labels::SYNC_TO_CLUSTER_PROFILE);
            return (Step::Account, field, "not true");
        }
        State::OutOfScope => {
            let field = format!("metadata.annotations[{}]", labels::SYNC_TO_NAMESPACES);
            return (Step::Account, field, "does not list the namespace");
        }
        State::ReservedAccount => (Step::Account, "metadata.name", "reserved"),
        State::NameTooLong => (Step::Account, "metadata.name", "too long"),
        State::AccountUnknown => (Step::Account, "data.token", "not usable"),
        State::TokenElsewhere => (Step::Account, "status.tokenSecretRef.name", "another name"),
        State::NotGranted => (Step::Account, "metadata.namespace", "not known to be granted"),
        State::NoToken => (Step::Token, "metadata.name", "not found"),
        State::ForeignToken => (Step::Token, "metadata.ownerReferences", "not to the account"),
        State::EarlierToken => {
            (Step::Token, "metadata.creationTimestamp", "before that of the ManagedCluster")
        }
        State::TokenUnknown | State::TooManyNames | State::UnusableToken(_) => {
            (Step::Token, "data.token", "not usable")
        }
        State::ProtectedNamespace => (Step::Credential, "metadata.namespace", "protected"),
        State::GrantUnknown => (Step::Credential, "metadata.namespace", "not known to be granted"),
        State::NoProfile | State::ProfileUnknown | State::ForeignProfile => {
            (Step::Credential, "metadata.ownerReferences", "no ClusterProfile")
        }
        State::ForeignSecret | State::NameTaken => {
            (Step::Credential, "metadata.annotations", "another owner")
        }
        State::Terminating => (Step::Credential, "metadata.deletionTimestamp", "set"),
        State::Synced => (Step::Credential, "data.token", "not that of the account"),
        State::DeleteRefused | State::CopiesUnknown | State::WriteRefused => {
            (Step::Credential, "data.token", "not usable")
        }
    };
    (step, field.to_owned(), value)
}
