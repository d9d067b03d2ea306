//! A schedule: operations in an order, from a seed; what they do to the processes; and whether these get over it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use tokio::time::sleep;

use crate::hub;
use crate::model::{Request, Server};
use crate::operation::{Operation, Others, crash_point};
use crate::oracle;
use crate::process::{Gates, start};
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

/// What a run is made of. The same schedule always runs the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Decides every delay.
    pub seed: u64,
    /// How the controllers are spread over processes.
    pub layout: Layout,
    /// What happens, in order, and for how many milliseconds nothing happens after it.
    pub operations: Vec<(Operation, u16)>,
}

/// How a run went.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The rules that were broken, if any: then the run ended there.
    pub violations: Vec<String>,
    /// What was counted.
    pub counts: Counts,
    /// How long after the last fault the outputs were right.
    pub converged_after: Duration,
    /// The requests of the busiest minute.
    pub busiest_minute: u64,
    /// Every request, in order.
    pub trace: Vec<String>,
}

/// Longest time until the outputs are right when the faults have ended: what is refused is tried again after ten
/// minutes at the latest.
const DEADLINE: Duration = Duration::from_mins(16);
/// How long what waits for nothing but time may still lead to writes: a right outlives its need by five minutes.
const LINGER: Duration = Duration::from_mins(7);
/// How long nothing may be written after that.
const REST: Duration = Duration::from_mins(4);
/// How long a token may stay where it does not belong while nothing goes wrong.
const REVOCATION: Duration = Duration::from_secs(3);
/// The requests that a minute may cost at the most, whatever goes wrong.
const REQUESTS_A_MINUTE: u64 = 1500;

impl Schedule {
    /// The schedule of a seed, with operations that meet known defects or without.
    #[must_use]
    pub fn random(seed: u64, known: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let layout = [Layout::One, Layout::One, Layout::Chart, Layout::Apart][rng.usize(..4)];
        let faults = rng.u8(..5) > 1;
        let mut operations = if rng.u8(..3) > 0 { furnished() } else { Vec::new() };
        let begin = rng.usize(..=operations.len());
        operations.insert(begin, Operation::Start(0));
        let length = rng.usize(4..24);
        operations.extend((0..length).map(|_| Operation::random(&mut rng, faults, known)));
        let mut pause = || {
            let most = [0, 0, 2, 20, 200, 1000][rng.usize(..6)];
            rng.u16(..=most)
        };
        let operations = operations.into_iter().map(|operation| (operation, pause())).collect();
        Self { seed, layout, operations }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(&self, crds: &Arc<Vec<Value>>) -> Outcome {
        // The jitter of backoffs comes from this thread's generator.
        fastrand::seed(self.seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let Ok(runtime) = runtime else {
            return Outcome { violations: vec!["no runtime".to_owned()], ..Outcome::default() };
        };
        // Inside: outside the runtime the time is the real one.
        runtime.block_on(async { Run::new(self, crds).complete().await })
    }
}

/// A hub with everything that it takes.
fn furnished() -> Vec<Operation> {
    use Operation as O;
    let mut operations = vec![
        O::CreateSet(0),
        O::CreateSet(1),
        O::Configure(Some(0)),
        O::Serve(0, Some(0)),
        O::Bind(0, 0),
        O::Bind(1, 1),
    ];
    for cluster in 0..3 {
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
    fn new(schedule: &'a Schedule, crds: &Arc<Vec<Value>>) -> Self {
        let server = hub::server(crds.iter().cloned());
        Self::on(schedule, server)
    }

    fn on(schedule: &'a Schedule, server: Server) -> Self {
        let world = World::new(server, schedule.seed);
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
        let gates = self.schedule.layout.gates();
        let before = std::mem::take(&mut self.replicas[replica]);
        for (index, gates) in gates.iter().enumerate() {
            let lives = before.get(index).copied().filter(|process| self.world.is_alive(*process));
            self.replicas[replica].push(lives.unwrap_or_else(|| start(&self.world, *gates)));
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
        for process in self.replicas.iter().flatten() {
            self.world.crash_at(*process, crash_point(u8::MAX, false));
        }
        let begin = self.world.lock().elapsed();
        let mut step = Duration::from_millis(250);
        loop {
            sleep(step).await;
            self.collect();
            if self.is_broken(false) {
                return;
            }
            let (now, wrong) = self.look();
            if wrong.is_empty() {
                self.outcome.converged_after = now.saturating_sub(begin);
                break;
            }
            if now.saturating_sub(begin) > DEADLINE {
                self.outcome.violations.push(format!("no convergence: {}", wrong.join("; ")));
                return;
            }
            step = (step * 2).min(Duration::from_secs(30));
        }
        sleep(LINGER).await;
        self.collect();
        let before = self.world.lock().monitor.writes;
        sleep(REST).await;
        let writes = self.world.lock().monitor.writes - before;
        let (_, wrong) = self.look();
        if writes > 0 {
            let trace = self.world.lock().monitor.trace.clone();
            let writes = trace.iter().rev().filter(|line| !line.contains(" GET ")).take(5);
            self.outcome.violations.push(format!("writes at rest: {:?}", writes.collect::<Vec<_>>()));
        }
        if !wrong.is_empty() {
            self.outcome.violations.push(format!("no convergence: {}", wrong.join("; ")));
        }
        self.is_broken(false);
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
                if made.contains(metadata("uid")) && !held {
                    paths.push(hub::path(plural, metadata("namespace"), metadata("name")));
                }
            }
        }
        for path in paths {
            server.handle(&Request::new("DELETE", &path));
        }
        let mut fresh = Run::on(self.schedule, server);
        fresh.world.lock().monitor.made = made;
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
