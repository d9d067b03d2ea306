//! Finds upstream's CRDs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use hub_api::cluster_profile::ProfileVersion;
use hub_api::crds::Flavour;
use serde_json::Value;

pub(crate) const CLUSTERS: &str = "ocm/clusters.open-cluster-management.io_managedclusters.yaml";
pub(crate) const SETS: &str = "ocm/clusters.open-cluster-management.io_managedclustersets.yaml";
pub(crate) const BINDINGS: &str =
    "ocm/clusters.open-cluster-management.io_managedclustersetbindings.yaml";
pub(crate) const ADDONS: &str = "ocm/addon.open-cluster-management.io_managedclusteraddons.yaml";
pub(crate) const PROXIES: &str =
    "ocm/proxy.open-cluster-management.io_managedproxyconfigurations.yaml";
pub(crate) const ACCOUNTS: &str =
    "ocm/authentication.open-cluster-management.io_managedserviceaccounts.yaml";
pub(crate) const WORKS: &str = "ocm/work.open-cluster-management.io_manifestworks.yaml";
pub(crate) const PROFILES_MAP: &str =
    "cluster-inventory-api/multicluster.x-k8s.io_clusterprofiles.yaml";
pub(crate) const PROFILES_ATOMIC: &str =
    "ocm-clusterprofile/multicluster.x-k8s.io_clusterprofiles.yaml";
pub(crate) const PROFILES_V1ALPHA2: &str =
    "cluster-inventory-api-v0.2/multicluster.x-k8s.io_clusterprofiles.yaml";

/// The folder that `hack/upstream-crds.sh` prints.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/upstream-crds.sh");
    let output = Command::new(&script)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "upstream's CRDs are not available: {why}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
});

/// One of upstream's CRDs with only its storage version.
pub(crate) fn crd(file: &str) -> Value {
    with_versions(file, |version| version["storage"] == true)
}

/// One of upstream's CRDs with only this version.
pub(crate) fn crd_in(file: &str, version: ProfileVersion) -> Value {
    with_versions(file, |other| other["name"] == version.as_str())
}

/// One of upstream's CRDs with every version.
pub(crate) fn crd_with_every_version(file: &str) -> Value {
    with_versions(file, |_| true)
}

/// A missing folder or file is a failure: a test that skips itself there would hide the mistake. But no release has the
/// CRD with v1alpha2 yet. Without its file, ours stands in: a digest proves that the two are the same.
fn with_versions(file: &str, keep: impl FnMut(&Value) -> bool) -> Value {
    let mut crd = if file == PROFILES_V1ALPHA2 && !FOLDER.join(file).exists() {
        super::profiles(Flavour::V1alpha2)
    } else {
        read(&FOLDER.join(file))
    };
    crd["spec"]["versions"].as_array_mut().unwrap().retain(keep);
    crd
}

fn read(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The schema of a CRD's only version.
pub(crate) fn schema_of(crd: &Value) -> &Value {
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert!(
        schema.is_object() && crd["spec"]["versions"][1].is_null(),
        "not a CRD with one version"
    );
    schema
}
