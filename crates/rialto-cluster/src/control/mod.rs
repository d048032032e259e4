//! The *control store*: a small store of keys and values that all nodes see, with compare-and-swap. It keeps the
//! configurations of partitions. No transaction waits for it.
//!
//! - [`ControlStore`] is the seam: what the rest of the cluster knows of it. No key is ever deleted.
//! - [`MemoryStore`] is for tests: it has the faults that a test chooses.
//! - `EtcdStore` keeps the keys in etcd (the feature `etcd`).
//!
//! Both run the same tests (`tests/control/conformance.rs`).

use serde::{Deserialize, Serialize};
use std::fmt;

#[cfg(feature = "etcd")]
mod etcd;
mod memory;

#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdStore, EtcdTls};
pub use memory::{Access, Backup, MemoryStore, SwapFault};

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

/// What became of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swapped {
    /// The key has the new value, of this revision.
    Done(Revision),
    /// The key had another revision than the expected one: nothing has changed.
    Lost,
}

/// Why the control store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// It was not reached in time, or its members do not agree. A swap may have been done, and may still be done
    /// later, until a read shows its outcome.
    Unavailable(String),
    /// It answered what makes no sense, or refuses this client.
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

/// A control store. Reads and swaps are linearizable.
pub trait ControlStore: Send + Sync {
    /// The value of a key; `None` if it has none.
    ///
    /// # Blocking
    /// The call returns within the time that the store was made with.
    ///
    /// # Errors
    /// See [`ControlError`].
    fn get(&self, key: &str) -> Result<Option<Versioned>, ControlError>;

    /// Gives a key a new value if its revision is the expected one; `None`: if it has no value.
    ///
    /// # Blocking
    /// As [`ControlStore::get`].
    ///
    /// # Errors
    /// See [`ControlError`]; after [`ControlError::Unavailable`] the outcome is unknown.
    fn swap(&self, key: &str, expected: Option<Revision>, value: &[u8]) -> Result<Swapped, ControlError>;

    /// All keys that begin with a prefix, in order, with their values.
    ///
    /// # Blocking
    /// As [`ControlStore::get`].
    ///
    /// # Errors
    /// See [`ControlError`].
    fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, ControlError>;
}
