//! [`Thread`], [`Task`] and [`Jobs`]: the threads of nodes, and what they take.

use std::collections::VecDeque;

use super::cores::{NodeId, ThreadId};

/// Which steps a task has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    Local,
    Remote,
    /// A message for no transaction: written, and read.
    Beat,
}

/// A transaction at one of its steps.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub path: Path,
    pub step: u8,
    pub client: ThreadId,
    pub own: NodeId,
    pub other: NodeId,
}

/// What a thread is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    /// Reads a connection.
    Reader,
    /// Takes jobs of its node.
    Worker,
    /// Sends messages for no transaction.
    Ticker,
}

pub struct Thread {
    pub role: Role,
    pub node: NodeId,
    pub is_asleep: bool,
    /// What is there for it alone.
    pub inbox: VecDeque<Task>,
    /// The step that it takes.
    pub current: Option<Task>,
    /// When it got its core.
    pub began_ns: u64,
    /// Of a client: when its transaction was due, while it has no answer.
    pub due_ns: Option<u64>,
}

/// The queue of jobs of a node, and its workers; see `rialto_cluster`'s workers, which it follows.
#[derive(Default)]
pub struct Jobs {
    pub queue: VecDeque<Task>,
    /// The one that fell asleep last is woken first.
    pub asleep: Vec<ThreadId>,
    /// Workers that were woken and have taken nothing yet.
    pub coming: u32,
}
