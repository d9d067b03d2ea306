//! The entry to clusters for applications with an identity of their own: what a request may contain, where it goes, and
//! whether its caller may go there.
//!
//! A request is `https://USER-SERVER/CLUSTER/PATH`, the URL shape of cluster-proxy's user server. Its caller is a
//! ServiceAccount of the hub, and the [grant] of the caller's namespace decides. What passes is sent to the
//! API server of the cluster as the user of the [own identity](crate::own_identity).
//!
//! **What is ambiguous is refused**: a path that two programs may parse differently, a second credential, and a header
//! by which the caller could become another user.

mod headers;
mod refusal;
mod route;

pub use self::headers::{bearer_token, end_to_end, is_discovery, response_headers, upgrade};
pub use self::refusal::{Refusal, RefusalReason};
pub use self::route::{Route, redirected, route};

use hub_api::names::{ClusterName, Namespace, is_dns_label, is_dns_subdomain};

use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::protected::ProtectedNamespaces;

/// A ServiceAccount of the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    pub namespace: Namespace,
    pub name: String,
}

impl Caller {
    /// The ServiceAccount with this user name, if it is one.
    pub fn of_user(user: &str) -> Result<Self, Refusal> {
        let names =
            user.strip_prefix("system:serviceaccount:").and_then(|names| names.split_once(':'));
        match names {
            Some((namespace, name)) if is_dns_label(namespace) && is_dns_subdomain(name) => {
                Ok(Self { namespace: namespace.into(), name: name.to_owned() })
            }
            _ => Err(Refusal::NoServiceAccount),
        }
    }
}

/// Whether a caller may reach a cluster now.
pub fn admit(
    fleet: &Fleet,
    protected: &ProtectedNamespaces,
    caller: &Caller,
    cluster: &ClusterName,
) -> Result<(), Refusal> {
    let key = cluster.in_namespace(&caller.namespace);
    match grant::decide(fleet, &key) {
        // A kind that cannot be read may have granted it meanwhile.
        Grant::Refused if !fleet.is_read() => Err(Refusal::GrantUnknown(key)),
        Grant::Refused => Err(Refusal::NotGranted(key)),
        Grant::Granted | Grant::Unknown if protected.protects(fleet, &key.namespace) => {
            Err(Refusal::Protected(key.namespace))
        }
        Grant::Unknown => Err(Refusal::GrantUnknown(key)),
        Grant::Granted => Ok(()),
    }
}

/// Whether open requests of a namespace to a cluster are closed: the grant has ended, or the namespace is protected
/// now. While the grant is unknown, they stay open, unless a kind cannot be read for
/// minutes: then all of them are closed.
#[must_use]
pub fn is_cut(
    fleet: &Fleet,
    protected: &ProtectedNamespaces,
    namespace: &Namespace,
    cluster: &ClusterName,
) -> bool {
    let key = cluster.in_namespace(namespace);
    grant::decide(fleet, &key) == Grant::Refused || protected.protects(fleet, namespace)
}
