//! The result as a JSON object, whose keys `docs/bench.md` lists.

use std::time::Duration;

use rialto::TwoStageAccount;
use rialto::checkpoint::{Outlook, RecoveryForecast};
use serde_json::{Value as Json, json};

use super::not_counted::{PERCENTS_OF_PEAK, reasons};
use super::time::TimeAccount;
use super::{INVOLUNTARY, Measured, ServersSetting, Setting, VOLUNTARY};
use crate::histogram::Percentiles;

impl Measured {
    /// The result as a JSON object.
    pub fn json(&self, setting: &Setting, consistent: bool) -> Json {
        let all = self.outcome.all_latencies();
        let account = self.time_account(setting.procedures, setting.awaited());
        let has_queue = self.offered_per_s.is_some() || setting.servers.is_some();
        let [row, higher, local] = self.locks_per_100();
        let pages = self.pages();
        json!({
            "workload": setting.workload,
            "engine": setting.engine,
            "clients": u64::from(setting.clients),
            "seconds": self.outcome.window.as_secs_f64(),
            "seed": setting.seed,
            "data": setting.data.as_deref(),
            "machine": setting.machine.json(),
            "offered_per_s": self.offered_per_s,
            "committed": self.outcome.committed(),
            "committed_per_s": self.committed_per_s(),
            "aborted_user": self.outcome.aborted_user,
            "aborted_deadlock": self.grown(|metrics| metrics.aborted_deadlock),
            "latency_us": Percentiles::json(all.percentiles()),
            "log_bytes_per_txn": self.per_transaction(self.grown(|metrics| metrics.log.bytes) as f64),
            "group_size_mean": self.group_size_mean(),
            "log_writes": self.grown(|metrics| metrics.log.writes),
            "instructions_per_txn": {
                "user": self.counted_per_transaction(self.counts.user_instructions),
                "kernel": self.counted_per_transaction(self.counts.kernel_instructions),
            },
            "wakes_per_txn": self.switches_per_transaction(self.counts.switches, VOLUNTARY),
            "syscalls_per_txn": null,
            "checkpoints": self.grown(|metrics| metrics.checkpoints.completed),
            "locks_per_100_txn": { "row": row, "higher": higher, "local": local },
            "time_us_per_txn": TimeAccount::json(account.as_ref(), has_queue, self.has_pages()),
            "hit_ratio": pages.map(|pages| pages.hit_ratio),
            "reads_per_miss": pages.and_then(|pages| pages.reads_per_miss),
            "misprefetches": pages.and_then(|pages| pages.staged).map(|staged| staged.misprefetches),
            "conversions": pages.and_then(|pages| pages.staged).map(|staged| staged.conversions),
            "lock_held_io_waits": pages.and_then(|pages| pages.staged).map(|staged| staged.lock_held_io_waits),
            "lock_wait_for_disk_share": self.lock_wait_for_disk_share(),
            "page_reads": pages.map(|pages| pages.reads),
            "page_writes": pages.map(|pages| pages.writes),
            "page_file_bytes": pages.map(|pages| pages.file_bytes),
            "two_stage": self.two_stage_json(),
            "allocations_per_txn": self.counted_per_transaction(self.counts.allocations),
            "procedures": self.procedures_json(setting),
            "context_switches_per_txn": self.switches_json(),
            "device_bytes_per_txn": self.counted_per_transaction(self.counts.device_bytes),
            "sweep_bytes_per_txn": self.per_transaction(self.sweep_bytes() as f64),
            "sweep_copied_bytes": self.sweeps().map(|sweeps| sweeps.copied_bytes),
            "sweep_cpu_ms_per_gb": self.sweeps().map(|sweeps| sweeps.cpu_ms_per_gb),
            "aborted_straddling": self.grown(|metrics| metrics.aborted_straddling),
            "sweep_latches": self.grown(|metrics| metrics.checkpoints.latches),
            "sweep_latch_conflicts": self.grown(|metrics| metrics.checkpoints.latch_conflicts),
            "sweep_hold_us_max": self.sweep_hold_us_max(),
            "latch_conflicts": self.grown(|metrics| metrics.latch_conflicts),
            "cuts": self.cuts().map(|cuts| cuts.made),
            "cut_held_us_max": self.cuts().map(|cuts| cuts.held_max.as_secs_f64() * 1e6),
            "snapshot_bytes_max": self.cuts().map(|cuts| cuts.snapshot_bytes_max),
            "recovery": self.recovery_json(),
            "server_us_per_txn": self.server_us_json(setting),
            "servers": self.servers_json(setting),
            "response_us": self.outcome.response_us().map_or(Json::Null, |found| found.json()),
            "overdue": self.offered_per_s.map(|_| self.outcome.overdue.count()),
            "callgrind_instructions_per_txn": null,
            "locks_by_form_per_100_txn": { "thin": null, "head": null },
            "cache_line_transfers_per_txn": null,
            "latency_us_at_percent_of_peak": Self::at_percents_of_peak(setting, all.percentiles()),
            "calibration": self.spells.json(),
            "slices": self.spells.slices_json(),
            "limits": self.limits_json(),
            "not_counted": reasons(&self.counts, setting.uncounted.as_deref(), setting.percent_of_peak),
            "consistent": consistent,
        })
    }

