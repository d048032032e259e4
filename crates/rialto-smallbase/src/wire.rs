//! What the parent and the nodes say to each other: JSON, a line each, over a Unix socket in the file system, which reaches
//! into all network namespaces.
//!
//! A connection begins with a [`Hello`], which says what it is for: orders, or a request to the control store.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rialto_measure::histogram::LatencyParts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::control::Request;
use crate::node::{Ended, LONG};
use crate::spec::{Data, Load, Shape};
use crate::workload::{Audit, Told};

/// The first line of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum Hello {
    /// A node, which takes orders.
    Node(u32),
    /// A request to the control store.
    Store(Request),
}

/// How a node is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeSpec {
    pub shape: Shape,
    pub data: Data,
    /// The node's name, as the control store has it.
    pub name: String,
    pub directory: PathBuf,
    /// Where it takes connections.
    pub listen: SocketAddr,
    pub nagle: bool,
    /// Bounds of each replica, in bytes.
    pub memory_bytes: u64,
}

/// What the parent orders. A node answers each order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open the node.
    Start(Box<NodeSpec>),
    /// Have each partition led at its home, and say whether all is so.
    Settle,
    /// Tell how the partitions that have their home here stand.
    Stands,
    /// Fill the tables of the partitions that have their home here.
    Load,
    /// Run the clients, from a time on that is the same for all nodes, in microseconds since 1970.
    Run { load: Load, from_us: u64 },
    /// Add up the tables of the partitions that have their home here.
    Audit,
    /// Close the node, and end.
    Close,
}

/// What a node answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// Whether its partitions are led here, with all replicas in sync; else what is missing.
    Settled(Result<(), String>),
    Stands(Vec<Stand>),
    Ran(Box<NodeRan>),
    Audited(Audit),
    /// It cannot go on, in words.
    Failed(String),
}

/// How a partition stands at its home. While it stays the same, the partition was led there without a change, by as many replicas
/// in sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    pub partition: u32,
    pub serves: bool,
    /// That of its configuration; 0 without one. Each change of the replicas in sync, too, has another configuration.
    pub epoch: u64,
    /// The nodes whose replicas are in sync.
    pub in_sync: Vec<u32>,
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = if self.serves { "" } else { ", not led here" };
        write!(f, "epoch {} with replicas in sync on the nodes {:?}{leads}", self.epoch, self.in_sync)
    }
}

/// What a node has counted in a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NodeRan {
    /// Latencies of transactions that ended in the window, local and remote ones.
    pub local: LatencyParts,
    pub remote: LatencyParts,
    /// In the window.
    pub counts: Counts,
    /// In the whole run.
    pub told: Told,
    /// In the window.
    pub ended: EndedWithoutAnswer,
    /// Clients of which the kernel does not tell where their time goes.
    pub clients_untold: u64,
    pub outliers: Vec<Outlier>,
}

/// Transactions that no latency tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedWithoutAnswer {
    /// Without an effect, although they were tried for long.
    pub aborted: u64,
    /// Without a commit protocol: those that ended half way.
    pub half: u64,
    /// Those of which no client knows.
    pub unknown: u64,
    /// Those of both that took more than 10 ms.
    pub long: u64,
    /// Of an open loop: those that were due, and have not ended before they were 10 ms late.
    pub late: u64,
}

impl EndedWithoutAnswer {
    /// Counts one, unless it was answered.
    pub fn count(&mut self, ended: &Ended, took: Duration) {
        match ended {
            Ended::Answered => return,
            Ended::Aborted => self.aborted += 1,
            Ended::Half => self.half += 1,
            Ended::Unknown => self.unknown += 1,
        }
        self.long += u64::from(took > LONG);
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &EndedWithoutAnswer) {
        self.aborted += other.aborted;
        self.half += other.half;
        self.unknown += other.unknown;
        self.long += other.long;
        self.late += other.late;
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.aborted + self.half + self.unknown + self.late
    }
}

/// What a node's process has done in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// The window's length, in microseconds.
    pub window_us: u64,
    /// Processor time, in user mode and in the kernel, in microseconds; 0 if the system does not tell.
    pub cpu_us: u64,
    /// Threads of the process went to sleep, and were woken, so often.
    pub voluntary_switches: u64,
    /// Threads of the process were taken off their cores so often.
    pub involuntary_switches: u64,
    /// Messages of transactions to other nodes.
    pub messages: u64,
    /// All messages to other nodes, those of replication among them.
    pub messages_sent: u64,
    /// Writes to connections, and bytes.
    pub writes: u64,
    pub bytes_sent: u64,
    /// Sleeping writers that were woken.
    pub writers_woken: u64,
    /// Threads that were woken for branches and other jobs.
    pub workers_woken: u64,
    /// Times that a client's thread waited for other threads, and was woken.
    pub waits: u64,
    /// Tries of calls after the first one.
    pub calls_again: u64,
    /// Transactions of the kernels' time account whose lock waits, latch waits, runs and log waits alone took 10 ms.
    pub long_lock_waits: u64,
    pub long_latch_waits: u64,
    pub long_runs: u64,
    pub long_log_waits: u64,
}

/// A transaction that took more than 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    pub is_remote: bool,
    pub took_us: u64,
    /// Of that, before it began: of an open loop, the client was still at earlier ones.
    pub late_us: u64,
    /// Of that, the client's thread was on a core.
    pub on_core_us: u64,
    /// Of that, it was ready to run, and other threads had the cores.
    pub ready_us: u64,
}

/// Writes a line.
pub fn send(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line; `None` at the end.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
