//! `hub-addons cleanup`: withdraws the entries of access providers that no controller writes any more, because they
//! were renamed or their feature gate was disabled.

use std::fmt::Write as _;

use clusterprofile_cli::profile_version;
use hub_api::names::ProfileKey;
use hub_core::access;
use hub_core::profile::{Desired, DesiredStatus, ObservedProfile, ProfileAction, plan};
use hub_core::status_request::status_request;
use hub_runtime::write::error::summary;
use hub_runtime::write::execute::patch_status;
use kube::api::{ApiResource, DynamicObject, ListParams, PatchParams, Request};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::Value;

use crate::cli::CleanupArgs;
use crate::{Failure, connect};

/// Page size of lists.
const PAGE: u32 = 500;

/// Withdraws the entries, or only lists them; returns a line for each profile.
pub async fn cleanup(args: &CleanupArgs) -> Result<String, Failure> {
    let client = connect::connect(args.kubeconfig.as_deref()).await?;
    let kind =
        profile_version(&client).await?.ok_or("the hub does not serve ClusterProfiles")?.resource();
    let profiles: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let (mut lines, mut page) = (String::new(), ListParams::default().limit(PAGE));
    loop {
        let failed = |error| format!("cannot list clusterprofiles: {}", summary(&error));
        let list = profiles.list(&page).await.map_err(failed)?;
        for object in &list.items {
            let namespace = object.namespace().unwrap_or_default().as_str().into();
            let profile = ProfileKey { namespace, cluster: object.name_any().as_str().into() };
            if withdraw(args, &client, &kind, &profile, object).await? {
                let verb = if args.dry_run { "would withdraw from" } else { "withdrew from" };
                // Writing into a String cannot fail.
                let _ = writeln!(lines, "{verb} ClusterProfile {profile}");
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(lines),
        }
    }
}

async fn withdraw(
    args: &CleanupArgs,
    client: &Client,
    kind: &ApiResource,
    profile: &ProfileKey,
    object: &DynamicObject,
) -> Result<bool, Failure> {
    let observed = ObservedProfile::read(&object.metadata, &object.data);
    if !access::is_ours(&observed, &args.cluster_manager_name) {
        return Ok(false);
    }
    let access_providers = args.access_provider.iter().map(|name| (name.clone(), None)).collect();
    let status = DesiredStatus { access_providers, ..DesiredStatus::default() };
    let desired = Desired { status, ..Desired::default() };
    let plan = plan(profile, &args.cluster_manager_name, Some(&observed), [desired]);
    let ProfileAction::PatchStatus(version, patch) = plan.action else { return Ok(false) };
    let params = PatchParams { dry_run: args.dry_run, ..PatchParams::default() };
    let requests = Request::new(DynamicObject::url_path(kind, Some(profile.namespace.as_str())));
    let request =
        patch_status(&requests, profile.cluster.as_str(), &params, status_request(&version, patch));
    let patching =
        async { client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await };
    let failed = |error| {
        let why = summary(&error);
        format!("cannot patch the status of ClusterProfile {profile}: {why}; run the command again")
    };
    patching.await.map_err(failed)?;
    Ok(true)
}
