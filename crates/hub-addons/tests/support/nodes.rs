//! A cluster with nodes, for a test of what runs in Pods: a hub of ours with nodes of ours, or the cluster of the
//! kubeconfig `HUB_ADDONS_CLUSTER`.
//!
//! The other cluster outlives a test. So tests use it one after the other, and each removes what was added meanwhile: the
//! release, CRDs, namespaces, and permissions in all namespaces. Images get to its nodes by `HUB_ADDONS_CLUSTER_LOAD`, a
//! command that is run with an archive as its last argument. What only a hub of ours has is reported as not tested.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use local_hub::{Cluster, Flavour, FollowedLogs, LocalHub, Pods, PodsBuilder, crds, eventually};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

use super::pods::skipped;
use super::{SOON, chart};

const KUBECONFIG: &str = "HUB_ADDONS_CLUSTER";
const LOAD: &str = "HUB_ADDONS_CLUSTER_LOAD";

/// The kubeconfig of the cluster that is to be used, if there is one.
pub fn theirs() -> Option<PathBuf> {
    std::env::var_os(KUBECONFIG).map(PathBuf::from)
}

/// The cluster of one test.
pub enum Nodes {
    /// In this order: the nodes must end before the hub.
    Own {
        pods: Box<Pods>,
        hub: Box<LocalHub>,
    },
    Theirs(Box<Theirs>),
}

impl Deref for Nodes {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match self {
            Self::Own { hub, .. } => hub,
            Self::Theirs(theirs) => &theirs.cluster,
        }
    }
}

impl Nodes {
    /// A cluster with this many nodes for Pods, these images, and the CRDs of a hub. `None` if the other cluster has
    /// fewer, which is reported.
    pub async fn start(number: u8, images: &[(&str, &Path)]) -> Option<Self> {
        Self::start_with(number, images, |_, nodes| nodes).await
    }

    /// The same with more for a hub of ours.
    pub async fn start_with(
        number: u8,
        images: &[(&str, &Path)],
        more: impl FnOnce(&LocalHub, PodsBuilder) -> PodsBuilder,
    ) -> Option<Self> {
        if let Some(kubeconfig) = theirs() {
            let theirs = Theirs::start(&kubeconfig, number.into(), images).await?;
            return Some(Self::Theirs(Box::new(theirs)));
        }
        let hub = Box::new(LocalHub::builder().workloads().start().await.unwrap());
        let builder = Pods::on(&hub).unwrap().nodes(number);
        let builder =
            images.iter().fold(builder, |builder, (name, archive)| builder.image(*name, *archive));
        let pods = Box::new(more(&hub, builder).start().await.unwrap());
        Some(Self::Own { pods, hub })
    }

    /// What only a hub of ours has. On another cluster, reports that this is not tested there.
    pub fn own(&self, what: &str) -> Option<(&LocalHub, &Pods)> {
        match self {
            Self::Own { pods, hub } => Some((hub, pods)),
            Self::Theirs(_) => {
                only_on_own_hubs(what);
                None
            }
        }
    }

    /// The output of all runs of a container, so far; also of a Pod that is gone.
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> String {
        match self {
            Self::Own { pods, .. } => pods.logs(namespace, pod, container),
            Self::Theirs(theirs) => theirs.logs.of(namespace, pod, container),
        }
    }

