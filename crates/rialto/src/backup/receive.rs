//! The receipt of a copy: makes a follower's directory of what [`Database::copy_to`](crate::Database::copy_to) writes.
//!
//! # The crash argument
//!
//! It is that of a restore (`restore.rs`), with the same mark, [`RESTORING`](super::RESTORING): the directory is a database once
//! its home block is there, which is written last, and until then a crash leaves the mark. Another receipt begins anew over
//! what is left.
//!
//! Here the database keeps its identity. So nothing but the emptiness of the directory keeps files of other times away: every
//! file that an opening could read has to be made here, or else be missing.
//!
//! The log gets the primary's files, with their layout, and in them the primary's blocks up to the copy's point. The record of
//! what a follower's disk has (`log/follower_record.rs`) is made with them: from the beginning the directory can be opened
//! as a follower's only. A database of the same identity that took transactions on its own would be a second primary.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use super::restore::{RestoreTarget, begin, clear, is_of_a_restore, make_empty};
use super::stream::{ReadPart, StreamKind, StreamReader};
use crate::fault_injection;
use crate::io::Disk;
use crate::log::{LogPoint, ReceivedLog};
use crate::recovery::OpenError;
use crate::store::memory::SEGMENT_BYTES;

/// How errors name the stream.
const STREAM: &str = "the copy's stream";

/// The report of the receipt of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedCopy {
    /// The identity of the database, which is the primary's.
    pub database: u128,
    /// The point of the log up to which the copy has everything. The follower begins with what follows it.
    pub point: LogPoint,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Bytes of its page file: of disk-resident tables.
    pub page_bytes: u64,
    /// Bytes of the log before the point.
    pub log_bytes: u64,
}

/// Makes a follower's database of a copy, on an empty disk. After an error the disk is empty again.
///
/// # Errors
/// As [`Follower::receive`](crate::Follower::receive).
pub(crate) fn receive(from: &mut dyn Read, to: &Arc<dyn Disk>) -> Result<ReceivedCopy, OpenError> {
    let directory = to.describe();
    let lock = to.lock().map_err(|error| OpenError::directory(&directory, &error))?;
    make_empty(&**to, is_of_a_receipt, &format!("receive a copy in {directory}"))?;
    let mut reader = StreamReader::begin(from, STREAM, StreamKind::Copy)?;
    let received = begin(to, reader.header.database).and_then(|mut target| run(&mut reader, &mut target));
    if received.is_err() {
        // The first error is returned; files that cannot be removed make no database.
        let _ = clear(&**to, is_of_a_receipt);
    }
    drop(lock);
    received
}

/// Whether a receipt makes a file of this name.
fn is_of_a_receipt(name: &str) -> bool {
    is_of_a_restore(name) || ReceivedLog::makes(name)
}

fn run(reader: &mut StreamReader<'_>, target: &mut RestoreTarget) -> Result<ReceivedCopy, OpenError> {
    let header = reader.header;
    let point = header.point.expect("a copy's header has a point");
    let mut log = ReceivedLog::begin(&target.disk, header.database)?;
    let (mut there, mut log_bytes) = (HashSet::new(), 0);
    loop {
        let at = reader.position();
        let wrong = match reader.next()? {
            None => break,
            Some(ReadPart::Segment(segment)) => {
                target.put(segment.number, segment.heap, segment.bytes)?;
                there.insert(segment.number);
                None
            }
            Some(ReadPart::List(list)) => {
                target.put_list(list, false)?;
                None
            }
            Some(ReadPart::Page(page)) => {
                target.put_page(page.number, page.image)?;
                None
            }
            Some(ReadPart::Log(part)) => {
                log_bytes += part.bytes.len() as u64;
                match log.follows(&part.file, part.position, part.bytes.len() as u64, &point) {
                    true => {
                        log.put(&part.file, part.bytes)?;
                        None
                    }
                    false => Some("a part of the log that the copy cannot have here"),
                }
            }
        };
        if let Some(what) = wrong {
            return Err(reader.corrupt(at, what));
        }
    }
    StreamReader::check_whole(STREAM, &header, &there, target.pages(), StreamKind::Copy)?;
    if log.position() != point.position {
        let what = "the log in the copy does not end at its point";
        return Err(reader.corrupt(reader.position(), what));
    }
    let pages = target.publish_pages(point.lsn)?;
    target.copy.sync()?;
    let page_bytes = target.page_bytes(pages)?;
    let name_home = || target.name_home((header.segments, header.next_id), point, pages);
    match fault_injection::is_on("copy-named-before-its-log") {
        true => name_home().and_then(|()| log.finish())?,
        false => log.finish().and_then(|()| name_home())?,
    }
    let bytes = u64::from(header.segments) * SEGMENT_BYTES as u64;
    Ok(ReceivedCopy { database: header.database, point, bytes, page_bytes, log_bytes })
}
