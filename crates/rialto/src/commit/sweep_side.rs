//! Which side of a black/white sweep a commit is on (System M, section 3.2).
//!
//! A sweep paints each segment black when it has copied it. The copy has to be the state after some transactions and no
//! others. Therefore each transaction that writes is *white* (all that it read and wrote is unpainted, and stays so
//! until it is applied: the copy has it whole) or *black* (all of it is painted: the copy has nothing of it). A
//! *straddling* transaction is aborted and runs again. A transaction that only reads has no side.
//!
//! **The copy is a state that could have been.** No white transaction comes after a black one in the order of their
//! conflicts: what the black one touched was painted when its side was settled, under its locks, so a transaction that
//! touches it afterwards is not white. That holds for records. Where a black transaction left no record, or found none,
//! there is no paint. There these rules replace it:
//! - *it removed a row, and a later transaction reads that there is none*: the index's removal `Lsn` there is then of a
//!   place at which transactions may have been black already, and the reader is not white. The same holds for what DDL
//!   created or removed;
//! - *it read that there is no row, and a later transaction inserts it*: when the black one was settled, it recorded
//!   that in the index ([`Painting::leave_absences`](crate::store::Painting)), and a transaction that puts an entry
//!   into that index is not white.
//!
//! - *it read a table, and a later transaction changes the table's definition*: DDL is never white.
//!
//! All these rules are conservative: they may abort a transaction that does not straddle.
//!
//! The side is settled at the commit and not before, so an open transaction delays neither the sweep nor other
//! transactions. The segments that a transaction has touched are known from its locks: in the thin form they name
//! records; a table that is locked as a whole counts as touched wholly; in the central form each record is noted as it
//! is read. A transaction that began before reads were to be noted ([`Painting::note_reads`](crate::store::Painting)),
//! and of which not all is known, is straddling.
//!
//! **No transaction starves.** A straddling transaction names the segments that were white, and the sweep paints those
//! next, without a pause. (With [`Options::straddling_hints`](crate::Options::straddling_hints) off, only those do that
//! wait at their commit.) No black segment becomes white again while the sweep lasts. A transaction that touches the
//! same segments again is therefore black once these are painted. A transaction that was aborted
//! [`STRADDLING_RETRIES_MAX`](STRADDLING_RETRIES_MAX) times, or that the engine cannot run again (a handle's), or only
//! at a high cost (DDL), does not abort. It waits at its commit, with its locks held, until its white segments are
//! painted. Before that the sweep writes the segments that other transactions named earlier. The sweep waits for no
//! lock, only for commits that have settled their side.
//!
//! With *action-consistent* checkpoints, an action is the change of one row. It is made under one hold of its segment's
//! latch, so the copy has it wholly or not at all, whatever its side. Only an action that moves its row touches two
//! segments. If their sides differ, the copy might have the row in neither, and the transaction is run again. That is
//! the paper's rule, applied to this notion of an action.

use smallvec::SmallVec;

use crate::fault_injection;
use crate::ids::{IndexId, Lsn};
use crate::store::{Paint, RowLocation, SegmentId, Storage};
use crate::unlikely::unlikely;

/// How often a transaction is aborted for straddling ([`Options::straddling_retry`](crate::Options::straddling_retry))
/// before it waits at its commit instead.
pub const STRADDLING_RETRIES_MAX: u32 = 10;

/// The room of the list of touched segments at first.
const TOUCHED_MIN: usize = 32;

/// A list with more room than this gives its memory back at the end of its transaction.
const TOUCHED_KEPT: usize = 4_096;

/// What a transaction knows of its side.
#[derive(Default)]
pub(crate) struct SweepSide {
    /// Whether reads are noted, as far as locks do not record them.
    pub noted: bool,
    /// Whether this may hold something that the next transaction must not see: reads were noted.
    is_used: bool,
    /// Segments of records that were read, where locks do not name these; each a few times at most.
    pub touched: Vec<SegmentId>,
    /// Indexes in which the transaction has read that there is no row.
    pub absent_in: SmallVec<[IndexId; 4]>,
    /// The transaction has read that there is no row, in an index that is not kept.
    pub absent_anywhere: bool,
    /// The last removal whose gap it has read.
    pub removal: Lsn,
    /// Segments that it holds white.
    pub held: SmallVec<[SegmentId; 16]>,
    /// The sweep whose copy has the transaction: it is white.
    pub held_by: Option<u32>,
}

/// The result of settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The transaction is white or black.
    OneSide,
    /// It is both.
    Straddling,
    /// The sweep waits for one of its segments, which is soon black.
    Later,
}

impl SweepSide {
    /// Begins a new transaction.
    #[inline]
    pub fn begin(&mut self, noted: bool) {
        if unlikely(noted | self.is_used) {
            self.begin_slowly(noted);
        }
    }

    #[cold]
    fn begin_slowly(&mut self, noted: bool) {
        (self.noted, self.is_used) = (noted, noted);
        self.touched.clear();
        if self.touched.capacity() > TOUCHED_KEPT {
            self.touched = Vec::new();
        }
        self.absent_in.clear();
        self.absent_anywhere = false;
        self.removal = Lsn::ZERO;
    }

