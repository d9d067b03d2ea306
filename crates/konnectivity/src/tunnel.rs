//! One tunnelled connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, PollSender};
use tonic::Streaming;

use crate::connection::Carrier;
use crate::packet::{Data, Packet, Payload};

/// How many bytes may wait to be read in a [`Budget`] by default.
pub const BUFFER_LIMIT: usize = 8 << 20;
/// How many packets may wait to be sent.
pub(crate) const OUTGOING: usize = 4;
/// Maximum of bytes in one packet: as many as agents send.
const PACKET: usize = 64 << 10;
/// How long the proxy server may take to confirm that a tunnel has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes may wait to be read, in the tunnels that share it: at most its limit. The protocol cannot ask
/// the other side to wait: a tunnel for whose data there is no room ends with an error, since otherwise its agent would
/// deliver nothing to anyone. Clones share it.
#[derive(Clone)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
    exceeded: CancellationToken,
    counted: Option<Arc<Count>>,
}

type Guard = Box<dyn Send + Sync>;
type Count = dyn Fn(usize) -> Guard + Send + Sync;

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUFFER_LIMIT)
    }
}

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
        Self { used: Arc::default(), limit, exceeded: CancellationToken::new(), counted: None }
    }

    /// The same, whose bytes also count elsewhere: until what this returns for them is dropped.
    #[must_use]
    pub fn counted(self, count: impl Fn(usize) -> Guard + Send + Sync + 'static) -> Self {
        Self { counted: Some(Arc::new(count)), ..self }
    }

    /// Waits until it had no room for what arrived.
    pub async fn exceeded(&self) {
        self.exceeded.cancelled().await;
    }

    /// Takes what arrives, if there is room.
    fn take(&self, bytes: &[u8]) -> Option<Chunk> {
        let length = bytes.len() + CHUNK;
        let before = self.used.fetch_add(length, Ordering::AcqRel);
        let counted = self.counted.as_ref().map(|count| count(length));
        // Copied, since they are a part of a buffer that is as large as the packets in it, whatever these have beside data.
        let chunk = Chunk { bytes: Bytes::copy_from_slice(bytes), budget: self.clone(), _counted: counted };
        if before + length > self.limit {
            self.exceeded.cancel();
            return None;
        }
        Some(chunk)
    }
}

impl Chunk {
    fn read(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes[..length]);
        self.bytes.advance(length);
        self.budget.used.fetch_sub(length, Ordering::AcqRel);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes.len() + CHUNK, Ordering::AcqRel);
    }
}

/// Reads what arrives, as a task of its own.
async fn read(
    mut packets: Streaming<Packet>,
    connect_id: i64,
    chunks: mpsc::UnboundedSender<io::Result<Chunk>>,
    budget: Budget,
) {
    let error = loop {
        let packet = tokio::select! {
            packet = packets.message() => packet,
            () = chunks.closed() => {
                // Read until the proxy server has seen the end: otherwise the agent would keep its connection.
                let end = async { while let Ok(Some(_)) = packets.message().await {} };
                let _ = timeout(CLOSE_TIMEOUT, end).await;
                return;
            }
        };
        match packet.map(|packet| packet.and_then(|packet| packet.payload)) {
            Ok(Some(Payload::Data(data))) if data.connect_id == connect_id => {
                let Some(chunk) = budget.take(&data.data) else {
                    break Some(io::Error::other("too much data waits for a slow reader"));
                };
                // If there is no reader any more, the next iteration ends this.
                let _ = chunks.send(Ok(chunk));
            }
            Ok(Some(Payload::CloseResponse(close))) if close.error.is_empty() => break None,
            Ok(Some(Payload::CloseResponse(_))) => break Some(io::ErrorKind::ConnectionReset.into()),
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
    carrier: Arc<Carrier>,
}

impl Tunnel {
    pub(crate) fn new(
        connect_id: i64,
        packets: mpsc::Sender<Packet>,
        incoming: Streaming<Packet>,
        budget: Budget,
        carrier: Arc<Carrier>,
    ) -> Self {
        let (sender, chunks) = mpsc::unbounded_channel();
        tokio::spawn(read(incoming, connect_id, sender, budget));
        Self { connect_id, packets: PollSender::new(packets), chunks, chunk: None, carrier }
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
        loop {
            match &mut self.chunk {
                Some(chunk) if !chunk.bytes.is_empty() => {
                    chunk.read(buffer);
                    return Poll::Ready(Ok(()));
                }
                _ => match ready!(self.chunks.poll_recv(context)) {
                    Some(chunk) => self.chunk = Some(chunk?),
                    None => return Poll::Ready(Ok(())),
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
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.packets.poll_reserve(context)).map_err(closed)?;
        let bytes = &bytes[..bytes.len().min(PACKET)];
        let (connect_id, data) = (self.connect_id, Bytes::copy_from_slice(bytes));
        let packet = Packet::of(Payload::Data(Data { connect_id, error: String::new(), data }));
        self.packets.send_item(packet).map_err(closed)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.packets.close();
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
}
