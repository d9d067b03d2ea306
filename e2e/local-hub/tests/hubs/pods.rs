//! Pods run as the API server describes them, and their status is accurate.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::io::{self, BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStatus, Namespace, Pod, Secret, Service,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use local_hub::{CrdSet, LocalHub, Pods, PodsBuilder, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Timeout for what takes a second or two: a Deployment's controllers, an image's copy, a probe's period.
const SOON: Duration = Duration::from_mins(2);

const IMAGE: &str = "registry.example.com/program:1";
const PORT: u16 = 8080;

/// A hub, and a runner with one image.
struct Cluster {
    // In this order: the runner must end before the hub.
    pods: Pods,
    client: Client,
    hub: LocalHub,
    _image: TempDir,
}

impl Cluster {
    /// `None` if Pods cannot run.
    async fn start(configure: impl FnOnce(PodsBuilder) -> PodsBuilder) -> Option<Self> {
        if !can_run().await {
            return None;
        }
        let hub = LocalHub::builder().crds(CrdSet::None).workloads().start().await.unwrap();
        let image = image();
        let pods = configure(Pods::on(&hub).unwrap().image(IMAGE, image.path())).start().await.unwrap();
        let client = hub.client_as("admin").await.unwrap();
        let namespace = json!({ "metadata": { "name": "team", "labels": {
            "pod-security.kubernetes.io/enforce": "restricted",
        }}});
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &object(namespace)).await.unwrap();
        Some(Self { pods, client, hub, _image: image })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "team")
    }

    async fn create<K>(&self, value: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        self.api::<K>().create(&PostParams::default(), &object(value)).await.unwrap();
    }

    /// Creates a Deployment of one replica.
    async fn deploy(&self, name: &str, pod: Value) {
        self.create::<Deployment>(deployment(name, &pod)).await;
    }

    async fn patch(&self, name: &str, template: Value) {
        let patch = json!({ "spec": { "template": template } });
        let params = PatchParams::default();
        self.api::<Deployment>().patch(name, &params, &Patch::Strategic(patch)).await.unwrap();
    }

    async fn is(&self, name: &str, type_: &str, status: &str) {
        eventually(&format!("Deployment {name} has {type_} {status}"), SOON, async || {
            let deployment = self.api::<Deployment>().get(name).await.map_err(|error| error.to_string())?;
            // The rollout of the current template is complete, and no old Pod is left.
            let observed = deployment.status.unwrap_or_default();
            let done = observed.observed_generation == deployment.metadata.generation
                && observed.updated_replicas == Some(1)
                && observed.replicas == Some(1);
            let conditions = observed.conditions.unwrap_or_default();
            let found = conditions.iter().any(|known| known.type_ == type_ && known.status == status);
            if done && found {
                return Ok(());
            }
            let pods = self.of(name).await;
            Err(format!("{conditions:?} of {:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
        })
        .await;
    }

    /// Waits until a Deployment is available, and returns its only Pod.
    async fn available(&self, name: &str) -> Pod {
        self.is(name, "Available", "True").await;
        eventually(&format!("Deployment {name} has one Pod"), SOON, async || {
            let mut pods = self.of(name).await;
            if pods.len() == 1 { pods.pop() } else { None }
        })
        .await
    }

    async fn of(&self, name: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("app={name}"));
        self.api::<Pod>().list(&params).await.unwrap().items
    }

    /// The status of a Deployment's only container, once it satisfies a condition.
    async fn container(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&ContainerStatus) -> bool,
    ) -> ContainerStatus {
        eventually(&format!("the container of {name} {what}"), SOON, async || {
            let pods = self.of(name).await;
            let status = pods.first().and_then(|pod| pod.status.clone()).ok_or("no Pod")?;
            let container = status.container_statuses.and_then(|mut all| all.pop()).ok_or("no status")?;
            if is(&container) { Ok(Some(container)) } else { Err(format!("{container:?}")) }
        })
        .await
    }

    /// A Pod's program.
    fn program(&self, pod: &Pod) -> Program {
        Program(self.pods.forward("team", &pod.name_any(), PORT).unwrap())
    }

    /// The user of a token, for an audience.
    async fn user_of(&self, token: &str, audience: &str) -> Option<String> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        status.user.filter(|_| status.authenticated == Some(true))?.username
    }
}

/// Whether this machine can run Pods; reports why not.
async fn can_run() -> bool {
    let Err(error) = Pods::can_run().await else { return true };
    // Not with `eprintln!`: the test harness captures the output of passing tests.
    let _ = writeln!(io::stderr(), "SKIPPED, nodes: {error}");
    false
}

