//! [`Setting`]: TPC-C on the machine of the paper, in virtual time; [`Runs`]: what was measured of each setting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rialto::io::{Caching, Clock, MemoryDisk, Processor, SimulatedDisk, SimulatedWork};
use rialto::{
    Background, Checkpointing, Database, Durability, Engine, LockGrain, Metrics, Options, Residence,
    TwoStage, TwoStageAccount,
};
use rialto_measure::RunError;
use rialto_measure::driver::virtual_machine::VirtualMachine;
use rialto_measure::driver::{Driven, Load};
use rialto_measure::text::say;
use rialto_workloads::data::ShapeError;
use rialto_workloads::mix::Mix;
use rialto_workloads::tpcc::{Name, Shape, Tpcc};
use rialto_workloads::workload::Audited;

use super::super::Lab;
use super::super::looks::Looks;
use super::super::rounds::Rounds;

/// Processor time of each run of a transaction: the paper's TSTE commits 375 transactions a second on one processor, and
/// runs each twice.
pub const RUN: Duration = Duration::from_millis(1);
/// Bytes of a page: those of Berkeley DB on the paper's file system.
const PAGE_BYTES: usize = 4_096;
/// The paper's log buffer of 500 KB.
const LOG_BUFFER_BYTES: usize = 512_000;
/// Transactions before the first window: so many times those of a window, as in the paper.
pub const WARMUP_WINDOWS: u64 = 8;
/// The first stretch of the warm-up, from which the length of the next one follows.
const FIRST: Duration = Duration::from_secs(10);
/// Windows of fewer transactions can only show that all is there: the data is small then, too.
const COMMITS_MIN: u64 = 1_000;
/// The cache of small tables.
const SMALL_CACHE_BYTES: u64 = 4 << 20;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// TPC-C's.
    pub warehouses: u32,
    /// Bytes of the cache for pages.
    pub cache_bytes: u64,
    /// Concurrent transactions.
    pub clients: u32,
    /// How they are executed.
    pub two_stage: TwoStage,
    /// Processor time of each run of a transaction.
    pub run: Duration,
}

/// What a window has shown of one type of transactions.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfType {
    /// Transactions that committed.
    pub committed: u64,
    /// Executions on pages.
    pub executions: u64,
    /// Those of them that needed two stages.
    pub needed_two: u64,
    /// Those of them that had a misprefetch.
    pub misprefetched: u64,
    /// Pages that fetch stages have kept in memory.
    pub kept_pages: u64,
    /// Their waits for the disk, in nanoseconds.
    pub io_ns: u64,
    /// Their waits for locks, in nanoseconds.
    pub lock_ns: u64,
    /// The part of that in which others waited for the disk.
    pub lock_for_disk_ns: u64,
    /// Their response times, in nanoseconds.
    pub response_ns: u64,
}

/// What was measured in a window.
#[derive(Debug, Clone)]
pub struct Sample {
    /// By type, in the order of [`Name::ALL`].
    pub types: Vec<OfType>,
    /// How long, in virtual time.
    pub window: Duration,
    /// Runs that ended as a deadlock's victim.
    pub deadlocks: u64,
    /// Data accesses in all stages.
    pub accesses: u64,
    /// Those of them that have read the disk.
    pub misses: u64,
    /// Waits for the disk under locks.
    pub held_io_waits: u64,
    /// Accesses in operate stages that had a fetch stage before, and read the disk.
    pub misprefetches: u64,
    /// What the disks with pages have done.
    pub disks: Vec<SimulatedWork>,
}

impl Sample {
    /// Of one type.
    pub fn of(&self, name: Name) -> &OfType {
        &self.types[name as usize]
    }

    /// New orders a minute.
    pub fn per_minute(&self) -> f64 {
        self.of(Name::NewOrder).committed as f64 * 60.0 / self.window.as_secs_f64().max(1e-9)
    }

    /// Transactions of all types.
    pub fn committed(&self) -> u64 {
        self.types.iter().map(|of| of.committed).sum()
    }

    /// Wait for the disk of a new order, in milliseconds.
    pub fn io_ms(&self) -> f64 {
        self.of(Name::NewOrder).of_each_ms(|of| of.io_ns)
    }

