//! `test`: connects to one cluster as an application with client-go does, hop by hop.
//!
//! Runs the exec plugin by its protocol (`KUBERNETES_EXEC_INFO`,
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#input-and-output-formats>) and requests the
//! cluster's version from the published endpoint. The token is sent to that endpoint only.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client_config::ProxyVariables;
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hub_api::cluster_access::ClusterAccess;
use hub_api::cluster_profile::Cluster;
use hub_api::secret::SecretBytes;
use hub_core::access::{EXEC_EXTENSION, PublishedServer, Sighting};
use hub_core::endpoint::ServerAddress;
use hub_core::entry::Refusal;
use hub_core::trust::TrustBundle;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use kube::api::ListParams;
use object_names::visible;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::args::TestArgs;
use crate::explain::shown;
use crate::hub::Hub;
use crate::{CommandError, Conclusion, kubeconfig, table};
use hub_core::explain::Status;

/// The timeout of a hop.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of a response, in bytes.
const RESPONSE_MAX: usize = 64 * 1024;
/// The resource that shows what is bound to the user of a request.
const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// The protocol of exec plugins.
const EXEC_VERSION: &str = "client.authentication.k8s.io/v1";

/// A step of the connection.
#[derive(Debug, Serialize)]
struct Hop {
    #[serde(rename = "hop")]
    name: &'static str,
    mark: Status,
    milliseconds: u64,
    /// The result, or the error.
    detail: String,
}

/// The hops up to now.
#[derive(Debug, Default)]
struct Way(Vec<Hop>);

/// The last hop has failed, which ends the test.
struct Ends;

impl Way {
    /// Runs a hop for at most [`PATIENCE`]; returns an error if it fails.
    async fn go<T>(
        &mut self,
        hop: &'static str,
        step: impl Future<Output = Result<(T, String), String>>,
    ) -> Result<T, Ends> {
        let begun = Instant::now();
        let result = tokio::time::timeout(PATIENCE, step).await;
        let result = result.unwrap_or_else(|_| Err(format!("no result within {PATIENCE:?}")));
        let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (mark, detail, result) = match result {
            Ok((value, detail)) => (Status::Ok, detail, Ok(value)),
            Err(detail) => (Status::Problem, detail, Err(Ends)),
        };
        self.0.push(Hop { name: hop, mark, milliseconds, detail });
        result
    }
}

/// Connects to a cluster and prints the hops.
pub async fn test(
    hub: &Hub,
    args: &TestArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let providers = kubeconfig::providers(hub, &args.target, args.reach.provider()).await?;
    // There is at least one.
    let [(_, stanza), ..] = &*providers else { return Ok(Conclusion::Problem) };
    let hub_kubeconfig = hub.kubeconfig_for_plugin(args.reach.hub_kubeconfig.as_ref())?;
    let mut way = Way::default();
    let walked = walk(hub, hub_kubeconfig.as_deref(), args, stanza, &mut way).await;
    print(&way.0, args, out)?;
    Ok(if walked.is_err() { Conclusion::Problem } else { Conclusion::Fine })
}

/// Where the ClusterAccesses of a namespace ask for permissions: in these namespaces, and in any other. An application
/// cannot list them.
async fn namespaces(hub: &Hub, namespace: &str) -> BTreeSet<String> {
    let listed = hub.api::<ClusterAccess>(&(), Some(namespace)).list(&ListParams::default()).await;
    let permissions = listed.into_iter().flatten().flat_map(|access| access.spec.permissions);
    let named = permissions.flat_map(|permission| permission.namespaces);
    named.chain(["default".to_owned()]).collect()
}

async fn walk(
    hub: &Hub,
    hub_kubeconfig: Option<&Path>,
    args: &TestArgs,
    stanza: &Cluster,
    way: &mut Way,
) -> Result<(), Ends> {
    let (uri, host, port) = way.go("endpoint", async { endpoint(stanza) }).await?;
    let addresses = way
        .go("name resolution", async {
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            let found: Vec<_> = found.map_err(|error| format!("{host}: {error}"))?.collect();
            let list: Vec<_> = found.iter().map(|address| address.ip().to_string()).collect();
            if found.is_empty() {
                Err(format!("{host} has no address"))
            } else {
                Ok((found, list.join(", ")))
            }
        })
        .await?;
    let stream = way
        .go("TCP", async {
            let with_proxy = |text: String| match ProxyVariables::of_process().proxy_for(&host, port) {
                Some(_) => format!(
                    "{text}; an application with this HTTPS_PROXY connects through the proxy, unless NO_PROXY has {host}"
                ),
                None => text,
            };
            let stream = TcpStream::connect(&*addresses).await;
            let stream = stream.map_err(|error| with_proxy(error.to_string()))?;
            let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
            Ok((stream, with_proxy(peer)))
        })
        .await?;
    let stream = way.go("TLS", handshake(stanza, &host, stream)).await?;
    let token = way.go("credential", credential(hub_kubeconfig, args, stanza)).await?;
    let (mut requests, answer) = way
        .go("request", async {
            let mut requests = Requests::begin(&uri, stream, token).await?;
            let answer = requests.send(Method::GET, "/version", String::new()).await?;
            let detail =
                format!("GET {}/version: {}", uri.path().trim_end_matches('/'), answer.status);
            Ok(((requests, answer), detail))
        })
        .await?;
    way.go("authentication", async {
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(((), "the cluster accepts the token".to_owned()));
        }
        // The messages of the user server begin with its name.
        let of_user_server =
            answer.text("/message").filter(|message| message.starts_with(Refusal::PREFIX));
        Err(of_user_server.unwrap_or_else(|| "the cluster does not accept the token".to_owned()))
    })
    .await?;
    way.go("response", async { answer.version() }).await?;
    way.go("permissions", async {
        requests.permissions(&namespaces(hub, &args.target.namespace).await).await
    })
    .await
}

