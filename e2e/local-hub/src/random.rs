//! Random bytes, for tokens and names.

use std::fs::File;
use std::io::Read as _;

use crate::HubError;

/// `N` bytes from the system's random generator.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], HubError> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|source| HubError::io("read random bytes", source))?;
    Ok(bytes)
}

/// 32 lower-case hexadecimal digits.
pub(crate) fn hex() -> Result<String, HubError> {
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes()?)))
}
