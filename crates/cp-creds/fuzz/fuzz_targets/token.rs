//! No claims make the reader of `exp` panic.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cp_creds::token::Token;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|claims: &[u8]| {
    for text in
        [claims.to_vec(), format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)).into_bytes()]
    {
        if let Ok(token) = Token::from_bytes(text) {
            let _ = token.expiry();
            assert_eq!(format!("{token:?}"), "Token(..)");
        }
    }
});
