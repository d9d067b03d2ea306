//! The program as a command that ends by itself.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::plugin::program;

/// How a command ended, and its output.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `hub-addons` until it ends, with only these of its environment variables.
pub async fn hub_addons(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    ends(env!("CARGO_BIN_EXE_hub-addons").as_ref(), arguments, environment).await
}

/// Runs the kubectl plugin until it ends, without kubectl.
pub async fn kubectl_clusterprofile(arguments: &[&str]) -> Ended {
    ends(&program("kubectl-clusterprofile"), arguments, &[]).await
}

async fn ends(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let command = Command::new(program)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", "/nonexistent")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_mins(2), command).await;
    let output = output
        .unwrap_or_else(|_| panic!("{} {arguments:?} does not end", program.display()))
        .unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
