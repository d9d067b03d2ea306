//! The loop of one watch: list, watch, and after an interruption check whether the history is still the same.
//!
//! A resourceVersion is a position in one history. An etcd that is restored from an older snapshot has another history,
//! and clients are not notified: a watch from a version in its future receives neither events nor a 410, and once the
//! new history has passed that version, a watch from it misses all differences between the two histories. To restore
//! etcd, the API server must be stopped, which closes its connections
//! (<https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster>). So:
//!
//! | how a watch ended | next request | cost |
//! |---|---|---|
//! | at its timeout, after events or bookmarks | a watch from the last version | no further request |
//! | at its timeout without any event or bookmark; or early | a list of one object for its version: if that is older than what any watch of the process has seen ([`super::seen_history`]), a full list, else a watch from the last version | one request, for one object |
//! | early, and then the API server was unreachable, refused the request, or did not respond in time | a list: nothing else distinguishes the two histories, and a restarted API server requires one anyway, since its watch cache is empty | those of the list |
//! | with a version older than the previous one, or 410 | a list | those of the list |
//!
//! An API server that keeps running while its etcd is restored serves the old history from its caches to every client;
//! Kubernetes requires that it is restarted.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info};

use super::decode::{self, Decode};
use super::endpoint::{EventType, RawEvent, WatchEndpoint};
use super::error::{Malformed, WatchError};
use super::history::History;
use super::seen_history::Era;
use super::trouble::{STEADY, Trouble};
use super::{Lists, WATCH_DURATION};
use crate::observe::health::SyncState;
use crate::write::error::Category;

/// Tolerance around the timeout of a watch.
const SLACK: Duration = Duration::from_secs(10);

/// Longest pause while the position is known: shorter than it takes to restore etcd, so that at least one request finds
/// the API server stopped.
const KEEPING_MAX: Duration = Duration::from_secs(4);

/// Where the next watch starts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    /// Unknown: list first.
    Unknown,
    /// After this version.
    At(String),
    /// After this version, if the history is still the same.
    Doubtful(String),
}

impl Position {
    /// The position after an error.
    fn after(self, error: &WatchError) -> Self {
        match self {
            _ if error.is_outage() || error.is_history_gone() || error.is_not_served() => Self::Unknown,
            // A restarted API server refuses everything until it has loaded RBAC.
            Self::Doubtful(_) if error.category() == Category::Forbidden => Self::Unknown,
            // The API server was silent for longer than it takes to restore etcd.
            _ if matches!(error, WatchError::Silent) => Self::Unknown,
            Self::At(version) if matches!(error, WatchError::Stream(_) | WatchError::Status(_)) => {
                Self::Doubtful(version)
            }
            position => position,
        }
    }
}

/// The state of one watch.
pub(super) struct Follower<K> {
    pub(super) endpoint: WatchEndpoint,
    pub(super) decode: Decode<K>,
    pub(super) history: History<K>,
    pub(super) trouble: Trouble,
    pub(super) sync: SyncState,
    pub(super) lists: Lists,
    /// Since when requests fail.
    pub(super) failing: Option<Instant>,
    /// The history that the watch follows, as of its last list.
    pub(super) era: Era,
}

