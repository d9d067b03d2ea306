//! Kubeconfig files and proxies: `kubectl clusterprofile` and `hub-addons` reach the hub as kubectl does, with the same
//! identity, and so does `cp-creds` where it does not report why it does not.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::plugin::kubectl_clusterprofile;
use crate::support::plugin::cp_creds;

/// What the servers see of a program, in the order of arrival.
#[derive(Clone, Default)]
struct Seen(watch::Sender<Vec<String>>);

impl Seen {
    fn add(&self, what: String) {
        self.0.send_modify(|seen| seen.push(what));
    }

    /// Waits for a request to the hub.
    async fn hub(&self) {
        let reached = |seen: &Vec<String>| seen.iter().any(|what| what.starts_with("hub"));
        self.0.subscribe().wait_for(reached).await.unwrap();
    }
}

/// An API server that refuses every request, and the proxy. Neither connects to any other machine.
struct World {
    hub: SocketAddr,
    proxy: SocketAddr,
    ca: String,
    seen: Seen,
}

async fn head(stream: &mut (impl AsyncRead + Unpin), begun: &[u8]) -> Option<String> {
    let mut head = begun.to_vec();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn refuse(stream: TcpStream, tls: TlsAcceptor, seen: Seen) -> Option<()> {
    let mut first = [0];
    stream.peek(&mut first).await.ok()?;
    // A TLS handshake begins with this byte.
    if first == [22] {
        respond(tls.accept(stream).await.ok()?, seen).await
    } else {
        respond(stream, seen).await
    }
}

async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: Seen) -> Option<()> {
    let head = head(&mut stream, &[]).await?.to_ascii_lowercase();
    let is_identity =
        |line: &&str| line.starts_with("authorization:") || line.starts_with("impersonate-");
    let mut identity: Vec<_> = head.lines().filter(is_identity).collect();
    identity.sort_unstable();
    seen.add(format!("hub {}", identity.join(" ")));
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}"#;
    let length = status.len();
    let response = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{status}"
    );
    stream.write_all(response.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// Every kind of proxy, by the first byte. Whatever host is asked for, it connects to the hub.
async fn pass(stream: TcpStream, tls: TlsAcceptor, hub: SocketAddr, seen: Seen) -> Option<()> {
    let mut first = [0];
    stream.peek(&mut first).await.ok()?;
    if first == [22] {
        tunnel(tls.accept(stream).await.ok()?, "https", hub, seen).await
    } else {
        tunnel(stream, "http", hub, seen).await
    }
}

async fn tunnel(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    scheme: &str,
    hub: SocketAddr,
    seen: Seen,
) -> Option<()> {
    let mut first = [0];
    stream.read_exact(&mut first).await.ok()?;
    if first == [5] {
        let mut methods = vec![0; stream.read_u8().await.ok()?.into()];
        stream.read_exact(&mut methods).await.ok()?;
        let mut with = String::new();
        if methods.contains(&2) {
            stream.write_all(&[5, 2]).await.ok()?;
            stream.read_u8().await.ok()?;
            for _ in 0..2 {
                let mut text = vec![0; stream.read_u8().await.ok()?.into()];
                stream.read_exact(&mut text).await.ok()?;
                with.extend([" ", str::from_utf8(&text).ok()?]);
            }
            stream.write_all(&[1, 0]).await.ok()?;
        } else {
            stream.write_all(&[5, 0]).await.ok()?;
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.ok()?;
        let length = if request[3] == 3 { stream.read_u8().await.ok()? } else { 4 };
        let mut host = vec![0; length.into()];
        stream.read_exact(&mut host).await.ok()?;
        stream.read_u16().await.ok()?;
        let host =
            if request[3] == 3 { String::from_utf8(host).ok()? } else { format!("{host:?}") };
        seen.add(format!("socks5 to {host}{with}"));
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    } else {
        let head = head(&mut stream, &first).await?;
        let host = head.split([' ', ':']).nth(1)?;
        let with = head
            .to_ascii_lowercase()
            .lines()
            .find(|line| line.starts_with("proxy-auth"))
            .map(str::to_owned);
        seen.add(format!("{scheme} proxy to {host} {}", with.unwrap_or_default()));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    }
    let mut there = TcpStream::connect(hub).await.ok()?;
    copy_bidirectional(&mut stream, &mut there).await.ok().map(|_| ())
}

impl World {
    async fn start() -> Self {
        let seen = Seen::default();
        let names = ["127.0.0.1", "0.0.0.0", "hub.invalid", "localhost"];
        let issued = rcgen::generate_simple_self_signed(names.map(str::to_owned)).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let mut config = config.with_single_cert(vec![issued.cert.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hub = listener.local_addr().unwrap();
        let (of_hub, tls_of_hub) = (seen.clone(), tls.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(refuse(stream, tls_of_hub.clone(), of_hub.clone()));
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let of_proxy = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, tls.clone(), hub, of_proxy.clone()));
            }
        });
        Self { hub, proxy, ca: STANDARD.encode(issued.cert.pem()), seen }
    }

    /// A kubeconfig that leads to the hub under this host, with these fields of its cluster and user.
    fn kubeconfig(&self, host: &str, cluster: &Value, user: &Value) -> Value {
        let mut entry = json!({
            "server": format!("https://{host}:{}", self.hub.port()), "certificate-authority-data": self.ca,
        });
        json_patch::merge(&mut entry, cluster);
        let mut us = json!({ "token": "token-of-file" });
        json_patch::merge(&mut us, user);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "clusters": [{ "name": "hub", "cluster": entry }], "users": [{ "name": "us", "user": us }],
            "contexts": [{ "name": "hub", "context": { "cluster": "hub", "user": "us", "namespace": "team" } }],
        })
    }

    /// Runs a program until it ends, or `run` until it reaches the hub, and returns what the servers saw first of it: the way and the identity, or nothing
    /// if it did not reach the hub.
    async fn reached(
        &self,
        case: &Case,
        directory: &Path,
        program: &Path,
        arguments: &[&str],
    ) -> (String, Option<Output>) {
        self.seen.0.send_replace(Vec::new());
        let mut command = Command::new(if case.is_in_pod { "unshare" } else { "env" });
        if case.is_in_pod {
            command.args(NAMESPACES).args(["sh", "-c", POD]);
        }
        command.arg(program).args(arguments).env_clear().current_dir(directory);
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", directory);
        command.env(
            "KUBERNETES_EXEC_INFO",
            json!({
                "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "spec": { "interactive": false, "cluster": { "config": { "clusterName": "berlin" } } },
            })
            .to_string(),
        );
        command.envs(case.env.iter().map(|(name, value)| (name, self.with_proxy(value))));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let output = command.spawn().unwrap().wait_with_output();
        let ended = async {
            tokio::select! {
                output = output => Some(output.unwrap()),
                () = self.seen.hub(), if arguments[0] == "run" => None,
            }
        };
        let output = timeout(Duration::from_mins(1), ended).await.expect(case.name);
        let mut seen = self.seen.0.borrow().clone();
        // Each program tries again in its own way; the first attempt is enough.
        let end = seen.iter().position(|what| what.starts_with("hub")).map_or(0, |hub| hub + 1);
        seen.truncate(end);
        (seen.join(", "), output)
    }

    fn with_proxy(&self, text: &str) -> String {
        text.replace("PROXY", &self.proxy.to_string())
            .replace("{port}", &self.hub.port().to_string())
    }
}

