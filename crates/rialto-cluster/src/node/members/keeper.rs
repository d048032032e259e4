//! [`Keeper`]: carries out moves of the partitions that a node leads, and begins repairs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::fault_injection;

use super::hand_overs::HandOvers;
use super::moves::{Move, Purpose};
use super::placement::Placement;
use super::unheard::Unheard;
use crate::control::{ControlError, ControlStore};
use crate::node::replica::{Catching, HostedReplica};
use crate::protocol::replication::{Configuration, Once};
use crate::protocol::{NodeId, PartitionId};

/// The most repairs of one node at a time: each copies a partition.
const REPAIRS_MAX: usize = 2;

/// What a node does for the partitions that it leads: it carries out their moves, and begins one for each replica that was
/// away for too long.
pub struct Keeper {
    me: NodeId,
    /// After so long a replica whose node is away is made again elsewhere. None: never.
    repair_after: Option<Duration>,
    /// After so long a move whose new replica gets no further has failed; after a fifth of it, one whose new replica is
    /// not heard.
    move_patience: Duration,
    /// Since when replicas, which are not in sync, are not heard.
    unheard: Unheard,
    /// How far the new replica of a move is, and since when.
    progress: BTreeMap<PartitionId, (Move, Catching, Instant)>,
    /// When primaries were asked to hand over.
    handed_over: HandOvers,
    /// What keeps partitions from what is due for them, in words.
    trouble: BTreeMap<PartitionId, String>,
}

impl Keeper {
    /// A keeper that has seen nothing yet.
    pub fn new(me: NodeId, repair_after: Option<Duration>, move_patience: Duration) -> Keeper {
        Keeper {
            me,
            repair_after,
            move_patience,
            unheard: Unheard::default(),
            progress: BTreeMap::new(),
            handed_over: HandOvers::default(),
            trouble: BTreeMap::new(),
        }
    }

