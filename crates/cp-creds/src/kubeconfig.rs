//! Reads kubeconfig files.
//!
//! As in kubectl, `KUBECONFIG` is a list, files in it that do not exist are skipped, and the first of several entries
//! with one name takes precedence. Of a file, the first document counts, and the last of equal keys. Paths in it are
//! relative to the file.

mod context;
mod file;

use std::env;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use client_config::{first_document, read_text, repeated};
use serde_saphyr::DuplicateKeyPolicy;

pub use context::ContextError;
use file::{File, filled};

use crate::api_server::ApiServer;
use crate::environment::Environment;
use crate::names::excerpt;

/// Why kubeconfig files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// No file exists.
    #[error(
        "cannot find the hub: not in a pod with a ServiceAccount token, and no kubeconfig at {0}"
    )]
    NoFile(String),
    /// A file exists and cannot be read.
    #[error("cannot read kubeconfig {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// A file is not a kubeconfig. The parser's message is omitted: it quotes the text around the error, which may be a
    /// credential.
    #[error("{path} is not a valid kubeconfig: line {line}, column {column}")]
    Malformed { path: PathBuf, line: u64, column: u64 },
    /// A file has two entries of one name, as kubectl refuses it, too.
    #[error("{path} has two clusters, users or contexts with the name {name}")]
    RepeatedName { path: PathBuf, name: String },
    /// A file contains an object of another kind.
    #[error("{path} is not a kubeconfig: it is {kind} {version}, expected Config v1")]
    NotAConfig { path: PathBuf, kind: String, version: String },
    /// The current context does not lead to the hub.
    #[error("cannot use the kubeconfig's current context")]
    Context(#[from] ContextError),
}

/// The hub of the current context, and the namespace that the context sets. Reads the files of `KUBECONFIG`, else
/// `~/.kube/config`.
pub fn hub(environment: &Environment) -> Result<(ApiServer, Option<String>), KubeconfigError> {
    let paths = paths(environment);
    let mut files = Vec::new();
    for path in &paths {
        match read_text(path) {
            Ok(text) => files.push((path.parent().unwrap_or(path), parse(&text, path)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(KubeconfigError::Unreadable { path: path.clone(), source }),
        }
    }
    if files.is_empty() {
        let looked_at: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(KubeconfigError::NoFile(looked_at.join(", ")));
    }
    Ok(context::resolve(&files)?)
}

fn paths(environment: &Environment) -> Vec<PathBuf> {
    match (&environment.kubeconfig, &environment.home) {
        (Some(list), _) => {
            env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect()
        }
        (None, Some(home)) => vec![home.join(".kube/config")],
        (None, None) => vec![PathBuf::from("~/.kube/config (HOME is not set)")],
    }
}

fn parse(text: &str, path: &Path) -> Result<File, KubeconfigError> {
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let file: File =
        serde_saphyr::from_str_with_options(first_document(text), options).map_err(|error| {
            let place = error.location();
            KubeconfigError::Malformed {
                path: path.to_path_buf(),
                line: place.map_or(0, |place| place.line()),
                column: place.map_or(0, |place| place.column()),
            }
        })?;
    let kind = filled(&file.kind).unwrap_or("Config");
    let version = filled(&file.api_version).unwrap_or("v1");
    let path = path.to_path_buf();
    let names = [
        file.clusters.iter().flatten().map(|it| &*it.name.0).collect(),
        file.users.iter().flatten().map(|it| &*it.name.0).collect(),
        file.contexts.iter().flatten().map(|it| &*it.name.0).collect(),
    ];
    if let Some(name) = repeated(names) {
        return Err(KubeconfigError::RepeatedName { path, name: excerpt(name) });
    }
    if (kind, version) == ("Config", "v1") {
        return Ok(file);
    }
    Err(KubeconfigError::NotAConfig { path, kind: excerpt(kind), version: excerpt(version) })
}
