//! A log that follows another one: it takes that log's blocks as they are ([`Log::append`]), into files of the same
//! layout, so that both logs have the same bytes at the same positions.
//!
//! - **Opening it appends nothing.** The log of a database that takes transactions marks each of its openings with a pad
//!   (`open.rs`); here the pads of the log that is followed are the only ones.
//! - **Whole pages go to the log files**, wherever blocks end. A page that is not full is kept in the
//!   [record](super::follower_record) of what this disk has, so that no page of a log file is written twice.
//! - **What is durable is said by that record**, since the blocks say only what was durable where they were made.
//! - **It takes no packets** ([`Error::Following`]): places are taken one by one as its packets are redone
//!   ([`Log::take_redone_place`]).
//! - [`Log::end_following`] makes it a log that takes packets. The pad that it writes first says by its incarnation that
//!   the parts of a packet before it, whose last part never came, are void.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::block::{self, BLOCK_MAX, BlockHeader, BlockKind, HEADER};
use super::files::FileTable;
use super::follower_record::FollowerRecords;
use super::gather::Gatherer;
use super::log::core::LogCore;
use super::log_file::LogFile;
use super::open::Parts;
use super::reader::{LogEnd, RedoneUpTo, for_each_block_behind};
use super::unpacker::{Malformed, Unpacker};
use super::write_path::WritePath;
use super::writer::{Counters, GroupWriter};
use super::{AppendedPackets, Durability, Log, LogBlocks, LogOptions, LogPoint, PAGE, Packet, ring};
use crate::io::{AlignedBuffer, Disk};
use crate::{Error, Lsn, Result, fault_injection};

/// What this disk has is recorded after so many bytes of log.
const RECORD_EVERY: u64 = 1 << 20;
/// How errors name the blocks that are appended.
const RECEIVED: &str = "the blocks of the log that is followed";

/// The part of a log's state that only a log that follows another one has.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Held while blocks are appended.
    appending: Mutex<()>,
    /// Held while what was appended is written. `None` if the log follows no other one.
    records: Mutex<Option<FollowerRecords>>,
    is_on: AtomicBool,
    /// What it has of the packet that the last block which was appended ends in. `None` until it is read.
    unpacker: Mutex<Option<Unpacker>>,
    /// How far the opening has redone it. `None` if the log follows no other one.
    redone: Option<RedoneUpTo>,
}

/// Nothing is appended as long as this lives.
pub(crate) struct HeldAppends<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, ()>);

impl Following {
    pub(super) fn of(records: FollowerRecords, redone: RedoneUpTo) -> Following {
        Following {
            records: Mutex::new(Some(records)),
            is_on: AtomicBool::new(true),
            redone: Some(redone),
            ..Following::default()
        }
    }

    /// Whether the log follows another one.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }
}

/// The blocks that were appended.
#[derive(Debug)]
pub(super) struct Appended {
    /// Where those end that are not in whole pages on the disk, or on their way there, oldest first; and whether a
    /// packet may begin there.
    ends: VecDeque<(LogPoint, bool)>,
    /// Where the last block before them ends.
    before: LogPoint,
    /// Where the last block before them ends after which a packet may begin.
    mark: LogPoint,
    /// The end of the newest block that ends with a whole packet.
    point: LogPoint,
    /// The end of the newest block after which a packet may begin.
    between: LogPoint,
}

impl Appended {
    /// Nothing was appended to a log that ends at `point`; its last block that ends between packets ends at `mark`.
    fn after(point: LogPoint, mark: LogPoint) -> Appended {
        Appended { ends: VecDeque::new(), before: point, mark, point, between: mark }
    }

    fn push(&mut self, header: &BlockHeader, end: LogPoint) {
        let is_between_packets = match header.kind {
            BlockKind::Part => header.packets == 1,
            BlockKind::Group | BlockKind::Pad => !header.inside,
        };
        self.ends.push_back((end, is_between_packets));
        if is_between_packets {
            self.between = end;
        }
        if header.packets > 0 {
            self.point = end;
        }
    }

    /// The pages before this position go to the disk.
    fn take_to(&mut self, position: u64) {
        while let Some((end, is_between_packets)) =
            self.ends.pop_front_if(|(end, _)| end.position.0 <= position)
        {
            self.before = end;
            if is_between_packets {
                self.mark = end;
            }
        }
    }

    /// The end of the newest block after which a packet may begin.
    pub(super) fn between(&self) -> LogPoint {
        self.between
    }

