//! [`StatementsHere`]: the statements that run in a partition of this node without a branch.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rialto_sql::partitions::BranchCanceller;

/// The statements that run in a partition of this node on the threads of their sessions, without a branch.
///
/// Invariant: when the partition is not served any more, each of them is cancelled; one that begins later is cancelled at once.
#[derive(Default)]
pub struct StatementsHere {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<u64, BranchCanceller>,
    last: u64,
    is_over: bool,
}

/// A statement that runs, until this is dropped.
pub struct StatementHere<'s> {
    of: &'s StatementsHere,
    number: u64,
}

impl StatementsHere {
    /// A statement begins, which this ends.
    pub fn begin(&self, canceller: BranchCanceller) -> StatementHere<'_> {
        let mut state = self.state.lock();
        if state.is_over {
            canceller.cancel();
        }
        state.last += 1;
        let number = state.last;
        state.running.insert(number, canceller);
        StatementHere { of: self, number }
    }

    /// The partition is not served any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.running.values().for_each(BranchCanceller::cancel);
    }

    /// Whether the partition is not served any more.
    pub fn are_over(&self) -> bool {
        self.state.lock().is_over
    }
}

impl Drop for StatementHere<'_> {
    fn drop(&mut self) {
        self.of.state.lock().running.remove(&self.number);
    }
}
