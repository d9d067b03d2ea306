//! `hub-addons crds`: prints CRDs, or creates that of ClusterProfile if it is missing.
//!
//! The chart's init container creates it if the chart was rendered without access to a hub. An existing CRD is never
//! changed: on an Open Cluster Management hub it belongs to the registration operator.

use hub_api::crds;
use hub_runtime::write::error::summary;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use crate::cli::CrdsArgs;
use crate::{Failure, connect};

/// The field manager of the CRD.
const FIELD_MANAGER: &str = "hub-addons-crds";

/// The output: the CRDs as YAML, or what has been done.
pub async fn crds(args: &CrdsArgs) -> Result<String, Failure> {
    if args.create_missing {
        let profile = serde_saphyr::from_str(crds::cluster_profile(args.cluster_profile_lists))?;
        return create_missing(connect::connect(args.kubeconfig.as_deref()).await?, &profile).await;
    }
    Ok(crds::all(args.cluster_profile_lists))
}

async fn create_missing(client: Client, crd: &DynamicObject) -> Result<String, Failure> {
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    let (api, name) = (Api::<DynamicObject>::all_with(client, &kind), crd.name_any());
    let failed = |verb: &str, error: &kube::Error| {
        format!("cannot {verb} the CustomResourceDefinition {name}: {}", summary(error))
    };
    let exists = async || api.get_metadata_opt(&name).await.map(|found| found.is_some());
    if exists().await.map_err(|error| failed("get", &error))? {
        return Ok(format!("customresourcedefinition {name} exists\n"));
    }
    // RBAC can limit a server-side apply that creates to a name, but not a POST
    // (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>).
    match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(crd)).await {
        Ok(_) => Ok(format!("customresourcedefinition {name} created\n")),
        Err(source) => match exists().await {
            // Another Pod, or the operator, was faster.
            Ok(true) => Ok(format!("customresourcedefinition {name} exists\n")),
            _ => Err(failed("create", &source).into()),
        },
    }
}
