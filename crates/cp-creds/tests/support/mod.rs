//! A hub with one Secret: a TLS server whose behaviour a test defines.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "clippy only knows #[test] functions as tests")]

use std::io::{Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// The plugin's token for the hub. No part of it is a word that a message contains.
pub const OWN_TOKEN: &str = "qZ7x-Kw9v-Tj3m-Wq8z-Ys4d";

/// 2100-01-01, in seconds.
pub const FAR_FUTURE: i64 = 4_102_444_800;

/// The server's side of a connection.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// The token that the hub synced.
pub fn synced_token() -> String {
    format!("e30.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{FAR_FUTURE}}}"#)))
}

/// The Secret of cluster `cluster1` and `ManagedServiceAccount` `multikueue` in `namespace`, as the API server returns
/// it.
pub fn secret(namespace: &str) -> Value {
    json!({
        "kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": "cluster1-multikueue", "namespace": namespace, "uid": "1"},
        "data": {"token": STANDARD.encode(synced_token()), "ca.crt": STANDARD.encode("x")},
    })
}

/// A response with a length.
pub fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into()
}

/// The response with the Secret of namespace `ns`.
pub fn found() -> Vec<u8> {
    response("200 OK", &secret("ns").to_string())
}

/// A hub that runs a test's behaviour after it has read a request's head.
pub struct Hub {
    pub port: u16,
    pub authority: CertifiedIssuer<'static, KeyPair>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// A hub with the same response to every request.
    pub fn answering(response: Vec<u8>) -> Self {
        Self::behaving(move |stream| {
            let _ = stream.write_all(&response);
        })
    }

    /// A hub with this behaviour for each connection.
    pub fn behaving(behaviour: impl Fn(&mut Stream) + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1", false, behaviour)
    }

    /// A hub whose certificate has `name`, and that may request a client certificate of its own authority.
    pub fn start(
        name: &str,
        asks: bool,
        behaviour: impl Fn(&mut Stream) + Send + Sync + 'static,
    ) -> Self {
        let authority = authority();
        let own = certificate(&authority, name);
        Self::serve(authority, &own, asks, behaviour)
    }

    /// A hub with a self-signed certificate that returns the Secret of namespace `ns`.
    pub fn self_signed(is_ca: IsCa) -> Self {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let own = (authority.pem(), authority.key().serialize_pem());
        Self::serve(authority, &own, false, |stream| stream.write_all(&found()).unwrap())
    }

    fn serve(
        authority: CertifiedIssuer<'static, KeyPair>,
        own: &(String, String),
        asks: bool,
        behaviour: impl Fn(&mut Stream) + Send + Sync + 'static,
    ) -> Self {
        let config = Arc::new(server_config(&authority, own, asks));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, behaviour) = (Arc::clone(&heads), Arc::new(behaviour));
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let (config, seen, behaviour) =
                    (Arc::clone(&config), Arc::clone(&seen), Arc::clone(&behaviour));
                thread::spawn(move || {
                    let mut stream =
                        StreamOwned::new(ServerConnection::new(config).unwrap(), tcp.unwrap());
                    if let Some(head) = read_head(&mut stream) {
                        seen.lock().unwrap().push(head);
                        behaviour(&mut stream);
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                });
            }
        });
        Self { port, authority, heads }
    }

    /// The heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// A kubeconfig for this hub, in JSON, which is YAML.
    pub fn kubeconfig(&self) -> Value {
        json!({
            "current-context": "hub",
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "consumer", "namespace": "ns"}}],
            "clusters": [{"name": "hub", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority-data": STANDARD.encode(self.authority.pem()),
            }}],
            "users": [{"name": "consumer", "user": {"token": OWN_TOKEN}}],
        })
    }
}

/// A certificate authority.
pub fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in PEM.
pub fn certificate(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn server_config(
    authority: &CertifiedIssuer<'static, KeyPair>,
    (certificate, key): &(String, String),
    asks: bool,
) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let builder = if asks {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.unwrap().with_client_cert_verifier(verifier)
    } else {
        builder.unwrap().with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
}

fn read_head(stream: &mut Stream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).ok()
}

/// `KUBERNETES_EXEC_INFO` as client-go writes it.
pub fn exec_info(version: &str, config: &Value) -> String {
    json!({
        "kind": "ExecCredential",
        "apiVersion": format!("client.authentication.k8s.io/{version}"),
        "spec": {"interactive": false, "cluster": {
            "server": "https://cluster-proxy-addon-user.proxy:9092/cluster1",
            "certificate-authority-data": "LS0t",
            "config": config,
        }},
    })
    .to_string()
}
