//! The kinds that could be neither listed nor watched for a minute: a finding, metrics and a text for `explain`, and
//! which watches an outage has interrupted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hub_core::finding::{Finding, Reason, Subject};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::observe::health::{SyncState, WatchId};
use crate::observe::metrics::Metrics;
use crate::observe::report::{Clock, Reporter};
use crate::write::error::Category;

/// How long what a watch has shown stays known while its kind can be neither listed nor watched.
pub(super) const LIFETIME: Duration = Duration::from_mins(1);

/// How long the list of a late watch waits after an outage for those of watches that are not late: after the first of
/// them, and while there is none.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);

/// The watches that cannot read their kinds at present, by the object on which that is reported. Clones share them.
#[derive(Clone)]
pub(super) struct UnreadKinds {
    report: Option<(Reporter, Clock)>,
    watches: Arc<Mutex<UnreadWatches>>,
}

type UnreadWatches = BTreeMap<(Subject, WatchId), UnreadWatch>;

struct UnreadWatch {
    /// Several late watches can have the same identity.
    count: i64,
    since: Timestamp,
    why: String,
}

/// How many watches an annotation names, which is limited in size. A process can have hundreds.
const NAMED: usize = 20;

/// A watch that cannot read its kind, until this is dropped.
pub(super) struct Unread {
    kinds: UnreadKinds,
    id: (Subject, WatchId),
    metrics: Metrics,
}

impl UnreadKinds {
    pub(super) fn new(report: Option<(Reporter, Clock)>) -> Self {
        Self { report, watches: Arc::default() }
    }

    /// Records and reports that a watch has not been able to read this path for its [`LIFETIME`].
    pub(super) fn begin(&self, path: &str, sync: &SyncState, category: Category) -> Unread {
        let now = self.report.as_ref().map_or_else(Timestamp::now, |(_, clock)| clock());
        let since = Timestamp::from_second(now.as_second()).unwrap_or(now) - LIFETIME;
        let why = format!("neither listed nor watched since {since} ({})", category.as_str());
        sync.mark_unread(&why);
        let (id, metrics) = ((subject(path), sync.id().clone()), sync.metrics.clone());
        let unread = Unread { kinds: self.clone(), id, metrics };
        unread.change(|watches, id| {
            watches.entry(id).or_insert(UnreadWatch { count: 0, since, why }).count += 1;
        });
        unread
    }

    /// What cannot be read, since when and why.
    pub(super) fn summary(&self) -> Option<String> {
        let watches = self.watches.lock();
        let named = watches.iter().take(NAMED);
        let mut texts: Vec<_> =
            named.map(|((_, watch), unread)| format!("{watch}: {}", unread.why)).collect();
        if watches.len() > NAMED {
            texts.push(format!("and {} others", watches.len() - NAMED));
        }
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

impl Unread {
    /// Changes the record of this watch, then reports and measures.
    fn change(&self, change: impl FnOnce(&mut UnreadWatches, (Subject, WatchId))) {
        let mut watches = self.kinds.watches.lock();
        change(&mut watches, self.id.clone());
        let (subject, watch) = &self.id;
        if let Some((reporter, _)) = &self.kinds.report {
            let of_subject = watches.iter().filter(|((other, _), _)| other == subject);
            let findings = of_subject.map(|((_, watch), UnreadWatch { why, .. })| {
                let message = format!(
                    "{watch}: {why}, so what depends on it is unknown: what exists stays, and nothing is created; see \
                     the log of the controller for the error"
                );
                Finding::new(Reason::KindUnreadable, message)
            });
            reporter.report(subject, None, findings.collect());
        }
        let names = watch.names();
        let alike = || watches.iter().filter(|((_, other), _)| other.names() == names);
        let count = alike().map(|(_, unread)| unread.count).sum();
        self.metrics.unread(names, count, alike().map(|(_, unread)| unread.since).min());
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.change(|watches, id| {
            if let Entry::Occupied(mut unread) = watches.entry(id) {
                unread.get_mut().count -= 1;
                if unread.get().count == 0 {
                    unread.remove();
                }
            }
        });
    }
}

/// The object that stands for the kind at this path: its CRD, or for a kind that is built in, which has none, the
/// `APIService` of its group and version.
fn subject(path: &str) -> Subject {
    let mut parts = path.trim_start_matches('/').split('/');
    let plural = path.rsplit('/').next().unwrap_or_default();
    match (parts.next(), parts.next(), parts.next()) {
        (Some("apis"), Some(group), Some(version)) if group.ends_with(".k8s.io") => {
            Subject::ApiService(format!("{version}.{group}"))
        }
        (Some("apis"), Some(group), _) => Subject::Crd(format!("{plural}.{group}")),
        (_, version, _) => Subject::ApiService(format!("{}.", version.unwrap_or("v1"))),
    }
}

/// The number of watches that an outage has interrupted and that have not listed since. Clones share it. Not a channel
/// of tokio's `watch`, which wakes its receivers in a random order.
#[derive(Clone, Default)]
pub(super) struct Unavailable(Arc<(AtomicUsize, Notify)>);

/// A watch that an outage has interrupted, until this is dropped.
pub(super) struct Interrupted(Unavailable);

impl Unavailable {
    pub(super) fn interrupt(&self) -> Interrupted {
        self.0.0.fetch_add(1, Ordering::AcqRel);
        Interrupted(self.clone())
    }

    /// Waits until there is none, or for a while after one of them has listed, or if none does: a kind that cannot be
    /// listed must not delay others.
    pub(super) async fn over(&self) {
        let mut end = Instant::now() + LONGEST;
        loop {
            let changed = self.0.1.notified();
            if self.0.0.load(Ordering::Acquire) == 0 {
                return;
            }
            tokio::select! {
                biased;
                () = changed => end = end.min(Instant::now() + FIRST),
                () = sleep_until(end) => return,
            }
        }
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.0;
        count.fetch_sub(1, Ordering::AcqRel);
        changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_reported_on_its_crd_or_on_the_apiservice_of_what_is_built_in() {
        for (path, shown) in [
            ("/apis/a.example/v1/things", "CustomResourceDefinition things.a.example"),
            (
                "/apis/multicluster.x-k8s.io/v1/namespaces/ns/things",
                "CustomResourceDefinition things.multicluster.x-k8s.io",
            ),
            ("/api/v1/secrets", "APIService v1."),
            (
                "/apis/rbac.authorization.k8s.io/v1/rolebindings",
                "APIService v1.rbac.authorization.k8s.io",
            ),
        ] {
            assert_eq!(subject(path).to_string(), shown);
        }
    }
}
