//! The images of containers, in place of a registry and a container runtime's store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::process::Command;

use super::problem::Problem;
use crate::HubError;

/// An image, unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Never written: each container gets a copy.
    pub(crate) root: PathBuf,
    pub(crate) config: Config,
}

/// The configuration of an image.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Config {
    pub(crate) user: String,
    pub(crate) env: Vec<String>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: String,
}

/// An image to be unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) reference: String,
    /// An archive, or a directory.
    pub(crate) path: PathBuf,
    /// The user and group of its programs, instead of the archive's.
    pub(crate) user: Option<u32>,
}

/// Images by the reference that Pods use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(Arc<BTreeMap<String, Image>>);

impl Images {
    /// Unpacks archives below `directory`; a directory is used as the root file system.
    pub(crate) async fn unpack(given: &[Given], directory: &Path) -> Result<Self, HubError> {
        let mut images = BTreeMap::new();
        for (number, Given { reference, path, user }) in given.iter().enumerate() {
            let mut image = if path.is_dir() {
                let root = std::path::absolute(path)
                    .map_err(|source| HubError::io(format!("use {}", path.display()), source))?;
                Image { root, config: Config::default() }
            } else {
                unpack(path, &directory.join(number.to_string())).await?
            };
            if let Some(user) = user {
                image.config.user = format!("{user}:{user}");
            }
            images.insert(reference.clone(), image);
        }
        Ok(Self(Arc::new(images)))
    }

    /// The image with this reference. Nothing is ever pulled.
    pub(crate) fn get(&self, reference: &str) -> Result<&Image, Problem> {
        self.0.get(reference).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            Problem::new("ErrImageNeverPull", format!("image {reference:?} not found, known are {known:?}"))
        })
    }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(default)]
    config: Config,
}

/// Unpacks an OCI archive with one image.
async fn unpack(archive: &Path, directory: &Path) -> Result<Image, HubError> {
    let (layout, root) = (directory.join("layout"), directory.join("root"));
    for made in [&layout, &root] {
        std::fs::create_dir_all(made)
            .map_err(|source| HubError::io(format!("make {}", made.display()), source))?;
    }
    tar("--extract", archive, &layout).await?;
    let index: Index = read(&layout.join("index.json"))?;
    let [only] = index.manifests.as_slice() else {
        return Err(wrong(archive, format!("expected one image, got {}", index.manifests.len())));
    };
    let manifest: Manifest = read(&blob(archive, &layout, only)?)?;
    let config: ImageConfig = read(&blob(archive, &layout, &manifest.config)?)?;
    for layer in &manifest.layers {
        let layer = blob(archive, &layout, layer)?;
        if tar("--list", &layer, &root).await?.lines().any(removes) {
            return Err(wrong(archive, "a layer removes files of those below it".to_owned()));
        }
        tar("--extract", &layer, &root).await?;
    }
    Ok(Image { root, config: config.config })
}

fn blob(archive: &Path, layout: &Path, descriptor: &Descriptor) -> Result<PathBuf, HubError> {
    // A digest becomes part of a path and must not lead out of it.
    match descriptor.digest.split_once(':') {
        Some((kind, hash)) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) && kind == "sha256" => {
            Ok(layout.join("blobs").join(kind).join(hash))
        }
        _ => Err(wrong(archive, format!("{:?} is not a valid digest", descriptor.digest))),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, HubError> {
    let bytes =
        std::fs::read(path).map_err(|source| HubError::io(format!("read {}", path.display()), source))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(path, error.to_string()))
}

/// Whether a path in a layer marks a removed file.
fn removes(path: &str) -> bool {
    path.trim_end_matches('/').rsplit('/').next().is_some_and(|name| name.starts_with(".wh."))
}

async fn tar(what: &str, archive: &Path, directory: &Path) -> Result<String, HubError> {
    let output = Command::new("tar")
        .args([what, "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(directory)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| HubError::io("run tar", source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(wrong(archive, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn wrong(path: &Path, reason: String) -> HubError {
    HubError::Image { path: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An archive with one image, with these files in its only layer.
    async fn archive(directory: &Path, files: &[&str], layer_digest: &str) -> PathBuf {
        let (blobs, content) = (directory.join("layout/blobs/sha256"), directory.join("content"));
        for made in [&blobs, &content] {
            std::fs::create_dir_all(made).unwrap();
        }
        for file in files {
            std::fs::write(content.join(file), file).unwrap();
        }
        let write = |name: &str, value: Value| std::fs::write(blobs.join(name), value.to_string()).unwrap();
        pack(&content, &blobs.join("1a")).await;
        write("2b", json!({ "config": { "User": "65532", "Entrypoint": ["/file"] } }));
        let digest = |digest: &str| json!({ "digest": digest });
        write("3c", json!({ "config": digest("sha256:2b"), "layers": [digest(layer_digest)] }));
        let index = json!({ "manifests": [digest("sha256:3c")] });
        std::fs::write(directory.join("layout/index.json"), index.to_string()).unwrap();
        pack(&directory.join("layout"), &directory.join("image.tar")).await;
        directory.join("image.tar")
    }

    async fn pack(directory: &Path, into: &Path) {
        let mut tar = Command::new("tar");
        let tar = tar.args(["--create", "--file"]).arg(into).arg("--directory").arg(directory).arg(".");
        let status = tar.status().await.unwrap();
        assert!(status.success());
    }

    async fn unpacked(files: &[&str], layer_digest: &str) -> Result<(String, Config), HubError> {
        let directory = tempfile::tempdir().unwrap();
        let archive = archive(directory.path(), files, layer_digest).await;
        let images = [Given { reference: "name".to_owned(), path: archive, user: None }];
        let images = Images::unpack(&images, &directory.path().join("images")).await?;
        let image = images.get("name").unwrap();
        Ok((std::fs::read_to_string(image.root.join("file")).unwrap(), image.config.clone()))
    }

    #[tokio::test]
    async fn an_archive_has_a_root_and_says_how_to_run_it() {
        let (file, config) = unpacked(&["file"], "sha256:1a").await.unwrap();
        assert_eq!(file, "file");
        assert_eq!(config.user, "65532");
        assert_eq!(config.entrypoint, Some(vec!["/file".to_owned()]));
    }

    #[tokio::test]
    async fn what_would_be_unpacked_otherwise_than_it_is_meant_is_refused() {
        let refused =
            async |files: &[&str], digest: &str| unpacked(files, digest).await.unwrap_err().to_string();
        assert!(refused(&["file", ".wh.other"], "sha256:1a").await.contains("removes files"));
        for digest in ["sha256:../../../1a", "sha512:1a", "1a"] {
            assert!(refused(&["file"], digest).await.contains("is not a valid digest"), "{digest}");
        }
    }

    #[test]
    fn an_image_that_is_not_here_is_not_pulled() {
        let problem = Images::default().get("registry.example.com/other").unwrap_err();
        assert_eq!(problem.reason, "ErrImageNeverPull");
    }
}
