//! What the watches and the responses to writes change in the state of Kueue's objects.

use hub_core::consumer_access::IntegrationAction;

use super::*;
use crate::store::tests::{object, shared_store};

/// The version that would be deleted: nothing is granted.
fn surplus(store: &IntegrationStore, key: &IntegrationKey) -> Option<String> {
    match store.plan(key).expect("complete lists").1.action {
        IntegrationAction::Delete(version) => Some(version.resource_version),
        action => {
            assert_eq!(action, IntegrationAction::Nothing);
            None
        }
    }
}

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
        watch: ALL,
    })
}

#[tokio::test]
async fn nothing_is_planned_before_both_lists_are_complete() {
    for first in [0, 1] {
        let store = shared_store(kueue);
        let sinks = sinks(&store);
        assert!(store.plan(&config(&store)).is_none());
        sinks[first].list_ends("1");
        assert!(store.plan(&config(&store)).is_none(), "the other list is missing");
        sinks[1 - first].list_ends("1");
        assert!(store.plan(&config(&store)).is_some());
    }
}

#[tokio::test]
async fn the_responses_to_our_own_writes_are_known_before_any_event() {
    let store = shared_store(kueue);
    let sinks = sinks(&store);
    for sink in &sinks {
        sink.list_ends("1");
    }
    for (sink, key) in sinks.iter().zip([IntegrationKey::MultiKueueCluster("c1".into()), config(&store)]) {
        let seen = |version: &str| object(&store.settings, "one", version);
        store.creating(&key);
        assert!(!store.created(&key, None), "it failed");
        store.creating(&key);
        assert!(store.created(&key, Some(seen("5"))));
        assert_eq!(surplus(&store, &key).as_deref(), Some("5"));
        assert!(store.existing().contains(&key));
        store.wrote(&key, seen("7"));
        assert_eq!(surplus(&store, &key).as_deref(), Some("7"));
        store.gone(&key, "one");
        assert_eq!(surplus(&store, &key), None);

        // The response shows what the watch has ended meanwhile.
        store.creating(&key);
        sink.list_begins();
        sink.list_ends("9");
        assert!(!store.created(&key, Some(seen("8"))));
        store.creating(&key);
        assert!(store.created(&key, Some(seen("9"))));
        sink.list_begins();
        sink.list_ends("3");
        assert_eq!(surplus(&store, &key), None, "not in a later list, of whatever version");
    }
}
