//! A running hub.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::access::{Access, kubeconfig_path};
use crate::audit::{AuditLog, Journal};
use crate::builder::{self, HubBuilder};
use crate::capacity::HubPlace;
use crate::grants::Grantee;
use crate::memory::{self, Memory};
use crate::supervisor::Supervised;
use crate::{Flavour, HubError, crds, grants, programs, random, users};

/// An API server with an etcd and a controller manager of its own.
///
/// Dropping it kills all three, removes its directory and returns when that is done. So does the end of this
/// process, whatever it dies of.
#[derive(Debug)]
pub struct LocalHub {
    access: Access,
    directory: PathBuf,
    bin: PathBuf,
    flavour: Flavour,
    journal: Journal,
    grants: AtomicUsize,
    // These are dropped in this order: clients before servers, and the place when nothing runs any more.
    controller_manager: Option<Supervised>,
    api_server: Mutex<Option<Supervised>>,
    etcd: Mutex<Option<Supervised>>,
    _place: HubPlace,
}

/// The data of a hub at one moment.
#[derive(Debug)]
pub struct Snapshot(PathBuf);

impl LocalHub {
    /// A hub to be described and started.
    pub fn builder() -> HubBuilder {
        HubBuilder::default()
    }

    /// Starts several hubs, or a hub and its managed clusters, at once.
    ///
    /// This is how one test comes by several: if it took them one by one, two such tests could each wait for
    /// what the other holds.
    pub async fn start_many<const N: usize>(builders: [HubBuilder; N]) -> Result<[Self; N], HubError> {
        builder::start_many(builders).await
    }

    pub(crate) fn new(
        access: Access,
        directory: PathBuf,
        bin: &Path,
        flavour: Flavour,
        (api_server, controller_manager, etcd): (Supervised, Option<Supervised>, Supervised),
        place: HubPlace,
    ) -> Self {
        Self {
            access,
            journal: Journal::new(directory.join(programs::AUDIT_LOG)),
            directory,
            bin: bin.to_owned(),
            flavour,
            grants: AtomicUsize::new(0),
            controller_manager,
            api_server: Mutex::new(Some(api_server)),
            etcd: Mutex::new(Some(etcd)),
            _place: place,
        }
    }

    /// The API server's address. It stays the same for the life of the hub.
    #[must_use]
    pub fn url(&self) -> String {
        self.access.url()
    }