    /// Wait for locks of a new order, in milliseconds.
    pub fn lock_ms(&self) -> f64 {
        self.of(Name::NewOrder).of_each_ms(|of| of.lock_ns)
    }

    /// The part of its response time that a new order waits for locks, in percent.
    pub fn lock_percent(&self) -> f64 {
        self.lock_ms() * 100.0 / self.response_ms().max(1e-9)
    }

    /// The response time of a new order, in milliseconds.
    pub fn response_ms(&self) -> f64 {
        self.of(Name::NewOrder).of_each_ms(|of| of.response_ns)
    }

    /// Of the waits for locks, the part in which others waited for the disk, in percent.
    pub fn lock_for_disk_percent(&self) -> f64 {
        let sum = |of: fn(&OfType) -> u64| self.types.iter().map(of).sum::<u64>();
        percent(sum(|of| of.lock_for_disk_ns), sum(|of| of.lock_ns))
    }

    /// Runs that a deadlock ended, in percent of all runs.
    pub fn deadlock_percent(&self) -> f64 {
        percent(self.deadlocks, self.deadlocks + self.committed())
    }

    /// Data accesses that found their pages in memory, in percent.
    pub fn hit_percent(&self) -> f64 {
        100.0 - percent(self.misses, self.accesses)
    }

    /// The mean time of a read or a write of the disks with pages, in milliseconds, with its wait in the queue.
    pub fn disk_ms(&self) -> f64 {
        let requests: u64 = self.disks.iter().map(|disk| disk.reads + disk.writes).sum();
        let taken: Duration = self.disks.iter().map(|disk| disk.taken).sum();
        taken.as_secs_f64() * 1e3 / requests.max(1) as f64
    }

    /// How busy the disks with pages were, in percent.
    pub fn disk_busy_percent(&self) -> f64 {
        let busy: Duration = self.disks.iter().map(|disk| disk.busy).sum();
        let all = self.window.as_secs_f64() * self.disks.len() as f64;
        busy.as_secs_f64() * 100.0 / all.max(1e-9)
    }

    /// Executions that had a misprefetch, in percent of all.
    pub fn misprefetched_percent(&self) -> f64 {
        let sum = |of: fn(&OfType) -> u64| self.types.iter().map(of).sum::<u64>();
        percent(sum(|of| of.misprefetched), sum(|of| of.executions))
    }

    /// Waits for the disk under locks, of each transaction.
    pub fn held_io_waits_each(&self) -> f64 {
        self.held_io_waits as f64 / self.committed().max(1) as f64
    }
}

impl OfType {
    fn of_each_ms(&self, ns: impl Fn(&OfType) -> u64) -> f64 {
        ns(self) as f64 / 1e6 / self.committed.max(1) as f64
    }

    /// Executions that read the disk in their fetch stage, or left the operate stage for it, in percent.
    pub fn needed_two_percent(&self) -> f64 {
        percent(self.needed_two, self.executions)
    }

    /// What fetch stages keep in memory for each execution, in kilobytes.
    pub fn kept_kb(&self) -> f64 {
        (self.kept_pages * PAGE_BYTES as u64) as f64 / 1024.0 / self.executions.max(1) as f64
    }
}

fn percent(part: u64, all: u64) -> f64 {
    part as f64 * 100.0 / all.max(1) as f64
}

/// What is read at the ends of a window: the database's counts, and the disks'.
type Look = (Metrics, Vec<SimulatedWork>);

/// The database, open on its machine.
struct Opened {
    machine: VirtualMachine,
    disk: Arc<SimulatedDisk>,
    workload: Tpcc,
}

/// What was measured so far. A run repeats exactly, so the figures of one command share theirs.
static MEASURED: Mutex<Vec<(Setting, Key, Windows)>> = Mutex::new(Vec::new());

/// What of the lab a run depends on.
type Key = (u64, u32, u64);

/// The windows of a setting.
pub type Windows = Arc<Rounds<Sample>>;

/// The runs of a lab.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'a>(pub &'a Lab);

