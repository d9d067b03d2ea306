//! Which changes of a cluster concern the names of tokens.

use hub_api::managed_cluster::ManagedCluster;
use hub_core::credential::account::Scope;
use hub_core::fleet::{
    BindingTerms, BoundSource, ObservedBinding, ObservedCluster, ObservedClusterSet,
};
use hub_core::selector::ClusterSelector;
use serde_json::json;

use super::*;

fn cluster(set: &str, version: &str) -> ObservedCluster {
    let cluster: ManagedCluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": { "name": "c1", "labels": { "cluster.open-cluster-management.io/clusterset": set } },
        "spec": { "hubAcceptsClient": true }, "status": { "version": { "kubernetes": version } },
    }))
    .unwrap();
    ObservedCluster::read(Ok(cluster))
}

#[test]
fn a_cluster_concerns_tokens_when_it_begins_or_ceases_to_be_granted_anywhere() {
    let (mut fleet, mut state) = (Fleet::new(BoundSource::Status), RightsState::default());
    let name: ClusterName = "c1".into();
    for (namespace, set) in [("team", "blue"), ("other", "green")] {
        let set: hub_api::names::ClusterSetName = set.into();
        let terms = Ok(BindingTerms { cluster_set: set.clone(), bound: true });
        let selector = Ok(ClusterSelector::Exclusive);
        fleet.apply_set(set.clone(), ObservedClusterSet { uid: None, selector });
        fleet.apply_binding(namespace.into(), set, ObservedBinding { uid: None, terms });
    }
    fleet.apply_cluster(name.clone(), cluster("blue", "v1.34.0"));
    assert!(state.grant_changed(&fleet, &name) && state.granted.is_empty(), "no account opts in");
    let asking = AskingAccount { scope: Scope::EveryGrantedNamespace, is_maintained: true };
    state.accounts.insert(AccountKey { cluster: name.clone(), account: "app".into() }, asking);
    assert!(state.grant_changed(&fleet, &name), "it is not known whether it was granted before");
    for (set, version, is_moved) in [
        ("blue", "v1.35.0", false),
        ("red", "v1.35.0", true),
        ("red", "v1.36.0", false),
        ("blue", "v1.36.0", true),
        ("green", "v1.36.0", false),
    ] {
        fleet.apply_cluster(name.clone(), cluster(set, version));
        assert_eq!(state.grant_changed(&fleet, &name), is_moved, "{set} {version}");
    }
    fleet.delete_cluster(&name);
    assert!(state.grant_changed(&fleet, &name) && state.granted.is_empty());
}
