//! One request: from the client to the cluster, and the response.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
    UPGRADE,
};
use http::{Request, Response, StatusCode, Uri, Version};
use hub_core::entry::{self, Caller, Refusal, Route};
use hub_core::own_identity;
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use konnectivity::Budget;
use tokio::io::copy_bidirectional;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access_log::AccessLog;
use crate::accounts::{Account, Accounts};
use crate::admission::Admission;
use crate::body::{ResponseBody, Upload, UploadEnd};
use crate::clusters::Clusters;
use crate::connections::{Connection, OpenRequest};
use crate::metrics::{Counted, Hop, StreamKind, UserServerMetrics};
use crate::review::Reviews;
use crate::sessions::Session;
use crate::streams::{STREAM_WINDOW, ends};

/// How long a cluster may take for the head of a response. An API server takes at most a minute, and the head of a
/// watch arrives at once; a Service that it proxies may take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(5);
/// As how many requests one counts that switches protocols, and how many bytes may wait in its tunnel for its client:
/// more than arrive at once, since the windows of the tunnel are smaller.
const UPGRADED: usize = 20;
const UPGRADED_BYTES: usize = 1280 << 10;
/// The authority of requests to API servers.
const AUTHORITY: &str = "kubernetes.default.svc";

/// What decides and forwards requests.
pub(crate) struct Entry {
    pub(crate) admission: Admission,
    pub(crate) reviews: Arc<Reviews>,
    pub(crate) accounts: Accounts,
    pub(crate) clusters: Arc<Clusters>,
    pub(crate) metrics: UserServerMetrics,
    pub(crate) log: AccessLog,
    /// Connections that have switched protocols.
    pub(crate) upgraded: TaskTracker,
    /// Cancelled when what is still open has to end.
    pub(crate) end: CancellationToken,
}

/// What is known about a request so far.
#[derive(Default)]
struct Known {
    caller: Option<Arc<Caller>>,
    route: Option<Route>,
}

/// A request that may pass.
struct Admitted {
    request: Request<Upload>,
    route: Route,
    headers: HeaderMap,
    account: Account,
    open: Open,
}

/// An admitted request, until it and both of its bodies end.
struct Open {
    session: Arc<Session>,
    metrics: UserServerMetrics,
    _counted: Counted,
    _of_connection: OpenRequest,
    _upload: UploadEnd,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.session.cut.is_cancelled() {
            self.metrics.cut(self.session.why().reason());
        }
    }
}

