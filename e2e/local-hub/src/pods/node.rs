//! The node: binds Pods, runs them, writes their status, and removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod, PodStatus};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::environment::Addresses;
use super::network::pod_address;
use super::objects::Objects;
use super::status::Report;
use super::worker::{Worker, World, grace_of};

/// The node's name as Pods see it. There is no such Node object.
const NAME: &str = "local-hub";

/// Delay before a failed request is retried.
const RETRY: Duration = Duration::from_millis(250);

/// A Pod's uid.
type Uid = String;

/// The running Pods.
pub(crate) struct Node {
    watching: Client,
    asking: Client,
    world: World,
    /// How to stop each started Pod.
    started: BTreeMap<Uid, watch::Sender<Option<Duration>>>,
    /// The Pods of a list that is not complete yet.
    listed: BTreeSet<Uid>,
    /// How many addresses have been assigned.
    addresses: usize,
    tasks: JoinSet<Option<Uid>>,
}

impl Node {
    pub(crate) fn new(watching: Client, asking: Client, world: World) -> Self {
        Self {
            watching,
            asking,
            world,
            started: BTreeMap::new(),
            listed: BTreeSet::new(),
            addresses: 0,
            tasks: JoinSet::new(),
        }
    }

    /// Never returns.
    pub(crate) async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.watching.clone());
        let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff());
        loop {
            tokio::select! {
                // The stream does not end, and retries by itself.
                Some(event) = events.next() => if let Ok(event) = event { self.see(event) },
                Some(done) = self.tasks.join_next() => if let Ok(Some(uid)) = done {
                    self.started.remove(&uid);
                },
            }
        }
    }

    fn see(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.insert(pod.uid().unwrap_or_default());
                self.take(pod);
            }
            Event::InitDone => {
                for (_, stop) in self.started.iter().filter(|(uid, _)| !self.listed.contains(*uid)) {
                    stop.send_replace(Some(Duration::ZERO));
                }
            }
            Event::Apply(pod) => self.take(pod),
            // The client that removed it did not wait for the node.
            Event::Delete(pod) => {
                if let Some(stop) = self.started.get(&pod.uid().unwrap_or_default()) {
                    stop.send_replace(Some(Duration::ZERO));
                }
            }
        }
    }

    fn take(&mut self, pod: Pod) {
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let gated = spec.is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let known = self.started.get(&pod.uid().unwrap_or_default());
        match (node, pod.metadata.deletion_timestamp.is_some(), known) {
            ("", false, None) if !gated => {
                self.tasks.spawn(bind(self.api(&pod), pod));
            }
            (NAME, false, None) if !matches!(phase, Some("Succeeded" | "Failed")) => self.start(pod),
            (NAME, true, None) => {
                let api = self.api(&pod);
                self.tasks.spawn(async move {
                    remove(&api, &pod).await;
                    None
                });
            }
            (NAME, true, Some(stop)) => {
                let seconds = pod.metadata.deletion_grace_period_seconds;
                let grace = seconds.and_then(|seconds| seconds.try_into().ok()).map(Duration::from_secs);
                stop.send_replace(Some(grace.unwrap_or_else(|| grace_of(&pod))));
            }
            _ => {}
        }
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.asking.clone(), &pod.namespace().unwrap_or_default())
    }

    fn start(&mut self, pod: Pod) {
        let (stop, stopped) = watch::channel(None);
        let uid = pod.uid().unwrap_or_default();
        self.started.insert(uid.clone(), stop);
        let address = pod_address(self.addresses);
        self.addresses += 1;
        let api = self.api(&pod);
        let worker = Worker {
            world: self.world.clone(),
            objects: Objects::of(&pod, self.asking.clone()),
            address,
            addresses: Addresses { pod: address.to_string(), host: "127.0.0.1".to_owned() },
            report: Report::new(&pod),
            stop: stopped,
            pod,
        };
        self.tasks.spawn(async move {
            live(&worker, &api).await;
            Some(uid)
        });
    }
}

/// Runs a Pod until it is gone from the API server.
async fn live(worker: &Worker, api: &Api<Pod>) {
    let mut status = StatusWriter { worker, api, last: worker.pod.status.clone().unwrap_or_default() };
    let mut progress = worker.report.watch();
    let stopped = async |mut stop: watch::Receiver<Option<Duration>>| {
        // An error is the end of the node.
        let _ = stop.wait_for(Option::is_some).await;
    };
    {
        let mut running = pin!(async {
            worker.run().await;
            stopped(worker.stop.clone()).await;
        });
        loop {
            let writing = async {
                while !status.write().await {
                    sleep(RETRY).await;
                }
                // It fails only without a worker.
                let _ = progress.changed().await;
            };
            tokio::select! {
                () = &mut running => break,
                () = writing => {}
            }
        }
    }
    status.write().await;
    remove(api, &worker.pod).await;
}

/// Writes a Pod's status if it differs from the last one.
struct StatusWriter<'pod> {
    worker: &'pod Worker,
    api: &'pod Api<Pod>,
    last: PodStatus,
}

impl StatusWriter<'_> {
    /// Returns false if it must be retried.
    async fn write(&mut self) -> bool {
        let next = self.worker.report.watch().borrow().status(&self.last, &self.worker.addresses);
        if next == self.last {
            return true;
        }
        // Not the status of another Pod with the same name.
        let uid = &self.worker.pod.metadata.uid;
        let patch = json!({ "metadata": { "uid": uid }, "status": next });
        let name = self.worker.pod.name_any();
        let written = self.api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        if written.is_ok() {
            self.last = next;
        }
        written.is_ok()
    }
}

/// Binds a Pod, as a scheduler does.
async fn bind(api: Api<Pod>, pod: Pod) -> Option<Uid> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(NAME.to_owned()),
            ..ObjectReference::default()
        },
    };
    let (name, params) = (pod.name_any(), PostParams::default());
    while let Err(error) = api.create_subresource::<_, Status>("binding", &name, &params, &binding).await {
        if is_gone(&error) {
            break;
        }
        sleep(RETRY).await;
    }
    None
}

/// Confirms to the API server that a Pod has terminated.
async fn remove(api: &Api<Pod>, pod: &Pod) {
    let uid = pod.metadata.uid.clone();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    };
    while let Err(error) = api.delete(&pod.name_any(), &now).await {
        if is_gone(&error) {
            return;
        }
        sleep(RETRY).await;
    }
}

/// Whether the Pod does not exist any more, or is another one.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
