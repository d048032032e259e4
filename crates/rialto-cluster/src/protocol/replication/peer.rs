//! [`Peer`]: another replica, as the primary sees it.

use rialto::fault_injection;
use rialto::log::LogPoint;

use super::configuration::Member;
use super::event::WithLog;
use super::message::{Fitness, Stream};
use super::options::ReplicationOptions;
use super::promise::Promise;
use crate::protocol::Moment;

/// Whether blocks of the primary's log can follow what a replica has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerLog {
    /// As far as is known.
    CanFollow,
    /// The primary's log has gone another way, or is not there any more at that place.
    CannotFollow,
}

/// Another replica, as the primary sees it, in one life.
///
/// An acknowledgement counts only in the stream that the peer has now: the replica takes a stream only where its log's end
/// lies on the primary's log, so what it then has is the primary's.
#[derive(Debug)]
pub(super) struct Peer {
    pub member: Member,
    pub promise: Promise,
    pub fitness: Fitness,
    /// Whether its tables were found not to be its log, redone (C6). A new copy has another life.
    pub differs: bool,
    /// When it has said last how far it is, in whatever state its database was.
    pub heard_at: Option<Moment>,
    pub log: PeerLog,
    pub stream: Option<Stream>,
    /// Where the stream began. The tables may hold more than all replicas in sync have, up to here: a new copy has what the
    /// primary's tables had.
    pub began: LogPoint,
    /// What it has in memory, once it has taken the stream.
    pub acknowledged: Option<LogPoint>,
    /// What was sent.
    pub sent: LogPoint,
    progress_at: Moment,
    /// Since when it lacks blocks and has taken none.
    stuck_since: Option<Moment>,
    pub next_stream: Moment,
}

impl Peer {
    pub fn new(member: Member, beginning: LogPoint) -> Peer {
        Peer {
            member,
            promise: Promise::none(),
            fitness: Fitness::Fit,
            differs: false,
            heard_at: None,
            log: PeerLog::CanFollow,
            stream: None,
            began: beginning,
            acknowledged: None,
            sent: beginning,
            progress_at: Moment::ZERO,
            stuck_since: None,
            next_stream: Moment::ZERO,
        }
    }

    /// A stream begins where the replica's log ends.
    pub fn begin(&mut self, stream: Stream, end: LogPoint, next: Moment) {
        (self.stream, self.sent, self.next_stream) = (Some(stream), end, next);
        (self.acknowledged, self.began) = (None, end);
    }

    /// The stream cannot go on, or not begin.
    pub fn cannot_follow(&mut self) {
        self.log = PeerLog::CannotFollow;
        (self.stream, self.acknowledged) = (None, None);
    }

    /// The replica has everything up to here, in its stream.
    pub fn acknowledge(&mut self, received: LogPoint, now: Moment) {
        // It has what was not sent: its log is not the primary's, whatever stream it claims.
        let is_beyond = received.position > self.sent.position;
        if is_beyond || received.position == self.sent.position && received != self.sent {
            return self.cannot_follow();
        }
        if self.acknowledged.is_none_or(|before| received.position > before.position) {
            self.acknowledged = Some(received);
            (self.progress_at, self.stuck_since) = (now, None);
        }
        self.log = PeerLog::CanFollow;
    }

    /// The primary's log ends here now.
    pub fn compare(&mut self, at: WithLog) {
        let end = at.log.received.position;
        match self.acknowledged.is_some_and(|has| has.position >= end) {
            true => self.stuck_since = None,
            false => _ = self.stuck_since.get_or_insert(at.now),
        }
    }

    /// Whether it lacks blocks, and has taken none for too long.
    pub fn is_stuck(&self, now: Moment, options: &ReplicationOptions) -> bool {
        self.stuck_since.is_some_and(|since| now >= since + options.lag_max)
            && !fault_injection::is_on("stuck-standby-kept")
    }

    /// The primary itself stood still: what the replica has said meanwhile may not have been read yet.
    pub fn forgive(&mut self) {
        self.stuck_since = None;
        self.promise.forgive();
    }

    /// Which blocks are to be sent, in which stream: what seems to be lost, or what is new, up to the log's end.
    pub fn next_to_send(
        &mut self,
        at: WithLog,
        options: &ReplicationOptions,
    ) -> Option<(Stream, LogPoint, LogPoint)> {
        let (stream, acknowledged) = (self.stream?, self.acknowledged?);
        let is_lost =
            acknowledged.position < self.sent.position && at.now >= self.progress_at + options.retry;
        if is_lost {
            self.progress_at = at.now;
            return Some((stream, acknowledged, self.sent));
        }
        let on_its_way = self.sent.position.0.saturating_sub(acknowledged.position.0);
        let is_full = on_its_way >= options.window && !fault_injection::is_on("window-unlimited");
        let (begin, end) = (self.sent, at.log.received);
        if begin.position >= end.position || is_full {
            return None;
        }
        if acknowledged == begin {
            self.progress_at = at.now;
        }
        self.sent = end;
        Some((stream, begin, end))
    }
}
