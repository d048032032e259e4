//! Which change of the configuration a primary makes.

use std::time::Duration;

use rialto::fault_injection;

use super::common::Common;
use super::configuration::{Configuration, Member};
use super::event::{Once, WithLog};
use super::leading::{Ending, Leading};
use super::message::Fitness;
use super::peer::{Peer, PeerLog};
use crate::protocol::{Moment, NodeId};

/// The most commands of an operator that a primary keeps. Further ones are not taken: their senders repeat them anyway.
const COMMANDS_MAX: usize = 64;
/// A command that is not repeated for so long is dropped: what it was for may be over. Its sender repeats it about each
/// second.
const COMMAND_LASTS: Duration = Duration::from_secs(4);

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// One more replica.
    Add(Member),
    /// No replica on this node, while this is so.
    Remove(NodeId, Once),
}

impl Command {
    fn node(self) -> NodeId {
        match self {
            Command::Add(member) => member.node,
            Command::Remove(node, _) => node,
        }
    }

    /// The configuration that it asks for, if it is another one.
    fn next(self, known: &Configuration) -> Option<Configuration> {
        match self {
            Command::Add(member) => (!known.has(member.node)).then(|| known.with_learner(member)),
            Command::Remove(node, once) => {
                let may_go = once.holds(node, known) || fault_injection::is_on("wish-without-its-condition");
                (known.has(node) && known.primary != node && may_go).then(|| known.without_replica(node))
            }
        }
    }

    /// Whether a configuration is what it asks for.
    fn is_done(self, known: &Configuration) -> bool {
        match self {
            Command::Add(member) => known.has(member.node),
            Command::Remove(node, _) => !known.has(node),
        }
    }
}

impl Leading {
    /// An operator wants this, instead of what was wanted for the same node before.
    pub fn command(&mut self, command: Command, now: Moment) {
        self.commands.retain(|(other, _)| other.node() != command.node());
        if self.commands.len() < COMMANDS_MAX {
            self.commands.push((command, now));
        }
    }

    /// The next configuration, if one is due: standbys that hold up the partition are dropped, then an operator's commands are
    /// followed, then a learner that has everything gets in sync.
    pub fn change(
        &mut self,
        common: &mut Common,
        known: &Configuration,
        at: WithLog,
    ) -> Option<Configuration> {
        let lost: Vec<NodeId> = known
            .standbys()
            .filter(|member| self.is_lost(common, *member, at))
            .map(|member| member.node)
            .collect();
        if !lost.is_empty() {
            return self.if_safe(common, known, at, known.without(&lost));
        }
        if !matches!(self.ending, Ending::GoesOn) {
            return None;
        }
        let goes_on = fault_injection::is_on("wish-for-ever");
        self.commands.retain(|(command, told_at)| {
            !command.is_done(known) && (at.now < *told_at + COMMAND_LASTS || goes_on)
        });
        if let Some(next) = self.commands.iter().find_map(|(command, _)| command.next(known)) {
            return self.if_safe(common, known, at, next);
        }
        let ready = self.peers.iter().find(|peer| self.is_ready(common, known, peer, at))?;
        Some(known.with(ready.member))
    }

    /// The next configuration. If it leaves this replica alone in sync: only once its disk has everything that was
    /// answered (C3).
    fn if_safe(
        &self,
        common: &mut Common,
        known: &Configuration,
        at: WithLog,
        next: Configuration,
    ) -> Option<Configuration> {
        let is_safe = next.in_sync.len() > 1
            || known.in_sync.len() == 1
            || at.log.on_disk.position >= self.owed.position
            || fault_injection::is_on("drop-without-disk");
        if !is_safe {
            common.is_on_disk(at);
        }
        is_safe.then_some(next)
    }

    fn is_lost(&self, common: &Common, member: Member, at: WithLog) -> bool {
        let peer = self.peers.iter().find(|peer| peer.member.node == member.node);
        peer.is_some_and(|peer| {
            peer.member.life != member.life
                || peer.fitness == Fitness::Unfit
                || (peer.differs && !fault_injection::is_on("differing-standby-kept"))
                || peer.log == PeerLog::CannotFollow
                || peer.promise.is_silent(at.now, &common.options)
                || peer.is_stuck(at.now, &common.options)
        })
    }

    fn is_ready(&self, common: &Common, known: &Configuration, peer: &Peer, at: WithLog) -> bool {
        known.learners.iter().any(|learner| learner.node == peer.member.node)
            && peer.fitness == Fitness::Fit
            && !peer.differs
            && peer.promise.holds(at.now)
            // The promise of one that was just dropped holds on.
            && !peer.promise.is_silent(at.now, &common.options)
            && !peer.is_stuck(at.now, &common.options)
            && self.agreed.position >= peer.began.position
            && peer.acknowledged.is_some_and(|has| {
                has.position >= self.owed.position || fault_injection::is_on("learner-added-behind")
            })
    }
}
