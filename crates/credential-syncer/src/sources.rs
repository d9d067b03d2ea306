//! The watches: accounts, the tokens that agents report, the copies, and the profiles that these hang on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::cluster_profile::ClusterProfile;
use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, AccountName, Namespace, ProfileKey, SecretKey};
use hub_api::secret::Secret;
use hub_core::credential::account::Account;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::index::Profile;
use hub_core::credential::source::TokenSource;
use hub_core::note::Subject;
use hub_runtime::host::{HeldWatch, Host};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::core::PartialObjectMeta;

use crate::syncer::{SecretAccess, Syncer};

/// Objects in one answer to a list. These are small once their data is out of them, and a list in one answer is one
/// request.
const PAGE: u32 = 5000;

/// Watches what copies are made of. An addon that is not installed must not hold up other controllers of the
/// process, so all that is managed-serviceaccount's is optional: until it is listed, copies are kept as they are.
pub(crate) fn watch(syncer: &Syncer, host: &Host) {
    let accounts = Watch::<ManagedServiceAccount>::all("managedserviceaccounts").paged(PAGE).optional();
    host.watch(accounts, AccountSink(syncer.clone()));
    let profiles = Watch::<ClusterProfile>::all("clusterprofiles (metadata)").paged(PAGE);
    host.watch_metadata(profiles, ProfileSink(syncer.clone()));
    match &syncer.inner.access {
        SecretAccess::Cluster => {
            host.watch(tokens().optional(), TokenSink { syncer: syncer.clone(), account: None });
            host.watch(copies().optional(), CopySink { syncer: syncer.clone(), namespace: None });
        }
        SecretAccess::Granted { role_binding } => {
            let rights = Watch::<RoleBinding>::all("rolebindings (copies)").named(role_binding);
            host.watch_metadata(rights, RoleBindingSink(syncer.clone()));
            host.spawn("the watches on secrets", follow(syncer.clone(), Arc::clone(&syncer.inner.host)));
        }
    }
}

fn tokens() -> Watch<Secret> {
    let selector = format!("{}={}", labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE);
    Watch::all("secrets (tokens)").labelled(selector).paged(PAGE)
}

fn copies() -> Watch<Secret> {
    Watch::all("secrets (copies)").labelled(labels::SYNCED_FROM).paged(PAGE)
}

/// Watches tokens by the names of the accounts that ask, and copies in the namespaces where it has the right to, which
/// outlives the binding that it was given for: for as long as the process lives.
async fn follow(syncer: Syncer, host: Arc<Host>) {
    let (mut tokens_of, mut copies_in) = (BTreeMap::new(), BTreeMap::new());
    loop {
        syncer.inner.reach.notified().await;
        let (accounts, namespaces) = syncer.change(|_, index| {
            // Until the last copy is gone, somebody has to see it go.
            let left = copies_in.keys().filter(|namespace| index.has_copies(namespace));
            let granted = syncer.inner.granted.lock();
            (index.asking(), granted.iter().chain(left).cloned().collect::<BTreeSet<Namespace>>())
        });
        tokens_of.retain(|account, _: &mut HeldWatch| accounts.contains(account));
        for account in accounts {
            tokens_of.entry(account).or_insert_with_key(|account| {
                // What an earlier watch has left is not this one's to take away.
                syncer.change(|_, index| index.forget_sources(account));
                let sink = TokenSink { syncer: syncer.clone(), account: Some(account.clone()) };
                host.watch_while_held(None, tokens().named(account.as_str()).late(), sink)
            });
        }
        copies_in.retain(|namespace, _: &mut HeldWatch| namespaces.contains(namespace));
        for namespace in namespaces {
            copies_in.entry(namespace).or_insert_with_key(|namespace| {
                syncer.change(|_, index| index.forget_copies(namespace));
                let sink = CopySink { syncer: syncer.clone(), namespace: Some(namespace.clone()) };
                host.watch_while_held(Some(namespace.as_str()), copies().late(), sink)
            });
        }
        syncer.change(|_, index| {
            index.keep_listed(
                |account| tokens_of.contains_key(account),
                |namespace| copies_in.contains_key(namespace),
            );
        });
    }
}

struct AccountSink(Syncer);

