//! What the watches list, and lists that fail: one finding for each kind whose objects a watch cannot list.

use std::collections::BTreeSet;
use std::time::Duration;

use hub_api::names::AccountName;
use hub_core::consumer_access::AccessKind;
use hub_core::finding::{Finding, Reason, Subject};

/// How long lists must fail before this is reported.
pub(crate) const FAILING_TIME: Duration = Duration::from_mins(1);

/// What a watch lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listed {
    Objects(AccessKind),
    /// The addons whose agents create the accounts on the clusters.
    Agents,
}

impl Listed {
    pub(crate) const ALL: [Self; 4] = [
        Self::Objects(AccessKind::Account),
        Self::Objects(AccessKind::ManifestWork),
        Self::Objects(AccessKind::ClusterPermission),
        Self::Agents,
    ];

    /// The CRD of the kind.
    pub(crate) fn crd(self) -> Subject {
        let name = match self {
            Self::Objects(AccessKind::Account) => {
                "managedserviceaccounts.authentication.open-cluster-management.io"
            }
            Self::Objects(AccessKind::ManifestWork) => "manifestworks.work.open-cluster-management.io",
            Self::Objects(AccessKind::ClusterPermission) => {
                "clusterpermissions.rbac.open-cluster-management.io"
            }
            Self::Agents => "managedclusteraddons.addon.open-cluster-management.io",
        };
        Subject::Crd(name.to_owned())
    }

    /// What consumers lack while the list fails.
    pub(crate) fn finding(self) -> Finding {
        let (reason, message) = match self {
            Self::Objects(AccessKind::Account) => (
                Reason::ConsumerAccessNotListed,
                "ManagedServiceAccounts (authentication.open-cluster-management.io/v1beta1) cannot be listed, so the \
                 access of consumers may be out of date: install managed-serviceaccount, or see the log of the controller",
            ),
            Self::Objects(AccessKind::ManifestWork) => (
                Reason::ConsumerAccessNotListed,
                "ManifestWorks (work.open-cluster-management.io/v1) cannot be listed, and consumers get no account on \
                 further clusters: see the log of the controller",
            ),
            Self::Objects(AccessKind::ClusterPermission) => (
                Reason::ClusterPermissionsNotListed,
                "ClusterPermissions (rbac.open-cluster-management.io/v1alpha1) cannot be listed, and consumers that \
                 declare them get no account on further clusters: install cluster-permission, or see the log of the \
                 controller",
            ),
            Self::Agents => (
                Reason::ConsumerAccessNotListed,
                "ManagedClusterAddOns (addon.open-cluster-management.io/v1alpha1) cannot be listed, and consumers get \
                 no permissions on further clusters: see the log of the controller, or set the namespace of the accounts",
            ),
        };
        Finding::new(reason, message)
    }

    /// Whether the process needs this list to begin to work: then its failure is reported earlier.
    pub(crate) fn is_needed_to_begin(self) -> bool {
        self == Self::Objects(AccessKind::Account)
    }
}

/// A watch: on the objects of one account, or on all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchName {
    pub(crate) listed: Listed,
    pub(crate) account: Option<AccountName>,
}

/// The watches that cannot list their objects.
#[derive(Default)]
pub(crate) struct FailingLists(BTreeSet<WatchName>);

impl FailingLists {
    /// Records whether a watch fails; returns whether this changes [`Self::contains`].
    pub(crate) fn set(&mut self, watch: &WatchName, is_failing: bool) -> bool {
        let before = self.contains(watch.listed);
        if is_failing {
            self.0.insert(watch.clone());
        } else {
            self.0.remove(watch);
        }
        before != self.contains(watch.listed)
    }

    /// Whether a watch of this kind fails.
    pub(crate) fn contains(&self, listed: Listed) -> bool {
        self.0.iter().any(|watch| watch.listed == listed)
    }
}
