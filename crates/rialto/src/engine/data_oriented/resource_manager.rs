//! [`ResourceManager`]: adapts routing rules and plans to the growth of tables, to the requests and to aborts.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

use super::datasets::of_equal_size;
use super::read_only::{Move, ReadOnlyPlacement};
use super::rebalancing::Rebalancing;
use super::scaling::resize;
use super::scaling_policy::{Adjustment, ScalingPolicy, StepSize};
use crate::engine::Runtime;
use crate::ids::IndexId;
use crate::io::Moment;
use crate::isolate::RoutingRule;
use crate::row::{Key, WhichIndex};
use crate::txn::core::Core;

/// The interval of its looks at the tables.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many samples it takes between two decisions about the numbers of executors and threads.
const SAMPLES_PER_DECISION: u32 = 10;
/// An index of fewer entries is one dataset.
const ENTRIES_MIN: u64 = 2;
/// An index that was divided by hand is taken to have at least so many entries. One with fewer may shrink without a
/// new division.
const ENTRIES_BY_HAND: u64 = 500;
/// The number of marks by which an index is divided, for each executor, if it has as many keys.
const MARKS_PER_EXECUTOR: usize = 8;

/// Divides each index's keys among the executors into about equal datasets, and again whenever the index has doubled
/// or has fallen to a quarter. When one executor has become busier than the others, it divides an index into datasets
/// with about equally many requests (the DORA paper's resource manager, section 4.1.2). Within its bounds it chooses
/// how many executors there are and how many threads own them. It adapts the plans of procedures to how often their
/// actions abort. It ends when it is dropped.
pub(crate) enum ResourceManager {
    /// On a thread of its own.
    OnThread { _thread: ManagerThread },
    /// Without a thread: it runs when its caller drives it.
    Driven(Box<Managing>),
}

pub(crate) struct ManagerThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[cfg(test)]
thread_local! {
    /// For tests: the system has no thread left for a resource manager that this thread begins.
    pub(crate) static HAS_NO_THREAD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl ResourceManager {
    /// Starts it.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(runtime: Arc<Runtime>) -> std::io::Result<ResourceManager> {
        #[cfg(test)]
        if HAS_NO_THREAD.get() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let stop = Arc::<(Mutex<bool>, Condvar)>::default();
        let told = stop.clone();
        let mut manager = Managing::new(runtime);
        let thread = std::thread::Builder::new().name("rialto-resources".to_owned()).spawn(move || {
            let (stop, ended) = &*told;
            let mut stop = stop.lock();
            while !*stop {
                // By the machine's clock: if the database's clock is virtual, the manager is driven.
                ended.wait_for(&mut stop, LOOK_EVERY);
                if !*stop {
                    manager.run_once();
                }
            }
        })?;
        Ok(ResourceManager::OnThread { _thread: ManagerThread { stop, thread: Some(thread) } })
    }

    /// Starts it without a thread.
    pub fn driven(runtime: Arc<Runtime>) -> ResourceManager {
        ResourceManager::Driven(Box::new(Managing::new(runtime)))
    }

    /// Looks at the tables and at the requests now, unless it has a thread for that.
    pub fn run_once(&mut self) {
        match self {
            ResourceManager::OnThread { .. } => {}
            // What it counts in samples relies on samples at this interval.
            ResourceManager::Driven(manager) => {
                let now = manager.runtime.core.clock.now();
                if now - manager.looked >= LOOK_EVERY {
                    manager.looked = now;
                    manager.run_once();
                }
            }
        }
    }
}

impl Drop for ManagerThread {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, the rules stay as they are, which is slow at the worst.
            let _ = thread.join();
        }
    }
}

/// The state of the manager.
pub(crate) struct Managing {
    runtime: Arc<Runtime>,
    sizes: Sizes,
    rebalancing: Rebalancing,
    read_only: ReadOnlyPlacement,
    /// The time of its last look, for a driven one.
    looked: Moment,
    /// The number of executors that the policies are set up for.
    executors: usize,
    scaler: Scaler,
}

impl Managing {
    fn new(runtime: Arc<Runtime>) -> Managing {
        let core = &runtime.core;
        let (executors, scaler) = (core.locks.executors_in_use(), Scaler::new(core));
        let looked = core.clock.now();
        let (mut sizes, read_only) = (Sizes::default(), ReadOnlyPlacement::default());
        // Datasets that exist already are assigned before the first transaction comes.
        sizes.observe(core);
        Managing {
            runtime,
            sizes,
            rebalancing: Rebalancing::new(executors),
            read_only,
            looked,
            executors,
            scaler,
        }
    }

