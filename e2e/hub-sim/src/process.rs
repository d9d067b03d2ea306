//! A process: the real controllers, started as the program starts them, on the simulated network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use access_provisioner::{EntryMetrics, Handshake, Provisioner, ProvisionerSettings};
use consumer_access::ConsumerAccess;
use credential_rights::{CredentialRights, PermissionSettings};
use credential_syncer::{CredentialMetrics, SyncSettings, Syncer, SyncerSettings};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use hub_api::names::ManagerName;
use hub_core::access::{AccessSource, Presented, Sighting};
use hub_core::fleet::{Fleet, Touched};
use hub_core::project::ProjectionSettings;
use hub_core::protected::ProtectedNamespaces;
use hub_core::trust::TrustBundle;
use hub_process::controller::{Controller, FleetKind};
use hub_process::process::{Process, ProcessError, Setup, Shared};
use hub_runtime::host::lease::Candidate;
use jiff::Timestamp;
use profile_projector::Projector;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use user_server::Admission;

use crate::actor::Actor;
use crate::consumers::{self, Permissions};
use crate::hub::{COPIES_ROLE, HOME, MANAGER, SYNCER_ACCOUNT, TOKENS_ROLE};
use crate::model::Request;
use crate::monitor::ProcessId;
use crate::service::client;
use crate::world::World;

/// The field manager of the processes, which is the program's user agent.
pub const AGENT: &str = "hub-addons/0.1.0";

/// How long replaced trust anchors stay published.
pub const OVERLAP: Duration = Duration::from_mins(1);

/// How often a syncer renews its Lease.
const RENEWAL: Duration = Duration::from_secs(20);

/// How many requests of a namespace may be open.
const REQUESTS: usize = 1000;

/// Which controllers a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature gate")]
pub struct Gates {
    pub projector: bool,
    pub provisioner: bool,
    pub syncer: bool,
    /// The controller `credential-rights`.
    pub rights: bool,
    /// Consumer access.
    pub consumers: bool,
    /// What admits requests in the user server, and ends them.
    pub admission: bool,
}

impl Gates {
    /// No controller.
    pub const NONE: Self = Self {
        projector: false,
        provisioner: false,
        syncer: false,
        rights: false,
        consumers: false,
        admission: false,
    };
    /// Every controller in one process, without consumers.
    pub const ALL: Self =
        Self { projector: true, provisioner: true, syncer: true, rights: true, ..Self::NONE };
    /// The controllers that write profiles, in one process as in the chart.
    pub const PROFILES: Self =
        Self { projector: true, provisioner: true, rights: true, ..Self::NONE };
    /// The syncer alone, as in the chart.
    pub const CREDENTIALS: Self = Self { syncer: true, ..Self::NONE };
    /// The projector alone.
    pub const PROJECTOR: Self = Self { projector: true, ..Self::NONE };
    /// The provisioner alone.
    pub const PROVISIONER: Self = Self { provisioner: true, ..Self::NONE };
    /// The controller `credential-rights` alone.
    pub const RIGHTS: Self = Self { rights: true, ..Self::NONE };
    /// Consumer access alone, as in the chart.
    pub const CONSUMERS: Self = Self { consumers: true, ..Self::NONE };
    /// The user server.
    pub const USER_SERVER: Self = Self { admission: true, ..Self::NONE };
}

/// The setup of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Means {
    /// Whether the syncer sees only Secrets for which it has been granted permissions.
    pub granted: bool,
    /// Whether processes take part in leader election. Without Leases, each believes that it leads.
    pub leases: bool,
}

impl Gates {
    /// The Lease of a process with these controllers, as the program names it.
    fn lease(self) -> String {
        let controllers = [
            (self.syncer, "credential-syncer"),
            (self.projector, "profile-projector"),
            (self.provisioner, "access-provisioner"),
            (self.rights, "credential-rights"),
            (self.consumers, "consumer-access"),
        ];
        let first = controllers.into_iter().find(|(enabled, _)| *enabled);
        first.map_or("hub-addons".to_owned(), |(_, controller)| format!("hub-addons-{controller}"))
    }
}

/// Starts a process. A process that ends because it has lost its Lease is started again, as a container is.
#[must_use]
pub fn start(world: &World, gates: Gates, means: Means) -> ProcessId {
    let process = world.add_process();
    let task = tokio::spawn({
        let world = world.clone();
        async move {
            for run in 0_u32.. {
                let identity = format!("{process}.{run}");
                // Every replica of the user server serves.
                let means = Means { leases: means.leases && !gates.admission, ..means };
                if means.leases {
                    let candidate = (identity.clone(), gates.lease());
                    world.lock().monitor.candidates.insert(process, candidate);
                }
                let permissions = world.lock().monitor.permissions;
                let built = build(
                    &world,
                    process,
                    setup(&world, process, identity, gates, means),
                    gates,
                    means,
                    permissions,
                );
                let controllers = built.controllers.clone();
                let annotations = move || {
                    let shown =
                        controllers.iter().filter_map(|controller| controller.lease_annotation());
                    shown.filter_map(|(key, value)| Some((key, value?))).collect::<Vec<_>>()
                };
                let running = built.run(CancellationToken::new());
                let ended = tokio::select! {
                    biased;
                    ended = running => ended,
                    () = renew_lease(world.clone(), annotations), if gates.syncer && !means.leases => return,
                };
                if let Err(ProcessError::TaskEnded(task)) = ended {
                    world.lock().monitor.violations.push(format!("a task ended: {task}"));
                }
                world.restarted(process);
                sleep(Duration::from_secs(1)).await;
            }
        }
    });
    world.set_task(process, task.abort_handle());
    process
}

