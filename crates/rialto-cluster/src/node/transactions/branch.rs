//! [`Branch`]: a branch of a transaction in a partition: its tasks, and what the kernel has of it.
//!
//! Invariants: one thread at a time carries out tasks of a branch, in their order. A branch without a task has no thread; one
//! that has tasks has one, or is queued for one ([`Workers`](super::workers::Workers)). Once it is over, nothing of it is
//! left in the kernel but what is prepared.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use rialto::{Durability, Error, Lsn, Transaction, TxOptions};
use rialto_sql::partitions::{Answer as SqlAnswer, BranchSession, Next, Portions, Reply, Request, Run, Told};
use rialto_sql::{SqlError, SqlState};

use super::inbox::{Before, Given, Inbox};
use super::positions;
use super::rows;
use super::served::{BeingPrepared, ServedPartition};
use super::work::{Action, Answer, SqlAction, SqlWork, What, level, unprotected};
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

/// A branch of a transaction in a partition.
pub struct Branch {
    pub id: TransactionId,
    pub served: Arc<ServedPartition>,
    pub locking: Locking,
    pub cancels: Mutex<Cancels>,
    inbox: Inbox,
    /// Of the thread that carries out its tasks.
    open: Mutex<Open>,
}

/// What the kernel has of a branch, and that it was admitted.
struct Open {
    body: Body,
    admitted: Option<Admitted>,
    /// A task that has come instead of the next portion's.
    left: Option<Task>,
}

impl Branch {
    pub fn new(
        id: TransactionId,
        served: &Arc<ServedPartition>,
        locking: Locking,
        admitted: Admitted,
    ) -> Arc<Branch> {
        let open = Open { body: Body::Nothing, admitted: Some(admitted), left: None };
        Arc::new(Branch {
            id,
            served: served.clone(),
            locking,
            cancels: Mutex::default(),
            inbox: Inbox::default(),
            open: Mutex::new(open),
        })
    }

    /// Gives it a task. If a thread is needed for it: [`Branch::run`].
    pub fn give(&self, task: Task) -> Given {
        self.inbox.give(task)
    }

