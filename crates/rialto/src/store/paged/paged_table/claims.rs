//! What operations do before the commit: claims and placeholders. Each may read the disk.

use std::sync::atomic::Ordering;

use super::super::long_body::{LongBody, part_key};
use super::super::page_access::PageAccess;
use super::super::paged_tree::{LatchedEntry, RowTree};
use super::PagedTable;
use super::ending::{both, present_key};
use crate::error::{Error, Result};
use crate::store::RowLocation;
use crate::store::tree::{Admit, EntryMarks, InsertRow, NewRow, parts_of_taken_over};

/// A row that is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimedRow {
    /// Whether it was not claimed before.
    pub is_new: bool,
    /// The bytes that its entry in the primary tree has room for, as long as it is claimed.
    room: usize,
}

/// The result of putting an entry into a secondary index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnteredInPages {
    Done,
    /// The key leads to this row already; nothing changed.
    Own,
    /// The key leads to another row; nothing changed.
    Other,
    /// A lock on an interval forbids the entry; nothing changed.
    Refused,
}

impl PagedTable {
    /// Reserves a body of so many bytes for a row of this key: where it will be.
    pub fn reserve(&self, by: &PageAccess, key: &[u8], length: usize) -> Result<RowLocation> {
        if self.is_in_line(key, length) {
            return Ok(RowLocation::IN_LINE);
        }
        let number = self.last_long.fetch_add(1, Ordering::Relaxed) + 1;
        for (part, from) in (0..length).step_by(self.part_bytes()).enumerate() {
            let room = (length - from).min(self.part_bytes());
            let row = NewRow { bytes: &[], room, marks: EntryMarks::PLACEHOLDER };
            if let Err(error) =
                self.long_bodies.insert(by, &part_key(number, part), &row, &mut || Admit::GoAndUnguard)
            {
                self.release(RowLocation::long_body(number, part));
                return Err(error);
            }
        }
        Ok(RowLocation::long_body(number, length.div_ceil(self.part_bytes())))
    }

    /// Makes places for pages that a row with such a body may make, and brings the page to memory into which
    /// [`PagedTable::reserve`] will put the body, if that is not in the row.
    pub fn fetch_room(&self, by: &PageAccess, key: &[u8], length: usize) -> Result<()> {
        self.primary.get_room(by)?;
        if self.is_in_line(key, length) {
            return Ok(());
        }
        let next = self.last_long.load(Ordering::Relaxed) + 1;
        self.long_bodies.find(by, &part_key(next, 0)).map(drop)
    }

    /// Puts a placeholder for a row with a reserved body of so many bytes into the primary tree, if its key is absent.
    pub fn enter_row(
        &self,
        by: &PageAccess,
        key: &[u8],
        (location, length): (RowLocation, usize),
        mut admit: impl FnMut() -> Admit,
    ) -> Result<InsertRow> {
        let room = if location == RowLocation::IN_LINE { length } else { LongBody::BYTES };
        let row = NewRow { bytes: &[], room, marks: EntryMarks::PLACEHOLDER };
        self.primary.insert(by, key, &row, &mut admit)
    }

    /// Reserves another body of so many bytes for a claimed row, whose body is at `record`. `None`: it stays there.
    pub fn reserve_again(
        &self,
        by: &PageAccess,
        key: &[u8],
        (record, claimed): (RowLocation, ClaimedRow),
        length: usize,
    ) -> Result<Option<RowLocation>> {
        let location = self.reserve(by, key, length)?;
        let is_in_line = location == RowLocation::IN_LINE;
        let room = if is_in_line { length } else { LongBody::BYTES };
        if room > claimed.room
            && let Err(error) = self.primary.enlarge(by, key, room)
        {
            self.release(location);
            return Err(error);
        }
        Ok(Some(location).filter(|_| !is_in_line || record != location))
    }

    /// Claims the row of a locked key, if there is one.
    pub fn claim_row(&self, by: &PageAccess, key: &[u8]) -> Result<ClaimedRow> {
        let (mut row, mut is_new, mut is_long, mut room) = (Vec::new(), false, false, 0);
        self.primary.change(by, key, &mut |entry| {
            let marks = entry.at().marks;
            (is_new, is_long) = (!marks.claimed, marks.overflow);
            room = entry.at().room_bytes();
            if is_new {
                entry.set_marks(EntryMarks { claimed: true, ..marks });
            }
            row.clear();
            if is_long {
                entry.read(&mut row);
            }
        })?;
        if is_new
            && is_long
            && let Err(error) = self.claim_parts(by, LongBody::of_row(&row))
        {
            self.unclaim_in_line(key);
            return Err(error);
        }
        Ok(ClaimedRow { is_new, room })
    }

