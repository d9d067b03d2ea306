//! Certificates that the Secret with the proxy's serving certificate can hold.

/// The certificate of a certificate authority.
pub const ONE: &str = include_str!("certificates/one.crt");

/// The certificate of another certificate authority.
pub const TWO: &str = include_str!("certificates/two.crt");

/// The certificates of two authorities, and a text that is not a valid certificate.
pub const CERTIFICATES: [&str; 3] = [ONE, TWO, "no certificate"];
