//! Reading the log back: from a redo start to its end (I4, I8, I9).
//!
//! The log ends at the first block that does not chain: its checksum fails, or it does not carry the checksum of the
//! block before it, or its first place is not the one after the last packet before it. A crash leaves such an end. If a
//! later block says that it was written when the missing one was already durable, the missing block was damaged: that
//! is an error, which names file and offset.
//!
//! Bytes are interpreted only after their checksum has been verified, and nothing is written here: reading a log any
//! number of times gives the same.
//!
//! A [`Witness`] is a file that was written beside the log and names a point of the log's chain at that time. A log of
//! the same database that does not go through that point belongs to another life of it. It is refused before a packet
//! after the point is returned.

pub(super) mod witness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::{self, BLOCK_MAX, BlockHeader, HEADER};
use super::log_file::{FoundFile, LogFileHeader};
use super::marks::Marks;
use super::ring::{RING_NAME, RingTail};
use super::{LogPoint, LogPosition, PAGE, PacketKind, extent, files};
use crate::io::{Caching, Disk, File, Open};
use crate::log::follower_record::FollowerRecord;
use crate::log::reader::witness::Witness;
use crate::log::unpacker::{Malformed, Unpacker};
use crate::{Error, Lsn, Result, fault_injection};

const WINDOW: usize = 1 << 20;

/// A packet that was read back.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its place.
    pub lsn: Lsn,
    /// What it is.
    pub kind: PacketKind,
    /// What its transaction wrote.
    pub bytes: &'a [u8],
    /// The number of the sweep whose backup copy holds the whole packet although its place is past the redo start: the
    /// packet of a transaction that was white throughout a black/white sweep. With
    /// [`Logging::Transaction`](crate::Logging::Transaction) every such packet carries it, of whatever kind; with other
    /// logging none does, because redo by rows does not need it.
    pub held_by: Option<u32>,
}

/// Where a log ends, and what [`Log::open`](super::Log::open) needs to continue there.
#[derive(Debug)]
pub struct LogEnd {
    pub(super) files: Vec<FoundFile>,
    pub(super) position: u64,
    pub(super) lsn: u64,
    pub(super) checksum: u64,
    pub(super) incarnation: u32,
    /// The last position that was proven to be durable, and the bytes from there on.
    pub(super) tail_start: u64,
    pub(super) tail: Vec<u8>,
    pub(super) marks: Marks,
    /// Whether it is the log of a follower.
    pub(super) is_followed: bool,
    /// The end of the last block that ends between packets.
    pub(super) between_packets: LogPoint,
    /// The life of the ring that was adopted, if one was.
    pub(super) life: Option<u64>,
    /// How far it is redone.
    pub(super) redone: RedoneUpTo,
}

/// Up to which packet a log is redone, and where the next one is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct RedoneUpTo {
    pub(super) place: u64,
    /// The end of a block, at or before that packet's end, after which a packet may begin.
    pub(super) point: LogPoint,
    /// The incarnation of that block.
    pub(super) incarnation: u32,
}

impl LogEnd {
    pub(super) fn empty(files: Vec<FoundFile>, place: Lsn) -> LogEnd {
        let (position, lsn, checksum, incarnation, tail_start) = (0, place.0, 0, 0, 0);
        LogEnd {
            files,
            position,
            lsn,
            checksum,
            incarnation,
            tail_start,
            tail: Vec::new(),
            marks: Marks::default(),
            is_followed: false,
            between_packets: LogPoint::beginning_after(place),
            life: None,
            redone: RedoneUpTo { place: lsn, point: LogPoint::beginning_after(place), incarnation },
        }
    }

    /// The last packet's place.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    /// The place of the last packet that is to be redone ([`LogReader::redo_up_to`]).
    pub(crate) fn redone(&self) -> Lsn {
        Lsn(self.redone.place)
    }

    /// Whether it is the log of a follower.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// The position at the end of the stream.
    pub fn position(&self) -> LogPosition {
        LogPosition(self.position)
    }

