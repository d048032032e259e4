//! Small files of a node: written whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::failed::Failed;

/// Which users may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Its owner.
    Owner,
    /// All that reach its directory.
    All,
}

/// Makes a directory that its owner alone reaches, and those above it. One that is there stays as it is.
pub fn make_directory(path: &Path) -> Result<(), Failed> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Failed::of_file(path, &error))
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<(), Failed> {
    let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let synced = File::open(here).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Failed::of_file(path, &error))
}

/// Gives a file this text. It is on the disk when this returns.
pub fn write(path: &Path, text: &str, readers: Readers) -> Result<(), Failed> {
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::All => 0o644,
    };
    let written = || {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().expect("a file lies in a directory"))?.sync_all()
    };
    written().map_err(|error| Failed::of_file(path, &error))
}

/// The text of a file; none if there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, Failed> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failed::of_file(path, &error)),
    }
}

/// A lock that one process at a time holds, until it ends.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "its end ends the lock")] File);

/// Takes the lock whose file this is, or says that another process has it.
pub fn lock(path: &Path, what: &str) -> Result<Lock, Failed> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|error| Failed::of_file(path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Failed::unusable(format_args!("another process {what} (it holds {})", path.display())))
        }
        Err(fs::TryLockError::Error(error)) => Err(Failed::of_file(path, &error)),
    }
}
