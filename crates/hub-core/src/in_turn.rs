//! What waits for its turn: whatever is added again and again keeps nothing else back.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Values that wait, each once. They are taken in order, and then from the first again.
#[derive(Debug)]
pub struct InTurn<T> {
    waiting: BTreeSet<T>,
    /// The last one that was taken.
    last: Option<T>,
}

impl<T> Default for InTurn<T> {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), last: None }
    }
}

impl<T: Ord> Extend<T> for InTurn<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.waiting.extend(values);
    }
}

impl<T: Ord + Clone> InTurn<T> {
    /// Takes one, if any waits.
    pub fn pop(&mut self) -> Option<T> {
        self.take(1).pop()
    }

    /// Takes so many, or all that wait: those that come after the last one first.
    pub fn take(&mut self, count: usize) -> Vec<T> {
        let after = self.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.waiting.range((after, Bound::Unbounded));
        let taken: Vec<_> =
            rest.chain(&self.waiting).take(count.min(self.waiting.len())).cloned().collect();
        for value in &taken {
            self.waiting.remove(value);
        }
        self.last = taken.last().cloned();
        taken
    }

    /// Drops all that wait.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    #[must_use]
    pub fn contains(&self, value: &T) -> bool {
        self.waiting.contains(value)
    }

    /// How many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_again_and_again_keeps_nothing_else_back() {
        let (mut values, mut seen) = (InTurn::default(), BTreeSet::new());
        values.extend(0..250);
        for _ in 0..3 {
            seen.extend(values.take(100));
            values.extend(0..100);
        }
        assert_eq!(seen, (0..250).collect());
        assert_eq!((values.take(1000).len(), values.take(1000).len()), (100, 0));
    }
}
