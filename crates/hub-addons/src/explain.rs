//! `hub-addons explain`: which namespaces see which clusters, and why. Lists the hub's objects once and evaluates the
//! same decisions as the controllers.

use std::fmt::Write as _;

use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::names::{ClusterName, ClusterSetName, Namespace, ProfileKey};
use hub_core::fleet::{Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet};
use hub_core::grant::{self, Grant};
use hub_core::protected::Protection;
use hub_runtime::error::summary;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cli::ExplainArgs;
use crate::connect::{self, ConnectError};
use crate::working::{self, Report};

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The hub cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A list failed.
    #[error("cannot list {resource}: {}", summary(.source))]
    List {
        /// The resource.
        resource: String,
        /// The cause.
        source: kube::Error,
    },
}

/// The table of the requested namespaces and clusters, and whether all expectations are met.
pub async fn explain(args: &ExplainArgs) -> Result<(String, Report), ExplainError> {
    let client = connect::client(connect::config(args.kubeconfig.as_deref()).await?)?;
    let fleet = read(&client, args).await?;
    Ok((table(&fleet, args), working::look(&client, &args.working).await))
}

async fn read(client: &Client, args: &ExplainArgs) -> Result<Fleet, ExplainError> {
    let mut fleet = Fleet::new(args.bound_source());
    for object in list::<ManagedCluster>(client).await? {
        let name = ClusterName::new(object.name_any());
        let cluster = match object.0 {
            Ok(object) => ObservedCluster::read(&object),
            Err(invalid) => ObservedCluster::unreadable(&invalid.metadata, invalid.error),
        };
        fleet.apply_cluster(name, cluster);
    }
    for object in list::<ManagedClusterSet>(client).await? {
        let name = ClusterSetName::new(object.name_any());
        let set = match object.0 {
            Ok(object) => ObservedClusterSet::read(&object),
            Err(invalid) => ObservedClusterSet::unreadable(&invalid.metadata, &invalid.error),
        };
        fleet.apply_set(name, set);
    }
    for object in list::<ManagedClusterSetBinding>(client).await? {
        let name = ClusterSetName::new(object.name_any());
        let namespace = Namespace::new(object.namespace().unwrap_or_default());
        let binding = match object.0 {
            Ok(object) => ObservedBinding::read(&object),
            Err(invalid) => ObservedBinding::unreadable(&invalid.metadata, invalid.error),
        };
        fleet.apply_binding(namespace, name, binding);
    }
    Ok(fleet)
}

async fn list<K>(client: &Client) -> Result<Vec<DeserializeGuard<K>>, ExplainError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(source) => Err(ExplainError::List { resource: K::plural(&()).into_owned(), source }),
    }
}

fn table(fleet: &Fleet, args: &ExplainArgs) -> String {
    let mut rows = vec![["NAMESPACE", "CLUSTER", "SEES", "WHY"].map(str::to_owned)];
    let asked = |name: &str, only: &[String]| only.is_empty() || only.iter().any(|only| only == name);
    for namespace in fleet.namespaces().filter(|name| asked(name.as_str(), &args.namespace)) {
        for cluster in fleet.cluster_names().filter(|name| asked(name.as_str(), &args.cluster)) {
            let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
            let sees = match grant::decide(fleet, &key) {
                Grant::Granted => "yes",
                Grant::Refused => "no",
                Grant::Unknown => "unknown",
            };
            let why = grant::verdicts(fleet, &key).map(|(binding, verdict)| format!("{binding}: {verdict}"));
            let protected = args.protected_namespaces.protection(fleet, namespace).map(|why| match why {
                Protection::Named => "protected: no credentials".to_owned(),
                Protection::ClusterNamespace => {
                    "protected as the namespace of a cluster: no credentials".to_owned()
                }
            });
            let why = why.chain(protected).collect::<Vec<_>>().join("; ");
            rows.push([namespace.to_string(), cluster.to_string(), sees.to_owned(), why]);
        }
    }
    aligned(&rows)
}

fn aligned(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second, third) = (width(0), width(1), width(2));
    rows.iter().fold(String::new(), |mut table, [namespace, cluster, sees, why]| {
        // Writing into a String cannot fail.
        let _ = writeln!(table, "{namespace:first$}  {cluster:second$}  {sees:third$}  {why}");
        table
    })
}

#[cfg(test)]
mod tests {
    use hub_core::fleet::BindingTerms;
    use hub_core::selector::ClusterSelector;

    use super::*;

    #[test]
    fn every_binding_of_a_namespace_is_listed() {
        let args = ExplainArgs { namespace: vec!["app".to_owned()], ..ExplainArgs::default() };
        let mut fleet = Fleet::new(args.bound_source());
        let cluster = ObservedCluster {
            uid: None,
            labels: [("cluster.open-cluster-management.io/clusterset".to_owned(), "prod".to_owned())].into(),
            deleting: false,
            created: None,
            state: Ok(hub_core::fleet::ClusterState::default()),
        };
        fleet.apply_cluster("berlin".into(), cluster);
        for set in ["dev", "prod"] {
            fleet.apply_set(
                set.into(),
                ObservedClusterSet { uid: None, selector: Ok(ClusterSelector::Exclusive) },
            );
            let terms = BindingTerms { cluster_set: set.into(), bound: true };
            fleet.apply_binding("app".into(), set.into(), ObservedBinding { uid: None, terms: Ok(terms) });
        }
        assert_eq!(
            table(&fleet, &args),
            "NAMESPACE  CLUSTER  SEES  WHY\n\
             app        berlin   yes   dev: the set does not select the cluster; prod: granted\n"
        );
        let args = ExplainArgs { protected_namespaces: "app".parse().unwrap(), ..args };
        assert!(table(&fleet, &args).ends_with("prod: granted; protected: no credentials\n"));
    }
}
