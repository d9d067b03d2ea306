//! No bytes from a server make the reader panic or take more than it may.
#![no_main]

use cp_creds::http::read_answer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(body) = read_answer(bytes) {
        assert!(body.len() <= bytes.len());
    }
});
