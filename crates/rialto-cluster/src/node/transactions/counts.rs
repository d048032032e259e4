//! [`TransactionCounts`]: what a node counts of its transactions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the node's start. They only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub over_one: AtomicU64,
    pub over_several: AtomicU64,
    pub calls_here: AtomicU64,
    pub calls_again: AtomicU64,
    pub messages: AtomicU64,
    pub riders: AtomicU64,
    pub announcements: AtomicU64,
    pub tasks: AtomicU64,
    pub forgettings: AtomicU64,
    pub waits: AtomicU64,
    pub reads_at_replicas: AtomicU64,
    pub reads_sent_on: AtomicU64,
}

/// What a node has counted of its transactions since its start: those of SQL sessions and of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Transactions of this node's sessions and calls that were committed in one partition. A call with a number that
    /// was sent again, and answered from its row, counts again.
    pub over_one: u64,
    /// The same in several partitions.
    pub over_several: u64,
    /// Calls that ran on the thread of their program, and were answered: their partition's primary is on this node, and
    /// they have no number.
    pub calls_here: u64,
    /// Tries of calls after the first one.
    pub calls_again: u64,
    /// Messages about transactions to other nodes.
    pub messages: u64,
    /// What went in messages that were sent anyway.
    pub riders: u64,
    /// Messages to other nodes of what runs and what is served here. They go whether there are transactions or not.
    pub announcements: u64,
    /// Times that a branch which rested, or other work that may block, was queued for the node's threads. The thread of a
    /// session or a call runs a branch of its own node itself: that is none.
    pub jobs: u64,
    /// Threads that were woken, or started, for these and for `forgettings`. A thread that is through takes the next one
    /// without sleeping.
    pub wake_ups: u64,
    /// Tasks of branches. A thread carries out those that come meanwhile, too.
    pub tasks: u64,
    /// Transactions of the system that have removed rows of ended ones: of many at a time.
    pub forgettings: u64,
    /// Times that the thread of a session or a call waited for a phase or for the end of its transaction: each is
    /// woken.
    pub waits: u64,
}

impl Counters {
    pub fn add(count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
    }

    pub fn now(&self, (jobs, wake_ups): (u64, u64)) -> TransactionCounts {
        let forgettings = self.forgettings.load(Relaxed);
        TransactionCounts {
            over_one: self.over_one.load(Relaxed),
            over_several: self.over_several.load(Relaxed),
            calls_here: self.calls_here.load(Relaxed),
            calls_again: self.calls_again.load(Relaxed),
            messages: self.messages.load(Relaxed),
            riders: self.riders.load(Relaxed),
            announcements: self.announcements.load(Relaxed),
            jobs: jobs.saturating_sub(forgettings),
            wake_ups,
            tasks: self.tasks.load(Relaxed),
            forgettings,
            waits: self.waits.load(Relaxed),
        }
    }
}
