//! The arena of segments and the records in them.
//!
//! ```text
//! segment, 64 KiB          64 B image header   slot   slot   ...   (free)
//!                          (used on disk only) ^64           ^used
//!
//! slot, 16-byte units      word 0: thin lock 0..20 | absent 20 | free 21 | capacity in units 24..36 | version 36..64
//!                          word 1: length of the body 0..16 | Lsn of the last writer 16..64
//!                          body:   hidden row number (8 bytes, tables that began keyless), then the row
//!                                  of an absent slot: the primary key that is being inserted
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::{Backoff, CachePadded};
use parking_lot::Mutex;

use super::prefetch::prefetch;
use super::snapshots::{CutStage, Snapshots};
use super::words::{StoredRow, announce_write};
use crate::account::latches;
use crate::account::wait_guard::LatchWait;
use crate::fault_injection;
use crate::ids::{HeapId, Lsn};
use crate::row::FieldChange;
use crate::store::region::{Region, copy_words};
use crate::store::{Budget, Painting};
use crate::unlikely::unlikely;

/// A segment's size in bytes; also what a sweep copies under one hold of its latch.
pub const SEGMENT_BYTES: usize = 64 * 1024;
/// Bytes at the head of a segment that no record uses: its header in a backup copy.
pub const IMAGE_HEADER_BYTES: usize = 64;
/// The unit of slots and of [`RecordRef`]s.
pub const UNIT_BYTES: usize = 16;
/// A record's header.
pub const RECORD_HEADER_BYTES: usize = 16;

/// A line of the processor's cache.
const LINE_BYTES: usize = 64;
/// The most lines of a record behind its first one that are prefetched.
const LINES_AHEAD_MAX: usize = 8;

/// The smallest slot: a header and a unit of body.
const SLOT_UNITS_MIN: usize = 2;
/// Units in a segment.
pub const UNITS_PER_SEGMENT: u64 = (SEGMENT_BYTES / UNIT_BYTES) as u64;
const WORDS_PER_SEGMENT: usize = SEGMENT_BYTES / 8;

/// The bits of a record's first word that the lock manager's thin form may change.
pub const THIN_LOCK_MASK: u64 = (1 << 20) - 1;
pub(super) const ABSENT: u64 = 1 << 20;
pub(super) const FREE: u64 = 1 << 21;
pub(super) const CAPACITY_SHIFT: u32 = 24;
pub(super) const CAPACITY_MASK: u64 = ((1 << 12) - 1) << CAPACITY_SHIFT;
pub(super) const VERSION_ONE: u64 = 1 << 36;
pub(super) const LENGTH_MASK: u64 = (1 << 16) - 1;

const _: () =
    assert!(((SEGMENT_BYTES - IMAGE_HEADER_BYTES) / UNIT_BYTES) as u64 <= CAPACITY_MASK >> CAPACITY_SHIFT);
const _: () = assert!(crate::row::ROW_BYTES_MAX + 8 < LENGTH_MASK as usize);
const _: () =
    assert!(crate::row::ROW_BYTES_MAX + 8 + RECORD_HEADER_BYTES + IMAGE_HEADER_BYTES < SEGMENT_BYTES);

/// A segment's number in the arena, and in both backup copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// A record's address: the number of its first 16-byte unit in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordRef(pub u64);

impl RecordRef {
    /// The segment that the record lies in.
    pub fn segment(self) -> SegmentId {
        SegmentId((self.0 / UNITS_PER_SEGMENT) as u32)
    }
}

/// The engine's state of a segment beside its bytes.
#[derive(Default)]
pub struct SegmentMeta {
    latch: AtomicBool,
    /// A dirty bit for each copy, [`WHITE`] and [`AWAITED`]. They change under the latch.
    marks: AtomicU8,
    /// The number of commits that hold the segment white and have not finished their apply: a black/white sweep leaves
    /// the segment until there are none. A commit is counted in under the latch, and counted out without it.
    holders: AtomicU32,
    /// The heap, or 0 while the segment is free.
    heap: AtomicU32,
    /// Bytes handed out to slots, the image header included.
    used: AtomicU32,
}

/// What segments are copied to. A segment has a dirty bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// The first backup copy.
    Ping,
    /// The second.
    Pong,
    /// The third, if there are three.
    Third,
    /// A backup ([`Database::backup`](crate::Database::backup)), which is no file of the database.
    Elsewhere,
}

