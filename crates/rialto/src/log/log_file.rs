//! [`LogFile`]: one file of the log, and what its header says.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::block::{self, u32_at, u64_at};
use super::cursor::LogFileLayout;
use super::files::{name, sequence};
use super::{LogPosition, PAGE};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use crate::{Error, Lsn, Result};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"RIALTOLG");
/// The version of the log format that this program writes.
pub(crate) const FORMAT: u32 = 3;
/// The oldest version that it reads. Its blocks do not say when they were gathered.
const FORMAT_WITHOUT_TIMES: u32 = 2;
/// "The file's first packet is not known yet."
const UNKNOWN: u64 = u64::MAX;
/// No log reaches this position.
const POSITION_MAX: u64 = 1 << 62;

/// The first page of a log file.
pub(super) fn header(database: u128, sequence: u64, start: u64, capacity: u64) -> AlignedBuffer {
    let mut page = AlignedBuffer::zeroed(PAGE);
    page[..8].copy_from_slice(&MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    page[16..32].copy_from_slice(&database.to_le_bytes());
    page[32..40].copy_from_slice(&sequence.to_le_bytes());
    page[40..48].copy_from_slice(&start.to_le_bytes());
    page[48..56].copy_from_slice(&capacity.to_le_bytes());
    let checksum = xxh3_64(&page[..56]);
    page[56..64].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// Whether a log file's first page is whole.
pub(super) fn is_header(page: &[u8]) -> bool {
    u64_at(page, 56) == xxh3_64(&page[..56]) && u64_at(page, 0) == MAGIC
}

/// What the header of a log file says.
#[derive(Debug)]
pub(crate) struct LogFileHeader {
    pub(crate) sequence: u64,
    /// The stream position of its first byte after the header.
    pub(crate) start: u64,
    /// Stream bytes that it holds.
    pub(crate) capacity: u64,
    /// The checksum seed of its blocks.
    pub(crate) seed: u64,
}

impl LogFileHeader {
    /// The position after its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.capacity
    }

    /// The stretch of the stream that it holds.
    pub(super) fn layout(&self) -> LogFileLayout {
        LogFileLayout { sequence: self.sequence, start: LogPosition(self.start), bytes: self.capacity }
    }

    /// Where a stream position lies in the file.
    pub(crate) fn offset(&self, position: u64) -> u64 {
        assert!((self.start..=self.end()).contains(&position), "{position} lies outside of the log file");
        PAGE as u64 + position - self.start
    }

    /// Reads the header of a file that is open, and checks it.
    pub(crate) fn read(file: &dyn File, database: u128) -> Result<LogFileHeader> {
        let name = file.name();
        let corrupt = |what: String| Error::Corrupt { file: name.to_owned(), offset: 0, what };
        let length = file.length()?;
        if length < 2 * PAGE as u64 {
            return Err(corrupt(format!(
                "expected a log file of at least {} bytes, found {length}",
                2 * PAGE
            )));
        }
        let mut page = AlignedBuffer::zeroed(PAGE);
        file.read_at(&mut page, 0)?;
        if !is_header(&page) {
            return Err(corrupt("the header of the log file fails its checksum".to_owned()));
        }
        if !(FORMAT_WITHOUT_TIMES..=FORMAT).contains(&u32_at(&page, 8)) {
            let what = format!(
                "\"{name}\" has log format {}, this program reads formats {FORMAT_WITHOUT_TIMES} and {FORMAT}: use a matching version",
                u32_at(&page, 8)
            );
            return Err(Error::Unsupported { what });
        }
        let found = u128::from(u64_at(&page, 24)) << 64 | u128::from(u64_at(&page, 16));
        if found != database {
            return Err(corrupt(format!("belongs to database {found:032x}, expected {database:032x}")));
        }
        let (sequence, start, capacity) = (u64_at(&page, 32), u64_at(&page, 40), u64_at(&page, 48));
        if self::sequence(name) != Some(sequence) {
            return Err(corrupt(format!("its header says that it is \"{}\"", self::name(sequence))));
        }
        let sound = capacity.is_multiple_of(PAGE as u64)
            && start.is_multiple_of(PAGE as u64)
            && start.checked_add(capacity).is_some_and(|end| end < POSITION_MAX);
        if !sound {
            return Err(corrupt(format!(
                "its header says {capacity} bytes from position {start}, which no log has"
            )));
        }
        if length != PAGE as u64 + capacity {
            return Err(corrupt(format!("expected {} bytes, found {length}", PAGE as u64 + capacity)));
        }
        Ok(LogFileHeader { sequence, start, capacity, seed: block::seed(database, sequence) })
    }
}

/// A log file that was found in a directory. It is not open, because an archive may have any number of files.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) header: LogFileHeader,
    /// The first packet that begins in it, if that is known.
    pub(crate) first: Option<Lsn>,
}

impl FoundFile {
    /// Opens it to be read only: its directory may be one that cannot be written to.
    pub(crate) fn open(&self, disk: &dyn Disk) -> DiskResult<Arc<dyn File>> {
        disk.open(&name(self.sequence), Open::ReadOnly, Caching::Buffered)
    }
}

impl Deref for FoundFile {
    type Target = LogFileHeader;

    fn deref(&self) -> &LogFileHeader {
        &self.header
    }
}

/// A log file that is open to be written.
#[derive(Debug)]
pub(crate) struct LogFile {
    header: LogFileHeader,
    pub(crate) file: Arc<dyn File>,
    first: AtomicU64,
    /// Once the log is durable up to here, the file's first block is on the disk.
    begun: AtomicU64,
}

impl Deref for LogFile {
    type Target = LogFileHeader;

    fn deref(&self) -> &LogFileHeader {
        &self.header
    }
}

impl LogFile {
    /// Whether the file before this one is needed neither for redo from `lsn` on nor for what is not durable yet.
    pub(super) fn is_behind(next: &LogFile, lsn: Lsn, durable: u64) -> bool {
        next.begun.load(Ordering::Acquire) <= durable && next.first().is_some_and(|first| first <= lsn)
    }

    /// For a log that follows another one, whose pages go to the disk wherever blocks end: the first block ends here, or
    /// before.
    pub(super) fn set_begun(&self, position: u64) {
        self.begun.store(position, Ordering::Release);
    }

    /// The first packet that begins in it, once that is known.
    pub(crate) fn first(&self) -> Option<Lsn> {
        match self.first.load(Ordering::Acquire) {
            UNKNOWN => None,
            first => Some(Lsn(first)),
        }
    }

    pub(crate) fn set_first(&self, first: u64) {
        self.first.store(first, Ordering::Release);
    }

    pub(crate) fn set_unknown(&self) {
        self.first.store(UNKNOWN, Ordering::Release);
    }

    /// Opens a log file that was found.
    pub(crate) fn open_found(disk: &dyn Disk, found: FoundFile, caching: Caching) -> Result<Arc<LogFile>> {
        let file = disk.open(&name(found.sequence), Open::Existing, caching)?;
        let first = AtomicU64::new(found.first.map_or(UNKNOWN, |first| first.0));
        let begun = AtomicU64::new(found.header.start + 1);
        Ok(Arc::new(LogFile { header: found.header, file, first, begun }))
    }

    /// Opens a log file and checks its header.
    pub(super) fn open(disk: &dyn Disk, name: &str, database: u128, caching: Caching) -> Result<LogFile> {
        let file = disk.open(name, Open::Existing, caching)?;
        let header = LogFileHeader::read(&*file, database)?;
        let begun = AtomicU64::new(header.start + 1);
        Ok(LogFile { header, file, first: AtomicU64::new(UNKNOWN), begun })
    }
}
