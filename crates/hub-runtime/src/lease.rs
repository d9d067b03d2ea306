//! Leadership: a Lease that one process holds, and a claim that expires by itself.
//!
//! Writers ask the [`Fence`] before every write and bound the write by what is left of the claim. The claim
//! ends on our own monotonic clock, counted from *before* the renewal was sent, so a task that hangs, an API
//! server that is out of reach or a process that slept can only make it end too early, never too late.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::backoff;
use crate::error::{Category, summary};
use crate::metrics::Metrics;

/// How long a claim is good for, and how often it is renewed: client-go's own defaults.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// How long before its end a claim counts as lost: time to stop before somebody else begins.
const SAFETY_MARGIN: Duration = Duration::from_secs(2);
/// Shortest and longest wait between two attempts to lead while the API server fails us.
const FAILURE_WAIT_MIN: Duration = Duration::from_millis(500);
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(15);
/// Longest wait for one answer about the Lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which Lease, and who we are.
#[derive(Debug, Clone)]
pub struct LeaseName {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// This process, among all that want the Lease.
    pub identity: String,
}

/// Tells writers whether they may write, and for how long.
#[derive(Debug, Clone)]
pub struct Fence {
    claim: Option<watch::Receiver<Option<Instant>>>,
}

impl Fence {
    /// A fence that is always open: there is no other process.
    #[must_use]
    pub fn open() -> Self {
        Self { claim: None }
    }

    /// How long writing is allowed from now on: `None` when it is not. An open fence sets no limit of its
    /// own and answers the longest duration there is.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let Some(claim) = &self.claim else { return Some(Duration::MAX) };
        let end = (*claim.borrow())?;
        end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// A claim on the Lease, renewed by [`Election::hold`].
pub struct Election {
    api: Api<Lease>,
    lease: LeaseName,
    claim: watch::Sender<Option<Instant>>,
    metrics: Metrics,
    /// What we last saw of somebody else's claim, and when: their clock is not ours, so their claim is
    /// over when it has not changed for its own duration.
    seen: Option<(String, Instant)>,
}

impl Election {
    /// Prepares to stand for election.
    #[must_use]
    pub fn new(client: Client, lease: LeaseName, metrics: Metrics) -> Self {
        let (claim, _) = watch::channel(None);
        Self { api: Api::namespaced(client, &lease.namespace), lease, claim, metrics, seen: None }
    }

    /// The fence of this election: closed until [`Self::acquire`] returns.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { claim: Some(self.claim.subscribe()) }
    }

