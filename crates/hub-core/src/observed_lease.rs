//! A Lease of another process, and for how long that process has held it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The observations of a Lease. It has no clock: the caller passes the time that has elapsed. The times in the Lease
/// come from another clock and are compared only with each other.
#[derive(Debug, Default)]
pub struct ObservedLease {
    /// The last renewal by a holder.
    renewed: Option<Renewal>,
    /// The time since that renewal was observed.
    ago: Duration,
}

#[derive(Debug, PartialEq, Eq)]
struct Renewal {
    at: Option<MicroTime>,
    holder: String,
    /// How long the renewal keeps the Lease valid.
    duration: Duration,
}

impl ObservedLease {
    /// Records the Lease, or `None` if it cannot be read; `passed` is the time since the last call. If the Lease has
    /// been renewed, returns for how long it was held without interruption since the previous renewal: zero for the
    /// first observed renewal, and if the previous one had expired.
    pub fn observe(&mut self, lease: Option<&LeaseSpec>, passed: Duration) -> Option<Duration> {
        self.ago = self.ago.saturating_add(passed);
        let renewal = lease.and_then(Renewal::read);
        if renewal == self.renewed {
            return None;
        }
        let before = std::mem::replace(&mut self.renewed, renewal);
        let ago = std::mem::take(&mut self.ago);
        self.renewed.as_ref()?;
        let is_held = before.is_some_and(|before| ago <= before.duration);
        Some(if is_held { ago } else { Duration::ZERO })
    }
}

impl Renewal {
    /// The renewal that a Lease shows, if a process holds it.
    fn read(lease: &LeaseSpec) -> Option<Self> {
        let holder = lease.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let seconds = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = Duration::from_secs(seconds.unwrap_or_default());
        Some(Self { at: lease.renew_time.clone(), holder, duration })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn what_is_seen_first_shows_no_time() {
        assert_eq!(
            ObservedLease::default().observe(Some(&lease("a", 0)), 100 * SECOND),
            Some(Duration::ZERO)
        );
        assert_eq!(ObservedLease::default().observe(None, 100 * SECOND), None);
    }

    #[test]
    fn a_lease_that_is_renewed_before_it_expires_has_been_held() {
        let mut seen = ObservedLease::default();
        seen.observe(Some(&lease("a", 0)), SECOND);
        assert_eq!(seen.observe(Some(&lease("a", 2)), 2 * SECOND), Some(2 * SECOND));
        assert_eq!(seen.observe(Some(&lease("a", 17)), 15 * SECOND), Some(15 * SECOND));
        assert_eq!(
            seen.observe(Some(&lease("a", 33)), 16 * SECOND),
            Some(Duration::ZERO),
            "it had expired"
        );
    }

    #[test]
    fn the_times_in_a_lease_are_not_compared_with_ours() {
        let mut seen = ObservedLease::default();
        seen.observe(Some(&lease("a", 1_000_000)), SECOND);
        assert_eq!(seen.observe(Some(&lease("a", 5)), 2 * SECOND), Some(2 * SECOND));
    }

    #[test]
    fn what_is_seen_again_without_a_renewal_shows_no_time() {
        let mut seen = ObservedLease::default();
        seen.observe(Some(&lease("a", 0)), SECOND);
        assert_eq!(seen.observe(Some(&lease("a", 0)), 10 * SECOND), None);
        assert_eq!(
            seen.observe(Some(&lease("a", 2)), 10 * SECOND),
            Some(Duration::ZERO),
            "20 seconds in all"
        );
    }

    #[test]
    fn a_lease_that_nobody_held_in_between_was_not_held() {
        for gap in [None, Some(lease("", 1))] {
            let mut seen = ObservedLease::default();
            seen.observe(Some(&lease("a", 0)), SECOND);
            assert_eq!(seen.observe(gap.as_ref(), SECOND), None);
            assert_eq!(seen.observe(Some(&lease("b", 2)), SECOND), Some(Duration::ZERO));
            assert_eq!(seen.observe(Some(&lease("b", 4)), 2 * SECOND), Some(2 * SECOND));
        }
    }
}
