//! What a bulk load does with a table that no other transaction sees.

use super::super::page_access::PageAccess;
use super::{EnteredInPages, PagedTable};
use crate::error::Result;
use crate::ids::Lsn;
use crate::row::{Key, WhichIndex};
use crate::store::RowLocation;
use crate::store::tree::{Admit, Batch, Direction, Guard, InsertRow, More, ScanRange};

impl PagedTable {
    /// Puts a row with these entries into the table, if no other row has one of them: the position of the first that one has.
    ///
    /// # Errors
    /// Those of the disk; [`Error::CacheFull`](crate::Error::CacheFull);
    /// [`Error::Unsupported`](crate::Error::Unsupported) if an entry has no room in a page. Nothing has changed then.
    pub fn load(
        &self,
        by: &PageAccess,
        key: &[u8],
        body: &[u8],
        entries: &[Key],
    ) -> Result<std::result::Result<(), usize>> {
        let admit = || Admit::GoAndUnguard;
        let location = self.reserve(by, key, body.len())?;
        // As a write and its commit: until all has its place nothing has come that is more than a placeholder.
        let mut entered = Vec::new();
        let mut enter = || {
            match self.enter_row(by, key, (location, body.len()), admit)? {
                InsertRow::Done => entered.push((WhichIndex::Primary, key)),
                other => unreachable!("an absent key has {other:?}"),
            }
            for (position, entry) in entries.iter().enumerate() {
                match self.enter(by, position, entry, key, admit)? {
                    EnteredInPages::Done => entered.push((WhichIndex::Secondary(position), entry)),
                    EnteredInPages::Own | EnteredInPages::Other => return Ok(Err(position)),
                    EnteredInPages::Refused => unreachable!("no other transaction sees the table"),
                }
            }
            Ok(Ok(()))
        };
        let done = enter();
        if !matches!(done, Ok(Ok(()))) {
            entered.iter().for_each(|(which, key)| self.take_back(*which, key));
            self.release(location);
            return done;
        }
        self.put(by.fingers(), key, location, body, Lsn::ZERO);
        for (position, entry) in entries.iter().enumerate() {
            self.settle(position, entry, key, Lsn::ZERO);
        }
        self.count_rows(1);
        done
    }

    /// Takes a row with these entries out again, whose body is at `location`.
    ///
    /// # Errors
    /// Those of the disk; [`Error::CacheFull`](crate::Error::CacheFull). Then a part of it may be left: the table is discarded.
    pub fn unload(&self, by: &PageAccess, key: &[u8], location: RowLocation, entries: &[Key]) -> Result<()> {
        self.claim_row(by, key)?;
        for (position, entry) in entries.iter().enumerate() {
            self.claim_entry(by, position, entry, key)?;
        }
        for (position, entry) in entries.iter().enumerate() {
            self.remove_entry(position, entry, key, Lsn::ZERO);
        }
        self.remove_row(key, Lsn::ZERO);
        self.release(location);
        self.count_rows(-1);
        Ok(())
    }

    /// Gives the bodies of all rows, in the order of their keys. No other thread changes the rows.
    pub fn for_each_row(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (by, mut body) = (PageAccess::plain(), Vec::new());
        let (which, range, mut batch) = (WhichIndex::Primary, ScanRange::ALL, Batch::new());
        loop {
            let more = self.read_leaf(&by, which, &range, Direction::Forward, Guard::Leave, &mut batch)?;
            for (key, _) in batch.iter() {
                if self.read(&by, key, &mut body)? {
                    take(&body)?;
                }
            }
            if more == More::No {
                return Ok(());
            }
        }
    }
}
