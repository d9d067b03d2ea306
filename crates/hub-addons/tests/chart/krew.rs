//! `hack/cli.sh`: the archives of kubectl-clusterprofile and the manifest for krew, which krew itself installs from. The
//! programs of other platforms are stand-ins here; the script builds them on demand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

use super::tools::Tools;
use crate::support::chart::{self, repository};
use crate::support::plugin::program;

const PLATFORMS: [(&str, &str); 6] = [
    ("linux", "amd64"),
    ("linux", "arm64"),
    ("darwin", "amd64"),
    ("darwin", "arm64"),
    ("windows", "amd64"),
    ("windows", "arm64"),
];

fn ran(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// krew, built if it is not.
static KREW: LazyLock<PathBuf> = LazyLock::new(|| chart::program("hack/go-program.sh", &["krew"]));

fn program_for(os: &str) -> &'static str {
    if os == "windows" { "kubectl-clusterprofile.exe" } else { "kubectl-clusterprofile" }
}

/// Packs these programs into a directory.
fn pack(binaries: &Path, output: &Path) {
    let mut command = Command::new(repository().join("hack/cli.sh"));
    command.arg("--binaries").arg(binaries).arg("--output").arg(output);
    ran(command.args(["--url", "https://publisher.test/"]));
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn krew_installs_the_program_of_each_platform_from_archives_that_are_the_same_bytes_twice() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (os, arch) in PLATFORMS {
        let platform = at("binaries").join(format!("{os}-{arch}"));
        fs::create_dir_all(&platform).unwrap();
        let file = platform.join(program_for(os));
        if (os, arch) == ("linux", "amd64") {
            fs::copy(program("kubectl-clusterprofile"), &file).unwrap();
        } else {
            fs::write(&file, format!("{os} on {arch}")).unwrap();
        }
    }
    pack(&at("binaries"), &at("first"));
    pack(&at("binaries"), &at("second"));
    let files = names(&at("first"));
    assert_eq!((files.len(), names(&at("second"))), (PLATFORMS.len() + 1, files.clone()));
    for file in &files {
        let read = |which: &str| fs::read(at(which).join(file)).unwrap();
        assert!(read("first") == read("second"), "{file} differs");
    }

    let manifest = at("first").join("clusterprofile.yaml");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(!text.contains("hub-addons.example"), "{text}");
    let plugin: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        (&plugin["kind"], &plugin["metadata"]["name"]),
        (&"Plugin".into(), &"clusterprofile".into())
    );
    let entries = plugin["spec"]["platforms"].as_array().unwrap();
    assert_eq!(entries.len(), PLATFORMS.len());
    for (entry, (os, arch)) in entries.iter().zip(PLATFORMS) {
        let labels = &entry["selector"]["matchLabels"];
        assert_eq!((&labels["os"], &labels["arch"]), (&os.into(), &arch.into()));
        let uri = entry["uri"].as_str().unwrap();
        let archive = at("first").join(uri.rsplit('/').next().unwrap());
        // krew checks the fields, the checksum, and that the archive has the files and the program.
        let home = at(&format!("krew-{os}-{arch}"));
        let mut install = Command::new(&*KREW);
        install.arg("install").arg(format!("--manifest={}", manifest.display()));
        install.arg(format!("--archive={}", archive.display()));
        ran(install.env("KREW_ROOT", &home).env("KREW_OS", os).env("KREW_ARCH", arch));
        let store =
            home.join("store/clusterprofile").join(plugin["spec"]["version"].as_str().unwrap());
        assert_eq!(names(&store), ["LICENSE".to_owned(), program_for(os).to_owned()].into());
        let (installed, given) =
            (store.join(program_for(os)), at("binaries").join(format!("{os}-{arch}")));
        assert!(fs::read(&installed).unwrap() == fs::read(given.join(program_for(os))).unwrap());
        if (os, arch) == ("linux", "amd64") {
            let version =
                ran(Command::new(home.join("bin/kubectl-clusterprofile")).arg("--version"));
            assert!(String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
        }
    }

    // An archive that is not the one of the manifest is refused.
    let wrong = at("first").join(entries[1]["uri"].as_str().unwrap().rsplit('/').next().unwrap());
    assert!(wrong.exists());
    let mut install = Command::new(&*KREW);
    install.arg("install").arg(format!("--manifest={}", manifest.display()));
    install.arg(format!("--archive={}", wrong.display())).stdin(Stdio::null());
    install.env("KREW_ROOT", at("krew-wrong")).env("KREW_OS", "linux").env("KREW_ARCH", "amd64");
    let output = install.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("checksum"), "{said}");
}

#[test]
fn only_tools_of_known_checksums_link_the_programs_and_only_the_targets_in_use_are_added() {
    let tools = Tools::new();
    // As one in PATH would be.
    tools.write("cargo-zigbuild", "echo used");
    let check = || {
        let platforms = ["--platform", "linux-amd64", "--platform", "darwin-arm64"];
        tools.run("hack/cli.sh", &[&["--check"][..], &platforms].concat())
    };
    ran(&mut check());
    let targets = ["x86_64-unknown-linux-musl", "aarch64-apple-darwin"]
        .map(|it| format!("rustup target add {it}"));
    let (before, pip) = tools.calls();
    assert_eq!(before, targets);
    let [pip] = &pip[..] else { panic!("{pip:?}") };
    for option in ["--require-hashes", "--only-binary :all:", "--requirement hack/zigbuild.txt"] {
        assert!(pip.contains(option), "no {option} in {pip}");
    }
    ran(&mut check());
    let (twice, none) = tools.calls();
    assert_eq!(twice, targets);
    assert!(none.is_empty(), "installed once");
}
