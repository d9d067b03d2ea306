//! The watches: accounts that opt in, our RoleBindings, the role that they bind, and the role for tokens.

use std::sync::Arc;

use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, Namespace};
use hub_core::access::Known;
use hub_core::rights::{COMPONENT, MANAGED_BY, ObservedRoleBinding};
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::core::PartialObjectMeta;

use crate::store::Store;

/// Starts the watches.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let settings = &store.settings;
    let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
    let accounts = Watch::<ManagedServiceAccount>::all("managedserviceaccounts (asking)");
    watches.watch_metadata(accounts.labelled(asking).optional(), AccountNameSink(Arc::clone(store)));
    let ours = format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, COMPONENT.0, COMPONENT.1);
    let bindings = Watch::<RoleBinding>::all("rolebindings").named(&settings.copies_role);
    watches.watch(bindings.labelled(ours), RoleBindingSink(Arc::clone(store)));
    let role = Watch::<ClusterRole>::all("clusterroles").named(&settings.tokens_role);
    watches.watch(role, TokensRoleSink { store: Arc::clone(store), seen: false });
    let role = Watch::<ClusterRole>::all("clusterroles (copies)").named(&settings.copies_role);
    watches.watch_metadata(role, CopiesRoleSink { store: Arc::clone(store), seen: false });
}

struct AccountNameSink(Arc<Store>);

impl Sink<PartialObjectMeta<ManagedServiceAccount>> for AccountNameSink {
    fn apply(&mut self, key: &ObjectKey, _: Result<PartialObjectMeta<ManagedServiceAccount>, Unreadable>) {
        self.0.add_account(AccountKey::from(key));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.remove_account(&AccountKey::from(key));
    }

    fn listed(&mut self) {
        self.0.accounts_listed();
    }
}

struct RoleBindingSink(Arc<Store>);

impl Sink<RoleBinding> for RoleBindingSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<RoleBinding, Unreadable>) {
        let binding = match object {
            Ok(object) => ObservedRoleBinding::read(&object.metadata.clone(), Some(object)),
            Err(unreadable) => ObservedRoleBinding::read(&unreadable.metadata, None),
        };
        self.0.set_binding(&Namespace::new(Arc::clone(&key.namespace)), Some(binding));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.set_binding(&Namespace::new(Arc::clone(&key.namespace)), None);
    }
}

/// Until the list is complete, or while the role cannot be read, its state is unknown.
struct TokensRoleSink {
    store: Arc<Store>,
    seen: bool,
}

impl Sink<ClusterRole> for TokensRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<ClusterRole, Unreadable>) {
        self.seen = true;
        self.store.set_tokens_role(object.map_or(Known::Unknown, |role| Known::Present(role.into())));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.seen = false;
        self.store.set_tokens_role(Known::Absent);
    }

    fn listed(&mut self) {
        if !self.seen {
            self.store.set_tokens_role(Known::Absent);
        }
    }
}

struct CopiesRoleSink {
    store: Arc<Store>,
    seen: bool,
}

impl Sink<PartialObjectMeta<ClusterRole>> for CopiesRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<PartialObjectMeta<ClusterRole>, Unreadable>) {
        self.seen = true;
        let metadata = object.map_or_else(|unreadable| *unreadable.metadata, |object| object.metadata);
        self.store.set_copies_role(metadata.uid.map_or(Known::Unknown, Known::Present));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.seen = false;
        self.store.set_copies_role(Known::Absent);
    }

    fn listed(&mut self) {
        if !self.seen {
            self.store.set_copies_role(Known::Absent);
        }
    }
}