impl Runs<'_> {
    /// Windows of this setting, each of so many transactions as the lab says, one after the other, after the warm-up.
    ///
    /// # Errors
    /// A transaction that fails; tables that are inconsistent afterwards.
    pub fn of(&self, setting: Setting) -> Result<Windows, RunError> {
        let setting = match self.are_small() {
            true => Setting { warehouses: 1, cache_bytes: SMALL_CACHE_BYTES, ..setting },
            false => setting,
        };
        let key = (self.0.commits, self.0.rounds, self.0.seed);
        let known = || MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., windows)) = known().iter().find(|(of, with, _)| (*of, *with) == (setting, key)) {
            return Ok(windows.clone());
        }
        let windows = Arc::new(self.measure(&setting)?);
        let Setting { warehouses, cache_bytes, clients, two_stage, .. } = setting;
        say(&format!(
            "  w = {warehouses}, a cache of {} MB, {clients} clients, {}: {:.0} new orders a minute",
            cache_bytes / 1_000_000,
            two_stage.name(),
            windows.median(Sample::per_minute)
        ));
        known().push((setting, key, windows.clone()));
        Ok(windows)
    }

    /// Whether points can only show that all is there.
    pub fn are_small(&self) -> bool {
        self.0.commits < COMMITS_MIN
    }

    /// These points, or the first few of them where points can only show that all is there.
    pub fn some_of<'p, P>(&self, points: &'p [P]) -> &'p [P] {
        if self.are_small() { &points[..points.len().min(2)] } else { points }
    }

    fn shape(&self, warehouses: u32) -> Shape {
        match self.are_small() {
            true => Shape { warehouses, items: 5_000, customers: 200 },
            false => Shape::of_warehouses(warehouses),
        }
    }

    fn measure(&self, setting: &Setting) -> Result<Rounds<Sample>, RunError> {
        let failed = |during| move |cause| RunError::Transaction { during, cause };
        let Opened { machine, disk, workload } = self.open(setting)?;
        let before = workload.audit().map_err(failed("reading the warehouses"))?;
        let mut stretches = 0;
        let mut run = |window: Duration| {
            let load = Load {
                clients: setting.clients,
                in_flight: 1,
                rate: None,
                warmup: Duration::ZERO,
                window,
                seed: self.0.seed.wrapping_add(stretches << 32),
            };
            stretches += 1;
            let mut looks = Looks::at(|| (machine.database.metrics(), disk.works()));
            let outcome = workload
                .drive_on(&machine, &load, &mut looks)
                .map_err(RunError::of_clients("running transactions"))?;
            rialto_measure::interrupt::check()?;
            Ok::<_, RunError>(Sample::between(looks.ends(), outcome.window))
        };
        // Each stretch is as long as the one before it shows to be needed, while the cache fills and transactions become faster; and
        // no shorter than half a window, so that its rate means something.
        let (mut warmed_up, mut last) = (0, run(FIRST)?);
        let wanted = WARMUP_WINDOWS * self.0.commits;
        loop {
            warmed_up += last.committed();
            if warmed_up >= wanted {
                break;
            }
            let left = (wanted - warmed_up).max(self.0.commits / 2);
            last = run(last.time_of(left).min(last.window * 2))?;
        }
        let mut windows: Option<Rounds<Sample>> = None;
        for _ in 0..self.0.rounds {
            last = run(last.time_of(self.0.commits))?;
            match &mut windows {
                Some(windows) => windows.add(last.clone()),
                none => *none = Some(Rounds::begin(last.clone())),
            }
        }
        let after = workload.audit().map_err(failed("verifying the warehouses"))?;
        let verdict = workload.verdict(&before, &after, 0..=0);
        if !verdict.consistent {
            return Err(RunError::Inconsistent(verdict.text));
        }
        drop(workload);
        machine.database.close().map_err(failed("closing the database"))?;
        Ok(windows.expect("there is a round"))
    }

    fn open(&self, setting: &Setting) -> Result<Opened, RunError> {
        let (processor, clock) = Processor::new(setting.run);
        let by = Clock::from(clock.clone());
        let disk = SimulatedDisk::named("charm", MemoryDisk::new(), by.clone()).expect("it is a preset");
        let options = Options {
            durability: Durability::Memory,
            memory_bytes: 1 << 30,
            cache_bytes: setting.cache_bytes,
            page_bytes: PAGE_BYTES,
            two_stage: setting.two_stage,
            engine: Engine::central(),
            lock_grain: LockGrain::Page,
            checkpoint: Checkpointing::None,
            log_bytes_max: 64 << 30,
            log_buffer_bytes: LOG_BUFFER_BYTES,
            log_writes: Some(Caching::Direct),
            log_writes_in_flight: Some(1),
            background: Background::Driven,
            recovery_threads: 1,
            clock: by,
            ..Options::default()
        };
        let open = || {
            let opened = Database::open_on(disk.clone(), options.clone());
            opened.map_err(|cause| RunError::Open { data: "the memory".to_owned(), cause })
        };
        let load = |database: &Database| {
            let (shape, mix) = (self.shape(setting.warehouses), mix());
            Tpcc::open_or_load(database, Residence::Disk, shape, mix, &mut |_| {}).map_err(
                |error| match error {
                    ShapeError::Failed(cause) => {
                        RunError::Transaction { during: "loading the warehouses", cause }
                    }
                    ShapeError::OtherShape { .. } => unreachable!("the disk is new"),
                },
            )
        };
        let database = open()?;
        load(&database)?;
        database.close().map_err(|cause| RunError::Transaction { during: "closing the database", cause })?;
        // What is locked together is found from the pages at the opening.
        let database = open()?;
        let (workload, _) = load(&database)?;
        Ok(Opened { machine: VirtualMachine { processor, clock, database }, disk, workload })
    }
}

