//! The page size of lists, which is reduced while responses do not arrive whole.
//!
//! The API server ends a request after a minute (`--request-timeout`). A page of large objects may take longer on a
//! slow connection, and would fail again each time it is requested. A list whose history expires between two pages is
//! requested as a whole, as client-go does: it would expire again.

/// The smallest page: even objects of the largest size that etcd accepts, about 1.5 MiB, fit into a minute.
const SMALLEST: u32 = 10;

/// The page size of one watch's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageSize {
    full: u32,
    /// The number of objects to request.
    now: u32,
    /// Whether the next list has no limit.
    is_whole: bool,
}

impl PageSize {
    pub(super) fn new(full: u32) -> Self {
        Self { full, now: full, is_whole: false }
    }

    /// The limit of a list.
    pub(super) fn limit(self) -> Option<u32> {
        (!self.is_whole).then_some(self.now)
    }

    /// Requests the next list without a limit, since the history expired between two pages.
    pub(super) fn expire(&mut self) {
        self.is_whole = true;
    }

    /// Requests a quarter from now on, or pages again, since a response did not arrive as a whole.
    pub(super) fn shrink(&mut self) {
        if std::mem::take(&mut self.is_whole) {
            return;
        }
        self.now = (self.now / 4).clamp(SMALLEST.min(self.full), self.full);
    }

    /// Requests larger pages in the next list, since one is complete.
    pub(super) fn grow(&mut self) {
        self.is_whole = false;
        self.now = self.now.saturating_mul(2).min(self.full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shrinks_to_a_few_objects_and_grows_back_to_its_full_size() {
        let mut page = PageSize::new(5000);
        let mut shrunk = || {
            page.shrink();
            page.now
        };
        assert_eq!(
            [shrunk(), shrunk(), shrunk(), shrunk(), shrunk(), shrunk()],
            [1250, 312, 78, 19, 10, 10]
        );
        (0..20).for_each(|_| page.grow());
        assert_eq!(page.now, 5000);
        page.expire();
        assert_eq!(page.limit(), None);
        page.shrink();
        assert_eq!(
            page.limit(),
            Some(5000),
            "what does not arrive whole is requested in pages again"
        );
    }

    #[test]
    fn a_page_that_is_small_from_the_start_does_not_grow() {
        let mut page = PageSize::new(1);
        page.shrink();
        assert_eq!(page.now, 1);
    }
}
