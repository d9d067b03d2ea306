//! Pauses of writes that would fail whatever their object is: creates in a namespace that is terminating or does not
//! exist, and all writes of a kind that the hub does not serve. Neither delays writes of another namespace or kind.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::Namespace;
use tokio::time::Instant;

/// How long creates in a namespace are paused.
pub(crate) const NAMESPACE_PAUSE: Duration = Duration::from_mins(1);
/// How long writes of a kind are paused.
pub(crate) const KIND_PAUSE: Duration = Duration::from_secs(5);

/// What is paused, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    namespaces: HashMap<Namespace, Instant>,
    /// By the plural of the kind.
    kinds: HashMap<&'static str, Instant>,
}

impl Pauses {
    /// How long a write of a kind, or a create of it in a namespace, must wait.
    pub(crate) fn wait(
        &self,
        resource: &str,
        created_in: Option<&Namespace>,
        now: Instant,
    ) -> Option<Duration> {
        let namespace = created_in.and_then(|namespace| self.namespaces.get(namespace));
        let until = self.kinds.get(resource).into_iter().chain(namespace).max()?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Pauses creates in a namespace; returns whether this is new.
    pub(crate) fn pause_namespace(&mut self, namespace: &Namespace, now: Instant) -> bool {
        // Most namespaces that terminate are not recreated, so nothing else removes their pauses.
        self.namespaces.retain(|_, until| *until > now);
        self.namespaces.insert(namespace.clone(), now + NAMESPACE_PAUSE).is_none()
    }

    pub(crate) fn resume_namespace(&mut self, namespace: &Namespace) {
        self.namespaces.remove(namespace);
    }

    /// Pauses writes of a kind; returns whether this is new.
    pub(crate) fn pause_kind(&mut self, resource: &'static str, now: Instant) -> bool {
        self.kinds.insert(resource, now + KIND_PAUSE).is_none()
    }

    /// Returns whether there was a pause, even one that had expired.
    pub(crate) fn resume_kind(&mut self, resource: &str) -> bool {
        self.kinds.remove(resource).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_served_delays_no_write_of_another_kind() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        assert!(pauses.pause_kind("clusterpermissions", now));
        assert_eq!(pauses.wait("clusterpermissions", None, now), Some(KIND_PAUSE));
        assert_eq!(pauses.wait("managedserviceaccounts", None, now), None);
        assert_eq!(pauses.wait("clusterpermissions", None, now + KIND_PAUSE), None, "the next attempt");
        // Nor does a write of another kind end it.
        assert!(!pauses.resume_kind("managedserviceaccounts"));
        assert!(!pauses.pause_kind("clusterpermissions", now + KIND_PAUSE), "it is logged once");
        assert!(pauses.resume_kind("clusterpermissions"));
        assert_eq!(pauses.wait("clusterpermissions", None, now + KIND_PAUSE), None);
    }

    #[test]
    fn nothing_is_kept_of_a_pause_that_has_ended() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        for number in 0..100 {
            pauses.pause_namespace(&format!("n{number}").as_str().into(), now);
        }
        pauses.pause_namespace(&"another".into(), now + NAMESPACE_PAUSE);
        assert_eq!(pauses.namespaces.len(), 1);
    }

    #[test]
    fn a_namespace_that_is_going_delays_creates_in_it_alone() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let [going, other] = ["going", "other"].map(Namespace::from);
        assert!(pauses.pause_namespace(&going, now));
        assert_eq!(pauses.wait("secrets", Some(&going), now), Some(NAMESPACE_PAUSE));
        assert_eq!(pauses.wait("secrets", Some(&other), now), None);
        assert_eq!(pauses.wait("secrets", None, now), None, "patches and deletes");
        pauses.pause_kind("secrets", now + NAMESPACE_PAUSE - KIND_PAUSE / 2);
        let left = pauses.wait("secrets", Some(&going), now + NAMESPACE_PAUSE - KIND_PAUSE / 2);
        assert_eq!(left, Some(KIND_PAUSE), "the longer of the two");
        pauses.resume_namespace(&going);
        assert!(pauses.pause_namespace(&going, now), "a new pause");
        assert!(!pauses.pause_namespace(&going, now));
    }
}
