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
//! | at its timeout without any event or bookmark; or early, or not at all | a list of one object for its version: if that is older than what any watch of the process has seen ([`super::seen_history`]), a full list, else a watch from the last version | one request, for one object |
//! | early, and then the API server was unreachable, to it or to another watch since it last showed anything; or refused the request, or did not respond in time | a list: nothing else distinguishes the two histories, and a restarted API server requires one anyway, since its watch cache is empty | those of the list |
//! | with a version older than the previous one, or 410 | a list | those of the list |
//! | at once and without an event, three times in a row | a list: the API server may not be able to serve that version | those of the list |
//! | and no list or watch has succeeded for a minute | a list, and until it is complete what was shown is unknown ([`Sink::unread`](super::Sink::unread)) | those of the list |
//!
//! An API server that keeps running while its etcd is restored serves the old history from its caches to every client;
//! Kubernetes requires that it is restarted.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info};

use super::decode;
use super::endpoint::{EventType, RawEvent, WatchEndpoint, version_of};
use super::error::{Malformed, WatchError};
use super::history::History;
use super::seen_history::Era;
use super::trouble::{STEADY, Trouble};
use super::unread::{Interrupted, LIFETIME, Unread};
use super::{Lists, WATCH_DURATION};
use crate::observe::health::{Need, SyncState};
use crate::write::error::Category;

/// How many times longer than others a late watch waits whose kind need not be installed and is not: there can be hundreds.
const ABSENT: u32 = 12;
/// Tolerance around the timeout of a watch.
const SLACK: Duration = Duration::from_secs(10);

/// Longest pause while the position is known: shorter than it takes to restore etcd, so that at least one request finds
/// the API server stopped.
const KEEPING_MAX: Duration = Duration::from_secs(4);

/// How many watches in a row may end at once and without an event before a list follows.
const FUTILE: u32 = 3;

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
            _ if error.is_outage() || error.is_history_gone() || error.is_not_served() => {
                Self::Unknown
            }
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
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes another"
)]
pub(super) struct Follower {
    pub(super) endpoint: WatchEndpoint,
    pub(super) history: History,
    pub(super) trouble: Trouble,
    pub(super) sync: SyncState,
    pub(super) lists: Lists,
    /// Since when no list or watch has succeeded: `None` while a watch is steady.
    pub(super) unseen: Option<Instant>,
    /// Set while what the watch has shown is unknown.
    pub(super) unread: Option<Unread>,
    /// Whether the hub should serve the kind.
    pub(super) is_expected: bool,
    pub(super) was_listed: bool,
    /// Whether the last failure shows that no object exists.
    pub(super) is_absent: bool,
    /// Whether an outage has interrupted the watch since its last list.
    pub(super) is_interrupted: bool,
    /// The same for other watches, unless this one is late.
    pub(super) interrupted: Option<Interrupted>,
    /// How many watches in a row have ended at once and without an event.
    pub(super) futile: u32,
    /// The history that the watch follows.
    pub(super) era: Era,
}

impl Follower {
    /// Lists and watches forever.
    pub(super) async fn follow(mut self) {
        let mut position = Position::Unknown;
        loop {
            let pause = match self.step(&mut position).await {
                Ok(()) if matches!(position, Position::Doubtful(_)) => self.trouble.pause(),
                Ok(()) => continue,
                Err(error) => {
                    self.sync.mark_failing();
                    self.is_absent = error.is_not_served() && self.history.sink.not_served();
                    if self.is_absent {
                        // That is known, and as of now.
                        self.unseen = None;
                        if self.unread.take().is_some() {
                            self.sync.mark_missing();
                        }
                    }
                    if error.category() == Category::Forbidden {
                        self.history.sink.refused();
                    }
                    if error.is_outage() {
                        self.lists.seen.interrupt();
                        self.is_interrupted = true;
                        if self.sync.need() != Need::Late && self.interrupted.is_none() {
                            self.interrupted = Some(self.lists.unavailable.interrupt());
                        }
                    }
                    let since = self.unseen.get_or_insert_with(Instant::now).elapsed();
                    self.history.sink.failing(Some(since));
                    position = position.after(&error);
                    let is_optional = self.is_absent && self.sync.need() == Need::Late;
                    self.trouble.meet(&error) * if is_optional { ABSENT } else { 1 }
                }
            };
            let longest = if position == Position::Unknown { Duration::MAX } else { KEEPING_MAX };
            let due = Instant::now() + pause.min(longest);
            sleep_until(self.lapse().map_or(due, |lapse| due.min(lapse))).await;
            if self.lapse().is_some_and(|lapse| lapse <= Instant::now()) {
                self.forget();
                position = Position::Unknown;
            }
        }
    }

    /// When what the watch has shown becomes unknown, unless a list or a watch succeeds before.
    fn lapse(&self) -> Option<Instant> {
        // An addon need not be installed.
        let is_uninstalled = self.trouble.category == Some(Category::NotServed)
            && !self.was_listed
            && !self.is_expected
            && self.sync.need() != Need::Required;
        let is_over = self.unread.is_some() || self.is_absent || is_uninstalled;
        self.unseen.filter(|_| !is_over).map(|since| since + LIFETIME)
    }