    /// The end of the newest block that ends with a whole packet. It is durable when its place is.
    pub(super) fn point(&self) -> LogPoint {
        self.point
    }
}

/// The pages that go to the disk next.
pub(super) struct AppendedPages {
    /// They end here.
    pub(super) to: u64,
    /// Where the last block before that ends.
    pub(super) end: LogPoint,
    /// Where the last block before that ends after which a packet may begin.
    pub(super) mark: LogPoint,
}

impl Gatherer {
    /// For a log that follows another one: takes the whole pages that were appended. `None` for every other log.
    pub(super) fn take_appended_pages(&mut self) -> Option<AppendedPages> {
        let position = self.position();
        let appended = self.appended.as_mut()?;
        let to = position - position % PAGE as u64;
        appended.take_to(to);
        Some(AppendedPages { to, end: appended.before, mark: appended.mark })
    }

    /// The next block, which follows the last one and lies in this file. There is room for it in the ring.
    fn append(&mut self, file: &Arc<LogFile>, block: &[u8], header: &BlockHeader, end: LogPoint) {
        if header.position == file.start {
            self.file = file.clone();
            file.set_begun(end.position.0);
            file.set_first(header.first_lsn + u64::from(header.inside));
        }
        self.ring.put(block);
        (self.checksum, self.incarnation, self.lsn) = (end.checksum, header.incarnation, end.lsn.0);
        if let Some(appended) = &mut self.appended {
            appended.push(header, end);
        }
    }

    /// From here on it gathers packets, after a pad that counts an opening and fills the page.
    fn end_following(&mut self, files: &FileTable) {
        let position = self.position();
        self.appended = None;
        self.incarnation = self.incarnation.checked_add(1).expect("a log is opened fewer than 2^32 times");
        if position == self.file.end() {
            self.file = files.at(position).expect("it was prepared");
            self.file.set_first(self.lsn + 1);
        }
        self.pad(PAGE - position as usize % PAGE);
    }
}

/// Erases what the file that the log ends in has of blocks behind the end. They were received before a crash, which has
/// lost some before them, and say that those were durable: they were, at the database that made them. Once this log has
/// blocks of its own, they would be taken for the proof that some of these are missing.
fn erase_behind(files: &FileTable, position: u64) -> Result<()> {
    let file = files.ending_at(position).expect("the last file holds the end of the log");
    let mut last = None;
    for_each_block_behind(&*files.open_to_read(&file)?, &file, position, |block| {
        last = Some(block.position);
        Ok(())
    })?;
    // The page that the log ends in is written as a whole.
    let first_page = position.next_multiple_of(PAGE as u64);
    let pages = last.map_or(0, |last| (last + 1).next_multiple_of(PAGE as u64).saturating_sub(first_page));
    if pages > 0 {
        file.file.write_at(&AlignedBuffer::zeroed(pages as usize), file.offset(first_page))?;
        file.file.sync()?;
    }
    Ok(())
}

