//! Starts a hub.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{Api, Client};
use rcgen::KeyPair;

use crate::access::{Access, kubeconfig_path, write_private};
use crate::capacity::{self, HubPlace};
use crate::crds::{CrdSet, Flavour};
use crate::eventually::{Outcome, try_eventually};
use crate::supervisor::{Program, Running};
use crate::template::Template;
use crate::users::{self, Users};
use crate::{HubError, LocalHub, ServingAuthority, crds, grants, ports, programs, random};

/// A hub takes 3 seconds on an idle machine; this one may be compiling.
const PATIENCE: Duration = Duration::from_mins(4);

/// The variable with a directory that keeps the audit logs of all hubs.
const AUDIT_LOGS: &str = "LOCAL_HUB_AUDIT_LOGS";

/// How many ports are tried.
const PORTS: usize = 5;

/// Configures a hub: see [`LocalHub::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct HubBuilder {
    flavour: Flavour,
    crds: CrdSet,
    users: Vec<(String, Vec<String>)>,
    without_controller_manager: bool,
    workloads: bool,
    directory: Option<PathBuf>,
}

impl HubBuilder {
    /// Which CRD of ClusterProfile the hub has; [`Flavour::Map`] by default.
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Which CRDs are installed at the start; by default all.
    pub fn crds(mut self, crds: CrdSet) -> Self {
        self.crds = crds;
        self
    }

    /// Omits CRDs by name, to install them later with [`Cluster::install_crd`](crate::Cluster::install_crd) or never.
    pub fn without_crds<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.crds(CrdSet::Without(names.into_iter().map(Into::into).collect()))
    }

    /// Runs no controllers of an API: a second faster, but nothing is garbage-collected and no namespace is finalized.
    pub fn without_controller_manager(mut self) -> Self {
        self.without_controller_manager = true;
        self
    }

    /// Runs the controllers of workloads, nodes and Services as well, with or without the others, for a hub with
    /// [`Pods`](crate::Pods).
    pub fn workloads(mut self) -> Self {
        self.workloads = true;
        self
    }

    /// Adds a user with only the permissions of the groups, or sets the groups of a default user.
    pub fn user(mut self, name: impl Into<String>, groups: &[&str]) -> Self {
        self.users.push((name.into(), groups.iter().map(ToString::to_string).collect()));
        self
    }

    /// The hub's directory, instead of a new temporary one. It must be empty or not exist, and is removed with the hub.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Starts the hub, and returns when it is ready.
    ///
    /// Waits if [too many](crate#limits) hubs run in this process. A test that needs several must start them together,
    /// by [`LocalHub::start_many`].
    pub async fn start(self) -> Result<LocalHub, HubError> {
        let [hub] = start_many([self]).await?;
        Ok(hub)
    }

    async fn start_in(self, bin: &Path, place: HubPlace) -> Result<LocalHub, HubError> {
        let _starting = capacity::start().await;
        let users = Users::new(&self.users)?;
        let directory = own_directory(self.directory)?;
        let key = (self.flavour, self.crds);
        let template = Template::find(&key);

        if let Some(template) = &template
            && let Err(error) = template.data.write(&directory)
        {
            let _ = std::fs::remove_dir_all(&directory);
            return Err(error);
        }
        // Before anything secret is written: its supervisor removes the directory, however this process ends.
        let etcd = Running::start(&directory, &programs::etcd(bin)).await?;
        // Each hub has its own authority: a client of one hub that finds another at its port rejects it.
        let authority = ServingAuthority::new("local-hub")?;
        // The last two are its names in Pods.
        let names = ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"];
        let serving = authority.issue(names)?;
        // Kubernetes cannot derive the public key from the other file, which is PKCS #8.
        let account_key = KeyPair::generate()?;
        for (file, contents) in [
            (programs::AUTHORITY, &*authority.ca_pem()),
            (programs::SERVING_CERTIFICATE, serving.tls_crt()),
            (programs::SERVING_KEY, serving.tls_key()),
            (programs::SERVICE_ACCOUNT_KEY, &account_key.serialize_pem()),
            (programs::SERVICE_ACCOUNT_PUBLIC_KEY, &account_key.public_key_pem()),
            (programs::TOKENS, &users.token_file()),
            (programs::AUDIT_POLICY, programs::AUDIT_POLICY_YAML),
        ] {
            write_private(&directory.join(file), contents)?;
        }
        if self.workloads {
            write_private(&directory.join(programs::EGRESS), programs::EGRESS_YAML)?;
        }
        keep_audit_log(&directory)?;
        let access = Access::to_hub(&authority, users);
        let (access, api_server) = tokio::select! {
            biased;
            death = etcd.death() => return Err(death),
            started = start_somewhere(&directory, bin, access) => started?,
        };
        access.write_kubeconfigs(&directory)?;

        let harness = access.harness()?;
        if let Some(template) = &template {
            crds::wait_until_served(&harness, &template.crds).await?;
        } else {
            let crds = key.1.choose(self.flavour)?;
            crds::install(&harness, &crds).await?;
            grants::grant_everything(&harness, access.harness_as(users::OCM)?).await?;
            Template::keep(key, crds, &directory, &etcd).await?;
        }

        // Last: the garbage collector discovers new kinds only every 30 seconds, and so knows those that exist when it
        // starts.
        let controllers = programs::controllers(!self.without_controller_manager, self.workloads);
        let controller_manager = if controllers.is_empty() {
            None
        } else {
            let kubeconfig = kubeconfig_path(&directory, users::CONTROLLER_MANAGER);
            let program = programs::controller_manager(bin, &kubeconfig, &controllers);
            Some(start_controllers(&directory, &program, &harness).await?)
        };
        let programs = (api_server, controller_manager, etcd);
        Ok(LocalHub::new(access, directory, bin, self.flavour, programs, place))
    }
}

