//! [`Window`]: what was measured of commit sequences, for people and as a JSON object.

use std::time::Duration;

use rialto::GroupCommitOptions;
use rialto::io::Caching;
use rialto::log::virtual_time::Regime;
use rialto::log::{LogStats, WritePath};
use rialto_measure::calibrate::Spells;
use rialto_measure::counters::Counts;
use rialto_measure::histogram::Percentiles;
use rialto_measure::limits::Limits;
use rialto_measure::machine::Machine;
use rialto_measure::report::log_classes::{class_name, group_sizes, write_time_name, write_times};
use rialto_measure::report::not_counted::reasons;
use rialto_measure::text::{Table, figure, thousands, time};
use rialto_measure::usage::Usage;
use serde_json::{Value as Json, json};

use super::Verdict;

/// What a run was.
#[derive(Debug, Clone)]
pub struct About {
    /// Clients.
    pub clients: u32,
    /// Commits that each keeps on their way.
    pub in_flight: u32,
    /// Where random choices came from.
    pub seed: u64,
    /// Which thread wrote the log, and when.
    pub group_commit: GroupCommitOptions,
    /// The data directory, if there is one.
    pub data: Option<String>,
    /// What the log lay on.
    pub disk: String,
    /// What it ran on; nothing that matters in virtual time.
    pub machine: Option<Machine>,
    /// The regime of virtual time.
    pub regime: Option<&'static Regime>,
    /// How the log files are written.
    pub write_path: Option<WritePath>,
    /// Why instructions were not counted.
    pub uncounted: Option<String>,
    /// How many windows there were, of which one is shown.
    pub windows: u32,
}

/// One window's measurements.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Commits answered.
    pub committed: u64,
    /// In this time.
    pub time: Duration,
    /// Their latencies.
    pub latency: Option<Percentiles>,
    /// The mean of them.
    pub latency_mean_us: f64,
    /// What the log did.
    pub stats: LogStats,
    /// The largest group, where it is known.
    pub group_size_max: Option<u64>,
    /// What the process counted.
    pub counts: Counts,
    /// Context switches of the clients.
    pub client_switches: Option<Usage>,
    /// What the machine was like.
    pub spells: Option<Spells>,
    /// What bare code reached right after.
    pub limits: Option<Limits>,
    /// Processors busy on average: in virtual time the machine's, on a disk with this process.
    pub processors_busy: Option<f64>,
}

/// How log files are written, as it is said in the file `log-writes`.
fn way(path: WritePath) -> &'static str {
    match path.caching {
        Caching::Direct => "direct",
        Caching::DirectSync => "direct-sync",
        Caching::Buffered => "buffered",
    }
}

