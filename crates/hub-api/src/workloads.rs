//! `Deployment`, with the few fields that the commands read. The code that decodes k8s-openapi's type, with every
//! kind of volume, is half a megabyte of each program.

use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

#[derive(Clone, Debug, Default, Resource, Deserialize)]
#[resource(inherit = k8s_openapi::api::apps::v1::Deployment)]
#[serde(default)]
pub struct Deployment {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
    pub status: DeploymentStatus,
}

/// The desired state of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeploymentSpec {
    /// The number of Pods; the API server defaults it to 1.
    pub replicas: Option<i32>,
    /// Its Pods.
    pub template: PodTemplate,
}

/// The Pods of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    pub spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its command, instead of that of the image.
    pub command: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<EnvVar>>,
}

/// The observed state of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// The number of Pods that are available; absent if none is.
    pub available_replicas: Option<i32>,
}
