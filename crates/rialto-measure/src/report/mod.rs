//! [`Measured`]: one measured window's figures, as a table for people and as a JSON object.
//!
//! - [`mod@time`]: where transactions' time went;
//! - `pages`: the pages of tables on disk;
//! - [`json`], [`table`]: the two forms;
//! - [`not_counted`]: why a figure is null;
//! - [`log_classes`]: the sizes of groups and the times of log writes, by class.

mod json;
pub mod log_classes;
pub mod not_counted;
mod pages;
mod table;
mod time;

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use rialto::checkpoint::CheckpointStats;
use rialto::engine::servers::TransactionServerStats;
use rialto::{Metrics, ServerTimes};
use serde_json::Value as Json;

use self::time::Awaited;
use crate::calibrate::Spells;
use crate::counters::Counts;
use crate::driver::{Outcome, ServersSetting};
use crate::error::RunError;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::text::thousands;
use crate::usage::Usage;

/// A kind of context switches.
type SwitchKind = fn(&Usage) -> u64;
const VOLUNTARY: SwitchKind = |usage| usage.voluntary;
const INVOLUNTARY: SwitchKind = |usage| usage.involuntary;

/// What a run was, for its results.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The workload's name.
    pub workload: &'static str,
    /// The workload's size.
    pub shape: String,
    /// The names of the transaction types.
    pub procedures: &'static [&'static str],
    /// How many of a hundred of each succeed by the workload's specification, if it says so.
    pub success_percent: Option<&'static [f64]>,
    /// The engine's name.
    pub engine: &'static str,
    /// How durable commits are.
    pub durability: &'static str,
    /// Clients.
    pub clients: u32,
    /// Outstanding transactions of each.
    pub in_flight: u32,
    /// Where random choices came from.
    pub seed: u64,
    /// The data directory, if there is one.
    pub data: Option<String>,
    /// What the files lay on.
    pub disk: String,
    /// What it ran on.
    pub machine: Machine,
    /// Why instructions were not counted.
    pub uncounted: Option<String>,
    /// The load, if it was given as a share of the peak, in percent.
    pub percent_of_peak: Option<f64>,
    /// The servers that requests went through, if they did.
    pub servers: Option<ServersSetting>,
}

impl Setting {
    /// What waited for the transactions: a client, a ticket or a message server.
    fn awaited(&self) -> Awaited {
        match (self.servers, self.in_flight) {
            (Some(_), _) => Awaited::InQueues,
            (None, 1) => Awaited::ByClients,
            (None, _) => Awaited::AsTickets,
        }
    }
}

/// One window's measurements.
#[derive(Debug, Clone)]
pub struct Measured {
    /// What the clients saw.
    pub outcome: Outcome,
    /// The load that was offered, in transactions a second.
    pub offered_per_s: Option<f64>,
    /// The kernel's counts when the window began and ended.
    pub metrics: (Metrics, Metrics),
    /// The transaction server's, likewise; nothing if there was none.
    pub server_stats: (TransactionServerStats, TransactionServerStats),
    /// The process's counts in the window.
    pub counts: Counts,
    /// What the machine was like in the window.
    pub spells: Spells,
    /// What bare code reached right after it.
    pub limits: Option<Limits>,
}

/// Checkpoint sweeps of a window, whole ones.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sweeps {
    completed: u64,
    copied_bytes: u64,
    /// Processor time of the checkpointer's thread over what it copied.
    cpu_ms_per_gb: f64,
}

/// Cuts of the window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cuts {
    made: u64,
    /// The longest that one kept commits from their places since the database was opened.
    held_max: Duration,
    /// The most that snapshot copies took at a time since the database was opened.
    snapshot_bytes_max: u64,
}

impl Measured {
    /// Transactions a second.
    pub fn committed_per_s(&self) -> f64 {
        self.outcome.committed() as f64 / self.outcome.window.as_secs_f64().max(1e-9)
    }

    fn per_transaction(&self, sum: f64) -> Option<f64> {
        let committed = self.outcome.committed();
        (committed > 0).then(|| sum / committed as f64)
    }

