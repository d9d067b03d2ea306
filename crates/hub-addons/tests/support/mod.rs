//! The program under test, beside a real hub, with the rights that its controllers need and no more.

#![allow(dead_code, reason = "every test file uses a part of this")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

pub mod building;
pub mod chain;
pub mod chart;
pub mod command;
pub mod credentials;
pub mod examples;
pub mod installed;
pub mod inventory;
pub mod plugin;
pub mod pods;
pub mod proxy;
pub mod rights;
pub mod service;
pub mod shared;
pub mod shown;
pub mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use local_hub::{Flavour, HubBuilder, LocalHub, Pods, Running, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use self::installed::Installed;

/// Longest wait for what a controller should do at once. It is long because the machine may be busy; a test
/// that passes does not wait.
pub const SOON: Duration = Duration::from_mins(1);

/// Longest wait for what a controller does to each cluster of a fleet in each namespace.
pub const WHOLE_FLEET: Duration = Duration::from_secs(80);

/// Starts the two controllers of profiles, and not the syncer.
pub const PROFILES: &str = "--feature-gates=ClusterProfileCredSyncer=false";

/// The user that the program runs as where it is a process of ours.
pub const USER: &str = "addons";

/// Who writes profiles, as [`Addons::start`] starts the program.
pub fn user() -> &'static str {
    if installed::is_wanted() { installed::PROFILES } else { USER }
}

/// Who writes copies of tokens, as [`Addons::start`] starts the program.
pub fn syncer_user() -> &'static str {
    if installed::is_wanted() { installed::CREDENTIALS } else { USER }
}

/// A hub and a client with OCM's own rights on it.
pub struct Hub {
    // Ends before the hub does.
    pods: Option<Arc<Pods>>,
    #[allow(clippy::struct_field_names, reason = "what it is")]
    pub hub: LocalHub,
    pub ocm: Client,
}

impl std::ops::Deref for Hub {
    type Target = LocalHub;

    fn deref(&self) -> &LocalHub {
        &self.hub
    }
}

impl Hub {
    /// A hub on which the program may do what these rules say.
    pub async fn start(builder: HubBuilder, rules: Vec<PolicyRule>) -> Self {
        Self::with_rights(installed::prepare(builder).start().await.unwrap(), rules).await
    }

    /// A hub that runs, where the program may do what these rules say from now on.
    pub async fn with_rights(hub: LocalHub, rules: Vec<PolicyRule>) -> Self {
        if !rules.is_empty() {
            hub.grant(USER, rules).await.unwrap();
        }
        let ocm = hub.client_as("ocm").await.unwrap();
        Self { pods: installed::runner(&hub).await, hub, ocm }
    }

    /// Has the hub serve ClusterProfile by another of its CRDs from now on, with all its versions.
    pub async fn serve(&self, flavour: Flavour) {
        self.serve_versions(flavour, |_| true).await;
    }

    /// The same with some of its versions alone. Which one is stored does not change.
    pub async fn serve_versions(&self, flavour: Flavour, served: impl Fn(&str) -> bool) {
        let mut crd = hub_api::crds::cluster_profile(flavour);
        for version in &mut crd.spec.versions {
            version.served = served(&version.name);
        }
        self.hub.update_crd(&crd).await.unwrap();
    }

    /// A hub for the projector.
    pub async fn for_projector() -> Self {
        Self::start(LocalHub::builder().without_controller_manager(), rights::projector()).await
    }

    /// Starts the projector alone, and waits until it works.
    pub async fn projector(&self, arguments: &[&str]) -> Addons {
        let mut all =
            vec!["--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false"];
        all.extend(arguments);
        Addons::start(self, &all).await
    }
}

/// The program, running: as a process beside the hub, or installed on it.
pub struct Addons {
    program: Program,
}

enum Program {
    Process { running: Running, probes: String, metrics: String },
    Installed(Installed),
}

impl Addons {
    /// Starts `hub-addons run`, or has it [`installed`], and waits until it has seen every list and works.
    pub async fn start(hub: &Hub, arguments: &[&str]) -> Self {
        let addons = match &hub.pods {
            Some(pods) => {
                let installed = Installed::start(hub, Arc::clone(pods), arguments).await;
                Self { program: Program::Installed(installed) }
            }
            None => Self::launch(hub, "hub-addons", USER, arguments).await,
        };
        addons.works().await;
        addons
    }

    /// Starts it as a process beside the hub, however others are started: for tests that are about the process, or about
    /// rights that the chart does not give.
    pub async fn beside(hub: &Hub, arguments: &[&str]) -> Self {
        let addons = Self::launch(hub, "hub-addons", USER, arguments).await;
        addons.works().await;
        addons
    }

    /// Waits until it has seen every list and works.
    pub async fn works(&self) {
        let text = "every watch has its first list, working";
        eventually("it works", SOON, async || self.lines_with(text) >= self.processes()).await;
    }

