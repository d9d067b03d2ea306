//! The watches: accounts, the tokens that agents report, the copies, and the profiles that these hang on.

use std::sync::Arc;

use hub_api::cluster_profile::ClusterProfile;
use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey, SecretKey};
use hub_api::secret::Secret;
use hub_core::credential::account::Account;
use hub_core::credential::copy::Observed;
use hub_core::credential::index::Profile;
use hub_core::credential::source::Source;
use hub_core::note::Subject;
use hub_runtime::host::Host;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::core::PartialObjectMeta;

use crate::syncer::Syncer;

/// Objects in one answer to a list. These are small once their data is out of them, and a list in one answer is one
/// request.
const PAGE: u32 = 5000;

/// Watches what copies are made of. An addon that is not installed must not hold up other controllers of the
/// process, so all that is managed-serviceaccount's is optional: until it is listed, copies are kept as they are.
pub(crate) fn watch(syncer: &Syncer, host: &Host) {
    let tokens = format!("{}={}", labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE);
    host.watch(
        Watch::<ManagedServiceAccount>::all("managedserviceaccounts").paged(PAGE).optional(),
        Accounts(syncer.clone()),
    );
    host.watch(
        Watch::<Secret>::all("secrets (tokens)").labelled(tokens).paged(PAGE).optional(),
        Tokens(syncer.clone()),
    );
    host.watch(
        Watch::<Secret>::all("secrets (copies)").labelled(labels::SYNCED_FROM).paged(PAGE).optional(),
        Copies(syncer.clone()),
    );
    host.watch_metadata(
        Watch::<ClusterProfile>::all("clusterprofiles (metadata)").paged(PAGE),
        Profiles(syncer.clone()),
    );
}

struct Accounts(Syncer);

impl Sink<ManagedServiceAccount> for Accounts {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedServiceAccount, Unreadable>) {
        let key = account_key(key);
        let account = match object {
            Ok(object) => Account::read(&object),
            Err(unreadable) => Account::unreadable(&unreadable.metadata, unreadable.error),
        };
        let places = self.0.change(|fleet, index| {
            let changed = index.apply_account(key.clone(), account);
            if changed { index.places_of(fleet, &key) } else { Vec::new() }
        });
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = account_key(key);
        let places = self.0.change(|fleet, index| {
            index.delete_account(&key);
            index.places_of(fleet, &key)
        });
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn listed(&mut self) {
        if self.0.change(|_, index| index.accounts_listed()) {
            self.0.look_at_everything();
        }
    }
}

struct Tokens(Syncer);

impl Sink<Secret> for Tokens {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let key = account_key(key);
        // What the error says of a Secret may be a part of it.
        let source = object.map_or_else(|_| Source::unreadable(), |secret| Source::read(&secret));
        let places = self.0.change(|fleet, index| {
            let changed = index.apply_source(key.clone(), source);
            if changed { index.places_of(fleet, &key) } else { Vec::new() }
        });
        self.0.note_change(&places);
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = account_key(key);
        let places = self.0.change(|fleet, index| {
            index.delete_source(&key);
            index.places_of(fleet, &key)
        });
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn listed(&mut self) {
        if self.0.change(|_, index| index.sources_listed()) {
            self.0.look_at_everything();
        }
    }
}

struct Copies(Syncer);

impl Sink<Secret> for Copies {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let key = secret_key(key);
        let observed = match object {
            Ok(secret) => Observed::read(&key, &secret),
            Err(unreadable) => Observed::unreadable(&key, &unreadable.metadata),
        };
        if self.0.observe(&key, observed) {
            self.0.enqueue([key]);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = secret_key(key);
        self.0.forget(&key);
        self.0.inner.host.reporter.forget(&Subject::Secret(key.namespace.clone(), key.name.to_string()));
        self.0.enqueue([key]);
    }

    fn listed(&mut self) {
        if self.0.change(|_, index| index.copies_listed()) {
            self.0.look_at_everything();
        }
    }
}

struct Profiles(Syncer);

impl Sink<PartialObjectMeta<ClusterProfile>> for Profiles {
    fn apply(&mut self, key: &ObjectKey, object: Result<PartialObjectMeta<ClusterProfile>, Unreadable>) {
        let key = profile_key(key);
        // Metadata has no shape that it could lack.
        let Ok(object) = object else { return };
        let profile = Profile::read(&object.metadata);
        if self.0.change(|_, index| index.apply_profile(key.clone(), profile)) {
            self.0.enqueue_profile(&key);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = profile_key(key);
        self.0.change(|_, index| index.delete_profile(&key));
        self.0.enqueue_profile(&key);
    }
}

fn account_key(key: &ObjectKey) -> AccountKey {
    AccountKey {
        cluster: ClusterName::new(Arc::clone(&key.namespace)),
        account: AccountName::new(Arc::clone(&key.name)),
    }
}

fn secret_key(key: &ObjectKey) -> SecretKey {
    SecretKey { namespace: Namespace::new(Arc::clone(&key.namespace)), name: Arc::clone(&key.name) }
}

fn profile_key(key: &ObjectKey) -> ProfileKey {
    ProfileKey {
        namespace: Namespace::new(Arc::clone(&key.namespace)),
        cluster: ClusterName::new(Arc::clone(&key.name)),
    }
}
