//! [`ParallelReplay`]: the calls in the log, run again (System M's TOPER), several at a time where they do not
//! conflict.
//!
//! Recovery changes from redo to replay at the first call that it meets. From there on the tables have all of their
//! indexes and a catalog. Procedures run on them as usual, in transactions with locks, and each transaction is applied
//! at its place in the log. Packets of values are applied to the same tables, secondary indexes included, each when
//! everything before it is done. DDL and bulk loads are then redone as usual, and the tables that they have changed get
//! their secondary indexes anew.
//!
//! One thread, the *reader*, reads the log and hands calls to *workers*, each of which has a thread of its own. A
//! worker runs its calls in the order of the log. A call runs when all calls that it has to wait for are done
//! ([`Conflicts`]). It goes to the worker that has the last of these calls, and then need not wait for that call
//! ([`Assignment`]). The earliest call that is not done waits for no other call, and is the first one of its worker. So
//! there is always a worker that makes progress.
//!
//! Invariants kept here:
//!
//! - **The outcome is that of the calls one after the other** in the order of the log. If a call has another outcome
//!   than it had before the crash, a panic included, recovery ends with an error that names the call's place, procedure
//!   and arguments, and writes nothing (I8). But if an operation gave the call an error of the moment, as at the memory
//!   bound, then recovery ends with that error, whatever the body made of it.
//! - **A call finds what it found before the crash**: its bodies are marked as bodies ([`InBody`]), so an operation
//!   that a body may not do gives [`Error::Nested`] here, too.
//! - **Each worker finds its context free**: locks are thin, and with these a transaction can always release its locks
//!   at its end. (With local locks it may have to leave that to another thread.)
//! - **The memory of calls in progress is bounded**: it lies outside the memory of the tables.

mod conflicts;
mod turns;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_utils::Backoff;
use hashbrown::HashMap;
use parking_lot::Mutex;

use self::conflicts::{Conflicts, Predecessors};
use self::turns::{Assignment, ReplayTurns, WINDOW};
use super::{Outputs, Prepared, Procedure, Registered, conventional};
use crate::account::Accounts;
use crate::commit::{CommitPath, CommitsInProgress, Definitions, Logging};
use crate::error::{Error, Result};
use crate::foreign::{Panic, catch};
use crate::ids::{Lsn, TableId};
use crate::inside::InBody;
use crate::io::{Caching, Clock, Disk, MemoryDisk};
use crate::isolate::{LockForm, LockManager, LockOptions};
use crate::log::{Durability, Log, LogOptions, LogThreads, PoolOwner};
use crate::recovery::calls::{Replay, ReplayedTables, Replayer, Setup, unsupported};
use crate::row::{Value, WhichIndex};
use crate::store::{Catalog, CatalogChange, TableParts, TableVersion};
use crate::txn::Transaction;
use crate::txn::calls::{LoggedCall, NumberSource, Numbers, checksum_of};
use crate::txn::core::{Contexts, Core, TxDefaults};
use crate::txn::options::TxOptions;

/// How many calls are handed to the workers at once.
const BATCH: u64 = 64;

/// The most bytes of calls in progress. A call that alone takes more may run alone.
const BYTES_MAX: usize = 8 << 20;

/// How long the reader sleeps before it checks again.
const READER_SLEEPS: Duration = Duration::from_micros(50);

/// Runs calls again by these procedures.
pub(crate) struct ByProcedures<'a>(pub &'a [Procedure]);

impl Replayer for ByProcedures<'_> {
    fn begin(&self, setup: &Setup, tables: Vec<Arc<TableVersion>>) -> Result<Box<dyn Replay>> {
        Ok(Box::new(ParallelReplay::begin(self.0, setup, tables)?))
    }
}

/// A call that is to be run.
struct Item {
    call: u64,
    /// The bytes that it takes ([`LoggedCall::bytes`]).
    bytes: usize,
    before: Predecessors,
    lsn: Lsn,
    procedure: Prepared,
    arguments: Vec<Value>,
    numbers: Numbers,
    checksum: u32,
}

