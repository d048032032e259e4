//! A control store in memory, with the faults that a test chooses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ControlError, ControlStore, Revision, Swapped, Versioned};

/// A control store in memory, for tests: one client of it. [`MemoryStore::another_client`] makes more of them, each with
/// faults of its own, as each node has a connection of its own to etcd.
///
/// Revisions are counted as etcd counts them: the whole store has one counter, and a swap that changes nothing takes no
/// revision.
pub struct MemoryStore {
    shared: Arc<Mutex<Contents>>,
    faults: Mutex<Faults>,
}

/// What all clients share.
#[derive(Default)]
struct Contents {
    keys: BTreeMap<String, Versioned>,
    /// The newest write's revision.
    newest: u64,
    /// Swaps on their way.
    late: VecDeque<LateSwap>,
}

/// A swap whose caller has been told that its outcome is unknown, and which has not reached the store yet.
struct LateSwap {
    key: String,
    expected: Option<Revision>,
    value: Vec<u8>,
}

/// The faults of one client.
#[derive(Default)]
struct Faults {
    access: Access,
    swaps: VecDeque<SwapFault>,
}

/// Whether a client's calls reach the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// They do.
    #[default]
    Reached,
    /// They do not: each call is answered with [`ControlError::Unavailable`], and changes nothing.
    Away,
}

/// What becomes of one swap whose caller hears [`ControlError::Unavailable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapFault {
    /// The swap is compared and done, and its answer is lost.
    AnswerLost,
    /// The swap never reaches the store.
    RequestLost,
    /// The swap reaches the store when the test calls [`MemoryStore::deliver_late_swap`], and is compared then.
    Late,
}

/// What a store held at some moment.
#[derive(Clone)]
pub struct Backup {
    keys: BTreeMap<String, Versioned>,
    newest: u64,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store, and its first client.
    pub fn new() -> MemoryStore {
        MemoryStore { shared: Arc::default(), faults: Mutex::default() }
    }

    /// Another client of the same store, without faults.
    pub fn another_client(&self) -> MemoryStore {
        MemoryStore { shared: Arc::clone(&self.shared), faults: Mutex::default() }
    }

    /// From now on, whether this client's calls reach the store.
    pub fn set_access(&self, access: Access) {
        self.faults.lock().access = access;
    }

    /// The next swap of this client that reaches the store has this fault. Further calls are for the swaps after it.
    pub fn fail_next_swap(&self, fault: SwapFault) {
        self.faults.lock().swaps.push_back(fault);
    }

    /// Lets the oldest [`SwapFault::Late`] swap of all clients reach the store. Gives what became of it; `None` if there is none.
    pub fn deliver_late_swap(&self) -> Option<Swapped> {
        let mut contents = self.shared.lock();
        let late = contents.late.pop_front()?;
        Some(contents.swap(&late.key, late.expected, &late.value))
    }

    /// A copy of the store, as of now.
    pub fn backup(&self) -> Backup {
        let contents = self.shared.lock();
        Backup { keys: contents.keys.clone(), newest: contents.newest }
    }

    /// Puts the store back to an earlier state. Its counter of revisions goes back, too, as with etcd: later writes have
    /// revisions that other writes had before. Late swaps are still on their way.
    pub fn restore(&self, backup: &Backup) {
        let mut contents = self.shared.lock();
        contents.keys.clone_from(&backup.keys);
        contents.newest = backup.newest;
    }

    fn reach(&self) -> Result<(), ControlError> {
        match self.faults.lock().access {
            Access::Reached => Ok(()),
            Access::Away => Err(ControlError::Unavailable("the test has put it away".to_owned())),
        }
    }
}

impl Contents {
    fn swap(&mut self, key: &str, expected: Option<Revision>, value: &[u8]) -> Swapped {
        if self.keys.get(key).map(|versioned| versioned.revision) != expected {
            return Swapped::Lost;
        }
        self.newest += 1;
        let revision = Revision(self.newest);
        self.keys.insert(key.to_owned(), Versioned { value: value.to_vec(), revision });
        Swapped::Done(revision)
    }
}

impl ControlStore for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Versioned>, ControlError> {
        self.reach()?;
        Ok(self.shared.lock().keys.get(key).cloned())
    }

    fn swap(&self, key: &str, expected: Option<Revision>, value: &[u8]) -> Result<Swapped, ControlError> {
        self.reach()?;
        let fault = self.faults.lock().swaps.pop_front();
        let mut contents = self.shared.lock();
        match fault {
            None => return Ok(contents.swap(key, expected, value)),
            Some(SwapFault::AnswerLost) => {
                contents.swap(key, expected, value);
            }
            Some(SwapFault::RequestLost) => {}
            Some(SwapFault::Late) => {
                contents.late.push_back(LateSwap { key: key.to_owned(), expected, value: value.to_vec() });
            }
        }
        Err(ControlError::Unavailable("the test has lost the answer".to_owned()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, ControlError> {
        self.reach()?;
        let contents = self.shared.lock();
        let found = contents.keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, versioned)| (key.clone(), versioned.clone())).collect())
    }
}
