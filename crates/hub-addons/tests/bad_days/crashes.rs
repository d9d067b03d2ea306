//! Kills the process before and after each write of a scenario, and checks that the next process completes the work.
//!
//! A proxy between the process and the API server holds the n-th write, before the API server has received it or after
//! it has responded, and all later writes. The test then kills the process and starts another one, and repeats this
//! until a scenario ends with fewer writes. Writes are all requests that change something, except Events.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http::Method;
use local_hub::{Fate, FaultProxy, LocalHub, Meddler, ocm};

use super::stage::{self, ARGUMENTS, cluster, converges, forget, joins, team, token};
use crate::support::world::{self, delete, profile_of};
use crate::support::{Addons, Hub, SOON, USER, WHOLE_FLEET, credentials};

/// A change of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    ColdStart,
    Join,
    Leave,
    SetMove,
    CaChange,
    Rotation,
    NamespaceDeletion,
    ProfileRecreation,
}

impl Scenario {
    /// The name in the table of results and in the names of objects.
    fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold-start",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::SetMove => "set-move",
            Self::CaChange => "ca-change",
            Self::Rotation => "rotation",
            Self::NamespaceDeletion => "namespace-deletion",
            Self::ProfileRecreation => "profile-recreation",
        }
    }
}

/// The point at which a process is killed: which write, and whether the API server has executed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    write: usize,
    fate: Fate,
}

/// Holds the write of a point, and all later writes.
#[derive(Default)]
struct CrashPoint(Mutex<Countdown>);

#[derive(Default)]
struct Countdown {
    point: Option<Point>,
    writes: usize,
    struck: bool,
}

impl CrashPoint {
    fn arm(&self, point: Option<Point>) {
        *self.0.lock().unwrap() = Countdown { point, ..Countdown::default() };
    }

    fn has_struck(&self) -> bool {
        self.0.lock().unwrap().struck
    }
}

impl Meddler for CrashPoint {
    fn fate(&self, method: &Method, path_and_query: &str) -> Fate {
        if *method == Method::GET || path_and_query.contains("/apis/events.k8s.io/") {
            return Fate::Pass;
        }
        let mut countdown = self.0.lock().unwrap();
        if countdown.struck {
            return Fate::HoldBefore;
        }
        countdown.writes += 1;
        match countdown.point {
            Some(point) if point.write == countdown.writes => {
                countdown.struck = true;
                point.fate
            }
            _ => Fate::Pass,
        }
    }
}

struct Crashes {
    hub: Hub,
    proxy: FaultProxy,
    crash_point: Arc<CrashPoint>,
    kubeconfig: PathBuf,
    process: Option<Addons>,
}

impl Crashes {
    async fn start() -> Self {
        let hub = stage::start(LocalHub::builder()).await;
        let crash_point = Arc::new(CrashPoint::default());
        let proxy = FaultProxy::start(&hub, Arc::clone(&crash_point) as Arc<dyn Meddler>).await.unwrap();
        let kubeconfig = proxy.kubeconfig_for(&hub, USER).unwrap();
        let mut this = Self { hub, proxy, crash_point, kubeconfig, process: None };
        this.start_process().await;
        this
    }

    async fn start_process(&mut self) {
        let process = Addons::launch_with(&self.hub, "hub-addons", &self.kubeconfig, &ARGUMENTS).await;
        self.process = Some(process);
    }

