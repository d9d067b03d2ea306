//! An application built on cluster-inventory-api's own library: `e2e/inventory-client`, which lists its clusters on
//! request.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use local_hub::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::proxy::NAME;
use super::{SOON, go_program};

/// The running application.
pub struct InventoryClient {
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    _child: Child,
}

impl InventoryClient {
    /// Starts it in a namespace, with a kubeconfig for the hub and the exec plugin to call; `directory` is for its
    /// configuration.
    pub fn start(directory: &Path, kubeconfig: &Path, namespace: &str, exec: &Value) -> Self {
        let file = directory.join(format!("{namespace}.providers.json"));
        let providers = json!({ "providers": [{ "name": NAME, "execConfig": exec }] });
        std::fs::write(&file, providers.to_string()).unwrap();
        let mut child = Command::new(program())
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--namespace={namespace}"))
            .arg(format!("--clusterprofile-provider-file={}", file.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { pipes: Mutex::new((input, BufReader::new(output).lines())), _child: child }
    }

    /// Its view of the clusters: for each profile's name the `namespaces` of the cluster, or the `error`.
    pub async fn look(&self) -> Value {
        let mut pipes = self.pipes.lock().await;
        pipes.0.write_all(b"\n").await.unwrap();
        let line = tokio::time::timeout(SOON, pipes.1.next_line()).await.unwrap().unwrap();
        let line =
            line.unwrap_or_else(|| panic!("inventory-client has ended; see its output above"));
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until it reaches exactly these clusters.
    pub async fn reaches(&self, clusters: &[&str]) {
        eventually(&format!("the library reaches {clusters:?}"), SOON, async || {
            let found = self.look().await;
            let reached = |cluster: &&str| {
                let namespaces = found[cluster]["namespaces"].as_array();
                namespaces.is_some_and(|names| names.contains(&json!(format!("only-in-{cluster}"))))
            };
            let all =
                found.as_object().unwrap().len() == clusters.len() && clusters.iter().all(reached);
            if all { Ok(()) } else { Err(format!("{found:#}")) }
        })
        .await;
    }
}

/// The path of the program.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| go_program::build("inventory-client"))
}
