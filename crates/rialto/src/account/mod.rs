//! The time account: how transactions spent their time, by procedure.
//!
//! Every transaction's response time is split into parts that add up to it: queue, fetch I/O, lock wait, latch wait,
//! run, log wait, standby wait. Clocks are read where a wait begins or ends. A transaction that never waits therefore
//! costs two reads, at its begin and its end, and one that only waits for the log costs three; *run* is the remainder.
//! Parts that nothing measures yet (an executor's queue, a standby database) are `None`, not zero.
//!
//! - [`waits`]: what a thread has waited for. It is counted by thread, because the code that waits does not know the
//!   transaction;
//! - [`wait_guard`]: what a thread does before it waits for another transaction, for the log or for a checkpoint;
//!   `latches`: checks that the thread holds no latch then;
//! - [`cells`]: counters, one set for each context and procedure, with one writer each; tickets share a few more;
//! - `disk_waits`: which part of the waits for locks is a wait for another transaction's disk I/O;
//! - [`histogram`]: the distribution of the times;
//! - [`processor`]: the processor time of the servers;
//! - [`procedure`]: the names under which accounts are kept, and the accounts as callers see them.
//!
//! What is counted where:
//! - A closure ([`Database::transact`](crate::Database::transact)) is one transaction from its first run to its reply.
//!   Runs that ended as a deadlock's victim are part of it: their lock waits as lock wait, the rest as run.
//! - A transaction behind a handle runs from `begin` to the reply of its commit; the caller's own time between calls
//!   counts as run. So do latch waits before the commit: they are counted by thread, and a handle can move to another
//!   thread.
//! - A ticket's transaction is counted when it takes its place. Its wait for the log is counted, from the place on,
//!   when a thread waits for the ticket (or its future). If the caller only polls the ticket, that wait is not counted.
//! - Transactions that abort are counted, but their time is not.

mod cells;
pub(crate) mod disk_waits;
mod histogram;
pub(crate) mod latches;
mod procedure;
pub(crate) mod processor;
pub(crate) mod wait_guard;
pub(crate) mod waits;

pub(crate) use cells::Accounts;
pub use histogram::TimeHistogram;
pub use procedure::{PROCEDURES_MAX, PageCounts, ProcedureAccount, ProcedureId, TimeAccount, UNNAMED};
pub use processor::ServerTimes;

use crate::io::Moment;

/// What a transaction has spent so far, while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger {
    /// When its first run began.
    pub began: Moment,
    /// What its thread had waited for before its first run.
    pub waits: waits::WaitSums,
    /// Lock waits of its runs, ended ones included.
    pub lock_wait_ns: u64,
}

impl Ledger {
    /// The transaction's account at its end, after a wait for the log that began at `placed`, if there was one.
    #[inline]
    pub fn spent(&self, placed: Option<Moment>, ended: Moment) -> Spent {
        let waits = waits::now().since(self.waits);
        let from = |earlier: Moment| ended.ns_since(earlier);
        Spent {
            response_ns: from(self.began),
            lock_wait_ns: self.lock_wait_ns,
            latch_wait_ns: waits.latch_ns,
            log_wait_ns: waits.log_ns + placed.map_or(0, from),
            fetch_io_ns: waits.page_ns,
        }
    }
}

/// One transaction's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub response_ns: u64,
    pub lock_wait_ns: u64,
    pub latch_wait_ns: u64,
    pub log_wait_ns: u64,
    pub fetch_io_ns: u64,
}

impl Spent {
    #[inline]
    pub fn has_waited(&self) -> bool {
        self.lock_wait_ns | self.latch_wait_ns | self.log_wait_ns | self.fetch_io_ns != 0
    }

    /// The remainder: the time that was not a wait.
    pub fn run_ns(&self) -> u64 {
        let waited = self.lock_wait_ns + self.latch_wait_ns + self.log_wait_ns + self.fetch_io_ns;
        // Waits lie in the response time, with one exception: under a virtual clock a wait for a latch takes real time.
        self.response_ns.saturating_sub(waited)
    }
}