/// A case of the table.
struct Case {
    name: &'static str,
    /// Of the kubeconfig in the file `config`.
    host: &'static str,
    cluster: Value,
    user: Value,
    env: Vec<(&'static str, &'static str)>,
    /// Whether the programs run where `serviceaccount` is the ServiceAccount of a Pod.
    is_in_pod: bool,
    /// How ours reach the hub, or what they report, if they do not follow kubectl.
    ours: Option<&'static str>,
    /// What `cp-creds` reports, if it does not reach the hub as kubectl does.
    plugin_reports: Option<&'static str>,
}

const NAMESPACES: [&str; 3] = ["--user", "--map-root-user", "--mount"];

/// Runs a program in a mount namespace of its own, with the ServiceAccount of a Pod.
const POD: &str = "mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io && \
    cp -r serviceaccount /var/run/secrets/kubernetes.io && exec \"$0\" \"$@\"";

/// With a kubeconfig that leads to this machine.
fn case(name: &'static str) -> Case {
    at(name, "127.0.0.1")
}

/// The same under another host.
fn at(name: &'static str, host: &'static str) -> Case {
    let env = vec![("KUBECONFIG", "config")];
    let (cluster, user) = (json!({}), json!({}));
    Case { name, host, cluster, user, env, is_in_pod: false, ours: None, plugin_reports: None }
}

