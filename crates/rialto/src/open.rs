//! Opens and closes a database.

mod source;

use crate::Background;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use self::source::Source;
use crate::account::{Accounts, ProcedureAccount, ServerTimes};
use crate::backup::{
    BackupOptions, BackupReport, Backups, CopyOptions, CopyReport, Destination, Output, RESTORING, Taking,
};
use crate::catalog::{Description, first_row_number};
use crate::checkpoint::home::{HOME_FILE, HomeError, HomeFile, NEW_HOME_FILE};
use crate::checkpoint::image_sums::ImageSums;
use crate::checkpoint::{CheckpointOptions, CheckpointReport, Checkpointer, Checkpointing, RunLength};
use crate::commit::{CommitPath, CommitsInProgress, Definitions, Logging};
use crate::engine::data_oriented::{Bounds, Queues, ResourceManager};
use crate::engine::replay::ByProcedures;
use crate::engine::{CallersServers, Procedures, Runtime};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::inside::{InBody, check_may_wait};
use crate::io::{Caching, DirectoryLock, Disk, FOR_EVER, Open};
use crate::isolate::{Grains, LockGrain, LockManager, LockOptions};
use crate::log::{Archiver, Log, LogCursor, LogOptions, LogThreads, PoolOwner, RING_NAME};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::recovery::{
    Calls, OpenError, Recovered, Recovery, RecoveryPages, RecoveryRates, RecoveryReport, Room, memory,
    recover_either, within_memory,
};
use crate::row::WhichIndex;
use crate::store::Budget;
use crate::store::memory::image::seed_of;
use crate::store::memory::load_file::LoadFileReader;
use crate::store::memory::{LoadCommit, LoadFile, MemoryStore, remove_received};
use crate::store::paged::{DiskTables, PAGE_FILE};
use crate::store::{Catalog, Material, Storage};
use crate::txn::core::{Contexts, Core, TxDefaults};
use crate::txn::prepared::{PreparedTransactions, TakenAgain};
use crate::txn::redo_steps::RedoSteps;
use crate::txn::two_stage::TwoStages;
use crate::{fault_injection, seed};

/// An open database: what runs its transactions, and the threads that end with it.
pub(crate) struct Running {
    pub(super) core: Arc<Core>,
    runtime: Arc<Runtime>,
    options: Options,
    /// Present on the data-oriented engine.
    resources: Mutex<Option<ResourceManager>>,
    checkpointer: Arc<Checkpointer>,
    backups: Backups,
    recovery: Option<RecoveryReport>,
    /// The result of the close, once the database was closed.
    pub(super) closed: Mutex<Option<Result<()>>>,
    /// It may be given back before the last handle is dropped.
    directory: Mutex<Option<DirectoryLock>>,
}

/// The state that an opening starts from, found in a directory or made there.
pub(crate) struct FoundDatabase {
    pub database_id: u128,
    pub memory: MemoryStore,
    pub disk_tables: Arc<DiskTables>,
    pub catalog: Catalog,
    pub log: Arc<Log>,
    pub home: HomeFile,
    pub loads: Vec<LoadFile>,
    /// The digests of the images in the copy in force.
    pub sums: ImageSums,
    /// `None` for a new database.
    pub recovery: Option<RecoveryReport>,
    /// The measured costs of a recovery's parts.
    pub recovery_rates: RecoveryRates,
}

