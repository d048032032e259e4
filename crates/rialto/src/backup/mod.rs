//! Backups of a running database, and the restore that makes a database of them again.
//!
//! ```text
//!  running database ──cut──▶ BACKUP (take.rs) ──▶ one framed, checksummed stream (stream.rs), in a file or anywhere
//!  its log files, as they are freed ──▶ ARCHIVE (archive.rs)                     │
//!                                          │                                     ▼
//!                                          └──────── redo up to a place ──▶ RESTORE (restore.rs) ──▶ a new database
//! ```
//!
//! # What a backup holds
//!
//! A backup holds the segments as they were at a transaction-consistent *cut*: with the writes of all transactions up
//! to one place in the log, and of no others. This is so with every checkpointer. So a backup needs no log. It uses the
//! mechanism of copy-on-update ([`Snapshots`](crate::store::memory::segments::Segments::snapshots)) with a dirty bit of
//! its own, and touches neither backup copies nor home block. There is one cut at a time, so a backup waits for a sweep
//! in progress (and hurries it), and checkpoints wait for the backup.
//!
//! The pages of disk-resident tables are cut at the same moment. The backup streams their images as of the cut from the page
//! file, behind the segments (`store/paged/page_backup.rs`).
//!
//! An *increment* holds the segments that have changed since the last backup: those with the dirty bit; and the pages that
//! have other images than as of its cut. The bits, and the numbers of these pages, lie in memory, so the first backup of an opening is always a full one, and its report says so.
//!
//! A *copy for a follower* (`copy.rs`) is a full backup with the log before its cut, from which a follower's directory is made
//! (`receive.rs`). The database keeps its identity there, and its log.
//!
//! # Invariants kept here
//!
//! - A complete backup never holds a transaction that the database may lose: its end frame is written after the log is
//!   on disk up to the cut. An incomplete backup is never taken for a complete one: it has no end frame, and in a
//!   directory it does not have the name of a backup.
//! - A failed backup changes nothing: the dirty bits that it cleared are set again.
//! - A restored directory is a database of its own: see `restore.rs` for its crash argument.
//! - A directory that a copy was received in has the primary's log up to the cut, byte for byte, and the tables of that point.
//!   It opens as a follower only: see `receive.rs`.
//! - **I9** Each frame is checksummed; errors name the file, or the stream, and the offset of the frame.

mod archive;
mod copy;
mod progress;
mod receive;
mod redo;
mod restore;
mod stream;
mod take;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use self::archive::Archive;
pub use self::copy::{CopyOptions, CopyReport};
use self::progress::CopyProgress;
pub use self::progress::{BytesDone, CopyObserver};
pub use self::receive::ReceivedCopy;
pub(crate) use self::receive::receive;
pub(crate) use self::restore::RESTORING;
pub use self::restore::{Restore, RestoreReport, RestoreTo, restore};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::stream::{forge, frames_of};
pub(crate) use self::take::{Backups, Destination, Output, Taking};
use crate::error::Result;
use crate::ids::Lsn;
use crate::io::{Caching, Disk, File, FileDisk, Open};
use crate::recovery::OpenError;

/// The name of a backup's file in a directory.
pub const BACKUP_FILE: &str = "backup.rialto";
const UNFINISHED: &str = "backup.unfinished";

/// How much a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackupKind {
    /// All segments and pages.
    #[default]
    Full,
    /// The segments and pages that have changed since the last backup of the same opening; all if there was none.
    Incremental,
}

/// How a backup is taken. A [`BackupKind`] alone is enough where these are asked for.
#[derive(Debug, Clone, Default)]
pub struct BackupOptions<'a> {
    /// How much it holds; everything by default.
    pub kind: BackupKind,
    /// Cancels the backup once it is set. It is read before each segment and each page that is copied, and while the backup
    /// waits for a checkpoint.
    pub cancelled: Option<&'a AtomicBool>,
    /// Is told how far the backup has come. Its bytes are those of the segments to copy, in memory, and of the pages.
    pub observer: Option<CopyObserver>,
    /// Is asked before the cut and at it: so backups of several databases can have one cut.
    pub meeting: Option<&'a dyn CutMeeting>,
}