impl Copy {
    /// The backup copies that are files of the database.
    pub const FILES: [Copy; 3] = [Copy::Ping, Copy::Pong, Copy::Third];

    /// The other one of the first two.
    pub fn other(self) -> Copy {
        match self {
            Copy::Ping => Copy::Pong,
            _ => Copy::Ping,
        }
    }

    /// 0 to 2, for file names.
    pub fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn of_number(number: u8) -> Copy {
        match number {
            0 => Copy::Ping,
            1 => Copy::Pong,
            2 => Copy::Third,
            _ => Copy::Elsewhere,
        }
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// Dirty for all copies.
const ALL_COPIES: u8 = 15;
/// The sweep has not met the segment yet (System M's paint bit, in which 0 is black: a segment that no sweep with sides
/// is about is black). With copy-on-update it also says that the segment has not changed since the cut: a change paints
/// it.
const WHITE: u8 = 16;
/// Of a white segment: the sweep waits for it, so no more commits come to hold it white.
const AWAITED: u8 = 32;
/// The marks that say how a segment stands to the sweep.
const PAINT: u8 = WHITE | AWAITED;

/// A held segment latch; released when dropped.
pub struct Latched<'a> {
    meta: &'a SegmentMeta,
}

impl Latched<'_> {
    #[inline]
    fn marks(&self) -> u8 {
        self.meta.marks.load(Ordering::Relaxed)
    }

    fn set_marks(&self, marks: u8) {
        self.meta.marks.store(marks, Ordering::Relaxed);
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        self.meta.latch.store(false, Ordering::Release);
        latches::given_back();
    }
}

/// The arena: address space for all segments that the memory bound allows, reserved once and filled on demand. The
/// budget decides how many are in use.
pub struct Segments {
    words: Region,
    metas: Box<[SegmentMeta]>,
    free: Mutex<FreeSegments>,
    budget: Arc<Budget>,
    snapshots: Snapshots,
    painting: Painting,
    latch_conflicts: CachePadded<AtomicU64>,
}

struct FreeSegments {
    fresh: u32,
    free: Vec<u32>,
}

impl Segments {
    /// Reserves address space for as many segments as the budget allows.
    pub fn reserve(budget: Arc<Budget>) -> std::io::Result<Segments> {
        Segments::reserve_numbers(budget, 0)
    }

    /// The same, for at least `numbers` segments: in a database that has shrunk, segment numbers are higher than the
    /// budget allows segments.
    pub fn reserve_numbers(budget: Arc<Budget>, numbers: u32) -> std::io::Result<Segments> {
        let count = (budget.capacity() as usize / SEGMENT_BYTES).max(numbers as usize).max(1);
        let words = Region::reserve(count * SEGMENT_BYTES)?;
        // A segment is dirty from the start: a sweep that meets it between its number and its claim writes an image of
        // it too.
        let fresh = || SegmentMeta { marks: AtomicU8::new(ALL_COPIES), ..SegmentMeta::default() };
        let metas = (0..count).map(|_| fresh()).collect();
        let free = Mutex::new(FreeSegments { fresh: 0, free: Vec::new() });
        let (snapshots, painting, latch_conflicts) =
            (Snapshots::new(), Painting::new(), CachePadded::new(AtomicU64::new(0)));
        Ok(Segments { words, metas, free, budget, snapshots, painting, latch_conflicts })
    }

    /// The budget that segments are drawn from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The snapshot copies of a sweep at a cut.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The state of a black/white sweep that commits see.
    pub fn painting(&self) -> &Painting {
        &self.painting
    }

    /// The number of segments that the arena has room for.
    pub fn capacity(&self) -> u64 {
        self.metas.len() as u64
    }

    /// One more than the highest segment number ever in use.
    pub fn high_water(&self) -> u32 {
        self.free.lock().fresh
    }

    /// A free segment for `heap`, or `None` at the memory bound.
    pub fn allocate(&self, heap: HeapId) -> Option<SegmentId> {
        if !self.budget.take(SEGMENT_BYTES as u64) {
            return None;
        }
        let mut free = self.free.lock();
        let number = match free.free.pop() {
            Some(number) => number,
            None if (free.fresh as usize) < self.metas.len() => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => {
                self.budget.give(SEGMENT_BYTES as u64);
                return None;
            }
        };
        let id = SegmentId(number);
        // The segment is claimed before a cut can come: the cut reads the end of its segments under the same lock.
        self.claim(id, heap);
        drop(free);
        Some(id)
    }

