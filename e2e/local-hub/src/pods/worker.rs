//! Runs one Pod, from its binding to its end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::environment::{self, Addresses, Environment};
use super::images::Images;
use super::network::{API_SERVER, API_SERVER_PORT, Forward, hosts};
use super::objects::Objects;
use super::plan::{ContainerPlan, Mount};
use super::probes::{Finding, Probes, Target};
use super::problem::Problem;
use super::sandbox::{Process, Sandbox, SandboxPlace};
use super::status::{Report, Which};
use super::volumes::{Mounted, Volumes};
use super::{Key, Networks};

/// The file of a container's termination message.
const MESSAGE: &str = "termination-log";
/// The limits of a kubelet for termination messages, in bytes.
const MESSAGE_MAX: usize = 4096;
const MESSAGE_OF_LOG: usize = 2048;

/// First delay before a container is restarted: it doubles each time, as in a kubelet, which starts with 10 seconds.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(30);

/// A container that ran this long restarts without delay.
const GOOD_RUN: Duration = Duration::from_mins(10);

/// Delay before a failed start is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The environment of all Pods.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) place: SandboxPlace,
    pub(crate) images: Images,
    pub(crate) forwards: Vec<Forward>,
    pub(crate) networks: Networks,
    pub(crate) token_renewal: Option<Duration>,
}

/// Resolves to the grace period when the containers must stop.
pub(crate) type Stop = watch::Receiver<Option<Duration>>;

/// A Pod and its environment.
pub(crate) struct Worker {
    pub(crate) world: World,
    pub(crate) pod: Pod,
    pub(crate) objects: Objects,
    pub(crate) address: Ipv4Addr,
    pub(crate) addresses: Addresses,
    pub(crate) report: Report,
    pub(crate) stop: Stop,
}

/// What the containers of a started Pod share.
struct Started {
    sandbox: Sandbox,
    volumes: BTreeMap<String, Mounted>,
    files: Vec<Mount>,
}

impl Worker {
    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace and name.
    fn key(&self) -> Key {
        (self.pod.metadata.namespace.clone().unwrap_or_default(), self.name().to_owned())
    }

    /// The Pod's own directory.
    fn directory(&self) -> PathBuf {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        self.world.place.directory.join("pods").join(uid)
    }

    /// Runs the Pod, and returns when it has been stopped or its containers have ended for good.
    pub(crate) async fn run(&self) {
        let Some(started) = self.until_stopped(self.start()).await else { return };
        self.world.networks.set(self.key(), (started.sandbox.network(), self.address));
        self.live(&started).await;
        self.world.networks.remove(&self.key());
    }

