//! Gathering: moves packets from the commit queue into commit blocks in the ring. This is the only copy of a packet,
//! and makes it durable at level 1.

use std::sync::Arc;

use super::block::{
    self, BLOCK_MAX, BlockHeader, BlockKind, HEADER, PACKET_HEADER, PART_HEADER, ROOM_MIN, SLACK,
};
use super::files::FileTable;
use super::follow::Appended;
use super::log_file::LogFile;
use super::packet::{Drained, DrainedPacket, PacketPool};
use super::ring::RingFiller;
use super::sync::Ordering;
use super::{LogPoint, LogPosition, PAGE};
use crate::ids::Lsn;
use crate::io::Clock;
use crate::unlikely::unlikely;

/// Ring room that is reserved for the pad that ends a flush.
const SEAL_BYTES: u64 = 2 * PAGE as u64;
/// The smallest ring in which every block finds room once the ring's contents are flushed.
pub(crate) const RING_MIN: usize = 4 * BLOCK_MAX;

/// The most stream bytes that a packet of this length can take, with all pads that it may cause (I10).
pub(crate) fn cost(length: usize) -> u64 {
    let parts = (length / (BLOCK_MAX / 2) + 2) as u64;
    let per_block = (HEADER + SLACK + PART_HEADER + ROOM_MIN + HEADER) as u64 + SEAL_BYTES;
    length as u64 + PACKET_HEADER as u64 + parts * per_block
}

/// The longest packet whose [`cost`] is at most this.
pub(crate) fn longest_within(bytes: u64) -> usize {
    // The cost grows with the length.
    let (mut low, mut high) = (0, bytes as usize);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        (low, high) = if cost(middle) <= bytes { (middle, high) } else { (low, middle - 1) };
    }
    low
}

/// Whether all that was queued is in the ring now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// Yes.
    All,
    /// No: the ring is full until a group is written.
    RingFull,
    /// No: the group is as large as it may be.
    GroupFull,
}

/// The gatherer's state; the holder of its latch gathers.
pub(crate) struct Gatherer {
    pub(super) ring: RingFiller,
    files: Arc<FileTable>,
    pub(super) file: Arc<LogFile>,
    pub(super) checksum: u64,
    pub(super) incarnation: u32,
    /// The last packet that is wholly in the ring.
    pub(super) lsn: u64,
    /// In a log that follows another one: what was appended.
    pub(super) appended: Option<Appended>,
    /// Drained packets, oldest first; the ones before `next` are done.
    drained: Vec<DrainedPacket>,
    next: usize,
    /// Bytes of the next packet that are in parts already.
    in_parts: usize,
    /// Where the last block before those parts ends.
    before_parts: LogPoint,
    allotment: Allotment,
    clock: Clock,
}

/// What lone committers may fill without checking again: it lies in one log file and in one piece of the ring, is free,
/// and is promised to them as a packet's bytes are promised to the packet.
#[derive(Debug, Clone, Copy, Default)]
struct Allotment {
    /// Its end, a position in the stream.
    end: u64,
    /// Stream bytes promised for it.
    promised: u64,
}

/// Bytes of an allotment, at most: blocks of some hundred commits. As long as it is open, other committers have so much
/// less room.
const ALLOTMENT_BYTES: u64 = 32 << 10;

impl Gatherer {
    /// A gatherer that continues at the ring's position.
    pub(crate) fn new(
        ring: RingFiller,
        files: Arc<FileTable>,
        file: Arc<LogFile>,
        checksum: u64,
        incarnation: u32,
        lsn: u64,
        clock: Clock,
    ) -> Gatherer {
        let before_parts = LogPoint { lsn: Lsn(lsn), position: LogPosition(ring.position()), checksum };
        Gatherer {
            ring,
            files,
            file,
            checksum,
            incarnation,
            lsn,
            appended: None,
            drained: Vec::with_capacity(1024),
            next: 0,
            in_parts: 0,
            before_parts,
            allotment: Allotment::default(),
            clock,
        }
    }

    /// The last packet that is wholly in the ring.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The position after the last block.
    pub(crate) fn position(&self) -> u64 {
        self.ring.position()
    }

