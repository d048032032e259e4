//! [`Spec`]: what is run, as a user chooses it.

use std::path::PathBuf;
use std::time::Duration;

use rialto_cluster::node::CallLevel;
use serde::{Deserialize, Serialize};

/// The workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkloadName {
    /// TPC-B over partitions.
    Tpcb,
    /// The requests of a service control point: mostly reads.
    Scp,
}

impl WorkloadName {
    /// The name, as in results.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadName::Tpcb => "smallbase",
            WorkloadName::Scp => "scp",
        }
    }
}

/// How a transaction over two nodes is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// As one transaction, committed in both partitions or in none.
    Atomic,
    /// As the paper ran it, as two transactions without a commit protocol; and a branch has one history row, which each
    /// transaction changes.
    AsPaper,
}

/// When a transaction is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Level 1.
    Memory,
    /// Level 2.
    Standby,
    /// Level 3.
    Disk,
}

impl Level {
    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Memory => "memory",
            Level::Standby => "standby",
            Level::Disk => "disk",
        }
    }

    pub(crate) fn of_call(self) -> CallLevel {
        match self {
            Level::Memory => CallLevel::Memory,
            Level::Standby => CallLevel::Standby,
            Level::Disk => CallLevel::Disk,
        }
    }
}

/// The tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The workload.
    pub workload: WorkloadName,
    /// How transactions over two nodes are run.
    pub protocol: Protocol,
    /// Branches (for `scp`: areas) of each partition.
    pub branches: u32,
    /// Accounts (for `scp`: numbers, cards and subscribers, so many of each) of each branch.
    pub accounts: u32,
}

/// The cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// Partitions whose primary is on each node.
    pub partitions: u32,
    /// Replicas of each partition, the primary among them.
    pub replicas: u32,
}

impl Shape {
    /// Partitions of the whole cluster.
    pub fn all_partitions(&self) -> u32 {
        self.nodes * self.partitions
    }

    /// The node that a partition's primary is to be on.
    pub fn home(&self, partition: u32) -> u32 {
        partition % self.nodes
    }
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Clients of each node, each a thread of its process with one transaction at a time.
    pub clients: u32,
    /// Transactions that use another node, in percent.
    pub remote_pct: u32,
    /// How often a transaction is due; `None`: as soon as the client's last one has ended.
    pub pace: Option<Pace>,
    /// When a transaction is answered.
    pub level: Level,
    /// The load runs for so long before it is measured.
    pub warmup: Duration,
    /// It is measured for so long.
    pub window: Duration,
    /// The seed of the random choices.
    pub seed: u64,
    /// Whether clients tell of each transaction over 10 ms where its time went. It costs each transaction a read of a file
    /// of the kernel.
    pub outliers: bool,
}

/// The rate of an open loop. A latency counts from the time at which the transaction was due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// Transactions a second of all nodes together.
    PerSecond(f64),
    /// Percent of what the same clients reach without a pace, which a run before measures.
    PercentOfPeak(f64),
}

/// The network between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Network {
    /// Whether the kernel may hold small messages back (Nagle's algorithm).
    pub nagle: bool,
    /// All nodes share a medium of so many megabits a second, as an Ethernet; `None`: no bound.
    pub mbit: Option<u32>,
    /// Each message takes so much longer.
    pub delay: Duration,
    /// Whether each node has a network namespace.
    pub namespaces: Namespaces,
}

impl Network {
    /// Whether messages go through proxies.
    pub fn is_slow(&self) -> bool {
        self.mbit.is_some() || !self.delay.is_zero()
    }
}

/// Whether each node has a network namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Namespaces {
    /// If this process may make them.
    #[default]
    IfAllowed,
    /// No: all use the loopback network.
    Never,
}

/// How the processes of nodes are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// As other processes.
    #[default]
    Normal,
    /// Real-time, round robin, as the paper's `rtprio`; as other processes, with a warning, if this process may not choose it.
    RealTime,
}

/// What runs as nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// Processes: this program with these words, to which the node's number and the parent's socket are added.
    Processes {
        /// The program.
        program: PathBuf,
        /// Its words.
        words: Vec<String>,
    },
    /// A database of this process without a cluster, with which a node is compared.
    Alone,
    /// Threads of this process, for tests: their processor time is not told apart.
    Threads,
}

/// The words by which the program `rialto` runs as a node.
pub const NODE_WORDS: [&str; 2] = ["bench", "smallbase-node"];

impl Nodes {
    /// Processes of the program that runs, which is `rialto`.
    ///
    /// # Errors
    /// Its path is not known.
    pub fn of_this_program() -> std::io::Result<Nodes> {
        let words = NODE_WORDS.map(str::to_owned).to_vec();
        Ok(Nodes::Processes { program: std::env::current_exe()?, words })
    }
}

