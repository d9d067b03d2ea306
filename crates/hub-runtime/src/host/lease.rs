//! Leader election: one Lease for each Deployment, and a [`Claim`] that expires by itself.
//!
//! Every writer asks the claim before it sends a write. It expires on the monotonic clock of this process, two seconds
//! before the Lease can be acquired by another process, and counted from before the renewal was sent. So a task that
//! blocks, an API server that does not respond, or a process that was stopped can only make it expire too early.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::flow::backoff;
use crate::observe::metrics::Metrics;
use crate::write::error::{Category, summary};

/// How long the Lease is valid, and how often it is renewed: client-go's defaults.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// How long the claim is valid: shorter than the Lease, to stop before another process begins.
const CLAIM_DURATION: Duration = Duration::from_secs(13);
/// Timeout of one request for the Lease. An API server that takes five seconds for each still has a leader, and after a
/// renewal without a response there is time for a second one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);
/// Shortest and longest delay between two attempts to acquire the Lease while the API server fails.
const FAILURE_WAIT_MIN: Duration = Duration::from_millis(500);
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(15);

/// A process that wants to lead.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The namespace and the name of the Lease.
    pub namespace: String,
    pub lease: String,
    /// The identity of this process. It differs for every start, so that the claim of a previous process must expire
    /// first.
    pub identity: String,
}

/// Whether this process may begin a write.
#[derive(Debug, Clone)]
#[must_use]
pub enum Claim {
    /// The process takes part in no election.
    Always,
    /// The process writes nothing.
    Never,
    /// The process may write until this time, if it holds the Lease.
    Until(watch::Receiver<Option<Instant>>),
}

impl Claim {
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Until(end) => end.borrow().is_some_and(|end| Instant::now() < end),
        }
    }
}

/// Returns the annotations that the Lease has with its next renewal; one without a value is removed.
pub type Annotations = Box<dyn Fn() -> Vec<(&'static str, Option<String>)> + Send + Sync>;

/// The election of the process that leads.
pub struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    metrics: Metrics,
    pub annotations: Annotations,
    /// When our claim expires.
    claim: watch::Sender<Option<Instant>>,
    /// The Lease as of our last write that succeeded.
    held: Option<Lease>,
    /// Whether one of our writes may have made us its holder.
    may_hold: bool,
    /// The version with the claim of another process, and when it was first observed: its clock may differ from ours, so
    /// its claim has expired if the Lease has not changed for its own duration.
    seen: Option<(String, Instant)>,
}

impl Election {
    #[must_use]
    pub fn new(client: Client, candidate: Candidate, metrics: Metrics) -> Self {
        metrics.leads(false);
        Self {
            api: Api::namespaced(client, &candidate.namespace),
            candidate,
            metrics,
            annotations: Box::new(Vec::new),
            claim: watch::Sender::default(),
            held: None,
            may_hold: false,
            seen: None,
        }
    }

    /// The claim of this process: not valid until [`Self::acquire`] returns, and after the Lease is lost.
    pub fn claim(&self) -> Claim {
        Claim::Until(self.claim.subscribe())
    }

    /// Waits until this process holds the Lease, or until `stop`, when it does not. Returns whether it leads. A request
    /// in flight is never cancelled, since its result would be unknown. Failures of the API server are logged once per
    /// category and retried.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let Candidate { namespace, lease, identity } = self.candidate.clone();
        let mut logged = String::new();
        let mut backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
        while !stop.is_cancelled() {
            let mut next = Instant::now() + RETRY_PERIOD;
            match self.attempt().await {
                Ok(None) if stop.is_cancelled() => break,
                Ok(None) => {
                    info!(lease, namespace, identity, "leading");
                    self.metrics.leads(true);
                    return true;
                }
                Ok(Some(holder)) => {
                    backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
                    if logged != holder {
                        info!(lease, holder, "standing by");
                        logged = holder;
                    }
                }
                // Another process was faster; the next attempt reads its claim.
                Err(Failure(Category::Conflict | Category::AlreadyExists, _)) => {}
                Err(Failure(category, error)) => {
                    next = Instant::now() + backoff.next().unwrap_or(FAILURE_WAIT_MAX);
                    let category = category.as_str();
                    if logged != category {
                        warn!(
                            lease,
                            namespace, category, error, "cannot acquire the lease, retrying"
                        );
                        category.clone_into(&mut logged);
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep_until(next) => {}
            }
        }
        self.release().await;
        false
    }

    /// Renews the claim until the Lease is lost, and returns why. The claim is not valid from then on.
    pub async fn hold(&mut self) -> String {
        let lease = self.candidate.lease.clone();
        let mut sent = Instant::now();
        let why = loop {
            sleep_until(sent + RETRY_PERIOD).await;
            sent = Instant::now();
            match self.attempt().await {
                Ok(None) => {}
                Ok(Some(holder)) => break format!("{holder} has acquired the lease {lease}"),
                Err(_) if self.claim().is_valid() => {}
                Err(Failure(_, error)) => {
                    break format!("the lease {lease} could not be renewed in time: {error}");
                }
            }
        };
        self.end_claim();
        why
    }

    /// Releases the Lease, if one of our writes may have made us its holder, so that the next process need not wait for
    /// its expiry. The claim ends immediately.
    pub async fn release(&mut self) {
        self.end_claim();
        self.held = None;
        if std::mem::take(&mut self.may_hold)
            && let Err(Failure(_, error)) = self.try_release().await
        {
            warn!(lease = self.candidate.lease, error, "cannot release the lease");
        }
    }

    async fn try_release(&self) -> Result<(), Failure> {
        let name = &self.candidate.lease;
        let mut lease = in_time(self.api.get(name)).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&self.candidate.identity) {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            in_time(self.api.replace(name, &PostParams::default(), &lease)).await?;
            info!(lease = name, "lease released");
        }
        Ok(())
    }

