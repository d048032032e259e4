//! [`LogCursor`]: reads the log while it is written, for a follower.
//!
//! It gives the blocks of the log as they are, in order, each once it is in the ring: before it is on the disk. A cursor reads the ring
//! while its position is still there, and the files otherwise. No commit waits for it: the ring overwrites what a cursor has not read,
//! and the cursor then finds that in a file.
//!
//! Invariants:
//!
//! - **It gives what the log has**: each block was verified, and follows the one before it in the chain (I4). It discards bytes that
//!   the ring may have overwritten during the copy.
//! - **What it still needs stays**, up to the bound that it was given ([`Subscriptions`](super::subscriptions::Subscriptions)), unless
//!   a commit waits for room in the log. So a reader that stands still stops no commit.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::block::{self, BLOCK_MAX};
use super::log::Log;
use super::subscriptions::Subscription;
use super::wakers::{Listener, Listens, RegisteredListener};
use super::{Durability, LogPoint, LogPosition, files};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::io::{Clock, Moment};

/// A waiting cursor polls this often for the log's closing.
pub(super) const POLL: Duration = Duration::from_millis(500);
/// It gives at most so many bytes at a time.
const BYTES_MAX: usize = 8 << 20;

/// Reads the log behind its writer.
pub struct LogCursor {
    log: Arc<Log>,
    subscription: Arc<Subscription>,
    /// The end of the last block that it has given.
    point: LogPoint,
    /// Whether it has given a block: then the log goes through the point at which it began.
    has_begun: bool,
    /// Bytes that it has given from files.
    bytes_from_files: u64,
    /// Blocks on their way to the reader.
    bytes: Vec<u8>,
    more: Arc<MoreOfLog>,
    registered: Option<RegisteredListener>,
}

/// Some blocks of the log, one after the other.
#[derive(Debug, PartialEq, Eq)]
pub struct LogBlocks<'c> {
    /// Where the first one begins, as a position in the log's stream.
    pub position: LogPosition,
    /// The blocks, as they are in the log. All of them lie in one file of it.
    pub bytes: &'c [u8],
    /// That file.
    pub file: LogFileLayout,
    /// Where the last one ends.
    pub end: LogPoint,
}

/// Which stretch of the log's stream a log file holds. The checksums of its blocks depend on it, so a copy of the log has files of
/// the same layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFileLayout {
    /// The file's number.
    pub sequence: u64,
    /// Where its stretch begins.
    pub start: LogPosition,
    /// How many bytes of the stream it has room for.
    pub bytes: u64,
}

/// Tells that there is more of the log.
#[derive(Default)]
struct MoreOfLog {
    is_told: Mutex<bool>,
    changed: Condvar,
}

struct TellsOfMore(Arc<MoreOfLog>);

impl Listens for TellsOfMore {
    fn wake(self: Box<Self>) {
        *self.0.is_told.lock() = true;
        self.0.changed.notify_one();
    }
}

impl MoreOfLog {
    /// Waits until it is told, or until this moment.
    fn wait(&self, clock: &Clock, until: Moment) {
        let mut is_told = self.is_told.lock();
        while !*is_told && clock.wait_until(&self.changed, &mut is_told, until) {}
        *is_told = false;
    }
}

impl Log {
    /// A cursor that begins at the end of a block: at a point that the log has gone through. At most so many bytes of log stay for
    /// it.
    ///
    /// # Errors
    /// [`Error::LogTrimmed`] if the log after the point is not there any more; [`Error::LogDiverged`] if the log has not gone through it.
    pub(crate) fn cursor(self: &Arc<Log>, point: LogPoint, bytes_max: u64) -> Result<LogCursor> {
        let end = self.end();
        if point.position > end.position || point.position == end.position && point.checksum != end.checksum {
            return Err(Error::LogDiverged { position: point.position.0, checksum: point.checksum });
        }
        let subscription = self.subscribe(point.position.0, bytes_max)?;
        let mut cursor = LogCursor {
            log: self.clone(),
            subscription,
            point,
            has_begun: false,
            bytes_from_files: 0,
            bytes: Vec::new(),
            more: Arc::default(),
            registered: None,
        };
        if point.position < end.position {
            // Told now, and not when its reader asks for blocks.
            cursor.read_and_verify(point.position.0, 1)?;
            cursor.bytes_from_files = 0;
        }
        Ok(cursor)
    }
}

