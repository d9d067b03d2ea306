//! Plays what a cluster has nodes for: Pods run, in the root file systems of their images, as the API server
//! describes them.
//!
//! [Workload controllers](crate::HubBuilder::workloads) make Pods of Deployments, and the API server gives each the
//! token of its ServiceAccount among its volumes, both as in any cluster; [`Pods`] is scheduler and kubelet to them.
//! It binds each Pod that has no node, and then does what the Pod says: volumes (`emptyDir`, `configMap`, `secret`,
//! `downwardAPI`, `projected` with tokens of the Pod's ServiceAccount, `image`), initContainers, containers with
//! their command, environment, user and groups, a root that is read-only where it has to be, probes, restarts, and an
//! end by SIGTERM and after a while by SIGKILL. It writes the Pod's status, on which Deployments become available and
//! `helm install --wait` returns. What would make another program of it and is not known here (a lifecycle hook, a
//! kind of volume, more capabilities) it refuses, by the status of the container. It does not look at resources,
//! seccomp profiles, where a Pod wants to be scheduled, and DNS.
//!
//! A pod's network is a loopback device of its own, on which the API server is at 10.0.0.1, port 443, and the Services
//! that the runner was told of are under their names. Nobody else is there.
//!
//! It takes Linux, root and the right to make namespaces, and util-linux, mount, iproute2 and tar.

mod environment;
mod images;
mod network;
mod node;
mod objects;
mod plan;
mod probes;
mod problem;
mod sandbox;
mod status;
mod volumes;
mod worker;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kube::Client;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::images::Images;
use self::network::{Forward, Network};
use self::node::Node;
use self::sandbox::{SandboxPlace, Tools};
use self::worker::World;
use crate::supervisor::{Program, Supervised};
use crate::{HubError, LocalHub, access, ports, random, users};

/// Longest time to reach a pod from outside.
const CONNECT: Duration = Duration::from_secs(5);

/// What a runner should have: see [`Pods::on`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PodsBuilder {
    connection: Connection,
    images: Vec<(String, PathBuf)>,
    services: Vec<(String, u16, SocketAddr)>,
    token_renewal: Option<Duration>,
}

/// Two ways to one API server.
#[derive(Clone)]
struct Connection {
    /// For watches, which may be silent for long.
    watching: Client,
    /// For requests, which are answered soon or fail.
    asking: Client,
    address: SocketAddr,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl PodsBuilder {
    fn new(connection: Connection) -> Self {
        Self { connection, images: Vec::new(), services: Vec::new(), token_renewal: None }
    }

    /// An image that Pods may name so: an OCI archive of one image, or a directory that is a root file system.
    /// Others are not there, and nothing is ever pulled.
    pub fn image(mut self, reference: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.images.push((reference.into(), path.into()));
        self
    }

    /// A host name and a port that pods can connect to, such as a Service's, and who is there.
    pub fn service(mut self, name: impl Into<String>, port: u16, leads_to: SocketAddr) -> Self {
        self.services.push((name.into(), port, leads_to));
        self
    }

    /// Replaces tokens of ServiceAccounts after this time, not after four fifths of what they are valid for.
    pub fn token_renewal(mut self, after: Duration) -> Self {
        self.token_renewal = Some(after);
        self
    }

    /// Starts the runner, which sees every Pod of the hub from now on.
    pub async fn start(self) -> Result<Pods, HubError> {
        let tools = Tools::find().await?;
        let directory = std::env::temp_dir().join(format!("local-hub-pods-{}", random::hex()?));
        let holder = Supervised::start(&directory, &holder()).await?;
        let images = Images::unpack(&self.images, &directory.join("images")).await?;
        let mut forwards = vec![Forward::api_server(self.connection.address)];
        forwards.extend(
            self.services
                .iter()
                .enumerate()
                .map(|(number, (name, port, leads_to))| Forward::named(number, name, *port, *leads_to)),
        );
        let networks = Networks::default();
        let world = World {
            place: SandboxPlace { tools, directory: directory.clone() },
            images,
            forwards,
            networks: networks.clone(),
            token_renewal: self.token_renewal,
        };
        let failed = |source| HubError::io("start the runner of pods", source);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let node = Node::new(self.connection.watching, self.connection.asking, world);
        let thread = std::thread::Builder::new().name("pods".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    // Told to end, or forgotten.
                    _ = ended => {}
                    () = node.run() => {}
                }
            });
            // What runs is killed when its task is dropped; then there is nobody to write into the directory.
            drop(runtime);
            drop(holder);
        });
        Ok(Pods { directory, networks, handle, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }
}