    /// The certificate of the authority that signed the API server's.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.access.authority.pem
    }

    /// The hub's directory: logs, the audit log, kubeconfigs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where etcd, kube-apiserver, kube-controller-manager and kubectl are.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        &self.bin
    }

    /// A new client, with connections of its own.
    ///
    /// `"admin"` may do everything, and so may `"ocm"`, who plays Open Cluster Management's controllers and is
    /// not exempt from priority and fairness. `"projector"`, `"provisioner"`, `"syncer"`, `"addons"`,
    /// `"consumer"` and those named at the start may do what they are [granted](Self::grant).
    #[allow(clippy::unused_async, reason = "a client can only be made inside a runtime, and this says so")]
    pub async fn client_as(&self, user: &str) -> Result<Client, HubError> {
        self.access.client(user)
    }

    /// A new client in the name of anybody, with these groups: `system:masters` may do everything, whoever it is.
    #[allow(clippy::unused_async, reason = "a client can only be made inside a runtime, and this says so")]
    pub async fn client_like(&self, user: &str, groups: &[&str]) -> Result<Client, HubError> {
        self.access().harness_like(user, &groups.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    /// A user's kubeconfig, in a file that only we can read.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf, HubError> {
        self.access.users.get(user)?;
        Ok(kubeconfig_path(&self.directory, user))
    }

    /// Gives a user rights in all namespaces, on top of those he has, and returns when they are in force.
    ///
    /// The `ClusterRole` and its binding have the name that is returned.
    pub async fn grant(&self, user: &str, rules: Vec<PolicyRule>) -> Result<String, HubError> {
        let name = self.next_grant(user);
        let grantee = Grantee::user(user, self.access.harness_as(user)?);
        grants::grant(&self.access.harness()?, &grantee, &name, rules).await?;
        Ok(name)
    }

    /// A name for another grant to somebody.
    pub(crate) fn next_grant(&self, who: &str) -> String {
        format!("local-hub:{who}-{}", self.grants.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Who has asked the API server for what.
    #[must_use]
    pub fn audit(&self) -> AuditLog<'_> {
        AuditLog::new(&self.journal, &self.access)
    }

    /// All CRDs that a hub of this flavour can have, whether it has them or not.
    pub fn crds(&self) -> Result<Vec<CustomResourceDefinition>, HubError> {
        crds::all(self.flavour)
    }

    /// One of [`crds`](Self::crds), by name.
    pub fn crd(&self, name: &str) -> Result<CustomResourceDefinition, HubError> {
        crds::named(name, self.flavour)
    }

    /// Installs a CRD, and returns when its resource is served.
    ///
    /// The garbage collector, and only that, may take 30 seconds more until it knows the kind.
    pub async fn install_crd(&self, crd: &CustomResourceDefinition) -> Result<(), HubError> {
        crds::install(&self.access.harness()?, std::slice::from_ref(crd)).await
    }

    /// Gives a CRD that is there another spec, and returns when each of its versions is served or not as it says.
    pub async fn update_crd(&self, crd: &CustomResourceDefinition) -> Result<(), HubError> {
        crds::update(&self.access.harness()?, crd).await
    }

    /// Removes a CRD with all objects of its kind, and returns when the resource is gone.
    pub async fn remove_crd(&self, name: &str) -> Result<(), HubError> {
        crds::remove(&self.access.harness()?, name).await
    }

    /// Kills the API server: connections break, new ones are refused. No effect if it is not running.
    pub async fn stop_api_server(&self) -> Result<(), HubError> {
        match self.api_server.lock().await.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Starts the API server again, with the same address and data, and returns when it is ready. No effect if
    /// it is running.
    pub async fn start_api_server(&self) -> Result<(), HubError> {
        let mut api_server = self.api_server.lock().await;
        if api_server.is_none() {
            *api_server = Some(builder::start_api_server(&self.directory, &self.bin, &self.access).await?);
        }
        Ok(())
    }

    /// Freezes the API server: connections stay, new ones are accepted by the system, nothing is answered. No
    /// effect if it is not running.
    pub async fn pause_api_server(&self) -> Result<(), HubError> {
        match &*self.api_server.lock().await {
            Some(running) => running.pause().await,
            None => Ok(()),
        }
    }

    /// Lets a paused API server go on.
    pub async fn resume_api_server(&self) -> Result<(), HubError> {
        match &*self.api_server.lock().await {
            Some(running) => running.resume().await,
            None => Ok(()),
        }
    }

    /// Copies the hub's data, as it would be found if etcd were killed now.
    pub async fn snapshot(&self) -> Result<Snapshot, HubError> {
        let etcd = self.etcd.lock().await;
        let etcd = etcd.as_ref().ok_or_else(|| HubError::Programs("etcd is not running".to_owned()))?;
        let snapshot = self.directory.join(format!("snapshot-{}", random::hex()?));
        etcd.pause().await?;
        let copied = copy_directory(&self.directory.join(programs::ETCD_DATA), &snapshot);
        etcd.resume().await?;
        copied.map_err(|source| HubError::io("copy etcd's data", source))?;
        Ok(Snapshot(snapshot))
    }

    /// Stops the API server and etcd, puts a snapshot in the place of etcd's data, and starts both again: the hub's
    /// history goes on from there, with the same resourceVersions as before for other objects. Returns when the API
    /// server is ready.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<(), HubError> {
        self.stop_api_server().await?;
        let mut etcd = self.etcd.lock().await;
        if let Some(running) = etcd.take() {
            running.stop_and_keep_directory().await?;
        }
        let data = self.directory.join(programs::ETCD_DATA);
        let restored = std::fs::remove_dir_all(&data).and_then(|()| copy_directory(&snapshot.0, &data));
        restored.map_err(|source| HubError::io("restore etcd's data", source))?;
        *etcd = Some(Supervised::start(&self.directory, &programs::etcd(&self.bin)).await?);
        drop(etcd);
        self.start_api_server().await
    }

    /// Runs kubectl as admin to its end.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output, HubError> {
        Command::new(self.bin.join("kubectl"))
            .args(arguments)
            .env("KUBECONFIG", kubeconfig_path(&self.directory, users::ADMIN))
            // Its cache goes by the server's address, and ports come back.
            .env("KUBECACHEDIR", self.directory.join("kubectl-cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| HubError::io("run kubectl", source))
    }

    /// What the hub's programs take, where the system tells.
    pub async fn memory(&self) -> Vec<Memory> {
        let (etcd, api_server) = (self.etcd.lock().await, self.api_server.lock().await);
        [
            etcd.as_ref().map(|running| ("etcd", running)),
            api_server.as_ref().map(|running| ("kube-apiserver", running)),
            self.controller_manager.as_ref().map(|running| ("kube-controller-manager", running)),
        ]
        .into_iter()
        .flatten()
        .filter_map(|(program, running)| memory::of(program, running.pid()))
        .collect()
    }
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