/// In a Pod, with this address of the hub, and without a kubeconfig.
fn pod(name: &'static str, host: &'static str) -> Case {
    let case = at(name, host).file("gone").env("KUBERNETES_SERVICE_HOST", host);
    Case { is_in_pod: true, ..case.env("KUBERNETES_SERVICE_PORT", "{port}") }
}

impl Case {
    fn cluster(self, cluster: Value) -> Self {
        Self { cluster, ..self }
    }

    fn user(self, user: Value) -> Self {
        Self { user, ..self }
    }

    fn proxy_url(self, url: &str) -> Self {
        self.cluster(json!({ "proxy-url": url }))
    }

    /// Other files as the kubeconfig.
    fn file(self, files: &'static str) -> Self {
        self.env("KUBECONFIG", files)
    }

    /// Sets a variable, in which `PROXY` is the address of the proxy.
    fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.retain(|(other, _)| *other != name);
        self.env.push((name, value));
        self
    }

    fn ours(self, words: &'static str) -> Self {
        Self { ours: Some(words), ..self }
    }

    fn reports(self, words: &'static str) -> Self {
        Self { plugin_reports: Some(words), ..self }
    }
}

/// An ID token that expired in 2001, and one that has not.
fn id_token(expires: i64) -> Value {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({ "iss": "https://issuer.invalid", "exp": expires });
    json!(format!("{}.{}.c2ln", part(json!({ "alg": "RS256" })), part(claims)))
}

fn oidc(expires: i64) -> Value {
    json!({ "token": null, "auth-provider": { "name": "oidc", "config": {
        "idp-issuer-url": "https://issuer.invalid", "client-id": "kubectl", "id-token": id_token(expires),
    } } })
}

