//! The program as people run it: in a pod, from its image.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use local_hub::Pods;
use tokio::sync::OnceCell;

use super::building;

/// What Pods call the image with both programs.
pub const IMAGE: &str = "registry.example.com/hub-addons:test";

/// The image's archive, or `None` where this machine cannot build or run it. It can take minutes: no hub should wait.
pub async fn image() -> Option<PathBuf> {
    static ARCHIVE: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    ARCHIVE.get_or_init(|| async { can().await.then(archive) }).await.clone()
}

/// A machine that nobody looks after has to.
async fn can() -> bool {
    let missing = match Pods::can_run().await {
        Err(error) => error.to_string(),
        Ok(()) if !image_sh(&["--can"]).status.success() => "nothing can build images here".to_owned(),
        Ok(()) => return true,
    };
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        return true;
    }
    // Not by `eprintln!`: the harness keeps to itself what a passing test prints.
    let _ = writeln!(io::stderr(), "SKIPPED, hub-addons in pods: {missing}");
    false
}

/// The archive that `hack/image.sh` builds of this source, or the one in the folder that `HUB_ADDONS_IMAGES` names.
fn archive() -> PathBuf {
    let folder = std::env::var_os("HUB_ADDONS_IMAGES").map_or_else(build, PathBuf::from);
    let archive = folder.join(format!("hub-addons-{}.oci.tar", architecture()));
    assert!(archive.exists(), "there is no {}", archive.display());
    archive
}

fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
    let output = image_sh(&[
        "--no-sbom",
        "--arch",
        architecture(),
        "--output",
        folder.to_str().unwrap(),
        "hub-addons",
    ]);
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