impl Log {
    /// Opens a recovered log so that it follows another one from its end on.
    ///
    /// What was read past the last position that was proven to be durable is written again (I4).
    pub(crate) fn open_to_follow(
        disk: &Arc<dyn Disk>,
        database: u128,
        options: &LogOptions,
        end: LogEnd,
    ) -> Result<Arc<Log>> {
        options.check()?;
        let LogEnd {
            files,
            position,
            lsn,
            checksum,
            incarnation,
            tail_start,
            tail,
            marks,
            between_packets,
            life,
            redone,
            ..
        } = end;
        let last = files.last().expect("a log has a file");
        let write_path =
            WritePath::choose(&**disk, (options.caching, options.writes_in_flight), last, position);
        let open = |file| LogFile::open_found(&**disk, file, write_path.caching);
        let files = files.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let table = FileTable::new(disk.clone(), database, options, write_path.caching, files)?;
        let table = Arc::new(table.on_clock(&options.clock));
        // A file that an earlier process named just before it was killed is there, but its name may not be durable.
        disk.sync_directory()?;
        let page_start = position - position % PAGE as u64;
        let (whole, page) = tail.split_at((page_start - tail_start) as usize);
        table.write_again(tail_start, whole)?;
        let records = FollowerRecords::open(disk, database, (position, page.to_vec()))?;
        // The next file is made with its first block, in the layout that it has in the other log. Only the log of a
        // follower may end where no next file is.
        table.remove_from(position)?;
        erase_behind(&table, position)?;
        let (filler, drainer, ring) =
            ring::start(&**disk, database, options.ring_bytes, (page_start, page), life)?;
        let counters = Arc::new(Counters::default());
        let file = table.ending_at(position).expect("the last file holds the end of the log");
        // Its first block may be one that is not on the disk as a whole.
        file.set_begun(position.max(file.start + 1));
        let at_page = table.ending_at(page_start).expect("a page lies in one file");
        let mut gatherer =
            Gatherer::new(filler, table.clone(), file, checksum, incarnation, lsn, options.clock.clone());
        gatherer.appended = Some(Appended::after(gatherer.end(), between_packets));
        let group_writer =
            GroupWriter::new(drainer, table.clone(), at_page, write_path, lsn, counters.clone());
        let following = Following::of(records, redone);
        let on_disk = gatherer.end();
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
            place: Lsn(redone.place),
        };
        Log::start(parts, options)
    }

    /// Where the last block ends after which a packet may begin, and the last block's incarnation.
    pub(super) fn between_packets(&self) -> (LogPoint, u32) {
        let gatherer = self.core.gatherer.lock();
        let appended = gatherer.appended.as_ref().expect("the log follows another one");
        (appended.between(), gatherer.incarnation)
    }

    /// How far its opening has redone it.
    pub(super) fn redone_at_opening(&self) -> RedoneUpTo {
        self.core.following.redone.expect("the log follows another one")
    }

    /// Whether it follows another log.
    pub(crate) fn is_following(&self) -> bool {
        self.core.following.is_on()
    }

    /// Takes blocks of the log that it follows, from where it ends on. When this returns, they are in the ring, which
    /// outlives the process (level 1). Before that `inspect` sees each packet that ends in them, and may refuse it.
    ///
    /// It may write the disk: where the ring is full, and for the first block of a log file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for blocks that are damaged, or begin elsewhere; [`Error::LogDiverged`] if they do not follow
    /// what this log has, or if this log does not follow another one any more; [`Error::LogFull`] and
    /// [`Error::DiskFull`] if there is no room for another log file; the error of `inspect`. After these none of the blocks
    /// is appended. [`Error::Stopped`] if a write fails.
    pub(crate) fn append(
        self: &Arc<Self>,
        blocks: &LogBlocks<'_>,
        inspect: &mut dyn FnMut(&Packet<'_>) -> Result<()>,
    ) -> Result<()> {
        let core = &*self.core;
        let _held = self.hold_appends()?;
        let end = self.end();
        let received = |at: u64, what: String| Error::Corrupt { file: RECEIVED.to_owned(), offset: at, what };
        if blocks.bytes.is_empty() {
            return Ok(());
        }
        if blocks.position != end.position {
            let what = format!("expected those from position {} on", end.position.0);
            return Err(received(blocks.position.0, what));
        }
        let (start, seed) = (self.check_layout(blocks)?, core.files.seed_of(blocks.file.sequence));
        let file_end = start + blocks.file.bytes;
        let (mut point, mut at, mut incarnation) = (end, 0, core.gatherer.lock().incarnation);
        let mut verified = Vec::new();
        while at < blocks.bytes.len() {
            let (rest, position) = (&blocks.bytes[at..], point.position.0);
            let room = (file_end - position).min(rest.len() as u64).min(BLOCK_MAX as u64);
            let found = block::claimed_length(rest, position, room);
            let found = found.and_then(|length| Some((length, block::verify(&rest[..length], seed)?)));
            let Some((length, (header, _))) = found else {
                return Err(received(position, "no block of the log: a byte of it has changed".to_owned()));
            };
            let follows = block::verify_next(&rest[..length], &point, seed)
                .filter(|(header, _)| header.incarnation >= incarnation);
            let Some((_, next)) = follows else {
                return Err(Error::LogDiverged { position, checksum: point.checksum });
            };
            let left = next.position.0.next_multiple_of(PAGE as u64) - next.position.0;
            let is_sound = header.durable <= position
                && header.durable.is_multiple_of(PAGE as u64)
                && header.incarnation < u32::MAX
                && (left == 0 || left >= HEADER as u64);
            if !is_sound {
                return Err(received(position, "a block's header makes no sense".to_owned()));
            }
            verified.push((&rest[..length], header, next));
            (point, at, incarnation) = (next, at + length, header.incarnation);
        }
        let unpacker = self.inspect(&verified, inspect)?;
        let file = self.file_to_append_to(blocks)?;
        for (block, header, end) in verified {
            let mut gatherer = core.gatherer.lock();
            while gatherer.ring.free() < block.len() as u64 {
                drop(gatherer);
                self.write_appended(false)?;
                gatherer = core.gatherer.lock();
            }
            gatherer.append(&file, block, &header, end);
            core.memory.store(end.lsn.0, Ordering::SeqCst);
        }
        *core.following.unpacker.lock() = Some(unpacker);
        core.hand_over_listeners(Durability::Memory);
        Ok(())
    }

    /// Whether so many bytes of blocks, which follow the last ones, go into the ring at once: no log file begins with them, and
    /// nothing is read or written for them.
    pub(crate) fn appends_at_once(&self, bytes: u64) -> bool {
        let core = &*self.core;
        let (position, free) = {
            let gatherer = core.gatherer.lock();
            (gatherer.position(), gatherer.ring.free())
        };
        let fits = |file: Arc<LogFile>| file.start < position && position + bytes <= file.end();
        bytes <= free && core.files.at(position).is_some_and(fits) && core.following.unpacker.lock().is_some()
    }

    /// Has the packets inspected that end in these blocks, which follow what was appended.
    fn inspect(
        self: &Arc<Self>,
        blocks: &[(&[u8], BlockHeader, LogPoint)],
        inspect: &mut dyn FnMut(&Packet<'_>) -> Result<()>,
    ) -> Result<Unpacker> {
        let malformed = |malformed: Malformed| {
            let what = format!("the block's checksum is right, but {} makes no sense", malformed.what);
            Error::Corrupt { file: RECEIVED.to_owned(), offset: malformed.header.position, what }
        };
        let mut unpacker = match self.core.following.unpacker.lock().take() {
            Some(unpacker) => unpacker,
            None => AppendedPackets::of(self)?.unpack_all()?,
        };
        for (block, header, _) in blocks {
            let is_amid = !unpacker.is_between_packets() && header.incarnation == unpacker.incarnation();
            if header.kind == BlockKind::Pad && is_amid && !header.inside {
                return Err(malformed(Malformed { header: *header, what: "a pad inside a packet" }));
            }
            unpacker.take(*header, block, false).map_err(malformed)?;
            while let Some(unpacked) = unpacker.next().map_err(malformed)? {
                inspect(&unpacker.packet(unpacked).map_err(malformed)?)?;
            }
        }
        Ok(unpacker)
    }

    /// Checks the layout of the file that blocks lie in which follow the end of this log. Returns where it begins.
    fn check_layout(&self, blocks: &LogBlocks<'_>) -> Result<u64> {
        let (files, position, layout) = (&self.core.files, blocks.position.0, blocks.file);
        let expected = match files.at(position) {
            // Nothing is in it yet.
            Some(file) if file.start == position => (file.sequence, file.start, None),
            Some(file) => (file.sequence, file.start, Some(file.capacity)),
            None => {
                let (sequence, start) = files.next();
                (sequence, start, None)
            }
        };
        let (sequence, start, bytes) = expected;
        let pages = layout.bytes / PAGE as u64;
        let fits = layout.bytes.is_multiple_of(PAGE as u64) && (4..u64::MAX >> 20).contains(&pages);
        if (layout.sequence, layout.start.0) != (sequence, start)
            || bytes.is_some_and(|bytes| bytes != layout.bytes)
            || !fits
        {
            let what = format!(
                "expected blocks of log file {sequence}, which begins at position {start}, found those of {layout:?}"
            );
            return Err(Error::Corrupt { file: RECEIVED.to_owned(), offset: position, what });
        }
        if layout.bytes > files.bytes_max() {
            let what = format!(
                "log_bytes_max {} in a database that follows another one whose log files have {} bytes: give it as much as the \
                 other one has",
                files.bytes_max(),
                layout.bytes
            );
            return Err(Error::Unsupported { what });
        }
        Ok(start)
    }

    /// The file that blocks lie in whose layout was checked.
    fn file_to_append_to(&self, blocks: &LogBlocks<'_>) -> Result<Arc<LogFile>> {
        let (files, position) = (&self.core.files, blocks.position.0);
        if files.at(position).is_some_and(|file| file.layout() != blocks.file) {
            // It was made for blocks that were refused, of another continuation of the log.
            files.remove_from(position)?;
        }
        if files.at(position).is_none() {
            files.prepare_as(blocks.file.bytes)?;
        }
        Ok(files.at(position).expect("it was prepared"))
    }

    /// [`Error::LogDiverged`] unless it follows another log.
    pub(crate) fn check_following(&self) -> Result<()> {
        self.check_not_ended()?;
        if self.core.following.is_on() {
            return Ok(());
        }
        let LogPoint { position, checksum, .. } = self.end();
        Err(Error::LogDiverged { position: position.0, checksum })
    }

    /// Asks for a checkpoint that frees log files, or makes it where there are no threads. The reason if it will free none.
    pub(crate) fn ask_for_room(&self) -> Option<String> {
        self.core.when_full.get().and_then(|when_full| when_full(!self.core.threaded))
    }

    /// Whether a packet that was appended is not on the disk.
    pub(crate) fn has_appended_more(&self) -> bool {
        self.core.writer.durable() < self.core.memory.load(Ordering::SeqCst)
    }

    /// Writes what was appended: whole pages, and with `all` also the page that is not full.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn write_appended(&self, all: bool) -> Result<()> {
        self.core.write_appended(all)
    }

    /// Takes the place of a packet that is redone: the one after the last place taken.
    pub(crate) fn take_redone_place(&self) -> Lsn {
        let last = self.core.pool.place();
        self.core
            .pool
            .place_alone(last)
            .expect("nothing else takes a place while the log follows another one")
    }

    /// Holds up everything that would be appended.
    pub(crate) fn hold_appends(&self) -> Result<HeldAppends<'_>> {
        let held = self.core.clock().lock(&self.core.following.appending);
        if !fault_injection::is_on("append-after-leading") {
            self.check_following()?;
        }
        Ok(HeldAppends(held))
    }

    /// From here on the log takes packets. All of its packets are redone.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if there is no room for the next log file: then it still follows. An
    /// error of a write stops the log ([`Error::Stopped`]).
    pub(crate) fn end_following(&self, _held: &HeldAppends<'_>) -> Result<()> {
        let core = &*self.core;
        core.write_appended(true)?;
        let end = self.end();
        assert_eq!(core.pool.place(), end.lsn, "all packets are redone");
        // The pad may fill the last file. If it does, the log has the next file (`reader.rs`).
        let page_end = (end.position.0 + 1).next_multiple_of(PAGE as u64);
        while core.files.at(page_end).is_none() {
            core.files.prepare_to_open()?;
        }
        core.gatherer.lock().end_following(&core.files);
        core.sync_packets()?;
        let mut records = core.clock().lock(&core.following.records);
        if let Some(records) = records.take()
            && let Err(error) = records.remove()
        {
            return Err(core.stop_with(error));
        }
        core.following.is_on.store(false, Ordering::SeqCst);
        core.take_packets();
        Ok(())
    }
}

