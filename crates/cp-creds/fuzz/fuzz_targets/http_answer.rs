//! No bytes from a server make the reader panic or take more than it may, and however the network cuts them, they say
//! the same.
#![no_main]

use std::io::{self, Read};

use cp_creds::http::read_answer;
use libfuzzer_sys::fuzz_target;

struct Dripping<'a>(&'a [u8]);

impl Read for Dripping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let read = read_answer(bytes);
    if let Ok(body) = &read {
        assert!(body.len() <= bytes.len());
    }
    assert_eq!(format!("{:?}", read_answer(Dripping(bytes))), format!("{read:?}"));
});
