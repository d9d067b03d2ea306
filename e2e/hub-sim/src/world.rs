//! The environment of the controllers: the server, the network, and the crashes of processes.
//!
//! Everything runs on one thread, in tokio's paused time. The world is one value behind a lock that is never held
//! across an await.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use user_server::Admission;

use crate::hub;
use crate::model::{Answer, Failure, Request, Server};
use crate::monitor::{Monitor, ProcessId};

/// The CRDs that can disappear.
pub(crate) const MORTAL: [&str; 7] = [
    "clusterprofiles",
    "managedserviceaccounts",
    "clusterpermissions",
    "multikueueclusters",
    "managedclusters",
    "managedclustersets",
    "managedclustersetbindings",
];

/// How long it takes a client to notice that a connection is frozen.
pub(crate) const FROZEN: Duration = Duration::from_secs(45);

/// How long after a kind can no longer be read nothing may rest on it: a minute, and the time of a request under way.
pub(crate) const UNREAD: Duration = Duration::from_secs(70);

/// A handle to a world, which is cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

/// The state of a world.
pub struct State {
    /// The API server.
    pub server: Server,
    /// The faults in effect.
    pub network: Network,
    /// The judge of the processes' requests.
    pub monitor: Monitor,
    /// The user servers that work.
    pub admissions: BTreeMap<ProcessId, Admission>,
    rng: Rng,
    began: Instant,
    /// The server's time at the start, in seconds since the epoch: a server goes on in its own time.
    epoch: i64,
    processes: Vec<Process>,
    /// Wakes up watches after a change.
    /// Not a channel of tokio's `watch`, which wakes its receivers in a random order.
    changed: Arc<Notify>,
    /// Wakes up those that show Leases, which are renewed more often than anything else changes.
    renewed: Arc<Notify>,
}

struct Process {
    alive: bool,
    task: Option<AbortHandle>,
    writes: usize,
    crash: Option<CrashPoint>,
}

/// When a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// At its next write, or at the one after this many more.
    pub after: usize,
    /// Whether the server executes the write before the process dies.
    pub committed: bool,
}

/// The faults between the processes and the server, and in the server.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// How many of the next requests fail, and how.
    pub failing: Option<(usize, Fault)>,
    /// How long each request takes, in addition to its latency.
    pub slowness: Duration,
    /// How late watches show events.
    pub lag: Duration,
    /// The time until which watches show no events.
    pub stalled_until: Option<Instant>,
    /// Watches of an earlier generation have lost their connection.
    pub generation: u64,
    /// The time until which no connection reaches the server.
    pub down_until: Option<Instant>,
    /// The same for a server whose etcd is restored, which takes its time even when all faults have ended.
    pub restoring_until: Option<Instant>,
    /// Whether the history is compacted before the next page of a list.
    pub compacts_between_pages: bool,
    /// Requests for which the permission is missing, by method and plural.
    pub forbidden: Vec<(&'static str, &'static str)>,
    /// The failures that concern some requests alone, and last.
    pub partial: Vec<PartialFailure>,
    /// The plurals that can be neither listed nor watched, how these requests fail, and since when.
    pub unread: BTreeMap<&'static str, (FailureMode, Instant)>,
    /// The plurals whose CRD is missing, and since when, as of the last request.
    pub unserved: BTreeMap<&'static str, Instant>,
    /// The plural whose watches that were open then are frozen.
    pub frozen: Option<(&'static str, Instant)>,
    /// By namespace, the certificate with which the proxy serves, in PEM.
    pub proxy: BTreeMap<&'static str, &'static str>,
}

/// A failure of one verb on one kind, in one namespace or in all, that lasts until it is mended: a webhook that does not
/// respond, a policy, a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialFailure {
    /// The method of the requests.
    pub method: &'static str,
    /// The plural of the kind.
    pub plural: &'static str,
    /// The namespace, unless it is all of them.
    pub namespace: Option<&'static str>,
    /// How the requests fail.
    pub mode: FailureMode,
}

/// How the requests of a [`PartialFailure`] fail. The server executes none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
pub enum FailureMode {
    /// 500: the webhook cannot be called.
    Internal,
    /// No response before the client's timeout: the webhook hangs.
    Timeout,
    /// 403: a webhook or a policy denies the request.
    Denied,
    /// 403: a quota is exceeded.
    Quota,
}

