//! [`LogCursor`]: reads the log while it is written, for a standby.
//!
//! It gives the blocks of the log as they are, in order, each once it is in the ring: before it is on the disk. A cursor that is not
//! far behind reads the ring, another one the files. It keeps no committer waiting: the ring is filled over bytes that a cursor has not
//! read, and it then finds them in a file.
//!
//! Invariants:
//!
//! - **It gives what the log has**: each block was verified, and follows the one before it in the chain (I4). Bytes of the ring that were
//!   filled again while they were copied are not looked at.
//! - **What it still needs stays**, up to the bound that it was given ([`Subscriptions`](super::subscriptions::Subscriptions)); past
//!   that bound, and if a transaction waits for room in the log, it is cut off, and says so. So a reader that stands still stops no
//!   commit.

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

/// A wait looks so often whether the log has been closed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Reads the log behind its writer.
pub struct LogCursor {
    log: Arc<Log>,
    subscription: Arc<Subscription>,
    /// The end of the last block that it has given.
    point: LogPoint,
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
    /// The blocks, as they are in the log.
    pub bytes: &'c [u8],
    /// Where the last one ends.
    pub end: LogPoint,
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
    /// [`Error::LogTrimmed`] if the log after the point is not there any more.
    pub(crate) fn cursor(self: &Arc<Log>, point: LogPoint, bytes_max: u64) -> Result<LogCursor> {
        let subscription = self.subscribe(point.position.0, bytes_max)?;
        Ok(LogCursor {
            log: self.clone(),
            subscription,
            point,
            bytes: Vec::new(),
            more: Arc::default(),
            registered: None,
        })
    }
}

impl LogCursor {
    /// The end of the last block that it has given.
    pub fn point(&self) -> LogPoint {
        self.point
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
    /// [`Error::LogTrimmed`] if it is further behind than its bound; [`Error::Corrupt`] if a file of the log is damaged, or if
    /// the log does not go through the point at which the cursor began; [`Error::Stopped`] and [`Error::Closed`] once everything that
    /// is in the log was given; [`Error::Io`].
    pub fn next_blocks(&mut self, bytes_max: usize, patience: Duration) -> Result<Option<LogBlocks<'_>>> {
        let until = self.log.clock().now() + patience;
        let from = self.point.position.0;
        while self.log.filled() <= from {
            self.log.check_open()?;
            let now = self.log.clock().now();
            if now >= until {
                return Ok(None);
            }
            self.wait_for_more(until.min(now + LOOK_EVERY));
        }
        self.copy(from, bytes_max.max(BLOCK_MAX))?;
        let end = self.verified(bytes_max)?;
        let length = (end.position.0 - from) as usize;
        self.point = end;
        Ok(Some(LogBlocks { position: LogPosition(from), bytes: &self.bytes[..length], end }))
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

    /// Copies bytes of the log from here on, at most so many, which begin with at least one whole block.
    fn copy(&mut self, from: u64, most: usize) -> Result<()> {
        let LogCursor { log, bytes, .. } = self;
        let to = log.filled().min(from + most as u64);
        if log.copy_from_ring(from, to, bytes) {
            return Ok(());
        }
        let Some(file) = log.file_at(from).filter(|_| !self.subscription.is_cut()) else {
            return Err(self.trimmed());
        };
        // What is not in the ring any more is on the disk, and in this file up to its end.
        let to = to.min(file.end()).min(log.released());
        bytes.resize((to - from) as usize, 0);
        let reader = log.open_to_read(&file)?;
        reader.read_at(bytes, file.offset(from))?;
        // A file that was freed meanwhile may have been written again.
        if log.file_at(from).is_none_or(|now| now.sequence != file.sequence) {
            return Err(self.trimmed());
        }
        Ok(())
    }

    fn trimmed(&self) -> Error {
        Error::LogTrimmed { position: self.point.position.0, oldest: self.log.oldest_position() }
    }

    /// Verifies the whole blocks at the beginning of the bytes that were copied, at most so many bytes of them and at least one block.
    /// Gives where the last one ends.
    fn verified(&self, bytes_max: usize) -> Result<LogPoint> {
        let (mut point, mut at) = (self.point, 0);
        while let Some(length) = block::claimed_length(&self.bytes[at..], point.position.0, BLOCK_MAX as u64)
        {
            if at + length > self.bytes.len() || (at > 0 && at + length > bytes_max) {
                break;
            }
            let Some(file) = self.log.file_at(point.position.0) else { return Err(self.trimmed()) };
            let follows = |(header, _): &(block::BlockHeader, u64)| header.previous == point.checksum;
            let found = block::verify(&self.bytes[at..at + length], file.seed).filter(follows);
            let Some((header, checksum)) = found else { return Err(self.broken(&file, point)) };
            at += length;
            point = LogPoint {
                lsn: Lsn(header.first_lsn - 1 + u64::from(header.packets)),
                position: LogPosition(point.position.0 + length as u64),
                checksum,
            };
        }
        match self.log.file_at(point.position.0) {
            _ if at > 0 => Ok(point),
            Some(file) => Err(self.broken(&file, point)),
            None => Err(self.trimmed()),
        }
    }

    fn broken(&self, file: &super::log_file::LogFile, point: LogPoint) -> Error {
        let offset = file.offset(point.position.0);
        let what = format!("expected a block that follows {point}");
        Error::Corrupt { file: files::name(file.sequence), offset, what }
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        self.log.unsubscribe(&self.subscription);
    }
}
