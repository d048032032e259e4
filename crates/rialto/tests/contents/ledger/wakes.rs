//! [`Wakes`]: what clients have their tickets wake, and whether the right thread has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

/// The thread that wakes what users register.
const WAKERS: &str = "rialto-wakers";

/// Notes which threads wake it. Those that commit, and all others of the engine's, may not (W1).
#[derive(Default)]
pub struct Wakes {
    by_others: AtomicU64,
}

impl Wakes {
    /// How often another thread has woken it.
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
