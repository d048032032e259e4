//! [`Measured`]: one measured window's figures, as a table for people and as the contract's JSON object.

use std::fmt::Write as _;
use std::time::Duration;

use rialto::Metrics;

use crate::counters::Counts;
use crate::driver::Outcome;
use crate::histogram::{Latencies, Percentiles};
use crate::json::Json;
use crate::machine::Machine;

/// What a run was, for its results.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The workload's name.
    pub workload: &'static str,
    /// The workload's size.
    pub shape: String,
    /// The names of the transaction types.
    pub procedures: &'static [&'static str],
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
    /// The process's counts in the window.
    pub counts: Counts,
}

/// Where a transaction's time went, in microseconds; together its response time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TimeAccount {
    queue: f64,
    lock_wait: f64,
    run: f64,
    log_wait: f64,
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

    /// A kernel counter's growth in the window.
    fn grown(&self, counter: impl Fn(&Metrics) -> u64) -> u64 {
        counter(&self.metrics.1).saturating_sub(counter(&self.metrics.0))
    }

    fn group_size_mean(&self) -> Option<f64> {
        let groups = self.grown(|metrics| metrics.log.groups);
        (groups > 0).then(|| self.grown(|metrics| metrics.log.packets) as f64 / groups as f64)
    }

    /// A blocking client's time that is neither waiting nor queueing is its run; a ticket waits for the log for what is
    /// left of its latency.
    fn time_account(&self, in_flight: u32) -> Option<TimeAccount> {
        let us = |ns: u64| self.per_transaction(ns as f64 / 1e3);
        let response = self.outcome.all_latencies().mean_us();
        let queue = us(self.outcome.queue_ns)?;
        let lock_wait = us(self.grown(|metrics| metrics.lock_wait_ns))?;
        let (run, log_wait) = if in_flight == 1 {
            let log_wait = us(self.grown(|metrics| metrics.log_wait_ns))?;
            ((response - queue - lock_wait - log_wait).max(0.0), log_wait)
        } else {
            let run = (us(self.grown(|metrics| metrics.run_ns))? - lock_wait).max(0.0);
            (run, (response - queue - lock_wait - run).max(0.0))
        };
        Some(TimeAccount { queue, lock_wait, run, log_wait })
    }

    fn locks_per_100(&self) -> (Option<f64>, Option<f64>) {
        let per_100 = |count: u64| self.per_transaction(count as f64 * 100.0);
        (
            per_100(self.grown(|metrics| metrics.locks.row)),
            per_100(self.grown(|metrics| metrics.locks.higher)),
        )
    }

    /// The contract's object.
    pub fn json(&self, setting: &Setting, consistent: bool) -> Json {
        let all = self.outcome.all_latencies();
        let account = self.time_account(setting.in_flight);
        let (row, higher) = self.locks_per_100();
        let time = |part: fn(&TimeAccount) -> f64| Json::from(account.as_ref().map(part));
        let queue = match self.offered_per_s {
            Some(_) => time(|account| account.queue),
            None => Json::Null,
        };
        Json::object([
            ("workload", setting.workload.into()),
            ("engine", setting.engine.into()),
            ("clients", u64::from(setting.clients).into()),
            ("seconds", self.outcome.window.as_secs_f64().into()),
            ("seed", setting.seed.into()),
            ("data", setting.data.as_deref().into()),
            ("machine", setting.machine.json()),
            ("offered_per_s", self.offered_per_s.into()),
            ("committed", self.outcome.committed().into()),
            ("committed_per_s", self.committed_per_s().into()),
            ("aborted_user", self.outcome.aborted_user.into()),
            ("aborted_deadlock", self.grown(|metrics| metrics.aborted_deadlock).into()),
            ("latency_us", latency_json(&all)),
            (
                "log_bytes_per_txn",
                self.per_transaction(self.grown(|metrics| metrics.log.bytes) as f64).into(),
            ),
            ("group_size_mean", self.group_size_mean().into()),
            ("log_writes", self.grown(|metrics| metrics.log.writes).into()),
            (
                "instructions_per_txn",
                Json::object([
                    ("user", self.counted_per_transaction(self.counts.user_instructions).into()),
                    ("kernel", self.counted_per_transaction(self.counts.kernel_instructions).into()),
                ]),
            ),
            ("wakes_per_txn", self.counted_per_transaction(self.counts.sleeps).into()),
            ("syscalls_per_txn", Json::Null),
            ("checkpoints", self.grown(|metrics| metrics.checkpoints.completed).into()),
            (
                "locks_per_100_txn",
                Json::object([("row", row.into()), ("higher", higher.into()), ("local", Json::Null)]),
            ),
            (
                "time_us_per_txn",
                Json::object([
                    ("queue", queue),
                    ("fetch_io", Json::Null),
                    ("lock_wait", time(|account| account.lock_wait)),
                    ("latch_wait", Json::Null),
                    ("run", time(|account| account.run)),
                    ("log_wait", time(|account| account.log_wait)),
                    ("standby_wait", Json::Null),
                ]),
            ),
            ("allocations_per_txn", self.counted_per_transaction(self.counts.allocations).into()),
            ("procedures", self.procedures_json(setting)),
            ("consistent", consistent.into()),
        ])
    }

    fn procedures_json(&self, setting: &Setting) -> Json {
        let seconds = self.outcome.window.as_secs_f64().max(1e-9);
        let one = |latencies: &Latencies| {
            Json::object([
                ("committed", latencies.count().into()),
                ("committed_per_s", (latencies.count() as f64 / seconds).into()),
                ("latency_us", latency_json(latencies)),
            ])
        };
        let types = setting.procedures.iter().zip(&self.outcome.latencies);
        Json::Object(types.map(|(name, latencies)| ((*name).to_owned(), one(latencies))).collect())
    }

    /// The table for people; `tail` are its last rows.
    pub fn table(&self, setting: &Setting, tail: [(&'static str, String); 2]) -> String {
        let mut table = Table::default();
        let all = self.outcome.all_latencies();
        table.row("throughput", format!("{} transactions/s", thousands(self.committed_per_s())));
        if let Some(offered) = self.offered_per_s {
            table.row("offered", format!("{} transactions/s", thousands(offered)));
        }
        let seconds = self.outcome.window.as_secs_f64();
        table.row("committed", format!("{} in {seconds:.2} s", thousands(self.outcome.committed() as f64)));
        let deadlocks = self.grown(|metrics| metrics.aborted_deadlock);
        table.row(
            "aborted",
            format!("{} by themselves, {deadlocks} deadlock victims run again", self.outcome.aborted_user),
        );
        table.row(
            "latency",
            all.percentiles().map_or_else(
                || "none".to_owned(),
                |Percentiles { p50_us, p99_us, p999_us, max_us }| {
                    format!(
                        "p50 {}, p99 {}, p99.9 {}, max {}",
                        time(p50_us),
                        time(p99_us),
                        time(p999_us),
                        time(max_us)
                    )
                },
            ),
        );
        if let Some(account) = self.time_account(setting.in_flight) {
            let queue = match self.offered_per_s {
                Some(_) => format!("queue {} + ", time(account.queue)),
                None => String::new(),
            };
            let parts = format!(
                "{queue}lock wait {} + run {} + log wait {} = {}",
                time(account.lock_wait),
                time(account.run),
                time(account.log_wait),
                time(all.mean_us())
            );
            table.row("time account", parts);
        }
        self.log_rows(&mut table, seconds);
        let (row, higher) = self.locks_per_100();
        table.row("locks", format!("{} row, {} higher in 100 transactions", figure(row), figure(higher)));
        self.count_rows(&mut table, setting);
        let (used, limit) = (self.metrics.1.memory_used, self.metrics.1.memory_limit);
        table.row("memory", format!("{} of {} for tables and indexes", bytes(used), bytes(limit)));
        tail.into_iter().for_each(|(name, value)| table.row(name, value));
        table.print()
    }

    fn log_rows(&self, table: &mut Table, seconds: f64) {
        let written = self.grown(|metrics| metrics.log.bytes);
        let writes = self.grown(|metrics| metrics.log.writes);
        let groups = self.grown(|metrics| metrics.log.groups);
        let write_ns = self.grown(|metrics| metrics.log.write_ns);
        let per_transaction = figure(self.per_transaction(written as f64));
        let total = bytes(written);
        table.row("log", format!("{per_transaction} bytes a transaction, {total} in {writes} writes"));
        let mean = if groups == 0 { 0.0 } else { write_ns as f64 / groups as f64 / 1e3 };
        table.row(
            "group commit",
            format!(
                "{} transactions a group, {} groups/s, {} to write and sync one",
                figure(self.group_size_mean()),
                thousands(groups as f64 / seconds.max(1e-9)),
                time(mean)
            ),
        );
        let sizes = (0..self.metrics.1.log.group_sizes.len()).filter_map(|class| {
            let count = self.grown(|metrics| metrics.log.group_sizes[class]);
            let percent = count as f64 * 100.0 / groups.max(1) as f64;
            (percent >= 0.5).then(|| format!("{}: {percent:.0}%", class_name(class)))
        });
        let sizes: Vec<String> = sizes.collect();
        if !sizes.is_empty() {
            table.row("group sizes", sizes.join(", "));
        }
    }

    fn count_rows(&self, table: &mut Table, setting: &Setting) {
        let Counts { user_instructions, kernel_instructions, sleeps, allocations } = self.counts;
        let per = |count| figure(self.counted_per_transaction(count));
        match &setting.uncounted {
            Some(reason) => table.row("instructions", format!("not counted ({reason})")),
            None => table.row(
                "instructions",
                format!("{} user, {} kernel a transaction", per(user_instructions), per(kernel_instructions)),
            ),
        }
        table.row("wake-ups", format!("{} a transaction", per(sleeps)));
        if allocations.is_some() {
            table.row("allocations", format!("{} a transaction", per(allocations)));
        }
    }
}

fn latency_json(latencies: &Latencies) -> Json {
    let percentiles = latencies.percentiles();
    let at = |part: fn(&Percentiles) -> f64| Json::from(percentiles.as_ref().map(part));
    Json::object([
        ("p50", at(|all| all.p50_us)),
        ("p99", at(|all| all.p99_us)),
        ("p999", at(|all| all.p999_us)),
        ("max", at(|all| all.max_us)),
    ])
}

/// Names and values in two columns.
#[derive(Default)]
struct Table(Vec<(&'static str, String)>);

impl Table {
    fn row(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    fn print(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.0 {
            writeln!(text, "  {name:width$}  {value}").expect("a string takes everything");
        }
        text
    }
}

/// The sizes of a class of groups: 1, 2-3, 4-7, …
fn class_name(class: usize) -> String {
    let first = 1u64 << class;
    if class == 0 { "1".to_owned() } else { format!("{first}-{}", 2 * first - 1) }
}

/// A whole number with its thousands apart.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn figure(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number >= 1000.0 => thousands(number),
        Some(number) if number >= 100.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.2}"),
    }
}

/// Microseconds, in a unit that fits.
fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

fn bytes(count: u64) -> String {
    match count as f64 {
        count if count < 1e4 => format!("{count} bytes"),
        count if count < 1e7 => format!("{:.0} kB", count / 1e3),
        count if count < 1e10 => format!("{:.0} MB", count / 1e6),
        count => format!("{:.1} GB", count / 1e9),
    }
}

/// The window whose throughput is the median; of two in the middle, the lower.
pub fn median(mut windows: Vec<Measured>) -> Option<(Measured, Spread)> {
    windows.sort_by(|a, b| a.committed_per_s().total_cmp(&b.committed_per_s()));
    let spread = Spread {
        windows: windows.len(),
        least_per_s: windows.first()?.committed_per_s(),
        most_per_s: windows.last()?.committed_per_s(),
    };
    let middle = (windows.len() - 1) / 2;
    Some((windows.swap_remove(middle), spread))
}

/// How far apart the windows of a repeated run were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// How many.
    pub windows: usize,
    /// The slowest.
    pub least_per_s: f64,
    /// The fastest.
    pub most_per_s: f64,
}

