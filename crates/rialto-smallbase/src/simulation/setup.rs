//! [`Setup`]: what is simulated; [`Costs`]: what its parts cost.

use super::life::Life;
use super::service::Service;

/// Processor times, in microseconds. Those of switches are means: one switch finds more in the caches, and its core faster awake, than
/// another, so that each is drawn, as the sum of two exponential times.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// A transaction of one node, without switches.
    pub local: Service,
    /// What a client does between two transactions: it draws one, and notes the last one's time. It is part of neither's response time.
    pub between_us: f64,
    /// A transaction over two nodes, all its steps, without switches.
    pub remote_us: f64,
    /// A switch to a thread from the core's queue: the call that puts the thread before it to sleep, the wake-up, and what the thread
    /// finds no longer in the caches.
    pub switch_us: f64,
    /// In place of it: a switch on a core that had nothing to do, or that takes the thread from another core.
    pub idle_us: f64,
    /// In addition, if the core has run two other nodes since it ran the thread's.
    pub cold_us: f64,
}

/// Which cores nodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machines {
    /// All nodes share one machine.
    One {
        /// Its cores.
        cores: usize,
    },
    /// Each node has one.
    Each {
        /// Its cores.
        cores: usize,
    },
}

/// The network between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wire {
    /// A message is on its way for so long.
    pub delay_us: f64,
    /// Each node sends so many megabits a second; `None`: no bound.
    pub mbit: Option<f64>,
}

/// When transactions begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// A client begins one when the one before has its answer.
    Closed,
    /// So many a second are due at each node, at random (a Poisson process). They wait for a client that is free; latencies count
    /// from when they were due.
    PerNode(f64),
}

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Nodes.
    pub nodes: u32,
    /// Clients of each node.
    pub clients: u32,
    /// Transactions that use another node, in percent; none with one node.
    pub remote_pct: u32,
    /// When transactions begin.
    pub arrivals: Arrivals,
    /// Which cores nodes have.
    pub machines: Machines,
    /// The share of its cores' time that a machine has for nodes; the rest is taken by others.
    pub available: f64,
    /// The network.
    pub wire: Wire,
    /// Bytes of a message, headers included.
    pub message_bytes: f64,
    /// Messages a second that each node sends to each other one for no transaction.
    pub beats_per_s: f64,
    /// What parts cost.
    pub costs: Costs,
    /// The steps of a transaction of one node.
    pub local: Life,
    /// Those of one over two nodes.
    pub remote: Life,
    /// A thread that has run for so long lets others run.
    pub slice_us: f64,
    /// Simulated before the window, in seconds.
    pub warmup_s: f64,
    /// What is counted, in seconds.
    pub window_s: f64,
    /// The seed of the random choices.
    pub seed: u64,
}

impl Setup {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        let (Machines::One { cores } | Machines::Each { cores }) = self.machines;
        if self.nodes == 0 || self.clients == 0 || cores == 0 {
            return Err(format!(
                "a simulation of {} nodes with {} clients and {cores} cores: each must be at least 1",
                self.nodes, self.clients
            ));
        }
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        if !is_positive(self.costs.local.mean_us()) {
            return Err("a simulation needs a local transaction that costs more than nothing".to_owned());
        }
        if !is_positive(self.window_s) || !is_positive(self.available) || self.available > 1.0 {
            return Err(format!(
                "a simulation of {} s on {} of the machine: expected a time above 0, and a share above 0 and up to 1",
                self.window_s, self.available
            ));
        }
        Ok(())
    }
}
