//! The report on an account whose token is not copied to every namespace where it should be: the condition
//! [`CONDITION_SYNCED`] on the account.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, Namespace};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::credential::account::{Account, CONDITION_SYNCED, MAX_ANNOTATION, Scope};
use crate::credential::index::CredentialIndex;
use crate::credential::state::State;
use crate::credential::tally::Troubles;
use crate::finding::first_of;
use crate::fleet::Fleet;
use crate::grant;

/// The reason of the condition if nothing is wrong except entries of the annotation.
pub const INVALID_NAMESPACE: &str = "InvalidNamespace";

/// The text for that reason.
pub const INVALID_ENTRIES: &str =
    "the annotation contains entries that are not valid namespace names";

/// The reason of the condition if the annotation is too long to be read.
pub const ANNOTATION_TOO_LONG: &str = "AnnotationTooLong";

/// How many namespaces a sentence lists.
const NAMED: usize = 10;

/// How many characters of user input are quoted: no namespace has a longer name, and a condition's message must be
/// bounded.
const SHOWN: usize = 63;

/// Why copies of an account are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The condition's reason: that of the first problem.
    pub reason: &'static str,
    /// All problems, one sentence each.
    pub message: String,
    /// Whether every problem is an object that is missing or not known yet, and none a refusal or a conflict.
    pub is_missing: bool,
}

/// Where an account opts in, as far as bindings decide it. It changes with the account and the fleet, not with a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipients {
    /// Whether any namespace is granted the cluster.
    is_granted: bool,
    /// The namespaces that receive no credentials, if the account expects one there, and those that the account names and
    /// that are not granted the cluster.
    withheld: Troubles,
}

impl Recipients {
    #[must_use]
    pub fn of(index: &CredentialIndex, fleet: &Fleet, key: &AccountKey) -> Self {
        let mut recipients = Self::default();
        let Some(account) = index.account(key).filter(|account| account.opts_in) else {
            return recipients;
        };
        let is_protected = |namespace| index.settings.protected.protects(fleet, namespace);
        match &account.scope {
            // An account that names a namespace expects a copy there.
            Scope::Only { namespaces, .. } => {
                for namespace in namespaces {
                    if !grant::is_among(fleet, namespace, &key.cluster) {
                        recipients.withhold(State::NotGranted, namespace);
                        continue;
                    }
                    recipients.is_granted = true;
                    if is_protected(namespace) {
                        recipients.withhold(State::ProtectedNamespace, namespace);
                    }
                }
            }
            // One that names none expects one anywhere.
            Scope::EveryGrantedNamespace if !index.settings.require_namespaces => {
                for namespace in grant::namespaces_of(fleet, &key.cluster) {
                    recipients.is_granted = true;
                    if !is_protected(namespace) {
                        recipients.withheld.clear();
                        break;
                    }
                    recipients.withhold(State::ProtectedNamespace, namespace);
                }
            }
            Scope::EveryGrantedNamespace | Scope::TooLong => {}
        }
        recipients
    }

    fn withhold(&mut self, state: State, namespace: &Namespace) {
        self.withheld.entry(state).or_default().insert(namespace.clone());
    }
}

/// The report on an account, if there is any problem: from what was counted of its copies, and where it opts in.
#[must_use]
pub fn report(
    index: &CredentialIndex,
    key: &AccountKey,
    counted: Option<&Troubles>,
    recipients: &Recipients,
) -> Option<Report> {
    let account = index.account(key)?;
    // Of an account that does not opt in, only a copy that cannot be deleted is a problem.
    let counts = |state: &State| account.opts_in || *state == State::DeleteRefused;
    let counted = counted.into_iter().flatten().filter(|(state, _)| counts(state));
    let mut troubles: BTreeMap<State, &BTreeSet<Namespace>> =
        counted.map(|(state, namespaces)| (*state, namespaces)).collect();
    if !account.opts_in && troubles.is_empty() {
        return None;
    }
    troubles.extend(recipients.withheld.iter().map(|(state, namespaces)| (*state, namespaces)));
    let is_missing = !troubles.is_empty() && troubles.keys().all(|state| state.is_missing());
    let mut sentences = Vec::new();
    let mut reason = troubles.keys().next().map(State::into_str);
    if !recipients.is_granted && troubles.is_empty() {
        let (because, sentence) = nowhere(account, index.settings.require_namespaces);
        reason = Some(because);
        sentences.push(sentence);
    }
    for (state, namespaces) in &troubles {
        let names: Vec<_> = namespaces.iter().map(Namespace::as_str).collect();
        sentences.push(format!("{}: {state}", first_of(&names, NAMED)));
    }
    if let Scope::Only { invalid, .. } = &account.scope
        && !invalid.is_empty()
    {
        let entries: Vec<_> = invalid.iter().take(NAMED).map(|entry| quoted(entry)).collect();
        reason = reason.or(Some(INVALID_NAMESPACE));
        sentences.push(format!("{INVALID_ENTRIES}: {}", entries.join(", ")));
    }
    reason.map(|reason| Report { reason, message: sentences.join(". "), is_missing })
}

/// Why an account has no namespace for copies.
fn nowhere(account: &Account, require_namespaces: bool) -> (&'static str, String) {
    let (state, sentence) = match account.scope {
        Scope::TooLong => {
            let sentence = format!(
                "the annotation authentication.open-cluster-management.io/sync-to-namespaces is longer than \
                 {MAX_ANNOTATION} bytes and opts in to no namespace"
            );
            return (ANNOTATION_TOO_LONG, sentence);
        }
        Scope::EveryGrantedNamespace if require_namespaces => (
            State::OutOfScope,
            "this hub requires the annotation authentication.open-cluster-management.io/sync-to-namespaces, which \
             is missing",
        ),
        Scope::EveryGrantedNamespace => {
            (State::NotGranted, "no ManagedClusterSetBinding grants the cluster to any namespace")
        }
        Scope::Only { .. } => (State::OutOfScope, "the annotation contains no namespace"),
    };
    (state.into_str(), sentence.to_owned())
}

fn quoted(entry: &str) -> String {
    let shown: String = entry.chars().take(SHOWN).collect();
    let more = if shown.len() < entry.len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

/// The conditions of an account with ours set or removed, or `None` if nothing differs. Without a problem, there is one
/// of ours only if the account `reports_success`. Entries of others are preserved.
#[must_use]
pub fn conditions(
    shown: &[Value],
    report: Option<&Report>,
    reports_success: bool,
    now: Timestamp,
) -> Option<Vec<Value>> {
    let wanted = match report {
        Some(report) => Some(("False", report.reason, &*report.message)),
        None => reports_success.then_some(("True", State::Synced.into_str(), "every copy exists")),
    };
    let is_ours = |entry: &&Value| entry["type"] == CONDITION_SYNCED;
    let ours: Vec<&Value> = shown.iter().filter(is_ours).collect();
    let same = match (&*ours, wanted) {
        ([], None) => true,
        ([entry], Some((status, reason, message))) => {
            entry["status"] == status && entry["reason"] == reason && entry["message"] == message
        }
        _ => false,
    };
    if same {
        return None;
    }
    let mut list: Vec<Value> = shown.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    if let Some((status, reason, message)) = wanted {
        // A new reason is not a transition.
        let since = ours.iter().find(|entry| entry["status"] == status);
        let since = since.and_then(|entry| entry["lastTransitionTime"].as_str()).map(str::to_owned);
        list.push(json!({
            "type": CONDITION_SYNCED,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| to_the_second(now).to_string()),
        }));
    }
    Some(list)
}

/// A time as conditions have it.
pub(crate) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
