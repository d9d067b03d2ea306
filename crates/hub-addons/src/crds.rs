//! `hub-addons crds`: prints CRDs, or creates that of ClusterProfile if it is missing.
//!
//! The chart's init container creates it if the chart was rendered without access to a hub. An existing CRD is never
//! changed: on an Open Cluster Management hub it belongs to the registration operator.

use hub_api::crds;
use hub_runtime::write::error::summary;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use crate::cli::CrdsArgs;
use crate::connect::{self, ConnectError};

/// The field manager of the CRD.
const FIELD_MANAGER: &str = "hub-addons-crds";

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// The hub cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The API server refuses a request, or does not respond.
    #[error("cannot {verb} the CustomResourceDefinition {name}: {}", summary(.source))]
    Api { verb: &'static str, name: String, source: kube::Error },
    #[error("cannot serialize a CustomResourceDefinition: {0}")]
    Serialize(String),
}

/// The output: the CRDs as YAML, or what has been done.
pub async fn crds(args: &CrdsArgs) -> Result<String, CrdsError> {
    let profile = crds::cluster_profile(args.cluster_profile_lists);
    if args.create_missing {
        let client =
            connect::client(connect::config(args.kubeconfig.as_deref()).await?, args.kubeconfig.as_deref())
                .await?;
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
    // RBAC can limit a server-side apply that creates to a name, but not a POST
    // (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>).
    match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(crd)).await {
        Ok(_) => Ok(format!("customresourcedefinition {name} created\n")),
        Err(source) => match exists().await {
            // Another Pod, or the operator, was faster.
            Ok(true) => Ok(format!("customresourcedefinition {name} exists\n")),
            _ => Err(failed("create")(source)),
        },
    }
}