    /// Starts `hub-addons run` as a user, with its log under a name, and waits until it serves its probes.
    pub async fn launch(hub: &Hub, name: &'static str, user: &str, arguments: &[&str]) -> Self {
        Self::launch_with(hub, name, &hub.kubeconfig_for(user).unwrap(), arguments).await
    }

    /// The same with a kubeconfig of its own.
    pub async fn launch_with(hub: &Hub, name: &'static str, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut all = vec![
            "run".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ];
        if !arguments.iter().any(|argument| argument.starts_with("--log-level")) {
            all.push("--log-level=debug".to_owned());
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let program = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
        let running = hub.run(name, program, all).await.unwrap();
        let metrics = Self::address_of(&running, "metrics").await;
        let probes = Self::address_of(&running, "probes").await;
        Self { program: Program::Process { running, probes, metrics } }
    }

    async fn address_of(running: &Running, what: &str) -> String {
        let message = format!("serving {what}");
        eventually(&format!("it serves {what}"), SOON, async || {
            let log = running.log();
            let line = log.lines().find(|line| line.contains(&message))?;
            // As text or as JSON.
            let address = line.split_once("address=").or_else(|| line.split_once("\"address\":\""))?.1;
            Some(address.split([' ', '"']).next()?.to_owned())
        })
        .await
    }

    /// Waits until its log has a text.
    pub async fn logs(&self, what: &str, text: &str) {
        eventually(&format!("the log says that it is {what}"), SOON, async || self.log().contains(text))
            .await;
    }

    /// How many processes it is.
    pub fn processes(&self) -> usize {
        match &self.program {
            Program::Process { .. } => 1,
            Program::Installed(installed) => installed.processes(),
        }
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        match &self.program {
            Program::Process { running, .. } => running.log(),
            Program::Installed(installed) => installed.log(),
        }
    }

    /// The process beside the hub, for tests of the process.
    fn running(&self) -> &Running {
        match &self.program {
            Program::Process { running, .. } => running,
            Program::Installed(_) => {
                panic!("this test is about the process, and not about what is installed")
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Sends a signal by name.
    pub async fn signal(&self, signal: &'static str) {
        match &self.program {
            Program::Process { running, .. } => running.signal(signal).await.unwrap(),
            Program::Installed(installed) => installed.signal(signal).await,
        }
    }

    /// Waits for its end, and answers its exit status.
    pub async fn exit_status(&self) -> Option<i32> {
        tokio::time::timeout(Duration::from_mins(1), self.running().exit_status())
            .await
            .unwrap_or_else(|_| panic!("it does not end:\n{}", self.log()))
    }

    /// Has it end in good order.
    pub async fn stop(self) {
        match self.program {
            Program::Process { .. } => {
                self.signal("TERM").await;
                assert_eq!(self.exit_status().await, Some(0), "{}", self.log());
            }
            Program::Installed(installed) => installed.stop().await,
        }
    }

    /// Ends it without a chance to finish anything.
    pub async fn kill(self) {
        match self.program {
            Program::Process { ref running, .. } => {
                // Its end may be known before it is known that the signal was sent.
                let _ = running.signal("KILL").await;
                self.exit_status().await;
            }
            Program::Installed(installed) => installed.kill().await,
        }
    }

    /// What a probe answers: `/livez` or `/readyz`. Of several processes that which has most to say.
    pub async fn probe(&self, path: &str) -> (u16, String) {
        let mut answers = Vec::new();
        match &self.program {
            Program::Process { probes, .. } => answers.push(get(probes, path).await),
            Program::Installed(installed) => {
                for address in installed.probes() {
                    answers.push(get(&address, path).await);
                }
            }
        }
        answers.into_iter().max().unwrap()
    }

    /// The value of a metric's series, as it stands in the text: `name{label="value"}`.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.metrics().await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// Waits until a metric's series has at least a value.
    pub async fn measures_at_least(&self, series: &str, value: f64) {
        eventually(&format!("{series} is at least {value}"), SOON, async || {
            let now = self.metric(series).await;
            if now.is_some_and(|now| now >= value) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }

    /// Everything that it measures, as text.
    pub async fn metrics(&self) -> String {
        match &self.program {
            Program::Process { metrics, .. } => get(metrics, "/metrics").await.1,
            Program::Installed(installed) => {
                let mut text = String::new();
                for address in installed.metrics() {
                    text += &get(&address, "/metrics").await.1;
                }
                text
            }
        }
    }

    /// In how many lines its log has a text.
    pub fn lines_with(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until a metric's series has a value.
    pub async fn measures(&self, series: &str, value: f64) {
        self.measures_within(series, value, SOON).await;
    }

    /// Waits so long at most.
    pub async fn measures_within(&self, series: &str, value: f64, within: Duration) {
        eventually(&format!("{series} is {value}"), within, async || {
            let now = self.metric(series).await;
            if now == Some(value) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

/// A GET without an HTTP library: the answers are short, and the connection closes behind them.
async fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