/// A response of the server. The server knows the token, and may repeat it or parts of it between other characters: such a
/// text is not shown.
struct Answer {
    status: StatusCode,
    body: Value,
    token: SecretBytes,
}

impl Answer {
    /// The text in a field.
    fn text(&self, pointer: &str) -> Option<String> {
        // So many characters of a token in a row are no coincidence.
        const PART: usize = 16;
        let is_kept = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let kept = |text: &[u8]| text.iter().copied().filter(is_kept).collect::<Vec<u8>>();
        let text = self.body.pointer(pointer)?.as_str()?;
        let (token, of_text) = (kept(self.token.expose()), kept(text.as_bytes()));
        let length = PART.min(token.len()).max(1);
        let repeats = of_text
            .windows(length)
            .any(|part| token.windows(length).any(|of_token| of_token == part));
        Some(if repeats { "a text that repeats the token".to_owned() } else { text.to_owned() })
    }

    fn version(&self) -> Result<((), String), String> {
        match self.text("/gitVersion") {
            Some(version) if self.status == StatusCode::OK => {
                Ok(((), format!("Kubernetes {version}")))
            }
            _ => Err(format!("{}: {}", self.status, self.text("/message").unwrap_or_default())),
        }
    }

    /// The ClusterRoles that are bound to the user in a namespace and do not exist, by the answer to a
    /// `SelfSubjectRulesReview`: what they would permit is forbidden, and nothing else shows it.
    fn missing_roles(&self) -> Option<Vec<String>> {
        const NAMED: &str = "clusterrole.rbac.authorization.k8s.io \"";
        self.body.get("status").filter(|_| self.status == StatusCode::CREATED)?;
        let text = self.text("/status/evaluationError").unwrap_or_default();
        let names = text.split(NAMED).skip(1).filter_map(|rest| rest.split_once("\" not found"));
        Some(names.map(|(name, _)| name.to_owned()).collect())
    }
}

type Endpoint = (Uri, String, u16);

fn endpoint(stanza: &Cluster) -> Result<(Endpoint, String), String> {
    if stanza.proxy_url.is_some() {
        return Err("the profile has a proxy-url, which this command does not support".to_owned());
    }
    let uri: Uri =
        stanza.server.parse().map_err(|error| format!("{:?}: {error}", stanza.server))?;
    let host =
        uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    if uri.scheme_str() != Some("https") || host.is_empty() {
        return Err(format!("expected https://HOST, got {:?}", stanza.server));
    }
    let port = uri.port_u16().unwrap_or(443);
    Ok(((uri, host, port), stanza.server.clone()))
}

/// Runs the exec plugin as client-go does.
async fn credential(
    hub_kubeconfig: Option<&Path>,
    args: &TestArgs,
    stanza: &Cluster,
) -> Result<(SecretBytes, String), String> {
    let config =
        stanza.extensions.iter().find(|it| it.name == EXEC_EXTENSION).map(|it| &it.extension);
    let ca = stanza.certificate_authority_data.as_ref().map(|ca| STANDARD.encode(&ca.0));
    let info = json!({
        "apiVersion": EXEC_VERSION, "kind": "ExecCredential",
        "spec": { "interactive": false, "cluster": {
            "server": stanza.server, "tls-server-name": stanza.tls_server_name,
            "certificate-authority-data": ca, "config": config,
        } },
    });
    let mut command = tokio::process::Command::new(&args.reach.plugin);
    command
        .arg(args.reach.plugin_argument())
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .env("NAMESPACE", &args.target.namespace)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(path) = hub_kubeconfig {
        command.env("KUBECONFIG", path);
    }
    let output = command
        .output()
        .await
        .map_err(|error| format!("cannot run {:?}: {error}", args.reach.plugin))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, text.lines().last().unwrap_or_default()));
    }
    // Without the error, which may quote the token.
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| "the plugin did not print a valid ExecCredential")?;
    let status = &answer["status"];
    let token = status["token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or("the ExecCredential of the plugin has no token")?;
    let expires = status["expirationTimestamp"].as_str().map(|time| format!(", expires {time}"));
    Ok((
        SecretBytes::from(token.as_bytes()),
        format!("{}{}", args.reach.plugin, expires.unwrap_or_default()),
    ))
}

