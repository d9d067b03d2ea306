//! The exec plugin's program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::Value;

use super::building;

/// The path of `cp-creds`. Cargo builds the programs of a package only for its own tests, and this is another package:
/// the first call builds it, which only checks timestamps if it is up to date.
pub fn cp_creds() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("cp-creds"))
}

/// Where the program is that a package of the same name has.
pub fn program(name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = building::command(cargo)
        // With the packages and the kind of targets that the tests are built of: any other choice selects other features
        // of the dependencies, and compiles them a second time.
        .args(["build", "--locked", "--quiet", "--workspace", "--features", "e2e"])
        .args(["--bin", name, "--test", "hubs"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name} does not build: {}", output.status);
    // Cargo prints the path: its environment or configuration may set a target directory, a target or a profile.
    let messages = String::from_utf8(output.stdout).unwrap();
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).unwrap();
        let executable =
            message["executable"].as_str().filter(|_| message["target"]["name"] == name);
        executable.map(PathBuf::from)
    });
    executable.unwrap_or_else(|| panic!("cargo does not print the path of {name}: {messages}"))
}
