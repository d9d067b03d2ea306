//! In a pod: the API server from two environment variables, and the files of the ServiceAccount below another root.

#![allow(clippy::unwrap_used, reason = "clippy only knows #[test] functions as tests")]

mod support;

use std::fs;
use std::path::Path;

use client_config::ProxyVariables;
use cp_creds::cli::{Arguments, DEFAULT_TIMEOUT, Source};
use cp_creds::environment::Environment;
use cp_creds::{credential, in_one_line};
use serde_json::{Value, json};
use support::{Hub, OWN_TOKEN, exec_info, found};
use tempfile::TempDir;

const FILES: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// A pod's root, with a ServiceAccount of namespace `ns` that may talk to this hub.
fn pod(hub: &Hub) -> TempDir {
    let root = TempDir::new().unwrap();
    let files = root.path().join(FILES);
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("token"), format!("{OWN_TOKEN}\n")).unwrap();
    fs::write(files.join("ca.crt"), hub.authority.pem()).unwrap();
    fs::write(files.join("namespace"), "ns").unwrap();
    root
}

fn environment(hub: &Hub, root: &Path) -> Environment {
    Environment {
        exec_info: Some(exec_info("v1", &json!({"clusterName": "cluster1"}))),
        namespace: None,
        service_host: Some("127.0.0.1".to_owned()),
        service_port: Some(hub.port.to_string()),
        kubeconfig: None,
        home: None,
        proxies: ProxyVariables::default(),
        root: root.to_path_buf(),
    }
}

fn answer(environment: Environment) -> anyhow::Result<Value> {
    let arguments = Arguments {
        source: Source::Synced { account: "multikueue".to_owned(), namespace: None },
        cluster: None,
        server: None,
        timeout: DEFAULT_TIMEOUT,
    };
    credential(arguments, environment).map(|json| serde_json::from_str(&json).unwrap())
}

fn refused(environment: Environment) -> String {
    in_one_line(&answer(environment).unwrap_err())
}

#[test]
fn a_pod_needs_no_configuration_and_goes_before_a_kubeconfig() {
    let hub = Hub::answering(found());
    let root = pod(&hub);
    let broken = root.path().join("config");
    fs::write(&broken, "not: [a kubeconfig").unwrap();
    for kubeconfig in [None, Some(broken.into())] {
        let environment = Environment { kubeconfig, ..environment(&hub, root.path()) };
        let answer = answer(environment).unwrap();
        assert_eq!(answer["status"]["token"], support::synced_token());
    }
    let head = hub.heads().remove(0);
    assert!(
        head.contains("/namespaces/ns/") && head.contains(&format!("Bearer {OWN_TOKEN}\r\n")),
        "{head}"
    );
}

#[test]
fn a_pod_without_a_service_account_uses_a_kubeconfig() {
    let hub = Hub::answering(found());
    let root = TempDir::new().unwrap();
    let kubeconfig = root.path().join("config");
    fs::write(&kubeconfig, hub.kubeconfig().to_string()).unwrap();
    let with_kubeconfig =
        Environment { kubeconfig: Some(kubeconfig.into()), ..environment(&hub, root.path()) };
    assert!(answer(with_kubeconfig).is_ok());
    let line = refused(environment(&hub, root.path()));
    assert!(line.contains("cannot find the hub"), "{line}");
}

#[test]
fn the_environment_goes_before_the_pods_own_namespace() {
    let hub = Hub::answering(support::response("404 Not Found", ""));
    let root = pod(&hub);
    let line = refused(Environment {
        namespace: Some("elsewhere".to_owned()),
        ..environment(&hub, root.path())
    });
    assert!(
        line.contains("failed to get synced credential secret elsewhere/cluster1-multikueue"),
        "{line}"
    );
}

#[test]
fn a_service_account_that_is_broken_is_not_passed_over() {
    let hub = Hub::answering(found());
    for (file, content, words) in [
        ("token", Some(""), "token is not a valid bearer token: it is empty"),
        ("ca.crt", Some("x"), "contains no certificate"),
        ("ca.crt", None, "cannot read"),
        ("namespace", Some("../x"), "not a valid DNS name"),
    ] {
        let root = pod(&hub);
        let path = root.path().join(FILES).join(file);
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let line = refused(environment(&hub, root.path()));
        assert!(line.contains(words) && !line.contains(OWN_TOKEN), "{words}: {line}");
    }
    assert!(hub.heads().is_empty());
}
