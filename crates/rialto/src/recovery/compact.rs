//! Compaction: the rows of a table's sparse segments move together into fresh ones.
//!
//! The log does not say in which segment a row lies. Transactions that ran side by side filled segments of their own;
//! when the rows of one were deleted, its segments became free. Redo puts the rows of all of them in turn into the same
//! segments, and none becomes free. So a recovery may need twice as many segments as the database had, or more, for
//! rows that fit into its memory.
//!
//! A row that moves keeps its [`Lsn`](crate::ids::Lsn), by which redo tells whether the row already has a change. Both
//! segments count as changed, so the next sweep of either copy writes them.

use super::table::RedoTable;
use crate::row::Key;
use crate::store::memory::segments::UNITS_PER_SEGMENT;
use crate::store::memory::{RecordRef, SEGMENT_BYTES, SegmentId, Unclaimed};

/// A segment is left as it is if its rows take this many eighths of what inserts fill.
const FULL_EIGHTHS: u64 = 7;

/// A compaction may take this many segments beyond the room that there is, because it gives back the segments that it
/// empties one after the other.
const AHEAD: u64 = 4;

impl RedoTable {
    /// Compacts the table. Returns the number of segments that this has freed, less those that it has taken. No other
    /// thread uses the table meanwhile, and only the primary index leads to its rows.
    pub fn compact(&self) -> u64 {
        let before = self.heap.owned().len();
        let sparse = self.sparse_segments();
        if sparse.len() < 2 {
            return 0;
        }
        self.heap.withdraw(&sparse.iter().copied().collect());
        let budget = self.heap.segments().budget();
        budget.add_reserve(AHEAD * SEGMENT_BYTES as u64);
        let (mut left, mut key) = (sparse.into_iter(), Key::new());
        for id in left.by_ref() {
            if !self.move_rows_out(id, &mut key) {
                self.heap.readmit(id);
                break;
            }
            self.heap.give_back_withdrawn(id);
        }
        left.for_each(|id| self.heap.readmit(id));
        budget.take_off_reserve(AHEAD * SEGMENT_BYTES as u64);
        before.saturating_sub(self.heap.owned().len()) as u64
    }

    /// The segments that are not full, the emptiest first.
    fn sparse_segments(&self) -> Vec<SegmentId> {
        let full = UNITS_PER_SEGMENT * u64::from(self.description.fill_percent) / 100;
        let with_units = self.heap.owned().into_iter().map(|id| (self.units_of_rows(id), id));
        let mut sparse: Vec<_> = with_units.filter(|(units, _)| *units <= full / 8 * FULL_EIGHTHS).collect();
        sparse.sort_unstable();
        sparse.into_iter().map(|(_, id)| id).collect()
    }

    fn rows_in(&self, id: SegmentId) -> impl Iterator<Item = RecordRef> {
        let segments = self.heap.segments();
        // Redo and the load have validated these slots.
        segments.slots(id).map_while(Result::ok).filter(|&slot| !segments.is_absent(slot))
    }

    fn units_of_rows(&self, id: SegmentId) -> u64 {
        self.rows_in(id).map(|row| self.heap.segments().units(row) as u64).sum()
    }

    /// Moves the rows of a segment out. False: there is no room left for one of them.
    fn move_rows_out(&self, id: SegmentId, key: &mut Key) -> bool {
        let (segments, mut body) = (self.heap.segments(), Vec::new());
        for row in self.rows_in(id) {
            segments.read(row, &mut body);
            let Some(to) = self.heap.allocate(0, body.len(), &mut Unclaimed) else { return false };
            segments.write(to, &body, segments.lsn(row));
            self.key_of(&body, key);
            let is_moved = self.primary.replace(key, row.0, to.0);
            assert!(is_moved, "a row that is there is in its table's index");
            segments.vacate(row);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::commit::redo as records;
    use crate::ids::Lsn;
    use crate::io::Random;
    use crate::recovery::table::{At, Scratch};
    use crate::recovery::tests::one_table;

    /// Rows of many lengths, most of which are deleted. Then all remaining rows are where the index says, with their
    /// `Lsn`s, and lie in fewer segments, which take new rows.
    #[test]
    fn rows_that_move_are_found_at_their_places() {
        let seed = Random::seed_from_environment();
        let mut random = Random::new(seed);
        println!("RIALTO_SEED={seed}");
        let one = one_table(64 << 20, 90);
        let (table, mut scratch) = (&one.table, Scratch::new(0));
        let redo = |bytes: &[u8], lsn: u64, scratch: &mut Scratch| {
            let record = records::read(bytes).next().unwrap().unwrap();
            assert!(table.redo(At { lsn: Lsn(lsn), finds_rows: true }, &record, scratch).unwrap());
        };
        let mut rows = BTreeMap::new();
        for lsn in 1..4_000_u64 {
            let (id, length) = (format!("{lsn:06}"), 100 + random.below(3_000) as usize);
            redo(&one.put(&id, length), lsn, &mut scratch);
            rows.insert(id, (lsn, length));
        }
        for lsn in 4_000..7_000_u64 {
            let nth = random.below(rows.len() as u64) as usize;
            let id = rows.keys().nth(nth).unwrap().clone();
            let (_, length) = rows.remove(&id).unwrap();
            let mut delete = Vec::new();
            records::write_delete(&mut delete, table.description.id, &one.row(&id, length).1);
            redo(&delete, lsn, &mut scratch);
        }
        let before = table.heap.owned().len() as u64;
        let freed = table.compact();
        assert!(freed > before / 2, "{freed} of {before}");
        assert_eq!(table.heap.owned().len() as u64, before - freed);
        assert!(table.compact() <= 1, "there is nothing left to move");
        let are_there = |rows: &BTreeMap<String, (u64, usize)>| {
            let mut body = Vec::new();
            for (id, (lsn, length)) in rows {
                let (row, key) = one.row(id, *length);
                let record = RecordRef(table.primary.get(&key).value.expect(id));
                table.heap.segments().read(record, &mut body);
                assert_eq!((&body, table.heap.segments().lsn(record)), (&row, Lsn(*lsn)), "{id}");
            }
        };
        are_there(&rows);
        let all: u64 = table.heap.owned().iter().map(|&id| table.rows_in(id).count() as u64).sum();
        assert_eq!((all, table.heap.rows()), (rows.len() as u64, rows.len() as u64));
        for lsn in 7_000..9_000_u64 {
            let (id, length) = (format!("{lsn:06}"), 100 + random.below(3_000) as usize);
            redo(&one.put(&id, length), lsn, &mut scratch);
            rows.insert(id, (lsn, length));
        }
        are_there(&rows);
    }

    /// A table whose segments are full stays as it is.
    #[test]
    fn full_segments_stay() {
        let one = one_table(64 << 20, 100);
        let mut scratch = Scratch::new(0);
        for lsn in 1..1_000_u64 {
            let bytes = one.put(&format!("{lsn:06}"), 1_000);
            let record = records::read(&bytes).next().unwrap().unwrap();
            assert!(one.table.redo(At { lsn: Lsn(lsn), finds_rows: true }, &record, &mut scratch).unwrap());
        }
        assert_eq!(one.table.compact(), 0);
    }
}
