//! Requests to the hub. A refusal is a result, and not an error: the commands work with the permissions of the user.

use std::fmt::Debug;

use hub_api::cluster_profile::ProfileVersion;
use hub_core::known::Known;
use kube::api::ListParams;
use kube::core::{ObjectList, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::CommandError;
use crate::hub::HubError;

/// The maximum number of objects in one response to a list.
const PAGE: u32 = 500;

/// Lists objects, page by page; `None` if the user does not have permission to list them. A kind that the hub does not
/// serve has none.
pub(crate) async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Option<Vec<K>>, HubError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    pages(api, params, async |page| api.list(&page).await).await
}

/// Like [`list`], for the metadata of the objects only.
pub(crate) async fn list_metadata<K>(
    api: &Api<K>,
    params: &ListParams,
) -> Result<Option<Vec<PartialObjectMeta<K>>>, HubError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    pages(api, params, async |page| api.list_metadata(&page).await).await
}

async fn pages<K: Resource, T: Clone>(
    api: &Api<K>,
    params: &ListParams,
    get: impl AsyncFn(ListParams) -> kube::Result<ObjectList<T>>,
) -> Result<Option<Vec<T>>, HubError> {
    let mut page = params.clone().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        match get(page.clone()).await {
            Ok(list) => {
                objects.extend(list.items);
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => return Ok(Some(objects)),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Some(Vec::new())),
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
            Err(source) => {
                let resource = plural(api.resource_url());
                return Err(HubError { verb: "list", resource, source });
            }
        }
    }
}

/// The version of ClusterProfile that the hub serves, if any.
///
/// # Errors
///
/// The hub cannot be reached.
pub async fn profile_version(client: &Client) -> Result<Option<ProfileVersion>, HubError> {
    let group = "multicluster.x-k8s.io";
    let failed = |source| HubError { verb: "discover", resource: group.to_owned(), source };
    let groups = client.list_api_groups().await.map_err(failed)?.groups;
    let versions = groups.iter().filter(|it| it.name == group).flat_map(|it| &it.versions);
    Ok(ProfileVersion::latest(versions.map(|version| version.version.as_str())))
}

/// The version of ClusterProfile that the hub serves, for commands that need one.
pub(crate) async fn served_version(client: &Client) -> Result<ProfileVersion, CommandError> {
    let missing = "the hub does not serve ClusterProfiles: `hub-addons crds` prints the CustomResourceDefinition";
    profile_version(client).await?.ok_or_else(|| CommandError::Refused(missing.to_owned()))
}

/// Gets an object. It is absent if the hub does not serve its kind, and unknown if the user does not have permission to
/// get it, or if it cannot be decoded.
pub(crate) async fn get<K>(api: &Api<K>, name: &str) -> Result<Known<K>, HubError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    match api.get(name).await {
        Ok(object) => Ok(Known::Present(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Known::Absent),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Known::Unknown),
        // An object that cannot be decoded cannot be judged.
        Err(kube::Error::SerdeError(_)) => Ok(Known::Unknown),
        Err(source) => {
            let resource = plural(api.resource_url());
            Err(HubError { verb: "get", resource: format!("{resource} {name}"), source })
        }
    }
}

fn plural(url: &str) -> String {
    url.rsplit('/').next().unwrap_or_default().to_owned()
}
