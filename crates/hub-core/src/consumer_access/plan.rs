//! The next write to the access of a consumer on a cluster.

use std::collections::BTreeMap;

use hub_api::labels;
use hub_api::names::{AccountKey, is_dns_label};
use serde_json::{Map, Value, json};

use super::consumers::Consumer;
use super::desired::{AccessAction, AccessSettings, Desired};
use super::kind::{AccessKey, AccessKind};
use super::observed::{ObservedAccess, ObservedObject, Owned};
use super::permissions::{Given, Permissions};
use crate::effort;
use crate::finding::{Finding, Reason};
use crate::fleet::Fleet;
use crate::grant::Grant;
use crate::version::Uid;

/// The next write, and what people should know.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessPlan {
    /// The write, with the kind of the object.
    pub write: Option<(AccessKind, AccessAction)>,
    pub findings: Notes,
    /// Whether nothing is left to write, and nothing is in doubt: the account has nothing for a consumer that is not granted
    /// its cluster.
    pub is_settled: bool,
}

type Write = (AccessKind, AccessAction);

/// The findings about each object.
type Notes = BTreeMap<AccessKind, Vec<Finding>>;

impl AccessSettings {
    /// Plans the next write to the access of an account's consumers to its cluster. The caller must not call this
    /// before the list of accounts is complete.
    #[must_use]
    pub fn plan(&self, fleet: &Fleet, key: &AccountKey, observed: &ObservedAccess) -> AccessPlan {
        effort::count(|spent| spent.plans += 1);
        let mut findings = Notes::new();
        let (actions, is_certain) = match self.grant(fleet, key) {
            Grant::Refused => (self.withdraw(key, observed, &mut findings), true),
            grant => self.equip(fleet, key, grant, observed, &mut findings),
        };
        let is_settled = is_certain
            && observed.unlisted.is_empty()
            && actions.iter().all(|(_, action)| action.verb().is_none());
        let may_be_written = |(kind, action): &Write| {
            action.verb().is_some_and(|verb| !observed.passed.contains(&(*kind, verb)))
        };
        let write = actions.into_iter().find(may_be_written);
        for kind in AccessKind::ALL {
            let is_unreadable = matches!(
                observed.ours(self, key, kind),
                Owned::Ours(object) if object.content.spec.is_none() && !object.is_deleting
            );
            if is_unreadable && write.is_none() {
                findings.entry(kind).or_default().push(Finding::unreadable("its spec"));
            }
        }
        AccessPlan { write, findings, is_settled }
    }

    /// Whether an object should exist, as far as that is the grant of one cluster.
    #[must_use]
    pub fn grant_of(&self, fleet: &Fleet, key: &AccessKey) -> Grant {
        match key {
            AccessKey::Access(_, account) => self.grant(fleet, account),
            AccessKey::MultiKueueCluster(cluster) => self.kueue_grant(fleet, cluster),
            AccessKey::ClusterSecret(profile) => self.argo_cd_grant(fleet, profile),
            AccessKey::ClusterAccess(_) | AccessKey::MultiKueueConfig(_) => Grant::Granted,
        }
    }

    /// The writes that end an access: the account first, and then its permissions.
    fn withdraw(
        &self,
        key: &AccountKey,
        observed: &ObservedAccess,
        findings: &mut Notes,
    ) -> Vec<Write> {
        let account = observed.ours(self, key, AccessKind::Account);
        // Until its finalizers are removed, the agent keeps the account on the cluster, and its token stays valid.
        if matches!(account, Owned::Ours(account) if account.is_deleting) {
            let message = format!(
                "is being deleted and waits for a finalizer; {}",
                self.remaining(key, observed)
            );
            findings.insert(
                AccessKind::Account,
                vec![Finding::new(Reason::AccountTerminating, message)],
            );
        }
        // If the API server does not delete the account, at least its permissions end.
        let mut actions = vec![self.delete(key, observed, AccessKind::Account)];
        actions.extend(self.end_permissions(key, observed));
        actions
    }

    /// The writes that end the permissions of an account.
    fn end_permissions(&self, key: &AccountKey, observed: &ObservedAccess) -> [Write; 2] {
        AccessKind::PERMISSIONS.map(|kind| self.delete(key, observed, kind))
    }