    /// Whether a log file holds a block at this offset; `false` also for a file that is too short.
    #[cfg(test)]
    pub(super) fn holds_block(disk: &dyn Disk, name: &str, offset: u64) -> Result<bool> {
        let file = disk.open(name, Open::ReadOnly, Caching::Buffered)?;
        if file.length()? < offset + HEADER as u64 {
            return Ok(false);
        }
        let mut header = [0; HEADER];
        file.read_at(&mut header, offset)?;
        Ok(block::u32_at(&header, 8) == block::MAGIC)
    }
}

/// Reads a log's packets in order.
#[derive(Debug)]
pub struct LogReader {
    disk: Arc<dyn Disk>,
    files: Vec<FoundFile>,
    /// The file that holds `position`.
    at: usize,
    /// That file, once something was read of it. No other file is open meanwhile: a log may have more files than a
    /// process may open.
    pub(super) open: Option<Arc<dyn File>>,
    from: Lsn,
    ring: Option<RingTail>,
    /// For an archive: how far it is read.
    archive: Option<ReadUntil>,
    /// The point that the log has to go through; `None` once it was found to.
    witness: Option<Witness>,
    /// Whether reading stopped before the log's end.
    stopped: bool,
    /// When the last block was gathered, of those that say so.
    time_ms: u64,
    /// The position after the last block that chained.
    position: u64,
    /// `None` until the first block has been read.
    checksum: Option<u64>,
    proven: u64,
    tail: Vec<u8>,
    marks: Marks,
    unpacker: Unpacker,
    /// The last block that chained.
    block: Vec<u8>,
    /// The end of the last block that ended between packets.
    between_packets: LogPoint,
    /// The last packet that is to be redone.
    redo_bound: Lsn,
    /// The end of the last block that ended between packets of which none is behind that one, and its incarnation.
    redone: (LogPoint, u32),
    /// For a follower's log: what its own disk had.
    followed: Option<FollowerRecord>,
    window: Vec<u8>,
    window_start: u64,
    /// Time spent reading windows.
    read_time: Duration,
    ended: bool,
}

/// Opens the log of a database for recovery: packets from place `from` on.
///
/// Errors: [`Error::Corrupt`] if a file is missing or damaged, [`Error::Io`] if one cannot be read.
pub fn recover(disk: &Arc<dyn Disk>, database: u128, from: Lsn) -> Result<LogReader> {
    recover_through(disk, database, from, None)
}

/// As [`recover`], of a log that has to go through a point, which is not before the packet before `from`.
pub(crate) fn recover_through(
    disk: &Arc<dyn Disk>,
    database: u128,
    from: Lsn,
    witness: Option<Witness>,
) -> Result<LogReader> {
    read(disk, database, from, witness, None)
}

/// Opens the archived log of a database: packets from place `from` up to some end. The archive may end anywhere, but
/// lacks nothing in between.
///
/// Errors: as [`recover`]; [`Error::Unsupported`] for the log of another life than the witness's.
pub(crate) fn read_archive(
    disk: &Arc<dyn Disk>,
    database: u128,
    from: Lsn,
    witness: Option<Witness>,
    until: ReadUntil,
) -> Result<LogReader> {
    read(disk, database, from, witness, Some(until))
}

/// How far an archived log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadUntil {
    /// To its end.
    End,
    /// Up to the packet at this place.
    Place(Lsn),
    /// Up to the last block that was gathered by this time, in milliseconds since 1970, and that lies before the first
    /// block gathered later. What lies before the redo start is read whatever its time.
    Time(u64),
}

