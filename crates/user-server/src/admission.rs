//! Which requests may be open: a request is admitted by its grant, and ends with it. Needs no network, so the
//! simulation (`e2e/hub-sim`) runs it beside the other controllers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{ClusterName, ProfileKey};
use hub_core::entry::{self, Caller, Refusal};
use hub_core::fleet::{Fleet, Touched};
use hub_core::protected::ProtectedNamespaces;
use hub_process::controller::{Controller, FleetKind};
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::tasks::Tasks;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::sessions::{Open, Session, Sessions};
use crate::streams::Ends;

/// How long requests stay open while something that they rest on cannot be read, after the minute in which it counts as
/// read. Meanwhile none is admitted.
const DOUBT: Duration = Duration::from_mins(5);

/// The kinds that grants depend on.
const GRANTS: &str = "grants";

/// The requests that may be open. Clones share them.
#[derive(Clone)]
pub struct Admission {
    fleet: FleetCache,
    protected: ProtectedNamespaces,
    pub(crate) sessions: Sessions,
    tasks: Tasks,
    doubt: Arc<Mutex<Doubt>>,
}

/// What cannot be read at present, and since when that is not nothing.
#[derive(Default)]
struct Doubt {
    unread: BTreeSet<&'static str>,
    since: Option<Instant>,
}

impl Doubt {
    /// The first of the Secrets that cannot be read.
    fn unread_secret(&self) -> Option<&'static str> {
        self.unread.iter().find(|what| **what != GRANTS).copied()
    }
}

impl Admission {
    /// An admission without open requests, of which each namespace may have this many.
    #[must_use]
    pub fn new(
        shared: &Shared,
        protected: ProtectedNamespaces,
        requests_per_namespace: usize,
    ) -> Self {
        Self {
            fleet: shared.fleet.clone(),
            protected,
            sessions: Sessions::new(requests_per_namespace),
            tasks: shared.host.tasks.clone(),
            doubt: Arc::default(),
        }
    }

    /// Records whether something that every request rests on can be read. Ends what is open if that is not so for
    /// [`DOUBT`].
    pub(crate) fn set_read(&self, what: &'static str, is_read: bool) {
        let mut doubt = self.doubt.lock();
        if is_read {
            doubt.unread.remove(what);
        } else {
            doubt.unread.insert(what);
        }
        if doubt.unread.is_empty() {
            doubt.since = None;
        } else if doubt.since.is_none() {
            let since = Instant::now();
            doubt.since = Some(since);
            let this = self.clone();
            self.tasks.spawn_once("the end of requests in doubt", async move {
                sleep_until(since + DOUBT).await;
                let doubt = this.doubt.lock();
                if doubt.since == Some(since) {
                    tracing::warn!(unread = ?doubt.unread, "closing every open request, which rest on what cannot be read");
                    let secret = doubt.unread_secret();
                    this.sessions.cut(Open::All, |namespace, cluster| {
                        let unknown = || Refusal::GrantUnknown(cluster.in_namespace(namespace));
                        Some(secret.map_or_else(unknown, Refusal::SecretUnread))
                    });
                }
            });
        }
    }

    /// Opens a request to a cluster, if the grant of the caller's namespace allows it.
    pub fn open(&self, caller: &Caller, cluster: &ClusterName) -> Result<Session, Refusal> {
        self.open_with(caller, cluster, 1, Ends::default())
    }

    /// The same for a request that counts as `weight` requests, and is in this stream.
    pub(crate) fn open_with(
        &self,
        caller: &Caller,
        cluster: &ClusterName,
        weight: usize,
        ends: Ends,
    ) -> Result<Session, Refusal> {
        let key = ProfileKey { namespace: caller.namespace.clone(), cluster: cluster.clone() };
        // Opened before the decision, so that a grant that ends in between cuts the request.
        let session = self.sessions.open(key, weight, ends)?;
        entry::admit(&self.fleet.read(), &self.protected, caller, cluster)?;
        let unread = self.doubt.lock().unread_secret();
        unread.map_or(Ok(session), |what| Err(Refusal::SecretUnread(what)))
    }
}

impl Controller for Admission {
    fn name(&self) -> &'static str {
        "user-server"
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Clusters, FleetKind::Grants]
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.set_read(GRANTS, fleet.is_read());
        let cut = |of| {
            self.sessions.cut(of, |namespace, cluster| {
                let is_cut = entry::is_cut(fleet, &self.protected, namespace, cluster);
                is_cut.then(|| Refusal::GrantEnded(cluster.in_namespace(namespace)))
            });
        };
        match touched {
            Touched::Nothing | Touched::Report(_) => {}
            Touched::Cluster(cluster) => {
                cut(Open::To(cluster));
                // A namespace that is that of a cluster has no grants.
                cut(Open::From(&cluster.as_str().into()));
            }
            Touched::Namespaces(namespaces) => namespaces.iter().map(Open::From).for_each(cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use hub_process::process::{Process, Setup};
    use kube::{Client, Config};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn open_requests_end_five_minutes_after_a_secret_became_unknown_unless_all_are_read_before()
     {
        let client = Client::try_from(Config::new("http://localhost:1".parse().unwrap())).unwrap();
        let process = Process::new(Setup::new(client));
        let admission = Admission::new(&process.shared, ProtectedNamespaces::default(), 10);
        let key = || ProfileKey { namespace: "team".into(), cluster: "one".into() };
        let open =
            || admission.sessions.open(key(), 1, Ends::default()).unwrap_or_else(|_| panic!());
        let almost = DOUBT.saturating_sub(Duration::from_secs(1));
        let request = open();
        admission.set_read("one", false);
        admission.set_read("two", false);
        sleep(almost).await;
        admission.set_read("one", true);
        assert_eq!(admission.doubt.lock().unread_secret(), Some("two"));
        admission.set_read("two", true);
        assert_eq!(admission.doubt.lock().unread_secret(), None);
        sleep(2 * DOUBT).await;
        assert!(!request.cut.is_cancelled());
        admission.set_read("two", false);
        sleep(almost).await;
        assert!(!request.cut.is_cancelled());
        sleep(Duration::from_secs(2)).await;
        assert!(request.cut.is_cancelled());
    }
}
