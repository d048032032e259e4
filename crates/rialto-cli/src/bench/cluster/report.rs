//! [`Report`]: the result, for people and as a JSON object.

use rialto_measure::histogram::Percentiles;
use rialto_measure::machine::Machine;
use rialto_measure::text::{Table, thousands};
use serde_json::{Value as Json, json};

use super::args::ClusterBenchArgs;
use super::attempts::{Attempts, Outcome, Which};
use super::bank::Bank;
use super::clients::Load;
use super::traffic::Traffic;
use super::verify::Verdict;

/// How many lost transactions are named.
const NAMED_MAX: usize = 100;
/// The SQLSTATEs of transactions that have met others.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];

/// A run.
pub struct Report<'a> {
    pub args: &'a ClusterBenchArgs,
    pub nodes: Vec<String>,
    pub bank: Bank,
    pub load: Load,
    pub traffic: Traffic,
    pub verdict: Verdict,
}

impl Report<'_> {
    fn unknown(&self) -> u64 {
        self.load.attempts.iter().map(|attempts: &Attempts| attempts.count(Outcome::Unknown)).sum()
    }

    fn committed_per_s(&self) -> f64 {
        self.load.committed as f64 / self.args.seconds.as_secs_f64()
    }

    fn conflicts(&self) -> u64 {
        CONFLICTS.iter().filter_map(|code| self.load.aborts.get(*code)).sum()
    }

    fn longest_pause_ms(&self) -> f64 {
        self.load.longest_pause.as_secs_f64() * 1e3
    }

    /// For people.
    pub fn text(&self) -> String {
        let Report { args, nodes, bank, load, traffic, verdict } = self;
        let or_not_told = |figure: Option<f64>, unit: &str| {
            figure.map_or_else(|| "not told".to_owned(), |figure| format!("{figure:.1}{unit}"))
        };
        let mut table = Table::default();
        table.row("committed", format!("{} ({}/s)", load.committed, thousands(self.committed_per_s())));
        if let Some(found) = load.latencies.percentiles() {
            let [half, most, max] = [found.p50_us, found.p99_us, found.max_us].map(|us| us / 1e3);
            table.row("latency", format!("p50 {half:.1} ms, p99 {most:.1} ms, max {max:.1} ms"));
        }
        let aborts: Vec<String> =
            load.aborts.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        table.row("aborts", if aborts.is_empty() { "none".to_owned() } else { aborts.join(", ") });
        table.row("longest pause", format!("{:.0} ms without a commit", self.longest_pause_ms()));
        table.row("several partitions", or_not_told(traffic.remote_pct(), " %"));
        table.row("messages each", or_not_told(traffic.messages_per_txn(load.committed), ""));
        table.row("unknown outcomes", self.unknown().to_string());
        let mut lost = verdict.lost.len().to_string();
        if let Some(Which { client, number }) = verdict.lost.first() {
            lost += &format!(", the first: client {client}, number {number}");
        }
        table.row("lost commits", lost);
        let consistent = if verdict.is_consistent() { "yes" } else { "NO" };
        table.row("consistent", format!("{consistent}: {}", verdict.text()));
        format!(
            "Transfers between {} accounts on {} nodes\n{} clients, {} s; durability {}\n\n{}",
            bank.accounts,
            nodes.len(),
            args.clients,
            args.seconds.as_secs_f64(),
            args.durability.name(),
            table.print()
        )
    }

    /// As a JSON object. What only a database in this process tells is null.
    pub fn json(&self) -> Json {
        let Report { args, nodes, bank, load, traffic, verdict } = self;
        let lost = verdict.lost.iter().take(NAMED_MAX);
        let lost = lost.map(|Which { client, number }| json!({ "client": client, "number": number }));
        json!({
            "workload": "cluster",
            "engine": null,
            "clients": args.clients,
            "seconds": args.seconds.as_secs_f64(),
            "seed": args.seed,
            "data": null,
            "machine": Machine::here().json(),
            "offered_per_s": null,
            "committed": load.committed,
            "committed_per_s": self.committed_per_s(),
            "aborted_user": 0,
            "aborted_deadlock": self.conflicts(),
            "latency_us": Percentiles::json(load.latencies.percentiles()),
            "log_bytes_per_txn": null,
            "group_size_mean": null,
            "log_writes": null,
            "instructions_per_txn": { "user": null, "kernel": null },
            "wakes_per_txn": null,
            "syscalls_per_txn": null,
            "checkpoints": null,
            "locks_per_100_txn": { "row": null, "higher": null, "local": null },
            "time_us_per_txn": {
                "queue": null, "fetch_io": null, "lock_wait": null, "latch_wait": null, "run": null, "log_wait": null,
                "standby_wait": null,
            },
            "hit_ratio": null,
            "reads_per_miss": null,
            "misprefetches": null,
            "conversions": null,
            "lock_held_io_waits": null,
            "messages_per_txn": traffic.messages_per_txn(load.committed),
            "allocations_per_txn": null,
            "procedures": {},
            "nodes": nodes,
            "durability": args.durability.name(),
            "accounts": bank.accounts,
            "aborts": load.aborts,
            "remote_pct": traffic.remote_pct(),
            "longest_pause_ms": self.longest_pause_ms(),
            "unknown_outcomes": self.unknown(),
            "lost_commits": verdict.lost.len(),
            "lost": lost.collect::<Vec<_>>(),
            "consistent": verdict.is_consistent(),
        })
    }
}
