//! The Pods of Deployments: waits until they run, and replaces them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};

use super::PATIENCE;
use crate::{HubError, Pods, end_of, try_eventually};

/// Replaces the Pods of a Deployment, and waits until the new one runs.
pub(super) async fn restart(
    client: &Client,
    namespace: &str,
    deployment: &str,
    runner: &Pods,
) -> Result<(), HubError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&labels(client, namespace, deployment).await?);
    let deleted = pods.delete_collection(&DeleteParams::default(), &params).await;
    deleted.map_err(HubError::api(format!("delete the Pods of {deployment}")))?;
    running(client, namespace, deployment, runner).await.map(drop)
}

/// The labels of a Deployment's Pods, once it exists.
async fn labels(client: &Client, namespace: &str, deployment: &str) -> Result<String, HubError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found =
        try_eventually(&format!("there is a Deployment {deployment}"), PATIENCE, async || {
            deployments.get_opt(deployment).await
        })
        .await?;
    let labels = found.spec.and_then(|spec| spec.selector.match_labels).unwrap_or_default();
    Ok(labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// Waits until a Deployment is rolled out and has one Pod, which runs. Returns the Pod's name.
pub(super) async fn running(
    client: &Client,
    namespace: &str,
    deployment: &str,
    runner: &Pods,
) -> Result<String, HubError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&labels(client, namespace, deployment).await?);
    let name = try_eventually(&format!("{deployment} runs"), PATIENCE, async || {
        let shown = deployments.get(deployment).await.map_err(|error| error.to_string())?;
        let status = shown.status.unwrap_or_default();
        if status.observed_generation != shown.metadata.generation
            || status.updated_replicas != Some(1)
        {
            return Err(format!("{status:?}"));
        }
        let found = pods.list(&params).await.map_err(|error| error.to_string())?.items;
        let [pod] = found.as_slice() else { return Err(format!("{} Pods", found.len())) };
        let containers =
            pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let containers = containers.unwrap_or_default();
        let runs =
            |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
        if pod.metadata.deletion_timestamp.is_none()
            && !containers.is_empty()
            && containers.iter().all(runs)
        {
            return Ok(Some(pod.name_any()));
        }
        let logs = containers
            .iter()
            .map(|it| (&it.name, runner.logs(namespace, &pod.name_any(), &it.name)));
        let ends: Vec<_> = logs.map(|(name, log)| format!("{name}: {}", end_of(&log, 8))).collect();
        Err(format!("{containers:?}\n{}", ends.join("\n")))
    })
    .await?;
    Ok(name)
}
