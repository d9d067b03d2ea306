//! A schedule: operations in an order, from a seed; what they do to the processes; and whether these get over it.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use hub_api::crds::{Flavour, all, cluster_profile};
use serde_json::Value;
use tokio::time::sleep;

use crate::hub;
use crate::model::{Request, Server};
use crate::operation::{Operation, Others, crash_point};
use crate::oracle;
use crate::process::{Gates, Means, start};
use crate::world::{Counts, ProcessId, World};

/// How the controllers are spread over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All in one.
    One,
    /// As the chart installs them: writers of profiles, and the syncer.
    Chart,
    /// Projector and provisioner apart.
    Apart,
}

impl Layout {
    fn gates(self) -> &'static [Gates] {
        const RIGHTS: Gates = Gates { projector: false, provisioner: false, syncer: false, rights: true };
        match self {
            Self::One => &[Gates::ALL],
            Self::Chart => &[Gates::PROFILES, Gates::CREDENTIALS],
            Self::Apart => &[Gates::PROJECTOR, Gates::PROVISIONER, Gates::CREDENTIALS, RIGHTS],
        }
    }
}

/// How the hub and its processes are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// How the controllers are spread over processes.
    pub layout: Layout,
    /// The CRD of ClusterProfile.
    pub profiles: Flavour,
    /// How the processes find Secrets, and whether they stand for election.
    pub means: Means,
    /// The most objects in one page of a list; 0 for as many as are asked for.
    pub page: usize,
}

impl Setting {
    /// All controllers in one process without Leases, which may read every Secret, on a hub of cluster-inventory-api's
    /// current release.
    pub const PLAIN: Self = Self {
        layout: Layout::One,
        profiles: Flavour::Map,
        means: Means { granted: false, leases: false },
        page: 0,
    };

    fn random(rng: &mut Rng) -> Self {
        Self {
            layout: [Layout::One, Layout::One, Layout::Chart, Layout::Apart][rng.usize(..4)],
            profiles: Flavour::ALL[rng.usize(..Flavour::ALL.len())],
            means: Means { granted: rng.u8(..3) == 0, leases: rng.u8(..6) == 0 },
            page: [0, 0, 0, 1, 2][rng.usize(..5)],
        }
    }
}

/// What a run is made of. The same schedule always runs the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Decides every delay.
    pub seed: u64,
    /// How the hub and its processes are set up.
    pub setting: Setting,
    /// What happens, in order, and for how many milliseconds nothing happens after it.
    pub operations: Vec<(Operation, u16)>,
}

/// The hubs that schedules begin on, by the flavour of their CRDs. Made once, since reading CRDs takes its time.
pub struct Hubs(Vec<(Flavour, Server)>);

impl Default for Hubs {
    fn default() -> Self {
        let hub = |lists| {
            let mut crds = all();
            crds.retain(|crd| crd.spec.names.plural != "clusterprofiles");
            crds.push(cluster_profile(lists));
            (lists, hub::server(crds.iter().filter_map(|crd| serde_json::to_value(crd).ok())))
        };
        Self(Flavour::ALL.into_iter().map(hub).collect())
    }
}

impl Hubs {
    fn of(&self, setting: &Setting) -> Option<Server> {
        let (_, server) = self.0.iter().find(|(flavour, _)| *flavour == setting.profiles)?;
        let mut server = server.clone();
        server.page = setting.page;
        Some(server)
    }
}

/// How a run went.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The rules that were broken, if any: then the run ended there.
    pub violations: Vec<String>,
    /// How often each kind of operation was performed.
    pub operations: BTreeMap<String, u64>,
    /// What was counted.
    pub counts: Counts,
    /// How long after the last fault the outputs were right.
    pub converged_after: Duration,
    /// The requests of the busiest minute.
    pub busiest_minute: u64,
    /// Every request, in order.
    pub trace: Vec<String>,
}

/// Longest time until the outputs are right when the faults have ended: a watch that has lost its connection unnoticed
/// ends, a namespace that took nothing new is left alone for a minute, replaced trust anchors stay for a minute.
const DEADLINE: Duration = Duration::from_secs(150);
/// The same for the permission in a namespace that is no longer bound: the syncer has five minutes to delete its copies.
const WITHDRAWAL: Duration = Duration::from_mins(6);
/// The same where a write was refused: it is tried again after five minutes at the latest, or ten where many are.
const REFUSED: Duration = Duration::from_mins(11);
/// How long it may still write what the outputs do not show, as a condition on an account: a request that hangs is given
/// up after a minute, and the Leases of a process that has died are waited for one after the other.
const LINGER: Duration = Duration::from_secs(100);
/// How long nothing may be written after that: every watch ends once in that time.
const REST: Duration = Duration::from_secs(150);
/// The same for some schedules: what is refused is tried again once in that time.
const LONG_REST: Duration = Duration::from_mins(12);
/// How long a token may stay where it does not belong while nothing goes wrong.
const REVOCATION: Duration = Duration::from_secs(3);
/// The requests that a minute may cost at the most, whatever goes wrong.
const REQUESTS_A_MINUTE: u64 = 1500;