    /// A record was read.
    #[cold]
    pub fn note_record(&mut self, record: RowLocation) {
        if !record.is_in_pages() {
            self.note_segment(record.segment());
        }
    }

    fn note_segment(&mut self, segment: SegmentId) {
        if self.touched.last() == Some(&segment) {
            return;
        }
        if self.touched.len() == self.touched.capacity() {
            self.note_each_once();
        }
        self.touched.push(segment);
    }

    /// Leaves each segment in the list once, and room for as many again. The list is therefore no longer than a few
    /// times the number of its segments, and a read takes few steps.
    fn note_each_once(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        let many = self.touched.len().max(TOUCHED_MIN);
        self.touched.reserve(many);
    }

    /// Takes over the notes of a part of the transaction.
    pub fn absorb(&mut self, part: &SweepSide) {
        if part.noted {
            self.is_used = true;
            part.touched.iter().for_each(|&segment| self.note_segment(segment));
            part.absent_in.iter().for_each(|&index| self.note_absence(index, part.removal));
            self.absent_anywhere |= part.absent_anywhere;
            self.note_removal(part.removal);
        } else if self.noted {
            // The part began before reads were to be noted, so the notes of the whole transaction are not complete.
            self.noted = false;
        }
    }

    /// The transaction has read that there is no row.
    #[cold]
    pub fn note_absence(&mut self, index: IndexId, removal: Lsn) {
        self.note_removal(removal);
        if !self.absent_in.contains(&index) {
            self.absent_in.push(index);
        }
    }

    /// The transaction has read the gap that this removal left, or an earlier one.
    #[cold]
    pub fn note_removal(&mut self, removal: Lsn) {
        self.removal = self.removal.max(removal);
    }

    /// From now on, some of the absences that were read may not be known.
    pub fn note_anything_absent(&mut self) {
        self.absent_anywhere = self.noted;
    }

    /// The number of indexes in which a row was absent.
    pub fn absences(&self) -> usize {
        self.absent_in.len()
    }

    /// Rows whose absence was read after the first `before` indexes are there now, and have paint of their own.
    pub fn forget_absences_after(&mut self, before: usize) {
        self.absent_in.truncate(before);
    }

    /// Settles the side of some segments together, and holds those that are white, also if the commit straddles.
    pub fn settle(&mut self, of: &Storage, segments: &[SegmentId], is_black: bool) -> Settled {
        let (before, mut black) = (self.held.len(), is_black);
        for &id in segments {
            match of.hold_white(id) {
                Paint::White => self.held.push(id),
                Paint::Black => black = true,
                Paint::Awaited => return Settled::Later,
            }
        }
        if black && self.held.len() > before && !fault_injection::is_on("straddling-commits") {
            Settled::Straddling
        } else {
            Settled::OneSide
        }
    }

    /// Holds no segment white any more: the writes are applied, or will not be.
    pub fn let_go(&mut self, of: &Storage) {
        self.held.drain(..).for_each(|id| of.let_go(id));
        self.held_by = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row in this segment.
    fn row_in(segment: u64) -> RowLocation {
        let row = RowLocation::from_number(segment * 4_096);
        assert_eq!(row.segment(), SegmentId(segment as u32));
        row
    }

    /// Reads of two segments in turn, then of others.
    #[test]
    fn segments_that_are_read_again_and_again_take_room_once() {
        let mut side = SweepSide::default();
        side.begin(true);
        let read = |side: &mut SweepSide, segment: u64| {
            side.note_record(row_in(segment));
        };
        for nth in 0..10_000 {
            read(&mut side, 7 + nth % 2);
        }
        assert!(side.touched.capacity() <= 4 * TOUCHED_MIN, "room for {}", side.touched.capacity());
        for nth in 0..100_000 {
            read(&mut side, nth % 100);
        }
        assert!(side.touched.capacity() <= 8 * 100, "room for {}", side.touched.capacity());
        let mut part = SweepSide::default();
        part.begin(true);
        (50..150).for_each(|segment| read(&mut part, segment));
        (0..100).for_each(|_| side.absorb(&part));
        assert!(side.touched.capacity() <= 8 * 150, "room for {}", side.touched.capacity());
        side.note_each_once();
        assert!(side.touched.iter().map(|segment| segment.0).eq(0..150));
    }

    /// Where only the transaction or only its part was noted, and where both were.
    #[test]
    fn what_a_part_has_read_is_not_the_next_transactions() {
        for (noted, of_part) in [(false, true), (true, false), (true, true)] {
            let (mut side, mut part) = (SweepSide::default(), SweepSide::default());
            side.begin(noted);
            part.begin(of_part);
            let readers = [(&mut side, noted), (&mut part, of_part)];
            for (reader, _) in readers.into_iter().filter(|(_, noted)| *noted) {
                reader.note_record(row_in(7));
                reader.note_absence(IndexId(3), Lsn(5));
            }
            side.absorb(&part);
            assert_eq!(side.noted, noted && of_part);
            assert_eq!((side.touched.len(), side.absences()), (1, 1));
            side.begin(false);
            let left = (side.touched.len(), side.absences(), side.removal);
            assert_eq!(left, (0, 0, Lsn::ZERO), "noted: {noted}, its part: {of_part}");
        }
    }
}