/// Makes the handshake as an application does that trusts what the profile publishes.
async fn handshake(
    stanza: &Cluster,
    host: &str,
    stream: TcpStream,
) -> Result<(TlsStream<TcpStream>, String), String> {
    let ca = stanza.certificate_authority_data.as_ref().ok_or("the profile publishes no CA")?;
    let current =
        TrustBundle::from_published(&ca.0).map_err(|error| format!("the published CA: {error}"))?;
    let host = stanza.tls_server_name.as_deref().unwrap_or(host).to_owned();
    let address = ServerAddress { host: host.clone(), port: 0 };
    let server =
        PublishedServer { address, hosts: vec![host.clone()], current, replaced: BTreeSet::new() };
    let (stream, sighting) = match server_check::handshake(&server, stream, &[b"http/1.1"]).await {
        Ok((stream, presented)) => (Some(stream), Sighting::Presented(presented)),
        Err(sighting) => (None, sighting),
    };
    let detail = server_check::verdict(&server, &sighting)?;
    Ok((stream.ok_or_else(|| detail.clone())?, detail))
}

/// An HTTP connection to the cluster with a token.
struct Requests<'a> {
    sender: SendRequest<Full<Bytes>>,
    uri: &'a Uri,
    token: SecretBytes,
}

impl<'a> Requests<'a> {
    async fn begin(
        uri: &'a Uri,
        stream: TlsStream<TcpStream>,
        token: SecretBytes,
    ) -> Result<Self, String> {
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Self { sender, uri, token })
    }

    async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Answer, String> {
        let bearer = [b"Bearer ", self.token.expose()].concat();
        let mut authorization = http::HeaderValue::from_bytes(&bearer)
            .map_err(|_| "the token is not valid in a header")?;
        authorization.set_sensitive(true);
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.uri.path().trim_end_matches('/')))
            .header(
                http::header::HOST,
                self.uri.authority().map_or("", |authority| authority.as_str()),
            )
            .header(http::header::AUTHORIZATION, authorization)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| error.to_string())?;
        let response =
            self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Answer { status, body, token: self.token.clone() })
    }

    /// Whether every ClusterRole exists that is bound to the account: in all namespaces, or in one of these.
    async fn permissions(&mut self, namespaces: &BTreeSet<String>) -> Result<((), String), String> {
        let mut missing = BTreeSet::new();
        for namespace in namespaces {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                "spec": { "namespace": namespace },
            });
            let answer = self.send(Method::POST, RULES_REVIEWS, review.to_string()).await?;
            match answer.missing_roles() {
                Some(roles) => missing.extend(roles),
                None => {
                    return Ok(((), format!("unknown: POST {RULES_REVIEWS}: {}", answer.status)));
                }
            }
        }
        if missing.is_empty() {
            Ok(((), "every ClusterRole that is bound exists".to_owned()))
        } else {
            let names = Vec::from_iter(missing).join(", ");
            Err(format!(
                "ClusterRoles that are bound to the account do not exist on the cluster: {names}"
            ))
        }
    }
}

fn print(hops: &[Hop], args: &TestArgs, out: &mut impl Write) -> Result<(), CommandError> {
    match args.output {
        Some(format) => format.print(&json!({ "hops": hops }), out)?,
        None => table::print(&hops.iter().map(row).collect::<Vec<_>>(), out)?,
    }
    Ok(())
}

/// A line for a terminal. The cluster and the plugin choose the text of the details, so it is made visible.
fn row(hop: &Hop) -> Vec<String> {
    vec![
        shown(hop.mark),
        hop.name.to_owned(),
        format!("{} ms", hop.milliseconds),
        visible(&hop.detail),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: StatusCode, body: Value) -> Answer {
        Answer { status, body, token: SecretBytes::from(b"secret-token".as_slice()) }
    }

    #[test]
    fn what_a_cluster_says_does_nothing_to_the_terminal() {
        let body = json!({ "gitVersion": "v1\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\nauthentication" });
        let ((), detail) = answer(StatusCode::OK, body).version().unwrap();
        let hop = Hop { name: "response", mark: Status::Ok, milliseconds: 1, detail };
        assert_eq!(
            row(&hop)[3],
            "Kubernetes v1\u{fffd}]0;x\u{fffd}\u{fffd}31m\u{fffd} authentication"
        );
    }

    #[test]
    fn a_token_that_the_server_repeats_is_not_shown() {
        for repeated in ["secret-token", "s e\u{200b}c\nr/et-token"] {
            let text = format!("{} Bearer {repeated}", Refusal::PREFIX);
            let answer = answer(StatusCode::UNAUTHORIZED, json!({ "message": text }));
            assert_eq!(answer.text("/message").as_deref(), Some("a text that repeats the token"));
            let error = format!("clusterrole.rbac.authorization.k8s.io \"{repeated}\" not found");
            let answer = self::answer(
                StatusCode::CREATED,
                json!({ "status": { "evaluationError": error } }),
            );
            assert_eq!(answer.missing_roles(), Some(vec![]));
        }
    }
}
