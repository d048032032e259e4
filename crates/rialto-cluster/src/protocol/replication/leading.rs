//! [`Leading`]: a replica that leads.

use rialto::fault_injection;
use rialto::log::LogPoint;

use super::changes::Command;
use super::common::{BEGINNING, Common, earlier, later};
use super::configuration::{Configuration, Known, Member};
use super::event::{At, Effect, LogState, WithLog};
use super::message::{Fitness, Message, Stream};
use super::options::Unprotected;
use super::peer::Peer;
use super::promise::Asked;
use super::status::PeerStatus;
use crate::protocol::{Epoch, Moment, NodeId};

/// How a primary's time ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// It goes on.
    GoesOn,
    /// It takes no transactions and ships what there is, for a planned change.
    Draining { since: Moment, to: NodeId, log: Standing },
    /// It does not serve in this epoch any more; these messages say so.
    Released { at: Moment, to: NodeId, end: LogPoint, with: Vec<Member> },
    /// Its log has stopped.
    Stopped { at: Moment },
}

/// Whether the log of a primary that drains stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Moves,
    Still,
}

/// What a primary may answer at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Transactions at level 2 whose effects, and all that they have read, end here.
    pub level_2: LogPoint,
    /// The same for level 3.
    pub level_3: LogPoint,
}

/// A replica that leads: it ships its log, collects promises, says what may be answered, and changes which replicas are in
/// sync.
///
/// 1. `agreed` is in the memory of all replicas in sync, and of those that an open swap adds; with fewer than
///    `min_in_sync` also on this disk. It never goes back.
/// 2. No answer lies after `owed`: everything that was answered at level 2 or 3 in any epoch ends at or before it.
#[derive(Debug)]
pub(super) struct Leading {
    /// The epoch in which it began to lead.
    began: Epoch,
    /// Whether the database takes transactions.
    has_led: bool,
    /// When the opening of the database for transactions has got further last.
    opening_moved_at: Moment,
    pub(super) peers: Vec<Peer>,
    pub(super) agreed: LogPoint,
    pub(super) owed: LogPoint,
    next_heartbeat: Moment,
    last_ask: u64,
    streams: u64,
    pub(super) ending: Ending,
    /// What an operator wants, for each node, and when it was told last.
    pub(super) commands: Vec<(Command, Moment)>,
    served_since: Moment,
    last_step: Moment,
    /// Only for fault injection.
    served_at_last_step: bool,
}

impl Leading {
    pub fn new(epoch: Epoch, at: WithLog) -> Leading {
        Leading {
            began: epoch,
            has_led: false,
            opening_moved_at: at.now,
            peers: Vec::new(),
            agreed: BEGINNING,
            // What was answered in earlier epochs, or by an earlier process, is in this log.
            owed: if fault_injection::is_on("owed-begins-at-nothing") { BEGINNING } else { at.log.received },
            next_heartbeat: at.now,
            last_ask: 0,
            streams: 0,
            ending: Ending::GoesOn,
            commands: Vec::new(),
            served_since: at.now,
            last_step: at.now,
            served_at_last_step: false,
        }
    }

    pub fn led(&mut self) {
        self.has_led = true;
    }

    /// The database is being opened for transactions, and that has got further.
    pub fn opening_moved(&mut self, now: Moment) {
        self.opening_moved_at = now;
    }

    /// Its log has stopped.
    pub fn stopped(&mut self, now: Moment) {
        if !matches!(self.ending, Ending::Stopped { .. }) {
            self.ending = Ending::Stopped { at: now };
        }
    }

    /// The log stands still.
    pub fn drained(&mut self) {
        if let Ending::Draining { log, .. } = &mut self.ending {
            *log = Standing::Still;
        }
    }

    /// There is a new configuration, which this primary has swapped in.
    pub fn reconfigured(&mut self, common: &Common, now: Moment) {
        self.next_heartbeat = now;
        let Some(known) = &common.known else { return };
        self.peers.retain(|peer| known.configuration.has(peer.member.node));
    }

    pub fn switch_over(&mut self, common: &mut Common, now: Moment, to: NodeId) {
        let is_standby = common.current().is_some_and(|known| {
            known.configuration.life_in_sync(to).is_some() && known.configuration.primary != to
        });
        // What does not take transactions yet cannot drain.
        let has_led = self.has_led || fault_injection::is_on("drains-before-it-leads");
        if is_standby && has_led && matches!(self.ending, Ending::GoesOn) {
            self.ending = Ending::Draining { since: now, to, log: Standing::Moves };
            common.effect(Effect::Drain);
        }
    }

