//! The next write to the access of a consumer on a cluster.

use std::collections::BTreeMap;

use hub_api::names::AccountKey;
use serde_json::{Map, Value, json};

use super::desired::{AccessSettings, Desired};
use super::observed::{AccessKind, ObservedAccess, ObservedObject, Owned};
use crate::fleet::Fleet;
use crate::grant::Grant;
use crate::note::{Note, Reason};
use crate::version::Version;

/// The next write.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessAction {
    /// Nothing differs, or the grant is in doubt.
    Nothing,
    /// Create this object.
    Create(AccessKind, Value),
    /// Merge this patch, which names the version that it is for.
    Patch(AccessKind, Value),
    /// Delete exactly this version.
    Delete(AccessKind, Version),
}

/// The next write, and what people should know.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessPlan {
    /// The write.
    pub action: AccessAction,
    /// The findings about each object.
    pub notes: BTreeMap<AccessKind, Vec<Note>>,
}

impl AccessSettings {
    /// Plans the next write to the access of an account's consumer to its cluster. Until the lists of accounts and
    /// permissions are complete, the caller must not ask.
    #[must_use]
    pub fn plan(&self, fleet: &Fleet, key: &AccountKey, observed: &ObservedAccess) -> AccessPlan {
        let mut notes = BTreeMap::new();
        let action = match (self.grant(fleet, key), self.consumers.get(&key.account)) {
            (Grant::Refused, _) | (_, None) => {
                let action = self.withdraw(key, observed, &mut notes);
                if self.excludes_local_cluster(fleet, key) {
                    let message = "does not exist because the cluster is the hub itself: its permissions would be \
                                   permissions on the hub; consumerAccess.includeLocalCluster of the chart includes it";
                    let note = Note::new(Reason::LocalClusterExcluded, message);
                    notes.entry(AccessKind::Account).or_insert_with(Vec::new).push(note);
                }
                action
            }
            (grant, Some(consumer)) => {
                let account = observed.ours(self, key, AccessKind::Account);
                let first = step(AccessKind::Account, key, grant, &account, &self.account(consumer));
                match (first, account) {
                    (Some(action), _) => action,
                    (None, Owned::Ours(account)) if !account.is_deleting => {
                        let desired = self.work(consumer, &account.version.uid);
                        self.permit(key, grant, observed, desired, &mut notes)
                    }
                    (None, Owned::Foreign) => {
                        let message = format!(
                            "has the name of the account of the consumer in namespace {}, and another owner: it is not \
                             changed, and the consumer has no access to the cluster; rename or delete it",
                            consumer.namespace
                        );
                        notes.insert(AccessKind::Account, vec![Note::new(Reason::ForeignAccount, message)]);
                        delete(&observed.ours(self, key, AccessKind::Permissions), AccessKind::Permissions)
                    }
                    (None, Owned::Ours(_)) => {
                        let message = "is being deleted and waits for a finalizer; when it is gone, a new account \
                                       is created if the cluster is still granted";
                        notes.insert(
                            AccessKind::Account,
                            vec![Note::new(Reason::AccountTerminating, message)],
                        );
                        AccessAction::Nothing
                    }
                    (None, Owned::Absent) => AccessAction::Nothing,
                }
            }
        };
        for kind in AccessKind::ALL {
            let is_unreadable = matches!(
                observed.ours(self, key, kind),
                Owned::Ours(object) if object.spec.is_none() && !object.is_deleting
            );
            if is_unreadable && action == AccessAction::Nothing {
                notes.entry(kind).or_insert_with(Vec::new).push(Note::unreadable("its spec"));
            }
        }
        AccessPlan { action, notes }
    }

    /// Deletes the account first, and then its permissions.
    fn withdraw(
        &self,
        key: &AccountKey,
        observed: &ObservedAccess,
        notes: &mut BTreeMap<AccessKind, Vec<Note>>,
    ) -> AccessAction {
        let permissions =
            || delete(&observed.ours(self, key, AccessKind::Permissions), AccessKind::Permissions);
        match observed.ours(self, key, AccessKind::Account) {
            // Until a finalizer lets it go, the agent keeps the account on the cluster, and its token valid.
            Owned::Ours(account) if account.is_deleting => {
                let message =
                    format!("is being deleted and waits for a finalizer; {}", self.remaining(key, observed));
                notes.insert(AccessKind::Account, vec![Note::new(Reason::AccountTerminating, message)]);
                permissions()
            }
            account @ Owned::Ours(_) => {
                // An account that the API server does not delete has no permissions at least.
                let first =
                    if observed.is_account_undeletable { permissions() } else { AccessAction::Nothing };
                if first == AccessAction::Nothing { delete(&account, AccessKind::Account) } else { first }
            }
            Owned::Absent | Owned::Foreign => permissions(),
        }
    }

