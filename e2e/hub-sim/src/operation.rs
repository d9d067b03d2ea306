//! What happens on a hub: an operation of a user, agent or other controller, or a fault.

mod account;
mod consumer;
mod fault;
mod people;
mod random;
mod tenant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::actor::Actor;
use crate::hub::{ACCOUNTS, CLUSTERS, NAMESPACES};
use crate::model::{Backup, UNPRIVILEGED};
use crate::world::{FailureMode, Fault, MORTAL, World};

pub(crate) use self::fault::crash_point;
use self::fault::{BREAKABLE, PERMISSIONS, READ};

/// An index into one of the lists of [`crate::hub`].
pub type Index = u8;

/// An operation or a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    // Users and Open Cluster Management.
    CreateCluster(Index),
    /// Open Cluster Management keeps a cluster by a finalizer while it leaves.
    LeaveCluster(Index),
    RemoveCluster(Index),
    MoveCluster(Index, Option<Index>),
    LabelCluster(Index, bool),
    Health(Index, u8),
    /// An administrator accepts a cluster, or denies it.
    Accept(Index, bool),
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
    // Tenants, and other controllers.
    Profile(Index, Index, ProfileTenant),
    Secret(Index, Index, Index, SecretTenant),
    RoleBinding(Index, RoleBindingTenant),
    // Consumers.
    /// Agents report the tokens of all accounts, and apply all permissions.
    Agents,
    /// The agent of managed-serviceaccount is installed on a cluster in one of two namespaces, or not at all.
    Install(Index, Option<Index>),
    /// On an object of the access to a cluster: its cluster, its account, and its kind.
    Object(Index, Index, Index, ObjectTenant),
    /// A team applies or deletes the ClusterAccess of a variant.
    Access(Index, bool),
    /// Somebody sets or removes a finalizer on the ClusterAccess of a variant.
    HoldAccess(Index, bool),
    /// The Placement of a namespace decides for the clusters with the lowest bits, in one of two decisions.
    Decide(Index, u8),
    /// The kind of permissions changes, and every process starts again.
    Declare(Index),
    /// An application opens a request from its namespace to a cluster, by its own identity.
    Request(Index, Index),
    // Faults.
    Start(u8),
    Crash(u8),
    CrashAtWrite(u8, u8, bool),
    Disconnect,
    Compact,
    /// The history is compacted while a client reads a list page by page.
    CompactBetweenPages,
    Stall(u8),
    /// Each request takes this many tenths of a second.
    Slow(u8),
    Lag(u8),
    Fail(Fault, u8),
    /// The server does not respond for this many tenths of a second.
    Outage(u8),
    /// A backup of etcd is taken.
    Backup,
    /// The backup is restored, and the server does not respond for this many tenths of a second, or longer.
    Restore(u8),
    /// A quota that refuses Secrets in a namespace begins or ends.
    Refuse(Index, bool),
    /// A permission is missing.
    Forbid(u8),
    Permit,
    /// One verb on one kind fails in a namespace, until faults end.
    Break(Index, Index, FailureMode),
    /// A kind can be neither listed nor watched, until faults end.
    Unread(Index, FailureMode),
    /// Every kind can be read again.
    Reread,
    /// The connections of the watches on one kind freeze: nothing is closed, and new connections work.
    Freeze(Index),
    RemoveCrd(u8),
    RestoreCrds,
    /// v1alpha2 of ClusterProfile is served, or is no longer served, on a hub whose CRD has it.
    ServeLater(bool),
    Collect,
    Wait(u16),
}

/// What a tenant does to a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
pub enum SecretTenant {
    Delete,
    Edit,
    Unlabel,
    Hold,
    Release,
    CreateForeign,
    /// Removes every mark of the syncer from a copy.
    Disown,
    /// Creates a Secret that has every mark of a copy.
    Forge,
}

/// What an admin of a namespace does to the RoleBinding for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoleBindingTenant {
    Delete,
    /// Binds the role to another subject.
    Redirect,
    Unlabel,
}

/// What happens to an object of a consumer's access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectTenant {
    /// Another owner creates an object of that name.
    Create,
    Delete,
    Edit,
    /// Removes the labels by which processes recognize their objects.
    Unmark,
    Hold,
    Release,
    /// The cluster reports that it cannot apply it.
    Fail,
}