impl Sink<ManagedServiceAccount> for AccountSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedServiceAccount, Unreadable>) {
        let key = AccountKey::from(key);
        let account = match object {
            Ok(object) => Account::read(&object),
            Err(unreadable) => Account::unreadable(&unreadable.metadata, unreadable.error),
        };
        let places = self.0.change(|fleet, index| {
            let changed = index.apply_account(key.clone(), account);
            if changed { index.places_of(fleet, &key) } else { Vec::new() }
        });
        self.0.reach_again();
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = AccountKey::from(key);
        let places = self.0.change(|fleet, index| {
            index.delete_account(&key);
            index.places_of(fleet, &key)
        });
        self.0.reach_again();
        self.0.enqueue(places);
        self.0.enqueue_account(key);
    }

    fn listed(&mut self) {
        if self.0.change(|_, index| index.accounts_listed()) {
            self.0.look_at_everything();
        }
    }
}

struct TokenSink {
    syncer: Syncer,
    /// The name that the watch is limited to.
    account: Option<AccountName>,
}

impl Sink<Secret> for TokenSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let key = AccountKey::from(key);
        // What the error says of a Secret may be a part of it.
        let source = object.map_or_else(|_| TokenSource::unreadable(), |secret| TokenSource::read(&secret));
        let places = self.syncer.change(|fleet, index| {
            let changed = index.apply_source(key.clone(), source);
            if changed { index.places_of(fleet, &key) } else { Vec::new() }
        });
        self.syncer.note_change(&places);
        self.syncer.enqueue(places);
        self.syncer.enqueue_account(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = AccountKey::from(key);
        let places = self.syncer.change(|fleet, index| {
            index.delete_source(&key);
            index.places_of(fleet, &key)
        });
        self.syncer.enqueue(places);
        self.syncer.enqueue_account(key);
    }

    fn listed(&mut self) {
        if self.syncer.change(|_, index| index.sources_listed(self.account.clone())) {
            self.syncer.look_at_everything();
        }
    }
}

struct CopySink {
    syncer: Syncer,
    /// The namespace that the watch is limited to.
    namespace: Option<Namespace>,
}

impl Sink<Secret> for CopySink {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let key = secret_key(key);
        let observed = match object {
            Ok(secret) => ObservedCopy::read(&key, &secret),
            Err(unreadable) => ObservedCopy::unreadable(&key, &unreadable.metadata),
        };
        self.syncer.end_of_foreign(&key);
        if self.syncer.observe(&key, observed) {
            self.syncer.enqueue([key]);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = secret_key(key);
        self.syncer.forget(&key);
        self.syncer.inner.host.reporter.forget(&Subject::Secret(key.namespace.clone(), key.name.to_string()));
        self.syncer.enqueue([key]);
        self.syncer.reach_again();
    }

    fn listed(&mut self) {
        if self.syncer.change(|_, index| index.copies_listed(self.namespace.clone())) {
            self.syncer.look_at_everything();
        }
    }
}

struct RoleBindingSink(Syncer);

impl Sink<PartialObjectMeta<RoleBinding>> for RoleBindingSink {
    fn apply(&mut self, key: &ObjectKey, _: Result<PartialObjectMeta<RoleBinding>, Unreadable>) {
        if self.0.inner.granted.lock().insert(Namespace::new(Arc::clone(&key.namespace))) {
            self.0.reach_again();
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.inner.granted.lock().remove(&Namespace::new(Arc::clone(&key.namespace)));
        self.0.reach_again();
    }
}

struct ProfileSink(Syncer);

impl Sink<PartialObjectMeta<ClusterProfile>> for ProfileSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<PartialObjectMeta<ClusterProfile>, Unreadable>) {
        let key = ProfileKey::from(key);
        // Metadata has no shape that it could lack.
        let Ok(object) = object else { return };
        let profile = Profile::read(&object.metadata);
        if self.0.change(|_, index| index.apply_profile(key.clone(), profile)) {
            self.0.enqueue_profile(&key);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = ProfileKey::from(key);
        self.0.change(|_, index| index.delete_profile(&key));
        self.0.enqueue_profile(&key);
    }
}

fn secret_key(key: &ObjectKey) -> SecretKey {
    SecretKey { namespace: Namespace::new(Arc::clone(&key.namespace)), name: Arc::clone(&key.name) }
}