    /// What the watch has shown is unknown from now on.
    fn forget(&mut self) {
        let category = self.trouble.category.unwrap_or(Category::Other);
        self.history.sink.unread();
        let path = self.endpoint.current_path();
        self.unread = Some(self.lists.unread.begin(&path, &self.sync, category));
    }

    /// Waits for a response, but not until what the watch has shown becomes unknown.
    async fn in_time<T>(
        lapse: Option<Instant>,
        response: impl Future<Output = Result<T, WatchError>>,
    ) -> Result<T, WatchError> {
        match lapse {
            Some(lapse) => timeout_at(lapse, response).await.unwrap_or(Err(WatchError::Silent)),
            None => response.await,
        }
    }

    /// Makes one request from a position.
    async fn step(&mut self, position: &mut Position) -> Result<(), WatchError> {
        if *position != Position::Unknown {
            // What was shown so far is known as of now: the request may never be answered.
            self.unseen.get_or_insert_with(Instant::now);
        }
        let lapse = self.lapse();
        match position.clone() {
            Position::Unknown => *position = Position::At(Self::in_time(lapse, self.list()).await?),
            Position::At(version) => {
                let events = Self::in_time(lapse, self.endpoint.watch(&version)).await?;
                let watched = self.watch(events, position).await;
                self.unseen.get_or_insert_with(Instant::now);
                watched?;
            }
            Position::Doubtful(_) if self.futile >= FUTILE => *position = Position::Unknown,
            Position::Doubtful(_) if self.lists.seen.is_interrupted(self.era) => {
                self.is_interrupted = true;
                *position = Position::Unknown;
            }
            Position::Doubtful(version) => {
                let latest = self.lists.seen.latest();
                let now = Self::in_time(lapse, self.endpoint.version()).await?;
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
        let is_late = self.sync.need() == Need::Late;
        if is_late && std::mem::take(&mut self.is_interrupted) {
            lists.unavailable.over().await;
        }
        // The semaphore is never closed.
        let _permit = if is_late { lists.permits.acquire().await.ok() } else { None };
        self.era = lists.seen.era();
        let Self { endpoint, history, .. } = self;
        history.begin_list();
        let mut token = None;
        loop {
            let is_first = token.is_none();
            let show = |item: &[u8]| history.apply(item);
            let mut list = endpoint.page(token, show).await.inspect_err(|error| {
                if error.is_cut_short() {
                    endpoint.page.shrink();
                } else if !is_first && error.is_history_gone() {
                    endpoint.page.expire();
                }
            })?;
            token = list.continue_.take().filter(|token| !token.is_empty());
            if token.is_none() {
                let version = version_of(list)?;
                history.end_list();
                lists.seen.record(&mut self.era, &version);
                endpoint.page.grow();
                self.was_listed = true;
                self.is_absent = false;
                self.unread = None;
                self.is_interrupted = false;
                self.interrupted = None;
                self.sync.mark_synced();
                self.works();
                return Ok(version);
            }
        }
    }

    /// Records that a watch is open.
    fn recovered(&mut self) {
        self.trouble.end();
        self.works();
    }

    /// Records that requests no longer fail.
    fn works(&mut self) {
        self.futile = 0;
        if self.unseen.take().is_some() {
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
        let (mut is_quiet, mut is_dead) = (true, false);
        let mut steady = std::pin::pin!(sleep_until(started + STEADY));
        let mut is_steady = false;
        loop {
            let next = tokio::select! {
                biased;
                // The API server ends a watch at its timeout; if it does not, the connection is dead.
                next = timeout(WATCH_DURATION + SLACK, events.next()) => next.unwrap_or_else(|_| {
                    is_dead = true;
                    None
                }),
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    self.recovered();
                    continue;
                }
            };
            let Some(event) = next else { break };
            let version = self.take(&event?)?;
            is_quiet = false;
            if !is_steady {
                is_steady = true;
                self.recovered();
            }
            if let Position::At(from) = &*position
                && is_older(&version, from)
            {
                return Err(WatchError::Rewound { from: from.clone(), to: version });
            }
            self.lists.seen.record(&mut self.era, &version);
            *position = Position::At(version);
        }
        if is_quiet && !is_steady {
            self.futile += 1;
        }
        if let Position::At(version) = &*position
            && (is_quiet || is_dead || started.elapsed() + SLACK < WATCH_DURATION)
        {
            debug!(
                resource = self.sync.resource(),
                is_quiet, is_dead, "a watch has not ended as it should"
            );
            *position = Position::Doubtful(version.clone());
        }
        Ok(())
    }

    /// Processes one event, and returns its version.
    fn take(&mut self, event: &RawEvent) -> Result<String, WatchError> {
        let text = event.object.get().as_bytes();
        match event.kind {
            EventType::Added | EventType::Modified => self.history.apply(text)?,
            EventType::Deleted => self.history.delete(text)?,
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
