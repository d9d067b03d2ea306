//! A schedule: a list of operations and a seed. Runs it and checks that the processes converge afterwards.

mod partial;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use hub_api::crds::{self, Flavour};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::sleep;

use self::requests::{Decides, OpenRequest};
use crate::consumers::{self, Permissions};
use crate::hub;
use crate::model::Server;
use crate::monitor::{Counts, ProcessId};
use crate::operation::{Operation, Others, crash_point};
use crate::oracle;
use crate::process::{Gates, Means, start};
use crate::world::World;

/// How the controllers are spread over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// All controllers in one process.
    One,
    /// As the chart installs them: one process for the writers of profiles, one for the syncer, and one for consumer
    /// access.
    Chart,
    /// Each in a process of its own: projector, provisioner, syncer, `credential-rights` and consumer access.
    Apart,
}

impl Layout {
    fn gates(self, setting: &Setting) -> Vec<Gates> {
        let consumers = setting.consumers;
        let mut gates = match self {
            Self::One => vec![Gates { consumers, ..Gates::ALL }],
            Self::Chart => vec![Gates::PROFILES, Gates::CREDENTIALS],
            Self::Apart => {
                vec![Gates::PROJECTOR, Gates::PROVISIONER, Gates::CREDENTIALS, Gates::RIGHTS]
            }
        };
        gates.extend((consumers && self != Self::One).then_some(Gates::CONSUMERS));
        gates.extend(setting.user_server.then_some(Gates::USER_SERVER));
        gates
    }
}

/// [`Flavour`], as a recorded schedule names it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Flavour")]
enum FlavourName {
    Map,
    Atomic,
    V1alpha2,
}

/// The setup of the hub and its processes; what a recorded schedule leaves out is as in [`Setting::PLAIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// How the controllers are spread over processes.
    pub layout: Layout,
    /// The CRD of ClusterProfile.
    #[serde(with = "FlavourName")]
    pub profiles: Flavour,
    /// How the processes find Secrets, and whether they take part in leader election.
    pub means: Means,
    /// The maximum number of objects in one page of a list; 0 for no maximum.
    pub page: usize,
    /// Whether there are consumers: first those of the first two variants.
    pub consumers: bool,
    /// Whether there is a user server, in a process of its own.
    pub user_server: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl Setting {
    /// All controllers in one process, without consumers and Leases, and with permission to read every Secret, on a hub with the CRD
    /// of cluster-inventory-api's current release.
    pub const PLAIN: Self = Self {
        layout: Layout::One,
        profiles: Flavour::Map,
        means: Means { granted: false, leases: false },
        page: 0,
        consumers: false,
        user_server: false,
    };

    fn random(rng: &mut Rng, consumers: bool) -> Self {
        Self {
            layout: [Layout::One, Layout::One, Layout::Chart, Layout::Apart][rng.usize(..4)],
            profiles: Flavour::ALL[rng.usize(..Flavour::ALL.len())],
            means: Means { granted: rng.u8(..3) == 0, leases: rng.u8(..6) == 0 },
            page: [0, 0, 0, 1, 2][rng.usize(..5)],
            consumers,
            user_server: false,
        }
    }
}

/// The input of a run. The same schedule always leads to the same requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Decides every delay.
    pub seed: u64,
    /// The setup of the hub and its processes.
    pub setting: Setting,
    /// The operations in order, each with the pause after it in milliseconds.
    pub operations: Vec<(Operation, u16)>,
}

/// The hubs that schedules begin on, by the flavour of their CRDs. Built once, since it takes long to read the CRDs.
pub struct Hubs(Vec<(Flavour, Server)>);

impl Default for Hubs {
    fn default() -> Self {
        let hub = |lists| {
            let crds: Vec<Value> =
                serde_saphyr::from_multiple(&crds::all(lists)).unwrap_or_default();
            (lists, hub::server(crds.into_iter().chain(consumers::crds())))
        };
        Self(Flavour::ALL.into_iter().map(hub).collect())
    }
}

