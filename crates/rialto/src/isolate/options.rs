//! [`LockOptions`]: the options of a lock manager.

use std::sync::Arc;
use std::time::Duration;

use super::deadlock::VictimPolicy;
use crate::io::Clock;
use crate::store::Budget;

/// How locks are kept while no owner waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum LockForm {
    /// Present records are locked in their own words ([`LockManager::record_thin`](super::LockManager::record_thin))
    /// and table intentions in the slots of their owners; a lock becomes a head on conflict.
    #[default]
    Thin,
    /// Every lock is a head: the baseline of the papers.
    Central,
    /// Keys and ranges of keys are locked in the lock table of the executor that they belong to
    /// ([`LockManager::local`](super::LockManager::local)), and table intentions as in the thin form: DORA's.
    Local,
}

/// The options of a lock manager.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// How many transactions may be open at a time; 1 to 65535.
    pub owners_max: usize,
    /// How uncontended locks are kept.
    pub(crate) form: LockForm,
    /// How many executors are in use at first, in the local form; 1 to 65535.
    pub executors: usize,
    /// How many executors there is room for; not fewer than `executors`.
    pub executors_max: usize,
    /// Which transaction of a deadlock is the victim.
    pub victim: VictimPolicy,
    /// How long a wait lasts before its first search for a deadlock.
    pub deadlock_check_after: Duration,
    /// The most locks that an owner may have of each kind that takes memory of its own: locks on names, and locks at
    /// executors.
    pub locks_max: usize,
    /// The budget from which long lists of thin locks take their memory.
    pub memory: Arc<Budget>,
    /// The clock of time-outs and of the ages of transactions.
    pub clock: Clock,
}

/// The most locks of a transaction on names, and at executors: see [`LockOptions::locks_max`]. While it is held, a
/// lock on a name takes some 150 bytes, and one at an executor some 300. So an owner takes about 1.3 GB at most; at
/// an executor a lock with long keys counts as several. The parts of a phase are separate owners, whose locks their
/// transaction takes over.
pub const LOCKS_MAX: usize = 4 << 20;

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            owners_max: 1024,
            form: LockForm::default(),
            executors: 1,
            executors_max: 1,
            victim: VictimPolicy::default(),
            deadlock_check_after: Duration::from_millis(1),
            locks_max: LOCKS_MAX,
            memory: Arc::new(Budget::unbounded()),
            clock: Clock::System,
        }
    }
}
