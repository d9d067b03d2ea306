//! Failures that concern one verb on one kind in one namespace, and last: what they do not concern converges as fast as
//! without them, what they concern is reported, and converges within seconds of their end.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::{DEADLINE, Run};
use crate::hub::{ACCOUNTS, CLUSTERS, NAMESPACES};
use crate::operation::Operation;
use crate::oracle;
use crate::world::{FailureMode, PartialFailure};

/// How long a healthy part may take after a change, while another one fails.
const HEALTHY: Duration = Duration::from_secs(4);
/// How long a copy may be missing without a condition that says so.
const REPORTED: Duration = Duration::from_mins(1);
/// How long the end of a grant may take after the end of its failure. It is retried every five seconds.
const REVOKED: Duration = Duration::from_secs(7);
/// How long a request may still hang that was sent before the end of its failure.
const HUNG: Duration = Duration::from_secs(10);
/// How long everything else may take after the end of its failure.
const RECOVERED: Duration = Duration::from_secs(45);

impl PartialFailure {
    /// Whether a difference can follow from the failure.
    fn explains(&self, difference: &str) -> bool {
        let (of, _) = difference.split_once(':').unwrap_or((difference, ""));
        let namespace = |kind: &str, prefix: &str| {
            let rest = of.strip_prefix(prefix);
            self.plural == kind
                && rest.is_some_and(|rest| {
                    self.namespace.is_none_or(|it| rest.starts_with(&format!("{it}/")))
                })
        };
        let is_condition = of.starts_with("account ") && !of.ends_with("exists without a grant");
        match self.plural {
            "events" => false,
            "clusterprofiles" | "secrets" | "rolebindings" if is_condition => true,
            "clusterprofiles" => {
                namespace("clusterprofiles", "profile ")
                    || namespace("clusterprofiles", "cluster Secret ")
                    || of.starts_with("Kueue's objects")
            }
            "secrets" => {
                namespace("secrets", "copy ")
                    || namespace("secrets", "cluster Secret ")
                    || namespace("secrets", "")
            }
            // Without the permission, a copy is neither created nor deleted.
            "rolebindings" => {
                namespace("rolebindings", "RoleBinding ")
                    || namespace("rolebindings", "copy ")
                    || namespace("rolebindings", "")
            }
            "managedserviceaccounts" if self.method == "PATCH" => {
                is_condition || of.starts_with("access of")
            }
            _ => {
                of.starts_with("access of")
                    || of.starts_with("Role ")
                    || of.starts_with("Kueue's objects")
                    || is_condition
            }
        }
    }
}

