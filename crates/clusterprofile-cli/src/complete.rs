//! The names that a shell completes, read with the permissions of the user. What the hub refuses to list is left out.

use std::collections::BTreeSet;

use hub_api::labels;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::is_dns_subdomain;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};

use crate::CommandError;
use crate::account::{accounts_of, copies};
use crate::hub::Hub;
use crate::requests::{list_metadata, served_version};

/// What a word of the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// A namespace that has a binding or a profile.
    Namespaces,
    /// A cluster of which a namespace has a profile, or with `None` any namespace.
    Clusters(Option<String>),
    /// An account of the clusters that a namespace sees.
    Accounts {
        /// The namespace; by default that of the context.
        namespace: Option<String>,
        /// The cluster; by default every one.
        cluster: Option<String>,
    },
}

/// The names that exist on the hub.
///
/// # Errors
///
/// The hub cannot be reached.
pub async fn names(hub: &Hub, wanted: &Names) -> Result<BTreeSet<String>, CommandError> {
    match wanted {
        Names::Namespaces => namespaces(hub).await,
        Names::Clusters(namespace) => clusters(hub, namespace.as_deref()).await,
        Names::Accounts { namespace, cluster } => {
            let namespace = namespace.as_ref().unwrap_or(&hub.namespace);
            accounts(hub, namespace, cluster.as_deref()).await
        }
    }
}

async fn namespaces(hub: &Hub) -> Result<BTreeSet<String>, CommandError> {
    let bindings: Api<ManagedClusterSetBinding> = Api::all(hub.client.clone());
    let bindings = list_metadata(&bindings, &ListParams::default()).await?;
    let profiles = profiles(hub, None).await?;
    // A user who may not list these on the whole hub usually works in the namespace of the context.
    if bindings.is_none() && profiles.is_none() {
        return Ok([hub.namespace.clone()].into());
    }
    let of_bindings = bindings.into_iter().flatten().filter_map(|binding| binding.metadata.namespace);
    let of_profiles = profiles.into_iter().flatten().map(|(namespace, _)| namespace);
    Ok(of_bindings.chain(of_profiles).collect())
}

/// The clusters of which there are profiles.
async fn clusters(hub: &Hub, namespace: Option<&str>) -> Result<BTreeSet<String>, CommandError> {
    let profiles = profiles(hub, namespace).await?;
    Ok(profiles.unwrap_or_default().into_iter().map(|(_, name)| name).collect())
}

/// The namespaces and names of profiles, unless the user may not list them.
async fn profiles(hub: &Hub, namespace: Option<&str>) -> Result<Option<Vec<(String, String)>>, CommandError> {
    let kind = served_version(&hub.client).await?.resource();
    let api = hub.api::<DynamicObject>(&kind, namespace);
    let profiles = list_metadata(&api, &ListParams::default()).await?;
    Ok(profiles.map(|profiles| {
        profiles.iter().map(|it| (it.namespace().unwrap_or_default(), it.name_any())).collect()
    }))
}

/// The accounts of which the namespace has copies, and those that opt in to copies: for the latter, `explain` shows
/// what is missing.
async fn accounts(
    hub: &Hub,
    namespace: &str,
    cluster: Option<&str>,
) -> Result<BTreeSet<String>, CommandError> {
    let copies = copies(hub, Some(namespace)).await?.unwrap_or_default();
    let mut names: BTreeSet<String> = accounts_of(&copies, cluster).map(str::to_owned).collect();
    let clusters = match cluster {
        Some(cluster) => [cluster.to_owned()].into(),
        None => clusters(hub, Some(namespace)).await?,
    };
    let asking = ListParams::default().labels(&format!("{}=true", labels::SYNC_TO_CLUSTER_PROFILE));
    let api = hub.api::<ManagedServiceAccount>(&(), cluster);
    for account in list_metadata(&api, &asking).await?.unwrap_or_default() {
        if account.namespace().is_some_and(|it| clusters.contains(&it)) {
            names.extend(account.metadata.name.filter(|name| is_dns_subdomain(name)));
        }
    }
    Ok(names)
}