impl FailureMode {
    /// The name of the mode, as counters use it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "lasting failure: 500",
            Self::Timeout => "lasting failure: no response",
            Self::Denied => "lasting failure: denied",
            Self::Quota => "lasting failure: quota",
        }
    }
}

impl Network {
    /// The plurals that could be neither listed nor watched for this long.
    pub(crate) fn unread_for(&self, time: Duration) -> Vec<&'static str> {
        let unread =
            self.unread.iter().map(|(plural, (_, since))| (plural, since)).chain(&self.unserved);
        unread.filter(|(_, since)| since.elapsed() > time).map(|(plural, _)| *plural).collect()
    }
}

impl PartialFailure {
    fn concerns(&self, request: &Request) -> bool {
        let parts: Vec<&str> = request.path.split('/').collect();
        let at =
            parts.iter().position(|part| *part == "namespaces").filter(|at| parts.len() > at + 2);
        let namespace = at.map(|at| parts[at + 1]);
        request.method == self.method
            && parts.contains(&self.plural)
            && self.namespace.is_none_or(|it| namespace == Some(it))
    }
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
pub enum Fault {
    /// 429 with a Retry-After of up to five seconds.
    Throttled,
    /// 503.
    Unavailable,
    /// 500.
    Internal,
    /// The connection breaks before the server has read the request.
    Refused,
    /// The server executes the request, and the response is lost.
    Lost,
    /// The server executes the request, and never responds.
    Hung,
    /// The server executes the request, and its response arrives after watches have shown what followed.
    Late,
}

impl Fault {
    /// The name of the fault, as counters use it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttled => "fault: 429 with Retry-After",
            Self::Unavailable => "fault: 503",
            Self::Internal => "fault: 500",
            Self::Refused => "fault: connection refused",
            Self::Lost => "fault: response lost after the commit",
            Self::Hung => "fault: no response",
            Self::Late => "fault: late response",
        }
    }
}

/// What happens to a request that reaches the server.
pub(crate) enum Fate {
    /// A response arrives.
    Answered {
        answer: Box<Answer>,
        /// How much later than usual it arrives.
        delay: Duration,
    },
    /// The connection breaks.
    Broken,
    /// No response ever arrives.
    Silence,
}

impl World {
    /// A world with this server. Must be created inside a runtime whose time is paused.
    #[must_use]
    pub fn new(server: Server, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            epoch: server.now,
            server,
            network: Network::default(),
            monitor: Monitor::default(),
            admissions: BTreeMap::new(),
            rng: Rng::with_seed(seed),
            began: Instant::now(),
            processes: Vec::new(),
            changed: Arc::default(),
            renewed: Arc::default(),
        })))
    }

    /// Locks the state. The lock must not be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock();
        state.tick();
        state
    }

    /// Adds one to a counter.
    pub(crate) fn count(&self, what: &'static str) {
        self.lock().monitor.count(what);
    }

    /// Sends a request of a client that is not a process, without faults.
    pub(crate) fn act(&self, request: &Request) -> Answer {
        let mut state = self.lock();
        let answer = state.server.handle(request);
        state.notify_of(request);
        answer
    }

    /// Changes the server by other means than requests.
    pub fn change(&self, change: impl FnOnce(&mut Server)) {
        let mut state = self.lock();
        change(&mut state.server);
        state.notify();
    }

    /// A new process.
    pub(crate) fn add_process(&self) -> ProcessId {
        let mut state = self.lock();
        state.processes.push(Process { alive: true, task: None, writes: 0, crash: None });
        state.processes.len() - 1
    }

    /// Records the task of a process.
    pub(crate) fn set_task(&self, process: ProcessId, task: AbortHandle) {
        self.lock().processes[process].task = Some(task);
    }

    /// Kills a process. The requests that it has sent still reach the server.
    pub fn kill(&self, process: ProcessId) {
        self.lock().kill(process);
    }

    /// A user server accepts requests from now on.
    pub(crate) fn serve(&self, process: ProcessId, admission: Admission) {
        let mut state = self.lock();
        if state.is_alive(process) {
            state.admissions.insert(process, admission);
        }
    }

    /// Whether a process runs.
    pub(crate) fn is_alive(&self, process: ProcessId) -> bool {
        self.lock().processes[process].alive
    }

    /// Records that a process has ended on its own and starts again: it no longer knows which objects it has created.
    pub(crate) fn restarted(&self, process: ProcessId) {
        let mut state = self.lock();
        state.monitor.count("restarts");
        state.admissions.remove(&process);
        state.monitor.abandon(process);
    }

    /// Makes a process die at one of its next writes.
    pub fn crash_at(&self, process: ProcessId, point: CrashPoint) {
        self.lock().processes[process].crash = Some(point);
    }

    /// Cancels all planned crashes.
    pub fn end_crashes(&self) {
        self.lock().processes.iter_mut().for_each(|process| process.crash = None);
    }

    /// Disconnects every watch.
    pub fn disconnect(&self) {
        self.lock().disconnect();
    }

    /// How long a request takes to arrive.
    pub(crate) fn latency(&self) -> Duration {
        let mut state = self.lock();
        Duration::from_micros(state.rng.u64(200..6000)) + state.network.slowness / 2
    }

    /// What wakes up a watch on this path.
    pub(crate) fn changes(&self, path: &str) -> Arc<Notify> {
        let state = self.lock();
        Arc::clone(if is_of_leases(path) { &state.renewed } else { &state.changed })
    }
}

