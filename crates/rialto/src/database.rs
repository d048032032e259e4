//! [`Database`]: the way in.

mod calls;
mod drive;
mod executors;
mod prepared_call;
mod routing;
mod transaction_server;

use crate::inside::InBody;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use prepared_call::PreparedCall;

use crate::account::ProcedureId;
use crate::backup::{BackupKind, BackupReport, Destination};
use crate::checkpoint::{CheckpointReport, Checkpointing};
use crate::engine::Runtime;
use crate::engine::run::{run, take_rest};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::io::{Disk, FileDisk};
use crate::isolate::LockMode;
use crate::log::{Durability, GroupCommitDesign, Patience};
use crate::metrics::Metrics;
use crate::open::{self, Handle};
use crate::options::Options;
use crate::recovery::{OpenError, RecoveryReport};
use crate::reply::Ticket;
use crate::store::Table;
use crate::txn::Transaction;
use crate::txn::core::Core;
use crate::txn::options::{TxOptions, check_wait};
use crate::txn::retries::Retries;
use crate::txn::runs::{Runs, deadlocks_allowed, start};
use crate::unlikely::unlikely;

/// A database in a directory, open. `Clone + Send + Sync`: clones are handles to the same database, which closes when
/// the last is dropped (or by [`Database::close`]).
#[derive(Clone)]
pub struct Database {
    running: Arc<Handle>,
}

/// A transaction that waits for a lock.
#[derive(Debug, Clone, PartialEq)]
pub struct LockWait {
    /// The slot of the transaction that waits.
    pub waiter: u16,
    /// The slots of those that hold the lock in its way.
    pub holders: Vec<u16>,
    /// What the lock is on: the table, and the key by its columns.
    pub lock: String,
    /// The mode asked for.
    pub mode: LockMode,
    /// How long it has waited.
    pub waited: Duration,
}

