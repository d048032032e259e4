//! The vote: a transaction is prepared.

use std::sync::Arc;

use super::decision_rows::ROWS_BYTES;
use super::record::{
    NAME_BYTES_MAX, NOTE_BYTES_MAX, PREPARED, PREPARED_NAME, PreparedRecord, deletion_bytes, rows_of,
};
use super::registry::{Decision, Undecided};
use crate::catalog::TableDef;
use crate::commit::Logging;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::inside::InBody;
use crate::row::{Column, ColumnType};
use crate::txn::context::Context;
use crate::txn::core::Core;
use crate::txn::options::TxOptions;
use crate::txn::runs::start;
use crate::txn::transaction::Transaction;

impl Transaction<'static> {
    /// Votes to commit, and waits until the vote is as durable as the transaction's commit would be. From then on the
    /// transaction has this name; it ends by [`Database::commit_prepared`](crate::Database::commit_prepared) or
    /// [`Database::abort_prepared`](crate::Database::abort_prepared), and by nothing else: not by a time-out, and not by
    /// the database's end. It keeps its locks, in later openings, too. `note` is for the caller: the bytes come back with
    /// [`Database::prepared`](crate::Database::prepared).
    ///
    /// The transaction has to begin with [`TxOptions::may_prepare`]. It may read, write rows, and change definitions, but not
    /// be read only. One that has changed definitions keeps those of others waiting until it is decided. A prepared transaction counts as an open one ([`Options::transactions_max`](crate::Options::transactions_max)),
    /// and keeps room in the log for its commit.
    ///
    /// This is one branch's part in a two-phase commit; the decision, and that all branches hear the same, is the
    /// caller's matter.
    ///
    /// ```
    /// use rialto::{Database, Error, Result, Table, TxOptions};
    ///
    /// /// Takes an amount from an account in one database, and puts it into one in another database.
    /// fn transfer(from: (&Database, &Table), to: (&Database, &Table), account: i32, amount: i64) -> Result<()> {
    ///     let may_prepare = TxOptions { may_prepare: true, ..TxOptions::default() };
    ///     let vote = |(db, table): (&Database, &Table), amount: i64| -> Result<()> {
    ///         let mut branch = db.begin_with(&may_prepare)?;
    ///         branch.modify(table, account, |row| row.add(1, amount).map(drop))?;
    ///         branch.prepare("transfer 17", b"coordinator 1")
    ///     };
    ///     let voted = vote(from, -amount).and_then(|()| vote(to, amount));
    ///     // If both have voted, the coordinator writes down here that it commits.
    ///     for (db, _) in [from, to] {
    ///         let decided = match voted {
    ///             Ok(()) => db.commit_prepared("transfer 17"),
    ///             Err(_) => db.abort_prepared("transfer 17"),
    ///         };
    ///         match decided {
    ///             Ok(ticket) => ticket.wait()?,
    ///             // This branch has not voted: it was rolled back.
    ///             Err(Error::NoSuchPrepared { .. }) if voted.is_err() => {}
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     voted
    /// }
    /// ```
    ///
    /// # Blocking
    /// The call may wait for room in the log, and waits until the log is durable up to the vote.
    ///
    /// # Errors
    /// [`Error::PreparedExists`] if the name is taken; [`Error::BadDefinition`] for a name that is empty or longer than
    /// 200 bytes, or a note of more than 1 MiB; [`Error::TooManyTransactions`], since the vote needs another transaction;
    /// [`Error::Unsupported`] for a transaction that cannot be prepared; [`Error::WriteSetTooLarge`], also for one with
    /// very many locks; [`Error::LogFull`], also as long as a transaction that an earlier opening has prepared lacks room for
    /// its decision, or needs more for that than the log's bound is now; [`Error::LogTooSmall`]; the errors of a commit; [`Error::Nested`] in a body. The transaction is aborted then. After
    /// [`Error::OutcomeUnknown`] and [`Error::Stopped`] the next opening tells whether it is prepared. If
    /// [`Database::prepared`](crate::Database::prepared) has the name after an error, it is to be aborted by its name.
    pub fn prepare(mut self, name: &str, note: &[u8]) -> Result<()> {
        let core = self.context().core.clone();
        if let Err(error) = self.operate(|context| context.check_may_vote(name, note)) {
            return self.fail(error);
        }
        if let Err(error) = core.prepared.take_name(name) {
            return self.fail(error);
        }
        match self.vote(&core, name, note) {
            Ok(rows) => {
                self.put(&core, name, note, rows);
                Ok(())
            }
            Err(Unvoted { error, rows: None }) => {
                core.prepared.forget(name);
                self.fail(error)
            }
            Err(Unvoted { error, rows: Some(rows) }) => {
                self.put(&core, name, note, rows);
                // If that fails, too, it stays undecided, and is to be aborted later.
                let _ = core.prepared.decide(&core, name, Decision::Abort, None);
                Err(error)
            }
        }
    }

    /// From now on the transaction is known by its name.
    fn put(&mut self, core: &Core, name: &str, note: &[u8], rows: usize) {
        let mut context = self.context.take().expect("the transaction is open");
        context.savepoints.clear();
        context.end_statement();
        context.outlast_limits();
        let undecided =
            Undecided { note: note.to_vec(), context, rows, is_rolled_back: false, has_room: true };
        core.prepared.put(name, Box::new(undecided));
    }

    /// Makes the record durable, and takes it over. Gives the number of its rows.
    fn vote(&mut self, core: &Arc<Core>, name: &str, note: &[u8]) -> Result<usize, Unvoted> {
        let record = self.operate(|context| {
            if context.ddl.is_some() {
                context.core.locks.return_lease(&mut context.owner);
            }
            // Before the record is there: no other transaction comes in between.
            context.use_records()?;
            context.prepared_record(note)
        })?;
        let rows = rows_of(record.len());
        // Those that have voted come first, and this one takes no room that they wait for.
        if !fault_injection::is_on("votes-beside-lack-of-room") && !core.prepared.find_room(core)? {
            let reason = "a transaction that an earlier opening has prepared has none for its decision yet; try again after the next \
                          checkpoint"
                .to_owned();
            return Err(Error::LogFull { reason }.into());
        }
        if !fault_injection::is_on("no-room-for-a-decision") {
            let more = deletion_bytes(name, rows) + ROWS_BYTES;
            self.operate(|context| context.reserve_for_decision(more))?;
        }
        let choices = self.context().choices;
        let options = TxOptions {
            durability: Some(choices.durability),
            lock_timeout: Some(choices.lock_timeout),
            ..TxOptions::default()
        };
        let mut writer = start(core, &options, None)?;
        writer.operate(|context| {
            context.check_write()?;
            context.unbounded(|context| context.insert_record(name, &record))
        })?;
        match fault_injection::is_on("vote-told-before-it-is-durable") {
            true => drop(writer.submit()?),
            false => writer.commit()?,
        }
        let taken_over = self.operate(|context| context.delete_record(name, rows));
        taken_over.map_err(|error| Unvoted { error, rows: Some(rows) })?;
        Ok(rows)
    }
}

