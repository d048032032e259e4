//! [`Subscriptions`]: which log files stay for log cursors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What a cursor still needs of the log.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Its reader has everything before this.
    position: AtomicU64,
    /// So many bytes before the log's end stay for it at most.
    bytes_max: u64,
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
}

impl Subscriptions {
    /// From now on the log from this position on stays, as long as that is at most so many bytes.
    pub(super) fn add(&self, position: u64, bytes_max: u64) -> Arc<Subscription> {
        let subscription = Arc::new(Subscription { position: AtomicU64::new(position), bytes_max });
        self.all.lock().push(subscription.clone());
        subscription
    }

    pub(super) fn remove(&self, subscription: &Arc<Subscription>) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, subscription));
    }

    /// Whether there is any.
    pub(super) fn is_any(&self) -> bool {
        !self.all.lock().is_empty()
    }

    /// Whether a file that ends at `file_end` stays for one of them, in a log that ends at `log_end`.
    pub(super) fn keep(&self, file_end: u64, log_end: u64) -> bool {
        self.all.lock().iter().any(|subscription| {
            let position = subscription.position.load(Ordering::SeqCst);
            position < file_end && log_end.saturating_sub(position) <= subscription.bytes_max
        })
    }
}