impl Hubs {
    /// A hub with this setup.
    #[must_use]
    pub fn of(&self, setting: &Setting) -> Option<Server> {
        let (_, server) = self.0.iter().find(|(flavour, _)| *flavour == setting.profiles)?;
        let mut server = server.clone();
        server.page = setting.page;
        if setting.consumers {
            consumers::install_objects(&mut server);
        }
        Some(server)
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The violations, if any. The run ends with the first.
    pub violations: Vec<String>,
    /// How often each kind of operation was performed.
    pub operations: BTreeMap<String, u64>,
    /// The counters.
    pub counts: Counts,
    /// The time from the end of the last fault until the outputs were right.
    pub converged_after: Duration,
    /// The requests of the busiest minute.
    pub busiest_minute: u64,
    /// Every request, in order.
    pub trace: Vec<String>,
}

/// Longest time from the end of the faults until the outputs are right: a watch that has lost its connection unnoticed
/// ends, the controllers retry a terminating namespace after a minute, and replaced trust anchors stay for a minute.
const DEADLINE: Duration = Duration::from_secs(150);
/// The same for the permission in a namespace that is no longer bound: the syncer has five minutes to delete its
/// copies, a process that starts can wait for a minute for a response, and the outputs are compared every 30 seconds.
const WITHDRAWAL: Duration = Duration::from_mins(7);
/// The same after a refused write: it is retried after five minutes at the latest, or ten if many writes are refused.
const REFUSED: Duration = Duration::from_mins(11);
/// How long a process may still write what the outputs do not include, such as a condition on an account: a request
/// without a response times out after a minute, and the next process waits for the Leases of one that died in turn.
const LINGER: Duration = Duration::from_secs(100);
/// How often agents may have work after that.
const ROUNDS: u32 = 5;
/// How long no write may follow after that: every watch ends once in that time.
const REST: Duration = Duration::from_secs(150);
/// The same for some schedules: every refused write is retried once in that time.
const LONG_REST: Duration = Duration::from_mins(12);
/// How long a token may stay in a namespace without a grant while there are no faults.
const REVOCATION: Duration = Duration::from_secs(3);
/// How long a cluster may be on its way between two decisions of a Placement.
const LEAVING: Duration = Duration::from_secs(5);
/// One in this many schedules has declared consumers: it takes longer than others.
const CONSUMERS: u64 = 5;
/// One in this many schedules has failures that concern one verb, kind and namespace, and last for minutes.
const LASTING: u64 = 3;
/// One in this many schedules has a kind that cannot be read for minutes, and a user server.
const UNREAD: u64 = 9;
/// One in this many schedules has a user server.
const USER_SERVER: u64 = 8;
/// One of this many schedules has an API server that takes up to five seconds for each request.
const SLOW: u64 = 16;
/// The maximum number of requests in a minute, whatever fails.
const REQUESTS_A_MINUTE: u64 = 1500;

impl Schedule {
    /// The schedule of a seed. Most schedules are small, so that their failures are small and more of them run in a
    /// minute.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut setting = Setting::random(&mut rng, seed % CONSUMERS == CONSUMERS - 1);
        let faults = rng.u8(..5) > 1;
        let (clusters, most) = [(1, 6), (1, 6), (2, 12), (3, 24)][rng.usize(..4)];
        let mut operations =
            if rng.u8(..4) > 0 { furnished(clusters, setting.consumers) } else { Vec::new() };
        let begin = rng.usize(..=operations.len());
        operations.insert(begin, Operation::Start(0));
        let length = rng.usize(2..most);
        operations
            .extend((0..length).map(|_| Operation::random(&mut rng, faults, setting.consumers)));
        // Without an earlier backup there is nothing to restore.
        let restore =
            operations.iter().position(|operation| matches!(operation, Operation::Restore(_)));
        if let Some(restore) = restore
            && !operations[..restore].contains(&Operation::Backup)
        {
            operations.insert(rng.usize(..=restore), Operation::Backup);
        }
        if seed % LASTING == LASTING - 1 {
            // From a generator of its own, so that other schedules stay as they are.
            let mut rng = Rng::with_seed(!seed);
            for _ in 0..rng.usize(1..3) {
                let failure = Operation::random_lasting(&mut rng, setting.consumers);
                operations.insert(rng.usize(begin..=operations.len()), failure);
            }
        }
        if seed % USER_SERVER == 2 {
            let mut rng = Rng::with_seed(!seed);
            setting.user_server = true;
            for _ in 0..rng.usize(1..6) {
                let request = Operation::random_request(&mut rng);
                operations.insert(rng.usize(begin..=operations.len()), request);
            }
        }
        if seed % SLOW == 3 {
            let mut rng = Rng::with_seed(!seed);
            let slow = Operation::Slow(rng.u8(1..=50));
            operations.insert(rng.usize(begin..=operations.len()), slow);
        }
        if seed.is_multiple_of(UNREAD) {
            let mut rng = Rng::with_seed(!seed);
            setting.user_server = true;
            let unread = Operation::random_unread(&mut rng, setting.consumers);
            let at = rng.usize(begin + 1..=operations.len());
            operations.splice(at..at, unread);
        }
        let mut pause = || {
            let most = [0, 0, 2, 20, 200, 1000][rng.usize(..6)];
            rng.u16(..=most)
        };
        let operations = operations.into_iter().map(|operation| (operation, pause())).collect();
        Self { seed, setting, operations }
    }

