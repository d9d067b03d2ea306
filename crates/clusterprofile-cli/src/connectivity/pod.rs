//! `test --in-cluster`: runs the test in a Pod, where the published endpoint is usually a Service, with the
//! ServiceAccount of the application.
//!
//! The Pod gets the published cluster stanza as an argument, so it needs no other permission than the application has.
//! It reports the hops as its termination message, so this command needs permission to create, get and delete Pods, and
//! not to read logs. The Pod is deleted however the test ends; if this process is killed, the Pod ends by its deadline.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use hub_api::cluster_profile::Cluster;
use hub_api::names::{AccountKey, Namespace};
use hub_api::workloads::{ContainerStatus, Deployment, Pod, PodStatus};
use hub_core::explain::observed::{Rbac, Readers};
use hub_core::own_identity::DEFAULT_AUDIENCE;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, TypeMeta};
use kube::{Api, ResourceExt as _};
use object_names::visible;
use serde_json::{Value, json};

use super::{Hop, Hops};
use crate::args::TestArgs;
use crate::hub::{Hub, HubError};
use crate::release::{RELEASE, release_namespaces};
use crate::requests::{Listing, list};

/// The file whose content becomes the termination message.
pub(super) const MESSAGE_FILE: &str = "/dev/termination-log";
/// The maximum size of a termination message, in bytes.
pub(super) const MESSAGE_MAX: usize = 4096;
const CONTAINER: &str = "test";
/// The validity of the token that the Pod gets for the user server: the shortest that the API server grants.
const TOKEN_VALIDITY: Duration = Duration::from_mins(10);
/// The interval between two requests for the state of the Pod.
const INTERVAL: Duration = Duration::from_millis(500);
/// The reasons of a waiting container that a retry does not resolve soon.
const STUCK: [&str; 8] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Why a test in a Pod has no result.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The hub refuses a request.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Which image to run is unknown.
    #[error("{why}: state the image with --image")]
    NoImage {
        /// Why it is unknown.
        why: String,
    },
    /// Which ServiceAccount to use is unknown.
    #[error("{why}: state the ServiceAccount of the application with --service-account")]
    NoServiceAccount {
        /// Why it is unknown.
        why: String,
    },
    /// The kubelet cannot project a token to this path.
    #[error(
        "the Pod cannot have its token at {}: state an absolute path in a directory with --own-token, such as \
         /var/run/secrets/hub-addons/token", .path.display()
    )]
    OwnTokenPath {
        /// `--own-token`.
        path: PathBuf,
    },
    /// The Pod cannot start.
    #[error("the Pod {pod} does not start: {why}")]
    Stuck {
        /// Namespace and name.
        pod: String,
        /// The reason and message in its status.
        why: String,
    },
    /// The Pod takes too long.
    #[error("the Pod {pod} has not ended within {} s: {state}", .limit.as_secs())]
    Timeout {
        /// Namespace and name.
        pod: String,
        /// `--timeout`.
        limit: Duration,
        /// Its last state.
        state: String,
    },
    /// The Pod ended without a result.
    #[error("the Pod {pod} ended without a result: {message}")]
    NoResult {
        /// Namespace and name.
        pod: String,
        /// The end of its output, or its reason.
        message: String,
    },
    /// The hub does not respond to the deletion of the Pod.
    #[error("the hub does not respond, and the Pod {pod} may not be deleted")]
    Left {
        /// Namespace and name.
        pod: String,
    },
    /// The user ended the command.
    #[error("interrupted; the Pod {pod} is deleted")]
    Interrupted {
        /// Namespace and name.
        pod: String,
    },
    /// Signals cannot be received, so an interruption would leave the Pod behind.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

/// Runs the test in a Pod and returns its hops.
pub(super) async fn run(hub: &Hub, args: &TestArgs, stanza: &Cluster) -> Result<Vec<Hop>, PodError> {
    if let Some(path) = args.reach.own_token.as_deref().filter(|path| !is_projectable(path)) {
        return Err(PodError::OwnTokenPath { path: path.to_owned() });
    }
    let image = match &args.pod.image {
        Some(image) => image.clone(),
        None => image(hub).await?,
    };
    let service_account = match &args.pod.service_account {
        Some(name) => name.clone(),
        None => service_account(hub, args).await?,
    };
    let at = &args.target.namespace;
    let (image_shown, account_shown) = (visible(&image), visible(&service_account));
    // What is printed on stdout can be JSON.
    let _ = writeln!(io::stderr(), "running {image_shown} as the ServiceAccount {at}/{account_shown}");
    // Before the Pod exists, so that no signal leaves it behind.
    let interruption = interruption().map_err(PodError::Signals)?;
    let namespace = &args.target.namespace;
    let pods: Api<Pod> = Api::namespaced(hub.client.clone(), namespace);
    // Known before the Pod exists: a Pod whose creation gets no response is deleted as well.
    let name = format!("clusterprofile-test-{:08x}", fastrand::u32(..));
    let shown = format!("{namespace}/{name}");
    let planned = planned(args, stanza, &name, &image, &service_account);
    let result = tokio::select! {
        result = create_and_wait(&pods, &planned, &shown, args.pod.timeout.0) => result,
        () = interruption => Err(PodError::Interrupted { pod: shown.clone() }),
    };
    if let Err(PodError::Hub(HubError { verb: "create", source: kube::Error::Api(status), .. })) = &result
        && status.code < 500
    {
        return result.map(|_| Vec::new());
    }
    delete(&pods, &name, &shown).await?;
    let message = result?;
    serde_json::from_str::<Hops>(&message).map(|result| result.hops).map_err(|_| {
        let last = message.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        PodError::NoResult { pod: shown, message: last.to_owned() }
    })
}

