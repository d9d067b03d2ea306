//! The program in a Pod, from its image.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use local_hub::Pods;
use tokio::sync::OnceCell;

use super::building;
use super::chart::repository;

/// The name of the image with both programs.
pub const IMAGE: &str = "registry.example.com/hub-addons:test";

/// The archive of the image with both programs, or `None` if this machine cannot build or run it. The build can take
/// minutes, so no hub should be waiting for it.
pub async fn image() -> Option<PathBuf> {
    archive("hub-addons").await
}

/// The archive of the image with only the plugin.
pub async fn plugin_image() -> Option<PathBuf> {
    archive("cp-creds").await
}

/// Whether this machine can run Pods, which a test needs for this; reports why not.
pub async fn can_run(what: &str) -> bool {
    let can = Pods::can_run().await;
    if let Err(missing) = &can {
        skipped(what, &missing.to_string());
    }
    can.is_ok()
}

/// Whether this machine has what enforces network policies on its nodes; reports what is missing.
pub fn can_enforce_policies() -> bool {
    let have = repository().join("hack/have.sh");
    let missing = [("ipset", "ipset"), ("xtables-legacy-multi", "iptables")].into_iter().find(
        |(command, package)| {
            !Command::new(&have).args([command, package]).status().unwrap().success()
        },
    );
    if let Some((command, package)) = missing {
        let why = format!("{command} is not installed; on Debian it is in the package {package}");
        skipped("NetworkPolicies of the chart", &why);
    }
    missing.is_none()
}

fn skipped(what: &str, missing: &str) {
    // Not with `eprintln!`: the test harness captures the output of passing tests.
    let _ = writeln!(io::stderr(), "SKIPPED, {what}: {missing}");
}

/// The archive that `hack/image.sh` builds from this source, or the one in the folder `HUB_ADDONS_IMAGES`. What a node
/// needs includes what builds images.
async fn archive(image: &str) -> Option<PathBuf> {
    static FOLDER: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    let folder = || async {
        can_run("hub-addons in pods")
            .await
            .then(|| std::env::var_os("HUB_ADDONS_IMAGES").map_or_else(build, PathBuf::from))
    };
    let folder = FOLDER.get_or_init(folder).await.as_ref()?;
    let archive = folder.join(format!("{image}-{}.oci.tar", architecture()));
    assert!(archive.exists(), "{} does not exist", archive.display());
    Some(archive)
}

fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
    let output =
        image_sh(&["--no-sbom", "--arch", architecture(), "--output", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn image_sh(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/image.sh");
    building::command(script).args(arguments).output().unwrap()
}
