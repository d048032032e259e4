//! [`Keeper`]: carries out moves of the partitions that a node leads, and begins repairs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::fault_injection;

use super::moves::Move;
use super::placement::Placement;
use crate::control::{ControlError, ControlStore};
use crate::node::replica::HostedReplica;
use crate::protocol::replication::Configuration;
use crate::protocol::{NodeId, PartitionId};

/// After so long a primary that is to go is asked again to hand over: transactions may have kept it.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(10);
/// The most repairs of one node at a time: each copies a partition.
const REPAIRS_MAX: usize = 2;

/// What a node does for the partitions that it leads: it carries out their moves, and begins one for each replica that was
/// away for too long.
pub struct Keeper {
    me: NodeId,
    /// After so long a replica whose node is away is made again elsewhere. None: never.
    repair_after: Option<Duration>,
    /// Since when a replica, which is not in sync, is not heard.
    unheard: BTreeMap<(PartitionId, NodeId), Instant>,
    /// When a primary was asked last to hand over.
    handed_over: BTreeMap<PartitionId, Instant>,
}

impl Keeper {
    /// A keeper that has seen nothing yet.
    pub fn new(me: NodeId, repair_after: Option<Duration>) -> Keeper {
        Keeper { me, repair_after, unheard: BTreeMap::new(), handed_over: BTreeMap::new() }
    }

    /// Does what is due for these replicas, those that lead.
    ///
    /// # Errors
    /// Those of the store. The rest is done at the next call.
    pub fn look(
        &mut self,
        store: &dyn ControlStore,
        placement: &mut Placement,
        replicas: &[Arc<HostedReplica>],
    ) -> Result<(), ControlError> {
        let mut led = Vec::new();
        for replica in replicas {
            let status = replica.status();
            if let Some(configuration) = status.configuration.filter(|_| status.serves) {
                led.push((replica, configuration));
            }
        }
        self.note_unheard(&led);
        let is_led = |id: &PartitionId| led.iter().any(|(replica, _)| replica.partition() == *id);
        let mut repairs = placement.moves.all().filter(|(id, _)| is_led(id)).count();
        for (replica, configuration) in &led {
            let partition = replica.partition();
            // What this node knows may be newer than what was read.
            placement.configurations.insert(partition, configuration.clone());
            let lost = self.lost(partition);
            match placement.moves.of(partition) {
                Some(found)
                    if found.is_done(configuration) || is_in_vain(found, configuration, placement, &lost) =>
                {
                    placement.moves.set(store, partition, None)?;
                }
                Some(found) => self.carry_out(found, replica, configuration, placement),
                None if repairs >= REPAIRS_MAX => {}
                None => {
                    let next =
                        lost.first().and_then(|from| placement.leave(partition, from.0, &lost, None).ok());
                    if next.is_some() {
                        placement.moves.set(store, partition, next)?;
                        repairs += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn note_unheard(&mut self, led: &[(&Arc<HostedReplica>, Configuration)]) {
        let now = Instant::now();
        let before = std::mem::take(&mut self.unheard);
        for (replica, _) in led {
            for node in replica.unheard() {
                let key = (replica.partition(), node);
                self.unheard.insert(key, before.get(&key).copied().unwrap_or(now));
            }
        }
    }

    /// The replicas of a partition that were not heard for too long.
    fn lost(&self, partition: PartitionId) -> Vec<NodeId> {
        let Some(repair_after) = self.repair_after else { return Vec::new() };
        let of_partition = self.unheard.iter().filter(|((id, _), _)| *id == partition);
        let lost = of_partition.filter(|(_, since)| since.elapsed() >= repair_after);
        lost.map(|((_, node), _)| *node).collect()
    }

    /// Does the next step of a move.
    fn carry_out(
        &mut self,
        found: Move,
        replica: &HostedReplica,
        configuration: &Configuration,
        placement: &Placement,
    ) {
        if let Some(to) = found.to.map(NodeId)
            && !configuration.has(to)
        {
            return replica.add(to);
        }
        let Some(from) = found.from.map(NodeId) else { return };
        if !may_go(found, from, configuration, placement) {
            return;
        }
        if from != self.me {
            return replica.remove(from);
        }
        let is_due =
            self.handed_over.get(&replica.partition()).is_none_or(|at| at.elapsed() >= HAND_OVER_AGAIN);
        let standbys = || configuration.standbys().map(|member| member.node);
        let to = found.to.map(NodeId).or_else(|| standbys().find(|node| placement.is_member(node.0)));
        if let Some(to) = to.filter(|_| is_due) {
            self.handed_over.insert(replica.partition(), Instant::now());
            replica.switch_over(to);
        }
    }
}

/// Whether a replica may be removed: the one in its place is in sync, or it is missed by none.
fn may_go(found: Move, from: NodeId, configuration: &Configuration, placement: &Placement) -> bool {
    if fault_injection::is_on("removed-before-the-other-is-in-sync") {
        return true;
    }
    let others = configuration.in_sync.iter().filter(|member| member.node != from);
    match found.to {
        Some(to) => configuration.life_in_sync(NodeId(to)).is_some(),
        None => configuration.life_in_sync(from).is_none() || others.count() >= placement.replicas as usize,
    }
}

/// Whether a move comes to no end: the node that is to get the replica is lost, or gets none any more.
fn is_in_vain(found: Move, configuration: &Configuration, placement: &Placement, lost: &[NodeId]) -> bool {
    found.to.is_some_and(|to| {
        lost.contains(&NodeId(to)) || (!configuration.has(NodeId(to)) && !placement.is_member(to))
    })
}