/// Creates the Pod, and waits until it ends; returns its termination message.
async fn create_and_wait(
    pods: &Api<Pod>,
    planned: &Pod,
    shown: &str,
    limit: Duration,
) -> Result<String, PodError> {
    let failed = |source| HubError { verb: "create", resource: format!("the Pod {shown}"), source };
    pods.create(&PostParams::default(), planned).await.map_err(failed)?;
    ended(pods, &planned.name_any(), shown, limit).await
}

async fn delete(pods: &Api<Pod>, name: &str, shown: &str) -> Result<(), PodError> {
    let params = DeleteParams::default().grace_period(1);
    match tokio::time::timeout(super::PATIENCE, pods.delete(name, &params)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(source)) => {
            Err(HubError { verb: "delete", resource: format!("the Pod {shown}"), source }.into())
        }
        Err(_) => Err(PodError::Left { pod: shown.to_owned() }),
    }
}

/// The image of the hub's only release: the Pod has the permissions of the application, so a Deployment of a tenant
/// must not decide what it runs.
async fn image(hub: &Hub) -> Result<String, PodError> {
    let unknown = |why: String| PodError::NoImage { why };
    let params = ListParams::default().labels(RELEASE);
    let Some(namespaces) = release_namespaces(hub).await? else {
        return Err(unknown(
            "you do not have permission to list ClusterRoleBindings, which show the release".into(),
        ));
    };
    let namespace =
        only(namespaces, "namespace of a release, by ClusterRoleBindings with its label").map_err(unknown)?;
    let deployments: Api<Deployment> = Api::namespaced(hub.client.clone(), &namespace);
    let Listing::All(found) = list(&deployments, &params).await? else {
        return Err(unknown(format!("you do not have permission to list Deployments in {namespace}")));
    };
    let images = found
        .into_iter()
        .filter_map(|deployment| deployment.spec.template.spec.containers.into_iter().next()?.image);
    only(images.collect(), &format!("image of the Deployments of the release in {namespace}"))
        .map_err(unknown)
}

/// The only value, or why there is none.
fn only(values: BTreeSet<String>, what: &str) -> Result<String, String> {
    match values.len() {
        0 => Err(format!("found no {what} ({RELEASE})")),
        1 => Ok(values.into_iter().collect()),
        _ => {
            Err(format!("found more than one {what}: {}", values.into_iter().collect::<Vec<_>>().join(", ")))
        }
    }
}

/// The ServiceAccount of the namespace that may read the copy, if it is the only one.
async fn service_account(hub: &Hub, args: &TestArgs) -> Result<String, PodError> {
    if args.reach.own_token.is_some() {
        let why = "no object shows which ServiceAccount an own identity is".to_owned();
        return Err(PodError::NoServiceAccount { why });
    }
    let namespace = Namespace::from(args.target.namespace.as_str());
    let cluster = args.target.cluster.as_deref().unwrap_or_default();
    let account = AccountKey { cluster: cluster.into(), account: args.reach.account().into() };
    let copy = account.copy_name();
    let params = ListParams::default();
    let (roles, role_bindings) = (
        Api::<Role>::namespaced(hub.client.clone(), namespace.as_str()),
        Api::<RoleBinding>::namespaced(hub.client.clone(), namespace.as_str()),
    );
    let (cluster_roles, cluster_role_bindings) =
        (Api::<ClusterRole>::all(hub.client.clone()), Api::<ClusterRoleBinding>::all(hub.client.clone()));
    let (roles, role_bindings, cluster_roles, cluster_role_bindings) = futures::try_join!(
        list(&roles, &params),
        list(&role_bindings, &params),
        list(&cluster_roles, &params),
        list(&cluster_role_bindings, &params),
    )?;
    let (roles, role_bindings) = (roles.objects(), role_bindings.objects());
    let (cluster_roles, cluster_role_bindings) = (cluster_roles.objects(), cluster_role_bindings.objects());
    let rbac = Rbac {
        roles: roles.as_deref(),
        role_bindings: role_bindings.as_deref(),
        cluster_roles: cluster_roles.as_deref(),
        cluster_role_bindings: cluster_role_bindings.as_deref(),
    };
    let readers = Readers::of(&namespace, &rbac);
    let names = readers.service_accounts(&copy);
    let why = match (&*names, readers.is_complete()) {
        ([name], true) => return Ok((*name).to_owned()),
        ([], true) => format!("no ServiceAccount of {namespace} may read the Secret {copy}"),
        (_, false) => format!("you do not have permission to read who may read the Secret {copy}"),
        (several, true) => format!("several may read the Secret {copy}: {}", several.join(", ")),
    };
    Err(PodError::NoServiceAccount { why })
}

