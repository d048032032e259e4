//! The table for people.

use rialto::checkpoint::{Outlook, RecoveryForecast};
use rialto::engine::servers::TransactionServerStats;

use super::log_classes::group_sizes;
use super::time::TimeAccount;
use super::{Cuts, INVOLUNTARY, Measured, Setting, Sweeps, VOLUNTARY};
use crate::counters::Counts;
use crate::histogram::Percentiles;
use crate::text::{Table, bytes, figure, thousands, time};

impl Measured {
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
        let straddling = self.grown(|metrics| metrics.aborted_straddling);
        table.row(
            "aborted",
            format!(
                "{} by themselves; run again: {deadlocks} deadlock victims, {straddling} because they straddled a sweep",
                self.outcome.aborted_user
            ),
        );
        if let Some(specified) = setting.success_percent {
            self.success_rows(&mut table, setting.procedures, specified);
        }
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
        if self.outcome.overdue.count() > 0 {
            let overdue = thousands(self.outcome.overdue.count() as f64);
            table.row(
                "overdue",
                format!("{overdue} were due in the window and not done at its end: in the latencies, with their age"),
            );
        }
        if setting.servers.is_some() {
            self.server_rows(&mut table);
        }
        self.time_rows(&mut table, setting);
        self.log_rows(&mut table, seconds);
        table.row("checkpoints", self.sweeps_text());
        let latches = self.grown(|metrics| metrics.checkpoints.latches);
        if latches > 0 {
            let conflicts = self.grown(|metrics| metrics.checkpoints.latch_conflicts);
            let share = conflicts as f64 * 100.0 / latches as f64;
            let held = time(self.metrics.1.checkpoints.hold_max.as_secs_f64() * 1e6);
            table.row(
                "their latches",
                format!(
                    "{} asked for, {} not free ({share:.4}%), none held for longer than {held} since the database was opened",
                    thousands(latches as f64),
                    thousands(conflicts as f64)
                ),
            );
        }
        if let Some(Cuts { made, held_max, snapshot_bytes_max }) = self.cuts() {
            let (held, snapshots) = (time(held_max.as_secs_f64() * 1e6), bytes(snapshot_bytes_max));
            table.row(
                "cuts",
                format!("{made}; since the database was opened commits kept back {held} at most, snapshots of {snapshots} at most"),
            );
        }
        table.row("recovery", self.recovery_text());
        self.page_rows(&mut table);
        let [row, higher, local] = self.locks_per_100().map(figure);
        table.row("locks", format!("{row} row, {higher} higher, {local} executors' in 100 transactions"));
        self.count_rows(&mut table, setting);
        self.spell_rows(&mut table);
        if let Some(limits) = &self.limits {
            limits.rows(&mut table, self.committed_per_s(), all.percentiles());
        }
        let (used, limit) = (self.metrics.1.memory_used, self.metrics.1.memory_limit);
        table.row("memory", format!("{} of {} for tables and indexes", bytes(used), bytes(limit)));
        tail.into_iter().for_each(|(name, value)| table.row(name, value));
        table.print()
    }

    /// How many of each type have succeeded, beside the specification's share.
    fn success_rows(&self, table: &mut Table, procedures: &[&str], specified: &[f64]) {
        let mut name = "succeeded";
        for (procedure, specified) in procedures.iter().zip(specified) {
            if let (aborted, Some(percent)) = self.aborted_of(procedure) {
                let aborted = thousands(aborted as f64);
                let text = format!("{procedure}: {percent:.2}% (specified: {specified}%), {aborted} did not");
                table.row(name, text);
                name = "";
            }
        }
    }

    /// What is of servers: the response time with its interval, what their executors met, their processor time.
    fn server_rows(&self, table: &mut Table) {
        if let Some(response) = self.outcome.response_us() {
            table.row("response time", response.to_string());
        }
        let count =
            |counter: fn(&TransactionServerStats) -> u64| thousands(self.server_count(counter) as f64);
        table.row(
            "executors",
            format!(
                "blocked {} times, a standby began {} times, {} runs put on the restart queue",
                count(|stats| stats.blocked),
                count(|stats| stats.stood_in),
                count(|stats| stats.restarted)
            ),
        );
        if let Some([transaction, checkpoint, log, message]) = self.server_us() {
            let total = transaction + checkpoint + log + message;
            table.row(
                "processor time",
                format!(
                    "transaction server {} + checkpoint server {} + log server {} + message servers {} = {} a transaction",
                    time(transaction),
                    time(checkpoint),
                    time(log),
                    time(message),
                    time(total)
                ),
            );
        }
    }

    /// The time account; of each transaction type, too, if there are several.
    fn time_rows(&self, table: &mut Table, setting: &Setting) {
        let text = |account: TimeAccount, response_us: f64| {
            let queue = match (self.offered_per_s, setting.servers) {
                (None, None) => String::new(),
                _ => format!("queue {} + ", time(account.queue)),
            };
            let fetch = if self.has_pages() {
                format!("fetch I/O {} + ", time(account.fetch_io))
            } else {
                String::new()
            };
            format!(
                "{queue}{fetch}lock wait {} + latch wait {} + run {} + log wait {} = {}",
                time(account.lock_wait),
                time(account.latch_wait),
                time(account.run),
                time(account.log_wait),
                time(response_us)
            )
        };
        if let Some(account) = self.time_account(setting.procedures, setting.awaited()) {
            table.row("time account", text(account, self.outcome.response_times().mean_us()));
        }
        if setting.procedures.len() > 1 {
            for (position, name) in setting.procedures.iter().enumerate() {
                if let Some(account) = self.time_of(position, name, setting.awaited()) {
                    let response_us = self.outcome.latencies[position].mean_us();
                    table.row("", format!("{name}: {}", text(account, response_us)));
                }
            }
        }
    }

    /// Calm and noisy spells of the machine.
    fn spell_rows(&self, table: &mut Table) {
        let (slices, noisy) = self.spells.counts();
        let per_s = |noisy| self.spells.committed_per_s(noisy);
        let mut text = format!("{noisy} of {slices} slices noisy");
        if let (Some(calm), Some(noisy)) = (per_s(false), per_s(true)) {
            text +=
                &format!("; {} transactions/s in calm ones, {} in noisy", thousands(calm), thousands(noisy));
        }
        table.row("spells", text);
        if let (Some(wake_us), Some(load_ns)) = (
            self.spells.median(false, |sample| Some(sample.wake_us)),
            self.spells.median(false, |sample| Some(sample.load_ns)),
        ) {
            let write = self.spells.median(false, |sample| sample.write_us);
            let write = write.map_or_else(String::new, |us| format!(", 4 KiB log write {}", time(us)));
            table.row(
                "machine, calm",
                format!("wake round trip {}{write}, load {load_ns:.0} ns", time(wake_us)),
            );
        }
    }

    fn sweeps_text(&self) -> String {
        let Some(sweeps) = self.sweeps() else { return "none completed in the window".to_owned() };
        let Sweeps { completed, copied_bytes, cpu_ms_per_gb } = sweeps;
        format!("{completed} completed, {} copied, {cpu_ms_per_gb:.0} core-ms a GB", bytes(copied_bytes))
    }

    /// What a recovery would have taken at the end of the window.
    fn recovery_text(&self) -> String {
        let RecoveryForecast { estimate, until_checkpoint, within, outlook, .. } = &self.metrics.1.recovery;
        let target = within.map_or(String::new(), |within| {
            let kept = match outlook {
                Outlook::Kept => "kept",
                Outlook::Growth => "not kept: the log grows too fast for sweeps",
                Outlook::Load => "not kept: load and indexes alone take longer",
            };
            format!("; {} s at most asked for: {kept}", figure(Some(within.as_secs_f64())))
        });
        format!(
            "{estimate} if it had died at the end, {:.3} s before a checkpoint completes{target}",
            until_checkpoint.as_secs_f64()
        )
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
        let sizes = group_sizes(|class| self.grown(|metrics| metrics.log.group_sizes[class]), groups);
        if !sizes.is_empty() {
            table.row("group sizes", sizes);
        }
    }

    fn count_rows(&self, table: &mut Table, setting: &Setting) {
        let Counts { user_instructions, kernel_instructions, switches, device_bytes, allocations, .. } =
            self.counts;
        let per = |count| figure(self.counted_per_transaction(count));
        match &setting.uncounted {
            Some(reason) => table.row("instructions", format!("not counted ({reason})")),
            None => table.row(
                "instructions",
                format!("{} user, {} kernel a transaction", per(user_instructions), per(kernel_instructions)),
            ),
        }
        let switched = |usage, kind| figure(self.switches_per_transaction(usage, kind));
        table.row(
            "wake-ups",
            format!(
                "{} a transaction, {} of them of clients; {} preemptions",
                switched(switches, VOLUNTARY),
                switched(self.outcome.client_switches, VOLUNTARY),
                switched(switches, INVOLUNTARY)
            ),
        );
        if device_bytes.is_some_and(|bytes| bytes > 0) {
            let sweep = figure(self.per_transaction(self.sweep_bytes() as f64));
            table.row(
                "device",
                format!("{} bytes a transaction, {sweep} of them of checkpoints", per(device_bytes)),
            );
        }
        if allocations.is_some() {
            table.row("allocations", format!("{} a transaction", per(allocations)));
        }
    }
}
