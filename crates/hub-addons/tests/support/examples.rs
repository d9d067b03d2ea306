//! `deploy/examples`, as it is in the repository.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::chart::repository;

/// The clusters of the examples.
pub const CLUSTERS: [&str; 2] = ["cluster1", "cluster2"];

/// Where an example is.
pub fn directory(example: &str) -> PathBuf {
    repository().join("deploy/examples").join(example)
}

/// The documents of a file.
pub fn documents(example: &str, file: &str) -> Vec<Value> {
    let path = directory(example).join(file);
    let text = fs::read_to_string(&path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