    /// The end of the last block that ends with a whole packet, or is a pad outside of a packet.
    pub(crate) fn point(&self) -> LogPoint {
        match &self.appended {
            Some(appended) => appended.point(),
            None if self.in_parts > 0 => self.before_parts,
            None => self.end(),
        }
    }

    /// Where the last block ends.
    pub(super) fn end(&self) -> LogPoint {
        LogPoint { lsn: Lsn(self.lsn), position: LogPosition(self.position()), checksum: self.checksum }
    }

    /// Moves into the ring what an earlier call left over and what is queued at this moment: packets up to the place
    /// `last`, which ends the group.
    #[inline]
    pub(crate) fn gather(&mut self, pool: &PacketPool, last: u64) -> Gathered {
        if !self.drained.is_empty() {
            return self.gather_all(pool, last);
        }
        match pool.drain(&mut self.drained) {
            Drained::Nothing => return Gathered::All,
            Drained::Appended => {}
            // The lone committer's way: its commit pays for nothing but its own packet.
            Drained::One(packet) => match self.block_of_one(packet.bytes().len(), last) {
                Some(length) => {
                    self.build_one(packet, length, pool);
                    return Gathered::All;
                }
                None => self.drained.push(packet),
            },
        }
        self.gather_drained(pool, last)
    }

    /// The length of the block that would hold a packet of this many bytes alone, if nothing else has to be done first.
    #[inline(always)]
    fn block_of_one(&self, bytes: usize, last: u64) -> Option<usize> {
        let used = HEADER + PACKET_HEADER + bytes;
        let limit = self.open_bytes().min(BLOCK_MAX as u64);
        let fits = (used + SLACK).max(ROOM_MIN) as u64 <= limit && self.in_parts == 0 && self.lsn < last;
        (!unlikely(!fits)).then(|| block::closed_length(self.ring.position(), used))
    }

    /// The bytes from here on that are free in one piece of the ring and lie in the current log file.
    #[inline(always)]
    fn open_bytes(&self) -> u64 {
        let (position, end) = (self.ring.position(), self.file.end());
        let free = self.ring.free().saturating_sub(SEAL_BYTES);
        self.ring.room().min(end - position).min(free)
    }

    /// Whether the block of a lone committer's packet of this many bytes fits into the allotment.
    #[inline(always)]
    fn fits_allotment(&self, bytes: usize) -> bool {
        let needed = (HEADER + PACKET_HEADER + bytes + SLACK).max(ROOM_MIN);
        self.ring.position() + needed as u64 <= self.allotment.end
    }

    /// Opens another allotment, if a packet of this many bytes fits and `promise` promises the allotment its bytes of
    /// the stream: what may be filled, and the pad after it.
    #[inline(never)]
    fn open_allotment(&mut self, pool: &PacketPool, bytes: usize, promise: impl FnOnce(u64) -> bool) -> bool {
        self.close_allotment(pool);
        let open = self.open_bytes().min(ALLOTMENT_BYTES);
        let allotment = Allotment { end: self.ring.position() + open, promised: open + SEAL_BYTES };
        if (HEADER + PACKET_HEADER + bytes + SLACK).max(ROOM_MIN) as u64 > open
            || !promise(allotment.promised)
        {
            return false;
        }
        self.allotment = allotment;
        true
    }

    /// Takes back what is promised for the allotment: it is used up, or other committers have no room.
    pub(crate) fn close_allotment(&mut self, pool: &PacketPool) {
        // After the position has advanced: a reserver that sees the smaller sum sees the later position too.
        pool.promised().fetch_sub(std::mem::take(&mut self.allotment).promised, Ordering::SeqCst);
    }

    /// Builds the block of one packet.
    #[inline(never)]
    fn build_one(&mut self, packet: DrainedPacket, length: usize, pool: &PacketPool) {
        debug_assert!(packet.lsn().0 == self.lsn + 1, "I2: places are dense and drained in order");
        self.put_one(packet.bytes(), packet.kind(), length);
        let promised = packet.take_promised();
        // After the position has advanced: see gather_drained().
        pool.promised().fetch_sub(promised, Ordering::SeqCst);
        packet.gathered();
        self.look_at_files();
    }

