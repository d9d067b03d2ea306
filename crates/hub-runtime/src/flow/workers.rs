//! Which keys a queue's workers may take: no namespace, and no priority, may occupy all of them.
//!
//! A request that takes longer than a second, for example because of a webhook, no longer occupies a worker, so that it
//! delays no other namespace; the number of such requests is limited, too. Work that ends grants is counted separately:
//! it may occupy as many workers as there are, other work three quarters of that number. Of each of the two, one
//! namespace has at most half the workers, including its slow requests. While requests that start grants are slow, they
//! leave a quarter of the workers of other work to updates, and the other way round: if creates begin to hang in
//! hundreds of namespaces at once, tokens that are rotated elsewhere do not wait for the first attempt in each.

use hub_api::names::Namespace;
use hub_core::priority::Priority;
use tokio::time::Instant;

use super::failure_groups::SLOW;

/// How many requests can be in flight, as a multiple of the workers.
const IN_FLIGHT: usize = 8;

/// A key that a worker holds.
#[derive(Debug, Clone)]
pub(crate) struct Busy {
    pub(crate) namespace: Namespace,
    pub(crate) priority: Priority,
    /// When the worker took the key, or began its last request.
    pub(crate) since: Instant,
}

/// The assignment of the workers at one moment.
pub(crate) struct Occupation<'a> {
    workers: usize,
    busy: Vec<&'a Busy>,
    now: Instant,
}

impl<'a> Occupation<'a> {
    pub(crate) fn new(workers: usize, busy: impl Iterator<Item = &'a Busy>, now: Instant) -> Self {
        Self { workers, busy: busy.collect(), now }
    }

    /// In which namespaces a free worker may take a key of this priority; `None` if in no namespace.
    pub(crate) fn admits(&self, priority: Priority) -> Option<impl Fn(&Namespace) -> bool> {
        let ends = priority == Priority::End;
        let alike =
            move || self.busy.iter().filter(move |busy| (busy.priority == Priority::End) == ends);
        let same = || self.busy.iter().filter(|busy| busy.priority == priority);
        let is_fast = |busy: &&&Busy| self.becomes_slow(busy).is_some();
        let workers = if ends { self.workers } else { without_a_quarter(self.workers) };
        // The limit for one priority: for its fast requests while others of it are slow, and for its requests in
        // flight.
        let share = if ends { workers } else { without_a_quarter(workers) };
        let is_slow = same().any(|busy| self.becomes_slow(busy).is_none());
        let has_room = alike().filter(is_fast).count() < workers
            && (!is_slow || same().filter(is_fast).count() < share)
            && alike().count() < workers * IN_FLIGHT
            && same().count() < share * IN_FLIGHT;
        has_room.then_some(move |namespace: &Namespace| {
            let there = alike().filter(|busy| busy.namespace == *namespace);
            there.count() < (self.workers / 2).max(1)
        })
    }

    /// When the next request becomes slow, which leaves its worker to another key.
    pub(crate) fn changes_at(&self) -> Option<Instant> {
        self.busy.iter().filter_map(|busy| self.becomes_slow(busy)).min()
    }

    fn becomes_slow(&self, busy: &Busy) -> Option<Instant> {
        Some(busy.since + SLOW).filter(|slow| *slow > self.now)
    }
}

/// This many workers without the quarter that is left to others; at least one.
fn without_a_quarter(workers: usize) -> usize {
    workers.saturating_sub((workers / 4).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many keys of each of these workers take, in this order, beside requests that are in flight.
    fn taken(in_flight: &[Busy], wanted: &[(&str, Priority)], now: Instant) -> usize {
        let mut occupied = in_flight.to_vec();
        for (namespace, priority) in wanted {
            let namespace = Namespace::from(*namespace);
            let is_free = |occupied: &[Busy]| {
                occupied.len() < in_flight.len() + 16
                    && Occupation::new(16, occupied.iter(), now)
                        .admits(*priority)
                        .is_some_and(|admits| admits(&namespace))
            };
            while is_free(&occupied) {
                occupied.push(Busy {
                    namespace: namespace.clone(),
                    priority: *priority,
                    since: now,
                });
            }
        }
        occupied.len() - in_flight.len()
    }

    #[test]
    fn updates_leave_workers_to_other_namespaces_and_to_what_ends_grants() {
        let (now, update) = (Instant::now(), Priority::Update);
        assert_eq!(taken(&[], &[("a", update)], now), 8);
        assert_eq!(taken(&[], &[("a", update), ("b", update), ("c", Priority::Start)], now), 12);
        assert_eq!(taken(&[], &[("a", update), ("b", update), ("a", Priority::End)], now), 16);
    }

    #[test]
    fn slow_requests_leave_their_workers_to_other_namespaces_up_to_a_bound() {
        let (now, mut in_flight) = (Instant::now(), Vec::new());
        let busy = |namespace: &str| Busy {
            namespace: namespace.into(),
            priority: Priority::Update,
            since: now,
        };
        in_flight.extend((0..8).map(|_| busy("a")));
        assert_eq!(Occupation::new(16, in_flight.iter(), now).changes_at(), Some(now + SLOW));
        assert_eq!(taken(&in_flight, &[("b", Priority::Update)], now), 4);
        let later = now + SLOW;
        assert_eq!(Occupation::new(16, in_flight.iter(), later).changes_at(), None);
        assert_eq!(
            taken(&in_flight, &[("a", Priority::Update)], later),
            0,
            "a namespace has its share"
        );
        let others = [("b", Priority::Update), ("c", Priority::Update), ("d", Priority::Start)];
        assert_eq!(taken(&in_flight, &others[..2], later), 9, "a quarter is left to other work");
        assert_eq!(taken(&in_flight, &others, later), 12);
        in_flight.extend((8..9 * IN_FLIGHT).map(|number| busy(&number.to_string())));
        assert_eq!(
            taken(&in_flight, &[("b", Priority::Update)], later),
            0,
            "not more than a bound"
        );
        assert_eq!(
            taken(&in_flight, &[("b", Priority::Start)], later),
            8,
            "what starts a grant has its own"
        );
        assert_eq!(
            taken(&in_flight, &[("b", Priority::End)], later),
            8,
            "what ends a grant has its own"
        );
    }
}