    fn run_once(&mut self) {
        let (runtime, core) = (&self.runtime, &self.runtime.core);
        core.releases.release_all();
        core.locks.forget_rules_of_dropped();
        let samples = core.locks.sample_executors();
        if samples.len() != self.executors {
            // All datasets are assigned again.
            self.executors = samples.len();
            self.sizes = Sizes { anew: true, ..Sizes::default() };
            self.rebalancing = Rebalancing::new(self.executors);
        }
        self.sizes.observe(core);
        self.scaler.decide(runtime, samples.iter().map(|sample| sample.requests).sum());
        for change in self.read_only.decide(&samples, &core.locks.sample_read_only()) {
            match change {
                Move::ToReadOnly(index) if core.locks.is_hashed(index) => {}
                Move::ToReadOnly(index) => core.locks.place_read_only(index),
                Move::Back(index) => self.sizes.share_out_anew(core, index),
            }
        }
        for (index, rule) in self.rebalancing.decide(samples) {
            if !core.locks.is_hashed(index) && !core.locks.is_read_only(index) {
                core.locks.route(index, Some(rule));
            }
        }
        if runtime.engine.adapts_plans() {
            runtime.procedures.adapt_plans();
        }
    }
}

/// The policies for the numbers of executors and threads.
struct Scaler {
    executors: ScalingPolicy,
    threads: ScalingPolicy,
    /// It chooses at most as many threads as there are processors.
    cores: usize,
    /// Since the last decision: samples, requests, tasks on queues, and queues at which a thread ran; and how often
    /// lock tables had been found out before.
    samples: u32,
    requests: u64,
    queued: usize,
    busy: usize,
    queues: usize,
    found_out: u64,
}

impl Scaler {
    fn new(core: &Core) -> Scaler {
        Scaler {
            executors: ScalingPolicy::new(StepSize::Twofold),
            threads: ScalingPolicy::new(StepSize::One),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            samples: 0,
            requests: 0,
            queued: 0,
            busy: 0,
            queues: 0,
            found_out: core.locks.found_out(),
        }
    }

    fn decide(&mut self, runtime: &Arc<Runtime>, requests: u64) {
        let core = &runtime.core;
        self.samples += 1;
        self.requests += requests;
        for (queued, is_busy) in runtime.queues.iter().flat_map(|queues| queues.loads()) {
            self.queues += 1;
            self.queued += queued;
            self.busy += usize::from(is_busy);
        }
        if self.samples < SAMPLES_PER_DECISION {
            return;
        }
        let found_out = core.locks.found_out();
        let adjustment = Adjustment::of_executors(self.requests, found_out - self.found_out);
        {
            let bounds = runtime.bounds.executors(&core.clock);
            if let Some(executors) = self.executors.decide(core.locks.executors_in_use(), &bounds, adjustment)
            {
                core.locks.set_executors(executors);
            }
        }
        if let Some(queues) = &runtime.queues {
            let share = |count: usize| count as f64 / self.queues.max(1) as f64;
            let adjustment = Adjustment::of_threads(queues.len(), share(self.queued), share(self.busy));
            let bounds = runtime.bounds.threads();
            let most = (*bounds.end()).min(self.cores).max(*bounds.start());
            if let Some(threads) = self.threads.decide(queues.len(), &(*bounds.start()..=most), adjustment) {
                // If there is no thread for it, or at the end, the number stays as it is.
                let _ = resize(runtime, threads);
            }
        }
        (self.samples, self.requests, self.queued, self.busy, self.queues) = (0, 0, 0, 0, 0);
        self.found_out = found_out;
    }
}

/// How many entries each index had when its keys were divided.
#[derive(Default)]
struct Sizes {
    entries: HashMap<IndexId, u64>,
    /// All indexes are to be divided again, whatever rules they have.
    anew: bool,
}

impl Sizes {
    /// Forgets how an index was divided, and divides it at the next look.
    fn share_out_anew(&mut self, core: &Core, index: IndexId) {
        self.entries.remove(&index);
        core.locks.route(index, None);
    }