    /// Deletes an object of ours that is not being deleted already, in any version: agents keep changing its status, and
    /// to read it again may be impossible.
    fn delete(&self, key: &AccountKey, observed: &ObservedAccess, kind: AccessKind) -> Write {
        let uid = match observed.ours(self, key, kind) {
            Owned::Ours(object) => (!object.is_deleting).then_some(&object.version.uid),
            Owned::Absent => observed.created.get(&kind),
            Owned::Foreign => None,
        };
        (kind, uid.map_or(AccessAction::Nothing, |uid| AccessAction::DeleteByUid(uid.clone())))
    }

    /// What remains of the permissions of an account whose deletion a finalizer delays.
    fn remaining(&self, key: &AccountKey, observed: &ObservedAccess) -> &'static str {
        let ours = AccessKind::PERMISSIONS.map(|kind| observed.ours(self, key, kind));
        if ours
            .iter()
            .any(|found| matches!(found, Owned::Ours(permissions) if !permissions.is_deleting))
        {
            "its permissions still exist"
        } else if ours.iter().any(|found| matches!(found, Owned::Ours(_))) {
            "its permissions are being deleted"
        } else if observed.unlisted.contains(&AccessKind::ManifestWork) {
            "its permissions may exist, since ManifestWorks cannot be listed"
        } else if observed.unlisted.contains(&AccessKind::ClusterPermission) {
            "its ManifestWork is deleted, and a ClusterPermission may exist, since ClusterPermissions cannot be listed"
        } else {
            "its permissions are deleted"
        }
    }

    /// The writes that give access to the consumers that use an account, where it is granted or in doubt, and whether they
    /// are certain.
    fn equip(
        &self,
        fleet: &Fleet,
        key: &AccountKey,
        grant: Grant,
        observed: &ObservedAccess,
        findings: &mut Notes,
    ) -> (Vec<Write>, bool) {
        let mut is_certain = grant == Grant::Granted;
        let consumer = self.consumers.of(&key.account).next();
        let Some(consumer) = consumer else { return (Vec::new(), is_certain) };
        // An account is of no use without permissions, and permissions that are not listed may exist already.
        let is_listed = !observed.unlisted.contains(&self.permission_kind());
        let may_create = grant == Grant::Granted && is_listed;
        let account = observed.ours(self, key, AccessKind::Account);
        if matches!(account, Owned::Ours(account) if !consumer.is_own() && was_anothers(account, consumer))
        {
            // Whoever has its token would have what this consumer may do: it is created again when it is gone.
            let writes =
                if is_certain { self.withdraw(key, observed, findings) } else { Vec::new() };
            return (writes, is_certain);
        }
        let first = step(AccessKind::Account, key, may_create, &account, &self.account(consumer));
        let mut actions: Vec<Write> = first.into_iter().collect();
        let finding = match account {
            Owned::Absent => None,
            Owned::Ours(account) if !account.is_deleting => {
                let uid = &account.version.uid;
                let permissions = self.permit(fleet, key, may_create, observed, uid, findings);
                is_certain &= permissions.is_some();
                actions.extend(permissions.into_iter().flatten());
                None
            }
            Owned::Ours(_) => {
                let message = "is being deleted and waits for a finalizer; when it is gone, a new account is created if \
                               the cluster is still granted";
                Some(Finding::new(Reason::AccountTerminating, message))
            }
            Owned::Foreign => {
                actions.extend(self.end_permissions(key, observed));
                let whose = if consumer.is_own() {
                    "the user server".to_owned()
                } else {
                    format!("ClusterAccess {}", consumer.name)
                };
                let message = format!(
                    "has the name of the account of {whose}, and another owner: it is not changed, and gives no access to \
                     the cluster; rename or delete it"
                );
                Some(Finding::new(Reason::ForeignAccount, message))
            }
        };
        findings.extend(finding.map(|finding| (AccessKind::Account, vec![finding])));
        (actions, is_certain)
    }

    /// The permissions of the consumers that use an account, and whether they are certain. A consumer whose grant alone
    /// is in doubt keeps what it has.
    fn permissions_of<'a>(
        &'a self,
        fleet: &Fleet,
        key: &'a AccountKey,
        observed: &ObservedAccess,
    ) -> (Permissions<'a>, bool) {
        let mut given = Given::default();
        let mut is_readable = true;
        for kind in AccessKind::PERMISSIONS {
            if let Owned::Ours(object) = observed.ours(self, key, kind) {
                given.add(kind, object);
                is_readable &= object.content.spec.is_some();
            }
        }
        let mut permissions = Permissions::new(&key.account);
        let mut is_certain = self.unreadable_grant(fleet, key) == Grant::Refused;
        for consumer in self.users(fleet, key) {
            match self.grant_to(fleet, consumer, &key.cluster) {
                Grant::Refused => {}
                Grant::Unknown if consumer.is_own() => {
                    is_certain &= is_readable;
                    permissions.keep(consumer, &given);
                }
                Grant::Granted | Grant::Unknown => permissions.add(consumer),
            }
        }
        (permissions, is_certain)
    }

    /// The writes that give an account of ours with this uid its permissions; `None` if these are in doubt.
    fn permit(
        &self,
        fleet: &Fleet,
        key: &AccountKey,
        may_create: bool,
        observed: &ObservedAccess,
        uid: &Uid,
        findings: &mut Notes,
    ) -> Option<Vec<Write>> {
        let kind = self.permission_kind();
        let (wanted, is_certain) = self.permissions_of(fleet, key, observed);
        // An object that cannot be read may contain permissions that a consumer in doubt has to keep.
        if !is_certain {
            return None;
        }
        if wanted.is_empty() {
            return Some(self.end_permissions(key, observed).into());
        }
        let namespace = observed.account_namespace(self);
        // A ManifestWork cannot be built while the namespace of the account is unknown.
        let of_account = |kind| self.permissions(kind, &wanted, uid, namespace);
        let finding = match observed.ours(self, key, kind) {
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
                Some(Finding::new(reason, message))
            }
            Owned::Ours(object) => object.applied.of(|_| true).err().flatten().map(|message| {
                let message = format!(
                    "the cluster has not applied the permissions of {}: {message}",
                    key.account
                );
                Finding::new(Reason::PermissionsNotApplied, message)
            }),
        };
        findings.extend(finding.map(|finding| (kind, vec![finding])));
        let is_there = of_account(kind).is_some_and(|desired| {
            matches!(observed.ours(self, key, kind), Owned::Ours(object) if !object.is_deleting && object.has(&desired))
        });
        let write = |it| {
            // One of the other kind is from before the kind was configured, and what a consumer in doubt keeps may be
            // in it alone.
            if it != kind && may_create && is_there {
                return Some(self.delete(key, observed, it));
            }
            step(it, key, may_create && it == kind, &observed.ours(self, key, it), &of_account(it)?)
        };
        Some(AccessKind::PERMISSIONS.into_iter().filter_map(write).collect())
    }
}

