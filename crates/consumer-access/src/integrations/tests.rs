//! What the lists change in the state of an integration's objects.

use super::*;
use crate::store::tests::{shared_store, store_of};

fn kueue(shared: &Shared, settings: &Settings) -> Arc<IntegrationStore> {
    IntegrationStore::new(Integration::MultiKueue, shared, settings)
}

fn config(store: &IntegrationStore) -> IntegrationKey {
    store.settings().multi_kueue_configs().next().expect("a declared MultiKueueConfig")
}

fn sinks(store: &Arc<IntegrationStore>) -> [ObjectSink; 2] {
    [IntegrationKey::MultiKueueCluster("".into()), config(store)]
        .map(|example| ObjectSink { store: Arc::clone(store), example })
}

#[tokio::test]
async fn nothing_is_planned_before_both_lists_are_complete() {
    for first in [0, 1] {
        let store = shared_store(kueue);
        let mut sinks = sinks(&store);
        assert!(store.plan_next(&config(&store), None).is_none());
        sinks[first].listed();
        assert!(store.plan_next(&config(&store), None).is_none(), "the other list is missing");
        sinks[1 - first].listed();
        assert!(store.plan_next(&config(&store), None).is_some());
    }
}

#[tokio::test]
async fn cluster_secrets_wait_for_the_lists_of_their_own_namespace() {
    let own = |namespace: &str| {
        json!({ "namespace": namespace, "name": "argocd", "spec": {
            "identity": "Own", "serviceAccountNames": ["argocd"], "argoCD": {},
        } })
    };
    let store = store_of(&json!([own("one"), own("two")]), |shared, settings| {
        IntegrationStore::new(Integration::ArgoCd, shared, settings)
    });
    let secret_in = |namespace: &str| {
        IntegrationKey::ClusterSecret(ProfileKey { namespace: namespace.into(), cluster: "c1".into() })
    };
    let (one, two) = (secret_in("one"), secret_in("two"));
    store.listed(watch_of(&one));
    store.listed(watch_of_profiles(&"two".into()));
    assert!(store.plan_next(&one, None).is_none() && store.plan_next(&two, None).is_none());
    store.listed(watch_of(&two));
    assert!(store.plan_next(&one, None).is_none(), "the profiles are missing");
    assert!(store.plan_next(&two, None).is_some());
}