fn configurations() -> Vec<Case> {
    vec![
        case("one file"),
        case("missing and empty files are skipped").file("gone:empty::/dev/null:config"),
        case("the first value of several files applies").file("other:config"),
        case("the first of several documents").file("documents"),
        case("a first document that is empty").file("void:config"),
        case("a second document that cannot be parsed").file("half"),
        case("the last of equal keys applies").file("twice"),
        case("UTF-16 of little endian").file("le"),
        case("UTF-16 of big endian").file("be"),
        case("two users of one name").file("double"),
        case("a file that cannot be looked at").file("config/x:config"),
        case("an empty current context is none").file("unset:config"),
        case("no variable").file(""),
        case("no file exists").file("gone").reports("no kubeconfig at gone"),
        case("a file that cannot be parsed").file("broken:config").reports("broken is not a valid"),
        case("the context's user does not exist").file("nobody").reports("no user"),
        case("a token file").user(json!({ "token": null, "tokenFile": "token" })),
        case("a token file and a token").user(json!({ "tokenFile": "token" })),
        case("a token file that is gone, and a token").user(json!({ "tokenFile": "gone" })),
        case("an empty token file, and a token").user(json!({ "tokenFile": "/dev/null" })),
        case("empty fields of a user").user(json!({
            "username": "", "password": "", "tokenFile": "", "client-certificate": "", "as": "", "as-groups": [],
        })),
        case("a token with a line break")
            .user(json!({ "token": "secret\n" })).reports("token"),
        case("an authority in several lines").file("wrapped"),
        case("a token and a password")
            .user(json!({ "username": "jane", "password": "p" })).reports("username"),
        case("groups without a user to act as")
            .user(json!({ "as-groups": ["a"] })).reports("as-groups"),
        case("a certificate authority of the directory")
            .cluster(json!({ "certificate-authority-data": null, "certificate-authority": "ca.crt" })),
        case("another server name").cluster(json!({ "tls-server-name": "hub.invalid" })),
        case("a server name that the certificate lacks")
            .cluster(json!({ "tls-server-name": "eve.invalid" })).reports("certificate"),
        case("no verification")
            .cluster(json!({ "certificate-authority-data": null, "insecure-skip-tls-verify": true })),
        case("no verification and an authority")
            .cluster(json!({ "insecure-skip-tls-verify": true })).reports("insecure-skip-tls-verify"),
        case("an authority in data and in a file")
            .cluster(json!({ "certificate-authority": "ca.crt" })).reports("both"),
        case("a client certificate in data and in a file")
            .user(json!({ "client-certificate": "ca.crt", "client-certificate-data": "eA==", "client-key-data": "eA==" })).reports("both"),
        case("a text for a boolean")
            .cluster(json!({ "certificate-authority-data": null, "insecure-skip-tls-verify": "true" })).reports("line 1"),
        case("a number for a text").user(json!({ "token": 7 })).reports("line 1"),
        case("credentials in the server's URL")
            .cluster(json!({ "server": "https://jane:p%40ss@SERVER" })).ours("credentials in the URL").reports("without user"),
        case("credentials in an http server's URL")
            .cluster(json!({ "server": "http://jane:p@SERVER" })).ours("credentials in the URL").reports("https://"),
        case("another kind").file("pod").reports("not a kubeconfig"),
        case("another version").file("v9").reports("not a kubeconfig"),
        case("no scheme").cluster(json!({ "server": "SERVER" })).reports("https://"),
        case("an http server gets no credentials")
            .cluster(json!({ "server": "http://SERVER" })).reports("https://"),
        case("impersonation")
            .user(json!({ "as": "jane", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": { "why": ["x"] } })).reports("which cp-creds does not support"),
        case("an exec plugin")
            .user(json!({ "token": null, "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "./exec", "interactiveMode": "Never" } })).reports("runs no other"),
        case("an exec plugin without interactiveMode")
            .user(json!({ "token": null, "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "./exec" } })).reports("runs no other"),
        case("an ID token").user(oidc(4_102_444_800)).reports("runs no other"),
        case("an expired ID token").user(oidc(1_000_000_000)).reports("runs no other"),
        pod("in a Pod", "127.0.0.1"),
        pod("in a Pod with a kubeconfig without a context", "127.0.0.1").file("empty:unset"),
        pod("in a Pod without the variable of the port", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "").reports("no kubeconfig at gone"),
        case("no authority")
            .cluster(json!({ "certificate-authority-data": null })).reports("does not use system roots"),
    ]
}

/// `0.0.0.0` leads to this machine, and is no loopback address, for which a proxy of the environment is not used.
/// `hub.invalid` is known to the proxy only.
fn proxies() -> Vec<Case> {
    let via = |name, host| at(name, host).env("HTTPS_PROXY", "http://PROXY");
    vec![
        via("HTTPS_PROXY", "hub.invalid"),
        pod("in a Pod with HTTPS_PROXY", "hub.invalid").env("HTTPS_PROXY", "http://PROXY"),
        at("https_proxy", "hub.invalid").env("https_proxy", "http://PROXY"),
        via("capital letters win", "hub.invalid").env("https_proxy", "http://127.0.0.1:1"),
        via("without a scheme", "hub.invalid").env("HTTPS_PROXY", "PROXY"),
        via("with credentials", "hub.invalid").env("HTTPS_PROXY", "http://jane:p%40ss@PROXY"),
        via("socks5 of the environment", "hub.invalid").env("HTTPS_PROXY", "socks5://PROXY"),
        at("the variable of another scheme", "0.0.0.0").env("HTTP_PROXY", "http://127.0.0.1:1"),
        at("the variable of curl", "0.0.0.0").env("ALL_PROXY", "http://127.0.0.1:1"),
        via("a loopback address", "127.0.0.1"),
        via("localhost", "localhost"),
        via("NO_PROXY with the address", "0.0.0.0").env("NO_PROXY", "0.0.0.0"),
        via("NO_PROXY with the network", "0.0.0.0").env("NO_PROXY", "10.0.0.0/8,0.0.0.0/8,"),
        via("no_proxy with everything", "0.0.0.0").env("no_proxy", "*"),
        via("NO_PROXY with the proxy", "hub.invalid").env("NO_PROXY", "127.0.0.1"),
        via("NO_PROXY with another port", "hub.invalid").env("NO_PROXY", "hub.invalid:1"),
        via("NO_PROXY with the host", "hub.invalid").env("NO_PROXY", ".invalid").reports("resolve"),
        via("NO_PROXY with the domain's subdomains", "hub.invalid").env("NO_PROXY", ".hub.invalid"),
        at("proxy-url with http", "hub.invalid").proxy_url("http://PROXY"),
        at("proxy-url with socks5", "hub.invalid").proxy_url("socks5://PROXY"),
        case("proxy-url to a loopback address").proxy_url("http://PROXY"),
        at("proxy-url and NO_PROXY", "0.0.0.0").proxy_url("http://PROXY").env("NO_PROXY", "*"),
        via("proxy-url and HTTPS_PROXY", "hub.invalid")
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .proxy_url("http://PROXY"),
        at("proxy-url with credentials", "hub.invalid").proxy_url("http://jane:p%40ss@PROXY"),
        at("proxy-url with socks5 and credentials", "hub.invalid")
            .proxy_url("socks5://jane:p%40ss@PROXY"),
        case("a proxy-url without a scheme").proxy_url("PROXY").reports("proxy-url"),
        case("a proxy-url of an unknown kind").proxy_url("ftp://PROXY").reports("proxy-url"),
        via("an https proxy", "hub.invalid")
            .env("HTTPS_PROXY", "https://PROXY")
            .reports("http:// or socks5://"),
        at("proxy-url with https", "hub.invalid")
            .proxy_url("https://PROXY")
            .reports("http:// or socks5://"),
        // Go takes a value that is not valid for none, and connects directly.
        via("white space", "0.0.0.0")
            .env("HTTPS_PROXY", " http://PROXY\n")
            .ours("http proxy to 0.0.0.0"),
        via("an invalid proxy", "0.0.0.0")
            .env("HTTPS_PROXY", "http://a b")
            .ours("HTTPS_PROXY cannot be used"),
        via("an invalid proxy and a loopback address", "127.0.0.1")
            .env("HTTPS_PROXY", "http://a b"),
        via("an invalid proxy and localhost", "localhost").env("HTTPS_PROXY", "http://a b"),
        via("a proxy that does not respond", "hub.invalid")
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .reports("through the proxy http://127.0.0.1:1"),
    ]
}

fn write(world: &World, case: &Case, directory: &Path) {
    let file = |name: &str, content: &str| {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let config = world.kubeconfig(case.host, &case.cluster, &case.user).to_string();
    let config = world.with_proxy(&config).replace("SERVER", &world.hub.to_string());
    file("config", &config);
    file(".kube/config", &config);
    file("wrapped", &config.replace(&world.ca, &world.ca.replace('M', "M\\r\\n")));
    file("plain", &config.replace(r#""namespace":"team","#, ""));
    file("nobody", &config.replace(r#""user":"us""#, r#""user":"eve""#));
    file("documents", &format!("---\n{config}\n---\n{}", config.replace("of-file", "of-second")));
    file("void", &format!("---\n---\n{}", config.replace("of-file", "of-second")));
    file("half", &format!("{config}\n---\n{{"));
    let twice = config.replace(r#""token":"#, r#""token":"first","token":"#);
    file("twice", &twice.replace(r#""users":"#, r#""users":[],"users":"#));
    file(
        "double",
        &config.replace(r#""users":["#, r#""users":[{"name":"us","user":{"token":"a"}},"#),
    );
    for (name, bytes) in [("le", u16::to_le_bytes as fn(u16) -> [u8; 2]), ("be", u16::to_be_bytes)]
    {
        let text: Vec<u8> =
            "\u{feff}".encode_utf16().chain(config.encode_utf16()).flat_map(bytes).collect();
        std::fs::write(directory.join(name), text).unwrap();
    }
    file("pod", &config.replace(r#""kind":"Config""#, r#""kind":"Pod""#));
    file("v9", &config.replace(r#""apiVersion":"v1""#, r#""apiVersion":"v9""#));
    file("unset", r#"{"apiVersion":"v1","kind":"Config","current-context":"","clusters":null}"#);
    file("other", r#"{"users":[{"name":"us","user":{"token":"token-of-other"}}]}"#);
    file("empty", "");
    file("broken", "{");
    file("token", "token-of-token-file\n");
    let ca = String::from_utf8(STANDARD.decode(&world.ca).unwrap()).unwrap();
    file("ca.crt", &ca);
    file("serviceaccount/ca.crt", &ca);
    file("serviceaccount/token", "token-of-pod");
    file("serviceaccount/namespace", "of-pod");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": "token-of-exec" },
    });
    file("exec", &format!("#!/bin/sh\necho '{credential}'\n"));
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(directory.join("exec"), permissions).unwrap();
}

async fn has_namespaces() -> bool {
    let tried = Command::new("unshare").args(NAMESPACES).arg("true").output().await;
    let has = tried.is_ok_and(|output| output.status.success());
    if !has {
        let _ = writeln!(io::stderr(), "SKIPPED, the ServiceAccount of a Pod: unshare fails");
    }
    has
}

async fn kubectl() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane.sh");
    let programs = Command::new(script).stderr(Stdio::inherit()).output().await.unwrap();
    Path::new(String::from_utf8(programs.stdout).unwrap().trim()).join("kubectl")
}

#[tokio::test]
async fn in_a_pod_the_namespace_is_that_of_kubectl() {
    if !has_namespaces().await {
        return;
    }
    let (world, kubectl) = (World::start().await, kubectl().await);
    for (case, expected) in [
        (pod("no kubeconfig", "127.0.0.1"), "of-pod"),
        (pod("the variable", "127.0.0.1").env("POD_NAMESPACE", "of-variable"), "of-variable"),
        (pod("a context", "127.0.0.1").file("config"), "team"),
        (pod("a context without a namespace", "127.0.0.1").file("plain"), "of-pod"),
        (case("no Pod").file("plain").env("POD_NAMESPACE", "of-variable"), "default"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&world, &case, directory.path());
        let create = ["create", "token", "app", "-v=6"];
        let (_, theirs) = world.reached(&case, directory.path(), &kubectl, &create).await;
        let theirs = String::from_utf8(theirs.unwrap().stderr).unwrap();
        assert!(theirs.contains(&format!("/namespaces/{expected}/")), "{}: {theirs}", case.name);
        let request = ["request", "--service-account=app", "--dry-run=client", "--output=yaml"];
        let (_, ours) =
            world.reached(&case, directory.path(), kubectl_clusterprofile(), &request).await;
        let ours = String::from_utf8(ours.unwrap().stdout).unwrap();
        assert!(ours.contains(&format!("namespace: {expected}\n")), "{}: {ours}", case.name);
    }
}

#[tokio::test]
async fn every_program_reaches_the_hub_as_kubectl_does_or_reports_why_not() {
    let kubectl = kubectl().await;
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let world = World::start().await;
    let mut wrong = Vec::new();
    let has_namespaces = has_namespaces().await;
    for case in configurations().into_iter().chain(proxies()) {
        if case.is_in_pod && !has_namespaces {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        write(&world, &case, directory.path());
        // With a timeout, kubectl does not use the Pod's ServiceAccount.
        let raw = ["get", "--raw", "/version", "--request-timeout=20s"];
        let raw = if case.is_in_pod { &raw[..3] } else { &raw };
        let (expected, kubectl) = world.reached(&case, directory.path(), &kubectl, raw).await;
        let run = [
            "run",
            "--kubeconfig=config",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        let commands: [(&Path, &[&str]); 4] = [
            (kubectl_clusterprofile(), &["list", "team"]),
            (hub_addons, &["cleanup", "--access-provider=x", "--dry-run"]),
            (cp_creds(), &["--managed-serviceaccount=app"]),
            (hub_addons, &run),
        ];
        // What does not reach the hub, tries again for ever.
        let is_for_run = case.env.contains(&("KUBECONFIG", "config")) && !expected.is_empty();
        let count = if is_for_run { 4 } else { 3 };
        for (index, (program, arguments)) in commands.into_iter().take(count).enumerate() {
            let (got, output) = world.reached(&case, directory.path(), program, arguments).await;
            let reported = case.plugin_reports.filter(|_| index == 2);
            let text = output
                .as_ref()
                .map(|output| String::from_utf8_lossy(&output.stderr))
                .unwrap_or_default();
            let is_success = output.as_ref().is_none_or(|output| output.status.success());
            let right = match (reported, case.ours) {
                (Some(words), _) => got.is_empty() && text.contains(words),
                (_, Some(words)) => got.contains(words) || got.is_empty() && text.contains(words),
                (None, None) => got == expected && !(got.is_empty() && is_success),
            };
            if !right {
                let name = program.file_name().unwrap().display();
                let theirs = kubectl.as_ref().map(|it| String::from_utf8_lossy(&it.stderr));
                wrong.push(format!(
                    "{}: {name}: {got:?}, expected {:?}\n  {text}\n  kubectl: {expected:?} {theirs:?}",
                    case.name,
                    reported.or(case.ours).unwrap_or(&expected),
                ));
            }
            if case.name == "an expired ID token" && index < 2 {
                assert!(text.contains("expired at 2001-09-09T01:46:40Z"), "{text}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
