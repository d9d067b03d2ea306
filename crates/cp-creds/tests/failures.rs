//! The plugin with a failing hub or an invalid call. [`plugin::Plugin::fails`] checks that every failure is one line on
//! stderr without a secret.

mod plugin;
mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plugin::Plugin;
use rcgen::{BasicConstraints, IsCa};
use serde_json::{Value, json};
use support::{Hub, OWN_TOKEN, exec_info, found, response, secret, synced_token};

/// How a message begins whose wording is known.
const FAILED: &str = "failed to get synced credential secret";

/// The message for a failure with this response.
fn line_for(response: impl Into<Vec<u8>>) -> String {
    let hub = Hub::answering(response.into());
    let line = Plugin::with(&hub.kubeconfig()).fails();
    assert_eq!(hub.heads().len(), 1, "one request, whatever the response");
    line
}

#[test]
fn a_missing_secret_has_a_known_message_with_what_to_check() {
    let status = json!({"kind": "Status", "message": synced_token()});
    let line = line_for(response("404 Not Found", &status.to_string()));
    assert!(line.contains(&format!("{FAILED} ns/cluster1-multikueue")), "{line}");
    assert!(line.contains("sync-to-clusterprofile") && line.contains("404"), "{line}");
}

#[test]
fn each_error_of_a_hub_has_its_own_message() {
    for (status, words) in [
        ("401 Unauthorized", "rejects the credentials"),
        ("403 Forbidden", "get on this Secret"),
        ("429 Too Many Requests", "overloaded"),
        ("500 Internal Server Error", "internal error"),
        ("418 Teapot", "HTTP 418"),
    ] {
        let line = line_for(response(status, &secret("ns").to_string()));
        assert!(line.contains(words) && line.contains(FAILED), "{line}");
    }
}

#[test]
fn a_redirect_leads_nowhere() {
    let elsewhere = Hub::answering(found());
    let target = format!("https://127.0.0.1:{}/x", elsewhere.port);
    let line =
        line_for(format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"));
    assert!(line.contains("redirect") && !line.contains(&target), "{line}");
    assert!(elsewhere.heads().is_empty());
}

#[test]
fn what_is_no_http_is_no_answer() {
    for garbage in [
        "",
        "\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnumber\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}x",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}",
    ] {
        let line = line_for(garbage);
        assert!(line.contains("the response is not valid HTTP/1.1"), "{garbage:?}: {line}");
    }
    assert!(line_for(response("200 OK", "{")).contains("is not a valid Secret"));
    let list = response("200 OK", r#"{"kind":"SecretList"}"#);
    assert!(line_for(list).contains("a different object"));
}

#[test]
fn an_answer_larger_than_a_secret_is_not_read_on() {
    let endless = |head: &'static str, piece: Vec<u8>| {
        Hub::behaving(move |stream| {
            let mut sent = stream.write_all(head.as_bytes());
            while sent.is_ok() {
                sent = stream.write_all(&piece);
            }
        })
    };
    let piece = vec![b' '; 0x1000];
    let chunk = [b"1000\r\n", piece.as_slice(), b"\r\n"].concat();
    let answering = |text: &str| Hub::answering(format!("HTTP/1.1 200 OK\r\n{text}").into_bytes());
    for hub in [
        answering("Content-Length: 9999999999\r\n\r\n"),
        answering("Content-Length: 99999999999999999999999\r\n\r\n"),
        answering("Transfer-Encoding: chunked\r\n\r\nfffffff\r\n"),
        endless("HTTP/1.1 200 OK\r\n\r\n", piece.clone()),
        endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk),
    ] {
        let line = Plugin::with(&hub.kubeconfig()).fails();
        assert!(line.contains("larger than a Secret"), "{line}");
    }
    let line =
        Plugin::with(&endless("HTTP/1.1 200 OK\r\nX: ", vec![b'x'; 0x1000]).kubeconfig()).fails();
    assert!(line.contains("its head does not end"), "{line}");
}

