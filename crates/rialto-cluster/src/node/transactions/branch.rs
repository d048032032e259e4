//! [`Branch`]: a branch of a transaction in a partition, on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use rialto::{Durability, Error, Lsn, Transaction, TxOptions};
use rialto_sql::partitions::{Answer as SqlAnswer, BranchSession, Next, Portions, Reply, Request, Run, Told};
use rialto_sql::{SqlError, SqlState};

use super::positions;
use super::rows;
use super::served::{BeingPrepared, ServedPartition};
use super::work::{Action, Answer, SqlAction, SqlWork, What, level, of_replica, unprotected};
use crate::node::replica::Admitted;
use crate::protocol::transactions::{Access, Keeps, Level, Locking, Ran, RowChange, Step, TransactionId};

/// What a branch is to do.
pub enum Task {
    /// Run an action.
    Run { sequence: u32, action: Action },
    /// Reserve what its commit at this level needs.
    Reserve { level: Level },
    /// Write *Prepared*.
    Prepare { rows: Vec<RowChange<SqlWork>>, level: Level, counted: BeingPrepared },
    /// Wait until what it has read is durable.
    AwaitReads { level: Level },
    /// Commit.
    Commit { keeps: Keeps, rows: Vec<RowChange<SqlWork>>, level: Level },
    /// Abort.
    Abort { rows: Vec<RowChange<SqlWork>>, level: Level },
    /// End: it has only read.
    Release,
}

impl Task {
    /// Whether the branch is over afterwards.
    pub fn is_last(&self) -> bool {
        matches!(self, Task::Commit { .. } | Task::Abort { .. } | Task::Release)
    }
}

/// How other threads end what a branch runs.
#[derive(Default)]
pub struct Cancels {
    pub is_asked: bool,
    /// Ends what the kernel runs for it.
    pub canceller: Option<Box<dyn Fn() + Send>>,
}

impl Cancels {
    /// Ends what runs, or what runs next.
    pub fn cancel(&mut self) {
        self.is_asked = true;
        if let Some(canceller) = &self.canceller {
            canceller();
        }
    }
}

