//! `Deployment` and `Pod`, with the few fields that the commands read. The code that decodes k8s-openapi's types, with
//! every kind of volume, is half a megabyte of each program.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::TypeMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub image: Option<String>,
    /// Its command, instead of that of the image.
    pub command: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
}

/// The observed state of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// The number of Pods that are available; absent if none is.
    pub available_replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, Resource, Deserialize, Serialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
#[serde(default)]
pub struct Pod {
    /// The kind and API version; absent in lists.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeMeta>,
    pub metadata: ObjectMeta,
    /// The spec as JSON, as the API defines it.
    pub spec: Value,
    #[serde(skip_serializing)]
    pub status: PodStatus,
}

/// The observed state of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Why it is in this phase, in one word.
    pub reason: Option<String>,
    /// Why it is in this phase.
    pub message: Option<String>,
    pub conditions: Option<Vec<PodCondition>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    /// Its type, such as `PodScheduled`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: Option<String>,
    /// Why.
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    pub name: String,
    pub state: ContainerState,
}

/// The state of a container: one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It has not started.
    pub waiting: Option<StateReason>,
    pub running: Option<Value>,
    /// It has ended.
    pub terminated: Option<StateReason>,
}

/// Why a container is in its state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StateReason {
    /// In one word.
    pub reason: Option<String>,
    /// The text; of a container that has ended, its termination message.
    pub message: Option<String>,
}
