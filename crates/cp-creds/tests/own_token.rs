//! The application's own token, as the kubelet projects it.

mod plugin;
mod support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plugin::Plugin;
use serde_json::{Value, json};
use support::{FAR_FUTURE, exec_info};

fn projected(claims: &Value) -> String {
    format!("e30.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// The documented call, with a token in its file.
fn plugin(token: &str) -> Plugin {
    let plugin = Plugin::bare();
    let path = plugin.write("token", token);
    let info = exec_info("v1", &json!({"clusterName": "cluster1"}));
    plugin.arg(format!("--own-token={}", path.display())).env("KUBERNETES_EXEC_INFO", &info)
}

#[test]
fn the_own_token_is_returned_with_its_expiry_and_without_a_hub() {
    let token = projected(&json!({"aud": ["hub-addons"], "exp": FAR_FUTURE}));
    let status = json!({"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"});
    let answer = plugin(&token).answers();
    assert_eq!(answer["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(answer["status"], status);
    // As the kubelet never writes it, but a person may.
    assert_eq!(plugin(&format!("{token}\n")).answers()["status"], status);
    // Argo CD before 3.5 passes no cluster.
    assert_eq!(plugin(&token).without_env("KUBERNETES_EXEC_INFO").answers()["status"], status);
    let other = projected(&json!({"aud": "mine", "exp": FAR_FUTURE}));
    let answer = plugin(&other).arg("--own-token-audience=mine").answers();
    assert_eq!(answer["status"]["token"], json!(other));
}

#[test]
fn a_token_that_others_would_accept_too_is_refused() {
    let api_server = "https://kubernetes.default.svc.cluster.local";
    for audiences in
        [json!([api_server]), json!(["hub-addons", api_server]), json!("other"), json!([])]
    {
        let line = plugin(&projected(&json!({"aud": audiences, "exp": FAR_FUTURE}))).fails();
        for words in ["must be hub-addons alone", "projected volume"] {
            assert!(line.contains(words), "{line}");
        }
    }
}

#[test]
fn what_is_no_projected_token_is_refused_by_an_error_that_shows_nothing_of_it() {
    for (token, why) in [
        (projected(&json!({"aud": ["hub-addons"], "exp": 1})), "expired at 1970-01-01T00:00:01Z"),
        (projected(&json!({"aud": ["hub-addons"]})), "it is not a projected token"),
        (projected(&json!({"exp": FAR_FUTURE})), "it is not a projected token"),
        ("sEcReT-opaque".to_owned(), "it is not a projected token"),
        ("sEcReT a".to_owned(), "printable"),
        (String::new(), "it is empty"),
        ("x".repeat(70_000), "larger than 64 KiB"),
    ] {
        let line = plugin(&token).fails();
        assert!(line.contains(why) && !line.contains("sEcReT"), "{why}: {line}");
    }
    let line = Plugin::bare().arg("--own-token=/does/not/exist").fails();
    assert!(line.contains("serviceAccountToken for the audience hub-addons"), "{line}");
}

#[test]
fn it_is_bound_to_its_destination_like_every_other_token() {
    let token = projected(&json!({"aud": ["hub-addons"], "exp": FAR_FUTURE}));
    let info = |cluster: Value| {
        let kind = "ExecCredential";
        let version = "client.authentication.k8s.io/v1";
        json!({"kind": kind, "apiVersion": version, "spec": {"cluster": cluster}}).to_string()
    };
    let server = "--server=https://user-server:9092/{cluster}";
    let config = json!({"clusterName": "cluster1"});
    let right = info(json!({"server": "https://user-server:9092/cluster1", "config": config}));
    let answer = plugin(&token).arg(server).env("KUBERNETES_EXEC_INFO", &right).answers();
    assert!(answer["status"].is_object(), "{answer}");
    let other = json!({"server": "https://elsewhere:9092/cluster1", "config": config});
    plugin(&token).arg(server).env("KUBERNETES_EXEC_INFO", &info(other)).fails();
    plugin(&token).arg(server).without_env("KUBERNETES_EXEC_INFO").fails();
    let unverified = info(json!({"server": "https://a", "insecure-skip-tls-verify": true}));
    plugin(&token).env("KUBERNETES_EXEC_INFO", &unverified).fails();
}
