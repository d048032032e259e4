//! [`Over`]: what a session over partitions keeps of them, and of its transaction's branches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rialto::row::Schema;
use rialto::{Database, Error, Table};

use super::known::{KnownTable, KnownTables};
use super::message::{
    Answer, Choices, Level, Opening, PartitionNumber, Reply, Request, Run, Savepoints, Work,
};
use super::placement::placement;
use super::reads::{Positions, ReplicaReads, Written};
use super::scratch::Scratch;
use super::wire::{Cause, Told};
use super::{Branches, Partitions};
use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::Name;
use crate::prepared::find_table;

/// How long the catalog of a session may lack a definition that the partitions have.
pub(crate) const CATALOG_LAG_MAX: Duration = Duration::from_secs(5);

/// What every request of a statement has.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) choices: Choices,
    pub(crate) now: i64,
    pub(crate) savepoints: Savepoints,
    /// Whether the client may be told of rows before the transaction has ended.
    pub(crate) settle: bool,
    /// Whether the statement is alone in its transaction, and nothing follows it there.
    pub(crate) is_last: bool,
    /// If the transaction begins with this statement: what it accepts of replicas; `None` if it reads at primaries.
    pub(crate) reads: Option<ReplicaReads>,
}

impl Header {
    fn request(&self, work: Work, then_commit: bool) -> Request {
        let Header { choices, now, savepoints, settle, .. } = self;
        let (choices, now, savepoints, settle) = (choices.clone(), *now, *savepoints, *settle);
        Request::Run(Box::new(Run { choices, now, savepoints, settle, then_commit, work }))
    }
}

/// The partitions, and the branches of the open transaction.
pub(crate) struct Over {
    pub(crate) partitions: Arc<dyn Partitions>,
    opening: Opening,
    cancel: Arc<Cancel>,
    branches: Option<Box<dyn Branches>>,
    /// The partitions in which there is a branch, in order.
    open: Vec<PartitionNumber>,
    known: KnownTables,
    /// The tables as the open transaction has defined them.
    scratch: Option<Scratch>,
    /// Whether an error has ended the branches of the open block.
    pub(crate) has_lost_branches: bool,
    /// Whether the session's owner has said that nothing follows the next statement in its block.
    pub(crate) next_is_last: bool,
    /// See [`Over::take_committed`].
    has_committed: bool,
    /// The partitions in which the open transaction has written.
    writing: BTreeSet<PartitionNumber>,
    /// The level of the last request.
    level: Option<Level>,
    /// Where the last transaction has written that was committed.
    written: Vec<Written>,
}

