//! The watches: accounts, the tokens that agents report, and the copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, AccountName, Namespace, SecretKey};
use hub_api::secret::Secret;
use hub_core::credential::account::Account;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::source::TokenSource;
use hub_core::rights::gives_copies;
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::watch::{Each, LARGE_PAGE, ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::rbac::v1::RoleBinding;
use tokio::time::sleep;

use crate::store::Store;

/// How long changes of the names of tokens are collected where there are too many names: which ones are watched is then
/// computed from all accounts.
const COLLECTING: Duration = Duration::from_secs(1);

/// Starts the watches. An addon that is not installed must not delay other controllers of the process, so the watches
/// on accounts, tokens and copies are optional or late: until the first two are listed, copies are kept.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let accounts =
        Watch::<ManagedServiceAccount>::all("managedserviceaccounts").paged(LARGE_PAGE).optional();
    let sink = Each::<_, ManagedServiceAccount> {
        store: Arc::clone(store),
        set: |store, key, account| {
            store.set_account(AccountKey::from(key), account.map(Account::read));
        },
        set_read: |store, is_read| store.set_accounts_read(is_read),
    };
    watches.watch(accounts, sink);
    // A copy may name its profile in a version that is no longer served.
    store.served.watch(watches);
    let (this, served) = (Arc::clone(store), store.served.clone());
    watches.spawn("the versions of clusterprofiles", async move {
        served.follow(|| this.queue_everything()).await;
    });
    let this = Arc::clone(store);
    watches.spawn("the queue of all copies", async move { this.queue().await });
    match &store.copies_binding {
        None => {
            watches.watch(tokens().optional(), token_sink(store, None));
            watches
                .watch(copies().optional(), CopySink { store: Arc::clone(store), namespace: None });
        }
        Some(name) => {
            let permissions = Watch::<RoleBinding>::all("rolebindings (copies)").named(name);
            // It also is the name of the ClusterRole that they must bind.
            let sink = Each::<_, RoleBinding> {
                store: (Arc::clone(store), name.clone()),
                set: |(store, role), key, binding| {
                    let binding = binding.and_then(Result::ok);
                    let is_granted = binding.is_some_and(|it| gives_copies(&it, role));
                    store.set_granted(&Namespace::new(key.namespace.clone()), is_granted);
                },
                set_read: |(store, _), is_read| {
                    store.set_read(|index| &mut index.permissions_unread, is_read);
                },
            };
            watches.watch(permissions, sink);
            watches.spawn("the watches on secrets", follow(Arc::clone(store), watches.clone()));
        }
    }
}

fn tokens() -> Watch<Secret> {
    let selector = format!("{}={}", labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE);
    Watch::all("secrets (tokens)").labelled(selector).with_managed_fields().paged(LARGE_PAGE)
}

fn copies() -> Watch<Secret> {
    Watch::all("secrets (copies)").labelled(labels::SYNCED_FROM).paged(LARGE_PAGE)
}

/// Watches tokens by the names of the accounts that opt in, and copies in the namespaces where the syncer has
/// permission, which outlives the binding; runs as long as the process.
async fn follow(store: Arc<Store>, watches: Watches) {
    let mut tokens_of = BTreeMap::<AccountName, HeldWatch>::new();
    let mut copies_in = BTreeMap::<Namespace, HeldWatch>::new();
    loop {
        store.reach_changed().await;
        if store.is_reach_costly() {
            sleep(COLLECTING).await;
        }
        let (names, namespaces) = store.reach(|namespace| copies_in.contains_key(namespace));
        // What a watch has shown is forgotten with it, and does not count for a later one.
        let is_unused =
            |account: &AccountName| names.as_ref().is_some_and(|names| !names.contains(account));
        let unused = tokens_of.extract_if(.., |account, _| is_unused(account));
        let unused: BTreeSet<_> = unused.map(|(account, _)| account).collect();
        if !unused.is_empty() {
            store.change(|_, state| state.index.forget_sources(&unused));
        }
        let is_ended = |namespace: &Namespace| namespaces.get(namespace) == Some(&false);
        for (namespace, _) in copies_in.extract_if(.., |namespace, _| is_ended(namespace)) {
            store.forget_copies(&namespace);
        }
        for account in names.into_iter().flatten() {
            tokens_of.entry(account).or_insert_with_key(|account| {
                let sink = token_sink(&store, Some(account.clone()));
                watches.watch_while_held(tokens().named(account.as_str()).late(), sink)
            });
        }
        for (namespace, _) in namespaces.into_iter().filter(|(_, is_watched)| *is_watched) {
            copies_in.entry(namespace).or_insert_with_key(|namespace| {
                let sink =
                    CopySink { store: Arc::clone(&store), namespace: Some(namespace.clone()) };
                watches.watch_while_held(copies().in_namespace(namespace.as_str()).late(), sink)
            });
        }
    }
}

/// Receives tokens: all of them, or those of accounts of one name.
fn token_sink(store: &Arc<Store>, account: Option<AccountName>) -> impl Sink<Secret> + use<> {
    Each::<_, Secret> {
        store: (Arc::clone(store), account),
        set: |(store, _), key, secret| {
            // The error is dropped: it may quote the Secret.
            let source = secret.map(|secret| {
                secret
                    .map_or_else(|_| TokenSource::unreadable(), |secret| TokenSource::read(&secret))
            });
            store.set_source(&AccountKey::from(key), source);
        },
        set_read: |(store, account), is_read| store.set_sources_read(account.as_ref(), is_read),
    }
}

struct CopySink {
    store: Arc<Store>,
    /// The namespace to which the watch is limited.
    namespace: Option<Namespace>,
}

impl Sink<Secret> for CopySink {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let copy_key = secret_key(key);
        let observed = ObservedCopy::read(&copy_key, object.as_ref());
        self.store.apply_copy(copy_key, observed);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.store.delete_copy(secret_key(key));
    }

    fn set_read(&mut self, is_read: bool) {
        self.store.set_copies_read(self.namespace.as_ref(), is_read);
    }

    fn failing(&mut self, since: Option<Duration>) {
        if let Some(namespace) = &self.namespace {
            self.store.set_failing(namespace, since.is_some());
        }
    }
}

fn secret_key(key: &ObjectKey) -> SecretKey {
    SecretKey { namespace: Namespace::new(key.namespace.clone()), name: key.name.clone() }
}
