//! One setting of the servers on the disk: its database is loaded, run, measured, verified and removed.

use std::time::Duration;

use rialto::engine::servers::TransactionServerStats;
use rialto::io::FileDisk;
use rialto::{Checkpointing, Database, Logging, Metrics, Options, ServerTimes, TransactionServerOptions};
use rialto_measure::RunError;
use rialto_measure::confidence::Confidence;
use rialto_measure::driver::{Batch, Driven, Load, Observer, Outcome};
use rialto_measure::text::say;
use rialto_workloads::card::{Card, CardServers, Mix, Shape};
use rialto_workloads::workload::Audited;

use super::super::Lab;
use super::super::point::{Home, ms};
use super::Strategy;

/// How long a sweep of the product's default may take here: its own 30 s are longer than a window.
pub const PACED_INTERVAL: Duration = Duration::from_secs(3);

/// How sweeps go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// One after the other, without a pause, as the paper ran them.
    Unpaced,
    /// As the product does: spread over the interval, here of [`PACED_INTERVAL`].
    Paced,
}

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// How it checkpoints and logs; not at all, if there is none.
    pub strategy: Option<Strategy>,
    /// How fast it sweeps.
    pub pace: Pace,
    /// Whether segments are copied before they are written.
    pub spool: bool,
    /// The length of the request queue.
    pub queue: usize,
}

/// The request queue of those experiments that are not about its length.
pub const QUEUE: usize = 256;

impl Setting {
    /// As the paper's table 4.1 has it: unpaced and unspooled.
    pub fn of_paper(strategy: Strategy) -> Setting {
        Setting { strategy: Some(strategy), pace: Pace::Unpaced, spool: false, queue: QUEUE }
    }

    /// Without logging and checkpoints.
    pub fn off() -> Setting {
        Setting { strategy: None, pace: Pace::Unpaced, spool: true, queue: QUEUE }
    }

    fn options(&self) -> Option<Options> {
        let defaults = Options { memory_bytes: 1 << 30, spool: self.spool, ..Options::default() };
        let Some(strategy) = self.strategy else {
            return Some(Options { logging: Logging::None, checkpoint: Checkpointing::None, ..defaults });
        };
        let (checkpoint, logging) = strategy.here()?;
        let options = Options { checkpoint, logging, ..defaults };
        Some(match self.pace {
            Pace::Unpaced => {
                Options { checkpoint_interval: Duration::ZERO, sweep_bytes_per_s: Some(0), ..options }
            }
            Pace::Paced => Options { checkpoint_interval: PACED_INTERVAL, ..options },
        })
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Transactions.
    pub committed: u64,
    /// How long.
    pub window: Duration,
    /// Processor time of the servers.
    pub servers: ServerTimes,
    /// Transactions a second, by equal parts of the window.
    pub rates: Vec<f64>,
    /// Response times, by equal parts of the window.
    pub batches: Vec<Batch>,
    /// Locks that transactions asked for, and latches of segments that sweeps did.
    pub lock_requests: u64,
    /// How often a lock, or the latch of a segment, was not free, for transactions and for sweeps.
    pub conflicting: u64,
    /// Runs that were put on the restart queue.
    pub restarted: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
}

impl Sample {
    /// Both together.
    pub fn add(&mut self, other: Sample) {
        self.committed += other.committed;
        self.window += other.window;
        self.servers = ServerTimes {
            transaction: self.servers.transaction + other.servers.transaction,
            log: self.servers.log + other.servers.log,
            checkpoint: self.servers.checkpoint + other.servers.checkpoint,
            message: self.servers.message + other.servers.message,
        };
        self.rates.extend(other.rates);
        self.batches.extend(other.batches);
        self.lock_requests += other.lock_requests;
        self.conflicting += other.conflicting;
        self.restarted += other.restarted;
        self.checkpoints += other.checkpoints;
    }

    /// Transactions a second, with their interval.
    pub fn per_s(&self) -> Confidence {
        let mean = self.committed as f64 / self.window.as_secs_f64().max(1e-9);
        Confidence::of(mean, &self.rates).unwrap_or(Confidence { mean, low: mean, high: mean, batches: 0 })
    }

    /// Response times in microseconds, with their interval; none if there was no response.
    pub fn response_us(&self) -> Option<Confidence> {
        let there = self.batches.iter().filter(|batch| batch.responses > 0);
        let means: Vec<_> =
            there.clone().map(|batch| batch.sum_ns as f64 / 1e3 / batch.responses as f64).collect();
        let (sum, count) =
            there.fold((0, 0), |(sum, count), batch| (sum + batch.sum_ns, count + batch.responses));
        Confidence::of(sum as f64 / 1e3 / count.max(1) as f64, &means)
    }

