//! A minimal node: runs Pods in the root file systems of their images, as the API server describes them.
//!
//! [Workload controllers](crate::HubBuilder::workloads) create Pods of Deployments, and the API server adds a token of
//! its ServiceAccount to the volumes of each, as in any cluster; [`Pods`] is their scheduler and kubelet. It binds each
//! Pod without a node and runs it: volumes (`emptyDir`, `configMap`, `secret`, `downwardAPI`, `projected` with tokens
//! of the Pod's ServiceAccount, `image`), initContainers, containers with their command, environment, user and groups,
//! a read-only root if required, probes, restarts, and termination by SIGTERM and then SIGKILL. It writes the Pod's
//! status, so that Deployments become available and `helm install --wait` returns. Unsupported fields that would change
//! what runs (lifecycle hooks, other kinds of volumes, additional capabilities) are refused in the container's status.
//! Resources, seccomp profiles, scheduling constraints and DNS are ignored.
//!
//! A Pod's network is its own loopback device, with the API server at 10.0.0.1, port 443, and the configured Services
//! under their names. Nothing else is reachable.
//!
//! It requires Linux, root and permission to create namespaces, and util-linux, mount, iproute2 and tar.

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

use self::images::{Given, Images};
use self::network::{Forward, Network};
use self::node::Node;
use self::sandbox::{SandboxPlace, Tools};
use self::worker::World;
use crate::supervisor::{Program, Supervised};
use crate::{HubError, LocalHub, access, ports, random, users};

/// Timeout for connections to a Pod from outside.
const CONNECT: Duration = Duration::from_secs(5);

/// Configures a runner: see [`Pods::on`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PodsBuilder {
    connection: Connection,
    images: Vec<Given>,
    services: Vec<Forward>,
    token_renewal: Option<Duration>,
}

/// Two clients for one API server.
#[derive(Clone)]
struct Connection {
    /// For watches, which may be silent for long.
    watching: Client,
    /// For requests, which must return or fail soon.
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

    /// Adds an image: an OCI archive with one image, or a directory that is a root file system. Nothing is ever pulled.
    pub fn image(mut self, reference: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.images.push(Given { reference: reference.into(), path: path.into(), user: None });
        self
    }

    /// The same, and its programs run as this user: a directory has no configuration with a user.
    pub fn image_as(mut self, user: u32, reference: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.images.push(Given { reference: reference.into(), path: path.into(), user: Some(user) });
        self
    }

    /// Adds a host name and a port that Pods can connect to, such as a Service's, and its target.
    pub fn service(self, name: impl Into<String>, port: u16, leads_to: SocketAddr) -> Self {
        self.service_for("", name, port, leads_to)
    }

    /// The same, only for Pods whose names start with this: the runner itself listens on that port in these Pods.
    pub fn service_for(
        mut self,
        pods: impl Into<String>,
        name: impl Into<String>,
        port: u16,
        leads_to: SocketAddr,
    ) -> Self {
        let service = Forward::named(self.services.len(), &name.into(), port, leads_to);
        self.services.push(service.only_for(&pods.into()));
        self
    }

    /// Replaces tokens of ServiceAccounts after this time, not after four fifths of their validity.
    pub fn token_renewal(mut self, after: Duration) -> Self {
        self.token_renewal = Some(after);
        self
    }

    /// Starts the runner for all Pods of the hub.
    pub async fn start(self) -> Result<Pods, HubError> {
        let tools = Tools::find().await?;
        let directory = std::env::temp_dir().join(format!("local-hub-pods-{}", random::hex()?));
        let holder = Supervised::start(&directory, &holder()).await?;
        let images = Images::unpack(&self.images, &directory.join("images")).await?;
        let mut forwards = vec![Forward::api_server(self.connection.address)];
        forwards.extend(self.services);
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
                    // Stopped, or dropped.
                    _ = ended => {}
                    () = node.run() => {}
                }
            });
            // Dropping the tasks kills the containers; then nothing writes into the directory any more.
            drop(runtime);
            drop(holder);
        });
        Ok(Pods { directory, networks, handle, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }
}

/// The runner of a hub's Pods. Dropping it kills all containers and waits for their end; the Pods on the hub are not
/// changed.
///
/// Like [`UserServer`](crate::UserServer) it runs in its own thread.
#[derive(Debug)]
pub struct Pods {
    directory: PathBuf,
    networks: Networks,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pods {
    /// A runner for a hub's Pods, to be configured and started. It has all permissions, under a name that readers of
    /// the audit log ignore.
    pub fn on(hub: &LocalHub) -> Result<PodsBuilder, HubError> {
        let access = hub.access();
        Ok(PodsBuilder::new(Connection {
            watching: access.client(users::HARNESS)?,
            asking: access.harness()?,
            address: (Ipv4Addr::LOCALHOST, access.port).into(),
        }))
    }

    /// The same for a hub of another process, with a kubeconfig that has all permissions.
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

    /// Whether this machine has the required programs and permissions.
    pub async fn can_run() -> Result<(), HubError> {
        Tools::find().await.map(drop)
    }

    /// The directory of the containers' logs: NAMESPACE/POD/CONTAINER.log.
    #[must_use]
    pub fn log_directory(&self) -> PathBuf {
        worker::logs(&self.directory)
    }

    /// The output of all runs of a container; also after its Pod is gone, whose name is unique.
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
        let (network, _) = self.networks.of(&key).ok_or_else(|| failed("the Pod is not running"))?;
        let processes = network.processes_of(container);
        if processes.is_empty() {
            return Err(failed("the container is not running"));
        }
        for pid in processes {
            // An error means that the process has ended.
            let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).output().await;
        }
        Ok(())
    }

    /// A local address that forwards to a port of a Pod, as `kubectl port-forward` does.
    pub fn forward(&self, namespace: &str, pod: &str, port: u16) -> Result<SocketAddr, HubError> {
        let failed = |source| HubError::io(format!("forward to pod {namespace}/{pod}"), source);
        let listener = ports::listen(Ipv4Addr::LOCALHOST.into())?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let networks = self.networks.clone();
        let key = (namespace.to_owned(), pod.to_owned());
        self.handle.spawn(async move {
            // It fails only outside a runtime.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            network::pass_on(listener, move || {
                let found = networks.of(&key);
                async move {
                    let (network, address) =
                        found.ok_or_else(|| std::io::Error::other("the Pod is not running"))?;
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
            // An error is a panic of that thread, which has been printed.
            let _ = thread.join();
        }
    }
}

/// A namespace and a name.
type Key = (String, String);

/// The addresses of running Pods.
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

/// Does nothing but own the directory, which contains tokens, so that it is removed however this process ends.
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
