//! What a creation of a log that was cut short may have left. A new log is created over that, and over nothing else.
//!
//! The home block is written last, so none of these files holds a user's data:
//!
//! | file | what a creation leaves of it |
//! |---|---|
//! | `log-unfinished` | zeros of any length; on its first page the header, or a first part of it |
//! | `log-0000000001` | the whole header, because a file is synced before it gets this name; the opening's pad, or any part of it, on the next page; zeros for the rest of its length |
//! | `log-writes` | the record of a measurement, or any part of it: it is not synced |
//! | `log-tail` | the ring's header, or any part of it, and zeros: no packet was gathered |
//!
//! Another file of one of these names, or of any name that a log's files have, belongs to a database whose home file is
//! missing, or to something else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PAGE;
use super::block::u64_at;
use super::files::{self, UNFINISHED};
use super::ring::{self, RING_NAME};
use super::write_path::{self, RECORD};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use crate::log::log_file;
use crate::{Error, Result};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Removes what such a creation left.
///
/// # Errors
/// [`Error::Unsupported`], naming a file with a log's name that no creation left: then nothing is removed.
pub(super) fn remove(disk: &dyn Disk) -> Result<()> {
    let is_of_log = |name: &str| {
        [UNFINISHED, RING_NAME, RECORD].contains(&name)
            || files::sequence(name).is_some()
            || files::is_spare(name)
    };
    let mut names = disk.list()?;
    names.retain(|name| is_of_log(name));
    for name in &names {
        if !is_left_over(disk, name)? {
            let what = format!(
                "\"{name}\" has the name of a file of a log, but what says whose log it is (\"home\") is missing: put that back, or \
                 move the file away if it is of no database, or use an empty directory"
            );
            return Err(Error::Unsupported { what });
        }
    }
    // A record is checked by itself: it counts if it is whole.
    names.iter().filter(|name| *name != RECORD).try_for_each(|name| Ok(disk.remove(name)?))
}

fn is_left_over(disk: &dyn Disk, name: &str) -> DiskResult<bool> {
    match name {
        RING_NAME => is_empty_ring(disk),
        RECORD => write_path::is_record(disk),
        UNFINISHED => {
            let (file, first) = open(disk, name)?;
            Ok(is_begun(&first[..8], &log_file::MAGIC.to_le_bytes()) && is_zero(&*file, 64)?)
        }
        _ => {
            let (file, first) = open(disk, name)?;
            let capacity = u64_at(&first, 48);
            Ok(name == files::name(1)
                && log_file::is_header(&first)
                && file.length()? == capacity.saturating_add(PAGE as u64)
                && is_zero(&*file, 2 * PAGE as u64)?)
        }
    }
}

/// The file, and its first page, with zeros where it is shorter.
fn open(disk: &dyn Disk, name: &str) -> DiskResult<(Arc<dyn File>, AlignedBuffer)> {
    let file = disk.open(name, Open::ReadOnly, Caching::Buffered)?;
    let mut first = AlignedBuffer::zeroed(PAGE);
    let there = file.length()?.min(PAGE as u64) as usize;
    file.read_at(&mut first[..there], 0)?;
    Ok((file, first))
}

/// Whether all bytes from an offset on are zeros.
fn is_zero(file: &dyn File, from: u64) -> DiskResult<bool> {
    let length = file.length()?;
    let mut buffer = vec![0; PIECE.min(length as usize)];
    for at in (from..length).step_by(PIECE) {
        let piece = &mut buffer[..(length - at).min(PIECE as u64) as usize];
        file.read_at(piece, at)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether bytes begin as `whole` does, as far as they were written.
pub(crate) fn is_begun(bytes: &[u8], whole: &[u8]) -> bool {
    let written = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    whole.starts_with(&bytes[..written])
}

/// Whether a shared ring holds no block.
fn is_empty_ring(disk: &dyn Disk) -> DiskResult<bool> {
    let bytes = match disk.shared_bytes(RING_NAME)? {
        None | Some(0) => return Ok(true),
        Some(bytes) if !bytes.is_multiple_of(8) => return Ok(false),
        Some(bytes) => bytes,
    };
    let map = disk.map_shared(RING_NAME, bytes)?;
    let (header, rest) = map.as_words().split_at(ring::HEADER_WORDS.min(bytes / 8));
    Ok([0, ring::MAGIC].contains(&header[0].load(Ordering::SeqCst))
        && rest.iter().all(|word| word.load(Ordering::Relaxed) == 0))
}