/// What an opening is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It takes transactions.
    Leads,
    /// It follows the log of another database, and redoes up to this place what it has of it.
    Follows { redo_up_to: Lsn },
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: Options, role: Role) -> Result<Running, OpenError> {
    if let Some(what) = options.problem() {
        return Err(OpenError::Options { what });
    }
    // Procedures are checked before anything is read: one that makes no sense is an error in the options, not in the
    // log.
    let accounts = Arc::new(Accounts::new(options.transactions_max));
    let procedures = Procedures::of(&options.procedures, &accounts);
    let procedures = procedures.map_err(|error| OpenError::Options { what: error.to_string() })?;
    let directory = disk.describe();
    let lock = disk.lock().map_err(|error| OpenError::directory(&directory, &error))?;
    let found = match HomeFile::exists(&*disk)? {
        true => {
            forget_restore(&*disk)?;
            recover(&disk, &options, &directory, role)?
        }
        false if options.create => create(&disk, &options)?,
        false if is_unfinished(&*disk)? => return Err(unfinished()),
        false => return Err(OpenError::Missing { directory, what: "a database".to_owned() }),
    };
    if let Some(archive) = &options.archive {
        let to = archive
            .make(found.database_id)
            .map_err(|error| OpenError::Io(format!("archive {archive}: {error}")))?;
        found.log.archive_to(Archiver::new(disk.clone(), to, found.database_id));
    }
    let opened_at = found.log.place();
    let (calls_max, parts_max) = (options.transactions_max.div_ceil(2), options.parts_max());
    let (executors, threads) = (options.engine.executor_bounds(), options.engine.thread_bounds());
    let memory = Arc::new(Budget::new(options.lock_memory()));
    let core = Arc::new(Core {
        storage: Storage::new(
            (disk, found.database_id),
            (found.memory, found.disk_tables),
            found.catalog,
            found.loads,
            opened_at,
        ),
        commits: CommitPath {
            log: found.log,
            in_progress: Arc::new(CommitsInProgress::new(options.transactions_max)),
            definitions: Definitions::new(),
            accounts,
            logging: options.logging,
            calls: AtomicBool::new(false),
            checks_determinism: options.check_determinism,
        },
        locks: LockManager::new(LockOptions {
            form: options.engine.lock_form(),
            owners_max: options.transactions_max + parts_max,
            executors: *executors.start(),
            executors_max: *executors.end(),
            memory,
            clock: options.clock.clone(),
            ..LockOptions::default()
        }),
        contexts: Contexts::new(options.transactions_max),
        part_contexts: Contexts::new(parts_max),
        part_packets: PoolOwner::of_homes(parts_max),
        clock: options.clock.clone(),
        stages: Some(Box::new(TwoStages::new(options.two_stage))),
        prepared: PreparedTransactions::default(),
        redo_steps: RedoSteps::default(),
        releases: Arc::default(),
        defaults: TxDefaults {
            durability: options.durability,
            lock_timeout: options.lock_timeout,
            log_wait_max: options.log_wait_max.min(FOR_EVER),
            write_set_bytes_max: options.write_set_bytes_max,
            packet_slots: options.packet_slots(),
            transactions_max: options.transactions_max,
            deadlock_retries_max: options.deadlock_retries_max,
            straddling_retry: options.straddling_retry,
            straddling_hints: options.straddling_hints,
            progress: options.progress.clone(),
        },
    });
    if options.lock_grain == LockGrain::Page {
        core.locks.set_grains(grains(&core)?);
    }
    let runtime = Arc::new(Runtime {
        core: core.clone(),
        procedures,
        queues: (*threads.start() > 0)
            .then(|| Arc::new(Queues::new(&core, *threads.end(), calls_max, parts_max))),
        bounds: Bounds::new(executors, threads),
        engine: options.engine,
        server_times: CallersServers::default(),
    });
    core.commits.note_checkpoint(found.home.block().transaction_consistent);
    let source = Arc::new(Source {
        core: core.clone(),
        recovery_threads: options.recovery_threads,
        progress: options.progress.clone(),
    });
    let checkpoints = CheckpointOptions {
        interval: options.checkpoint_interval,
        sweep_bytes_per_s: options.sweep_bytes_per_s,
        log_bytes_max: options.log_bytes_max,
        run: RunLength::Auto,
        snapshot_bytes_max: options.snapshot_bytes_max(),
        spool: options.spool,
        unlogged_behind: (options.logging == Logging::None).then_some(core.storage.opened_at),
        copies: options.backup_copies,
        on_demand: match options.logging {
            Logging::Transaction => Checkpointing::TransactionCopyOnUpdate,
            _ => Checkpointing::Fuzzy,
        },
        recovery_within: options.recovery_within,
        recovery_rates: found.recovery_rates,
    };
    let clock = core.clock.clone();
    let copies = (found.home, found.sums);
    let checkpointer = Checkpointer::new(core.storage.disk.clone(), clock, copies, source, checkpoints);
    let hurried = Arc::downgrade(&checkpointer);
    core.commits.log.when_full(Box::new(move |makes_one| {
        let checkpointer = hurried.upgrade()?;
        let why_none = checkpointer.want_room();
        if makes_one {
            checkpointer.drive();
        }
        why_none
    }));
    let running = Running {
        core,
        runtime,
        options,
        resources: Mutex::default(),
        checkpointer,
        backups: Backups::default(),
        recovery: found.recovery,
        closed: Mutex::default(),
        directory: Mutex::new(Some(lock)),
    };
    match running.start(role) {
        Ok(()) => Ok(running),
        Err(error) => {
            // The threads that have started end before another opening can take the directory.
            running.end_work();
            let _ = running.end();
            Err(error)
        }
    }
}

