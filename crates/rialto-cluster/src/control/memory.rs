//! A control store in memory, with the faults that a test chooses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{
    Changed, ControlError, ControlStore, Found, Listed, Renewed, Revision, Swapped, Versioned, check_lengths,
    end_of,
};
use crate::protocol::replication::StoreIdentity;

/// A control store in memory, for tests: one client of it. [`MemoryStore::another_client`] makes more of them, each with
/// faults of its own, as each node has a connection of its own to etcd.
///
/// Revisions are counted as etcd counts them: the whole store has one counter, and a swap that changes nothing takes no
/// revision.
pub struct MemoryStore {
    shared: Arc<Shared>,
    faults: Mutex<Faults>,
}

/// What all clients share.
#[derive(Default)]
struct Shared {
    contents: Mutex<Contents>,
    /// Each write, each restoration, and each change of a client's access.
    changes: Condvar,
}

#[derive(Default)]
struct Contents {
    identity: Option<StoreIdentity>,
    keys: BTreeMap<String, Versioned>,
    /// The newest write's revision.
    newest: u64,
    /// Swaps on their way.
    late: VecDeque<LateSwap>,
}

/// A swap whose caller has been told that its outcome is unknown, and which has not reached the store yet.
struct LateSwap {
    store: StoreIdentity,
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
    identity: Option<StoreIdentity>,
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
        let _contents = self.shared.contents.lock();
        self.shared.changes.notify_all();
    }

    /// The next swap of this client that reaches the store has this fault. Further calls are for the swaps after it.
    pub fn fail_next_swap(&self, fault: SwapFault) {
        self.faults.lock().swaps.push_back(fault);
    }

    /// Lets the oldest [`SwapFault::Late`] swap of all clients reach the store. Gives what became of it; `None` if there is none.
    pub fn deliver_late_swap(&self) -> Option<Swapped> {
        let mut contents = self.shared.contents.lock();
        let late = contents.late.pop_front()?;
        let swapped = contents.swap(late.store, &late.key, late.expected, &late.value);
        self.shared.changes.notify_all();
        Some(swapped)
    }

    /// A copy of the store, as of now.
    pub fn backup(&self) -> Backup {
        let contents = self.shared.contents.lock();
        Backup { identity: contents.identity, keys: contents.keys.clone(), newest: contents.newest }
    }

    /// Puts the store back to an earlier state. Its counter of revisions goes back, too, as with etcd: later writes have
    /// revisions that other writes had before. Its identity is the earlier one, until [`ControlStore::renew_identity`]. Late
    /// swaps are still on their way.
    pub fn restore(&self, backup: &Backup) {
        let mut contents = self.shared.contents.lock();
        contents.identity = backup.identity;
        contents.keys.clone_from(&backup.keys);
        contents.newest = backup.newest;
        self.shared.changes.notify_all();
    }

    fn reach(&self) -> Result<(), ControlError> {
        match self.faults.lock().access {
            Access::Reached => Ok(()),
            Access::Away => Err(ControlError::Unavailable("the test has put it away".to_owned())),
        }
    }
}

impl Contents {
    fn swap(&mut self, store: StoreIdentity, key: &str, expected: Option<Revision>, value: &[u8]) -> Swapped {
        if self.identity != Some(store) && !rialto::fault_injection::is_on("swap-in-any-store") {
            return Swapped::AnotherStore;
        }
        if self.keys.get(key).map(|versioned| versioned.revision) != expected {
            return Swapped::Lost;
        }
        self.newest += 1;
        let revision = Revision(self.newest);
        self.keys.insert(key.to_owned(), Versioned { value: value.to_vec(), revision });
        Swapped::Done(revision)
    }

    fn set_identity(&mut self, identity: StoreIdentity) {
        self.newest += 1;
        self.identity = Some(identity);
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&String, &Versioned)> {
        self.keys.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
    }
}

impl ControlStore for MemoryStore {
    fn identify(&self, new: StoreIdentity) -> Result<StoreIdentity, ControlError> {
        self.reach()?;
        let mut contents = self.shared.contents.lock();
        if contents.identity.is_none() {
            contents.set_identity(new);
        }
        Ok(contents.identity.unwrap_or(new))
    }

    fn renew_identity(&self, from: StoreIdentity, to: StoreIdentity) -> Result<Renewed, ControlError> {
        self.reach()?;
        let mut contents = self.shared.contents.lock();
        match contents.identity {
            Some(now) if now == from => {
                contents.set_identity(to);
                Ok(Renewed::Done)
            }
            // The same call has renewed it before.
            Some(now) if now == to => Ok(Renewed::Done),
            _ => Ok(Renewed::AnotherStore),
        }
    }

    fn get(&self, key: &str) -> Result<Found, ControlError> {
        self.reach()?;
        let contents = self.shared.contents.lock();
        Ok(Found { store: contents.identity, value: contents.keys.get(key).cloned() })
    }

    fn swap(
        &self,
        store: StoreIdentity,
        key: &str,
        expected: Option<Revision>,
        value: &[u8],
    ) -> Result<Swapped, ControlError> {
        check_lengths(key, value)?;
        self.reach()?;
        let fault = self.faults.lock().swaps.pop_front();
        let mut contents = self.shared.contents.lock();
        self.shared.changes.notify_all();
        match fault {
            None => return Ok(contents.swap(store, key, expected, value)),
            Some(SwapFault::AnswerLost) => {
                contents.swap(store, key, expected, value);
            }
            Some(SwapFault::RequestLost) => {}
            Some(SwapFault::Late) => {
                let (key, value) = (key.to_owned(), value.to_vec());
                contents.late.push_back(LateSwap { store, key, expected, value });
            }
        }
        Err(ControlError::Unavailable("the test has lost the answer".to_owned()))
    }

    fn list(&self, prefix: &str) -> Result<Listed, ControlError> {
        self.reach()?;
        let contents = self.shared.contents.lock();
        let keys = contents.below(prefix).map(|(key, versioned)| (key.clone(), versioned.clone())).collect();
        Ok(Listed { store: contents.identity, newest: Revision(contents.newest), keys })
    }

    fn changed_since(
        &self,
        prefix: &str,
        since: Revision,
        patience: Duration,
    ) -> Result<Changed, ControlError> {
        let until = end_of(patience);
        let mut contents = self.shared.contents.lock();
        loop {
            self.reach()?;
            let is_newer = contents.below(prefix).any(|(_, versioned)| versioned.revision > since);
            if is_newer || Revision(contents.newest) < since {
                return Ok(Changed::Yes);
            }
            if Instant::now() >= until {
                return Ok(Changed::No);
            }
            let _ = self.shared.changes.wait_until(&mut contents, until);
        }
    }
}
