//! The watches: accounts that opt in, our RoleBindings, the role that they bind, the role for tokens, the Lease of the
//! syncer, the ClusterAccesses, and the Roles and RoleBindings of applications.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, Namespace};
use hub_core::consumer_role::{
    AskingAccount, CONSUMER_LABELS, ConsumerRole, ObservedConsumerRole, RoleKind,
};
use hub_core::known::Known;
use hub_core::rights::ObservedRoleBinding;
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, One, Sink, Unreadable, Watch};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::core::PartialObjectMeta;

use crate::store::Store;

/// The syncer's Lease.
const LEASE: &str = "hub-addons-credential-syncer";

/// Starts the watches.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let settings = &store.settings;
    let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
    let accounts = Watch::metadata("managedserviceaccounts (asking)");
    watches.watch(accounts.labelled(asking).optional(), AccountNameSink(Arc::clone(store)));
    // By name and not by label, since a RoleBinding of another owner may have taken the name.
    let bindings = Watch::<RoleBinding>::all("rolebindings").named(&settings.copies_role);
    watches.watch(bindings, RoleBindingSink(Arc::clone(store)));
    let role = Watch::<ClusterRole>::all("clusterroles").named(&settings.tokens_role);
    watches.watch(role, tokens_role_sink(store));
    let role = Watch::metadata("clusterroles (copies)").named(&settings.copies_role);
    watches.watch(role, copies_role_sink(store));
    // Without this watch no permission is withdrawn, and everything else works.
    let lease = Watch::<Lease>::all("leases (syncer)").in_namespace(settings.namespace.as_str());
    watches.watch(lease.named(LEASE).optional(), LeaseSink(Arc::clone(store)));
    if settings.access_rules.is_none() {
        return;
    }
    // Without these watches, applications get no Roles, and everything else works.
    watches.watch(
        Watch::<ClusterAccess>::all(CLUSTER_ACCESSES).optional(),
        AccessSink(Arc::clone(store)),
    );
    let labels = CONSUMER_LABELS.map(|(key, value)| format!("{key}={value}")).join(",");
    let sink = |kind| ConsumerRoleSink { store: Arc::clone(store), kind };
    let roles = Watch::<Role>::all("roles (applications)").labelled(labels.as_str());
    watches.watch(roles.optional(), sink(RoleKind::Role));
    let bindings = Watch::<RoleBinding>::all("rolebindings (applications)").labelled(labels);
    watches.watch(bindings.optional(), sink(RoleKind::RoleBinding));
}

/// Receives the ClusterAccesses.
struct AccessSink(Arc<Store>);

impl Sink<ClusterAccess> for AccessSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<ClusterAccess, Unreadable>) {
        self.0.change_objects(|consumers| consumers.apply(&key.into(), object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.change_objects(|consumers| consumers.remove(&key.into()));
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.objects_read(is_read);
    }
}

/// Receives the Roles, or the RoleBindings, of ClusterAccesses.
struct ConsumerRoleSink {
    store: Arc<Store>,
    kind: RoleKind,
}

impl ConsumerRoleSink {
    fn set(&self, key: &ObjectKey, observed: Option<ObservedConsumerRole>) {
        let namespace = Namespace::new(key.namespace.clone());
        if let Some(role) = ConsumerRole::named(self.kind, &namespace, &key.name) {
            self.store.set_consumer_role(&role, observed);
        }
    }
}

impl<K: Into<ObservedConsumerRole>> Sink<K> for ConsumerRoleSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<K, Unreadable>) {
        // The last readable state stays in use.
        let Ok(object) = object else { return };
        self.set(key, Some(object.into()));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, None);
    }

    fn set_read(&mut self, is_read: bool) {
        self.store.roles_listed(self.kind, is_read);
    }
}

struct LeaseSink(Arc<Store>);

impl Sink<Lease> for LeaseSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<Lease, Unreadable>) {
        self.0.set_lease(object.ok().as_ref());
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0.set_lease(None);
    }
}

struct AccountNameSink(Arc<Store>);

impl Sink<PartialObjectMeta<ManagedServiceAccount>> for AccountNameSink {
    fn apply(
        &mut self,
        key: &ObjectKey,
        object: Result<PartialObjectMeta<ManagedServiceAccount>, Unreadable>,
    ) {
        let metadata =
            object.map_or_else(|unreadable| *unreadable.metadata, |object| object.metadata);
        self.0.add_account(&AccountKey::from(key), AskingAccount::read(&metadata));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.remove_account(&AccountKey::from(key));
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_accounts_read(is_read);
    }
}

struct RoleBindingSink(Arc<Store>);

impl Sink<RoleBinding> for RoleBindingSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<RoleBinding, Unreadable>) {
        let unreadable = |it: Unreadable| ObservedRoleBinding::read(&it.metadata, None);
        let binding = object.map_or_else(unreadable, ObservedRoleBinding::from);
        self.0.set_binding(&Namespace::new(key.namespace.clone()), Some(binding));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.set_binding(&Namespace::new(key.namespace.clone()), None);
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_bindings_read(is_read);
    }
}

/// Receives the role for tokens. While it cannot be read, its state is unknown.
fn tokens_role_sink(store: &Arc<Store>) -> impl Sink<ClusterRole> + use<> {
    let store = Arc::clone(store);
    One(move |role: Known<Result<ClusterRole, _>>| {
        store.set_tokens_role(match role {
            Known::Present(Ok(role)) => Known::Present(role.into()),
            Known::Present(Err(_)) | Known::Unknown => Known::Unknown,
            Known::Absent => Known::Absent,
        });
    })
}

/// Receives the role for copies.
fn copies_role_sink(store: &Arc<Store>) -> impl Sink<PartialObjectMeta<ClusterRole>> + use<> {
    let store = Arc::clone(store);
    One(move |role: Known<Result<PartialObjectMeta<ClusterRole>, Unreadable>>| {
        store.set_copies_role(match role {
            Known::Present(role) => {
                let metadata = role.map_or_else(|it| *it.metadata, |role| role.metadata);
                metadata.uid.map_or(Known::Unknown, Known::Present)
            }
            Known::Absent => Known::Absent,
            Known::Unknown => Known::Unknown,
        });
    })
}
