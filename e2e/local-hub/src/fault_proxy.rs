//! A proxy in front of a hub's API server that fails requests as a test decides.
//!
//! For each request, a [`Meddler`] decides on its [`Fate`]: the request passes, is refused, or loses its connection
//! before or after the API server has executed it, or its response breaks off or stalls. The proxy serves plain
//! HTTP/1.1 on the loopback interface; its connections to the API server use TLS. Clients send no credentials to such a
//! server, so the proxy adds those of the user for whom a kubeconfig was written.
//!
//! Held requests and stalled responses wait until [`FaultProxy::release`], which breaks their connections.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::user_server::{FromUpstream, pass_on};
use crate::{HubError, LocalHub, Upstream, ports};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The proxy forwards the request and the response.
    Pass,
    /// The proxy forwards both after this delay.
    Delay(Duration),
    /// The proxy responds with this status, optionally with `Retry-After`, and does not forward the request.
    Refuse(StatusCode, Option<u32>),
    /// The connection breaks, and the proxy does not forward the request.
    BreakBefore,
    /// The proxy forwards the request, and the connection breaks after the API server has responded.
    BreakAfter,
    /// The body of the response breaks off after this many bytes, if it has more.
    Truncate(usize),
    /// The body of the response stalls after this many bytes, if it has more.
    Stall(usize),
    /// The proxy holds the request and does not forward it.
    HoldBefore,
    /// The proxy forwards the request, and holds the response of the API server.
    HoldAfter,
}

/// Decides what happens to requests.
pub trait Meddler: Send + Sync + 'static {
    /// Decides what happens to this request.
    fn fate(&self, method: &Method, path_and_query: &str) -> Fate;
}

/// The proxy. Dropping it ends it and all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    upstream: Upstream,
    meddler: Arc<dyn Meddler>,
    /// The header that authenticates the requests.
    authorization: OnceLock<HeaderValue>,
    /// The number of held requests.
    held: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a proxy in front of a hub.
    #[allow(clippy::unused_async, reason = "a task can only be spawned inside a runtime, and this says so")]
    pub async fn start(hub: &LocalHub, meddler: Arc<dyn Meddler>) -> Result<Self, HubError> {
        let failed = |source| HubError::io("listen for a proxy", source);
        let listener = ports::listen(Ipv4Addr::LOCALHOST.into())?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let state = Arc::new(State {
            upstream: hub.upstream()?,
            meddler,
            authorization: OnceLock::new(),
            held: watch::Sender::new(0),
            released: watch::Sender::new(false),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self { address, state, task })
    }

    /// Writes a kubeconfig with which a user connects to the hub through the proxy: one user for each proxy.
    pub fn kubeconfig_for(&self, hub: &LocalHub, user: &str) -> Result<PathBuf, HubError> {
        let authorization = hub.access().authorization(user)?;
        self.state.authorization.get_or_init(|| authorization);
        hub.access().write_kubeconfig_through(hub.directory(), user, &format!("http://{}", self.address))
    }

    /// Waits until a request is held.
    pub async fn holds(&self) {
        // This value owns the sender, so the channel is open.
        let _ = self.state.held.subscribe().wait_for(|held| *held > 0).await;
    }

    /// Breaks the connections of held requests and stalled responses, and of all later ones.
    pub fn release(&self) {
        self.state.held.send_replace(0);
        self.state.released.send_replace(true);
    }

    /// Holds requests and stalls responses again from now on.
    pub fn hold_again(&self) {
        self.state.released.send_replace(false);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: tokio::net::TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(talk(stream, Arc::clone(&state)));
                }
                // This process has too many open files, some of which are connections that will end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one client, which notices errors of its connection itself.
async fn talk(stream: TcpStream, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { answer(&state, request).await }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The error that breaks a connection.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks")]
struct Broken;

type Answer = Response<Either<Full<Bytes>, Cut>>;

async fn answer(state: &State, mut request: Request<Incoming>) -> Result<Answer, Broken> {
    if let Some(authorization) = state.authorization.get() {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    let path = request.uri().path_and_query().map_or("", http::uri::PathAndQuery::as_str).to_owned();
    let fate = state.meddler.fate(request.method(), &path);
    match fate {
        Fate::Delay(delay) => tokio::time::sleep(delay).await,
        Fate::Refuse(code, retry_after) => return Ok(refusal(code, retry_after)),
        Fate::BreakBefore => return Err(Broken),
        Fate::HoldBefore => {
            state.hold().await;
            return Err(Broken);
        }
        _ => {}
    }
    let target = path.parse().map_err(|_| Broken)?;
    // An API server that cannot be reached also breaks the connection.
    let response = pass_on(&state.upstream, target, request).await.map_err(|_| Broken)?;
    if let Fate::BreakAfter | Fate::HoldAfter = fate {
        let _ = response.into_body().collect().await;
        if fate == Fate::HoldAfter {
            state.hold().await;
        }
        return Err(Broken);
    }
    let cut = match fate {
        Fate::Truncate(bytes) => Some((bytes, None)),
        Fate::Stall(bytes) => Some((bytes, Some(state.release()))),
        _ => None,
    };
    Ok(response.map(|body| match body {
        Either::Left(body) => Either::Left(body),
        Either::Right(body) => Either::Right(Cut { body, cut }),
    }))
}

fn refusal(code: StatusCode, retry_after: Option<u32>) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "",
        "message": "the proxy says so", "code": code.as_u16(),
    });
    let mut response = Response::new(Either::Left(Full::from(status.to_string())));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Completes when held requests and stalled responses are released.
type Release = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl State {
    fn release(&self) -> Release {
        let mut released = self.released.subscribe();
        Box::pin(async move {
            // An error means that the proxy has ended.
            let _ = released.wait_for(|released| *released).await;
        })
    }

    async fn hold(&self) {
        self.held.send_modify(|held| *held += 1);
        self.release().await;
    }
}

/// A body that can break off or stall.
struct Cut {
    body: FromUpstream,
    /// The number of bytes that remain, and what happens after them.
    cut: Option<(usize, Option<Release>)>,
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body for Cut {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some((0, release)) = &mut self.cut {
            if let Some(release) = release {
                ready!(release.as_mut().poll(context));
            }
            return Poll::Ready(Some(Err(Broken.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some((left, _)) = &mut self.cut else {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        };
        Poll::Ready(frame.map(|frame| {
            let mut data = frame?.into_data().map_err(|_| Broken)?;
            data.truncate(*left);
            *left -= data.len();
            Ok(Frame::data(data))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
