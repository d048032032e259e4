//! [`Following`]: a replica that does not lead: a standby, a learner, or one that is about to lead.

use rialto::Lsn;
use rialto::fault_injection;
use rialto::log::LogPoint;

use super::common::{BEGINNING, Common};
use super::configuration::{Configuration, Known, Loss, Member};
use super::event::{At, Contents, Effect, Report, WithLog};
use super::forcing::Forcing;
use super::message::{Fitness, Message, Stream};
use super::promise::Asked;
use crate::control::Revision;
use crate::protocol::{Epoch, Moment, NodeId};

/// The longest pause after a database that was to lead did not, in times of a promise. The pauses double up to this.
const PAUSE_MAX: u32 = 16;

/// A primary's word that it has stopped to serve.
#[derive(Debug)]
struct Handover {
    end: LogPoint,
    with: Vec<Member>,
}

/// How many times in a heartbeat a primary may be asked where its log ends.
const END_QUESTIONS_MAX: u32 = 64;

/// What is being done about a database that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartingOver {
    /// Nothing before this moment.
    From(Moment),
    /// The driver was asked to start over, and has not said how that ended.
    Runs,
}

/// What a primary was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    stream: Option<Stream>,
    received: Option<LogPoint>,
    fitness: Fitness,
}

/// A replica that does not lead. It takes blocks, gives promises, and sends a swap that makes it primary once its promise
/// has run out, if it may.
#[derive(Debug)]
pub(super) struct Following {
    /// The promise that it has given, or that an earlier process of its life may have given, holds until then.
    promised_until: Moment,
    /// When the primary was heard last.
    heard_at: Moment,
    next_status: Moment,
    told: Option<Told>,
    /// The stream that its log's end belongs to.
    stream: Option<Stream>,
    /// The place up to which the primary has let it redo its log.
    redone_to: Lsn,
    released: Option<Handover>,
    /// Members in sync that have declared a new life, for the known revision.
    declared: Vec<NodeId>,
    next_question: Moment,
    /// The primary is not asked before this moment where its log ends.
    next_end_question: Moment,
    starting_over: StartingOver,
    /// Its database was to lead and did not: it does not try before this moment.
    paused_until: Moment,
    pub forcing: Option<Forcing>,
}

impl Following {
    /// A replica that begins to follow. An earlier process, or its own time as primary, may have left a promise.
    pub fn new(common: &Common, now: Moment) -> Following {
        let forgets = fault_injection::is_on("promise-forgotten-by-an-opening");
        let pauses = match common.lead_failures {
            0 => 0,
            failures => (1_u32 << (failures - 1).min(16)).min(PAUSE_MAX),
        };
        Following {
            promised_until: if forgets { now } else { now + common.options.promise },
            heard_at: now,
            next_status: now,
            told: None,
            stream: None,
            redone_to: Lsn::ZERO,
            released: None,
            declared: Vec::new(),
            next_question: now,
            next_end_question: now,
            starting_over: StartingOver::From(now),
            paused_until: now + common.options.promise * pauses,
            forcing: None,
        }
    }

    /// There is a new configuration.
    pub fn reconfigured(&mut self, is_same_primary: bool) {
        self.released = None;
        self.declared.clear();
        if !is_same_primary {
            self.begin_anew();
        }
    }

    /// The database is open.
    pub fn opened(&mut self, now: Moment) {
        self.begin_anew();
        self.starting_over = StartingOver::From(now);
    }

    /// Nothing of what a primary has sent or allowed before counts.
    fn begin_anew(&mut self) {
        (self.stream, self.told, self.redone_to) = (None, None, Lsn::ZERO);
    }

    /// No whole database could be made.
    pub fn start_over_failed(&mut self, common: &Common, now: Moment) {
        self.starting_over = StartingOver::From(now + common.options.retry);
    }

    /// The primary asks for a promise, under the configuration that is known.
    pub fn heartbeat(&mut self, common: &mut Common, at: At, ask: Asked, redo: LogPoint) {
        self.heard_at = at.now;
        // A promise beside a swap that may be done would have two primaries serve (C1). One without a log that moves would
        // hold up all answers.
        let may_promise = common.fitness == Fitness::Fit
            && common.is_whole()
            && at.log.is_some()
            && (!common.has_open_swap() || fault_injection::is_on("promise-beside-a-swap"));
        if may_promise {
            self.promised_until = self.promised_until.max(at.now + common.options.promise);
        }
        self.allow_redo(common, at, redo);
        self.status(common, at, may_promise.then_some(ask));
    }

    /// A primary that is opening, or has not heard all replicas in sync yet, knows less than it, or an earlier process of
    /// it, has allowed before.
    fn allow_redo(&mut self, common: &mut Common, at: At, redo: LogPoint) {
        let is_more = redo.lsn > self.redone_to || fault_injection::is_on("redo-bound-goes-back");
        if self.stream.is_some() && at.log.is_some() && is_more {
            self.redone_to = redo.lsn;
            common.effect(Effect::RedoUpTo(redo.lsn));
        }
    }

    /// Asks the primary where its log ends, unless it was asked just now.
    pub fn ask_end(&mut self, common: &mut Common, at: At) {
        let Some(known) = common.current() else { return common.want_read(at.now) };
        let primary = known.configuration.primary;
        if at.now < self.next_end_question || primary == common.me.node {
            return;
        }
        self.next_end_question = at.now + common.options.heartbeat / END_QUESTIONS_MAX;
        let life = known.configuration.life_in_sync(primary);
        common.send(primary, life, Message::AskEnd { asked_at: at.now });
    }