/// Copies the load files that `which` selects to the archive.
fn archive_loads(core: &Core, archiver: &Archiver, which: impl Fn(&LoadFile) -> bool) -> Result<()> {
    let loads: Vec<LoadFile> = core.storage.loads.lock().clone();
    loads.iter().filter(|load| which(load)).try_for_each(|load| {
        let is_taken = match load.committed {
            LoadCommit::At(place) => {
                // If a crash takes the load back, its number is reused, and another load may get it.
                if place > core.commits.log.durable_position() {
                    core.commits.log.sync()?;
                }
                !fault_injection::is_on("archive-without-loads")
            }
            // What is left of an interrupted removal must not replace the whole file, which the archive then has.
            LoadCommit::BeforeOrNever(_) => {
                LoadFileReader::is_whole(&*core.storage.disk, core.storage.database_id, load.number)?
            }
            LoadCommit::Never | LoadCommit::Later | LoadCommit::Going => false,
        };
        if !is_taken {
            return Ok(());
        }
        core.commits.log.check_archive()?;
        archiver.take_load(load.number)
    })
}

pub(crate) fn log_options(options: &Options) -> LogOptions {
    let (defaults, file_bytes) = (LogOptions::default(), LogOptions::file_bytes_under(options.log_bytes_max));
    LogOptions {
        first_file_bytes: defaults.first_file_bytes.min(file_bytes),
        file_bytes,
        ring_bytes: LogOptions::ring_bytes_under(options.log_buffer_bytes, options.log_bytes_max),
        group_commit: options.group_commit,
        caching: options.log_writes,
        writes_in_flight: options.log_writes_in_flight,
        bytes_max: options.log_bytes_max,
        packet_slots: options.packet_slots(),
        memory_flush_interval: options.memory_flush_interval,
        wait_max: options.log_wait_max,
        threads: match options.background {
            Background::Threads => LogThreads::Background,
            Background::Driven => LogThreads::Driven,
        },
        clock: options.clock.clone(),
        ..defaults
    }
}

/// Whether a restore, or the receipt of a copy, has begun in the directory, and is not known to be complete.
fn is_unfinished(disk: &dyn Disk) -> Result<bool, OpenError> {
    Ok(disk.list()?.iter().any(|name| name == RESTORING))
}

fn unfinished() -> OpenError {
    let what = format!(
        "\"{RESTORING}\" says that a restore to this directory, or the receipt of a copy, was not completed: do it again, or \
         use an empty directory"
    );
    OpenError::Unsupported { what }
}