    /// How executions of each procedure went through their stages; null where there are no stages.
    fn two_stage_json(&self) -> Json {
        let accounts = self.two_stage();
        if accounts.is_empty() {
            return Json::Null;
        }
        let one = |account: TwoStageAccount| {
            let figures = json!({
                "strategy": account.strategy,
                "executions": account.executions,
                "conversions": account.conversions,
                "fallbacks": account.fallbacks,
                "accesses": account.accesses,
                "misprefetches": account.misprefetches,
                "misprefetched": account.misprefetched,
                "lock_held_io_waits": account.lock_held_io_waits,
                "reads": account.reads,
                "kept_pages": account.kept_pages,
            });
            (account.name, figures)
        };
        accounts.into_iter().map(one).collect()
    }

    /// Processor time of the servers, in microseconds a transaction; of those that there are.
    fn server_us_json(&self, setting: &Setting) -> Json {
        let times = self.server_us();
        let of = |position: usize, is_there: bool| {
            Json::from(times.filter(|_| is_there).map(|times| times[position]))
        };
        let is_served = setting.servers.is_some();
        json!({
            "transaction": of(0, is_served),
            "checkpoint": of(1, true),
            "log": of(2, true),
            "message": of(3, is_served),
        })
    }

    /// The request queue, and what its executors met.
    fn servers_json(&self, setting: &Setting) -> Json {
        let Some(ServersSetting { message_servers, queue, standbys }) = setting.servers else {
            return Json::Null;
        };
        json!({
            "message_servers": u64::from(message_servers),
            "queue": queue as u64,
            "standbys": standbys as u64,
            "found_full": self.server_count(|stats| stats.found_full),
            "blocked": self.server_count(|stats| stats.blocked),
            "stood_in": self.server_count(|stats| stats.stood_in),
            "restarted": self.server_count(|stats| stats.restarted),
        })
    }

    fn procedures_json(&self, setting: &Setting) -> Json {
        let seconds = self.outcome.window.as_secs_f64().max(1e-9);
        let is_open = self.offered_per_s.is_some() || setting.servers.is_some();
        let one = |(position, name): (usize, &&'static str)| {
            let latencies = &self.outcome.latencies[position];
            let account = self.time_of(position, name, setting.awaited());
            let (aborted_user, success_percent) = self.aborted_of(name);
            let figures = json!({
                "committed": latencies.count(),
                "committed_per_s": (latencies.count() as f64 / seconds),
                "aborted_user": aborted_user,
                "success_percent": success_percent,
                "success_percent_specified": setting.success_percent.map(|specified| specified[position]),
                "latency_us": Percentiles::json(latencies.percentiles()),
                "time_us_per_txn": TimeAccount::json(account.as_ref(), is_open, self.has_pages()),
                "waits_us": self.waits_json(name),
            });
            ((*name).to_owned(), figures)
        };
        setting.procedures.iter().enumerate().map(one).collect()
    }

    /// The context switches of all threads, and of the clients among them.
    /// What a recovery would have taken at the end of the window.
    fn recovery_json(&self) -> Json {
        let RecoveryForecast { estimate, until_checkpoint, within, outlook, .. } = &self.metrics.1.recovery;
        let seconds = |time: Duration| Json::from(time.as_secs_f64());
        json!({
            "seconds": seconds(estimate.total()),
            "load": seconds(estimate.load),
            "indexes": seconds(estimate.primary + estimate.secondary),
            "redo": seconds(estimate.redo),
            "until_checkpoint": seconds(*until_checkpoint),
            "within": within.map_or(Json::Null, seconds),
            "kept": within.map_or(Json::Null, |_| Json::Bool(*outlook == Outlook::Kept)),
        })
    }

    fn switches_json(&self) -> Json {
        let (all, clients) = (self.counts.switches, self.outcome.client_switches);
        let per = |usage, kind| Json::from(self.switches_per_transaction(usage, kind));
        json!({
            "voluntary": per(all, VOLUNTARY),
            "involuntary": per(all, INVOLUNTARY),
            "clients_voluntary": per(clients, VOLUNTARY),
            "clients_involuntary": per(clients, INVOLUNTARY),
        })
    }

    fn limits_json(&self) -> Json {
        let latency = self.outcome.all_latencies().percentiles();
        match &self.limits {
            Some(limits) => limits.json(self.committed_per_s(), latency),
            None => Json::Null,
        }
    }

    /// The latencies, if this run's load is one of the shares of the peak at which they are to be looked at.
    fn at_percents_of_peak(setting: &Setting, latency: Option<Percentiles>) -> Json {
        let at = |percent| {
            if setting.percent_of_peak == Some(percent) { Percentiles::json(latency) } else { Json::Null }
        };
        PERCENTS_OF_PEAK.map(|(percent, name)| (name.to_owned(), at(percent))).into_iter().collect()
    }
}