    fn claim(&self, id: SegmentId, heap: HeapId) {
        let latched = self.latch(id);
        match self.snapshots.stage() {
            // Painting: the segment keeps the side that it had when it was free. Behind the end of the sweep that side
            // is black.
            CutStage::Idle | CutStage::Painting => {}
            // Its rows may commit before the cut, which will then find it in use.
            CutStage::Whitening => latched.set_marks(latched.marks() | WHITE),
            CutStage::Cut => self.leave_free(&latched, id),
        }
        let meta = self.meta(id);
        meta.used.store(IMAGE_HEADER_BYTES as u32, Ordering::Relaxed);
        meta.heap.store(heap.0, Ordering::Relaxed);
        self.mark_dirty(&latched);
    }

    /// Takes exactly the segment `id`. Recovery does so, and calls [`Segments::rebuild_free_list`] when it has taken
    /// all. False if that passes the memory bound.
    pub fn adopt(&self, id: SegmentId, heap: HeapId) -> bool {
        if id.0 as usize >= self.metas.len() || !self.budget.take(SEGMENT_BYTES as u64) {
            return false;
        }
        let mut free = self.free.lock();
        free.fresh = free.fresh.max(id.0 + 1);
        drop(free);
        self.claim(id, heap);
        true
    }

    /// Collects the free segments below `count` and below the highest adopted one.
    pub fn rebuild_free_list(&self, count: u32) {
        let mut free = self.free.lock();
        free.fresh = free.fresh.max(count.min(self.metas.len() as u32));
        free.free = (0..free.fresh).rev().filter(|&n| self.heap(SegmentId(n)).is_none()).collect();
    }

    /// Gives back a segment that no index points into any more. If a sweep at a cut that has rows of a table in this
    /// segment is in progress, it is given back at the end of the sweep.
    pub fn free(&self, id: SegmentId) {
        if self.snapshots.stage() == CutStage::Cut && self.is_white(id) {
            let is_lacked = self.is_dirty(id, self.snapshots.copy());
            // No other thread changes a segment that is given back, so it stays as it is without its latch.
            let is_row = |slot: Result<RecordRef, String>| slot.is_ok_and(|slot| !self.is_absent(slot));
            let has_rows = self.is_in_cut(id) && self.slots(id).any(is_row);
            if is_lacked && has_rows && self.snapshots.keep_from_reuse(id) {
                return;
            }
            self.leave_free(&self.latch(id), id);
        }
        self.free_now(id);
    }

    fn free_now(&self, id: SegmentId) {
        let latched = self.latch(id);
        let meta = self.meta(id);
        meta.heap.store(0, Ordering::Relaxed);
        meta.used.store(0, Ordering::Relaxed);
        self.mark_dirty(&latched);
        drop(latched);
        self.free.lock().free.push(id.0);
        self.budget.give(SEGMENT_BYTES as u64);
    }

    fn meta(&self, id: SegmentId) -> &SegmentMeta {
        &self.metas[id.0 as usize]
    }

    /// The heap that the segment belongs to, or none while it is free.
    pub fn heap(&self, id: SegmentId) -> Option<HeapId> {
        match self.meta(id).heap.load(Ordering::Relaxed) {
            0 => None,
            heap => Some(HeapId(heap)),
        }
    }

    /// Bytes of the segment that are handed out to slots, its image header included.
    pub fn used(&self, id: SegmentId) -> usize {
        self.meta(id).used.load(Ordering::Relaxed) as usize
    }

