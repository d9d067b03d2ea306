//! promtool, Prometheus's own checker of rules.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

use tokio::process::Command;

use crate::support::chart::program;

/// Runs it and expects success. The first call on a machine builds it, which takes minutes.
pub async fn promtool(arguments: &[&str]) {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| program("hack/go-program.sh", &["promtool"]));
    let output =
        Command::new(&*PROGRAM).args(arguments).stdin(Stdio::null()).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}