fn read(
    disk: &Arc<dyn Disk>,
    database: u128,
    from: Lsn,
    witness: Option<Witness>,
    archive: Option<ReadUntil>,
) -> Result<LogReader> {
    let mut files = Vec::new();
    for name in disk.list()? {
        if files::sequence(&name).is_some() {
            let file = disk.open(&name, Open::ReadOnly, Caching::Buffered)?;
            let header = LogFileHeader::read(&*file, database)?;
            let block = first_block(&header, &*file)?;
            files.push((FoundFile { header, first: block.as_ref().map(first_place) }, block));
        }
    }
    files.sort_by_key(|(file, _)| file.sequence);
    // The pads between the point and the first packet after it may fill the rest of a file.
    let point = witness.as_ref().map_or(u64::MAX, |witness| witness.point.position.0);
    let is_start =
        |(file, _): &(FoundFile, _)| file.start <= point && file.first.is_some_and(|first| first <= from);
    let start = files.iter().rposition(is_start);
    let (files, blocks): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let Some((at, header)) = start.and_then(|at| Some((at, blocks[at]?))) else {
        if let (Some(_), Some(first)) = (archive, files.first())
            && let Some(place) = first.first
        {
            let what = format!(
                "the archived log file is missing: the log from place {from} on is needed, and \"{}\", the oldest that is \
                 there, begins with place {place}",
                files::name(first.sequence)
            );
            return Err(Error::Corrupt {
                file: files::name(first.sequence.saturating_sub(1)),
                offset: 0,
                what,
            });
        }
        let oldest = files.iter().find_map(|file| file.first);
        let what = format!(
            "expected the log from place {from} on; {}",
            oldest.map_or("no file holds a block".to_owned(), |lsn| format!(
                "the oldest file begins with place {lsn}"
            ))
        );
        let file = files.first().map_or_else(|| files::name(1), |file| files::name(file.sequence));
        return Err(Error::Corrupt { file, offset: PAGE as u64, what });
    };
    for pair in files[at..].windows(2) {
        if pair[1].sequence != pair[0].sequence + 1 || pair[1].start != pair[0].end() {
            let what =
                format!("the log file is missing: \"{}\" comes after it", files::name(pair[1].sequence));
            return Err(Error::Corrupt { file: files::name(pair[0].sequence + 1), offset: 0, what });
        }
    }
    let followed = if archive.is_some() { None } else { FollowerRecord::read(&**disk, database)? };
    // The files before a gap were being freed when the machine stopped.
    let contiguous = (0..at).rev().take_while(|&i| files[i].sequence + 1 == files[i + 1].sequence).count();
    let files: Vec<FoundFile> = files.into_iter().skip(at - contiguous).collect();
    let position = files[contiguous].start;
    let beginning = LogPoint {
        lsn: Lsn(header.first_lsn - 1),
        position: LogPosition(position),
        checksum: header.previous,
    };
    let mut marks = Marks::default();
    for file in &files[..contiguous] {
        if let Some(first) = file.first {
            marks.add_file(Lsn(first.0 - 1), file.start);
        }
    }
    Ok(LogReader {
        disk: disk.clone(),
        at: contiguous,
        open: None,
        from,
        ring: if archive.is_some() { None } else { RingTail::find(&**disk, database)? },
        archive,
        witness,
        stopped: false,
        time_ms: 0,
        position,
        checksum: None,
        proven: position,
        tail: Vec::new(),
        marks,
        unpacker: Unpacker::after(header.first_lsn - 1, header.incarnation),
        block: Vec::new(),
        between_packets: beginning,
        redo_bound: Lsn::MAX,
        redone: (beginning, header.incarnation),
        followed,
        window: Vec::new(),
        window_start: 0,
        read_time: Duration::ZERO,
        ended: false,
        files,
    })
}

/// The header of a file's first block, if the block verifies.
pub(super) fn first_block(header: &LogFileHeader, file: &dyn File) -> Result<Option<BlockHeader>> {
    let mut claim = [0; HEADER];
    file.read_at(&mut claim, PAGE as u64)?;
    let Some(length) = block::claimed_length(&claim, header.start, header.capacity.min(BLOCK_MAX as u64))
    else {
        return Ok(None);
    };
    let mut block = vec![0; length];
    file.read_at(&mut block, PAGE as u64)?;
    Ok(block::verify(&block, header.seed).map(|(header, _)| header))
}

/// The first packet that begins in the file that begins with this block.
fn first_place(first: &BlockHeader) -> Lsn {
    Lsn(first.first_lsn + u64::from(first.inside))
}

