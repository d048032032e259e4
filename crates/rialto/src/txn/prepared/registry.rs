//! [`PreparedTransactions`]: the prepared transactions of an open database, and their decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::record;
use crate::account::{Ledger, waits};
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
pub(crate) struct PreparedTransactions(Mutex<Registry>);

#[derive(Default)]
struct Registry {
    state: PreparedState,
    entries: BTreeMap<String, PreparedEntry>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum PreparedState {
    /// Those of earlier openings are not taken again yet, or the database follows another one.
    #[default]
    NotTaken,
    Open,
    Closed,
}

/// A name that is taken.
enum PreparedEntry {
    /// Its transaction is being prepared.
    Voting,
    /// Its transaction waits for a decision.
    Undecided(Box<Undecided>),
    /// A call decides it.
    Deciding { note: Vec<u8> },
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
    /// Those of earlier openings are there.
    pub(super) fn open(&self) {
        self.0.lock().state = PreparedState::Open;
    }

    /// Takes a name for a transaction that is being prepared.
    pub(super) fn take_name(&self, name: &str) -> Result<()> {
        let mut registry = self.0.lock();
        if registry.entries.contains_key(name) {
            return Err(Error::PreparedExists { name: name.to_owned() });
        }
        registry.entries.insert(name.to_owned(), PreparedEntry::Voting);
        Ok(())
    }

    /// Gives a name back.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().entries.remove(name);
    }

    /// From now on the transaction can be decided, unless the database has closed meanwhile.
    pub(super) fn put(&self, name: &str, undecided: Box<Undecided>) {
        undecided.rest(true);
        let mut registry = self.0.lock();
        let left = match registry.state {
            PreparedState::Closed => Some(undecided),
            _ => {
                registry.entries.insert(name.to_owned(), PreparedEntry::Undecided(undecided));
                None
            }
        };
        drop(registry);
        if let Some(mut undecided) = left {
            undecided.leave_locked();
        }
    }

    /// All that have voted and are not decided yet.
    pub fn all(&self) -> Vec<PreparedTransaction> {
        let registry = self.0.lock();
        let undecided = registry.entries.iter().filter_map(|(name, entry)| match entry {
            PreparedEntry::Voting => None,
            PreparedEntry::Undecided(undecided) => Some((name, &undecided.note)),
            PreparedEntry::Deciding { note } => Some((name, note)),
        });
        undecided.map(|(name, note)| PreparedTransaction { name: name.clone(), note: note.clone() }).collect()
    }

    /// Forgets them without a decision: the database has closed, and their records stay. What they have locked stays
    /// locked for handles that are still there.
    pub fn close(&self) {
        let mut registry = self.0.lock();
        registry.state = PreparedState::Closed;
        let entries = std::mem::take(&mut registry.entries);
        drop(registry);
        for entry in entries.into_values() {
            if let PreparedEntry::Undecided(mut undecided) = entry {
                undecided.leave_locked();
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
        undecided.rest(false);
        match undecided.decide(name, decision) {
            Ok(ticket) => {
                undecided.context.give_back();
                self.forget(name);
                Ok(ticket)
            }
            Err(error) => {
                self.put(name, undecided);
                Err(error)
            }
        }
    }

    fn take(&self, name: &str) -> Result<Box<Undecided>> {
        let mut registry = self.0.lock();
        match registry.state {
            PreparedState::NotTaken => return Err(Error::Following),
            PreparedState::Closed => return Err(Error::Closed),
            PreparedState::Open => {}
        }
        let Some(entry) = registry.entries.get_mut(name) else {
            return Err(Error::NoSuchPrepared { name: name.to_owned() });
        };
        let PreparedEntry::Undecided(undecided) = entry else {
            return Err(Error::PreparedBusy { name: name.to_owned() });
        };
        let deciding = PreparedEntry::Deciding { note: undecided.note.clone() };
        match std::mem::replace(entry, deciding) {
            PreparedEntry::Undecided(undecided) => Ok(undecided),
            PreparedEntry::Voting | PreparedEntry::Deciding { .. } => unreachable!("it was looked at"),
        }
    }
}

impl Undecided {
    /// Sets whether others need not wait for it where they wait for transactions that may seek records.
    fn rest(&self, rests: bool) {
        self.context.core.locks.rest(&self.context.owner, rests);
    }

    /// Ends it without a decision and without a release of its locks, in a database that is closed: their slot is lent to
    /// no other owner.
    fn leave_locked(&mut self) {
        drop(self.context.owner.take());
    }

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
        // The time until now was the coordinator's.
        context.ledger =
            Ledger { began: context.began, waits: waits::now(), lock_wait_ns: context.lock_wait_ns };
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
