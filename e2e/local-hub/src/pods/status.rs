//! The status of a Pod.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;

use super::environment::Addresses;
use super::problem::Problem;

/// The state of one container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    name: String,
    image: String,
    now: ContainerState,
    last: Option<ContainerState>,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    restarts: i32,
    /// For the container ID of each run.
    id: Option<String>,
}

impl State {
    fn new(container: &Container) -> Self {
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            now: waiting("PodInitializing", None),
            last: None,
            started: false,
            ready: false,
            restarts: 0,
            id: None,
        }
    }

    fn is_running(&self) -> bool {
        self.now.running.is_some()
    }

    /// The exit code, if it will not restart.
    fn exit_code(&self) -> Option<i32> {
        self.now.terminated.as_ref().map(|terminated| terminated.exit_code)
    }

    pub(crate) fn wait(&mut self, problem: &Problem) {
        self.now = waiting(problem.reason, Some(problem.message.clone()));
        (self.started, self.ready) = (false, false);
    }

    /// Records that it runs, for the first time or again.
    pub(crate) fn run(&mut self, id: String) {
        if self.id.is_some() {
            self.restarts += 1;
        }
        self.id = Some(id);
        self.now = ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(now()) }),
            ..ContainerState::default()
        };
    }

    pub(crate) fn end(&mut self, code: i32, why: Option<String>) {
        let started_at = self.now.running.as_ref().and_then(|running| running.started_at.clone());
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.now = ContainerState {
            terminated: Some(ContainerStateTerminated {
                container_id: self.id.clone(),
                exit_code: code,
                finished_at: Some(now()),
                message: why,
                reason: Some(reason.to_owned()),
                signal: None,
                started_at,
            }),
            ..ContainerState::default()
        };
        self.last = Some(self.now.clone());
        (self.started, self.ready) = (false, false);
    }

    fn status(&self, is_init: bool) -> ContainerStatus {
        ContainerStatus {
            container_id: self.id.clone(),
            image: self.image.clone(),
            last_state: self.last.clone().filter(|_| self.now.terminated.is_none()),
            name: self.name.clone(),
            ready: if is_init { self.exit_code() == Some(0) } else { self.ready },
            restart_count: self.restarts,
            started: Some(self.started),
            state: Some(self.now.clone()),
            ..ContainerStatus::default()
        }
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { message, reason: Some(reason.to_owned()) }),
        ..ContainerState::default()
    }
}

fn now() -> Time {
    // The API stores whole seconds.
    Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default())
}

/// The state of a Pod: written by the tasks that run its containers, read by the task that writes its status.
#[derive(Clone, Debug)]
pub(crate) struct Report(Arc<watch::Sender<Progress>>);

/// A snapshot of the state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    init: Vec<State>,
    containers: Vec<State>,
    has_sandbox: bool,
    restarts: bool,
}

/// Identifies a container of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Init(usize),
    Main(usize),
}

impl Report {
    pub(crate) fn new(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let states = |containers: &[Container]| containers.iter().map(State::new).collect();
        Self(Arc::new(watch::Sender::new(Progress {
            init: states(spec.init_containers.as_deref().unwrap_or_default()),
            containers: states(&spec.containers),
            has_sandbox: false,
            restarts: spec.restart_policy.is_none_or(|policy| policy != "Never"),
        })))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Progress> {
        self.0.subscribe()
    }

    pub(crate) fn sandbox_is_there(&self) {
        self.0.send_modify(|progress| progress.has_sandbox = true);
    }

    pub(crate) fn change(&self, which: Which, change: impl FnOnce(&mut State)) {
        self.0.send_modify(|progress| {
            let state = match which {
                Which::Init(number) => progress.init.get_mut(number),
                Which::Main(number) => progress.containers.get_mut(number),
            };
            if let Some(state) = state {
                change(state);
            }
        });
    }

    /// Records that the Pod as a whole cannot run.
    pub(crate) fn wait_all(&self, problem: &Problem) {
        self.0.send_modify(|progress| {
            progress.containers.iter_mut().for_each(|state| state.wait(problem));
        });
    }
}

impl Progress {
    fn is_initialized(&self) -> bool {
        self.init.iter().all(|state| state.exit_code() == Some(0))
    }

    /// Not while containers may restart: then an exit is not final.
    fn phase(&self) -> &'static str {
        let ended: Vec<i32> = self.containers.iter().filter_map(State::exit_code).collect();
        if !self.restarts && self.init.iter().any(|state| state.exit_code().is_some_and(|code| code != 0)) {
            "Failed"
        } else if !self.is_initialized() || self.containers.iter().all(|state| state.id.is_none()) {
            "Pending"
        } else if ended.len() < self.containers.len() || self.containers.iter().any(State::is_running) {
            "Running"
        } else if ended.iter().all(|code| *code == 0) {
            "Succeeded"
        } else if self.restarts {
            "Running"
        } else {
            "Failed"
        }
    }

