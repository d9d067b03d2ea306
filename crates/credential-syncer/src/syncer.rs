//! The syncer's state, and what a change of it sets off.
//!
//! Where both are locked, the fleet is locked before the index: its listeners are called with it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hub_api::names::{AccountKey, Namespace, ProfileKey, SecretKey};
use hub_core::credential::index::{CredentialIndex, SyncSettings};
use hub_core::fleet::{Fleet, Touched};
use hub_runtime::fleet::FleetCache;
use hub_runtime::host::Host;
use hub_runtime::work::Work;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::accounts::AccountConditions;
use crate::copies::CopyWriter;
use crate::sources;

/// The feature gate that starts the syncer.
pub const GATE: &str = "ClusterProfileCredSyncer";

/// How Secrets are watched, and so which rights that takes. A right cannot be limited to a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretAccess {
    /// By their labels, in all namespaces at once: two watches, and the right to list every Secret of the hub.
    #[default]
    Cluster,
    /// Tokens by the names of the accounts that ask for copies, copies in the namespaces where it is given the right
    /// to: a watch each, and rights to no other Secrets.
    Granted {
        /// The name of the RoleBindings that give the right to copies.
        role_binding: String,
    },
}

/// The syncer. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Syncer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) host: Arc<Host>,
    pub(crate) fleet: FleetCache,
    pub(crate) index: Mutex<CredentialIndex>,
    pub(crate) copies: CopyWriter,
    pub(crate) accounts: AccountConditions,
    pub(crate) access: SecretAccess,
    /// The namespaces in which there is a right to copies.
    pub(crate) granted: Mutex<BTreeSet<Namespace>>,
    pub(crate) reach: Notify,
    /// Whether every watch has its first answer.
    begun: AtomicBool,
}

impl Syncer {
    /// Starts to watch. Call it before the fleet's watches start.
    #[must_use]
    pub fn start(host: &Arc<Host>, fleet: &FleetCache, settings: SyncSettings, access: SecretAccess) -> Self {
        let inner = Inner {
            host: Arc::clone(host),
            fleet: fleet.clone(),
            index: Mutex::new(CredentialIndex::new(settings)),
            copies: CopyWriter::new(host),
            accounts: AccountConditions::new(host),
            access,
            granted: Mutex::default(),
            reach: Notify::new(),
            begun: AtomicBool::new(false),
        };
        let this = Self { inner: Arc::new(inner) };
        let listener = this.clone();
        fleet.listen(move |fleet, touched| listener.fleet_changed(fleet, touched));
        sources::watch(&this, host);
        this
    }

    /// Works until [`Self::stop`]. Call it when every watch has its first answer.
    pub async fn work(&self) {
        self.inner.begun.store(true, Ordering::Release);
        self.look_at_everything();
        tokio::join!(self.sync_copies(), self.report_accounts());
    }

    /// Ends [`Self::work`].
    pub fn stop(&self) {
        self.inner.copies.work.stop();
        self.inner.accounts.work.stop();
    }

    /// Changes the index under a look at the fleet; what the change answers is done when both are free again.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Fleet, &mut CredentialIndex) -> T) -> T {
        let fleet = self.inner.fleet.read();
        change(&fleet, &mut self.inner.index.lock())
    }

    /// Has copies looked at again.
    pub(crate) fn enqueue(&self, places: impl IntoIterator<Item = SecretKey>) {
        add_all(&self.inner.copies.work, places);
    }

    /// Has it looked at again what there is to say of an account.
    pub(crate) fn enqueue_account(&self, key: AccountKey) {
        self.inner.accounts.work.add(key);
    }

    /// Has the copies looked at again that may hang on a profile.
    pub(crate) fn enqueue_profile(&self, key: &ProfileKey) {
        let places = self.change(|fleet, index| index.places_at(fleet, key));
        self.enqueue(places);
    }

    /// What was not known is known now, so that absences mean something.
    pub(crate) fn look_at_everything(&self) {
        if self.has_begun() {
            self.reach_again();
            let (places, accounts) =
                self.change(|fleet, index| (index.places(fleet), index.accounts().collect::<Vec<_>>()));
            self.enqueue(places);
            add_all(&self.inner.accounts.work, accounts);
        }
    }

    /// Which Secrets have to be watched may have changed.
    pub(crate) fn reach_again(&self) {
        if self.inner.access != SecretAccess::Cluster && self.has_begun() {
            self.inner.reach.notify_one();
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.inner.begun.load(Ordering::Acquire)
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        if let Touched::Namespaces(namespaces) = touched {
            for namespace in namespaces {
                self.inner.copies.paused.resume(namespace);
            }
        }
        if self.has_begun() {
            self.reach_again();
            let (places, accounts) = self.inner.index.lock().concerned(fleet, touched);
            self.enqueue(places);
            self.enqueue(self.inner.copies.tally.concerned(touched));
            add_all(&self.inner.accounts.work, accounts);
        }
    }
}

fn add_all<K: Clone + Ord + std::hash::Hash + Send + 'static>(
    work: &Work<K>,
    keys: impl IntoIterator<Item = K>,
) {
    for key in keys {
        work.add(key);
    }
}
