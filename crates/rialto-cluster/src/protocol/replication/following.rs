//! [`Following`]: a replica that does not lead: a standby, a learner, or one that is about to lead.

use rialto::fault_injection;
use rialto::log::LogPoint;

use super::common::Common;
use super::configuration::{Configuration, Known, Member};
use super::event::{At, Effect, Report};
use super::forcing::Forcing;
use super::message::{Fitness, Message, Stream};
use super::promise::Asked;
use crate::control::Revision;
use crate::protocol::{Moment, NodeId};

/// A primary's word that it has stopped to serve.
#[derive(Debug)]
struct Handover {
    end: LogPoint,
    with: Vec<Member>,
}

/// A replica that does not lead. It takes blocks, gives promises, and sends a swap that makes it primary once its promise
/// has run out, if it may.
#[derive(Debug)]
pub(super) struct Following {
    /// Until then the promise that it has given, or an earlier process of its life may have given, holds.
    promised_until: Moment,
    /// When the primary was heard last.
    heard_at: Moment,
    next_status: Moment,
    /// The stream and the end that the primary was told last.
    told: Option<(Option<Stream>, LogPoint)>,
    /// The stream that its log's end belongs to.
    stream: Option<Stream>,
    released: Option<Handover>,
    /// Members in sync that have declared a new life, for the known revision.
    declared: Vec<NodeId>,
    next_question: Moment,
    pub forcing: Option<Forcing>,
}

impl Following {
    /// A replica that begins to follow. An earlier process, or its own time as primary, may have left a promise.
    pub fn new(common: &Common, now: Moment) -> Following {
        let forgets = fault_injection::is_on("promise-forgotten-by-an-opening");
        Following {
            promised_until: if forgets { now } else { now + common.options.promise },
            heard_at: now,
            next_status: now,
            told: None,
            stream: None,
            released: None,
            declared: Vec::new(),
            next_question: now,
            forcing: None,
        }
    }

    /// There is a new configuration.
    pub fn reconfigured(&mut self, is_same_primary: bool) {
        self.released = None;
        self.declared.clear();
        if !is_same_primary {
            (self.stream, self.told) = (None, None);
        }
    }

    /// The primary asks for a promise, under the configuration that is known.
    pub fn heartbeat(&mut self, common: &mut Common, at: At, ask: Asked, redo: LogPoint) {
        self.heard_at = at.now;
        // A promise beside a swap that may be done would have two primaries serve (C1).
        let may_promise = common.fitness == Fitness::Fit
            && (!common.has_open_swap() || fault_injection::is_on("promise-beside-a-swap"));
        if may_promise {
            self.promised_until = self.promised_until.max(at.now + common.options.promise);
        }
        if self.stream.is_some() {
            common.effect(Effect::RedoUpTo(redo.lsn));
        }
        self.status(common, at, may_promise.then_some(ask));
    }

    /// The primary sends blocks. Those that do not begin where the log ends are not taken; the status says where it ends.
    pub fn blocks(
        &mut self,
        common: &mut Common,
        at: At,
        stream: Stream,
        (begin, end): (LogPoint, LogPoint),
    ) {
        self.heard_at = at.now;
        let is_older = self.stream.is_some_and(|current| stream < current);
        // A replica that may be promoted by an open swap keeps the end that the swap was sent with.
        if is_older || begin != at.log.received || common.has_open_swap() {
            return;
        }
        self.stream = Some(stream);
        if end != begin {
            common.effect(Effect::Append { end });
        }
    }

    /// The primary's log does not go through an end that this log had.
    pub fn start_over(&mut self, common: &mut Common, at: At, stream: Stream, end: LogPoint) {
        let Some(known) = common.current() else { return };
        let is_older = self.stream.is_some_and(|current| stream < current);
        if is_older || end != at.log.received || common.has_open_swap() {
            return;
        }
        if known.configuration.is_in_sync(common.me) {
            common.effect(Effect::Report(Report::CutOffRefused));
            return;
        }
        let primary = known.configuration.primary;
        (self.stream, self.told) = (None, None);
        common.effect(Effect::StartOver { primary });
    }