/// Why there is no vote.
struct Unvoted {
    error: Error,
    /// The rows of its record, if there is one.
    rows: Option<usize>,
}

impl From<Error> for Unvoted {
    fn from(error: Error) -> Unvoted {
        Unvoted { error, rows: None }
    }
}

impl Context {
    fn check_may_vote(&mut self, name: &str, note: &[u8]) -> Result<()> {
        if InBody::is_inside(self.core.storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        self.check()?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let reason = format!(
                "a prepared transaction's name of {} bytes, expected 1 to {NAME_BYTES_MAX}",
                name.len()
            );
            return Err(Error::BadDefinition { name: name.to_owned(), reason });
        }
        if note.len() > NOTE_BYTES_MAX {
            let reason = format!("a note of {} bytes, expected at most {NOTE_BYTES_MAX}", note.len());
            return Err(Error::BadDefinition { name: name.to_owned(), reason });
        }
        if self.noted_locks.is_some() {
            return Ok(());
        }
        let what = "preparing a transaction that has not begun with TxOptions::may_prepare".to_owned();
        Err(Error::Unsupported { what })
    }

    /// The record of the transaction as it is now.
    fn prepared_record(&mut self, note: &[u8]) -> Result<Vec<u8>> {
        // It has a packet from now on, also if it has only read.
        self.check_write()?;
        let limit = super::noted_locks::NOTES_BYTES_MAX;
        if self.ddl.is_some()
            && let Some(noted) = self.noted_locks.take()
        {
            // Indexes that only this transaction sees, or that it has taken back, are no others' to lock. Their numbers may be
            // given to others later.
            let catalog = &self.core.storage.catalog;
            let kept = noted.on_indexes(|index| catalog.index_by_id(index).is_some());
            self.noted_locks = Some(Box::new(kept));
        }
        let locks = self.noted_locks.as_ref().and_then(|noted| noted.bytes());
        let locks = locks.ok_or(Error::WriteSetTooLarge { length: limit + 1, limit })?;
        let durability = self.choices.durability;
        Ok(PreparedRecord { durability, note, locks, changes: self.packet_bytes() }.encode())
    }
}

/// Refuses prepared transactions where they cannot be.
///
/// # Errors
/// [`Error::Unsupported`].
pub(super) fn check_may_be_prepared(core: &Core) -> Result<()> {
    let refused = match core.commits.logging {
        Logging::Value | Logging::Action if core.locks.has_grains() => {
            "Options::lock_grain page: it takes record"
        }
        Logging::Value | Logging::Action => return Ok(()),
        Logging::Transaction => "Options::logging transaction: it takes value or action",
        Logging::None => "Options::logging none: it takes value or action",
    };
    Err(Error::Unsupported { what: format!("preparing transactions with {refused}") })
}

/// Makes the table of the records if it is not there.
///
/// # Errors
/// [`Error::Unsupported`] where transactions cannot be prepared; those of a definition.
pub(crate) fn have_table(core: &Arc<Core>) -> Result<()> {
    check_may_be_prepared(core)?;
    if core.storage.catalog.by_id(PREPARED).is_some() {
        return Ok(());
    }
    let mut maker = start(core, &TxOptions::default(), None)?;
    let columns = vec![
        Column::new("name", ColumnType::Text),
        Column::new("part", ColumnType::Int4),
        Column::new("bytes", ColumnType::Bytes),
    ];
    let primary_key = Some(vec!["name".to_owned(), "part".to_owned()]);
    let def = TableDef { primary_key, ..TableDef::new(PREPARED_NAME, columns) };
    match maker.create_system_table(&def, PREPARED) {
        Ok(()) => maker.commit(),
        // Another transaction has made it.
        Err(_) if core.storage.catalog.by_id(PREPARED).is_some() => Ok(()),
        Err(error) => Err(error),
    }
}