/// Whether an account was made for an application of another namespace, to which its token was copied.
fn was_anothers(account: &ObservedObject, consumer: &Consumer) -> bool {
    let copied_to = account.content.annotations.get(labels::SYNC_TO_NAMESPACES);
    copied_to.is_some_and(|namespace| {
        is_dns_label(namespace) && namespace != consumer.namespace().as_str()
    })
}

/// Creates or repairs one object; `None` if there is nothing to write.
fn step(
    kind: AccessKind,
    key: &AccountKey,
    may_create: bool,
    observed: &Owned<'_>,
    desired: &Desired,
) -> Option<Write> {
    match observed {
        Owned::Absent if may_create => {
            Some((kind, AccessAction::Create(desired.object(&kind.of(key)))))
        }
        // A patch cannot remove fields that cannot be read: the object is deleted and recreated, if it may be created.
        Owned::Ours(object) if !object.is_deleting && object.content.spec.is_none() => {
            may_create.then(|| (kind, AccessAction::Delete(object.version.clone())))
        }
        Owned::Ours(object) if !object.is_deleting && !object.has(desired) => {
            Some((kind, AccessAction::Patch(object.version.clone(), patch(object, desired))))
        }
        Owned::Absent | Owned::Ours(_) | Owned::Foreign => None,
    }
}

/// The merge patch that makes an object as desired.
fn patch(object: &ObservedObject, desired: &Desired) -> Value {
    // A merge patch replaces lists, but merges objects, so fields that must be absent are set to null.
    let surplus =
        object.content.spec.iter().flatten().map(|(field, _)| (field.clone(), Value::Null));
    let mut spec: Map<String, Value> = surplus.collect();
    for (field, value) in &desired.spec {
        let mut value = value.clone();
        let before = object
            .content
            .spec
            .as_ref()
            .and_then(|spec| spec.get(field))
            .and_then(Value::as_object);
        if let Some(fields) = value.as_object_mut() {
            for (name, _) in before.into_iter().flatten() {
                fields.entry(name).or_insert(Value::Null);
            }
        }
        spec.insert(field.clone(), value);
    }
    json!({ "metadata": desired.metadata(), "spec": spec })
}
