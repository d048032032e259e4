//! The view of waits for locks.

use std::time::Duration;

use super::deadlock::TablesOut;
use super::manager::LockManager;
use super::mode::LockMode;
use super::name::LockTarget;
use super::slot::WaitsFor;

/// One transaction's wait, as it was at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerWait {
    /// The owner that waits: an [`Owner::id`](super::Owner::id).
    pub waiter: u16,
    /// The owners that hold the lock in a mode that conflicts with the request. For a transaction in parts, the owner
    /// that stands for it.
    pub holders: Vec<u16>,
    /// The owners of conflicting requests ahead of it.
    pub ahead: Vec<u16>,
    /// What it waits for.
    pub target: LockTarget,
    /// The mode that it will have; for an interval, exclusive.
    pub mode: LockMode,
    /// How long it has waited so far.
    pub waited: Duration,
}

impl LockManager {
    /// All waits now, the longest first. Each of them is real, but they are not all read at the same instant. Waits
    /// at an executor whose lock table stays out are left out.
    pub fn waits(&self) -> Vec<OwnerWait> {
        // The calling thread itself may have a lock table out, so this does not wait until it is back.
        let mut out = TablesOut::default();
        let mut waits: Vec<OwnerWait> =
            (0..self.lent_ever()).filter_map(|id| self.wait_of(id as u16, &mut out)).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
        waits
    }

    fn wait_of(&self, waiter: u16, out: &mut TablesOut) -> Option<OwnerWait> {
        let record = self.slots[usize::from(waiter)].wait_record()?;
        let (mode, blockers) = self.blockers(waiter, &record.waits_for, out)?;
        let waited = self.now() - record.since;
        let mode = match record.waits_for {
            WaitsFor::Head(_) | WaitsFor::Local(_) => mode,
            WaitsFor::Interval(..) => LockMode::Exclusive,
        };
        Some(OwnerWait {
            waiter,
            holders: blockers.holders,
            ahead: blockers.ahead.into_iter().chain(blockers.alike).collect(),
            target: record.target,
            mode,
            waited,
        })
    }
}
