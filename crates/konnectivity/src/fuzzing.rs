//! What a proxy server can send, for properties and for `hack/robustness.sh fuzz`.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::codec::Codec as _;
use tonic_prost::ProstCodec;

use crate::connection::accepted;
use crate::packet::Packet;
use crate::tunnel::{Budget, Tunnel};

/// The `random` of the dial to which the bytes respond.
pub const RANDOM: i64 = 7;

/// What arrives of a tunnel if the proxy server sends these bytes: gRPC messages, from the response to the dial on.
/// `None` if the dial fails. Ends with the bytes, whatever they are.
pub async fn receive(bytes: Bytes) -> Option<Vec<u8>> {
    let decoder = ProstCodec::<Packet, Packet>::default().decoder();
    let mut packets =
        Streaming::new_response(decoder, Full::new(bytes), StatusCode::OK, None, None);
    let connect_id = accepted(&mut packets, RANDOM).await.ok()?;
    let (outgoing, over) = (mpsc::channel(1).0, CancellationToken::new());
    let budget = Budget::new(8 << 20);
    let mut tunnel = Tunnel::new(connect_id, outgoing, packets, over, budget, Arc::default());
    let mut received = Vec::new();
    // An error is an end as well.
    let _ = tunnel.read_to_end(&mut received).await;
    Some(received)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::packet::{CloseDial, CloseResponse, Data, DialResponse, Drain, Payload};

    /// The messages of gRPC.
    fn encoded(payloads: &[Payload]) -> Bytes {
        let mut bytes = BytesMut::new();
        for payload in payloads {
            let packet = Packet::of(payload.clone());
            bytes.put_u8(0);
            bytes.put_u32(packet.encoded_len().try_into().unwrap());
            packet.encode(&mut bytes).unwrap();
        }
        bytes.freeze()
    }

    fn received(bytes: Bytes) -> Option<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(receive(bytes))
    }

    fn payload() -> impl Strategy<Value = Payload> {
        // Of this connection and of others.
        let id = prop_oneof![3 => Just(1_i64), 1 => Just(2)];
        let error = prop_oneof![4 => Just(String::new()), 1 => Just("error".to_owned())];
        let data = prop::collection::vec(any::<u8>(), 0..20);
        prop_oneof![
            8 => (id.clone(), data).prop_map(|(connect_id, data)| {
                Payload::Data(Data { connect_id, error: String::new(), data: data.into() })
            }),
            1 => (id.clone(), error.clone()).prop_map(|(connect_id, error)| {
                Payload::CloseResponse(CloseResponse { error, connect_id })
            }),
            1 => Just(Payload::CloseDial(CloseDial { random: RANDOM })),
            1 => Just(Payload::Drain(Drain {})),
            1 => (id, error).prop_map(|(connect_id, error)| {
                Payload::DialResponse(DialResponse { error, connect_id, random: RANDOM })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_tunnel_delivers_what_is_its_own_until_it_is_closed(payloads in prop::collection::vec(payload(), 0..20)) {
            let accepted = DialResponse { error: String::new(), connect_id: 1, random: RANDOM };
            let all = [&[Payload::DialResponse(accepted)], payloads.as_slice()].concat();
            let mut expected = Vec::new();
            for payload in &payloads {
                match payload {
                    Payload::Data(data) if data.connect_id == 1 => expected.extend_from_slice(&data.data),
                    Payload::CloseResponse(_) => break,
                    _ => {}
                }
            }
            prop_assert_eq!(received(encoded(&all)), Some(expected));
        }

        #[test]
        fn whatever_a_proxy_server_sends_a_dial_and_its_tunnel_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let length = bytes.len();
            if let Some(received) = received(bytes.into()) {
                prop_assert!(received.len() <= length);
            }
        }
    }
}
