//! Builds what a test needs and cargo does not build for it.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// A command that builds, without the environment of this test's package: crates that read such variables at build time
/// (ring does) would be rebuilt, and rebuilt again by the next build.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
