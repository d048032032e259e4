//! Prepared transactions of earlier openings are made again of their records.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::noted_locks::{NotedLock, noted};
use super::record::{PREPARED, PREPARED_NAME, PreparedRecord};
use super::registry::Undecided;
use super::vote::check_may_be_prepared;
use crate::catalog::CATALOG_LOCK;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{IndexId, Lsn, TableId};
use crate::isolate::{LockMode, LockTarget, RecordMode};
use crate::row::{Key, Value, WhichIndex};
use crate::store::Direction;
use crate::store::RowLocation;
use crate::txn::context::Context;
use crate::txn::core::Core;
use crate::txn::options::TxOptions;
use crate::txn::runs::start;
use crate::txn::scan::{ByteScan, Reads, Scan, ScanScratch};

/// Transactions that are prepared again, and not known by their names yet. If this is dropped they are given up until
/// the next opening.
pub(crate) struct TakenAgain(Vec<(String, Undecided)>);

/// A record: its bytes, and how many rows it has.
#[derive(Default)]
struct FoundRecord {
    bytes: Vec<u8>,
    rows: usize,
}

impl TakenAgain {
    /// Makes a transaction of each record in the tables. Each lock is waited for at most this long.
    ///
    /// The writes of all come before the locks that only protect reads: they find the tables as no prepared transaction
    /// has read them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a record that makes no sense; [`Error::Unsupported`] under options that prepared
    /// transactions do not take; the errors of a lock request; [`Error::MemoryLimit`] and those of the disk.
    pub fn take(core: &Arc<Core>, patience: Duration) -> Result<TakenAgain> {
        let until = core.clock.now() + patience;
        loop {
            match TakenAgain::take_once(core, patience) {
                // It is younger than the transactions that read meanwhile.
                Err(Error::Deadlock { .. }) if core.clock.now() < until => {}
                taken => return taken,
            }
        }
    }

    fn take_once(core: &Arc<Core>, patience: Duration) -> Result<TakenAgain> {
        let found = records(core)?;
        if !found.is_empty() {
            check_may_be_prepared(core)?;
        }
        let mut taken = TakenAgain(Vec::new());
        let mut locks = Vec::new();
        for (name, FoundRecord { bytes, rows }) in found {
            let senseless = || senseless(&name, "its bytes make no sense");
            let record = PreparedRecord::decode(&bytes).ok_or_else(senseless)?;
            let options = TxOptions {
                durability: Some(record.durability),
                lock_timeout: Some(patience),
                ..TxOptions::default()
            };
            let mut transaction = start(core, &options, None)?;
            let done = transaction.operate(|context| context.write_again(&name, &record, rows));
            done.map_err(|error| about(&name, error))?;
            let context = transaction.context.take().expect("the transaction is open");
            let note = record.note.to_vec();
            let undecided = Undecided { note, context, rows, is_rolled_back: false, has_room: false };
            locks.push(record.locks.to_vec());
            taken.0.push((name, undecided));
        }
        if !fault_injection::is_on("reads-of-prepared-unlocked") {
            for ((name, undecided), locks) in taken.0.iter_mut().zip(&locks) {
                undecided.context.lock_again(name, locks).map_err(|error| about(name, error))?;
            }
        }
        Ok(taken)
    }

    /// From now on they can be decided. The log takes packets.
    pub fn keep(mut self, core: &Core) {
        for (name, mut undecided) in std::mem::take(&mut self.0) {
            // If there is no room now, it is looked for again when the log has freed some, and by the decision.
            let _ = undecided.reserve(&name);
            undecided.context.outlast_limits();
            core.prepared.put(&name, Box::new(undecided));
        }
        core.prepared.open();
    }
}

impl Drop for TakenAgain {
    fn drop(&mut self) {
        for (_, mut undecided) in self.0.drain(..) {
            undecided.context.abort();
            undecided.context.give_back();
        }
    }
}

fn senseless(name: &str, what: &str) -> Error {
    let what = format!("the record of the prepared transaction \"{name}\": {what}");
    Error::Corrupt { file: PREPARED_NAME.to_owned(), offset: 0, what }
}

