//! One setting of the servers on the disk: its database is loaded, run, measured, verified and removed.

use std::time::Duration;

use rialto::io::FileDisk;
use rialto::{
    Checkpointing, Database, Logging, Metrics, Options, Residence, ServerTimes, TransactionServerOptions,
};
use rialto_measure::RunError;
use rialto_measure::driver::{Batch, Driven, Load};
use rialto_measure::text::say;
use rialto_workloads::card::{Card, CardServers, Mix, Shape};
use rialto_workloads::workload::Audited;

use super::super::Lab;
use super::super::looks::Looks;
use super::super::point::{Home, ms};
use super::super::rounds::{Rounds, in_order};
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
    /// Whether a black/white sweep copies next what was in the way of a transaction that it aborted.
    pub hints: bool,
}

/// The request queue of those experiments that are not about its length.
pub const QUEUE: usize = 256;

impl Setting {
    /// As the paper's table 4.1 has it: unpaced and unspooled, black/white sweeps in their own order.
    pub fn of_paper(strategy: Strategy) -> Setting {
        Setting { strategy: Some(strategy), pace: Pace::Unpaced, spool: false, queue: QUEUE, hints: false }
    }

    /// Without logging and checkpoints.
    pub fn off() -> Setting {
        Setting { strategy: None, pace: Pace::Unpaced, spool: true, queue: QUEUE, hints: true }
    }

    fn options(&self) -> Option<Options> {
        let defaults = Options { memory_bytes: 1 << 30, spool: self.spool, ..Options::default() };
        let Some(strategy) = self.strategy else {
            return Some(Options { logging: Logging::None, checkpoint: Checkpointing::None, ..defaults });
        };
        let (checkpoint, logging) = strategy.here()?;
        let options = Options { checkpoint, logging, straddling_hints: self.hints, ..defaults };
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
    /// Transactions a second.
    pub fn per_s(&self) -> f64 {
        self.committed as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// Processor time of all servers in microseconds a transaction.
    pub fn all_servers_us(&self) -> f64 {
        self.server_us().iter().sum()
    }

    /// The lock requests that were not free, in percent of all.
    pub fn contention(&self) -> f64 {
        self.conflicting as f64 * 100.0 / self.lock_requests.max(1) as f64
    }

    /// The mean response time in microseconds.
    pub fn response_us(&self) -> f64 {
        let (sum, count) = self
            .batches
            .iter()
            .fold((0, 0), |(sum, count), batch| (sum + batch.sum_ns, count + batch.responses));
        sum as f64 / 1e3 / count.max(1) as f64
    }

    /// Microseconds of processor time a transaction: transaction, checkpoint, log and message servers.
    pub fn server_us(&self) -> [f64; 4] {
        let ServerTimes { transaction, checkpoint, log, message } = self.servers;
        [transaction, checkpoint, log, message]
            .map(|time| time.as_secs_f64() * 1e6 / self.committed.max(1) as f64)
    }
}

/// Locks that transactions asked for, and latches of segments that sweeps did.
fn lock_requests(metrics: &Metrics) -> u64 {
    metrics.locks.row + metrics.locks.higher + metrics.checkpoints.latches
}

/// Of those and of the latches that commits took: how many were not free.
fn conflicting(metrics: &Metrics) -> u64 {
    metrics.locks.waits + metrics.latch_conflicts + metrics.checkpoints.latch_conflicts
}

/// Measures each setting in each of the lab's rounds, on a database of its own each time. None for a setting whose
/// strategy this program does not have, or refuses.
///
/// # Errors
/// As [`measure`].
pub fn measure_all(
    lab: &Lab,
    settings: &[(String, Setting)],
    window: Duration,
) -> Result<Vec<Option<Rounds<Sample>>>, RunError> {
    let mut points: Vec<Option<Rounds<Sample>>> = settings.iter().map(|_| None).collect();
    let numbers: Vec<usize> = (0..settings.len()).collect();
    for round in 0..lab.rounds {
        for number in in_order(round, &numbers) {
            let (name, setting) = &settings[number];
            let Some(sample) = answered(lab, setting, window)? else { continue };
            say(&format!("  round {}, {name}: {:.0}/s", round + 1, sample.per_s()));
            match &mut points[number] {
                Some(point) => point.add(sample),
                none => *none = Some(Rounds::begin(sample)),
            }
        }
    }
    Ok(points)
}

/// How often a window without a response is tried again: other work may have all processors for as long as a short one.
const AGAIN_MAX: usize = 20;

fn answered(lab: &Lab, setting: &Setting, window: Duration) -> Result<Option<Sample>, RunError> {
    for _ in 0..AGAIN_MAX {
        let sample = measure(lab, setting, window)?;
        if sample.as_ref().is_none_or(|sample| sample.committed > 0) {
            return Ok(sample);
        }
    }
    Err(RunError::Usage(format!("no request was answered within {window:?}; give more --seconds")))
}

/// Runs a setting on a database of its own for `window`. None if this program does not have its strategy, or refuses it.
///
/// # Errors
/// Of the directory, and of transactions; cards that are inconsistent afterwards.
fn measure(lab: &Lab, setting: &Setting, window: Duration) -> Result<Option<Sample>, RunError> {
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
    let opened = Card::open_or_load(&database, Residence::Memory, shape, Mix::default(), &mut |_| {});
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
    let mut looks = Looks::at(|| (database.metrics(), servers.server_stats()));
    let outcome = servers.drive(&load, &mut looks).map_err(RunError::of_clients("running transactions"))?;
    let ((begun, server_begun), (ended, server_ended)) = looks.ends();
    let verdict = servers.verdict(&before, &servers.audit().map_err(failed("verifying the cards"))?, 0..=0);
    if !verdict.consistent {
        return Err(RunError::Inconsistent(verdict.text));
    }
    let window = outcome.window;
    let sample = Sample {
        committed: outcome.committed(),
        window,
        servers: ended.servers.since(&begun.servers),
        lock_requests: lock_requests(&ended) - lock_requests(&begun),
        conflicting: conflicting(&ended) - conflicting(&begun),
        restarted: server_ended.restarted - server_begun.restarted,
        checkpoints: ended.checkpoints.completed - begun.checkpoints.completed,
        batches: outcome.batches,
    };
    drop(servers);
    database.close().map_err(failed("closing the database"))?;
    Ok(Some(sample))
}
