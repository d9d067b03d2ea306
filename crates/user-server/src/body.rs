//! The bodies of requests and responses: what a client or a cluster sends, until the request ends, or a text of ours.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::sessions::{Held, Part, Session};
use crate::streams::{Ends, STREAM_WINDOW, Streaming, ends};

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

/// What a peer sends for a request. hyper asks for the next frame as soon as it has room for it: until it does, what its
/// window lets the peer send counts as well.
pub(crate) struct Received {
    body: Incoming,
    session: Arc<Session>,
    behind: Option<Held>,
}

impl Received {
    fn new(body: Incoming, session: Arc<Session>) -> Self {
        let mut received = Self { body, session, behind: None };
        received.count_behind();
        received
    }

    fn count_behind(&mut self) {
        let window = u64::from(STREAM_WINDOW);
        let length = self.body.size_hint().upper().unwrap_or(window).min(window);
        let is_open = !self.body.is_end_stream();
        self.behind =
            is_open.then(|| self.session.hold(usize::try_from(length).unwrap_or_default()));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Polled {
        self.behind = None;
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(BodyError::Failed)?;
        // No client and no API server of Kubernetes needs trailers, and nothing bounds what they take.
        if frame.is_trailers() {
            return Poll::Ready(None);
        }
        self.count_behind();
        Poll::Ready(Some(Ok(frame.map_data(|bytes| self.session.count(bytes)))))
    }
}

/// The body of a request: what the client sends, until the request ends. It belongs to the connection to the cluster,
/// which may not poll it for as long as the cluster reads nothing, so [`UploadEnd`] takes it away.
///
/// The request counts until this is dropped: what the cluster does not read stays in memory.
pub(crate) struct Upload {
    uploading: Arc<Mutex<Uploading>>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    is_begun: bool,
    session: Arc<Session>,
    /// Its stream on the connection to the cluster, which counts for as long as this is sent.
    stream: Option<Arc<Streaming>>,
}

struct Uploading {
    received: Option<Received>,
    /// Ends the task that sends it, with what it holds until the cluster has room.
    task: Option<CancellationToken>,
}

/// Ends an upload when it is dropped.
pub(crate) struct UploadEnd {
    uploading: Arc<Mutex<Uploading>>,
    ended: CancellationToken,
}

impl Upload {
    pub(crate) fn new(body: Incoming, session: Arc<Session>) -> (Self, UploadEnd) {
        let received = Some(Received::new(body, Arc::clone(&session)));
        let uploading = Arc::new(Mutex::new(Uploading { received, task: None }));
        let ended = session.cut.child_token();
        let end = UploadEnd { uploading: Arc::clone(&uploading), ended: ended.clone() };
        let ended = Box::pin(ended.cancelled_owned());
        (Self { uploading, ended, is_begun: false, session, stream: None }, end)
    }

    /// Lets a stream of a connection count for as long as this is sent.
    pub(crate) fn sent_in(&mut self, stream: Arc<Streaming>) {
        self.stream = Some(stream);
    }
}

impl Drop for UploadEnd {
    fn drop(&mut self) {
        self.ended.cancel();
        let mut uploading = self.uploading.lock();
        uploading.received = None;
        if let Some(task) = uploading.task.take() {
            task.cancel();
        }
    }
}

impl Body for Upload {
    type Data = Part;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_begun, true) {
            // hyper sends what is not there at once in a task of its own, which can be ended.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let is_ended = this.ended.as_mut().poll(context).is_ready();
        let mut uploading = this.uploading.lock();
        uploading.task.get_or_insert_with(|| {
            let Ends { stream, connection } = ends();
            this.session.uploads_in(connection);
            stream
        });
        match &mut uploading.received {
            Some(received) if !is_ended => received.poll(context),
            _ => Poll::Ready(Some(Err(BodyError::Ended))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.uploading
            .lock()
            .received
            .as_ref()
            .is_some_and(|received| received.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let uploading = self.uploading.lock();
        uploading.received.as_ref().map(|received| received.body.size_hint()).unwrap_or_default()
    }
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// A text of ours, with what is dropped when it has been sent.
    Text {
        text: Bytes,
        _held: Arc<()>,
    },
    /// What a cluster sends, with what is dropped at its end. The head waits to be sent as well, before the first part,
    /// which therefore holds its bytes; without one, an empty part does.
    Cluster {
        received: Received,
        head: Option<Held>,
        _held: Box<dyn Send + Sync>,
    },
    Ended,
}

impl ResponseBody {
    pub(crate) fn of_cluster(
        body: Incoming,
        session: Arc<Session>,
        head: Held,
        until_end: impl Send + Sync + 'static,
    ) -> Self {
        let received = Received::new(body, session);
        Self::Cluster { received, head: Some(head), _held: Box::new(until_end) }
    }
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
            Self::Cluster { received, .. } if received.session.cut.is_cancelled() => {
                Some(Err(BodyError::Ended))
            }
            Self::Cluster { received, head, .. } => {
                match (ready!(received.poll(context)), head.take()) {
                    (Some(Ok(frame)), Some(head)) => {
                        Some(Ok(frame.map_data(|part| part.after(head))))
                    }
                    (None, Some(head)) => {
                        *self = Self::Ended;
                        return Poll::Ready(Some(Ok(Frame::data(
                            Part::from(Bytes::new()).after(head),
                        ))));
                    }
                    (frame, _) => frame,
                }
            }
        };
        if !matches!(frame, Some(Ok(_))) {
            *self = Self::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text { text, .. } => text.is_empty(),
            Self::Cluster { received, head, .. } => head.is_none() && received.body.is_end_stream(),
            Self::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text { text, .. } => SizeHint::with_exact(text.len() as u64),
            // Of no bytes, but hyper would add that to a head that says nothing of it, such as that of a 204.
            Self::Cluster { received, head: Some(_), .. } if received.body.is_end_stream() => {
                SizeHint::default()
            }
            Self::Cluster { received, .. } => received.body.size_hint(),
            Self::Ended => SizeHint::with_exact(0),
        }
    }
}
