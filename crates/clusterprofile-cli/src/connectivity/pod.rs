//! `test --in-cluster`: runs the test in a Pod, where the published endpoint is usually a Service, with the
//! ServiceAccount of the application.
//!
//! The Pod gets the published cluster stanza as an argument, so it needs no other permission than the application has.
//! It reports the hops as its termination message, so this command needs permission to create, get and delete Pods, and
//! not to read logs. The Pod is deleted however the test ends; if this process is killed, the Pod ends by its deadline.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use hub_api::cluster_profile::Cluster;
use hub_api::names::{AccountKey, Namespace};
use hub_api::workloads::{ContainerStatus, Deployment, Pod, PodStatus};
use hub_core::own_identity::DEFAULT_AUDIENCE;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, TypeMeta};
use kube::{Api, ResourceExt as _};
use object_names::visible;
use serde_json::{Value, json};

use super::{Hop, Hops};
use crate::CommandError;
use crate::args::TestArgs;
use crate::hub::{Hub, HubError};
use crate::read::readers;
use crate::release::{RELEASE, release_namespaces};
use crate::requests::list;

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

/// Runs the test in a Pod and returns its hops.
pub(super) async fn run(
    hub: &Hub,
    args: &TestArgs,
    stanza: &Cluster,
) -> Result<Vec<Hop>, CommandError> {
    if let Some(path) = args.reach.own_token.as_deref().filter(|path| !is_projectable(path)) {
        return Err(CommandError::Refused(format!(
            "the Pod cannot have its token at {}: state an absolute path in a directory with --own-token, such as \
             /var/run/secrets/hub-addons/token",
            path.display()
        )));
    }
    let image = match &args.pod.image {
        Some(image) => image.clone(),
        None => image(hub).await?,
    };
    let service_account = match &args.pod.service_account {
        Some(name) => name.clone(),
        None => service_account(hub, args).await?,
    };
    let namespace = &args.target.namespace;
    let (image_shown, account_shown) = (visible(&image), visible(&service_account));
    // What is printed on stdout can be JSON.
    let _ = writeln!(
        io::stderr(),
        "running {image_shown} as the ServiceAccount {namespace}/{account_shown}"
    );
    // Before the Pod exists, so that no signal leaves it behind.
    let interruption = interruption()
        .map_err(|error| CommandError::Refused(format!("cannot handle signals: {error}")))?;
    let pods = hub.api::<Pod>(&(), Some(namespace));
    // Known before the Pod exists: a Pod whose creation gets no response is deleted as well.
    let name = format!("clusterprofile-test-{:08x}", fastrand::u32(..));
    let shown = format!("{namespace}/{name}");
    let planned = planned(args, stanza, &name, &image, &service_account);
    let result = tokio::select! {
        result = create_and_wait(&pods, &planned, &shown, args.pod.timeout) => result,
        () = interruption => Err(CommandError::Refused(format!("interrupted; the Pod {shown} is deleted"))),
    };
    if let Err(CommandError::Hub(HubError {
        verb: "create", source: kube::Error::Api(status), ..
    })) = &result
        && status.code < 500
    {
        return result.map(|_| Vec::new());
    }
    delete(&pods, &name, &shown).await?;
    let message = result?;
    serde_json::from_str::<Hops>(&message).map(|result| result.hops).map_err(|_| {
        let last = message.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        CommandError::Refused(format!("the Pod {shown} ended without a result: {last}"))
    })
}