/// Runs a plugin against a peer that blocks, with a timeout that leaves even a busy machine time to reach the step.
fn hangs(plugin: Plugin, stage: &str) {
    let line = plugin.arg("--timeout=2s").fails();
    assert!(line.contains("timed out after 2s") && line.contains(stage), "{line}");
}

#[test]
fn a_hub_that_blocks_times_out() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let silent = Hub::behaving(move |_| {
        // Until the plugin has given up and the other end is dropped.
        let _ = ended.lock().unwrap().recv();
    });
    hangs(Plugin::with(&silent.kubeconfig()), "waiting for the API server's response");
    drop(end);
}

#[test]
fn a_response_that_drips_times_out() {
    let dripping = Hub::behaving(|stream| {
        for byte in found() {
            if stream.write_all(&[byte]).and_then(|()| stream.flush()).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    hangs(Plugin::with(&dripping.kubeconfig()), "waiting for the API server's response");
}

#[test]
fn a_handshake_that_blocks_times_out() {
    // The kernel accepts the connections, and no process reads them.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kubeconfig = Hub::answering(found()).kubeconfig();
    kubeconfig["clusters"][0]["cluster"]["server"] =
        json!(format!("https://{}", nobody.local_addr().unwrap()));
    hangs(Plugin::with(&kubeconfig), "TLS handshake");
}

#[test]
fn a_server_without_a_common_signature_algorithm_names_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kubeconfig = Hub::answering(found()).kubeconfig();
    kubeconfig["clusters"][0]["cluster"]["server"] =
        json!(format!("https://{}", listener.local_addr().unwrap()));
    let serve = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The fatal alert handshake_failure, with which Go responds if its key is on P-521.
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).unwrap();
        // Unread bytes would reset the connection.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let text = Plugin::with(&kubeconfig).fails();
    assert!(text.contains("P-521"), "{text}");
    serve.join().unwrap();
}

#[test]
fn a_proxy_that_does_not_connect_is_named_with_the_reason() {
    for (scheme, response, words) in [
        ("http", &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..], "HTTP 407"),
        ("http", b"SSH-2.0-OpenSSH_9.9\r\n", "not valid HTTP"),
        ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a SOCKS 5 proxy"),
        ("socks5", &[5, 0xff], "another authentication"),
        ("socks5", &[5, 2, 1, 1], "another authentication"),
        ("socks5", &[5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0], "SOCKS reply 5"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let mut kubeconfig = Hub::answering(found()).kubeconfig();
        kubeconfig["clusters"][0]["cluster"]["proxy-url"] =
            json!(format!("{scheme}://jane:{OWN_TOKEN}@{proxy}"));
        let serve = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(response).unwrap();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let line = Plugin::with(&kubeconfig).fails();
        let through = format!("through the proxy {scheme}://{proxy}: ");
        assert!(line.contains(&through) && line.contains(words), "{line}");
        serve.join().unwrap();
    }
}

#[test]
fn a_file_that_blocks_times_out() {
    let hub = Hub::answering(found());
    let mut kubeconfig = hub.kubeconfig();
    let plugin = Plugin::bare();
    let pipe = plugin.directory().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    kubeconfig["users"][0]["user"] = json!({"tokenFile": pipe});
    hangs(Plugin::with(&kubeconfig), "reading the configuration");
}

#[test]
fn a_hub_of_another_authority_is_not_talked_to() {
    let hub = Hub::answering(found());
    let mut kubeconfig = hub.kubeconfig();
    let other = STANDARD.encode(support::authority().pem());
    kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] = json!(other);
    let line = Plugin::with(&kubeconfig).fails();
    assert!(line.contains("invalid peer certificate"), "{line}");
    assert!(hub.heads().is_empty(), "no token went there");
}

#[test]
fn an_authoritys_own_certificate_is_no_servers() {
    let hub = Hub::self_signed(IsCa::Ca(BasicConstraints::Unconstrained));
    let line = Plugin::with(&hub.kubeconfig()).fails();
    let words = "the server presents the certificate of a certificate authority (CA:TRUE)";
    assert!(line.contains(words), "{line}");
    assert!(hub.heads().is_empty(), "no token went there");
}

