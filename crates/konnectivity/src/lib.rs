//! Connections to clusters through konnectivity's proxy server, for programs on the hub.
//!
//! Each cluster runs an agent that has connected to the proxy server. [`Dialer::dial`] asks the proxy server for a
//! connection from that agent to an address on the agent's side, as `konnectivity-client` in Go does
//! (<https://github.com/kubernetes-sigs/apiserver-network-proxy>). The result is a [`Tunnel`], a stream of bytes.
//!
//! - A [`Dialer`] has one TCP connection to the proxy server, with mutual TLS and HTTP/2, and one gRPC stream on it for
//!   each tunnel, since the proxy server accepts one dial in each stream. If the proxy server stops responding, new
//!   dials use another connection within eight seconds, and the tunnels of the old one end within fifteen.
//! - The protocol has no flow control for a tunnel: a stream that is not read blocks everything that its agent sends.
//!   So a tunnel is always read, also after its end; its bytes are buffered in memory, and it ends when they are too many
//!   ([`Budget`]).
//! - Nothing here knows Kubernetes, or logs what a tunnel carries.

mod body;
mod connection;
mod credentials;
mod dialer;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod packet;
mod tunnel;

pub use self::credentials::{Credentials, CredentialsError};
pub use self::dialer::Dialer;
pub use self::error::DialError;
pub use self::tunnel::{Budget, Tunnel};
