//! The *control store*: a small store of keys and values that all nodes see, with compare-and-swap. It keeps the
//! configurations of partitions, what was chosen for the cluster, and its nodes. No transaction waits for it.
//!
//! Invariants:
//! 1. **Linearizable.** Reads and swaps of all clients are as if one came after the other.
//! 2. **One store.** A store has an identity ([`StoreIdentity`]), a random number. It changes only by
//!    [`ControlStore::renew_identity`], which no command calls yet. A swap names the identity that its caller has read,
//!    and changes nothing in another store: the identity and the revision are compared in the same step. A read gives
//!    the value and the identity of one moment.
//! 3. **No false refusal.** [`ControlError::Refused`] means that nothing was changed, and will not be. After a swap was
//!    sent, an error is [`ControlError::Unavailable`].
//! 4. **Bounded.** A key, a value, and each answer on the wire have a greatest length; each call returns within a bound.
//!
//! - [`ControlStore`] is the interface that the rest of the cluster uses. No key is ever deleted.
//! - [`MemoryStore`] is for tests: it has the faults that a test chooses.
//! - `EtcdStore` keeps the keys in etcd (the feature `etcd`).
//!
//! Both run the same tests (`tests/control/conformance.rs`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

use crate::protocol::replication::StoreIdentity;

#[cfg(feature = "etcd")]
mod etcd;
mod identity;
mod memory;

#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdStore, EtcdTls};
pub use memory::{Access, Backup, MemoryStore, SwapFault};

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1 << 10;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 128 << 10;

/// The number of the write that gave a key its value. A later write of the same key has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub u64);

/// A value, and the write that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Vec<u8>,
    /// The write that gave it.
    pub revision: Revision,
}

/// What a read of a key has found, all at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The store's identity; `None` if it has none yet.
    pub store: Option<StoreIdentity>,
    /// The key's value; `None` if it has none.
    pub value: Option<Versioned>,
}

/// What a list has found, all at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The store's identity; `None` if it has none yet.
    pub store: Option<StoreIdentity>,
    /// The newest write of the whole store; of revision 0 if there is none. Later writes have higher revisions.
    pub newest: Revision,
    /// The keys in order, with their values.
    pub keys: Vec<(String, Versioned)>,
}

/// What became of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swapped {
    /// The key has the new value, of this revision.
    Done(Revision),
    /// The key had another revision than the expected one: nothing has changed.
    Lost,
    /// The store has another identity, or none: nothing has changed, whatever the key's revision is.
    AnotherStore,
}

/// What became of a new identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The store has it.
    Done,
    /// The store had another identity than the expected one, and still has it.
    AnotherStore,
}

/// Whether there were writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// There were, or the store's newest write is older than the caller's: it was restored. The caller reads again.
    Yes,
    /// There was none when the patience ended.
    No,
}

/// Why the control store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// It was not reached in time, or its members do not agree, or it has not done what it was asked for. A swap may have
    /// been done, and may still be done later, until a read shows its outcome.
    Unavailable(String),
    /// Its answer makes no sense, it refuses this client, or the call makes no sense. Nothing was changed.
    Refused(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Unavailable(what) => write!(f, "the control store is not available: {what}"),
            ControlError::Refused(what) => write!(f, "the control store refuses: {what}"),
        }
    }
}

impl std::error::Error for ControlError {}

/// A control store. Reads and swaps are linearizable. Many threads may use one client at once; none waits for the call of
/// another one.
pub trait ControlStore: Send + Sync {
    /// The store's identity. If it has none yet, it has the given one from now on. A caller draws it
    /// ([`StoreIdentity::draw`]).
    ///
    /// # Blocking
    /// The call returns within the time that the store was made with.
    ///
    /// # Errors
    /// See [`ControlError`]. The call may be repeated.
    fn identify(&self, new: StoreIdentity) -> Result<StoreIdentity, ControlError>;

    /// Gives the store a new identity if it has the expected one: after a restoration, and before a replica leads by
    /// force. From then on, no swap that was asked of the earlier store is done.
    ///
    /// # Blocking
    /// As [`ControlStore::identify`].
    ///
    /// # Errors
    /// See [`ControlError`]. The call may be repeated with the same identities.
    fn renew_identity(&self, from: StoreIdentity, to: StoreIdentity) -> Result<Renewed, ControlError>;

    /// The value of a key, and the identity of the store that it was read from.
    ///
    /// # Blocking
    /// As [`ControlStore::identify`].
    ///
    /// # Errors
    /// See [`ControlError`].
    fn get(&self, key: &str) -> Result<Found, ControlError>;

    /// Gives a key a new value if the store has this identity, and the key has the expected revision (`None`: no value
    /// yet).
    ///
    /// # Blocking
    /// As [`ControlStore::identify`].
    ///
    /// # Errors
    /// See [`ControlError`]; after [`ControlError::Unavailable`] the outcome is unknown. A key longer than [`KEY_MAX`] or a
    /// value longer than [`VALUE_MAX`] is refused.
    fn swap(
        &self,
        store: StoreIdentity,
        key: &str,
        expected: Option<Revision>,
        value: &[u8],
    ) -> Result<Swapped, ControlError>;

    /// All keys that begin with a prefix.
    ///
    /// # Blocking
    /// As [`ControlStore::identify`].
    ///
    /// # Errors
    /// See [`ControlError`].
    fn list(&self, prefix: &str) -> Result<Listed, ControlError>;

    /// Waits until a key that begins with a prefix has a higher revision than this one, or until the patience ends. A
    /// caller passes what it has last listed ([`Listed::newest`]). The answer is that of a linearizable read at the end. A
    /// patience of more than a day counts as a day.
    ///
    /// # Blocking
    /// The call returns within the patience and the time that the store was made with.
    ///
    /// # Errors
    /// See [`ControlError`]. The error may come before the patience ends.
    fn changed_since(
        &self,
        prefix: &str,
        since: Revision,
        patience: Duration,
    ) -> Result<Changed, ControlError>;
}

/// Refuses what is too long, before it is sent.
fn check_lengths(key: &str, value: &[u8]) -> Result<(), ControlError> {
    if key.len() > KEY_MAX {
        return Err(ControlError::Refused(format!(
            "a key of {} bytes is too long; {KEY_MAX} is the most",
            key.len()
        )));
    }
    if value.len() > VALUE_MAX {
        return Err(ControlError::Refused(format!(
            "a value of {} bytes for {key} is too long; {VALUE_MAX} is the most",
            value.len()
        )));
    }
    Ok(())
}

/// When a patience ends.
fn end_of(patience: Duration) -> Instant {
    Instant::now() + patience.min(Duration::from_secs(24 * 60 * 60))
}