/// An error that says about which transaction it is.
fn about(name: &str, error: Error) -> Error {
    match error {
        Error::Corrupt { what, .. } => senseless(name, &what),
        Error::LockTimeout { lock, waited_ms } => Error::LockTimeout {
            lock: format!("{lock}, for the prepared transaction \"{name}\","),
            waited_ms,
        },
        other => other,
    }
}

/// The records in the tables, by name.
fn records(core: &Arc<Core>) -> Result<BTreeMap<String, FoundRecord>> {
    let Some(table) = core.storage.catalog.by_id(PREPARED) else { return Ok(BTreeMap::new()) };
    let mut reader = start(core, &TxOptions { read_only: true, ..TxOptions::default() }, None)?;
    let mut found: BTreeMap<String, FoundRecord> = BTreeMap::new();
    let mut wrong = None;
    reader.scan(&table, &Scan::all(), |_, row| {
        let values = row.values();
        let [Value::Text(name), Value::Int4(nth), Value::Bytes(part)] = &values[..] else {
            wrong = Some(senseless("?", "a row with other columns"));
            return Ok(ControlFlow::Break(()));
        };
        let record = found.entry(name.clone()).or_default();
        if usize::try_from(*nth) != Ok(record.rows) {
            wrong = Some(senseless(name, &format!("row {} is missing", record.rows)));
            return Ok(ControlFlow::Break(()));
        }
        record.rows += 1;
        record.bytes.extend_from_slice(part);
        Ok(ControlFlow::Continue(()))
    })?;
    match wrong {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

impl Context {
    /// Writes what a prepared transaction has written, under locks, as it did.
    fn write_again(&mut self, name: &str, record: &PreparedRecord<'_>, rows: usize) -> Result<()> {
        let none = Error::TooManyPackets { limit: self.core.defaults.packet_slots };
        self.packet = Some(self.core.commits.log.borrow_any_packet().ok_or(none)?);
        self.writing = true;
        self.redo_locking(Lsn::ZERO, record.changes, usize::MAX)?;
        self.delete_record(name, rows)
    }

    /// Takes the locks again that its writes do not take.
    fn lock_again(&mut self, name: &str, locks: &[u8]) -> Result<()> {
        // Tables and indexes that it has found.
        let mut indexes: HashMap<IndexId, (u32, WhichIndex)> = HashMap::new();
        for lock in noted(locks) {
            self.core.redo_steps.step();
            match lock.map_err(|at| senseless(name, &format!("byte {at} of its locks makes no sense")))? {
                NotedLock::Table(CATALOG_LOCK) => self.lock_catalog_again()?,
                NotedLock::Table(id) => {
                    // Without it, there is nothing that another transaction could change.
                    if let Some(table) = self.core.storage.catalog.by_id(id)
                        && !self.has_defined(id)
                    {
                        self.use_table(&table, LockMode::Shared)?;
                    }
                }
                NotedLock::Key(index, key) => {
                    let Some((slot, which)) = self.index_again(name, index, &mut indexes)? else { continue };
                    match which {
                        WhichIndex::Primary => self.lock_primary_again(slot, Key::from(key))?,
                        WhichIndex::Secondary(_) => {
                            self.lock_key(index, &Key::from(key), RecordMode::Shared)?
                        }
                    }
                }
                NotedLock::Row(index, entry) => {
                    let Some((slot, which)) = self.index_again(name, index, &mut indexes)? else { continue };
                    let key = match which {
                        WhichIndex::Primary => Some(Key::from(entry)),
                        WhichIndex::Secondary(_) if self.pages(slot).is_some() => {
                            return Err(senseless(
                                name,
                                "it has locked a row in a page by a secondary index",
                            ));
                        }
                        WhichIndex::Secondary(_) => self.primary_key_of(slot, which, entry)?,
                    };
                    // Without one, the transaction's own writes have taken the row's entry away, and locked it.
                    if let Some(key) = key {
                        self.lock_primary_again(slot, key)?;
                    }
                }
                NotedLock::Range(index, lower, upper) => {
                    let Some((slot, which)) = self.index_again(name, index, &mut indexes)? else { continue };
                    self.scan_again(slot, which, (lower, upper))?;
                }
            }
        }
        Ok(())
    }

    /// Whether its definitions are about this table, which it therefore has exclusively.
    fn has_defined(&self, id: TableId) -> bool {
        self.ddl.as_ref().is_some_and(|ddl| ddl.is_about(id))
    }

    /// Locks the table of an index by intention, and gives both. `None` if it has the table exclusively, since it has changed
    /// the table's definition.
    fn index_again(
        &mut self,
        name: &str,
        id: IndexId,
        known: &mut HashMap<IndexId, (u32, WhichIndex)>,
    ) -> Result<Option<(u32, WhichIndex)>> {
        if let Some(&(slot, which)) = known.get(&id) {
            return Ok(Some((self.use_slot(slot, LockMode::IntentShared)?, which)));
        }
        let (table, which) = match self.core.storage.catalog.index_by_id(id) {
            Some((table, _)) if self.has_defined(table.id()) => return Ok(None),
            Some(found) => found,
            // Of a table, or of a state of one, that only this transaction sees.
            None if self.ddl.is_some() => return Ok(None),
            None => {
                let what = format!("it has locked keys of index {}, which is not there", id.0);
                return Err(senseless(name, &what));
            }
        };
        let slot = self.use_table(&table, LockMode::IntentShared)?;
        known.insert(id, (slot, which));
        Ok(Some((slot, which)))
    }

    fn lock_primary_again(&mut self, slot: u32, key: Key) -> Result<()> {
        self.key = key;
        self.seek(slot, RecordMode::Shared).map(drop)
    }

    /// The primary key of the row to which a secondary index leads.
    fn primary_key_of(&mut self, slot: u32, which: WhichIndex, entry: &[u8]) -> Result<Option<Key>> {
        let table = self.tables.at(slot);
        let Some(record) = table.store.find(which, entry).location() else { return Ok(None) };
        Ok(self.key_of_row_at(slot, record))
    }

    /// The primary key of the row that lies there, if one does.
    fn key_of_row_at(&mut self, slot: u32, record: RowLocation) -> Option<Key> {
        let Context { tables, body, .. } = self;
        let table = tables.at(slot);
        if table.store.row(record).is_absent() {
            return None;
        }
        table.store.read(record, body);
        let (number, row) = body.split_at(table.row_at());
        let number = number.try_into().map_or(0, u64::from_le_bytes);
        let mut key = Key::new();
        table.schema.primary_key_of_row(row, number, &mut key);
        Some(key)
    }

    /// Locks a range, and the rows in it, as the scan has done.
    fn scan_again(
        &mut self,
        slot: u32,
        index: WhichIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<()> {
        let bounds = (range.0.map(Key::from), range.1.map(Key::from));
        let (direction, mode, reads) = (Direction::Forward, RecordMode::Shared, Reads::Rows);
        let scan = ByteScan { index, bounds, direction, mode, reads, limit: None, before: 0 };
        self.scan_bytes(slot, &scan, &mut ScanScratch::default(), &mut |_, _| Ok(ControlFlow::Continue(())))
    }

    fn lock_catalog_again(&mut self) -> Result<()> {
        let mode = LockMode::Shared;
        self.lock(
            |core, owner, _, _, wait| core.locks.table(owner, CATALOG_LOCK, mode, wait).map(drop),
            |_, _| LockTarget::Table(CATALOG_LOCK),
        )
    }

    /// Reserves the log's room for the decision, if there is some now.
    pub(super) fn reserve_at_once(&mut self, more_bytes: usize) -> Result<bool> {
        let Context { core, packet: Some(packet), .. } = self else { return Ok(true) };
        let length = packet.bytes().len() + more_bytes;
        core.commits.log.try_reserve_record(packet, length)
    }
}
