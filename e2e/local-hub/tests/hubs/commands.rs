//! The commands for scripts that stand in for Open Cluster Management's addons.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

#[allow(dead_code, reason = "shared")]
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use local_hub::{LocalHub, OCM, eventually, ocm};

use crate::support::{SOON, hub, managed};

fn local_hub(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local-hub"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A user server as a script starts it.
struct Server {
    process: Child,
    /// The exports in its last lines.
    exports: BTreeMap<String, String>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut process = command(arguments).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.map(Result::unwrap).take(5).collect();
        assert!(lines.len() == 5 && lines[4].starts_with("ready url=https://127.0.0.1:"), "{lines:?}");
        let exports = lines[..4].iter().map(|line| {
            let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
            (name.to_owned(), value.trim_matches('\'').to_owned())
        });
        Self { process, exports: exports.collect() }
    }

    fn end(mut self, how: &str) {
        match how {
            "stdin" => drop(self.process.stdin.take()),
            signal => {
                let id = self.process.id().to_string();
                assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
            }
        }
        assert!(self.process.wait().unwrap().success(), "{how}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_script_gives_a_token_its_way_to_a_cluster() {
    let [hub, one] = LocalHub::start_many([hub(), managed()]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let at_hub = hub.kubeconfig_for(OCM).unwrap().display().to_string();
    let at_one = one.kubeconfig_for(OCM).unwrap().display().to_string();
    let report =
        ["report-token", "--hub", &at_hub, "--managed", &at_one, "--cluster", "one", "--msa", "my-app"];

    let none = local_hub(&report);
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("ManagedServiceAccount one/my-app"), "{none:?}");
    let ocm = hub.client_as(OCM).await.unwrap();
    ocm::namespace("one").create(&ocm).await.unwrap();
    ocm::managed_service_account("one", "my-app").create(&ocm).await.unwrap();
    let reported = local_hub(&[&report[..], &["--validity", "8640h0m0s"]].concat());
    assert!(reported.status.success(), "{reported:?}");
    let secrets: Api<Secret> = Api::namespaced(ocm, "one");
    let data = secrets.get("my-app").await.unwrap().data.unwrap();
    assert_eq!(text(&data["ca.crt"].0), one.ca_pem());
    let token = text(&data["token"].0);
    assert!(!text(&reported.stderr).contains(&token) && reported.stdout.is_empty());

    // An existing file is not this server's.
    let (serving, ready) = (at("serving"), at("ready"));
    std::fs::write(&ready, "export USER_SERVER_URL=nowhere").unwrap();
    let cluster = format!("one={at_one}");
    let arguments = [
        "user-server",
        "--serving-dir",
        &serving,
        "--cluster",
        &cluster,
        "--ready-file",
        &ready,
        "--name",
        "proxy.example",
        "--until-stdin-closes",
    ];
    let server = Server::start(&arguments);
    let sourced = Command::new("sh")
        .args(["-c", ". \"$0\"; echo \"$USER_SERVER_URL $USER_SERVER_CERT\"", &ready])
        .output()
        .unwrap();
    let (url, ca) = (&server.exports["USER_SERVER_URL"], &server.exports["USER_SERVER_CA"]);
    assert_eq!(text(&sourced.stdout), format!("{url} {}\n", server.exports["USER_SERVER_CERT"]));
    let chain = std::fs::read_to_string(&server.exports["USER_SERVER_CERT"]).unwrap();
    assert!(chain.ends_with(&std::fs::read_to_string(ca).unwrap()));

    let no_kubeconfig = directory.path().join("none");
    std::fs::write(&no_kubeconfig, "").unwrap();
    let kubectl = one.kubectl_with(&no_kubeconfig).unwrap();
    let through = ["--server", &format!("{url}/one"), "--certificate-authority", ca, "--token", &token];
    let who = [&through[..], &["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]].concat();
    let output = kubectl.run(&who).await.unwrap();
    assert_eq!(
        text(&output.stdout),
        "system:serviceaccount:open-cluster-management-agent-addon:my-app",
        "{output:?}"
    );
    // Also by the given name.
    let named = [&who[..], &["--tls-server-name", "proxy.example"]].concat();
    assert!(kubectl.run(&named).await.unwrap().status.success());
    server.end("stdin");
    assert!(!Path::new(&ready).exists());

    // The next one uses the same certificate.
    let server = Server::start(&arguments);
    assert_eq!(std::fs::read_to_string(&server.exports["USER_SERVER_CERT"]).unwrap(), chain);
    server.end("TERM");

    // A certificate without its key is not completed by another key.
    std::fs::remove_file(directory.path().join("serving/tls.key")).unwrap();
    let refused = local_hub(&arguments);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("some of its files are missing"), "{refused:?}");
}

#[tokio::test]
async fn a_server_that_is_killed_serves_no_more_requests() {
    let one = managed().start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let serving = directory.path().display().to_string();
    let cluster = format!("one={}", one.kubeconfig_for(OCM).unwrap().display());
    let arguments = ["user-server", "--serving-dir", &serving, "--cluster", &cluster, "--until-stdin-closes"];
    let mut server = Server::start(&arguments);
    let address = server.exports["USER_SERVER_URL"].trim_start_matches("https://").to_owned();
    std::net::TcpStream::connect(&address).unwrap();
    server.process.kill().unwrap();
    eventually("nobody listens", SOON, async || std::net::TcpStream::connect(&address).is_err()).await;
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let serving = directory.path().display().to_string();
    let missing = directory.path().join("missing").display().to_string();
    for (arguments, reason) in [
        (vec!["user-server", "--serving-dir", &serving], "--cluster"),
        (vec!["user-server", "--serving-dir", &serving, "--cluster", "one"], "expected NAME=KUBECONFIG"),
        (
            vec!["user-server", "--serving-dir", &serving, "--cluster", &format!("one={missing}")],
            missing.as_str(),
        ),
        (
            vec![
                "report-token",
                "--hub",
                &missing,
                "--managed",
                &missing,
                "--cluster",
                "one",
                "--msa",
                "app",
                "--validity=-1h",
            ],
            "must be positive",
        ),
    ] {
        let refused = local_hub(&arguments);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(text(&refused.stderr).contains(reason), "{refused:?}");
    }
    // And nothing has been made.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
