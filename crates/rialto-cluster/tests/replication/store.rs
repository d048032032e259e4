//! A model of the control store, with its history.

use rialto_cluster::control::Revision;
use rialto_cluster::protocol::replication::{Configuration, Known, StoreIdentity};

/// The store: the values of the one key, of which the last one is in force.
pub struct ModelStore {
    pub identity: StoreIdentity,
    /// Requests that were sent before a restoration do not reach the store after it.
    pub servers: u64,
    pub history: Vec<Known>,
    pub is_away: bool,
}

impl ModelStore {
    pub fn new(first: Configuration) -> ModelStore {
        let identity = StoreIdentity(1);
        let known = Known { store: identity, revision: Revision(1), configuration: first };
        ModelStore { identity, servers: 0, history: vec![known], is_away: false }
    }

    pub fn now(&self) -> &Known {
        self.history.last().expect("a configuration")
    }

    /// A swap; the revision if it was done.
    pub fn swap(
        &mut self,
        store: StoreIdentity,
        expected: Revision,
        next: Configuration,
    ) -> Option<Revision> {
        let now = self.now();
        if store != self.identity || expected != now.revision {
            return None;
        }
        // What goes over the wire are bytes.
        let configuration = Configuration::from_bytes(&next.to_bytes()).expect("a consistent configuration");
        let revision = Revision(now.revision.0 + 1);
        self.history.push(Known { store, revision, configuration });
        Some(revision)
    }

    /// Goes back to an older state.
    pub fn restore(&mut self, keep: usize, identity: StoreIdentity) {
        self.history.truncate(keep);
        self.identity = identity;
        self.servers += 1;
        for known in &mut self.history {
            known.store = identity;
        }
    }
}
