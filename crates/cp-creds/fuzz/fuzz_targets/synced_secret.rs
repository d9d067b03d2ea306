//! No Secret makes the judge panic, and no token that it lets through could break out of a header.
#![no_main]

use cp_creds::names::{AccountName, ClusterName, Namespace, SecretKey};
use cp_creds::synced_secret::read;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let key = || {
        SecretKey::new(Namespace::parse("n")?, ClusterName::parse("c")?, AccountName::parse("m")?)
    };
    let Ok(key) = key() else { return };
    match read(bytes, &key, Timestamp::UNIX_EPOCH) {
        Ok(credential) => {
            assert!(credential.token.expose().bytes().all(|byte| byte.is_ascii_graphic()))
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
