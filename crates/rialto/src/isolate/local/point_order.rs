//! [`PointOrder`]: the locks on one key each in the order of their keys, while that pays.
//!
//! Without the order a request for a range looks at all of these locks. With it each lock takes longer to come and to go. So
//! what ranges would look at is weighed against the locks that come: many keys and ranges of one transaction take a time by
//! their number, not by its square, and an executor that is seldom asked for a range pays nothing.

use hashbrown::HashTable;

use super::held::Lock;
use super::ordered::OrderedLocks;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct PointOrder {
    locks: Option<OrderedLocks>,
    /// How many locks requests for ranges would have looked at without the order. This and `came` begin anew when the order is
    /// made or given up.
    probes: u64,
    /// How many locks have come.
    came: u64,
}

impl PointOrder {
    /// A lock takes as long to be put into the order and taken out again as so many probes.
    const PROBES_PER_ENTRY: u64 = 64;
    /// When more locks than so many, and four times those that are there, have come, both counts are halved: so what was long
    /// ago counts for less and less.
    const CAME_MAX: u64 = 1_024;

    /// The locks in their order, if that is kept.
    pub fn locks(&self) -> Option<&OrderedLocks> {
        self.locks.as_ref()
    }

    /// Keeps the order from here on, or does not, whatever pays.
    #[cfg(test)]
    pub fn keep(&mut self, is_kept: bool, locks: &[Lock], points: &HashTable<u32>) {
        self.locks = is_kept.then(|| OrderedLocks::of(locks, points.iter().copied()));
    }

    /// Counts what a request for a range would look at, and makes the order if that pays by now.
    pub fn ask(&mut self, locks: &[Lock], points: &HashTable<u32>) {
        let count = points.len() as u64;
        self.probes += count;
        if self.locks.is_none() && self.probes > (self.came + count) * Self::PROBES_PER_ENTRY {
            let order = OrderedLocks::of(locks, points.iter().copied());
            *self = PointOrder { locks: Some(order), probes: 0, came: 0 };
        }
    }

    /// Adds a lock, with which there are `count`. Gives the order up if it does not pay any more.
    pub fn add(&mut self, locks: &[Lock], at: u32, count: usize) {
        self.came += 1;
        if self.came > 4 * count as u64 + Self::CAME_MAX {
            (self.came, self.probes) = (self.came / 2, self.probes / 2);
        }
        let Some(order) = &mut self.locks else { return };
        // Far from where it is made, so that it does not come and go all the time.
        if self.came > count as u64 && self.probes < self.came * (Self::PROBES_PER_ENTRY / 4) {
            *self = PointOrder::default();
        } else {
            order.insert(locks, at);
        }
    }

    /// Takes a lock out.
    pub fn remove(&mut self, locks: &[Lock], at: u32) {
        if let Some(order) = &mut self.locks {
            order.remove(locks, at);
        }
    }

    /// A lock that is there has other holders, or in other modes.
    pub fn update(&mut self, locks: &[Lock], at: u32) {
        if let Some(order) = &mut self.locks {
            order.update(locks, at);
        }
    }
}
