//! The programs of a node and their configuration.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::images::{self, Given};
use super::network::{Network, Relay};
use crate::access::write_private;
use crate::eventually::try_eventually;
use crate::programs::output_of;
use crate::supervisor::{Program, Running};
use crate::{HubError, users};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pods/node.sh");
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/node.sh");

/// A node takes 3 seconds on an idle machine; this one may be compiling.
const PATIENCE: Duration = Duration::from_mins(4);

/// Where each node reaches the API server and its name server. They are outside the range of Services, since kube-proxy
/// refuses connections to Services without endpoints.
const API_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const API_SERVER_PORT: u16 = 6443;
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// The image of the program that holds a Pod's namespaces.
const SANDBOX: &str = "registry.example.com/sandbox:1";

/// `DIRECTORY` is the node's. The directories of plugins are those of the CNI project and of Debian.
const CONTAINERD: &str = r#"
version = 3
root = "DIRECTORY/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
address = "DIRECTORY/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "SANDBOX"
[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE, as in a container, scores cannot be lowered.
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]
conf_dir = "DIRECTORY/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"#;

/// Each Pod has a link of its own to the node, which routes: not every kernel filters what crosses a bridge.
const CNI: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "ptp",
    "ipam": {
      "type": "host-local",
      "dataDir": "/run/cni",
      "ranges": [[{ "subnet": "10.244.NUMBER.0/24" }]],
      "routes": [{ "dst": "0.0.0.0/0" }]
    }
  }]
}
"#;

const KUBELET: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# Nothing outside the node reaches it but the API server.
authentication: { anonymous: { enabled: true }, webhook: { enabled: false } }
authorization: { mode: AlwaysAllow }
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {}
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
clusterDNS: [NAMESERVER]
clusterDomain: cluster.local
resolvConf: ''
containerRuntimeEndpoint: unix://DIRECTORY/containerd.sock
containerLogMaxSize: 1Gi
podLogsDir: DIRECTORY/pod-logs
nodeStatusUpdateFrequency: 2s
# As on the first request for a change, and not a minute later.
configMapAndSecretChangeDetectionStrategy: Watch
syncFrequency: 2s
";

const KUBE_PROXY: &str = "
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: { kubeconfig: kubeconfig }
clusterCIDR: 10.244.0.0/16
hostnameOverride: NAME
# Settings of the whole machine.
conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }
";

/// What nodes need.
pub(crate) struct Configuration {
    /// A kubeconfig with all permissions, and the API server's address, from outside.
    pub(crate) kubeconfig: Value,
    pub(crate) api_server: SocketAddr,
    pub(crate) images: Vec<Given>,
    /// Images of programs that are built with those of the node.
    pub(crate) programs: Vec<(String, &'static str)>,
    /// Names of hosts, each with a port and where it leads.
    pub(crate) services: Vec<(String, u16, SocketAddr)>,
    /// What enforces network policies.
    pub(crate) policies: Option<PathBuf>,
}

/// A running node. Dropping it kills everything in it, waits for its end, and removes its directory.
pub(crate) struct Node {
    name: String,
    directory: PathBuf,
    running: Running,
    pub(crate) network: Network,
}

/// Whether this machine can run a node.
pub(crate) async fn can_run() -> Result<(), HubError> {
    output_of(Command::new(BUILD).arg("--can"), "run Pods here").await.map(drop)
}

/// The directory of the programs. The first call of a process may build them, which takes minutes.
pub(crate) async fn programs() -> Result<&'static Path, HubError> {
    static DIRECTORY: OnceCell<PathBuf> = OnceCell::const_new();
    let find = async || {
        can_run().await?;
        output_of(&mut Command::new(BUILD), "run hack/node.sh").await.map(PathBuf::from)
    };
    DIRECTORY.get_or_try_init(find).await.map(PathBuf::as_path)
}

