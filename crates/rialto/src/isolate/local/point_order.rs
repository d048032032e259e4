//! [`PointOrder`]: the locks on one key each, in the order of their keys, as long as that order pays.
//!
//! Without the order, a request for a range compares itself with each of these locks. With it, each lock takes longer
//! to add and to remove. So the comparisons that ranges would need are weighed against the number of new locks. Many
//! keys and ranges of one transaction then take a time proportional to their number, not to its square, and an
//! executor that gets few requests for ranges pays nothing.

use hashbrown::HashTable;

use super::held::Lock;
use super::ordered::OrderedLocks;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct PointOrder {
    locks: Option<OrderedLocks>,
    /// How many locks requests for ranges would have been compared with if there were no order. This and `came` start
    /// again when the order is made or given up.
    probes: u64,
    /// The number of new locks.
    came: u64,
}

impl PointOrder {
    /// The time to add a lock to the order and to remove it, in probes.
    const PROBES_PER_ENTRY: u64 = 64;
    /// When the number of new locks exceeds this and four times the present number of locks, both counts are halved.
    /// So older requests count less and less.
    const CAME_MAX: u64 = 1_024;

    /// The locks in their order, if it is kept.
    pub fn locks(&self) -> Option<&OrderedLocks> {
        self.locks.as_ref()
    }

    /// Keeps the order from here on, or gives it up, whether it pays or not.
    #[cfg(test)]
    pub fn keep(&mut self, is_kept: bool, locks: &[Lock], points: &HashTable<u32>) {
        self.locks = is_kept.then(|| OrderedLocks::of(locks, points.iter().copied()));
    }

    /// Counts the comparisons that a request for a range would need, and makes the order if it pays by now.
    pub fn ask(&mut self, locks: &[Lock], points: &HashTable<u32>) {
        let count = points.len() as u64;
        self.probes += count;
        if self.locks.is_none() && self.probes > (self.came + count) * Self::PROBES_PER_ENTRY {
            let order = OrderedLocks::of(locks, points.iter().copied());
            *self = PointOrder { locks: Some(order), probes: 0, came: 0 };
        }
    }

    /// Adds a lock, with which there are `count`. Gives the order up if it no longer pays.
    pub fn add(&mut self, locks: &[Lock], at: u32, count: usize) {
        self.came += 1;
        if self.came > 4 * count as u64 + Self::CAME_MAX {
            (self.came, self.probes) = (self.came / 2, self.probes / 2);
        }
        let Some(order) = &mut self.locks else { return };
        // This bound is far from the one at which the order is made, so that the order is not made and given up all
        // the time.
        if self.came > count as u64 && self.probes < self.came * (Self::PROBES_PER_ENTRY / 4) {
            *self = PointOrder::default();
        } else {
            order.insert(locks, at);
        }
    }

    /// Removes a lock.
    pub fn remove(&mut self, locks: &[Lock], at: u32) {
        if let Some(order) = &mut self.locks {
            order.remove(locks, at);
        }
    }

    /// Brings the order up to date after a lock's holders or their modes have changed.
    pub fn update(&mut self, locks: &[Lock], at: u32) {
        if let Some(order) = &mut self.locks {
            order.update(locks, at);
        }
    }
}
