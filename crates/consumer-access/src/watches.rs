//! The watches: all ManagedServiceAccounts, to see also those of other owners and of consumers that are no longer
//! declared, and the ManifestWorks and ClusterPermissions with the name of each consumer's permissions.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessKind, permissions_name};
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::DynamicObject;

use crate::cache::{WatchName, shown};
use crate::store::{Store, api_resource, resource};

/// Starts the watches.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let of_kind = |kind| Watch::<DynamicObject>::dynamic(resource(kind), api_resource(kind));
    let kind = AccessKind::Account;
    let sink = ObjectSink { store: Arc::clone(store), kind, watch: WatchName(None) };
    watches.watch(of_kind(kind).optional(), sink);
    for consumer in store.settings.consumers.iter() {
        for kind in consumer.permission_kinds().iter().copied() {
            let watch = WatchName(Some(consumer.account.clone()));
            let sink = ObjectSink { store: Arc::clone(store), kind, watch };
            watches.watch(of_kind(kind).named(permissions_name(&consumer.account)).late(), sink);
        }
    }
}

/// Receives the objects of one kind: of one consumer, or of all.
struct ObjectSink {
    store: Arc<Store>,
    kind: AccessKind,
    watch: WatchName,
}

impl ObjectSink {
    fn key(&self, key: &ObjectKey) -> AccountKey {
        let key = AccountKey::from(key);
        match &self.watch.0 {
            Some(account) => AccountKey { account: account.clone(), ..key },
            None => key,
        }
    }
}

impl Sink<DynamicObject> for ObjectSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        self.store.show(self.kind, &self.watch, self.key(key), shown(object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.store.ended(self.kind, &self.watch, self.key(key));
    }

    fn listing(&mut self) {
        self.store.listing(self.kind, &self.watch);
    }

    fn listed(&mut self, version: &str) {
        self.store.listed(self.kind, &self.watch, version);
    }

    fn failing(&mut self, since: Option<Duration>) {
        self.store.failing(self.kind, &self.watch, since);
    }

    fn refused(&mut self) {
        self.store.cannot_list(self.kind, &self.watch, true);
    }

    fn not_served(&mut self) {
        self.store.cannot_list(self.kind, &self.watch, false);
    }
}