    async fn live(&self, started: &Started) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let restarts = spec.restart_policy.as_deref().unwrap_or("Always");
        let volumes = self.volumes();
        let life = async {
            for (number, container) in spec.init_containers.iter().flatten().enumerate() {
                let again = restarts != "Never";
                if !self.keep(started, Which::Init(number), container, |code| again && code != 0).await {
                    return;
                }
            }
            let containers = spec.containers.iter().enumerate().map(|(number, container)| {
                let again = |code| restarts == "Always" || (restarts == "OnFailure" && code != 0);
                self.keep(started, Which::Main(number), container, again)
            });
            join_all(containers).await;
        };
        tokio::select! {
            () = life => {}
            () = volumes.keep_up_to_date() => {}
        }
    }

    fn volumes(&self) -> Volumes<'_> {
        Volumes {
            pod: &self.pod,
            addresses: &self.addresses,
            objects: &self.objects,
            images: &self.world.images,
            directory: self.directory().join("volumes"),
            token_renewal: self.world.token_renewal,
        }
    }

    async fn until_stopped<T>(&self, doing: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.stop.clone();
        tokio::select! {
            done = doing => Some(done),
            _ = stop.wait_for(Option::is_some) => None,
        }
    }

    /// Retries until it succeeds: the objects that it needs may be created later.
    async fn start(&self) -> Started {
        loop {
            match self.try_to_start().await {
                Ok(started) => {
                    self.report.sandbox_is_there();
                    return started;
                }
                Err(problem) => self.report.wait_all(&problem),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_to_start(&self) -> Result<Started, Problem> {
        if let Some(spec) = &self.pod.spec
            && (spec.host_network.unwrap_or_default() || spec.host_pid.unwrap_or_default())
        {
            return Err(Problem::unsupported("hostNetwork and hostPID"));
        }
        let directory = self.directory();
        std::fs::create_dir_all(&directory).map_err(Problem::io("make the pod's directory"))?;
        let volumes = self.volumes().make().await?;
        let forwards: Vec<_> =
            self.world.forwards.iter().filter(|forward| forward.is_for(self.name())).cloned().collect();
        let files = self.files(&directory, &forwards)?;
        let place = &self.world.place;
        let sandbox = Sandbox::start(place, &directory, self.name(), self.address, &forwards).await?;
        Ok(Started { sandbox, volumes, files })
    }

    /// The files that a kubelet puts into every container's `/etc`.
    fn files(&self, directory: &Path, forwards: &[Forward]) -> Result<Vec<Mount>, Problem> {
        let aliases =
            self.pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
        [
            ("hosts", hosts(self.name(), self.address, forwards, aliases)),
            ("hostname", format!("{}\n", self.name())),
            // All names are in `hosts`. A name server that does not listen fails immediately.
            ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_owned()),
        ]
        .into_iter()
        .map(|(name, text)| {
            let source = directory.join(name);
            std::fs::write(&source, text).map_err(Problem::io(format!("write {}", source.display())))?;
            Ok(Mount { source, target: format!("/etc/{name}"), read_only: true })
        })
        .collect()
    }

    /// Runs a container repeatedly, while `again` returns true for its exit code. Returns false if it was stopped or
    /// failed.
    async fn keep(
        &self,
        started: &Started,
        which: Which,
        container: &Container,
        again: impl Fn(i32) -> bool,
    ) -> bool {
        let mut backoff = FIRST_BACKOFF;
        for attempt in 0.. {
            if self.stop.borrow().is_some() {
                return false;
            }
            let since = Instant::now();
            let process = match self.until_stopped(self.launch(started, which, container, attempt)).await {
                Some(Ok(process)) => process,
                Some(Err(problem)) => {
                    self.report.change(which, |state| state.wait(&problem));
                    self.until_stopped(sleep(RETRY)).await;
                    continue;
                }
                None => return false,
            };
            let (code, why) = self.watch_over(started, which, container, &process).await;
            // All its processes must end before anything else happens.
            drop(process);
            let why = why.or_else(|| self.message(container, code));
            self.report.change(which, |state| state.end(code, why));
            if self.stop.borrow().is_some() || !again(code) {
                return code == 0 && self.stop.borrow().is_none();
            }
            if since.elapsed() > GOOD_RUN {
                backoff = FIRST_BACKOFF;
            }
            let message = format!("back-off {backoff:?} restarting container {}", container.name);
            self.report.change(which, |state| state.wait(&Problem::new("CrashLoopBackOff", message)));
            self.until_stopped(sleep(backoff)).await;
            backoff = (backoff * 2).min(LAST_BACKOFF);
        }
        false
    }

    async fn launch(
        &self,
        started: &Started,
        which: Which,
        container: &Container,
        attempt: usize,
    ) -> Result<Process, Problem> {
        // Before anything runs: a container whose probes are not supported must not start.
        Probes::of(container)?;
        let image = self.world.images.get(container.image.as_deref().unwrap_or_default())?;
        let environment = environment::of(
            container,
            &self.pod,
            &self.addresses,
            &self.objects,
            self.base(&image.config.env),
        )
        .await?;
        let plan = ContainerPlan::new(container, &self.pod, image, environment, &started.volumes)?;
        let directory = self.directory().join("containers").join(&container.name);
        std::fs::create_dir_all(&directory).map_err(Problem::io("make the container's directory"))?;
        let (namespace, name) = self.key();
        let log = log_file(&self.world.place.directory, &namespace, &name, &container.name);
        if let Some(parent) = log.parent() {
            std::fs::create_dir_all(parent).map_err(Problem::io("make the directory of logs"))?;
        }
        let mut files = started.files.clone();
        files.push(message_file(container, &directory)?);
        let process = started.sandbox.container(&image.root, &directory, &log, &plan, &files).await?;
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        self.report
            .change(which, |state| state.run(format!("local-hub://{uid}/{}/{attempt}", container.name)));
        Ok(process)
    }

    /// The termination message: what the container has written into its file, or the end of its log if it failed and
    /// asks for that.
    fn message(&self, container: &Container, code: i32) -> Option<String> {
        let directory = self.directory().join("containers").join(&container.name);
        let written = std::fs::read(directory.join(MESSAGE)).unwrap_or_default();
        let is_fallback = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let (bytes, limit) = if written.is_empty() && is_fallback && code != 0 {
            let (namespace, name) = self.key();
            let log = log_file(&self.world.place.directory, &namespace, &name, &container.name);
            (std::fs::read(log).unwrap_or_default(), MESSAGE_OF_LOG)
        } else {
            (written, MESSAGE_MAX)
        };
        let last = &bytes[bytes.len().saturating_sub(limit)..];
        (!last.is_empty()).then(|| String::from_utf8_lossy(last).into_owned())
    }

    /// The variables of every container, whatever its Pod specifies.
    fn base(&self, of_image: &[String]) -> Environment {
        let mut environment = Environment::default();
        environment.set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        environment.set("HOSTNAME", self.name());
        for (name, value) in of_image.iter().filter_map(|variable| variable.split_once('=')) {
            environment.set(name, value);
        }
        environment.set("KUBERNETES_SERVICE_HOST", API_SERVER.to_string());
        environment.set("KUBERNETES_SERVICE_PORT", API_SERVER_PORT.to_string());
        environment.set("KUBERNETES_SERVICE_PORT_HTTPS", API_SERVER_PORT.to_string());
        environment
    }

    /// Waits until the container ends, by itself or not: returns the exit code, and why the worker ended it.
    async fn watch_over(
        &self,
        started: &Started,
        which: Which,
        container: &Container,
        process: &Process,
    ) -> (i32, Option<String>) {
        let target =
            Target { network: started.sandbox.network(), address: IpAddr::V4(self.address), process };
        let unhealthy = async {
            // An initContainer has no probes: it ends.
            match (which, Probes::of(container)) {
                (Which::Main(_), Ok(probes)) => {
                    probes.ask(&target, |finding| self.learn(which, finding)).await
                }
                _ => std::future::pending().await,
            }
        };
        let mut stop = self.stop.clone();
        let (grace, why) = tokio::select! {
            biased;
            code = process.exit_status() => return (code, None),
            _ = stop.wait_for(Option::is_some) => (None, None),
            why = unhealthy => (Some(self.grace()), Some(format!("container {} {why}", container.name))),
        };
        let grace = grace.or(*self.stop.borrow()).unwrap_or_else(|| self.grace());
        self.report.change(which, |state| state.ready = false);
        let ended = async {
            tokio::select! {
                biased;
                code = process.exit_status() => code,
                () = process.terminate() => process.exit_status().await,
            }
        };
        let code = if let Ok(code) = timeout(grace, ended).await {
            code
        } else {
            process.kill().await;
            process.exit_status().await
        };
        (code, why)
    }

    fn grace(&self) -> Duration {
        grace_of(&self.pod)
    }

    fn learn(&self, which: Which, finding: Finding) {
        self.report.change(which, |state| match finding {
            Finding::Started => state.started = true,
            Finding::Ready(ready) => state.ready = ready,
        });
    }
}

/// The file of a container's termination message, which every user may write.
fn message_file(container: &Container, directory: &Path) -> Result<Mount, Problem> {
    use std::os::unix::fs::PermissionsExt as _;
    let source = directory.join(MESSAGE);
    std::fs::write(&source, "").map_err(Problem::io("make the file of the termination message"))?;
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o666))
        .map_err(Problem::io("open the file of the termination message"))?;
    let path = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    Ok(Mount { source, target: path.unwrap_or("/dev/termination-log").to_owned(), read_only: false })
}

/// The grace period of a Pod.
pub(crate) fn grace_of(pod: &Pod) -> Duration {
    let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    Duration::from_secs(seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(30))
}

/// The log file of all runs of a container.
pub(crate) fn log_file(directory: &Path, namespace: &str, pod: &str, container: &str) -> PathBuf {
    logs(directory).join(namespace).join(pod).join(format!("{container}.log"))
}

/// The directory of these files.
pub(crate) fn logs(directory: &Path) -> PathBuf {
    directory.join("logs")
}
