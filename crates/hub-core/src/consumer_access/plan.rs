//! The next write to the access of a consumer on a cluster.

use std::collections::BTreeMap;

use hub_api::names::AccountKey;
use serde_json::{Map, Value, json};

use super::declaration::Consumer;
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
                        self.permit(key, grant, observed, (consumer, &account.version.uid), &mut notes)
                    }
                    (None, Owned::Foreign) => {
                        let message = format!(
                            "has the name of the account of the consumer in namespace {}, and another owner: it is not \
                             changed, and the consumer has no access to the cluster; rename or delete it",
                            consumer.namespace
                        );
                        notes.insert(AccessKind::Account, vec![Note::new(Reason::ForeignAccount, message)]);
                        self.end_permissions(key, observed)
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
        let permissions = || self.end_permissions(key, observed);
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

    /// Deletes the permissions of an account.
    fn end_permissions(&self, key: &AccountKey, observed: &ObservedAccess) -> AccessAction {
        let deletes = AccessKind::PERMISSIONS.map(|kind| delete(&observed.ours(self, key, kind), kind));
        deletes.into_iter().find(|action| *action != AccessAction::Nothing).unwrap_or(AccessAction::Nothing)
    }

    /// What remains of the permissions of an account that a finalizer holds.
    fn remaining(&self, key: &AccountKey, observed: &ObservedAccess) -> &'static str {
        // Without a declaration, the process may not read them.
        if self.consumers.get(&key.account).is_none() {
            return "its consumer is no longer declared, so its permissions on the cluster end only with it: remove the \
                    finalizer";
        }
        let ours = AccessKind::PERMISSIONS.map(|kind| observed.ours(self, key, kind));
        if ours.iter().any(|found| matches!(found, Owned::Ours(permissions) if !permissions.is_deleting)) {
            "its permissions still exist"
        } else if ours.iter().any(|found| matches!(found, Owned::Ours(_))) {
            "its permissions are being deleted"
        } else {
            "its permissions are deleted"
        }
    }

    /// The permissions of an account of ours with this uid.
    fn permit(
        &self,
        key: &AccountKey,
        grant: Grant,
        observed: &ObservedAccess,
        (consumer, uid): (&Consumer, &str),
        notes: &mut BTreeMap<AccessKind, Vec<Note>>,
    ) -> AccessAction {
        let kind = consumer.permission_kind();
        let Some(desired) = self.permissions(kind, consumer, uid) else {
            return self.end_permissions(key, observed);
        };
        let permissions = observed.ours(self, key, kind);
        let note = match &permissions {
            Owned::Absent => None,
            Owned::Foreign => {
                let message = format!(
                    "has the name of the permissions of the account {}, and another owner: it is not changed, and the \
                     account has none of the declared permissions; rename or delete it",
                    key.account
                );
                let reason = match kind {
                    AccessKind::ClusterPermission => Reason::ForeignClusterPermission,
                    AccessKind::Account | AccessKind::ManifestWork => Reason::ForeignManifestWork,
                };
                Some(Note::new(reason, message))
            }
            Owned::Ours(object) => object.not_applied.as_ref().map(|message| {
                let message =
                    format!("the cluster has not applied the permissions of {}: {message}", key.account);
                Note::new(Reason::PermissionsNotApplied, message)
            }),
        };
        notes.extend(note.map(|note| (kind, vec![note])));
        if let Some(action) = step(kind, key, grant, &permissions, &desired) {
            return action;
        }
        let is_replaced =
            matches!(&permissions, Owned::Ours(object) if object.is_applied && !object.is_deleting);
        let others = AccessKind::PERMISSIONS.into_iter().filter(|other| *other != kind);
        let replace = |other| {
            let replaced = observed.ours(self, key, other);
            if grant == Grant::Granted && is_replaced {
                return delete(&replaced, other);
            }
            // Until then, they follow the declaration.
            let desired =
                self.permissions(other, consumer, uid).filter(|_| matches!(replaced, Owned::Ours(_)));
            let action = desired.and_then(|desired| step(other, key, grant, &replaced, &desired));
            action.unwrap_or(AccessAction::Nothing)
        };
        others.map(replace).find(|action| *action != AccessAction::Nothing).unwrap_or(AccessAction::Nothing)
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
