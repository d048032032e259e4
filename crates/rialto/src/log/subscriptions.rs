//! [`Subscriptions`]: which log files stay for those who read the log behind its writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// What a reader of the log still needs of it.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// It has everything before this.
    position: AtomicU64,
    /// So many bytes of log stay for it at most.
    bytes_max: u64,
    /// Whether it was further behind than that: nothing stays for it any more.
    is_cut: AtomicBool,
}

/// The subscriptions of a log.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    all: Mutex<Vec<Arc<Subscription>>>,
}

impl Subscription {
    /// Its reader has everything before this position.
    pub(crate) fn advance(&self, position: u64) {
        self.position.fetch_max(position, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

impl Subscriptions {
    /// From now on the log from this position on stays, at most so many bytes of it.
    pub(super) fn add(&self, position: u64, bytes_max: u64) -> Arc<Subscription> {
        let subscription =
            Subscription { position: AtomicU64::new(position), bytes_max, is_cut: AtomicBool::new(false) };
        let subscription = Arc::new(subscription);
        self.all.lock().push(subscription.clone());
        subscription
    }

    pub(super) fn remove(&self, subscription: &Arc<Subscription>) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, subscription));
    }

    /// Cuts those that need more of a log that ends here than their bound; with `all` every one.
    pub(super) fn cut(&self, end: u64, all: bool) {
        for subscription in &*self.all.lock() {
            let behind = end.saturating_sub(subscription.position.load(Ordering::SeqCst));
            if all || behind > subscription.bytes_max {
                subscription.is_cut.store(true, Ordering::SeqCst);
            }
        }
    }

    /// The log from this position on stays.
    pub(super) fn needed_from(&self) -> u64 {
        let all = self.all.lock();
        let live = all.iter().filter(|subscription| !subscription.is_cut());
        live.map(|subscription| subscription.position.load(Ordering::SeqCst)).min().unwrap_or(u64::MAX)
    }
}
