//! `Deployment` and `Pod`, with the few fields that the commands read. The code that decodes k8s-openapi's types, with
//! every kind of volume, is half a megabyte of each program.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::TypeMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A Deployment.
#[derive(Clone, Debug, Default, Resource, Deserialize)]
#[resource(inherit = k8s_openapi::api::apps::v1::Deployment)]
#[serde(default)]
pub struct Deployment {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: DeploymentSpec,
    /// What is there.
    pub status: DeploymentStatus,
}

/// What is wanted of a Deployment.
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
    /// What runs in them.
    pub spec: PodSpec,
}

/// What runs in a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// The containers.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its image.
    pub image: Option<String>,
    /// Its command, instead of that of the image.
    pub command: Option<Vec<String>>,
    /// The arguments of its command.
    pub args: Option<Vec<String>>,
}

/// What is there of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// The number of Pods that are available; absent if none is.
    pub available_replicas: Option<i32>,
}

/// A Pod.
#[derive(Clone, Debug, Default, Resource, Deserialize, Serialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
#[serde(default)]
pub struct Pod {
    /// The kind and API version; absent in lists.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeMeta>,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// What is wanted, as the API has it.
    pub spec: Value,
    /// What is there.
    #[serde(skip_serializing)]
    pub status: PodStatus,
}

/// What is there of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Why it is in this phase, in one word.
    pub reason: Option<String>,
    /// Why it is in this phase.
    pub message: Option<String>,
    /// Its conditions.
    pub conditions: Option<Vec<PodCondition>>,
    /// The states of its containers.
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

/// A condition of a Pod.
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

/// The status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: ContainerState,
}

/// The state of a container: one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It has not started.
    pub waiting: Option<StateReason>,
    /// It runs.
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
