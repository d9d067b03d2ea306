//! How many connections the client opens: never more than it has had requests at once.
//!
//! hyper's pool opens a connection for a request that finds none idle, and uses another one that becomes idle meanwhile.
//! The new connection is then one more, so that under load a pool grows to about twice the number of its requests.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// How long a request waits for a connection that another one releases, which can be dead.
pub const PATIENCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Cancelled when the request that opens a connection has its response.
    static RESPONSE: CancellationToken;
}

/// The requests and connections of a client.
#[derive(Debug, Clone)]
pub struct Connections {
    counts: watch::Sender<Counts>,
    patience: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: usize,
    connections: usize,
}

impl Counts {
    fn has_room(&self) -> bool {
        self.connections < self.requests
    }
}

/// Something that is counted until it is dropped.
#[derive(Debug)]
struct Counted {
    counts: watch::Sender<Counts>,
    count: fn(&mut Counts) -> &mut usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = self.count;
        self.counts.send_modify(|counts| *count(counts) -= 1);
    }
}

impl Connections {
    /// None yet; a request opens a further connection after `patience` in any case.
    pub fn new(patience: Duration) -> Self {
        Self { counts: watch::Sender::default(), patience }
    }

    /// Counts a request until the body of its response is dropped.
    pub fn request<B: http_body::Body, E>(
        self,
        response: impl Future<Output = Result<Response<B>, E>>,
    ) -> impl Future<Output = Result<Response<impl http_body::Body<Data = B::Data, Error = B::Error>>, E>> {
        let counted = self.count(|counts| &mut counts.requests);
        async move {
            let has_response = CancellationToken::new();
            let _cancelled = has_response.clone().drop_guard();
            let response = RESPONSE.scope(has_response, response).await?;
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &counted;
                    frame
                })
            }))
        }
    }

    /// Opens a connection for a request once there are fewer than requests.
    ///
    /// # Errors
    ///
    /// Those of `connect`; a connection whose request has its response is not opened.
    pub async fn connect<C>(
        self,
        connect: impl Future<Output = Result<C, BoxError>>,
    ) -> Result<CountedConnection<C>, BoxError> {
        let has_response = RESPONSE.try_with(CancellationToken::clone).unwrap_or_default();
        let Some(counted) = has_response.run_until_cancelled(self.room()).await else {
            return Err("the request used another connection".into());
        };
        Ok(CountedConnection { connection: connect.await?, _counted: counted })
    }

    async fn room(&self) -> Counted {
        let mut counts = self.counts.subscribe();
        let take = async {
            loop {
                let taken = self.counts.send_if_modified(|counts| {
                    let has_room = counts.has_room();
                    counts.connections += usize::from(has_room);
                    has_room
                });
                if taken {
                    return Counted { counts: self.counts.clone(), count: |counts| &mut counts.connections };
                }
                // The sender is `self`.
                let _ = counts.wait_for(Counts::has_room).await;
            }
        };
        match tokio::time::timeout(self.patience, take).await {
            Ok(counted) => counted,
            Err(_) => self.count(|counts| &mut counts.connections),
        }
    }

    fn count(&self, count: fn(&mut Counts) -> &mut usize) -> Counted {
        self.counts.send_modify(|counts| *count(counts) += 1);
        Counted { counts: self.counts.clone(), count }
    }
}

/// A connection that is counted until it is closed.
#[derive(Debug)]
pub struct CountedConnection<C> {
    connection: C,
    _counted: Counted,
}

impl<C: Connection> Connection for CountedConnection<C> {
    fn connected(&self) -> Connected {
        self.connection.connected()
    }
}

impl<C: Read + Unpin> Read for CountedConnection<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_read(cx, buf)
    }
}

impl<C: Write + Unpin> Write for CountedConnection<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write_vectored(cx, bufs)
    }
}