    /// The primary of the known configuration has stopped to serve in its epoch.
    pub fn handed_over(&mut self, end: LogPoint, with: Vec<Member>) {
        self.released = Some(Handover { end, with });
    }

    /// A member has answered whether it has a new life.
    pub fn declared(&mut self, common: &Common, from: Member, revision: Revision) {
        let Some(known) = common.current() else { return };
        let recorded = known.configuration.life_in_sync(from.node);
        if known.revision == revision && recorded.is_some_and(|life| life != from.life) {
            self.declared.push(from.node);
        }
    }

    /// Does what time, the log's positions and the known configuration allow.
    pub fn advance(&mut self, common: &mut Common, at: At) {
        if let Some(forcing) = &mut self.forcing {
            return forcing.advance(common, at);
        }
        let Some(known) = common.known.clone() else { return common.want_read(at.now) };
        let is_current = common.current().is_some();
        if !is_current || at.now >= self.heard_at + common.options.promise {
            common.want_read(at.now);
        }
        if self.told.is_none_or(|told| told != (self.stream, at.log.received)) || at.now >= self.next_status {
            self.status(common, at, None);
        }
        if !is_current || common.store.open_swap().is_some() || common.fitness == Fitness::Unfit {
            return;
        }
        let next = if known.configuration.primary == common.me.node {
            self.primary_again(common, at, &known)
        } else {
            self.promotion(common, at, &known)
        };
        if let Some(next) = next {
            common.propose(&known, next);
        }
    }

    /// The recorded primary leads only under a configuration that this process has swapped in itself: a swap that an earlier
    /// process has left open is then lost. In another life it waits until no other memory is left (C4).
    fn primary_again(&mut self, common: &mut Common, at: At, known: &Known) -> Option<Configuration> {
        let configuration = &known.configuration;
        if configuration.is_in_sync(common.me) {
            return Some(configuration.again());
        }
        let believes_any_life = fault_injection::is_on("recorded-primary-of-any-life");
        let waited_for: Vec<Member> =
            configuration.standbys().filter(|member| !self.declared.contains(&member.node)).collect();
        if waited_for.is_empty() || believes_any_life {
            return common.is_on_disk(at).then(|| configuration.led_by(common.me, &[]));
        }
        if at.now >= self.next_question {
            self.next_question = at.now + common.options.heartbeat;
            for member in waited_for {
                common.send(member.node, None, Message::AskLife { revision: known.revision });
            }
        }
        None
    }

    /// A standby leads once its promise has run out or was given back, and its disk has all of its log: everything that was
    /// answered at level 2 or 3 is then on the disk of the only replica in sync (C3).
    fn promotion(&mut self, common: &mut Common, at: At, known: &Known) -> Option<Configuration> {
        let configuration = &known.configuration;
        let is_free = at.now >= self.promised_until || self.released.is_some();
        if !configuration.is_in_sync(common.me) || !is_free {
            return None;
        }
        if !common.is_on_disk(at) && !fault_injection::is_on("promotion-without-disk") {
            return None;
        }
        let with = match &self.released {
            // Their logs end where this one does.
            Some(handover) if handover.end == at.log.received => handover.with.as_slice(),
            _ => &[],
        };
        let with: Vec<Member> =
            with.iter().copied().filter(|member| configuration.is_in_sync(*member)).collect();
        Some(configuration.led_by(common.me, &with))
    }

    fn status(&mut self, common: &mut Common, at: At, promise: Option<Asked>) {
        let Some(primary) = common.known.as_ref().map(|known| known.configuration.primary) else { return };
        self.told = Some((self.stream, at.log.received));
        self.next_status = at.now + common.options.heartbeat;
        if primary != common.me.node {
            let (stream, received, fitness) = (self.stream, at.log.received, common.fitness);
            common.send(primary, None, Message::Status { promise, stream, received, fitness });
        }
    }
}
