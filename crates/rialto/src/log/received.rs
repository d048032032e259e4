//! [`ReceivedLog`]: the beginning of a follower's log, made of what another log has before a point.
//!
//! It is made before anything in the directory can be opened, file by file as a log makes its own. As in every log of a follower,
//! whole pages go to the log files, and the page that the point lies in goes to the
//! [record](super::follower_record) of what the disk has, which makes the directory a follower's.

use std::sync::Arc;

use super::files::FileTable;
use super::follower_record::{FOLLOWER_RECORD, FollowerRecords, UNFINISHED};
use super::log_file::LogFile;
use super::{LogFileLayout, LogOptions, LogPoint, LogPosition, PAGE, files};
use crate::io::{AlignedBuffer, Caching, Disk};
use crate::{Result, fault_injection};

/// Whole pages are written when there are so many bytes of them.
const WRITE_BYTES: usize = 1 << 20;

/// See the [module](self).
pub(crate) struct ReceivedLog {
    disk: Arc<dyn Disk>,
    database: u128,
    files: FileTable,
    /// The file that the last bytes lie in.
    file: Option<Arc<LogFile>>,
    /// Everything before this has come.
    position: u64,
    /// What is not in the file yet, from the beginning of a page on.
    pages: Vec<u8>,
}

impl ReceivedLog {
    /// Whether it makes a file of this name.
    pub(crate) fn makes(name: &str) -> bool {
        [files::UNFINISHED, FOLLOWER_RECORD, UNFINISHED].contains(&name) || files::sequence(name).is_some()
    }

    /// For a log that has no file yet.
    pub(crate) fn begin(disk: &Arc<dyn Disk>, database: u128) -> Result<ReceivedLog> {
        let options = LogOptions::of_a_log_that_is_only_made();
        let files = FileTable::new(disk.clone(), database, &options, Caching::Buffered, Vec::new())?;
        Ok(ReceivedLog { disk: disk.clone(), database, files, file: None, position: 0, pages: Vec::new() })
    }

    /// Where the next bytes begin.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition(self.position)
    }

    /// Whether so many bytes at a position of a file come next, of a log that is received up to a point.
    pub(crate) fn follows(
        &self,
        layout: &LogFileLayout,
        position: LogPosition,
        length: u64,
        point: &LogPoint,
    ) -> bool {
        let LogFileLayout { sequence, start, bytes } = *layout;
        let page = PAGE as u64;
        let is_layout = (4 * page..=LogOptions::FILE_BYTES_MAX).contains(&bytes)
            && bytes.is_multiple_of(page)
            && start.0.is_multiple_of(page)
            && start.0 < 1 << 61;
        let is_next = match &self.file {
            Some(last) if last.end() > self.position => last.layout() == *layout,
            Some(last) => sequence == last.sequence.wrapping_add(1) && start.0 == last.end(),
            None => start == position,
        };
        let is_there = (self.file.is_none() || position.0 == self.position)
            && position.0.checked_add(length).is_some_and(|end| {
                end <= point.position.0 && end.checked_sub(start.0).is_some_and(|used| used <= bytes)
            });
        is_layout && is_next && is_there && length.is_multiple_of(8)
    }

    /// Adds the bytes that come next, which lie in this file.
    ///
    /// # Errors
    /// [`Error::DiskFull`](crate::Error::DiskFull); [`Error::Io`](crate::Error::Io).
    pub(crate) fn put(&mut self, layout: &LogFileLayout, bytes: &[u8]) -> Result<()> {
        if self.file.as_ref().is_none_or(|file| file.end() == self.position) {
            self.end_file()?;
            self.file = Some(self.files.prepare_at(layout)?);
            self.position = layout.start.0;
        }
        self.pages.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        if self.pages.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes the whole pages that have come.
    fn write(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let start = self.position - self.pages.len() as u64;
        let whole = self.pages.len() - self.pages.len() % PAGE;
        if whole > 0 {
            let mut pages = AlignedBuffer::zeroed(whole);
            pages.copy_from_slice(&self.pages[..whole]);
            file.file.write_at(&pages, file.offset(start))?;
            self.pages.drain(..whole);
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        self.write()?;
        if let Some(file) = &self.file {
            file.file.sync()?;
        }
        Ok(())
    }

    /// Makes everything that has come durable, as the beginning of a follower's log.
    ///
    /// # Errors
    /// As [`ReceivedLog::put`].
    pub(crate) fn finish(mut self) -> Result<()> {
        self.end_file()?;
        if !fault_injection::is_on("copy-of-no-follower") {
            FollowerRecords::open(&self.disk, self.database, (self.position, self.pages))?;
        }
        Ok(())
    }
}
