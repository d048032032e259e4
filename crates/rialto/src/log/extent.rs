//! How much log there is, without reading all of it: tells the user how long redo will be, before it begins.
//!
//! After the log's end no bytes make a block of its stream, because a block says its own position and a reused file's
//! blocks have earlier positions. The end is therefore found by bisection, in the last file that has a block: each step
//! asks whether a block begins in a stretch of 64 KiB, the greatest length of a block. The answer is an estimate,
//! because no checksum is verified. Only reading finds out where the log ends.

use super::block::{self, BLOCK_MAX, HEADER, u32_at, u64_at};
use super::log_file::LogFileHeader;
use super::reader::LogReader;
use crate::io::File;
use crate::{Lsn, Result};

/// About how much a reader has to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogExtent {
    /// Bytes, from the beginning of the file that holds the redo start.
    pub bytes: u64,
    /// The last place.
    pub lsn: u64,
}

impl LogReader {
    /// Estimates what there is to read, before anything is read.
    pub(crate) fn extent(&self) -> Result<LogExtent> {
        let files = self.files_to_read();
        let start = files[0].start;
        let mut extent = LogExtent { bytes: 0, lsn: self.lsn().0 };
        if let Some(last) = files.iter().rev().find(|file| file.first.is_some()) {
            let (end, lsn) = end_of(last, &*last.open(self.disk())?)?;
            extent = LogExtent { bytes: end - start, lsn: extent.lsn.max(lsn) };
        }
        if let Some((end, lsn)) = self.end_of_ring() {
            extent =
                LogExtent { bytes: extent.bytes.max(end.saturating_sub(start)), lsn: extent.lsn.max(lsn) };
        }
        Ok(extent)
    }
}

/// The end of the last block that begins in this file, and its last place.
fn end_of(header: &LogFileHeader, file: &dyn File) -> Result<(u64, u64)> {
    let mut bytes = vec![0; BLOCK_MAX + HEADER];
    let mut last = (header.start, 0);
    // Blocks begin before `low`; none begins from `high` on.
    let (mut low, mut high) = (0, header.capacity.div_ceil(BLOCK_MAX as u64));
    while low < high {
        let middle = (low + high) / 2;
        match last_block(header, file, header.start + middle * BLOCK_MAX as u64, &mut bytes)? {
            Some(found) => (last, low) = (found, middle + 1),
            None => high = middle,
        }
    }
    Ok(last)
}

/// The end and the last place of the last block that seems to begin in the 64 KiB from here on.
fn last_block(
    header: &LogFileHeader,
    file: &dyn File,
    from: u64,
    bytes: &mut [u8],
) -> Result<Option<(u64, u64)>> {
    let there = (header.end() - from).min(bytes.len() as u64) as usize;
    file.read_at(&mut bytes[..there], header.offset(from))?;
    Ok(last_claimed(&bytes[..there], from, header.end()))
}

/// As [`last_block`], in bytes of the stream from this position on.
pub(super) fn last_claimed(bytes: &[u8], from: u64, end: u64) -> Option<(u64, u64)> {
    let last = bytes.len().min(BLOCK_MAX);
    (0..last).step_by(8).rev().find_map(|at| {
        let position = from + at as u64;
        let length = block::claimed_length(&bytes[at..], position, end - position)?;
        let header = &bytes[at..at + HEADER];
        let (first, packets) = (u64_at(header, 32), u64::from(u32_at(header, 20)));
        // No block has places beyond the last one: these bytes are no block.
        let next = first.checked_add(packets).filter(|&next| next <= Lsn::MAX.0)?;
        Some((position + length as u64, next.saturating_sub(1)))
    })
}
