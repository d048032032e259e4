//! [`PreparedTransactions`]: the prepared transactions of an open database, and their decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::record;
use crate::commit::write_set::Mark;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::inside::InBody;
use crate::reply::Ticket;
use crate::txn::context::Context;
use crate::txn::core::Core;

/// A transaction that waits for the decision of others ([`Transaction::prepare`](crate::Transaction::prepare)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// Its name.
    pub name: String,
    /// The bytes that were given with the name.
    pub note: Vec<u8>,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct PreparedTransactions(Mutex<BTreeMap<String, Entry>>);

/// A name that is taken.
enum Entry {
    /// Its transaction is being prepared, or being decided.
    Busy,
    /// Its transaction waits for a decision.
    Undecided(Box<Undecided>),
}

/// A transaction that waits for its decision.
pub(super) struct Undecided {
    pub note: Vec<u8>,
    pub context: Box<Context>,
    /// The rows of its record.
    pub rows: usize,
    /// Whether its writes are rolled back already: it can only be aborted.
    pub is_rolled_back: bool,
}

/// The two decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Commit,
    Abort,
}

impl PreparedTransactions {
    /// Takes a name for a transaction that is being prepared.
    pub(super) fn take_name(&self, name: &str) -> Result<()> {
        let mut entries = self.0.lock();
        if entries.contains_key(name) {
            return Err(Error::PreparedExists { name: name.to_owned() });
        }
        entries.insert(name.to_owned(), Entry::Busy);
        Ok(())
    }

    /// Gives a name back.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// From now on the transaction can be decided, unless the database has closed meanwhile.
    pub(super) fn put(&self, core: &Core, name: &str, undecided: Box<Undecided>) {
        self.0.lock().insert(name.to_owned(), Entry::Undecided(undecided));
        if !core.storage.is_open() {
            self.close();
        }
    }

    /// All that have voted and are not decided yet.
    pub fn all(&self) -> Vec<PreparedTransaction> {
        let entries = self.0.lock();
        let undecided = entries.iter().filter_map(|(name, entry)| match entry {
            Entry::Undecided(undecided) => {
                Some(PreparedTransaction { name: name.clone(), note: undecided.note.clone() })
            }
            Entry::Busy => None,
        });
        undecided.collect()
    }

    /// Ends them without a decision, because the database closes: their records stay.
    pub fn close(&self) {
        for (_, entry) in std::mem::take(&mut *self.0.lock()) {
            if let Entry::Undecided(mut undecided) = entry {
                undecided.context.abort();
                undecided.context.give_back();
            }
        }
    }

    /// See [`Database::commit_prepared`](crate::Database::commit_prepared).
    pub fn commit(&self, core: &Arc<Core>, name: &str) -> Result<Ticket> {
        self.decide(core, name, Decision::Commit)
    }

    /// See [`Database::abort_prepared`](crate::Database::abort_prepared).
    pub fn abort(&self, core: &Arc<Core>, name: &str) -> Result<Ticket> {
        self.decide(core, name, Decision::Abort)
    }

    fn decide(&self, core: &Arc<Core>, name: &str, decision: Decision) -> Result<Ticket> {
        if InBody::is_inside(core.storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        core.storage.check_open()?;
        let mut undecided = self.take(name)?;
        match undecided.decide(name, decision) {
            Ok(ticket) => {
                undecided.context.give_back();
                self.forget(name);
                Ok(ticket)
            }
            Err(error) => {
                self.put(core, name, undecided);
                Err(error)
            }
        }
    }

    fn take(&self, name: &str) -> Result<Box<Undecided>> {
        let mut entries = self.0.lock();
        match entries.remove(name) {
            None => Err(Error::NoSuchPrepared { name: name.to_owned() }),
            Some(Entry::Busy) => {
                entries.insert(name.to_owned(), Entry::Busy);
                Err(Error::PreparedBusy { name: name.to_owned() })
            }
            Some(Entry::Undecided(undecided)) => {
                entries.insert(name.to_owned(), Entry::Busy);
                Ok(undecided)
            }
        }
    }
}

impl Undecided {
    fn decide(&mut self, name: &str, decision: Decision) -> Result<Ticket> {
        let is_commit = decision == Decision::Commit;
        if is_commit && self.is_rolled_back {
            let what = format!(
                "committing the prepared transaction \"{name}\": its abort has begun, go on with that"
            );
            return Err(Error::Unsupported { what });
        }
        let context = &mut self.context;
        if !is_commit && !self.is_rolled_back {
            context.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
            self.is_rolled_back = true;
        }
        if !is_commit {
            context.delete_record(name, self.rows)?;
        }
        let lsn = context.commit_prepared().inspect_err(|_| {
            if !is_commit {
                context.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
            }
        })?;
        let (accounts, procedure) = (&context.core.commits.accounts, context.choices.procedure);
        match decision {
            Decision::Commit => {
                let spent = context.ledger.spent(None, context.core.clock.now());
                accounts.committed(context.number, procedure, &spent);
            }
            Decision::Abort => accounts.aborted(context.number, procedure),
        }
        context.core.commits.log.leave(lsn, context.choices.durability);
        Ok(Ticket::new(context.log.clone(), lsn, context.choices.durability, context.patience()))
    }
}

impl Context {
    /// Inserts the rows of a record.
    pub(super) fn insert_record(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let slot = self.use_records()?;
        for row in record::rows(name, bytes) {
            let mut row_bytes = std::mem::take(&mut self.other_body);
            row_bytes.clear();
            let inserted = crate::row::encode(&self.tables.at(slot).schema, &row, &mut row_bytes)
                .and_then(|()| self.insert_row(slot, &row_bytes));
            self.other_body = row_bytes;
            inserted?;
        }
        Ok(())
    }

    /// Deletes the rows of a record, of which there are this many, whatever the bound of the write set.
    pub(super) fn delete_record(&mut self, name: &str, rows: usize) -> Result<()> {
        if fault_injection::is_on("decision-leaves-its-record") {
            return Ok(());
        }
        self.unbounded(|context| {
            let slot = context.use_records()?;
            for nth in 0..rows {
                let key = record::key(name, nth);
                let shape = context.tables.at(slot).schema.key_shape(crate::row::WhichIndex::Primary);
                crate::row::IntoKey::encode_into(&&key[..], shape, &mut context.key)?;
                if !context.delete_key(slot)? {
                    let what =
                        format!("row {nth} of the record of the prepared transaction \"{name}\" is missing");
                    return Err(Error::Corrupt { file: record::PREPARED_NAME.to_owned(), offset: 0, what });
                }
            }
            Ok(())
        })
    }

    /// Runs `work` without the bounds of write sets.
    pub(super) fn unbounded<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        let bounds = (self.room, self.room_for_entries);
        (self.room, self.room_for_entries) = (usize::MAX, usize::MAX);
        let outcome = work(self);
        (self.room, self.room_for_entries) = bounds;
        outcome
    }

    /// Uses the table of the records for writes.
    pub(super) fn use_records(&mut self) -> Result<u32> {
        let table = self.core.storage.catalog.by_id(record::PREPARED);
        let table = table.ok_or_else(|| Error::NoSuchTable { table: record::PREPARED_NAME.to_owned() })?;
        self.use_table(&table, crate::isolate::LockMode::IntentExclusive)
    }
}
