//! Reading without locks, for transactions that only read.
//!
//! A reader notes each record's word and each leaf that it relies on, and checks all of them again. A word must have
//! the same version, and no exclusive lock, both when the record is read and at the end; a leaf must be unchanged. This
//! is as good as locks (I7), since a writer holds its exclusive locks from before its place until it has applied
//! everything:
//!
//! - what was read was committed, and all of it was present at one moment, the end of the last read;
//! - a writer of which a part was seen (a record, or a removal from an index) had either applied all of itself by that
//!   moment, or still held its locks when the words were checked again.
//!
//! Readers write nothing that others share. A reader whose check fails is *invalidated*: it runs again, with locks. All
//! reads are checked again after each of the first reads, and later each time that their number has doubled, so that a
//! body does not go on for long with reads that do not fit together. A reader that chooses to write is no longer a
//! reader ([`Context::read_locked`]).

use super::context::Context;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::isolate::ThinWord;
use crate::row::WhichIndex;
use crate::store::{Found, Leaf, RowLocation, SeenRow, TableVersion, Unlocked};

/// Up to this many reads, all are checked again after each.
const LOOKED_AT_EACH: usize = 8;

/// A transaction with more reads goes on with locks.
const READS_MAX: usize = 4_096;

/// How often a record that changes while it is read is read again.
const TRIES: u32 = 3;

/// What a transaction has read without locks.
#[derive(Default)]
pub(crate) struct UnlockedReads {
    active: bool,
    invalidated: bool,
    records: Vec<SeenRow>,
    /// Leaves of the indexes of tables; the number is the table's position in the transaction's list of tables.
    leaves: Vec<(u32, WhichIndex, Leaf)>,
}

impl UnlockedReads {
    /// Whether the transaction reads without locks.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Whether it has read one row and no leaf.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.records.len() == 1 && self.leaves.is_empty()
    }

    /// Reads the row that a probe has found into `body`, and notes it. `None`, and nothing noted, where another
    /// transaction has it locked or changes it.
    #[inline(always)]
    pub fn read_found(
        &mut self,
        table: &TableVersion,
        found: &Found,
        depends: &mut Lsn,
        body: &mut Vec<u8>,
    ) -> Option<()> {
        let entry = (WhichIndex::Primary, &found.leaf);
        let is_exclusive = ThinWord::is_exclusive;
        let read = table.store.read_unlocked(entry, found.location()?, is_exclusive, body);
        let Unlocked::Read(seen, lsn) = read else { return None };
        *depends = (*depends).max(lsn).max(table.floor());
        self.records.push(seen);
        Some(())
    }

    /// Whether it has found that its reads are invalidated.
    pub fn runs_again(&self) -> bool {
        self.invalidated
    }
}

impl Context {
    /// Begins to read without locks, or ends it.
    pub fn read_unlocked(&mut self, active: bool) {
        let reads = &mut self.reads;
        reads.active = active && self.core.locks.keeps_locks_in_records();
        reads.invalidated = false;
        reads.records.clear();
        reads.leaves.clear();
    }

    /// From now on the transaction locks what it reads, so that it may write: its place has to agree with what it has
    /// read (I2), and reads that are only checked at the end are valid as of the last check, which comes before the
    /// place. A transaction that has read without locks runs again.
    pub fn read_locked(&mut self) -> Result<()> {
        let reads = &mut self.reads;
        if reads.invalidated || !reads.records.is_empty() || !reads.leaves.is_empty() {
            return self.invalidate();
        }
        reads.active = false;
        Ok(())
    }

    /// Whether another transaction has changed what this one has read without locks, so that it has to run again. It is
    /// asked at the end, however the transaction ends.
    pub fn is_invalidated(&mut self) -> bool {
        if self.reads.active && !self.reads.invalidated {
            self.reads.invalidated = !self.reads_hold();
        }
        self.reads.invalidated
    }

    fn reads_hold(&self) -> bool {
        fault_injection::is_on("no-second-look")
            || self
                .reads
                .records
                .iter()
                .all(|seen| self.core.storage.is_as_seen(seen, ThinWord::is_exclusive))
                && self
                    .reads
                    .leaves
                    .iter()
                    .all(|(slot, which, leaf)| self.tables.at(*slot).store.unchanged(*which, leaf))
    }

    #[cold]
    pub fn invalidate<T>(&mut self) -> Result<T> {
        self.reads.invalidated = true;
        let waiting_for = "nothing: it has read without locks, and runs again with them".to_owned();
        let error = Error::Deadlock { waiting_for };
        self.doom(error.clone());
        Err(error)
    }

    pub fn recheck(&mut self) -> Result<()> {
        let reads = self.reads.records.len() + self.reads.leaves.len();
        let due = reads <= LOOKED_AT_EACH || reads.is_power_of_two();
        if reads > READS_MAX || due && !self.reads_hold() { self.invalidate() } else { Ok(()) }
    }

    /// Notes a leaf that a scan has read.
    pub fn note_leaf(&mut self, slot: u32, which: WhichIndex, leaf: Leaf) -> Result<()> {
        self.reads.leaves.push((slot, which, leaf));
        self.recheck()
    }

    /// Reads the row that an index leads to from `entry` (`None`: the key in `self.key`) into `body`; `known` is what a
    /// scan has just read there. False if it leads nowhere.
    pub fn read_row_unlocked(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: Option<&[u8]>,
        mut known: Option<(RowLocation, Leaf)>,
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        for _ in 0..TRIES {
            let floor = self.tables.at(slot).floor();
            let (record, leaf) = match known.take() {
                Some(known) => known,
                None => {
                    let found = self.look_up(slot, which, entry);
                    let Some(record) = found.location() else {
                        self.depend(found.removal.max(floor));
                        self.note_leaf(slot, which, found.leaf)?;
                        return Ok(false);
                    };
                    (record, found.leaf)
                }
            };
            let store = &self.tables.at(slot).store;
            match store.read_unlocked((which, &leaf), record, ThinWord::is_exclusive, body) {
                Unlocked::Read(seen, lsn) => {
                    self.depend(lsn.max(floor));
                    self.reads.records.push(seen);
                    self.recheck()?;
                    return Ok(true);
                }
                Unlocked::Changing => {}
                Unlocked::Locked => break,
            }
        }
        self.invalidate()
    }
}
