//! The plugin and a hub that has the Secret.

mod plugin;
mod support;

use std::fs;
use std::io::Write as _;

use plugin::Plugin;
use rcgen::IsCa;
use serde_json::{Value, json};
use support::{FAR_FUTURE, Hub, exec_info, found, response, secret, synced_token};

fn status() -> Value {
    json!({"token": synced_token(), "expirationTimestamp": "2100-01-01T00:00:00Z"})
}

#[test]
fn the_answer_has_the_version_that_was_asked_for() {
    assert_eq!(FAR_FUTURE, 4_102_444_800);
    let hub = Hub::answering(found());
    for version in ["v1", "v1beta1"] {
        let plugin = Plugin::with(&hub.kubeconfig())
            .env("KUBERNETES_EXEC_INFO", &exec_info(version, &json!({"clusterName": "cluster1"})));
        let expected = json!({
            "apiVersion": format!("client.authentication.k8s.io/{version}"),
            "kind": "ExecCredential",
            "status": status(),
        });
        assert_eq!(plugin.answers(), expected);
    }
}

#[test]
fn a_token_costs_one_get_and_no_other_request() {
    let hub = Hub::answering(found());
    Plugin::with(&hub.kubeconfig()).answers();
    let heads = hub.heads();
    let [head] = heads.as_slice() else { panic!("one request: {heads:?}") };
    let mut lines = head.split("\r\n");
    let request = "GET /api/v1/namespaces/ns/secrets/cluster1-multikueue HTTP/1.1";
    assert_eq!(lines.next(), Some(request));
    assert!(lines.clone().any(|it| it == "Authorization: Bearer qZ7x-Kw9v-Tj3m-Wq8z-Ys4d"));
    assert!(lines.any(|line| line == format!("Host: 127.0.0.1:{}", hub.port)), "{head}");
}

#[test]
fn a_token_without_expiry_is_answered_without() {
    let mut opaque = secret("ns");
    opaque["data"]["token"] = json!("b3BhcXVl");
    let hub = Hub::answering(response("200 OK", &opaque.to_string()));
    assert_eq!(Plugin::with(&hub.kubeconfig()).answers()["status"], json!({"token": "opaque"}));
}

#[test]
fn flags_supply_what_the_caller_does_not_pass() {
    let hub = Hub::answering(found());
    // Called by hand.
    let plugin = Plugin::with(&hub.kubeconfig())
        .without_env("KUBERNETES_EXEC_INFO")
        .arg("--cluster-name=cluster1");
    assert_eq!(plugin.answers()["apiVersion"], "client.authentication.k8s.io/v1");
    // Argo CD before 3.5 sends a version and no cluster.
    let info = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false}}"#;
    let plugin = Plugin::with(&hub.kubeconfig())
        .env("KUBERNETES_EXEC_INFO", info)
        .arg("--cluster-name=cluster1");
    assert_eq!(plugin.answers()["apiVersion"], "client.authentication.k8s.io/v1beta1");
    // A flag takes precedence over the request.
    let info = exec_info("v1", &json!({"clusterName": "another"}));
    let plugin = Plugin::with(&hub.kubeconfig())
        .env("KUBERNETES_EXEC_INFO", &info)
        .arg("--cluster-name=cluster1");
    assert_eq!(plugin.answers()["status"], status());
}

#[test]
fn the_namespace_is_the_flags_then_the_environments_then_the_contexts() {
    let asked = |plugin: Plugin, hub: &Hub| {
        plugin.fails();
        hub.heads().pop().unwrap().split('/').nth(4).unwrap().to_owned()
    };
    let hub = Hub::answering(response("404 Not Found", "{}"));
    let mut kubeconfig = hub.kubeconfig();
    let plugin = || Plugin::with(&kubeconfig).env("NAMESPACE", "environment");
    assert_eq!(asked(plugin().arg("--namespace=flag"), &hub), "flag");
    assert_eq!(asked(plugin(), &hub), "environment");
    assert_eq!(asked(plugin().env("NAMESPACE", ""), &hub), "ns");
    assert_eq!(asked(plugin().env("NAMESPACE", " environment\n"), &hub), "environment");
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(null);
    assert_eq!(asked(Plugin::with(&kubeconfig), &hub), "default");
}

#[test]
fn a_body_may_come_in_chunks_or_end_with_the_connection() {
    let body = secret("ns").to_string();
    let (one, two) = body.split_at(body.len() / 2);
    let chunked = format!(
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x};x=y\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\n\r\n",
        one.len(),
        two.len()
    );
    let unframed = format!("HTTP/1.0 200 OK\r\n\r\n{body}");
    for text in [chunked, unframed] {
        let hub = Hub::answering(text.into_bytes());
        assert_eq!(Plugin::with(&hub.kubeconfig()).answers()["status"], status());
    }
}

#[test]
fn a_client_certificate_is_shown_to_a_hub_that_asks() {
    let hub = Hub::start("127.0.0.1", true, |stream| stream.write_all(&found()).unwrap());
    let (certificate, key) = support::certificate(&hub.authority, "consumer");
    let mut kubeconfig = hub.kubeconfig();
    kubeconfig["users"][0]["user"] =
        json!({"client-certificate": "pki/tls.crt", "client-key": "pki/tls.key"});
    let plugin = Plugin::with(&kubeconfig);
    // Paths are relative to the kubeconfig.
    plugin.write("pki/tls.crt", &certificate);
    plugin.write("pki/tls.key", &key);
    assert_eq!(plugin.answers()["status"], status());
    let line = Plugin::with(&hub.kubeconfig()).fails();
    assert!(line.contains("failed to get synced credential secret"), "{line}");
}

#[test]
fn a_self_signed_server_is_accepted_unless_it_is_an_authority() {
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
        let hub = Hub::self_signed(is_ca);
        assert_eq!(Plugin::with(&hub.kubeconfig()).answers()["status"], status());
    }
}

#[test]
fn an_installed_copy_is_the_program() {
    let plugin = Plugin::bare().arg("install");
    let target = tempfile::tempdir().unwrap();
    let printed = plugin.arg(target.path()).prints();
    let copy = target.path().join("cp-creds");
    assert_eq!(printed, format!("installed {}\n", copy.display()));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(env!("CARGO_BIN_EXE_cp-creds")).unwrap());
}

#[test]
fn help_teaches_both_callers_and_version_is_one_line() {
    let help = Plugin::bare().arg("--help").prints();
    let of_kueue = ["provideClusterInfo: true", "interactiveMode: Never"];
    for word in of_kueue.into_iter().chain(["execProviderConfig", "--cluster-name"]) {
        assert!(help.contains(word), "{word}");
    }
    assert!(help.lines().all(|line| line.len() <= 80));
    assert!(Plugin::bare().arg("--version").prints().starts_with("cp-creds "));
}
