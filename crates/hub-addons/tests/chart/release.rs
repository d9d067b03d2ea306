//! `hack/release.sh`: one folder with everything that a release publishes. The images are small ones built here;
//! `hack/check-image.sh` checks the contents of real ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::tools::Tools;
use crate::support::chart::{helm, repository, run};

fn command(program: &str, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(directory)
        .env_remove("HUB_ADDONS_VERSION")
        .env("HELM", helm())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What a release is built from, at its tag.
fn tagged(directory: &Path) -> PathBuf {
    let source = directory.join("source");
    let script = "mkdir $0 && git ls-files -z .gitignore Cargo.toml LICENSE charts hack | xargs -0 cp --parents -t $0 && \
                  cd $0 && git init --quiet && git add . && \
                  git -c user.name=n -c user.email=e commit --quiet --message release && git tag $1";
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    let ended = command("sh", repository(), &["-c", script, source.to_str().unwrap(), tag]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    source
}

fn sha256(file: &Path) -> String {
    let output = command("sha256sum", Path::new("/"), &[file.to_str().unwrap()]);
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// An OCI archive of an image with one blob, which is its manifest.
fn archive(directory: &Path, image: &str, arch: &str) {
    let layout = directory.join(format!("{image}-{arch}"));
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let manifest = json!({ "schemaVersion": 2, "image": image, "arch": arch }).to_string();
    let file = layout.join("manifest");
    fs::write(&file, &manifest).unwrap();
    let digest = sha256(&file);
    fs::rename(&file, layout.join("blobs/sha256").join(&digest)).unwrap();
    let descriptor = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": format!("sha256:{digest}"),
        "size": manifest.len(),
    });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    let archive = directory.join(format!("{image}-{arch}.oci.tar"));
    let ended = command("tar", &layout, &["-cf", archive.to_str().unwrap(), "blobs", "index.json"]);
    assert!(ended.status.success());
}

/// Every descriptor below one leads to a blob of its digest and size.
fn follow(layout: &Path, descriptor: &Value, seen: &mut Vec<String>) {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let blob = layout.join("blobs/sha256").join(digest);
    assert_eq!(sha256(&blob), digest);
    assert_eq!(fs::metadata(&blob).unwrap().len(), descriptor["size"].as_u64().unwrap());
    seen.push(descriptor["mediaType"].as_str().unwrap().to_owned());
    if descriptor["mediaType"].as_str().unwrap().ends_with("json") {
        let value: Value = serde_json::from_slice(&fs::read(&blob).unwrap()).unwrap();
        let lists =
            ["manifests", "layers"].map(|list| value[list].as_array().cloned().unwrap_or_default());
        for below in
            lists.iter().flatten().chain(Some(&value["config"]).filter(|it| it.is_object()))
        {
            follow(layout, below, seen);
        }
    }
}

/// Images and programs of these architectures, each in a directory.
fn inputs(directory: &Path, arches: &[&str]) -> (PathBuf, PathBuf) {
    let (images, binaries) = (directory.join("images"), directory.join("binaries"));
    fs::create_dir(&images).unwrap();
    for arch in arches {
        for image in ["hub-addons", "cp-creds"] {
            archive(&images, image, arch);
            fs::write(images.join(format!("{image}-{arch}.cdx.json")), "{}").unwrap();
        }
        for (os, suffix) in [("linux", ""), ("darwin", ""), ("windows", ".exe")] {
            let platform = binaries.join(format!("{os}-{arch}"));
            fs::create_dir_all(&platform).unwrap();
            fs::write(platform.join(format!("kubectl-clusterprofile{suffix}")), "a program")
                .unwrap();
        }
    }
    (images, binaries)
}

/// Every address below the publisher's leads to what GitHub serves there: a file of the tagged tree, or a file that the
/// workflow uploads.
fn addresses_exist(release: &Path, text: &str) {
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    let workflow = fs::read_to_string(repository().join(".github/workflows/release.yml")).unwrap();
    let ends = |character: char| character.is_whitespace() || "\"')>`".contains(character);
    let mut found = Vec::new();
    for rest in text.split("https://publisher.test").skip(1) {
        let path = rest.split(ends).next().unwrap().trim_end_matches(['.', ',', '/']);
        let path = path.split('#').next().unwrap();
        let parts: Vec<_> = path.trim_start_matches('/').splitn(4, '/').collect();
        let exists = match parts[..] {
            [""] => true,
            ["blob" | "raw", at, ..] => {
                at == tag && repository().join(parts[2..].join("/")).is_file()
            }
            ["releases", "download", at, file] => {
                at == tag
                    && release.join("cli").join(file).is_file()
                    && workflow.contains("release/cli/*")
            }
            _ => false,
        };
        assert!(exists, "{path:?} does not exist");
        found.push(parts[0]);
    }
    for kind in ["blob", "raw", "releases"] {
        assert!(found.contains(&kind), "{found:?}");
    }
}

#[tokio::test]
async fn a_release_is_one_folder_that_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (images, binaries) = inputs(directory.path(), &["amd64", "arm64"]);
    let helm = helm();
    let source = tagged(directory.path());
    let output = source.join("release");
    let images = images.to_str().unwrap();
    let release = |more: &[&str]| {
        let binaries = ["--binaries", binaries.to_str().unwrap()];
        // As in the workflow, the directory is in the tree, and not ignored.
        let arguments =
            ["--images", images, "--output", "release", "--url", "https://publisher.test/"];
        let arguments = [&arguments[..], &binaries].concat();
        command("hack/release.sh", &source, &[&arguments, more].concat())
    };
    let ended = release(&["--registry", "registry.test/team", "--artifact-hub", "an-id"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

    // What the workflow uploads has no directories.
    let workflow = fs::read_to_string(repository().join(".github/workflows/release.yml")).unwrap();
    let upload = workflow.lines().find(|line| line.contains("gh release create")).unwrap();
    let is_there = |word: &&str| word.starts_with("release/") && !word.contains(".sigstore.");
    let files = upload.split(' ').filter(is_there).collect::<Vec<_>>().join(" ");
    let uploaded = format!(
        "mkdir uploaded && cp {files} uploaded && cd uploaded && sha256sum --check --strict SHA256SUMS"
    );
    let sums = command("sh", &source, &["-c", &uploaded]);
    let listed = String::from_utf8(sums.stdout).unwrap();
    let count = fs::read_dir(source.join("uploaded")).unwrap().count();
    assert!(sums.status.success() && listed.lines().count() + 1 == count, "{listed}");
    for file in ["clusterprofile.yaml", "windows-amd64.tar.gz", "cp-creds-arm64.cdx.json"] {
        assert!(listed.contains(file), "{listed}");
    }
    let layout = output.join("oci");
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let mut names = Vec::new();
    for entry in index["manifests"].as_array().unwrap() {
        let name = entry["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
        let mut seen = Vec::new();
        follow(&layout, entry, &mut seen);
        let kinds = [
            ("chart-", "helm.chart.content"),
            ("artifact-hub", "artifacthub.repository-metadata.layer"),
        ];
        let kind = kinds.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        let expected = kind.map_or("image.manifest", |(_, kind)| kind);
        assert!(seen.iter().any(|kind| kind.contains(expected)), "{name}: {seen:?}");
        if kind.is_none() {
            let blob = entry["digest"].as_str().unwrap().replace(':', "/");
            let index: Value =
                serde_json::from_slice(&fs::read(layout.join("blobs").join(blob)).unwrap())
                    .unwrap();
            let of: Vec<&Value> = index["manifests"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| &it["platform"]["architecture"])
                .collect();
            assert_eq!(of, ["amd64", "arm64"]);
        }
        names.push(name.split('-').next().unwrap().to_owned());
    }
    assert_eq!(names, ["hub", "cp", "chart", "artifact"]);

    // The chart is of its publisher.
    let charts: Vec<_> =
        fs::read_dir(output.join("charts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [chart] = &charts[..] else { panic!("{charts:?}") };
    let text = run(helm, None, &["show", "all", chart.to_str().unwrap()]).await.stdout;
    assert!(!text.contains("hub-addons.example"), "{text}");
    let pages =
        ["README.md", "RUNBOOK.md", "values-acm.yaml"].map(|page| format!("hub-addons/{page}"));
    let extract =
        [&["-xOf", chart.to_str().unwrap()], &pages.each_ref().map(String::as_str)[..]].concat();
    let pages = String::from_utf8(command("tar", &output, &extract).stdout).unwrap();
    for absent in ["](../", "$VERSION", "$REGISTRY", "--values charts/"] {
        assert!(!pages.contains(absent), "{absent} in {pages}");
    }
    assert!(pages.contains(" oci://registry.test/team/charts/hub-addons --version "), "{pages}");
    let krew = fs::read_to_string(output.join("cli/clusterprofile.yaml")).unwrap();
    addresses_exist(&output, &(text + &krew + &pages));
    let rendered = run(helm, None, &["template", "it", chart.to_str().unwrap()]).await.stdout;
    let hub_addons = index["manifests"][0]["digest"].as_str().unwrap();
    let image = format!("image: \"registry.test/team/hub-addons@{hub_addons}\"");
    assert!(rendered.contains(&image), "{image} in {rendered}");
    let template = ["template", "it", chart.to_str().unwrap(), "--set=image.tag=v9"];
    let tagged = run(helm, None, &template).await.stderr;
    assert!(tagged.contains("image.tag would have no effect beside image.digest"), "{tagged}");

    let again = release(&[]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("exists"));
}

#[test]
fn a_release_of_one_architecture_has_the_programs_of_this_architecture_alone() {
    let directory = tempfile::tempdir().unwrap();
    let source = tagged(directory.path());
    fs::write(source.join("LICENSE"), "another").unwrap();
    let (images, binaries) = inputs(directory.path(), &["arm64"]);
    let output = directory.path().join("release");
    let release = |arch: &str| {
        let [images, binaries, output] =
            [&images, &binaries, &output].map(|path| path.to_str().unwrap());
        let arguments =
            ["--images", images, "--binaries", binaries, "--output", output, "--arch", arch];
        command("hack/release.sh", &source, &arguments)
    };
    // What is missing is found before anything is written.
    let ended = release("amd64");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("linux-amd64/kubectl-clusterprofile does not"), "{said}");
    assert!(!ended.status.success() && !output.exists());
    let ended = release("arm64");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let archives =
        fs::read_dir(output.join("cli")).unwrap().map(|it| it.unwrap().file_name().into_string());
    let mut archives: Vec<_> = archives.map(Result::unwrap).collect();
    archives.sort();
    // Since the tree has changed, everything is named after the commit and the changes.
    let version = command("hack/version.sh", &source, &[]).stdout;
    let version = String::from_utf8(version).unwrap().trim_end().to_owned();
    let suffix = version.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), "-dev.g")).unwrap();
    let chart = fs::read_dir(output.join("charts")).unwrap().next().unwrap().unwrap().file_name();
    assert!(chart.to_string_lossy().ends_with(&format!("-dev.g{suffix}.tgz")), "{chart:?}");
    let of = |os: &str| format!("kubectl-clusterprofile-{version}-{os}-arm64.tar.gz");
    let systems = ["darwin", "linux", "windows"].map(of);
    assert_eq!(archives, [&["clusterprofile.yaml".to_owned()], &systems[..]].concat());
}

#[test]
fn the_tools_for_the_programs_are_checked_before_images_are_built() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("release");
    let tools = Tools::new();
    tools.write("rustup", "exit 1");
    let arguments = ["--arch", "amd64", "--output", output.to_str().unwrap()];
    let ended = tools.run("hack/release.sh", &arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("cannot add the Rust target x86_64-unknown-linux-musl"), "{said}");
    assert!(!output.exists(), "no image is built");
}

