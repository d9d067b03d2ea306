//! Leader election: a Lease for each controller, and claims that expire by themselves.
//!
//! A process acquires the Leases of its controllers one after the other, in the order of their names, before any of
//! them starts; it keeps those that it holds while it waits for the next. So two processes with some controllers in
//! common cannot deadlock. While it waits for one Lease, it also observes those that follow, so that the claims of a
//! process that died expire at the same time and not one after the other.
//!
//! Writers check the [`Fence`] before every write and limit the write to the remaining time of the claims. A claim
//! expires on our own monotonic clock, counted from *before* the renewal was sent, so a task that blocks, an
//! unreachable API server or a process that was stopped can only make it expire too early, never too late. That clock
//! stops while the machine is suspended, so the time spent suspended is subtracted ([`crate::host::suspended`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::RwLock;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::flow::backoff;
use crate::host::suspended;
use crate::observe::metrics::Metrics;
use crate::write::error::{Category, summary};

/// How long a claim is valid, and how often it is renewed: client-go's defaults.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// How often a process reads a Lease that it does not try to acquire yet.
const OBSERVATION_PERIOD: Duration = Duration::from_secs(5);
/// How long before its expiry a claim counts as lost, to stop before another process begins.
const SAFETY_MARGIN: Duration = Duration::from_secs(2);
/// Shortest and longest delay between two attempts while the API server fails.
const FAILURE_WAIT_MIN: Duration = Duration::from_millis(500);
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(15);
/// Timeout of one request for the Lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The namespace of the Leases, and the identity of this process.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub namespace: String,
    /// The identity of this process. It differs for every start, so that the claim of a previous process must expire
    /// first.
    pub identity: String,
}

/// Whether this process may write, and for how long.
#[derive(Debug, Clone)]
#[must_use]
pub struct Fence {
    claims: Option<Arc<LeaseClaims>>,
}

impl Fence {
    /// A fence that is always open, for a single process.
    pub fn open() -> Self {
        Self { claims: None }
    }

    /// A fence that is always closed, for a process that writes nothing.
    pub fn closed() -> Self {
        // Without any claim, [`LeaseClaims::remaining`] returns `None`.
        let claims = LeaseClaims { claims: RwLock::default(), suspended: || Duration::ZERO };
        Self { claims: Some(Arc::new(claims)) }
    }

    /// How long writing is allowed from now on; `None` if it is not. An open fence has no limit and returns
    /// `Duration::MAX`.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.claims.as_ref().map_or(Some(Duration::MAX), |claims| claims.remaining())
    }
}

/// The claims on the Leases that the process needs.
#[derive(Debug)]
struct LeaseClaims {
    claims: RwLock<Vec<Option<Claim>>>,
    suspended: fn() -> Duration,
}

/// A claim on one Lease.
#[derive(Debug, Clone, Copy)]
struct Claim {
    end: Instant,
    /// How long the machine had been suspended when the claim was made.
    suspended: Duration,
}

impl LeaseClaims {
    /// The remaining time of the shortest claim; `None` if one is missing, or if there is none.
    fn remaining(&self) -> Option<Duration> {
        let claims = self.claims.read();
        let (now, suspended) = (Instant::now(), (self.suspended)());
        let left = claims.iter().map(|claim| {
            let claim = (*claim)?;
            let left = claim.end.checked_duration_since(now)?;
            left.checked_sub(suspended.saturating_sub(claim.suspended)).filter(|left| !left.is_zero())
        });
        left.min()?
    }
}

