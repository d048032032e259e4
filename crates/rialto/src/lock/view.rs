//! The view of who waits for whom.

use std::time::{Duration, Instant};

use super::manager::LockManager;
use super::mode::LockMode;
use super::name::LockTarget;
use super::slot::WaitsFor;

/// A lock table that is out is waited for so long, a few times.
const TABLE_WITHIN: Duration = Duration::from_millis(1);

/// One transaction's wait, as it was at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits: an [`Owner::id`](super::Owner::id).
    pub waiter: u16,
    /// Who holds the lock in a mode that keeps it waiting.
    pub holders: Vec<u16>,
    /// Who asked before, in a mode that keeps it waiting.
    pub ahead: Vec<u16>,
    /// What for.
    pub target: LockTarget,
    /// The mode that it will have; for an interval, exclusive.
    pub mode: LockMode,
    /// For how long so far.
    pub waited: Duration,
}

impl LockManager {
    /// Everybody who waits now, the longest wait first. Each wait is a true one, but they are not all read at the same
    /// instant; those at an executor whose lock table stays out are left out.
    pub fn waits(&self) -> Vec<LockWait> {
        let mut waits: Vec<LockWait> =
            (0..self.lent_ever()).filter_map(|id| self.wait_of(id as u16)).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
        waits
    }

    fn wait_of(&self, waiter: u16) -> Option<LockWait> {
        let record = self.slots[usize::from(waiter)].wait_record()?;
        let (mode, blockers) = match record.waits_for {
            // Who asks may have it out himself.
            WaitsFor::Local(executor) => {
                let locks = self.local.lock_for(executor, TABLE_WITHIN)?;
                Self::blockers_local(&locks, waiter)?
            }
            _ => self.blockers(waiter, &record.waits_for)?,
        };
        let waited = Instant::now().saturating_duration_since(record.since);
        let mode = match record.waits_for {
            WaitsFor::Head(_) | WaitsFor::Local(_) => mode,
            WaitsFor::Interval(..) => LockMode::Exclusive,
        };
        Some(LockWait {
            waiter,
            holders: blockers.holders,
            ahead: blockers.ahead.into_iter().chain(blockers.alike).collect(),
            target: record.target,
            mode,
            waited,
        })
    }
}