    fn observe(&mut self, core: &Core) {
        let executors = core.locks.executors_in_use();
        let mut there = HashMap::new();
        for table in core.storage.catalog.all() {
            let version = table.version();
            let secondaries = (0..version.schema.indexes().len()).map(WhichIndex::Secondary);
            for which in secondaries.chain([WhichIndex::Primary]) {
                let id = version.index_id(which);
                let entries = version.store.entries_estimate(which);
                if version.schema.key_shape(which).is_row_number() {
                    if !core.locks.is_routed(id) {
                        core.locks.route(id, Some(RoutingRule::numbers(executors as u16)));
                    }
                    continue;
                }
                if entries < ENTRIES_MIN {
                    continue;
                }
                let by_hand = core.locks.entries_by_hand(id).filter(|_| !self.anew);
                let before = match by_hand {
                    // A small table keeps a rule that was set by hand.
                    Some(entries) => entries.max(ENTRIES_BY_HAND),
                    None => self.entries.get(&id).copied().unwrap_or(ENTRIES_MIN / 2),
                };
                let has_shrunk = before > ENTRIES_BY_HAND && entries <= before / 4;
                // A hash assigns new keys as it did old ones, and at the read-only executor there is nothing to
                // divide.
                if core.locks.is_hashed(id)
                    || core.locks.is_read_only(id)
                    || entries < before * 2 && !has_shrunk
                {
                    there.insert(id, before);
                    continue;
                }
                let Some(first) = version.schema.key_shape(which).leading(1) else { continue };
                let marks = version.store.marks(which, executors * MARKS_PER_EXECUTOR);
                let marks: Vec<Key> = marks.iter().map(|mark| Key::from(&mark[..])).collect();
                core.locks.route(id, Some(of_equal_size(&marks, &first, executors as u16)));
                there.insert(id, entries);
            }
        }
        // Indexes that are gone are forgotten.
        (self.entries, self.anew) = (there, false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, Value};
    use crate::{Database, Engine, Executors, Options, TableDef};

    #[test]
    fn a_small_table_keeps_its_rule_by_hand() {
        let options =
            Options { memory_bytes: 64 << 20, engine: Executors::of(8, 0).into(), ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let [by_hand, by_size] = ["by_hand", "by_size"].map(|name| {
            let def =
                TableDef::new(name, vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
            db.transact(|tx| tx.create_table(&def)).unwrap()
        });
        let executors = |name| db.executors_of(name, WhichIndex::Primary).unwrap();
        let until = |is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(60), "its keys are not shared out");
                std::thread::sleep(Duration::from_millis(5));
            }
            // Indexes are looked at in no order, so wait for one more complete look.
            std::thread::sleep(2 * LOOK_EVERY);
        };
        let fill = |table, to: i32| {
            let count = |tx: &mut crate::Transaction| {
                let ids = to / 2..to;
                ids.into_iter().try_for_each(|id| tx.insert(table, &[Value::Int4(id)]))
            };
            db.transact(count).unwrap();
        };
        let by_two = || db.set_routing("by_hand", WhichIndex::Primary, &[vec![Value::Int4(2)]]).unwrap();
        by_two();
        for to in [2, 4, 8, 16, 32] {
            fill(&by_hand, to);
            fill(&by_size, to);
        }
        until(&|| executors("by_size") >= 8);
        assert_eq!(executors("by_hand"), 2);
        // It is divided again after it has been divided by its size: then a doubled number of entries counts.
        [64, 128, 256, 512, 1_024, 2_048].into_iter().for_each(|to| fill(&by_hand, to));
        until(&|| executors("by_hand") == 8);
        let insert = |mut ids: std::ops::Range<i32>| {
            db.transact(|tx| ids.try_for_each(|id| tx.insert(&by_hand, &[Value::Int4(id)]))).unwrap();
            std::thread::sleep(2 * LOOK_EVERY);
        };
        insert(2_048..3_000);
        by_two();
        insert(3_000..5_000);
        assert_eq!(executors("by_hand"), 2);
        insert(5_000..9_000);
        until(&|| executors("by_hand") == 8);
    }

    #[test]
    fn the_rule_of_a_dropped_index_is_forgotten() {
        let options =
            Options { memory_bytes: 64 << 20, engine: Engine::data_oriented(), ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        let table = db
            .transact(|tx| {
                let table =
                    tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
                tx.create_index("t", "t_n", &["n"], false)?;
                Ok(table)
            })
            .unwrap();
        let secondary = WhichIndex::Secondary(0);
        db.set_routing_by_hash("t", secondary, 1).unwrap();
        let index = table.version().index_id(secondary);
        assert!(db.core().locks.is_routed(index));
        db.transact(|tx| tx.drop_index("t_n")).unwrap();
        let began = Instant::now();
        while db.core().locks.is_routed(index) {
            assert!(began.elapsed() < Duration::from_secs(60), "it is there still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_rule_by_hash_stays_as_a_table_grows() {
        let options =
            Options { memory_bytes: 64 << 20, engine: Executors::of(8, 0).into(), ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let tables = ["hashed", "ranges"].map(|name| {
            let def =
                TableDef::new(name, vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
            db.transact(|tx| tx.create_table(&def)).unwrap()
        });
        db.set_routing_by_hash("hashed", WhichIndex::Primary, 1).unwrap();
        for table in &tables {
            db.transact(|tx| (0..5_000).try_for_each(|id| tx.insert(table, &[Value::Int4(id)]))).unwrap();
        }
        let began = Instant::now();
        // Indexes are looked at in no order, so wait for one more complete look.
        for _ in 0..2 {
            while db.executors_of("ranges", WhichIndex::Primary).unwrap() < 8 {
                assert!(began.elapsed() < Duration::from_secs(60), "its keys are not shared out");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(2 * LOOK_EVERY);
        }
        let is_hashed = |table: &crate::Table| db.core().locks.is_hashed(table.version().primary_id);
        assert_eq!([is_hashed(&tables[0]), is_hashed(&tables[1])], [true, false]);
    }
}
