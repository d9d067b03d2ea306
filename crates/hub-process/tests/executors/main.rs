//! The executors, with the real client on an in-memory API server, in tokio's paused time: start and shutdown of a
//! process, leader election, and writes of ClusterProfiles.

#![cfg(test)]

mod api;
mod guards;
mod leases;
mod load;
mod process;
mod profiles;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use hub_api::cluster_profile::{ClusterVersion, Property};
use hub_api::names::ProfileKey;
use hub_core::fleet::{Fleet, Touched};
use hub_core::label_allow_list::LabelAllowList;
use hub_core::member_id::MemberId;
use hub_core::priority::Priority;
use hub_core::profile::{Desired, DesiredStatus, Identity, ObservedProfile, Presence};
use hub_process::controller::{Controller, FleetKind, Owner};
use hub_process::process::{Process, ProcessError, Setup, Shared};
use hub_runtime::host::Watches;
use hub_runtime::host::lease::Candidate;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::Api;

/// A controller that records its calls.
struct Recorder {
    name: &'static str,
    needs: &'static [FleetKind],
    wishes: Wishes,
    owns: bool,
    shared: Shared,
    calls: Calls,
    watches: SharedWatches,
}

/// The desired profiles of a test.
#[derive(Default)]
struct Wish {
    profiles: BTreeSet<ProfileKey>,
    version: Option<String>,
    properties: Option<Vec<Property>>,
    /// Whether another process decides which profiles exist.
    undecided: bool,
    /// Whether the owner panics.
    panics: bool,
    /// How often a profile was planned.
    plans: usize,
}

type Wishes = Arc<Mutex<Wish>>;

type Calls = Arc<Mutex<Vec<String>>>;

type SharedWatches = Arc<Mutex<Option<Watches>>>;

impl Recorder {
    fn note(&self, call: &str) {
        self.calls.lock().unwrap().push(format!("{} {call}", self.name));
    }
}

impl Controller for Recorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [FleetKind] {
        self.needs
    }

    fn owner(&self) -> Option<&dyn Owner> {
        self.owns.then_some(self)
    }

    fn watch(&self, watches: &Watches) {
        *self.watches.lock().unwrap() = Some(watches.clone());
        self.note("watch");
    }

    fn begin(&self) {
        self.note("begin");
        for key in &self.wishes.lock().unwrap().profiles {
            self.shared.profiles.queue.add_with(key.clone(), Priority::Start);
        }
    }

    fn fleet_changed(&self, _: &Fleet, touched: &Touched) {
        self.note(&format!("{touched:?}"));
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        self.note("work");
        Box::pin(stop.cancelled_owned())
    }
}

impl Owner for Recorder {
    fn desired(&self, key: &ProfileKey, _: Option<&ObservedProfile>) -> Desired {
        let identity = || Identity {
            labels: [("x-k8s.io/cluster-manager".to_owned(), self.shared.manager.to_string())]
                .into(),
            member_id: MemberId { value: key.cluster.to_string(), since: None },
            propagated: LabelAllowList::default(),
            display_name: key.cluster.to_string(),
        };
        let mut wish = self.wishes.lock().unwrap();
        wish.plans += 1;
        if wish.panics {
            drop(wish);
            panic!("on purpose");
        }
        let presence = match wish.profiles.contains(key) {
            _ if wish.undecided => Presence::Undecided,
            true => Presence::Wanted(identity()),
            false => Presence::Unwanted,
        };
        let version =
            wish.version.clone().map(|version| ClusterVersion { kubernetes: Some(version) });
        let properties = wish.properties.clone();
        Desired {
            presence,
            status: DesiredStatus { version, properties, ..DesiredStatus::default() },
        }
    }
}

/// The properties of a test's controller.
#[derive(Clone, Default)]
struct Traits {
    name: &'static str,
    needs: &'static [FleetKind],
    wants: Option<BTreeSet<ProfileKey>>,
}

/// A running process.
struct Running {
    calls: Calls,
    wishes: Wishes,
    /// What the last controller watches with.
    watches: SharedWatches,
    stop: CancellationToken,
    shared: Shared,
    task: JoinHandle<Result<(), ProcessError>>,
}

impl Running {
    fn start(api: &Api, identity: Option<&str>, controllers: &[Traits]) -> Self {
        let (calls, wishes, stop) = (Calls::default(), Wishes::default(), CancellationToken::new());
        let watches = SharedWatches::default();
        let candidate = identity.map(candidate);
        let mut process = Process::new(Setup { candidate, ..Setup::new(api.client()) });
        for traits in controllers {
            let (calls, wishes, watches) =
                (Arc::clone(&calls), Arc::clone(&wishes), Arc::clone(&watches));
            wishes.lock().unwrap().profiles.extend(traits.wants.iter().flatten().cloned());
            process = process.add(Some(traits.clone()), |shared, traits| Recorder {
                name: traits.name,
                needs: traits.needs,
                owns: traits.wants.is_some(),
                wishes: Arc::clone(&wishes),
                shared: shared.clone(),
                calls,
                watches,
            });
        }
        let shared = process.shared.clone();
        let task = tokio::spawn(process.run(stop.clone()));
        Self { calls, wishes, watches, stop, shared, task }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn has(&self, call: &str) -> bool {
        self.calls().iter().any(|there| there == call)
    }

    /// Whether a text is in its metrics.
    fn measures(&self, text: &str) -> bool {
        self.shared.host.metrics.text().contains(text)
    }

    async fn stop(self) -> Result<(), ProcessError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

fn candidate(identity: &str) -> Candidate {
    Candidate {
        namespace: "addons".to_owned(),
        lease: "hub-addons".to_owned(),
        identity: identity.to_owned(),
    }
}

/// Waits for a condition, in paused time.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen within ten minutes");
}
