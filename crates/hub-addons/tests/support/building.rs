//! What a test needs and cargo does not build for it.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// A command that builds. Of this test's package it knows nothing: crates that read such variables when they are built
/// (ring does) would be built anew, and again by whoever builds next.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
