//! [`Moves`]: the moves of replicas, as the control store has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::{ControlError, ControlStore, Revision, Swapped};
use crate::protocol::replication::{Configuration, StoreIdentity};
use crate::protocol::{NodeId, PartitionId};

/// Before the number of a partition in the key of its move.
const MOVES: &str = "moves/";

/// A change of where a partition's replicas are. One of both is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The number of the node whose replica goes.
    pub from: Option<u32>,
    /// The number of the node that gets one.
    pub to: Option<u32>,
}

impl Move {
    /// Whether a configuration is what it leads to.
    pub fn is_done(&self, configuration: &Configuration) -> bool {
        self.from.is_none_or(|from| !configuration.has(NodeId(from)))
            && self.to.is_none_or(|to| configuration.has(NodeId(to)))
    }
}

/// The moves that are under way, by partition, and the writes that have put them there.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    store: Option<StoreIdentity>,
    found: BTreeMap<PartitionId, (Option<Move>, Revision)>,
}

impl Moves {
    /// What the control store has.
    ///
    /// # Errors
    /// Those of the store; [`ControlError::Refused`] for bytes that are no move.
    pub fn read(store: &dyn ControlStore) -> Result<Moves, ControlError> {
        let listed = store.list(MOVES)?;
        let mut found = BTreeMap::new();
        for (key, value) in listed.keys {
            let wrong =
                |what: &dyn std::fmt::Display| ControlError::Refused(format!("the key {key}: {what}"));
            let number = key.strip_prefix(MOVES).and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| wrong(&"it names no partition"))?;
            let parsed = serde_json::from_slice(&value.value).map_err(|error| wrong(&error))?;
            found.insert(PartitionId(number), (parsed, value.revision));
        }
        Ok(Moves { store: listed.store, found })
    }

    /// The move of a partition, if there is one.
    pub fn of(&self, partition: PartitionId) -> Option<Move> {
        self.found.get(&partition)?.0
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (PartitionId, Move)> {
        self.found.iter().filter_map(|(partition, (found, _))| Some((*partition, (*found)?)))
    }

    /// Gives a partition another move, or none, in place of the one that was read. False if it has changed meanwhile: the
    /// caller reads again.
    ///
    /// # Errors
    /// Those of the store.
    pub fn set(
        &mut self,
        store: &dyn ControlStore,
        partition: PartitionId,
        next: Option<Move>,
    ) -> Result<bool, ControlError> {
        let identity = match self.store {
            Some(identity) => identity,
            None => store.identify(StoreIdentity::draw())?,
        };
        let expected = self.found.get(&partition).map(|(_, revision)| *revision);
        let bytes = serde_json::to_vec(&next).expect("a move has two numbers");
        match store.swap(identity, &format!("{MOVES}{:06}", partition.0), expected, &bytes)? {
            Swapped::Done(revision) => {
                self.found.insert(partition, (next, revision));
                Ok(true)
            }
            Swapped::Lost | Swapped::AnotherStore => Ok(false),
        }
    }
}
