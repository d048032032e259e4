//! Results for people, and as a JSON object.

use rialto_measure::histogram::{Latencies, Percentiles};
use rialto_measure::machine::Machine;
use rialto_measure::text::{aligned, row, thousands};
use serde_json::{Value as Json, json};

use crate::node::LONG;
use crate::outcome::{EndedWithoutAnswer, Point, Ran};
use crate::priority;
use crate::spec::{Level, Protocol, WorkloadName};

/// The points of a command: clusters of several sizes.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a>(pub &'a [Point]);

/// The point that others are compared with: that of two nodes, as in the paper; else the smallest one.
pub fn base(points: &[Point]) -> Option<&Point> {
    let of_two = points.iter().find(|point| point.shape.nodes == 2);
    of_two.or_else(|| points.iter().min_by_key(|point| point.shape.nodes))
}

impl Report<'_> {
    /// Whether the tables hold what clients were told, in all runs.
    pub fn is_consistent(&self) -> bool {
        self.0.iter().all(|point| point.problems.is_empty())
    }

    /// For people.
    ///
    /// # Panics
    /// If there is no point.
    pub fn text(&self) -> String {
        let last = self.0.last().expect("a point");
        let mut rows = vec![row([
            "nodes",
            "replicas",
            "remote",
            "transactions/s",
            "a node",
            "efficiency",
            "by processor time",
            "local mean us",
            "remote mean us",
            "p50 us",
            "p99 us",
            "over 10 ms",
            "processor us each",
        ])];
        for point in self.0 {
            let ran = point.median();
            let base = base(self.0).expect("a point");
            let percentiles = ran.all().percentiles();
            let at = |part: fn(&Percentiles) -> f64| {
                percentiles.as_ref().map_or_else(|| "none".to_owned(), |all| format!("{:.0}", part(all)))
            };
            rows.push(vec![
                point.shape.nodes.to_string(),
                point.shape.replicas.to_string(),
                format!("{:.1} %", ran.remote_pct()),
                thousands(ran.per_s()),
                thousands(ran.per_s() / f64::from(point.shape.nodes)),
                format!("{:.1} %", point.efficiency_pct(base)),
                format!("{:.1} %", point.cpu_efficiency_pct(base)),
                mean(&ran.local),
                mean(&ran.remote),
                at(|all| all.p50_us),
                at(|all| all.p99_us),
                format!("{:.3} %", ran.over_10_ms_pct()),
                format!("{:.1}", ran.cpu_us_per_txn()),
            ]);
        }
        let mut text = format!("{}\n{}\n\n{}", self.title(), self.setting(), aligned(&rows));
        let ran = last.median();
        text += &format!(
            "\n  of {} nodes, for a transaction: {:.2} messages ({:.2} for each remote one), {:.2} sent in all, {:.2} sleeps of a \
             thread, {:.2} workers woken, {:.2} waits of a client\n",
            last.shape.nodes,
            ran.per_txn(|counts| counts.messages),
            ran.messages_per_remote(),
            ran.per_txn(|counts| counts.messages_sent),
            ran.per_txn(|counts| counts.voluntary_switches),
            ran.per_txn(|counts| counts.workers_woken),
            ran.per_txn(|counts| counts.waits),
        );
        if last.load.outliers {
            text += &format!("  {}\n", explained(ran));
        }
        for point in self.0 {
            let told = without_answer(point.median());
            if !told.is_empty() {
                text += &format!("  of {} nodes: {told}\n", point.shape.nodes);
            }
        }
        for point in self.0.iter().filter(|point| is_on_disk_alone(point)) {
            text += &format!(
                "  with {} nodes each partition has one replica: level standby, and at each level what changes rows at two nodes, waits for the disk as level disk does\n",
                point.shape.nodes
            );
        }
        for point in self.0.iter().filter(|point| !point.problems.is_empty()) {
            text += &format!(
                "  NOT AS IT MUST BE with {} nodes: {}\n",
                point.shape.nodes,
                point.problems.join("; ")
            );
        }
        if self.is_consistent() {
            text += "  consistent: the tables of all nodes hold what the clients were told\n";
        }
        text
    }

    fn title(&self) -> String {
        let last = self.0.last().expect("a point");
        let what = match (last.data.workload, last.data.protocol) {
            (WorkloadName::Scp, _) => "Requests to a service control point",
            (WorkloadName::Tpcb, Protocol::Atomic) => "TPC-B over partitions",
            (WorkloadName::Tpcb, Protocol::AsPaper) if !self.0.iter().all(is_as_paper) => {
                "TPC-B without a commit protocol, one history row a branch"
            }
            (WorkloadName::Tpcb, Protocol::AsPaper) => {
                "TPC-B as the paper ran it: no commit protocol, one history row a branch"
            }
        };
        let machine = Machine::here();
        format!("{what}, on {} processors; {machine}", machine.cores)
    }

    /// The replicas of all points, each number once.
    fn replicas(&self) -> String {
        let mut all: Vec<u32> = self.0.iter().map(|point| point.shape.replicas).collect();
        all.sort_unstable();
        all.dedup();
        all.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ")
    }

    fn setting(&self) -> String {
        let last = self.0.last().expect("a point");
        format!(
            "{} clients a node{}, {} % remote where there is another node, level {}, {} partitions a node with {} branches of {} accounts, {} replicas; {}, {}; \
             median of {} runs of {} s",
            last.load.clients,
            last.offered_per_s.map_or_else(String::new, |rate| format!(", {rate:.0} transactions/s due")),
            last.load.remote_pct,
            last.load.level.name(),
            last.shape.partitions,
            last.data.branches,
            last.data.accounts,
            self.replicas(),
            match (last.is_alone, last.has_networks) {
                (true, _) => "without a cluster",
                (false, true) => "a network namespace for each node",
                (false, false) => "one loopback network",
            },
            match (last.is_real_time, priority::stops()) {
                (false, _) => "normal priority".to_owned(),
                (true, None) => "real-time priority".to_owned(),
                (true, Some(stops)) => format!("real-time priority ({stops})"),
            },
            last.runs.len(),
            last.load.window.as_secs_f64(),
        )
    }

    /// As a JSON object: the last point, with the keys that all benches have, and all points. What only a database in this process
    /// tells is null.
    ///
    /// # Panics
    /// If there is no point.
    pub fn json(&self) -> Json {
        let last = self.0.last().expect("a point");
        let (ran, base) = (last.median(), base(self.0).expect("a point"));
        let points: Vec<Json> = self.0.iter().map(|point| point_json(point, base)).collect();
        json!({
            "workload": last.data.workload.name(),
            "engine": null,
            "clients": last.load.clients * last.shape.nodes,
            "seconds": last.load.window.as_secs_f64(),
            "seed": last.load.seed,
            "data": null,
            "machine": Machine::here().json(),
            "offered_per_s": last.offered_per_s,
            "committed": ran.committed(),
            "committed_per_s": ran.per_s(),
            "aborted_user": 0,
            "aborted_deadlock": null,
            "latency_us": Percentiles::json(ran.all().percentiles()),
            "log_bytes_per_txn": null,
            "group_size_mean": null,
            "log_writes": null,
            "instructions_per_txn": { "user": null, "kernel": null },
            "wakes_per_txn": ran.per_txn(|counts| counts.voluntary_switches),
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
            "messages_per_txn": ran.per_txn(|counts| counts.messages),
            "allocations_per_txn": null,
            "procedures": {},
            "durability": last.load.level.name(),
            "as_paper": last.data.protocol == Protocol::AsPaper,
            "remote_pct": last.load.remote_pct,
            "replicas": last.shape.replicas,
            "partitions_per_node": last.shape.partitions,
            "branches": last.data.branches,
            "accounts": last.data.accounts,
            "namespaces": last.has_networks,
            "real_time": last.is_real_time,
            "alone": last.is_alone,
            "points": points,
            "consistent": self.is_consistent(),
        })
    }
}