    fn counted_per_transaction(&self, count: Option<u64>) -> Option<f64> {
        self.per_transaction(count? as f64)
    }

    fn switches_per_transaction(&self, usage: Option<Usage>, kind: SwitchKind) -> Option<f64> {
        self.counted_per_transaction(usage.as_ref().map(kind))
    }

    /// A kernel counter's growth in the window.
    fn grown(&self, counter: impl Fn(&Metrics) -> u64) -> u64 {
        counter(&self.metrics.1).saturating_sub(counter(&self.metrics.0))
    }

    fn group_size_mean(&self) -> Option<f64> {
        let groups = self.grown(|metrics| metrics.log.groups);
        (groups > 0).then(|| self.grown(|metrics| metrics.log.packets) as f64 / groups as f64)
    }

    /// Log bytes of a transaction, as far as they were written in the window.
    pub fn log_bytes_per_transaction(&self) -> Option<f64> {
        self.per_transaction(self.grown(|metrics| metrics.log.bytes) as f64).filter(|bytes| *bytes > 0.0)
    }

    /// Bytes that went to the backup copies.
    fn sweep_bytes(&self) -> u64 {
        self.grown(|metrics| metrics.checkpoints.written_bytes)
    }

    /// What the checkpoints that were completed in the window came to; `None` if none was.
    fn sweeps(&self) -> Option<Sweeps> {
        let copied_bytes = self.grown(|metrics| metrics.checkpoints.copied_bytes);
        let cpu_ns = self.grown(|metrics| metrics.checkpoints.cpu.as_nanos() as u64);
        (copied_bytes > 0).then(|| Sweeps {
            completed: self.grown(|metrics| metrics.checkpoints.completed),
            copied_bytes,
            // Nanoseconds a byte are seconds a GB.
            cpu_ms_per_gb: cpu_ns as f64 * 1e3 / copied_bytes as f64,
        })
    }

    /// The longest time that a sweep held a segment's latch since the database was opened; `None` if none had one in the window.
    fn sweep_hold_us_max(&self) -> Option<f64> {
        let held = self.metrics.1.checkpoints.hold_max.as_secs_f64() * 1e6;
        (self.grown(|metrics| metrics.checkpoints.latches) > 0).then_some(held)
    }

    /// Cuts that were made in the window; `None` if none was.
    fn cuts(&self) -> Option<Cuts> {
        let made = self.grown(|metrics| metrics.checkpoints.cuts);
        let CheckpointStats { cut_held_max: held_max, snapshot_bytes_max, .. } = self.metrics.1.checkpoints;
        (made > 0).then_some(Cuts { made, held_max, snapshot_bytes_max })
    }

    /// Processor time of the servers in the window.
    pub fn server_times(&self) -> ServerTimes {
        self.metrics.1.servers.since(&self.metrics.0.servers)
    }

    /// The same, in microseconds a transaction: transaction, checkpoint, log and message servers, as in table 4.1.
    pub fn server_us(&self) -> Option<[f64; 4]> {
        let ServerTimes { transaction, checkpoint, log, message } = self.server_times();
        let us = |time: Duration| self.per_transaction(time.as_secs_f64() * 1e6);
        Some([us(transaction)?, us(checkpoint)?, us(log)?, us(message)?])
    }

    /// A counter of the transaction server's, by how much it grew.
    fn server_count(&self, counter: impl Fn(&TransactionServerStats) -> u64) -> u64 {
        counter(&self.server_stats.1).saturating_sub(counter(&self.server_stats.0))
    }

    /// Row locks, higher ones, and those of executors, in 100 transactions.
    fn locks_per_100(&self) -> [Option<f64>; 3] {
        let per_100 = |count: u64| self.per_transaction(count as f64 * 100.0);
        [
            per_100(self.grown(|metrics| metrics.locks.row)),
            per_100(self.grown(|metrics| metrics.locks.higher)),
            per_100(self.grown(|metrics| metrics.locks.local)),
        ]
    }
}