/// The runner of a hub's Pods. When it is dropped, every container is killed, and gone when `drop` returns; Pods are
/// left as they are on the hub.
///
/// Like [`UserServer`](crate::UserServer) it runs in a thread of its own.
#[derive(Debug)]
pub struct Pods {
    directory: PathBuf,
    networks: Networks,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pods {
    /// A runner for a hub's Pods, to be described and started. It acts with all rights, and in nobody's name that
    /// the audit log's readers count.
    pub fn on(hub: &LocalHub) -> Result<PodsBuilder, HubError> {
        let access = hub.access();
        Ok(PodsBuilder::new(Connection {
            watching: access.client(users::HARNESS)?,
            asking: access.harness()?,
            address: (Ipv4Addr::LOCALHOST, access.port).into(),
        }))
    }

    /// The same for a hub of another process, by a kubeconfig with all rights.
    pub async fn on_kubeconfig(path: &Path) -> Result<PodsBuilder, HubError> {
        let config = access::config_from(path).await?;
        let server = config.cluster_url.to_string();
        let address = config.cluster_url.authority().and_then(|authority| authority.as_str().parse().ok());
        let address = address.ok_or_else(|| HubError::Upstream {
            server,
            reason: "pods are led to an address and a port".to_owned(),
        })?;
        let client = |config| Client::try_from(config).map_err(HubError::api("make a client"));
        let asking = client(access::impatient(config.clone()))?;
        Ok(PodsBuilder::new(Connection { watching: client(config)?, asking, address }))
    }

    /// Whether this machine has what it takes, and lets us.
    pub async fn can_run() -> Result<(), HubError> {
        Tools::find().await.map(drop)
    }

    /// Where the files are that containers write into: NAMESPACE/POD/CONTAINER.log.
    #[must_use]
    pub fn log_directory(&self) -> PathBuf {
        worker::logs(&self.directory)
    }

    /// All that a container has written in all its starts; also when its Pod is gone, whose name no other has.
    #[must_use]
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> String {
        let file = worker::log_file(&self.directory, namespace, pod, container);
        String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Sends a signal by name to all processes of a container.
    pub async fn signal(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        signal: &str,
    ) -> Result<(), HubError> {
        let failed = |why| HubError::Pods(format!("signal {signal} to {namespace}/{pod}/{container}: {why}"));
        let key = (namespace.to_owned(), pod.to_owned());
        let (network, _) = self.networks.of(&key).ok_or_else(|| failed("the pod does not run"))?;
        let processes = network.processes_of(container);
        if processes.is_empty() {
            return Err(failed("the container does not run"));
        }
        for pid in processes {
            // An error is a process that has ended.
            let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).output().await;
        }
        Ok(())
    }

    /// An address of this machine that leads to a port of a pod, as `kubectl port-forward` does.
    pub fn forward(&self, namespace: &str, pod: &str, port: u16) -> Result<SocketAddr, HubError> {
        let failed = |source| HubError::io(format!("forward to pod {namespace}/{pod}"), source);
        let listener = ports::listen(Ipv4Addr::LOCALHOST.into())?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let networks = self.networks.clone();
        let key = (namespace.to_owned(), pod.to_owned());
        self.handle.spawn(async move {
            // It only fails outside a runtime.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            network::pass_on(listener, move || {
                let found = networks.of(&key);
                async move {
                    let (network, address) =
                        found.ok_or_else(|| std::io::Error::other("the pod does not run"))?;
                    network.connect(IpAddr::V4(address), port, CONNECT).await
                }
            })
            .await;
        });
        Ok(address)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // An error is a panic of that thread, and it has been printed.
            let _ = thread.join();
        }
    }
}

/// A namespace and a name.
type Key = (String, String);

/// Where the pods that run can be reached.
#[derive(Clone, Debug, Default)]
struct Networks(Arc<Mutex<BTreeMap<Key, (Network, Ipv4Addr)>>>);

impl Networks {
    fn of(&self, key: &Key) -> Option<(Network, Ipv4Addr)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn set(&self, key: Key, to: (Network, Ipv4Addr)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, to);
    }

    fn remove(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Does nothing, but has the directory, which holds tokens, removed with this process however it ends; containers may
/// be there or not.
fn holder() -> Program {
    Program {
        name: "the runner of pods",
        log: "runner.log".to_owned(),
        executable: "sleep".into(),
        arguments: vec!["infinity".into()],
        environment: Vec::new(),
        owns_directory: true,
    }
}