fn planned(args: &TestArgs, stanza: &Cluster, name: &str, image: &str, service_account: &str) -> Pod {
    let plugin = if args.reach.plugin == TestArgs::PLUGIN { "/cp-creds" } else { &args.reach.plugin };
    let credential = match &args.reach.own_token {
        Some(path) => format!("--own-token={}", path.display()),
        None => format!("--account={}", args.reach.account()),
    };
    let command = [
        "/hub-addons".to_owned(),
        "test".to_owned(),
        args.target.to_string(),
        credential,
        format!("--plugin={plugin}"),
        format!("--in-pod={}", serde_json::to_string(stanza).unwrap_or_default()),
    ];
    // Escaped, since `$(NAME)` in a command refers to a variable.
    let command = command.map(|word| word.replace("$(", "$$("));
    let labels = [("app.kubernetes.io/name".to_owned(), "clusterprofile-test".to_owned())];
    let own = args.reach.own_token.as_deref().map(projected);
    let (volumes, mounts) = own.unzip();
    Pod {
        types: Some(TypeMeta::resource::<Pod>()),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        spec: json!({
            "serviceAccountName": service_account,
            "automountServiceAccountToken": true,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": args.pod.timeout.0.as_secs().max(1),
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "volumes": volumes,
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "command": command,
                "volumeMounts": mounts,
                "terminationMessagePath": MESSAGE_FILE,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        }),
        status: PodStatus::default(),
    }
}

/// Whether a volume can be mounted at the file's directory: only at an absolute path other than the root, without `..`.
fn is_projectable(path: &Path) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(is_plain) && path.components().count() > 2
}

/// The volume with a token for the user server in this file, and its mount.
fn projected(path: &Path) -> (Value, Value) {
    let shown = |part: Option<&Path>| part.map(|part| part.display().to_string()).unwrap_or_default();
    let file = path.file_name().map(Path::new);
    let token = json!({
        "audience": DEFAULT_AUDIENCE, "expirationSeconds": TOKEN_VALIDITY.as_secs(), "path": shown(file),
    });
    let sources = json!([{ "serviceAccountToken": token }]);
    let volumes = json!([{ "name": "own-token", "projected": { "sources": sources } }]);
    let mount = json!({ "name": "own-token", "mountPath": shown(path.parent()), "readOnly": true });
    (volumes, json!([mount]))
}

/// Waits until the Pod ends; returns its termination message.
async fn ended(pods: &Api<Pod>, name: &str, shown: &str, limit: Duration) -> Result<String, PodError> {
    let begun = Instant::now();
    loop {
        let failed = |source| HubError { verb: "get", resource: format!("the Pod {shown}"), source };
        let left = limit.saturating_sub(begun.elapsed()).max(INTERVAL);
        let Ok(pod) = tokio::time::timeout(left, pods.get(name)).await else {
            let state = "the hub does not respond".to_owned();
            return Err(PodError::Timeout { pod: shown.to_owned(), limit, state });
        };
        match progress(&pod.map_err(failed)?.status) {
            Progress::Ended(message) => return Ok(message),
            Progress::Stuck(why) => return Err(PodError::Stuck { pod: shown.to_owned(), why }),
            Progress::Waiting(state) if begun.elapsed() >= limit => {
                return Err(PodError::Timeout { pod: shown.to_owned(), limit, state });
            }
            Progress::Waiting(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// The state of the Pod.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// It has ended, with this message.
    Ended(String),
    /// It does not start, for this reason.
    Stuck(String),
    /// It has not ended, and is in this state.
    Waiting(String),
}

fn progress(status: &PodStatus) -> Progress {
    let with = |reason: Option<&str>, message: Option<&str>| match (reason, message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (reason, message) => reason.or(message).unwrap_or("unknown").to_owned(),
    };
    let container: Option<&ContainerStatus> =
        status.container_statuses.iter().flatten().find(|it| it.name == CONTAINER);
    let state = container.map(|container| &container.state);
    if let Some(end) = state.and_then(|state| state.terminated.as_ref()) {
        return Progress::Ended(end.message.clone().or_else(|| end.reason.clone()).unwrap_or_default());
    }
    if let Some("Failed" | "Succeeded") = status.phase.as_deref() {
        return Progress::Stuck(with(status.reason.as_deref(), status.message.as_deref()));
    }
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let text = with(waiting.reason.as_deref(), waiting.message.as_deref());
        let is_stuck = waiting.reason.as_deref().is_some_and(|reason| STUCK.contains(&reason));
        return if is_stuck { Progress::Stuck(text) } else { Progress::Waiting(text) };
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return Progress::Waiting("it runs".to_owned());
    }
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    match unscheduled {
        Some(condition) => Progress::Waiting(with(condition.reason.as_deref(), condition.message.as_deref())),
        None => Progress::Waiting(status.phase.clone().unwrap_or_else(|| "it has no phase".to_owned())),
    }
}

/// Completes when the user interrupts this process. Signals are handled from the call on.
#[cfg(unix)]
fn interruption() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Completes when the user interrupts this process. Signals are handled from the call on.
#[cfg(windows)]
fn interruption() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        let _ = interrupt.recv().await;
    })
}

