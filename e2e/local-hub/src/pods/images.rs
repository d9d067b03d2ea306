//! The images that containers are made of: what a registry and a container runtime's store would be.

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
    /// Nobody writes here: each container has a copy.
    pub(crate) root: PathBuf,
    pub(crate) config: Config,
}

/// What an image says of how to run it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Config {
    pub(crate) user: String,
    pub(crate) env: Vec<String>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: String,
}

/// Images by the reference that Pods name them with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(Arc<BTreeMap<String, Image>>);

impl Images {
    /// Unpacks what is an archive, below `directory`; a directory is a root file system as it is.
    pub(crate) async fn unpack(given: &[(String, PathBuf)], directory: &Path) -> Result<Self, HubError> {
        let mut images = BTreeMap::new();
        for (number, (reference, path)) in given.iter().enumerate() {
            let image = if path.is_dir() {
                let root = std::path::absolute(path)
                    .map_err(|source| HubError::io(format!("use {}", path.display()), source))?;
                Image { root, config: Config::default() }
            } else {
                unpack(path, &directory.join(number.to_string())).await?
            };
            images.insert(reference.clone(), image);
        }
        Ok(Self(Arc::new(images)))
    }

    /// The image of that reference. Nothing is ever pulled.
    pub(crate) fn get(&self, reference: &str) -> Result<&Image, Problem> {
        self.0.get(reference).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            Problem::new("ErrImageNeverPull", format!("no image {reference:?} here, only {known:?}"))
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

/// Unpacks an OCI archive of one image.
async fn unpack(archive: &Path, directory: &Path) -> Result<Image, HubError> {
    let (layout, root) = (directory.join("layout"), directory.join("root"));
    for made in [&layout, &root] {
        std::fs::create_dir_all(made)
            .map_err(|source| HubError::io(format!("make {}", made.display()), source))?;
    }
    untar(archive, &layout).await?;
    let index: Index = read(&layout.join("index.json"))?;
    let [only] = index.manifests.as_slice() else {
        return Err(wrong(archive, format!("it holds {} images, not one", index.manifests.len())));
    };
    let manifest: Manifest = read(&blob(archive, &layout, only)?)?;
    let config: ImageConfig = read(&blob(archive, &layout, &manifest.config)?)?;
    for layer in &manifest.layers {
        untar(&blob(archive, &layout, layer)?, &root).await?;
    }
    Ok(Image { root, config: config.config })
}

fn blob(archive: &Path, layout: &Path, descriptor: &Descriptor) -> Result<PathBuf, HubError> {
    // What is hashed into a path must not lead out of it.
    match descriptor.digest.split_once(':') {
        Some((kind, hash)) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) && kind == "sha256" => {
            Ok(layout.join("blobs").join(kind).join(hash))
        }
        _ => Err(wrong(archive, format!("{:?} is no digest", descriptor.digest))),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, HubError> {
    let bytes =
        std::fs::read(path).map_err(|source| HubError::io(format!("read {}", path.display()), source))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(path, error.to_string()))
}

async fn untar(archive: &Path, into: &Path) -> Result<(), HubError> {
    let output = Command::new("tar")
        .args(["--extract", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(into)
        // A layer that removes files of those below it names them so; images from scratch have none.
        .args(["--exclude=.wh.*"])
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| HubError::io("run tar", source))?;
    if output.status.success() {
        return Ok(());
    }
    Err(wrong(archive, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn wrong(path: &Path, reason: String) -> HubError {
    HubError::Image { path: path.display().to_string(), reason }
}
