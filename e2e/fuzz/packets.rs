//! Sends what libFuzzer invents to a dial, as a proxy server would.

#![no_main]

use std::cell::OnceCell;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    RUNTIME.with(|runtime| {
        let runtime =
            runtime.get_or_init(|| Builder::new_current_thread().enable_time().build().unwrap());
        let received =
            runtime.block_on(konnectivity::fuzzing::receive(Bytes::copy_from_slice(bytes)));
        assert!(received.is_none_or(|received| received.len() <= bytes.len()));
    });
});
