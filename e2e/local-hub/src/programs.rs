//! The programs of the control plane: their paths and arguments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::HubError;
use crate::supervisor::Program;

/// Files in the hub's directory. The programs run in that directory, with relative paths.
pub(crate) const AUDIT_LOG: &str = "audit.log";
pub(crate) const AUDIT_POLICY: &str = "audit-policy.yaml";
pub(crate) const AUTHORITY: &str = "ca.crt";
/// How the API server reaches kubelets, Pods and Services, on a hub with [Pods](crate::Pods).
pub(crate) const EGRESS: &str = "egress.yaml";
/// The socket of the [Pods'](crate::Pods) HTTP proxy that this leads to.
pub(crate) const EGRESS_SOCKET: &str = "egress.sock";
pub(crate) const ETCD_DATA: &str = "etcd";
pub(crate) const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
pub(crate) const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";
pub(crate) const SERVING_CERTIFICATE: &str = "apiserver.crt";
pub(crate) const SERVING_KEY: &str = "apiserver.key";
pub(crate) const TOKENS: &str = "tokens.csv";

/// A hub's etcd listens on sockets in the hub's directory: files named `etcd-clients:0` and so on, since the name must
/// look like an address. It has no port that could conflict, and no other user can read it.
pub(crate) const ETCD_CLIENTS: &str = "etcd-clients:0";
const ETCD_PEERS: &str = "etcd-peers:0";

/// How much the API server's heap may grow between two garbage collections, in percent, unless the environment sets it.
/// With Go's default of 100, the collections during its start take a fifth of its CPU time; with this, it uses 130 MiB
/// more.
const GARBAGE: &str = "400";
const GARBAGE_VARIABLE: &str = "GOGC";

/// Logs only the user, request, time and response code.
pub(crate) const AUDIT_POLICY_YAML: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
";

/// The controllers that an API needs: without them nothing is garbage-collected, no namespace is finalized, and
/// expressions in policies are not checked.
const CONTROLLERS: &[&str] = &[
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "validatingadmissionpolicy-status-controller",
];

/// Sends what the API server opens towards a cluster through the socket; webhooks with a URL are not meant.
pub(crate) const EGRESS_YAML: &str = "\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport:
        uds:
          udsName: egress.sock
";

/// The controllers of workloads, nodes and Services.
const WORKLOAD_CONTROLLERS: &[&str] = &[
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "job-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
];

/// The directory of the programs. The first call of a process may build them, which takes minutes.
pub(crate) async fn directory() -> Result<&'static Path, HubError> {
    static DIRECTORY: OnceCell<PathBuf> = OnceCell::const_new();
    DIRECTORY.get_or_try_init(find).await.map(PathBuf::as_path)
}

async fn find() -> Result<PathBuf, HubError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane.sh");
    output_of(&mut Command::new(script), "run hack/control-plane.sh").await.map(PathBuf::from)
}

/// Runs a command until it ends, and returns the first line of what it prints.
pub(crate) async fn output_of(command: &mut Command, doing: &str) -> Result<String, HubError> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|source| HubError::io(doing, source))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout).lines().next().unwrap_or_default().to_owned());
    }
    Err(HubError::Failed(format!(
        "cannot {doing}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    )))
}

/// The first program of a hub to start, and the last to stop.
pub(crate) fn etcd(directory: &Path) -> Program {
    let etcd = Program::new(
        "etcd",
        directory.join("etcd"),
        [
            "--name=hub".to_owned(),
            format!("--data-dir={ETCD_DATA}"),
            // The data is not needed after a crash.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=error".to_owned(),
            format!("--listen-client-urls=unix://{ETCD_CLIENTS}"),
            format!("--advertise-client-urls=unix://{ETCD_CLIENTS}"),
            format!("--listen-peer-urls=unix://{ETCD_PEERS}"),
            format!("--initial-advertise-peer-urls=unix://{ETCD_PEERS}"),
            format!("--initial-cluster=hub=unix://{ETCD_PEERS}"),
        ],
    );
    Program { owns_directory: true, ..etcd }
}

pub(crate) fn api_server(directory: &Path, port: u16, has_nodes: bool) -> Program {
    let api_server = Program::new(
        "kube-apiserver",
        directory.join("kube-apiserver"),
        [
            format!("--etcd-servers=unix://{ETCD_CLIENTS}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // It would publish the address above as the endpoint of a Service, which is not allowed.
            "--endpoint-reconciler-type=none".to_owned(),
            "--cert-dir=.".to_owned(),
            format!("--tls-cert-file={SERVING_CERTIFICATE}"),
            format!("--tls-private-key-file={SERVING_KEY}"),
            format!("--client-ca-file={AUTHORITY}"),
            format!("--token-auth-file={TOKENS}"),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={SERVICE_ACCOUNT_PUBLIC_KEY}"),
            format!("--service-account-signing-key-file={SERVICE_ACCOUNT_KEY}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            format!("--audit-policy-file={AUDIT_POLICY}"),
            format!("--audit-log-path={AUDIT_LOG}"),
            // In megabytes, more than a hub ever writes: rotation would make counts wrong. Zero does not disable
            // rotation in every version.
            "--audit-log-maxsize=1000000".to_owned(),
        ],
    );
    let environment = match std::env::var_os(GARBAGE_VARIABLE) {
        Some(_) => Vec::new(),
        None => vec![(GARBAGE_VARIABLE.into(), GARBAGE.into())],
    };
    let mut arguments = api_server.arguments;
    if has_nodes {
        arguments.push(format!("--egress-selector-config-file={EGRESS}").into());
        arguments.push("--kubelet-preferred-address-types=InternalIP".into());
    }
    Program { arguments, environment, ..api_server }
}

/// The controllers of an API and of workloads, if requested.
pub(crate) fn controllers(api: bool, workloads: bool) -> BTreeSet<&'static str> {
    let (api, workloads) = (api.then_some(CONTROLLERS), workloads.then_some(WORKLOAD_CONTROLLERS));
    [api, workloads].into_iter().flatten().flatten().copied().collect()
}

pub(crate) fn controller_manager(
    directory: &Path,
    kubeconfig: &Path,
    controllers: &BTreeSet<&'static str>,
) -> Program {
    let controllers = controllers.iter().copied().collect::<Vec<_>>().join(",");
    Program::new(
        "kube-controller-manager",
        directory.join("kube-controller-manager"),
        [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--service-account-private-key-file={SERVICE_ACCOUNT_KEY}"),
            format!("--root-ca-file={AUTHORITY}"),
            format!("--controllers={controllers}"),
            "--leader-elect=false".to_owned(),
            // No serving port: it could conflict with another process, and the health endpoint tells less than the
            // results of the controllers, for which a start waits.
            "--secure-port=0".to_owned(),
            // A node that stops is noticed in seconds.
            "--node-monitor-period=1s".to_owned(),
            "--node-monitor-grace-period=12s".to_owned(),
        ],
    )
}