/// Starts several hubs at once.
pub(crate) async fn start_many<const N: usize>(
    builders: [HubBuilder; N],
) -> Result<[LocalHub; N], HubError> {
    // Before places are taken: building can take minutes, while others wait.
    let bin = programs::directory().await?;
    let places = capacity::take(N).await?;
    let starting =
        builders.into_iter().zip(places).map(|(builder, place)| builder.start_in(bin, place));
    let hubs = try_join_all(starting).await?;
    Ok(hubs.try_into().unwrap_or_else(|_| unreachable!("as many hubs as builders")))
}

/// Has the API server write its audit log to [`AUDIT_LOGS`], where it outlives the hub.
fn keep_audit_log(directory: &Path) -> Result<(), HubError> {
    let Some(logs) = std::env::var_os(AUDIT_LOGS) else { return Ok(()) };
    let name = directory.file_name().unwrap_or_default();
    let log = Path::new(&logs).join(format!("{}-{}", std::process::id(), name.display()));
    let kept = std::fs::write(&log, "")
        .and_then(|()| std::os::unix::fs::symlink(&log, directory.join(programs::AUDIT_LOG)));
    kept.map_err(|source| HubError::io(format!("keep {}", log.display()), source))
}

fn own_directory(asked_for: Option<PathBuf>) -> Result<PathBuf, HubError> {
    let Some(directory) = asked_for else {
        return Ok(std::env::temp_dir().join(format!("local-hub-{}", random::hex()?)));
    };
    let doing = |doing: &str| format!("{doing} {}", directory.display());
    match std::fs::read_dir(&directory).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            return Err(HubError::Failed(format!(
                "{} is not empty: the hub removes its directory when it ends, so it must not contain other files",
                directory.display()
            )));
        }
        Ok(false) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(HubError::io(doing("use"), error)),
    }
    std::path::absolute(&directory).map_err(|error| HubError::io(doing("use"), error))
}

/// Starts an API server on a free port.
async fn start_somewhere(
    directory: &Path,
    bin: &Path,
    mut access: Access,
) -> Result<(Access, Running), HubError> {
    for _ in 1..PORTS {
        access.set_port(ports::pick()?)?;
        match start_api_server(directory, bin, &access).await {
            Err(HubError::Ended { log, .. }) if log.contains("address already in use") => {}
            started => return started.map(|api_server| (access, api_server)),
        }
    }
    access.set_port(ports::pick()?)?;
    start_api_server(directory, bin, &access).await.map(|api_server| (access, api_server))
}

/// Starts an API server on its port, and returns when it is ready.
pub(crate) async fn start_api_server(
    directory: &Path,
    bin: &Path,
    access: &Access,
) -> Result<Running, HubError> {
    let has_nodes = directory.join(programs::EGRESS).exists();
    let program = programs::api_server(bin, access.port(), has_nodes);
    let harness = access.harness()?;
    let namespaces: Api<Namespace> = Api::all(harness.clone());
    start(directory, &program, async || {
        let request =
            http::Request::get("/readyz").body(Vec::new()).map_err(kube::Error::HttpError)?;
        harness.request_text(request).await?;
        // Ready or not, the server creates this namespace in the background.
        namespaces.get_opt("default").await
    })
    .await
}

/// Starts the controller manager, and returns when its controllers have done their initial work.
async fn start_controllers(
    directory: &Path,
    program: &Program,
    harness: &Client,
) -> Result<Running, HubError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(harness.clone(), "default");
    let config_maps: Api<ConfigMap> = Api::namespaced(harness.clone(), "default");
    start(directory, program, async || {
        let account = accounts.get_opt("default").await?;
        Ok::<_, kube::Error>(account.and(config_maps.get_opt("kube-root-ca.crt").await?))
    })
    .await
}

/// Starts a program, and returns when `ready` succeeds.
async fn start<F: Future<Output: Outcome>>(
    directory: &Path,
    program: &Program,
    ready: impl FnMut() -> F,
) -> Result<Running, HubError> {
    let running = Running::start(directory, program).await?;
    tokio::select! {
        biased;
        death = running.death() => Err(death),
        outcome = try_eventually("it is ready", PATIENCE, ready) => match outcome {
            Ok(_) => Ok(running),
            Err(timed_out) => {
                let log = running.log_tail();
                Err(HubError::Failed(format!("{}: {timed_out}; {log}", program.name)))
            }
        },
    }
}
