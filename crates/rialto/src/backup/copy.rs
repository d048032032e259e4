//! A copy of a running database for a follower: what [`Database::copy_to`](crate::Database::copy_to) writes.
//!
//! It is a full backup with two differences. It also has the log before its cut, from the beginning of a log file on, since a
//! follower's log is the primary's, byte for byte, and a log is read from the beginning of a file. And it is no backup: the
//! next increment has everything that has changed since the last *backup*, so what the copy has cleared is marked again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::stream::StreamWriter;
use super::take::WrittenBackup;
use super::{BackupOptions, CopyObserver, Output, Taking};
use crate::checkpoint::Cleared;
use crate::error::Result;
use crate::fault_injection;
use crate::log::{Log, LogPoint};
use crate::store::memory::segments::Copy;

/// How a copy for a follower is made.
#[derive(Debug, Clone)]
pub struct CopyOptions<'a> {
    /// So many bytes of log stay for the cursor that comes with the copy, beside those that were written while the copy was
    /// made: as in [`Database::log_cursor`](crate::Database::log_cursor), at most a quarter of
    /// [`Options::log_bytes_max`](crate::Options::log_bytes_max), and in sum at most half of it. By default as many as that.
    pub log_bytes_max: u64,
    /// Cancels the copy once it is set, as [`BackupOptions::cancelled`].
    pub cancelled: Option<&'a AtomicBool>,
    /// Is told how far the copy has come, as [`BackupOptions::observer`]. Its bytes do not count the log's.
    pub observer: Option<CopyObserver>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        CopyOptions { log_bytes_max: u64::MAX, cancelled: None, observer: None }
    }
}

impl<'a> CopyOptions<'a> {
    /// The copy, as a backup.
    pub(crate) fn of_backup(&self) -> BackupOptions<'a> {
        let CopyOptions { cancelled, ref observer, .. } = *self;
        BackupOptions { cancelled, observer: observer.clone(), ..BackupOptions::default() }
    }
}

/// The report of a copy for a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// The identity of the database, which the copy keeps.
    pub database: u128,
    /// The point of the log up to which the copy has everything, and nothing behind it. The follower's log goes on here.
    pub point: LogPoint,
    /// Segments in it.
    pub segments: u64,
    /// Pages of disk-resident tables in it.
    pub pages: u64,
    /// Bytes of log in it, all of them before the point.
    pub log_bytes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How long the cut kept commits from their places.
    pub cut_held: Duration,
    /// The most bytes of snapshot copies at the same time.
    pub snapshot_bytes: u64,
    /// The time from begin to end, without the wait for a sweep.
    pub took: Duration,
}

impl Taking<'_> {
    /// Writes a copy for a follower. No checkpoint sweeps meanwhile, and no log is freed.
    pub fn write_copy(&self, to: &mut Output<'_>) -> Result<CopyReport> {
        // This is only measured, and therefore by the machine's clock.
        let began = Instant::now();
        self.take_all();
        // The dirty bits are set again when this is dropped, and the pages marked as changed.
        let mut cleared = Cleared::new(self.source.segments(), Copy::Elsewhere);
        let written = self.write(None, to, &mut cleared)?;
        let WrittenBackup { header, written, cut_held, snapshot_bytes, progress, log_bytes, .. } = written;
        if fault_injection::is_on("copy-counts-as-a-backup") {
            cleared.keep();
        }
        progress.end(0);
        Ok(CopyReport {
            database: header.database,
            point: header.point.expect("a backup that is taken has a point"),
            segments: written.segments,
            pages: written.pages,
            log_bytes,
            bytes: written.bytes,
            cut_held,
            snapshot_bytes,
            took: began.elapsed(),
        })
    }

    /// Writes the log before the cut, which is on the disk, as long as the log, which had `log_bytes` at the beginning, is
    /// not in need of a checkpoint. Gives how many bytes were written.
    pub(super) fn copy_log(
        &self,
        log: &Arc<Log>,
        point: LogPoint,
        log_bytes: u64,
        writer: &mut StreamWriter<'_>,
    ) -> Result<u64> {
        let (mut before, mut copied) = (log.before(point)?, 0);
        while let Some(blocks) = before.next_blocks()? {
            self.check_wanted()?;
            self.check_log(log_bytes)?;
            writer.log(&blocks.file, blocks.position, blocks.bytes)?;
            copied += blocks.bytes.len() as u64;
        }
        Ok(copied)
    }
}
