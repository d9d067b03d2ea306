//! The watches: all ManagedServiceAccounts, to see also those of other owners and of consumers that are no longer
//! declared, and the ManifestWorks and ClusterPermissions with the name of each account's permissions: while a consumer
//! uses the account, or it exists.

use std::sync::Arc;

use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, is_dns_label};
use hub_core::consumer_access::{AccessKey, AccessKind, permissions_name};
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::DynamicObject;

use crate::cache::shown;
use crate::store::{Store, WatchName, api_resource, resource};

/// The name of the addon that creates accounts on clusters.
const MANAGED_SERVICE_ACCOUNT: &str = "managed-serviceaccount";

/// Starts the watches that do not depend on objects.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let accounts = (AccessKind::Account, None);
    let sink = ObjectSink { store: Arc::clone(store), watch: accounts };
    watches.watch(of_kind(AccessKind::Account).optional().expected(), sink);
    if store.settings().account_namespace.is_none() {
        let addons = Watch::<ManagedClusterAddOn>::all("managedclusteraddons").named(MANAGED_SERVICE_ACCOUNT);
        watches.watch(addons.optional(), AgentSink(Arc::clone(store)));
    }
}

/// Watches the permissions of an account.
pub(crate) fn watch_permissions(
    store: &Arc<Store>,
    watches: &Watches,
    kind: AccessKind,
    account: &AccountName,
) -> HeldWatch {
    let watch = (kind, Some(account.clone()));
    let permissions = of_kind(kind).named(permissions_name(account)).late();
    let permissions = if store.needs(&watch) { permissions.expected() } else { permissions };
    watches.watch_while_held(permissions, ObjectSink { store: Arc::clone(store), watch })
}

fn of_kind(kind: AccessKind) -> Watch<DynamicObject> {
    Watch::dynamic(resource(kind), &api_resource(kind), None)
}

/// Receives the addons whose agents create the accounts on the clusters.
struct AgentSink(Arc<Store>);

impl Sink<ManagedClusterAddOn> for AgentSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterAddOn, Unreadable>) {
        // An addon that cannot be read changes nothing.
        let Ok(addon) = object else { return };
        let namespace = addon.agent_namespace().filter(|namespace| is_dns_label(namespace));
        let namespace = namespace.map(Namespace::from);
        self.0.set_agent_namespace(&ClusterName::new(key.namespace.clone()), namespace.as_ref());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.set_agent_namespace(&ClusterName::new(key.namespace.clone()), None);
    }

    fn listed(&mut self) {
        self.0.agents_listed();
    }

    fn unread(&mut self) {
        self.0.agents_unread();
    }

    fn not_served(&mut self) -> bool {
        self.0.agents_listed();
        true
    }
}

/// Receives the objects of one kind: of one consumer, or of all.
struct ObjectSink {
    store: Arc<Store>,
    watch: WatchName,
}

impl ObjectSink {
    fn key(&self, key: &ObjectKey) -> AccessKey {
        let (kind, of_account) = &self.watch;
        let AccountKey { cluster, account } = AccountKey::from(key);
        let account = of_account.clone().unwrap_or(account);
        AccessKey { account: AccountKey { cluster, account }, kind: *kind }
    }
}

impl Sink<DynamicObject> for ObjectSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        self.store.show(&self.key(key), shown(object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.store.ended(&self.key(key));
    }

    fn listed(&mut self) {
        self.store.listed(&self.watch);
    }

    fn unread(&mut self) {
        self.store.unread(&self.watch);
    }

    fn not_served(&mut self) -> bool {
        self.store.not_served(&self.watch)
    }
}
