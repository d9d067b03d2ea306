//! Upstream's own programs, which `hack/go-program.sh` builds.

use std::ffi::{OsStr, OsString};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use local_hub::{HubBuilder, LocalHub, Running, field as upstream, ocm};

use super::world;

/// The user of OCM's controllers on a hub.
pub const UPSTREAM: &str = "upstream";

/// Whether OCM's registration controller runs on every hub of the tests, so that it writes the condition `Bound`.
pub fn is_registered() -> bool {
    std::env::var_os(ocm::REGISTRATION).is_some()
}

/// A hub with a user for OCM's controllers.
pub fn prepare(builder: HubBuilder) -> HubBuilder {
    builder.user(UPSTREAM, &["system:masters"])
}

/// The path of one of upstream's programs. The first call on a machine builds it, which takes minutes.
pub async fn program(name: &str) -> PathBuf {
    upstream::program(name).await.unwrap()
}

/// The directory of a program's module, with the manifests of its release.
pub async fn source(name: &str) -> PathBuf {
    upstream::source(name).await.unwrap()
}

/// Starts a program beside a hub, with these variables in its environment.
pub async fn run(
    hub: &LocalHub,
    name: &'static str,
    program: &Path,
    environment: &[(&str, &OsStr)],
    arguments: &[&str],
) -> Running {
    // Not the cluster of this machine.
    let mut all: Vec<OsString> = vec!["-u".into(), "KUBERNETES_SERVICE_HOST".into()];
    // Some leave temporary files behind; the hub's directory is removed.
    let directory = [("TMPDIR", hub.directory().as_os_str())];
    for (name, value) in directory.iter().chain(environment) {
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(value);
        all.push(variable);
    }
    all.push(program.into());
    all.extend(arguments.iter().map(OsString::from));
    hub.run(name, Path::new("env"), all).await.unwrap()
}

/// A port that nothing listens on, for a program that cannot be given port 0.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Installs the CRDs in a directory of a program's module whose names are wanted and which the hub does not have.
pub async fn install_crds(
    hub: &LocalHub,
    of: &str,
    directory: &str,
    wanted: impl Fn(&str) -> bool,
) {
    upstream::install_crds(hub.directory(), of, directory, wanted).await.unwrap();
}

/// Starts OCM's registration controller with these feature gates, and waits until it works. Its further CRDs must be
/// [installed](install_ocm).
pub async fn registration(hub: &LocalHub, gates: &str) -> Running {
    let kubeconfig = hub.kubeconfig_for(UPSTREAM).unwrap();
    let arguments = [
        "controller",
        "--namespace=open-cluster-management-hub",
        "--disable-leader-election",
        // It does not take port 0.
        &format!("--listen=127.0.0.1:{}", free_port()),
        &format!("--kubeconfig={}", kubeconfig.display()),
        &format!("--feature-gates={gates}"),
    ];
    run(hub, "registration", &program("registration").await, &[], &arguments).await
}

/// Installs what OCM's registration controller needs besides the hub's own CRDs.
pub async fn install_ocm(hub: &LocalHub) {
    upstream::install_ocm(hub.directory()).await.unwrap();
    let client = hub.client_as("ocm").await.unwrap();
    world::ensure_namespace(&client, "open-cluster-management-hub").await;
}

/// Starts the registration controller with OCM's gate `ClusterProfile` off, and returns when it has created the default
/// sets.
pub async fn registered(hub: &LocalHub) -> Running {
    install_ocm(hub).await;
    let running = registration(hub, "DefaultClusterSet=true,ClusterProfile=false").await;
    let client = hub.client_as("ocm").await.unwrap();
    for set in ["default", "global"] {
        world::exists(&client, &ocm::cluster_set(set)).await;
    }
    running
}
