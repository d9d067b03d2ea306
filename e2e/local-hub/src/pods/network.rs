//! A Pod's network: only the loopback device of its own network namespace.
//!
//! The runner listens at addresses on that device and forwards connections: to the API server at its Service's address,
//! and to the configured Services. So two Pods can listen on the same port, and no interface, route or rule of the
//! machine is changed.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::HostAlias;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The API server's address for Pods: the first of the hub's Service range.
pub(crate) const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const API_SERVER_PORT: u16 = 443;

/// Its names for Pods.
pub(crate) const API_SERVER_NAMES: &str =
    "kubernetes.default.svc kubernetes.default.svc.cluster.local kubernetes.default kubernetes";

/// A name and a port that Pods can connect to, and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) target: SocketAddr,
    /// How the names of the Pods start that can connect.
    pods: String,
}

impl Forward {
    pub(crate) fn api_server(target: SocketAddr) -> Self {
        Self {
            name: API_SERVER_NAMES.to_owned(),
            address: API_SERVER,
            port: API_SERVER_PORT,
            target,
            pods: String::new(),
        }
    }

    /// A Service with this name; each name has an address, whatever its target.
    pub(crate) fn named(number: usize, name: &str, port: u16, target: SocketAddr) -> Self {
        let number = u8::try_from(number + 1).unwrap_or(u8::MAX);
        Self {
            name: name.to_owned(),
            address: Ipv4Addr::new(10, 255, 0, number),
            port,
            target,
            pods: String::new(),
        }
    }

    /// The same, only for Pods whose names start with this.
    pub(crate) fn only_for(self, pods: &str) -> Self {
        Self { pods: pods.to_owned(), ..self }
    }

    /// Whether a Pod can connect to it.
    pub(crate) fn is_for(&self, pod: &str) -> bool {
        pod.starts_with(&self.pods)
    }
}

/// The address of the Pod with this number.
pub(crate) fn pod_address(number: usize) -> Ipv4Addr {
    let [.., high, low] = u32::try_from(number % 0xffff + 1).unwrap_or(1).to_be_bytes();
    Ipv4Addr::new(10, 244, high, low)
}

/// A network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Network(PathBuf);

impl Network {
    /// The network namespace of a process.
    pub(crate) fn of(pid: u32) -> Self {
        Self(PathBuf::from(format!("/proc/{pid}/ns/net")))
    }

    /// The processes in it whose root is a container's.
    pub(crate) fn processes_of(&self, container: &str) -> Vec<u32> {
        let Ok(network) = std::fs::read_link(&self.0) else { return Vec::new() };
        let root = Path::new("containers").join(container).join("root");
        let is_its = |process: &Path| {
            std::fs::read_link(process.join("ns/net")).is_ok_and(|its| its == network)
                && std::fs::read_link(process.join("root")).is_ok_and(|its| its.ends_with(&root))
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        processes
            .filter(|process| is_its(&process.path()))
            .filter_map(|process| process.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Connects from inside.
    pub(crate) async fn connect(
        &self,
        address: IpAddr,
        port: u16,
        within: Duration,
    ) -> io::Result<TcpStream> {
        let stream = self
            .inside(move || std::net::TcpStream::connect_timeout(&(address, port).into(), within))
            .await?;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }

    /// Listens inside and forwards connections, until the returned task is aborted.
    pub(crate) async fn forward(&self, forward: &Forward) -> io::Result<AbortHandle> {
        let (address, target) = ((forward.address, forward.port), forward.target);
        let listener = self.inside(move || std::net::TcpListener::bind(address)).await?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let connect = move || TcpStream::connect(target);
        Ok(tokio::spawn(pass_on(listener, connect)).abort_handle())
    }

    /// Runs a function in the namespace. A socket belongs to the namespace in which it was created, whoever uses it
    /// later, so a thread enters the namespace and ends there.
    async fn inside<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.0.clone();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name("pod-network".to_owned()).spawn(move || {
            let done = File::open(&path)
                .and_then(|namespace| {
                    let network = Some(LinkNameSpaceType::Network);
                    Ok(move_into_link_name_space(namespace.as_fd(), network)?)
                })
                .and_then(|()| act());
            // The caller may have stopped waiting.
            let _ = sender.send(done);
        })?;
        result.await.map_err(io::Error::other)?
    }
}

/// Forwards each connection to what `connect` returns.
pub(crate) async fn pass_on<F>(listener: TcpListener, connect: impl Fn() -> F)
where
    F: Future<Output = io::Result<TcpStream>> + Send + 'static,
{
    // They end with this task: a Pod's connections do not outlive the Pod.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((mut near, _)) => {
                    let connecting = connect();
                    connections.spawn(async move {
                        // An error on one side closes the other.
                        if let Ok(mut far) = connecting.await {
                            let _ = far.set_nodelay(true);
                            let _ = near.set_nodelay(true);
                            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                        }
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The contents of a Pod's `/etc/hosts`.
pub(crate) fn hosts(name: &str, address: Ipv4Addr, forwards: &[Forward], aliases: &[HostAlias]) -> String {
    let mut lines = vec!["127.0.0.1 localhost".to_owned(), format!("{address} {name}")];
    lines.extend(forwards.iter().map(|forward| format!("{} {}", forward.address, forward.name)));
    lines.extend(aliases.iter().map(|alias| {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        format!("{} {}", alias.ip, names.join(" "))
    }));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_can_be_for_some_pods_only() {
        let service = Forward::named(0, "proxy.ns", 9092, ([127, 0, 0, 1], 1).into());
        assert!(service.is_for("client-1"));
        let service = service.only_for("client-");
        assert!(service.is_for("client-1") && !service.is_for("server-1"));
    }

    #[test]
    fn pods_have_addresses_of_their_own() {
        assert_eq!(pod_address(0), Ipv4Addr::new(10, 244, 0, 1));
        assert_eq!(pod_address(255), Ipv4Addr::new(10, 244, 1, 0));
        assert_ne!(pod_address(3), pod_address(4));
    }

    #[test]
    fn a_pod_resolves_itself_the_api_server_the_configured_services_and_its_own_aliases() {
        let forwards = [
            Forward::api_server(([127, 0, 0, 1], 6443).into()),
            Forward::named(0, "proxy.ns", 9092, ([127, 0, 0, 1], 1).into()),
        ];
        let hostnames = Some(vec!["a.example".to_owned(), "b.example".to_owned()]);
        let aliases = [HostAlias { ip: "127.0.0.1".to_owned(), hostnames }];
        let hosts = hosts("pod", pod_address(0), &forwards, &aliases);
        assert!(hosts.contains("\n10.244.0.1 pod\n10.0.0.1 kubernetes.default.svc "), "{hosts}");
        assert!(hosts.ends_with("\n10.255.0.1 proxy.ns\n127.0.0.1 a.example b.example\n"), "{hosts}");
    }
}
