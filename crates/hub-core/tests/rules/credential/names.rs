//! Two accounts whose copies have one name, and names that are too long. `a` with `b-c` and `a-b` with `c` both have
//! the copy `a-b-c`.

use hub_api::labels::{SYNCED_ACCOUNT, SYNCED_CLUSTER, SYNCED_FROM};
use hub_api::names::{AccountKey, SecretKey, is_label_value};
use hub_core::credential::index::{Refused, SyncSettings};
use hub_core::credential::plan::{CopyAction, CopyPlan};
use hub_core::credential::state::State;
use hub_core::finding::Reason;
use serde_json::{Value, json};

use crate::support::credential::{World, account, account_key, base64, profile, secret_key, token};
use crate::support::{binding, by_labels, cluster, exclusive, member, with};

const FIRST: (&str, &str) = ("a", "b-c");
const SECOND: (&str, &str) = ("a-b", "c");

fn key((cluster, account): (&str, &str)) -> AccountKey {
    account_key(cluster, account)
}

fn shared() -> SecretKey {
    secret_key("team", "a-b-c")
}

/// Both clusters in `team`, without accounts.
fn neighbourhood() -> [Value; 6] {
    [
        member("a", "prod"),
        member("a-b", "prod"),
        exclusive("prod"),
        binding("team", "prod"),
        profile("team", "a"),
        profile("team", "a-b"),
    ]
}

/// A hub of which they are all that there is.
fn neighbours() -> World {
    World::of(neighbourhood())
}

/// The hub with the first account, which has the copy, and then the second.
fn one_after_the_other(first: (&str, &str), second: (&str, &str)) -> World {
    let mut world = neighbours();
    arrive(&mut world, first);
    world.settle();
    arrive(&mut world, second);
    world
}

fn arrive(world: &mut World, (cluster, name): (&str, &str)) {
    world.arrive(&account(cluster, name));
    world.arrive(&token(cluster, name));
}

/// The account of the shared copy, by its data, its record and its owner, which agree.
fn held_by(world: &World) -> Option<(&'static str, &'static str)> {
    let secret = world.secrets.get(&shared())?;
    let holds = |(cluster, name): &(&str, &str)| {
        secret["data"]["token"] == base64(&format!("token-of-{cluster}/{name}"))
    };
    let holder = [FIRST, SECOND].into_iter().find(holds).expect("a token of one of them");
    let metadata = &secret["metadata"];
    assert_eq!(metadata["annotations"][SYNCED_CLUSTER], holder.0);
    assert_eq!(metadata["annotations"][SYNCED_ACCOUNT], holder.1);
    assert_eq!(metadata["ownerReferences"][0]["name"], holder.0);
    assert_eq!(metadata["labels"][SYNCED_FROM], "a-b-c");
    Some(holder)
}

#[test]
fn the_first_stays_and_the_second_is_refused_and_reported_in_either_order() {
    for (first, second) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let mut world = neighbours();
        arrive(&mut world, first);
        world.settle();
        let before = world.secret(&shared()).clone();
        arrive(&mut world, second);
        world.settle();
        assert_eq!(held_by(&world), Some(first));
        assert_eq!(world.secret(&shared()), &before, "not a byte");

        let CopyPlan { states, findings, .. } = world.plan(&shared());
        assert_eq!(states.len(), 2);
        assert!(states.contains(&(key(first), State::Synced)), "{states:?}");
        assert!(states.contains(&(key(second), State::NameTaken)), "{states:?}");
        let reasons: Vec<_> = findings.iter().map(|note| note.reason).collect();
        assert_eq!(reasons, [Reason::CopyNameTaken]);
        for told in [key(first), key(second)] {
            assert!(findings[0].message.contains(&told.to_string()), "{findings:?}");
        }
        assert_eq!(world.report(&key(first)), None);
        assert_eq!(world.report(&key(second)).unwrap().reason, "NameTaken");
    }
}

#[test]
fn a_write_that_is_refused_is_the_state_of_the_account_whose_copy_it_is() {
    for (first, second) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let mut world = one_after_the_other(first, second);
        world.edit(&shared(), &json!({ "data": { "token": null } }));
        world.index.set_refused(&shared(), Some(Refused::Write));
        let states = world.plan(&shared()).states;
        assert!(states.contains(&(key(first), State::WriteRefused)), "{states:?}");
        assert!(states.contains(&(key(second), State::NameTaken)), "{states:?}");
    }
}

#[test]
fn of_two_that_are_there_at_once_the_older_account_gets_the_name() {
    let created = |(cluster, name): (&str, &str), time: &Value| {
        with(account(cluster, name), &json!({ "metadata": { "creationTimestamp": time } }))
    };
    let (may, june, never) =
        (json!("2026-05-01T00:00:00Z"), json!("2026-06-01T00:00:00Z"), json!(null));
    for (of_first, of_second, winner) in [
        (&may, &june, FIRST),
        (&june, &may, SECOND),
        (&never, &june, SECOND),
        (&june, &never, FIRST),
        // Of the same age, or of none: by name.
        (&may, &may, FIRST),
        (&never, &never, FIRST),
    ] {
        let accounts = [created(FIRST, of_first), created(SECOND, of_second)];
        for order in [[0, 1], [1, 0]] {
            let mut world = neighbours();
            for (cluster, name) in [FIRST, SECOND] {
                world.arrive(&token(cluster, name));
            }
            for index in order {
                world.arrive(&accounts[index]);
            }
            world.settle();
            assert_eq!(held_by(&world), Some(winner), "{of_first} {of_second} {order:?}");
        }
    }
}

