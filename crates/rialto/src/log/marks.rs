//! [`Marks`]: where in the stream the packets after some places begin. They tell how much log a redo would read.

use crate::Lsn;
use crate::growth::Growing;

/// The fewest stream bytes from one mark to the next.
const MARK_BYTES: u64 = 256 << 10;

/// Places and positions, both ascending: no packet after a place begins before the position.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(Lsn, u64)>);

impl Marks {
    /// The stream is at `position` after the packet at `lsn`. Noted unless the last mark is near.
    pub(super) fn add(&mut self, lsn: Lsn, position: u64) {
        self.add_apart(lsn, position, MARK_BYTES);
    }

    /// As [`Marks::add`], where a file begins. Noted however near the last mark is, so that files can be freed one by
    /// one.
    pub(super) fn add_file(&mut self, lsn: Lsn, position: u64) {
        self.add_apart(lsn, position, 0);
    }

    fn add_apart(&mut self, lsn: Lsn, position: u64, apart: u64) {
        // Several groups are in flight, and a later one may have been marked already. Its mark serves both.
        let from_last = self.0.last().map_or(Some(u64::MAX), |last| position.checked_sub(last.1));
        if from_last.is_some_and(|bytes| bytes >= apart) {
            let _growing = Growing::begin();
            self.0.push((lsn, position));
        }
    }

    /// The last marked position after which all packets after `lsn` lie, if there is one.
    pub(super) fn position_of(&self, lsn: Lsn) -> Option<u64> {
        let after = self.0.partition_point(|mark| mark.0 <= lsn);
        Some(self.0[after.checked_sub(1)?].1)
    }

    /// Forgets the marks before `oldest`, but for the last of them.
    pub(super) fn forget_before(&mut self, oldest: u64) {
        let stale = self.0.iter().take_while(|mark| mark.1 < oldest).count();
        self.0.drain(..stale.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The writers of groups that are in flight together mark them in any order.
    #[test]
    fn marks_of_groups_in_flight_together_stay_in_order() {
        // The second group is marked first; the third, as large as a mark is wide, by its writer in time.
        let mut marks = Marks::default();
        marks.add_file(Lsn(0), 0);
        marks.add(Lsn(20), 2 * MARK_BYTES);
        marks.add(Lsn(10), MARK_BYTES);
        marks.add(Lsn(30), 3 * MARK_BYTES);
        assert_eq!(marks.0, [(Lsn(0), 0), (Lsn(20), 2 * MARK_BYTES), (Lsn(30), 3 * MARK_BYTES)]);
        let asked =
            [0, 9, 10, 19, 20, 29, 30, 99].map(|lsn| marks.position_of(Lsn(lsn)).unwrap() / MARK_BYTES);
        assert_eq!(asked, [0, 0, 0, 0, 2, 2, 3, 3], "never behind the packet that comes next");
        marks.forget_before(2 * MARK_BYTES + 1);
        assert_eq!(
            marks.0[0],
            (Lsn(20), 2 * MARK_BYTES),
            "the one that tells where the file's packets begin"
        );
        assert_eq!(marks.position_of(Lsn(19)), None);
    }

    #[test]
    fn near_marks_are_left_out_unless_a_file_begins() {
        let mut marks = Marks::default();
        marks.add(Lsn(5), 4096);
        marks.add(Lsn(6), 4096 + MARK_BYTES - 1);
        marks.add_file(Lsn(7), 8192);
        marks.add(Lsn(8), 8192 + MARK_BYTES);
        assert_eq!(marks.0, [(Lsn(5), 4096), (Lsn(7), 8192), (Lsn(8), 8192 + MARK_BYTES)]);
    }
}
