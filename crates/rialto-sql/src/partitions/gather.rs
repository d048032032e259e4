//! [`Gathered`]: the rows that the branches of one statement give, one after the other, or merged by their order.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use rialto::row::Value;

use super::message::{Answer, Notice, PartitionNumber, Reply, Request, Statement, Work};
use super::over::{Header, Over, first_error, unexpected};
use super::wire::Cells;
use crate::bind::Order;
use crate::error::Result;
use crate::run::sort_order;

/// What is wanted of the rows of several branches.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'o> {
    /// Those of the first branch, then those of the next, and so on.
    InTurn,
    /// By this order. The values of its keys come after those of each row.
    Merged(&'o [Order]),
}

/// The end of a statement in all of its branches.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The number that each branch gives for its tag.
    pub(crate) affected: Vec<u64>,
    /// The notices of the first branch: those of the others say the same.
    pub(crate) notices: Vec<Notice>,
}

/// The rows of one branch.
struct Source {
    partition: PartitionNumber,
    rows: VecDeque<Cells>,
    is_open: bool,
}

impl Gathered {
    /// Runs a statement in these partitions, and calls `visit` with each row, until it wants no more. After an error
    /// all branches have ended the statement.
    pub(crate) fn of(
        over: &mut Over,
        header: &Header,
        (partitions, statement): (&[PartitionNumber], &Statement),
        wanted: Wanted<'_>,
        mut visit: impl FnMut(Vec<Value>) -> Result<ControlFlow<()>>,
    ) -> Result<Gathered> {
        let then_commit = header.is_last && partitions.len() == 1 && !over.is_open();
        let works = partitions.iter().map(|partition| (*partition, Work::Statement(statement.clone())));
        let replies = over.run(header, works.collect(), then_commit)?;
        let mut gathered = Gathered { affected: vec![0; partitions.len()], notices: Vec::new() };
        let mut sources: Vec<Source> = partitions
            .iter()
            .zip(&replies)
            .map(|(partition, reply)| Source {
                partition: *partition,
                rows: VecDeque::new(),
                is_open: matches!(reply.answer, Ok(Answer::More(_))),
            })
            .collect();
        let visited = gathered.take(&mut sources, replies, None).and_then(|()| match wanted {
            Wanted::InTurn => gathered.in_turn(over, &mut sources, then_commit, &mut visit),
            Wanted::Merged(order) => gathered.merged(over, &mut sources, order, &mut visit),
        });
        if visited.is_err() && then_commit {
            // A branch that ends its statement early would commit what the statement has done so far.
            over.abandon();
            return visited.map(|()| gathered);
        }
        let closed = close(over, &sources, then_commit);
        visited.and(closed).map(|()| gathered)
    }

    /// Takes the rows of replies: of all sources, or of one.
    fn take(&mut self, sources: &mut [Source], replies: Vec<Reply>, only: Option<usize>) -> Result<()> {
        for (at, answer) in first_error(replies)?.into_iter().enumerate() {
            let at = only.unwrap_or(at);
            let source = &mut sources[at];
            let rows = match answer {
                Answer::More(rows) => rows,
                Answer::Done { rows, affected, notices } => {
                    source.is_open = false;
                    self.affected[at] = affected;
                    if at == 0 {
                        self.notices = notices;
                    }
                    rows
                }
                _ => return Err(unexpected()),
            };
            source.rows.extend(rows);
        }
        Ok(())
    }

    /// Asks a source for more rows, if it has any.
    fn fetch(&mut self, over: &mut Over, sources: &mut [Source], at: usize, then_commit: bool) -> Result<()> {
        while sources[at].rows.is_empty() && sources[at].is_open {
            let replies = over.go_on(vec![(sources[at].partition, Request::Fetch)], then_commit)?;
            // With an error the branch has ended the statement.
            sources[at].is_open = matches!(replies[..], [Reply { answer: Ok(Answer::More(_)), .. }]);
            self.take(sources, replies, Some(at))?;
        }
        Ok(())
    }

    fn in_turn(
        &mut self,
        over: &mut Over,
        sources: &mut [Source],
        then_commit: bool,
        visit: &mut impl FnMut(Vec<Value>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for at in 0..sources.len() {
            loop {
                while let Some(Cells(values)) = sources[at].rows.pop_front() {
                    if visit(values)?.is_break() {
                        return Ok(());
                    }
                }
                self.fetch(over, sources, at, then_commit)?;
                if sources[at].rows.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn merged(
        &mut self,
        over: &mut Over,
        sources: &mut [Source],
        order: &[Order],
        visit: &mut impl FnMut(Vec<Value>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        loop {
            for at in 0..sources.len() {
                self.fetch(over, sources, at, false)?;
            }
            // Of rows with equal keys, that of the first partition comes first.
            let mut least: Option<(usize, &[Value])> = None;
            for (at, source) in sources.iter().enumerate() {
                let Some(row) = source.rows.front() else { continue };
                let keys = &row.0[row.0.len() - order.len()..];
                if least.is_none_or(|(_, before)| sort_order(order, keys, before) == Ordering::Less) {
                    least = Some((at, keys));
                }
            }
            let Some((at, _)) = least else { return Ok(()) };
            let Some(Cells(mut values)) = sources[at].rows.pop_front() else { return Ok(()) };
            values.truncate(values.len() - order.len());
            if visit(values)?.is_break() {
                return Ok(());
            }
        }
    }
}

/// Ends the statement in the branches that have more rows.
fn close(over: &mut Over, sources: &[Source], then_commit: bool) -> Result<()> {
    let open = sources.iter().filter(|source| source.is_open);
    let requests: Vec<_> = open.map(|source| (source.partition, Request::Close)).collect();
    if requests.is_empty() {
        return Ok(());
    }
    first_error(over.go_on(requests, then_commit)?).map(drop)
}