    /// Waits until we lead. Trouble with the API server is told once per kind and waited out.
    pub async fn acquire(&mut self) {
        let mut told = None;
        let mut backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
        loop {
            let mut wait = RETRY_PERIOD;
            match self.attempt().await {
                Attempt::Leading => {
                    info!(lease = %self.lease.name, namespace = %self.lease.namespace,
                        identity = %self.lease.identity, "leading");
                    return;
                }
                Attempt::Held(holder) => {
                    backoff = backoff::between(FAILURE_WAIT_MIN, FAILURE_WAIT_MAX);
                    if told.as_ref() != Some(&holder) {
                        info!(lease = %self.lease.name, holder, "standing by");
                        told = Some(holder);
                    }
                }
                // Another process was faster; the next attempt sees which.
                Attempt::Failed(Category::Conflict | Category::AlreadyExists, _) => {}
                Attempt::Failed(category, text) => {
                    wait = backoff.next().unwrap_or(FAILURE_WAIT_MAX);
                    let told_as = category.as_str().to_owned();
                    if told.as_ref() != Some(&told_as) {
                        warn!(lease = %self.lease.name, namespace = %self.lease.namespace,
                            category = told_as, error = text, "cannot stand for election, trying again");
                        told = Some(told_as);
                    }
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews the claim until it is lost, and answers why.
    pub async fn hold(&mut self) -> String {
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let attempt = self.attempt().await;
            let lease = &self.lease.name;
            let lost = match attempt {
                Attempt::Leading => continue,
                Attempt::Held(holder) => format!("{holder} has taken the lease {lease}"),
                Attempt::Failed(_, text) => {
                    if self.claim.borrow().is_some_and(|end| Instant::now() < end) {
                        continue;
                    }
                    format!("the lease {lease} could not be renewed in time: {text}")
                }
            };
            self.lose();
            return lost;
        }
    }

    /// Gives the Lease up, so that the next process need not wait for its end.
    pub async fn release(&mut self) {
        self.lose();
        let release = async {
            let mut lease = self.api.get(&self.lease.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(self.lease.identity.as_str()) {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                self.api.replace(&self.lease.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match timeout(CALL_TIMEOUT, release).await {
            Ok(Ok(())) => info!(lease = %self.lease.name, "lease given up"),
            Ok(Err(error)) => {
                warn!(lease = %self.lease.name, error = summary(&error), "cannot give the lease up");
            }
            Err(_) => warn!(lease = %self.lease.name, "cannot give the lease up: no answer in time"),
        }
    }

    fn lose(&self) {
        self.claim.send_replace(None);
        self.metrics.leader(false);
    }

    async fn attempt(&mut self) -> Attempt {
        let asked = Instant::now();
        match timeout(CALL_TIMEOUT, self.try_claim()).await {
            Ok(Ok(None)) => {
                self.claim.send_replace(Some(asked + LEASE_DURATION.saturating_sub(SAFETY_MARGIN)));
                self.metrics.leader(true);
                Attempt::Leading
            }
            Ok(Ok(Some(holder))) => Attempt::Held(holder),
            Ok(Err(error)) => Attempt::Failed(Category::of(&error), summary(&error)),
            Err(_) => Attempt::Failed(Category::Timeout, "no answer in time".to_owned()),
        }
    }

    /// Takes or renews the Lease; answers who else has it.
    async fn try_claim(&mut self) -> Result<Option<String>, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.lease.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.lease.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.claimed(None)),
            };
            return self.api.create(&PostParams::default(), &lease).await.map(|_| None);
        };
        if let Some(holder) = self.other_holder(&lease) {
            return Ok(Some(holder));
        }
        lease.spec = Some(self.claimed(lease.spec.take()));
        // The resourceVersion in `lease` makes this fail if anybody else was faster.
        self.api.replace(&self.lease.name, &PostParams::default(), &lease).await.map(|_| None)
    }

    /// Who else holds the Lease in force.
    fn other_holder(&mut self, lease: &Lease) -> Option<String> {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
        if holder == self.lease.identity {
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

    fn claimed(&self, before: Option<LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let before = before.unwrap_or_default();
        let renewing = before.holder_identity.as_deref() == Some(self.lease.identity.as_str());
        LeaseSpec {
            acquire_time: if renewing { before.acquire_time } else { Some(now.clone()) },
            holder_identity: Some(self.lease.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            lease_transitions: if renewing {
                before.lease_transitions
            } else {
                Some(before.lease_transitions.unwrap_or(0) + 1)
            },
            renew_time: Some(now),
            ..before
        }
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

    fn fence(end: Option<Instant>) -> (watch::Sender<Option<Instant>>, Fence) {
        let (sender, receiver) = watch::channel(end);
        (sender, Fence { claim: Some(receiver) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_ends_by_itself() {
        let (_sender, fence) = fence(Some(Instant::now() + Duration::from_secs(13)));
        assert_eq!(fence.remaining(), Some(Duration::from_secs(13)));
        tokio::time::advance(Duration::from_secs(13)).await;
        assert_eq!(fence.remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_whose_keeper_is_gone_still_ends() {
        let (sender, fence) = fence(Some(Instant::now() + Duration::from_secs(13)));
        drop(sender);
        assert!(fence.remaining().is_some());
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(fence.remaining(), None);
    }

    #[test]
    fn nothing_may_be_written_before_the_first_claim() {
        assert_eq!(fence(None).1.remaining(), None);
        assert!(Fence::open().remaining().is_some());
    }
}
