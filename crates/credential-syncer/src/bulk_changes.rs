//! Detects where many profiles are being created or deleted: a copy that is missing there probably waits for its
//! profile, or for the end of its namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use tokio::time::Instant;

/// The window in which profiles are counted.
const WINDOW: Duration = Duration::from_secs(3);
/// This many profiles in a window mean that a projector or the namespace controller is busy: a cold start creates about
/// a hundred a second.
const MANY: usize = 5;

/// The recently created and deleted profiles. A namespace counts its own profiles, and every other namespace as one: a
/// projector that is busy works in many namespaces, and a tenant who replaces its profiles again and again does not
/// delay what is reported about other namespaces. A profile that is replaced again and again counts once.
#[derive(Debug, Default)]
pub(crate) struct BulkChanges {
    since: Option<Instant>,
    now: Window,
    before: Window,
}

/// The profiles of a window by namespace, up to [`MANY`] of each.
type Window = BTreeMap<Namespace, BTreeSet<ClusterName>>;

impl BulkChanges {
    /// Whether many profiles were created or deleted recently in each of these namespaces.
    pub(crate) fn is_high<'a>(
        &mut self,
        mut namespaces: impl Iterator<Item = &'a Namespace>,
        now: Instant,
    ) -> bool {
        self.turn(now);
        // At most a handful of the namespaces is visited: the others are in no window.
        self.are_many_anywhere() || namespaces.all(|namespace| self.are_many(namespace))
    }

    /// Records a profile that appears, or one that disappears.
    pub(crate) fn add(&mut self, profile: &ProfileKey, now: Instant) {
        self.turn(now);
        let clusters = self.now.entry(profile.namespace.clone()).or_default();
        if clusters.len() < MANY {
            clusters.insert(profile.cluster.clone());
        }
    }

    /// Whether they are many for every namespace.
    fn are_many_anywhere(&self) -> bool {
        self.now.len().max(self.before.len()) > MANY
    }

    fn are_many(&self, namespace: &Namespace) -> bool {
        [&self.now, &self.before].into_iter().any(|window| {
            let own = window.get(namespace).map_or(0, BTreeSet::len);
            let others = window.len() - usize::from(own > 0);
            own + others >= MANY
        })
    }

    fn turn(&mut self, now: Instant) {
        let is_within =
            |time| self.since.is_some_and(|since| now.saturating_duration_since(since) < time);
        if !is_within(WINDOW) {
            let last = mem::take(&mut self.now);
            self.before = if is_within(2 * WINDOW) { last } else { Window::new() };
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(number: usize) -> ProfileKey {
        in_namespace("team", number)
    }

    fn in_namespace(namespace: &str, number: usize) -> ProfileKey {
        ProfileKey { namespace: namespace.into(), cluster: format!("c{number}").as_str().into() }
    }

    fn is_high(bulk_changes: &mut BulkChanges, namespaces: &[&str], now: Instant) -> bool {
        let namespaces: Vec<_> =
            namespaces.iter().map(|namespace| Namespace::from(*namespace)).collect();
        bulk_changes.is_high(namespaces.iter(), now)
    }

    #[test]
    fn it_is_high_while_many_profiles_come_or_go_and_for_a_while_after() {
        let (start, mut bulk_changes) = (Instant::now(), BulkChanges::default());
        assert!(!is_high(&mut bulk_changes, &["team"], start));
        let mut now = start;
        for step in 0..100 {
            now += Duration::from_millis(100);
            bulk_changes.add(&profile(step), now);
            assert_eq!(is_high(&mut bulk_changes, &["team"], now), step >= 4, "{step}");
        }
        assert!(is_high(&mut bulk_changes, &["team"], now + Duration::from_secs(1)));
        assert!(!is_high(&mut bulk_changes, &["team"], now + 2 * WINDOW));
    }

    #[test]
    fn many_in_one_window_count_until_the_end_of_the_next() {
        let start = Instant::now();
        let created = |times: &[Duration]| {
            let mut bulk_changes = BulkChanges::default();
            for (number, after) in times.iter().enumerate() {
                bulk_changes.add(&profile(number), start + *after);
            }
            bulk_changes
        };
        let many = [Duration::ZERO; MANY];
        assert!(is_high(&mut created(&many), &["team"], start + WINDOW));
        assert!(!is_high(&mut created(&many), &["team"], start + 2 * WINDOW));
        let spread = [[Duration::ZERO; 3], [WINDOW; 3]].concat();
        assert!(
            !is_high(&mut created(&spread), &["team"], start + WINDOW),
            "three in each of two windows"
        );
    }

    #[test]
    fn a_profile_that_is_replaced_again_and_again_counts_once() {
        let (mut now, mut bulk_changes) = (Instant::now(), BulkChanges::default());
        for _ in 0..50 {
            now += Duration::from_millis(100);
            bulk_changes.add(&profile(0), now);
            assert!(!is_high(&mut bulk_changes, &["team"], now));
        }
    }

    #[test]
    fn a_tenant_who_replaces_its_profiles_delays_only_what_is_missing_in_its_namespace_alone() {
        let (mut now, mut bulk_changes) = (Instant::now(), BulkChanges::default());
        for number in 0..500 {
            now += Duration::from_millis(100);
            bulk_changes.add(&profile(number), now);
            assert_eq!(is_high(&mut bulk_changes, &["team"], now), number >= 4, "{number}");
            assert!(!is_high(&mut bulk_changes, &["other"], now));
            assert!(
                !is_high(&mut bulk_changes, &["other", "team"], now),
                "what is missing in the other is reported"
            );
        }
    }

    #[test]
    fn a_projector_that_works_in_many_namespaces_is_busy_for_all() {
        for (namespaces, busy) in [(1, false), (4, false), (5, true), (100, true)] {
            let (now, mut bulk_changes) = (Instant::now(), BulkChanges::default());
            for number in 0..namespaces {
                bulk_changes.add(&in_namespace(&format!("team-{number}"), 0), now);
            }
            assert_eq!(is_high(&mut bulk_changes, &["later"], now), busy, "{namespaces}");
            assert_eq!(is_high(&mut bulk_changes, &["later", "team-0"], now), busy, "{namespaces}");
        }
        let (now, mut bulk_changes) = (Instant::now(), BulkChanges::default());
        for number in 0..2 * MANY {
            bulk_changes.add(&in_namespace(["one", "two"][number % 2], number), now);
        }
        assert!(is_high(&mut bulk_changes, &["one", "two"], now), "each of two is busy");
    }
}
