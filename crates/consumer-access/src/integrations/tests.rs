//! What the lists change in the state of Kueue's objects.

use super::*;
use crate::store::tests::shared_store;

fn kueue(shared: &Shared, settings: AccessSettings) -> Arc<IntegrationStore> {
    IntegrationStore::new(Integration::MultiKueue, shared, settings)
}

fn config(store: &IntegrationStore) -> IntegrationKey {
    store.settings.multi_kueue_configs().next().expect("a declared MultiKueueConfig")
}

fn sinks(store: &Arc<IntegrationStore>) -> [ObjectSink; 2] {
    [IntegrationKey::MultiKueueCluster("".into()), config(store)].map(|example| ObjectSink {
        store: Arc::clone(store),
        example,
        list: 0,
    })
}

#[tokio::test]
async fn nothing_is_planned_before_both_lists_are_complete() {
    for first in [0, 1] {
        let store = shared_store(kueue);
        let mut sinks = sinks(&store);
        assert!(store.plan_next(&config(&store), None).is_none());
        sinks[first].listed("1");
        assert!(store.plan_next(&config(&store), None).is_none(), "the other list is missing");
        sinks[1 - first].listed("1");
        assert!(store.plan_next(&config(&store), None).is_some());
    }
}