    /// Latches the segment: against other changes, and against the sweep.
    #[inline]
    pub fn latch(&self, id: SegmentId) -> Latched<'_> {
        let meta = self.meta(id);
        if unlikely(meta.latch.swap(true, Ordering::Acquire)) {
            self.wait_for_latch(&meta.latch);
        }
        latches::taken();
        Latched { meta }
    }

    #[cold]
    fn wait_for_latch(&self, latch: &AtomicBool) {
        self.latch_conflicts.fetch_add(1, Ordering::Relaxed);
        wait_for_latch(latch);
    }

    /// How often a latch was waited for.
    pub fn latch_conflicts(&self) -> u64 {
        self.latch_conflicts.load(Ordering::Relaxed)
    }

    /// Latches the segment if its latch is free.
    pub fn try_latch(&self, id: SegmentId) -> Option<Latched<'_>> {
        let meta = self.meta(id);
        // The value is made only if the latch is held, because dropping it releases the latch.
        (!meta.latch.swap(true, Ordering::Acquire)).then(|| {
            latches::taken();
            Latched { meta }
        })
    }

    /// Sets the dirty bit for one copy: after a failed sweep, and for the copies that recovery did not load.
    pub fn set_dirty(&self, id: SegmentId, copy: Copy) {
        let latched = self.latch(id);
        latched.set_marks(latched.marks() | copy.bit());
    }

    /// Clears the dirty bit for one copy: the segment is now as that copy has it.
    pub fn clear_dirty(&self, id: SegmentId, copy: Copy) {
        let latched = self.latch(id);
        latched.set_marks(latched.marks() & !copy.bit());
    }

    /// Whether the segment has changed since it was last copied to `copy`.
    pub fn is_dirty(&self, id: SegmentId, copy: Copy) -> bool {
        self.meta(id).marks.load(Ordering::Relaxed) & copy.bit() != 0
    }

    /// Copies the segment under its latch and changes no marks: for load files. Else as [`Segments::sweep`].
    pub fn copy_out(&self, id: SegmentId, buffer: &mut [u8]) -> (Option<HeapId>, usize) {
        let _latched = self.latch(id);
        self.copy_latched(id, buffer)
    }

    fn copy_latched(&self, id: SegmentId, buffer: &mut [u8]) -> (Option<HeapId>, usize) {
        let used = self.used(id);
        if used > IMAGE_HEADER_BYTES {
            let first = id.0 as usize * WORDS_PER_SEGMENT;
            let words = &self.words.words()[first + IMAGE_HEADER_BYTES / 8..first + used / 8];
            copy_words(words, &mut buffer[IMAGE_HEADER_BYTES..used]);
        }
        (self.heap(id), used)
    }

    /// Fills an adopted segment from a backup image. Lock bits are cleared; the dirty bits stay as they are.
    pub fn restore(&self, id: SegmentId, image: &[u8]) {
        let _latched = self.latch(id);
        let first = id.0 as usize * WORDS_PER_SEGMENT;
        let words = &self.words.words()[first + IMAGE_HEADER_BYTES / 8..first + image.len() / 8];
        for (word, bytes) in words.iter().zip(image[IMAGE_HEADER_BYTES..].chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        self.meta(id).used.store(image.len() as u32, Ordering::Relaxed);
    }

    /// Hands out `units` at the end of the segment's used part, if that stays within `limit` bytes. The new slot is
    /// absent and holds `placeholder`, which fits: the primary key that is being inserted. From it a scan that comes by
    /// a secondary index learns which lock to wait for.
    #[inline]
    pub fn extend(&self, id: SegmentId, units: usize, limit: usize, placeholder: &[u8]) -> Option<RecordRef> {
        let latched = self.latch(id);
        let used = self.used(id);
        if used + units * UNIT_BYTES > limit {
            return None;
        }
        let record = RecordRef(u64::from(id.0) * UNITS_PER_SEGMENT + (used / UNIT_BYTES) as u64);
        self.record(record).begin(units, placeholder);
        self.meta(id).used.store((used + units * UNIT_BYTES) as u32, Ordering::Relaxed);
        self.mark_dirty(&latched);
        Some(record)
    }

    /// The slots of a segment, in the order of their addresses. It stops with an error text at a slot whose capacity
    /// makes no sense.
    pub fn slots(&self, id: SegmentId) -> impl Iterator<Item = Result<RecordRef, String>> + '_ {
        let used = self.used(id);
        let mut at = IMAGE_HEADER_BYTES;
        std::iter::from_fn(move || {
            if at >= used {
                return None;
            }
            let record = RecordRef(u64::from(id.0) * UNITS_PER_SEGMENT + (at / UNIT_BYTES) as u64);
            let capacity = self.units(record) * UNIT_BYTES;
            if capacity == 0
                || at + capacity > used
                || self.record(record).length() + RECORD_HEADER_BYTES > capacity
            {
                let offset = at;
                at = used;
                return Some(Err(format!("the slot at byte {offset} of segment {} makes no sense", id.0)));
            }
            at += capacity;
            Some(Ok(record))
        })
    }

    #[inline]
    fn word(&self, record: RecordRef, index: usize) -> &AtomicU64 {
        &self.words.words()[record.0 as usize * 2 + index]
    }

    /// Prefetches the first line of a record. The address may be wrong: an index may have given it without validation.
    #[inline]
    pub fn prefetch_head(&self, record: RecordRef) {
        if let Some(word) = self.words.words().get(record.0 as usize * 2) {
            prefetch(word);
        }
    }

    /// Prefetches the other lines of a record, whose length is read from its first.
    #[inline]
    pub fn prefetch_rest(&self, record: RecordRef) {
        let first = record.0 as usize * 2;
        let Some(stamp) = self.words.words().get(first + 1) else { return };
        let bytes = RECORD_HEADER_BYTES + (stamp.load(Ordering::Relaxed) & LENGTH_MASK) as usize;
        let lines = (bytes / LINE_BYTES).min(LINES_AHEAD_MAX);
        for line in 1..=lines {
            if let Some(word) = self.words.words().get(first + line * LINE_BYTES / 8) {
                prefetch(word);
            }
        }
    }

    /// The record's first word, for the lock manager's thin form.
    #[inline]
    pub fn lock_word(&self, record: RecordRef) -> &AtomicU64 {
        self.word(record, 0)
    }

    /// The slot's size in units, header included.
    pub fn units(&self, record: RecordRef) -> usize {
        self.record(record).units()
    }

    /// The longest body that the slot can hold, in bytes.
    pub fn room(&self, record: RecordRef) -> usize {
        self.record(record).room()
    }

    /// Whether the slot holds no committed row: it is free, or being inserted, or reserved for a move.
    pub fn is_absent(&self, record: RecordRef) -> bool {
        self.record(record).is_absent()
    }

    /// Whether the slot is on a free list.
    pub fn is_free(&self, record: RecordRef) -> bool {
        self.word(record, 0).load(Ordering::Relaxed) & FREE != 0
    }

    /// Whether the record is not locked in its word.
    pub fn is_unlocked(&self, record: RecordRef) -> bool {
        self.word(record, 0).load(Ordering::Relaxed) & THIN_LOCK_MASK == 0
    }

    /// Whether the slot is on a free list and not locked as the record that it was.
    pub fn is_free_of_locks(&self, record: RecordRef) -> bool {
        self.word(record, 0).load(Ordering::Acquire) & (THIN_LOCK_MASK | FREE) == FREE
    }

    /// The version in the slot's word; freeing the slot moves it on.
    pub fn version(&self, record: RecordRef) -> u64 {
        self.word(record, 0).load(Ordering::Relaxed) / VERSION_ONE
    }

    /// The place of the record's last writer.
    pub fn lsn(&self, record: RecordRef) -> Lsn {
        self.record(record).lsn()
    }

    /// Copies the body into `out`. The caller holds the record's lock, or its segment's latch.
    pub fn read(&self, record: RecordRef, out: &mut Vec<u8>) {
        let words = self.record(record);
        words.read(words.length(), out);
    }

    /// `N` bytes of the body at `offset`, at most 8. The caller holds the record's lock, and the body has them.
    #[inline]
    pub fn field<const N: usize>(&self, record: RecordRef, offset: usize) -> [u8; N] {
        self.record(record).field(offset)
    }

    /// The record's words.
    #[inline]
    pub fn record(&self, record: RecordRef) -> StoredRow<'_> {
        StoredRow::at(self.words.words(), record.0 as usize * 2)
    }

    /// Puts a whole committed row into the slot, written at `lsn`. The body fits ([`Segments::room`]).
    pub fn write(&self, record: RecordRef, body: &[u8], lsn: Lsn) {
        let latched = self.latch(record.segment());
        self.begin_change(&latched, record.segment());
        announce_write();
        let words = self.record(record);
        words.put(body);
        words.finish_write(body.len(), lsn);
    }

    /// Changes byte ranges of a committed body, written at `lsn`.
    #[inline]
    pub fn patch<'p>(
        &self,
        record: RecordRef,
        patches: impl IntoIterator<Item = (usize, &'p [u8])>,
        lsn: Lsn,
    ) {
        let latched = self.latch(record.segment());
        self.begin_change(&latched, record.segment());
        announce_write();
        let words = self.record(record);
        let length = words.length();
        for (offset, bytes) in patches {
            assert!(offset + bytes.len() <= length, "a patch passes the end of its row");
            words.patch(offset, bytes);
        }
        words.finish_write(length, lsn);
    }

    /// Does operations on fields of a committed body, written at `lsn`, all under one hold of the latch.
    pub(crate) fn operate<'p>(
        &self,
        record: RecordRef,
        changes: impl IntoIterator<Item = (usize, FieldChange<'p>)>,
        lsn: Lsn,
    ) {
        let latched = self.latch(record.segment());
        self.begin_change(&latched, record.segment());
        announce_write();
        let words = self.record(record);
        let length = words.length();
        for (offset, change) in changes {
            assert!(offset + change.len() <= length, "an operation passes the end of its row");
            let (mut sum2, mut sum4, mut sum8);
            let bytes: &[u8] = match change {
                FieldChange::Set(bytes) => bytes,
                FieldChange::Add { length: 2, .. } if !fault_injection::is_on("short-sums-carry") => {
                    sum2 = words.field::<2>(offset);
                    change.apply(&mut sum2);
                    &sum2
                }
                FieldChange::Add { length: 4, .. } => {
                    sum4 = words.field::<4>(offset);
                    change.apply(&mut sum4);
                    &sum4
                }
                FieldChange::Add { .. } => {
                    sum8 = words.field::<8>(offset);
                    change.apply(&mut sum8);
                    &sum8
                }
            };
            words.patch(offset, bytes);
        }
        words.finish_write(length, lsn);
    }

    /// Marks a slot as absent and free: its row is gone, or never came. Its heap, which lists it, calls this.
    pub fn vacate(&self, record: RecordRef) {
        let latched = self.latch(record.segment());
        let word = self.word(record, 0);
        if word.load(Ordering::Relaxed) & ABSENT == 0 {
            self.begin_change(&latched, record.segment());
        } else {
            self.mark_dirty(&latched);
        }
        word.fetch_or(ABSENT | FREE, Ordering::AcqRel);
        word.fetch_add(VERSION_ONE, Ordering::AcqRel);
    }

    /// Cuts a free slot to `units` and returns the rest as a free slot of its own, if the rest is large enough.
    pub fn split(&self, record: RecordRef, units: usize) -> Option<RecordRef> {
        let latched = self.latch(record.segment());
        let capacity = self.units(record);
        let left = capacity - units;
        if left < SLOT_UNITS_MIN {
            return None;
        }
        let rest = RecordRef(record.0 + units as u64);
        // A reader without a lock that sees these words, where bytes of the freed row were, also sees the slot's later
        // version.
        announce_write();
        self.word(rest, 0).store(ABSENT | FREE | (left as u64) << CAPACITY_SHIFT, Ordering::Relaxed);
        self.word(rest, 1).store(0, Ordering::Relaxed);
        self.word(record, 1).store(0, Ordering::Relaxed);
        let cut = ((capacity - units) as u64) << CAPACITY_SHIFT;
        self.word(record, 0).fetch_sub(cut, Ordering::AcqRel);
        self.mark_dirty(&latched);
        Some(rest)
    }

    /// Takes a slot off the free list: it is absent, not free, and holds its placeholder as after [`Segments::extend`].
    pub fn reclaim(&self, record: RecordRef, placeholder: &[u8]) {
        let _latched = self.latch(record.segment());
        self.word(record, 0).fetch_and(!FREE, Ordering::AcqRel);
        // A reader without a lock that sees a byte of the placeholder also sees the version that the slot got when it
        // was freed.
        announce_write();
        self.record(record).put_placeholder(placeholder);
    }

    /// Removes the lock bits, which must not survive a crash, from a slot that was read from a backup. An absent slot
    /// becomes free. Returns whether the slot holds a row.
    pub fn settle_after_load(&self, record: RecordRef) -> bool {
        let word = self.word(record, 0);
        // Read first, because an exchange costs more than all else that is done for a row.
        if word.load(Ordering::Relaxed) & THIN_LOCK_MASK != 0 {
            word.fetch_and(!THIN_LOCK_MASK, Ordering::Relaxed);
        }
        if word.load(Ordering::Relaxed) & ABSENT != 0 {
            word.fetch_or(FREE, Ordering::Relaxed);
            return false;
        }
        true
    }
}

fn wait_for_latch(latch: &AtomicBool) {
    let _waiting = LatchWait::begin();
    let backoff = Backoff::new();
    loop {
        while latch.load(Ordering::Relaxed) {
            backoff.snooze();
        }
        if !latch.swap(true, Ordering::Acquire) {
            return;
        }
    }
}

mod cut;
mod paint;
#[cfg(test)]
mod tests;

pub use cut::{SegmentVisit, Swept};
