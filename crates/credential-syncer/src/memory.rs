//! State of copies between reconciles that no watch shows.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::SecretKey;
use tokio::time::Instant;

/// State of copies between reconciles.
#[derive(Default)]
pub(crate) struct Memory {
    /// The copies that are not settled since their source changed: when it changed first, and whether the copy has been
    /// written since.
    changed: HashMap<SecretKey, (Instant, bool)>,
    /// Copies that cannot be deleted in namespaces that seem to have been deleted, with the time of the first attempt.
    abandoned: HashMap<SecretKey, Instant>,
}

impl Memory {
    /// Records that the source of these copies has just changed.
    pub(crate) fn source_changed(&mut self, keys: &[SecretKey]) {
        let now = Instant::now();
        for key in keys {
            self.changed.entry(key.clone()).or_insert((now, false));
        }
    }

    /// Records that the copy is written.
    pub(crate) fn wrote(&mut self, key: &SecretKey) {
        if let Some((_, is_written)) = self.changed.get_mut(key) {
            *is_written = true;
        }
    }

    /// Records that nothing is left to write; returns how long ago the source changed, if it did and was written.
    pub(crate) fn source_settled(&mut self, key: &SecretKey) -> Option<Duration> {
        let (changed, is_written) = self.changed.remove(key)?;
        is_written.then(|| changed.elapsed())
    }

    /// Records that a copy cannot be deleted in a namespace that seems to have been deleted. Returns for how long.
    pub(crate) fn abandoned(&mut self, key: &SecretKey) -> Duration {
        self.abandoned.entry(key.clone()).or_insert_with(Instant::now).elapsed()
    }

    /// Whether a copy cannot be deleted in a namespace that seems to have been deleted.
    pub(crate) fn is_abandoned(&self, key: &SecretKey) -> bool {
        self.abandoned.contains_key(key)
    }

    /// Records that no copy remains to be deleted.
    pub(crate) fn end_of_abandoned(&mut self, key: &SecretKey) {
        self.abandoned.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn key() -> SecretKey {
        SecretKey { namespace: "team".into(), name: "c-app".into() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_as_late_as_the_first_change_of_its_source_that_is_not_written() {
        let mut memory = Memory::default();
        assert_eq!(memory.source_settled(&key()), None);
        for _ in 0..2 {
            memory.source_changed(&[key()]);
            advance(seconds(1)).await;
        }
        memory.wrote(&key());
        assert_eq!(memory.source_settled(&key()), Some(seconds(2)));
        assert_eq!(memory.source_settled(&key()), None);
        memory.source_changed(&[key()]);
        assert_eq!(memory.source_settled(&key()), None, "nothing was written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_cannot_be_deleted_is_abandoned_from_the_first_attempt_on() {
        let mut memory = Memory::default();
        assert_eq!(memory.abandoned(&key()), Duration::ZERO);
        advance(seconds(5)).await;
        assert_eq!(memory.abandoned(&key()), seconds(5));
        memory.end_of_abandoned(&key());
        assert_eq!(memory.abandoned(&key()), Duration::ZERO);
    }
}