impl Over {
    pub(crate) fn new(partitions: Arc<dyn Partitions>, opening: Opening, cancel: Arc<Cancel>) -> Over {
        Over {
            partitions,
            opening,
            cancel,
            branches: None,
            open: Vec::new(),
            known: KnownTables::default(),
            scratch: None,
            has_lost_branches: false,
            next_is_last: false,
            has_committed: false,
            writing: BTreeSet::new(),
            level: None,
            written: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.partitions.count()
    }

    /// Whether the transaction has a branch.
    pub(crate) fn is_open(&self) -> bool {
        self.branches.is_some()
    }

    /// Whether the only statement of the transaction was committed with its last reply, since the last call. Then no
    /// cancellation takes that back.
    pub(crate) fn take_committed(&mut self) -> bool {
        std::mem::take(&mut self.has_committed)
    }

    /// The partition in which a replicated table is read: one with a branch, if there is one.
    pub(crate) fn handiest(&self) -> PartitionNumber {
        let nearest = self.partitions.nearest();
        match self.open.binary_search(&nearest) {
            Err(_) if !self.open.is_empty() => self.open[0],
            _ => nearest,
        }
    }

    pub(crate) fn all(&self) -> Vec<PartitionNumber> {
        (0..self.count()).map(PartitionNumber).collect()
    }

    /// Sends requests and gives the replies, one for each. `then_commit` says that there is one request, which is the
    /// whole transaction.
    pub(crate) fn run(
        &mut self,
        header: &Header,
        works: Vec<(PartitionNumber, Work)>,
        then_commit: bool,
    ) -> Result<Vec<Reply>> {
        debug_assert!(!then_commit || works.len() == 1 && !self.is_open());
        self.cancel.check()?;
        for (partition, _) in &works {
            if let Err(at) = self.open.binary_search(partition) {
                self.open.insert(at, *partition);
            }
        }
        let requests =
            works.into_iter().map(|(partition, work)| (partition, header.request(work, then_commit)));
        self.level = header.choices.durability;
        self.exchange(requests.collect(), header.reads.as_ref(), then_commit)
    }

    /// Sends requests, and looks at what the replies say of the transaction.
    fn exchange(
        &mut self,
        requests: Vec<(PartitionNumber, Request)>,
        reads: Option<&ReplicaReads>,
        then_commit: bool,
    ) -> Result<Vec<Reply>> {
        let partitions: Vec<PartitionNumber> = requests.iter().map(|(partition, _)| *partition).collect();
        let replies = self.branches(reads)?.run(requests);
        let wrote = partitions.into_iter().zip(&replies).filter(|(_, reply)| reply.has_written);
        self.writing.extend(wrote.map(|(partition, _)| partition));
        if then_commit && !matches!(replies[..], [Reply { answer: Ok(Answer::More(_)), .. }]) {
            self.has_committed = matches!(replies[..], [Reply { answer: Ok(_), .. }]);
            let written = self.writes(self.level);
            if self.has_committed {
                self.keep_written(written);
            }
            self.is_over();
        }
        Ok(replies)
    }

    /// Where the open transaction has written.
    fn writes(&self, level: Option<Level>) -> Vec<Written> {
        let openings = self.branches.as_ref().map_or_else(Vec::new, |branches| branches.openings());
        let opening = |partition: PartitionNumber| {
            openings.iter().find(|(of, _)| *of == partition).map(|(_, opening)| *opening)
        };
        // Over several partitions a commit is at level 2 at least.
        let level = level.filter(|level| *level != Level::Memory || self.writing.len() <= 1);
        let write = |partition: &PartitionNumber| Written {
            partition: *partition,
            opening: opening(*partition),
            level,
        };
        self.writing.iter().map(write).collect()
    }

    /// A transaction was committed that has written there.
    fn keep_written(&mut self, written: Vec<Written>) {
        if !written.is_empty() {
            self.written = written;
        }
    }

    /// Positions after what was written by the last transaction that has written and was committed.
    pub(crate) fn commit_position(&self) -> Result<Positions> {
        if self.written.is_empty() {
            return Ok(Positions::default());
        }
        let watch = |canceller| self.cancel.set_branches(Some(canceller));
        let positions = self.partitions.positions(&self.opening, &self.written, &watch);
        self.restore_canceller();
        // A request that came before there was a canceller has set the flag.
        self.cancel.check()?;
        positions
    }

    /// Asks for more rows, or ends statements. `then_commit` as in [`Over::run`], for the statement before.
    pub(crate) fn go_on(
        &mut self,
        requests: Vec<(PartitionNumber, Request)>,
        then_commit: bool,
    ) -> Result<Vec<Reply>> {
        self.exchange(requests, None, then_commit)
    }

    fn branches(&mut self, reads: Option<&ReplicaReads>) -> Result<&mut dyn Branches> {
        if self.branches.is_none() {
            let branches = match reads {
                Some(reads) => self.partitions.begin_reading(&self.opening, reads)?,
                None => self.partitions.begin(&self.opening)?,
            };
            self.set_canceller(Some(&*branches));
            self.branches = Some(branches);
            // A request that came before the canceller existed has set the flag.
            self.cancel.check()?;
        }
        Ok(&mut **self.branches.as_mut().expect("it was begun"))
    }

    fn set_canceller(&self, branches: Option<&dyn Branches>) {
        self.cancel.set_branches(branches.map(Branches::canceller));
    }

    /// The canceller of the branches is in force again, after a local transaction had its own.
    pub(crate) fn restore_canceller(&self) {
        self.set_canceller(self.branches.as_deref());
    }

    /// The transaction has ended with its only statement.
    fn is_over(&mut self) {
        drop(self.take());
    }

    /// The open branches, which cannot be cancelled from now on.
    fn take(&mut self) -> Option<Box<dyn Branches>> {
        self.open.clear();
        self.writing.clear();
        self.scratch = None;
        let branches = self.branches.take()?;
        self.cancel.set_branches(None);
        Some(branches)
    }

    pub(crate) fn commit(&mut self, choices: &Choices, defined: bool) -> Result<()> {
        let written = self.writes(choices.durability);
        let Some(branches) = self.take() else { return Ok(()) };
        if defined {
            self.known.forget();
        }
        branches.commit(choices)?;
        self.keep_written(written);
        Ok(())
    }

    pub(crate) fn abort(&mut self, choices: &Choices) -> Result<()> {
        match self.take() {
            Some(branches) => {
                self.has_lost_branches = true;
                branches.abort(choices)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn settle(&mut self, choices: &Choices) -> Result<()> {
        match &mut self.branches {
            Some(branches) => branches.settle(choices),
            None => Ok(()),
        }
    }

    /// Drops all branches, as when the client has gone.
    pub(crate) fn abandon(&mut self) {
        drop(self.take());
    }

    pub(crate) fn clear_cancellation(&mut self) {
        if let Some(branches) = &mut self.branches {
            branches.clear_cancellation();
        }
    }

    /// All branches go back to the savepoint of this number.
    pub(crate) fn roll_back_to(&mut self, header: &Header, number: u64) -> Result<()> {
        if !self.is_open() {
            return Ok(());
        }
        let works = self.open.iter().map(|partition| (*partition, Work::RollbackTo(number))).collect();
        first_error(self.run(header, works, false)?).map(drop)
    }

    /// What is known of a table; `defined` says whether the transaction has changed definitions.
    pub(crate) fn known(
        &mut self,
        database: &Database,
        (table, schema): (&Table, &Arc<Schema>),
        defined: bool,
    ) -> Result<Arc<KnownTable>> {
        if defined {
            let known = self.scratch.as_ref().and_then(|scratch| scratch.known(table));
            return known.ok_or_else(|| stale(&table.name()));
        }
        let read = || {
            let mut placed = None;
            let read = database.read(|tx| {
                placed = Some(placement(tx, schema));
                Ok(())
            });
            read?;
            placed.expect("the body has run")
        };
        self.known.get(table, schema, read)
    }

    /// What was known may be out of date.
    pub(crate) fn forget_known(&mut self) {
        self.known.forget();
    }

    /// A table as the open transaction has defined it.
    pub(crate) fn defined_table(&mut self, header: &Header, name: &Name) -> Result<Table> {
        let partition = self.handiest();
        let replies = self.run(header, vec![(partition, Work::Definition(name.text.clone()))], false)?;
        match first_error(replies)?.pop() {
            Some(Answer::Definition(Some(definition))) => {
                if self.scratch.is_none() {
                    self.scratch = Some(Scratch::new()?);
                }
                self.scratch.as_mut().expect("it was made").table(definition)
            }
            Some(Answer::Definition(None)) => {
                find_table(name, Err(Error::NoSuchTable { table: name.text.clone() }))
            }
            _ => Err(unexpected()),
        }
    }
}

/// The answers, or the first error. If a definition is out of date, that is the error.
pub(crate) fn first_error(replies: Vec<Reply>) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(replies.len());
    let mut error: Option<Told> = None;
    for reply in replies {
        match reply.answer {
            Ok(answer) => answers.push(answer),
            Err(told) if error.is_none() || told.cause == Cause::Stale => error = Some(told),
            Err(_) => {}
        }
    }
    match error {
        Some(told) => Err(told.into()),
        None => Ok(answers),
    }
}

/// The error of a definition that is out of date.
pub(crate) fn stale(table: &str) -> SqlError {
    Error::TableChanged { table: table.to_owned() }.into()
}

/// A reply of another kind than the request asks for: a bug in Rialto.
pub(crate) fn unexpected() -> SqlError {
    SqlError::new(SqlState::Internal, "a partition gave a reply of another kind")
}
