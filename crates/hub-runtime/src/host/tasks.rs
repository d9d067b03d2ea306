//! Supervised tasks: a task that ends unexpectedly is noticed, and all tasks end with the process.

use std::future::{Future, poll_fn, ready};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use crate::observe::health::Health;

/// The tasks of a process. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Tasks {
    /// Each returns its name if it has ended unexpectedly.
    running: Arc<Mutex<JoinSet<Option<&'static str>>>>,
    health: Health,
}

impl Tasks {
    pub(crate) fn new(health: Health) -> Self {
        Self { running: Arc::default(), health }
    }

    /// Spawns a task that runs as long as the process, or until its handle is dropped. If it ends otherwise, even by a
    /// panic, liveness fails ([`Health`]) and [`Self::missing`] returns.
    pub fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let task = AssertUnwindSafe(task).catch_unwind();
        self.running.lock().spawn(task.map(move |_| Some(name)))
    }

    /// Spawns a task that may end, but not by a panic.
    pub fn spawn_once(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task = AssertUnwindSafe(task).catch_unwind();
        self.running.lock().spawn(task.map(move |ended| ended.is_err().then_some(name)));
    }

    /// Records that a task has ended unexpectedly.
    pub(crate) fn miss(&self, name: &'static str) {
        self.running.lock().spawn(ready(Some(name)));
    }

    /// Waits until a task has ended unexpectedly, and returns its name.
    pub async fn missing(&self) -> &'static str {
        loop {
            // Without any task, the next one wakes no waiter, so there is always one: that of the Events.
            let ended = poll_fn(|context| match self.running.lock().poll_join_next(context) {
                Poll::Ready(Some(ended)) => Poll::Ready(ended),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            // An error is a task that was aborted.
            if let Ok(Some(name)) = ended.await {
                self.health.task_failed(name);
                return name;
            }
        }
    }

    /// Aborts every task at its next await.
    pub fn end(&self) {
        self.running.lock().abort_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_returns_is_missed_by_its_name() {
        let tasks = Tasks::new(Health::default());
        tasks.spawn("returns", std::future::ready(()));
        assert_eq!(tasks.missing().await, "returns");
        let tasks = Tasks::new(Health::default());
        tasks.spawn("panics", async { panic!("on purpose") });
        assert_eq!(tasks.missing().await, "panics");
        let tasks = Tasks::new(Health::default());
        tasks.spawn_once("panics once", async { panic!("on purpose") });
        assert_eq!(tasks.missing().await, "panics once");
    }

    #[tokio::test]
    async fn a_task_that_is_ended_is_gone_and_not_missed() {
        let tasks = Tasks::new(Health::default());
        let alive = Arc::new(());
        for _ in 0..2 {
            let held = Arc::clone(&alive);
            tasks.spawn("waits", async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        tasks.spawn("is held", std::future::pending()).abort();
        tokio::task::yield_now().await;
        tasks.end();
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.missing().now_or_never(), None);
    }
}
