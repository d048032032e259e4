//! [`Walk`]: a comparison of a whole partition, range by range.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rialto::{Table, fault_injection};

use super::comparison::Found;
use super::comparisons::Comparisons;
use super::difference::Proven;
use super::report::PartitionComparison;
use super::summing::{ANSWERS_WITHIN, NotSent, Of, ROWS_MAX, Sent, failed};
use crate::node::replica::{HostedReplica, Lead};
use crate::node::running::Parts;
use crate::node::transactions::system_rows;
use crate::protocol::{NodeId, PartitionId};

/// How many comparisons may wait for their answers.
const AHEAD: usize = 8;
/// In the background it rests so many times as long as a comparison has taken, and this time at least.
const RESTS: u32 = 99;
const REST_MIN: Duration = Duration::from_millis(5);
/// A replica that has left so many comparisons, one after the other, without an answer is left out of the rest.
const SILENT_MAX: u32 = 3;
/// Once a difference is proven, the rest is searched for others: the longest time for that, and the most of them.
const GOES_ON_FOR: Duration = Duration::from_secs(60);
const PROVEN_MAX: usize = 20;
/// How many lines say what was left out.
const LEFT_OUT_MAX: usize = 20;
/// How many times a table is compared anew after its definition has changed.
const DEFINITIONS_MAX: usize = 5;

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
    pub(super) comparisons: &'a Comparisons,
    pub(super) parts: &'a Parts,
    pub(super) replica: &'a HostedReplica,
    pub(super) lead: Lead,
    pub(super) pace: Pace,
    pub(super) report: PartitionComparison,
    with: BTreeSet<NodeId>,
    sent: VecDeque<Sent>,
    /// How many rows go into the next range: fewer where more have not gone well.
    pub(super) rows_max: u64,
    /// How many comparisons a replica has left without an answer, one after the other.
    silent: BTreeMap<NodeId, u32>,
    /// What was found to differ twice: it is acted on at the end.
    pub(super) proven: Vec<Proven>,
    /// Whether more replicas have agreed with each other than with the primary.
    pub(super) is_outvoted: bool,
    /// When the first difference was proven.
    pub(super) proven_at: Option<Instant>,
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
            rows_max: ROWS_MAX,
            silent: BTreeMap::new(),
            proven: Vec::new(),
            is_outvoted: false,
            proven_at: None,
        }
    }

    /// Compares all tables. However that ends, what was proven to differ is told to the node and to the replicas.
    pub fn run(mut self) -> PartitionComparison {
        let walked = match self.standbys() {
            standbys if standbys.is_empty() && self.parts.facts.replicas == 1 => Ok(()),
            standbys if standbys.is_empty() => Err("no other replica is in sync".to_owned()),
            // Of tables whose bytes make no sense.
            _ => catch_unwind(AssertUnwindSafe(|| self.tables())).unwrap_or_else(|_| {
                Err("the rest: the comparison has panicked, see the node's output".to_owned())
            }),
        };
        for sent in std::mem::take(&mut self.sent) {
            self.comparisons.forget(self.replica.partition(), sent.comparison.number);
        }
        if let Err(why) = walked {
            self.leave_out(why);
        }
        self.act();
        self.report.replicas = self.with.iter().map(|node| self.parts.name_of(*node)).collect();
        self.report
    }

    fn tables(&mut self) -> Result<(), String> {
        let mut tables = self.lead.database().tables();
        tables.sort_by_key(|table| table.id().0);
        for table in tables {
            self.table(table)?;
        }
        while let Some(sent) = self.sent.pop_front() {
            self.settle(sent)?;
        }
        Ok(())
    }

    /// Compares a table, anew if its definition changes meanwhile.
    fn table(&mut self, mut table: Table) -> Result<(), String> {
        let (id, name) = (table.id(), table.name());
        for _ in 0..DEFINITIONS_MAX {
            let Some(not) = self.indexes(&table)? else {
                self.report.tables += 1;
                return Ok(());
            };
            match (not, self.lead.database().tables().into_iter().find(|table| table.id() == id)) {
                (NotSent::Over(why), _) => return Err(why),
                // It was dropped.
                (_, None) => return Ok(()),
                (NotSent::Gone, Some(now)) => table = now,
                (NotSent::Failed(why), Some(_)) => {
                    self.leave_out(format!("the rest of the table {name}: {why}"));
                    return Ok(());
                }
            }
        }
        self.leave_out(format!("the rest of the table {name}: its definition changes again and again"));
        Ok(())
    }

    /// Compares a table by all its indexes. Gives why it has not gone on.
    fn indexes(&mut self, table: &Table) -> Result<Option<NotSent>, String> {
        let (name, schema) = (table.name(), table.schema());
        let indexes = (0_u16..).zip(schema.indexes()).map(|(at, index)| Some((at, index.name.clone())));
        for index in std::iter::once(None).chain(indexes) {
            let of = Of { table: table.clone(), name: name.clone(), index };
            if let Err(not) = self.ranges(&of)? {
                return Ok(Some(not));
            }
        }
        Ok(None)
    }

    /// Compares the ranges of a table by an index. The outer error ends the walk.
    fn ranges(&mut self, of: &Of) -> Result<Result<(), NotSent>, String> {
        let is_own = of.name == system_rows::TABLE && !fault_injection::is_on("comparison-of-its-own-row");
        let mut after = match (is_own, &of.index) {
            // The comparison's own row is not yet there when the primary sums, and is when the others do.
            (true, None) => match system_rows::comparison_key(&of.table) {
                Ok(key) => Some(key),
                Err(error) => return Ok(Err(failed(error))),
            },
            _ => None,
        };
        loop {
            let began = Instant::now();
            let sent = match self.send_some(of, &after) {
                Ok(Some(sent)) => sent,
                // Nothing but rows whose locks cannot be had.
                Ok(None) => return Ok(Ok(())),
                Err(not) => return Ok(Err(not)),
            };
            let took = began.elapsed();
            let next = (!sent.is_whole).then(|| sent.last.clone()).flatten();
            self.sent.push_back(sent);
            if self.sent.len() >= AHEAD
                && let Some(first) = self.sent.pop_front()
            {
                self.settle(first)?;
            }
            if self.pace == Pace::Gentle && self.proven_at.is_none() {
                let rest = (took * RESTS).max(REST_MIN);
                self.comparisons.rest(rest, || self.comparisons.is_asked() || !self.lead.goes_on());
            }
            match next {
                None => return Ok(Ok(())),
                next => after = next,
            }
        }
    }

    /// Whether a replica is not waited for any more.
    pub(super) fn is_given_up(&self, node: NodeId) -> bool {
        self.silent.get(&node).is_some_and(|times| *times >= SILENT_MAX)
    }

    /// Takes what was answered to a comparison. The error ends the walk.
    fn settle(&mut self, sent: Sent) -> Result<(), String> {
        let answered = match self.answered(&sent, None) {
            Ok(answered) => answered,
            Err(NotSent::Over(why)) => return Err(why),
            Err(NotSent::Failed(_) | NotSent::Gone) => return Ok(()),
        };
        for member in &answered.standbys {
            let answer = answered.answers.iter().find(|(from, _)| from == member);
            let why = match answer {
                _ if self.is_given_up(member.node) => continue,
                None => {
                    *self.silent.entry(member.node).or_default() += 1;
                    format!("it has not answered within {} s", ANSWERS_WITHIN.as_secs())
                }
                Some((_, found)) => {
                    self.silent.remove(&member.node);
                    match found {
                        Found::Unknown(why) => why.clone(),
                        _ => {
                            self.with.insert(member.node);
                            continue;
                        }
                    }
                }
            };
            let name = self.parts.name_of(member.node);
            self.leave_out(format!("a part of the table {}, on {name}: {why}", sent.of.name));
            if self.is_given_up(member.node) {
                self.leave_out(format!("the rest, on {name}: it does not answer"));
            }
        }
        match sent.of.index {
            _ if answered.answers.is_empty() => {}
            None => self.report.rows += sent.rows,
            Some(_) => self.report.entries += sent.rows,
        }
        let suspects = answered.differing(&sent.found);
        if !suspects.is_empty() {
            self.look_at_difference(&sent, &suspects);
        }
        let is_enough = self.proven.len() >= PROVEN_MAX
            || self.proven_at.is_some_and(|since| since.elapsed() > GOES_ON_FOR);
        if is_enough {
            return Err("the rest: there are enough differences".to_owned());
        }
        match self.standbys().iter().all(|member| self.is_given_up(member.node)) {
            true => Err("the rest: no other replica is in sync and answers".to_owned()),
            false => Ok(()),
        }
    }

    /// Says that something is not compared.
    pub(super) fn leave_out(&mut self, what: String) {
        let left_out = &mut self.report.left_out;
        if !left_out.contains(&what) && left_out.len() < LEFT_OUT_MAX {
            left_out.push(what);
        }
    }
}