#[test]
fn nobody_there_is_said_so() {
    let hub = Hub::answering(found());
    let mut kubeconfig = hub.kubeconfig();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{free}"));
    let line = Plugin::with(&kubeconfig).fails();
    assert!(line.contains(&format!("cannot connect to {free}")), "{line}");
}

#[test]
fn a_call_that_is_wrong_makes_no_request() {
    let hub = Hub::answering(found());
    let plugin = || Plugin::with(&hub.kubeconfig());
    let named = |cluster: &str| exec_info("v1", &json!({"clusterName": cluster}));
    for (plugin, words) in [
        (Plugin::bare(), "--managed-serviceaccount flag is required"),
        (plugin().arg("--managed-serviceaccount=a/../b"), "ManagedServiceAccount name"),
        (plugin().arg("--namespace=../kube-system"), "namespace"),
        (plugin().env("NAMESPACE", "a%2f"), "namespace"),
        (plugin().arg("--cluster-name=a/b"), "cluster name"),
        (plugin().arg("--cluster-name="), "cluster name is empty"),
        (plugin().env("KUBERNETES_EXEC_INFO", &named("../../x")), "not a valid DNS name"),
        (plugin().env("KUBERNETES_EXEC_INFO", &named("a\nb")), "not a valid DNS name"),
        (plugin().env("KUBERNETES_EXEC_INFO", "{"), "not a valid ExecCredential"),
        (
            plugin().without_env("KUBERNETES_EXEC_INFO"),
            "set KUBERNETES_EXEC_INFO or --cluster-name",
        ),
        (plugin().arg("--bogus"), "see cp-creds --help"),
        (Plugin::bare().arg("install"), "install needs one directory"),
        (Plugin::bare().arg("install").arg("/does/not/exist"), "not a directory"),
    ] {
        let line = plugin.fails();
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(hub.heads().is_empty());
}

#[test]
fn a_kubeconfig_that_cannot_be_followed_makes_no_request() {
    let hub = Hub::answering(found());
    let edited = |pointer: &str, value: Value| {
        let mut kubeconfig = hub.kubeconfig();
        *kubeconfig.pointer_mut(pointer).unwrap() = value;
        kubeconfig
    };
    let user = |user: Value| edited("/users/0/user", user);
    let cluster = |field: &str, value| edited(&format!("/clusters/0/cluster/{field}"), value);
    let top = |field: &str, value| edited(&format!("/{field}"), value);
    let key_in_place_of_pem = json!({"client-certificate-data": STANDARD.encode(OWN_TOKEN),
        "client-key-data": STANDARD.encode(format!("-----BEGIN {OWN_TOKEN}\n"))});
    for (kubeconfig, words) in [
        (user(json!({"username": "a", "password": OWN_TOKEN})), "has username"),
        (user(json!({"token": format!("{OWN_TOKEN} x")})), "is not a valid bearer token"),
        (user(json!({"token": [OWN_TOKEN]})), "is not a valid kubeconfig: line 1"),
        (user(json!({"tokenFile": "missing"})), "cannot read tokenFile"),
        (user(json!({"client-certificate-data": "%"})), "not valid base64"),
        (user(json!({"client-certificate-data": "eA=="})), "only one of"),
        (user(key_in_place_of_pem), "not a certificate in PEM"),
        (cluster("server", json!(format!("https://u:{OWN_TOKEN}@h"))), "without user"),
        (cluster("certificate-authority-data", json!("eA==")), "contains no certificate"),
        (top("current-context", json!("")), "current-context is not set"),
        (top("current-context", json!("x")), "there is no context \"x\""),
        (top("clusters", json!(null)), "there is no cluster \"hub\""),
        (json!(OWN_TOKEN), "is not a valid kubeconfig"),
    ] {
        let line = Plugin::with(&kubeconfig).fails();
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(hub.heads().is_empty());
}
