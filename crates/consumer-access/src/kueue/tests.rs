//! What the watches and the responses to writes change in the state of Kueue's objects.

use hub_core::consumer_access::KueueAction;

use super::*;
use crate::store::tests::{object, shared_store};

/// The version that would be deleted: nothing is granted.
fn surplus(store: &KueueStore, key: &KueueKey) -> Option<String> {
    match store.plan(key).expect("complete lists").1.action {
        KueueAction::Delete(version) => Some(version.resource_version),
        action => {
            assert_eq!(action, KueueAction::Nothing);
            None
        }
    }
}

fn config(store: &KueueStore) -> KueueKey {
    store.settings.multi_kueue_configs().next().expect("a declared MultiKueueConfig")
}

fn sinks(store: &Arc<KueueStore>) -> [KueueSink; 2] {
    [KueueKey::Cluster("".into()), config(store)]
        .map(|example| KueueSink { store: Arc::clone(store), example })
}

#[tokio::test]
async fn nothing_is_planned_before_both_lists_are_complete() {
    for first in [0, 1] {
        let store = shared_store(KueueStore::new);
        let mut sinks = sinks(&store);
        assert!(store.plan(&config(&store)).is_none());
        sinks[first].listed("1");
        assert!(store.plan(&config(&store)).is_none(), "the other list is missing");
        sinks[1 - first].listed("1");
        assert!(store.plan(&config(&store)).is_some());
    }
}

#[tokio::test]
async fn the_responses_to_our_own_writes_are_known_before_any_event() {
    let store = shared_store(KueueStore::new);
    let mut sinks = sinks(&store);
    for sink in &mut sinks {
        sink.listed("1");
    }
    for (sink, key) in sinks.iter_mut().zip([KueueKey::Cluster("c1".into()), config(&store)]) {
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
        sink.listing();
        sink.listed("9");
        assert!(!store.created(&key, Some(seen("8"))));
        store.creating(&key);
        assert!(store.created(&key, Some(seen("9"))));
        sink.listing();
        sink.listed("3");
        assert_eq!(surplus(&store, &key), None, "not in a later list, of whatever version");
    }
}