impl Database {
    /// Opens the database in a directory; makes it one if there is none.
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
        Ok(Database { running: Arc::new(Handle::new(open::open(disk, options)?)) })
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.running.runtime()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.running.core()
    }

    /// Begins a transaction to be used across calls. Dropping the handle aborts.
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`]; [`Error::Closed`].
    pub fn begin(&self) -> Result<Transaction<'static>> {
        self.begin_with(&TxOptions::default())
    }

    /// As [`Database::begin`], with options.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub fn begin_with(&self, options: &TxOptions) -> Result<Transaction<'static>> {
        start(self.core(), options, None)
    }

    /// Begins the next run of a transaction whose last one, a handle's, was a deadlock's victim; `retries` are those of the transaction,
    /// before its first run [`Retries::default`]. As [`Database::transact`] does: the victim is given up, the transaction that won has some
    /// time, and the next run is as old as the first one, so that it is not the youngest, and thereby the victim, for ever.
    ///
    /// # Errors
    /// `error`, which ended the last run, if it is no deadlock or the [`Options::deadlock_retries_max`] are used up: when what
    /// the victim read is durable (I3). As [`Database::begin`].
    pub fn begin_again(
        &self,
        victim: Transaction<'static>,
        error: Error,
        options: &TxOptions,
        retries: &mut Retries,
    ) -> Result<Transaction<'static>> {
        let core = self.core();
        let mut victim = victim;
        let rest = match error {
            Error::Deadlock { .. } => retries.after_deadlock(deadlocks_allowed(core, &mut victim)),
            _ => None,
        };
        let Some(rest) = rest else { return victim.fail(error) };
        let started = victim.context().owner.started();
        victim.give_up();
        drop(victim);
        take_rest(core, Some(rest));
        start(core, options, Some(started))
    }

    /// Runs `body` as one serializable transaction and waits until its outcome is durable. After a deadlock, or when a
    /// black/white checkpoint was in its way, the body runs again: it may run several times, and sees
    /// its own writes. If it fails, or panics, nothing of it is kept; its error or panic goes on when what it read is durable.
    ///
    /// # Errors
    /// What the body gives; what keeps the commit from taking place; [`Error::OutcomeUnknown`]; [`Error::Nested`] inside
    /// another body on this thread.
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
    /// durable. So a few threads can keep thousands of transactions in flight.
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
        let (value, mut done) = run(self.core(), options, Runs::new(), body)?;
        let ticket = done.ticket();
        done.give_back(self.core());
        Ok((value, ticket))
    }

    /// Runs `body` as a transaction that only reads. It takes no locks on rows (with [thin locks](crate::Locks::Thin)):
    /// if another transaction has changed what it read before it ends, it runs again, with locks. What it did then,
    /// panics included, is forgotten.
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

    /// All tables, by name; the system's, whose names begin with `rialto_`, among them.
    pub fn tables(&self) -> Vec<Table> {
        self.core().storage.catalog.all()
    }

    /// A number that changes when a table or an index is created, changed or dropped: for caches of plans.
    pub fn catalog_version(&self) -> u64 {
        self.core().storage.catalog.version()
    }

    /// Who waits for whom, right now. With local locks, who waits at an executor that a long body has in its hands is left out; so are
    /// calls of procedures that threads run, as long as they step aside for their first locks, a quarter of their lock time-out at most.
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

    /// The error that stopped the database, if one did: after a failed write or sync of its log, or a panic in one,
    /// nothing commits any more (I4), and what was read may never be durable. Close it, and open it again to recover.
    pub fn stopped(&self) -> Option<Error> {
        self.core().commits.log.failure()
    }

    /// Makes every transaction committed so far durable on disk, at whatever level it was committed.
    ///
    /// # Errors
    /// If the log has stopped; [`Error::Unsupported`] with [`Logging::None`](crate::Logging::None).
    pub fn sync(&self) -> Result<()> {
        self.core().commits.check_logged("sync")?;
        let log = &self.core().commits.log;
        let synced = log.sync();
        if !InBody::is_inside(self.core().storage.catalog.opening()) {
            log.wake_listeners();
        }
        synced
    }

    /// Waits until everything that has committed by now is durable at this level, the database's unless said: whatever any
    /// transaction has read by now is among it. For a caller who tells what a transaction has read before that
    /// transaction has ended (I3).
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

    /// Waits until every change of tables and indexes that has committed by now is durable at this level, the database's
    /// unless said. For a caller who tells what [`Database::table`] found, or that it found nothing: a
    /// [transaction](crate::Transaction::table) that looks there waits at its end instead (I3).
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log fails first.
    pub fn settle_definitions(&self, durability: Option<Durability>) -> Result<()> {
        self.settle_place(self.core().storage.catalog.changed_at(), durability)
    }

    /// The place of the last change of tables and indexes that may be visible: while it stays the same, so does what
    /// [`Database::settle_definitions`] has waited for.
    #[inline]
    pub fn definitions_place(&self) -> Lsn {
        self.core().storage.catalog.changed_at()
    }

    /// Makes a checkpoint that begins now, and waits for it: what is committed before is recovered from the backup copy,
    /// not from the log. A checkpoint with nothing new to write is skipped.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written: the database goes on with the last complete one. [`Error::Stopped`] if the
    /// log has stopped; [`Error::Closed`]; [`Error::Unsupported`] with [`Logging::None`](crate::Logging::None).
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.core().commits.check_logged("checkpoint")?;
        self.running.checkpoint()
    }

    /// Takes a backup to a directory, which is made if it is not there, while transactions run: all that has committed when it
    /// begins, and nothing that commits later. It becomes a database again by [`restore`](crate::backup::restore).
    ///
    /// It waits for a checkpoint that is being made, which hurries, and checkpoints wait for it; commits wait only for its cut
    /// (microseconds) and, as with a copy-on-update checkpoint, when [`Options::snapshot_bytes_max`] leaves no room. It goes as
    /// fast as the directory takes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the directory holds a backup or a database already, and with
    /// [`Logging::None`](crate::Logging::None); [`Error::Io`] and [`Error::DiskFull`]; [`Error::LogFull`] if the log comes near
    /// its bound before the backup is done, or a transaction waits for room in it. Nothing is taken for a backup then, and the next one has what this one would
    /// have had.
    pub fn backup(&self, to: impl AsRef<Path>, kind: BackupKind) -> Result<BackupReport> {
        self.backup_on(FileDisk::create(to)?, kind)
    }

    /// As [`Database::backup`], unless it is cancelled: it looks at `cancelled` before each segment that it copies, and not while it
    /// waits for a checkpoint.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; else as [`Database::backup`].
    pub fn backup_unless(
        &self,
        cancelled: &AtomicBool,
        to: impl AsRef<Path>,
        kind: BackupKind,
    ) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(kind, Destination::Directory(FileDisk::create(to)?), cancelled)
    }

    /// As [`Database::backup`], to the directory that a disk is.
    ///
    /// # Errors
    /// As [`Database::backup`].
    pub fn backup_on(&self, disk: Arc<dyn Disk>, kind: BackupKind) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(kind, Destination::Directory(disk), &AtomicBool::new(false))
    }

    /// As [`Database::backup`], to a stream. One that takes nothing any more holds up checkpoints, and commits when there is no
    /// room for snapshots left. In its calls what would wait for the backup is [`Error::Nested`]: of this database, transactions
    /// with a body, checkpoints and backups, a close, and the commit of a handle for which there is no room for snapshots.
    ///
    /// # Errors
    /// As [`Database::backup`]. What was written before is of no use.
    pub fn backup_to(&self, out: &mut dyn Write, kind: BackupKind) -> Result<BackupReport> {
        self.core().commits.check_logged("backup")?;
        self.running.backup(kind, Destination::Stream(out), &AtomicBool::new(false))
    }

    /// Has the archive ([`Options::archive`]) take all that has committed so far, the log file that is being written too, so
    /// that it can be restored to. What checkpoints free goes there without being asked for.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an archive; [`Error::Io`] or [`Error::DiskFull`] if that fails, or the log.
    pub fn archive_log(&self) -> Result<()> {
        self.running.archive_log()
    }

    /// What recovery did when the database was opened; none if it was made then.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.running.recovery()
    }

    /// The time account of this name, for [`TxOptions::procedure`]. A registered procedure has its own already. There
    /// are [`PROCEDURES_MAX`](crate::account::PROCEDURES_MAX); names beyond those share the account of transactions
    /// without a name.
    pub fn procedure_id(&self, name: &str) -> ProcedureId {
        self.core().commits.accounts.id(name)
    }

    /// The group commit design that the database was opened with.
    pub fn group_commit(&self) -> GroupCommitDesign {
        self.running.options().group_commit.design
    }

    /// Adds this to the stalls of all committers, from now on until it is told otherwise or the database is closed: an
    /// administrator's means to ease a contention for processors, as larger groups take less of them (KODA, "Future
    /// Work"). Zero takes it back. What it lengthens is the design's:
    ///
    /// - commit-stall: the stall of everybody but the first on the queue; hiber-stall: the committer's stall;
    /// - willing-to-wait, hiber-willing-to-wait: what each transaction is willing to wait, whatever it says;
    /// - hiber: the delay from one group to the next;
    /// - adaptive: only how long a company that is not complete is waited for. Who completes it writes at once all the
    ///   same, and so does a lone transaction, which has no company; nobody waits longer than its transaction allows
    ///   ([`TxOptions::commit_stall`], [`TxOptions::willing_to_wait`]);
    /// - log-server, commit-lock, commit-lock-shared: nothing. Nobody stalls there: a committer sleeps until the log server
    ///   has written its group, or until the lock is granted.
    ///
    /// # Errors
    /// [`Error::BadDefinition`] if it is more than [`WAIT_MAX`](crate::log::group_commit::WAIT_MAX).
    pub fn raise_stalls(&self, by: Duration) -> Result<()> {
        check_wait("raise_stalls", by)?;
        self.core().commits.log.raise_stalls(by);
        Ok(())
    }

    /// What [`raise_stalls`](Database::raise_stalls) was last told.
    pub fn raised_stalls(&self) -> Duration {
        self.core().commits.log.raised_stalls()
    }

    /// Has checkpoints made in another way, from the next one on; a sweep that goes on ends as it began. With
    /// [`Checkpointing::None`] none is made in the background.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and the checkpoints stay as they were: where
    /// [`Logging::refuses`](crate::Logging::refuses) it, with its reason (with [`Logging::None`](crate::Logging::None) all but
    /// [`Checkpointing::None`], with [`Logging::Transaction`](crate::Logging::Transaction) those that are not
    /// transaction-consistent); [`Checkpointing::None`] with [`Options::recovery_within`]. [`Error::Closed`]; [`Error::Io`] if
    /// the thread that makes checkpoints cannot be started, after [`Checkpointing::None`].
    pub fn set_checkpoint(&self, checkpoint: Checkpointing) -> Result<()> {
        self.running.set_checkpoint(checkpoint)
    }

    /// What the database has done since it was opened.
    pub fn metrics(&self) -> Metrics {
        self.running.metrics()
    }

    /// Closes the database for all handles: later transactions get [`Error::Closed`], open ones are aborted when they go
    /// on, commits on their way are finished and synced. With [`Logging::None`](crate::Logging::None) a checkpoint is
    /// made of all of them.
    ///
    /// Inside a body a close would wait for itself. It is refused there, and the database stays open; but where the last handle
    /// goes away in a body, the database closes in the background.
    ///
    /// The first handle that closes it does so; the close of any other waits for that, and gives what it came to.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a body. If the log had stopped, or stops now; if that checkpoint cannot be written; if the archive does not take the rest of the
    /// log, which stays in the directory.
    pub fn close(self) -> Result<()> {
        self.running.close()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.core().storage.disk.describe())
    }
}