/// What the workers and the reader share.
struct SharedReplay {
    core: Arc<Core>,
    turns: ReplayTurns,
    /// The bytes of calls in progress: calls that are handed over, or are about to be, and are not done.
    bytes: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// A replay of calls that has begun.
struct ParallelReplay {
    /// The procedures, with all versions of each name that were given, because a log has calls of several.
    procedures: HashMap<String, Vec<Prepared>>,
    core: Arc<Core>,
    shared: Arc<SharedReplay>,
    conflicts: Conflicts,
    senders: Vec<Sender<Vec<Item>>>,
    threads: Vec<JoinHandle<()>>,
    assignment: Assignment,
    /// For each worker, the calls that are handed over together.
    batches: Vec<Vec<Item>>,
    /// The tables, by their identifiers.
    versions: HashMap<TableId, Arc<TableVersion>>,
    /// The highest hidden row number that was applied.
    highest_number: u64,
    /// The number of calls.
    calls: u64,
}

/// The error for a call that has another outcome than it had then.
#[cold]
fn other_outcome(lsn: Lsn, procedure: &Registered, arguments: &[Value], what: String) -> Error {
    let printed: Vec<_> = arguments.iter().map(Value::to_string).collect();
    let Procedure { name, version, .. } = procedure.procedure();
    Error::Replay { lsn, procedure: name.clone(), version: *version, arguments: printed.join(", "), what }
}

impl ParallelReplay {
    /// Begins with these tables.
    fn begin(given: &[Procedure], setup: &Setup, tables: Vec<Arc<TableVersion>>) -> Result<ParallelReplay> {
        // One thread reads the log and finds the conflicts. That is work, too: one worker more on two cores gained
        // nothing.
        let workers = setup.threads.saturating_sub(1).max(1);
        let packet_slots = 4 * workers;
        let log_options = LogOptions {
            threads: LogThreads::None,
            caching: Some(Caching::Buffered),
            writes_in_flight: Some(1),
            packet_slots,
            first_file_bytes: 64 << 10,
            file_bytes: 64 << 10,
            ring_bytes: 256 << 10,
            ..LogOptions::default()
        };
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        // Nothing is logged; transactions write their packets in the slots of this log.
        let log = Log::create(&disk, setup.database_id, &log_options)?;
        let catalog = Catalog::new(0);
        let mut versions = HashMap::new();
        for table in tables {
            catalog.publish(table.clone());
            versions.insert(table.id, table);
        }
        let accounts = Arc::new(Accounts::new(workers));
        let prepare = |procedure| Prepared::new(procedure, &catalog);
        let prepare = |(name, versions): (_, Vec<_>)| (name, versions.into_iter().map(prepare).collect());
        let procedures = Registered::all(given, &accounts)?.into_iter().map(prepare).collect();
        let core = Arc::new(Core {
            storage: setup.storage(disk, catalog),
            commits: CommitPath {
                log,
                in_progress: Arc::new(CommitsInProgress::new(workers)),
                definitions: Definitions::new(),
                accounts,
                logging: Logging::Value,
                calls: AtomicBool::new(false),
                checks_determinism: false,
            },
            locks: LockManager::new(LockOptions {
                // Each worker has one context, which has to come back with its locks released. With local locks, a
                // transaction that ends while another worker's body has its lock table out would keep locks. The
                // conflicts order the calls, whatever the form of locks.
                form: LockForm::Thin,
                owners_max: workers,
                // One lock on many keys, when a call committed, may be a lock on each of them here.
                locks_max: usize::MAX,
                ..LockOptions::default()
            }),
            contexts: Contexts::new(workers),
            part_contexts: Contexts::new(0),
            part_packets: PoolOwner::of_homes(0),
            stages: None,
            prepared: Default::default(),
            redo_steps: Default::default(),
            releases: Arc::default(),
            // A replay makes no decision by the time.
            clock: Clock::System,
            defaults: TxDefaults {
                durability: Durability::Memory,
                lock_timeout: Duration::from_secs(3600),
                log_wait_max: Duration::ZERO,
                write_set_bytes_max: 1 << 29,
                packet_slots,
                transactions_max: workers,
                // A worker runs its calls one after the other, and nothing is copied meanwhile.
                deadlock_retries_max: 0,
                straddling_retry: Duration::ZERO,
                straddling_hints: false,
                progress: None,
            },
        });
        let shared = Arc::new(SharedReplay {
            core: core.clone(),
            turns: ReplayTurns::new(workers),
            bytes: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let (sender, receiver) = channel();
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name("rialto-replay".to_owned())
                .spawn(move || serve(&shared, worker, &receiver))
                .map_err(|error| Error::Io {
                    file: "rialto-replay".to_owned(),
                    offset: 0,
                    operation: "start of the thread".to_owned(),
                    cause: error.to_string(),
                })?;
            senders.push(sender);
            threads.push(thread);
        }
        Ok(ParallelReplay {
            procedures,
            core,
            shared,
            conflicts: Conflicts::new(given.iter().map(|procedure| &procedure.flow)),
            senders,
            threads,
            assignment: Assignment::new(workers),
            batches: (0..workers).map(|_| Vec::new()).collect(),
            versions,
            highest_number: 0,
            calls: 0,
        })
    }

    fn procedure_of(&mut self, lsn: Lsn, call: &LoggedCall<'_>) -> Result<Prepared> {
        let versions = self.procedures.get_mut(call.name).map_or(&mut [][..], Vec::as_mut_slice);
        let of_version = |procedure: &Prepared| procedure.procedure().version == call.version;
        let Some(at) = versions.iter().position(of_version) else {
            let there: Vec<_> =
                versions.iter().map(|procedure| procedure.procedure().version.to_string()).collect();
            let what = match &there[..] {
                [] => "which is not there: open the database with it in Options::procedures, or the log cannot be replayed"
                    .to_owned(),
                there => format!(
                    "of which only version {} is there: open the database with version {} in Options::procedures, too; \
                     after a checkpoint it is needed no longer",
                    there.join(", "),
                    call.version
                ),
            };
            return Err(unsupported(lsn, call, &what));
        };
        let procedure = &mut versions[at];
        if !procedure.procedure().deterministic {
            let what = "which is there, but not as deterministic: give Options::procedures the procedure that made \
                        the call (Procedure::deterministic)";
            return Err(unsupported(lsn, call, what));
        }
        procedure.follow(&self.core.storage.catalog);
        Ok(procedure.clone())
    }

    /// Hands over what there is, to all workers, so the predecessors of a call are with them, too.
    fn flush(&mut self) {
        for (sender, batch) in self.senders.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                // A worker is gone only if it has panicked, which the end of the replay finds out.
                let _ = sender.send(std::mem::take(batch));
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.shared.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Makes room for a call of so many bytes among the calls in progress.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if !self.shared.has_room(bytes) {
            self.flush();
            self.wait_until(|shared| shared.has_room(bytes));
            self.check()?;
        }
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn wait_for(&self, call: u64) {
        self.wait_until(|shared| shared.turns.are_done(call));
    }

    /// Waits as a worker does, but sleeps, to leave the processors to the workers: it is ahead of them by
    /// milliseconds of work.
    fn wait_until(&self, done: impl Fn(&SharedReplay) -> bool) {
        let backoff = Backoff::new();
        while !done(&self.shared) && !self.shared.failed.load(Ordering::Acquire) {
            match backoff.is_completed() {
                true => std::thread::sleep(READER_SLEEPS),
                false => backoff.snooze(),
            }
        }
    }

    fn stop(&mut self) {
        self.senders.clear();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join().map_err(Panic::from)
                && !std::thread::panicking()
            {
                panic.resume();
            }
        }
        // Contexts keep their core alive.
        self.core.storage.closed.store(true, Ordering::SeqCst);
        self.core.contexts.close();
    }
}

impl Replay for ParallelReplay {
    fn call(&mut self, lsn: Lsn, call: LoggedCall<'_>) -> Result<()> {
        let procedure = self.procedure_of(lsn, &call)?;
        let bytes = call.bytes();
        let LoggedCall { numbers, arguments, checksum, .. } = call;
        // Checked before anything is computed from them.
        let checked = procedure
            .check(&arguments)
            .map_err(|failure| other_outcome(lsn, &procedure, &arguments, failure.to_string()))?;
        let arguments = match checked {
            Cow::Borrowed(_) => arguments,
            Cow::Owned(checked) => checked,
        };
        self.make_room(bytes)?;
        self.highest_number = numbers.iter().copied().fold(self.highest_number, u64::max);
        let (count, before) = self.conflicts.next(&procedure, &arguments, &self.core.storage.catalog);
        let worker = self.assignment.next(&self.shared.turns, count, before.last());
        self.batches[worker].push(Item {
            call: count,
            bytes,
            before,
            lsn,
            procedure,
            arguments,
            numbers,
            checksum,
        });
        self.calls += 1;
        if count.is_multiple_of(BATCH) {
            self.flush();
            self.check()?;
            // So that the next batch finds its entries in the ring free.
            self.wait_for((count + BATCH).saturating_sub(WINDOW));
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.flush();
        self.wait_for(self.conflicts.last());
        self.check()
    }

    fn take_out(&mut self, tables: &mut dyn Iterator<Item = TableId>) {
        for id in tables {
            self.give_up_indexes(id);
            if let Some(version) = self.versions.remove(&id) {
                version.retire();
                version.store.discard_index(WhichIndex::Primary);
                self.core.storage.catalog.change([CatalogChange::Remove(&version)]);
            }
        }
    }

    fn give_up_indexes(&self, table: TableId) {
        let Some(version) = self.versions.get(&table) else { return };
        let secondaries = (0..version.schema.indexes().len()).map(WhichIndex::Secondary);
        secondaries.clone().for_each(|which| version.store.discard_index(which));
        for which in secondaries.chain([WhichIndex::Primary]) {
            self.core.locks.forget_intervals(version.index_id(which));
        }
    }

    fn put_in(&mut self, version: TableVersion) {
        let before = self.versions.get(&version.id).cloned();
        let version = Arc::new(match &before {
            Some(before) => {
                TableVersion::new(TableParts { lineage: before.lineage.clone(), ..version.parts() })
            }
            None => version,
        });
        self.core.storage.catalog.publish(version.clone());
        if let Some(before) = before {
            before.retire();
            if !before.store.shares_primary(&version.store) {
                before.store.discard_index(WhichIndex::Primary);
            }
        }
        self.versions.insert(version.id, version);
    }

    fn forget_identifiers(&mut self) {
        self.conflicts.forget_tables();
    }

    fn version(&self, table: TableId) -> &Arc<TableVersion> {
        &self.versions[&table]
    }

    fn note_row_number(&mut self, number: u64) {
        self.highest_number = self.highest_number.max(number);
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn end(mut self: Box<Self>) -> Result<ReplayedTables> {
        let done = self.barrier();
        self.stop();
        done.map(|()| ReplayedTables::new(std::mem::take(&mut self.versions), self.highest_number))
    }
}

impl Drop for ParallelReplay {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SharedReplay {
    fn may_run(&self, before: &Predecessors) -> bool {
        before.each.iter().all(|&call| self.turns.is_done(call)) && self.turns.are_done(before.all)
    }

    /// Waits until a call may run; gives up when a call has failed.
    fn wait_for(&self, before: &Predecessors) {
        let backoff = Backoff::new();
        while !self.may_run(before) && !self.failed.load(Ordering::Acquire) {
            if backoff.is_completed() {
                std::thread::yield_now();
            } else {
                backoff.snooze();
            }
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let on_way = self.bytes.load(Ordering::Relaxed);
        on_way == 0 || on_way + bytes <= BYTES_MAX
    }

    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }
}

/// Marks the replay as failed if a worker panics, so that no thread waits for that worker.
struct FailOnPanic<'a>(&'a SharedReplay);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Release);
        }
    }
}