    /// Waits until the output of a container contains a text.
    pub async fn logged(&self, namespace: &str, pod: &str, container: &str, text: &str) {
        eventually(&format!("{namespace}/{pod} logs {text}"), SOON, async || {
            let log = self.logs(namespace, pod, container);
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// The names of the nodes for Pods.
    pub async fn names(&self) -> Vec<String> {
        names(&self.client_as("admin").await.unwrap()).await
    }
}

/// Whether a test must not run, since the cluster is no hub of ours; then reports that it is not tested.
pub fn is_only_on_own_hubs(what: &str) -> bool {
    let is = theirs().is_some();
    if is {
        only_on_own_hubs(what);
    }
    is
}

fn only_on_own_hubs(what: &str) {
    use std::io::Write as _;
    // Not with `eprintln!`: the test harness captures the output of passing tests.
    let _ = writeln!(std::io::stderr(), "ONLY ON OWN HUBS, {what}");
}

/// The nodes that take ordinary Pods.
async fn names(client: &Client) -> Vec<String> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let takes_pods = |node: &Node| {
        let spec = node.spec.clone().unwrap_or_default();
        let repels = spec.taints.iter().flatten().any(|taint| taint.effect != "PreferNoSchedule");
        !repels && spec.unschedulable != Some(true)
    };
    nodes.into_iter().filter(takes_pods).map(|node| node.name_any()).collect()
}

/// A cluster that is no hub of ours, while a test uses it.
pub struct Theirs {
    cluster: Cluster,
    logs: FollowedLogs,
    earlier: BTreeSet<String>,
    /// Held until everything is removed.
    _turn: MutexGuard<'static, ()>,
}

impl Theirs {
    async fn start(kubeconfig: &Path, number: usize, images: &[(&str, &Path)]) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::const_new(());
        static LOADED: Mutex<BTreeSet<String>> = Mutex::const_new(BTreeSet::new());
        let turn = TURN.lock().await;
        let cluster = Cluster::of_kubeconfig(kubeconfig).await.unwrap();
        let client = cluster.client_as("admin").await.unwrap();
        let names = names(&client).await;
        if names.len() < number {
            skipped(
                "Pods on several nodes",
                &format!("of {number}, this cluster has only {names:?}"),
            );
            return None;
        }
        let earlier: BTreeSet<_> =
            objects(&client).await.into_iter().map(|(_, _, id)| id).collect();
        let crds = crds::all(Flavour::Map).unwrap();
        let mut ours: Vec<_> =
            crds.iter().map(|crd| id::<CustomResourceDefinition>(&crd.name_any())).collect();
        ours.push(id::<Namespace>(chart::NAMESPACE));
        // Another user installed it, or a test that was killed left it behind.
        let found: Vec<_> = ours.iter().filter(|id| earlier.contains(*id)).collect();
        assert!(
            found.is_empty(),
            "the cluster of {KUBECONFIG} has {found:?}: use one without these"
        );
        let logs = cluster.follow_logs().await.unwrap();
        // From here on, what is added is removed.
        let theirs = Self { cluster, logs, earlier, _turn: turn };
        for crd in crds {
            theirs.cluster.install_crd(&crd).await.unwrap();
        }
        let mut loaded = LOADED.lock().await;
        for (name, archive) in images {
            if loaded.insert((*name).to_owned()) {
                load(name, archive, theirs.cluster.directory()).await;
            }
        }
        Some(theirs)
    }

    /// Removes what was added since the start.
    async fn clean(&self) {
        // Without hooks, which would run in Pods of a program that may not work.
        let uninstall = [
            "uninstall",
            chart::RELEASE,
            "--namespace",
            chart::NAMESPACE,
            "--no-hooks",
            "--ignore-not-found",
        ];
        let ended = chart::run(chart::helm(), Some(&self.cluster), &uninstall).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let client = self.cluster.client_as("admin").await.unwrap();
        eventually("the cluster is as it was before the test", SOON, async || {
            let added =
                objects(&client).await.into_iter().filter(|(_, _, id)| !self.earlier.contains(id));
            let mut left = Vec::new();
            for (api, name, id) in added {
                // One that is being deleted, or gone, is fine.
                let _ = api.delete(&name, &DeleteParams::background()).await;
                left.push(id);
            }
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let cleaned = std::thread::scope(|scope| {
            let clean = || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(self.clean());
            };
            scope.spawn(clean).join()
        });
        // A test that has failed reports its own failure.
        if let Err(panic) = cleaned
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn id<K: kube::Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{} {name}", K::kind(&()))
}

/// The objects that a test may have added and that contain everything else.
async fn objects(client: &Client) -> Vec<(Api<DynamicObject>, String, String)> {
    let kinds = [
        ApiResource::erase::<CustomResourceDefinition>(&()),
        ApiResource::erase::<Namespace>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<ClusterRole>(&()),
    ];
    let mut objects = Vec::new();
    for kind in kinds {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        for object in api.list(&ListParams::default()).await.unwrap() {
            let name = object.name_any();
            let id = format!("{} {name}", kind.kind);
            objects.push((api.clone(), name, id));
        }
    }
    objects
}

async fn load(name: &str, archive: &Path, directory: &Path) {
    let command = std::env::var(LOAD);
    let command = command
        .unwrap_or_else(|_| panic!("{LOAD} must be a command, such as kind load image-archive"));
    let archive = local_hub::named_archive(name, archive, directory).await.unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{command} \"$1\"")).arg("sh").arg(&archive);
    let output = shell.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{LOAD}: {}", String::from_utf8_lossy(&output.stderr));
}
