//! Which lists of tokens and copies are complete: what a new watch has not listed yet is unknown, and what this process
//! has created stays known.

use hub_core::credential::index::SyncSettings;
use hub_core::credential::plan::CopyAction;
use hub_core::credential::state::State;

use crate::support::credential::{
    World, account, account_key, profile, scene, scene_key, scene_without, secret_key, stranger,
    token,
};
use crate::support::{binding, key};

/// The scene with a second account and a second namespace, each with its copies, where every name of an account and
/// every namespace has a watch of its own.
fn watched_by_name() -> World {
    let mut world = World::unlisted(SyncSettings::default(), scene());
    for object in [account("c1", "argocd"), token("c1", "argocd")] {
        world.arrive(&object);
    }
    for object in [binding("ops", "prod"), profile("ops", "c1")] {
        world.arrive(&object);
    }
    world.index.knows_accounts = true;
    for name in ["kueue", "argocd"] {
        world.index.listed_sources.set(Some(&name.into()), true);
    }
    for namespace in ["team", "ops"] {
        world.index.listed_copies.set(Some(&namespace.into()), true);
    }
    world.settle();
    world
}

fn state(world: &World, namespace: &str, name: &str) -> State {
    world.state(&secret_key(namespace, &format!("c1-{name}")), &account_key("c1", name)).unwrap()
}

#[test]
fn while_the_watch_on_tokens_of_a_name_starts_over_their_copies_are_kept() {
    let mut world = watched_by_name();
    world.index.forget_sources(&["kueue".into()].into());
    assert_eq!(world.index.source(&account_key("c1", "kueue")), None);
    assert_eq!(state(&world, "team", "kueue"), State::TokenUnknown);
    assert_eq!(world.next(), CopyAction::Nothing);
    assert_eq!(state(&world, "team", "argocd"), State::Synced, "another name is not affected");
    // The new list does not contain the token.
    assert!(world.index.listed_sources.set(Some(&"kueue".into()), true));
    assert_eq!(state(&world, "team", "kueue"), State::NoToken);
}

#[test]
fn while_the_watch_on_the_copies_of_a_namespace_starts_over_nothing_is_written_there() {
    let mut world = watched_by_name();
    world.index.forget_copies(&"team".into());
    assert_eq!(world.index.copy(&scene_key()), None);
    assert_eq!(state(&world, "team", "kueue"), State::CopiesUnknown);
    assert_eq!(world.next(), CopyAction::Nothing);
    assert_eq!(state(&world, "ops", "kueue"), State::Synced, "another namespace is not affected");
    assert!(world.index.created(&scene_key()).is_some());
    assert!(world.index.has_copies(&"team".into()), "what this process created there is known");
    world.index.listed_copies.set(Some(&"team".into()), true);
    world.settle();
    assert_eq!(state(&world, "team", "kueue"), State::Synced);
}

#[test]
fn a_namespace_about_which_nothing_is_known_has_no_places() {
    let mut world =
        World::unlisted(SyncSettings::default(), scene_without("ManagedClusterSetBinding"));
    world.index.listed_copies.set(Some(&"team".into()), true);
    world.put(stranger("team", "c1-kueue"));
    assert!(world.index.has_copies(&"team".into()));
    assert_eq!(world.keys(), [scene_key()].into());
    world.index.forget_copies(&"team".into());
    assert!(!world.index.has_copies(&"team".into()));
    assert_eq!(world.keys(), [].into());
    world.put(stranger("team", "c1-kueue"));
    world.lose(&scene_key());
    assert_eq!(world.keys(), [].into());
}

#[test]
fn tokens_and_copies_that_are_no_longer_watched_are_forgotten() {
    let mut world = watched_by_name();
    world.index.forget_sources(&["argocd".into()].into());
    world.index.forget_copies(&"team".into());
    assert_eq!(world.index.source(&account_key("c1", "argocd")), None);
    assert!(!world.index.listed_sources.has(&"argocd".into()));
    assert!(world.index.source(&account_key("c1", "kueue")).is_some());
    assert!(world.index.listed_sources.has(&"kueue".into()));
    assert_eq!(world.index.copy(&scene_key()), None);
    assert!(!world.index.listed_copies.has(&"team".into()));
    assert!(world.index.copy(&secret_key("ops", "c1-kueue")).is_some());
    assert!(world.index.listed_copies.has(&"ops".into()));
}

#[test]
fn a_copy_whose_profile_is_gone_is_garbage_collected() {
    let mut world = World::settled_scene();
    assert!(!world.index.is_orphaned(&scene_key()));
    world.index.delete_profile(&key("team", "c1"));
    assert!(world.index.is_orphaned(&scene_key()));
    world.lose(&scene_key());
    assert!(world.index.is_orphaned(&scene_key()), "even if it has lost its label");
    assert!(!world.index.is_orphaned(&secret_key("team", "c1-other")), "no copy");
}
