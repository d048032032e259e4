//! How a walk sums a range at the primary, and what it is answered.

use std::time::{Duration, Instant};

use rialto::row::WhichIndex;
use rialto::{Durability, Error, SumRange, Table, TxOptions};

use super::comparison::{Comparison, Found};
use super::stepping::{STEPS_MAX, Stepping};
use super::walk::{Pace, Walk};
use crate::node::replica::Admitted;
use crate::node::transactions::system_rows;
use crate::protocol::NodeId;
use crate::protocol::replication::Member;

/// The most rows of a range, and the bytes at which it ends.
pub const ROWS_MAX: u64 = 1_000;
const BYTES_MAX: u64 = 1 << 20;
/// The longest wait for a lock, while those of the range's other rows are held.
pub const LOCK_WITHIN: Duration = Duration::from_millis(20);
/// The longest time in which a range's locks are taken and held.
const RANGE_WITHIN: Duration = Duration::from_millis(100);
/// How many times one row is tried if its lock cannot be had.
const TRIES: usize = 3;
/// How long the answers to a comparison are awaited.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How long a primary that does not serve at the moment is waited for.
const SERVES_WITHIN: Duration = Duration::from_secs(5);

/// A table, by one of its indexes.
#[derive(Clone)]
pub struct Of {
    pub table: Table,
    pub name: String,
    /// The position and the name of a secondary index.
    pub index: Option<(u16, String)>,
}

/// A comparison that is in the log.
pub struct Sent {
    pub of: Of,
    pub comparison: Comparison,
    /// What the primary has found.
    pub found: Found,
    pub rows: u64,
    /// The key of the last row; where the next range begins, unless this was the last one.
    pub last: Option<Vec<u8>>,
    pub is_whole: bool,
}

/// What was answered to a comparison.
pub struct Answered {
    /// The standbys, as the configuration has them now.
    pub standbys: Vec<Member>,
    pub answers: Vec<(Member, Found)>,
}

/// Why a range is not compared.
pub enum NotSent {
    /// The walk is over: the primary does not go on, or gives way.
    Over(String),
    /// The table or the index is not there any more.
    Gone,
    /// The rest of the table is left out, for this reason.
    Failed(String),
}

impl Answered {
    /// The replicas that have something else than the primary.
    pub fn differing(&self, primary: &Found) -> Vec<Member> {
        let differs = |(_, found): &&(Member, Found)| primary.is_same(found) == Some(false);
        self.answers.iter().filter(differs).map(|(member, _)| *member).collect()
    }
}