/// The address of a Pod's program.
struct Program(SocketAddr);

impl Program {
    async fn ask(&self, path: &str) -> std::io::Result<(bool, String)> {
        let mut stream = TcpStream::connect(self.0).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((head.starts_with("HTTP/1.1 200"), body.to_owned()))
    }

    /// Whether a program responds with success.
    async fn answers(&self, path: &str) -> bool {
        self.ask(path).await.is_ok_and(|(ok, _)| ok)
    }

    async fn yes(&self, path: &str) -> String {
        let (ok, text) = self.ask(path).await.unwrap();
        assert!(ok, "{path}: {text}");
        text
    }

    async fn no(&self, path: &str) -> String {
        let (ok, text) = self.ask(path).await.unwrap();
        assert!(!ok, "{path}: {text}");
        text
    }

    /// Ends it, so that there is no response.
    async fn exit(&self, code: i32) {
        assert!(!self.answers(&format!("/exit/{code}")).await);
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A root file system with one static program.
fn image() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hubs/support/pod_program.rs");
    let output = Command::new("rustc")
        .args(["--edition=2024", "-Ctarget-feature=+crt-static", "-Copt-level=1", "-o"])
        .arg(directory.path().join("program"))
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

/// A container with that program, as the restricted Pod security standard requires it.
fn container(words: &[&str]) -> Value {
    let mut args = vec!["serve".to_owned(), PORT.to_string()];
    args.extend(words.iter().map(ToString::to_string));
    json!({
        "name": "main",
        "image": IMAGE,
        "command": ["/program"],
        "args": args,
        "readinessProbe": {
            "httpGet": { "path": "/is/ready", "port": PORT },
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "securityContext": {
            "runAsUser": 1000,
            "runAsGroup": 2000,
            "runAsNonRoot": true,
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    })
}

fn with(mut value: Value, more: Value) -> Value {
    for (name, field) in object::<serde_json::Map<_, _>>(more) {
        value[name] = field;
    }
    value
}

fn deployment(name: &str, pod: &Value) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": pod },
        },
    })
}

/// A Pod with that container. No process in it handles SIGTERM.
fn pod(container: &Value) -> Value {
    json!({ "containers": [container], "terminationGracePeriodSeconds": 1 })
}

