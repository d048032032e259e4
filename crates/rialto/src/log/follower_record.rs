//! [`FollowerRecord`]: what the disk of a follower has of the log.
//!
//! The blocks of a follower's log say what was durable at the database that made them. How much of the log the
//! follower's own disk has had is said by this file, which also makes the directory one of a follower. Log pages that
//! are not full are never written there, so that no page is written twice; their beginning is kept here.
//!
//! ```text
//!  log-follower: two records of 8,192 bytes, which are written in turn; the one with the higher number counts
//!  0      8         24      32         40        48                  4096         8192
//!  +------+---------+-------+----------+---------+-------------------+------------+
//!  |magic |database |number |position  |checksum | zeros             | the page that the position lies in, up to it
//!  +------+---------+-------+----------+---------+-------------------+------------+
//!                            the log is on this disk up to it   xxh3_64 of all else
//! ```
//!
//! Invariant: **a position is recorded once every page before it is synced.** Reading accepts no log that ends before it.
//! The log behind it may be on the disk, too: a record is written now and then, and by each sync that is asked for. There
//! damage cannot be told from a crash's, and ends the log.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3Default;

use super::PAGE;
use super::block::u64_at;
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use crate::{Error, Result};

pub(super) const FOLLOWER_RECORD: &str = "log-follower";
pub(super) const UNFINISHED: &str = "log-follower-unfinished";
const MAGIC: u64 = u64::from_le_bytes(*b"RIALTOFO");
const RECORD: usize = 2 * PAGE;
const CHECKSUM_AT: usize = 40;

/// What a follower's disk has of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FollowerRecord {
    /// Counts the records.
    number: u64,
    position: u64,
    /// The bytes from the beginning of the page on that the position lies in.
    page: Vec<u8>,
}

impl FollowerRecord {
    /// Up to here the log is on this disk.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Up to here it is in whole pages of the log files.
    pub(super) fn whole_pages(&self) -> u64 {
        self.position - self.page.len() as u64
    }

    /// Puts the page that the position lies in where it belongs in a piece of the stream, which begins at `start`.
    pub(super) fn lay_over(&self, piece: &mut [u8], start: u64) {
        let end = start + piece.len() as u64;
        let (from, to) = (self.whole_pages().max(start), self.position.min(end));
        if from < to {
            let page = &self.page[(from - self.whole_pages()) as usize..(to - self.whole_pages()) as usize];
            piece[(from - start) as usize..(to - start) as usize].copy_from_slice(page);
        }
    }

    fn encode(&self, database: u128) -> AlignedBuffer {
        let mut bytes = AlignedBuffer::zeroed(RECORD);
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..24].copy_from_slice(&database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.to_le_bytes());
        bytes[PAGE..PAGE + self.page.len()].copy_from_slice(&self.page);
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The record in these bytes, and the database that it is of; `None` if it is not whole.
    fn decode(bytes: &[u8]) -> Option<(FollowerRecord, u128)> {
        if u64_at(bytes, 0) != MAGIC || u64_at(bytes, CHECKSUM_AT) != checksum(bytes) {
            return None;
        }
        let position = u64_at(bytes, 32);
        let page = bytes[PAGE..PAGE + position as usize % PAGE].to_vec();
        let database = u128::from(u64_at(bytes, 16)) << 64 | u128::from(u64_at(bytes, 8));
        Some((FollowerRecord { number: u64_at(bytes, 24), position, page }, database))
    }

    /// The newest record in a directory; `None` if it is not a follower's.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no record is whole, or it is another database's.
    pub(super) fn read(disk: &dyn Disk, database: u128) -> Result<Option<FollowerRecord>> {
        let file = match disk.open(FOLLOWER_RECORD, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => return Ok(None),
            opened => opened?,
        };
        let corrupt = |what| Error::Corrupt { file: FOLLOWER_RECORD.to_owned(), offset: 0, what };
        let length = file.length()?.min(2 * RECORD as u64) as usize;
        let mut bytes = vec![0; 2 * RECORD];
        file.read_at(&mut bytes[..length], 0)?;
        let found = bytes.chunks(RECORD).filter_map(FollowerRecord::decode);
        let Some((record, of)) = found.max_by_key(|(record, _)| record.number) else {
            let what = "neither of its two records is whole: make the copy of the database anew";
            return Err(corrupt(what.to_owned()));
        };
        if of != database {
            return Err(corrupt(format!("belongs to database {of:032x}, expected {database:032x}")));
        }
        Ok(Some(record))
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&bytes[..CHECKSUM_AT]);
    hash.update(&bytes[CHECKSUM_AT + 8..]);
    hash.digest()
}