/// What the kernel has of a branch.
pub enum Body {
    /// Nothing yet, or nothing any more.
    Nothing,
    /// An open transaction, with a session that runs statements in it.
    Session(Box<BranchSession>),
    /// An open transaction that runs actions of a call, and what it may do.
    Call(Transaction<'static>, Access),
    /// An open transaction whose statements are over.
    Transaction(Transaction<'static>),
    /// A prepared one, under the transaction's name.
    Prepared,
}

/// A branch of a transaction in a partition. Its thread gives it one task after the other.
pub struct Branch {
    pub id: TransactionId,
    pub served: Arc<ServedPartition>,
    pub locking: Locking,
    pub cancels: Arc<Mutex<Cancels>>,
    pub tasks: Receiver<Task>,
    pub admitted: Option<Admitted>,
}

impl Branch {
    /// Serves the branch until it is over, or its partition is not served any more.
    pub fn serve(mut self) {
        let mut body = Body::Nothing;
        let mut left = None;
        while let Some(task) = left.take().or_else(|| self.tasks.recv().ok()) {
            let is_last = task.is_last();
            body = self.carry_out(task, body, &mut left);
            if is_last {
                return;
            }
        }
    }

    fn carry_out(&mut self, task: Task, body: Body, left: &mut Option<Task>) -> Body {
        match task {
            Task::Run { sequence, action } => self.run(sequence, action, body, left),
            Task::Reserve { level } => {
                let body = self.cleared(body);
                let (body, has_room) = match self.is_refused(&body, level) {
                    true => (body, false),
                    false => reserve(body),
                };
                self.served.reserved(self.id, has_room);
                body
            }
            Task::Prepare { rows, level, counted } => {
                let body = self.cleared(body);
                self.prepare(body, &rows, level, counted)
            }
            Task::AwaitReads { level } => self.await_reads(body, level),
            Task::Commit { keeps, rows, level } => {
                let body = self.cleared(body);
                self.commit(body, keeps, &rows, level);
                Body::Nothing
            }
            Task::Abort { rows, level } => {
                self.abort(body, &rows, level);
                Body::Nothing
            }
            Task::Release => {
                end(body);
                Body::Nothing
            }
        }
    }

    /// A cancellation that has come too late for the last statement ends no commit.
    fn cleared(&self, mut body: Body) -> Body {
        self.cancels.lock().is_asked = false;
        match &mut body {
            Body::Session(session) => session.clear_cancellation(),
            Body::Call(tx, _) => tx.clear_cancellation(),
            Body::Nothing | Body::Transaction(_) | Body::Prepared => {}
        }
        body
    }

    fn run(&mut self, sequence: u32, action: Action, mut body: Body, left: &mut Option<Task>) -> Body {
        let action = match action {
            Action::Sql(action) => action,
            Action::Call(action) => return self.call(sequence, action, body),
        };
        if action.clears_cancellation {
            self.cancels.lock().is_asked = false;
            if let Body::Session(session) = &mut body {
                session.clear_cancellation();
            }
        }
        match action.what {
            What::Request(Request::Run(run)) => self.request(sequence, &action.opening, *run, body, left),
            // No statement runs.
            What::Request(Request::Fetch | Request::Close) => {
                let error = SqlError::new(SqlState::Internal, "no statement runs in the branch");
                self.ran(sequence, failed(&error));
                body
            }
            What::Settle(level) => {
                let place = match &mut body {
                    Body::Session(session) => session.settled().map(|ticket| ticket.lsn()).ok(),
                    // It has read nothing.
                    _ => Some(Lsn::ZERO),
                };
                let is_durable = place.is_some_and(|place| self.is_durable(place, level));
                let (reply, access) = (Answer::Nothing, Access::Reads);
                let ran = Ran { reply, access, has_failed: false, is_passing: false };
                self.served.ran(self.id, sequence, is_durable.then_some(ran));
                body
            }
            What::Position => {
                let place = self.served.lead().database().log_end().lsn;
                match self.is_durable(place, Level::Replicated) {
                    true => {
                        let answer = positions::answer(place, self.served.lead().memories());
                        self.ran_with(sequence, answer, Access::Reads);
                    }
                    false => self.served.ran(self.id, sequence, None),
                }
                body
            }
            What::Admit => {
                let reply = match self.is_refused(&body, Level::Replicated) {
                    true => Answer::Reply(Box::new(self.unprotected())),
                    false => Answer::Nothing,
                };
                self.ran_with(sequence, reply, Access::Reads);
                body
            }
        }
    }

    fn request(
        &mut self,
        sequence: u32,
        opening: &rialto_sql::partitions::Opening,
        mut run: Run,
        body: Body,
        left: &mut Option<Task>,
    ) -> Body {
        let is_whole = self.locking == Locking::AsAlone;
        run.then_commit = is_whole;
        let session = match body {
            Body::Session(session) => Ok(session),
            Body::Nothing => self.begin(opening, &run),
            Body::Call(..) | Body::Transaction(_) | Body::Prepared => {
                Err(SqlError::new(SqlState::Internal, "the branch takes no statements any more"))
            }
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                self.ran(sequence, failed(&error));
                return Body::Nothing;
            }
        };
        let asked = level(run.choices.durability);
        let settles = (run.settle && !is_whole).then_some(asked);
        let mut stream = Stream { branch: self, sequence, is_whole, settles, is_too_large: false, left };
        let mut reply = session.run(run, &mut stream);
        let (sequence, is_too_large) = (stream.sequence, stream.is_too_large);
        if !self.settle(settles) {
            self.served.ran(self.id, sequence, None);
            return Body::Session(session);
        }
        let commits_at_2 = is_whole && reply.has_written && asked == Level::Replicated;
        if reply.answer.is_ok() && commits_at_2 && self.served.lead().refuses_level_2() {
            reply = self.unprotected();
        }
        let has_failed = reply.answer.is_err();
        let access = if reply.has_written { Access::Writes } else { Access::Reads };
        let answer = if is_too_large { Answer::TooLarge } else { Answer::Reply(Box::new(reply)) };
        let body = match is_whole && has_failed {
            // What it has done so far is not to stay. The answer is kept.
            true => {
                let _ = session.abort();
                Body::Nothing
            }
            false => Body::Session(session),
        };
        self.ran_with(sequence, answer, access);
        body
    }

    fn begin(
        &self,
        opening: &rialto_sql::partitions::Opening,
        run: &Run,
    ) -> Result<Box<BranchSession>, SqlError> {
        let session = Box::new(self.served.pool().begin(opening, run)?);
        let mut cancels = self.cancels.lock();
        let canceller = session.canceller();
        cancels.canceller = Some(Box::new(move || canceller.cancel()));
        if cancels.is_asked {
            session.canceller().cancel();
        }
        Ok(session)
    }

    fn ran(&self, sequence: u32, reply: Reply) {
        let access = if reply.has_written { Access::Writes } else { Access::Reads };
        self.ran_with(sequence, Answer::Reply(Box::new(reply)), access);
    }

    pub fn ran_with(&self, sequence: u32, reply: Answer, access: Access) {
        let has_failed = matches!(reply, Answer::Called(Err(_)));
        let is_passing = matches!(&reply, Answer::Called(Err(failure)) if failure.is_passing());
        self.served.ran(self.id, sequence, Some(Ran { reply, access, has_failed, is_passing }));
    }

    /// What a client may be told of before the transaction ends is durable at the level before it leaves the node. False if
    /// this replica may not answer any more: then nothing of it leaves the node (C1).
    fn settle(&self, level: Option<Level>) -> bool {
        level.is_none_or(|level| self.is_durable(self.served.lead().database().log_end().lsn, level))
    }

    pub fn is_durable(&self, place: Lsn, level: Level) -> bool {
        self.served.lead().answer(place, of_replica(level)).is_ok()
    }

    /// Whether this branch has written, and its commit at this level is refused: the partition is unprotected.
    fn is_refused(&self, body: &Body, level: Level) -> bool {
        let has_written = match body {
            Body::Session(session) => session.has_written(),
            Body::Call(_, access) => *access == Access::Writes,
            Body::Transaction(_) => true,
            Body::Nothing | Body::Prepared => false,
        };
        has_written && level == Level::Replicated && self.served.lead().refuses_level_2()
    }

    fn unprotected(&self) -> Reply {
        failed(&unprotected(self.served.serves().partition))
    }

    fn prepare(
        &mut self,
        body: Body,
        rows: &[RowChange<SqlWork>],
        level: Level,
        counted: BeingPrepared,
    ) -> Body {
        let note = rows.iter().find_map(|row| match row {
            RowChange::Prepared(id, branches) => Some(rows::note(*id, branches)),
            _ => None,
        });
        let (Some(note), Some(tx)) = (note, into_transaction(body)) else { return Body::Nothing };
        let prepared = tx.prepare(&rows::name(self.id), &note);
        drop(counted);
        match prepared {
            Ok(()) => {
                // A planned change of the primary does not wait for its decision.
                self.admitted = None;
                if self.is_durable(self.served.lead().database().log_end().lsn, level) {
                    self.served.durable(self.id, Step::Prepared);
                }
            }
            // It may be prepared all the same. Its coordinator gives up, and it is aborted by its name.
            Err(_) => self.served.reserved(self.id, false),
        }
        Body::Prepared
    }

    fn await_reads(&mut self, body: Body, level: Level) -> Body {
        match body {
            Body::Session(mut session) => {
                let settled = session.settled().map(|ticket| ticket.lsn());
                if let Ok(place) = settled
                    && self.is_durable(place, level)
                {
                    self.served.durable(self.id, Step::Reads);
                }
                Body::Session(session)
            }
            Body::Call(mut tx, access) => {
                if self.is_durable(tx.settled().lsn(), level) {
                    self.served.durable(self.id, Step::Reads);
                }
                Body::Call(tx, access)
            }
            body => {
                self.served.durable(self.id, Step::Reads);
                body
            }
        }
    }

    fn commit(&mut self, body: Body, keeps: Keeps, rows: &[RowChange<SqlWork>], level: Level) {
        let db = self.served.lead().database().clone();
        let table = self.served.table();
        let placed = match body {
            Body::Prepared => {
                self.served.commit_prepared(self.id, rows, level);
                return;
            }
            body if keeps == Keeps::AnswerOnly => {
                end(body);
                self.served.write(rows)
            }
            body => match into_transaction(body) {
                Some(mut tx) => {
                    if level == Level::Disk {
                        tx.set_durability(Durability::Disk);
                    }
                    rows::apply(&mut tx, table, rows).and_then(|()| tx.submit()).map(|ticket| ticket.lsn())
                }
                // Its only statement has failed.
                None if rows.is_empty() => Ok(db.log_end().lsn),
                None => self.served.write(rows),
            },
        };
        match placed {
            Ok(place) => {
                self.admitted = None;
                if self.is_durable(place, level) {
                    self.served.durable(self.id, Step::Commit);
                }
            }
            // Nothing of it has a place, and its branch is gone: it is aborted.
            Err(error) if has_no_effect(&error) => self.served.reserved(self.id, false),
            Err(error) => self.served.commit_failed(self.id, &error),
        }
    }

    fn abort(&mut self, body: Body, rows: &[RowChange<SqlWork>], level: Level) {
        match body {
            Body::Prepared => self.served.abort_prepared(self.id, rows, level),
            body => {
                end(body);
                if !rows.is_empty() {
                    self.served.abort_prepared(self.id, rows, level);
                }
            }
        }
    }
}

/// Takes portions of a result to the coordinator.
struct Stream<'b> {
    branch: &'b Branch,
    /// The action that runs.
    sequence: u32,
    is_whole: bool,
    /// The level at which rows are durable before they are given.
    settles: Option<Level>,
    is_too_large: bool,
    /// A task that came instead of the next action.
    left: &'b mut Option<Task>,
}

