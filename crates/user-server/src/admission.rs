//! Which requests may be open: a request is admitted by its grant, and ends with it. Needs no network, so the
//! simulation (`e2e/hub-sim`) runs it beside the other controllers.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::entry::{self, Caller, Refusal};
use hub_core::fleet::{Fleet, Touched};
use hub_core::protected::ProtectedNamespaces;
use hub_process::controller::{Controller, FleetKind};
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::tasks::Tasks;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::sessions::{Session, Sessions};

/// How long requests stay open while a kind that grants depend on cannot be read, after the minute in which it counts as
/// read. Meanwhile none is admitted.
const DOUBT: Duration = Duration::from_mins(5);

/// The requests that may be open. Clones share them.
#[derive(Clone)]
pub struct Admission {
    fleet: FleetCache,
    protected: ProtectedNamespaces,
    pub(crate) sessions: Sessions,
    tasks: Tasks,
    /// Since when the fleet cannot be read.
    doubt: Arc<Mutex<Option<Instant>>>,
}

impl Admission {
    /// An admission without open requests, of which each namespace may have this many.
    #[must_use]
    pub fn new(shared: &Shared, protected: ProtectedNamespaces, requests_per_namespace: usize) -> Self {
        Self {
            fleet: shared.fleet.clone(),
            protected,
            sessions: Sessions::new(requests_per_namespace),
            tasks: shared.host.tasks.clone(),
            doubt: Arc::default(),
        }
    }

    /// Ends what is open if the fleet cannot be read for [`DOUBT`].
    fn set_read(&self, is_read: bool) {
        let mut doubt = self.doubt.lock();
        if is_read {
            *doubt = None;
        } else if doubt.is_none() {
            let since = Instant::now();
            *doubt = Some(since);
            let this = self.clone();
            self.tasks.spawn_once("the end of requests in doubt", async move {
                sleep_until(since + DOUBT).await;
                if *this.doubt.lock() == Some(since) {
                    tracing::warn!("closing every open request, since grants cannot be read");
                    this.sessions.cut(|_, _| true);
                }
            });
        }
    }

    /// Opens a request to a cluster, if the grant of the caller's namespace allows it.
    pub fn open(&self, caller: &Caller, cluster: &ClusterName) -> Result<Session, Refusal> {
        self.open_with(caller, cluster, 1, CancellationToken::new())
    }

    /// The same for a request that counts as `weight` requests, and ends with `cut`.
    pub(crate) fn open_with(
        &self,
        caller: &Caller,
        cluster: &ClusterName,
        weight: usize,
        cut: CancellationToken,
    ) -> Result<Session, Refusal> {
        let key = ProfileKey { namespace: caller.namespace.clone(), cluster: cluster.clone() };
        // Opened before the decision, so that a grant that ends in between cuts the request.
        let session = self.sessions.open(key, weight, cut)?;
        entry::admit(&self.fleet.read(), &self.protected, caller, cluster)?;
        Ok(session)
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
        self.set_read(fleet.is_read());
        let concerns = |namespace: &Namespace, cluster: &ClusterName| match touched {
            Touched::Nothing => false,
            Touched::Cluster(touched) => touched == cluster || touched.as_str() == namespace.as_str(),
            Touched::Namespaces(touched) => touched.contains(namespace),
        };
        self.sessions.cut(|namespace, cluster| {
            concerns(namespace, cluster) && entry::is_cut(fleet, &self.protected, namespace, cluster)
        });
    }
}
