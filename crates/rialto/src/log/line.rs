//! [`Line`]: the queue of the transactions that wait for room in the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::io::{Clock, Moment};

/// The transactions that wait for room, in the order in which they came. Invariant: **however many wait, only the first
/// one works for the room**. The others sleep until they are given room, become the first, or have waited for as long
/// as they may. Therefore waits for room take no processor and no latch from the checkpoint that makes the room.
#[derive(Debug, Default)]
pub(crate) struct Line {
    entries: Mutex<VecDeque<Arc<QueueEntry>>>,
}

/// A transaction's entry in the queue.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    bytes: u64,
    /// Changed only with the latch of the queue held.
    is_given: AtomicBool,
    bell: Condvar,
}

impl QueueEntry {
    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// Wakes the transaction that was given its room.
    pub fn wake(&self) {
        self.bell.notify_one();
    }
}

/// A transaction is in the queue until this is dropped.
pub(crate) struct LineGuard<'a> {
    line: &'a Line,
    entry: Arc<QueueEntry>,
}

impl Line {
    /// Joins the queue at its end, for this many bytes.
    pub fn join(&self, bytes: u64) -> LineGuard<'_> {
        let entry = Arc::new(QueueEntry { bytes, is_given: AtomicBool::new(false), bell: Condvar::new() });
        self.entries.lock().push_back(entry.clone());
        LineGuard { line: self, entry }
    }

    /// The number of transactions in the queue.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Gives room to the transactions for which `promise` finds some, in their order. A transaction that needs more
    /// than there is holds up none that needs less. The caller [wakes](QueueEntry::wake) them, without a latch.
    pub fn give(&self, mut promise: impl FnMut(u64) -> bool) -> Vec<Arc<QueueEntry>> {
        let (mut given, mut refused) = (Vec::new(), u64::MAX);
        self.entries.lock().retain(|entry| {
            let is_given = entry.bytes < refused && promise(entry.bytes);
            if is_given {
                entry.is_given.store(true, Ordering::Release);
                given.push(entry.clone());
            } else {
                refused = refused.min(entry.bytes);
            }
            !is_given
        });
        given
    }
}

impl LineGuard<'_> {
    pub fn is_given(&self) -> bool {
        self.entry.is_given()
    }

    /// Sleeps until this is given room or is the first; returns `false` if `until` has come before.
    pub fn come_forward(&self, clock: &Clock, until: Moment) -> bool {
        let mut entries = self.line.entries.lock();
        while !self.is_given() && !entries.front().is_some_and(|first| Arc::ptr_eq(first, &self.entry)) {
            if !clock.wait_until(&self.entry.bell, &mut entries, until) {
                return false;
            }
        }
        true
    }

    /// Leaves the queue; returns whether this was given room. The next first one then comes forward.
    pub fn leave(&self) -> bool {
        let mut entries = self.line.entries.lock();
        entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        if let Some(first) = entries.front() {
            first.bell.notify_one();
        }
        self.is_given()
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn given(line: &Line, room: u64) -> Vec<u64> {
        let mut left = room;
        let promise = |bytes: u64| {
            let is_there = bytes <= left;
            left -= if is_there { bytes } else { 0 };
            is_there
        };
        line.give(promise).iter().map(|entry| entry.bytes).collect()
    }

    #[test]
    fn room_is_given_in_order_and_a_large_packet_holds_up_no_smaller_one() {
        let line = Line::default();
        let all = [5, 40, 6, 7].map(|bytes| line.join(bytes));
        assert_eq!(given(&line, 12), [5, 6]);
        assert_eq!(given(&line, 12), [7]);
        assert!(given(&line, 12).is_empty());
        assert_eq!(all.each_ref().map(LineGuard::leave), [true, false, true, true]);
        assert!(given(&line, 99).is_empty(), "a transaction that has left is given nothing");
    }

    /// A transaction that leaves, with room or without, leaves no other one asleep behind it.
    #[test]
    fn the_first_one_comes_forward() {
        let line = Line::default();
        let (first, until) = (line.join(1), Moment::now() + LIMIT);
        first.come_forward(&Clock::System, until);
        let others: Vec<_> = (0..3).map(|_| line.join(1)).collect();
        std::thread::scope(|scope| {
            for other in others {
                scope.spawn(move || {
                    other.come_forward(&Clock::System, until);
                    other.leave();
                });
            }
            line.give(|_| false);
            first.leave();
        });
        assert!(Moment::now() < until, "they were woken");
        let (first, second) = (line.join(1), line.join(1));
        drop(first);
        second.come_forward(&Clock::System, until);
        assert!(Moment::now() < until);
    }
}
