//! The watches: accounts that ask, the RoleBindings that there are, the role that they go with, and the role that names
//! the tokens.

use std::sync::Arc;

use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, Namespace};
use hub_core::rights::{COMPONENT, MANAGED_BY};
use hub_runtime::host::Host;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::core::PartialObjectMeta;

use crate::rights::{CredentialRights, Key, ObservedRoleBinding, Role};

/// Starts to watch.
pub(crate) fn watch(rights: &CredentialRights, host: &Host) {
    let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
    let accounts = Watch::<ManagedServiceAccount>::all("managedserviceaccounts (asking)");
    host.watch_metadata(accounts.labelled(asking).optional(), AccountNameSink(rights.clone()));
    let ours = format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, COMPONENT.0, COMPONENT.1);
    let bindings = Watch::<RoleBinding>::all("rolebindings").named(&rights.inner.settings.copies_role);
    host.watch(bindings.labelled(ours), RoleBindingSink(rights.clone()));
    let role = Watch::<ClusterRole>::all("clusterroles").named(&rights.inner.settings.tokens_role);
    host.watch(role, TokensRoleSink(rights.clone()));
    let role = Watch::<ClusterRole>::all("clusterroles (copies)").named(&rights.inner.settings.copies_role);
    host.watch_metadata(role, CopiesRoleSink(rights.clone()));
}

struct AccountNameSink(CredentialRights);

impl Sink<PartialObjectMeta<ManagedServiceAccount>> for AccountNameSink {
    fn apply(&mut self, key: &ObjectKey, _: Result<PartialObjectMeta<ManagedServiceAccount>, Unreadable>) {
        if self.0.inner.state.lock().accounts.insert(AccountKey::from(key)) {
            self.0.inner.work.add(Key::Tokens);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.inner.state.lock().accounts.remove(&AccountKey::from(key));
        self.0.inner.work.add(Key::Tokens);
    }

    fn listed(&mut self) {
        self.0.inner.state.lock().all_accounts = true;
        self.0.inner.work.add(Key::Tokens);
    }
}

struct RoleBindingSink(CredentialRights);

impl Sink<RoleBinding> for RoleBindingSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<RoleBinding, Unreadable>) {
        let namespace = Namespace::new(Arc::clone(&key.namespace));
        let binding = match object {
            Ok(object) => ObservedRoleBinding::read(&object.metadata.clone(), Some(object)),
            Err(unreadable) => ObservedRoleBinding::read(&unreadable.metadata, None),
        };
        self.0.inner.state.lock().bindings.insert(namespace.clone(), binding);
        self.0.inner.work.add(Key::Copies(namespace));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let namespace = Namespace::new(Arc::clone(&key.namespace));
        self.0.inner.state.lock().bindings.remove(&namespace);
        self.0.inner.work.add(Key::Copies(namespace));
    }
}

struct TokensRoleSink(CredentialRights);

impl Sink<ClusterRole> for TokensRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<ClusterRole, Unreadable>) {
        self.0.inner.state.lock().role = object.ok().map(Role::from);
        self.0.inner.work.add(Key::Tokens);
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0.inner.state.lock().role = None;
        self.0.inner.work.add(Key::Tokens);
    }
}

struct CopiesRoleSink(CredentialRights);

impl CopiesRoleSink {
    /// Has every RoleBinding looked at again: they go with the role.
    fn set(&self, uid: Option<String>) {
        let namespaces: Vec<Namespace> = {
            let mut state = self.0.inner.state.lock();
            state.copies_role = uid;
            state.bindings.keys().cloned().collect()
        };
        for namespace in namespaces {
            self.0.inner.work.add(Key::Copies(namespace));
        }
    }
}

impl Sink<PartialObjectMeta<ClusterRole>> for CopiesRoleSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<PartialObjectMeta<ClusterRole>, Unreadable>) {
        self.set(object.map_or_else(|unreadable| unreadable.metadata.uid, |object| object.metadata.uid));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.set(None);
    }
}
