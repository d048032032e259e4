//! [`Simulated`]: what a simulated run has counted.

use rialto_measure::histogram::Latencies;

/// What happened in the window of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Simulated {
    /// Latencies of transactions of one node, as if the machine had all its time for the nodes.
    pub local: Latencies,
    /// The same of those over two nodes.
    pub remote: Latencies,
    /// Transactions that have begun, in the whole run.
    pub begun: u64,
    /// Those of them that were answered.
    pub answered: u64,
    /// Those that run at its end.
    pub unanswered: u64,
    /// In the window: starts of threads from the queues of their cores.
    pub queued: u64,
    /// Those on cores that were idle when the thread was woken.
    pub idle: u64,
    /// Those from the queue of another core.
    pub pulled: u64,
    /// Of all, those on a core that was cold for the thread.
    pub cold: u64,
    /// Messages between nodes in the window, those for no transaction among them.
    pub messages: u64,
    /// Processor time in the window, in microseconds.
    pub busy_us: f64,
    /// The window, in microseconds.
    pub window_us: f64,
    /// The cores of all machines.
    pub cores: usize,
    /// The share of its cores' time that a machine has for nodes.
    pub available: f64,
}

/// A count for each transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerTransaction {
    /// The share of one node.
    pub local: f64,
    /// The share over two nodes.
    pub remote: f64,
    /// Switches to threads from the core's queue.
    pub queued: f64,
    /// Switches to threads on an idle core, or from another one.
    pub idle: f64,
    /// Of all, those on a cold core.
    pub cold: f64,
}

impl Simulated {
    /// Transactions that were answered in the window.
    pub fn committed(&self) -> u64 {
        self.local.count() + self.remote.count()
    }

    /// The share of the cores' time that is used, of that which nodes can have.
    pub fn utilization(&self) -> f64 {
        self.busy_us / (self.window_us * self.cores as f64)
    }

    /// All takes so much longer, because others take the rest of the machine's time. Idle time is theirs first.
    fn stretch(&self) -> f64 {
        (self.utilization() / self.available).max(1.0)
    }

    /// Transactions a second.
    pub fn per_s(&self) -> f64 {
        self.committed() as f64 / (self.window_us * self.stretch()) * 1e6
    }

    /// Processor time of a transaction, in microseconds; 0 if there was none.
    pub fn cpu_us_per_txn(&self) -> f64 {
        self.busy_us / (self.committed() as f64).max(1.0)
    }

    /// Latencies of all transactions.
    fn all(&self) -> Latencies {
        let mut all = self.local.clone();
        all.merge(&self.remote);
        all
    }

    /// The mean response time, in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.all().mean_us() * self.stretch()
    }

    /// 99 of 100 transactions take no longer, in microseconds; 0 if there was none.
    pub fn p99_us(&self) -> f64 {
        self.all().percentiles().map_or(0.0, |all| all.p99_us) * self.stretch()
    }

    /// The mean response time of transactions over two nodes, in microseconds.
    pub fn remote_mean_us(&self) -> f64 {
        self.remote.mean_us() * self.stretch()
    }

    /// What a transaction costs is these counts times the costs.
    pub fn per_transaction(&self) -> PerTransaction {
        let all = (self.committed() as f64).max(1.0);
        PerTransaction {
            local: self.local.count() as f64 / all,
            remote: self.remote.count() as f64 / all,
            queued: self.queued as f64 / all,
            idle: (self.idle + self.pulled) as f64 / all,
            cold: self.cold as f64 / all,
        }
    }
}
