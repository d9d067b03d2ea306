//! How a stream to the proxy server ends after its tunnel: its response is read to the end, or the stream is reset.

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

/// Timeout for the end of a response whose tunnel has ended: the proxy server's own timeout of a dial.
const END_TIMEOUT: Duration = Duration::from_secs(30);

tokio::task_local! {
    static END: CancellationToken;
}

/// Spawns the tasks of a connection, so that each can be cancelled: one that waits for a window does not poll its body.
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

/// The task that sends a request, once it is known.
#[derive(Clone, Default)]
pub(crate) struct SendingTask(Arc<OnceLock<CancellationToken>>);

impl SendingTask {
    /// Records the current task; for the body of the request to call. hyper first polls it in the task of the connection,
    /// which is none of [`Tasks`], and is not recorded.
    pub(crate) fn record(&self) {
        if let Ok(end) = END.try_with(Clone::clone) {
            let _ = self.0.set(end);
        }
    }

    fn cancel(&self) {
        if let Some(end) = self.0.get() {
            end.cancel();
        }
    }
}

/// The body of a response, which is read to its end, also if it is dropped: h2 ends a connection, and all tunnels with it,
/// for many small frames that wait for a reader or arrive after a reset. And an agent keeps its connection to a cluster
/// until the proxy server has seen the end. After [`END_TIMEOUT`], the stream is reset: its agent may keep the request from
/// ending.
pub(crate) struct ReadToEnd {
    body: Option<Incoming>,
    task: SendingTask,
}

impl ReadToEnd {
    pub(crate) fn new(body: Incoming, task: SendingTask) -> Self {
        Self { body: Some(body), task }
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
            let task = self.task.clone();
            runtime.spawn(async move {
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                if timeout(END_TIMEOUT, rest).await.is_err() {
                    task.cancel();
                }
            });
        }
    }
}
