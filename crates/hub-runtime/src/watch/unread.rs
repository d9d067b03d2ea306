//! The kinds that could be neither listed nor watched for a minute: a finding, metrics and a text for `explain`, and
//! which watches an outage has interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hub_core::finding::{Finding, Reason, Subject};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::observe::health::{SyncState, WatchId};
use crate::observe::report::{Clock, Reporter};
use crate::write::error::Category;

/// How long what a watch has shown stays known while its kind can be neither listed nor watched.
pub(super) const LIFETIME: Duration = Duration::from_mins(1);

/// How long the list of a late watch waits after an outage for those of watches that are not late: after the first of
/// them, and while there is none.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);

/// What cannot be read at present. Clones share it.
#[derive(Clone)]
pub(super) struct UnreadKinds {
    report: Option<(Reporter, Clock)>,
    kinds: Arc<Mutex<BTreeMap<Subject, OfSubject>>>,
}

/// The watches on one kind that cannot read it.
type OfSubject = BTreeMap<WatchId, OfWatch>;

struct OfWatch {
    /// Several late watches can have the same identity.
    count: usize,
    since: Timestamp,
    why: String,
}

/// How many watches an annotation names, which is limited in size. A process can have hundreds.
const NAMED: usize = 20;

/// A watch that cannot read its kind, until this is dropped.
pub(super) struct Unread {
    kinds: UnreadKinds,
    subject: Subject,
    watch: WatchId,
    sync: SyncState,
}

impl UnreadKinds {
    pub(super) fn new(report: Option<(Reporter, Clock)>) -> Self {
        Self { report, kinds: Arc::default() }
    }

    /// Records and reports that a watch has not been able to read this path for its [`LIFETIME`].
    pub(super) fn begin(&self, path: &str, sync: &SyncState, category: Category) -> Unread {
        let subject = subject(path);
        let now = self.report.as_ref().map_or_else(Timestamp::now, |(_, clock)| clock());
        let since = Timestamp::from_second(now.as_second()).unwrap_or(now) - LIFETIME;
        let watch = sync.id().clone();
        let why = format!("neither listed nor watched since {since} ({})", category.as_str());
        sync.mark_unread(&why);
        sync.metrics.unread(watch.names(), 1);
        {
            let mut kinds = self.kinds.lock();
            let of_subject = kinds.entry(subject.clone()).or_default();
            of_subject.entry(watch.clone()).or_insert(OfWatch { count: 0, since, why }).count += 1;
            self.publish(&subject, of_subject);
            measure(&kinds, sync);
        }
        Unread { kinds: self.clone(), subject, watch, sync: sync.clone() }
    }

    /// What cannot be read, since when and why.
    pub(super) fn summary(&self) -> Option<String> {
        let kinds = self.kinds.lock();
        let watches =
            kinds.values().flatten().map(|(watch, unread)| format!("{watch}: {}", unread.why));
        let mut watches: Vec<_> = watches.collect();
        let others = watches.len().saturating_sub(NAMED);
        watches.truncate(NAMED);
        if others > 0 {
            watches.push(format!("and {others} others"));
        }
        (!watches.is_empty()).then(|| watches.join("; "))
    }

    fn publish(&self, subject: &Subject, of_subject: &OfSubject) {
        if let Some((reporter, _)) = &self.report {
            let findings = of_subject.iter().map(|(watch, OfWatch { why, .. })| {
                let message = format!(
                    "{watch}: {why}, so what depends on it is unknown: what exists stays, and nothing is created; see \
                     the log of the controller for the error"
                );
                Finding::new(Reason::KindUnreadable, message)
            });
            reporter.report(subject, None, findings.collect());
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let Self { kinds, subject, watch, sync } = self;
        sync.metrics.unread(watch.names(), -1);
        let mut all = kinds.kinds.lock();
        let Some(of_subject) = all.get_mut(subject) else { return };
        if let Some(unread) = of_subject.get_mut(watch) {
            unread.count -= 1;
            if unread.count == 0 {
                of_subject.remove(watch);
            }
        }
        kinds.publish(subject, of_subject);
        if of_subject.is_empty() {
            all.remove(subject);
        }
        measure(&all, sync);
    }
}

/// Measures since when the first of the watches with these names cannot be read.
fn measure(kinds: &BTreeMap<Subject, OfSubject>, sync: &SyncState) {
    let names = sync.id().names();
    let alike = kinds.values().flatten().filter(|(watch, _)| watch.names() == names);
    sync.metrics.unread_since(names, alike.map(|(_, unread)| unread.since).min());
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
