//! The end of a command.

use std::io;

use local_hub::HubError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::ready::ReadyFile;
use super::say;

/// The end of a command that runs until it is stopped.
pub struct End {
    interrupt: Signal,
    terminate: Signal,
    stdin: Option<oneshot::Receiver<()>>,
}

impl End {
    /// Listens for signals, and for the end of standard input if requested.
    pub fn of(stdin: bool) -> Result<Self, HubError> {
        let listen =
            |kind| signal(kind).map_err(|source| HubError::io("listen for signals", source));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            stdin: stdin.then(stdin_closes),
        })
    }

    /// Returns when the command must end.
    pub async fn comes(&mut self) {
        let stdin = async {
            match &mut self.stdin {
                Some(closed) => drop(closed.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = stdin => {}
        }
    }
}

/// Announces that what a command runs is ready, and returns when the command must end.
pub async fn serve(
    mut end: End,
    file: &ReadyFile,
    variables: &[(&str, &str)],
    what: &str,
) -> Result<(), HubError> {
    file.write(variables)?;
    say(&format!("{what} ready; stop with ^C"));
    end.comes().await;
    say("stopping");
    Ok(())
}

/// Resolves, by losing its sender, when standard input ends. In a thread that is not joined, because a read cannot be
/// cancelled.
fn stdin_closes() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // An error counts as the end: nothing more will come.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(sender);
    });
    receiver
}
