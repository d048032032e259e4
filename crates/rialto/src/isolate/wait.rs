//! How a request waits, and how a wait can end without the lock.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::io::Moment;

/// What to do about a lock that is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LockPolicy {
    /// Wait for it.
    #[default]
    Wait,
    /// Answer [`LockError::WouldWait`] at once.
    Refuse,
}

/// How one request waits. This is read only if the request has to wait.
///
/// A request may have to wait several times: it is turned away and asks again, or waits for a lock table and then for
/// the lock. For [`Wait::timeout`] all these waits are one, which counts from the first: [`Wait::since`].
#[derive(Debug, Clone)]
pub struct Wait<'a> {
    /// Whether to wait at all.
    pub policy: LockPolicy,
    /// When its first wait began, by the manager's clock, if there was one.
    pub since: Cell<Option<Moment>>,
    /// The longest that all its waits together may take.
    pub timeout: Option<Duration>,
    /// When the whole transaction has to be over.
    pub deadline: Option<Moment>,
    /// Set from outside to end the wait; see [`LockManager::interrupt`](super::LockManager::interrupt).
    pub cancelled: &'a AtomicBool,
}

impl Wait<'_> {
    /// When the request began to wait; `now`, if this is its first wait.
    pub(super) fn since(&self, now: Moment) -> Moment {
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        since
    }
}

/// Why a lock was not granted. Locks that the owner held before are still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The wait closed a cycle and this owner is its victim: release everything and run again.
    #[error("deadlock: the wait closed a cycle and this transaction was chosen as its victim; run it again")]
    Deadlock,
    /// [`Wait::timeout`] passed.
    #[error(
        "the lock was not granted within {waited:?}; raise the lock time-out or run the transaction again"
    )]
    Timeout {
        /// How long the request waited.
        waited: Duration,
    },
    /// [`Wait::deadline`] passed.
    #[error("the transaction's deadline passed after {waited:?} of waiting for a lock; raise its time-out")]
    Deadline {
        /// How long the request waited.
        waited: Duration,
    },
    /// The lock is not free and the policy is [`LockPolicy::Refuse`].
    #[error("the lock is held by another transaction and the caller asked not to wait")]
    WouldWait,
    /// [`Wait::cancelled`] was set, or another part of the transaction has failed
    /// ([`LockManager::end_waits_of_part`](super::LockManager::end_waits_of_part)).
    #[error("the wait for a lock was cancelled on request")]
    Cancelled,
    /// Another part of the same transaction holds it exclusively (L14).
    #[error("another part of the same transaction holds the lock; run the transaction as a whole")]
    Split,
    /// The owner has as many locks as it may have ([`LockOptions::locks_max`](super::LockOptions::locks_max)).
    #[error("a transaction holds at most {limit} locks; split it, or lock the table as a whole")]
    TooMany {
        /// The most that it may have.
        limit: usize,
    },
    /// The list of the owner's thin locks is long, and there is no memory for more
    /// ([`LockOptions::memory`](super::LockOptions::memory)).
    #[error("the lists of locks take up their {limit} bytes; split the transaction")]
    NoMemory {
        /// The most bytes that they may take.
        limit: u64,
    },
    /// The lock manager is shutting down.
    #[error("the wait for a lock ended because the database is closing; reopen it")]
    Shutdown,
}