#[test]
fn an_older_account_whose_token_is_not_known_yet_is_waited_for() {
    let mut world = World::unlisted(SyncSettings::default(), neighbourhood());
    world.arrive(&account(FIRST.0, FIRST.1));
    arrive(&mut world, SECOND);
    world.index.knows_accounts = true;
    world.index.listed_copies.set(None, true);
    // Tokens are listed by the names of accounts, one after the other.
    world.index.listed_sources.set(Some(&SECOND.1.into()), true);
    assert_eq!(world.plan(&shared()).action, CopyAction::Nothing);
    assert_eq!(world.state(&shared(), &key(FIRST)), Some(State::TokenUnknown));
    world.index.listed_sources.set(Some(&FIRST.1.into()), true);
    world.settle();
    assert_eq!(held_by(&world), Some(SECOND), "it has none");
}

#[test]
fn a_copy_that_was_stripped_of_its_record_stays_that_of_the_account_it_was_made_for() {
    let stripped = json!({ "metadata": { "annotations": null, "ownerReferences": null } });
    for (first, second) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let mut world = one_after_the_other(first, second);
        world.edit(&shared(), &stripped);
        world.settle();
        assert_eq!(held_by(&world), Some(first));
        // Also where another process finds it, by the token that is in it.
        world.edit(&shared(), &stripped);
        world.restart();
        world.settle();
        assert_eq!(held_by(&world), Some(first));
    }
}

#[test]
fn a_copy_that_was_stripped_of_its_record_is_deleted_if_its_account_may_not_have_it() {
    let mut world = one_after_the_other(FIRST, SECOND);
    world.edit(&shared(), &json!({ "metadata": { "annotations": null } }));
    world.leave(&token(FIRST.0, FIRST.1));
    // Of the other little is known, but it is not the other's copy.
    world.arrive(&with(token(SECOND.0, SECOND.1), &json!({ "data": { "token": "" } })));
    assert_eq!(world.plan(&shared()).action, CopyAction::DeleteByUid(world.version(&shared()).uid));
    world.settle();
    assert!(world.secrets.is_empty());
}

#[test]
fn a_forged_record_moves_no_copy_to_another_account() {
    let forged =
        json!({ "metadata": { "annotations": { SYNCED_CLUSTER: "a-b", SYNCED_ACCOUNT: "c" } } });
    for other_asks in [true, false] {
        let mut world = neighbours();
        arrive(&mut world, FIRST);
        world.settle();
        if other_asks {
            arrive(&mut world, SECOND);
        }
        world.edit(&shared(), &forged);
        world.settle();
        assert_eq!(held_by(&world), Some(FIRST));
    }
}

/// A hub that grants a cluster to `team` and has this account of it.
fn hub(cluster_name: &str, account_name: &str) -> World {
    World::of([
        cluster(cluster_name, &json!({})),
        by_labels("all", &json!({})),
        binding("team", "all"),
        profile("team", cluster_name),
        account(cluster_name, account_name),
        token(cluster_name, account_name),
    ])
}

#[test]
fn a_long_name_shortens_the_label_and_nothing_else() {
    for length in [55, 56, 57, 100, 246] {
        let name = format!("a.{}", "x".repeat(length - 2));
        let mut world = hub("berlin", &name);
        world.settle();
        let key = secret_key("team", &format!("berlin-{name}"));
        let metadata = &world.secret(&key)["metadata"];
        assert_eq!(metadata["annotations"][SYNCED_CLUSTER], "berlin");
        assert_eq!(metadata["annotations"][SYNCED_ACCOUNT], name);
        let label = metadata["labels"][SYNCED_FROM].as_str().unwrap();
        assert!(is_label_value(label), "{label}");
        assert_eq!(label.len(), (length + 7).min(63));
        assert_eq!(label == &*key.name, length <= 56, "{label}");
    }
}

#[test]
fn a_name_too_long_for_a_secret_is_refused_and_reported() {
    for (length, fits) in [(246, true), (247, false), (253, false)] {
        let name = "x".repeat(length);
        let mut world = hub("berlin", &name);
        let key = secret_key("team", &format!("berlin-{name}"));
        let expected = if fits { State::Synced } else { State::NameTooLong };
        assert_eq!(world.state(&key, &account_key("berlin", &name)), Some(expected));
        let told = world.report(&account_key("berlin", &name)).map(|it| it.reason);
        assert_eq!(told, (!fits).then_some("NameTooLong"));
        world.settle();
        assert_eq!(world.secrets.len(), usize::from(fits));
    }
}
