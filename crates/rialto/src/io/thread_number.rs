//! The number of a thread. It selects the thread's share of structures that are divided among threads, such as pools
//! and free lists.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

const NONE: usize = usize::MAX;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
}

/// The calling thread's number. Threads are numbered in the order of their first calls.
#[inline]
pub(crate) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    if NUMBER.get() == NONE {
        NUMBER.set(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// Gives the calling thread another number. For runs of several threads that are to be replayed under a
/// [`Scheduler`](super::Scheduler): where a thread's rows lie, and which contexts and lock slots it has, follow from
/// its number. The largest possible number stands for the one below it.
pub fn number_thread(number: usize) {
    NUMBER.set(number.min(NONE - 1));
}