impl Entry {
    /// The response to a request: the cluster's, or a `Status` that says which step failed.
    pub(crate) async fn respond(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Response<ResponseBody> {
        let (method, mut known) = (request.method().clone(), Known::default());
        let is_discovery = entry::is_discovery(request.headers());
        let response = match self.forward(request, connection, &mut known).await {
            Ok(response) => {
                self.metrics.forwarded.inc();
                response
            }
            Err(refusal) => {
                // What was open ends at once, before its task does.
                if !ends().stream.is_cancelled() {
                    connection.refusal_is_due().await;
                }
                self.metrics.refused(refusal.reason());
                refused(&refusal, is_discovery, connection)
            }
        };
        let code = response.status().as_u16();
        self.log.write(&method, known.caller.as_deref(), known.route.as_ref(), code);
        response
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        connection: &Arc<Connection>,
        known: &mut Known,
    ) -> Result<Response<ResponseBody>, Refusal> {
        // HTTP/2 has no such upgrade.
        let upgrade =
            entry::upgrade(request.headers()).filter(|_| request.version() == Version::HTTP_11);
        match upgrade {
            Some(protocol) => {
                let client = hyper::upgrade::on(&mut request);
                let admitted = self.admit(request, connection, StreamKind::Upgraded, known).await?;
                self.switch(admitted, protocol, client).await
            }
            None => {
                self.send(self.admit(request, connection, StreamKind::Request, known).await?).await
            }
        }
    }

    /// Reads where the request goes, has its token reviewed, and checks the grant.
    async fn admit(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
        kind: StreamKind,
        known: &mut Known,
    ) -> Result<Admitted, Refusal> {
        let route = entry::route(request.method(), request.uri(), request.version())?;
        known.route = Some(route.clone());
        let token = entry::bearer_token(request.headers())?;
        let begun = Instant::now();
        let body = request.body().size_hint().upper().unwrap_or(u64::MAX).min(STREAM_WINDOW.into());
        let bytes = size(request.headers()) + usize::try_from(body).unwrap_or_default();
        let caller = {
            let mut review = pin!(self.reviews.caller(token, connection.peer, bytes));
            if let Some(caller) = review.as_mut().now_or_never() {
                caller
            } else {
                // The hub is asked: the peer has few places for that.
                connection.used();
                review.await
            }
        };
        self.metrics.hop(Hop::Review, begun.elapsed());
        let caller = Arc::clone(known.caller.insert(caller?));
        let begun = Instant::now();
        let weight = if kind == StreamKind::Upgraded { UPGRADED } else { 1 };
        let session = self.admission.open_with(&caller, &route.cluster, weight, ends());
        self.metrics.hop(Hop::Grant, begun.elapsed());
        let session = Arc::new(session?);
        let mut headers = entry::end_to_end(request.headers())?;
        let account = self.accounts.get(&route.cluster);
        let account = account.inspect_err(|_| self.clusters.forget(&route.cluster))?;
        headers.insert(AUTHORIZATION, account.authorization.clone());
        impersonate(&mut headers, &caller)?;
        let (parts, body) = request.into_parts();
        let (upload, upload_end) = Upload::new(body, Arc::clone(&session));
        let open = Open {
            session,
            metrics: self.metrics.clone(),
            _counted: Counted::new(&self.metrics.open(kind)),
            _of_connection: connection.begin(),
            _upload: upload_end,
        };
        Ok(Admitted { request: Request::from_parts(parts, upload), route, headers, account, open })
    }

    /// Sends an ordinary request or a watch.
    async fn send(&self, admitted: Admitted) -> Result<Response<ResponseBody>, Refusal> {
        let Admitted { mut request, route, headers, account, open } = admitted;
        // Until it is sent, which a cluster may delay.
        let _head = open.session.hold(size(&headers));
        let uri = Uri::builder()
            .scheme("https")
            .authority(AUTHORITY)
            .path_and_query(route.target.as_str());
        let uri = uri.build().map_err(|_| Refusal::Target("cannot be forwarded"))?;
        readdress(&mut request, Version::HTTP_2, uri, headers);
        let sent = async {
            let mut is_second = false;
            loop {
                let begun = Instant::now();
                let mut slot = self.clusters.stream(&open.session, &account).await?;
                self.metrics.hop(Hop::Tunnel, begun.elapsed());
                request.body_mut().sent_in(Arc::clone(&slot.stream));
                let begun = Instant::now();
                let unanswered = slot.sent();
                let sent = slot.sender.try_send_request(request).await;
                unanswered.answered();
                match sent {
                    Ok(response) => {
                        self.metrics.hop(Hop::Cluster, begun.elapsed());
                        return Ok((response, slot.stream));
                    }
                    // The connection has ended before anything was sent.
                    Err(mut error) => match error.take_message() {
                        Some(unsent) if !is_second => {
                            request = unsent;
                            is_second = true;
                        }
                        _ => return Err(error.into_error().to_string()),
                    },
                }
            }
        };
        let (response, stream) = self.until_cut(&open.session, sent).await?;
        let response = checked(response, &route)?;
        Ok(pass_on(response, open, stream))
    }

    /// Sends a request that switches protocols, on a connection of its own.
    async fn switch(
        &self,
        admitted: Admitted,
        protocol: HeaderValue,
        client: OnUpgrade,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let Admitted { mut request, route, mut headers, account, open } = admitted;
        let _head = open.session.hold(size(&headers));
        headers.insert(HOST, HeaderValue::from_static(AUTHORITY));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
        let uri = route.target.parse().map_err(|_| Refusal::Target("cannot be forwarded"))?;
        readdress(&mut request, Version::HTTP_11, uri, headers);
        let session = Arc::clone(&open.session);
        let budget = Budget::counted(UPGRADED_BYTES, move |length| Box::new(session.hold(length)));
        let sent = async {
            let begun = Instant::now();
            let mut sender = self.clusters.upgradable(&route.cluster, &account, &budget).await?;
            self.metrics.hop(Hop::Tunnel, begun.elapsed());
            let begun = Instant::now();
            let response = sender.send_request(request).await;
            self.metrics.hop(Hop::Cluster, begun.elapsed());
            // The connection ends with its sender, unless it has switched protocols.
            response.map(|response| (response, sender)).map_err(|error| error.to_string())
        };
        let (response, sender) = self.until_cut(&open.session, sent).await?;
        let mut response = checked(response, &route)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(pass_on(response, open, parking_lot::Mutex::new(sender)));
        }
        let mut headers = entry::response_headers(response.headers());
        for name in [CONNECTION, UPGRADE] {
            if let Some(value) = response.headers().get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let cluster = hyper::upgrade::on(&mut response);
        let end = self.end.clone();
        self.upgraded.spawn(async move {
            tokio::select! {
                biased;
                () = open.session.cut.cancelled() => {}
                () = end.cancelled() => {}
                // What waits is not read: it would stay for as long as the client does.
                () = budget.exceeded() => {}
                () = join(client, cluster) => {}
            }
        });
        Ok(respond(response.status(), headers, ResponseBody::Ended))
    }

    /// Waits for the head of a response, until the grant ends.
    async fn until_cut<T>(
        &self,
        session: &Session,
        sent: impl Future<Output = Result<T, String>>,
    ) -> Result<T, Refusal> {
        let sent = tokio::select! {
            biased;
            () = session.cut.cancelled() => return Err(session.why()),
            () = self.end.cancelled() => return Err(Refusal::ShuttingDown),
            sent = timeout(RESPONSE_TIMEOUT, sent) => sent,
        };
        sent.unwrap_or_else(|_| Err("its API server did not respond in time".to_owned()))
            .map_err(|cause| Refusal::Unreachable { cluster: session.key().cluster.clone(), cause })
    }
}

/// The response of a cluster, whose body ends with the grant. What is kept until its end is dropped with the body.
fn pass_on(
    response: Response<Incoming>,
    open: Open,
    until_end: impl Send + Sync + 'static,
) -> Response<ResponseBody> {
    let (parts, body) = response.into_parts();
    let (session, headers) = (Arc::clone(&open.session), entry::response_headers(&parts.headers));
    let head = session.hold(size(&headers));
    let body = ResponseBody::of_cluster(body, session, head, (open, until_end));
    respond(parts.status, headers, body)
}

/// A response that a client may receive: not a 401, and no redirect but to the same cluster. A 401 concerns the account
/// of the user server, and the client would conclude that its own token is not valid. To the target of a redirect, it
/// may send its token.
fn checked(mut response: Response<Incoming>, route: &Route) -> Result<Response<Incoming>, Refusal> {
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return Err(Refusal::AccountRefused(route.cluster.clone()));
    }
    if status.is_redirection()
        && let Some(location) = response.headers().get(LOCATION)
    {
        let location =
            location.to_str().ok().and_then(|it| entry::redirected(route, AUTHORITY, it));
        let location = location.and_then(|location| HeaderValue::from_str(&location).ok());
        let location = location.ok_or_else(|| Refusal::Redirect(route.cluster.clone()))?;
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Copies both directions of a connection that both sides have switched.
async fn join(client: OnUpgrade, cluster: OnUpgrade) {
    if let (Ok(client), Ok(cluster)) = tokio::join!(client, cluster) {
        let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(cluster)).await;
    }
}

/// Adds the headers by which the user server's account acts as the caller.
fn impersonate(headers: &mut HeaderMap, caller: &Caller) -> Result<(), Refusal> {
    let value = |text: String| HeaderValue::from_str(&text).map_err(|_| Refusal::NoServiceAccount);
    headers.insert("impersonate-user", value(own_identity::user(&caller.namespace, &caller.name))?);
    for group in own_identity::groups(&caller.namespace) {
        headers.append("impersonate-group", value(group)?);
    }
    Ok(())
}

/// How many bytes of memory headers take, about: HPACK sends some of them in one.
fn size(headers: &HeaderMap) -> usize {
    const HEADER: usize = 100;
    headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum()
}

/// Leaves nothing of the client's request but the method and the body.
fn readdress(request: &mut Request<Upload>, version: Version, uri: Uri, headers: HeaderMap) {
    *request.version_mut() = version;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request.extensions_mut().clear();
}

fn respond(status: StatusCode, headers: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The response to a request that is refused: a `Status`, or its message for a client that shows only texts.
fn refused(
    refusal: &Refusal,
    is_discovery: bool,
    connection: &Connection,
) -> Response<ResponseBody> {
    let (media_type, text) = if is_discovery {
        ("text/plain", refusal.message())
    } else {
        ("application/json", refusal.status().to_string())
    };
    let mut response = Response::new(connection.text(text));
    *response.status_mut() =
        StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
