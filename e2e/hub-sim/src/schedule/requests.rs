//! Requests by own identities: each is admitted exactly if its cluster is granted, and ends with its grant.

use std::sync::Arc;
use std::time::Duration;

use hub_core::entry::Caller;
use serde_json::Value;
use user_server::Session;

use super::{REVOCATION, Run};
use crate::grant;
use crate::hub::{CLUSTERS, NAMESPACES};
use crate::model::Server;
use crate::monitor::{GRANTS, ProcessId};
use crate::operation::{Index, at};
use crate::world::{UNREAD, World};

/// How long requests stay open after the minute.
const DOUBT: Duration = Duration::from_mins(5);

/// An open request.
pub(super) struct OpenRequest {
    process: ProcessId,
    namespace: &'static str,
    cluster: &'static str,
    session: Session,
    /// Since when its cluster is not granted.
    misplaced: Option<Duration>,
    /// What decided about it when it was opened; `None` if that has changed since, or shortly before. Two changes can be seen
    /// in another order than they were made in, so that a grant seems to end in between, and a process sees a change
    /// later than it is made.
    decided_by: Option<Decides>,
}

/// What grants clusters: the labels of the cluster, whether it is accepted, the sets and the bindings.
pub(super) type Decides = (Option<[Value; 3]>, Vec<Arc<Value>>);

fn decides(server: &Server, cluster: &str) -> Decides {
    let cluster = server.object("managedclusters", "", cluster);
    let fields = ["labels", "generation", "deletionTimestamp"];
    let kinds = ["managedclustersets", "managedclustersetbindings"];
    let grants = kinds.iter().flat_map(|kind| server.objects_of(kind)).cloned();
    (cluster.map(|it| fields.map(|field| it["metadata"][field].clone())), grants.collect())
}

/// Opens a request in each user server that works; returns those that are admitted, and whether any refused it.
fn open(world: &World, namespace: &'static str, cluster: &'static str) -> (Vec<OpenRequest>, bool) {
    let admissions = world.lock().admissions.clone();
    let decided_by = decides(&world.lock().server, cluster);
    let (mut admitted, mut is_refused) = (Vec::new(), false);
    for (process, admission) in admissions {
        let caller = Caller { namespace: namespace.into(), name: "application".to_owned() };
        match admission.open(&caller, &cluster.into()) {
            Ok(session) => admitted.push(OpenRequest {
                process,
                namespace,
                cluster,
                session,
                misplaced: None,
                decided_by: Some(decided_by.clone()),
            }),
            Err(_) => is_refused = true,
        }
    }
    (admitted, is_refused)
}

impl Run<'_> {
    pub(super) fn request(&mut self, namespace: Index, cluster: Index) {
        let cluster = at(&CLUSTERS, cluster);
        let (mut admitted, _) = open(&self.world, at(&NAMESPACES, namespace), cluster);
        let now = self.world.lock().elapsed();
        let is_settled = self
            .decided
            .get(cluster)
            .is_some_and(|(_, since)| now.saturating_sub(*since) > REVOCATION);
        for request in &mut admitted {
            request.decided_by.take_if(|_| !is_settled);
        }
        self.requests.extend(admitted);
    }

    /// The requests that are open although their cluster is not granted. While nothing fails, they may be so for seconds, and
    /// none is cut whose cluster is granted.
    pub(super) fn check_requests(&mut self, calm: bool) -> Vec<String> {
        if !self.schedule.setting.user_server {
            return Vec::new();
        }
        self.expect_knowledge();
        let state = self.world.lock();
        let now = state.elapsed();
        for cluster in CLUSTERS {
            let decided = decides(&state.server, cluster);
            if self.decided.get(cluster).is_none_or(|(before, _)| *before != decided) {
                self.decided.insert(cluster, (decided, now));
            }
        }
        self.requests.retain(|request| state.is_alive(request.process));
        let mut left = Vec::new();
        for request in &mut self.requests {
            let OpenRequest { namespace, cluster, .. } = request;
            let granted = grant::granted(&state.server, namespace, cluster);
            let is_cut = request.session.cut.is_cancelled();
            request.decided_by.take_if(|before| *before != decides(&state.server, cluster));
            if calm && is_cut && request.decided_by.is_some() && granted == Some(true) {
                let violation =
                    format!("a request was cut although {namespace} is granted {cluster}");
                self.outcome.violations.push(violation);
            }
            if is_cut || granted != Some(false) {
                request.misplaced = None;
                continue;
            }
            left.push(format!("a request from {namespace} to {cluster}: outlives its grant"));
            let since = *request.misplaced.get_or_insert(now);
            if calm && now.saturating_sub(since) > REVOCATION {
                let violation =
                    format!("a request from {namespace} to {cluster} outlives its grant");
                self.outcome.violations.push(violation);
            }
        }
        left
    }

    /// While a kind that grants rest on could not be read for a minute, no request is admitted, and after five more none
    /// is open.
    fn expect_knowledge(&mut self) {
        let unread = |time| {
            let unread = self.world.lock().network.unread_for(time);
            unread.into_iter().find(|kind| GRANTS.contains(kind))
        };
        if let Some(kind) = unread(UNREAD) {
            self.world.count("requests while a kind could not be read");
            for (namespace, cluster) in
                NAMESPACES.into_iter().flat_map(|it| CLUSTERS.map(|cluster| (it, cluster)))
            {
                if !open(&self.world, namespace, cluster).0.is_empty() {
                    self.outcome.violations.push(format!(
                        "a request from {namespace} to {cluster} is admitted although {kind} could not be read for a minute"
                    ));
                }
            }
        }
        if let Some(kind) = unread(UNREAD + DOUBT) {
            let state = self.world.lock();
            let open = self
                .requests
                .iter()
                .filter(|it| state.is_alive(it.process) && !it.session.cut.is_cancelled());
            let open: Vec<_> =
                open.map(|it| format!("from {} to {}", it.namespace, it.cluster)).collect();
            drop(state);
            for request in open {
                let violation = format!(
                    "a request {request} is open although {kind} could not be read for minutes"
                );
                self.outcome.violations.push(violation);
            }
        }
    }

    /// At rest, what is granted is admitted, and nothing else.
    pub(super) fn expect_admissions(&mut self) {
        for namespace in NAMESPACES {
            for cluster in CLUSTERS {
                let granted = grant::granted(&self.world.lock().server, namespace, cluster);
                let (admitted, is_refused) = open(&self.world, namespace, cluster);
                let is_wrong =
                    if granted == Some(true) { is_refused } else { !admitted.is_empty() };
                if is_wrong {
                    let verb = if is_refused { "refused" } else { "admitted" };
                    let violation = format!(
                        "a request from {namespace} to {cluster} is {verb}, and its grant is {granted:?}"
                    );
                    self.outcome.violations.push(violation);
                }
            }
        }
    }
}
