//! Interval locks as scans and inserts use them.

use std::ops::Bound;

use super::super::manager::LockManager;
use super::super::manager::Woke;
use super::super::name::LockTarget;
use super::super::slot::{Owner, WaitRecord, WaitsFor};
use super::super::wait::{LockError, LockPolicy, Wait};
use super::interval::{Admission, INDEXES_IN_DETAIL, INTERVALS_PER_OWNER_MAX, IntervalTable};
use crate::ids::IndexId;

impl LockManager {
    /// Registers that the owner has read which keys exist in an interval. Granted at once. A scan calls it before it
    /// marks or reads any leaf (L6).
    pub fn interval(&self, owner: &mut Owner, index: IndexId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        let in_detail = owner.body.intervals.len() < INDEXES_IN_DETAIL;
        let own_max = if in_detail { INTERVALS_PER_OWNER_MAX } else { 1 };
        if self.intervals.register(owner.body.id, index, (lower, upper), own_max) {
            owner.body.intervals.push(index);
        }
        self.slot(owner).counters.higher.add(1);
    }

    /// Whether an insert of `key` may go on. Called under the latch of a guarded leaf.
    #[inline]
    pub fn admits(&self, owner: &Owner, index: IndexId, key: &[u8]) -> Admission {
        self.intervals.admits(owner.body.id, index, key)
    }

    /// Waits until no other owner's interval contains the key, or until another try is worth it. Called after
    /// [`Admission::Refuse`], with no latch held. Intervals are granted at once, so a steady stream of overlapping
    /// scans can keep an insert out until its time-out, which all its tries share ([`Wait::since`]).
    pub fn wait_interval(
        &self,
        owner: &mut Owner,
        index: IndexId,
        key: &[u8],
        wait: &Wait<'_>,
    ) -> Result<(), LockError> {
        let slot = self.slot(owner);
        let id = owner.body.id;
        if wait.policy == LockPolicy::Refuse {
            if self.intervals.admits(id, index, key) != Admission::Refuse {
                return Ok(());
            }
            slot.counters.refused.add(1);
            return Err(LockError::WouldWait);
        }
        let since = self.now();
        wait.since(since);
        let partition = IntervalTable::partition_of(index);
        let waits_for = WaitsFor::Interval(index, key.to_vec());
        let target = LockTarget::Interval { index, key: key.to_vec() };
        self.begin_wait(owner, WaitRecord { waits_for, target, since });
        let queued = self.intervals.lock(partition).enqueue(id, index, key);
        let outcome = match queued {
            false => Ok(()),
            true => match self.sleep(id, wait) {
                Woke::Granted | Woke::Retry => Ok(()),
                Woke::Not(error) if self.intervals.lock(partition).withdraw(id, index) => Err(error),
                Woke::Not(_) => Ok(()),
            },
        };
        self.account_wait(slot, since, outcome.as_ref().err());
        outcome
    }

    /// Forgets the intervals of an index whose entries are gone.
    pub fn forget_intervals(&self, index: IndexId) {
        self.intervals.forget(index);
    }

    /// Forgets an index that was dropped. The commit that drops it is between its place and its visibility, and
    /// checkpoints wait for such commits; a body that has a lock table out may wait for a checkpoint. So this waits
    /// for no lock table, and leaves the index's routing rule to [`LockManager::forget_rules_of_dropped`]. The
    /// index's number is never used again.
    pub fn forget_index(&self, index: IndexId) {
        self.forget_intervals(index);
        if self.keeps_keys_at_executors() {
            self.local.dropped.lock().push(index);
        }
    }
}
