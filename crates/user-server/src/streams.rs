//! The streams of connections with HTTP/2, those of clients and those to clusters: what they may hold, and what ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

/// What a client or a cluster may send in one stream before it is read, or before its cluster reads it. The window of a
/// connection has room for all streams, so those that are not read leave room for the others.
pub(crate) const STREAM_WINDOW: u32 = 64 << 10;
/// How many requests may be given up in a row before a connection ends that has responded to none of them meanwhile: what
/// it was to send of them stays in it.
const GIVEN_UP: usize = 32;

tokio::task_local! {
    static ENDS: Ends;
}

/// What ends the stream of HTTP/2 in which a request came, and its connection; with HTTP/1.1 they are the same.
#[derive(Clone, Default)]
pub(crate) struct Ends {
    pub(crate) stream: CancellationToken,
    pub(crate) connection: CancellationToken,
}

/// Runs a connection until it ends or this token is cancelled, as from within ([`ends`]): its bodies are dropped even if a
/// peer that reads nothing keeps hyper from polling them.
pub(crate) fn run(
    end: CancellationToken,
    work: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    run_with(Ends { stream: end.clone(), connection: end }, work)
}

fn run_with(ends: Ends, work: impl Future<Output = ()>) -> impl Future<Output = ()> {
    let (work, end) = (Box::pin(work), ends.stream.clone());
    ENDS.scope(ends, async move {
        tokio::select! {
            biased;
            // First, so that a refusal that can be sent is sent.
            () = work => {}
            () = end.cancelled() => {}
        }
    })
}

/// What ends that in which this is called.
pub(crate) fn ends() -> Ends {
    ENDS.try_with(Clone::clone).unwrap_or_default()
}

/// Spawns the streams of a connection: each ends with it.
#[derive(Clone)]
pub(crate) struct Streams;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let of_stream = |of: &Ends| Ends {
            stream: of.connection.child_token(),
            connection: of.connection.clone(),
        };
        tokio::spawn(run_with(ENDS.try_with(of_stream).unwrap_or_default(), stream));
    }
}

/// What the open streams of a connection share.
#[derive(Default)]
pub(crate) struct Streaming {
    /// Ends the connection, and everything on it.
    pub(crate) end: CancellationToken,
    /// The requests that were given up since it last responded.
    given_up: AtomicUsize,
}

/// A request without a response. It is given up when this is dropped.
pub(crate) struct Unanswered(Option<Arc<Streaming>>);

impl Unanswered {
    pub(crate) fn new(stream: &Arc<Streaming>) -> Self {
        Self(Some(Arc::clone(stream)))
    }

    pub(crate) fn answered(mut self) {
        if let Some(streaming) = self.0.take() {
            streaming.given_up.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(streaming) = self.0.take()
            && streaming.given_up.fetch_add(1, Ordering::Relaxed) >= GIVEN_UP
        {
            streaming.end.cancel();
        }
    }
}
