//! Checks the installation, for `hub-addons explain` with `--expect-…`, as `helm test` and `helm uninstall` run it.
//!
//! A Lease counts as renewed if it changes while this runs, so that only our own clock is used.

use std::fmt;
use std::time::Duration;

use clusterprofile_cli::profile_version;
use hub_api::workloads::Deployment;
use hub_core::consumer_access::{COMPONENT, INSTALLATION};
use hub_runtime::write::error::summary;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep};

use crate::cli::{ObjectName, WorkingArgs};

/// How long a holder has to renew a lease without a duration: client-go's default.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Interval between two reads of a lease.
const PAUSE: Duration = Duration::from_millis(500);

/// How many of the objects that are left are named.
const SHOWN: usize = 5;

/// A kind of objects.
struct Kind {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
}

/// What consumer access creates on the hub.
const EQUIPMENT: [Kind; 5] = [
    Kind {
        group: "authentication.open-cluster-management.io",
        version: "v1beta1",
        name: "ManagedServiceAccount",
        plural: "managedserviceaccounts",
    },
    Kind {
        group: "work.open-cluster-management.io",
        version: "v1",
        name: "ManifestWork",
        plural: "manifestworks",
    },
    Kind {
        group: "rbac.open-cluster-management.io",
        version: "v1alpha1",
        name: "ClusterPermission",
        plural: "clusterpermissions",
    },
    Kind {
        group: "kueue.x-k8s.io",
        version: "v1beta2",
        name: "MultiKueueCluster",
        plural: "multikueueclusters",
    },
    Kind {
        group: "kueue.x-k8s.io",
        version: "v1beta2",
        name: "MultiKueueConfig",
        plural: "multikueueconfigs",
    },
];

/// The result of one expectation.
struct Expectation {
    what: String,
    /// Why it is met, or why not.
    result: Result<String, String>,
}

/// The expectations, and whether all of them are met.
#[derive(Default)]
pub struct Expectations(Vec<Expectation>);

impl Expectations {
    /// Whether every expectation is met.
    #[must_use]
    pub fn works(&self) -> bool {
        self.0.iter().all(|finding| finding.result.is_ok())
    }

    /// How many expectations are not met.
    #[must_use]
    pub fn complaint(&self) -> String {
        let failed = self.0.iter().filter(|finding| finding.result.is_err()).count();
        format!("{failed} of {} expectations are not met", self.0.len())
    }
}

impl fmt::Display for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
        if !self.0.is_empty() {
            writeln!(f, "{:width$}  WORKS  WHY", "EXPECTED")?;
        }
        self.0.iter().try_for_each(|Expectation { what, result }| {
            let (works, why) = match result {
                Ok(why) => ("yes", why),
                Err(why) => ("no", why),
            };
            writeln!(f, "{what:width$}  {works:5}  {why}")
        })
    }
}

/// Checks the expectations; by default there are none.
pub async fn look(client: &Client, args: &WorkingArgs) -> Expectations {
    let mut report = Expectations::default();
    if let Some(installation) = &args.expect_withdrawn {
        for kind in EQUIPMENT {
            let result = withdrawn(client, &kind, installation).await;
            report.0.push(Expectation { what: kind.plural.to_owned(), result });
        }
    }
    if args.expect_leases.is_empty() && args.expect_deployments.is_empty() {
        return report;
    }
    report.0.push(Expectation { what: "clusterprofiles".to_owned(), result: served(client).await });
    for name in &args.expect_deployments {
        report
            .0
            .push(Expectation { what: format!("deployment {name}"), result: available(client, name).await });
    }
    // Concurrently: each may take as long as its lease.
    let leases = args.expect_leases.iter().map(|name| async move {
        Expectation { what: format!("lease {name}"), result: held(client, name).await }
    });
    report.0.extend(futures::future::join_all(leases).await);
    report
}

async fn withdrawn(client: &Client, kind: &Kind, installation: &str) -> Result<String, String> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group, kind.version, kind.name),
        kind.plural,
    );
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let (component, controller) = COMPONENT;
    let labels = format!("{component}={controller},{INSTALLATION}={installation}");
    match api.list_metadata(&ListParams::default().labels(&labels)).await {
        Ok(list) if list.items.is_empty() => Ok("none is left".to_owned()),
        Ok(list) => {
            let name = |object: &PartialObjectMeta<DynamicObject>| {
                object.namespace().into_iter().chain([object.name_any()]).collect::<Vec<_>>().join("/")
            };
            let shown = list.items.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
            let more = if list.items.len() > SHOWN { ", …" } else { "" };
            Err(format!(
                "{} are left ({shown}{more}): set consumerAccess.withdraw=true, wait until none is left, and uninstall again",
                list.items.len()
            ))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok("not served by the hub".to_owned()),
        Err(error) => Err(summary(&error)),
    }
}

async fn served(client: &Client) -> Result<String, String> {
    let Some(version) = profile_version(client).await.map_err(|error| error.to_string())? else {
        return Err("the hub does not serve them: the CustomResourceDefinition is missing".to_owned());
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &version.resource());
    let list = api.list_metadata(&ListParams::default().limit(1)).await;
    list.map(|_| "served by the hub".to_owned()).map_err(|error| summary(&error))
}

async fn available(client: &Client, name: &ObjectName) -> Result<String, String> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &name.namespace);
    let deployment = api.get(&name.name).await.map_err(|error| summary(&error))?;
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let available = deployment.status.available_replicas.unwrap_or(0);
    let text = format!("{available} of {wanted} replicas are available");
    if available > 0 { Ok(text) } else { Err(text) }
}

async fn held(client: &Client, name: &ObjectName) -> Result<String, String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &name.namespace);
    let read = async || api.get(&name.name).await.map_err(|error| summary(&error));
    let first = read().await?;
    let version = first.resource_version();
    let duration = first.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let duration = duration.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let until = Instant::now() + duration.unwrap_or(LEASE_DURATION);
    let mut lease = first;
    loop {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let holder = holder.filter(|holder| !holder.is_empty());
        match holder {
            Some(holder) if lease.resource_version() != version => {
                return Ok(format!("held and renewed by {holder}"));
            }
            Some(holder) if Instant::now() >= until => {
                return Err(format!("{holder} holds it and does not renew it"));
            }
            None if Instant::now() >= until => return Err("no controller holds it".to_owned()),
            _ => {}
        }
        sleep(PAUSE).await;
        lease = read().await?;
    }
}
