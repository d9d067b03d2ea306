//! A running hub.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Mutex;

use crate::access::Access;
use crate::audit::{AuditLog, Journal};
use crate::builder::{self, HubBuilder};
use crate::capacity::HubPlace;
use crate::cluster::Cluster;
use crate::supervisor::{Program, Running};
use crate::template::Data;
use crate::{Flavour, HubError, crds, programs};

/// An API server with its own etcd and controller manager.
///
/// Dropping it kills all three, removes its directory and waits for that. So does the end of this process, however it
/// ends.
#[derive(Debug)]
pub struct LocalHub {
    cluster: Cluster,
    flavour: Flavour,
    journal: Journal,
    // Dropped in this order: clients before servers, and the place when nothing runs any more.
    controller_manager: Mutex<Option<Running>>,
    api_server: Mutex<Option<Running>>,
    etcd: Mutex<Option<Running>>,
    place: Mutex<HubPlace>,
}

/// A copy of a hub's data.
#[derive(Debug)]
pub struct Snapshot(Data);

impl LocalHub {
    /// A hub to be configured and started.
    pub fn builder() -> HubBuilder {
        HubBuilder::default()
    }

    /// Starts several hubs, or a hub and its managed clusters, at once.
    ///
    /// A test that needs several must use this: two such tests that took them one by one could each wait for what the
    /// other holds.
    pub async fn start_many<const N: usize>(
        builders: [HubBuilder; N],
    ) -> Result<[Self; N], HubError> {
        builder::start_many(builders).await
    }

    pub(crate) fn new(
        access: Access,
        directory: PathBuf,
        bin: &Path,
        flavour: Flavour,
        (api_server, controller_manager, etcd): (Running, Option<Running>, Running),
        place: HubPlace,
    ) -> Self {
        Self {
            journal: Journal::new(directory.join(programs::AUDIT_LOG)),
            cluster: Cluster::new(access, directory, bin),
            flavour,
            controller_manager: Mutex::new(controller_manager),
            api_server: Mutex::new(Some(api_server)),
            etcd: Mutex::new(Some(etcd)),
            place: Mutex::new(place),
        }
    }

    /// The audit log of the API server.
    #[must_use]
    pub fn audit(&self) -> AuditLog<'_> {
        AuditLog::new(&self.journal, self.access())
    }

    /// All CRDs that a hub of this flavour can have.
    pub fn crds(&self) -> Result<Vec<CustomResourceDefinition>, HubError> {
        crds::all(self.flavour)
    }

    /// One of [`crds`](Self::crds), by name.
    pub fn crd(&self, name: &str) -> Result<CustomResourceDefinition, HubError> {
        crds::named(name, self.flavour)
    }

    /// Replaces the spec of an existing CRD, and returns when each of its versions is served or not accordingly.
    pub async fn update_crd(&self, crd: &CustomResourceDefinition) -> Result<(), HubError> {
        crds::update(&self.access().harness()?, crd).await
    }

    /// Ends the hub as dropping it does, for one that its owner cannot drop, and makes room for another.
    pub fn end(&self) {
        for program in [&self.controller_manager, &self.api_server, &self.etcd] {
            if let Ok(mut running) = program.try_lock() {
                drop(running.take());
            }
        }
        if let Ok(mut place) = self.place.try_lock() {
            drop(place.take());
        }
    }

    /// Starts a program in the hub's directory, which cannot outlive this process, like those of the hub. `name` is the
    /// name of its log there, and must be unique among running programs.
    pub async fn run<A: Into<OsString>>(
        &self,
        name: &'static str,
        executable: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Running, HubError> {
        let program = Program::new(name, executable, arguments);
        let log = self.directory().join(&program.log);
        // Removes the log of an earlier program with this name.
        if let Err(source) = std::fs::remove_file(&log)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(HubError::io(format!("remove {}", log.display()), source));
        }
        Running::start(self.directory(), &program).await
    }

    /// Kills the API server: connections break, new ones are refused. No effect if it is not running.
    pub async fn stop_api_server(&self) -> Result<(), HubError> {
        match self.api_server.lock().await.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Restarts the API server with the same address and data, and returns when it is ready. No effect if it is
    /// running.
    pub async fn start_api_server(&self) -> Result<(), HubError> {
        let mut api_server = self.api_server.lock().await;
        if api_server.is_none() {
            *api_server = Some(
                builder::start_api_server(self.directory(), self.bin_dir(), self.access()).await?,
            );
        }
        Ok(())
    }

    /// Copies the hub's data, as a crash of etcd would leave it.
    pub async fn snapshot(&self) -> Result<Snapshot, HubError> {
        let etcd = self.etcd.lock().await;
        let etcd =
            etcd.as_ref().ok_or_else(|| HubError::Failed("etcd is not running".to_owned()))?;
        Data::of(self.directory(), etcd).await.map(Snapshot)
    }

    /// Stops the API server and etcd, replaces etcd's data by a snapshot, and starts both again: the hub's history
    /// continues from there, and resourceVersions are reused for other objects. Returns when the API server is ready.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<(), HubError> {
        self.stop_api_server().await?;
        let mut etcd = self.etcd.lock().await;
        if let Some(running) = etcd.take() {
            running.stop_and_keep_directory().await?;
        }
        std::fs::remove_dir_all(self.directory().join(programs::ETCD_DATA))
            .map_err(|source| HubError::io("remove etcd's data", source))?;
        snapshot.0.write(self.directory())?;
        *etcd = Some(Running::start(self.directory(), &programs::etcd(self.bin_dir())).await?);
        self.start_api_server().await
    }
}

impl Deref for LocalHub {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