    /// Runs the schedule.
    #[must_use]
    pub fn run(&self, hubs: &Hubs) -> Outcome {
        // The jitter of backoffs comes from this thread's random number generator.
        fastrand::seed(self.seed);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (Ok(runtime), Some(server)) = (runtime, hubs.of(&self.setting)) else {
            return Outcome {
                violations: vec!["no runtime, or no hub".to_owned()],
                ..Outcome::default()
            };
        };
        // Inside the runtime, since the time outside is not paused.
        runtime.block_on(async { Run::on(self, server).complete().await })
    }
}

/// A hub with everything that it takes. The accounts of consumers are created by the processes.
#[must_use]
pub fn furnished(clusters: u8, consumers: bool) -> Vec<Operation> {
    use Operation as O;
    let mut operations = vec![
        O::CreateSet(0),
        O::CreateSet(1),
        O::Configure(Some(0)),
        O::Serve(0, Some(0)),
        O::Bind(0, 0),
        O::Bind(1, 1),
    ];
    for cluster in 0..clusters {
        operations.extend([
            O::CreateCluster(cluster),
            O::MoveCluster(cluster, Some(cluster % 2)),
            O::Addon(cluster, true),
        ]);
        if !consumers {
            operations.extend([
                O::CreateAccount(cluster, cluster % 2),
                O::Report(cluster, cluster % 2, 0),
            ]);
        }
    }
    operations
}

/// Whether a line of the trace is a read, or a write of an Event or a Lease.
fn is_noise(line: &str) -> bool {
    [" GET ", "/events", "/leases"].iter().any(|part| line.contains(part))
}

struct Run<'a> {
    schedule: &'a Schedule,
    world: World,
    others: Others,
    /// The processes of each replica.
    replicas: [Vec<ProcessId>; 2],
    /// Since when each token has been in a namespace without a grant, and each account on a cluster.
    misplaced: BTreeMap<String, Duration>,
    /// The open requests by own identities.
    requests: Vec<OpenRequest>,
    /// What decides about requests to each cluster, and since when.
    decided: BTreeMap<&'static str, (Decides, Duration)>,
    outcome: Outcome,
}

/// A user server refers to the world, which knows it.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.world.lock().admissions.clear();
    }
}

impl<'a> Run<'a> {
    fn on(schedule: &'a Schedule, server: Server) -> Self {
        let world = World::new(server, schedule.seed);
        let second =
            schedule.operations.iter().any(|(operation, _)| *operation == Operation::Start(1));
        world.lock().monitor.limited_secrets = schedule.setting.means.granted;
        world.lock().monitor.two_leaders = second && !schedule.setting.means.leases;
        world.lock().monitor.has_consumers = schedule.setting.consumers;
        let others = Others::new(&world);
        Self {
            schedule,
            others,
            world,
            replicas: [Vec::new(), Vec::new()],
            misplaced: BTreeMap::new(),
            requests: Vec::new(),
            decided: BTreeMap::new(),
            outcome: Outcome::default(),
        }
    }

