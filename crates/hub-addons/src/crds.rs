//! `hub-addons crds`: prints the definitions of kinds, or creates that of ClusterProfile where it is missing.
//!
//! The chart's init container creates it where the chart was rendered without a hub to ask. It never changes one that
//! exists: on an Open Cluster Management hub that is the registration operator's.

use hub_api::crds;
use hub_runtime::error::summary;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use crate::cli::CrdsArgs;
use crate::connect::{self, ConnectError};

/// Who creates it, in the record that the API server keeps.
const FIELD_MANAGER: &str = "hub-addons-crds";

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// There is no hub to ask.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hub refuses, or does not respond.
    #[error("cannot {verb} the CustomResourceDefinition {name}: {}", summary(.source))]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        name: String,
        /// What went wrong.
        source: kube::Error,
    },
    /// A definition does not serialize.
    #[error("cannot serialize a CustomResourceDefinition: {0}")]
    Serialize(String),
}

/// What there is to print: the definitions as YAML, or what has been done.
pub async fn crds(args: &CrdsArgs) -> Result<String, CrdsError> {
    let profile = crds::cluster_profile(args.cluster_profile_lists.into());
    if args.create_missing {
        let client = connect::client(connect::config(args.kubeconfig.as_deref()).await?)?;
        return create_missing(client, &profile).await;
    }
    crds::all().into_iter().try_fold(String::new(), |text, crd| {
        let crd = if crd.metadata.name == profile.metadata.name { profile.clone() } else { crd };
        let yaml = serde_saphyr::to_string(&crd).map_err(|error| CrdsError::Serialize(error.to_string()))?;
        Ok(format!("{text}---\n{yaml}"))
    })
}

async fn create_missing(client: Client, crd: &CustomResourceDefinition) -> Result<String, CrdsError> {
    let (api, name) = (Api::<CustomResourceDefinition>::all(client), crd.name_any());
    let failed = |verb| {
        let name = name.clone();
        move |source| CrdsError::Api { verb, name, source }
    };
    let exists = async || api.get_metadata_opt(&name).await.map(|found| found.is_some());
    if exists().await.map_err(failed("get"))? {
        return Ok(format!("customresourcedefinition {name} exists\n"));
    }
    // RBAC limits a create by server-side apply to a name, and a POST not at all.
    match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(crd)).await {
        Ok(_) => Ok(format!("customresourcedefinition {name} created\n")),
        Err(source) => match exists().await {
            // Another Pod, or the operator, was faster.
            Ok(true) => Ok(format!("customresourcedefinition {name} exists\n")),
            _ => Err(failed("create")(source)),
        },
    }
}
