//! Creates a log, and continues a recovered one.

use std::sync::Arc;

use super::block::{self, BlockHeader, BlockKind, HEADER};
use super::files::{self, FileTable};
use super::follow::Following;
use super::gather::{Gatherer, RING_MIN};
use super::left_over;
use super::log_file::{FoundFile, LogFile, LogFileHeader};
use super::marks::Marks;
use super::reader::LogEnd;
use super::ring::{self, RING_NAME, RingView};
use super::turn::IN_FLIGHT_MAX;
use super::write_path::WritePath;
use super::writer::{Counters, GroupWriter};
use super::{Log, LogOptions, LogPoint, LogPosition, LogThreads, PAGE};
use crate::io::{AlignedBuffer, Caching, Clock, Disk, Open};
use crate::{Error, Lsn, Result};

/// The parts of a log.
pub(super) struct Parts {
    pub(super) gatherer: Gatherer,
    pub(super) group_writer: GroupWriter,
    pub(super) ring: RingView,
    pub(super) files: Arc<FileTable>,
    pub(super) counters: Arc<Counters>,
    pub(super) marks: Marks,
    pub(super) write_path: WritePath,
    pub(super) following: Following,
    /// A block end up to which the log is on the disk.
    pub(super) on_disk: LogPoint,
    /// The last place taken.
    pub(super) place: Lsn,
}

impl LogOptions {
    pub(super) fn check(&self) -> Result<()> {
        let page = PAGE as u64;
        let bad = |reason: String| Err(Error::BadDefinition { name: "log options".to_owned(), reason });
        for (what, bytes) in [("first_file_bytes", self.first_file_bytes), ("file_bytes", self.file_bytes)] {
            if bytes < 4 * page || !bytes.is_multiple_of(page) {
                return bad(format!("{what} is {bytes}; expected a multiple of {page} from {} on", 4 * page));
            }
        }
        if self.ring_bytes < RING_MIN || !self.ring_bytes.is_multiple_of(PAGE) {
            return bad(format!(
                "ring_bytes is {}; expected a multiple of {page} from {RING_MIN} on",
                self.ring_bytes
            ));
        }
        if !(1..=LogOptions::PACKET_SLOTS_MAX).contains(&self.packet_slots) {
            let most = LogOptions::PACKET_SLOTS_MAX;
            return bad(format!("packet_slots is {}; expected 1 to {most}", self.packet_slots));
        }
        if self.bytes_max < self.first_file_bytes + self.file_bytes {
            return bad(format!(
                "bytes_max is {}; expected at least first_file_bytes and file_bytes together, {}",
                self.bytes_max,
                self.first_file_bytes + self.file_bytes
            ));
        }
        if self.threads == LogThreads::Background && matches!(self.clock, Clock::Virtual(_)) {
            return bad(
                "clock is a virtual one with threads Background; expected threads Driven or None".to_owned()
            );
        }
        if self.writes_in_flight.is_some_and(|writes| !(1..=IN_FLIGHT_MAX).contains(&writes)) {
            let found = self.writes_in_flight.unwrap_or_default();
            return bad(format!(
                "writes_in_flight is {found}; expected 1 to {IN_FLIGHT_MAX}, or none to measure it"
            ));
        }
        self.group_commit.problem().map_or(Ok(()), bad)
    }
}

impl Log {
    /// Creates the log of a new database.
    ///
    /// # Errors
    /// As [`Log::create_at`].
    pub fn create(disk: &Arc<dyn Disk>, database: u128, options: &LogOptions) -> Result<Arc<Log>> {
        Log::create_at(disk, database, options, Lsn::ZERO)
    }

    /// Creates a log whose next place is the one after `place`, for a database that begins with the contents of others
    /// up to that place.
    ///
    /// What a creation that was cut short left behind is replaced.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the directory holds anything else under the name of a log's file: then nothing in it
    /// is changed.
    pub fn create_at(
        disk: &Arc<dyn Disk>,
        database: u128,
        options: &LogOptions,
        place: Lsn,
    ) -> Result<Arc<Log>> {
        options.check()?;
        left_over::remove(&**disk)?;
        let table =
            FileTable::new(disk.clone(), database, options, WritePath::default().caching, Vec::new())?;
        table.prepare()?;
        let file = disk.open(&files::name(1), Open::ReadOnly, Caching::Buffered)?;
        let first = FoundFile { header: LogFileHeader::read(&*file, database)?, first: None };
        Log::open(disk, database, options, LogEnd::empty(vec![first], place))
    }