    async fn complete(mut self) -> Outcome {
        let mut faults =
            self.schedule.operations.iter().filter(|(operation, _)| operation.is_fault());
        let calm = faults.all(|(operation, _)| *operation == Operation::Start(0));
        for (operation, pause) in &self.schedule.operations {
            self.perform(*operation).await;
            sleep(Duration::from_millis((*pause).into())).await;
            if pause % 2 == 0 {
                self.collect();
            }
            if self.is_broken(calm) {
                return self.finished();
            }
        }
        self.outlast().await;
        if self.outcome.violations.is_empty() {
            self.settle().await;
        }
        if self.outcome.violations.is_empty() {
            self.restart().await;
            self.is_broken(false);
        }
        self.finished()
    }

    fn finished(mut self) -> Outcome {
        let mut state = self.world.lock();
        self.outcome.counts = state.monitor.counts().clone();
        self.outcome.busiest_minute = state.monitor.busiest_minute();
        self.outcome.trace = std::mem::take(&mut state.monitor.trace);
        drop(state);
        std::mem::take(&mut self.outcome)
    }

    async fn perform(&mut self, operation: Operation) {
        *self.outcome.operations.entry(operation.name()).or_default() += 1;
        match operation {
            Operation::Start(replica) => self.start(replica),
            Operation::Crash(replica) => {
                for process in std::mem::take(&mut self.replicas[usize::from(replica) % 2]) {
                    self.world.kill(process);
                }
            }
            Operation::CrashAtWrite(replica, after, committed) => {
                for process in &self.replicas[usize::from(replica) % 2] {
                    self.world.crash_at(*process, crash_point(after, committed));
                }
            }
            Operation::Declare(kind) => self.declare(kind),
            Operation::Request(namespace, cluster) => self.request(namespace, cluster),
            Operation::Wait(milliseconds) => {
                sleep(Duration::from_millis(milliseconds.into())).await;
            }
            operation => self.others.perform(operation),
        }
    }

    /// Starts the processes of a replica that do not run.
    fn start(&mut self, replica: u8) {
        let replica = usize::from(replica) % 2;
        let gates = self.schedule.setting.layout.gates(&self.schedule.setting);
        let means = self.schedule.setting.means;
        let before = std::mem::take(&mut self.replicas[replica]);
        for (index, gates) in gates.into_iter().enumerate() {
            let lives = before.get(index).copied().filter(|process| self.world.is_alive(*process));
            self.replicas[replica].push(lives.unwrap_or_else(|| start(&self.world, gates, means)));
        }
    }

    /// Changes the kind of permissions, which is a flag of the processes: they start again.
    fn declare(&mut self, kind: u8) {
        if !self.schedule.setting.consumers {
            return;
        }
        let kind =
            if kind.is_multiple_of(2) { Permissions::Work } else { Permissions::ClusterPermission };
        self.world.lock().monitor.permissions = kind;
        for replica in [0, 1] {
            let before = std::mem::take(&mut self.replicas[usize::from(replica)]);
            for process in &before {
                self.world.kill(*process);
            }
            if !before.is_empty() {
                self.start(replica);
            }
        }
    }

    /// Runs the garbage collector, and the deletion of namespaces and CRDs.
    fn collect(&self) {
        let mut state = self.world.lock();
        state.server.finish_crds();
        if state.server.collect() {
            state.notify();
        }
    }

    /// Whether a rule that holds at any moment has been broken.
    fn is_broken(&mut self, calm: bool) -> bool {
        let state = self.world.lock();
        self.outcome.violations.extend(state.monitor.violations.iter().cloned());
        if state.monitor.busiest_minute() > REQUESTS_A_MINUTE {
            self.outcome
                .violations
                .push(format!("too many requests: {} in a minute", state.monitor.busiest_minute()));
        }
        if calm && self.replicas[0].iter().any(|process| state.is_alive(*process)) {
            let now = state.elapsed();
            let misplaced = oracle::surplus(&state.server, &state.monitor);
            self.misplaced.retain(|place, _| misplaced.contains(place));
            for place in misplaced {
                let since = *self.misplaced.entry(place.clone()).or_insert(now);
                let is_decision = place.ends_with("without a decision");
                let most = if is_decision { LEAVING + REVOCATION } else { REVOCATION };
                if now.saturating_sub(since) > most {
                    self.outcome
                        .violations
                        .push(format!("what ended with a grant is not removed: {place}"));
                }
            }
        }
        drop(state);
        self.check_requests(calm);
        !self.outcome.violations.is_empty()
    }

