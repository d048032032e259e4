//! [`Ran`]: what all nodes have counted in a run; [`Point`]: the runs of one cluster.

use rialto_measure::histogram::Latencies;

use crate::node::LONG;
use crate::spec::{Data, Load, Nodes, Shape, Spec};
pub use crate::wire::EndedWithoutAnswer;
use crate::wire::{Counts, NodeRan, Outlier};
use crate::workload::{Audit, Told};

/// A run of all nodes.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Of each node.
    pub nodes: Vec<NodeCounts>,
    /// Latencies of transactions of one node.
    pub local: Latencies,
    /// Latencies of transactions that used another node.
    pub remote: Latencies,
    /// Those over 10 ms that clients have told of.
    pub outliers: Vec<Slow>,
    /// Transactions of the window that no latency tells of.
    pub ended: EndedWithoutAnswer,
    /// Clients of which the kernel does not tell where their time goes, though outliers were asked for.
    pub clients_untold: u64,
}

/// What a node has done in the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeCounts {
    /// Transactions that its clients have ended.
    pub committed: u64,
    /// Those of them that used another node.
    pub remote: u64,
    pub(crate) counts: Counts,
}

impl NodeCounts {
    /// Its transactions in a second.
    pub fn per_s(&self) -> f64 {
        ratio(self.committed as f64 * 1e6, self.counts.window_us as f64)
    }
}

/// Where the time of a transaction over 10 ms went, by its largest part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It was due, and its client was still at earlier ones, one of which was slow.
    BehindOwn,
    /// Its thread ran: it computed, or the hypervisor had taken the core.
    OnCore,
    /// Its thread was ready, and other threads had the cores.
    Ready,
    /// Its thread waited for a lock, for a standby or for the disk.
    WaitedHere,
    /// Its thread waited for the other node, or as above.
    WaitedForNode,
}

impl Cause {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Cause::BehindOwn => "behind earlier ones of the same client",
            Cause::OnCore => "running",
            Cause::Ready => "ready to run, without a core",
            Cause::WaitedHere => "waiting for a lock, a standby or the disk",
            Cause::WaitedForNode => "waiting for the other node, a lock or a standby",
        }
    }
}

/// A transaction that took more than 10 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// Where most of that went.
    pub cause: Cause,
}

impl Slow {
    fn of(outlier: Outlier) -> Slow {
        let Outlier { is_remote, took_us, late_us, on_core_us, ready_us } = outlier;
        let waited_us = took_us.saturating_sub(late_us + on_core_us + ready_us);
        let cause = if late_us >= on_core_us.max(ready_us).max(waited_us) && late_us > 0 {
            Cause::BehindOwn
        } else if on_core_us >= ready_us.max(waited_us) {
            Cause::OnCore
        } else if ready_us >= waited_us {
            Cause::Ready
        } else if is_remote {
            Cause::WaitedForNode
        } else {
            Cause::WaitedHere
        };
        Slow { took_us, cause }
    }
}

impl Ran {
    pub(crate) fn new(nodes: Vec<NodeRan>) -> Ran {
        let mut ran = Ran {
            nodes: Vec::new(),
            local: Latencies::default(),
            remote: Latencies::default(),
            outliers: Vec::new(),
            ended: EndedWithoutAnswer::default(),
            clients_untold: 0,
        };
        for node in nodes {
            let [local, remote] = [&node.local, &node.remote].map(Latencies::of_parts);
            ran.nodes.push(NodeCounts {
                committed: local.count() + remote.count(),
                remote: remote.count(),
                counts: node.counts,
            });
            ran.local.merge(&local);
            ran.remote.merge(&remote);
            ran.outliers.extend(node.outliers.into_iter().map(Slow::of));
            ran.ended.add(&node.ended);
            ran.clients_untold += node.clients_untold;
        }
        ran
    }

    /// Transactions that ended in the window.
    pub fn committed(&self) -> u64 {
        self.local.count() + self.remote.count()
    }

    /// Transactions in a second, over all nodes.
    pub fn per_s(&self) -> f64 {
        self.nodes.iter().map(NodeCounts::per_s).sum()
    }

    /// Latencies of all transactions.
    pub fn all(&self) -> Latencies {
        let mut all = self.local.clone();
        all.merge(&self.remote);
        all
    }

    /// The share of transactions over 10 ms, in percent; of all that ended in the window, and of those that were due in it and have
    /// not.
    pub fn over_10_ms_pct(&self) -> f64 {
        let (all, ended) = (self.all(), &self.ended);
        ratio((all.over(LONG) + ended.long + ended.late) as f64 * 100.0, (all.count() + ended.all()) as f64)
    }