fn serve(shared: &SharedReplay, worker: usize, receiver: &Receiver<Vec<Item>>) {
    let _fails = FailOnPanic(shared);
    while let Ok(batch) = receiver.recv() {
        for item in batch {
            let Item { call, bytes, .. } = item;
            shared.wait_for(&item.before);
            if !shared.failed.load(Ordering::Acquire)
                && let Err(error) = run(&shared.core, item)
            {
                shared.fail(error);
            }
            shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            shared.turns.note(worker, call);
        }
    }
}

/// Runs one call again, and applies it at its place.
fn run(core: &Arc<Core>, item: Item) -> Result<()> {
    let Item { lsn, procedure, arguments, numbers, checksum, .. } = item;
    let error = |what: String| other_outcome(lsn, &procedure, &arguments, what);
    let mut outputs = Outputs::none();
    loop {
        let mut context = match core.lend() {
            // There is one context for each worker, and this one's is being returned.
            Err(Error::TooManyTransactions { .. }) => {
                std::thread::yield_now();
                continue;
            }
            lent => lent?,
        };
        context.begin(&TxOptions::default(), None)?;
        context.numbers = NumberSource::Given(numbers.clone(), 0);
        context.of_the_moment = None;
        let mut transaction = Transaction::of(context);
        let outcome = {
            let _in_body = InBody::of_replay();
            catch(|| conventional::run(&procedure, &mut transaction, &arguments, &mut outputs))
        };
        let context = transaction.context();
        let found = checksum_of(context.packet_bytes());
        if matches!(outcome, Ok(Ok(()))) && found == checksum {
            context.apply_again(lsn);
            return Ok(());
        }
        // An error of the moment explains the outcome, whatever the body made of it: another error, a panic, or
        // nothing.
        let done = match (context.of_the_moment.take(), outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(done)) => done,
            (None, Err(panic)) => {
                let text = panic.text().map_or(String::new(), |text| format!(": {text}"));
                return Err(error(format!("it committed then, and now it panics{text}")));
            }
        };
        match done {
            // These come from locks that two calls share by the hash of their keys: the call runs again.
            Err(Error::Deadlock { .. } | Error::WouldWait { .. } | Error::LockTimeout { .. }) => {}
            Err(full @ Error::MemoryLimit { .. }) => return Err(full),
            Err(failure) => {
                return Err(error(format!("it committed then, and now it gives an error: {failure}")));
            }
            Ok(()) => {
                return Err(error(format!(
                    "it writes something else than it did then (checksum {found:08x}, expected {checksum:08x}): it was \
                     changed without another version, or is not deterministic"
                )));
            }
        }
    }
}