/// Removes the mark of a restore. A restore writes the home block last, so one that was interrupted after that is
/// complete.
fn forget_restore(disk: &dyn Disk) -> Result<(), OpenError> {
    if is_unfinished(disk)? {
        disk.remove(RESTORING)?;
        disk.sync_directory()?;
    }
    Ok(())
}

fn create(disk: &Arc<dyn Disk>, options: &Options) -> Result<FoundDatabase, OpenError> {
    if is_unfinished(&**disk)? {
        return Err(unfinished());
    }
    // A creation makes no file of these names, so an interrupted creation leaves none.
    let older = disk
        .list()?
        .into_iter()
        .find(|name| ["backup-", "load-", "log-follower", PAGE_FILE].iter().any(|of| name.starts_with(of)));
    if let Some(name) = older {
        let what = format!(
            "\"{name}\" belongs to a database, but its file \"{HOME_FILE}\" is missing: put it back, or use an \
             empty directory"
        );
        return Err(OpenError::Unsupported { what });
    }
    if !HomeFile::is_unmade(&**disk)? {
        let what = format!(
            "\"{NEW_HOME_FILE}\" is not what an interrupted creation of a database leaves: move it away, or use an empty \
             directory"
        );
        return Err(OpenError::Unsupported { what });
    }
    let (segments, nodes) = memory(options.memory_bytes, 0, 0)?;
    let memory = MemoryStore { segments, nodes };
    let catalog = Catalog::new(0);
    let database_id = seed::identifier();
    let disk_tables = Arc::new(DiskTables::new(disk.clone(), seed_of(database_id), options.pages()));
    let first_row_number = first_row_number(Lsn::ZERO);
    let storage = Material { memory: &memory, disk_tables: &disk_tables, first_row_number };
    for description in Description::of_system_tables() {
        catalog.publish(Arc::new(description.build(&storage)?));
    }
    let log = Log::create(disk, database_id, &log_options(options))?;
    let next_id = catalog.next_id();
    let home = HomeFile::create(&**disk, database_id, next_id)?;
    Ok(FoundDatabase {
        database_id,
        memory,
        disk_tables,
        catalog,
        log,
        home,
        loads: Vec::new(),
        sums: ImageSums::default(),
        recovery: None,
        recovery_rates: RecoveryRates::default(),
    })
}

/// Makes a copied directory durable: what was durable at the other database may lie in the page cache here. It may be
/// the directory of a primary that has ended: the shared memory of its ring is not to be durable.
fn sync_copy(disk: &dyn Disk) -> Result<(), OpenError> {
    for name in disk.list()?.into_iter().filter(|name| name != RING_NAME) {
        match disk.open(&name, Open::Existing, Caching::Buffered) {
            Err(error) if error.is_missing() => {}
            file => file?.sync()?,
        }
    }
    Ok(disk.sync_directory()?)
}

