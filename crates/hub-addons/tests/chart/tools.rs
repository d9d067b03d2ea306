//! Stand-ins for the tools that install what the scripts in `hack` build with: they record how they are called.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::chart::repository;

/// A directory that is first in PATH, with an empty cache, where no Rust target is installed.
pub struct Tools {
    directory: TempDir,
}

impl Tools {
    pub fn new() -> Self {
        let tools = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(tools.at("bin")).unwrap();
        tools.write("rustc", "echo /nowhere");
        tools.write("rustup", "echo rustup \"$@\" >>\"$CALLS\"");
        // `python3 -m venv DIRECTORY`, whose pip installs into `--prefix DIRECTORY`, the last argument.
        tools.write(
            "python3",
            r#"mkdir -p "$3/bin"
cat >"$3/bin/pip" <<'PIP'
#!/usr/bin/env bash
echo pip "$@" >>"$CALLS"
mkdir -p "${@: -1}/bin" "${@: -1}/lib/python3/site-packages"
printf '#!/usr/bin/env bash\n' >"${@: -1}/bin/cargo-zigbuild"
chmod +x "${@: -1}/bin/cargo-zigbuild"
PIP
chmod +x "$3/bin/pip""#,
        );
        tools
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a stand-in.
    pub fn write(&self, name: &str, script: &str) {
        let file = self.at("bin").join(name);
        fs::write(&file, format!("#!/usr/bin/env bash\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A command that runs a script of the repository with these tools.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(repository().join(script));
        let path = std::env::var("PATH").unwrap();
        command.args(arguments).env("PATH", format!("{}:{path}", self.at("bin").display()));
        command.env("XDG_CACHE_HOME", self.at("cache")).env("CALLS", self.at("calls"));
        command.env("CARGO_TARGET_DIR", self.at("target"));
        command
    }

    /// What was called since the last time: each call of rustup, and each of pip.
    pub fn calls(&self) -> (Vec<String>, Vec<String>) {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.at("calls"));
        calls.lines().map(str::to_owned).partition(|call| call.starts_with("rustup "))
    }
}
