//! Applications that are written in Go, in `e2e`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds one, and returns its path. Go caches builds, so a second call is fast.
pub fn build(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-o"])
        .args([program.as_path(), Path::new(".")])
        .envs([("GOWORK", "off"), ("CGO_ENABLED", "0")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e").join(name))
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{name} does not build: {status}");
    program
}
