//! Groups of failing writes, without a queue.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::write::error::Category;

const SECOND: Duration = Duration::from_secs(1);

fn operation(namespace: &str) -> Operation {
    Operation { namespace: namespace.into(), resource: "things", verb: "create" }
}

fn error(category: Category) -> WriteError {
    WriteError::new("create", "things", "name", category, "text")
}

/// A controller whose writes in some namespaces fail, and which writes keys when it may.
struct Scene {
    groups: FailureGroups<(&'static str, u32)>,
    category: Category,
    took: Duration,
    /// Whether the end of a grant waits for its writes.
    revokes: bool,
    now: Instant,
    sent: Vec<(&'static str, u32)>,
}

impl Scene {
    fn new(category: Category) -> Self {
        let (took, revokes, sent) = (Duration::ZERO, false, Vec::new());
        Self {
            groups: FailureGroups::default(),
            category,
            took,
            revokes,
            now: Instant::now(),
            sent,
        }
    }

    /// Writes a key, which fails; returns whether a request was sent.
    fn fails(&mut self, key: (&'static str, u32)) -> bool {
        let operation = operation(key.0);
        let sends = self.groups.admit(&key, &operation, self.revokes, self.now).is_none();
        if sends {
            self.sent.push(key);
            let error = WriteError { took: self.took, ..error(self.category) };
            self.groups.failed(&key, &operation, self.revokes, &error, self.now);
        }
        self.groups.finished(&key, &key.0.into(), false, self.now);
        sends
    }

    fn succeeds(&mut self, key: (&'static str, u32)) -> Vec<(&'static str, u32)> {
        let operation = operation(key.0);
        assert!(self.groups.admit(&key, &operation, self.revokes, self.now).is_none(), "{key:?}");
        let released = self.groups.succeeded(&key, &operation, self.now);
        self.groups.finished(&key, &key.0.into(), true, self.now);
        released
    }

    /// Lets time pass; every probe fails.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.groups.next_probe().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            for key in self.groups.take_probes(self.now) {
                assert!(self.fails(key), "a probe is sent");
            }
        }
        self.now = end;
    }
}

#[test]
fn few_keys_are_tried_and_the_first_success_releases_all() {
    let mut scene = Scene::new(Category::Denied);
    let sent: Vec<_> = (0..1000).filter(|number| scene.fails(("team", *number))).collect();
    assert_eq!(sent, [0, 1, 2, 3]);
    scene.sent.clear();
    scene.pass(Duration::from_mins(1));
    assert!((40..=70).contains(&scene.sent.len()), "{} probes in a minute", scene.sent.len());
    assert!(
        scene.groups.admit(&("other", 1), &operation("other"), false, scene.now).is_none(),
        "another namespace"
    );
    let patch = Operation { verb: "patch", ..operation("team") };
    assert!(scene.groups.admit(&("team", 1), &patch, false, scene.now).is_none(), "another verb");
    scene.pass(SECOND * 2);
    let next = scene.groups.next_probe().unwrap();
    scene.now = next;
    let probe = scene.groups.take_probes(next)[0];
    assert_eq!(scene.succeeds(probe).len(), 999);
    for number in 4..1000 {
        let key = ("team", number);
        assert!(
            scene.groups.admit(&key, &operation("team"), false, scene.now).is_none(),
            "released"
        );
    }
}

#[test]
fn a_probe_is_due_within_seconds_however_long_the_failure_lasts() {
    for (revokes, most) in [(false, PROBE_MAX * 2), (true, PROBE_REVOCATION_MAX * 2)] {
        let (mut groups, operation) = (FailureGroups::default(), operation("team"));
        let mut now = Instant::now();
        for _ in 0..20 {
            assert!(groups.admit(&1, &operation, revokes, now).is_none());
            groups.failed(&1, &operation, revokes, &error(Category::Internal), now);
            groups.finished(&1, &"team".into(), false, now);
            let next = groups.next_probe().unwrap();
            assert!(next <= now + most, "{revokes}: {:?}", next - now);
            now = next;
            assert_eq!(groups.take_probes(now), [1]);
        }
    }
}

#[test]
fn the_end_of_a_grant_does_not_wait_for_the_next_probe_of_updates() {
    for few in [1, 10] {
        let mut scene = Scene::new(Category::Denied);
        (0..few).for_each(|number| {
            scene.fails(("team", number));
        });
        scene.pass(Duration::from_mins(5));
        scene.revokes = true;
        scene.fails(("team", 99));
        let most = PROBE_REVOCATION_MAX * 2;
        for _ in 0..20 {
            let next = scene.groups.next_probe().unwrap();
            assert!(next <= scene.now + most, "{few}: {:?}", next - scene.now);
            scene.pass(next - scene.now);
        }
    }
}

#[test]
fn a_key_with_a_new_reason_is_tried_within_a_second_while_others_fail() {
    let mut scene = Scene::new(Category::Denied);
    (0..10).for_each(|number| {
        scene.fails(("team", number));
    });
    scene.pass(Duration::from_mins(5));
    assert!(!scene.fails(("team", 77)));
    scene.sent.clear();
    scene.pass(PROBE_PACE);
    assert_eq!(scene.sent.first(), Some(&("team", 77)));
}

#[test]
fn keys_that_always_fail_delay_no_others_and_are_not_sent_with_each_of_them() {
    let mut scene = Scene::new(Category::Denied);
    for number in 0..3 {
        assert!(scene.fails(("team", number)));
    }
    scene.sent.clear();
    for number in 10..1010 {
        for released in scene.succeeds(("team", number)) {
            scene.fails(released);
        }
        scene.pass(Duration::from_millis(10));
    }
    assert!(
        scene.sent.len() <= 60,
        "{} failures beside 1000 successes in ten seconds",
        scene.sent.len()
    );
}

#[test]
fn a_success_in_one_namespace_is_a_hint_for_the_others() {
    let mut scene = Scene::new(Category::Internal);
    for namespace in ["a", "b", "c"] {
        assert!(scene.fails((namespace, 1)));
    }
    scene.pass(Duration::from_mins(5));
    scene.succeeds(("a", 2));
    let probes = scene.groups.take_probes(scene.now);
    assert_eq!(probes.len(), 2, "{probes:?}");
}

#[test]
fn the_probes_of_all_namespaces_have_a_bound_and_the_end_of_a_grant_is_tried_every_five_seconds() {
    const NAMESPACES: usize = 500;
    for (revokes, took) in [(false, 0), (true, 0), (false, 10), (true, 10)] {
        let mut scene = Scene::new(Category::Internal);
        (scene.revokes, scene.took) = (revokes, SECOND * took);
        for number in 0..NAMESPACES {
            scene.fails((Box::leak(format!("n{number}").into_boxed_str()), 1));
        }
        scene.pass(Duration::from_mins(10));
        scene.sent.clear();
        scene.pass(Duration::from_mins(5));
        let (sent, most) =
            (scene.sent.len(), 300 * usize::try_from(rate(revokes, took > 0)).unwrap());
        assert!(sent <= most + NAMESPACES, "{revokes}, {took} s: {sent} probes in five minutes");
        if revokes && took == 0 {
            assert!(sent >= NAMESPACES * 55, "{sent} probes in five minutes");
        }
    }
}

#[test]
fn one_request_that_hangs_is_enough_to_park_the_others() {
    let mut scene = Scene::new(Category::Timeout);
    scene.took = SECOND * 10;
    assert!(scene.fails(("team", 1)));
    assert!(!scene.fails(("team", 2)));
    scene.pass(SECOND * 30);
    assert!(scene.sent.contains(&("team", 2)), "each is a probe in turn");
}

#[test]
fn a_probe_that_has_another_write_now_leaves_its_turn_to_the_next() {
    let mut scene = Scene::new(Category::Denied);
    (0..6).for_each(|number| {
        scene.fails(("team", number));
    });
    let mut turns = HashSet::new();
    for _ in 0..12 {
        scene.now = scene.groups.next_probe().unwrap();
        let probe = scene.groups.take_probes(scene.now)[0];
        turns.insert(probe);
        // It is deleted now, which is refused.
        scene.groups.finished(&probe, &"team".into(), false, scene.now);
    }
    assert_eq!(turns.len(), 6, "{turns:?}");
}

#[test]
fn a_refusal_is_reported_at_once_and_another_failure_once_it_lasts() {
    for (category, at_once) in [(Category::QuotaExceeded, true), (Category::Internal, false)] {
        let mut scene = Scene::new(category);
        (0..4).for_each(|number| {
            scene.fails(("team", number));
        });
        let parked = |scene: &mut Scene| {
            scene
                .groups
                .admit(&("team", 9), &operation("team"), false, scene.now)
                .unwrap()
                .unreported
        };
        assert_eq!(parked(&mut scene).is_none(), at_once);
        scene.now += LASTING;
        assert_eq!(parked(&mut scene), None);
    }
    let mut groups = FailureGroups::default();
    let now = Instant::now();
    for (took, unreported) in [(SECOND, Some(SECOND * 2)), (SECOND * 10, None)] {
        let hung = WriteError { took, ..error(Category::Timeout) };
        let operation = operation(&took.as_secs().to_string());
        let failed = groups.failed(&1, &operation, false, &hung, now);
        assert_eq!(failed, unreported, "it has lasted since it was sent");
    }
}

#[test]
fn the_retry_after_of_the_api_server_is_honoured() {
    let (mut groups, now) = (FailureGroups::default(), Instant::now());
    let failed = WriteError { retry_after: Some(SECOND * 30), ..error(Category::Timeout) };
    groups.failed(&1, &operation("team"), false, &failed, now);
    assert!(groups.next_probe() >= Some(now + SECOND * 30));
}

#[test]
fn a_group_without_keys_is_forgotten() {
    let mut scene = Scene::new(Category::Denied);
    (0..8).for_each(|number| {
        scene.fails(("team", number));
    });
    // Nothing is left to write for them, whether or not they were probes.
    for number in 0..8 {
        assert!(scene.groups.next_probe().is_some());
        scene.groups.finished(&("team", number), &"team".into(), true, scene.now);
    }
    assert!(scene.groups.groups.is_empty());
}

proptest! {
    #[test]
    fn the_index_matches_the_groups_after_every_step(
        steps in prop::collection::vec((0..5_u8, 0..4_usize, 0..8_u32, any::<bool>(), 0..3000_u64), 1..200)
    ) {
        let mut groups = FailureGroups::default();
        let mut now = Instant::now();
        for (step, namespace, number, flag, passed) in steps {
            let namespace = ["a", "b", "c", "d"][namespace];
            let verb = if number % 2 == 0 { "create" } else { "patch" };
            let (key, operation) = ((namespace, number / 2), Operation { verb, ..operation(namespace) });
            let error = WriteError { took: if flag { SLOW } else { Duration::ZERO }, ..error(Category::Denied) };
            match step {
                0 => drop(groups.admit(&key, &operation, flag, now)),
                1 => drop(groups.failed(&key, &operation, number == 0, &error, now)),
                2 => drop(groups.succeeded(&key, &operation, now)),
                3 => groups.finished(&key, &namespace.into(), flag, now),
                _ => drop(groups.take_probes(now)),
            }
            now += Duration::from_millis(passed);
            let mut index = Index::default();
            groups.groups.iter().for_each(|(operation, group)| index.add(operation, group.indexed()));
            groups.index.classes.retain(|_, count| *count > 0);
            groups.index.by_hint.retain(|_, alike| !alike.is_empty());
            prop_assert_eq!(&groups.index, &index);
        }
    }
}
