//! Supervised tasks: a task that ends unexpectedly is noticed, and all tasks end with the process.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio::task::{AbortHandle, JoinSet};

use crate::observe::health::Health;

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

    /// Spawns a task that runs as long as the process, or until its handle is dropped. If it ends otherwise, even by a
    /// panic, liveness fails ([`Health`]) and [`Self::missing`] returns.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let panics = MissedByPanic { tasks: self.clone(), name };
        self.start(async move {
            task.await;
            panics.tasks.miss(name);
        })
    }

    /// Spawns a task that may end, but not by a panic.
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

    /// Records that a task has ended unexpectedly.
    pub(crate) fn miss(&self, name: &'static str) {
        self.health.task_failed(name);
        self.missing.send_replace(Some(name));
    }

    /// Waits until a task has ended unexpectedly, and returns its name.
    pub async fn missing(&self) -> &'static str {
        let mut missing = self.missing.subscribe();
        match missing.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(name)) => name,
            // `self` owns the sender, so the wait cannot fail.
            _ => "a task",
        }
    }

    /// Aborts every task at its next await.
    pub fn end(&self) {
        self.running.lock().abort_all();
    }
}

/// Reports a task that panics. An aborted task is dropped without unwinding.
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
