//! One tunnelled connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio_util::sync::{CancellationToken, PollSender};
use tonic::Streaming;

use crate::packet::{Data, Packet, Payload};

/// How many packets may wait to be sent.
pub(crate) const OUTGOING: usize = 4;
/// Maximum of bytes in one packet: as many as agents send.
pub(crate) const PACKET: usize = 64 << 10;
/// How many bytes a tunnel delivers, and takes, before other tasks have their turn: a reader may make many times as much of
/// them, as HTTP/2 does of compressed heads.
const TURN: usize = 64 << 10;

/// What a connection is to those who use it: their dialer and its tunnels. Without them, it ends.
#[derive(Default)]
pub(crate) struct Carrier {
    /// Cancelled when the connection is in doubt.
    pub(crate) doubt: CancellationToken,
}

/// How many bytes may wait to be read, in the tunnels that share it: at most its limit. The protocol cannot ask
/// the other side to wait: a tunnel for whose data there is no room ends with an error, since otherwise its agent would
/// deliver nothing to anyone. Clones share it.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    used: AtomicUsize,
    limit: usize,
    exceeded: CancellationToken,
    count: Option<Box<Count>>,
    larger: Option<Budget>,
}

type Guard = Box<dyn Send + Sync>;
type Count = dyn Fn(usize) -> Guard + Send + Sync;

/// What a chunk takes beside its bytes: itself, what counts it, and its place in the channel.
const CHUNK: usize = 256;

/// Bytes that wait to be read. They count until they are read or dropped, with [`CHUNK`]: an agent may send a byte at a
/// time.
struct Chunk {
    bytes: Bytes,
    budget: Budget,
    _counted: Option<Guard>,
}

impl Budget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with(limit, None, None)
    }

    /// A part of this one, in which its bytes count as well.
    #[must_use]
    pub fn part(&self, limit: usize) -> Self {
        Self::with(limit, Some(self.clone()), None)
    }

    /// Whether there is a clone or a part of it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// A budget whose bytes also count elsewhere: until what this returns for them is dropped.
    #[must_use]
    pub fn counted(limit: usize, count: impl Fn(usize) -> Guard + Send + Sync + 'static) -> Self {
        Self::with(limit, None, Some(Box::new(count)))
    }

    fn with(limit: usize, larger: Option<Self>, count: Option<Box<Count>>) -> Self {
        let (used, exceeded) = Default::default();
        Self(Arc::new(Inner { used, limit, exceeded, count, larger }))
    }

    /// Waits until it had no room for what arrived.
    pub async fn exceeded(&self) {
        self.0.exceeded.cancelled().await;
    }

    /// Takes what arrives, if there is room.
    fn take(&self, bytes: &[u8]) -> Option<Chunk> {
        let length = bytes.len() + CHUNK;
        let has_room = self.add(length);
        let counted = self.0.count.as_ref().map(|count| count(length));
        // Copied, since they are a part of a buffer that is as large as the packets in it, whatever these have beside data.
        let chunk =
            Chunk { bytes: Bytes::copy_from_slice(bytes), budget: self.clone(), _counted: counted };
        if !has_room {
            self.0.exceeded.cancel();
        }
        has_room.then_some(chunk)
    }

    /// Counts bytes. Returns whether there was room for them. For one packet, there is room in a larger budget in any case:
    /// what is read at once is not to end for what waits elsewhere.
    fn add(&self, length: usize) -> bool {
        let is_within = self.0.larger.as_ref().is_none_or(|larger| larger.add(length));
        let used = self.0.used.fetch_add(length, Ordering::AcqRel) + length;
        used <= self.0.limit && (is_within || used <= PACKET + CHUNK)
    }

    fn subtract(&self, length: usize) {
        self.0.used.fetch_sub(length, Ordering::AcqRel);
        if let Some(larger) = &self.0.larger {
            larger.subtract(length);
        }
    }
}

impl Chunk {
    fn read(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes[..length]);
        self.bytes.advance(length);
        self.budget.subtract(length);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.budget.subtract(self.bytes.len() + CHUNK);
    }
}