    /// The primary says where its log ended. It counts for tables of a log that is a part of the primary's: its last block
    /// belongs to a stream that this primary has begun in the same time as primary.
    pub fn end_is(
        &mut self,
        common: &mut Common,
        at: At,
        asked_at: Moment,
        (began, end, redo): (Epoch, LogPoint, LogPoint),
    ) {
        self.allow_redo(common, at, redo);
        let follows = self.stream.is_some_and(|stream| stream.epoch == began)
            || fault_injection::is_on("end-of-any-log");
        if follows && at.log.is_some() {
            let from_its_answer = fault_injection::is_on("age-counted-from-the-answer");
            let asked_at = if from_its_answer { at.now } else { asked_at.min(at.now) };
            common.effect(Effect::EndKnown { asked_at, end });
        }
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
        let Some(log) = at.log else { return };
        let is_older = self.stream.is_some_and(|current| stream < current);
        // A replica that may be promoted by an open swap keeps the end that the swap was sent with.
        let keeps_end = common.has_open_swap() || common.fitness == Fitness::Unfit;
        if is_older || begin != log.received || keeps_end {
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
        let Some(log) = at.log else { return };
        let is_older = self.stream.is_some_and(|current| stream < current);
        // What an operator's force leads from is left alone.
        if is_older || end != log.received || common.has_open_swap() || self.forcing.is_some() {
            return;
        }
        if known.configuration.is_in_sync(common.me) {
            common.effect(Effect::Report(Report::CutOffRefused));
            return;
        }
        self.begin_start_over(common, known.configuration.primary);
    }

    /// From here on there is no whole database, also if the process dies: the file says so before anything is touched.
    fn begin_start_over(&mut self, common: &mut Common, primary: NodeId) {
        self.begin_anew();
        self.starting_over = StartingOver::Runs;
        common.copied_in = common.known.as_ref().map_or(Epoch(0), |known| known.configuration.epoch);
        if !fault_injection::is_on("half-copy-forgotten") {
            common.saved.contents = Contents::AmidACopy;
        }
        common.save();
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
        let is_new = !self.declared.contains(&from.node);
        if known.revision == revision && recorded.is_some_and(|life| life != from.life) && is_new {
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
        if !is_current {
            common.want_read(at.now);
        } else if at.now >= self.heard_at + common.options.promise {
            common.poll(at.now);
        }
        if !common.is_member() {
            return;
        }
        if self.told != Some(self.tells(common, at)) || at.now >= self.next_status {
            self.status(common, at, None);
        }
        if !is_current || common.store.open_swap().is_some() {
            return;
        }
        if !common.is_whole() {
            return self.go_on_starting_over(common, at.now, &known.configuration);
        }
        let is_primary = known.configuration.primary == common.me.node;
        if common.fitness == Fitness::Unfit || at.now < self.paused_until {
            if is_primary {
                self.give_way(common, at.now, &known.configuration);
            }
            return;
        }
        let Some(at) = at.with_log() else { return };
        let next = match is_primary {
            true => self.primary_again(common, at, &known),
            false => self.promotion(common, at, &known),
        };
        if let Some(next) = next
            && common.is_store_there(at.now)
        {
            common.propose(&known, next);
        }
    }

    /// A replica without a whole database gets one. One that is in sync all the same, by a store that was restored, say,
    /// waits until it is dropped.
    fn go_on_starting_over(&mut self, common: &mut Common, now: Moment, known: &Configuration) {
        let is_due = matches!(self.starting_over, StartingOver::From(from) if now >= from);
        if is_due && known.primary != common.me.node && !known.is_in_sync(common.me) {
            self.begin_start_over(common, known.primary);
        }
    }

    /// The recorded primary cannot lead now. It does not serve in this epoch any more, whatever comes, so it gives the
    /// promises back.
    fn give_way(&mut self, common: &mut Common, now: Moment, known: &Configuration) {
        if now < self.next_question || !known.is_in_sync(common.me) {
            return;
        }
        self.next_question = now + common.options.heartbeat;
        for member in known.standbys() {
            let message = Message::Handover { end: BEGINNING, with: Vec::new() };
            common.send(member.node, Some(member.life), message);
        }
    }

    /// The recorded primary leads only under a configuration that this process has swapped in itself: a swap that an earlier
    /// process has left open is then lost. In another life it waits until no other memory is left (C4).
    fn primary_again(&mut self, common: &mut Common, at: WithLog, known: &Known) -> Option<Configuration> {
        let configuration = &known.configuration;
        if configuration.is_in_sync(common.me) {
            return Some(configuration.again());
        }
        let believes_any_life = fault_injection::is_on("recorded-primary-of-any-life");
        let waited_for: Vec<Member> =
            configuration.standbys().filter(|member| !self.declared.contains(&member.node)).collect();
        if waited_for.is_empty() || believes_any_life {
            let next = configuration.led_by(common.me, &[]);
            // One that was alone had on its disk what was answered (C3).
            let is_loss = configuration.in_sync.len() > 1 && !fault_injection::is_on("loss-untold");
            return common
                .is_on_disk(at)
                .then(|| if is_loss { next.with_loss(Loss::Memories) } else { next });
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
    fn promotion(&mut self, common: &mut Common, at: WithLog, known: &Known) -> Option<Configuration> {
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

    fn tells(&self, common: &Common, at: At) -> Told {
        let received = at.log.filter(|_| common.is_whole()).map(|log| log.received);
        Told { stream: self.stream, received, fitness: common.fitness }
    }

    fn status(&mut self, common: &mut Common, at: At, promise: Option<Asked>) {
        let Some(primary) = common.known.as_ref().map(|known| known.configuration.primary) else { return };
        let told = self.tells(common, at);
        self.told = Some(told);
        self.next_status = at.now + common.options.heartbeat;
        if primary != common.me.node {
            let Told { stream, received, fitness } = told;
            common.send(primary, None, Message::Status { promise, stream, received, fitness });
        }
    }
}
