//! What is queued, and in which portions.

use hub_api::managed_cluster::ManagedCluster;
use hub_api::names::ClusterSetName;
use hub_api::secret::Secret;
use hub_core::credential::backlog::AT_ONCE;
use hub_core::credential::index::SyncSettings;
use hub_core::fleet::{
    BindingTerms, BoundSource, ObservedBinding, ObservedCluster, ObservedClusterSet,
};
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

/// A fleet where the cluster `c1` is granted to the namespace `team`.
fn fleet() -> Fleet {
    let (mut fleet, set) = (Fleet::new(BoundSource::Status), ClusterSetName::from("all"));
    let selector = ClusterSelector::of_labels(&LabelSelector::default()).unwrap();
    fleet.apply_set(set.clone(), ObservedClusterSet { uid: None, selector: Ok(selector) });
    let terms = Ok(BindingTerms { cluster_set: set.clone(), bound: true });
    fleet.apply_binding("team".into(), set, ObservedBinding { uid: None, terms });
    let cluster = json!({ "metadata": { "name": "c1" }, "spec": { "hubAcceptsClient": true } });
    let cluster = serde_json::from_value::<ManagedCluster>(cluster).unwrap();
    fleet.apply_cluster("c1".into(), ObservedCluster::read(Ok(cluster)));
    fleet
}

#[tokio::test]
async fn the_first_tokens_of_a_name_queue_its_copies_in_portions() {
    const COUNT: usize = AT_ONCE + 1;
    let (store, account) = (store(), AccountKey { cluster: "c1".into(), account: "app".into() });
    store.change(|_, State { index, .. }| {
        let labels = json!({ hub_api::labels::SYNC_TO_CLUSTER_PROFILE: "true" });
        let asking = json!({ "metadata": { "namespace": "c1", "name": "app", "labels": labels } });
        let asking = serde_json::from_value(asking).unwrap();
        index.apply_account(account.clone(), Account::read(Ok(asking)));
        for number in 0..COUNT {
            let key = account.copy_in(&Namespace::from(format!("n{number}").as_str()));
            index.apply_copy(&key, ObservedCopy::read(&key, Ok(&Secret::default())));
        }
        index.knows_accounts = true;
        index.reach_accounts(&fleet(), &account.cluster);
    });
    let first = SecretKey { namespace: "".into(), name: "".into() };
    let queued = || store.copies.held_from(&first, |_| true).len();
    let unsettled = || store.change(|fleet, state| store.unsettled_copy(fleet, state, &account));
    assert_eq!(unsettled(), None);
    store.set_sources_read(Some(&account.account), true);
    let mut before = queued();
    assert_eq!(before, 0, "other tasks run in between");
    while store.queue_portion() {
        assert!(queued() - before <= AT_ONCE && unsettled().is_some());
        before = queued();
    }
    assert_eq!(before, COUNT);
}
