//! `cp-creds install DIR`: copies this program to where another container can run it.
//!
//! An init container runs it; its image contains only this program, so it has no `cp`. The file is replaced atomically,
//! since a consumer may be running the old one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

/// The name in consumers' configurations.
const PROGRAM: &str = "cp-creds";

/// Everyone can run it: the consumer's container has another user than the init container.
const MODE: u32 = 0o755;

/// Copies the program `source` into `directory` and returns the path of the copy.
pub fn install(source: &Path, directory: &Path) -> Result<PathBuf> {
    // One that does not exist is a volume that is not mounted, and must not be created.
    ensure!(
        directory.is_dir(),
        "cannot install into {}: not a directory; check that the volume is mounted there",
        directory.display()
    );
    let source = File::open(source).context("cannot install: cannot read the program itself")?;
    let target = directory.join(PROGRAM);
    let partial = directory.join(partial_name());
    let done = write(source, &partial)
        .map_err(|error| (partial.clone(), error))
        .and_then(|()| fs::rename(&partial, &target).map_err(|error| (target.clone(), error)));
    if let Err((path, error)) = done {
        // Removes what a failed attempt left; if that fails, the original error is reported.
        let _ = fs::remove_file(&partial);
        let what = format!("cannot install: cannot write {}", path.display());
        return Err(error).context(what);
    }
    Ok(target)
}

/// In a container every program is process 1, so the time distinguishes attempts.
fn partial_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!(".{PROGRAM}.{}.{}", process::id(), now.as_nanos())
}

fn write(mut source: File, path: &Path) -> io::Result<()> {
    let mut target = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    io::copy(&mut source, &mut target)?;
    // The umask may have removed permissions that others need.
    target.set_permissions(Permissions::from_mode(MODE))?;
    target.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::install;

    #[test]
    fn the_copy_is_whole_and_may_be_run_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let plugins = directory.path().join("plugins");
        fs::create_dir(&plugins).unwrap();
        for content in ["one", "two"] {
            fs::write(&source, content).unwrap();
            let target = install(&source, &plugins).unwrap();
            assert_eq!(target, plugins.join("cp-creds"));
            assert_eq!(fs::read_to_string(&target).unwrap(), content);
            assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o755);
            assert_eq!(fs::read_dir(&plugins).unwrap().count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn a_target_that_is_no_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::write(&source, "x").unwrap();
        for target in [directory.path().join("missing"), source.clone()] {
            let error = install(&source, &target).unwrap_err();
            let place = format!("into {}: not a directory", target.display());
            assert!(error.to_string().contains(&place), "{error}");
        }
    }

    #[test]
    fn a_failed_attempt_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::write(&source, "x").unwrap();
        let plugins = directory.path().join("plugins");
        fs::create_dir_all(plugins.join("cp-creds/in-the-way")).unwrap();
        let error = install(&source, &plugins).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!(fs::read_dir(&plugins).unwrap().count(), 1);
    }
}
