//! [`EventQueue`]: what happens when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come, each with its time in nanoseconds.
///
/// Invariant: they come out in the order of their times, and those of one time in the order in which they were put in. So a run
/// depends on nothing but its setup and its seed.
pub struct EventQueue<E> {
    events: BinaryHeap<Reverse<Entry<E>>>,
    put_in: u64,
}

/// An event. Its time and its number decide its order.
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn order(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl<E> EventQueue<E> {
    pub fn new() -> EventQueue<E> {
        EventQueue { events: BinaryHeap::new(), put_in: 0 }
    }

    pub fn put(&mut self, at_ns: u64, event: E) {
        self.put_in += 1;
        self.events.push(Reverse(Entry { at_ns, number: self.put_in, event }));
    }

    /// The next event, with its time.
    pub fn take(&mut self) -> Option<(u64, E)> {
        self.events.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_time_in_their_order() {
        let mut events = EventQueue::new();
        for (at, event) in [(5, 'e'), (3, 'a'), (3, 'b'), (4, 'd'), (3, 'c')] {
            events.put(at, event);
        }
        let all: Vec<(u64, char)> = std::iter::from_fn(|| events.take()).collect();
        assert_eq!(all, [(3, 'a'), (3, 'b'), (3, 'c'), (4, 'd'), (5, 'e')]);
    }
}