fn is_of_leases(path: &str) -> bool {
    path.split('/').any(|part| part == "leases")
}

impl State {
    fn tick(&mut self) {
        // Timestamps count seconds.
        let seconds = i64::try_from(self.began.elapsed().as_secs()).unwrap_or(i64::MAX);
        self.server.now = self.epoch + seconds;
    }

    /// Disconnects every watch.
    pub fn disconnect(&mut self) {
        self.network.generation += 1;
        self.notify();
    }

    pub(crate) fn notify(&mut self) {
        self.changed.notify_waiters();
        self.renewed.notify_waiters();
    }

    /// Wakes up the watches that may show what a request has changed.
    fn notify_of(&mut self, request: &Request) {
        if is_of_leases(&request.path) {
            self.renewed.notify_waiters();
        } else {
            self.notify();
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Kills a process.
    pub fn kill(&mut self, process: ProcessId) {
        let ended = &mut self.processes[process];
        ended.alive = false;
        if let Some(task) = ended.task.take() {
            task.abort();
        }
        self.admissions.remove(&process);
        self.monitor.abandon(process);
        self.notify();
    }

    /// Whether a process runs.
    pub(crate) fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process].alive
    }

    /// Handles a request of a process, or applies a fault to it.
    pub(crate) fn receive(&mut self, process: ProcessId, request: &Request) -> Fate {
        let fate = self.handle(process, request);
        if let Fate::Answered { answer, .. } = &fate
            && let Answer::Failure(failure) = &**answer
        {
            self.monitor.refused(request, failure);
        }
        fate
    }

    fn handle(&mut self, process: ProcessId, request: &Request) -> Fate {
        if !self.processes[process].alive {
            return Fate::Silence;
        }
        if self.network.down_until.is_some_and(|until| until > Instant::now()) {
            self.monitor.count("requests while the server was down");
            return Fate::Broken;
        }
        self.monitor.request(self.began.elapsed(), request);
        self.follow_crds();
        let fault = self.next_fault();
        match fault {
            Some(Fault::Refused) => return Fate::Broken,
            Some(Fault::Throttled) => {
                let seconds = self.rng.u64(1..=5);
                return self.failed(Failure::too_many_requests(seconds));
            }
            Some(Fault::Unavailable) => return self.failed(Failure::unavailable()),
            Some(Fault::Internal) => return self.failed(Failure::internal()),
            Some(Fault::Lost | Fault::Hung | Fault::Late) | None => {}
        }
        if let Some(refused) = self.forbidden(request) {
            return self.failed(refused);
        }
        if let Some(fate) = self.partial_failure(request).or_else(|| self.unread(request)) {
            return fate;
        }
        let crash = request.is_write().then(|| self.crash_now(process)).flatten();
        if crash == Some(false) {
            self.monitor.count("crashes before a write");
            self.kill(process);
            return Fate::Silence;
        }
        if self.network.compacts_between_pages && !request.parameter("continue").is_empty() {
            self.network.compacts_between_pages = false;
            self.server.compact();
            self.notify();
        }
        let before = self.server.version();
        let idle = self.server.idle_writes.len();
        let answer = self.server.handle(request);
        if request.is_write() {
            let changes = self.server.changes_since(before).to_vec();
            let is_idle = self.server.idle_writes.len() > idle;
            self.monitor.write(&self.server, process, request, &answer, &changes, is_idle);
            self.monitor.judge_knowledge(
                &self.server,
                request,
                &changes,
                &self.network.unread_for(UNREAD),
            );
        }
        if self.server.version() != before {
            self.notify_of(request);
        }
        if crash == Some(true) {
            self.monitor.count("crashes after a write");
            self.kill(process);
            return Fate::Silence;
        }
        match (fault, answer) {
            (Some(Fault::Lost), _) => Fate::Broken,
            (Some(Fault::Hung), _) => Fate::Silence,
            (Some(Fault::Late), answer) => {
                let delay = Duration::from_millis(self.rng.u64(100..3000));
                Fate::Answered { answer: Box::new(answer), delay }
            }
            (_, Answer::Failure(failure)) => self.failed(failure),
            (_, answer) => Fate::Answered { answer: Box::new(answer), delay: Duration::ZERO },
        }
    }

