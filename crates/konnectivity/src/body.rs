//! The bodies of responses of the proxy server.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long the proxy server may take to end a response that nobody reads any more: as long as a dial may take it.
const REST: Duration = Duration::from_secs(30);

/// The body of a response. If it is dropped before its end, the rest is read and forgotten: h2 ends a connection for many
/// small frames that wait for a reader or arrive after their stream was reset, and all tunnels with it. And an agent keeps
/// its connection to a cluster until the proxy server has seen the end.
pub(crate) struct ReadToEnd(Option<Incoming>);

impl ReadToEnd {
    pub(crate) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for ReadToEnd {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for ReadToEnd {
    fn drop(&mut self) {
        if let Some(mut body) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let rest = async move { while let Some(Ok(_)) = body.frame().await {} };
            runtime.spawn(timeout(REST, rest));
        }
    }
}
