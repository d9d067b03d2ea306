//! Tells a script that something is ready, and how to reach it.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use local_hub::HubError;

/// Shell variables for a script to source.
#[derive(Debug, Default)]
pub struct Ready(String);

impl Ready {
    /// Adds a variable.
    pub fn export(mut self, name: &str, value: &str) -> Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "export {name}={}", quoted(value));
        self
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> Result<(), HubError> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".draft");
        std::fs::write(&draft, &self.0)
            .and_then(|()| std::fs::rename(draft, path))
            .map_err(failed(path))
    }

    /// Prints the variables, and a last line with the most important values.
    #[allow(clippy::print_stdout, reason = "this is the program's output")]
    pub fn print(&self, what: &str) {
        println!("{}ready {what}", self.0);
    }
}

/// A file that exists only while its contents are valid.
#[derive(Debug)]
pub struct ReadyFile<'a>(&'a Path);

impl<'a> ReadyFile<'a> {
    /// Removes an existing file, which would be mistaken for this one.
    pub fn new(path: &'a Path) -> Result<Self, HubError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
            _ => Ok(Self(path)),
        }
    }

    /// Writes it.
    pub fn write(&self, ready: &Ready) -> Result<(), HubError> {
        ready.write(self.0)
    }
}

impl Drop for ReadyFile<'_> {
    fn drop(&mut self) {
        // No error can be reported here.
        let _ = std::fs::remove_file(self.0);
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let doing = format!("write the file {}", path.display());
    move |source| HubError::Io { doing, source }
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
