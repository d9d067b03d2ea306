//! Tells a script that something is ready, and how to reach it.

use std::io;
use std::path::PathBuf;

use local_hub::HubError;

/// A file of shell variables for a script to source, which exists only while they are valid.
#[derive(Debug)]
pub struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Removes an existing file, which would be mistaken for this one.
    pub fn new(path: PathBuf) -> Result<Self, HubError> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(HubError::io(format!("remove {}", path.display()), error))
            }
            _ => Ok(Self(path)),
        }
    }

    /// Writes the variables, atomically.
    pub fn write(&self, variables: &[(&str, &str)]) -> Result<(), HubError> {
        let lines =
            variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        let draft = self.0.with_added_extension("draft");
        std::fs::write(&draft, lines.collect::<String>())
            .and_then(|()| std::fs::rename(draft, &self.0))
            .map_err(|source| HubError::io(format!("write {}", self.0.display()), source))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // No error can be reported here.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