    /// The share of transactions that used another node, in percent.
    pub fn remote_pct(&self) -> f64 {
        ratio(self.remote.count() as f64 * 100.0, self.committed() as f64)
    }

    /// Processor time of all nodes for a transaction, in microseconds; clients, standbys and background work included.
    pub fn cpu_us_per_txn(&self) -> f64 {
        self.per_txn(|counts| counts.cpu_us)
    }

    /// Messages of transactions for each one that used another node. The windows of the nodes begin one after the other, so that short
    /// ones do not see the same transactions.
    pub fn messages_per_remote(&self) -> f64 {
        ratio(self.sum(|counts| counts.messages) as f64, self.remote.count() as f64)
    }

    /// Messages to other nodes in a second, over all nodes: those of transactions, of replication, and for neither.
    pub fn messages_sent_per_s(&self) -> f64 {
        let window_us = self.nodes.iter().map(|node| node.counts.window_us).max().unwrap_or(0);
        ratio(self.sum(|counts| counts.messages_sent) as f64 * 1e6, window_us as f64)
    }

    /// Bytes of a message to another node, without the headers of the network; 0 if none was sent.
    pub fn bytes_of_a_message(&self) -> f64 {
        ratio(self.sum(|counts| counts.bytes_sent) as f64, self.sum(|counts| counts.messages_sent) as f64)
    }

    fn sum(&self, of: fn(&Counts) -> u64) -> u64 {
        self.nodes.iter().map(|node| of(&node.counts)).sum()
    }

    pub(crate) fn per_txn(&self, of: fn(&Counts) -> u64) -> f64 {
        ratio(self.sum(of) as f64, self.committed() as f64)
    }

    /// Transactions of the kernels' time account of which a part alone took 10 ms: waits for locks, for latches, runs, and waits
    /// for the log.
    pub fn long_parts(&self) -> [(&'static str, u64); 4] {
        [
            ("waits for locks", self.sum(|counts| counts.long_lock_waits)),
            ("waits for latches", self.sum(|counts| counts.long_latch_waits)),
            ("runs", self.sum(|counts| counts.long_runs)),
            ("waits for the log", self.sum(|counts| counts.long_log_waits)),
        ]
    }

    /// How many of the told outliers have each cause.
    pub fn causes(&self) -> Vec<(Cause, usize)> {
        let all = [Cause::BehindOwn, Cause::OnCore, Cause::Ready, Cause::WaitedHere, Cause::WaitedForNode];
        let count = |cause: Cause| self.outliers.iter().filter(|slow| slow.cause == cause).count();
        all.into_iter().map(|cause| (cause, count(cause))).filter(|(_, count)| *count > 0).collect()
    }
}

/// The runs of one cluster.
#[derive(Debug, Clone)]
pub struct Point {
    /// The cluster.
    pub shape: Shape,
    /// The tables.
    pub data: Data,
    /// The load.
    pub load: Load,
    /// Whether each node has a network namespace.
    pub has_networks: bool,
    /// Whether nodes have real-time priority.
    pub is_real_time: bool,
    /// Whether it is a database without a cluster.
    pub is_alone: bool,
    /// The rate of an open loop: transactions a second that were due.
    pub offered_per_s: Option<f64>,
    /// At least one.
    pub runs: Vec<Ran>,
    /// What clients were told in all runs.
    pub told: Told,
    /// What the tables hold at the end.
    pub audit: Audit,
    /// What the tables do not hold as clients were told; nothing if all is as it must be.
    pub problems: Vec<String>,
}

impl Point {
    pub(crate) fn new(spec: &Spec, load: Load, has_networks: bool, is_real_time: bool) -> Point {
        Point {
            shape: spec.shape,
            data: spec.data,
            load,
            has_networks,
            is_real_time,
            is_alone: spec.nodes == Nodes::Alone,
            offered_per_s: None,
            runs: Vec::new(),
            told: Told::default(),
            audit: Audit::default(),
            problems: Vec::new(),
        }
    }

    /// The run whose throughput is in the middle; of an even number, the lower one.
    ///
    /// # Panics
    /// If there is no run.
    pub fn median(&self) -> &Ran {
        let mut runs: Vec<&Ran> = self.runs.iter().collect();
        runs.sort_by(|one, other| one.per_s().total_cmp(&other.per_s()));
        runs[(runs.len() - 1) / 2]
    }

    /// The throughput of a node, in percent of that of the base's.
    pub fn efficiency_pct(&self, base: &Point) -> f64 {
        let of_node = |point: &Point| point.median().per_s() / f64::from(point.shape.nodes);
        ratio(of_node(self) * 100.0, of_node(base))
    }

