//! Limits the connections that the client opens to the requests that it has had at once, unless connections are dead.
//!
//! If a request finds no idle connection, hyper's pool begins to open one, and uses another one that becomes idle
//! meanwhile. It opens the first one nevertheless, in a task of its own, so that under load a pool grows to about twice
//! the number of its requests.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::sync::watch;
use tower::BoxError;

/// How long a request waits for the connection of another request before it opens a further one: the others may be
/// dead.
pub const PATIENCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Set while a request is polled. hyper polls the connection that the request may need at the same time.
    static REQUEST: ();
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

    /// Counts a connection if there is room for it.
    fn take_room(&mut self) -> bool {
        let has_room = self.has_room();
        self.connections += usize::from(has_room);
        has_room
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
    /// No connections yet. A request opens a further connection after `patience` in any case.
    pub fn new(patience: Duration) -> Self {
        Self { counts: watch::Sender::default(), patience }
    }

    /// Counts a request until the body of its response is dropped.
    pub fn request<B: http_body::Body, E>(
        self,
        response: impl Future<Output = Result<Response<B>, E>>,
    ) -> impl Future<Output = Result<Response<impl http_body::Body<Data = B::Data, Error = B::Error>>, E>>
    {
        let counted = self.count(|counts| &mut counts.requests);
        async move {
            let response = REQUEST.scope((), response).await?;
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &counted;
                    frame
                })
            }))
        }
    }

    /// Opens a connection for a request once there are fewer connections than requests.
    ///
    /// # Errors
    ///
    /// Those of `connect`; a connection whose request uses another one is not opened.
    pub async fn connect<C>(
        self,
        connect: impl Future<Output = Result<C, BoxError>>,
    ) -> Result<CountedConnection<C>, BoxError> {
        let mut room = pin!(self.room());
        let counted = poll_fn(|cx| match REQUEST.try_with(|()| ()) {
            Ok(()) => room.as_mut().poll(cx).map(Some),
            // Polled by hyper's own task, so the request uses another connection.
            Err(_) => Poll::Ready(None),
        });
        let Some(counted) = counted.await else { return Err("the request uses another connection".into()) };
        Ok(CountedConnection { connection: connect.await?, _counted: counted })
    }

    async fn room(&self) -> Counted {
        let mut counts = self.counts.subscribe();
        let connections: fn(&mut Counts) -> &mut usize = |counts| &mut counts.connections;
        let take = async {
            while !self.counts.send_if_modified(Counts::take_room) {
                // It cannot fail, since `self` holds the sender.
                let _ = counts.wait_for(Counts::has_room).await;
            }
            Counted { counts: self.counts.clone(), count: connections }
        };
        tokio::time::timeout(self.patience, take).await.unwrap_or_else(|_| self.count(connections))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_connection_delays_a_request_and_does_not_stop_it() {
        let connections = Connections::new(Duration::from_millis(1));
        let counts = || {
            let counts = connections.counts.borrow();
            (counts.requests, counts.connections)
        };
        let connect = || connections.clone().connect(async { Ok(()) });
        assert!(connect().await.is_err(), "a task of hyper's, whose request has another connection");
        let request = connections.clone().request(async {
            let dead = connect().await?;
            let second = connect().await?;
            assert_eq!(counts(), (1, 2));
            drop((dead, second));
            Ok::<_, BoxError>(Response::new(String::new()))
        });
        let response = request.await.unwrap();
        assert_eq!(counts(), (1, 0), "until the body is dropped");
        drop(response);
        drop(connections.clone().request(std::future::pending::<Result<Response<String>, BoxError>>()));
        assert_eq!(counts(), (0, 0));
    }
}
