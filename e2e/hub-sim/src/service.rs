//! The network: a tower service below the real kube client, which passes requests to the [`World`]'s server and
//! responses back, each with a delay, and drops some.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::model::{Answer, Failure, Request, WatchStart, Watching};
use crate::monitor::ProcessId;
use crate::world::{FROZEN, Fate, World};

type SimError = Box<dyn std::error::Error + Send + Sync>;
type SimBody = UnsyncBoxBody<Bytes, SimError>;

/// How long a client waits on a silent connection after the server should have ended it. The program's client has such
/// a timeout in its connector, which is not part of the simulation.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The client of a process.
#[must_use]
pub fn client(world: &World, process: ProcessId, agent: &'static str) -> Client {
    let world = world.clone();
    let service = tower::service_fn(move |request| serve(world.clone(), process, agent, request));
    Client::new(service, "hub-addons")
}

async fn serve(
    world: World,
    process: ProcessId,
    agent: &'static str,
    request: http::Request<Body>,
) -> Result<http::Response<SimBody>, SimError> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::new(parts.method.as_str(), target).by(agent);
    if let Some(accept) =
        parts.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok())
    {
        accept.clone_into(&mut request.accept);
    }
    request.body = body.collect_bytes().await?.to_vec();
    sleep(world.latency()).await;
    let (fate, generation) = {
        let mut state = world.lock();
        (state.receive(process, &request), state.network.generation)
    };
    sleep(world.latency()).await;
    if let Fate::Answered { delay, .. } = &fate {
        sleep(*delay).await;
    }
    // A process that has died reads no more responses.
    let fate = if world.is_alive(process) { fate } else { Fate::Silence };
    let answer = match fate {
        Fate::Silence => return std::future::pending().await,
        Fate::Broken => return Err("connection reset by peer".into()),
        Fate::Answered { answer, .. } => *answer,
    };
    match answer {
        Answer::Object(code, object) => Ok(response(code, serde_json::to_vec(&object)?, None)?),
        Answer::Failure(failure) => {
            let retry_after = failure.details["retryAfterSeconds"].as_u64();
            let text = if failure.reason.is_empty() {
                failure.message.clone()
            } else {
                failure.status().to_string()
            };
            Ok(response(failure.code, text.into(), retry_after)?)
        }
        Answer::Watch(start) => {
            let changes = world.changes(&request.path);
            let plural = request.path.rsplit('/').next().unwrap_or_default().to_owned();
            let stream = watch(world, process, start, (plural, generation), changes);
            let body = StreamBody::new(stream).boxed_unsync();
            Ok(http::Response::builder()
                .status(200)
                .header("Content-Type", "application/json")
                .body(body)?)
        }
    }
}

fn response(
    code: u16,
    text: Vec<u8>,
    retry_after: Option<u64>,
) -> Result<http::Response<SimBody>, http::Error> {
    let body =
        Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response =
        http::Response::builder().status(code).header("Content-Type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("Retry-After", seconds);
    }
    response.body(body)
}

/// The events of a watch, line by line, until the server or the network ends it. The watch was requested in a
/// `generation`: its connection may break before it shows anything.
fn watch(
    world: World,
    process: ProcessId,
    start: WatchStart,
    (plural, generation): (String, u64),
    changes: Arc<Notify>,
) -> impl Stream<Item = Result<Frame<Bytes>, SimError>> + Send {
    let timeout = Duration::from_secs(start.timeout);
    let opened = Instant::now();
    let state = Open {
        changes,
        world,
        process,
        start: Some(start),
        watching: None,
        plural,
        opened,
        end: opened + timeout,
        generation,
    };
    futures::stream::unfold(Some(state), |state| async move {
        let mut open = state?;
        match open.next().await {
            Next::Lines(lines) => Some((Ok(lines), Some(open))),
            Next::Last(lines) => Some((Ok(lines), None)),
            Next::Broken => Some((Err("connection reset by peer".into()), None)),
            Next::End => None,
        }
    })
}

/// An open watch.
struct Open {
    world: World,
    process: ProcessId,
    start: Option<WatchStart>,
    watching: Option<Watching>,
    changes: Arc<Notify>,
    plural: String,
    opened: Instant,
    end: Instant,
    generation: u64,
}

enum Next {
    Lines(Frame<Bytes>),
    Last(Frame<Bytes>),
    Broken,
    End,
}

impl Open {
    async fn next(&mut self) -> Next {
        if let Some(start) = self.start.take() {
            self.watching = Some(start.watching);
            if start.ended {
                self.world.count("watch: history gone (410)");
                return Next::Last(lines(&start.first));
            }
            if !start.first.is_empty() {
                return Next::Lines(lines(&start.first));
            }
        }
        let notify = Arc::clone(&self.changes);
        loop {
            let mut changed = pin!(notify.notified());
            changed.as_mut().enable();
            let (alive, generation, lag, stalled, frozen) = {
                let state = self.world.lock();
                let network = &state.network;
                let frozen = network
                    .frozen
                    .filter(|(plural, at)| *plural == self.plural && self.opened <= *at);
                let alive = state.is_alive(self.process);
                (alive, network.generation, network.lag, network.stalled_until, frozen)
            };
            if !alive {
                return std::future::pending().await;
            }
            if generation != self.generation {
                self.world.count("watch: connection lost");
                return Next::Broken;
            }
            if let Some((_, at)) = frozen {
                self.world.count("watch: connection frozen");
                if timeout_at(at + FROZEN, changed).await.is_err() {
                    return Next::Broken;
                }
                continue;
            }
            if let Some(until) = stalled.filter(|until| *until > Instant::now()) {
                self.world.count("watch: connection silent");
                // The connection is dead, and the client has not noticed. It does if the API server stops.
                let given_up = self.end + READ_TIMEOUT;
                let is_over = timeout_at(until.min(given_up), changed).await.is_err();
                if is_over && given_up < until {
                    return Next::Broken;
                }
                continue;
            }
            if Instant::now() >= self.end {
                self.world.count("watch: bookmark");
                let state = self.world.lock();
                let bookmark =
                    self.watching.as_ref().and_then(|watching| state.server.bookmark_of(watching));
                return bookmark.map_or(Next::End, |bookmark| Next::Last(lines(&[bookmark])));
            }
            if !lag.is_zero() {
                self.world.count("watch: late");
                sleep(lag).await;
            }
            if let Some(next) = self.look() {
                return next;
            }
            let _ = timeout_at(self.end, changed).await;
        }
    }

    /// The events that the server has for the watch now.
    fn look(&mut self) -> Option<Next> {
        let mut state = self.world.lock();
        if state.network.generation != self.generation {
            state.monitor.count("watch: connection lost");
            return Some(Next::Broken);
        }
        let watching = self.watching.as_mut()?;
        if state.server.is_over(watching) {
            state.monitor.count("watch: ended by its CRD");
            return Some(Next::End);
        }
        let Some(events) = state.server.follow(watching) else {
            state.monitor.count("watch: history gone (410)");
            let error = serde_json::json!({
                "type": "ERROR", "object": Failure::expired("too old resource version").status(),
            });
            return Some(Next::Last(lines(&[error])));
        };
        (!events.is_empty()).then(|| Next::Lines(lines(&events)))
    }
}

fn lines(events: &[Value]) -> Frame<Bytes> {
    let mut text = Vec::new();
    for event in events {
        // A vector takes every byte.
        let _ = serde_json::to_writer(&mut text, event);
        text.push(b'\n');
    }
    Frame::data(Bytes::from(text))
}
