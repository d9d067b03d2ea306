//! A hub of one Secret, to measure a plugin against: writes its kubeconfig to the file that is its argument, and serves
//! until it is ended. `hack/measure-cp-creds.sh` runs it.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{self, Write as _};
use std::thread;
use std::{env, fs};

use support::{Hub, found};

fn main() -> io::Result<()> {
    let path = env::args_os()
        .nth(1)
        .ok_or_else(|| io::Error::other("usage: one_secret_hub KUBECONFIG"))?;
    let hub = Hub::behaving(|stream| {
        // Whoever measures sees that the plugin got nothing.
        let _ = stream.write_all(&found());
    });
    fs::write(path, hub.kubeconfig().to_string())?;
    loop {
        thread::park();
    }
}
