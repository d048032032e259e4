//! [`Moves`]: the moves of replicas, as the control store has them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::control::{ControlError, ControlStore, Revision, Swapped};
use crate::protocol::replication::{Configuration, StoreIdentity};
use crate::protocol::{NodeId, PartitionId};

/// Before the number of a partition in the key of its move.
const MOVES: &str = "moves/";
/// How long a node is not tried again after a move to it has failed, unless a command asks for it.
const AVOIDED: Duration = Duration::from_secs(600);
/// The most failed moves that are kept of one partition.
const FAILED_MAX: usize = 8;

/// A change of where a partition's replicas are. At least one of `from` and `to` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The number of the node whose replica goes.
    pub from: Option<u32>,
    /// The number of the node that gets one.
    pub to: Option<u32>,
    /// What it is for.
    #[serde(default)]
    pub purpose: Purpose,
}

/// What a move is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// An operator wants it.
    #[default]
    Operator,
    /// The replica's node is away. It ends if the replica is in sync again before another one has taken its place.
    Repair,
    /// The replica was made by a move that has failed, and goes unless it is in sync meanwhile.
    TakenBack,
}

/// A move that has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedMove {
    /// The node that was to get the replica.
    pub to: u32,
    /// Why, in words.
    pub why: String,
    /// When, in seconds since 1970, by the clock of the node that led.
    pub at: u64,
}

impl FailedMove {
    fn is_recent(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        now < self.at.saturating_add(AVOIDED.as_secs())
    }
}

impl Move {
    /// A move that an operator wants.
    pub fn new(from: Option<u32>, to: Option<u32>) -> Move {
        Move { from, to, purpose: Purpose::Operator }
    }

    /// Whether a configuration is what it leads to.
    pub fn is_done(&self, configuration: &Configuration) -> bool {
        self.from.is_none_or(|from| !configuration.has(NodeId(from)))
            && self.to.is_none_or(|to| configuration.has(NodeId(to)))
    }
}

/// What the control store has of a partition's moves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// What is under way.
    under_way: Option<Move>,
    /// The moves that have failed, the newest last.
    #[serde(default)]
    failed: Vec<FailedMove>,
}

/// The moves that are under way, by partition, and the writes that have put them there.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    store: Option<StoreIdentity>,
    found: BTreeMap<PartitionId, (Entry, Revision)>,
    /// Keys whose bytes are no move. Nothing is done for their partitions.
    unreadable: BTreeMap<PartitionId, String>,
}

impl Moves {
    /// What the control store has. A key that cannot be read is told by [`Moves::unreadable`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(store: &dyn ControlStore) -> Result<Moves, ControlError> {
        let listed = store.list(MOVES)?;
        let mut moves = Moves { store: listed.store, ..Moves::default() };
        for (key, value) in listed.keys {
            let number = key.strip_prefix(MOVES).and_then(|number| number.parse().ok());
            // A key that names no partition is none of a partition's.
            let Some(number) = number.map(PartitionId) else { continue };
            match serde_json::from_slice(&value.value) {
                Ok(entry) => _ = moves.found.insert(number, (entry, value.revision)),
                Err(error) => {
                    let what = format!(
                        "the control store's key {key}: {error}; its partition's replicas do not move"
                    );
                    moves.unreadable.insert(number, what);
                }
            }
        }
        Ok(moves)
    }

    /// Whether it is known what is under way for a partition.
    pub fn is_known(&self, partition: PartitionId) -> bool {
        !self.unreadable.contains_key(&partition)
    }

    /// The keys that cannot be read, in words.
    pub fn unreadable(&self) -> impl Iterator<Item = &String> {
        self.unreadable.values()
    }

    /// The move of a partition, if there is one.
    pub fn of(&self, partition: PartitionId) -> Option<Move> {
        self.found.get(&partition)?.0.under_way
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (PartitionId, Move)> {
        self.found.iter().filter_map(|(partition, (entry, _))| Some((*partition, entry.under_way?)))
    }

    /// The moves that have failed lately, of any partition.
    pub fn failed<'m>(&'m self) -> impl Iterator<Item = (PartitionId, &'m FailedMove)> {
        let of = |(partition, (entry, _)): (&PartitionId, &'m (Entry, Revision))| {
            let partition = *partition;
            entry.failed.iter().map(move |failed| (partition, failed))
        };
        self.found.iter().flat_map(of).filter(|(_, failed)| failed.is_recent())
    }

    /// Why a node is not tried now, if so: a move to it has failed lately.
    pub fn why_avoided(&self, node: u32) -> Option<&FailedMove> {
        self.failed()
            .map(|(_, failed)| failed)
            .filter(|failed| failed.to == node)
            .max_by_key(|failed| failed.at)
    }

    /// Forgets the moves that have failed: a command tries them again.
    ///
    /// # Errors
    /// Those of the store.
    pub fn forget_failed(&mut self, store: &dyn ControlStore) -> Result<(), ControlError> {
        let of: Vec<PartitionId> = self.failed().map(|(partition, _)| partition).collect();
        for partition in of {
            let entry = Entry { under_way: self.of(partition), failed: Vec::new() };
            self.put(store, partition, entry)?;
        }
        Ok(())
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
        let failed = self.found.get(&partition).map_or_else(Vec::new, |(entry, _)| entry.failed.clone());
        self.put(store, partition, Entry { under_way: next, failed })
    }

    /// The same, for a move that has failed, for this reason.
    ///
    /// # Errors
    /// Those of the store.
    pub fn fail(
        &mut self,
        store: &dyn ControlStore,
        partition: PartitionId,
        next: Option<Move>,
        (to, why): (u32, String),
    ) -> Result<bool, ControlError> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let before = self.found.get(&partition).map_or_else(Vec::new, |(entry, _)| entry.failed.clone());
        let mut failed: Vec<FailedMove> =
            before.into_iter().filter(|failed| failed.to != to && failed.is_recent()).collect();
        failed.push(FailedMove { to, why, at });
        if failed.len() > FAILED_MAX {
            failed.remove(0);
        }
        self.put(store, partition, Entry { under_way: next, failed })
    }

    fn put(
        &mut self,
        store: &dyn ControlStore,
        partition: PartitionId,
        entry: Entry,
    ) -> Result<bool, ControlError> {
        let identity = match self.store {
            Some(identity) => identity,
            None => store.identify(StoreIdentity::draw())?,
        };
        let expected = self.found.get(&partition).map(|(_, revision)| *revision);
        let bytes = serde_json::to_vec(&entry).expect("a move has numbers and texts");
        match store.swap(identity, &format!("{MOVES}{:06}", partition.0), expected, &bytes)? {
            Swapped::Done(revision) => {
                self.found.insert(partition, (entry, revision));
                Ok(true)
            }
            Swapped::Lost | Swapped::AnotherStore => Ok(false),
        }
    }
}
