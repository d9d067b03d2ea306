//! What is queued, and in which portions.

use hub_api::managed_cluster::ManagedCluster;
use hub_api::names::ClusterSetName;
use hub_api::secret::Secret;
use hub_core::credential::index::SyncSettings;
use hub_core::fleet::{BindingTerms, BoundSource, ObservedBinding};
use hub_core::fleet::{ObservedCluster, ObservedClusterSet};
use hub_core::selector::ClusterSelector;
use hub_process::process::{Process, Setup};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use super::*;

/// The store of a syncer with limited permissions, which works.
fn store() -> Arc<Store> {
    let client = kube::Client::try_from(kube::Config::new("http://hub".parse().unwrap())).unwrap();
    let shared = Process::new(Setup::new(client)).shared.clone();
    let settings =
        SyncerSettings { sync: SyncSettings::default(), copies_binding: Some("copies".to_owned()) };
    shared.host.set_working();
    Store::new(&shared, settings, CredentialMetrics::default())
}

/// A fleet where every cluster is granted to the namespace `team`.
fn fleet(clusters: usize) -> Fleet {
    let (mut fleet, set) = (Fleet::new(BoundSource::Status), ClusterSetName::from("all"));
    let selector = ClusterSelector::of_labels(&LabelSelector::default()).unwrap();
    fleet.apply_set(set.clone(), ObservedClusterSet { uid: None, selector: Ok(selector) });
    let terms = Ok(BindingTerms { cluster_set: set.clone(), bound: true });
    fleet.apply_binding("team".into(), set, ObservedBinding { uid: None, terms });
    for name in (0..clusters).map(|number| format!("c{number}")) {
        let cluster: ManagedCluster = serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": { "name": name }, "spec": { "hubAcceptsClient": true },
        }))
        .unwrap();
        fleet.apply_cluster(name.as_str().into(), ObservedCluster::read(Ok(cluster)));
    }
    fleet
}

/// An account, and its copy in the namespace `team`.
fn account_and_copy(state: &mut State, account: &AccountKey) -> SecretKey {
    let asking = json!({ "metadata": {
        "namespace": account.cluster.as_str(), "name": account.account.as_str(),
        "labels": { "authentication.open-cluster-management.io/sync-to-clusterprofile": "true" },
    } });
    state
        .index
        .apply_account(account.clone(), Account::read(Ok(serde_json::from_value(asking).unwrap())));
    let key = account.copy_in(&"team".into());
    let secret = json!({ "metadata": { "namespace": "team", "name": &*key.name } });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    state.index.apply_copy(&key, ObservedCopy::read(&key, Ok(&secret)));
    key
}

#[tokio::test]
async fn the_first_tokens_of_a_name_queue_its_copies_in_portions() {
    const COUNT: usize = AT_ONCE + 1;
    let (store, name) = (store(), AccountName::from("app"));
    let accounts = (0..COUNT).map(|number| AccountKey {
        cluster: format!("c{number}").as_str().into(),
        account: name.clone(),
    });
    let accounts: Vec<_> = accounts.collect();
    store.change(|_, state| {
        for account in &accounts {
            account_and_copy(state, account);
        }
        state.index.knows_accounts = true;
        state.index.concerned(&fleet(COUNT), &Touched::Namespaces(["team".into()].into()));
    });
    let first = SecretKey { namespace: "team".into(), name: "".into() };
    let queued = || store.copies.held_from(&first, |_| true).len();
    let is_settled = |account| store.change(|fleet, state| store.is_settled(fleet, state, account));
    assert!(is_settled(&accounts[0]));
    store.set_sources_read(Some(&name), true);
    let mut before = queued();
    assert_eq!(before, 0, "other tasks run in between");
    while store.queue_portion() {
        assert!(queued() - before <= AT_ONCE && accounts.iter().all(|it| !is_settled(it)));
        before = queued();
    }
    assert_eq!(before, COUNT);
}
