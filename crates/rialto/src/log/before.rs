//! [`LogBefore`]: the log before a point, as far back as a recovery needs it that goes on at the point.
//!
//! A recovery reads from the beginning of a log file on, and has to find the point. A follower's directory, whose log begins
//! where the copy of its tables does, therefore has the file that the point lies in from its beginning.

use std::sync::Arc;
use std::time::Duration;

use super::block::BLOCK_MAX;
use super::{Log, LogBlocks, LogCursor, LogPoint, LogPosition, PAGE, files, reader};
use crate::{Error, Lsn, Result};

/// Bytes that are given at a time, or a block.
const READ_BYTES: usize = 1 << 20;

/// See the [module](self).
pub(crate) struct LogBefore {
    cursor: LogCursor,
    point: LogPoint,
}

impl Log {
    /// The log before a point that is on the disk. No file is freed as long as it is read.
    ///
    /// # Errors
    /// [`Error::LogTrimmed`] if it is not there any more; [`Error::Corrupt`] if it is damaged; [`Error::Io`].
    pub(crate) fn before(self: &Arc<Log>, point: LogPoint) -> Result<LogBefore> {
        let trimmed = || Error::LogTrimmed { position: point.position.0, oldest: self.oldest_position() };
        let file = self.core.files.start_before(&point).ok_or_else(trimmed)?;
        let first = reader::first_block(&file, &*self.open_to_read(&file)?)?;
        let Some(first) = first else {
            let what = "expected the first block of the log file".to_owned();
            return Err(Error::Corrupt { file: files::name(file.sequence), offset: PAGE as u64, what });
        };
        let begin = LogPoint {
            lsn: Lsn(first.first_lsn - 1),
            position: LogPosition(first.position),
            checksum: first.previous,
        };
        Ok(LogBefore { cursor: self.cursor(begin, u64::MAX)?, point })
    }
}

impl LogBefore {
    /// The next blocks, all of one file; `None` once the point is reached.
    ///
    /// # Errors
    /// As [`LogCursor::next_blocks`].
    pub(crate) fn next_blocks(&mut self) -> Result<Option<LogBlocks<'_>>> {
        let LogBefore { cursor, point } = self;
        let from = cursor.point().position;
        if from >= point.position {
            return Ok(None);
        }
        let Some(blocks) = cursor.next_blocks(READ_BYTES, Duration::ZERO)? else { return Ok(None) };
        // Blocks behind the point may have come with them.
        let length = (point.position.0.min(blocks.end.position.0) - from.0) as usize;
        let end = if blocks.end.position > point.position { *point } else { blocks.end };
        Ok(Some(LogBlocks { bytes: &blocks.bytes[..length], end, ..blocks }))
    }
}

const _: () = assert!(READ_BYTES >= BLOCK_MAX);
