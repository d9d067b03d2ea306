//! Forwards one request.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::task::JoinHandle;

use super::upstream::Unreachable;
use super::{Clusters, Upstream};

/// A response of the proxy or of the cluster.
pub(crate) type Answer = Response<Either<Full<Bytes>, FromUpstream>>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPassedOn {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it switched protocols without a request")]
    Switched,
}

/// Forwards a request and returns the response.
pub(super) async fn answer(clusters: &Clusters, request: Request<Incoming>) -> Answer {
    let (cluster, path) = split(request.uri());
    let Some(upstream) = clusters.get(cluster) else {
        return status(
            StatusCode::NOT_FOUND,
            "NotFound",
            &format!("cluster {cluster:?} not found"),
        );
    };
    // Both are parts of a valid URI.
    let Ok(target) = format!("{}{path}", upstream.prefix()).parse() else {
        return status(StatusCode::BAD_REQUEST, "BadRequest", "the path cannot be forwarded");
    };
    let cluster = cluster.to_owned();
    pass_on(upstream, target, request).await.unwrap_or_else(|error| {
        // Kubernetes defines no reason for this code.
        status(
            StatusCode::BAD_GATEWAY,
            "",
            &format!("cluster {cluster:?} cannot be reached: {error}"),
        )
    })
}

/// Splits a path into the cluster's name and the path there; the query stays with the path.
fn split(uri: &Uri) -> (&str, String) {
    // Missing only in `CONNECT` and `OPTIONS *`, which are not sent to API servers.
    let path = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let path = path.strip_prefix('/').unwrap_or_default();
    let (cluster, rest) = path.split_at(path.find(['/', '?']).unwrap_or(path.len()));
    (cluster, if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") })
}

/// Passes a request on to this path and query of a server.
async fn pass_on(
    upstream: &Upstream,
    target: Uri,
    mut request: Request<Incoming>,
) -> Result<Answer, NotPassedOn> {
    let client = keep_end_to_end(request.headers_mut()).then(|| hyper::upgrade::on(&mut request));
    if let Ok(host) = HeaderValue::from_str(upstream.authority()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = target;
    *request.version_mut() = Version::HTTP_11;

    // A connection for each request: nothing is shared by mistake, and no request is sent twice because an idle
    // connection was closed.
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(upstream.connect().await?)).await?;
    let connection = Connection(tokio::spawn(async {
        // The caller gets the error, too.
        let _ = connection.with_upgrades().await;
    }));
    let mut response = sender.send_request(request).await?;

    keep_end_to_end(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(
            response.map(|body| Either::Right(FromUpstream { body, _connection: connection }))
        );
    }
    let client = client.ok_or(NotPassedOn::Switched)?;
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(tunnel(client, server, connection));
    Ok(response.map(|_| Either::Left(Full::default())))
}

/// Removes the headers that a proxy does not forward (RFC 9110, section 7.6.1), except for an upgrade. Returns whether
/// there is one.
fn keep_end_to_end(headers: &mut HeaderMap) -> bool {
    const HOP_BY_HOP: [&str; 8] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
    ];
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = values
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let protocol = headers.remove(UPGRADE).filter(|_| named.contains(&UPGRADE));
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    for name in named {
        headers.remove(name);
    }
    let upgrades = protocol.is_some();
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    upgrades
}

/// Forwards both directions of an upgraded connection until both have ended or one fails.
async fn tunnel(client: OnUpgrade, server: OnUpgrade, _connection: Connection) {
    if let Ok((client, server)) = tokio::try_join!(client, server) {
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

fn status(code: StatusCode, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(Either::Left(Full::from(status.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A connection to an API server that ends when the consumer of its response does: a watch that its client has left is
/// closed.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response body, forwarded piece by piece.
#[derive(Debug)]
pub(crate) struct FromUpstream {
    body: Incoming,
    _connection: Connection,
}

impl Body for FromUpstream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