/// Writes a part of the result to where it goes.
pub fn write_part(out: &mut dyn Write, part: impl Display) -> Result<(), RunError> {
    write!(out, "{part}")
        .and_then(|()| out.flush())
        .map_err(|cause| RunError::Io { during: "writing the result", cause })
}

/// Writes the JSON object, if there is one, as the result's last line.
pub fn write_json(out: &mut dyn Write, json: Option<Json>) -> Result<(), RunError> {
    json.map_or(Ok(()), |json| write_part(out, crate::json::line(&json) + "\n"))
}

/// The window whose throughput is the median, of two in the middle the lower; and for people the line behind its table,
/// which says how far apart the windows were: nothing if there was one.
pub fn median<W>(mut windows: Vec<W>, per_s: impl Fn(&W) -> f64, unit: &str) -> Option<(W, String)> {
    windows.sort_by(|a, b| per_s(a).total_cmp(&per_s(b)));
    let (least, most) = (thousands(per_s(windows.first()?)), thousands(per_s(windows.last()?)));
    let line = match windows.len() {
        1 => String::new(),
        count => format!("  median of {count} windows, {least} to {most} {unit}/s\n"),
    };
    let middle = (windows.len() - 1) / 2;
    Some((windows.swap_remove(middle), line))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use rialto::ProcedureAccount;

    use super::*;
    use crate::histogram::Latencies;

    /// A window in which transactions of type `p` took 100 us each.
    pub(crate) fn measured(committed: u32) -> Measured {
        let mut latencies = Latencies::default();
        (0..committed).for_each(|_| latencies.record(Duration::from_micros(100)));
        let transactions = u64::from(committed);
        let outcome = Outcome {
            window: Duration::from_secs(2),
            latencies: vec![latencies],
            queue_ns: vec![10_000 * transactions],
            client_switches: Some(Usage { voluntary: transactions, involuntary: 0 }),
            ..Outcome::default()
        };
        let mut account = ProcedureAccount::default();
        account.name = "p".to_owned();
        account.committed = transactions;
        account.time.lock_wait_ns = 20_000 * transactions;
        account.time.latch_wait_ns = 5_000 * transactions;
        account.time.run_ns = 25_000 * transactions;
        account.time.log_wait_ns = 30_000 * transactions;
        let mut after = Metrics::default();
        after.procedures = vec![account];
        after.log.bytes = 200 * transactions;
        after.log.packets = transactions;
        after.log.groups = transactions / 10;
        after.locks.row = 4 * transactions;
        let switches = Usage { voluntary: 2 * transactions, involuntary: transactions };
        let counts = Counts { switches: Some(switches), ..Counts::default() };
        let spells = Spells::judge(&[]);
        let metrics = (Metrics::default(), after);
        let server_stats = <_>::default();
        Measured { outcome, offered_per_s: None, metrics, server_stats, counts, spells, limits: None }
    }

    #[test]
    fn sweeps_are_those_that_were_completed_in_the_window() {
        let mut measured = measured(10);
        assert_eq!(measured.sweeps(), None);
        for (metrics, times) in [(&mut measured.metrics.0, 1), (&mut measured.metrics.1, 3)] {
            metrics.checkpoints.completed = times;
            metrics.checkpoints.copied_bytes = times * 500_000_000;
            metrics.checkpoints.cpu = Duration::from_millis(60) * times as u32;
        }
        let expected = Sweeps { completed: 2, copied_bytes: 1_000_000_000, cpu_ms_per_gb: 120.0 };
        assert_eq!(measured.sweeps(), Some(expected));
    }

    #[test]
    fn the_median_is_one_of_the_windows() {
        let windows = [30, 10, 20, 40].map(measured).to_vec();
        let (found, line) = median(windows, Measured::committed_per_s, "transactions").unwrap();
        assert_eq!(found.outcome.committed(), 20);
        assert_eq!(line, "  median of 4 windows, 5 to 20 transactions/s\n");
        assert_eq!(median(vec![measured(1)], Measured::committed_per_s, "transactions").unwrap().1, "");
    }
}