    /// Places a packet that no other thread sees, and gathers it, if that can be done at once: nothing is queued, and
    /// the packet's block fits where the last one ends, with its bytes promised. Returns its place, if so.
    #[inline(always)]
    pub(crate) fn place_alone(
        &mut self,
        pool: &PacketPool,
        bytes: &[u8],
        kind: u8,
        promise: impl FnOnce(u64) -> bool,
    ) -> Option<Lsn> {
        if unlikely(!self.drained.is_empty()) {
            return None;
        }
        if unlikely(!self.fits_allotment(bytes.len())) && !self.open_allotment(pool, bytes.len(), promise) {
            return None;
        }
        let length = block::closed_length(self.ring.position(), HEADER + PACKET_HEADER + bytes.len());
        // I2: if none is queued, all places up to this one are gathered.
        let lsn = pool.place_alone(Lsn(self.lsn))?;
        self.put_one(bytes, kind, length);
        Some(lsn)
    }

    /// Puts the next packet into the ring, in a block of its own.
    #[inline(always)]
    fn put_one(&mut self, bytes: &[u8], kind: u8, length: usize) {
        debug_assert!(self.in_parts == 0, "parts are of a packet that is drained");
        let header = BlockHeader { packets: 1, inside: false, ..self.header(BlockKind::Group) };
        let seed = self.file.seed;
        let block = self.ring.window(length);
        // Zeroes first: nearly always they are at most the rest of the packet's last word.
        let used = HEADER + PACKET_HEADER + bytes.len();
        match length - used {
            0..8 => block[length - 8..].copy_from_slice(&[0; 8]),
            _ => block[used..].fill(0),
        }
        let word = bytes.len() as u32 | u32::from(kind) << 24;
        block[HEADER..HEADER + PACKET_HEADER].copy_from_slice(&word.to_le_bytes());
        block[HEADER + PACKET_HEADER..used].copy_from_slice(bytes);
        self.checksum = block::seal(block, &header, seed);
        self.ring.fill(length);
        self.lsn += 1;
    }

    /// What an earlier call left over comes first, and then what is queued now. Each is gathered at most once, so that
    /// no thread gathers for others without end.
    #[inline(never)]
    fn gather_all(&mut self, pool: &PacketPool, last: u64) -> Gathered {
        match self.gather_drained(pool, last) {
            Gathered::All => {
                pool.drain_all(&mut self.drained);
                self.gather_drained(pool, last)
            }
            not_all => not_all,
        }
    }

    /// Moves the drained packets into the ring.
    #[inline(never)]
    fn gather_drained(&mut self, pool: &PacketPool, last: u64) -> Gathered {
        debug_assert!(
            self.drained.iter().zip(self.lsn + 1..).all(|(packet, lsn)| packet.lsn().0 == lsn),
            "I2: places are dense and drained in order"
        );
        let mut promised = 0;
        let all = loop {
            if self.next == self.drained.len() {
                break Gathered::All;
            }
            if self.lsn >= last {
                break Gathered::GroupFull;
            }
            if !self.build_block(last, &mut promised) {
                break Gathered::RingFull;
            }
        };
        // After the position has advanced: a reserver that sees the smaller sum sees the later position too.
        if promised > 0 {
            pool.promised().fetch_sub(promised, Ordering::SeqCst);
        }
        self.drained.drain(..self.next).for_each(DrainedPacket::gathered);
        self.next = 0;
        all
    }

    /// Has the next log file prepared when it is due.
    #[inline(always)]
    pub(crate) fn look_at_files(&self) {
        if unlikely(self.files.is_due(self.ring.position())) {
            self.files.want(self.files.prepared() + 1);
        }
    }

    #[inline(always)]
    fn header(&self, kind: BlockKind) -> BlockHeader {
        let time_ms = if kind == BlockKind::Pad { 0 } else { self.clock.calendar_ms() };
        BlockHeader {
            kind,
            packet_kind: 0,
            inside: self.in_parts > 0,
            packets: 0,
            position: self.ring.position(),
            first_lsn: self.lsn + 1,
            durable: self.ring.durable(),
            previous: self.checksum,
            incarnation: self.incarnation,
            time_ms,
        }
    }