    /// Whether [`Log::create_at`] makes a file of this name.
    pub(crate) fn makes(name: &str) -> bool {
        [files::UNFINISHED, RING_NAME].contains(&name) || files::sequence(name) == Some(1)
    }

    /// Continues after a recovered log (see [`recover`](super::recover)).
    ///
    /// First it rewrites the tail past the last position that was proven to be durable, and after it a pad that counts
    /// this opening, and syncs both (I4): what was read from a cache may never have reached the disk.
    pub fn open(disk: &Arc<dyn Disk>, database: u128, options: &LogOptions, end: LogEnd) -> Result<Arc<Log>> {
        options.check()?;
        assert!(!end.is_followed, "a follower's log takes packets once it has ended to follow");
        let LogEnd { files, position, lsn, checksum, incarnation, tail_start, tail, marks, life, .. } = end;
        let last = files.last().expect("a log has a file");
        let write_path =
            WritePath::choose(&**disk, (options.caching, options.writes_in_flight), last, position);
        let caching = write_path.caching;
        let open = |file| LogFile::open_found(&**disk, file, caching);
        let files = files.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let table = Arc::new(
            FileTable::new(disk.clone(), database, options, caching, files)?.on_clock(&options.clock),
        );
        // A file that an earlier process named just before it was killed is there, but its name may not be durable.
        disk.sync_directory()?;
        // The pad below may fill the last file. If it does, the log has the next file (`reader.rs`).
        let page_end = (position + 1).next_multiple_of(PAGE as u64);
        while table.at(page_end).is_none() {
            table.prepare_to_open()?;
        }
        let file = |position| -> Arc<LogFile> {
            table.at(position).expect("log files follow each other without gaps")
        };
        // Blocks of a lost chain may begin a later file; the search for a redo start must not meet them.
        for later in table.behind(position + 1) {
            later.file.write_at(&AlignedBuffer::zeroed(PAGE), PAGE as u64)?;
            later.file.sync()?;
            later.set_unknown();
        }
        let incarnation = incarnation.checked_add(1).expect("a log is opened fewer than 2^32 times");
        let last = file(position);
        let mut rewritten = vec![0; (page_end - tail_start) as usize];
        rewritten[..tail.len()].copy_from_slice(&tail);
        let header = BlockHeader {
            kind: BlockKind::Pad,
            packet_kind: 0,
            inside: false,
            packets: 0,
            position,
            first_lsn: lsn + 1,
            durable: tail_start,
            previous: checksum,
            incarnation,
            time_ms: 0,
        };
        debug_assert!(page_end - position >= HEADER as u64);
        let checksum = block::seal(&mut rewritten[(position - tail_start) as usize..], &header, last.seed);
        if position == last.start {
            last.set_first(lsn + 1);
        }
        table.write_again(tail_start, &rewritten)?;
        let (filler, drainer, view) =
            ring::start(&**disk, database, options.ring_bytes, (page_end, &[]), life)?;
        let counters = Arc::new(Counters::default());
        let gatherer = Gatherer::new(
            filler,
            table.clone(),
            last.clone(),
            checksum,
            incarnation,
            lsn,
            options.clock.clone(),
        );
        let group_writer = GroupWriter::new(drainer, table.clone(), last, write_path, lsn, counters.clone());
        let (ring, following) = (view, Following::default());
        let on_disk = LogPoint { lsn: Lsn(lsn), position: LogPosition(page_end), checksum };
        let parts = Parts {
            gatherer,
            group_writer,
            ring,
            files: table,
            counters,
            marks,
            write_path,
            following,
            on_disk,
            place: Lsn(lsn),
        };
        Log::start(parts, options)
    }
}
