//! Why a dial fails.

use std::io;
use std::sync::Arc;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No credentials have been set.
    #[error("there is no client certificate for the proxy server yet")]
    NoCredentials,
    /// The proxy server does not respond in time, or refuses the connection.
    #[error("the proxy server cannot be reached: {0}")]
    Unreachable(#[source] Arc<io::Error>),
    /// The system has no random numbers.
    #[error("the system has no random number for a dial")]
    NoRandom,
    /// The connection to the proxy server ended during the dial.
    #[error("the proxy server ended the dial: {0}")]
    Ended(String),
    /// The proxy server has no agent of the cluster, or the agent cannot connect.
    #[error("{0}")]
    Refused(String),
    /// There was no response.
    #[error("the agent of the cluster did not respond in time")]
    TimedOut,
}