impl Window {
    /// Commits a second.
    pub fn per_s(&self) -> f64 {
        self.committed as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Log bytes of a commit, as far as they were written in the window.
    pub fn log_bytes_per_commit(&self) -> Option<f64> {
        self.per_commit(Some(self.stats.bytes)).filter(|bytes| *bytes > 0.0)
    }

    /// Packets of a group.
    pub fn group_size(&self) -> Option<f64> {
        (self.stats.groups > 0).then(|| self.stats.packets as f64 / self.stats.groups as f64)
    }

    /// Time of a log write, in microseconds.
    pub fn write_us(&self) -> Option<f64> {
        (self.stats.groups > 0).then(|| self.stats.write_ns as f64 / self.stats.groups as f64 / 1e3)
    }

    /// Time spent in stalls, in microseconds a commit.
    pub fn stall_us(&self) -> Option<f64> {
        Some(self.per_commit(Some(self.stats.waits.stalled_ns))? / 1e3)
    }

    fn per_commit(&self, count: Option<u64>) -> Option<f64> {
        (self.committed > 0).then_some(count? as f64 / self.committed as f64)
    }

    fn switches(&self, usage: Option<Usage>, kind: fn(&Usage) -> u64) -> Option<f64> {
        self.per_commit(usage.as_ref().map(kind))
    }

    /// The result as a JSON object.
    pub fn json(&self, about: &About, consistent: bool) -> Json {
        let nulls =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Json::Null)).collect::<Json>();
        let waits = self.stats.waits;
        let is_real = about.regime.is_none();
        let real = |value: Json| if is_real { value } else { Json::Null };
        let sizes = self.stats.group_sizes.iter().enumerate().filter(|(_, count)| **count > 0);
        let sizes: Json = sizes.map(|(class, count)| (class_name(class), *count)).collect();
        let times = self.stats.write_times.iter().enumerate().filter(|(_, count)| **count > 0);
        let times: Json = times.map(|(class, count)| (write_time_name(class), *count)).collect();
        let instructions = json!({
            "user": self.per_commit(self.counts.user_instructions),
            "kernel": self.per_commit(self.counts.kernel_instructions),
        });
        json!({
            "workload": "commit",
            "engine": null,
            "clients": u64::from(about.clients),
            "seconds": self.time.as_secs_f64(),
            "seed": about.seed,
            "data": about.data.as_deref(),
            "machine": about.machine.as_ref().map_or(Json::Null, Machine::json),
            "offered_per_s": null,
            "committed": self.committed,
            "committed_per_s": self.per_s(),
            "aborted_user": null,
            "aborted_deadlock": null,
            "latency_us": Percentiles::json(self.latency),
            "log_bytes_per_txn": self.log_bytes_per_commit(),
            "group_size_mean": self.group_size(),
            "log_writes": self.stats.writes,
            "instructions_per_txn": instructions,
            "wakes_per_txn": self.switches(self.counts.switches, |usage| usage.voluntary),
            "syscalls_per_txn": null,
            "checkpoints": null,
            "locks_per_100_txn": nulls(&["row", "higher", "local"]),
            "time_us_per_txn": nulls(&["queue", "fetch_io", "lock_wait", "latch_wait", "run", "log_wait", "standby_wait"]),
            "allocations_per_txn": self.per_commit(self.counts.allocations),
            "procedures": null,
            "in_flight": u64::from(about.in_flight),
            "group_commit": about.group_commit.to_string().as_str(),
            "regime": about.regime.map(|regime| regime.name),
            "processors_busy": self.processors_busy,
            "latency_mean_us": self.latency_mean_us,
            "group_sizes": sizes,
            "group_size_max": self.group_size_max,
            "log_write_us": self.write_us(),
            "log_write_times_us": times,
            "log_write_path": about.write_path.map(way),
            "stall_us_per_txn": self.stall_us(),
            "stalls_per_txn": self.per_commit(Some(waits.stalls)),
            "wake_calls_per_txn": self.per_commit(Some(waits.wakes)),
            "threads_woken_per_txn": self.per_commit(Some(waits.woken)),
            "self_wakes_per_txn": self.per_commit(Some(waits.self_wakes)),
            "groups_by_committers": waits.groups_by_committers,
            "groups_by_stand_in": waits.groups_by_stand_in,
            "groups_by_log_server": waits.groups_by_server,
            "groups_overdue": waits.groups_overdue,
            "device_bytes_per_txn": real(self.per_commit(self.counts.device_bytes).into()),
            "cache_line_transfers_per_txn": null,
            "calibration": self.spells.as_ref().map_or(Json::Null, Spells::json),
            "slices": self.spells.as_ref().map_or(Json::Null, Spells::slices_json),
            "limits": self.limits.as_ref().map_or(Json::Null, |limits| limits.json(self.per_s(), self.latency)),
            "not_counted": self.not_counted(about),
            "consistent": consistent,
        })
    }

    /// Why a figure is null. Nothing is counted in virtual time; there are no locks, and no share of a peak is offered.
    fn not_counted(&self, about: &About) -> Json {
        const APPLY: [&str; 6] = [
            "instructions_per_txn",
            "allocations_per_txn",
            "syscalls_per_txn",
            "device_bytes_per_txn",
            "wakes_per_txn",
            "cache_line_transfers_per_txn",
        ];
        let uncounted = about.uncounted.as_deref();
        let mut reasons = reasons(&self.counts, uncounted, None);
        let apply = APPLY.map(|name| {
            let reason = reasons.get_mut(name).map_or(Json::Null, Json::take);
            (name, if about.regime.is_some() { uncounted.into() } else { reason })
        });
        apply.into_iter().collect()
    }

    /// The table for people.
    pub fn table(&self, about: &About, verdict: &Verdict) -> String {
        let clients = if about.clients == 1 { "1 client" } else { &format!("{} clients", about.clients) };
        let loop_name = match about.in_flight {
            1 => "each blocking until its commit is durable".to_owned(),
            n => format!("each keeping {n} commits on their way"),
        };
        let place = match (&about.machine, about.regime) {
            (_, Some(_)) => format!("in virtual time, on {}", about.disk),
            (Some(machine), None) => format!("{machine}; log on {}", about.disk),
            (None, None) => about.disk.clone(),
        };
        let window = if about.windows > 1 { " (the median window)" } else { "" };
        let mut table = Table::default();
        table.row("throughput", format!("{} commits/s", thousands(self.per_s())));
        let seconds = self.time.as_secs_f64();
        table.row("committed", format!("{} in {seconds:.3} s", thousands(self.committed as f64)));
        if let Some(Percentiles { p50_us, p99_us, p999_us, max_us }) = self.latency {
            let [p50, p99, p999, max] = [p50_us, p99_us, p999_us, max_us].map(time);
            let mean = time(self.latency_mean_us);
            table.row("latency", format!("mean {mean}, p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}"));
        }
        let most = self.group_size_max.map_or_else(String::new, |most| format!(", {most} at most"));
        table.row(
            "group commit",
            format!(
                "{} commits a group{most}, {} groups/s, {} to write one",
                figure(self.group_size()),
                thousands(self.stats.groups as f64 / seconds.max(1e-9)),
                self.write_us().map_or_else(|| "-".to_owned(), time)
            ),
        );
        table.row("group sizes", group_sizes(|class| self.stats.group_sizes[class], self.stats.groups));
        table.row("log write times", write_times(&self.stats.write_times, self.stats.groups));
        let waits = self.stats.waits;
        let [committers, stand_in, server, overdue] = [
            waits.groups_by_committers,
            waits.groups_by_stand_in,
            waits.groups_by_server,
            waits.groups_overdue,
        ]
        .map(|groups| thousands(groups as f64));
        table.row(
            "written by",
            format!(
                "committers {committers} groups, the stand-in {stand_in}, the log server {server}, overdue {overdue}"
            ),
        );
        let per = |count| figure(self.per_commit(Some(count)));
        let stall = self.stall_us().map_or_else(|| "-".to_owned(), time);
        table.row("stall", format!("{stall} a commit, in {} stalls", per(waits.stalls)));
        let mut wakes = format!(
            "{} wake calls, {} threads woken by them and {} self-wakes a commit",
            per(waits.wakes),
            per(waits.woken),
            per(waits.self_wakes)
        );
        if let Some(switched) = self.switches(self.counts.switches, |usage| usage.voluntary) {
            wakes += &format!("; {} sleeps of threads", figure(Some(switched)));
        }
        table.row("wake-ups", wakes);
        if let Some(busy) = self.processors_busy {
            table.row("processors", format!("{:.0}% busy (100% is one)", busy * 100.0));
        }
        if let Some(bytes) = self.log_bytes_per_commit() {
            let writes = thousands(self.stats.writes as f64);
            let way = about.write_path.map_or_else(String::new, |path| format!(" ({})", way(path)));
            table.row("log", format!("{} bytes a commit, in {writes} writes{way}", figure(Some(bytes))));
        }
        match &about.uncounted {
            Some(reason) => table.row("instructions", format!("not counted ({reason})")),
            None => table.row(
                "instructions",
                format!(
                    "{} user, {} kernel a commit",
                    figure(self.per_commit(self.counts.user_instructions)),
                    figure(self.per_commit(self.counts.kernel_instructions))
                ),
            ),
        }
        if let Some(spells) = &self.spells {
            let (slices, noisy) = spells.counts();
            table.row("spells", format!("{noisy} of {slices} slices noisy"));
        }
        if let Some(limits) = &self.limits {
            limits.rows(&mut table, self.per_s(), self.latency);
        }
        let consistent = if verdict.consistent { "yes" } else { "NO" };
        table.row("consistent", format!("{consistent}: {}", verdict.text));
        format!(
            "bare commit sequences, {clients}, {loop_name}; {} group commit{window}\n{place}\n\n{}",
            about.group_commit,
            table.print()
        )
    }
}