/// Renews the Lease of the syncer while its process runs, without an election: several processes can lead at once.
async fn renew_lease(world: World, annotations: impl Fn() -> Vec<(&'static str, String)>) {
    const LEASE: &str =
        "/apis/coordination.k8s.io/v1/namespaces/hub-addons/leases/hub-addons-credential-syncer";
    let actor = Actor::new(&world, "the syncer's election");
    loop {
        let now = Timestamp::from_second(world.lock().server.now).unwrap_or_default();
        let spec = json!({ "holderIdentity": "syncer", "leaseDurationSeconds": 60, "renewTime": now.to_string() });
        let shown: BTreeMap<&str, String> = annotations().into_iter().collect();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "hub-addons-credential-syncer", "annotations": shown }, "spec": spec,
        });
        actor.send(&Request::new("PUT", LEASE).with(&lease));
        tokio::time::sleep(RENEWAL).await;
    }
}

fn setup(world: &World, process: ProcessId, identity: String, gates: Gates, means: Means) -> Setup {
    let clock = world.clone();
    let candidate = Candidate { namespace: HOME.to_owned(), lease: gates.lease(), identity };
    let setup = Setup {
        clock: Arc::new(move || {
            Timestamp::from_second(clock.lock().server.now).unwrap_or_default()
        }),
        candidate: means.leases.then_some(candidate),
        ..Setup::new(client(world, process, AGENT))
    };
    debug_assert_eq!(setup.manager.as_str(), MANAGER);
    setup
}

/// A handshake with the proxy, whose only certificates are self-signed ones.
fn handshake(world: &World) -> Handshake {
    let world = world.clone();
    Arc::new(move |server| {
        let namespace = server.address.host.split('.').nth(1).unwrap_or_default();
        let certificate = world.lock().network.proxy.get(namespace).copied().unwrap_or_default();
        let serving = TrustBundle::from_pem(certificate.as_bytes());
        let known = server.current.anchors().chain(&server.replaced);
        let verified_by: BTreeSet<_> = known
            .filter(|known| serving.iter().any(|it| it.anchors().any(|it| it == *known)))
            .cloned()
            .collect();
        let sighting = if serving.is_err() {
            Sighting::Unreachable("it does not run".to_owned())
        } else {
            let refused = verified_by.is_empty().then(|| "another certificate".to_owned());
            Sighting::Presented(Presented {
                verified_by,
                names: server.hosts,
                expires: Timestamp::MAX,
                refused,
            })
        };
        ready(sighting).boxed()
    })
}

fn build(
    world: &World,
    process: ProcessId,
    setup: Setup,
    gates: Gates,
    means: Means,
    permissions: Permissions,
) -> Process {
    let manager = ManagerName::default();
    let projector =
        || ProjectionSettings { manager: manager.clone(), ..ProjectionSettings::default() };
    let provisioner = || ProvisionerSettings {
        provider: MANAGER.to_owned(),
        source: AccessSource::ClusterProxy { require_addon: true, ca: None },
        ca: None,
        overlap: OVERLAP,
        check_interval: Duration::from_mins(2),
        handshake: handshake(world),
    };
    let syncer = || SyncerSettings {
        sync: SyncSettings {
            manager: manager.clone(),
            require_namespaces: false,
            protected: ProtectedNamespaces::default(),
            trust_restored: false,
        },
        copies_binding: means.granted.then(|| COPIES_ROLE.to_owned()),
    };
    let rights = || PermissionSettings {
        namespace: HOME.into(),
        service_account: SYNCER_ACCOUNT.to_owned(),
        copies_role: COPIES_ROLE.to_owned(),
        tokens_role: TOKENS_ROLE.to_owned(),
        protected: ProtectedNamespaces::default(),
        require_namespaces: false,
        access_rules: Some(consumers::rules()),
    };
    let user_server = |shared: &Shared, protected| UserServer {
        world: world.clone(),
        process,
        admission: Admission::new(shared, protected, REQUESTS),
    };
    Process::new(setup)
        .add(gates.projector.then(projector), Projector::new)
        .add(gates.provisioner.then(provisioner), |shared, settings| {
            Provisioner::new(shared, settings, EntryMetrics::default())
        })
        .add(gates.syncer.then(syncer), |shared, settings| {
            Syncer::new(shared, settings, CredentialMetrics::default())
        })
        .add(gates.rights.then(rights), CredentialRights::new)
        .add(gates.consumers.then(|| consumers::settings(permissions)), ConsumerAccess::new)
        .add(gates.admission.then(ProtectedNamespaces::default), user_server)
}

/// The user server, whose requests an operation opens.
struct UserServer {
    world: World,
    process: ProcessId,
    admission: Admission,
}

impl Controller for UserServer {
    fn name(&self) -> &'static str {
        self.admission.name()
    }

    fn needs(&self) -> &'static [FleetKind] {
        self.admission.needs()
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.admission.fleet_changed(fleet, touched);
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        self.world.serve(self.process, self.admission.clone());
        stop.cancelled_owned().boxed()
    }
}