impl LogReader {
    /// The next packet at or past the redo start, or `None` at the log's end.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        loop {
            let further = u64::from(fault_injection::is_on("restore-past-its-place"));
            if matches!(self.archive, Some(ReadUntil::Place(last)) if self.unpacker.lsn() >= last.0 + further)
            {
                self.stopped = true;
                return Ok(None);
            }
            if let Some(unpacked) = self.unpacker.next().map_err(|malformed| self.malformed(&malformed))? {
                if unpacked.lsn < self.from {
                    continue;
                }
                return self
                    .unpacker
                    .packet(unpacked)
                    .map(Some)
                    .map_err(|malformed| self.malformed(&malformed));
            }
            if self.ended || !self.next_block()? {
                return Ok(None);
            }
        }
    }

    /// Notes where the packets are found that come after this place, which is not before the redo start's.
    pub(crate) fn redo_up_to(&mut self, last: Lsn) {
        self.redo_bound = last;
    }

    /// The log's end. Reads on to it if [`LogReader::next_packet`] has not yet answered `None`.
    pub fn finish(mut self) -> Result<LogEnd> {
        self.from = Lsn::MAX;
        while self.next_packet()?.is_some() {}
        Ok(LogEnd {
            files: self.files,
            position: self.position,
            lsn: self.unpacker.lsn(),
            checksum: self.checksum.expect("the first block was verified"),
            incarnation: self.unpacker.incarnation(),
            tail_start: self.proven,
            tail: self.tail,
            marks: self.marks,
            is_followed: self.followed.is_some(),
            between_packets: self.between_packets,
            life: self.ring.as_ref().and_then(RingTail::life),
            redone: RedoneUpTo {
                place: self.unpacker.lsn().min(self.redo_bound.0),
                point: self.redone.0,
                incarnation: self.redone.1,
            },
        })
    }

    /// Whether the place or time up to which an archive is read came before its end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The last place after the end of reading whose block was gathered by the time at which reading has stopped, if
    /// there is one: then the clock was set back. Blocks that can no longer be read are ignored.
    pub(crate) fn find_again(mut self) -> Option<Lsn> {
        let Some(ReadUntil::Time(last)) = self.archive.filter(|_| self.stopped) else { return None };
        (self.archive, self.ended) = (Some(ReadUntil::End), false);
        let mut again = None;
        while let Ok(true) = self.next_block() {
            self.unpacker.leave_out();
            if self.unpacker.header().is_some_and(|header| (1..=last).contains(&header.time_ms)) {
                again = Some(self.lsn());
            }
        }
        again
    }

    /// Whether the log was found to go through the witness's point.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.witness.is_none()
    }

    /// When the last block that was read was gathered, in milliseconds since 1970; 0 if no block said so.
    pub(crate) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The place of the last packet read.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.unpacker.lsn())
    }

    /// The end of the last block read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The time that reading the files took so far.
    pub(crate) fn read_time(&self) -> Duration {
        self.read_time
    }

    /// The file that is being read, and the files after it.
    pub(super) fn files_to_read(&self) -> &[FoundFile] {
        &self.files[self.at..]
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Where the log ends that an earlier process of the same boot left in the ring, and the last place there (0 if
    /// that cannot be seen).
    pub(super) fn end_of_ring(&self) -> Option<(u64, u64)> {
        let ring = self.ring.as_ref()?;
        let end = ring.gathered();
        let from = end.saturating_sub(BLOCK_MAX as u64);
        let last = extent::last_claimed(&ring.read(from, BLOCK_MAX), from, end);
        Some((end, last.map_or(0, |(_, lsn)| lsn)))
    }

    /// An error for a block whose checksum is right and whose contents are wrong: our own bug, or a forgery.
    fn malformed(&self, malformed: &Malformed) -> Error {
        let Malformed { header, what } = malformed;
        let what = format!("the block's checksum is right, but {what} makes no sense");
        match self.files.iter().find(|file| (file.start..file.end()).contains(&header.position)) {
            Some(file) => Error::Corrupt {
                file: files::name(file.sequence),
                offset: file.offset(header.position),
                what,
            },
            None => Error::Corrupt { file: RING_NAME.to_owned(), offset: header.position, what },
        }
    }

    /// Reads the next block that chains; `false` at the log's end.
    fn next_block(&mut self) -> Result<bool> {
        if self.position == self.files[self.at].end() && self.at + 1 < self.files.len() {
            (self.at, self.open) = (self.at + 1, None);
        }
        let LogFileHeader { seed, .. } = self.files[self.at].header;
        let room = (self.files[self.at].end() - self.position).min(BLOCK_MAX as u64);
        let (mut found, mut block) = (None, std::mem::take(&mut self.block));
        block.clear();
        if room >= HEADER as u64 {
            self.fill_window()?;
            let from = (self.position - self.window_start) as usize;
            found = self.check(&self.window[from..], room, seed);
            if let Some((_, _, length)) = found {
                block.extend_from_slice(&self.window[from..from + length]);
            } else if let Some(ring) = &self.ring {
                // In a follower's log a block may be on the disk in part.
                let on_disk = ring.released().saturating_sub(self.position).min(room) as usize;
                for on_disk in [on_disk, 0] {
                    block.clear();
                    block.extend_from_slice(&self.window[from..from + on_disk]);
                    block.extend(ring.read(self.position + on_disk as u64, BLOCK_MAX));
                    found = self.check(&block, room, seed);
                    if let Some((_, _, length)) = found {
                        block.truncate(length);
                        break;
                    }
                }
            }
        }
        if let Some((header, checksum, length)) = &found {
            self.check_goes_through(header, *checksum, *length as u64)?;
        }
        match found {
            Some((header, ..)) if self.is_too_late(&header) => {
                (self.stopped, self.ended) = (true, true);
                Ok(false)
            }
            Some((header, checksum, _)) => {
                self.block = block;
                self.take_block(header, checksum).map(|()| true)
            }
            None => {
                self.ended = true;
                self.check_end()?;
                self.check_ends_behind_the_point()?;
                self.unpacker.forget_parts();
                Ok(false)
            }
        }
    }

    /// Whether this block brings something that is to be read, and was gathered after the time up to which the archive
    /// is read. A block before the redo start does not count: the clock may have been set back since.
    fn is_too_late(&self, header: &BlockHeader) -> bool {
        let end = header.first_lsn.saturating_add(header.packets.max(1).into());
        matches!(self.archive, Some(ReadUntil::Time(last)) if header.time_ms > last && end > self.from.0)
    }

    /// Whether these bytes begin with the next block.
    fn check(&self, bytes: &[u8], room: u64, seed: u64) -> Option<(BlockHeader, u64, usize)> {
        let length = block::claimed_length(bytes, self.position, room.min(bytes.len() as u64))?;
        let (header, checksum) = block::verify(&bytes[..length], seed)?;
        let chains = self.checksum.is_none_or(|previous| previous == header.previous)
            && header.first_lsn == self.unpacker.lsn() + 1
            && header.incarnation >= self.unpacker.incarnation();
        chains.then_some((header, checksum, length))
    }

    fn take_block(&mut self, header: BlockHeader, checksum: u64) -> Result<()> {
        if header.durable > header.position || !header.durable.is_multiple_of(PAGE as u64) {
            return Err(self.malformed(&Malformed { header, what: "its durable position" }));
        }
        let (is_first, lsn) = (self.checksum.is_none(), Lsn(self.unpacker.lsn()));
        let file = &mut self.files[self.at];
        if header.position == file.start {
            // As long as only the file was looked at, a file whose first block lies in the ring alone has no first
            // place. No file before one without a first place would ever be freed.
            file.first = Some(first_place(&header));
        }
        if header.inside {
            // A mark here would leave out the packet's beginning.
        } else if header.position == self.files[self.at].start {
            self.marks.add_file(lsn, header.position);
        } else {
            self.marks.add(lsn, header.position);
        }
        self.time_ms = if header.time_ms > 0 { header.time_ms } else { self.time_ms };
        self.checksum = Some(checksum);
        self.position = header.position + self.block.len() as u64;
        self.tail.extend_from_slice(&self.block);
        let proven =
            self.followed.as_ref().map_or(header.durable, |own| header.durable.min(own.whole_pages()));
        if proven > self.proven {
            self.tail.drain(..(proven - self.proven) as usize);
            self.proven = proven;
        }
        let taken = self.unpacker.take(header, &self.block, is_first);
        taken.map_err(|malformed| self.malformed(&malformed))?;
        if self.unpacker.is_between_packets() {
            let lsn = Lsn(header.first_lsn - 1 + u64::from(header.packets));
            self.between_packets = LogPoint { lsn, position: LogPosition(self.position), checksum };
            if lsn <= self.redo_bound {
                self.redone = (self.between_packets, header.incarnation);
            }
        }
        Ok(())
    }

    /// Fills the window with at least a block's bytes from `position` on, as far as the file goes.
    fn fill_window(&mut self) -> Result<()> {
        let file = &self.files[self.at];
        let end = self.window_start + self.window.len() as u64;
        let needed = (self.position + BLOCK_MAX as u64).min(file.end());
        if self.position >= self.window_start.max(file.start) && needed <= end && end <= file.end() {
            return Ok(());
        }
        let length = (file.end() - self.position).min(WINDOW as u64) as usize;
        self.window.resize(length, 0);
        self.window_start = self.position;
        let began = Instant::now();
        let opened = match self.open.take() {
            Some(opened) => opened,
            None => file.open(&*self.disk)?,
        };
        opened.read_at(&mut self.window, file.offset(self.position))?;
        self.open = Some(opened);
        self.read_time += began.elapsed();
        if let Some(own) = &self.followed {
            own.lay_over(&mut self.window, self.window_start);
        }
        Ok(())
    }

    /// I4: checks that the log ends here, and that no later block depends on a missing one.
    fn check_end(&self) -> Result<()> {
        if fault_injection::is_on("log-ends-at-damage") {
            return Ok(());
        }
        let file = &self.files[self.at];
        let broken = |what: String| Error::Corrupt {
            file: files::name(file.sequence),
            offset: file.offset(self.position),
            what,
        };
        if let Some(gathered) = self.ring.as_ref().map(RingTail::gathered).filter(|&g| g > self.position) {
            return Err(broken(format!(
                "the log ends at position {}, but \"{RING_NAME}\" of the same boot says that commits up to position \
                 {gathered} were answered",
                self.position
            )));
        }
        if let Some(own) = &self.followed {
            // The blocks say what was durable where they were made.
            let what = || {
                format!(
                    "the log ends at position {}, and was on the disk up to {}",
                    self.position,
                    own.position()
                )
            };
            let is_damage = own.position() > self.position
                && !fault_injection::is_on("damage-before-the-record-is-the-end");
            return if is_damage { Err(broken(what())) } else { Ok(()) };
        }
        if self.archive.is_none() && self.position == file.end() && self.at + 1 == self.files.len() {
            // A commit is promised room in files that exist, and more of it than the commit takes; an opening makes the
            // next file before its pad fills this one. Therefore the next file existed.
            let what =
                format!("the log file is missing: \"{}\" is full to its end", files::name(file.sequence));
            return Err(Error::Corrupt { file: files::name(file.sequence + 1), offset: 0, what });
        }
        for file in &self.files[self.at..] {
            let opened = file.open(&*self.disk)?;
            for_each_block_behind(&*opened, file, self.position, |later| {
                if later.durable <= self.position || fault_injection::is_on("later-blocks-tell-nothing") {
                    return Ok(());
                }
                Err(broken(format!(
                    "expected the block after place {}; it is damaged, and was durable: the block at offset {} of \"{}\" was written \
                     after it",
                    self.unpacker.lsn(),
                    file.offset(later.position),
                    files::name(file.sequence)
                )))
            })?;
        }
        Ok(())
    }
}

/// Calls `found` with the header of each block in a file that verifies and begins at a position or behind it, whatever it
/// follows.
pub(super) fn for_each_block_behind(
    opened: &dyn File,
    file: &LogFileHeader,
    position: u64,
    mut found: impl FnMut(&BlockHeader) -> Result<()>,
) -> Result<()> {
    let mut start = position.max(file.start);
    while start + HEADER as u64 <= file.end() {
        let mut bytes = vec![0; (file.end() - start).min((WINDOW + BLOCK_MAX) as u64) as usize];
        opened.read_at(&mut bytes, file.offset(start))?;
        for at in (0..bytes.len().min(WINDOW)).step_by(8) {
            let (position, left) = (start + at as u64, (bytes.len() - at) as u64);
            let Some(length) = block::claimed_length(&bytes[at..], position, left) else { continue };
            if let Some((header, _)) = block::verify(&bytes[at..at + length], file.seed) {
                found(&header)?;
            }
        }
        start += WINDOW as u64;
    }
    Ok(())
}

const _: () = assert!(WINDOW >= BLOCK_MAX && WINDOW.is_multiple_of(8));