    fn claim_parts(&self, by: &PageAccess, long: LongBody) -> Result<()> {
        for part in 0..self.parts_of(long) {
            if let Err(error) = self.mark_part(by, long, part, true) {
                self.unclaim_parts(long, part);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn mark_part(
        &self,
        by: &PageAccess,
        long: LongBody,
        part: usize,
        claimed: bool,
    ) -> Result<()> {
        let mark = &mut |entry: &mut dyn LatchedEntry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed, ..marks });
        };
        self.long_bodies.change(by, &part_key(long.number, part), mark).map(drop)
    }

    /// Claims the entry of a locked row in a secondary index. False: it was claimed already, or leads elsewhere.
    pub fn claim_entry(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
    ) -> Result<bool> {
        let mut is_new = false;
        self.change_own(by, position, entry, primary, &mut |entry| {
            let marks = entry.at().marks;
            is_new = !marks.claimed;
            if is_new {
                entry.set_marks(EntryMarks { claimed: true, ..marks });
            }
        })?;
        Ok(is_new)
    }

    /// Changes an entry if it leads to this row.
    fn change_own(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Result<bool> {
        let mut is_own = false;
        let mut row = Vec::new();
        self.secondary(position).change(by, entry, &mut |entry| {
            is_own = present_key(&*entry, &mut row) == primary;
            if is_own {
                work(entry);
            }
        })?;
        Ok(is_own)
    }

    /// Puts a placeholder for an entry of a locked row into a secondary index, if the key is absent.
    pub fn enter(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        mut admit: impl FnMut() -> Admit,
    ) -> Result<EnteredInPages> {
        let row = NewRow { bytes: primary, room: primary.len(), marks: EntryMarks::PLACEHOLDER };
        check_room(self.secondary(position), entry, primary.len())?;
        loop {
            match self.secondary(position).insert(by, entry, &row, &mut admit)? {
                InsertRow::Done => return Ok(EnteredInPages::Done),
                InsertRow::Refused => return Ok(EnteredInPages::Refused),
                InsertRow::Exists(_) => {}
            }
            let mut there = Vec::new();
            let (_, is_there) = self.follow_to_key(by, position, entry, &mut there)?;
            match is_there {
                true if there == primary => return Ok(EnteredInPages::Own),
                true => return Ok(EnteredInPages::Other),
                // It has gone meanwhile.
                false => {}
            }
        }
    }

    /// Points a claimed entry from another row of the same transaction, which gives its key up, to this row. Gives the
    /// primary key of the other row, and whether that had taken the entry over, too.
    pub fn take_over(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
    ) -> Result<(Vec<u8>, bool)> {
        let (mut before, tree) = (Vec::new(), self.secondary(position));
        self.follow_to_key(by, position, entry, &mut before)?;
        let mut earlier = Vec::new();
        let found = tree.get(by, entry, &mut earlier)?;
        let is_again = found.marks.is_some_and(|marks| marks.taken_over);
        if is_again {
            earlier = parts_of_taken_over(&earlier).0.to_vec();
        }
        let room = 2 + earlier.len() + primary.len();
        check_room(tree, entry, room)?;
        tree.enlarge(by, entry, room)?;
        tree.change(by, entry, &mut |entry| {
            let marks = entry.at().marks;
            let mut row = Vec::new();
            entry.read(&mut row);
            let earlier = if marks.taken_over { parts_of_taken_over(&row).0 } else { &row[..] };
            entry.set(&both(earlier, primary), EntryMarks { taken_over: true, claimed: true, ..marks });
        })?;
        Ok((before, is_again))
    }
}

/// An error if an entry of a secondary index cannot have a row of so many bytes.
pub(in crate::store::paged) fn check_room(tree: &dyn RowTree, entry: &[u8], bytes: usize) -> Result<()> {
    if bytes <= tree.row_bytes_max(entry.len()) {
        return Ok(());
    }
    let what = format!(
        "an index entry with a key of {} bytes and primary keys of {bytes} bytes in pages of this size",
        entry.len()
    );
    Err(Error::Unsupported { what })
}
