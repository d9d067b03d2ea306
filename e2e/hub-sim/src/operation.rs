//! What happens on a hub: one operation of somebody, or one thing that goes wrong.

mod account;
mod fault;
mod people;
mod random;
mod tenant;

use parking_lot::Mutex;

use crate::hub::{ACCOUNTS, Actor, CLUSTERS, NAMESPACES};
use crate::model::Backup;
use crate::world::{Fault, World};

pub use fault::crash_point;

/// An index into one of the lists of [`crate::hub`].
pub type Index = u8;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says, about the objects whose indexes it holds")]
pub enum Operation {
    // People and Open Cluster Management.
    CreateCluster(Index),
    /// Open Cluster Management holds a cluster by a finalizer while it leaves.
    LeaveCluster(Index),
    RemoveCluster(Index),
    MoveCluster(Index, Option<Index>),
    LabelCluster(Index, bool),
    Health(Index, u8),
    CreateSet(Index),
    DeleteSet(Index),
    Select(Index, u8),
    Bind(Index, Index),
    Unbind(Index, Index),
    Bound(Index, Index, bool),
    EndNamespace(Index),
    CreateNamespace(Index),
    // cluster-proxy.
    Configure(Option<Index>),
    Addon(Index, bool),
    Serve(Index, Option<u8>),
    // Agents and accounts.
    CreateAccount(Index, Index),
    DeleteAccount(Index, Index),
    Ask(Index, Index, bool),
    Scope(Index, Index, u8),
    Report(Index, Index, u8),
    Unreport(Index, Index),
    // Tenants, and controllers of others.
    Profile(Index, Index, ProfileTenant),
    Secret(Index, Index, Index, SecretTenant),
    RoleBinding(Index, RoleBindingTenant),
    // What goes wrong.
    Start(u8),
    Crash(u8),
    CrashAtWrite(u8, u8, bool),
    Disconnect,
    Compact,
    /// The history is compacted while somebody reads a list page by page.
    CompactBetweenPages,
    Stall(u8),
    Lag(u8),
    Fail(Fault, u8),
    /// The server is away for so many tenths of a second.
    Outage(u8),
    /// Somebody takes a backup of etcd.
    Backup,
    /// The server goes back to the backup, and is away meanwhile for so many tenths of a second.
    Restore(u8),
    /// A quota refuses Secrets in a namespace, or no longer.
    Refuse(Index, bool),
    /// A permission is missing.
    Forbid(u8),
    Permit,
    RemoveCrd(u8),
    RestoreCrds,
    /// v1alpha2 of ClusterProfile is served, or no longer, on a hub whose CRD has it.
    ServeLater(bool),
    Collect,
    Wait(u16),
}

/// What a tenant does to a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum ProfileTenant {
    Delete,
    Strip,
    Rename,
    Annotate,
    WipeStatus,
    Hold,
    Release,
    CreateOurs,
    CreateForeign,
    AddProvider,
    RemoveProvider,
    AddCondition,
    DisguiseProvider,
}

/// What a tenant does to a Secret where a copy belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum SecretTenant {
    Delete,
    Edit,
    Unlabel,
    Hold,
    Release,
    CreateForeign,
    /// Takes every trace of the syncer from a copy.
    Disown,
    /// Makes a Secret that says of itself that it is a copy.
    Forge,
}

/// What an admin of a namespace does to the RoleBinding for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum RoleBindingTenant {
    Delete,
    /// Binds the role to another subject.
    Redirect,
    Unlabel,
}

impl Operation {
    /// What kind of operation it is, as it is counted.
    #[must_use]
    pub fn name(self) -> String {
        let shown = format!("{self:?}");
        let kind = shown.split('(').next().unwrap_or_default();
        match self {
            Self::Profile(.., what) => format!("{kind} {what:?}"),
            Self::Secret(.., what) => format!("{kind} {what:?}"),
            Self::RoleBinding(_, what) => format!("{kind} {what:?}"),
            Self::Fail(fault, _) => format!("{kind} {fault:?}"),
            _ => kind.to_owned(),
        }
    }

    /// Whether the operation is a crash or a fault: without them, what is due is due soon.
    #[must_use]
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Start(_)
                | Self::Crash(_)
                | Self::CrashAtWrite(..)
                | Self::Disconnect
                | Self::Compact
                | Self::CompactBetweenPages
                | Self::Stall(_)
                | Self::Lag(_)
                | Self::Fail(..)
                | Self::Outage(_)
                | Self::Restore(_)
                | Self::Refuse(..)
                | Self::Forbid(_)
                | Self::RemoveCrd(_)
                | Self::ServeLater(_)
                | Self::RoleBinding(..)
        )
    }
}

/// Everybody who is no process of ours.
pub struct Others {
    world: World,
    ocm: Actor,
    agent: Actor,
    tenant: Actor,
    other: Actor,
    backup: Mutex<Option<Backup>>,
}

impl Others {
    /// Those of a world.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            ocm: Actor::new(world, "registration-controller"),
            agent: Actor::new(world, "managed-serviceaccount-agent"),
            tenant: Actor::new(world, "kubectl-edit"),
            other: Actor::new(world, "another-provider"),
            backup: Mutex::default(),
        }
    }

    /// Does what is not about a process of ours.
    pub fn perform(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::CreateCluster(..)
            | O::LeaveCluster(..)
            | O::RemoveCluster(..)
            | O::MoveCluster(..)
            | O::LabelCluster(..)
            | O::Health(..) => self.cluster(operation),
            O::CreateSet(..)
            | O::DeleteSet(..)
            | O::Select(..)
            | O::Bind(..)
            | O::Unbind(..)
            | O::Bound(..)
            | O::EndNamespace(..)
            | O::CreateNamespace(..) => self.grant(operation),
            O::Configure(..) | O::Addon(..) | O::Serve(..) => self.proxy(operation),
            O::CreateAccount(..)
            | O::DeleteAccount(..)
            | O::Ask(..)
            | O::Scope(..)
            | O::Report(..)
            | O::Unreport(..) => self.account(operation),
            O::Profile(namespace, cluster, what) => {
                self.profile(at(&NAMESPACES, namespace), at(&CLUSTERS, cluster), what);
            }
            O::Secret(namespace, cluster, account, what) => {
                self.secret(at(&NAMESPACES, namespace), at(&CLUSTERS, cluster), at(&ACCOUNTS, account), what);
            }
            O::RoleBinding(namespace, what) => self.role_binding(at(&NAMESPACES, namespace), what),
            _ => self.fault(operation),
        }
    }
}

fn at<T: Copy>(list: &[T], index: Index) -> T {
    list[usize::from(index) % list.len()]
}