    /// The status, with the transition times of conditions that have not changed since the `last` one.
    pub(crate) fn status(&self, last: &PodStatus, addresses: &Addresses) -> PodStatus {
        let ready = self.containers.iter().all(|state| state.ready);
        let conditions = [
            ("PodScheduled", true),
            ("PodReadyToStartContainers", self.has_sandbox),
            ("Initialized", self.is_initialized()),
            ("ContainersReady", ready),
            ("Ready", ready),
        ];
        let statuses = |states: &[State], init| states.iter().map(|state| state.status(init)).collect();
        PodStatus {
            conditions: Some(conditions.map(|(type_, value)| condition(type_, value, last)).into()),
            container_statuses: Some(statuses(&self.containers, false)),
            host_ip: Some(addresses.host.clone()),
            host_ips: Some(vec![HostIP { ip: addresses.host.clone() }]),
            init_container_statuses: Some(statuses(&self.init, true)),
            phase: Some(self.phase().to_owned()),
            pod_ip: Some(addresses.pod.clone()),
            pod_ips: Some(vec![PodIP { ip: addresses.pod.clone() }]),
            start_time: last.start_time.clone().or_else(|| Some(now())),
            ..PodStatus::default()
        }
    }
}

fn condition(type_: &str, value: bool, last: &PodStatus) -> PodCondition {
    let status = if value { "True" } else { "False" };
    let known = last.conditions.iter().flatten().find(|known| known.type_ == type_);
    let since =
        known.filter(|known| known.status == status).and_then(|known| known.last_transition_time.clone());
    let reason = match (value, type_) {
        (true, _) => None,
        (false, "Initialized") => Some("ContainersNotInitialized".to_owned()),
        (false, _) => Some("ContainersNotReady".to_owned()),
    };
    PodCondition {
        last_transition_time: Some(since.unwrap_or_else(now)),
        reason,
        status: status.to_owned(),
        type_: type_.to_owned(),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ADDRESSES: fn() -> Addresses =
        || Addresses { pod: "10.244.0.1".to_owned(), host: "127.0.0.1".to_owned() };

    fn report(policy: &str) -> Report {
        let pod = json!({ "spec": {
            "restartPolicy": policy,
            "initContainers": [{ "name": "init", "image": "i" }],
            "containers": [{ "name": "main", "image": "i" }],
        }});
        Report::new(&serde_json::from_value(pod).unwrap())
    }

    fn phase(report: &Report) -> String {
        status(report).phase.unwrap()
    }

    fn status(report: &Report) -> PodStatus {
        report.watch().borrow().status(&PodStatus::default(), &ADDRESSES())
    }

    fn is(status: &PodStatus, type_: &str) -> bool {
        status.conditions.iter().flatten().any(|known| known.type_ == type_ && known.status == "True")
    }

    #[test]
    fn a_pod_is_pending_until_it_is_initialized_and_then_runs() {
        let report = report("Always");
        assert_eq!(phase(&report), "Pending");
        report.change(Which::Init(0), |state| state.run("1".to_owned()));
        report.change(Which::Init(0), |state| state.end(0, None));
        assert!(is(&status(&report), "Initialized"));
        assert_eq!(phase(&report), "Pending");
        report.change(Which::Main(0), |state| state.run("2".to_owned()));
        assert_eq!(phase(&report), "Running");
        assert!(!is(&status(&report), "Ready"));
        report.change(Which::Main(0), |state| state.ready = true);
        assert!(is(&status(&report), "Ready"));
    }

    #[test]
    fn a_container_that_starts_again_counts_it_and_remembers_its_last_end() {
        let report = report("Always");
        let main = Which::Main(0);
        report.change(main, |state| state.run("1".to_owned()));
        report.change(main, |state| state.end(137, None));
        report.change(main, |state| state.run("2".to_owned()));
        let status = status(&report).container_statuses.unwrap().remove(0);
        assert_eq!(status.restart_count, 1);
        assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 137);
        assert!(!status.ready);
    }

    #[test]
    fn a_pod_that_does_not_restart_ends_as_its_containers_did() {
        for (code, end) in [(0, "Succeeded"), (1, "Failed")] {
            let report = report("Never");
            report.change(Which::Init(0), |state| state.run("1".to_owned()));
            report.change(Which::Init(0), |state| state.end(0, None));
            report.change(Which::Main(0), |state| state.run("2".to_owned()));
            report.change(Which::Main(0), |state| state.end(code, None));
            assert_eq!(phase(&report), end);
        }
        let report = report("Never");
        report.change(Which::Init(0), |state| state.run("1".to_owned()));
        report.change(Which::Init(0), |state| state.end(1, None));
        assert_eq!(phase(&report), "Failed");
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time() {
        let report = report("Always");
        let mut before = status(&report);
        let long_ago = Time(Timestamp::from_second(1).unwrap());
        for condition in before.conditions.iter_mut().flatten() {
            condition.last_transition_time = Some(long_ago.clone());
        }
        report.sandbox_is_there();
        let after = report.watch().borrow().status(&before, &ADDRESSES());
        for condition in after.conditions.unwrap() {
            let stayed = condition.last_transition_time.as_ref() == Some(&long_ago);
            assert_eq!(stayed, condition.type_ != "PodReadyToStartContainers", "{}", condition.type_);
        }
    }
}