impl<K: 'static> Follower<K> {
    /// Lists and watches forever.
    pub(super) async fn follow(mut self) {
        let mut position = Position::Unknown;
        loop {
            let pause = match self.step(&mut position).await {
                Ok(()) if matches!(position, Position::Doubtful(_)) => self.trouble.pause(),
                Ok(()) => continue,
                Err(error) => {
                    self.sync.mark_failing();
                    if error.category() == Category::Forbidden {
                        self.history.sink.refused();
                    } else if error.is_not_served() {
                        self.history.sink.not_served();
                    }
                    let since = self.failing.get_or_insert_with(Instant::now).elapsed();
                    self.history.sink.failing(Some(since));
                    position = position.after(&error);
                    self.trouble.meet(&error)
                }
            };
            let longest = if position == Position::Unknown { Duration::MAX } else { KEEPING_MAX };
            sleep(pause.min(longest)).await;
        }
    }

    /// Makes one request from a position.
    async fn step(&mut self, position: &mut Position) -> Result<(), WatchError> {
        match position.clone() {
            Position::Unknown => *position = Position::At(self.list().await?),
            Position::At(version) => {
                let events = self.endpoint.watch(&version).await?;
                self.watch(events, position).await?;
            }
            Position::Doubtful(version) => {
                let latest = self.lists.seen.latest();
                let now = self.endpoint.version().await?;
                if is_older(&now, &version) || self.lists.seen.is_rewound(self.era, latest, &now) {
                    let resource = self.sync.resource();
                    info!(
                        resource,
                        from = version,
                        to = now,
                        "the hub's history has been rewound, listing again"
                    );
                    *position = Position::Unknown;
                } else {
                    *position = Position::At(version);
                }
            }
        }
        Ok(())
    }

    /// Lists all objects, and returns the version to watch from.
    async fn list(&mut self) -> Result<String, WatchError> {
        let lists = self.lists.clone();
        // The semaphore is never closed.
        let _permit = lists.permits.acquire().await;
        self.era = lists.seen.era();
        let Self { endpoint, decode, history, .. } = self;
        history.begin_list();
        let mut token = None;
        loop {
            let show = |item: &[u8]| {
                history.apply(decode(item)?);
                Ok(())
            };
            let list = endpoint.page(token, show).await.inspect_err(|error| {
                if error.is_cut_short() {
                    endpoint.page.shrink();
                }
            })?;
            let version = list.resource_version.filter(|version| !version.is_empty());
            token = list.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                let version = version.ok_or(WatchError::NoVersion)?;
                history.end_list();
                lists.seen.record(self.era, &version);
                endpoint.page.grow();
                self.sync.mark_synced();
                self.works();
                return Ok(version);
            }
        }
    }

    /// Records that requests no longer fail.
    fn works(&mut self) {
        if self.failing.take().is_some() {
            self.history.sink.failing(None);
        }
    }

    /// Processes events until the watch ends, and keeps the position up to date.
    async fn watch(
        &mut self,
        mut events: BoxStream<'static, Result<RawEvent, WatchError>>,
        position: &mut Position,
    ) -> Result<(), WatchError> {
        let started = Instant::now();
        let mut is_quiet = true;
        let mut steady = std::pin::pin!(sleep_until(started + STEADY));
        let mut is_steady = false;
        loop {
            let next = tokio::select! {
                biased;
                // The API server ends a watch at its timeout; if it does not, the connection is dead.
                next = timeout(WATCH_DURATION + SLACK, events.next()) => next.unwrap_or(None),
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    self.trouble.end();
                    self.works();
                    continue;
                }
            };
            let Some(event) = next else { break };
            let version = self.take(&event?)?;
            is_quiet = false;
            if !is_steady {
                is_steady = true;
                self.trouble.end();
                self.works();
            }
            if let Position::At(from) = &*position
                && is_older(&version, from)
            {
                return Err(WatchError::Rewound { from: from.clone(), to: version });
            }
            self.lists.seen.record(self.era, &version);
            *position = Position::At(version);
        }
        if let Position::At(version) = &*position
            && (is_quiet || started.elapsed() + SLACK < WATCH_DURATION)
        {
            debug!(resource = self.sync.resource(), is_quiet, "the watch ended early or without any event");
            *position = Position::Doubtful(version.clone());
        }
        Ok(())
    }

    /// Processes one event, and returns its version.
    fn take(&mut self, event: &RawEvent) -> Result<String, WatchError> {
        let text = event.object.get().as_bytes();
        match event.kind {
            EventType::Added | EventType::Modified => self.history.apply((self.decode)(text)?),
            EventType::Deleted => self.history.delete(&(self.decode)(text)?.0),
            EventType::Bookmark => {}
            EventType::Error => {
                let status = serde_json::from_slice(text)
                    .map_err(|_| Malformed("an error event without a status".to_owned()))?;
                return Err(WatchError::Status(Box::new(status)));
            }
        }
        Ok(decode::version(text)?)
    }
}

/// Whether a resourceVersion is older than another, if both are numbers.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}
