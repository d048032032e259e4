//! What an abort takes back, and what a commit makes of the claims once it has its place. Both change what was claimed only, and read
//! nothing (I10).

use super::super::fingers::Fingers;
use super::super::long_body::{LongBody, part_key};
use super::super::page_access::PageAccess;
use super::super::paged_tree::{LatchedEntry, RowTree};
use super::PagedTable;
use crate::error::Result;
use crate::ids::Lsn;
use crate::row::WhichIndex;
use crate::store::RowLocation;
use crate::store::tree::{EntryMarks, parts_of_taken_over};

/// The result of a step that changes claimed entries only: it reads no page, and needs no frame.
fn in_memory<T>(done: Result<T>) -> T {
    done.unwrap_or_else(|error| unreachable!("a claimed entry is in memory: {error}"))
}

/// Changes an entry that is claimed, so that its page is in memory. False: it is not there.
fn change_claimed(
    tree: &dyn RowTree,
    fingers: &Fingers,
    key: &[u8],
    work: &mut dyn FnMut(&mut dyn LatchedEntry),
) -> bool {
    tree.change_in_memory(fingers, key, work).unwrap_or_else(|| unreachable!("a claimed entry is in memory"))
}

/// The row of an entry that is taken over.
pub(super) fn both(earlier: &[u8], now: &[u8]) -> Vec<u8> {
    let length = (earlier.len() as u16).to_le_bytes();
    [&length, earlier, now].concat()
}

/// The primary key that an entry leads to.
pub(super) fn present_key<'r>(entry: &dyn LatchedEntry, row: &'r mut Vec<u8>) -> &'r [u8] {
    row.clear();
    entry.read(row);
    let row: &'r [u8] = row;
    if entry.at().marks.taken_over { parts_of_taken_over(row).1 } else { row }
}

/// What an abort does. It reads nothing.
impl PagedTable {
    /// Ends the claim of a row.
    pub fn unclaim_row(&self, key: &[u8]) {
        if let Some(long) = self.unclaim_in_line(key) {
            self.unclaim_parts(long, self.parts_of(long));
        }
    }

    pub(super) fn unclaim_in_line(&self, key: &[u8]) -> Option<LongBody> {
        let (mut row, mut is_long) = (Vec::new(), false);
        change_claimed(&*self.primary, &Fingers::none(), key, &mut |entry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed: false, ..marks });
            is_long = marks.overflow;
            row.clear();
            entry.read(&mut row);
        });
        is_long.then(|| LongBody::of_row(&row))
    }

    pub(super) fn unclaim_parts(&self, long: LongBody, parts: usize) {
        (0..parts).for_each(|part| in_memory(self.mark_part(&PageAccess::plain(), long, part, false)));
    }

    /// Ends the claim of an entry.
    pub fn unclaim_entry(&self, position: usize, entry: &[u8]) {
        change_claimed(self.secondary(position), &Fingers::none(), entry, &mut |entry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed: false, ..marks });
        });
    }

    /// Removes a placeholder.
    pub fn take_back(&self, which: WhichIndex, key: &[u8]) {
        in_memory(self.tree(which).remove(&PageAccess::plain(), key, None));
    }

    /// Points an entry that was taken over back to the row of this key, which had taken it over itself, or not.
    pub fn give_back(&self, position: usize, entry: &[u8], (primary, had_taken): (&[u8], bool)) {
        change_claimed(self.secondary(position), &Fingers::none(), entry, &mut |entry| {
            let marks = entry.at().marks;
            let mut row = Vec::new();
            entry.read(&mut row);
            let earlier = parts_of_taken_over(&row).0;
            match had_taken {
                true => entry.set(&both(earlier, primary), marks),
                false => entry.set(primary, EntryMarks { taken_over: false, ..marks }),
            }
        });
    }

    /// Frees a body that no row has: a reserved one, or, at a commit, one that its row has left. (A body in the primary
    /// tree goes with its entry.)
    pub fn release(&self, location: RowLocation) {
        let Some((number, parts)) = location.of_long_body() else { return };
        for part in 0..parts {
            in_memory(self.long_bodies.remove(&PageAccess::plain(), &part_key(number, part), None));
        }
    }
}

