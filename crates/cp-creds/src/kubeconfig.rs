//! Reads kubeconfig files.
//!
//! As in kubectl, `KUBECONFIG` is a list, files in it that do not exist are skipped, and the first of several entries
//! with one name takes precedence. Of a file, the first document counts, and the last of equal keys. Paths in it are
//! relative to the file.

mod context;
mod file;

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use client_config::{first_document, read_text, repeated};
use serde_saphyr::DuplicateKeyPolicy;

use file::{File, filled};

use crate::api_server::ApiServer;
use crate::environment::Environment;
use crate::names::excerpt;

/// The hub of the current context, and the namespace that the context sets. Reads the files of `KUBECONFIG`, else
/// `~/.kube/config`.
pub fn hub(environment: &Environment) -> Result<(ApiServer, Option<String>)> {
    let paths = paths(environment);
    let mut files = Vec::new();
    for path in &paths {
        match read_text(path) {
            Ok(text) => files.push((path.parent().unwrap_or(path), parse(&text, path)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read kubeconfig {}", path.display()));
            }
        }
    }
    if files.is_empty() {
        let looked_at: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "cannot find the hub: not in a pod with a ServiceAccount token, and no kubeconfig at {}",
            looked_at.join(", ")
        );
    }
    context::resolve(&files).context("cannot use the kubeconfig's current context")
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

/// The parser's message is omitted: it quotes the text around the error, which may be a credential.
fn parse(text: &str, path: &Path) -> Result<File> {
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let shown = path.display();
    let file: File =
        serde_saphyr::from_str_with_options(first_document(text), options).map_err(|error| {
            let place = error.location().map_or((0, 0), |place| (place.line(), place.column()));
            anyhow!("{shown} is not a valid kubeconfig: line {}, column {}", place.0, place.1)
        })?;
    let kind = filled(&file.kind).unwrap_or("Config");
    let version = filled(&file.api_version).unwrap_or("v1");
    let names = [
        file.clusters().map(|it| it.0).collect(),
        file.users().map(|it| it.0).collect(),
        file.contexts().map(|it| it.0).collect(),
    ];
    if let Some(name) = repeated(names) {
        // kubectl refuses it, too.
        bail!("{shown} has two clusters, users or contexts with the name {}", excerpt(name));
    }
    ensure!(
        (kind, version) == ("Config", "v1"),
        "{shown} is not a kubeconfig: it is {} {}, expected Config v1",
        excerpt(kind),
        excerpt(version)
    );
    Ok(file)
}
