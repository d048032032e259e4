//! [`Database`]: the public handle of an open database.

mod calls;
mod drive;
mod executors;
mod follower;
mod moves;
mod own_errors;
mod prepared;
mod prepared_call;
mod routing;
mod transaction_server;

use crate::inside::InBody;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use follower::Follower;
pub use moves::MoveOptions;
pub use prepared_call::PreparedCall;

use crate::account::ProcedureId;
use crate::backup::{BackupOptions, BackupReport, CopyOptions, CopyReport, Destination};
use crate::checkpoint::{CheckpointReport, Checkpointing};
use crate::engine::Runtime;
use crate::engine::run::{run, wait_backoff};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::io::{Clock, Disk, FileDisk};
use crate::isolate::LockMode;
use crate::log::{Durability, GroupCommitDesign, LogCursor, LogPoint, Patience};
use crate::metrics::Metrics;
use crate::open::{self, Handle, Role};
use crate::options::Options;
use crate::recovery::{OpenError, RecoveryReport};
use crate::reply::Ticket;
use crate::store::{LoadFileBytes, Table};
use crate::txn::Transaction;
use crate::txn::committed::Committed;
use crate::txn::core::Core;
use crate::txn::options::{TxOptions, check_wait};
use crate::txn::prepared::have_table;
use crate::txn::retries::Retries;
use crate::txn::runs::{Runs, deadlocks_allowed, start};
use crate::unlikely::unlikely;

/// An open database in a directory. `Clone + Send + Sync`: clones are handles to the same database, which closes when
/// the last of them is dropped, or by [`Database::close`].
#[derive(Clone)]
pub struct Database {
    running: Arc<Handle>,
}

/// A transaction that waits for a lock ([`Database::lock_waits`]). A transaction is named by the number of its slot in
/// the lock manager.
#[derive(Debug, Clone, PartialEq)]
pub struct LockWait {
    /// The slot of the waiting transaction.
    pub waiter: u16,
    /// The slots of the transactions that hold the conflicting lock.
    pub holders: Vec<u16>,
    /// What the lock is on: the table, and the key by its columns.
    pub lock: String,
    /// The requested mode.
    pub mode: LockMode,
    /// How long it has waited.
    pub waited: Duration,
}

