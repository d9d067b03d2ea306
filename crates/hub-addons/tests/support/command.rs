//! The program as a command that ends by itself.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::plugin::program;

/// How a command ended, and its output.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Expects success, and returns the output.
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The codes of the problems in the output, each once.
    pub fn problems(&self) -> Vec<String> {
        let findings = self.json()["findings"].as_array().unwrap().clone();
        let wrong = findings.iter().filter(|finding| finding["mark"] == "problem");
        let mut codes: Vec<_> =
            wrong.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect();
        codes.dedup();
        codes
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }
}

/// The output of a command, which must succeed.
#[track_caller]
pub fn succeeded(output: Output) -> String {
    Ended::from(output).succeeded()
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
    let output =
        output.unwrap_or_else(|_| panic!("{} {arguments:?} does not end", program.display()));
    output.unwrap().into()
}