    /// Whether it serves at this moment: all standbys in sync, and those that an open swap adds, have promised (C1).
    pub fn serves(&self, common: &Common, now: Moment) -> bool {
        let Some(known) = common.current() else { return false };
        let has_ended = matches!(self.ending, Ending::Released { .. } | Ending::Stopped { .. })
            && !fault_injection::is_on("handed-over-and-serving");
        let may = self.has_led && !has_ended;
        may && in_force(common, &known.configuration)
            .flat_map(Configuration::standbys)
            .all(|member| self.peer(member).is_some_and(|peer| peer.promise.holds(now)))
    }

    /// What may be answered at this moment. A driver asks after it has run a transaction and before it answers it: the
    /// promises are looked at then (C1).
    pub fn answers(&self, common: &Common, now: Moment, log: LogState) -> Option<Answers> {
        let (level_2, on_disk) = (self.agreed, log.on_disk);
        self.answers_level_1(common, now).then(|| Answers { level_2, level_3: earlier(level_2, on_disk) })
    }

    /// Whether everything that ran may be answered at level 1.
    pub fn answers_level_1(&self, common: &Common, now: Moment) -> bool {
        match fault_injection::is_on("answers-unchecked") {
            true => self.served_at_last_step,
            false => self.serves(common, now),
        }
    }

    /// Whether a new transaction at level 2 may run.
    pub fn admits_level_2(&self, common: &Common) -> bool {
        let is_drained = !matches!(self.ending, Ending::GoesOn);
        !is_drained && common.current().is_some() && !self.refuses_level_2(common)
    }

    /// Whether commits at level 2 are refused, since too few replicas are in sync and the operator has chosen so.
    pub fn refuses_level_2(&self, common: &Common) -> bool {
        common.options.unprotected == Unprotected::Refused
            && common
                .current()
                .is_some_and(|known| known.configuration.in_sync.len() < common.options.min_in_sync)
    }

    /// A replica asks where the log ends. Only a primary that serves says so: at a moment after the question no other
    /// replica served, so all that was answered before the question is in this log.
    pub fn tell_end(&self, common: &mut Common, at: At, to: Member, asked_at: Moment) {
        let serves = self.serves(common, at.now) || fault_injection::is_on("end-told-without-promises");
        let Some(log) = at.log.filter(|_| serves) else { return };
        let (began, end, redo) = (self.began, log.received, self.agreed);
        common.send(to.node, Some(to.life), Message::EndIs { asked_at, began, end, redo });
    }

