//! promtool, Prometheus's own checker of rules.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::support::chart::repository;

/// Runs it and expects success. The first call on a machine builds it, which takes minutes.
pub async fn promtool(arguments: &[&str]) {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let program = PROGRAM.get_or_init(find).await;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

async fn find() -> PathBuf {
    let script = repository().join("hack/go-program.sh");
    let mut command = Command::new(&script);
    let output = command
        .arg("promtool")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{} fails: {}", script.display(), output.status);
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}