/// The hops as a termination message, with shorter details if it would be too long.
pub(super) fn message(hops: &[Hop]) -> Value {
    let shortened = |limit: usize| {
        let hops = hops.iter().map(|hop| {
            let detail = hop.detail.chars().take(limit).collect();
            Hop { detail, ..hop.clone() }
        });
        json!({ "hops": hops.collect::<Vec<_>>() })
    };
    let limits = [usize::MAX, 600, 200];
    let fits = |message: &Value| message.to_string().len() <= MESSAGE_MAX;
    limits.map(shortened).into_iter().find(fits).unwrap_or_else(|| shortened(60))
}

#[cfg(test)]
mod tests {
    use hub_core::explain::Status;

    use super::*;

    fn state(status: Value) -> Progress {
        progress(&serde_json::from_value(status).unwrap())
    }

    fn container(state: &Value) -> Value {
        json!({ "phase": "Pending", "containerStatuses": [{
            "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }] })
    }

    #[test]
    fn a_pod_that_ended_has_a_message() {
        let end = |end: Value| state(container(&json!({ "terminated": end })));
        assert_eq!(end(json!({ "exitCode": 0, "message": "text" })), Progress::Ended("text".to_owned()));
        assert_eq!(end(json!({ "exitCode": 1, "reason": "Error" })), Progress::Ended("Error".to_owned()));
    }

    #[test]
    fn a_pod_that_cannot_start_is_not_waited_for() {
        let waiting =
            |reason: &str| state(container(&json!({ "waiting": { "reason": reason, "message": "why" } })));
        for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
            assert_eq!(waiting(reason), Progress::Stuck(format!("{reason}: why")));
        }
        assert_eq!(waiting("ContainerCreating"), Progress::Waiting("ContainerCreating: why".to_owned()));
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "the node is full" });
        assert_eq!(state(evicted), Progress::Stuck("Evicted: the node is full".to_owned()));
    }

    #[test]
    fn a_pod_that_is_not_scheduled_is_waited_for_and_says_why() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes",
        });
        let pending = json!({ "phase": "Pending", "conditions": [condition] });
        assert_eq!(state(pending), Progress::Waiting("Unschedulable: 0/3 nodes".to_owned()));
        assert_eq!(state(json!({ "phase": "Pending" })), Progress::Waiting("Pending".to_owned()));
    }

    #[test]
    fn a_token_is_projected_only_to_a_file_in_a_directory() {
        for (path, expected) in [
            ("/var/run/secrets/hub-addons/token", true),
            ("/tokens/token", true),
            ("token", false),
            ("./tokens/token", false),
            ("/token", false),
            ("/", false),
            ("", false),
            ("/tokens/../token", false),
        ] {
            assert_eq!(is_projectable(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_message_fits_and_keeps_every_hop() {
        for length in [10, 1000, 100_000] {
            let hop = |name: &str| Hop {
                name: name.to_owned(),
                mark: Status::Problem,
                milliseconds: 1,
                detail: "ü".repeat(length),
            };
            let hops: Vec<_> = (0..8).map(|_| hop("name resolution")).collect();
            let text = message(&hops).to_string();
            assert!(text.len() <= MESSAGE_MAX, "{}", text.len());
            let read: Hops = serde_json::from_str(&text).unwrap();
            assert_eq!(read.hops.len(), 8);
            assert!(length > 10 || read.hops == hops);
        }
    }
}