fn recover(
    disk: &Arc<dyn Disk>,
    options: &Options,
    directory: &str,
    role: Role,
) -> Result<FoundDatabase, OpenError> {
    let mut home = HomeFile::open(&**disk).map_err(|error| match error {
        HomeError::NewerVersion { found, supported } => {
            OpenError::NewerVersion { directory: directory.to_owned(), found, supported }
        }
        HomeError::OlderVersion { found, supported } => {
            OpenError::OlderVersion { directory: directory.to_owned(), found, supported }
        }
        HomeError::Failed(error) => error.into(),
    })?;
    remove_received(&**disk)?;
    let tell = options.progress.clone();
    let tell = tell.as_ref().map(|tell| &**tell as &(dyn Fn(&str) + Sync));
    let (newest, older) = (*home.block(), home.older().copied());
    let procedures = ByProcedures(&options.procedures);
    let recovered = recover_either(&newest, older.as_ref(), |start| {
        let (threads, memory_bytes) = (options.recovery_threads, options.memory_bytes);
        within_memory((&**disk, &start.home), threads, memory_bytes, |Room { threads, segments, nodes }| {
            let (calls, (of_segments, of_nodes)) = (Calls::Replayed(&procedures), (&segments, &nodes));
            let pages = RecoveryPages::beside(options.pages(), start, [Some(&newest), older.as_ref()]);
            let redo_up_to = match role {
                Role::Leads => Lsn::MAX,
                Role::Follows { redo_up_to } => redo_up_to,
            };
            let recovery = Recovery {
                disk,
                segments: of_segments,
                nodes: of_nodes,
                pages,
                threads,
                calls,
                tell,
                redo_up_to,
            };
            let recovered = recovery.run(start)?;
            Ok((segments, nodes, recovered))
        })
    });
    let ((segments, nodes, mut recovered), fell_back) = recovered?;
    segments.budget().end_reserve();
    if fell_back.is_some() {
        home.fall_back();
    }
    recovered.report.fell_back = fell_back;
    home.confirm()?;
    // The machine's and its disk's times count here, whatever clock the database has.
    let recovery_rates = RecoveryRates::after(&recovered.report, &**disk);
    let database_id = home.block().database_id;
    let log_options = log_options(options);
    let log = match role {
        Role::Leads if recovered.log_end.is_followed() => {
            let what = format!(
                "\"{directory}\" is a follower's, a copy that follows the log of another database: open it as one \
                 (Follower::open), and end to follow (Follower::lead) before it takes transactions"
            );
            return Err(OpenError::Unsupported { what });
        }
        Role::Leads => Log::open(disk, database_id, &log_options, recovered.log_end)?,
        Role::Follows { .. } => {
            if !recovered.log_end.is_followed() {
                sync_copy(&**disk)?;
            }
            Log::open_to_follow(disk, database_id, &log_options, recovered.log_end)?
        }
    };
    let catalog = Catalog::new(recovered.next_id);
    for table in recovered.tables {
        catalog.publish(table);
    }
    let Recovered { disk_tables, loads, sums, report, .. } = recovered;
    if options.logging == Logging::Transaction && disk_tables.has_tables() {
        let what = "logging transaction, in a database with disk-resident tables: a call that runs again would not find them \
                    as they were; use logging value"
            .to_owned();
        return Err(OpenError::Options { what });
    }
    let recovery = Some(report);
    let memory = MemoryStore { segments, nodes };
    Ok(FoundDatabase {
        database_id,
        memory,
        disk_tables,
        catalog,
        log,
        home,
        loads,
        sums,
        recovery,
        recovery_rates,
    })
}