impl LogCursor {
    /// The end of the last block that it has given.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// How many bytes it has given from files, because they were not in the ring any more.
    pub fn bytes_from_files(&self) -> u64 {
        self.bytes_from_files
    }

    /// Whether the next blocks are in memory, at this moment: [`LogCursor::next_blocks`] reads no file for them, unless they leave it
    /// meanwhile.
    pub fn is_in_memory(&self) -> bool {
        !self.log.has_ended() && self.log.released() <= self.point.position.0
    }

    /// The reader has everything before this position, and keeps it: the files before it are not needed for it any more.
    pub fn release(&self, position: LogPosition) {
        self.subscription.advance(position.0.min(self.point.position.0));
    }

    /// The next blocks: whole ones, of at most `bytes_max` bytes in sum, but at least one. `None` if there is none within this time.
    ///
    /// # Blocking
    /// The call waits for up to `patience`, and may read the disk.
    ///
    /// # Errors
    /// [`Error::LogTrimmed`] if the log that it needs is not there any more; [`Error::LogDiverged`] if the log does not go
    /// through the point at which the cursor began; [`Error::Corrupt`] if a file of the log is damaged; [`Error::Stopped`] and
    /// [`Error::Closed`] once everything that the log will ever have was given; [`Error::Io`].
    pub fn next_blocks(&mut self, bytes_max: usize, patience: Duration) -> Result<Option<LogBlocks<'_>>> {
        if !self.has_more(patience)? {
            return Ok(None);
        }
        let (from, bytes_max) = (self.point.position.0, bytes_max.min(BYTES_MAX));
        let (end, file) = self.read_and_verify(from, bytes_max)?;
        let length = (end.position.0 - from) as usize;
        (self.point, self.has_begun) = (end, true);
        Ok(Some(LogBlocks { position: LogPosition(from), bytes: &self.bytes[..length], file, end }))
    }

    /// Whether the log has blocks behind this point, now or within this time. It reads none.
    ///
    /// # Blocking
    /// The call waits for up to `patience`.
    ///
    /// # Errors
    /// [`Error::Stopped`] and [`Error::Closed`] as [`LogCursor::next_blocks`].
    pub fn has_more(&mut self, patience: Duration) -> Result<bool> {
        let until = self.log.clock().now() + patience;
        loop {
            // Looked at first: after the end nothing is filled.
            let ended = self.log.has_ended();
            let open = self.log.check_not_ended();
            if self.log.filled() > self.point.position.0 {
                return Ok(true);
            }
            match open {
                Err(Error::Closed) if !ended => {}
                open => open?,
            }
            let now = self.log.clock().now();
            if now >= until {
                return Ok(false);
            }
            self.wait_for_more(until.min(now + POLL));
        }
    }

    /// Goes on from the end that the log has now; the blocks before it are not given. For a reader that wants to know of
    /// new blocks, and does not read them.
    pub fn pass(&mut self) {
        let end = self.log.end();
        if end.position > self.point.position {
            (self.point, self.has_begun) = (end, true);
        }
    }

    fn read_and_verify(&mut self, from: u64, bytes_max: usize) -> Result<(LogPoint, LogFileLayout)> {
        let to = self.log.filled().min(from + bytes_max.max(BLOCK_MAX) as u64);
        // The ring of a log that has ended may be that of the next opening.
        if !self.log.has_ended() && self.log.copy_from_ring(from, to, &mut self.bytes) {
            let verified = self.verified(bytes_max);
            // A processor may show what was overwritten meanwhile; on the disk it is as it was.
            if verified.is_ok() || self.log.released() <= from {
                return verified;
            }
        }
        self.copy_from_file(from, to)?;
        let verified = self.verified(bytes_max)?;
        self.bytes_from_files += verified.0.position.0 - from;
        Ok(verified)
    }

    fn wait_for_more(&mut self, until: Moment) {
        let more = self.more.clone();
        let tells = || Listener::Boxed(Box::new(TellsOfMore(more.clone())));
        let next = Lsn(self.point.lsn.0 + 1);
        self.log.listen(next, Durability::Memory, tells, &mut self.registered);
        if self.log.filled() <= self.point.position.0 {
            self.more.wait(self.log.clock(), until);
        }
    }

    /// Copies bytes from the file that holds this position: at least one whole block, at most up to `to`.
    fn copy_from_file(&mut self, from: u64, to: u64) -> Result<()> {
        let LogCursor { log, bytes, .. } = self;
        let Some(file) = log.file_at(from) else { return Err(self.trimmed()) };
        // What is not in the ring any more is on the disk, and in this file up to its end.
        let (to, mut on_disk) = (to.min(file.end()), log.released());
        let read = loop {
            let until = to.min(on_disk);
            bytes.resize(until.saturating_sub(from) as usize, 0);
            let read =
                log.open_to_read(&file).and_then(|reader| Ok(reader.read_at(bytes, file.offset(from))?));
            // In a log that follows another one the end of a block may be in the ring only.
            let mut rest = Vec::new();
            if until == to || until <= from || log.copy_from_ring(until, to, &mut rest) {
                bytes.append(&mut rest);
                break read;
            }
            // It has gone to the disk meanwhile.
            on_disk = log.released();
        };
        // A file that was freed meanwhile may be gone, or be written again.
        match self.log.file_at(from) {
            Some(now) if now.sequence == file.sequence => read,
            _ => Err(self.trimmed()),
        }
    }

    fn trimmed(&self) -> Error {
        Error::LogTrimmed { position: self.point.position.0, oldest: self.log.oldest_position() }
    }

    /// Verifies the whole blocks at the beginning of the bytes that were copied, at most so many bytes of them and at least one block.
    /// Gives where the last one ends, and the file that they lie in.
    fn verified(&self, bytes_max: usize) -> Result<(LogPoint, LogFileLayout)> {
        let (mut point, mut at) = (self.point, 0);
        let Some(file) = self.log.file_at(point.position.0) else { return Err(self.trimmed()) };
        while let Some(length) = block::claimed_length(&self.bytes[at..], point.position.0, BLOCK_MAX as u64)
        {
            let in_file = point.position.0 + length as u64 <= file.end();
            if at + length > self.bytes.len() || at > 0 && !(in_file && at + length <= bytes_max) {
                break;
            }
            match block::verify_next(&self.bytes[at..at + length], &point, file.seed) {
                Some((_, next)) => (point, at) = (next, at + length),
                None => return Err(self.broken(&file, point)),
            }
        }
        match self.log.file_at(self.point.position.0) {
            _ if at > 0 => Ok((point, file.layout())),
            Some(file) => Err(self.broken(&file, point)),
            None => Err(self.trimmed()),
        }
    }

    /// No block follows this point. If the cursor has given none yet, the log has not gone through it.
    fn broken(&self, file: &super::log_file::LogFile, point: LogPoint) -> Error {
        if point == self.point && !self.has_begun {
            return Error::LogDiverged { position: point.position.0, checksum: point.checksum };
        }
        let offset = file.offset(point.position.0);
        let what = format!("expected a block that follows {point}");
        Error::Corrupt { file: files::name(file.sequence), offset, what }
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        self.log.unsubscribe(&self.subscription, self.registered);
    }
}