impl Operation {
    /// The kind of the operation, as counters name it.
    #[must_use]
    pub fn name(self) -> String {
        let shown = format!("{self:?}");
        let kind = shown.split('(').next().unwrap_or_default();
        match self {
            Self::Profile(.., what) => format!("{kind} {what:?}"),
            Self::Secret(.., what) => format!("{kind} {what:?}"),
            Self::RoleBinding(_, what) => format!("{kind} {what:?}"),
            Self::Object(.., what) => format!("{kind} {what:?}"),
            Self::RemoveCrd(index) => format!("{kind} {}", at(&MORTAL, index)),
            Self::Forbid(index) => {
                let (method, plural) = at(&PERMISSIONS, index);
                format!("{kind} {method} {plural}")
            }
            Self::Break(index, ..) => {
                let (method, plural) = at(&BREAKABLE, index);
                format!("{kind} {method} {plural}")
            }
            Self::Unread(index, _) | Self::Freeze(index) => format!("{kind} {}", at(&READ, index)),
            Self::Fail(fault, _) => format!("{kind} {fault:?}"),
            _ => kind.to_owned(),
        }
    }

    /// Whether the operation is a crash or a fault: without these, deadlines are short.
    pub(crate) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Start(_)
                | Self::Crash(_)
                | Self::CrashAtWrite(..)
                | Self::Disconnect
                | Self::Compact
                | Self::CompactBetweenPages
                | Self::Stall(_)
                | Self::Slow(_)
                | Self::Lag(_)
                | Self::Fail(..)
                | Self::Outage(_)
                | Self::Restore(_)
                | Self::Refuse(..)
                | Self::Forbid(_)
                | Self::Break(..)
                | Self::Unread(..)
                | Self::Freeze(_)
                | Self::RemoveCrd(_)
                | Self::ServeLater(_)
                | Self::RoleBinding(..)
                | Self::Declare(_)
        )
    }
}

/// The clients that are not processes of this project.
pub struct Others {
    world: World,
    ocm: Actor,
    agent: Actor,
    tenant: Actor,
    /// Edits ClusterAccesses, and may bind no ClusterRole.
    unprivileged: Actor,
    other: Actor,
    backup: Mutex<Option<Backup>>,
}

impl Others {
    /// The clients of a world.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            ocm: Actor::new(world, "registration-controller"),
            agent: Actor::new(world, "managed-serviceaccount-agent"),
            tenant: Actor::new(world, "kubectl-edit"),
            unprivileged: Actor::new(world, UNPRIVILEGED),
            other: Actor::new(world, "another-provider"),
            backup: Mutex::default(),
        }
    }

    /// Performs an operation that is not about a process.
    pub fn perform(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Profile(namespace, cluster, what) => {
                self.profile(at(&NAMESPACES, namespace), at(&CLUSTERS, cluster), what);
            }
            O::Secret(namespace, cluster, account, what) => {
                self.secret(
                    at(&NAMESPACES, namespace),
                    at(&CLUSTERS, cluster),
                    at(&ACCOUNTS, account),
                    what,
                );
            }
            O::RoleBinding(namespace, what) => self.role_binding(at(&NAMESPACES, namespace), what),
            O::Agents => {
                self.agents();
            }
            O::Access(variant, is_applied) => self.access(variant, is_applied),
            O::HoldAccess(variant, is_held) => self.hold_access(variant, is_held),
            O::Decide(namespace, clusters) => self.decide(at(&NAMESPACES, namespace), clusters),
            O::Install(cluster, namespace) => self.install(at(&CLUSTERS, cluster), namespace),
            O::Object(cluster, account, kind, what) => {
                self.object(at(&CLUSTERS, cluster), at(&ACCOUNTS, account), kind, what);
            }
            _ => {
                // Each of these does what is its own, and nothing for the others.
                self.cluster(operation);
                self.grant(operation);
                self.proxy(operation);
                self.account(operation);
                self.fault(operation);
            }
        }
    }
}

pub(crate) fn at<T: Copy>(list: &[T], index: Index) -> T {
    list[usize::from(index) % list.len()]
}