    fn failed(&mut self, failure: Failure) -> Fate {
        self.monitor.failed(&failure);
        Fate::Answered { answer: Box::new(Answer::Failure(failure)), delay: Duration::ZERO }
    }

    fn next_fault(&mut self) -> Option<Fault> {
        let (left, fault) = self.network.failing.as_mut()?;
        let fault = *fault;
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.network.failing = None;
        }
        self.monitor.count(fault.name());
        Some(fault)
    }

    fn partial_failure(&mut self, request: &Request) -> Option<Fate> {
        let failure = *self.network.partial.iter().find(|it| it.concerns(request))?;
        self.monitor.count(failure.mode.name());
        let denied = |why| Failure::forbidden(failure.plural, "", why);
        Some(match failure.mode {
            FailureMode::Internal => self.failed(Failure::internal()),
            FailureMode::Timeout => Fate::Silence,
            FailureMode::Denied => {
                self.failed(denied("admission webhook \"simulated\" denied the request"))
            }
            FailureMode::Quota => {
                self.failed(denied("exceeded quota: objects, requested: 1, used: 5, limited: 5"))
            }
        })
    }

    /// Records which kinds are not served. On a connection that is frozen or silent, no client sees the end of a watch.
    fn follow_crds(&mut self) {
        let frozen = self.network.frozen.map(|(_, at)| at + FROZEN);
        let since = [self.network.stalled_until, frozen]
            .into_iter()
            .flatten()
            .fold(Instant::now(), Instant::max);
        for plural in MORTAL {
            if self.server.is_served(plural) {
                self.network.unserved.remove(plural);
            } else {
                self.network.unserved.entry(plural).or_insert(since);
            }
        }
    }

    /// How a list or a watch of a kind fails that cannot be read.
    fn unread(&mut self, request: &Request) -> Option<Fate> {
        let plural = request.path.rsplit('/').next().filter(|_| !request.is_write())?;
        let (mode, _) = *self.network.unread.get(plural)?;
        self.monitor.count("refused: kind that cannot be read");
        Some(match mode {
            FailureMode::Internal => self.failed(Failure::internal()),
            FailureMode::Timeout => Fate::Silence,
            FailureMode::Denied => {
                self.failed(Failure::forbidden(plural, "", "User \"hub-addons\" cannot list"))
            }
            FailureMode::Quota => self.failed(Failure::unavailable()),
        })
    }

    fn forbidden(&self, request: &Request) -> Option<Failure> {
        let plural = |plural: &str| request.path.split('/').any(|part| part == plural);
        let mut forbidden = self.network.forbidden.iter();
        let refused = |plural| Failure::forbidden(plural, "", "User \"hub-addons\" cannot do that");
        if let Some((_, plural)) =
            forbidden.find(|(method, it)| *method == request.method && plural(it))
        {
            return Some(refused(plural));
        }
        let limited = self.monitor.limited_secrets && plural("secrets");
        (limited && !hub::may_touch_secrets(&self.server, request)).then(|| refused("secrets"))
    }

    /// Whether a process dies at this write, and if so, whether the server executes the write.
    fn crash_now(&mut self, process: ProcessId) -> Option<bool> {
        let process = &mut self.processes[process];
        process.writes += 1;
        let point = process.crash.as_mut()?;
        if point.after > 0 {
            point.after -= 1;
            return None;
        }
        let committed = point.committed;
        process.crash = None;
        Some(committed)
    }
}