impl Run<'_> {
    /// If a failure lasts: ends all other faults, lets it last for minutes, and checks what it delays.
    pub(super) async fn outlast(&mut self) {
        if self.world.lock().network.partial.is_empty() {
            return;
        }
        self.others.end_passing_faults();
        self.start(0);
        self.world.end_crashes();
        let mut rng = Rng::with_seed(self.schedule.seed);
        // The deadlines after other faults apply.
        if !self.wait_for_healthy(DEADLINE * 5, "beside a lasting failure").await {
            return;
        }
        // A request that hangs may do so for a minute longer than the fault, and nothing shows that it is a watch.
        sleep(Duration::from_secs(rng.u64(75..240))).await;
        self.expect_reports().await;
        for round in 0..2 {
            self.change_something(&mut rng, round);
            if !self.wait_for_healthy(HEALTHY, "delayed by a failure elsewhere").await {
                return;
            }
        }
        let ended = std::mem::take(&mut self.world.lock().network.partial);
        if ended.iter().any(|failure| failure.mode == FailureMode::Timeout) {
            sleep(HUNG).await;
        }
        for (after, all) in [(REVOKED, false), (RECOVERED.saturating_sub(REVOKED), true)] {
            sleep(after).await;
            self.collect();
            let late = self.after_the_end(all);
            if !late.is_empty() {
                self.outcome.violations.push(format!(
                    "not within seconds of the end of a failure: {}",
                    late.join("; ")
                ));
                return;
            }
        }
    }

    /// What every agent, user and controller does all day: tokens are rotated, clusters change, a grant ends.
    fn change_something(&self, rng: &mut Rng, round: u8) {
        use Operation as O;
        let (variant, health) = (rng.u8(..), rng.u8(..));
        for cluster in (0_u8..).take(CLUSTERS.len()) {
            self.others.perform(O::Health(cluster, health));
            for account in (0_u8..).take(ACCOUNTS.len()) {
                if !self.schedule.setting.consumers {
                    self.others.perform(O::Report(cluster, account, variant));
                }
            }
        }
        if round > 0 {
            let namespace = rng.u8(..2);
            self.others.perform(O::Unbind(namespace, rng.u8(..2)));
            self.others.perform(O::Ask(rng.u8(..3), rng.u8(..2), false));
        }
    }

    /// The differences that no lasting failure explains.
    fn unexplained(&self) -> Vec<String> {
        let (partial, unlabelled) = {
            let state = self.world.lock();
            (state.network.partial.clone(), oracle::unlabelled_profiles(&state.server))
        };
        // A copy is neither created nor replaced under a profile whose label is missing; the projector restores that.
        let waits_for_label = |difference: &str| {
            let of = difference.strip_prefix("copy ").and_then(|it| it.split_once(": "));
            let of = of.filter(|(_, what)| *what == "is missing" || what.starts_with("differs"));
            let namespace =
                of.and_then(|(of, _)| of.split_once('/')).map(|(namespace, _)| namespace);
            namespace.is_some_and(|namespace| {
                let is_there = |it: &PartialFailure| it.namespace.is_none_or(|it| it == namespace);
                unlabelled.iter().any(|it| it == namespace)
                    && partial.iter().any(|it| it.plural == "clusterprofiles" && is_there(it))
            })
        };
        let (_, mut wrong) = self.look();
        // The permission outlives the grant by minutes.
        wrong.retain(|it| {
            !it.ends_with("exists without a ManagedClusterSetBinding")
                && !waits_for_label(it)
                && !partial.iter().any(|failure| failure.explains(it))
        });
        wrong
    }

    /// Whether the account of a consumer may remain because a request for the same cluster hangs, which was sent before the
    /// grant ended.
    fn may_hang(&self, difference: &str) -> bool {
        let partial = &self.world.lock().network.partial;
        let account = difference
            .strip_suffix(" exists without a grant")
            .and_then(|it| it.strip_prefix("account "));
        let Some((cluster, _)) = account.and_then(|account| account.split_once('/')) else {
            return false;
        };
        partial.iter().any(|failure| {
            failure.mode == FailureMode::Timeout
                && ["managedserviceaccounts", "manifestworks", "clusterpermissions"]
                    .contains(&failure.plural)
                && failure.namespace.is_none_or(|namespace| namespace == cluster)
        })
    }

    async fn wait_for_healthy(&mut self, limit: Duration, what: &str) -> bool {
        let begin = self.world.lock().elapsed();
        loop {
            sleep(Duration::from_millis(250)).await;
            self.collect();
            if self.schedule.setting.consumers {
                self.others.agents();
            }
            if self.is_broken(false) {
                return false;
            }
            let wrong = self.unexplained();
            if wrong.is_empty() {
                return true;
            }
            let passed = self.world.lock().elapsed().saturating_sub(begin);
            if passed > limit
                && !(passed <= limit + HUNG && wrong.iter().all(|it| self.may_hang(it)))
            {
                self.outcome.violations.push(format!("{what}: {}", wrong.join("; ")));
                return false;
            }
        }
    }

    /// A copy that cannot be created or updated does not count as synced.
    async fn expect_reports(&mut self) {
        let unreported = |run: &Self| {
            let state = run.world.lock();
            let partial = &state.network.partial;
            let silent = partial
                .iter()
                .any(|it| it.plural == "managedserviceaccounts" && it.method == "PATCH");
            let failing = |namespace: &str| {
                partial.iter().any(|it| {
                    it.plural == "secrets"
                        && it.method != "DELETE"
                        && it.namespace == Some(namespace)
                })
            };
            let namespaces = NAMESPACES.into_iter().filter(|it| !silent && failing(it));
            let missing =
                namespaces.flat_map(|it| oracle::unreported(&state.server, &state.monitor, it));
            missing.collect::<Vec<_>>()
        };
        let before = unreported(self);
        if before.is_empty() {
            return;
        }
        sleep(REPORTED).await;
        let mut late = unreported(self);
        late.retain(|it| before.contains(it));
        if !late.is_empty() {
            self.outcome
                .violations
                .push(format!("not reported while it lasts: {}", late.join("; ")));
        }
    }

    /// What is wrong some seconds after the end of a failure: what has ended with a grant, or everything.
    fn after_the_end(&self, all: bool) -> Vec<String> {
        let state = self.world.lock();
        let surplus = oracle::surplus(&state.server, &state.monitor);
        drop(state);
        let mut wrong = if all { self.unexplained() } else { surplus.into_iter().collect() };
        if self.schedule.setting.consumers {
            // Agents have not seen it yet.
            wrong.retain(|it| !it.starts_with("access of") && !it.starts_with("Kueue's objects"));
        }
        wrong
    }
}
