//! [`Wakes`]: the wakers of clients' tickets, and whether the right thread calls them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

/// The thread that calls users' wakers.
const WAKERS: &str = "rialto-wakers";

/// Notes which threads call it. Committing threads, and all other threads of the engine, may not (W1).
#[derive(Default)]
pub struct Wakes {
    by_others: AtomicU64,
}

impl Wakes {
    /// How many times another thread has called it.
    pub fn by_others(&self) -> u64 {
        self.by_others.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let is_other = std::thread::current().name() != Some(WAKERS);
        self.by_others.fetch_add(u64::from(is_other), Ordering::SeqCst);
    }
}
