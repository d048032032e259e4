//! [`Walk`]: a comparison of a whole partition, range by range.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rialto::row::WhichIndex;
use rialto::{Durability, Error, SumRange, Table, TxOptions, fault_injection};

use super::comparison::{Comparison, Found};
use super::comparisons::Comparisons;
use super::report::PartitionComparison;
use crate::node::replica::{HostedReplica, Lead};
use crate::node::running::Parts;
use crate::node::transactions::system_rows;
use crate::protocol::replication::Member;
use crate::protocol::{NodeId, PartitionId};

/// The most rows of a range, and the bytes at which it ends.
const ROWS_MAX: u64 = 1_000;
const BYTES_MAX: u64 = 1 << 20;
/// The longest wait for a lock, while those of the range's other rows are held.
const LOCK_WITHIN: Duration = Duration::from_millis(20);
/// How many rows are tried, one time after the other, where locks are not to be had.
const TRIES: [u64; 8] = [ROWS_MAX, ROWS_MAX / 4, 50, 10, 1, 1, 1, 1];
/// How long the answers to a comparison are awaited.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How many comparisons may wait for their answers.
const AHEAD: usize = 8;
/// In the background it rests so many times as long as a comparison has taken, and this time at least.
const RESTS: u32 = 99;
const REST_MIN: Duration = Duration::from_millis(5);
/// How long a primary that does not serve at the moment is waited for.
const SERVES_WITHIN: Duration = Duration::from_secs(5);

/// How fast a partition is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// In the background: it rests most of the time, and gives way to one that an operator has asked for.
    Gentle,
    /// As fast as replicas answer.
    Full,
}

/// A comparison of a whole partition. It ends early if the primary does not go on.
pub struct Walk<'a> {
    comparisons: &'a Comparisons,
    parts: &'a Parts,
    pub(super) replica: &'a HostedReplica,
    lead: Lead,
    pace: Pace,
    pub(super) report: PartitionComparison,
    with: BTreeSet<NodeId>,
    sent: VecDeque<Sent>,
    /// Replicas that were found to differ: they take new copies.
    pub(super) differing: Vec<Member>,
}

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

