//! The bodies of requests and responses: what a client or a cluster sends, until the request ends, or a text of ours.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::sessions::{Part, Session};

/// Why a body ends before it is complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The grant has ended, or the client has left. An error and not an end, since what is incomplete must not look
    /// complete.
    #[error("the request has ended")]
    Ended,
    /// A connection has failed.
    #[error(transparent)]
    Failed(hyper::Error),
}

type Polled = Poll<Option<Result<Frame<Part>, BodyError>>>;

/// The next frame, whose bytes count until they have been sent.
fn poll(body: &mut Incoming, session: &Session, context: &mut Context<'_>) -> Polled {
    let frame = ready!(Pin::new(body).poll_frame(context));
    Poll::Ready(frame.map(|frame| match frame {
        Ok(frame) => Ok(frame.map_data(|bytes| session.count(bytes))),
        Err(error) => Err(BodyError::Failed(error)),
    }))
}

/// The body of a request: what the client sends, until the request ends. It belongs to the connection to the cluster,
/// which may not poll it for as long as the cluster reads nothing, so [`UploadEnd`] takes it away.
///
/// The request counts until this is dropped: what the cluster does not read stays in memory.
pub(crate) struct Upload {
    body: Arc<Mutex<Option<Incoming>>>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    session: Arc<Session>,
}

/// Ends an upload when it is dropped.
pub(crate) struct UploadEnd {
    body: Arc<Mutex<Option<Incoming>>>,
    ended: CancellationToken,
}

impl Upload {
    pub(crate) fn new(body: Incoming, session: Arc<Session>) -> (Self, UploadEnd) {
        let (body, ended) = (Arc::new(Mutex::new(Some(body))), session.cut.child_token());
        let end = UploadEnd { body: Arc::clone(&body), ended: ended.clone() };
        (Self { body, ended: Box::pin(ended.cancelled_owned()), session }, end)
    }
}

impl Drop for UploadEnd {
    fn drop(&mut self) {
        self.ended.cancel();
        self.body.lock().take();
    }
}

impl Body for Upload {
    type Data = Part;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let is_ended = this.ended.as_mut().poll(context).is_ready();
        match &mut *this.body.lock() {
            Some(body) if !is_ended => poll(body, &this.session, context),
            _ => Poll::Ready(Some(Err(BodyError::Ended))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// A text of ours, with what is dropped when it has been sent.
    Text {
        text: Bytes,
        _held: Arc<()>,
    },
    /// What a cluster sends, with what is dropped at its end.
    Cluster {
        body: Incoming,
        session: Arc<Session>,
        _held: Box<dyn Send + Sync>,
    },
    Ended,
}

impl Body for ResponseBody {
    type Data = Part;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let frame = match &mut *self {
            Self::Ended => None,
            Self::Text { text, .. } if text.is_empty() => None,
            Self::Text { text, .. } => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(text).into()))));
            }
            Self::Cluster { session, .. } if session.cut.is_cancelled() => Some(Err(BodyError::Ended)),
            Self::Cluster { body, session, .. } => ready!(poll(body, session, context)),
        };
        if !matches!(frame, Some(Ok(_))) {
            *self = Self::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text { text, .. } => text.is_empty(),
            Self::Cluster { body, .. } => body.is_end_stream(),
            Self::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text { text, .. } => SizeHint::with_exact(text.len() as u64),
            Self::Cluster { body, .. } => body.size_hint(),
            Self::Ended => SizeHint::with_exact(0),
        }
    }
}
