//! The plugin's program, as a caller runs it.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "clippy only knows #[test] functions as tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{OWN_TOKEN, exec_info, synced_token};

/// The plugin, which runs only with what a test provides.
pub struct Plugin {
    directory: TempDir,
    command: Command,
}

impl Plugin {
    /// The documented call for `cluster1`, with this kubeconfig.
    pub fn with(kubeconfig: &Value) -> Self {
        let mut plugin = Self::bare();
        let path = plugin.write("config", &kubeconfig.to_string());
        plugin.command.arg("--managed-serviceaccount=multikueue").env("KUBECONFIG", path);
        plugin.env("KUBERNETES_EXEC_INFO", &exec_info("v1", &json!({"clusterName": "cluster1"})))
    }

    /// The plugin without arguments and environment.
    pub fn bare() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cp-creds"));
        command.env_clear();
        Self { directory: TempDir::new().unwrap(), command }
    }

    pub fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Runs it, expects success, and returns its output.
    pub fn prints(mut self) -> String {
        let output = self.command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it, expects success, and returns its response.
    pub fn answers(self) -> Value {
        serde_json::from_str(&self.prints()).unwrap()
    }

    /// Runs it and expects a failure with nothing on stdout, one line on stderr, and no secret in it.
    pub fn fails(mut self) -> String {
        let Output { status, stdout, stderr } = self.command.output().unwrap();
        let line = String::from_utf8(stderr).unwrap();
        assert!(!status.success() && status.code().is_some(), "{status}: {line}");
        assert!(stdout.is_empty(), "{line}");
        assert_eq!((line.lines().count(), line.ends_with('\n')), (1, true), "{line}");
        assert!(line.starts_with("cp-creds: ") && line.len() < 600, "{line}");
        for secret in [
            OWN_TOKEN.to_owned(),
            STANDARD.encode(OWN_TOKEN),
            synced_token(),
            STANDARD.encode(synced_token()),
        ] {
            let secret: Vec<char> = secret.chars().collect();
            for part in secret.windows(10) {
                assert!(!line.contains(&part.iter().collect::<String>()), "{line}");
            }
        }
        line
    }
}
