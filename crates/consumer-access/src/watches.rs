//! The watches: all ManagedServiceAccounts, to see also those of other owners and of consumers that are no longer
//! declared, and the ManifestWorks with the name of each consumer's permissions.

use std::sync::Arc;

use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::manifest_work::ManifestWork;
use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessKind, work_name};
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::{ApiResource, DynamicObject};

use crate::cache::{WatchName, shown};
use crate::store::Store;

/// Starts the watches.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let kind = ApiResource::erase::<ManagedServiceAccount>(&());
    let accounts = Watch::<DynamicObject>::dynamic("managedserviceaccounts", kind);
    let sink = ObjectSink { store: Arc::clone(store), kind: AccessKind::Account, watch: WatchName(None) };
    watches.watch(accounts.optional(), sink);
    let kind = ApiResource::erase::<ManifestWork>(&());
    for consumer in store.settings.consumers.iter() {
        let works = Watch::<DynamicObject>::dynamic("manifestworks", kind.clone());
        let sink = ObjectSink {
            store: Arc::clone(store),
            kind: AccessKind::Permissions,
            watch: WatchName(Some(consumer.account.clone())),
        };
        watches.watch(works.named(work_name(&consumer.account)).late(), sink);
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

    fn listed(&mut self) {
        self.store.listed(self.kind, &self.watch);
    }
}