    /// Microseconds of processor time a transaction: transaction, checkpoint, log and message servers.
    pub fn server_us(&self) -> [f64; 4] {
        let ServerTimes { transaction, checkpoint, log, message } = self.servers;
        [transaction, checkpoint, log, message]
            .map(|time| time.as_secs_f64() * 1e6 / self.committed.max(1) as f64)
    }
}

/// The kernel's and the server's counts at the window's ends.
struct Watch<'a> {
    database: &'a Database,
    servers: &'a CardServers,
    looks: Vec<(Metrics, TransactionServerStats)>,
}

impl Watch<'_> {
    fn look(&mut self) {
        self.looks.push((self.database.metrics(), self.servers.server_stats()));
    }
}

impl Observer for Watch<'_> {
    fn window_begins(&mut self, _: u64, _: Duration) -> Result<(), String> {
        self.look();
        Ok(())
    }

    fn window_ends(&mut self) {
        self.look();
    }

    fn slice(&mut self, _: Duration, _: u64) {}

    fn tick(&mut self, _: Option<Duration>, _: f64) {}
}

/// Locks that transactions asked for, and latches of segments that sweeps did.
fn lock_requests(metrics: &Metrics) -> u64 {
    metrics.locks.row + metrics.locks.higher + metrics.checkpoints.latches
}

/// Of those and of the latches that commits took: how many were not free.
fn conflicting(metrics: &Metrics) -> u64 {
    metrics.locks.waits + metrics.latch_conflicts + metrics.checkpoints.latch_conflicts
}

/// Runs a setting on a database of its own for `window`. None if this program does not have its strategy, or refuses it.
///
/// # Errors
/// Of the directory, and of transactions; cards that are inconsistent afterwards.
pub fn measure(lab: &Lab, setting: &Setting, window: Duration) -> Result<Option<Sample>, RunError> {
    let Some(options) = setting.options() else { return Ok(None) };
    let directory = lab.data.join(format!("figures-{}", std::process::id()));
    let home = Home::new(directory);
    let disk = FileDisk::create(&home.0).map_err(|error| {
        RunError::Directory(format!("the directory cannot be used: {error}; choose another with --data DIR"))
    })?;
    let database = match Database::open_on(disk, options) {
        Ok(database) => database,
        Err(rialto::OpenError::Options { what }) => {
            say(&format!("  left out: {what}"));
            return Ok(None);
        }
        Err(cause) => return Err(RunError::Open { data: home.0.display().to_string(), cause }),
    };
    let failed = |during| move |cause| RunError::Transaction { during, cause };
    let shape = if lab.is_small() { Shape { scale: 1, accounts: 1_000 } } else { Shape::of_scale(1) };
    let opened = Card::open_or_load(&database, shape, Mix::default(), &mut |_| {});
    let server = TransactionServerOptions { queue: setting.queue, ..TransactionServerOptions::default() };
    let servers = CardServers::start(&database, opened, &server, 1).map_err(|error| match error {
        rialto_workloads::data::ShapeError::Failed(cause) => failed("loading the cards")(cause),
        rialto_workloads::data::ShapeError::OtherShape { found, expected } => {
            RunError::Directory(format!("{} holds {found}, expected {expected}", home.0.display()))
        }
    })?;
    let (servers, _) = servers;
    let before = servers.audit().map_err(failed("reading the cards"))?;
    // Until the first sweeps, where they are paced.
    let settle = match setting.pace {
        Pace::Paced => PACED_INTERVAL.min(window),
        Pace::Unpaced => (window / 10).max(ms(50)),
    };
    let load = Load { clients: 1, in_flight: 1, rate: None, warmup: settle, window, seed: lab.seed };
    let mut watch = Watch { database: &database, servers: &servers, looks: Vec::new() };
    let outcome = servers.drive(&load, &mut watch).map_err(RunError::of_clients("running transactions"))?;
    let looks = std::mem::take(&mut watch.looks);
    let [(begun, server_begun), (ended, server_ended)] = &looks[..] else {
        unreachable!("a window that did not fail has two ends");
    };
    let verdict = servers.verdict(&before, &servers.audit().map_err(failed("verifying the cards"))?, 0..=0);
    if !verdict.consistent {
        return Err(RunError::Inconsistent(verdict.text));
    }
    let Outcome { batches, window, .. } = &outcome;
    let part_s = window.as_secs_f64() / batches.len().max(1) as f64;
    let sample = Sample {
        committed: outcome.committed(),
        window: *window,
        servers: ended.servers.since(&begun.servers),
        rates: batches.iter().map(|batch| batch.responses as f64 / part_s).collect(),
        lock_requests: lock_requests(ended) - lock_requests(begun),
        conflicting: conflicting(ended) - conflicting(begun),
        restarted: server_ended.restarted - server_begun.restarted,
        checkpoints: ended.checkpoints.completed - begun.checkpoints.completed,
        batches: outcome.batches,
    };
    drop(servers);
    database.close().map_err(failed("closing the database"))?;
    Ok(Some(sample))
}
