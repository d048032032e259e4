//! [`PreparedTransactions`]: the prepared transactions of an open database, and their decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::decision_rows::{DecisionRows, ROWS_BYTES};
use super::record;
use crate::account::{Ledger, waits};
use crate::commit::write_set::Mark;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::inside::InBody;
use crate::reply::{Failure, Ticket};
use crate::txn::context::Context;
use crate::txn::core::Core;
use crate::txn::options::TxOptions;
use crate::txn::runs::start;

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
    /// Whether one may have no room in the log for its decision.
    may_lack_room: bool,
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
    /// A call decides it. So many bytes of the log's room it lacks meanwhile.
    Deciding { note: Vec<u8>, lacks: usize },
}

/// A transaction that waits for its decision.
pub(super) struct Undecided {
    pub note: Vec<u8>,
    pub context: Box<Context>,
    /// The rows of its record.
    pub rows: usize,
    /// Whether its writes are rolled back already: it can only be aborted.
    pub is_rolled_back: bool,
    /// Whether it has room in the log for its decision. It had some when it voted; an opening may find none.
    pub has_room: bool,
}

/// The two decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
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
                registry.may_lack_room |= !undecided.has_room;
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
            PreparedEntry::Deciding { note, .. } => Some((name, note)),
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

    /// See [`Database::commit_prepared`](crate::Database::commit_prepared) and
    /// [`Database::abort_prepared`](crate::Database::abort_prepared). `rows` are written in the same packet.
    pub fn decide(
        &self,
        core: &Arc<Core>,
        name: &str,
        decision: Decision,
        mut rows: Option<DecisionRows<'_>>,
    ) -> Result<Ticket> {
        if InBody::is_inside(core.storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        core.storage.check_open()?;
        if fault_injection::is_on("decision-rows-apart")
            && let Some(rows) = rows.take()
        {
            let mut apart = start(core, &TxOptions::default(), None)?;
            rows(&mut apart).and_then(|()| apart.commit())?;
        }
        let undecided = self.take(name)?;
        undecided.rest(false);
        let (undecided, decided) = undecided.decide(name, decision, rows);
        match decided {
            Ok(ticket) => {
                undecided.context.give_back();
                self.forget(name);
                Ok(ticket)
            }
            Err(failure) => {
                self.put(name, undecided);
                failure.tell()
            }
        }
    }

    /// As [`PreparedTransactions::reserve_room`], but waits for room in the log, and asks for checkpoints that free some,
    /// for about [`Options::log_wait_max`](crate::Options::log_wait_max). Gives whether all have some.
    ///
    /// # Errors
    /// As [`PreparedTransactions::reserve_room`].
    pub fn find_room(&self, core: &Core) -> Result<bool> {
        let until = core.clock.now() + core.defaults.log_wait_max;
        let mut attempts = core.commits.log.attempts_for_room();
        loop {
            let bytes = self.reserve_room()?;
            if bytes == 0 {
                return Ok(true);
            }
            if core.clock.now() >= until || attempts == 0 || !core.commits.log.make_room(bytes) {
                return Ok(false);
            }
            // An opening that waits for it gets on.
            core.redo_steps.step();
            attempts -= 1;
        }
    }

    /// Reserves the log's room for the decisions of the transactions that an opening has found none for. Gives for how many
    /// bytes there is still none, those of decisions that wait for room among them.
    ///
    /// # Errors
    /// [`Error::LogFull`], which names the transaction and the log's bound, if a decision needs more than there can ever be:
    /// the bound was larger when its transaction voted.
    pub fn reserve_room(&self) -> Result<usize> {
        let mut registry = self.0.lock();
        if !registry.may_lack_room {
            return Ok(0);
        }
        let (mut bytes, mut too_small) = (0, None);
        for (name, entry) in &mut registry.entries {
            bytes += match entry {
                PreparedEntry::Undecided(undecided) if !undecided.has_room => {
                    undecided.reserve(name).unwrap_or_else(|error| {
                        too_small.get_or_insert_with(|| of_decision(name, error));
                        undecided.needs(name)
                    })
                }
                PreparedEntry::Deciding { .. }
                    if fault_injection::is_on("votes-beside-a-waiting-decision") =>
                {
                    0
                }
                PreparedEntry::Deciding { lacks, .. } => *lacks,
                PreparedEntry::Voting | PreparedEntry::Undecided(_) => 0,
            };
        }
        registry.may_lack_room = bytes > 0;
        too_small.map_or(Ok(bytes), Err)
    }

    /// The decision that is being made has its room.
    fn has_room(&self, name: &str) {
        if let Some(PreparedEntry::Deciding { lacks, .. }) = self.0.lock().entries.get_mut(name) {
            *lacks = 0;
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
        let lacks = if undecided.has_room { 0 } else { undecided.needs(name) };
        let deciding = PreparedEntry::Deciding { note: undecided.note.clone(), lacks };
        match std::mem::replace(entry, deciding) {
            PreparedEntry::Undecided(undecided) => Ok(undecided),
            PreparedEntry::Voting | PreparedEntry::Deciding { .. } => unreachable!("it was looked at"),
        }
    }
}

/// The error of others, as long as the decision of a transaction needs more room than the log can ever make.
fn of_decision(name: &str, error: Error) -> Error {
    let Error::LogTooSmall { length, limit, log_bytes_max } = error else { return error };
    let reason = format!(
        "the decision of \"{name}\", which an earlier opening has prepared, needs {length} bytes, and a log of \
         {log_bytes_max} bytes (log_bytes_max) can make room for {limit}; abort that transaction, or reopen with a higher limit"
    );
    Error::LogFull { reason }
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

    /// Reserves the log's room for its decision, if there is some now. Gives how many bytes it lacks.
    ///
    /// # Errors
    /// [`Error::LogTooSmall`] if there cannot be as much.
    pub fn reserve(&mut self, name: &str) -> Result<usize> {
        let more = self.more_bytes(name);
        match self.context.reserve_at_once(more) {
            Ok(there) => self.has_room = there,
            Err(error @ Error::LogTooSmall { .. }) => return Err(error),
            // The log has stopped: there is nothing to wait for.
            Err(_) => self.has_room = false,
        }
        Ok(if self.has_room { 0 } else { self.needs(name) })
    }

    /// How many bytes of the log its decision may take.
    fn needs(&self, name: &str) -> usize {
        self.context.packet_bytes().len() + self.more_bytes(name)
    }

    /// By how much its packet may grow until it is decided. The deletion of its record is in the packet already, from its
    /// vote or its opening on; the room that the vote had is enough for that.
    fn more_bytes(&self, name: &str) -> usize {
        let is_deletion_to_come = self.is_rolled_back || fault_injection::is_on("openings-reserve-more");
        let deletion = if is_deletion_to_come { record::deletion_bytes(name, self.rows) } else { 0 };
        deletion + ROWS_BYTES
    }

    /// After a failure it is as it was, or as an abort that has begun.
    fn decide(
        mut self: Box<Self>,
        name: &str,
        decision: Decision,
        rows: Option<DecisionRows<'_>>,
    ) -> (Box<Undecided>, Result<Ticket, Failure>) {
        let kept = match self.begin(decision, name) {
            Ok(kept) => kept,
            Err(error) => return (self, Err(Failure::Error(error))),
        };
        let (mut undecided, written) = match rows {
            Some(rows) => {
                let (undecided, written) = self.write_rows(rows);
                (Box::new(undecided), written)
            }
            None => (self, Ok(())),
        };
        let decided = written.and_then(|()| undecided.end(name, decision).map_err(Failure::Error));
        if decided.is_err() {
            undecided.context.take_rows_back(&kept);
        }
        (undecided, decided)
    }

    /// Does what comes before the rows of a decision. Gives the mark of what is kept if the decision fails: all of it of
    /// one that commits, and nothing of one that aborts.
    fn begin(&mut self, decision: Decision, name: &str) -> Result<Mark> {
        if decision == Decision::Commit {
            if self.is_rolled_back {
                let what = format!(
                    "committing the prepared transaction \"{name}\": its abort has begun, go on with that"
                );
                return Err(Error::Unsupported { what });
            }
            return Ok(self.context.mark());
        }
        let nothing = Mark { writes: 0, adds: 0, packet: 0 };
        if !self.is_rolled_back {
            match fault_injection::is_on("abort-of-a-vote-keeps-definitions") {
                true => self.context.roll_back_to(&nothing),
                false => self.context.drop_writes(),
            }
            self.is_rolled_back = true;
        }
        let deleted = self.context.delete_record(name, self.rows);
        deleted.inspect_err(|_| self.context.take_rows_back(&nothing))?;
        Ok(nothing)
    }

    /// Commits what it has written now.
    fn end(&mut self, name: &str, decision: Decision) -> Result<Ticket> {
        let lacked_room = !self.has_room;
        let context = &mut self.context;
        // The time until now was the coordinator's.
        context.ledger =
            Ledger { began: context.began, waits: waits::now(), lock_wait_ns: context.lock_wait_ns };
        let registry = context.core.clone();
        let lsn = context.commit_prepared(|| {
            if lacked_room {
                registry.prepared.has_room(name);
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
