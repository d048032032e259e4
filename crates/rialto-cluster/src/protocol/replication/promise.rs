//! [`Promise`]: a standby's promise, as the primary counts it.

use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use crate::protocol::Moment;
use crate::protocol::replication::ReplicationOptions;

/// The number of a primary's request for a promise, unique in the primary's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked(pub u64);

/// A standby's promise ("none but you through me for this long"), as the primary counts it: from before it asked, less the
/// drift margin. One request is outstanding at a time, so an answer always belongs to a moment that is known. It stays
/// so until it is answered, or too old to be of use: a round trip may take longer than a heartbeat.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    outstanding: Option<(Asked, Moment)>,
    holds_until: Moment,
    unanswered_since: Option<Moment>,
}

impl Promise {
    /// No promise, and none asked for.
    pub fn none() -> Promise {
        Promise { outstanding: None, holds_until: Moment::ZERO, unanswered_since: None }
    }

    /// A request goes out now: this one if the last one was answered or is too old, else the last one again.
    pub fn ask(&mut self, next: Asked, now: Moment, options: &ReplicationOptions) -> Asked {
        self.unanswered_since.get_or_insert(now);
        let replaces = fault_injection::is_on("outstanding-request-replaced");
        match self.outstanding {
            Some((request, asked_at)) if now < asked_at + options.counted_promise() && !replaces => request,
            _ => {
                self.outstanding = Some((next, now));
                next
            }
        }
    }

    /// The standby has answered a request, now.
    pub fn given(&mut self, request: Asked, now: Moment, options: &ReplicationOptions) {
        if let Some((outstanding, asked_at)) = self.outstanding
            && outstanding == request
        {
            let from_its_answer = fault_injection::is_on("promise-counted-from-its-answer");
            let asked_at = if from_its_answer { now } else { asked_at };
            (self.outstanding, self.unanswered_since) = (None, None);
            self.holds_until = self.holds_until.max(asked_at + options.counted_promise());
        }
    }

    /// The primary itself stood still: what the standby has said meanwhile may not have been read yet.
    pub fn forgive(&mut self) {
        self.unanswered_since = None;
    }

    /// Until when it holds, if it does at this moment.
    pub fn holds_until(&self, now: Moment) -> Option<Moment> {
        self.holds(now).then_some(self.holds_until)
    }

    /// Whether it holds at this moment.
    pub fn holds(&self, now: Moment) -> bool {
        now < self.holds_until
    }

    /// Whether no promise has come for too long after a request.
    pub fn is_silent(&self, now: Moment, options: &ReplicationOptions) -> bool {
        self.unanswered_since.is_some_and(|since| now >= since + options.silent_after)
    }
}