#[tokio::test]
async fn a_deployment_becomes_available_and_its_container_is_what_the_pod_says() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = service.local_addr().unwrap();
    let Some(cluster) = Cluster::start(|pods| pods.service("proxy.other.svc", 9092, address)).await else {
        return;
    };
    cluster
        .create::<ConfigMap>(json!({ "metadata": { "name": "map" }, "data": { "key": "of the map" } }))
        .await;
    cluster
        .create::<Secret>(
            json!({ "metadata": { "name": "secret" }, "stringData": { "key": "of the secret" } }),
        )
        .await;
    let main = with(
        container(&["$(NAMESPACE)", "$(NONE)"]),
        json!({
            "startupProbe": { "exec": { "command": ["/program", "write", "/scratch/probe", "of the probe"] } },
            "env": [
                { "name": "NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
                { "name": "ADDRESS", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                { "name": "SECRET", "valueFrom": { "secretKeyRef": { "name": "secret", "key": "key" } } },
            ],
            "volumeMounts": [
                { "name": "scratch", "mountPath": "/scratch" },
                { "name": "map", "mountPath": "/map" },
                { "name": "image", "mountPath": "/opt/image" },
                { "name": "token", "mountPath": "/token" },
            ],
        }),
    );
    let init = with(
        container(&[]),
        json!({
            "name": "init",
            "args": ["write", "/scratch/file", "of the initContainer"],
            "readinessProbe": null,
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
        }),
    );
    let spec = with(
        pod(&main),
        json!({
            "initContainers": [init],
            "securityContext": { "fsGroup": 3000 },
            "volumes": [
                { "name": "scratch", "emptyDir": {} },
                { "name": "map", "configMap": { "name": "map" } },
                { "name": "image", "image": { "reference": IMAGE } },
                { "name": "token", "projected": { "sources": [
                    { "serviceAccountToken": { "audience": "somebody", "path": "token" } },
                ]}},
            ],
        }),
    );
    cluster.deploy("all", spec).await;
    let pod = cluster.available("all").await;
    let program = cluster.program(&pod);

    assert_eq!(cluster.pods.logs("team", &pod.name_any(), "main"), "started team $(NONE)\n");
    assert_eq!(program.yes("/env/ADDRESS").await, pod.status.unwrap().pod_ip.unwrap());
    assert_eq!(program.yes("/env/SECRET").await, "of the secret");
    assert_eq!(program.yes("/env/KUBERNETES_SERVICE_HOST").await, "10.0.0.1");
    program.no("/env/CARGO_MANIFEST_DIR").await;

    assert_eq!(program.yes("/read/map/key").await, "of the map");
    assert_eq!(program.yes("/read/scratch/file").await, "of the initContainer");
    assert_eq!(program.yes("/read/scratch/probe").await, "of the probe");
    program.yes("/write/scratch/other").await;
    assert!(program.no("/write/map/key").await.contains("Read-only file system"));
    assert!(program.no("/write/other").await.contains("Read-only file system"));
    program.no("/read/etc/passwd").await;

    let status = program.yes("/read/proc/self/status").await;
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("Pid"), "1");
    assert_eq!(line("Uid"), "1000 1000 1000 1000");
    assert_eq!(line("Gid"), "2000 2000 2000 2000");
    assert_eq!(line("Groups"), "2000 3000");
    assert_eq!(line("CapEff"), "0000000000000000");
    assert_eq!(line("NoNewPrivs"), "1");
    assert_eq!(line("Seccomp"), "2", "a filter");

    program.yes("/connect/kubernetes.default.svc/443").await;
    program.yes("/connect/proxy.other.svc/9092").await;
    service.accept().await.unwrap();
    program.no(&format!("/connect/127.0.0.1/{}", address.port())).await;

    let account = "system:serviceaccount:team:default";
    let token = program.yes("/read/token/token").await;
    assert_eq!(cluster.user_of(&token, "somebody").await.as_deref(), Some(account));
    assert_eq!(cluster.user_of(&token, "https://kubernetes.default.svc").await, None);
    let directory = "/read/var/run/secrets/kubernetes.io/serviceaccount";
    let token = program.yes(&format!("{directory}/token")).await;
    assert_eq!(cluster.user_of(&token, "https://kubernetes.default.svc").await.as_deref(), Some(account));
    assert_eq!(program.yes(&format!("{directory}/namespace")).await, "team");
    assert!(program.yes(&format!("{directory}/ca.crt")).await.contains("BEGIN CERTIFICATE"));
}

#[tokio::test]
async fn a_container_that_ends_starts_again() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    // It is ready when its program listens.
    let probe = json!({ "readinessProbe": { "tcpSocket": { "port": PORT }, "periodSeconds": 1 } });
    cluster.deploy("crashing", pod(&with(container(&["again"]), probe))).await;
    let pod = cluster.available("crashing").await;
    cluster.program(&pod).exit(3).await;
    let container =
        cluster.container("crashing", "runs again", |status| status.restart_count == 1 && status.ready);
    let last = container.await.last_state.and_then(|state| state.terminated).unwrap();
    assert_eq!(last.exit_code, 3);
    assert_eq!(cluster.available("crashing").await.uid(), pod.uid());
    assert_eq!(cluster.pods.logs("team", &pod.name_any(), "main"), "started again\nstarted again\n");
}

#[tokio::test]
async fn probes_decide_what_is_available_and_what_starts_again() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    let probe = json!({ "httpGet": { "path": "/is/alive", "port": PORT }, "periodSeconds": 1 });
    cluster.deploy("probed", pod(&with(container(&[]), json!({ "livenessProbe": probe })))).await;
    let pod = cluster.available("probed").await;
    let program = cluster.program(&pod);

    program.yes("/set/ready/no").await;
    cluster.is("probed", "Available", "False").await;
    program.yes("/set/ready/yes").await;
    cluster.available("probed").await;

    program.yes("/set/alive/no").await;
    let container =
        cluster.container("probed", "runs again", |status| status.restart_count == 1 && status.ready);
    let last = container.await.last_state.and_then(|state| state.terminated).unwrap();
    // It ignores SIGTERM.
    assert_eq!(last.exit_code, 137);
}