impl LogCore {
    /// See [`Log::write_appended`].
    pub(super) fn write_appended(&self, all: bool) -> Result<()> {
        let mut records = self.clock().lock(&self.following.records);
        let Some(records) = records.as_mut() else { return Ok(()) };
        self.write_group(self.writer.take(|| self.memory.load(Ordering::SeqCst)));
        if self.writer.stopped() {
            return Err(self.stop_error());
        }
        if all {
            self.write_partial_page(records)
        } else if self.ring.released() >= records.position() + RECORD_EVERY {
            records.write(self.ring.released(), Vec::new()).map_err(|error| self.stop_with(error))
        } else {
            Ok(())
        }
    }

    /// Records the page that is not full, and with it that all before it is on the disk.
    fn write_partial_page(&self, records: &mut FollowerRecords) -> Result<()> {
        // In this order: what is released is filled.
        let from = self.ring.released();
        let end = self.gatherer.lock().end();
        let is_recorded = end.position.0 == records.position() && end.lsn.0 <= self.writer.durable();
        // Blocks that came since have filled the page: they are written with the next pages.
        if is_recorded || end.position.0 >= from + PAGE as u64 {
            return Ok(());
        }
        let mut page = Vec::new();
        if !self.ring.copy(from, end.position.0, &mut page) {
            return Ok(());
        }
        records.write(end.position.0, page).map_err(|error| self.stop_with(error))?;
        self.reach_on_disk(end);
        self.writer.raise_durable(end.lsn.0);
        self.hand_over_listeners(Durability::Disk);
        Ok(())
    }

    /// Writes everything that was appended by now.
    pub(super) fn sync_all_appended(&self) -> Result<()> {
        let end = self.gatherer.lock().end();
        while self.on_disk_point().position < end.position && self.following.is_on() {
            self.write_appended(true)?;
        }
        Ok(())
    }

    /// Writes everything up to this place, of a log that follows another one.
    pub(super) fn sync_appended(&self, lsn: u64) -> Result<()> {
        while self.writer.durable() < lsn && self.following.is_on() {
            self.write_appended(true)?;
        }
        Ok(())
    }
}
