//! The two bodies of a stream to the proxy server: what ends them when the tunnel in them has ended.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the proxy server may take to end a response that nobody reads any more: as long as a dial may take it.
const REST: Duration = Duration::from_secs(30);

tokio::task_local! {
    static END: CancellationToken;
}

/// Spawns the tasks of a connection, each with what ends it: a task that sends waits for a window, whatever else happens.
#[derive(Clone)]
pub(crate) struct Tasks;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, work: F) {
        let end = CancellationToken::new();
        tokio::spawn(END.scope(end.clone(), async move {
            end.run_until_cancelled(work).await;
        }));
    }
}

/// What ends the task that sends a request, once that task is known.
pub(crate) type Sending = Arc<OnceLock<CancellationToken>>;

/// Records the task that sends a request; for the body of that request to call.
pub(crate) fn sends(sending: &Sending) {
    if let Ok(end) = END.try_with(Clone::clone) {
        let _ = sending.set(end);
    }
}

/// The body of a response. If it is dropped before its end, the rest is read and forgotten: h2 ends a connection for many
/// small frames that wait for a reader or arrive after their stream was reset, and all tunnels with it. And an agent keeps
/// its connection to a cluster until the proxy server has seen the end. After a while the stream is reset: its agent may
/// keep the request from ending.
pub(crate) struct ReadToEnd {
    body: Option<Incoming>,
    sending: Sending,
}

impl ReadToEnd {
    pub(crate) fn new(body: Incoming, sending: Sending) -> Self {
        Self { body: Some(body), sending }
    }
}

impl Body for ReadToEnd {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for ReadToEnd {
    fn drop(&mut self) {
        if let Some(mut body) = self.body.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let sending = Arc::clone(&self.sending);
            runtime.spawn(async move {
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                if timeout(REST, rest).await.is_err()
                    && let Some(end) = sending.get()
                {
                    end.cancel();
                }
            });
        }
    }
}