/// Starts the scheduler of all nodes in a new directory.
pub(crate) async fn start_scheduler(
    directory: &Path,
    programs: &Path,
    configuration: &Configuration,
) -> Result<Running, HubError> {
    let holder = Running::hold(directory).await?;
    write_private(&directory.join("kubeconfig"), configuration.kubeconfig.to_string())?;
    let arguments = ["--kubeconfig=kubeconfig", "--leader-elect=false", "--secure-port=0"];
    let program = programs.join("kube-scheduler");
    replace(holder, directory, "kube-scheduler", program, arguments).await
}

impl Node {
    /// Starts the node with this number in a new directory: containerd with all images. Returns also what listens inside
    /// it, and where that leads.
    pub(crate) async fn start(
        number: u8,
        directory: &Path,
        programs: &Path,
        configuration: &Configuration,
    ) -> Result<(Self, Vec<(TcpListener, SocketAddr)>), HubError> {
        let name = name(number);
        let holder = Running::hold(directory).await?;
        let failed = |source| HubError::io(format!("write {}", directory.display()), source);
        let archives = directory.join("images");
        for made in [&archives, &directory.join("cni")] {
            std::fs::create_dir(made).map_err(failed)?;
        }
        let mut images = configuration.images.clone();
        for (reference, program) in
            configuration.programs.iter().chain([&(SANDBOX.to_owned(), "sandbox")])
        {
            let path = directory.join(program);
            std::fs::create_dir(&path).map_err(failed)?;
            std::fs::copy(programs.join(program), path.join(program)).map_err(failed)?;
            images.push(Given { reference: reference.clone(), path });
        }
        for (number, image) in images.iter().enumerate() {
            images::archive(image, &archives.join(number.to_string()), &programs.join("image"))
                .await?;
        }
        let cgroup = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let services = services(&configuration.services);
        write_private(
            &directory.join("kubeconfig"),
            kubeconfig(&configuration.kubeconfig).to_string(),
        )?;
        for (file, contents) in [
            ("cgroup", cgroup.as_str()),
            ("cni/pods.conflist", CNI),
            ("containerd.toml", CONTAINERD),
            ("Corefile", &corefile(&configuration.services, &services)),
            ("kubelet.yaml", KUBELET),
            ("kube-proxy.yaml", KUBE_PROXY),
        ] {
            let contents = contents
                .replace("DIRECTORY", &directory.display().to_string())
                .replace("NAMESERVER", &NAME_SERVER.to_string())
                .replace("NAME", &name)
                .replace("NUMBER", &number.to_string())
                .replace("SANDBOX", SANDBOX);
            write_private(&directory.join(file), contents)?;
        }
        if let Some(program) = &configuration.policies {
            std::os::unix::fs::symlink(program, directory.join("kube-router")).map_err(failed)?;
        }
        let addresses = [address(number), NAME_SERVER, API_SERVER];
        let addresses = addresses.into_iter().chain(services.iter().map(|relay| relay.inside.0));
        let mut arguments: Vec<OsString> =
            ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", SCRIPT]
                .map(Into::into)
                .into();
        arguments.extend([programs.into(), cgroup.into(), name.clone().into()]);
        arguments.extend(addresses.map(|address| address.to_string().into()));
        let running = replace(holder, directory, "node", "unshare".into(), arguments).await?;
        let network = Network::of(running.pid());
        let api_server =
            Relay { inside: (API_SERVER, API_SERVER_PORT), outside: configuration.api_server };
        let starting = async {
            let mut relays = Vec::new();
            for relay in services.into_iter().chain([api_server]) {
                let listening = "the node has its addresses";
                let listener = try_eventually(listening, PATIENCE, async || {
                    network.listen(relay.inside).await.map(Some)
                })
                .await?;
                relays.push((listener, relay.outside));
            }
            Ok::<_, HubError>(relays)
        };
        let relays = tokio::select! {
            biased;
            death = running.death() => return Err(death),
            relays = starting => relays?,
        };
        Ok((Self { name, directory: directory.to_owned(), running, network }, relays))
    }