/// Creates the Pod, and waits until it ends; returns its termination message.
async fn create_and_wait(
    pods: &Api<Pod>,
    planned: &Pod,
    shown: &str,
    limit: Duration,
) -> Result<String, CommandError> {
    let timeout = |state: &str| {
        let seconds = limit.as_secs();
        CommandError::Refused(format!("the Pod {shown} has not ended within {seconds} s: {state}"))
    };
    let created = pods.create(&PostParams::default(), planned).await;
    created.map_err(|source| failed("create", shown, source))?;
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed()).max(INTERVAL);
        let Ok(pod) = tokio::time::timeout(left, pods.get(&planned.name_any())).await else {
            return Err(timeout("the hub does not respond"));
        };
        match progress(&pod.map_err(|source| failed("get", shown, source))?.status) {
            Progress::Ended(message) => return Ok(message),
            Progress::Stuck(why) => {
                return Err(CommandError::Refused(format!(
                    "the Pod {shown} does not start: {why}"
                )));
            }
            Progress::Waiting(state) if begun.elapsed() >= limit => return Err(timeout(&state)),
            Progress::Waiting(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

async fn delete(pods: &Api<Pod>, name: &str, shown: &str) -> Result<(), CommandError> {
    let params = DeleteParams::default().grace_period(1);
    match tokio::time::timeout(super::PATIENCE, pods.delete(name, &params)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(source)) => Err(failed("delete", shown, source).into()),
        Err(_) => Err(CommandError::Refused(format!(
            "the hub does not respond, and the Pod {shown} may not be deleted"
        ))),
    }
}

fn failed(verb: &'static str, shown: &str, source: kube::Error) -> HubError {
    HubError { verb, resource: format!("the Pod {shown}"), source }
}

/// The image of the hub's only release: the Pod has the permissions of the application, so a Deployment of a tenant
/// must not decide what it runs.
async fn image(hub: &Hub) -> Result<String, CommandError> {
    let unknown =
        |why: String| CommandError::Refused(format!("{why}: state the image with --image"));
    let params = ListParams::default().labels(RELEASE);
    let Some(namespaces) = release_namespaces(hub).await? else {
        return Err(unknown(
            "you do not have permission to list ClusterRoleBindings, which show the release".into(),
        ));
    };
    let namespace =
        only(namespaces, "namespace of a release, by ClusterRoleBindings with its label")
            .map_err(unknown)?;
    let deployments = hub.api::<Deployment>(&(), Some(&namespace));
    let Some(found) = list(&deployments, &params).await? else {
        return Err(unknown(format!(
            "you do not have permission to list Deployments in {namespace}"
        )));
    };
    let images = found.into_iter().filter_map(|deployment| {
        deployment.spec.template.spec.containers.into_iter().next()?.image
    });
    only(images.collect(), &format!("image of the Deployments of the release in {namespace}"))
        .map_err(unknown)
}

/// The only value, or why there is none.
fn only(values: BTreeSet<String>, what: &str) -> Result<String, String> {
    match &*Vec::from_iter(values) {
        [] => Err(format!("found no {what} ({RELEASE})")),
        [value] => Ok(value.clone()),
        several => Err(format!("found more than one {what}: {}", several.join(", "))),
    }
}

/// The ServiceAccount of the namespace that may read the copy, if it is the only one.
async fn service_account(hub: &Hub, args: &TestArgs) -> Result<String, CommandError> {
    let unknown = |why: &str| {
        CommandError::Refused(format!(
            "{why}: state the ServiceAccount of the application with --service-account"
        ))
    };
    if args.reach.own_token.is_some() {
        return Err(unknown("no object shows which ServiceAccount an own identity is"));
    }
    let namespace = Namespace::from(args.target.namespace.as_str());
    let cluster = args.target.cluster.as_deref().unwrap_or_default();
    let account = AccountKey { cluster: cluster.into(), account: args.reach.account().into() };
    let copy = account.copy_name();
    let readers =
        readers(hub, [namespace.clone()].into()).await?.remove(&namespace).unwrap_or_default();
    let names = readers.service_accounts(&copy);
    let why = match (&*names, readers.is_complete) {
        ([name], true) => return Ok((*name).to_owned()),
        ([], true) => format!("no ServiceAccount of {namespace} may read the Secret {copy}"),
        (_, false) => format!("you do not have permission to read who may read the Secret {copy}"),
        (several, true) => format!("several may read the Secret {copy}: {}", several.join(", ")),
    };
    Err(unknown(&why))
}

fn planned(
    args: &TestArgs,
    stanza: &Cluster,
    name: &str,
    image: &str,
    service_account: &str,
) -> Pod {
    let plugin =
        if args.reach.plugin == TestArgs::PLUGIN { "/cp-creds" } else { &args.reach.plugin };
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
            "activeDeadlineSeconds": args.pod.timeout.as_secs().max(1),
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
    let shown =
        |part: Option<&Path>| part.map(|part| part.display().to_string()).unwrap_or_default();
    let file = path.file_name().map(Path::new);
    let token = json!({
        "audience": DEFAULT_AUDIENCE, "expirationSeconds": TOKEN_VALIDITY.as_secs(), "path": shown(file),
    });
    let sources = json!([{ "serviceAccountToken": token }]);
    let volumes = json!([{ "name": "own-token", "projected": { "sources": sources } }]);
    let mount = json!({ "name": "own-token", "mountPath": shown(path.parent()), "readOnly": true });
    (volumes, json!([mount]))
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
        return Progress::Ended(
            end.message.clone().or_else(|| end.reason.clone()).unwrap_or_default(),
        );
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
        Some(condition) => {
            Progress::Waiting(with(condition.reason.as_deref(), condition.message.as_deref()))
        }
        None => {
            Progress::Waiting(status.phase.clone().unwrap_or_else(|| "it has no phase".to_owned()))
        }
    }
}

/// Completes when the user interrupts this process. Signals are handled from the call on.
#[cfg(unix)]
fn interruption() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
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
        assert_eq!(
            end(json!({ "exitCode": 0, "message": "text" })),
            Progress::Ended("text".to_owned())
        );
        assert_eq!(
            end(json!({ "exitCode": 1, "reason": "Error" })),
            Progress::Ended("Error".to_owned())
        );
    }

    #[test]
    fn a_pod_that_cannot_start_is_not_waited_for() {
        let waiting = |reason: &str| {
            state(container(&json!({ "waiting": { "reason": reason, "message": "why" } })))
        };
        for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
            assert_eq!(waiting(reason), Progress::Stuck(format!("{reason}: why")));
        }
        assert_eq!(
            waiting("ContainerCreating"),
            Progress::Waiting("ContainerCreating: why".to_owned())
        );
        let evicted =
            json!({ "phase": "Failed", "reason": "Evicted", "message": "the node is full" });
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