    /// The processor time of a transaction of the base, in percent of that of a transaction here: what the efficiency would
    /// be if each node had a processor of its own.
    pub fn cpu_efficiency_pct(&self, base: &Point) -> f64 {
        ratio(base.median().cpu_us_per_txn() * 100.0, self.median().cpu_us_per_txn())
    }
}

/// 0 where there is nothing to divide by.
fn ratio(of: f64, by: f64) -> f64 {
    if by == 0.0 { 0.0 } else { of / by }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spec::{Level, Protocol, WorkloadName};

    fn node(local: u32, remote: u32, cpu_us: u64) -> NodeRan {
        let latencies = |count: u32, us: u64| {
            let mut all = Latencies::default();
            (0..count).for_each(|_| all.record(Duration::from_micros(us)));
            all.parts()
        };
        NodeRan {
            local: latencies(local, 100),
            remote: latencies(remote, 20_000),
            counts: Counts {
                window_us: 2_000_000,
                cpu_us,
                messages: u64::from(remote) * 2,
                ..Counts::default()
            },
            ..NodeRan::default()
        }
    }

    fn point(nodes: u32, runs: Vec<Ran>) -> Point {
        Point {
            shape: Shape { nodes, partitions: 1, replicas: 1 },
            data: Data { workload: WorkloadName::Tpcb, protocol: Protocol::Atomic, branches: 1, accounts: 1 },
            load: Load {
                clients: 1,
                remote_pct: 15,
                pace: None,
                level: Level::Memory,
                warmup: Duration::ZERO,
                window: Duration::from_secs(2),
                seed: 1,
                outliers: false,
            },
            has_networks: false,
            is_real_time: false,
            is_alone: false,
            offered_per_s: None,
            runs,
            told: Told::default(),
            audit: Audit::default(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn figures_are_of_all_nodes_and_of_the_run_in_the_middle() {
        let ran = Ran::new(vec![node(90, 10, 5_000), node(190, 10, 10_000)]);
        assert_eq!((ran.committed(), ran.per_s(), ran.cpu_us_per_txn()), (300, 150.0, 50.0));
        assert_eq!(ran.messages_per_remote(), 2.0);
        assert!((ran.over_10_ms_pct() - 100.0 * 20.0 / 300.0).abs() < 1e-9);
        let slower = Ran::new(vec![node(100, 0, 5_000), node(100, 0, 5_000)]);
        let faster = Ran::new(vec![node(400, 0, 5_000), node(400, 0, 5_000)]);
        let base = point(2, vec![faster, ran, slower]);
        assert_eq!(base.median().per_s(), 150.0);
        let four = point(4, vec![Ran::new((0..4).map(|_| node(60, 0, 6_000)).collect())]);
        assert_eq!((four.efficiency_pct(&base), four.cpu_efficiency_pct(&base)), (40.0, 50.0));
    }

    #[test]
    fn what_was_not_answered_or_not_begun_is_in_the_share_over_10_ms_and_told() {
        let ended = EndedWithoutAnswer { aborted: 30, half: 0, unknown: 10, long: 20, late: 60 };
        let ran = Ran::new(vec![NodeRan { ended, ..node(90, 10, 5_000) }]);
        assert_eq!(ran.over_10_ms_pct(), 100.0 * f64::from(10 + 20 + 60) / 200.0);
        let text = crate::report::Report(&[point(2, vec![ran])]).text();
        for told in ["30 transactions had no effect", "10 have an unknown outcome", "60 were due"] {
            assert!(text.contains(told), "{told} is missing in {text}");
        }
    }

    #[test]
    fn a_slow_transaction_has_the_cause_that_took_the_longest() {
        let cause = |is_remote, on_core_us, ready_us| {
            Slow::of(Outlier { is_remote, took_us: 12_000, late_us: 0, on_core_us, ready_us }).cause
        };
        let behind =
            Outlier { is_remote: true, took_us: 90_000, late_us: 80_000, on_core_us: 100, ready_us: 0 };
        assert_eq!(Slow::of(behind).cause, Cause::BehindOwn);
        assert_eq!(Slow::of(Outlier { late_us: 100, ..behind }).cause, Cause::WaitedForNode);
        assert_eq!(cause(false, 9_000, 1_000), Cause::OnCore);
        assert_eq!(cause(false, 1_000, 9_000), Cause::Ready);
        assert_eq!(cause(false, 1_000, 1_000), Cause::WaitedHere);
        assert_eq!(cause(true, 1_000, 1_000), Cause::WaitedForNode);
    }
}
