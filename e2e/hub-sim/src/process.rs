//! A process of ours: the real controllers, as the program starts them, on the simulated network.

use std::sync::Arc;
use std::time::Duration;

use access_provisioner::{Provisioner, ProvisionerSettings, SourceSettings};
use credential_rights::{CredentialRights, GRACE, PermissionSettings};
use credential_syncer::{SecretAccess, SyncSettings, Syncer, SyncerSettings};
use hub_api::names::ManagerName;
use hub_core::label_allow_list::LabelAllowList;
use hub_core::project::ProjectionSettings;
use hub_core::protected::ProtectedNamespaces;
use hub_runtime::process::{Process, Setup};
use jiff::Timestamp;
use profile_projector::Projector;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::hub::{Actor, MANAGER};
use crate::model::Request;
use crate::service::client;
use crate::world::{ProcessId, World};

/// The field manager of the processes: the program's user agent.
pub const AGENT: &str = "hub-addons/0.1.0";

/// How long replaced trust anchors stay.
pub const OVERLAP: Duration = Duration::from_mins(1);

/// How often a syncer renews its Lease.
const RENEWAL: Duration = Duration::from_secs(20);

/// Which controllers a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature gate")]
pub struct Gates {
    /// The projector.
    pub projector: bool,
    /// The provisioner.
    pub provisioner: bool,
    /// The syncer.
    pub syncer: bool,
    /// Credential rights.
    pub rights: bool,
}

impl Gates {
    /// Every controller in one process.
    pub const ALL: Self = Self { projector: true, provisioner: true, syncer: true, rights: true };
    /// The writers of profiles, as the chart runs them.
    pub const PROFILES: Self = Self { projector: true, provisioner: true, syncer: false, rights: true };
    /// The syncer alone, as the chart runs it.
    pub const CREDENTIALS: Self = Self { projector: false, provisioner: false, syncer: true, rights: false };
    /// The projector alone.
    pub const PROJECTOR: Self = Self { projector: true, provisioner: false, syncer: false, rights: false };
    /// The provisioner alone.
    pub const PROVISIONER: Self = Self { projector: false, provisioner: true, syncer: false, rights: false };
}

/// Starts a process that takes itself for the leader.
#[must_use]
pub fn start(world: &World, gates: Gates) -> ProcessId {
    let process = world.add_process();
    let clock = world.clone();
    let setup = Setup {
        clock: Arc::new(move || Timestamp::from_second(clock.lock().server.now).unwrap_or_default()),
        ..Setup::new(client(world, process, AGENT))
    };
    debug_assert_eq!(setup.manager.as_str(), MANAGER);
    let running = build(setup, gates).run(CancellationToken::new());
    let world_of_lease = world.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            ended = running => drop(ended),
            () = renew_lease(world_of_lease), if gates.syncer => {}
        }
    });
    world.set_task(process, task.abort_handle());
    process
}

/// Renews the Lease of the syncer for as long as its process runs, without an election: several may lead at once.
async fn renew_lease(world: World) {
    const LEASE: &str =
        "/apis/coordination.k8s.io/v1/namespaces/hub-addons/leases/hub-addons-credential-syncer";
    let actor = Actor::new(&world, "the syncer's election");
    loop {
        let now = Timestamp::from_second(world.lock().server.now).unwrap_or_default();
        let spec =
            json!({ "holderIdentity": "syncer", "leaseDurationSeconds": 60, "renewTime": now.to_string() });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "hub-addons-credential-syncer" }, "spec": spec,
        });
        actor.send(&Request::new("PUT", LEASE).with(&lease));
        tokio::time::sleep(RENEWAL).await;
    }
}

fn build(setup: Setup, gates: Gates) -> Process {
    let manager = ManagerName::default();
    let projector = || ProjectionSettings {
        manager: manager.clone(),
        propagated_labels: LabelAllowList::default(),
        follow_member_id: false,
    };
    let provisioner = || ProvisionerSettings {
        provider: MANAGER.to_owned(),
        source: SourceSettings::ClusterProxy {
            service: "cluster-proxy-addon-user".to_owned(),
            port: 9092,
            require_addon: true,
        },
        overlap: OVERLAP,
    };
    let syncer = || SyncerSettings {
        sync: SyncSettings {
            manager: manager.clone(),
            require_namespaces: false,
            protected: ProtectedNamespaces::default(),
            trust_restored: false,
        },
        access: SecretAccess::Cluster,
    };
    let rights = || PermissionSettings {
        namespace: "hub-addons".into(),
        service_account: "syncer".to_owned(),
        copies_role: "copies".to_owned(),
        tokens_role: "tokens".to_owned(),
        protected: ProtectedNamespaces::default(),
        require_namespaces: false,
        consumer_roles: Vec::new(),
        grace: GRACE,
    };
    Process::builder(setup)
        .add(gates.projector.then(projector), Projector::new)
        .add(gates.provisioner.then(provisioner), Provisioner::new)
        .add(gates.syncer.then(syncer), Syncer::new)
        .add(gates.rights.then(rights), CredentialRights::new)
        .build()
}