/// A cluster to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The cluster.
    pub shape: Shape,
    /// The tables.
    pub data: Data,
    /// The network.
    pub network: Network,
    /// How the nodes are scheduled.
    pub priority: Priority,
    /// What runs as nodes.
    pub nodes: Nodes,
    /// The directory of the nodes' data. It is made, and removed at the end.
    pub directory: PathBuf,
    /// The bound on the memory of the tables of all nodes together, in bytes.
    pub memory_bytes: u64,
}

impl Spec {
    /// The tables of a node of the paper, 100,000 accounts, or as many as are asked for, in so many branches.
    pub fn data(
        workload: WorkloadName,
        protocol: Protocol,
        branches: Option<u32>,
        accounts: Option<u32>,
    ) -> Data {
        let branches = branches.unwrap_or(match protocol {
            Protocol::AsPaper => 1,
            Protocol::Atomic => BRANCHES,
        });
        Data { workload, protocol, branches, accounts: accounts.unwrap_or(ACCOUNTS / branches).max(1) }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// In words, naming the option of the command line.
    pub fn check(&self, load: &Load) -> Result<(), String> {
        let Shape { nodes, replicas, .. } = self.shape;
        if replicas > nodes {
            return Err(format!(
                "--replicas {replicas}: a cluster of {nodes} nodes has at most as many replicas of a partition"
            ));
        }
        if self.nodes == Nodes::Alone {
            if self.shape.all_partitions() != 1 {
                return Err("--alone: a database without a cluster is one of one node and one partition; give --nodes 1".to_owned());
            }
            if load.level == Level::Standby || load.pace.is_some() {
                return Err("--alone: a database without a cluster has no standbys, and no --rate: give --durability memory or disk".to_owned());
            }
        }
        if load.window.is_zero() {
            return Err("--seconds 0 measures nothing; give a time above zero".to_owned());
        }
        if self.data.protocol == Protocol::AsPaper && self.data.workload == WorkloadName::Scp {
            return Err(
                "--as-paper: the paper ran no transactions of a service control point; it applies to TPC-B"
                    .to_owned(),
            );
        }
        let share = self.memory_bytes / u64::from(self.shape.all_partitions() * replicas);
        if share < MEMORY_LEAST {
            return Err(format!(
                "--memory-bytes {}: each replica has {share} bytes of it, at least {MEMORY_LEAST} are needed",
                self.memory_bytes
            ));
        }
        Ok(())
    }
}

/// Accounts of a partition, and its branches where the paper's choice is not asked for: with one branch each transaction of the
/// partition waits for the one before it.
pub const ACCOUNTS: u32 = 100_000;
/// See [`ACCOUNTS`].
pub const BRANCHES: u32 = 10;

/// The least memory of a replica, in bytes.
const MEMORY_LEAST: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_named() {
        let shape = Shape { nodes: 2, partitions: 1, replicas: 2 };
        let data = Data { workload: WorkloadName::Scp, protocol: Protocol::Atomic, branches: 1, accounts: 1 };
        let load = Load {
            clients: 1,
            remote_pct: 15,
            pace: None,
            level: Level::Memory,
            warmup: Duration::ZERO,
            window: Duration::from_secs(1),
            seed: 1,
            outliers: false,
        };
        let spec = Spec {
            shape,
            data,
            network: Network::default(),
            priority: Priority::Normal,
            nodes: Nodes::Threads,
            directory: PathBuf::new(),
            memory_bytes: 1 << 30,
        };
        assert_eq!(spec.check(&load), Ok(()));
        let refused = |spec: Spec, load: Load, named: &str| {
            let why = spec.check(&load).unwrap_err();
            assert!(why.contains(named), "{why}");
        };
        refused(Spec { shape: Shape { replicas: 3, ..shape }, ..spec.clone() }, load, "--replicas 3");
        refused(spec.clone(), Load { window: Duration::ZERO, ..load }, "--seconds 0");
        refused(Spec { nodes: Nodes::Alone, ..spec.clone() }, load, "--nodes 1");
        let one = Spec {
            shape: Shape { nodes: 1, partitions: 1, replicas: 1 },
            nodes: Nodes::Alone,
            ..spec.clone()
        };
        assert_eq!(one.check(&load), Ok(()));
        refused(one, Load { level: Level::Standby, ..load }, "no standbys");
        refused(
            Spec { data: Data { protocol: Protocol::AsPaper, ..data }, ..spec.clone() },
            load,
            "--as-paper",
        );
        refused(Spec { memory_bytes: 1 << 20, ..spec }, load, "--memory-bytes 1048576");
    }
}
