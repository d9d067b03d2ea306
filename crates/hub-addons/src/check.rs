//! `hub-addons check`: checks the installation, as `helm test` and `helm uninstall` run it.
//!
//! A Lease counts as renewed if it changes while this runs, so that only our own clock is used.

use std::time::Duration;

use clusterprofile_cli::{profile_version, table};
use hub_api::cluster_access::ClusterAccess;
use hub_api::names::ApiKind;
use hub_api::workloads::Deployment;
use hub_core::access::PublishedServer;
use hub_core::consumer_access::{
    AccessKind, COMPONENT, INSTALLATION, MULTI_KUEUE_CLUSTER, MULTI_KUEUE_CONFIG,
};
use hub_core::profile::ObservedProfile;
use hub_runtime::write::error::summary;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use tokio::time::{Instant, sleep};

use crate::cli::{CheckArgs, ObjectName};
use crate::{Failure, connect};

/// How long a holder has to renew a lease without a duration: client-go's default.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Interval between two reads of a lease.
const PAUSE: Duration = Duration::from_millis(500);

/// How many of the objects that are left are named.
const SHOWN: usize = 5;

/// The kinds that consumer access creates on the hub. Cluster Secrets of Argo CD are not among them: they contain no token,
/// and the hub deletes them with their ClusterAccess.
const EQUIPMENT: [ApiKind; 5] = [
    AccessKind::Account.api(),
    AccessKind::ManifestWork.api(),
    AccessKind::ClusterPermission.api(),
    MULTI_KUEUE_CLUSTER,
    MULTI_KUEUE_CONFIG,
];

/// What is expected, and why it is met, or why not.
type Expectation = (String, Result<String, String>);

/// Checks the expectations, and prints each with the reason why it is met or not. Returns what to complain about.
pub async fn check(args: &CheckArgs) -> Result<(Vec<u8>, Option<String>), Failure> {
    let expectations = look(&connect::connect(args.kubeconfig.as_deref()).await?, args).await;
    let mut rows = vec![["EXPECTED", "WORKS", "WHY"].map(str::to_owned).to_vec()];
    let mut failed = 0;
    for (what, result) in &expectations {
        let (works, why) = match result {
            Ok(why) => ("yes", why),
            Err(why) => ("no", why),
        };
        failed += usize::from(result.is_err());
        rows.push(vec![what.clone(), works.to_owned(), why.clone()]);
    }
    let mut report = Vec::new();
    if !expectations.is_empty() {
        table::print(&rows, &mut report)?;
    }
    let complaint = format!("{failed} of {} expectations are not met", expectations.len());
    Ok((report, (failed > 0).then_some(complaint)))
}

async fn look(client: &Client, args: &CheckArgs) -> Vec<Expectation> {
    let mut found = Vec::new();
    if let Some(installation) = &args.expect_withdrawn {
        let (component, controller) = COMPONENT;
        let labels = format!("{component}={controller},{INSTALLATION}={installation}");
        let ours = EQUIPMENT.map(|kind| (kind.resource(), ListParams::default().labels(&labels)));
        let declared = (ClusterAccess::api_resource(), ListParams::default());
        for (kind, params) in [declared].into_iter().chain(ours) {
            found.push((kind.plural.clone(), withdrawn(client, &kind, &params).await));
        }
    }
    if let Some(provider) = &args.expect_server {
        found.push((format!("server of {provider}"), server(client, provider).await));
    }
    if args.expect_leases.is_empty() && args.expect_deployments.is_empty() {
        return found;
    }
    found.push(("clusterprofiles".to_owned(), served(client).await));
    for name in &args.expect_deployments {
        found.push((format!("deployment {name}"), available(client, name).await));
    }
    // Concurrently: each may take as long as its lease.
    let leases = args.expect_leases.iter();
    let leases = leases.map(async |name| (format!("lease {name}"), held(client, name).await));
    found.extend(futures::future::join_all(leases).await);
    found
}

async fn withdrawn(
    client: &Client,
    kind: &ApiResource,
    params: &ListParams,
) -> Result<String, String> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    match api.list_metadata(params).await {
        Ok(list) if list.items.is_empty() => Ok("none is left".to_owned()),
        Ok(list) => {
            let name = |object: &PartialObjectMeta<DynamicObject>| {
                let namespace = object.namespace().map(|it| it + "/").unwrap_or_default();
                namespace + &object.name_any()
            };
            let shown = list.items.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
            let more = if list.items.len() > SHOWN { ", …" } else { "" };
            Err(format!(
                "{} are left ({shown}{more}): delete every ClusterAccess, wait until none is left, and uninstall again",
                list.items.len()
            ))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok("not served by the hub".to_owned())
        }
        Err(error) => Err(summary(&error)),
    }
}

async fn served(client: &Client) -> Result<String, String> {
    let Some(version) = profile_version(client).await.map_err(|error| error.to_string())? else {
        return Err(
            "the hub does not serve them: the CustomResourceDefinition is missing".to_owned()
        );
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &version.resource());
    let list = api.list_metadata(&ListParams::default().limit(1)).await;
    list.map(|_| "served by the hub".to_owned()).map_err(|error| summary(&error))
}

/// Checks the server that a ClusterProfile publishes under the name of an access provider.
async fn server(client: &Client, provider: &str) -> Result<String, String> {
    const PAGE: u32 = 100;
    let version = profile_version(client).await.map_err(|error| error.to_string())?;
    let Some(version) = version else { return Ok("not served by the hub".to_owned()) };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &version.resource());
    let profiles =
        api.list(&ListParams::default().limit(PAGE)).await.map_err(|error| summary(&error))?.items;
    let published = profiles.iter().find_map(|profile| {
        PublishedServer::of_profile(
            &ObservedProfile::read(&profile.metadata, &profile.data),
            provider,
        )
    });
    let Some(published) = published else { return Ok("no ClusterProfile has it yet".to_owned()) };
    server_check::verdict(&published, &server_check::check(published.clone()).await)
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
    let mut lease = read().await?;
    let version = lease.resource_version();
    let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let duration =
        duration.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let until = Instant::now() + duration.unwrap_or(LEASE_DURATION);
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
