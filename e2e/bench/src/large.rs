//! A cold start and a restart on a hub that is larger than etcd holds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use local_hub::HubError;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::agents;
use crate::bench::Options;
use crate::controllers::Settings;
use crate::error::BenchError;
use crate::fleet::Fleet;
use crate::memory::Server;
use crate::process::Usage;
use crate::progress::say;

/// The time between two looks at the controllers.
const LOOK: Duration = Duration::from_secs(1);

/// The share of one CPU below which the controllers count as idle.
const IDLE: f64 = 0.1;

/// The controllers, started once.
struct Run {
    command: String,
    program: Child,
    began: Instant,
    timeout: Duration,
    kubeconfig: PathBuf,
}

/// Runs the controllers twice on a server that keeps everything in memory, and returns a line about each run.
pub async fn run(options: &Options) -> Result<String, BenchError> {
    let (server, size) = (Server::default(), options.size);
    let kubeconfig = server.start().await?;
    let client = connect(&kubeconfig).await?;
    let mut fleet = Fleet::create(client.clone(), size, Vec::new()).await?;
    let _agents = (size.consumers > 0).then(|| agents::start(&client));

    let (created, run) = (server.writes(), Run::start(options, &kubeconfig)?);
    // For an account of a consumer, its agent writes a Secret as well.
    let least = size.profiles() * (2 + size.accounts) + 2 * size.consumer_accounts();
    run.until(|_| server.writes() >= created + least).await?;
    let cold = run.idle().await?;
    run.stop().await?;

    let (written, run) = (server.writes(), Run::start(options, &kubeconfig)?);
    // When it is in all profiles, the controllers lead and have read them.
    fleet.report_version(&fleet.first(1)[0], "v1.36.4").await?;
    run.until(|_| server.writes() >= written + size.namespaces).await?;
    let restart = run.idle().await?;
    run.stop().await?;
    let writes = written - created;
    Ok(format!("cold start: {writes} writes, {cold}\nrestart: {restart}\n"))
}

async fn connect(kubeconfig: &Value) -> Result<Client, HubError> {
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig.clone()).unwrap_or_default();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let failed = |error| HubError::io("read a kubeconfig", std::io::Error::other(error));
    Client::try_from(config.map_err(failed)?).map_err(HubError::api("connect to the hub"))
}

impl Run {
    fn start(options: &Options, config: &Value) -> Result<Self, BenchError> {
        let kubeconfig =
            std::env::temp_dir().join(format!("hub-bench-{}.json", std::process::id()));
        std::fs::write(&kubeconfig, config.to_string())
            .map_err(|error| HubError::io("write a kubeconfig", error))?;
        let command = options.controllers.commands(Settings::default()).swap_remove(0);
        let command = command.replace("{kubeconfig}", &kubeconfig.display().to_string());
        let mut words = command.split_whitespace();
        let mut program = Command::new(words.next().unwrap_or_default());
        let program = program.args(words).kill_on_drop(true).spawn();
        let program = program.map_err(|error| HubError::io("start the controllers", error))?;
        say("the controllers have started");
        Ok(Self { command, program, began: Instant::now(), timeout: options.timeout, kubeconfig })
    }

    /// Lets them release their Lease.
    async fn stop(mut self) -> Result<(), BenchError> {
        let stopped = async {
            let pid = self.program.id().unwrap_or_default().to_string();
            Command::new("kill").args(["-TERM", &pid]).status().await?;
            self.program.wait().await?;
            std::fs::remove_file(&self.kubeconfig)
        };
        stopped.await.map_err(|error| HubError::io("stop the controllers", error).into())
    }

    fn usage(&self) -> Result<Usage, BenchError> {
        let usage = self.program.id().and_then(Usage::of);
        usage.ok_or_else(|| self.problem("it ended"))
    }

    fn problem(&self, what: &str) -> BenchError {
        let problem = format!("{what} after {:.0?}", self.began.elapsed());
        BenchError::Program { command: self.command.clone(), problem }
    }

    /// Waits until something holds; looks at most once a second.
    async fn until(&self, mut holds: impl FnMut(&Usage) -> bool) -> Result<(), BenchError> {
        while !holds(&self.usage()?) {
            if self.began.elapsed() > self.timeout {
                return Err(self.problem("it is not idle"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the controllers do nothing, and says what it took.
    async fn idle(&self) -> Result<String, BenchError> {
        let mut before = -1.0;
        self.until(|usage| {
            let spent = usage.cpu_seconds - std::mem::replace(&mut before, usage.cpu_seconds);
            spent < IDLE * LOOK.as_secs_f64()
        })
        .await?;
        let (usage, seconds) = (self.usage()?, self.began.elapsed().as_secs());
        let (cpu, peak) = (usage.cpu_seconds, usage.peak_kib / 1024);
        Ok(format!("{cpu:.1} s of CPU time, at most {peak} MiB, idle after {seconds} s"))
    }
}