/// The file of the records, open to be written.
#[derive(Debug)]
pub(super) struct FollowerRecords {
    disk: Arc<dyn Disk>,
    database: u128,
    file: Arc<dyn File>,
    /// The number and the position of the last one.
    number: u64,
    position: u64,
}

impl FollowerRecords {
    /// Opens the file of records, or makes it. The log is on the disk up to `position`, and the page that this lies in
    /// begins with these bytes.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        database: u128,
        (position, page): (u64, Vec<u8>),
    ) -> Result<FollowerRecords> {
        let last = FollowerRecord::read(&**disk, database)?;
        let name = if last.is_some() { FOLLOWER_RECORD } else { UNFINISHED };
        let file = disk.open(name, Open::Create, Caching::Direct)?;
        file.allocate(2 * RECORD as u64)?;
        let number = last.as_ref().map_or(0, |record| record.number);
        let mut records = FollowerRecords { disk: disk.clone(), database, file, number, position };
        if let Some(last) = &last {
            // After a failed sync only a cache may have it, and the next one replaces the other record.
            records.put(last)?;
        }
        records.write(position, page)?;
        if last.is_none() {
            // A directory is a follower's once its first record is whole.
            disk.rename(UNFINISHED, FOLLOWER_RECORD)?;
            disk.sync_directory()?;
            records.file = disk.open(FOLLOWER_RECORD, Open::Existing, Caching::Direct)?;
        }
        Ok(records)
    }

    /// Up to here the log is on the disk, as the last record says.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Records that the log is on the disk up to a position, and the beginning of the page that this lies in.
    pub(super) fn write(&mut self, position: u64, page: Vec<u8>) -> DiskResult<()> {
        debug_assert_eq!(position % PAGE as u64, page.len() as u64);
        let record = FollowerRecord { number: self.number + 1, position, page };
        self.put(&record)?;
        (self.number, self.position) = (record.number, position);
        Ok(())
    }

    fn put(&self, record: &FollowerRecord) -> DiskResult<()> {
        let at = record.number % 2 * RECORD as u64;
        self.file.write_at(&record.encode(self.database), at)?;
        self.file.sync()
    }

    /// The directory is not a follower's any more.
    pub(super) fn remove(self) -> DiskResult<()> {
        drop(self.file);
        self.disk.remove(FOLLOWER_RECORD)?;
        self.disk.sync_directory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;

    #[test]
    fn the_newest_whole_record_counts() {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        assert_eq!(FollowerRecord::read(&*disk, 7).unwrap(), None);
        let mut records = FollowerRecords::open(&disk, 7, (4096, Vec::new())).unwrap();
        records.write(3 * 4096 + 8, vec![5; 8]).unwrap();
        let read = || FollowerRecord::read(&*disk, 7).map(|record| record.unwrap());
        assert_eq!((read().unwrap().position(), read().unwrap().whole_pages()), (3 * 4096 + 8, 3 * 4096));
        assert!(FollowerRecord::read(&*disk, 8).is_err(), "another database's");
        // Any byte of the newest that is damaged leaves the one before it.
        let file = disk.open(FOLLOWER_RECORD, Open::Existing, Caching::Buffered).unwrap();
        for at in [0, 9, 24, 33, 41, 300, PAGE, PAGE + 7, RECORD - 1] {
            let mut byte = [0];
            file.read_at(&mut byte, at as u64).unwrap();
            file.write_at(&[byte[0] ^ 1], at as u64).unwrap();
            assert_eq!(read().unwrap().position(), 4096, "byte {at}");
            file.write_at(&byte, at as u64).unwrap();
            assert_eq!(read().unwrap().position(), 3 * 4096 + 8);
        }
        file.write_at(&[0; 2 * RECORD], 0).unwrap();
        assert!(matches!(read(), Err(Error::Corrupt { .. })));
        // Numbers go on from what was there.
        let records = FollowerRecords::open(&disk, 7, (8192, Vec::new()));
        assert!(records.is_err(), "a damaged file is not written over");
    }

    #[test]
    fn lays_its_page_over_a_piece() {
        let record = FollowerRecord { number: 1, position: 2 * 4096 + 16, page: vec![9; 16] };
        for (start, length) in [(0, 3 * 4096), (4096, 8192), (8192, 4096), (8192, 8), (8200, 100)] {
            let mut piece = vec![1; length];
            record.lay_over(&mut piece, start);
            for (at, byte) in (start..).zip(piece) {
                assert_eq!(byte, if (8192..8208).contains(&at) { 9 } else { 1 }, "{at} from {start}");
            }
        }
        let mut before = vec![1; 4096];
        record.lay_over(&mut before, 4096);
        assert!(before.iter().all(|byte| *byte == 1));
    }
}