impl Running {
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn metrics(&self) -> Metrics {
        let core = &self.core;
        let procedures = core.commits.accounts.read();
        let sum = |counter: fn(&ProcedureAccount) -> u64| procedures.iter().map(counter).sum();
        Metrics {
            committed: sum(|account| account.committed),
            aborted: sum(|account| account.aborted),
            aborted_deadlock: sum(|account| account.deadlocks),
            aborted_straddling: sum(|account| account.straddling),
            executor_requests: core.locks.requests_by_executor(),
            routing: core.locks.routing_changes(),
            plans: self.runtime.procedures.plans(),
            latch_conflicts: core.storage.memory.segments.latch_conflicts(),
            run_ns: sum(|account| account.time.run_ns),
            lock_wait_ns: sum(|account| account.time.lock_wait_ns),
            latch_wait_ns: sum(|account| account.time.latch_wait_ns),
            log_wait_ns: sum(|account| account.time.log_wait_ns),
            procedures,
            locks: core.locks.counters(),
            log: core.commits.log.stats(),
            log_writes: core.commits.log.write_path(),
            checkpoints: self.checkpointer.stats(),
            archive: core.commits.log.archiver().map(Archiver::stats),
            servers: ServerTimes {
                transaction: self.runtime.server_times.transaction.read(),
                message: self.runtime.server_times.message.read(),
                log: core.commits.log.server_time(),
                checkpoint: self.checkpointer.server_time(),
            },
            recovery: self.checkpointer.forecast(),
            memory_used: core.storage.memory.segments.budget().used(),
            pages: core.storage.disk_tables.stats().unwrap_or_default(),
            two_stage: core
                .stages
                .as_ref()
                .map_or_else(Vec::new, |stages| stages.accounts(&core.commits.accounts.names())),
            memory_limit: core.storage.memory.segments.budget().limit(),
        }
    }

    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        check_may_wait(self.core.storage.catalog.opening())?;
        self.core.storage.check_open()?;
        self.checkpointer.run_now()
    }

    /// See [`Database::announce`](crate::Database::announce).
    pub fn announce(&self, address: &str) {
        if let Some(directory) = &*self.directory.lock() {
            directory.announce(address);
        }
    }

    /// See [`Database::backup`](crate::Database::backup).
    pub fn backup(&self, options: &BackupOptions<'_>, to: Destination<'_>) -> Result<BackupReport> {
        let never = AtomicBool::new(false);
        let cancelled = options.cancelled.unwrap_or(&never);
        self.check_source("a backup")?;
        let mut to = Output::open(to)?;
        self.take(options, cancelled, None, |taking| self.backups.take(taking, &mut to))
    }

    /// See [`Database::copy_to`](crate::Database::copy_to).
    pub fn copy(&self, options: &CopyOptions<'_>, to: &mut dyn Write) -> Result<(CopyReport, LogCursor)> {
        let never = AtomicBool::new(false);
        let cancelled = options.cancelled.unwrap_or(&never);
        self.check_source("a copy")?;
        if self.options.logging == Logging::Transaction {
            let what = "a copy for a follower of a database with logging transaction".to_owned();
            return Err(Error::Unsupported { what });
        }
        let (log, bound) = (&self.core.commits.log, self.options.log_bytes_max);
        let mut to = Output::open(Destination::Stream(to))?;
        self.take(&options.of_backup(), cancelled, Some(log), |taking| {
            let report = taking.write_copy(&mut to)?;
            // Before checkpoints go on, which free log.
            let grown = log.end_position().saturating_sub(report.point.position.0);
            let kept = options.log_bytes_max.min(bound / 4).saturating_add(grown).min(bound / 2);
            let kept = if fault_injection::is_on("copy-keeps-no-log") { 0 } else { kept };
            let cursor = log.cursor(report.point, kept)?;
            Ok((report, cursor))
        })
    }

    /// Refuses a backup, or a copy, of a database that is closed or follows another one.
    fn check_source(&self, what: &str) -> Result<()> {
        check_may_wait(self.core.storage.catalog.opening())?;
        self.core.storage.check_open()?;
        if self.core.commits.log.is_following() {
            let what = format!("{what} of a database that follows another one: take it of that one");
            return Err(Error::Unsupported { what });
        }
        Ok(())
    }

    /// Runs `take` while no checkpoint runs; `log` is for a copy for a follower.
    fn take<T>(
        &self,
        options: &BackupOptions<'_>,
        cancelled: &AtomicBool,
        log: Option<&Arc<Log>>,
        take: impl FnOnce(&Taking<'_>) -> Result<T>,
    ) -> Result<T> {
        let core = &self.core;
        // Checkpoints wait for the backup, so one is made first if the log is half full already. None is made where
        // background checkpoints are off: it would free log that an archive which these options do not name may still
        // have to take.
        if self.checkpointer.is_on() && core.commits.log.bytes_used() > self.options.log_bytes_max / 2 {
            self.checkpointer.run_now_unless(Some(cancelled))?;
        }
        let note_cut = |held, snapshot_bytes| self.checkpointer.note_cut(held, snapshot_bytes);
        self.checkpointer.between_checkpoints(cancelled, |source, is_stopped| {
            let taking = Taking {
                source,
                database: core.storage.database_id,
                opening: core.storage.catalog.opening(),
                clock: &core.clock,
                snapshot_bytes_max: self.options.snapshot_bytes_max(),
                log_bytes_max: self.options.log_bytes_max,
                note_cut: &note_cut,
                is_stopped,
                options,
                log,
            };
            take(&taking)
        })
    }

    /// See [`Database::archive_log`](crate::Database::archive_log).
    pub fn archive_log(&self) -> Result<()> {
        self.core.storage.check_open()?;
        if self.core.commits.log.archiver().is_none() {
            return Err(Error::Unsupported { what: "archive_log without Options::archive".to_owned() });
        }
        self.core.commits.log.sync()?;
        self.archive_durable()
    }

    fn archive_durable(&self) -> Result<()> {
        let core = &self.core;
        let Some(archiver) = core.commits.log.archiver() else { return Ok(()) };
        // The byte position is read first: the packets up to it have places up to the place that is read next. A bulk
        // load is known once its packet is applied.
        let position = core.commits.log.durable_bytes();
        let place = core.commits.log.place();
        core.commits.in_progress.outlast_until(&core.clock, place, || place);
        archive_loads(core, archiver, |_| true)?;
        core.commits.log.archive_up_to(position)
    }

    /// See [`Database::set_checkpoint`](crate::Database::set_checkpoint).
    pub fn set_checkpoint(&self, checkpoint: Checkpointing) -> Result<()> {
        self.core.storage.check_open()?;
        if let Some(what) = self.options.logging.refuses(checkpoint) {
            return Err(Error::Unsupported { what });
        }
        if self.options.recovery_within.is_some() && checkpoint == Checkpointing::None {
            let what = "checkpoint None with Options::recovery_within".to_owned();
            return Err(Error::Unsupported { what });
        }
        self.choose_checkpoint(checkpoint)
    }

    fn choose_checkpoint(&self, checkpoint: Checkpointing) -> Result<()> {
        self.checkpointer.choose(checkpoint);
        match (checkpoint, self.options.background) {
            (Checkpointing::None, _) | (_, Background::Driven) => Ok(()),
            (_, Background::Threads) => self.checkpointer.start(),
        }
    }

    /// Makes a checkpoint in the calling thread if one is due.
    pub fn look_after_checkpoints(&self) {
        self.checkpointer.drive();
    }

    /// Runs `work` on the resource manager, if there is one.
    pub fn with_resources(&self, work: impl FnOnce(&mut ResourceManager)) {
        if let Some(resources) = &mut *self.core.clock.lock(&self.resources) {
            work(resources);
        }
    }

    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_ref()
    }

    /// Refuses new work, lets commits in progress finish, and syncs. The first call does so; every call returns the
    /// result of the first. [`Error::Nested`] in a body, because the close may have to wait for that body.
    pub fn close(&self) -> Result<()> {
        if InBody::is_inside(self.core.storage.catalog.opening())
            && !fault_injection::is_on("close-waits-for-itself")
        {
            return Err(Error::Nested);
        }
        let mut closed = self.core.clock.lock(&self.closed);
        if let Some(outcome) = &*closed {
            return outcome.clone();
        }
        // The result if the close panics.
        *closed = Some(Err(Error::Closed));
        let outcome = self.close_once();
        *closed = Some(outcome.clone());
        outcome
    }

    /// Prepares again what was prepared, unless it follows, and starts the threads that the options ask for.
    fn start(&self, role: Role) -> Result<(), OpenError> {
        let options = &self.options;
        if role == Role::Leads {
            TakenAgain::take(&self.core, options.lock_timeout)?.keep(&self.core);
        }
        if let Some(queues) = &self.runtime.queues {
            let started = queues.resize(*options.engine.thread_bounds().start());
            started.map_err(|error| OpenError::Io(format!("the threads of executors: {error}")))?;
        }
        self.choose_checkpoint(options.checkpoint)?;
        if role == Role::Leads {
            // A decision for which the log is too small fails with that itself.
            let _ = self.core.prepared.find_room(&self.core);
        }
        if options.engine.is_data_oriented() {
            let started = match options.background {
                Background::Threads => ResourceManager::start(self.runtime.clone())
                    .map_err(|error| OpenError::Io(format!("the resource manager's thread: {error}")))?,
                Background::Driven => ResourceManager::driven(self.runtime.clone()),
            };
            *self.resources.lock() = Some(started);
        }
        Ok(())
    }

    fn close_once(&self) -> Result<()> {
        self.end_work();
        // No transaction runs any more, so this copy is complete without a log.
        let kept = match self.options.logging {
            Logging::Value | Logging::Action | Logging::Transaction => Ok(()),
            Logging::None => self.checkpointer.run_now().map(drop),
        };
        kept.and(self.end())
    }

    /// See [`Database::give_directory_back`](crate::Database::give_directory_back).
    pub fn give_directory_back(&self) {
        let is_closed = self.closed.lock().is_some();
        if is_closed {
            if !fault_injection::is_on("directory-back-beside-a-copy") {
                self.checkpointer.wait_until_idle();
            }
            drop(self.directory.lock().take());
        }
    }

    /// Refuses new work, and waits until the work in progress has ended.
    fn end_work(&self) {
        let core = &self.core;
        core.storage.shut();
        core.locks.shut_down();
        if let Some(queues) = &self.runtime.queues {
            queues.close();
        }
        drop(core.clock.lock(&self.resources).take());
        core.releases.end();
        if !fault_injection::is_on("close-beside-commits") {
            core.commits.in_progress.drain(&core.clock);
        }
    }

    /// Ends all threads.
    fn end(&self) -> Result<()> {
        let core = &self.core;
        self.checkpointer.stop();
        let outcome = core.commits.log.close().and_then(|()| self.archive_durable());
        core.commits.log.wake_listeners();
        if let Some(archiver) = core.commits.log.archiver() {
            archiver.close();
        }
        core.prepared.close();
        core.contexts.close();
        core.part_contexts.close();
        core.storage.disk_tables.close();
        outcome
    }
}