    /// Carries out its tasks, and those that come meanwhile.
    pub fn run(&self) {
        let mut open = self.open.lock();
        while let Some(task) = open.left.take().or_else(|| self.inbox.next()) {
            let is_last = task.is_last();
            let body = std::mem::replace(&mut open.body, Body::Nothing);
            let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(task, body, &mut open)));
            if is_last || done.is_err() {
                self.inbox.close();
            }
            match done {
                Ok(body) => open.body = body,
                Err(panic) => {
                    // Nothing of it stays open, and nothing waits for it.
                    open.clear();
                    drop(open);
                    resume_unwind(panic);
                }
            }
        }
        if self.inbox.is_closed() {
            open.clear();
        }
    }

    /// Whether its next task may wait for its own coordinator: a statement that gives its result in portions.
    pub fn may_wait_for_its_coordinator(&self) -> bool {
        let is_statement = |task: &Task| matches!(task, Task::Run { action: Action::Sql(action), .. } if action.may_give_portions());
        self.locking != Locking::AsAlone && self.inbox.any(is_statement)
    }

    /// The partition is not served any more: if it is not prepared, it leaves nothing.
    pub fn end(&self) {
        self.cancels.lock().cancel();
        // Else the thread that carries out its tasks sees to it.
        if self.inbox.close() == Before::Rested {
            self.open.lock().clear();
        }
    }

    fn carry_out(&self, task: Task, body: Body, open: &mut Open) -> Body {
        match task {
            Task::Run { sequence, action } => self.run_action(sequence, action, body, &mut open.left),
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
                self.prepare(body, &rows, level, counted, &mut open.admitted)
            }
            Task::AwaitReads { level } => self.await_reads(body, level),
            Task::Commit { keeps, rows, level } => {
                let body = self.cleared(body);
                self.commit(body, keeps, &rows, level, &mut open.admitted);
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

    fn run_action(&self, sequence: u32, action: Action, mut body: Body, left: &mut Option<Task>) -> Body {
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
                match place {
                    Some(place) => {
                        self.ran_once_durable(sequence, Answer::Nothing, Access::Reads, (place, level));
                    }
                    None => self.served.ran(self.id, sequence, None),
                }
                body
            }
            What::Position => {
                let place = self.served.lead().database().log_end().lsn;
                // It may take long: the session's thread, which may be this one, hears cancellations meanwhile.
                let answer = positions::answer(place, self.served.lead().lost_before());
                self.ran_once_durable(sequence, answer, Access::Reads, (place, Level::Standby));
                body
            }
            What::Admit => {
                let reply = match self.is_refused(&body, Level::Standby) {
                    true => Answer::Reply(Box::new(self.unprotected())),
                    false => Answer::Nothing,
                };
                self.ran_with(sequence, reply, Access::Reads);
                body
            }
        }
    }

    fn request(
        &self,
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
        let commits_at_2 = is_whole && reply.has_written && asked == Level::Standby;
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

    /// An action has run, and its reply is told once everything up to a place is durable at a level. If this replica may
    /// not answer any more, the action counts as not run.
    pub fn ran_once_durable(
        &self,
        sequence: u32,
        reply: Answer,
        access: Access,
        (place, level): (Lsn, Level),
    ) {
        let has_failed = matches!(reply, Answer::Called(Err(_)));
        let is_passing = matches!(&reply, Answer::Called(Err(failure)) if failure.is_passing());
        let ran = Ran { reply, access, has_failed, is_passing };
        self.served.ran_once_durable(self.id, sequence, ran, (place, level));
    }

    /// What a client may be told of before the transaction ends is durable at the level before it leaves the node. False if
    /// this replica may not answer any more: then nothing of it leaves the node (C1).
    fn settle(&self, level: Option<Level>) -> bool {
        level.is_none_or(|level| self.is_durable(self.served.lead().database().log_end().lsn, level))
    }

    pub fn is_durable(&self, place: Lsn, level: Level) -> bool {
        self.served.lead().answer(place, level).is_ok()
    }

    /// Whether this branch has written, and its commit at this level is refused: the partition is unprotected.
    fn is_refused(&self, body: &Body, level: Level) -> bool {
        let has_written = match body {
            Body::Session(session) => session.has_written(),
            Body::Call(_, access) => *access == Access::Writes,
            Body::Transaction(_) => true,
            Body::Nothing | Body::Prepared => false,
        };
        has_written && level == Level::Standby && self.served.lead().refuses_level_2()
    }

    fn unprotected(&self) -> Reply {
        failed(&unprotected(self.served.serves().partition))
    }

    fn prepare(
        &self,
        body: Body,
        rows: &[RowChange<SqlWork>],
        level: Level,
        counted: BeingPrepared,
        admitted: &mut Option<Admitted>,
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
                *admitted = None;
                let place = self.served.lead().database().log_end().lsn;
                self.served.tell(self.id, place, level, Step::Prepared);
            }
            // It may be prepared all the same. Its coordinator gives up, and it is aborted by its name.
            Err(_) => self.served.reserved(self.id, false),
        }
        Body::Prepared
    }

    fn await_reads(&self, body: Body, level: Level) -> Body {
        match body {
            Body::Session(mut session) => {
                if let Ok(place) = session.settled().map(|ticket| ticket.lsn()) {
                    self.served.tell(self.id, place, level, Step::Reads);
                }
                Body::Session(session)
            }
            Body::Call(mut tx, access) => {
                let place = tx.settled().lsn();
                self.served.tell(self.id, place, level, Step::Reads);
                Body::Call(tx, access)
            }
            body => {
                self.served.durable(self.id, Step::Reads);
                body
            }
        }
    }

    fn commit(
        &self,
        body: Body,
        keeps: Keeps,
        rows: &[RowChange<SqlWork>],
        level: Level,
        admitted: &mut Option<Admitted>,
    ) {
        let db = self.served.lead().database();
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
                *admitted = None;
                self.served.tell(self.id, place, level, Step::Commit);
            }
            // Nothing of it has a place, and its branch is gone: it is aborted.
            Err(error) if has_no_effect(&error) => self.served.reserved(self.id, false),
            Err(error) => self.served.commit_failed(self.id, &error),
        }
    }

    fn abort(&self, body: Body, rows: &[RowChange<SqlWork>], level: Level) {
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

impl Open {
    fn clear(&mut self) {
        // What is open, and not prepared, is rolled back.
        self.body = Body::Nothing;
        (self.admitted, self.left) = (None, None);
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
        match self.branch.inbox.wait() {
            Some(Task::Run {
                sequence,
                action: Action::Sql(SqlAction { what: What::Request(Request::Fetch), .. }),
            }) => {
                self.sequence = sequence;
                Ok(Next::Fetch)
            }
            Some(Task::Run {
                sequence,
                action: Action::Sql(SqlAction { what: What::Request(Request::Close), .. }),
            }) => {
                self.sequence = sequence;
                Ok(Next::Close)
            }
            Some(task) => {
                *self.left = Some(task);
                Err(gone())
            }
            None => Err(gone()),
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