/// Seconds, for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(committed: u32) -> Measured {
        let mut latencies = Latencies::default();
        (0..committed).for_each(|_| latencies.record(Duration::from_micros(100)));
        let outcome = Outcome {
            window: Duration::from_secs(2),
            latencies: vec![latencies],
            queue_ns: 10_000 * u64::from(committed),
            ..Outcome::default()
        };
        let mut after = Metrics::default();
        let transactions = u64::from(committed);
        after.lock_wait_ns = 20_000 * transactions;
        after.log_wait_ns = 30_000 * transactions;
        after.run_ns = 45_000 * transactions;
        after.log.bytes = 200 * transactions;
        after.log.packets = transactions;
        after.log.groups = transactions / 10;
        after.locks.row = 4 * transactions;
        let counts = Counts { sleeps: Some(transactions), ..Counts::default() };
        Measured { outcome, offered_per_s: None, metrics: (Metrics::default(), after), counts }
    }

    #[test]
    fn the_time_account_adds_up_to_the_response_time() {
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.2;
        let blocking = measured(100).time_account(1).unwrap();
        assert!(near(blocking.run, 40.0) && near(blocking.log_wait, 30.0), "{blocking:?}");
        let tickets = measured(100).time_account(8).unwrap();
        assert!(near(tickets.run, 25.0) && near(tickets.log_wait, 45.0), "{tickets:?}");
        for TimeAccount { queue, lock_wait, run, log_wait } in [blocking, tickets] {
            assert!(near(queue + lock_wait + run + log_wait, 100.0));
        }
        assert_eq!(measured(0).time_account(1), None);
    }

    #[test]
    fn the_median_is_one_of_the_windows() {
        let windows = [30, 10, 20, 40].map(measured).to_vec();
        let (median, spread) = median(windows).unwrap();
        assert_eq!(median.outcome.committed(), 20);
        assert_eq!((spread.windows, spread.least_per_s, spread.most_per_s), (4, 5.0, 20.0));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(1_234_567.2), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(
            (time(1.234), time(1234.0), time(2e6)),
            ("1.23 us".into(), "1.23 ms".into(), "2.00 s".into())
        );
        assert_eq!(
            (figure(None), figure(Some(2.5)), figure(Some(1234.0))),
            ("-".into(), "2.50".into(), "1,234".into())
        );
        assert_eq!((class_name(0), class_name(3)), ("1".into(), "8-15".into()));
    }
}