/// What is to happen beside a backup's cut: backups of several databases that all wait at their cuts at one moment
/// hold the state of that moment.
pub trait CutMeeting: Sync + std::fmt::Debug {
    /// The cut comes next: the backup waits for no checkpoint any more. Commits go on, and definitions can be
    /// changed, until this returns; checkpoints wait. False: the backup is given up. A meeting that waits calls `check`
    /// again and again, and gives up at its error: the database closes, the backup is cancelled, or the log has come
    /// near its bound.
    fn comes_next(&self, check: &dyn Fn() -> Result<()>) -> bool;

    /// The cut is there: no commit takes its place until this returns, so it returns soon. False: the backup is given
    /// up.
    fn is_there(&self) -> bool;
}

impl From<BackupKind> for BackupOptions<'_> {
    fn from(kind: BackupKind) -> Self {
        BackupOptions { kind, ..BackupOptions::default() }
    }
}

/// The report of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// Its identity, which an increment on it names.
    pub id: u128,
    /// The identity of the backup that this increment follows; `None` for a full one.
    pub base: Option<u128>,
    /// The last place in the log that it holds; it holds all before it too.
    pub place: Lsn,
    /// Segments in it.
    pub segments: u64,
    /// Pages of disk-resident tables in it.
    pub pages: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How long the cut kept commits from their places.
    pub cut_held: Duration,
    /// The most bytes of snapshot copies at the same time.
    pub snapshot_bytes: u64,
    /// The time from begin to end, with the wait for a sweep.
    pub took: Duration,
    /// Why it is full although an increment was requested.
    pub why_full: Option<String>,
}

impl std::fmt::Display for BackupReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BackupReport { id, base, place, segments, pages, bytes, .. } = self;
        match base {
            None => write!(f, "full backup {id:032x}")?,
            Some(base) => write!(f, "backup {id:032x}, an increment on {base:032x}")?,
        }
        write!(f, ", up to place {place}: {segments} segments, ")?;
        if *pages > 0 {
            write!(f, "{pages} pages, ")?;
        }
        write!(
            f,
            "{bytes} bytes, {:.3} s; its cut kept commits waiting for {:.0} us, and \
             at most {} bytes were kept for it at a time",
            self.took.as_secs_f64(),
            self.cut_held.as_secs_f64() * 1e6,
            self.snapshot_bytes
        )?;
        match &self.why_full {
            Some(why) => write!(f, " (full, because {why})"),
            None => Ok(()),
        }
    }
}

/// An existing backup.
pub struct Backup {
    name: String,
    /// How long it is; `None` for a stream.
    bytes: Option<u64>,
    from: Box<dyn Read + Send>,
}

impl Backup {
    /// The backup in a directory.
    ///
    /// # Errors
    /// [`OpenError::Missing`] if there is no directory, or no backup in it; [`OpenError::Io`].
    pub fn in_directory(path: impl AsRef<Path>) -> Result<Backup, OpenError> {
        let path = path.as_ref();
        let directory = path.display().to_string();
        let disk = FileDisk::open(path).map_err(|error| OpenError::directory(&directory, &error))?;
        Backup::on(disk, &directory)
    }

    /// The backup on a disk; errors call it by the name `directory`.
    ///
    /// # Errors
    /// As [`Backup::in_directory`].
    pub fn on(disk: Arc<dyn Disk>, directory: &str) -> Result<Backup, OpenError> {
        let file = match disk.open(BACKUP_FILE, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => {
                let what = format!("a backup (\"{BACKUP_FILE}\")");
                return Err(OpenError::Missing { directory: directory.to_owned(), what });
            }
            file => file?,
        };
        let bytes = Some(file.length()?);
        let name = format!("{directory}/{BACKUP_FILE}");
        Ok(Backup { name, bytes, from: Box::new(FileReader { file, at: 0 }) })
    }

    /// A backup that is read from a stream; errors call it by `name`.
    pub fn stream(name: &str, from: impl Read + Send + 'static) -> Backup {
        Backup { name: name.to_owned(), bytes: None, from: Box::new(from) }
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backup({})", self.name)
    }
}

/// A file of a disk, from its beginning to its end.
struct FileReader {
    file: Arc<dyn File>,
    at: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let other = |error: crate::io::DiskError| std::io::Error::other(error.source.to_string());
        let left = self.file.length().map_err(other)?.saturating_sub(self.at);
        let count = left.min(buffer.len() as u64) as usize;
        self.file.read_at(&mut buffer[..count], self.at).map_err(other)?;
        self.at += count as u64;
        Ok(count)
    }
}