/// Returns the annotation of a Lease and its value for the next renewal; no value removes it.
pub type LeaseAnnotation = Box<dyn Fn() -> Option<(&'static str, Option<String>)> + Send + Sync>;

/// The Leases of a process, renewed by [`Self::hold`].
pub struct Leases {
    client: Client,
    candidate: Candidate,
    metrics: Metrics,
    claims: Arc<LeaseClaims>,
    elections: Vec<Election>,
}

impl Leases {
    /// Leader election without Leases: see [`Self::add`].
    #[must_use]
    pub fn new(client: Client, candidate: Candidate, metrics: Metrics) -> Self {
        // Without any claim, [`LeaseClaims::remaining`] returns `None`.
        let claims = LeaseClaims { claims: RwLock::default(), suspended: suspended::so_far };
        Self { client, candidate, metrics, claims: Arc::new(claims), elections: Vec::new() }
    }

    /// The fence of these Leases: closed until [`Self::acquire`] returns, and after one of them is lost.
    pub fn fence(&self) -> Fence {
        Fence { claims: Some(Arc::clone(&self.claims)) }
    }

    /// Adds the Lease of a controller, with the annotation that it has at each renewal.
    pub fn add(&mut self, controller: &str, annotation: LeaseAnnotation) {
        let mut claims = self.claims.claims.write();
        self.elections.push(Election {
            api: Api::namespaced(self.client.clone(), &self.candidate.namespace),
            name: format!("hub-addons-{controller}"),
            annotation,
            candidate: self.candidate.clone(),
            claims: Arc::clone(&self.claims),
            index: claims.len(),
            held: None,
            may_hold: false,
            seen: None,
        });
        claims.push(None);
        // All processes use the same order, so that no two wait for each other.
        self.elections.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// Waits until this process holds every Lease, or until `stop`, when it holds none. Returns whether it leads.
    /// Failures of the API server are logged once per category and retried.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let mut next = 0;
        loop {
            let (held, rest) = self.elections.split_at_mut(next);
            let Some((election, later)) = rest.split_first_mut() else { break };
            let lost = tokio::select! {
                biased;
                why = hold_all(held) => Some(why),
                never = observe_all(later) => match never {},
                acquired = election.acquire(stop) => {
                    if !acquired {
                        self.release().await;
                        return false;
                    }
                    None
                }
            };
            match lost {
                None => next += 1,
                // Nothing has started yet, so the process can try again for all Leases.
                Some(why) => {
                    warn!("{why}; trying to acquire all leases again");
                    self.release().await;
                    next = 0;
                }
            }
        }
        if stop.is_cancelled() {
            self.release().await;
            return false;
        }
        self.metrics.leader.set(1);
        true
    }

    /// Renews the claims until one is lost, and returns why. The fence is closed from then on.
    pub async fn hold(&mut self) -> String {
        let why = hold_all(&mut self.elections).await;
        self.close();
        why
    }

    /// Releases the Leases, so that the next process need not wait for their expiry. The fence closes immediately.
    pub async fn release(&mut self) {
        self.close();
        futures::future::join_all(self.elections.iter_mut().map(Election::release)).await;
    }

    fn close(&self) {
        self.claims.claims.write().fill(None);
        self.metrics.leader.set(0);
    }
}

async fn hold_all(elections: &mut [Election]) -> String {
    if elections.is_empty() {
        return std::future::pending().await;
    }
    let each = elections.iter_mut().map(|election| Box::pin(election.hold()));
    futures::future::select_all(each).await.0
}

/// Observes the Leases until it is cancelled.
async fn observe_all(elections: &mut [Election]) -> Infallible {
    loop {
        futures::future::join_all(elections.iter_mut().map(Election::observe)).await;
        tokio::time::sleep(OBSERVATION_PERIOD).await;
    }
}

/// The election for one Lease.
struct Election {
    api: Api<Lease>,
    name: String,
    annotation: LeaseAnnotation,
    candidate: Candidate,
    claims: Arc<LeaseClaims>,
    /// The index of our claim in `claims`.
    index: usize,
    /// The Lease as of our last write.
    held: Option<Lease>,
    /// Whether one of our writes may have made us its holder.
    may_hold: bool,
    /// The last observed claim of another process, and when it was observed: its clock may differ from ours, so its
    /// claim has expired if it has not changed for its own duration.
    seen: Option<(String, Instant)>,
}

impl Election {
    /// Waits until we hold the Lease, or until `stop`, and returns whether we do. An attempt in flight is never
    /// cancelled, since its result would be unknown.
    async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let mut told = None;
        let mut backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
        while !stop.is_cancelled() {
            let mut wait = RETRY_PERIOD;
            match self.attempt().await {
                Attempt::Leading => {
                    info!(lease = %self.name, namespace = %self.candidate.namespace,
                        identity = %self.candidate.identity, "leading");
                    return true;
                }
                Attempt::Held(holder) => {
                    backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
                    if told.as_ref() != Some(&holder) {
                        info!(lease = %self.name, holder, "standing by");
                        told = Some(holder);
                    }
                }
                // Another process was faster; the next attempt reads its claim.
                Attempt::Failed(Category::Conflict | Category::AlreadyExists, _) => {}
                Attempt::Failed(category, text) => {
                    wait = backoff.next().unwrap_or(FAILURE_WAIT_MAX);
                    let told_as = category.as_str().to_owned();
                    if told.as_ref() != Some(&told_as) {
                        warn!(lease = %self.name, namespace = %self.candidate.namespace,
                            category = told_as, error = text, "cannot acquire the lease, retrying");
                        told = Some(told_as);
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        false
    }

    /// Reads the Lease, to know since when its claim has not changed. A failure is reported when the process tries to
    /// acquire the Lease.
    async fn observe(&mut self) {
        if let Ok(Ok(Some(lease))) = timeout(CALL_TIMEOUT, self.api.get_opt(&self.name)).await {
            self.other_holder(&lease);
        }
    }

    /// Renews the claim until it is lost, and returns why.
    async fn hold(&mut self) -> String {
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let lease = format!("the lease {}", self.name);
            match self.attempt().await {
                Attempt::Leading => {}
                Attempt::Held(holder) => return format!("{holder} has acquired {lease}"),
                Attempt::Failed(_, text) => {
                    let claim = self.claims.claims.read()[self.index];
                    if claim.is_none_or(|claim| claim.end <= Instant::now()) {
                        return format!("{lease} could not be renewed in time: {text}");
                    }
                }
            }
        }
    }

    /// Releases the Lease, if one of our writes may have made us its holder.
    async fn release(&mut self) {
        self.held = None;
        if !std::mem::take(&mut self.may_hold) {
            return;
        }
        let release = async {
            let mut lease = self.api.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(self.candidate.identity.as_str()) {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                self.api.replace(&self.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match timeout(CALL_TIMEOUT, release).await {
            Ok(Ok(())) => info!(lease = %self.name, "lease released"),
            Ok(Err(error)) => {
                warn!(lease = %self.name, error = summary(&error), "cannot release the lease");
            }
            Err(_) => warn!(lease = %self.name, "cannot release the lease: timed out"),
        }
    }

    async fn attempt(&mut self) -> Attempt {
        let end = Instant::now() + LEASE_DURATION.saturating_sub(SAFETY_MARGIN);
        let claim = Claim { end, suspended: (self.claims.suspended)() };
        match timeout(CALL_TIMEOUT, self.try_claim()).await {
            Ok(Ok(None)) => {
                self.claims.claims.write()[self.index] = Some(claim);
                Attempt::Leading
            }
            Ok(Ok(Some(holder))) => Attempt::Held(holder),
            Ok(Err(error)) => Attempt::Failed(Category::of(&error), summary(&error)),
            Err(_) => Attempt::Failed(Category::Timeout, "timed out".to_owned()),
        }
    }

    /// Acquires or renews the Lease; returns the other holder, if any.
    async fn try_claim(&mut self) -> Result<Option<String>, kube::Error> {
        // The resourceVersion of our last write makes this fail if another client has written since.
        if let Some(lease) = self.held.take() {
            match self.replace(lease).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                replaced => return replaced.map(|()| None),
            }
        }
        if let Some(lease) = self.api.get_opt(&self.name).await? {
            if let Some(holder) = self.other_holder(&lease) {
                return Ok(Some(holder));
            }
            self.replace(lease).await?;
        } else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.claimed(None)),
            };
            self.may_hold = true;
            self.held = Some(self.api.create(&PostParams::default(), &lease).await?);
        }
        Ok(None)
    }

    /// Claims a Lease in the version that was read or written last.
    async fn replace(&mut self, mut lease: Lease) -> Result<(), kube::Error> {
        lease.spec = Some(self.claimed(lease.spec.take()));
        self.annotate(&mut lease.metadata);
        self.may_hold = true;
        self.held = Some(self.api.replace(&self.name, &PostParams::default(), &lease).await?);
        Ok(())
    }

    /// The other holder of an unexpired Lease.
    fn other_holder(&mut self, lease: &Lease) -> Option<String> {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
        if holder == self.candidate.identity {
            return None;
        }
        let version = lease.resource_version().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((version, now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(LEASE_DURATION, Duration::from_secs);
        (since.elapsed() < duration).then(|| holder.to_owned())
    }

    /// Sets the annotation to its current value, which replaces or removes that of another process.
    fn annotate(&self, metadata: &mut ObjectMeta) {
        let Some((key, value)) = (self.annotation)() else { return };
        let annotations = metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(key.to_owned(), value),
            None => annotations.remove(key),
        };
    }

    fn claimed(&self, before: Option<LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let mut spec = before.unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(self.candidate.identity.as_str()) {
            spec.holder_identity = Some(self.candidate.identity.clone());
            spec.acquire_time.clone_from(&now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        spec.renew_time = now;
        spec
    }
}

enum Attempt {
    Leading,
    Held(String),
    Failed(Category, String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{Request, Writer};

    fn fence(claims: &[Option<u64>], suspended: fn() -> Duration) -> Fence {
        let claim = |seconds: u64| Claim {
            end: Instant::now() + Duration::from_secs(seconds),
            suspended: Duration::ZERO,
        };
        let claims = claims.iter().map(|seconds| seconds.map(claim)).collect();
        Fence { claims: Some(Arc::new(LeaseClaims { claims: RwLock::new(claims), suspended })) }
    }

    fn never() -> Duration {
        Duration::ZERO
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_ends_by_itself() {
        let fence = fence(&[Some(13)], never);
        assert_eq!(fence.remaining(), Some(Duration::from_secs(13)));
        tokio::time::advance(Duration::from_secs(13)).await;
        assert_eq!(fence.remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_has_that_much_less_of_its_claim() {
        assert_eq!(fence(&[Some(13)], || Duration::from_secs(5)).remaining(), Some(Duration::from_secs(8)));
        assert_eq!(fence(&[Some(13)], || Duration::from_hours(1)).remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn writing_takes_every_lease_and_lasts_as_long_as_the_shortest() {
        assert_eq!(fence(&[Some(13), Some(4)], never).remaining(), Some(Duration::from_secs(4)));
        assert_eq!(fence(&[Some(13), None], never).remaining(), None);
        assert_eq!(fence(&[], never).remaining(), None, "nothing may be written before the first claim");
        assert!(Fence::open().remaining().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_is_in_flight_when_the_claim_ends() {
        let request = Request { verb: "create", resource: "secrets", name: "ns/a" };
        let begin = Instant::now();
        for (claim, category, seconds) in [
            (Some(4), Category::Timeout, 4),
            (Some(13), Category::Timeout, 14),
            (None, Category::NotLeader, 14),
        ] {
            let writer = Writer::new(fence(&[claim], never), Metrics::new("0"));
            let error = writer.send(request, std::future::pending::<Result<(), _>>()).await.unwrap_err();
            assert_eq!((error.category, begin.elapsed().as_secs()), (category, seconds));
        }
    }

    fn election() -> Election {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let candidate = Candidate { namespace: "addons".to_owned(), identity: "this".to_owned() };
        let mut leases = Leases::new(Client::new(service, "default"), candidate, Metrics::new("0"));
        leases.add("projector", Box::new(|| None));
        leases.elections.remove(0)
    }

    #[tokio::test(start_paused = true)]
    async fn the_claim_of_another_process_lasts_as_long_as_its_lease_says_since_its_last_renewal() {
        let mut election = election();
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some("1".to_owned());
        let spec = lease.spec.insert(LeaseSpec::default());
        spec.holder_identity = Some("other".to_owned());
        spec.lease_duration_seconds = Some(7);
        assert_eq!(election.other_holder(&lease).as_deref(), Some("other"));
        tokio::time::advance(Duration::from_millis(6999)).await;
        assert_eq!(election.other_holder(&lease).as_deref(), Some("other"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(election.other_holder(&lease), None);
        lease.metadata.resource_version = Some("2".to_owned());
        assert_eq!(election.other_holder(&lease).as_deref(), Some("other"), "it was renewed");
    }

    #[tokio::test]
    async fn a_renewal_changes_the_renew_time_alone_and_a_takeover_counts_as_a_transition() {
        let election = election();
        let first = election.claimed(None);
        assert_eq!(first.holder_identity.as_deref(), Some("this"));
        assert_eq!(first.lease_duration_seconds, Some(15));
        assert_eq!(first.lease_transitions, Some(1));
        assert!(first.acquire_time.is_some());
        assert_eq!(first.renew_time, first.acquire_time);

        let long_ago = Some(MicroTime(Timestamp::UNIX_EPOCH));
        let before =
            LeaseSpec { acquire_time: long_ago.clone(), renew_time: long_ago.clone(), ..first.clone() };
        let renewed = election.claimed(Some(before.clone()));
        assert!(renewed.renew_time > long_ago);
        assert_eq!(LeaseSpec { renew_time: long_ago.clone(), ..renewed }, before);

        let others =
            LeaseSpec { holder_identity: Some("other".to_owned()), lease_transitions: Some(4), ..before };
        let taken = election.claimed(Some(others));
        assert_eq!(taken.lease_transitions, Some(5));
        assert_eq!(taken.holder_identity.as_deref(), Some("this"));
        assert!(taken.acquire_time > long_ago);
    }
}
