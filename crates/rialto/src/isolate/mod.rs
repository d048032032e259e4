//! Locks keep concurrent transactions apart.
//!
//! There are three forms of locks, with the same meaning. In the *central* form every lock is a *head*: a lock with a
//! queue, found by name in a hash table. In the *thin* form (`LockForm::Thin`, the default) a present record is locked
//! in its own word ([`LockManager::record_thin`]), and a table intention lies in its owner's slot. A conflict moves the
//! lock into a head, so queues, fairness, deadlock detection and the view are the same code in both forms. Absent keys
//! and intervals are central in the thin form, too. In the *local* form (`LockForm::Local`) keys and ranges of keys are
//! locked in the lock tables of the executors that have them, and tables as in the thin form. A transaction that runs
//! in place may *lease* such a lock table: it takes the table out, and has it for itself.
//!
//! A [`LockManager`] lends each transaction an [`Owner`] (its lock slot), and grants it locks on
//!
//! - **tables**, with intention modes ([`LockMode`]),
//! - **records by name** ([`LockName`]: index and key hash), present or not, because the name is locked before the
//!   index is probed; a hash collision costs a false conflict, never a missed one,
//! - **intervals of keys**, shared only: the set of keys that exist in the interval does not change.
//!
//! Invariants kept here:
//!
//! - **L1** A request is granted exactly when it is compatible with every lock of other owners and with every request
//!   ahead of it in the queue. An upgrade waits for holders only and stands before all new requests. A request that is
//!   not granted waits for those that this rule names, and the waits-for graph has an edge to each of them and no other
//!   edges. So it can neither miss a deadlock nor invent one. (For spans: `local`.) An exception: if the first in the
//!   queue of a record that becomes free wants it exclusively, it is told to ask again, and the first request that asks
//!   gets the lock. The others in the queue, readers included, wait for the one that was told. This prevents lock
//!   convoys. It does not apply to what a deadlock's victim releases, nor to a request that was told so `RETRIES_MAX`
//!   times (`central/head.rs`): these locks are granted in the queue.
//! - **L2** A request leaves its queue only under the latch of its partition of the hash table. Either the thread that
//!   released a lock grants it or tells it to ask again, or its own owner withdraws it, and then grants the requests
//!   behind it that can be granted now. (L15 says what holds while a lease has an executor's table out.)
//! - **L3** A wake-up is a hint. Whether the request was granted is in the state word of the slot, which is written
//!   under the partition's latch. So a late wake-up, for an earlier use of the slot, is harmless.
//! - **L4** No thread holds two partition latches at once, with two exceptions: the deadlock detector, which takes
//!   those of heads before those of intervals before those of executors, and a thread that reads several executors or
//!   changes the routing rules. Both take latches in ascending order. A slot's latches are innermost.
//! - **L5** All locks are held to the end ([`LockManager::release_all`], [`LockManager::release_all_thin`]), after the
//!   transaction has its place in the log (I2).
//! - **L6** in `interval`: no phantom. **L7** to **L9** in `thin`: a record's word and its head agree. **L10** in
//!   `intent`: an intention and a lock on the whole table exclude each other. **L11** in `local`: a span is held at
//!   each executor that has keys of it; **L12** in `local/lease.rs`: an owner under a lease waits for no other owner.
//!   **L13** in `intent`: executors hold the intentions of leases. **L14** in `local`: parts of one transaction share
//!   no exclusive span; **L15** in `local`: a wait that ends while a lease has the lock table out.
//!
//! Reading order: `mode` (the compatibility of modes), `acquire` (requests for keys and rows), `slot` (owners and how
//! they sleep), `manager` (waits and releases), `central` (the grant path; in it `head`: one lock's holders and
//! queue, and the partition's hash of heads; and `interval`), `deadlock`, `view`, then `thin` and `intent`, and
//! `local`.

mod acquire;
mod central;
mod counters;
mod deadlock;
mod grain;
mod intent;
mod local;
mod manager;
mod mode;
mod name;
mod options;
mod slot;
mod sync;
mod thin;
mod view;
mod wait;

#[cfg(test)]
mod tests;

pub use acquire::RangeLock;
pub use central::interval::Admission;
pub use counters::LockCounters;
pub use deadlock::VictimPolicy;
pub(crate) use grain::Grains;
pub use grain::LockGrain;
pub use local::{OwnLease, RoutingChanges, RoutingRule, Sample, Span, SpanRef, Wanted};
pub use manager::LockManager;
pub use mode::{Acquired, LockMode, RecordMode};
pub use name::{LockName, LockTarget};
pub(crate) use options::LockForm;
pub use options::LockOptions;
pub use slot::{Lent, Owner};
pub use thin::{LockWords, ThinWord};
pub use view::OwnerWait;
pub use wait::{LockError, LockPolicy, Wait};