    /// What keeps partitions from what is due for them.
    pub fn trouble(&self) -> impl Iterator<Item = &String> {
        self.trouble.values()
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
        self.trouble.retain(|id, _| is_led(id));
        self.handed_over.retain(|id| is_led(&id) && placement.moves.of(id).is_some());
        self.progress.retain(|id, _| is_led(id));
        let mut repairs = placement.moves.all().filter(|(id, _)| is_led(id)).count();
        for (replica, configuration) in &led {
            let partition = replica.partition();
            if !placement.moves.is_known(partition) {
                continue;
            }
            // What this node knows may be newer than what was read.
            placement.configurations.insert(partition, configuration.clone());
            let lost = self.lost(partition, configuration, placement);
            self.trouble.remove(&partition);
            match placement.moves.of(partition) {
                Some(found) if found.is_done(configuration) => {
                    _ = placement.moves.set(store, partition, None)?
                }
                Some(found) if is_needless(found, configuration, placement) => {
                    let next = taken_back(found, configuration, placement);
                    placement.moves.set(store, partition, next)?;
                }
                Some(found) => match self.is_in_vain(found, replica, configuration, placement, &lost) {
                    Some(failed) => {
                        let next = taken_back(found, configuration, placement);
                        placement.moves.fail(store, partition, next, failed)?;
                    }
                    None => self.carry_out(found, replica, configuration, placement),
                },
                None if repairs >= REPAIRS_MAX => {}
                None => {
                    let next = self.repair(partition, &lost, placement);
                    if next.is_some() {
                        placement.moves.set(store, partition, next)?;
                        repairs += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// The move that makes a lost replica again elsewhere, if a replica is lost and there is a node for it.
    fn repair(&mut self, partition: PartitionId, lost: &[NodeId], placement: &Placement) -> Option<Move> {
        let mut no_room = None;
        for from in lost {
            match placement.leave(partition, from.0, lost, None) {
                Ok(next) => return Some(Move { purpose: Purpose::Repair, ..next }),
                Err(error) => no_room = no_room.or(Some((from, error))),
            }
        }
        if let Some((from, error)) = no_room {
            let what = format!("the replica of {partition} on {} is lost: {error}", placement.name(from.0));
            self.trouble.insert(partition, what);
        }
        None
    }

    fn note_unheard(&mut self, led: &[(&Arc<HostedReplica>, Configuration)]) {
        let of = |replica: &HostedReplica| {
            let partition = replica.partition();
            replica.unheard().into_iter().map(move |node| (partition, node))
        };
        let unheard = led.iter().flat_map(|(replica, _)| of(replica));
        if !self.unheard.note(Instant::now(), unheard) {
            self.progress.clear();
        }
    }

    /// The replicas of a partition that were not heard for too long, and those on nodes that have left the cluster.
    fn lost(
        &self,
        partition: PartitionId,
        configuration: &Configuration,
        placement: &Placement,
    ) -> Vec<NodeId> {
        let after = self.repair_after;
        let unheard = after.into_iter().flat_map(|after| self.unheard.longer_than(partition, after));
        let left = configuration.nodes().filter(|node| placement.left.contains(&node.0));
        let mut lost: Vec<NodeId> = unheard.chain(left).collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// Why a move has failed, if so, and the node that was to get the replica: the node is lost, is none of the
    /// cluster's any more, or is not heard, or its replica gets no further.
    fn is_in_vain(
        &mut self,
        found: Move,
        replica: &HostedReplica,
        configuration: &Configuration,
        placement: &Placement,
        lost: &[NodeId],
    ) -> Option<(u32, String)> {
        let partition = replica.partition();
        let to = found.to.map(NodeId)?;
        if configuration.life_in_sync(to).is_some() {
            self.progress.remove(&partition);
            return None;
        }
        if !configuration.has(to) && !placement.is_member(to.0) {
            return Some((to.0, "it gets no replicas any more".to_owned()));
        }
        let unheard_for = self.unheard.time(partition, to);
        if lost.contains(&to) || unheard_for.is_some_and(|time| time >= self.move_patience / 5) {
            let seconds = unheard_for.unwrap_or_default().as_secs();
            return Some((to.0, format!("its replica was not heard for {seconds} s: does the node run?")));
        }
        let now = replica.catching(to);
        let (_, _, since) = *self
            .progress
            .entry(partition)
            .and_modify(|before| {
                if before.0 != found || now.is_beyond(before.1) {
                    *before = (found, now, Instant::now());
                }
            })
            .or_insert_with(|| (found, now, Instant::now()));
        let stands_still = since.elapsed() >= self.move_patience;
        stands_still.then(|| {
            let seconds = self.move_patience.as_secs();
            let why = format!("its replica got no further for {seconds} s: see what the node itself prints");
            (to.0, why)
        })
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
        let once = once(found, placement);
        if !once.holds(from, configuration) {
            return;
        }
        if from != self.me {
            return replica.remove(from, once);
        }
        let partition = replica.partition();
        let (now, times) = (Instant::now(), self.handed_over.times(partition));
        let is_due = self.handed_over.is_due(partition, now);
        let standbys = || configuration.standbys().map(|member| member.node);
        let to = found.to.map(NodeId).or_else(|| standbys().find(|node| placement.is_member(node.0)));
        if times > 1 {
            let running = replica.running();
            let what = format!(
                "{partition} was to be handed over {times} times, and has {running} transactions open that keep it; it is \
                 tried again every {} s: end the sessions that leave transactions open",
                self.handed_over.pause(partition).as_secs()
            );
            self.trouble.insert(partition, what);
        }
        if let Some(to) = to.filter(|_| is_due) {
            self.handed_over.asked(partition, now);
            replica.switch_over(to);
        }
    }
}

/// The condition under which a replica may go: the one in its place is in sync, or as many others are as the partition
/// is to have.
fn once(found: Move, placement: &Placement) -> Once {
    if fault_injection::is_on("removed-before-the-other-is-in-sync") {
        return Once::Others(0);
    }
    match (found.purpose, found.to) {
        (Purpose::TakenBack, _) => Once::CatchesUp,
        (_, Some(to)) => Once::InSync(NodeId(to)),
        (_, None) => Once::Others(placement.replicas as usize),
    }
}

/// Whether a move is not to go on as it is: the replica that was lost is in sync again before another one is; the one that was
/// to be taken back is in sync; or one goes without another in its place, and too few others are in sync now.
fn is_needless(found: Move, configuration: &Configuration, placement: &Placement) -> bool {
    let is_in_sync = |node: u32| configuration.life_in_sync(NodeId(node)).is_some();
    let is_back = found.from.is_some_and(|from| is_in_sync(from) && placement.is_member(from));
    let needs_another = || {
        let from = found.from.map(NodeId).filter(|_| found.to.is_none());
        from.is_some_and(|from| !once(found, placement).holds(from, configuration))
    };
    match found.purpose {
        Purpose::Operator => needs_another(),
        Purpose::Repair if found.to.is_none() => needs_another(),
        Purpose::Repair => {
            is_back
                && found.to.is_some_and(|to| !is_in_sync(to))
                && !fault_injection::is_on("repair-of-what-is-back")
        }
        Purpose::TakenBack => found.from.is_some_and(is_in_sync),
    }
}

/// What follows a move that ends before it is done: the replica that it has made goes, if the partition has more than it is
/// to have.
fn taken_back(found: Move, configuration: &Configuration, placement: &Placement) -> Option<Move> {
    let to = found.to?;
    let is_learner = configuration.has(NodeId(to)) && configuration.life_in_sync(NodeId(to)).is_none();
    let is_one_more = configuration.nodes().count() > placement.replicas as usize;
    (is_learner && is_one_more).then_some(Move { from: Some(to), to: None, purpose: Purpose::TakenBack })
}