impl Walk<'_> {
    /// Compares the next rows: fewer of them where locks cannot be had, or it takes long; where one row alone cannot be
    /// locked, those after it. None if there are none.
    pub(super) fn send_some(&mut self, of: &Of, after: &Option<Vec<u8>>) -> Result<Option<Sent>, NotSent> {
        let mut tried = 0;
        while tried < TRIES {
            match self.send(of, (after.clone(), None), self.rows_max, 0)? {
                Ok(sent) => {
                    self.rows_max = (self.rows_max * 2).min(ROWS_MAX);
                    return Ok(Some(sent));
                }
                Err(_) if self.rows_max == 1 => tried += 1,
                Err(_) => self.rows_max = (self.rows_max / 4).max(1),
            }
            self.comparisons.rest(LOCK_WITHIN, || false);
        }
        self.step_over(of, after)
    }

    /// Compares the first row after those whose locks cannot be had. None if there is none.
    fn step_over(&mut self, of: &Of, after: &Option<Vec<u8>>) -> Result<Option<Sent>, NotSent> {
        let mut stepping = Stepping::new(after.as_deref().unwrap_or_default());
        let Ok(mut found) = self.send(of, (Some(stepping.last()), None), 1, 0)? else {
            self.leave_out(format!("the rest of the table {}: other transactions keep locks of it", of.name));
            return Ok(None);
        };
        for _ in 0..STEPS_MAX {
            let Some(key) = stepping.next() else { break };
            let sent = self.send(of, (Some(key.clone()), None), 1, 0)?;
            stepping.tried(key, sent.is_ok());
            if let Ok(nearer) = sent {
                self.comparisons.forget(self.replica.partition(), found.comparison.number);
                found = nearer;
            }
        }
        let (name, within) = (&of.name, LOCK_WITHIN.as_millis());
        self.leave_out(format!(
            "rows of the table {name}: other transactions keep their locks for longer than {within} ms"
        ));
        Ok(Some(found))
    }

    /// Writes a comparison of a range into the log: at most so many rows, of which some are shown. The inner error says
    /// which lock could not be had.
    pub(super) fn send(
        &self,
        of: &Of,
        (after, to): (Option<Vec<u8>>, Option<Vec<u8>>),
        rows_max: u64,
        show: u16,
    ) -> Result<Result<Sent, Error>, NotSent> {
        let admitted = self.admit()?;
        let db = admitted.database();
        let system = db.table(system_rows::TABLE).map_err(failed)?;
        let number = self.comparisons.next_number();
        let index = of.index.as_ref().map(|(at, _)| *at);
        let range = SumRange {
            index: index.map_or(WhichIndex::Primary, |at| WhichIndex::Secondary(usize::from(at))),
            after,
            to,
            rows_max,
            // A second comparison is of the whole range.
            bytes_max: if rows_max > ROWS_MAX { u64::MAX } else { BYTES_MAX },
            show: usize::from(show),
        };
        let epoch = self.lead.epoch();
        self.comparisons.await_answers(self.replica.partition(), number, epoch);
        let options = TxOptions {
            // What it has written need not be waited for: if it is lost, nothing is answered.
            durability: Some(Durability::Memory),
            lock_timeout: Some(LOCK_WITHIN),
            timeout: Some(RANGE_WITHIN),
            ..TxOptions::default()
        };
        let done = db.submit_with(&options, |tx| {
            let sum = tx.sum_range(&of.table, &range)?;
            let to = if sum.is_whole { range.to.clone() } else { sum.last.clone() };
            let (by, table, after) = (self.parts.me, of.table.id().0, range.after.clone());
            let comparison = Comparison { number, by, epoch, table, index, after, to, show };
            system_rows::put_comparison(tx, &system, comparison.to_bytes())?;
            Ok((sum, comparison))
        });
        let ((sum, comparison), _ticket) = match done {
            Ok(done) => done,
            Err(error) => {
                self.comparisons.forget(self.replica.partition(), number);
                return match error {
                    Error::LockTimeout { .. }
                    | Error::Timeout { .. }
                    | Error::Deadlock { .. }
                    | Error::WouldWait { .. } => Ok(Err(error)),
                    Error::NoSuchTable { .. } | Error::TableChanged { .. } | Error::NoSuchIndex { .. } => {
                        Err(NotSent::Gone)
                    }
                    error => Err(failed(error)),
                };
            }
        };
        let (of, rows, last, is_whole) = (of.clone(), sum.rows, sum.last.clone(), sum.is_whole);
        Ok(Ok(Sent { of, comparison, found: Found::of(sum), rows, last, is_whole }))
    }

    /// Takes part in the partition's transactions, so that a planned change of the primary waits for it.
    fn admit(&self) -> Result<Admitted, NotSent> {
        let began = Instant::now();
        loop {
            if self.comparisons.is_closed() {
                return Err(NotSent::Over("the node ends".to_owned()));
            }
            // A difference that is proven is told first.
            if self.pace == Pace::Gentle && self.comparisons.is_asked() && self.proven_at.is_none() {
                return Err(NotSent::Over("an operator asks for another one".to_owned()));
            }
            match self.lead.admit() {
                Ok(admitted) => return Ok(admitted),
                Err(_) if self.lead.goes_on() && began.elapsed() < SERVES_WITHIN => {
                    self.comparisons.wait(LOCK_WITHIN);
                }
                Err(not) => return Err(NotSent::Over(format!("the rest: {not}"))),
            }
        }
    }

    pub(super) fn standbys(&self) -> Vec<Member> {
        let configuration = self.replica.status().configuration;
        configuration.iter().flat_map(|configuration| configuration.standbys()).collect()
    }

    /// Whether a replica is a standby in this life, or a learner.
    pub(super) fn is_member(&self, member: Member) -> bool {
        let configuration = self.replica.status().configuration;
        configuration.is_some_and(|configuration| {
            let is_learner = configuration.learners.iter().any(|learner| learner.node == member.node);
            is_learner || configuration.standbys().any(|standby| standby == member)
        })
    }

    /// Waits until all standbys, or the one that is meant, have answered, or some time has passed. One that has left several
    /// comparisons without an answer is not waited for. What is no member any more has not answered.
    pub(super) fn answered(&self, sent: &Sent, of: Option<NodeId>) -> Result<Answered, NotSent> {
        let (partition, number) = (self.replica.partition(), sent.comparison.number);
        let began = Instant::now();
        loop {
            let (standbys, mut answers) = (self.standbys(), self.comparisons.answers(partition, number));
            let is_awaited = |member: &&Member| match of {
                Some(node) => member.node == node,
                None => !self.is_given_up(member.node),
            };
            let has = |member: &Member| answers.iter().any(|(from, _)| from == member);
            let has_one = of.is_none_or(|node| answers.iter().any(|(from, _)| from.node == node));
            let is_over =
                (standbys.iter().filter(is_awaited).all(has) && has_one) || began.elapsed() > ANSWERS_WITHIN;
            if is_over || !self.lead.goes_on() || !self.comparisons.wait(LOCK_WITHIN) {
                self.comparisons.forget(partition, number);
            }
            if !self.lead.goes_on() || self.comparisons.is_closed() {
                return Err(NotSent::Over("the rest: the primary does not lead any more".to_owned()));
            }
            if is_over {
                answers.retain(|(from, _)| self.is_member(*from));
                return Ok(Answered { standbys, answers });
            }
        }
    }
}

pub fn failed(error: Error) -> NotSent {
    NotSent::Failed(error.to_string())
}
