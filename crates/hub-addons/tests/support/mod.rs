//! The program under test on a real hub, with only the permissions that its controllers need.

#![allow(dead_code, reason = "every test file uses a part of this")]

pub mod building;
pub mod chain;
pub mod chart;
pub mod cluster_permission;
pub mod command;
pub mod credentials;
pub mod examples;
pub mod field;
pub mod flavours;
pub mod go_program;
pub mod guides;
pub mod inventory;
pub mod kueue;
pub mod placement;
pub mod plugin;
pub mod pods;
pub mod proxy;
pub mod rights;
pub mod shared;
pub mod shown;
pub mod world;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::config::Kubeconfig;
use local_hub::{Flavour, HubBuilder, LocalHub, Relay, Running, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Timeout for what a controller does immediately. It is long because the machine may be busy; a passing test does not
/// wait that long.
pub const SOON: Duration = Duration::from_mins(3);

/// Timeout for what a controller does for each cluster of a fleet in each namespace.
pub const WHOLE_FLEET: Duration = Duration::from_mins(4);

/// Starts the controllers of profiles without the syncer.
pub const PROFILES: &str = "--feature-gates=ClusterProfileCredSyncer=false";

/// Starts the projector alone.
pub const PROJECTOR: &str =
    "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";

/// The user of the program.
pub const USER: &str = "addons";

/// A hub, and a client with OCM's permissions on it.
pub struct Hub {
    // Must end before the hub.
    registration: Option<Running>,
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
    /// A hub without a controller manager, on which the program has no permissions.
    pub async fn plain() -> Self {
        Self::of(Vec::new()).await
    }

    /// The same, with these permissions of the program.
    pub async fn of(rules: Vec<PolicyRule>) -> Self {
        Self::start(LocalHub::builder().without_controller_manager(), rules).await
    }

    /// A hub on which the program has these permissions.
    pub async fn start(builder: HubBuilder, rules: Vec<PolicyRule>) -> Self {
        Self::with_rights(field::prepare(builder).start().await.unwrap(), rules).await
    }

    /// A running hub on which the program gets these permissions.
    pub async fn with_rights(hub: LocalHub, rules: Vec<PolicyRule>) -> Self {
        if !rules.is_empty() {
            hub.grant(USER, rules).await.unwrap();
        }
        let ocm = hub.client_as("ocm").await.unwrap();
        let registration =
            if field::is_registered() { Some(field::registered(&hub).await) } else { None };
        Self { registration, hub, ocm }
    }

    /// Replaces the CRD of ClusterProfile by another flavour, with all its versions.
    pub async fn serve(&self, flavour: Flavour) {
        self.serve_versions(flavour, |_| true).await;
    }

    /// The same, with some of its versions only. The storage version does not change.
    pub async fn serve_versions(&self, flavour: Flavour, served: impl Fn(&str) -> bool) {
        let crd = hub_api::crds::cluster_profile(flavour);
        let mut crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
        for version in &mut crd.spec.versions {
            version.served = served(&version.name);
        }
        self.hub.update_crd(&crd).await.unwrap();
    }

    /// A hub for the projector.
    pub async fn for_projector() -> Self {
        Self::of(rights::projector()).await
    }

    /// Starts the projector alone, and waits until it works.
    pub async fn projector(&self, arguments: &[&str]) -> Addons {
        Addons::start(self, &[&[PROJECTOR], arguments].concat()).await
    }
}

/// The running program, a process beside the hub.
pub struct Addons {
    running: Running,
    probes: String,
    metrics: String,
}

impl Addons {
    /// Starts `hub-addons run`, and waits until its watches are synced.
    pub async fn start(hub: &Hub, arguments: &[&str]) -> Self {
        let addons = Self::launch(hub, "hub-addons", USER, arguments).await;
        addons.works().await;
        addons
    }

    /// The same through a relay before the API server.
    pub async fn relayed(hub: &Hub, arguments: &[&str]) -> (Relay, Self) {
        let path = hub.directory().join("relay.kubeconfig");
        let mut config = Kubeconfig::read_from(hub.kubeconfig_for(USER).unwrap()).unwrap();
        let server = config.clusters[0].cluster.as_mut().unwrap().server.as_mut().unwrap();
        let target = server.strip_prefix("https://").unwrap().parse().unwrap();
        let relay = Relay::before(target).await.unwrap();
        *server = format!("https://{}", relay.address());
        std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
        let addons = Self::launch_with(hub, "hub-addons", &path, arguments).await;
        addons.works().await;
        (relay, addons)
    }

    /// Waits until its watches are synced.
    pub async fn works(&self) {
        let text = "all watches are synced, starting to work";
        eventually("it works", SOON, async || {
            if self.lines_with(text) > 0 { Ok(()) } else { Err(self.log()) }
        })
        .await;
    }

    /// Starts `hub-addons run` as a user, with a name for its log, and waits until it serves its probes.
    pub async fn launch(hub: &Hub, name: &'static str, user: &str, arguments: &[&str]) -> Self {
        Self::launch_with(hub, name, &hub.kubeconfig_for(user).unwrap(), arguments).await
    }

    /// The same with its own kubeconfig.
    pub async fn launch_with(
        hub: &Hub,
        name: &'static str,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Self {
        Self::launch_command(hub, name, "run", kubeconfig, arguments).await
    }

    /// The same with another command.
    pub async fn launch_command(
        hub: &Hub,
        name: &'static str,
        command: &str,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Self {
        let mut all = vec![
            command.to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ];
        if !arguments.iter().any(|argument| argument.starts_with("--log-level")) {
            all.push("--log-level=debug".to_owned());
        }
        // The name of cluster-proxy's Service is resolved in a cluster only.
        if command == "run" && !arguments.iter().any(|it| it.starts_with("--server-check-interval"))
        {
            all.push("--server-check-interval=0".to_owned());
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let program = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
        let running = hub.run(name, program, all).await.unwrap();
        let metrics = Self::address_of(&running, "metrics").await;
        let probes = Self::address_of(&running, "probes").await;
        Self { running, probes, metrics }
    }

    async fn address_of(running: &Running, what: &str) -> String {
        let message = format!("serving {what}");
        eventually(&format!("it serves {what}"), SOON, async || {
            let log = running.log();
            let line = log.lines().find(|line| line.contains(&message))?;
            // As text or as JSON.
            let address =
                line.split_once("address=").or_else(|| line.split_once("\"address\":\""))?.1;
            Some(address.split([' ', '"']).next()?.to_owned())
        })
        .await
    }

    /// Waits until its log contains a text.
    pub async fn logs(&self, what: &str, text: &str) {
        eventually(&format!("the log shows: {what}"), SOON, async || self.log().contains(text))
            .await;
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Sends a signal by name.
    pub async fn signal(&self, signal: &'static str) {
        self.running.signal(signal).await.unwrap();
    }

    /// Waits for its end, and returns its exit status.
    pub async fn exit_status(&self) -> Option<i32> {
        tokio::time::timeout(SOON, self.running.exit_status())
            .await
            .unwrap_or_else(|_| panic!("it does not end:\n{}", self.log()))
    }

    /// Stops it gracefully.
    pub async fn stop(self) {
        self.signal("TERM").await;
        assert_eq!(self.exit_status().await, Some(0), "{}", self.log());
    }

    pub async fn kill(self) {
        // The end may be noticed before the signal is known to be sent.
        let _ = self.running.signal("KILL").await;
        self.exit_status().await;
    }

    /// The response of a probe: `/livez` or `/readyz`.
    pub async fn probe(&self, path: &str) -> (u16, String) {
        get(&self.probes, path).await
    }

    /// The value of a series, as written in the text: `name{label="value"}`.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.metrics().await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// Waits until a series has at least a value.
    pub async fn measures_at_least(&self, series: &str, value: f64) {
        eventually(&format!("{series} is at least {value}"), SOON, async || {
            let now = self.metric(series).await;
            if now.is_some_and(|now| now >= value) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }

    /// All metrics, as text.
    pub async fn metrics(&self) -> String {
        get(&self.metrics, "/metrics").await.1
    }

    /// The number of lines in its log with a text.
    pub fn lines_with(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until a series has a value.
    pub async fn measures(&self, series: &str, value: f64) {
        self.measures_within(series, value, SOON).await;
    }

    /// The same with a timeout.
    pub async fn measures_within(&self, series: &str, value: f64, within: Duration) {
        eventually(&format!("{series} is {value}"), within, async || {
            let now = self.metric(series).await;
            if now == Some(value) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

/// Stops programs gracefully, one after the other.
pub async fn stop_all(running: Vec<Addons>) {
    for addons in running {
        addons.stop().await;
    }
}

/// A GET without an HTTP library: responses are short, and the server closes the connection after them.
async fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