impl Schedule {
    /// The schedule of a seed. Most are small: their failures are, too, and more of them fit into a minute.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let setting = Setting::random(&mut rng);
        let faults = rng.u8(..5) > 1;
        let (clusters, most) = [(1, 6), (1, 6), (2, 12), (3, 24)][rng.usize(..4)];
        let mut operations = if rng.u8(..4) > 0 { furnished(clusters) } else { Vec::new() };
        let begin = rng.usize(..=operations.len());
        operations.insert(begin, Operation::Start(0));
        let length = rng.usize(2..most);
        operations.extend((0..length).map(|_| Operation::random(&mut rng, faults)));
        let mut pause = || {
            let most = [0, 0, 2, 20, 200, 1000][rng.usize(..6)];
            rng.u16(..=most)
        };
        let operations = operations.into_iter().map(|operation| (operation, pause())).collect();
        Self { seed, setting, operations }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(&self, hubs: &Hubs) -> Outcome {
        // The jitter of backoffs comes from this thread's generator.
        fastrand::seed(self.seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (Ok(runtime), Some(server)) = (runtime, hubs.of(&self.setting)) else {
            return Outcome { violations: vec!["no runtime, or no hub".to_owned()], ..Outcome::default() };
        };
        // Inside: outside the runtime the time is the real one.
        runtime.block_on(async { Run::on(self, server).complete().await })
    }
}

/// A hub with everything that it takes.
fn furnished(clusters: u8) -> Vec<Operation> {
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
            O::CreateAccount(cluster, cluster % 2),
            O::Report(cluster, cluster % 2, 0),
        ]);
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
    /// Since when a token is where it does not belong.
    misplaced: BTreeMap<String, Duration>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn on(schedule: &'a Schedule, server: Server) -> Self {
        let world = World::new(server, schedule.seed);
        let second = schedule.operations.iter().any(|(operation, _)| *operation == Operation::Start(1));
        world.lock().monitor.limited_secrets = schedule.setting.means.granted;
        world.lock().monitor.two_leaders = second && !schedule.setting.means.leases;
        let others = Others::new(&world);
        Self {
            schedule,
            others,
            world,
            replicas: [Vec::new(), Vec::new()],
            misplaced: BTreeMap::new(),
            outcome: Outcome::default(),
        }
    }

    async fn complete(mut self) -> Outcome {
        let mut faults = self.schedule.operations.iter().filter(|(operation, _)| operation.is_fault());
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
        self.settle().await;
        if self.outcome.violations.is_empty() && self.schedule.seed.is_multiple_of(4) {
            self.compare_with_a_fresh_start().await;
        }
        self.finished()
    }

    fn finished(mut self) -> Outcome {
        let state = self.world.lock();
        self.outcome.counts = state.monitor.counts().clone();
        self.outcome.busiest_minute = state.monitor.busiest_minute();
        self.outcome.trace.clone_from(&state.monitor.trace);
        drop(state);
        self.outcome
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
            Operation::Wait(milliseconds) => sleep(Duration::from_millis(milliseconds.into())).await,
            operation => self.others.perform(operation),
        }
    }

    /// Starts those processes of a replica that do not live.
    fn start(&mut self, replica: u8) {
        let replica = usize::from(replica) % 2;
        let gates = self.schedule.setting.layout.gates();
        let means = self.schedule.setting.means;
        let before = std::mem::take(&mut self.replicas[replica]);
        for (index, gates) in gates.iter().enumerate() {
            let lives = before.get(index).copied().filter(|process| self.world.is_alive(*process));
            self.replicas[replica].push(lives.unwrap_or_else(|| start(&self.world, *gates, means)));
        }
    }

    /// The garbage collector and the end of namespaces and CRDs.
    fn collect(&self) {
        let mut state = self.world.lock();
        state.server.finish_crds();
        if state.server.collect() {
            state.notify();
        }
    }

    /// Whether a rule is broken that holds at any moment.
    fn is_broken(&mut self, calm: bool) -> bool {
        let state = self.world.lock();
        self.outcome.violations.extend(state.monitor.violations.iter().cloned());
        if state.monitor.busiest_minute() > REQUESTS_A_MINUTE {
            self.outcome.violations.push(format!(
                "effort without a bound: {} requests in a minute",
                state.monitor.busiest_minute()
            ));
        }
        if calm && self.replicas[0].iter().any(|process| state.is_alive(*process)) {
            let now = state.elapsed();
            let misplaced = oracle::misplaced(&state.server, &state.monitor);
            self.misplaced.retain(|place, _| misplaced.contains(place));
            for place in misplaced {
                let since = *self.misplaced.entry(place.clone()).or_insert(now);
                if now.saturating_sub(since) > REVOCATION {
                    self.outcome.violations.push(format!("a token stays where it does not belong: {place}"));
                }
            }
        }
        !self.outcome.violations.is_empty()
    }

    /// The inputs rest and the faults end: then the outputs have to become right, and no write may follow.
    async fn settle(&mut self) {
        self.others.end_faults();
        self.start(0);
        self.world.end_crashes();
        if !self.converge().await {
            return;
        }
        // What comes late may begin something that takes its time.
        sleep(LINGER).await;
        if !self.converge().await {
            return;
        }
        let before = self.world.lock().monitor.writes;
        sleep(if self.schedule.seed % 16 == 1 { LONG_REST } else { REST }).await;
        let writes = self.world.lock().monitor.writes - before;
        let (_, wrong) = self.look();
        if writes > 0 {
            let trace = self.world.lock().monitor.trace.clone();
            let writes = trace.iter().rev().filter(|line| !is_noise(line)).take(5);
            self.outcome.violations.push(format!("writes at rest: {:?}", writes.collect::<Vec<_>>()));
        }
        if !wrong.is_empty() {
            self.outcome.violations.push(format!("no convergence: {}", wrong.join("; ")));
        }
        self.is_broken(false);
    }

    /// Waits until the outputs are right; returns whether they became so in time.
    async fn converge(&mut self) -> bool {
        let begin = self.world.lock().elapsed();
        let mut step = Duration::from_millis(250);
        loop {
            sleep(step).await;
            self.collect();
            if self.is_broken(false) {
                return false;
            }
            let (now, wrong) = self.look();
            let took = now.saturating_sub(begin);
            if wrong.is_empty() {
                self.outcome.converged_after = self.outcome.converged_after.max(took);
                return true;
            }
            let late: Vec<&str> =
                wrong.iter().filter(|wrong| took > self.deadline(wrong)).map(String::as_str).collect();
            if !late.is_empty() {
                self.outcome.violations.push(format!("no convergence: {}", late.join("; ")));
                return false;
            }
            step = (step * 2).min(Duration::from_secs(30));
        }
    }

    /// How long something may stay wrong.
    fn deadline(&self, wrong: &str) -> Duration {
        let state = self.world.lock();
        let counts = state.monitor.counts();
        let refusals = ["refused: missing permission", "refused: quota", "refused: invalid object"];
        if refusals.iter().any(|refusal| counts.contains_key(*refusal)) {
            REFUSED
        } else if wrong.starts_with("RoleBinding") {
            WITHDRAWAL
        } else {
            DEADLINE
        }
    }

    fn look(&self) -> (Duration, Vec<String>) {
        let state = self.world.lock();
        let mut wrong = oracle::differences(&state.server, &state.monitor);
        wrong.extend(
            oracle::misplaced(&state.server, &state.monitor)
                .into_iter()
                .map(|it| format!("{it} is misplaced")),
        );
        (state.elapsed(), wrong)
    }

    /// The same inputs without any of our outputs, and new processes: the outputs have to be the same.
    async fn compare_with_a_fresh_start(&mut self) {
        let (mut server, seen) = {
            let state = self.world.lock();
            (state.server.clone(), oracle::outputs(&state.server, &state.monitor))
        };
        for replica in std::mem::take(&mut self.replicas) {
            for process in replica {
                self.world.kill(process);
            }
        }
        let made = self.world.lock().monitor.made.clone();
        let mut paths = Vec::new();
        for plural in ["clusterprofiles", "secrets"] {
            for object in server.objects_of(plural) {
                let held = object["metadata"]["finalizers"].is_array();
                let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                if made.contains_key(metadata("uid")) && !held {
                    paths.push(hub::path(plural, metadata("namespace"), metadata("name")));
                }
            }
        }
        for path in paths {
            server.handle(&Request::new("DELETE", &path));
        }
        let mut fresh = Run::on(self.schedule, server);
        {
            let monitor = &mut fresh.world.lock().monitor;
            monitor.abandoned = made.keys().cloned().collect();
            monitor.made = made;
        }
        fresh.start(0);
        Box::pin(fresh.settle()).await;
        let state = fresh.world.lock();
        let again = oracle::outputs(&state.server, &state.monitor);
        self.outcome
            .violations
            .extend(fresh.outcome.violations.iter().map(|it| format!("after a fresh start: {it}")));
        for (place, shown) in &seen {
            if again.get(place) != Some(shown) {
                self.outcome.violations.push(format!(
                    "the path shows: {place} is {shown}, and after a fresh start {}",
                    again.get(place).unwrap_or(&Value::Null)
                ));
            }
        }
        for place in again.keys().filter(|place| !seen.contains_key(*place)) {
            self.outcome
                .violations
                .push(format!("the path shows: {place} is there after a fresh start only"));
        }
    }
}
