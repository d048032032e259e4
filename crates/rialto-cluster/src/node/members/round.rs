//! [`Round`]: one step of a command that moves many replicas.

use std::collections::BTreeMap;
use std::fmt;

use super::moves::{FailedMove, Move};
use super::placement::{NoRoom, Placement};
use crate::control::{ControlError, ControlStore};
use crate::node::facts::{ClusterFacts, FactsError};
use crate::protocol::replication::Configuration;
use crate::protocol::{NodeId, PartitionId};

/// What a step of a command has found and done. The command takes steps until nothing is left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Moves that it has begun.
    pub begun: Vec<(PartitionId, Move)>,
    /// Moves that had begun before, of any command, and are not done.
    pub under_way: Vec<(PartitionId, Move)>,
    /// The replicas that the node still has. Of a balance: 1 as long as there is something to do.
    pub left: usize,
    /// Partitions for whose replicas there is no node.
    pub no_room: Vec<NoRoom>,
    /// Moves that have failed lately.
    pub failed: Vec<(PartitionId, FailedMove)>,
    /// The configurations of the partitions.
    pub configurations: BTreeMap<PartitionId, Configuration>,
}

impl Round {
    fn begin(placement: &Placement) -> Round {
        Round {
            under_way: placement.moves.all().collect(),
            failed: placement.moves.failed().map(|(partition, failed)| (partition, failed.clone())).collect(),
            configurations: placement.configurations.clone(),
            ..Round::default()
        }
    }
}

/// Why a command cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoundError {
    /// The control store does not give what it needs.
    Facts(FactsError),
    /// There is no node for a replica.
    NoRoom(NoRoom),
    /// The node, of this name, is not being drained any more.
    NotDraining(String),
}

impl fmt::Display for RoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundError::Facts(error) => error.fmt(f),
            RoundError::NoRoom(error) => error.fmt(f),
            RoundError::NotDraining(name) => write!(
                f,
                "{name} is not being drained any more: rialto cluster join was run for it. What is under way goes on; to drain \
                 it again: rialto cluster drain {name} --data DIR"
            ),
        }
    }
}

impl std::error::Error for RoundError {}

impl From<FactsError> for RoundError {
    fn from(error: FactsError) -> RoundError {
        RoundError::Facts(error)
    }
}

impl From<ControlError> for RoundError {
    fn from(error: ControlError) -> RoundError {
        RoundError::Facts(error.into())
    }
}

/// Has replicas leave a node that drains, so that the cluster has so many moves at a time at most. With a preferred node,
/// that one takes their places where it can.
///
/// # Errors
/// [`RoundError::NotDraining`] if the node is a member again; [`RoundError::NoRoom`] once nothing else is to do.
pub fn drain_round(
    store: &dyn ControlStore,
    facts: &ClusterFacts,
    node: u32,
    preferred: Option<u32>,
    at_a_time: usize,
) -> Result<Round, RoundError> {
    let mut placement = Placement::read(store, facts)?;
    if placement.is_member(node) && !rialto::fault_injection::is_on("drain-of-a-member") {
        return Err(RoundError::NotDraining(placement.name(node)));
    }
    let mut round = Round::begin(&placement);
    let here = placement.on(node);
    round.left = here.len();
    for partition in here {
        let is_there = placement.configurations[&partition].has(NodeId(node));
        match placement.moves.of(partition) {
            // It was to come here. A replica that is not added yet only has to stay away.
            Some(found) if found.to == Some(node) => {
                let next = is_there.then(|| placement.leave(partition, node, &[], preferred).ok()).flatten();
                placement.moves.set(store, partition, next)?;
            }
            Some(_) => {}
            None if round.under_way.len() + round.begun.len() >= at_a_time => {}
            None => match placement.leave(partition, node, &[], preferred) {
                Ok(next) => {
                    if placement.moves.set(store, partition, Some(next))? {
                        round.begun.push((partition, next));
                    }
                }
                Err(error) => round.no_room.push(error),
            },
        }
    }
    match round.no_room.first() {
        Some(error) if round.begun.is_empty() && round.under_way.is_empty() => {
            Err(RoundError::NoRoom(error.clone()))
        }
        _ => Ok(round),
    }
}

/// Begins moves that make the numbers of replicas on the nodes equal, so that the cluster has so many at a time at most.
///
/// # Errors
/// See [`RoundError`].
pub fn balance_round(
    store: &dyn ControlStore,
    facts: &ClusterFacts,
    at_a_time: usize,
) -> Result<Round, RoundError> {
    let mut placement = Placement::read(store, facts)?;
    let mut round = Round::begin(&placement);
    let mut next = placement.balance();
    while let Some((partition, found)) = next
        && round.under_way.len() + round.begun.len() < at_a_time
        && placement.moves.set(store, partition, Some(found))?
    {
        round.begun.push((partition, found));
        next = placement.balance();
    }
    round.left = usize::from(next.is_some() || !round.under_way.is_empty() || !round.begun.is_empty());
    Ok(round)
}
