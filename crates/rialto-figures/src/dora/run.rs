//! [`measure`]: one load on a loaded workload, and what it used of the machine.

use std::time::Duration;

use rialto::isolate::LockCounters;
use rialto::{Database, Metrics};
use rialto_measure::RunError;
use rialto_measure::driver::{Load, Observer};
use rialto_measure::profile::{Profile, Profiler};
use rialto_measure::usage::process_cpu;

use super::super::Lab;
use super::run_queue::RunQueue;
use super::workload::Loaded;

/// The clients that put the load on it.
#[derive(Debug, Clone, Copy)]
pub struct Clients {
    /// How many; each is a thread.
    pub count: u32,
    /// Outstanding transactions of each.
    pub in_flight: usize,
    /// Whether where the time goes is sampled.
    pub profiled: bool,
}

impl Clients {
    /// Clients that wait for each transaction.
    pub fn blocking(count: u32) -> Clients {
        Clients { count, in_flight: 1, profiled: false }
    }

    /// The same, profiled.
    #[must_use]
    pub fn profiled(self) -> Clients {
        Clients { profiled: true, ..self }
    }
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Clients.
    pub clients: u32,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that ran and rolled back as their specification has it.
    pub failed: u64,
    /// How long.
    pub window: Duration,
    /// Processor time of the whole process.
    pub cpu: Duration,
    /// Threads that were ready and had no processor, on average; none if the system does not tell.
    pub waiting: Option<f64>,
    /// Processors.
    pub cores: u32,
    /// The mean response time of those that committed, in microseconds.
    pub response_us: f64,
    /// The median one.
    pub response_p50_us: f64,
    /// Locks acquired.
    pub locks: LockCounters,
    /// Where the time went; nothing if it was not asked for.
    pub profile: Profile,
}

impl Sample {
    /// Transactions that ran to an end.
    pub fn ran(&self) -> u64 {
        self.committed + self.failed
    }

    /// The same a second.
    pub fn per_s(&self) -> f64 {
        self.ran() as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// Processors in use, in percent of all.
    pub fn utilization(&self) -> f64 {
        let all = self.window.as_secs_f64() * f64::from(self.cores);
        self.cpu.as_secs_f64() * 100.0 / all.max(1e-9)
    }

    /// Processors in use and asked for, in percent of all: the paper's offered CPU load (section 5.2).
    pub fn offered(&self) -> f64 {
        self.utilization() + self.waiting.unwrap_or(0.0) * 100.0 / f64::from(self.cores)
    }

    /// Transactions a second for each percent of the processors.
    pub fn per_utilization(&self) -> f64 {
        self.per_s() / self.utilization().max(1e-9)
    }

    /// So many of 100 transactions that ran.
    pub fn per_100(&self, count: u64) -> f64 {
        count as f64 * 100.0 / self.ran().max(1) as f64
    }

    /// Waiting for locks that others held, in microseconds of a transaction.
    pub fn lock_wait_us(&self) -> f64 {
        self.locks.wait_ns as f64 / 1e3 / self.ran().max(1) as f64
    }
}

struct Watch<'a> {
    database: &'a Database,
    is_profiled: bool,
    profiler: Option<Profiler>,
    profile: Profile,
    queue: RunQueue,
    looks: Vec<(Metrics, Duration)>,
}

impl Watch<'_> {
    fn look(&mut self) {
        self.looks.push((self.database.metrics(), process_cpu().unwrap_or_default()));
    }
}

impl Observer for Watch<'_> {
    fn window_begins(&mut self, _: u64, _: Duration) -> Result<(), String> {
        self.queue.look();
        if self.is_profiled {
            let refused = |error| format!("the profile cannot be taken: {error}");
            self.profiler = Some(Profiler::start().map_err(refused)?);
        }
        self.look();
        Ok(())
    }

    fn window_ends(&mut self) {
        self.look();
        if let Some(profiler) = self.profiler.take() {
            self.profile = profiler.stop();
        }
    }

    fn slice(&mut self, _: Duration, _: u64) {
        self.queue.look();
    }

    fn tick(&mut self, _: Option<Duration>, _: f64) {}
}

/// How often a window without a commit is tried again: other work may have all processors for as long as a short one.
const AGAIN_MAX: usize = 20;

/// Puts a load on it for `window`.
///
/// # Errors
/// A transaction that fails; no commit in a window, over and over.
pub fn measure(
    lab: &Lab,
    loaded: &mut Loaded,
    clients: Clients,
    window: Duration,
) -> Result<Sample, RunError> {
    for _ in 0..AGAIN_MAX {
        let sample = measure_once(lab, loaded, clients, window)?;
        if sample.committed > 0 {
            return Ok(sample);
        }
    }
    Err(RunError::Usage(format!("no transaction committed within {window:?}; give more --seconds")))
}

fn measure_once(
    lab: &Lab,
    loaded: &mut Loaded,
    clients: Clients,
    window: Duration,
) -> Result<Sample, RunError> {
    let Clients { count, in_flight, profiled } = clients;
    let warmup = warmup(window);
    let load = Load { clients: count, in_flight, rate: None, warmup, window, seed: lab.seed };
    let database = loaded.database.clone();
    let mut watch = Watch {
        database: &database,
        is_profiled: profiled,
        profiler: None,
        profile: Profile::default(),
        queue: RunQueue::default(),
        looks: Vec::new(),
    };
    let outcome = loaded.drive(&load, &mut watch)?;
    let [(begun, cpu_begun), (ended, cpu_ended)] = &watch.looks[..] else {
        unreachable!("a window that did not fail has two ends");
    };
    let response_times = outcome.response_times();
    let (from, to) = (begun.locks, ended.locks);
    let locks = LockCounters {
        row: to.row - from.row,
        local: to.local - from.local,
        higher: to.higher - from.higher,
        waits: to.waits - from.waits,
        wait_ns: to.wait_ns - from.wait_ns,
        wait_for_disk_ns: to.wait_for_disk_ns - from.wait_for_disk_ns,
        deadlocks: to.deadlocks - from.deadlocks,
        timeouts: to.timeouts - from.timeouts,
        refused: to.refused - from.refused,
    };
    Ok(Sample {
        clients: count,
        committed: outcome.committed(),
        failed: outcome.aborted_user,
        window: outcome.window,
        cpu: cpu_ended.saturating_sub(*cpu_begun),
        waiting: watch.queue.waiting(),
        cores: cores(),
        response_us: response_times.mean_us(),
        response_p50_us: response_times.percentiles().map_or(0.0, |all| all.p50_us),
        locks,
        profile: watch.profile,
    })
}

/// What runs before a window.
pub fn warmup(window: Duration) -> Duration {
    (window / 5).max(Duration::from_millis(20))
}

/// The processors that there are for this process.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// The numbers of clients of a curve: from one to eight times the processors.
pub fn client_counts(lab: &Lab) -> Vec<u32> {
    let most = if lab.is_small() { 2 } else { 8 * cores() };
    std::iter::successors(Some(1), |clients| Some(clients * 2))
        .take_while(|clients| *clients <= most)
        .collect()
}