    fn end_claim(&self) {
        self.claim.send_replace(None);
        self.metrics.leads(false);
    }

    /// Acquires or renews the Lease; returns the other holder, if any.
    async fn attempt(&mut self) -> Result<Option<String>, Failure> {
        // The resourceVersion of our last write makes this fail if another client has written since.
        if let Some(lease) = self.held.clone() {
            match self.write(lease).await {
                Err(Failure(Category::Conflict | Category::NotFound, _)) => self.held = None,
                written => return written.map(|()| None),
            }
        }
        let lease = in_time(self.api.get_opt(&self.candidate.lease)).await?;
        if let Some(lease) = &lease
            && let Some(holder) = self.other_holder(lease)
        {
            return Ok(Some(holder));
        }
        self.write(lease.unwrap_or_default()).await?;
        Ok(None)
    }

    /// Claims the Lease in the version that was read or written last, or creates it.
    async fn write(&mut self, mut lease: Lease) -> Result<(), Failure> {
        lease.spec = Some(self.claimed(lease.spec.take()));
        self.annotate(&mut lease.metadata);
        let (name, params) = (&self.candidate.lease, PostParams::default());
        self.may_hold = true;
        let sent = Instant::now();
        let written = if lease.metadata.resource_version.is_some() {
            in_time(self.api.replace(name, &params, &lease)).await?
        } else {
            lease.metadata.name = Some(name.clone());
            in_time(self.api.create(&params, &lease)).await?
        };
        self.held = Some(written);
        self.claim.send_replace(Some(sent + CLAIM_DURATION));
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

    /// Sets the annotations to their current values, which replace or remove those of another process.
    fn annotate(&self, metadata: &mut ObjectMeta) {
        for (key, value) in (self.annotations)() {
            let annotations = metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => annotations.insert(key.to_owned(), value),
                None => annotations.remove(key),
            };
        }
    }

    fn claimed(&self, before: Option<LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let mut spec = before.unwrap_or_default();
        if spec.holder_identity.as_ref() != Some(&self.candidate.identity) {
            spec.holder_identity = Some(self.candidate.identity.clone());
            spec.acquire_time.clone_from(&now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        spec.renew_time = now;
        spec
    }
}

/// Why a request for the Lease failed: the category and the text.
struct Failure(Category, String);

async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result.map_err(|error| Failure(Category::of(&error), summary(&error))),
        Err(_) => Err(Failure(Category::Timeout, "timed out".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::write::Writer;
    use crate::write::execute::Target;

    #[tokio::test(start_paused = true)]
    async fn a_claim_ends_by_itself_and_lets_a_write_finish_that_was_sent_before() {
        let (claim, end) = watch::channel(None);
        let writer = Writer::new(Claim::Until(end), Metrics::new("0"));
        let send = async |takes: u64| {
            let target = Target::of::<Secret>("secrets", &(), Some("ns"), "a");
            let write = async {
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok(())
            };
            writer.send("create", &target, write).await.map_err(|error| error.category)
        };
        assert_eq!(send(0).await, Err(Category::NotLeader), "before the first claim");
        claim.send_replace(Some(Instant::now() + Duration::from_secs(13)));
        assert_eq!(send(9).await, Ok(()));
        assert_eq!(send(9).await, Ok(()), "five seconds longer than the claim");
        assert_eq!(send(0).await, Err(Category::NotLeader));
        assert!(Claim::Always.is_valid() && !Claim::Never.is_valid());
    }

    fn election() -> Election {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let candidate = Candidate {
            namespace: "addons".to_owned(),
            lease: "hub-addons".to_owned(),
            identity: "this".to_owned(),
        };
        Election::new(Client::new(service, "default"), candidate, Metrics::new("0"))
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
        let before = LeaseSpec {
            acquire_time: long_ago.clone(),
            renew_time: long_ago.clone(),
            ..first.clone()
        };
        let renewed = election.claimed(Some(before.clone()));
        assert!(renewed.renew_time > long_ago);
        assert_eq!(LeaseSpec { renew_time: long_ago.clone(), ..renewed }, before);

        let others = LeaseSpec {
            holder_identity: Some("other".to_owned()),
            lease_transitions: Some(4),
            ..before
        };
        let taken = election.claimed(Some(others));
        assert_eq!(taken.lease_transitions, Some(5));
        assert_eq!(taken.holder_identity.as_deref(), Some("this"));
        assert!(taken.acquire_time > long_ago);
    }
}