#[tokio::test]
async fn a_change_of_the_template_replaces_the_pods() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    cluster.deploy("changing", pod(&container(&["old"]))).await;
    let old = cluster.available("changing").await;
    let new =
        json!({ "spec": { "containers": [{ "name": "main", "args": ["serve", PORT.to_string(), "new"] }] } });
    cluster.patch("changing", new).await;
    let new = cluster.available("changing").await;
    assert_ne!(old.uid(), new.uid());
    assert_eq!(cluster.pods.logs("team", &new.name_any(), "main"), "started new\n");
    // A Pod that is gone from the API server has ended before.
    assert!(!cluster.program(&old).answers("/is/ready").await);

    cluster.api::<Deployment>().delete("changing", &DeleteParams::background()).await.unwrap();
    eventually("its Pod is gone", SOON, async || cluster.of("changing").await.is_empty()).await;
}

#[tokio::test]
async fn what_is_missing_is_reported_and_retried() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    let because = |reason: &'static str| {
        move |status: &ContainerStatus| {
            let waiting = status.state.clone().and_then(|state: ContainerState| state.waiting);
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(reason))
        }
    };
    let env = json!([{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "late", "key": "key" } } }]);
    cluster.deploy("waiting", pod(&with(container(&[]), json!({ "env": env })))).await;
    cluster.container("waiting", "waits for its Secret", because("CreateContainerConfigError")).await;
    cluster
        .create::<Secret>(json!({ "metadata": { "name": "late" }, "stringData": { "key": "value" } }))
        .await;
    let pod_there = cluster.available("waiting").await;
    assert_eq!(cluster.program(&pod_there).yes("/env/KEY").await, "value");

    cluster.deploy("nowhere", pod(&with(container(&[]), json!({ "image": "example.com/other" })))).await;
    cluster.container("nowhere", "has no image", because("ErrImagePull")).await;
}

#[tokio::test]
async fn a_node_that_is_dropped_leaves_no_process_cgroup_mount_interface_setting_or_file() {
    let surroundings = surroundings();
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    let marked = format!("marked-{}", std::process::id());
    cluster.deploy("left", pod(&container(&[&marked]))).await;
    cluster.available("left").await;
    let directory = cluster.pods.log_directory().parent().unwrap().to_owned();
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!processes_with(&marked).is_empty());
    assert!(!cgroups_of(&name).is_empty());
    let Cluster { pods, client: _, hub, _image } = cluster;
    drop(pods);
    assert_eq!(processes_with(&marked), Vec::<String>::new());
    assert_eq!(processes_with(&name), Vec::<String>::new());
    assert_eq!(cgroups_of(&name), Vec::<PathBuf>::new());
    assert!(!directory.exists(), "{}", directory.display());
    assert_eq!(self::surroundings(), surroundings);
    drop(hub);
}