/// What a commit does once it has its place. It changes what was claimed only, and reads nothing (I10).
impl PagedTable {
    /// Reads the body of a row that is claimed.
    pub fn read_claimed(&self, key: &[u8], body: &mut Vec<u8>) {
        let is_there = in_memory(self.read(&PageAccess::plain(), key, body));
        assert!(is_there, "a row that a transaction has claimed is there");
    }

    /// Puts a body to its location, which has room for it, and ends the claim of its row.
    pub fn put(&self, fingers: &Fingers, key: &[u8], location: RowLocation, body: &[u8], lsn: Lsn) {
        let long;
        let (row, marks) = match location.of_long_body() {
            None => (body, EntryMarks::default()),
            Some((number, _)) => {
                for (part, bytes) in body.chunks(self.part_bytes()).enumerate() {
                    let key = part_key(number, part);
                    let is_there = change_claimed(&*self.long_bodies, fingers, &key, &mut |entry| {
                        entry.set(bytes, EntryMarks::default());
                    });
                    assert!(is_there, "part {part} of a long body is reserved");
                }
                long = LongBody { number, bytes: body.len() as u32 }.row();
                (&long[..], EntryMarks { overflow: true, ..EntryMarks::default() })
            }
        };
        let is_there = change_claimed(&*self.primary, fingers, key, &mut |entry| {
            entry.set(row, marks);
            entry.note_writer(lsn);
        });
        assert!(is_there, "the row of a write is claimed");
    }

    /// Changes byte ranges of a body in the primary tree, and ends the claim of its row.
    pub fn patch<'p>(
        &self,
        fingers: &Fingers,
        key: &[u8],
        mut patches: impl Iterator<Item = (usize, &'p [u8])>,
        lsn: Lsn,
    ) {
        let is_there = change_claimed(&*self.primary, fingers, key, &mut |entry| {
            patches.by_ref().for_each(|(offset, bytes)| entry.patch(offset, bytes));
            entry.set_marks(EntryMarks::default());
            entry.note_writer(lsn);
        });
        assert!(is_there, "the row of a write is claimed");
    }

    /// Removes a row. Its body, if it is a long one, is [released](PagedTable::release) by itself.
    pub fn remove_row(&self, key: &[u8], lsn: Lsn) {
        in_memory(self.primary.remove(&PageAccess::plain(), key, Some(lsn)));
    }

    /// Ends the claim of an entry that leads to this row: from now on it is the row's. An entry that another row has taken
    /// over stays as it is, and so does one that is settled already.
    pub fn settle(&self, position: usize, entry: &[u8], primary: &[u8], lsn: Lsn) {
        self.change_claimed(position, entry, primary, &mut |entry| {
            entry.set(primary, EntryMarks::default());
            entry.note_writer(lsn);
        });
    }

    /// Removes an entry that leads to this row. An entry that another row has taken over, or that is settled, stays.
    pub fn remove_entry(&self, position: usize, entry: &[u8], primary: &[u8], lsn: Lsn) {
        if self.change_claimed(position, entry, primary, &mut |_| {}) {
            in_memory(self.secondary(position).remove(&PageAccess::plain(), entry, Some(lsn)));
        }
    }

    /// Changes an entry if it leads to this row and is claimed. One that is not in memory is not claimed.
    fn change_claimed(
        &self,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> bool {
        let (mut is_own, mut row) = (false, Vec::new());
        self.secondary(position).change_in_memory(&Fingers::none(), entry, &mut |entry| {
            is_own = entry.at().marks.claimed && present_key(&*entry, &mut row) == primary;
            if is_own {
                work(entry);
            }
        });
        is_own
    }
}
