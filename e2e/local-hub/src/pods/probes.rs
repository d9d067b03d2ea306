//! The probes of a running container: startup, liveness and readiness.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::network::Network;
use super::problem::Problem;
use super::sandbox::Process;

/// How often the readiness of an unready container is probed, whatever its period: a test waits for it. A kubelet with
/// a longer period only notices later.
const EAGERLY: Duration = Duration::from_secs(1);

/// The probes of a container, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    startup: Option<Question>,
    liveness: Option<Question>,
    readiness: Option<Question>,
}

#[derive(Clone, Debug)]
struct Question {
    ask: Ask,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

#[derive(Clone, Debug)]
enum Ask {
    Http { host: Option<IpAddr>, port: u16, path: String, headers: Vec<(String, String)> },
    Tcp { port: u16 },
    Exec(Vec<String>),
}

/// The results of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Started,
    Ready(bool),
}

impl Probes {
    pub(crate) fn of(container: &Container) -> Result<Self, Problem> {
        let question =
            |probe: &Option<Probe>| probe.as_ref().map(|probe| Question::new(probe, container)).transpose();
        Ok(Self {
            startup: question(&container.startup_probe)?,
            liveness: question(&container.liveness_probe)?,
            readiness: question(&container.readiness_probe)?,
        })
    }

    /// Probes repeatedly and reports the results. Returns the reason when the container must be restarted.
    pub(crate) async fn ask(&self, target: &Target<'_>, tell: impl Fn(Finding)) -> String {
        if let Some(startup) = &self.startup
            && !startup.until_success(target).await
        {
            return "failed its startup probe".to_owned();
        }
        tell(Finding::Started);
        let ready = async {
            if let Some(readiness) = &self.readiness {
                readiness.keep_asking(target, |ready| tell(Finding::Ready(ready))).await;
            } else {
                tell(Finding::Ready(true));
                std::future::pending::<()>().await;
            }
        };
        let alive = async {
            match &self.liveness {
                Some(liveness) => liveness.until_failure(target).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = alive => "failed its liveness probe".to_owned(),
            () = ready => "has no readiness".to_owned(),
        }
    }
}

/// The target of probes.
pub(crate) struct Target<'container> {
    pub(crate) network: Network,
    pub(crate) address: IpAddr,
    pub(crate) process: &'container Process,
}

impl Question {
    fn new(probe: &Probe, container: &Container) -> Result<Self, Problem> {
        let ask = if let Some(get) = &probe.http_get {
            http(get, container)?
        } else if let Some(tcp) = &probe.tcp_socket {
            Ask::Tcp { port: port(&tcp.port, container)? }
        } else if let Some(exec) = &probe.exec {
            Ask::Exec(exec.command.clone().unwrap_or_default())
        } else {
            return Err(Problem::unsupported("a kind of probe"));
        };
        let seconds = |field: Option<i32>, otherwise: u64| {
            Duration::from_secs(field.and_then(|value| value.try_into().ok()).unwrap_or(otherwise))
        };
        let count = |field: Option<i32>, otherwise: u32| {
            field.and_then(|value| value.try_into().ok()).unwrap_or(otherwise).max(1)
        };
        Ok(Self {
            ask,
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        })
    }

    /// True at the first success, false if there is none during the allowed number of failures.
    async fn until_success(&self, target: &Target<'_>) -> bool {
        let asking = async {
            tokio::time::sleep(self.delay).await;
            while !self.once(target).await {
                tokio::time::sleep(self.period.min(EAGERLY)).await;
            }
        };
        tokio::time::timeout(self.delay + self.period * self.failures, asking).await.is_ok()
    }

    async fn until_failure(&self, target: &Target<'_>) {
        tokio::time::sleep(self.delay).await;
        let mut failures = 0;
        while failures < self.failures {
            failures = if self.once(target).await { 0 } else { failures + 1 };
            tokio::time::sleep(self.period).await;
        }
    }

    /// Reports a changed result after the required number of repetitions. Never returns.
    async fn keep_asking(&self, target: &Target<'_>, tell: impl Fn(bool)) {
        tokio::time::sleep(self.delay).await;
        let (mut known, mut others) = (false, 0);
        loop {
            let answer = self.once(target).await;
            others = if answer == known { 0 } else { others + 1 };
            if others >= if known { self.failures } else { self.successes } {
                (known, others) = (answer, 0);
                tell(known);
            }
            tokio::time::sleep(if known { self.period } else { self.period.min(EAGERLY) }).await;
        }
    }

    async fn once(&self, target: &Target<'_>) -> bool {
        tokio::time::timeout(self.timeout, self.ask.of(target, self.timeout)).await.unwrap_or(false)
    }
}

impl Ask {
    async fn of(&self, target: &Target<'_>, within: Duration) -> bool {
        match self {
            Self::Http { host, port, path, headers } => {
                let address = host.unwrap_or(target.address);
                get(&target.network, address, *port, path, headers, within).await
            }
            Self::Tcp { port } => target.network.connect(target.address, *port, within).await.is_ok(),
            Self::Exec(command) => target.process.succeeds(command).await,
        }
    }
}

fn http(get: &HTTPGetAction, container: &Container) -> Result<Ask, Problem> {
    if get.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
        return Err(Problem::unsupported("probes by HTTPS"));
    }
    let host = match get.host.as_deref() {
        None | Some("") => None,
        Some(host) => Some(
            host.parse().map_err(|_| Problem::unsupported("probes of a host that is not an IP address"))?,
        ),
    };
    let headers = get.http_headers.iter().flatten();
    Ok(Ask::Http {
        host,
        port: port(&get.port, container)?,
        path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
        headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
    })
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, Problem> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    };
    number
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| Problem::config(format!("no port {port:?}")))
}

async fn get(
    network: &Network,
    address: IpAddr,
    port: u16,
    path: &str,
    headers: &[(String, String)],
    within: Duration,
) -> bool {
    let answer = async {
        let stream = network.connect(address, port, within).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        let mut request = http::Request::get(path)
            .header("Host", format!("{address}:{port}"))
            .header("User-Agent", "kube-probe/local-hub")
            .header("Connection", "close");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).ok()?;
        let mut response = pin!(sender.send_request(request));
        let response = tokio::select! {
            response = &mut response => response,
            // The response may arrive before the connection ends.
            _ = connection => response.await,
        };
        Some(response.ok()?.status().as_u16())
    };
    answer.await.is_some_and(|status| (200..400).contains(&status))
}