#[tokio::test]
async fn kubectl_reads_logs_runs_commands_and_forwards_ports() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    cluster.deploy("asked", pod(&container(&["hello"]))).await;
    let pod = cluster.available("asked").await.name_any();
    let kubectl = async |arguments: &[&str]| {
        let output = cluster.hub.kubectl(&[&["--namespace=team"], arguments].concat()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(kubectl(&["logs", &pod]).await, "started hello\n");
    kubectl(&["exec", &pod, "--", "/program", "write", "/dev/null", "something"]).await;
    let proxied = format!("/api/v1/namespaces/team/pods/{pod}:{PORT}/proxy/is/ready");
    kubectl(&["get", "--raw", &proxied]).await;
}

#[tokio::test]
async fn pods_reach_services_by_their_names_and_the_api_server_reaches_services() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    cluster.deploy("server", pod(&container(&[]))).await;
    cluster.deploy("client", pod(&container(&[]))).await;
    cluster
        .create::<Service>(json!({
            "metadata": { "name": "server" },
            "spec": { "selector": { "app": "server" }, "ports": [{ "port": 80, "targetPort": PORT }] },
        }))
        .await;
    cluster.available("server").await;
    let client = cluster.program(&cluster.available("client").await);
    for name in ["server", "server.team", "server.team.svc", "server.team.svc.cluster.local"] {
        let path = format!("/connect/{name}/80");
        eventually(&format!("{name} leads to its Pod"), SOON, async || client.answers(&path).await).await;
    }
    client.no("/connect/nothing.team.svc/80").await;
    let proxied = "/api/v1/namespaces/team/services/server:80/proxy/is/ready";
    let output = cluster.hub.kubectl(&["get", "--raw", proxied]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_container_that_exceeds_its_memory_limit_is_killed() {
    let Some(cluster) = Cluster::start(|pods| pods).await else { return };
    let limited = with(container(&[]), json!({ "resources": { "limits": { "memory": "64Mi" } } }));
    cluster.deploy("limited", pod(&limited)).await;
    let program = cluster.program(&cluster.available("limited").await);
    program.yes("/allocate/32").await;
    program.answers("/allocate/128").await;
    let killed = cluster.container("limited", "is killed", |status| status.restart_count > 0).await;
    let last = killed.last_state.and_then(|state| state.terminated).unwrap();
    assert_eq!(last.reason.as_deref(), Some("OOMKilled"));
}

#[tokio::test]
async fn the_binary_runs_the_pods_of_a_hub_until_it_is_told_to_end() {
    if !can_run().await {
        return;
    }
    let hub = LocalHub::builder().crds(CrdSet::None).workloads().start().await.unwrap();
    let image = image();
    let deployments: Api<Deployment> = Api::namespaced(hub.client_as("admin").await.unwrap(), "default");
    let marked = format!("binary-{}", std::process::id());
    let spec = object(deployment("it", &pod(&container(&[&marked]))));
    deployments.create(&PostParams::default(), &spec).await.unwrap();

    // The second one finds the Pod that the first one left.
    for end in ["KILL", "stdin"] {
        let mut runner = Command::new(env!("CARGO_BIN_EXE_local-hub"))
            .arg("pods")
            .arg("--kubeconfig")
            .arg(hub.kubeconfig_for("admin").unwrap())
            .arg(format!("--image={IMAGE}={}", image.path().display()))
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufReader::new(runner.stdout.take().unwrap()).lines();
        let logs =
            lines.find_map(|line| line.unwrap().strip_prefix("ready logs=").map(PathBuf::from)).unwrap();
        let log = eventually("its log is there", SOON, async || {
            let pod = std::fs::read_dir(logs.join("default")).ok()?.next()?.ok()?.path();
            std::fs::read_to_string(pod.join("main/0.log")).ok().filter(|log| !log.is_empty())
        });
        assert!(log.await.ends_with(&format!("started {marked}\n")));

        if end == "KILL" {
            runner.kill().unwrap();
            runner.wait().unwrap();
            // The directories of the nodes, and their cgroups, have names that begin with this one.
            let directory = logs.parent().unwrap();
            let name = directory.file_name().unwrap().to_str().unwrap();
            let begins = |entry: std::fs::DirEntry| entry.file_name().to_str().unwrap().starts_with(name);
            eventually("nothing is left", SOON, async || {
                let mut left = std::fs::read_dir(directory.parent().unwrap()).unwrap();
                processes_with(&marked).is_empty()
                    && processes_with(name).is_empty()
                    && cgroups_of(name).is_empty()
                    && !left.any(|entry| entry.is_ok_and(begins))
            })
            .await;
        } else {
            drop(runner.stdin.take());
            assert!(runner.wait().unwrap().success());
            assert_eq!(processes_with(&marked), Vec::<String>::new());
            assert!(!logs.parent().unwrap().exists());
        }
    }
}

#[tokio::test]
async fn where_no_namespaces_can_be_created_this_is_reported() {
    if !can_run().await {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let config = json!({
        "clusters": [{ "name": "it", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "it", "user": {} }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        "current-context": "it",
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    for arguments in [&["--image=a=/", "--kubeconfig", kubeconfig][..], &["--can"]] {
        let output = Command::new("setpriv")
            .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
            .args([env!("CARGO_BIN_EXE_local-hub"), "pods"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        let why = "Pods cannot run here: no namespaces can be created: ";
        assert!(said.contains(why), "{said}");
    }
    assert!(
        Command::new(env!("CARGO_BIN_EXE_local-hub")).args(["pods", "--can"]).status().unwrap().success()
    );
}

/// The command lines that have a word in them.
fn processes_with(word: &str) -> Vec<String> {
    processes()
        .filter_map(|process| std::fs::read_to_string(process.join("cmdline")).ok())
        .filter(|line| line.contains(word))
        .collect()
}

/// The cgroups with a word in their path.
fn cgroups_of(word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
        left.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
        if directory.display().to_string().contains(word) {
            found.push(directory);
        }
    }
    found
}

/// The interfaces and mounts of this process's namespaces, and the settings of the kernel that a kubelet changes.
fn surroundings() -> (Vec<PathBuf>, String, Vec<String>) {
    let mut interfaces: Vec<_> =
        std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().path()).collect();
    interfaces.sort();
    let settings = [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    ];
    let settings = settings.map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap());
    (interfaces, std::fs::read_to_string("/proc/self/mounts").unwrap(), settings.to_vec())
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()))
}