impl<'a> Walk<'a> {
    pub fn new(
        comparisons: &'a Comparisons,
        parts: &'a Parts,
        replica: &'a HostedReplica,
        lead: Lead,
        pace: Pace,
    ) -> Walk<'a> {
        let PartitionId(partition) = replica.partition();
        Walk {
            comparisons,
            parts,
            replica,
            lead,
            pace,
            report: PartitionComparison { partition, ..PartitionComparison::default() },
            with: BTreeSet::new(),
            sent: VecDeque::new(),
            differing: Vec::new(),
        }
    }

    /// Compares all tables. What it finds is told to the node, and to the replicas.
    pub fn run(mut self) -> PartitionComparison {
        let walked = match self.standbys() {
            standbys if standbys.is_empty() => Err("no other replica is in sync".to_owned()),
            _ => self.tables(),
        };
        for sent in std::mem::take(&mut self.sent) {
            self.comparisons.forget(self.replica.partition(), sent.comparison.number);
        }
        if let Err(why) = walked {
            self.report.left_out.push(why);
        }
        self.report.replicas = self.with.iter().map(|node| self.parts.name_of(*node)).collect();
        self.report
    }

    fn tables(&mut self) -> Result<(), String> {
        let mut tables = self.lead.database().tables();
        tables.sort_by_key(|table| table.id().0);
        for table in tables {
            let (name, schema) = (table.name(), table.schema());
            let indexes = (0_u16..).zip(schema.indexes()).map(|(at, index)| Some((at, index.name.clone())));
            for index in std::iter::once(None).chain(indexes) {
                let of = Of { table: table.clone(), name: name.clone(), index };
                match self.ranges(&of) {
                    Ok(()) | Err(NotSent::Gone) => {}
                    Err(NotSent::Failed(why)) => {
                        self.report.left_out.push(format!("the rest of the table {name}: {why}"));
                    }
                    Err(NotSent::Over(why)) => return Err(why),
                }
            }
            self.report.tables += 1;
        }
        while let Some(sent) = self.sent.pop_front() {
            self.settle(sent).map_err(|not| match not {
                NotSent::Over(why) | NotSent::Failed(why) => why,
                NotSent::Gone => "a table was dropped meanwhile".to_owned(),
            })?;
        }
        Ok(())
    }

    fn ranges(&mut self, of: &Of) -> Result<(), NotSent> {
        let is_own = of.name == system_rows::TABLE && !fault_injection::is_on("comparison-of-its-own-row");
        let mut after = match (is_own, &of.index) {
            // The comparison's own row is not yet there when the primary sums, and is when the others do.
            (true, None) => Some(system_rows::comparison_key(&of.table).map_err(failed)?),
            _ => None,
        };
        loop {
            let began = Instant::now();
            let sent = self.send_some(of, &after)?;
            let took = began.elapsed();
            let next = (!sent.is_whole).then(|| sent.last.clone()).flatten();
            self.sent.push_back(sent);
            if self.sent.len() >= AHEAD
                && let Some(first) = self.sent.pop_front()
            {
                self.settle(first)?;
            }
            if self.pace == Pace::Gentle {
                let rest = (took * RESTS).max(REST_MIN);
                self.comparisons.rest(rest, || self.comparisons.is_asked() || !self.lead.goes_on());
            }
            match next {
                None => return Ok(()),
                next => after = next,
            }
        }
    }

    /// Compares the next rows, fewer of them where locks are not to be had.
    fn send_some(&mut self, of: &Of, after: &Option<Vec<u8>>) -> Result<Sent, NotSent> {
        let mut refused = String::new();
        for rows_max in TRIES {
            match self.send(of, (after.clone(), None), rows_max, 0)? {
                Ok(sent) => return Ok(sent),
                Err(error) => refused = error.to_string(),
            }
            self.comparisons.rest(LOCK_WITHIN, || false);
        }
        Err(NotSent::Failed(refused))
    }

    /// Writes a comparison of a range into the log: at most so many rows, of which some are shown. The inner error says which lock
    /// was not to be had.
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
            bytes_max: if rows_max > ROWS_MAX { u64::MAX } else { BYTES_MAX },
            show: usize::from(show),
        };
        let epoch = self.lead.epoch();
        self.comparisons.await_answers(self.replica.partition(), number, epoch);
        let options = TxOptions {
            // What it has written need not be waited for: if it is lost, nothing is answered.
            durability: Some(Durability::Memory),
            lock_timeout: Some(LOCK_WITHIN),
            ..TxOptions::default()
        };
        let early = match fault_injection::is_on("sum-of-another-transaction") {
            true => db.transact(|tx| tx.sum_range(&of.table, &range)).ok(),
            false => None,
        };
        let done = db.submit_with(&options, |tx| {
            let sum = early.clone().map_or_else(|| tx.sum_range(&of.table, &range), Ok)?;
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
                    Error::LockTimeout { .. } | Error::Deadlock { .. } | Error::WouldWait { .. } => {
                        Ok(Err(error))
                    }
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
    fn admit(&self) -> Result<crate::node::replica::Admitted, NotSent> {
        let began = Instant::now();
        loop {
            if self.comparisons.is_closed() {
                return Err(NotSent::Over("the node ends".to_owned()));
            }
            if self.pace == Pace::Gentle && self.comparisons.is_asked() {
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

    fn standbys(&self) -> Vec<Member> {
        let configuration = self.replica.status().configuration;
        configuration.iter().flat_map(|configuration| configuration.standbys()).collect()
    }

    /// Waits until all standbys have answered, or some time has passed.
    pub(super) fn answered(&self, sent: &Sent) -> Result<Answered, NotSent> {
        let (partition, number) = (self.replica.partition(), sent.comparison.number);
        let began = Instant::now();
        loop {
            let (standbys, answers) = (self.standbys(), self.comparisons.answers(partition, number));
            let has = |member: &Member| answers.iter().any(|(from, _)| from == member);
            let is_over = standbys.iter().all(has) || began.elapsed() > ANSWERS_WITHIN;
            if is_over || !self.lead.goes_on() || !self.comparisons.wait(LOCK_WITHIN) {
                self.comparisons.forget(partition, number);
            }
            if !self.lead.goes_on() || self.comparisons.is_closed() {
                return Err(NotSent::Over("the rest: the primary does not lead any more".to_owned()));
            }
            if is_over {
                return Ok(Answered { standbys, answers });
            }
        }
    }

    /// Takes what was answered to a comparison.
    fn settle(&mut self, sent: Sent) -> Result<(), NotSent> {
        let answered = self.answered(&sent)?;
        for member in &answered.standbys {
            let answer = answered.answers.iter().find(|(from, _)| from == member);
            let why = match answer {
                _ if self.differing.contains(member) => continue,
                None => format!("it has not answered within {} s", ANSWERS_WITHIN.as_secs()),
                Some((_, Found::Unknown(why))) => why.clone(),
                Some(_) => {
                    self.with.insert(member.node);
                    continue;
                }
            };
            let left_out = format!(
                "a part of the table {}, on {}: {why}",
                sent.of.name,
                self.parts.name_of(member.node)
            );
            if !self.report.left_out.contains(&left_out) {
                self.report.left_out.push(left_out);
            }
        }
        match sent.of.index {
            _ if answered.answers.is_empty() => {}
            None => self.report.rows += sent.rows,
            Some(_) => self.report.entries += sent.rows,
        }
        let mut suspects = answered.differing(&sent.found);
        suspects.retain(|member| !self.differing.contains(member));
        if !suspects.is_empty() {
            self.look_at_difference(&sent, suspects)?;
        }
        match answered.standbys.iter().all(|member| self.differing.contains(member)) {
            true => Err(NotSent::Over("the rest: no other replica is in sync".to_owned())),
            false => Ok(()),
        }
    }

    pub(super) fn name_of(&self, node: NodeId) -> String {
        self.parts.name_of(node)
    }

    pub(super) fn tell(&mut self, difference: super::Difference) {
        self.comparisons.found(difference.clone());
        self.report.differences.push(difference);
    }
}

fn failed(error: Error) -> NotSent {
    NotSent::Failed(error.to_string())
}