    fn close_block(&mut self, header: &BlockHeader, length: usize) {
        let seed = self.file.seed;
        self.checksum = block::seal(self.ring.window(length), header, seed);
        self.ring.fill(length);
    }

    pub(super) fn pad(&mut self, length: usize) {
        let header = self.header(BlockKind::Pad);
        self.ring.window(length)[HEADER..].fill(0);
        self.close_block(&header, length);
    }

    /// Builds one block of the next packets; `false` if the ring has no room for it.
    fn build_block(&mut self, last: u64, promised: &mut u64) -> bool {
        let position = self.ring.position();
        if position == self.file.end() {
            self.file =
                self.files.at(position).expect("I10: a packet with a place has its log file prepared");
            self.file.set_first(self.lsn + 1 + u64::from(self.in_parts > 0));
        }
        let room = self.ring.room().min(self.file.end() - position);
        let free = self.ring.free().saturating_sub(SEAL_BYTES);
        let left = self.drained[self.next].bytes().len() - self.in_parts;
        let wanted = (HEADER + SLACK + PACKET_HEADER.max(PART_HEADER) + left).min(BLOCK_MAX);
        if free < (wanted as u64).max(ROOM_MIN as u64) {
            return false;
        }
        if room < ROOM_MIN as u64 {
            self.pad(room as usize);
            return true;
        }
        let limit = room.min(free).min(BLOCK_MAX as u64) as usize;
        if self.in_parts > 0 || HEADER + SLACK + PACKET_HEADER + left > limit {
            self.build_part(limit, promised);
        } else {
            self.build_group(limit, last, promised);
        }
        self.look_at_files();
        true
    }

    fn build_group(&mut self, limit: usize, last: u64, promised: &mut u64) {
        let mut header = self.header(BlockKind::Group);
        let position = header.position;
        let block = self.ring.window(limit);
        let mut used = HEADER;
        while let Some(packet) = self.drained.get(self.next) {
            let bytes = packet.bytes();
            let end = used + PACKET_HEADER + bytes.len();
            if end + SLACK > limit || self.lsn + u64::from(header.packets) >= last {
                break;
            }
            let word = bytes.len() as u32 | u32::from(packet.kind()) << 24;
            block[used..used + PACKET_HEADER].copy_from_slice(&word.to_le_bytes());
            block[used + PACKET_HEADER..end].copy_from_slice(bytes);
            *promised += packet.take_promised();
            used = end;
            self.next += 1;
            header.packets += 1;
        }
        let length = block::closed_length(position, used);
        block[used..length].fill(0);
        self.close_block(&header, length);
        self.lsn += u64::from(header.packets);
    }

    fn build_part(&mut self, limit: usize, promised: &mut u64) {
        if self.in_parts == 0 {
            self.before_parts = self.end();
        }
        let mut header = self.header(BlockKind::Part);
        let position = header.position;
        let packet = &self.drained[self.next];
        let bytes = packet.bytes();
        let here = (bytes.len() - self.in_parts).min(limit - HEADER - SLACK - PART_HEADER);
        let block = self.ring.window(limit);
        for (at, number) in [here, self.in_parts, bytes.len(), 0].into_iter().enumerate() {
            block[HEADER + 4 * at..HEADER + 4 * at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        let used = HEADER + PART_HEADER + here;
        block[HEADER + PART_HEADER..used].copy_from_slice(&bytes[self.in_parts..self.in_parts + here]);
        let length = block::closed_length(position, used);
        block[used..length].fill(0);
        header.packet_kind = packet.kind();
        self.in_parts += here;
        let last = self.in_parts == bytes.len();
        if last {
            *promised += packet.take_promised();
            header.packets = 1;
        }
        self.close_block(&header, length);
        if last {
            self.in_parts = 0;
            self.next += 1;
            self.lsn += 1;
        }
    }

    /// Ends the flush at a page's end, so that a durable page is never written again.
    pub(crate) fn seal(&mut self) {
        let position = self.ring.position() as usize;
        let left = position.next_multiple_of(PAGE) - position;
        if left > 0 {
            self.pad(left);
        }
    }
}

impl std::fmt::Debug for Gatherer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatherer").field("lsn", &self.lsn).field("position", &self.ring.position()).finish()
    }
}