impl Portions for Stream<'_> {
    fn give(&mut self, reply: Reply) -> Result<Next, SqlError> {
        let gone = || SqlError::new(SqlState::Cancelled, "the session has gone");
        if self.is_whole {
            self.is_too_large = true;
            return Err(gone());
        }
        if !self.branch.settle(self.settles) {
            return Err(gone());
        }
        self.branch.ran(self.sequence, reply);
        match self.branch.tasks.recv() {
            Ok(Task::Run {
                sequence,
                action: Action::Sql(SqlAction { what: What::Request(Request::Fetch), .. }),
            }) => {
                self.sequence = sequence;
                Ok(Next::Fetch)
            }
            Ok(Task::Run {
                sequence,
                action: Action::Sql(SqlAction { what: What::Request(Request::Close), .. }),
            }) => {
                self.sequence = sequence;
                Ok(Next::Close)
            }
            Ok(task) => {
                *self.left = Some(task);
                Err(gone())
            }
            Err(_) => Err(gone()),
        }
    }
}

fn failed(error: &SqlError) -> Reply {
    Reply { answer: Err::<SqlAnswer, _>(Told::from(error)), has_written: false }
}

fn into_transaction(body: Body) -> Option<Transaction<'static>> {
    match body {
        Body::Session(session) => session.into_transaction().ok(),
        Body::Call(tx, _) | Body::Transaction(tx) => Some(tx),
        Body::Nothing | Body::Prepared => None,
    }
}

