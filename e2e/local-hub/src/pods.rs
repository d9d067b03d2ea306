//! Nodes beside a hub: kubelet, containerd, kube-proxy, kube-scheduler and `CoreDNS`, as local processes.
//!
//! The programs are upstream's, built by `hack/node.sh`; runc and the CNI plugins are those of the system. Those of a
//! node run in a process, a mount and a network namespace of their own, whose first process is supervised as the programs
//! of a hub are: when it ends, the kernel ends everything in them, and its supervisor removes the cgroups and the
//! directory.
//!
//! A node has no way out of its network, also not to other nodes: its Pods reach each other, their Services, the API
//! server, and the hosts that the test adds with [`PodsBuilder::service`]. Images are those of the test as well; nothing
//! is pulled.

mod images;
mod logs;
mod network;
mod node;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::Value;
use tokio::net::{TcpStream, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::images::Given;
use self::network::{Network, Networks, pass_on, serve_egress};
use self::node::{Configuration, Node};
use crate::supervisor::Running;
use crate::{HubError, LocalHub, access, field, ports, programs, random, users};

/// Configures nodes: see [`Pods::on`].
#[must_use]
pub struct PodsBuilder {
    nodes: u8,
    configuration: Configuration,
    network_policies: bool,
    client: Client,
    /// The hub's socket for connections to nodes, Pods and Services.
    egress: PathBuf,
}

impl PodsBuilder {
    fn new(kubeconfig: Value, api_server: SocketAddr, client: Client, hub: &Path) -> Self {
        let (images, programs, services) = (Vec::new(), Vec::new(), Vec::new());
        let configuration =
            Configuration { kubeconfig, api_server, images, programs, services, policies: None };
        Self {
            nodes: 1,
            configuration,
            network_policies: false,
            client,
            egress: hub.join(programs::EGRESS_SOCKET),
        }
    }

    /// Adds an image: an OCI archive with one image, or a directory with static programs, which run as user 65532.
    pub fn image(mut self, reference: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.configuration.images.push(Given { reference: reference.into(), path: path.into() });
        self
    }

    /// Adds an image with a program that `hack/node.sh` builds.
    pub fn node_program(mut self, reference: &str, program: &'static str) -> Self {
        self.configuration.programs.push((reference.to_owned(), program));
        self
    }

    /// Adds a host and a port that Pods can connect to, and where it leads. Its addresses inside are 198.51.100.1 and so
    /// on.
    pub fn service(mut self, name: impl Into<String>, port: u16, leads_to: SocketAddr) -> Self {
        self.configuration.services.push((name.into(), port, leads_to));
        self
    }

    /// Sets the number of nodes, `node-1` and so on; one by default.
    pub fn nodes(mut self, number: u8) -> Self {
        self.nodes = number;
        self
    }

    /// Enforces network policies, with kube-router; this needs ipset, and the legacy programs of iptables.
    pub fn network_policies(mut self) -> Self {
        self.network_policies = true;
        self
    }

    /// Starts the nodes, and returns when they are ready. The first call on a machine builds their programs, which takes
    /// minutes.
    pub async fn start(self) -> Result<Pods, HubError> {
        // Tests that hold it in their futures need not be large.
        Box::pin(self.start_all()).await
    }

    async fn start_all(self) -> Result<Pods, HubError> {
        let Self { nodes: number, mut configuration, network_policies, client, egress } = self;
        let programs = node::programs().await?;
        if network_policies {
            configuration.policies = Some(field::program("kube-router").await?);
        }
        node::publish_api_server(&client).await?;
        let directory = std::env::temp_dir().join(format!("local-hub-pods-{}", random::hex()?));
        let scheduler = node::start_scheduler(&directory, programs, &configuration).await?;
        let logs = directory.join("logs");

        let failed = |source| HubError::io("serve the connections of nodes", source);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("pods".to_owned()).spawn(move || {
            // Stopped, or dropped.
            let _ = runtime.block_on(ended);
        });
        let mut nodes = BTreeMap::new();
        let mut pods = Pods {
            directory,
            client,
            networks: Networks::default(),
            handle,
            end: Some(end),
            thread: Some(thread.map_err(failed)?),
            nodes: Mutex::default(),
            _scheduler: scheduler,
        };
        for number in 1..=number {
            let directory = pods.directory.with_file_name(format!("{}-{number}", pods.file_name()));
            let (node, relays) = Node::start(number, &directory, programs, &configuration).await?;
            pods.networks.0.insert(number, node.network.clone());
            for (listener, outside) in relays {
                let _entered = pods.handle.enter();
                let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
                pods.handle.spawn(pass_on(listener, move || TcpStream::connect(outside)));
            }
            pods.handle.spawn(logs::keep(node.logs(), logs.clone()));
            nodes.insert(node::name(number), node);
        }
        // That of earlier nodes.
        let _ = std::fs::remove_file(&egress);
        {
            let _entered = pods.handle.enter();
            let listener = UnixListener::bind(&egress).map_err(failed)?;
            pods.handle.spawn(serve_egress(listener, pods.networks.clone()));
        }
        for node in nodes.values() {
            node.ready(&pods.client).await?;
        }
        pods.nodes = nodes.into();
        Ok(pods)
    }
}

/// The nodes of a hub. Dropping them kills everything that runs on them, and waits for its end; the objects on the hub
/// are not changed.
///
/// Like [`UserServer`](crate::UserServer), their connections are served by a thread of their own.
pub struct Pods {
    directory: PathBuf,
    client: Client,
    networks: Networks,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    nodes: Mutex<BTreeMap<String, Node>>,
    /// Owns the directory.
    _scheduler: Running,
}

impl Pods {
    /// Nodes for a hub that was started with [`workloads`](crate::HubBuilder::workloads), to be configured and
    /// started. They have all permissions, under a name that readers of the audit log ignore.
    pub fn on(hub: &LocalHub) -> Result<PodsBuilder, HubError> {
        let access = hub.access();
        let kubeconfig =
            access.kubeconfig(users::HARNESS, &access.credentials(users::HARNESS)?, None);
        let api_server = (Ipv4Addr::LOCALHOST, access.port()).into();
        Ok(PodsBuilder::new(kubeconfig, api_server, access.harness()?, hub.directory()))
    }

    /// The same for a hub of another process, with a kubeconfig that has all permissions, in the hub's directory.
    pub async fn on_kubeconfig(path: &Path) -> Result<PodsBuilder, HubError> {
        let config = access::config_from(path).await?;
        let server = config.cluster_url.to_string();
        let api_server =
            config.cluster_url.authority().and_then(|authority| authority.as_str().parse().ok());
        let api_server = api_server
            .ok_or_else(|| HubError::Failed(format!("{server:?} is not an address and a port")))?;
        let failed = |source| HubError::io(format!("read {}", path.display()), source);
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let kubeconfig: Value =
            serde_saphyr::from_str(&text).map_err(|error| failed(std::io::Error::other(error)))?;
        let client =
            Client::try_from(access::impatient(config)).map_err(HubError::api("make a client"))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Ok(PodsBuilder::new(kubeconfig, api_server, client, directory))
    }

    /// Whether this machine has the required programs and permissions.
    pub async fn can_run() -> Result<(), HubError> {
        node::can_run().await
    }

    fn file_name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Stops a node, as a machine stops that loses its power.
    pub async fn stop_node(&self, name: &str) -> Result<(), HubError> {
        let node = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        match node {
            Some(node) => node.stop().await,
            None => Err(HubError::Failed(format!("there is no node {name}"))),
        }
    }

    /// The directory of the containers' logs, as the kubelet writes them: NAMESPACE/POD/CONTAINER/RUN.log. They remain
    /// when Pods are deleted.
    #[must_use]
    pub fn log_directory(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// The output of all runs of a container; also after its Pod is gone, whose name is unique.
    #[must_use]
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> String {
        logs::read(&self.log_directory(), namespace, pod, container)
    }

    /// The processes of a running container, as this machine numbers them.
    pub async fn processes(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<u32>, HubError> {
        let found = Api::<Pod>::namespaced(self.client.clone(), namespace).get(pod).await;
        let found = found.map_err(HubError::api(format!("read pod {namespace}/{pod}")))?;
        let containers =
            found.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let id = containers.into_iter().find(|known| known.name == container);
        let id = id.and_then(|known| Some(known.container_id?.rsplit('/').next()?.to_owned()));
        Ok(id.map(|id| processes_in(&id)).unwrap_or_default())
    }

    /// Connects from the network of a running container.
    pub async fn connect_from(
        &self,
        (namespace, pod, container): (&str, &str, &str),
        to: SocketAddr,
    ) -> Result<(), HubError> {
        let doing = || format!("connect from {namespace}/{pod} to {to}");
        let failed = |source| HubError::io(doing(), source);
        let processes = self.processes(namespace, pod, container).await?;
        let process = processes
            .first()
            .ok_or_else(|| HubError::Failed(format!("{}: it does not run", doing())))?;
        Network::of(*process).connect(to).await.map(drop).map_err(failed)
    }

    /// A local address that forwards to a port of a Pod, as `kubectl port-forward` does.
    pub fn forward(&self, namespace: &str, pod: &str, port: u16) -> Result<SocketAddr, HubError> {
        let failed = |source| HubError::io(format!("forward to pod {namespace}/{pod}"), source);
        let listener = ports::listen(Ipv4Addr::LOCALHOST.into())?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (networks, pod) = (self.networks.clone(), pod.to_owned());
        self.handle.spawn(async move {
            // It fails only outside a runtime.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            // The Pod's address is the same as long as it exists, and needed while a test has stopped the API server.
            let known = Arc::new(OnceLock::new());
            if let Ok(ip) = address_of(&pods, &pod).await {
                known.get_or_init(|| ip);
            }
            pass_on(listener, move || {
                let (networks, pods, pod, known) =
                    (networks.clone(), pods.clone(), pod.clone(), Arc::clone(&known));
                async move {
                    let ip = match known.get() {
                        Some(ip) => *ip,
                        None => address_of(&pods, &pod).await?,
                    };
                    networks.connect(SocketAddr::new(*known.get_or_init(|| ip), port)).await
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

async fn address_of(pods: &Api<Pod>, pod: &str) -> std::io::Result<IpAddr> {
    let found = pods.get(pod).await.map_err(std::io::Error::other)?;
    let ip = found.status.and_then(|status| status.pod_ip?.parse().ok());
    ip.ok_or_else(|| std::io::Error::other("the Pod has no address"))
}

/// The processes in the cgroup of a container.
fn processes_in(container: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    processes
        .filter(|process| {
            let cgroups =
                std::fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
            cgroups.contains(container)
        })
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}
