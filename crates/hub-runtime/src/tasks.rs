//! The tasks of a process: missed when one ends by itself, and ended with the process.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio::task::{AbortHandle, JoinSet};

use crate::health::Health;

/// The tasks of a process. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Tasks {
    running: Arc<Mutex<JoinSet<()>>>,
    missing: channel::Sender<Option<&'static str>>,
    health: Health,
}

impl Tasks {
    pub(crate) fn new(health: Health) -> Self {
        Self { running: Arc::default(), missing: channel::Sender::new(None), health }
    }

    /// Starts a task that ends only with the process, or by its handle. Where it ends all the same, by a panic, the
    /// process is no longer alive ([`Health`]) and [`Self::missing`] returns.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let panics = MissedByPanic { tasks: self.clone(), name };
        self.start(async move {
            task.await;
            panics.tasks.miss(name);
        })
    }

    /// Starts a task that may end, though not by a panic.
    pub fn spawn_once(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let panics = MissedByPanic { tasks: self.clone(), name };
        self.start(async move {
            task.await;
            drop(panics);
        });
    }

    fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task)
    }

    /// Says that a task has ended that never should.
    pub(crate) fn miss(&self, name: &'static str) {
        self.health.task_failed(name);
        self.missing.send_replace(Some(name));
    }

    /// Waits until a task has ended that never should, and returns its name.
    pub async fn missing(&self) -> &'static str {
        let mut missing = self.missing.subscribe();
        match missing.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(name)) => name,
            // The sender lives in `self`, so the wait cannot end otherwise.
            _ => "a task",
        }
    }

    /// Ends every task, at its next await.
    pub(crate) fn end(&self) {
        self.running.lock().abort_all();
    }
}

/// Misses a task that unwinds. One that is aborted is dropped without a panic.
struct MissedByPanic {
    tasks: Tasks,
    name: &'static str,
}

impl Drop for MissedByPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tasks.miss(self.name);
        }
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
        assert_eq!(*tasks.missing.borrow(), None);
    }
}
