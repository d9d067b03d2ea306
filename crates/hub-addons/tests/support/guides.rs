//! The guides in `docs` and elsewhere, as they are in the repository.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use local_hub::LocalHub;
use tempfile::TempDir;

use super::chart::repository;

/// A block of a guide between fences.
#[derive(Debug)]
pub struct Block {
    /// The language after the fence, such as `sh` or `yaml`.
    pub language: String,
    /// The content, without the indentation of the fence.
    pub text: String,
}

/// The blocks of a guide, by its path in the repository.
pub fn blocks(guide: &str) -> Vec<Block> {
    let text = fs::read_to_string(repository().join(guide)).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((indent, language)) = line.split_once("```") else { continue };
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block: Vec<_> = block.map(|line| line.strip_prefix(indent).unwrap_or(line)).collect();
        blocks.push(Block { language: language.to_owned(), text: block.join("\n") });
    }
    assert!(!blocks.is_empty(), "{guide}");
    blocks
}

/// The commands of a block. Lines that a backslash joins are one command.
pub fn commands(block: &Block) -> Vec<String> {
    let joined = block.text.replace("\\\n", "");
    joined.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A shell as the reader of a guide has it: an administrator of the hub, with these programs on the path.
pub struct Reader {
    directory: TempDir,
    kubeconfig: PathBuf,
    path: OsString,
}

impl Reader {
    pub fn of(hub: &LocalHub, programs: &[&Path]) -> Self {
        let kubectl = hub.bin_dir().join("kubectl");
        let programs = programs.iter().copied().chain([kubectl.as_path()]);
        let own = programs.map(|program| program.parent().unwrap().to_owned());
        let inherited = std::env::var_os("PATH").unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            kubeconfig: hub.kubeconfig_for("admin").unwrap(),
            path: std::env::join_paths(own.chain(std::env::split_paths(&inherited))).unwrap(),
        }
    }

    /// The home and, unless another is given, the working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs commands in a working directory until they end, or one fails.
    pub async fn runs_in(&self, directory: &Path, commands: &str) -> Output {
        tokio::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(directory)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.directory())
            .env_remove("HELM_NAMESPACE")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap()
    }

    /// Runs commands in the home.
    pub async fn runs(&self, commands: &str) -> Output {
        self.runs_in(self.directory(), commands).await
    }
}