impl Database {
    /// Opens the database in a directory, and creates it if there is none.
    ///
    /// # Blocking
    /// The call returns when the database is recovered, which may take minutes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database, OpenError> {
        Database::open_with(path, Options::default())
    }

    /// As [`Database::open`], with options.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database, OpenError> {
        let disk = match options.create {
            true => FileDisk::create(path.as_ref()),
            false => FileDisk::open(path.as_ref()),
        };
        let disk =
            disk.map_err(|error| OpenError::directory(&path.as_ref().display().to_string(), &error))?;
        Database::open_on(disk, options)
    }

    /// As [`Database::open`], on any disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Database, OpenError> {
        Ok(Database { running: Arc::new(Handle::new(open::open(disk, options, Role::Leads)?)) })
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.running.runtime()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.running.core()
    }

    /// Begins a transaction that the caller uses across calls. Dropping the handle aborts it.
    ///
    /// # Blocking
    /// The call does not block.
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`]; [`Error::Closed`].
    pub fn begin(&self) -> Result<Transaction<'static>> {
        self.begin_with(&TxOptions::default())
    }

    /// As [`Database::begin`], with options.
    ///
    /// # Errors
    /// As [`Database::begin`]. With [`TxOptions::may_prepare`], [`Error::Unsupported`] where transactions cannot be
    /// prepared: with [`Options::logging`] transaction or none, or [`Options::lock_grain`] page; the first one makes a
    /// system table, and gets the errors of that.
    pub fn begin_with(&self, options: &TxOptions) -> Result<Transaction<'static>> {
        if options.may_prepare {
            have_table(self.core())?;
        }
        start(self.core(), options, None)
    }

    /// Begins the next run of a handle's transaction whose last run was a deadlock's victim. `retries` counts the runs
    /// of the transaction; before its first run it is [`Retries::default`].
    ///
    /// As in [`Database::transact`], the victim is given up, the transaction that won gets some time, and the next run
    /// is as old as the first one. Otherwise it would be the youngest transaction, and therefore the victim, each time.
    ///
    /// # Errors
    /// `error`, which ended the last run, if it is no deadlock or if [`Options::deadlock_retries_max`] are used up. It
    /// is returned once what the victim has read is durable (I3). Else as [`Database::begin`].
    pub fn begin_again(
        &self,
        victim: Transaction<'static>,
        error: Error,
        options: &TxOptions,
        retries: &mut Retries,
    ) -> Result<Transaction<'static>> {
        let core = self.core();
        let mut victim = victim;
        let backoff = match error {
            Error::Deadlock { .. } => retries.after_deadlock(deadlocks_allowed(core, &mut victim)),
            _ => None,
        };
        let Some(backoff) = backoff else { return victim.fail(error) };
        let started = victim.context().owner.started();
        victim.give_up();
        drop(victim);
        wait_backoff(core, Some(backoff));
        start(core, options, Some(started))
    }

    /// Runs `body` as one serializable transaction and waits until its outcome is durable. The body may run several
    /// times: it runs again after a deadlock, and after a conflict with a black/white checkpoint, and on disk-resident
    /// tables it may run first in a fetch stage, whose outcome is dropped ([`TwoStage`](crate::TwoStage)). It sees its own
    /// writes. If it fails or panics, nothing of it is kept; the error or the panic reaches the caller once what the
    /// body has read is durable.
    ///
    /// # Blocking
    /// The call may wait for locks, for each of them up to its time-out; for room in the log, up to
    /// [`Options::log_wait_max`](crate::Options::log_wait_max); and for a checkpoint that the transaction straddles.
    /// Then it waits until the log is durable up to the transaction's place. An async program uses
    /// [`Database::submit`] and awaits the ticket, or runs this on a thread that may block.
    ///
    /// # Errors
    /// The error of the body; what keeps the commit from taking its place; [`Error::OutcomeUnknown`]; [`Error::Nested`]
    /// inside another body on this thread.
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TxOptions::default(), body)
    }

    /// As [`Database::transact`], with options.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn transact_with<T>(
        &self,
        options: &TxOptions,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let (value, done) = run(self.core(), options, Runs::to_reply(), body)?;
        match unlikely(!done.has_ended()) {
            false => {
                std::mem::forget(done);
                Ok(value)
            }
            true => done.reply(self.core()).map(|()| value),
        }
    }

    /// Runs `body` as [`Database::transact`] does, but does not wait for the disk: the ticket tells when the outcome is
    /// durable. Thus a few threads can keep thousands of transactions in progress.
    ///
    /// # Blocking
    /// The call may wait for locks, for each of them up to its time-out; for room in the log, up to
    /// [`Options::log_wait_max`](crate::Options::log_wait_max); and for a checkpoint that the transaction straddles.
    /// If the body fails it waits until what the body read is durable. It does not wait for the disk otherwise. Where
    /// an async task may not wait for locks, it runs this on a thread that may block, or with
    /// [`LockPolicy::Refuse`](crate::LockPolicy::Refuse), and awaits the ticket.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn submit<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<(T, Ticket)> {
        self.submit_with(&TxOptions::default(), body)
    }

    /// As [`Database::submit`], with options.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn submit_with<T>(
        &self,
        options: &TxOptions,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        let (value, done) = run(self.core(), options, Runs::new(), body)?;
        Ok((value, self.ticket_of(done)))
    }

    fn ticket_of(&self, mut done: Committed) -> Ticket {
        let ticket = done.ticket();
        done.give_back(self.core());
        ticket
    }

    /// Runs `body` as a transaction that only reads. With [thin locks](crate::Locks::Thin) its first run takes no locks
    /// on rows. It runs again, with locks, if it meets a row that a writer has locked, if what it has read is changed
    /// before it ends, or after more than 4,096 reads without a lock. The result of the first run, a panic included, is
    /// discarded. So is that of a fetch stage ([`TwoStage`](crate::TwoStage)), on disk-resident tables.
    ///
    /// # Blocking
    /// The call waits until what it read is durable at the transaction's level. It may wait for locks on tables: behind
    /// definitions, and, for a scan without bounds and limit, which locks its table as a whole, behind all that write
    /// to the table. If the body runs again, and always where locks are not thin, it may wait for locks on rows.
    ///
    /// # Errors
    /// As [`Database::transact`]; [`Error::ReadOnly`] for a write.
    pub fn read<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TxOptions { read_only: true, ..TxOptions::default() }, body)
    }

    /// The table of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Table> {
        self.core().storage.catalog.table(name)
    }

    /// All tables, by name, with the system tables, whose names begin with `rialto_`.
    pub fn tables(&self) -> Vec<Table> {
        self.core().storage.catalog.all()
    }

    /// A number that changes when a table or an index is created, changed or dropped. Caches of plans use it.
    pub fn catalog_version(&self) -> u64 {
        self.core().storage.catalog.version()
    }

    /// The lock waits of this moment: which transaction waits for which. With local locks, waits at a lock table are
    /// left out while a long body has it leased. Also left out are calls of procedures that
    /// [threads](crate::Executors::threads) run, as long as such a call is retried until its first locks are free: for
    /// at most a quarter of its lock time-out.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        let core = self.core();
        let waits = core.locks.waits().into_iter();
        waits
            .map(|wait| LockWait {
                waiter: wait.waiter,
                holders: wait.holders,
                lock: wait.target.in_words(&core.storage.catalog),
                mode: wait.mode,
                waited: wait.waited,
            })
            .collect()
    }

    /// The error that stopped the database, if one did. After a failed write or sync of its log, or a panic in one, no
    /// transaction commits any more (I4), and what transactions have read may never be durable. Close the database, and
    /// open it again to recover.
    pub fn stopped(&self) -> Option<Error> {
        self.core().commits.log.failure()
    }

    /// A random number that stands for the memory which the log lies in, and which outlives the process: the same as in an
    /// earlier opening if this one has found that memory, with all that was durable at level 1. Otherwise it is another
    /// one: after a loss of power or a restart of the machine, and if the file `log-tail` was removed.
    pub fn life(&self) -> u64 {
        self.core().commits.log.life()
    }

    /// After a close: lets the directory be opened again, though other handles are left. Otherwise that is possible once the
    /// last handle is dropped. It does nothing before the close has ended.
    ///
    /// # Blocking
    /// The call waits until no checkpoint, backup or copy of an earlier call is still running. These end soon after the
    /// close; one that waits for its stream ends once the stream goes on, or fails. So its code must not call this.
    pub fn give_directory_back(&self) {
        self.running.give_directory_back();
    }

    /// Whether this is a handle to the same opening of a database as another one.
    pub fn is_same(&self, other: &Database) -> bool {
        Arc::ptr_eq(&self.running, &other.running)
    }

    /// Whether it is open: no handle has closed it.
    pub fn is_open(&self) -> bool {
        self.core().storage.is_open()
    }

    /// Where the log ends that is in memory which outlives the process ([`Database::life`]): everything that was answered at
    /// level memory lies before it.
    pub fn log_end(&self) -> LogPoint {
        self.core().commits.log.end()
    }

    /// The end of a block of the log up to which everything is on the disk. After [`Database::sync`], and some time after
    /// the last commit by itself, it is [`Database::log_end`].
    pub fn on_disk_point(&self) -> LogPoint {
        self.core().commits.log.on_disk_point()
    }

    /// A cursor that reads the log while it is written: from this point on, at which an earlier cursor has ended, or from the end that
    /// the log has now. The log before its end stays for it, up to so many bytes, and at most a quarter of
    /// [`Options::log_bytes_max`]; with the load files that it names. Behind that, and while a commit waits for room in the log,
    /// files go as if there were no cursor. What stays ends with the cursor, and with the opening.
    ///
    /// # Errors
    /// [`Error::LogTrimmed`] if the log after the point is not there any more; [`Error::LogDiverged`] if the log has not gone
    /// through it; [`Error::Unsupported`] with [`Logging::None`](crate::Logging::None); the error that stopped the log.
    pub fn log_cursor(&self, from: Option<LogPoint>, bytes_max: u64) -> Result<LogCursor> {
        self.core().commits.check_logged("a cursor on the log")?;
        let log = &self.core().commits.log;
        let point = match from {
            Some(point) => point,
            None => log.point()?,
        };
        log.cursor(point, bytes_max.min(self.running.options().log_bytes_max / 4))
    }

    /// The bytes of a load file, which a bulk load or a move of a table has written and the log names by this number. It stays
    /// as long as a cursor keeps the log that names it ([`Database::log_cursor`]).
    ///
    /// # Errors
    /// [`Error::Io`], also if there is none.
    pub fn load_file(&self, number: u64) -> Result<LoadFileBytes> {
        self.core().storage.load_file_bytes(number)
    }

    /// Makes every transaction committed so far durable on disk, whatever level it was committed at. Everything before the
    /// [`Database::log_end`] of before the call is on the disk then ([`Database::on_disk_point`]).
    ///
    /// # Blocking
    /// The call waits for the log to be written and synced.
    ///
    /// # Errors
    /// The error that stopped the log; [`Error::Unsupported`] with [`Logging::None`](crate::Logging::None).
    pub fn sync(&self) -> Result<()> {
        self.core().commits.check_logged("sync")?;
        let log = &self.core().commits.log;
        let synced = log.sync();
        if !InBody::is_inside(self.core().storage.catalog.opening()) {
            log.wake_listeners();
        }
        synced
    }

    /// Waits until everything that has committed by now is durable at `durability`, by default the database's. This
    /// includes whatever any transaction has read by now. A caller that passes on what a transaction has read before
    /// the transaction has ended calls this first (I3).
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log fails first.
    pub fn settle(&self, durability: Option<Durability>) -> Result<()> {
        self.settle_place(self.core().commits.log.place(), durability)
    }

    fn settle_place(&self, place: Lsn, durability: Option<Durability>) -> Result<()> {
        let core = self.core();
        let durability = core.commits.durability(durability.unwrap_or(core.defaults.durability));
        match core.commits.log.is_done(place, durability) {
            Some(done) => done,
            None => core.commits.log.wait(place, durability, &Patience::default()),
        }
    }

    /// Waits until every change of tables and indexes that has committed by now is durable at `durability`, by default
    /// the database's. A caller that passes on what [`Database::table`] found, or that there is no such table, calls
    /// this first. A [transaction](crate::Transaction::table) that looks up a table waits at its end instead (I3).
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log fails first.
    pub fn settle_definitions(&self, durability: Option<Durability>) -> Result<()> {
        self.settle_place(self.core().storage.catalog.changed_at(), durability)
    }

    /// The place of the last change of tables and indexes that may be visible. While it stays the same, a wait by
    /// [`Database::settle_definitions`] need not be repeated.
    #[inline]
    pub fn definitions_place(&self) -> Lsn {
        self.core().storage.catalog.changed_at()
    }

    /// Tells other processes where this one serves the database: one that tries to open its directory names the address
    /// in its error ([`OpenError::Locked`](crate::OpenError::Locked)).
    pub fn announce(&self, address: &str) {
        self.running.announce(address);
    }

    /// Makes a checkpoint that begins now, and waits for it. What committed before is then recovered from the backup
    /// copy, not from the log. A checkpoint with nothing new to write is skipped.
    ///
    /// # Blocking
    /// The call waits until the checkpoint is complete: the time to write the changed segments.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written: the last complete checkpoint stays in force, and the database goes on.
    /// [`Error::Stopped`] if the log has stopped; [`Error::Closed`]; [`Error::Unsupported`] with
    /// [`Logging::None`](crate::Logging::None).
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.core().commits.check_logged("checkpoint")?;
        self.running.checkpoint()
    }

    /// Takes a backup to a directory, which is created if it is missing, while transactions run. The backup has all
    /// transactions that have committed when it begins, and none that commits later.
    /// [`restore`](crate::backup::restore) makes a database of it.
    ///
    /// A backup waits for a checkpoint that is being made, which hurries, and checkpoints wait for a backup. Commits
    /// wait only for the backup's cut (microseconds) and, as with a copy-on-update checkpoint, while
    /// [`Options::snapshot_bytes_max`] leaves no room. The backup goes as fast as the directory takes it.
    ///
    /// # Blocking
    /// The call waits until the backup is complete.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the directory holds a backup or a database already, and with
    /// [`Logging::None`](crate::Logging::None); [`Error::Io`] and [`Error::DiskFull`]; [`Error::LogFull`] if the log
    /// comes near its bound before the backup is done, or if a transaction waits for room in the log;
    /// [`Error::Cancelled`] if [`BackupOptions::cancelled`] is set. After an error
    /// the directory does not count as a backup, and the next backup has what this one would have had.
    pub fn backup<'a>(
        &self,
        to: impl AsRef<Path>,
        options: impl Into<BackupOptions<'a>>,
    ) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(&options.into(), Destination::Directory(FileDisk::create(to)?))
    }

    /// As [`Database::backup`], to a disk, which is the directory of the backup.
    ///
    /// # Errors
    /// As [`Database::backup`].
    pub fn backup_on<'a>(
        &self,
        disk: Arc<dyn Disk>,
        options: impl Into<BackupOptions<'a>>,
    ) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(&options.into(), Destination::Directory(disk))
    }

    /// As [`Database::backup`], to a stream. While the stream takes no bytes, checkpoints wait, and so do commits once
    /// there is no room left for snapshots. A call that the stream itself makes gets [`Error::Nested`] if it would wait
    /// for the backup: in this database a transaction with a body, a checkpoint, a backup, a close, and the commit of a
    /// handle for which there is no room for snapshots.
    ///
    /// # Errors
    /// As [`Database::backup`]. The bytes written before the error are of no use.
    pub fn backup_to<'a>(
        &self,
        out: &mut dyn Write,
        options: impl Into<BackupOptions<'a>>,
    ) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(&options.into(), Destination::Stream(out))
    }

    /// Writes a copy for a follower to a stream, while transactions run: what [`Follower::receive`] makes a directory of. It
    /// has everything up to a point of the log, and nothing behind it, and some log before it. The cursor that comes with the
    /// report begins at that point, and keeps the log behind it for the follower ([`CopyOptions::log_bytes_max`]).
    ///
    /// A copy is taken as a backup is ([`Database::backup_to`] says what waits for what), as fast as the stream takes it.
    /// The next [incremental backup](crate::BackupKind::Incremental) has all segments.
    ///
    /// # Blocking
    /// The call waits until the copy is complete.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a database that follows another one, and with logging transaction or none; else those of
    /// [`Database::backup_to`]. What was written before the error is of no use.
    pub fn copy_to(&self, out: &mut dyn Write, options: &CopyOptions<'_>) -> Result<(CopyReport, LogCursor)> {
        self.core().commits.check_logged("a copy for a follower")?;
        self.running.copy(options, out)
    }

    /// Copies all that has committed so far to the archive ([`Options::archive`]), with the log file that is being
    /// written, so that a restore can reach this moment. Log files that checkpoints free go to the archive without this
    /// call.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an archive; [`Error::Io`] or [`Error::DiskFull`] if the archive cannot be
    /// written; the error that stopped the log.
    pub fn archive_log(&self) -> Result<()> {
        self.running.archive_log()
    }

    /// What recovery did when the database was opened; `None` if the opening created the database.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.running.recovery()
    }

    /// The clock of the database ([`Options::clock`]).
    pub fn clock(&self) -> &Clock {
        &self.core().clock
    }

    /// The time account of this name, for [`TxOptions::procedure`]. A registered procedure has its own already. There
    /// are [`PROCEDURES_MAX`](crate::account::PROCEDURES_MAX) accounts; names beyond these share the account of
    /// transactions without a name.
    pub fn procedure_id(&self, name: &str) -> ProcedureId {
        self.core().commits.accounts.id(name)
    }

    /// The group commit design that the database was opened with.
    pub fn group_commit(&self) -> GroupCommitDesign {
        self.running.options().group_commit.design
    }

    /// Adds `by` to the stalls of all committers, until another value is set or the database is closed. An
    /// administrator uses it to relieve contention for processors, since larger groups need less processor time (KODA,
    /// "Future Work"). Zero takes it back. Which stall it lengthens depends on the design:
    ///
    /// - commit-stall: the stall of every committer but the first in the queue; hiber-stall: the committer's stall;
    /// - willing-to-wait, hiber-willing-to-wait: what each transaction is willing to wait, whatever it says;
    /// - hiber: the delay from one group to the next;
    /// - adaptive: only how long a group waits for the other commits that the design expects to join it. The committer
    ///   that completes the expected number still writes at once, and so does a lone transaction. No committer waits
    ///   longer than its transaction allows ([`TxOptions::commit_stall`], [`TxOptions::willing_to_wait`]);
    /// - log-server, commit-lock, commit-lock-shared: nothing. No committer stalls there: it sleeps until the log
    ///   server has written its group, or until the lock is granted.
    ///
    /// # Errors
    /// [`Error::BadDefinition`] if `by` is more than [`WAIT_MAX`](crate::log::group_commit::WAIT_MAX).
    pub fn raise_stalls(&self, by: Duration) -> Result<()> {
        check_wait("raise_stalls", by)?;
        self.core().commits.log.raise_stalls(by);
        Ok(())
    }

    /// The value last set by [`raise_stalls`](Database::raise_stalls).
    pub fn raised_stalls(&self) -> Duration {
        self.core().commits.log.raised_stalls()
    }

    /// Sets the checkpointer for the next checkpoint and those after it; a sweep in progress ends as it began. With
    /// [`Checkpointing::None`] no checkpoint is made in the background.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where [`Logging::refuses`](crate::Logging::refuses) the checkpointer, with its reason:
    /// with [`Logging::None`](crate::Logging::None) all but [`Checkpointing::None`], with
    /// [`Logging::Transaction`](crate::Logging::Transaction) those that are not transaction-consistent; also
    /// [`Checkpointing::None`] with [`Options::recovery_within`]. [`Error::Closed`]. [`Error::Io`], after
    /// [`Checkpointing::None`], if the thread that makes checkpoints cannot be started. After an error the checkpointer
    /// is as it was.
    pub fn set_checkpoint(&self, checkpoint: Checkpointing) -> Result<()> {
        self.running.set_checkpoint(checkpoint)
    }

    /// What the database has done since it was opened.
    pub fn metrics(&self) -> Metrics {
        self.running.metrics()
    }

    /// Closes the database for all handles. Later transactions get [`Error::Closed`]; open ones are aborted at their
    /// next operation; commits in progress are finished and synced. With [`Logging::None`](crate::Logging::None) a
    /// checkpoint then writes all of them.
    ///
    /// Inside a body a close would wait for itself. There it is refused, and the database stays open. Where the last
    /// handle is dropped in a body, the database closes in the background.
    ///
    /// The first call closes the database; a close by any other handle waits for it and returns its result.
    ///
    /// # Blocking
    /// The call waits for the open transactions' log records and the executors to end, and for the disk.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a body; the error of the log if it had stopped or stops now; the error of that
    /// checkpoint; an error if the archive does not take the rest of the log, which stays in the directory.
    pub fn close(self) -> Result<()> {
        self.running.close()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.core().storage.disk.describe())
    }
}
