//! The exec plugin's program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::Value;

use super::building;

/// Where `cp-creds` is. Cargo builds the programs of a package for its own tests, and this is another package's: so the
/// first call has it built, which is a look at some timestamps where it was built before.
pub fn cp_creds() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = building::command(cargo)
        .args(["build", "--locked", "--quiet", "--package=cp-creds", "--bin=cp-creds"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "cp-creds does not build: {}", output.status);
    // Cargo says where: a target directory, a target or a profile may be set in its environment or configuration.
    let messages = String::from_utf8(output.stdout).unwrap();
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).unwrap();
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.unwrap_or_else(|| panic!("cargo does not say where cp-creds is: {messages}"))
}