/// The paper's shares.
fn mix() -> Mix<Name> {
    "new-order=43,payment=43,order-status=4.7,delivery=4.7,stock-level=4.6".parse().expect("a mix")
}

impl Sample {
    /// From what was read at the ends of a window.
    fn between((begun, ended): (Look, Look), window: Duration) -> Sample {
        let ((begun, works_begun), (ended, works_ended)) = (begun, ended);
        let names = Name::ALL.map(Name::as_str);
        let grown = |of: fn(&Metrics) -> u64| of(&ended) - of(&begun);
        let types = names.map(|name| OfType::between(name, &begun, &ended));
        let sum = |of: fn(&TwoStageAccount) -> u64| -> u64 {
            let all = |metrics: &Metrics| metrics.two_stage.iter().map(of).sum::<u64>();
            all(&ended) - all(&begun)
        };
        Sample {
            types: types.into(),
            window,
            deadlocks: grown(|metrics| metrics.aborted_deadlock),
            accesses: grown(|metrics| metrics.procedures.iter().map(|of| of.pages.accesses).sum()),
            misses: grown(|metrics| metrics.procedures.iter().map(|of| of.pages.misses).sum()),
            held_io_waits: sum(|of| of.lock_held_io_waits),
            misprefetches: sum(|of| of.misprefetches),
            // The first one has the log.
            disks: works_ended.iter().zip(works_begun).skip(1).map(|(end, begin)| end.since(begin)).collect(),
        }
    }

    /// How long so many transactions take at this rate.
    fn time_of(&self, transactions: u64) -> Duration {
        self.window
            .mul_f64(transactions as f64 / self.committed().max(1) as f64)
            .max(Duration::from_millis(100))
    }
}

impl OfType {
    fn between(name: &str, begun: &Metrics, ended: &Metrics) -> OfType {
        let account = |metrics: &Metrics| {
            metrics.procedures.iter().find(|account| account.name == name).cloned().unwrap_or_default()
        };
        let staged = |metrics: &Metrics| {
            metrics.two_stage.iter().find(|account| account.name == name).cloned().unwrap_or_default()
        };
        let (begin, end) = (account(begun), account(ended));
        let in_stages = staged(ended).since(&staged(begun));
        let io_ns = |time: &rialto::TimeAccount| time.fetch_io_ns.unwrap_or(0);
        OfType {
            committed: end.committed - begin.committed,
            executions: in_stages.executions,
            needed_two: in_stages.conversions,
            misprefetched: in_stages.misprefetched,
            kept_pages: in_stages.kept_pages,
            io_ns: io_ns(&end.time) - io_ns(&begin.time),
            lock_ns: end.time.lock_wait_ns - begin.time.lock_wait_ns,
            lock_for_disk_ns: end.time.lock_wait_for_disk_ns - begin.time.lock_wait_for_disk_ns,
            response_ns: (end.time.response() - begin.time.response()).as_nanos() as u64,
        }
    }
}
