//! Upstream's own programs beside hubs, as `hack/go-program.sh` builds them: cluster-proxy with its whole tunnel, in Pods.
//!
//! [`Addon`] plays what OCM's addon manager and its agents do for cluster-proxy on a cluster. Hubs and clusters are given
//! by their directories, so that they can be those of another process.

mod addon;
mod cluster_proxy;
mod deployments;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::access::{config_from, kubeconfig_path};
use crate::ocm::Object;
use crate::programs::{self, output_of};
use crate::{ADMIN, HubError, crds};

pub use self::addon::{AGENT_GROUP, AGENT_USER, Addon};
pub use self::cluster_proxy::{ClusterProxy, HOME, install_chart};

/// Timeout for Pods, which copy their images first.
const PATIENCE: Duration = Duration::from_mins(4);
/// An image on the nodes of clusters, for Pods to which commands and ports lead (`e2e/kubernetes/streams`).
pub const STREAMS: &str = "registry.example.com/streams:field";
/// The name by which clusters reach the hub, and the port.
const HUB: (&str, u16) = ("hub.example", 6443);

/// The path of one of upstream's programs. The first call on a machine builds it, which takes minutes.
pub async fn program(name: &str) -> Result<PathBuf, HubError> {
    go_program(&[name]).await
}

/// The directory of a program's module, with the manifests of its release.
pub async fn source(name: &str) -> Result<PathBuf, HubError> {
    go_program(&["--source", name]).await
}

async fn go_program(arguments: &[&str]) -> Result<PathBuf, HubError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/go-program.sh");
    let mut command = Command::new(script);
    command.args(arguments);
    let doing = format!("run hack/go-program.sh {}", arguments.join(" "));
    output_of(&mut command, &doing).await.map(PathBuf::from)
}

/// Installs the CRDs in a directory of a program's module whose names are wanted and which the hub does not have.
pub async fn install_crds(
    hub: &Path,
    of: &str,
    directory: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), HubError> {
    install_crds_in(hub, &source(of).await?.join(directory), wanted).await
}

/// Installs the CRDs in a directory whose names are wanted and which the hub does not have.
pub async fn install_crds_in(
    hub: &Path,
    directory: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), HubError> {
    let client = Site::at(hub).await?.client;
    let known: Api<CustomResourceDefinition> = Api::all(client.clone());
    let known =
        known.list_metadata(&ListParams::default()).await.map_err(HubError::api("list CRDs"))?;
    let mut missing = crds::read(directory)?;
    missing.retain(|name, _| wanted(name) && known.iter().all(|it| it.name_any() != *name));
    crds::install(&client, &missing.into_values().collect::<Vec<_>>()).await
}

/// Installs the CRDs of Open Cluster Management that a hub lacks, without that of ClusterProfile.
pub async fn install_ocm(hub: &Path) -> Result<(), HubError> {
    let wanted = |name: &str| !name.ends_with(".multicluster.x-k8s.io");
    install_crds(hub, "registration", "manifests/cluster-manager/hub/crds", wanted).await
}

/// A directory with these programs of upstream's, under the names that they have in upstream's images.
async fn image(directory: &Path, programs: &[(&str, &str)]) -> Result<PathBuf, HubError> {
    let failed = |source| HubError::io(format!("write {}", directory.display()), source);
    std::fs::create_dir_all(directory).map_err(failed)?;
    for (name, file) in programs {
        let (program, file) = (program(name).await?, directory.join(file));
        // A copy takes time if the cache is on another file system.
        std::fs::hard_link(&program, &file)
            .or_else(|_| std::fs::copy(&program, &file).map(drop))
            .map_err(failed)?;
    }
    Ok(directory.to_owned())
}

fn reference(image: &str) -> String {
    format!("registry.example.com/{image}:field")
}

/// A hub or a cluster, with all permissions.
struct Site {
    directory: PathBuf,
    client: Client,
}

impl Site {
    async fn at(directory: &Path) -> Result<Self, HubError> {
        let config = config_from(&kubeconfig_path(directory, ADMIN)).await?;
        let client = Client::try_from(config).map_err(HubError::api("make a client"))?;
        Ok(Self { directory: directory.to_owned(), client })
    }

    fn kubeconfig(&self) -> PathBuf {
        kubeconfig_path(&self.directory, ADMIN)
    }

    /// The address of the API server.
    async fn address(&self) -> Result<SocketAddr, HubError> {
        let url = config_from(&self.kubeconfig()).await?.cluster_url;
        let address = url.authority().and_then(|authority| authority.as_str().parse().ok());
        address.ok_or_else(|| HubError::Failed(format!("{url} is not the URL of an address")))
    }

    /// The object on the API server; null if it does not exist.
    async fn get(&self, object: &Object) -> Result<Value, HubError> {
        let found = object.api(&self.client).get_opt(object.name()).await;
        let found = found.map_err(HubError::api(format!("read {object}")))?;
        Ok(found.and_then(|found| serde_json::to_value(found).ok()).unwrap_or_default())
    }

    /// Runs `kubectl apply` or another verb with objects.
    async fn kubectl(&self, verb: &str, objects: &[Value]) -> Result<(), HubError> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let file = self.directory.join("manifests.json");
        std::fs::write(&file, list.to_string())
            .map_err(|source| HubError::io(format!("write {}", file.display()), source))?;
        let mut command = Command::new(programs::directory().await?.join("kubectl"));
        command
            .args([verb, "--filename"])
            .arg(file)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.directory.join("kubectl-cache"));
        output_of(&mut command, &format!("{verb} the manifests of an addon")).await.map(drop)
    }

    /// A kubeconfig with which a user of this hub reaches it from the Pods of a cluster.
    fn kubeconfig_for_pods(&self, user: &str) -> Result<String, HubError> {
        let path = kubeconfig_path(&self.directory, user);
        let yaml = std::fs::read_to_string(&path)
            .map_err(|source| HubError::io(format!("read {}", path.display()), source))?;
        let mut kubeconfig: Value =
            serde_saphyr::from_str(&yaml).map_err(|error| HubError::Failed(error.to_string()))?;
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://{}:{}", HUB.0, HUB.1));
        cluster["tls-server-name"] = json!("localhost");
        Ok(kubeconfig.to_string())
    }
}