/// What all clones of a handle share: the database closes when the last of them is dropped.
pub(crate) struct Handle(Arc<Running>);

impl Handle {
    pub fn new(running: Running) -> Handle {
        Handle(Arc::new(running))
    }
}

impl Deref for Handle {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // `Database::close` returns the outcome; here the outcome has no reader.
        if !InBody::is_inside(self.0.core.storage.catalog.opening()) {
            let _ = self.0.close();
            return;
        }
        // The close waits for calls that were let in, and this thread may be running one of them: therefore another
        // thread closes. If the system has no thread left, the database keeps its directory until the process ends,
        // since it is still in use.
        self.0.core.storage.closed.store(true, Ordering::SeqCst);
        let (running, kept) = (self.0.clone(), ManuallyDrop::new(self.0.clone()));
        let closer = std::thread::Builder::new().name("rialto-close".to_owned());
        if closer.spawn(move || drop(running.close())).is_ok() {
            drop(ManuallyDrop::into_inner(kept));
        }
    }
}

/// What is locked together, where locks are on pages: found from the pages as they are.
fn grains(core: &Core) -> Result<Grains> {
    let mut leaves = Vec::new();
    for table in core.storage.catalog.all() {
        let version = table.version();
        let Some(pages) = version.store.pages() else { continue };
        let secondary = (0..version.schema.indexes().len()).map(WhichIndex::Secondary);
        for which in std::iter::once(WhichIndex::Primary).chain(secondary) {
            leaves.push((version.index_id(which), pages.ends_of_leaves(which)?));
        }
    }
    Ok(Grains::of_leaves(leaves))
}