fn reserve(body: Body) -> (Body, bool) {
    if let Body::Session(session) = &body
        && !session.has_written()
    {
        return (body, true);
    }
    if let Body::Call(_, Access::Reads) = &body {
        return (body, true);
    }
    match into_transaction(body) {
        Some(mut tx) => match tx.reserve() {
            Ok(()) => (Body::Transaction(tx), true),
            // Definitions: what their commit needs is not known before; it may fail. And a transaction may become one that only
            // reads once it has written.
            Err(Error::Unsupported { .. } | Error::ReadOnly) => (Body::Transaction(tx), true),
            Err(_) => (Body::Transaction(tx), false),
        },
        None => (Body::Nothing, true),
    }
}

/// Whether an error of a commit says that it has no effect.
pub fn has_no_effect(error: &Error) -> bool {
    !matches!(error, Error::OutcomeUnknown { .. } | Error::Stopped { .. } | Error::Closed)
}

/// Ends an open transaction, which leaves nothing.
fn end(body: Body) {
    // Nothing that it has read is answered.
    let _ = match body {
        Body::Session(session) => session.abort().is_ok(),
        Body::Call(tx, _) | Body::Transaction(tx) => tx.abort().is_ok(),
        Body::Nothing | Body::Prepared => true,
    };
}

/// The options of a transaction of the system's own.
pub fn of_the_system() -> TxOptions {
    TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() }
}