    /// What remains of the permissions of an account that a finalizer holds.
    fn remaining(&self, key: &AccountKey, observed: &ObservedAccess) -> &'static str {
        // Without a declaration, the process may not read them.
        if self.consumers.get(&key.account).is_none() {
            return "its consumer is no longer declared, so its permissions on the cluster end only with it: remove the \
                    finalizer";
        }
        match observed.ours(self, key, AccessKind::Permissions) {
            Owned::Absent | Owned::Foreign => "its permissions are deleted",
            Owned::Ours(permissions) if permissions.is_deleting => "its permissions are being deleted",
            Owned::Ours(_) => "its permissions still exist",
        }
    }

    /// The permissions of an account of ours.
    fn permit(
        &self,
        key: &AccountKey,
        grant: Grant,
        observed: &ObservedAccess,
        desired: Option<Desired>,
        notes: &mut BTreeMap<AccessKind, Vec<Note>>,
    ) -> AccessAction {
        let permissions = observed.ours(self, key, AccessKind::Permissions);
        let Some(desired) = desired else { return delete(&permissions, AccessKind::Permissions) };
        let note = match permissions {
            Owned::Absent => None,
            Owned::Foreign => {
                let message = format!(
                    "has the name of the permissions of the account {}, and another owner: it is not changed, and the \
                     account has none of the declared permissions; rename or delete it",
                    key.account
                );
                Some(Note::new(Reason::ForeignManifestWork, message))
            }
            Owned::Ours(work) => work.not_applied.as_ref().map(|message| {
                let message =
                    format!("the cluster has not applied the permissions of {}: {message}", key.account);
                Note::new(Reason::PermissionsNotApplied, message)
            }),
        };
        notes.extend(note.map(|note| (AccessKind::Permissions, vec![note])));
        let action = step(AccessKind::Permissions, key, grant, &permissions, &desired);
        action.unwrap_or(AccessAction::Nothing)
    }
}

/// Creates or repairs one object; `None` if there is nothing to write.
fn step(
    kind: AccessKind,
    key: &AccountKey,
    grant: Grant,
    observed: &Owned<'_>,
    desired: &Desired,
) -> Option<AccessAction> {
    match observed {
        Owned::Absent if grant == Grant::Granted => {
            let mut object = kind.head(key);
            object["metadata"]["labels"] = json!(desired.labels);
            if !desired.annotations.is_empty() {
                object["metadata"]["annotations"] = json!(desired.annotations);
            }
            if !desired.owners.is_null() {
                object["metadata"]["ownerReferences"] = desired.owners.clone();
            }
            object["spec"] = json!(desired.spec);
            Some(AccessAction::Create(kind, object))
        }
        // A patch cannot remove what cannot be read: the object is recreated, if it may be created.
        Owned::Ours(object) if !object.is_deleting && object.spec.is_none() => {
            (grant == Grant::Granted).then(|| AccessAction::Delete(kind, object.version.clone()))
        }
        Owned::Ours(object) if !object.is_deleting && !object.has(desired) => {
            Some(AccessAction::Patch(kind, patch(object, desired)))
        }
        Owned::Absent | Owned::Ours(_) | Owned::Foreign => None,
    }
}

/// Deletes an object of ours, once.
fn delete(observed: &Owned<'_>, kind: AccessKind) -> AccessAction {
    match observed {
        Owned::Ours(object) if !object.is_deleting => AccessAction::Delete(kind, object.version.clone()),
        Owned::Absent | Owned::Ours(_) | Owned::Foreign => AccessAction::Nothing,
    }
}

/// The merge patch that makes an object of this version as desired.
fn patch(object: &ObservedObject, desired: &Desired) -> Value {
    // A merge patch merges what the list of manifests is not part of: fields that must not be there are removed by name.
    let surplus = object.spec.iter().flatten().map(|(field, _)| (field.clone(), Value::Null));
    let mut spec: Map<String, Value> = surplus.collect();
    for (field, value) in &desired.spec {
        let mut value = value.clone();
        let before = object.spec.as_ref().and_then(|spec| spec.get(field)).and_then(Value::as_object);
        if let Some(fields) = value.as_object_mut() {
            for (name, _) in before.into_iter().flatten() {
                fields.entry(name).or_insert(Value::Null);
            }
        }
        spec.insert(field.clone(), value);
    }
    json!({
        "metadata": {
            "uid": object.version.uid,
            "resourceVersion": object.version.resource_version,
            "labels": desired.labels,
            "annotations": desired.annotations,
            "ownerReferences": desired.owners,
        },
        "spec": spec,
    })
}
