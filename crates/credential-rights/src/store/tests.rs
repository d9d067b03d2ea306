//! Which changes of a cluster or an account concern the names of tokens.

use hub_core::credential::account::Scope;
use hub_core::fleet::{
    BindingTerms, BoundSource, ObservedBinding, ObservedCluster, ObservedClusterSet,
};
use hub_core::selector::ClusterSelector;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde_json::json;
use tokio::time::advance;

use super::*;

fn cluster(set: &str, version: &str) -> ObservedCluster {
    let cluster = json!({
        "metadata": { "name": "c1", "labels": { "cluster.open-cluster-management.io/clusterset": set } },
        "spec": { "hubAcceptsClient": true }, "status": { "version": { "kubernetes": version } },
    });
    ObservedCluster::read(Ok(serde_json::from_value(cluster).unwrap()))
}

/// So many accounts on the cluster `c1` that opt in.
fn asking(count: usize) -> AskingAccounts {
    let key =
        |it| AccountKey { cluster: "c1".into(), account: format!("app-{it}").as_str().into() };
    let asking = AskingAccount { scope: Scope::EveryGrantedNamespace, is_maintained: true };
    (0..count).map(|it| (key(it), asking.clone())).collect()
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
    state.accounts = asking(1);
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
    state.granted.clear();
    state.token_names(&fleet);
    assert!(!state.grant_changed(&fleet, &name), "the plan has recorded the grant");
    fleet.delete_binding(&"other".into(), &"green".into());
    assert!(state.grant_changed(&fleet, &name), "before the plan that this change has queued");
    fleet.delete_cluster(&name);
    assert!(state.grant_changed(&fleet, &name) && state.granted.is_empty());
}

#[test]
fn an_account_changes_nothing_if_it_is_named_no_name_was_left_out_and_its_cluster_has_room() {
    const ROOM: usize = MAX_OF_A_CLUSTER - 1;
    let names: Vec<_> = (0..2 * MAX_OF_A_CLUSTER).map(|it| format!("other-{it}")).collect();
    let role = json!({ "metadata": {}, "rules": [{ "verbs": ["get"], "resourceNames": names }] });
    let role = serde_json::from_value::<ClusterRole>(role).unwrap();
    let mut state = RightsState::default();
    state.objects.insert(RightsKey::Tokens, role.into());
    for (name, count, is_complete, changes_nothing) in [
        ("other-7", ROOM, Some(true), true),
        ("new", ROOM, Some(true), false),
        ("other-7", ROOM + 1, Some(true), false),
        ("other-7", ROOM, Some(false), false),
        ("other-7", ROOM, None, false),
    ] {
        state.accounts = asking(count);
        let plan = |is_complete| TokensPlan { at: Instant::now(), is_complete, pace: WIDENING };
        state.tokens = is_complete.map(plan);
        let account = ClusterName::from("c1").account(&name.into());
        assert_eq!(state.names_token(&account), changes_nothing, "{name} {count} {is_complete:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_is_widened_less_often_the_more_names_it_has() {
    let access = AccessName { namespace: "team".into(), name: "app".to_owned() };
    let key = RightsKey::Consumer(ConsumerRole { kind: RoleKind::Role, access });
    let mut state = RightsState::default();
    for (count, seconds) in [(0, 1), (999, 1), (1000, 2), (10_000, 11)] {
        let names: Vec<_> = (0..count).map(|it| format!("c{it}-app")).collect();
        let role =
            json!({ "metadata": {}, "rules": [{ "verbs": ["get"], "resourceNames": names }] });
        let role = serde_json::from_value::<Role>(role).unwrap();
        state.objects.insert(key.clone(), role.into());
        state.written.insert(key.clone(), Instant::now());
        assert_eq!(state.widens_in(&key), Some(Duration::from_secs(seconds)), "{count}");
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(state.widens_in(&key), None, "{count}");
    }
}
