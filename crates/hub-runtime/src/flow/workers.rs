//! Which keys a queue's workers may take: no namespace, and no priority, may occupy all of them.
//!
//! A namespace whose requests do not return, for example because of a webhook, occupies a worker for the ten seconds of
//! each request's timeout. Therefore a quarter of the workers only end grants, one namespace has at most half of the
//! workers, and all slow namespaces together have a quarter for ending grants and a quarter for the rest.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::priority::Priority;
use tokio::time::Instant;

/// The duration of a request from which a namespace is slow: a request usually takes milliseconds.
const SLOW: Duration = Duration::from_secs(1);
/// How long a namespace without further work stays slow.
const SLOW_FOR: Duration = Duration::from_mins(1);

/// A key that a worker holds.
#[derive(Debug, Clone)]
pub(crate) struct Busy {
    pub(crate) namespace: Namespace,
    pub(crate) priority: Priority,
    pub(crate) since: Instant,
}

/// The namespaces whose last request was slow, with the time until which this counts.
#[derive(Default)]
pub(crate) struct SlowNamespaces(HashMap<Namespace, Instant>);

impl SlowNamespaces {
    /// A worker has finished a key.
    pub(crate) fn finished(&mut self, busy: &Busy, now: Instant) {
        self.0.retain(|_, until| *until > now);
        if now - busy.since >= SLOW {
            self.0.insert(busy.namespace.clone(), now + SLOW_FOR);
        } else {
            self.0.remove(&busy.namespace);
        }
    }
}

/// The assignment of the workers at one moment.
pub(crate) struct Occupation<'a> {
    workers: usize,
    slow_namespaces: &'a SlowNamespaces,
    late: Vec<&'a Namespace>,
    busy: Vec<&'a Busy>,
    now: Instant,
}

impl<'a> Occupation<'a> {
    pub(crate) fn new(
        workers: usize,
        slow_namespaces: &'a SlowNamespaces,
        busy: impl Iterator<Item = &'a Busy>,
        now: Instant,
    ) -> Self {
        let busy: Vec<_> = busy.collect();
        let late = busy.iter().filter(|busy| now - busy.since >= SLOW).map(|busy| &busy.namespace).collect();
        Self { workers, slow_namespaces, late, busy, now }
    }

    /// Whether a free worker may take a key of this priority in this namespace.
    pub(crate) fn admits(&self, priority: Priority, namespace: &Namespace) -> bool {
        let quarter = (self.workers / 4).max(1);
        let half = (self.workers / 2).max(1);
        let ends = priority == Priority::End;
        let alike = || self.busy.iter().filter(|busy| (busy.priority == Priority::End) == ends);
        let all = if ends { self.workers } else { self.workers.saturating_sub(quarter).max(1) };
        alike().count() < all
            && alike().filter(|busy| busy.namespace == *namespace).count() < half
            && (!self.is_slow(namespace)
                || alike().filter(|busy| self.is_slow(&busy.namespace)).count() < quarter)
    }

    fn is_slow(&self, namespace: &Namespace) -> bool {
        self.late.contains(&namespace)
            || self.slow_namespaces.0.get(namespace).is_some_and(|until| *until > self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(namespace: &str, priority: Priority, since: Instant) -> Busy {
        Busy { namespace: namespace.into(), priority, since }
    }

    /// How many keys of each of these workers take, in this order.
    fn taken(slow: &SlowNamespaces, wanted: &[(&str, Priority)], now: Instant) -> usize {
        let mut occupied = Vec::<Busy>::new();
        for (namespace, priority) in wanted {
            for _ in 0..16 {
                let occupation = Occupation::new(16, slow, occupied.iter(), now);
                if occupied.len() < 16 && occupation.admits(*priority, &(*namespace).into()) {
                    occupied.push(busy(namespace, *priority, now));
                }
            }
        }
        occupied.len()
    }

    #[test]
    fn updates_leave_workers_to_other_namespaces_and_to_what_ends_grants() {
        let (slow, now) = (SlowNamespaces::default(), Instant::now());
        let update = Priority::Update;
        assert_eq!(taken(&slow, &[("a", update)], now), 8);
        assert_eq!(taken(&slow, &[("a", update), ("b", update), ("c", Priority::Start)], now), 12);
        assert_eq!(taken(&slow, &[("a", update), ("b", update), ("a", Priority::End)], now), 16);
    }

    #[test]
    fn slow_namespaces_occupy_a_quarter_of_the_workers_until_they_are_fast_again() {
        let (mut slow, now) = (SlowNamespaces::default(), Instant::now());
        let later = now + SLOW;
        for namespace in ["a", "b"] {
            slow.finished(&busy(namespace, Priority::Update, now), later);
        }
        let all = [("a", Priority::Update), ("b", Priority::Update)];
        assert_eq!(taken(&slow, &all, later), 4);
        assert_eq!(taken(&slow, &all, later + SLOW_FOR), 12, "or for a minute");
        slow.finished(&busy("a", Priority::Update, later), later);
        slow.finished(&busy("b", Priority::Update, later), later);
        assert_eq!(taken(&slow, &all, later), 12);
    }

    #[test]
    fn a_namespace_without_work_is_forgotten() {
        let (mut slow, now) = (SlowNamespaces::default(), Instant::now());
        slow.finished(&busy("a", Priority::Update, now), now + SLOW);
        let later = now + SLOW + SLOW_FOR;
        slow.finished(&busy("b", Priority::Update, later), later);
        assert!(slow.0.is_empty());
    }

    #[test]
    fn a_namespace_is_slow_as_soon_as_one_request_is() {
        let (slow, now) = (SlowNamespaces::default(), Instant::now());
        let late: Vec<_> = (0..4).map(|_| busy("a", Priority::Update, now)).collect();
        let admits = |at, namespace: &str| {
            Occupation::new(16, &slow, late.iter(), at).admits(Priority::Update, &namespace.into())
        };
        assert!(admits(now, "a"));
        assert!(!admits(now + SLOW, "a"));
        assert!(admits(now + SLOW, "b"));
    }
}
