//! The packets between a client and the proxy server: `konnectivity-client/proto/client/client.proto` of
//! apiserver-network-proxy v0.36.0.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The gRPC method whose two streams carry packets.
pub const METHOD: &str = "/ProxyService/Proxy";

/// A packet. The proxy server decides by `kind`, the number of upstream's `PacketType`, which must match the payload.
#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6, 7, 8")]
    pub payload: Option<Payload>,
}

/// The content of a packet.
#[derive(Clone, PartialEq, Oneof)]
pub enum Payload {
    #[prost(message, tag = "2")]
    DialRequest(DialRequest),
    #[prost(message, tag = "3")]
    DialResponse(DialResponse),
    #[prost(message, tag = "4")]
    Data(Data),
    #[prost(message, tag = "5")]
    CloseRequest(CloseRequest),
    #[prost(message, tag = "6")]
    CloseResponse(CloseResponse),
    #[prost(message, tag = "7")]
    CloseDial(CloseDial),
    #[prost(message, tag = "8")]
    Drain(Drain),
}

/// Asks for a connection.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DialRequest {
    /// Always `tcp`.
    #[prost(string, tag = "1")]
    pub protocol: String,
    /// `HOST:PORT`, as the agent resolves it; the proxy server chooses the agent by the host.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Identifies the request.
    #[prost(int64, tag = "3")]
    pub random: i64,
}

/// The result of a dial.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DialResponse {
    /// Why there is no connection; empty if there is one.
    #[prost(string, tag = "1")]
    pub error: String,
    /// Identifies the connection.
    #[prost(int64, tag = "2")]
    pub connect_id: i64,
    /// That of the request.
    #[prost(int64, tag = "3")]
    pub random: i64,
}

/// Ends a connection.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CloseRequest {
    #[prost(int64, tag = "1")]
    pub connect_id: i64,
}

/// A connection has ended.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CloseResponse {
    #[prost(string, tag = "1")]
    pub error: String,
    #[prost(int64, tag = "2")]
    pub connect_id: i64,
}

/// Ends a dial that has no response yet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CloseDial {
    #[prost(int64, tag = "1")]
    pub random: i64,
}

/// The agent is about to end. New dials should go to another one, which is the proxy server's task.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Drain {}

/// Bytes of a connection.
#[derive(Clone, PartialEq, Message)]
pub struct Data {
    #[prost(int64, tag = "1")]
    pub connect_id: i64,
    #[prost(string, tag = "2")]
    pub error: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

impl Packet {
    /// A packet of the kind of its payload.
    #[must_use]
    pub fn of(payload: Payload) -> Self {
        let kind = match payload {
            Payload::DialRequest(_) => 0,
            Payload::DialResponse(_) => 1,
            Payload::CloseRequest(_) => 2,
            Payload::CloseResponse(_) => 3,
            Payload::Data(_) => 4,
            Payload::CloseDial(_) => 5,
            Payload::Drain(_) => 6,
        };
        Self { kind, payload: Some(payload) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that Go's implementation encodes for these packets.
    #[test]
    fn packets_are_encoded_as_upstream_encodes_them() {
        let dial =
            DialRequest { protocol: "tcp".to_owned(), address: "c1:443".to_owned(), random: 300 };
        let data = Data { connect_id: 1, error: String::new(), data: Bytes::from_static(b"hi") };
        for (payload, bytes) in [
            (
                Payload::DialRequest(dial),
                b"\x12\x10\x0a\x03tcp\x12\x06c1:443\x18\xac\x02".as_slice(),
            ),
            (Payload::Data(data), b"\x08\x04\x22\x06\x08\x01\x1a\x02hi"),
            (Payload::CloseRequest(CloseRequest { connect_id: 7 }), b"\x08\x02\x2a\x02\x08\x07"),
            (Payload::CloseDial(CloseDial { random: 9 }), b"\x08\x05\x3a\x02\x08\x09"),
            (Payload::Drain(Drain {}), b"\x08\x06\x42\x00"),
        ] {
            let packet = Packet::of(payload);
            assert_eq!(packet.encode_to_vec(), bytes, "{packet:?}");
            assert_eq!(Packet::decode(bytes), Ok(packet));
        }
    }

    proptest! {
        #[test]
        fn whatever_a_proxy_server_sends_is_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = Packet::decode(bytes.as_slice()) {
                prop_assert_eq!(Packet::decode(packet.encode_to_vec().as_slice()), Ok(packet));
            }
        }

        #[test]
        fn data_arrives_as_it_was_sent(data in prop::collection::vec(any::<u8>(), 0..5000), connect_id in any::<i64>()) {
            let data = Data { connect_id, error: String::new(), data: data.into() };
            let packet = Packet::of(Payload::Data(data));
            prop_assert_eq!(Packet::decode(packet.encode_to_vec().as_slice()), Ok(packet));
        }
    }
}