#[test]
fn a_build_has_the_version_of_a_release_only_if_it_is_that_release() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("hack")).unwrap();
    fs::copy(repository().join("hack/version.sh"), path("hack/version.sh")).unwrap();
    fs::write(path("Cargo.toml"), "[workspace.package]\nversion = \"1.2.3\"\n").unwrap();
    let git = |arguments: &str| {
        let name = ["-c", "user.name=n", "-c", "user.email=e"];
        let arguments: Vec<_> = name.into_iter().chain(arguments.split(' ')).collect();
        assert!(command("git", directory.path(), &arguments).status.success(), "{arguments:?}");
    };
    let version = || {
        let ended = command("hack/version.sh", directory.path(), &[]);
        String::from_utf8(ended.stdout).unwrap()
    };
    assert_eq!(version(), "1.2.3-dev\n", "no commit is known");
    git("init --quiet");
    git("add .");
    git("commit --quiet --message first");
    let first = version();
    assert!(first.starts_with("1.2.3-dev.g"), "{first}");
    git("tag v1.2.2");
    assert_eq!(version(), first);
    git("tag v1.2.3");
    assert_eq!(version(), "1.2.3\n");
    let mut seen = vec!["1.2.3\n".to_owned(), first];
    for change in ["a", "b"] {
        let manifest = format!("[workspace.package]\nversion = \"1.2.3\"\n# {change}\n");
        fs::write(path("Cargo.toml"), manifest).unwrap();
        let changed = version();
        assert!(changed.starts_with(seen[1].trim_end()), "{changed} in {seen:?}");
        assert!(!seen.contains(&changed), "{changed} in {seen:?}");
        seen.push(changed);
    }
}