fn mean(latencies: &Latencies) -> String {
    if latencies.count() == 0 { "none".to_owned() } else { format!("{:.0}", latencies.mean_us()) }
}

/// Whether all but the log and the locks is as the paper had it.
fn is_as_paper(point: &Point) -> bool {
    let shape = point.shape;
    (shape.replicas, shape.partitions, point.data.branches) == (1, 1, 1) && point.load.level == Level::Memory
}

/// Whether level 2 has no other memory to be in than the primary's. Transactions over several nodes are at that level at least.
fn is_on_disk_alone(point: &Point) -> bool {
    let is_over_nodes = point.data.protocol == Protocol::Atomic && point.shape.nodes > 1;
    (point.load.level == Level::Standby || is_over_nodes) && point.shape.replicas == 1
}

/// The transactions that no latency tells of, in words; empty if there are none.
pub fn without_answer(ran: &Ran) -> String {
    let EndedWithoutAnswer { aborted, half, unknown, late, .. } = ran.ended;
    let told = [
        (aborted, "transactions had no effect"),
        (half, "ended half way"),
        (unknown, "have an unknown outcome"),
        (late, "were due and have not ended in the window, and 10 ms after they were due"),
    ];
    let told = told.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// Where the time of the transactions over 10 ms went, in a sentence.
pub fn explained(ran: &Ran) -> String {
    if ran.outliers.is_empty() && ran.clients_untold > 0 {
        return "the kernel does not tell where the time of a transaction goes: /proc/thread-self/schedstat cannot be read"
            .to_owned();
    }
    if ran.outliers.is_empty() {
        return "clients told of no transaction over 10 ms".to_owned();
    }
    let causes = ran.causes().into_iter().map(|(cause, count)| format!("{count} {}", cause.words()));
    let parts = ran.long_parts().into_iter().filter(|(_, count)| *count > 0);
    let parts: Vec<String> = parts.map(|(what, count)| format!("{count} {what}")).collect();
    format!(
        "of {} transactions over 10 ms that clients told of, by what took most of their time: {}; the kernels' time account has of 10 ms and more: {}",
        ran.outliers.len(),
        causes.collect::<Vec<_>>().join(", "),
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") },
    )
}

fn latencies_json(all: &Latencies) -> Json {
    let mut json = Percentiles::json(all.percentiles());
    json["min"] = all.min_us().into();
    json["mean"] = (all.count() > 0).then(|| all.mean_us()).into();
    json["count"] = all.count().into();
    json["over_10_ms"] = all.over(LONG).into();
    json
}

fn point_json(point: &Point, base: &Point) -> Json {
    let ran = point.median();
    let cpu = |of: &crate::outcome::NodeCounts| {
        let each = if of.committed == 0 { None } else { Some(of.counts.cpu_us as f64 / of.committed as f64) };
        json!({ "committed_per_s": of.per_s(), "remote": of.remote, "cpu_us": of.counts.cpu_us, "cpu_us_per_txn": each })
    };
    let causes = ran.causes().into_iter().map(|(cause, count)| (cause.words().to_owned(), Json::from(count)));
    let parts = ran.long_parts().map(|(what, count)| (what.to_owned(), Json::from(count)));
    json!({
        "nodes": point.shape.nodes,
        "replicas": point.shape.replicas,
        "namespaces": point.has_networks,
        "real_time": point.is_real_time,
        "remote_pct": ran.remote_pct(),
        "runs_per_s": point.runs.iter().map(Ran::per_s).collect::<Vec<_>>(),
        "offered_per_s": point.offered_per_s,
        "committed_per_s": ran.per_s(),
        "efficiency_pct": point.efficiency_pct(base),
        "cpu_efficiency_pct": point.cpu_efficiency_pct(base),
        "cpu_us_per_txn": ran.cpu_us_per_txn(),
        "local_us": latencies_json(&ran.local),
        "remote_us": latencies_json(&ran.remote),
        "over_10_ms_pct": ran.over_10_ms_pct(),
        "messages_per_txn": ran.per_txn(|counts| counts.messages),
        "messages_per_remote": ran.messages_per_remote(),
        "messages_sent_per_txn": ran.per_txn(|counts| counts.messages_sent),
        "writes_per_txn": ran.per_txn(|counts| counts.writes),
        "bytes_sent_per_txn": ran.per_txn(|counts| counts.bytes_sent),
        "writers_woken_per_txn": ran.per_txn(|counts| counts.writers_woken),
        "wakes_per_txn": ran.per_txn(|counts| counts.voluntary_switches),
        "preemptions_per_txn": ran.per_txn(|counts| counts.involuntary_switches),
        "workers_woken_per_txn": ran.per_txn(|counts| counts.workers_woken),
        "waits_per_txn": ran.per_txn(|counts| counts.waits),
        "calls_again_per_txn": ran.per_txn(|counts| counts.calls_again),
        "aborted": ran.ended.aborted,
        "half": ran.ended.half,
        "unknown": ran.ended.unknown,
        "late": ran.ended.late,
        "outliers": serde_json::Map::from_iter(causes),
        "parts_over_10_ms": serde_json::Map::from_iter(parts),
        "of_nodes": ran.nodes.iter().map(cpu).collect::<Vec<_>>(),
        "problems": point.problems,
    })
}