/// Reads what arrives until the end, as a task of its own; then the tunnel is `over` for the other side as well.
async fn read(
    mut packets: Streaming<Packet>,
    connect_id: i64,
    chunks: mpsc::UnboundedSender<io::Result<Chunk>>,
    over: CancellationToken,
    budget: Budget,
) {
    let over = over.drop_guard();
    let mut delivered = 0;
    let error = loop {
        if delivered >= TURN {
            delivered = 0;
            yield_now().await;
        }
        let packet = tokio::select! {
            packet = packets.message() => packet,
            () = chunks.closed() => {
                // What it has accepted is still sent, and then its end.
                over.disarm();
                return;
            }
        };
        // Each costs time, also without data.
        delivered += CHUNK;
        match packet.map(|packet| packet.and_then(|packet| packet.payload)) {
            Ok(Some(Payload::Data(data))) if data.connect_id == connect_id => {
                delivered += data.data.len();
                let Some(chunk) = budget.take(&data.data) else {
                    break Some(io::Error::other("too much data waits for a slow reader"));
                };
                // If there is no reader any more, the next iteration ends this.
                let _ = chunks.send(Ok(chunk));
            }
            Ok(Some(Payload::CloseResponse(close))) if close.error.is_empty() => break None,
            Ok(Some(Payload::CloseResponse(_))) => {
                break Some(io::ErrorKind::ConnectionReset.into());
            }
            Ok(Some(_)) => {}
            // The stream has ended, or a packet has no payload that is known.
            Ok(None) => break Some(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => break Some(io::ErrorKind::ConnectionAborted.into()),
        }
    };
    if let Some(error) = error {
        let _ = chunks.send(Err(error));
    }
}

/// A connection through an agent. It ends for both sides when it is dropped or shut down: the protocol cannot close one
/// direction.
///
/// If its [`Budget`] has no room for what arrives, reading fails once what arrived before has been read.
pub struct Tunnel {
    connect_id: i64,
    packets: PollSender<Packet>,
    chunks: mpsc::UnboundedReceiver<io::Result<Chunk>>,
    /// What remains of the chunk that is being read.
    chunk: Option<Chunk>,
    /// The bytes that were read since another task had its turn.
    read: usize,
    /// Whether its end has been read, or it was shut down.
    has_ended: bool,
    carrier: Arc<Carrier>,
}

impl Tunnel {
    pub(crate) fn new(
        connect_id: i64,
        packets: mpsc::Sender<Packet>,
        incoming: Streaming<Packet>,
        over: CancellationToken,
        budget: Budget,
        carrier: Arc<Carrier>,
    ) -> Self {
        let (sender, chunks) = mpsc::unbounded_channel();
        tokio::spawn(read(incoming, connect_id, sender, over, budget));
        Self {
            connect_id,
            packets: PollSender::new(packets),
            chunks,
            chunk: None,
            read: 0,
            has_ended: false,
            carrier,
        }
    }

    /// Cancelled when the proxy server does not respond on the connection of the tunnel any more: what is new should use
    /// another one.
    #[must_use]
    pub fn doubt(&self) -> CancellationToken {
        self.carrier.doubt.clone()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read >= TURN {
            this.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            match &mut this.chunk {
                Some(chunk) if !chunk.bytes.is_empty() => {
                    let before = buffer.filled().len();
                    chunk.read(buffer);
                    this.read += buffer.filled().len() - before;
                    return Poll::Ready(Ok(()));
                }
                _ => match this.chunks.poll_recv(context) {
                    Poll::Ready(Some(Ok(chunk))) => this.chunk = Some(chunk),
                    Poll::Ready(end) => {
                        this.has_ended = true;
                        return Poll::Ready(end.transpose().map(drop));
                    }
                    Poll::Pending => {
                        this.read = 0;
                        return Poll::Pending;
                    }
                },
            }
        }
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        if ready!(self.packets.poll_reserve(context)).is_err() {
            // The other side has ended. Until that is read, this is discarded: an error could keep the caller from reading
            // what arrived before.
            return Poll::Ready(if self.has_ended { Err(closed()) } else { Ok(bytes.len()) });
        }
        let bytes = &bytes[..bytes.len().min(PACKET)];
        let (connect_id, data) = (self.connect_id, Bytes::copy_from_slice(bytes));
        let packet = Packet::of(Payload::Data(Data { connect_id, error: String::new(), data }));
        self.packets.send_item(packet).map_err(|_| closed())?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.packets.close();
        self.has_ended = true;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_counts_with_what_it_takes_in_memory() {
        let budget = Budget::new(4 * (CHUNK + 1));
        let mut chunks: Vec<_> = (0..4).map(|_| budget.take(b"x").unwrap()).collect();
        chunks[0].read(&mut ReadBuf::new(&mut [0; 10]));
        assert!(budget.take(b"x").is_none(), "a chunk counts until it is dropped");
        chunks.pop();
        assert!(budget.take(b"x").is_some());
    }

    #[test]
    fn a_budget_within_another_leaves_room_in_both_for_more_than_a_packet() {
        const PLACE: usize = PACKET + CHUNK;
        let (all, packet) = (Budget::new(2 * PLACE), vec![0; PACKET]);
        let [first, second, third] = [(); 3].map(|()| all.part(3 * PLACE));
        let held = (first.take(&packet).unwrap(), second.take(&packet).unwrap());
        assert!(first.take(b"x").is_none());
        assert!(
            third.take(&packet).is_some(),
            "what is read at once does not end for what waits elsewhere"
        );
        drop(held);
        for budget in [&first, &second] {
            drop((budget.take(&packet).unwrap(), budget.take(&packet).unwrap()));
        }
        let alone = Budget::new(CHUNK);
        assert!(alone.take(b"x").is_none());
    }
}
