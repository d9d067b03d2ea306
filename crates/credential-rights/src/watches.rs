//! The watches: accounts that ask, the RoleBindings that there are, the role that they go with, and the role that names
//! the tokens.

use std::sync::Arc;

use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, Namespace};
use hub_core::rights::{COMPONENT, MANAGED_BY};
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::core::PartialObjectMeta;

use crate::store::{ObservedRoleBinding, Store};

/// Starts to watch.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let settings = &store.settings;
    let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
    let accounts = Watch::<ManagedServiceAccount>::all("managedserviceaccounts (asking)");
    watches.watch_metadata(accounts.labelled(asking).optional(), AccountNameSink(Arc::clone(store)));
    let ours = format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, COMPONENT.0, COMPONENT.1);
    let bindings = Watch::<RoleBinding>::all("rolebindings").named(&settings.copies_role);
    watches.watch(bindings.labelled(ours), RoleBindingSink(Arc::clone(store)));
    let role = Watch::<ClusterRole>::all("clusterroles").named(&settings.tokens_role);
    watches.watch(role, TokensRoleSink(Arc::clone(store)));
    let role = Watch::<ClusterRole>::all("clusterroles (copies)").named(&settings.copies_role);
    watches.watch_metadata(role, CopiesRoleSink(Arc::clone(store)));
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

struct TokensRoleSink(Arc<Store>);

impl Sink<ClusterRole> for TokensRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<ClusterRole, Unreadable>) {
        self.0.set_tokens_role(object.ok().map(Into::into));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0.set_tokens_role(None);
    }
}

struct CopiesRoleSink(Arc<Store>);

impl Sink<PartialObjectMeta<ClusterRole>> for CopiesRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<PartialObjectMeta<ClusterRole>, Unreadable>) {
        let metadata = object.map_or_else(|unreadable| *unreadable.metadata, |object| object.metadata);
        self.0.set_copies_role(metadata.uid);
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0.set_copies_role(None);
    }
}