    /// The tables of a replica are not those of this one at the same place.
    pub fn differs(&mut self, member: Member) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.member == member) {
            peer.differs = true;
        }
    }

    /// A replica says how far it is.
    pub fn status(
        &mut self,
        common: &mut Common,
        now: Moment,
        from: Member,
        status: (Option<Asked>, Option<Stream>, Option<LogPoint>, Fitness),
    ) {
        let (promise, stream, received, fitness) = status;
        let Some(known) = &common.known else { return };
        if !known.configuration.has(from.node) {
            return;
        }
        // A member in sync is meant in its recorded life. One that has another is silent, and is dropped.
        let recorded = known.configuration.life_in_sync(from.node);
        // One that is in sync, or may be by an open swap, has answers that are to stay.
        let is_out =
            in_force(common, &known.configuration).all(|configuration| !configuration.is_in_sync(from));
        if recorded.is_some_and(|life| life != from.life) {
            return;
        }
        let position = self.peers.iter().position(|peer| peer.member.node == from.node);
        let peer = match position {
            Some(position) => &mut self.peers[position],
            None => {
                self.peers.push(Peer::new(from, BEGINNING));
                self.peers.last_mut().expect("the peer that was pushed")
            }
        };
        if peer.member.life != from.life {
            *peer = Peer::new(from, BEGINNING);
        }
        (peer.fitness, peer.heard_at) = (fitness, Some(now));
        if let Some(ask) = promise {
            peer.promise.given(ask, now, &common.options);
        }
        // Without an open database nothing can be sent to it, and before this one leads there is nothing to be sent.
        let Some(received) = received.filter(|_| self.has_led) else { return };
        if peer.differs && is_out && !fault_injection::is_on("differing-learner-goes-on") {
            // Its log is the primary's, and its tables are not: it takes a copy all the same.
            peer.cannot_follow();
            if now >= peer.next_stream {
                peer.next_stream = now + common.options.retry;
                self.streams += 1;
                let stream = Stream { epoch: self.began, number: self.streams };
                common.send(from.node, Some(from.life), Message::StartOver { stream, end: received });
            }
        } else if stream.is_some() && stream == peer.stream {
            peer.acknowledge(received, now);
        } else if now >= peer.next_stream {
            self.streams += 1;
            let stream = Stream { epoch: self.began, number: self.streams };
            peer.begin(stream, received, now + common.options.retry);
            common.effect(Effect::Ship { to: peer.member, stream, begin: received, end: received });
        }
    }

    /// The log does not have what a stream began with.
    pub fn cannot_ship(&mut self, common: &mut Common, to: NodeId, stream: Stream) {
        let is_meant = |peer: &&mut Peer| peer.member.node == to && peer.stream == Some(stream);
        if let Some(peer) = self.peers.iter_mut().find(is_meant) {
            let (member, end) = (peer.member, peer.acknowledged.unwrap_or(peer.sent));
            peer.cannot_follow();
            // One that is in sync, or may be by an open swap, has answers that are to stay. It is dropped first.
            let Some(known) = &common.known else { return };
            if in_force(common, &known.configuration).all(|configuration| !configuration.is_in_sync(member)) {
                common.send(to, Some(member.life), Message::StartOver { stream, end });
            }
        }
    }

    /// Does what time and the positions allow. False if it is to follow again: its log has stopped, or what it has handed over
    /// was not taken.
    pub fn advance(&mut self, common: &mut Common, at: At) -> bool {
        if self.is_over(common, at.now) {
            return false;
        }
        let Some(known) = common.current() else {
            common.want_read(at.now);
            return true;
        };
        let Some(at) = at.with_log() else { return true };
        if at.now >= self.last_step + common.options.heartbeat * 2 {
            self.peers.iter_mut().for_each(Peer::forgive);
        }
        self.last_step = at.now;
        if !self.has_led {
            self.hold_promises(common, &known, at);
            return true;
        }
        self.peers.iter_mut().for_each(|peer| peer.compare(at));
        self.agree(common, &known.configuration, at);
        self.served_at_last_step = self.serves(common, at.now);
        if self.served_at_last_step {
            self.served_since = at.now;
        } else if at.now >= self.served_since + common.options.promise {
            common.want_read(at.now);
        }
        self.ship(common, at);
        self.end_drain(common, &known.configuration, at);
        if at.now >= self.next_heartbeat {
            self.next_heartbeat = at.now + common.options.heartbeat;
            self.heartbeat(common, &known, at);
        }
        if common.store.open_swap().is_none()
            && matches!(self.ending, Ending::GoesOn | Ending::Draining { .. })
            && let Some(next) = self.change(common, &known.configuration, at)
            && common.is_store_there(at.now)
        {
            common.propose(&known, next);
            // What is promised and acknowledged counts from now on for both configurations.
            self.next_heartbeat = at.now;
        }
        true
    }

    /// Whether it has given the promises back so long ago that it follows, which opens its database anew.
    fn is_over(&self, common: &Common, now: Moment) -> bool {
        let ended_at = match self.ending {
            Ending::GoesOn | Ending::Draining { .. } => None,
            Ending::Stopped { .. } if fault_injection::is_on("stopped-log-for-ever") => None,
            Ending::Released { at, .. } | Ending::Stopped { at } => Some(at),
        };
        ended_at.is_some_and(|at| now >= at + common.options.promise)
    }

    /// What an operator is shown of the others.
    pub fn peers(&self, now: Moment) -> Vec<PeerStatus> {
        let show = |peer: &Peer| PeerStatus {
            member: peer.member,
            received: peer.acknowledged,
            sent: peer.sent,
            promised_until: peer.promise.holds_until(now),
            fitness: peer.fitness,
        };
        self.peers.iter().map(show).collect()
    }

    /// The replicas that are not in sync and were not heard for as long as a standby is before it is dropped.
    pub fn unheard(&self, common: &Common, now: Moment) -> Vec<NodeId> {
        let Some(known) = common.current() else { return Vec::new() };
        let is_heard = |node: NodeId| {
            let peer = self.peers.iter().find(|peer| peer.member.node == node);
            let heard_at = peer.and_then(|peer| peer.heard_at);
            heard_at.is_some_and(|heard_at| now < heard_at + common.options.silent_after)
        };
        let learners = known.configuration.learners.iter().map(|learner| learner.node);
        learners.filter(|node| !is_heard(*node)).collect()
    }

    fn peer(&self, member: Member) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.member == member)
    }

    /// What all replicas in sync have, by each configuration that may be in force (C3).
    fn agree(&mut self, common: &mut Common, known: &Configuration, at: WithLog) {
        let (mut all, mut needs_disk) = (at.log.received, false);
        for configuration in in_force_for_answers(common, known) {
            for member in configuration.standbys() {
                let Some(has) = self.peer(member).and_then(|peer| peer.acknowledged) else { return };
                all = earlier(all, has);
            }
            // One memory alone is never enough.
            needs_disk |= configuration.in_sync.len() < common.options.min_in_sync.max(2);
        }
        if needs_disk {
            all = earlier(all, at.log.on_disk);
            // Answers wait for the disk, which may not be in a hurry.
            common.is_on_disk(at);
        }
        if all.position > self.agreed.position {
            self.agreed = all;
            self.owed = later(self.owed, all);
            common.effect(Effect::AnswersGrew);
        }
    }

    fn ship(&mut self, common: &mut Common, at: WithLog) {
        for peer in &mut self.peers {
            if let Some((stream, begin, end)) = peer.next_to_send(at, &common.options) {
                common.effect(Effect::Ship { to: peer.member, stream, begin, end });
            }
        }
    }

    /// While its database is opened for transactions it asks for promises all the same. Otherwise a standby would take over
    /// from an opening that takes longer than a promise, be alone in sync, and have the others copy. An opening that gets
    /// nowhere is given up: the promises run out.
    fn hold_promises(&mut self, common: &mut Common, known: &Known, at: WithLog) {
        let is_stuck = at.now >= self.opening_moved_at + common.options.opening_patience
            && !fault_injection::is_on("stuck-opening-for-ever");
        let is_due = at.now >= self.next_heartbeat && !fault_injection::is_on("silent-while-it-opens");
        if is_due && !is_stuck {
            self.next_heartbeat = at.now + common.options.heartbeat;
            self.heartbeat(common, known, at);
        }
    }

    fn heartbeat(&mut self, common: &mut Common, known: &Known, at: WithLog) {
        let handover = match &self.ending {
            Ending::Released { end, with, to, .. } => Some((*end, with.clone(), Some(*to))),
            Ending::Stopped { .. } => Some((at.log.received, Vec::new(), None)),
            Ending::GoesOn | Ending::Draining { .. } => None,
        };
        if let Some((end, with, only)) = handover {
            for member in known.configuration.standbys() {
                if only.is_none_or(|to| to == member.node) {
                    let message = Message::Handover { end, with: with.clone() };
                    common.send(member.node, Some(member.life), message);
                }
            }
            return;
        }
        let redo = match fault_injection::is_on("redo-of-what-was-shipped") {
            true => at.log.received,
            false => self.agreed,
        };
        let me = common.me.node;
        for node in known.configuration.nodes().filter(|node| *node != me) {
            self.last_ask += 1;
            let mut ask = Asked(self.last_ask);
            let position = self.peers.iter().position(|peer| peer.member.node == node);
            let position = position.or_else(|| {
                // One in sync that has not been heard yet can be silent, too.
                let life = known.configuration.life_in_sync(node)?;
                self.peers.push(Peer::new(Member { node, life }, BEGINNING));
                Some(self.peers.len() - 1)
            });
            if let Some(position) = position {
                ask = self.peers[position].promise.ask(ask, at.now, &common.options);
            }
            let known = known.clone();
            common.send(node, None, Message::Heartbeat { known, ask, redo });
        }
    }

    /// A primary that drains releases its standby once all replicas in sync have all of its log, and its disk, too: then
    /// everything can be answered. The standby has its own disk take the log before its swap. The primary goes on if the
    /// standby is not in sync any more, or if that takes longer than a promise holds.
    fn end_drain(&mut self, common: &mut Common, known: &Configuration, at: WithLog) {
        let Ending::Draining { since, to, log } = self.ending else { return };
        let is_late = at.now >= since + common.options.promise;
        let target = known.standbys().find(|member| member.node == to && !is_late);
        if target.is_none() {
            self.ending = Ending::GoesOn;
            return common.effect(Effect::GoOn);
        }
        let end = at.log.received;
        let is_due = log == Standing::Still
            && common.store.open_swap().is_none()
            && common.is_on_disk(at)
            && self.agreed.position >= end.position;
        if is_due {
            // This replica closes its database, and would hold up the new primary until it is open again.
            let with = known.standbys().filter(|member| member.node != to).collect();
            self.ending = Ending::Released { at: at.now, to, end, with };
            self.next_heartbeat = at.now;
        }
    }
}

/// The configurations that may be in force: the known one, and the one that an open swap may have put in its place.
fn in_force<'c>(common: &'c Common, known: &'c Configuration) -> impl Iterator<Item = &'c Configuration> {
    std::iter::once(known).chain(common.store.open_swap().map(|swap| &swap.to))
}

/// The same, for answers.
fn in_force_for_answers<'c>(
    common: &'c Common,
    known: &'c Configuration,
) -> impl Iterator<Item = &'c Configuration> {
    let only_known = fault_injection::is_on("answers-by-the-known-configuration");
    in_force(common, known).take(if only_known { 1 } else { 2 })
}