    /// Ends operations and faults, and checks that the outputs become right and that no write follows.
    async fn settle(&mut self) {
        self.others.end_faults();
        self.start(0);
        self.world.end_crashes();
        if !self.converge().await {
            return;
        }
        // A late event can start work that takes a while, and leads to more work of agents.
        for round in 0.. {
            sleep(LINGER).await;
            let is_over = !self.agents_work();
            if !self.converge().await {
                return;
            }
            if is_over {
                break;
            }
            if round == ROUNDS {
                self.outcome.violations.push("the work of agents does not end".to_owned());
                return;
            }
        }
        let rest = if self.schedule.seed % 16 == 1 { LONG_REST } else { REST };
        self.expect_no_write(rest, "writes at rest").await;
        let (_, wrong) = self.look();
        if !wrong.is_empty() {
            self.outcome.violations.push(format!("no convergence: {}", wrong.join("; ")));
        }
        self.expect_admissions();
        self.is_broken(false);
    }

    /// Waits until the outputs are right; returns whether they were in time.
    async fn converge(&mut self) -> bool {
        let begin = self.world.lock().elapsed();
        let mut step = Duration::from_millis(250);
        loop {
            sleep(step).await;
            self.collect();
            if self.is_broken(false) {
                return false;
            }
            let (now, mut wrong) = self.look();
            wrong.extend(self.check_requests(false));
            if self.agents_work() {
                wrong.push("agents: at work".to_owned());
            }
            let took = now.saturating_sub(begin);
            if wrong.is_empty() {
                self.outcome.converged_after = self.outcome.converged_after.max(took);
                return true;
            }
            let late: Vec<&str> = wrong
                .iter()
                .filter(|wrong| took > self.deadline(wrong))
                .map(String::as_str)
                .collect();
            if !late.is_empty() {
                self.outcome.violations.push(format!("no convergence: {}", late.join("; ")));
                return false;
            }
            step = (step * 2).min(Duration::from_secs(30));
        }
    }

    /// Lets agents work; returns whether some is left. Two processes that disagree about whose an object is keep them at
    /// work without end.
    fn agents_work(&mut self) -> bool {
        let is_left = self.schedule.setting.consumers && self.others.agents();
        is_left && self.world.lock().monitor.disputed.is_empty()
    }

    /// How long a difference may last.
    fn deadline(&self, wrong: &str) -> Duration {
        let state = self.world.lock();
        let counts = state.monitor.counts();
        let refusals = ["refused: missing permission", "refused: quota", "refused: invalid object"];
        if refusals.iter().any(|refusal| counts.contains_key(*refusal)) {
            REFUSED
        } else if wrong.ends_with("exists without a ManagedClusterSetBinding") {
            WITHDRAWAL
        } else {
            DEADLINE
        }
    }

    fn look(&self) -> (Duration, Vec<String>) {
        let state = self.world.lock();
        let mut wrong = oracle::differences(&state.server, &state.monitor);
        wrong.extend(oracle::surplus(&state.server, &state.monitor));
        (state.elapsed(), wrong)
    }

    /// Starts every process afresh on the outputs, and checks that none has anything to write: what a new process would
    /// write is stale, or depends on the order of events.
    async fn restart(&mut self) {
        for process in std::mem::take(&mut self.replicas).into_iter().flatten() {
            self.world.kill(process);
        }
        self.start(0);
        self.expect_no_write(REST, "writes after a fresh start").await;
    }

    /// Lets time pass in which no process may change anything.
    async fn expect_no_write(&mut self, time: Duration, rule: &str) {
        let before = self.world.lock().monitor.writes;
        sleep(time).await;
        let state = self.world.lock();
        if state.monitor.writes > before {
            let writes = state.monitor.trace.iter().rev().filter(|line| !is_noise(line)).take(5);
            self.outcome.violations.push(format!("{rule}: {:?}", writes.collect::<Vec<_>>()));
        }
    }
}