    /// Starts the kubelet, for which the relays must be served, and returns when the node is ready.
    pub(crate) async fn ready(&self, client: &Client) -> Result<(), HubError> {
        let since =
            Timestamp::now().round(Unit::Second).unwrap_or_default() - Duration::from_secs(1);
        write_private(&self.directory.join("begin"), "")?;
        let nodes: Api<NodeObject> = Api::all(client.clone());
        tokio::select! {
            biased;
            death = self.running.death() => return Err(death),
            ready = try_eventually("the node is ready", PATIENCE, async || {
                let node = nodes.get(&self.name).await.map_err(|error| error.to_string())?;
                if is_ready(&node, since) { Ok(()) } else { Err(format!("{:?}", node.status)) }
            }) => ready?,
        }
        write_private(&self.directory.join("registered"), "")
    }

    /// The kubelet's logs of containers.
    pub(crate) fn logs(&self) -> PathBuf {
        self.directory.join("pod-logs")
    }

    /// Kills everything in it.
    pub(crate) async fn stop(self) -> Result<(), HubError> {
        self.running.stop().await
    }
}

/// The name of the node with this number.
pub(crate) fn name(number: u8) -> String {
    format!("node-{number}")
}

/// The address of the node with this number.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 100 + number)
}

/// Whether a node has been ready since a time: its object may be that of an earlier one.
fn is_ready(node: &NodeObject, since: Timestamp) -> bool {
    let is_tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready =
        conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
    !is_tainted
        && ready.any(|ready| ready.last_heartbeat_time.as_ref().is_some_and(|time| time.0 >= since))
}

/// Publishes where nodes reach the API server, which does not do so itself, since its address is a loopback one.
pub(crate) async fn publish_api_server(client: &Client) -> Result<(), HubError> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": "IPv4",
        "ports": [{ "name": "https", "port": API_SERVER_PORT, "protocol": "TCP" }],
        "endpoints": [{ "addresses": [API_SERVER], "conditions": { "ready": true } }],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let params = PatchParams::apply(users::HARNESS).force();
    let applied = slices.patch("kubernetes", &params, &Patch::Apply(slice)).await;
    applied.map(drop).map_err(HubError::api("publish the API server's address"))
}

/// The relays of services, each at an address of its own.
fn services(services: &[(String, u16, SocketAddr)]) -> Vec<Relay> {
    let relay = |(number, (_, port, outside)): (u8, &(String, u16, SocketAddr))| Relay {
        inside: (Ipv4Addr::new(198, 51, 100, number), *port),
        outside: *outside,
    };
    (1..).zip(services).map(relay).collect()
}

/// The configuration of `CoreDNS`: the names of services are known beside those of the cluster.
fn corefile(services: &[(String, u16, SocketAddr)], relays: &[Relay]) -> String {
    let lines = services.iter().zip(relays);
    let lines = lines.map(|((name, _, _), relay)| format!("    {} {name}\n", relay.inside.0));
    let hosts = lines.collect::<Vec<_>>().concat();
    format!(
        ".:53 {{\n  bind {NAME_SERVER}\n  errors\n  hosts {{\n{hosts}    fallthrough\n  }}\n  kubernetes cluster.local \
         {{\n    kubeconfig DIRECTORY/kubeconfig\n  }}\n}}\n"
    )
}

/// The kubeconfig of the node's programs.
fn kubeconfig(with_all_permissions: &Value) -> Value {
    let mut kubeconfig = with_all_permissions.clone();
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{API_SERVER}:{API_SERVER_PORT}"));
    cluster["tls-server-name"] = json!("kubernetes.default.svc");
    kubeconfig
}

/// Starts a program in a directory that another process holds, which it owns from then on.
async fn replace<A: Into<OsString>>(
    holder: Running,
    directory: &Path,
    name: &'static str,
    executable: PathBuf,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Running, HubError> {
    let program = Program { owns_directory: true, ..Program::new(name, executable, arguments) };
    let running = Running::start(directory, &program).await?;
    holder.stop_and_keep_directory().await?;
    Ok(running)
}
