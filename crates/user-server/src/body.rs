//! The bodies of responses: what a cluster sends, until its grant ends, or a text of ours.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::metrics::UserServerMetrics;

/// Why a body ends before it is complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The grant has ended. An error and not an end, since what is incomplete must not look complete.
    #[error("the grant has ended")]
    GrantEnded,
    /// The connection to the cluster has failed.
    #[error(transparent)]
    Cluster(hyper::Error),
}

/// The body of a response.
pub(crate) struct ResponseBody {
    content: Content,
    /// What is dropped with the end of the body: the session, the stream of a connection, the counts.
    held: Vec<Box<dyn Send + Sync>>,
}

enum Content {
    Text(Full<Bytes>),
    Cluster { body: Incoming, cut: Pin<Box<WaitForCancellationFutureOwned>>, metrics: UserServerMetrics },
    Ended,
}

impl ResponseBody {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self { content: Content::Text(Full::new(text.into())), held: Vec::new() }
    }

    /// What a cluster sends, until `cut`.
    pub(crate) fn cluster(body: Incoming, cut: CancellationToken, metrics: UserServerMetrics) -> Self {
        let cut = Box::pin(cut.cancelled_owned());
        Self { content: Content::Cluster { body, cut, metrics }, held: Vec::new() }
    }

    /// Keeps a value until the end of the body.
    pub(crate) fn holding(mut self, value: impl Send + Sync + 'static) -> Self {
        self.held.push(Box::new(value));
        self
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.content {
            Content::Ended => None,
            Content::Text(text) => {
                ready!(Pin::new(text).poll_frame(context)).map(|frame| frame.map_err(|never| match never {}))
            }
            Content::Cluster { body, cut, metrics } => {
                if cut.as_mut().poll(context).is_ready() {
                    metrics.cut.inc();
                    Some(Err(BodyError::GrantEnded))
                } else {
                    ready!(Pin::new(body).poll_frame(context)).map(|frame| frame.map_err(BodyError::Cluster))
                }
            }
        };
        if !matches!(frame, Some(Ok(_))) {
            self.content = Content::Ended;
            self.held.clear();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_end_stream(),
            Content::Cluster { body, .. } => body.is_end_stream(),
            Content::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(text) => text.size_hint(),
            Content::Cluster { body, .. } => body.size_hint(),
            Content::Ended => SizeHint::with_exact(0),
        }
    }
}
