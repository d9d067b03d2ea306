//! Kubeconfig files: which are read, and what of them.
//!
//! As in kubectl, `KUBECONFIG` is a list, files in it that do not exist are passed over, and of several entries with
//! one name the first counts. Paths in a file are relative to that file.

mod context;
mod file;

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use context::{ContextError, Hub};
use file::File;

use crate::surroundings::Surroundings;

/// Why kubeconfig files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// There is none.
    #[error("no way to the hub: not in a pod with a ServiceAccount token, and there is no kubeconfig at {0}")]
    NoFile(String),
    /// One is there and cannot be read.
    #[error("cannot read kubeconfig {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One is no kubeconfig. The parser's message would show the text around the mistake, which may be a credential.
    #[error("{path} is no kubeconfig: line {line}, column {column}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        line: u64,
        /// Where in the line.
        column: u64,
    },
    /// The current context does not lead to the hub.
    #[error("cannot use the kubeconfig's current context")]
    Context(#[from] ContextError),
}

/// The kubeconfig files there are, in order.
pub struct Kubeconfig {
    files: Vec<(PathBuf, File)>,
}

impl Kubeconfig {
    /// Reads the files of `KUBECONFIG`, else `~/.kube/config`.
    pub fn load(surroundings: &Surroundings) -> Result<Self, KubeconfigError> {
        let paths = paths(surroundings);
        let mut files = Vec::new();
        for path in &paths {
            match fs::read(path) {
                Ok(text) => files.push((directory_of(path), parse(&text, path)?)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(KubeconfigError::Unreadable { path: path.clone(), source }),
            }
        }
        if files.is_empty() {
            let looked_at: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(KubeconfigError::NoFile(looked_at.join(", ")));
        }
        Ok(Self { files })
    }

    /// The hub that the current context leads to.
    pub fn hub(&self) -> Result<Hub, KubeconfigError> {
        Ok(context::resolve(&self.files)?)
    }
}

fn paths(surroundings: &Surroundings) -> Vec<PathBuf> {
    match (&surroundings.kubeconfig, &surroundings.home) {
        (Some(list), _) => env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        (None, Some(home)) => vec![home.join(".kube/config")],
        (None, None) => vec![PathBuf::from("~/.kube/config (HOME is not set)")],
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

fn parse(text: &[u8], path: &Path) -> Result<File, KubeconfigError> {
    serde_saphyr::from_slice(text).map_err(|error| {
        let place = error.location();
        KubeconfigError::Malformed {
            path: path.to_path_buf(),
            line: place.map_or(0, |place| place.line()),
            column: place.map_or(0, |place| place.column()),
        }
    })
}
