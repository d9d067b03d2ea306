//! What every hub of a process begins with: the data of the first hub with the same CRDs, taken when it was ready.
//!
//! From nothing, an API server writes some 150 roles and other objects, and then serves one CRD after another. That is
//! a third of the CPU time of a start, and starts are most of what tests on hubs cost.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::access::write_private;
use crate::supervisor::Running;
use crate::{CrdSet, Flavour, HubError, programs};

/// etcd preallocates its write-ahead log, and never needs to read beyond this many zeros.
const END_OF_LOG: usize = 4096;

type Key = (Flavour, CrdSet);

static TEMPLATES: Mutex<Vec<(Key, Arc<Template>)>> = Mutex::new(Vec::new());

/// The data of a hub without controllers, with its CRDs and the permissions of [`crate::OCM`]. It contains no credential
/// and no address, and of certificates only the first hub's authority, in a ConfigMap for extension API servers, to which
/// each hub adds its own.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) crds: Vec<CustomResourceDefinition>,
    pub(crate) data: Data,
}

/// The files of etcd, by their paths in the hub's directory.
#[derive(Debug)]
pub(crate) struct Data(Vec<(PathBuf, Vec<u8>)>);

impl Template {
    /// The template for a hub; `None` until one has been [kept](Self::keep).
    pub(crate) fn find(key: &Key) -> Option<Arc<Self>> {
        let templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
        templates.iter().find(|(of, _)| of == key).map(|(_, template)| Arc::clone(template))
    }

    /// Copies the data of a hub that is ready, for later ones; the first one of two that start at once is enough.
    pub(crate) async fn keep(
        key: Key,
        crds: Vec<CustomResourceDefinition>,
        directory: &Path,
        etcd: &Running,
    ) -> Result<(), HubError> {
        if Self::find(&key).is_some() {
            return Ok(());
        }
        let template = Arc::new(Self { crds, data: Data::of(directory, etcd).await? });
        TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner).push((key, template));
        Ok(())
    }
}

impl Data {
    /// That of a running etcd.
    pub(crate) async fn of(directory: &Path, etcd: &Running) -> Result<Self, HubError> {
        etcd.pause().await?;
        let mut files = Vec::new();
        let read = read(directory, Path::new(programs::ETCD_DATA), &mut files);
        etcd.resume().await?;
        read.map_err(|source| HubError::io("copy etcd's data", source))?;
        Ok(Self(files))
    }

    /// Writes it into the directory of a hub whose etcd does not run.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), HubError> {
        for (path, contents) in &self.0 {
            let path = directory.join(path);
            let parents = path.parent().unwrap_or(directory);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parents)
                .map_err(|source| HubError::io(format!("create {}", parents.display()), source))?;
            write_private(&path, contents)?;
        }
        Ok(())
    }
}

fn read(directory: &Path, from: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory.join(from))? {
        let path = from.join(entry?.file_name());
        if directory.join(&path).is_dir() {
            read(directory, &path, files)?;
            continue;
        }
        let mut contents = std::fs::read(directory.join(&path))?;
        match path.extension().and_then(|extension| extension.to_str()) {
            // Space for the next part of the log.
            Some("tmp") => continue,
            Some("wal") => {
                let end = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                contents.truncate(end + END_OF_LOG);
            }
            _ => {}
        }
        contents.shrink_to_fit();
        files.push((path, contents));
    }
    Ok(())
}
