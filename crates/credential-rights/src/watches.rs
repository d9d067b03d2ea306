//! The watches: accounts that opt in, our RoleBindings, the role that they bind, the role for tokens, the Lease of the
//! syncer, the ClusterAccesses, and the Roles and RoleBindings of applications.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::labels;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{AccountKey, Namespace};
use hub_core::consumer_role::{AskingAccount, CONSUMER_LABELS, ConsumerRole, RoleKind};
use hub_core::known::Known;
use hub_core::rights::ObservedRole;
use hub_runtime::host::Watches;
use hub_runtime::watch::{Each, One, Sink, Unreadable, Watch};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::core::PartialObjectMeta;

use crate::store::{List, RightsKey, Store};

/// The syncer's Lease.
const LEASE: &str = "hub-addons-credential-syncer";

/// Starts the watches.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let settings = &store.settings;
    let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
    let accounts = Watch::metadata("managedserviceaccounts (asking)");
    watches.watch(accounts.labelled(asking).optional(), account_sink(store));
    // By name and not by label, since a RoleBinding of another owner may have taken the name.
    let bindings = Watch::<RoleBinding>::all("rolebindings").named(&settings.copies_role);
    watches.watch(bindings, binding_sink(store));
    let role = Watch::<ClusterRole>::all("clusterroles").named(&settings.tokens_role);
    watches.watch(role, tokens_role_sink(store));
    let role = Watch::metadata("clusterroles (copies)").named(&settings.copies_role);
    watches.watch(role, copies_role_sink(store));
    // Without this watch no permission is withdrawn, and everything else works.
    let lease = Watch::<Lease>::all("leases (syncer)").in_namespace(settings.namespace.as_str());
    watches.watch(lease.named(LEASE).optional(), lease_sink(store));
    if settings.access_rules.is_none() {
        return;
    }
    // Without these watches, applications get no Roles, and everything else works.
    let accesses = Watch::<ClusterAccess>::all(CLUSTER_ACCESSES);
    watches.watch(accesses.optional(), access_sink(store));
    let labels = CONSUMER_LABELS.map(|(key, value)| format!("{key}={value}")).join(",");
    let roles = Watch::<Role>::all("roles (applications)").labelled(labels.as_str());
    watches.watch(roles.optional(), consumer_role_sink(store, RoleKind::Role));
    let bindings = Watch::<RoleBinding>::all("rolebindings (applications)").labelled(labels);
    watches.watch(bindings.optional(), consumer_role_sink(store, RoleKind::RoleBinding));
}

/// Receives the ClusterAccesses.
fn access_sink(store: &Arc<Store>) -> Each<Arc<Store>, ClusterAccess> {
    Each {
        store: Arc::clone(store),
        set: |store, key, object| {
            let name = key.into();
            store.change_objects(|consumers| match object {
                Some(object) => consumers.apply(&name, object),
                None => consumers.remove(&name),
            });
        },
        set_read: |store, is_read| store.objects_read(is_read),
    }
}

/// Receives the Roles, or the RoleBindings, of ClusterAccesses.
fn consumer_role_sink<K: Into<ObservedRole> + 'static>(
    store: &Arc<Store>,
    kind: RoleKind,
) -> Each<(Arc<Store>, RoleKind), K> {
    Each {
        store: (Arc::clone(store), kind),
        set: |(store, kind), key, object| {
            let namespace = Namespace::new(key.namespace.clone());
            let Some(role) = ConsumerRole::named(*kind, &namespace, &key.name) else { return };
            let observed = match object {
                Some(Ok(object)) => Known::Present(object.into()),
                // The last readable state stays in use.
                Some(Err(_)) => return,
                None => Known::Absent,
            };
            store.set(RightsKey::Consumer(role), observed);
        },
        set_read: |(store, kind), is_read| store.set_listed(List::Consumers(*kind), is_read),
    }
}

/// Receives the syncer's Lease.
fn lease_sink(store: &Arc<Store>) -> impl Sink<Lease> + use<> {
    let store = Arc::clone(store);
    One(move |lease: Known<Result<Lease, _>>| {
        store.set_lease(lease.present().and_then(|lease| lease.as_ref().ok()));
    })
}

/// Receives the metadata of the accounts that opt in.
fn account_sink(store: &Arc<Store>) -> Each<Arc<Store>, PartialObjectMeta<ManagedServiceAccount>> {
    Each {
        store: Arc::clone(store),
        set: |store, key, account| {
            let asking = account.map(|account| {
                let metadata = account.map_or_else(|it| *it.metadata, |account| account.metadata);
                AskingAccount::read(&metadata)
            });
            store.set_account(&AccountKey::from(key), asking);
        },
        set_read: |store, is_read| store.set_listed(List::Accounts, is_read),
    }
}

/// Receives the RoleBindings of the role for copies.
fn binding_sink(store: &Arc<Store>) -> Each<Arc<Store>, RoleBinding> {
    Each {
        store: Arc::clone(store),
        set: |store, key, binding| {
            let read = |binding: Result<RoleBinding, Unreadable>| {
                let of_metadata = |it: Unreadable| ObservedRole::of_metadata(&it.metadata);
                Known::Present(binding.map_or_else(of_metadata, ObservedRole::from))
            };
            let key = RightsKey::Copies(Namespace::new(key.namespace.clone()));
            store.set(key, binding.map_or(Known::Absent, read));
        },
        set_read: |store, is_read| store.set_listed(List::Copies, is_read),
    }
}

/// Receives the role for tokens. While it cannot be read, its state is unknown.
fn tokens_role_sink(store: &Arc<Store>) -> impl Sink<ClusterRole> + use<> {
    let store = Arc::clone(store);
    One(move |role: Known<Result<ClusterRole, _>>| {
        let role = match role {
            Known::Present(Ok(role)) => Known::Present(role.into()),
            Known::Present(Err(_)) | Known::Unknown => Known::Unknown,
            Known::Absent => Known::Absent,
        };
        store.set_listed(List::Tokens, role != Known::Unknown);
        store.set(RightsKey::Tokens, role);
    })
}

/// Receives the role for copies.
fn copies_role_sink(store: &Arc<Store>) -> impl Sink<PartialObjectMeta<ClusterRole>> + use<> {
    let store = Arc::clone(store);
    One(move |role: Known<Result<PartialObjectMeta<ClusterRole>, Unreadable>>| {
        store.set_copies_role(match role {
            Known::Present(role) => {
                let metadata = role.map_or_else(|it| *it.metadata, |role| role.metadata);
                metadata.uid.map_or(Known::Unknown, Known::Present)
            }
            Known::Absent => Known::Absent,
            Known::Unknown => Known::Unknown,
        });
    })
}