    async fn kill_process(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    async fn converges(&self) {
        converges(&self.hub.ocm, SOON).await;
    }

    /// Kills a process at every point of a scenario, and prints the number of points.
    #[allow(clippy::print_stdout, reason = "hack/robustness.sh prints these lines")]
    async fn each_point_of(&mut self, scenario: Scenario) {
        let mut points = 0;
        for fate in [Fate::HoldBefore, Fate::HoldAfter] {
            let mut write = 1;
            while self.strike(scenario, Point { write, fate }).await {
                write += 1;
            }
            assert!(write > 1, "{} writes nothing", scenario.name());
            points += write - 1;
        }
        // At this point, the hub has converged after each of them.
        println!("| killed at every write: {} | {points} points | {points} converged |", scenario.name());
    }

    /// Kills the process at a point of a scenario, and starts another one. Returns whether the process reached the
    /// point.
    async fn strike(&mut self, scenario: Scenario, point: Point) -> bool {
        let when = if point.fate == Fate::HoldBefore { "before" } else { "after" };
        let name = format!("{}-{}-{when}", scenario.name(), point.write);
        self.prepare(scenario, &name).await;
        self.crash_point.arm(Some(point));
        self.happens(scenario, &name).await;
        tokio::select! {
            () = self.proxy.holds() => {}
            () = self.converges() => {}
        }
        // The API server may have executed the last write before the proxy receives the response.
        let struck = self.crash_point.has_struck();
        if struck {
            self.proxy.holds().await;
            self.kill_process().await;
        }
        self.crash_point.arm(None);
        if struck {
            self.proxy.release();
            self.proxy.hold_again();
            self.start_process().await;
        }
        self.converges().await;
        self.clean_up(&name).await;
        struck
    }

    /// Creates the objects that exist before the scenario.
    async fn prepare(&mut self, scenario: Scenario, name: &str) {
        if scenario == Scenario::ColdStart {
            self.kill_process().await;
        }
        let ocm = self.hub.ocm.clone();
        team(&ocm, name).await;
        joins(&ocm, &format!("{name}-1"), name).await;
        if matches!(scenario, Scenario::Leave | Scenario::CaChange | Scenario::ColdStart) {
            joins(&ocm, &format!("{name}-2"), name).await;
        }
        if scenario == Scenario::SetMove {
            team(&ocm, &format!("{name}-other")).await;
        }
        if scenario != Scenario::ColdStart {
            self.converges().await;
        }
    }

    /// Makes the change of the scenario, without waiting for the process.
    async fn happens(&mut self, scenario: Scenario, name: &str) {
        let ocm = self.hub.ocm.clone();
        let [first, second] = [1, 2].map(|number| format!("{name}-{number}"));
        match scenario {
            Scenario::ColdStart => self.start_process().await,
            Scenario::Join => joins(&ocm, &second, name).await,
            Scenario::Leave => cluster(&second, "").update(&ocm).await.unwrap(),
            Scenario::SetMove => cluster(&first, &format!("{name}-other")).update(&ocm).await.unwrap(),
            Scenario::CaChange => stage::renews_certificate(&ocm).await.unwrap(),
            Scenario::Rotation => credentials::rotated(&token(&first), 1).report(&ocm).await.unwrap(),
            Scenario::NamespaceDeletion => {
                delete(&ocm, &ocm::namespace(name)).await;
                world::gone(&ocm, &ocm::namespace(name)).await;
                world::create(&ocm, [ocm::namespace(name), ocm::bound(name, name)]).await;
            }
            Scenario::ProfileRecreation => {
                delete(&ocm, &profile_of(credentials::MANAGER, name, &first)).await;
            }
        }
    }

    /// Removes the objects of the scenario, so that they do not affect the next point.
    async fn clean_up(&self, name: &str) {
        for number in [1, 2] {
            forget(&self.hub.ocm, &format!("{name}-{number}")).await;
        }
        converges(&self.hub.ocm, WHOLE_FLEET).await;
    }
}

#[tokio::test]
async fn a_process_killed_at_any_write_of_a_start_a_join_a_leave_or_a_move_loses_nothing() {
    let mut crashes = Crashes::start().await;
    for scenario in [Scenario::ColdStart, Scenario::Join, Scenario::Leave, Scenario::SetMove] {
        crashes.each_point_of(scenario).await;
    }
}

#[tokio::test]
async fn a_process_killed_at_any_write_after_a_change_of_ca_token_namespace_or_profile_loses_nothing() {
    let mut crashes = Crashes::start().await;
    for scenario in
        [Scenario::CaChange, Scenario::Rotation, Scenario::NamespaceDeletion, Scenario::ProfileRecreation]
    {
        crashes.each_point_of(scenario).await;
    }
}
