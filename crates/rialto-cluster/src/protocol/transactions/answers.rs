//! The answers of requests (C12).
//!
//! The answer of a request is a row of its deciding partition, written in one packet with the effects. The deciding
//! partition is a function of the request, so each retry comes to the same one.
//!
//! Expiry: a request is run, or answered from its row, for [`LIFETIME`] after its client first sent it. A row is kept
//! for [`LIFETIME`] and [`CLOCK_MARGIN`], by the clock of the partition's primary. So a request runs twice only if the
//! clocks of two primaries of a partition, or of a client and a primary, differ by more than the margin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Request, Work};

/// How long after its first sending a request may be sent again.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// How far the clocks of clients and nodes may lie apart.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(3600);

/// What a partition knows of a request.
#[derive(Debug)]
pub enum Found<W: Work> {
    /// It has not been answered: it may run.
    New,
    /// It has been answered.
    Answered(W::Reply),
    /// A later request of its session has been answered, or it is older than [`LIFETIME`], or numbered by a clock that
    /// is further ahead than [`CLOCK_MARGIN`], so that its row would stay for longer: it may not run.
    TooOld,
}

/// The last answer of each session.
#[derive(Debug)]
pub struct Answers<W: Work> {
    rows: BTreeMap<u64, (Request, W::Reply)>,
    /// The same, by when their requests were issued.
    by_age: BTreeSet<(Duration, u64)>,
}

impl<W: Work> Answers<W> {
    pub(super) fn open(rows: Vec<(Request, W::Reply)>) -> Answers<W> {
        let mut answers = Answers { rows: BTreeMap::new(), by_age: BTreeSet::new() };
        rows.into_iter().for_each(|(request, reply)| answers.put(request, reply));
        answers
    }

    /// Looks for a request's answer.
    pub fn find(&self, request: Request, now: Duration) -> Found<W> {
        match self.rows.get(&request.session) {
            Some((of, reply)) if of.number == request.number => Found::Answered(reply.clone()),
            Some((of, _)) if of.number > request.number => Found::TooOld,
            _ if now > request.issued.saturating_add(LIFETIME) => Found::TooOld,
            _ if request.issued > now.saturating_add(CLOCK_MARGIN) => Found::TooOld,
            _ => Found::New,
        }
    }

    /// Takes note of an answer whose row is durable.
    pub(super) fn put(&mut self, request: Request, reply: W::Reply) {
        let is_later = self.rows.get(&request.session).is_some_and(|(of, _)| of.number > request.number);
        if !is_later {
            let before = self.rows.insert(request.session, (request, reply));
            if let Some((before, _)) = before {
                self.by_age.remove(&(before.issued, before.session));
            }
            self.by_age.insert((request.issued, request.session));
        }
    }

    /// Takes out a request whose row has expired, if there is one.
    pub(super) fn expire(&mut self, now: Duration) -> Option<Request> {
        let (issued, session) = *self.by_age.first()?;
        if now <= issued.saturating_add(LIFETIME + CLOCK_MARGIN) {
            return None;
        }
        self.by_age.pop_first();
        self.rows.remove(&session).map(|(request, _)| request)
    }
}
