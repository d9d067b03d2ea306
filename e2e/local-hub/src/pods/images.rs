//! The images of containers: archives, or directories with programs. Nothing is ever pulled.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::HubError;
use crate::programs::output_of;

/// An image to be imported.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// The name that Pods use.
    pub(crate) reference: String,
    /// An archive, or a directory.
    pub(crate) path: PathBuf,
}

/// Writes the archive `TO.tar` of an image under its reference. `assemble` is the program that makes an image of a
/// directory's files.
pub(crate) async fn archive(
    image: &Given,
    to: &Path,
    assemble: &Path,
) -> Result<PathBuf, HubError> {
    let failed = |source| HubError::io(format!("use {}", image.path.display()), source);
    let path = std::path::absolute(&image.path).map_err(failed)?;
    if !path.is_dir() {
        return named(&image.reference, &path, to).await;
    }
    let archive = to.with_extension("unnamed");
    let files = std::fs::read_dir(&path).map_err(failed)?;
    let mut files: Vec<_> = files
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    files.sort();
    let mut command = Command::new(assemble);
    command.arg("--archive").arg(&archive).args([
        "--name",
        &image.reference,
        "--arch",
        architecture(),
    ]);
    output_of(command.args(files), &format!("use {}", path.display())).await?;
    let named = named(&image.reference, &archive, to).await;
    std::fs::remove_file(archive).map_err(failed)?;
    named
}

/// Writes the archive `TO.tar` of the only image in an archive, under a reference.
pub(crate) async fn named(reference: &str, archive: &Path, to: &Path) -> Result<PathBuf, HubError> {
    let failed = |source| HubError::io(format!("write {}", to.display()), source);
    let written = to.with_extension("tar");
    std::fs::create_dir(to).map_err(failed)?;
    tar("--extract", archive, to).await?;
    rename(reference, archive, &to.join("index.json"))?;
    tar("--create", &written, to).await?;
    std::fs::remove_dir_all(to).map_err(failed)?;
    Ok(written)
}

/// Gives the only image in an index its reference, which may be another than the archive's.
fn rename(reference: &str, archive: &Path, index: &Path) -> Result<(), HubError> {
    let failed = |source| HubError::io(format!("read the index of {}", archive.display()), source);
    let mut content: Value = serde_json::from_slice(&std::fs::read(index).map_err(failed)?)
        .map_err(|error| wrong(archive, &error.to_string()))?;
    match content["manifests"].as_array_mut().map(Vec::as_mut_slice) {
        Some([only]) => only["annotations"] = json!({ "io.containerd.image.name": reference }),
        manifests => {
            let number = manifests.map_or(0, |manifests| manifests.len());
            return Err(wrong(archive, &format!("expected one image, got {number}")));
        }
    }
    std::fs::write(index, content.to_string()).map_err(failed)
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

async fn tar(what: &str, archive: &Path, directory: &Path) -> Result<(), HubError> {
    let mut tar = Command::new("tar");
    tar.args([what, "--file"]).arg(archive).arg("--directory").arg(directory);
    if what == "--create" {
        tar.arg(".");
    }
    output_of(&mut tar, &format!("use {}", archive.display())).await.map(drop)
}

fn wrong(path: &Path, reason: &str) -> HubError {
    HubError::Failed(format!("{} is not a valid image: {reason}", path.display()))
}
