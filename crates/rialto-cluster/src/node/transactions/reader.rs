//! [`Reader`]: a transaction's branch at a replica of this node that is not the primary.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use rialto_sql::SqlError;
use rialto_sql::partitions::{
    Answer, BranchCanceller, BranchSession, Level, Next, Opening, Portions, Reply, Request, Run, Told, Work,
};

use super::workers::{Job, Workers};
use crate::node::replica::{ReadEnd, ReadPermit};

/// What a reader's thread is told.
enum Task {
    /// Run this. Whether a cancellation that came too late for the request before is taken back.
    Request(Request, bool),
    /// Give way: the replica has to go on.
    End,
}

/// The cancellation of a transaction that reads, from another thread.
#[derive(Default)]
pub struct ReaderCancels {
    is_asked: bool,
    cancellers: Vec<BranchCanceller>,
}

impl ReaderCancels {
    /// Ends what runs, or what runs next.
    pub fn cancel(&mut self) {
        self.is_asked = true;
        self.cancellers.iter().for_each(BranchCanceller::cancel);
    }

    /// Takes that back. Each reader takes it back with its next request, too.
    pub fn clear(&mut self) {
        self.is_asked = false;
    }

    fn add(&mut self, canceller: BranchCanceller) {
        if self.is_asked {
            canceller.cancel();
        }
        self.cancellers.push(canceller);
    }
}

/// Whether a reader has but one statement, and ends with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Once,
    UntilTheEnd,
}

/// A branch at a replica that follows. It runs on a thread of its own, which may wait for locks, and for the session between two
/// portions of rows. When it is told to end it gives its locks up, also while the session is idle.
pub struct Reader {
    tasks: Sender<Task>,
    replies: Receiver<Reply>,
    end: Arc<ReadEnd>,
    /// Whether the session was told of anything by it.
    pub has_told: bool,
    /// Whether its next request takes a cancellation back.
    pub to_clear: bool,
    /// Whether it has had a request: the tables' age at its begin counts for the first one.
    has_run: bool,
}

impl Reader {
    /// A reader on a thread of its own.
    ///
    /// # Errors
    /// If no thread can start.
    pub fn start(
        workers: &Workers,
        permit: ReadPermit,
        opening: Opening,
        cancels: Arc<Mutex<ReaderCancels>>,
        reads: Reads,
    ) -> io::Result<Reader> {
        let (tasks, inbox) = channel();
        let (outbox, replies) = channel();
        let end = permit.end().clone();
        let giving_way = tasks.clone();
        let serve = move || {
            // Until there is a branch, the thread alone is told.
            let told = giving_way.clone();
            permit.end().set(move || drop(told.send(Task::End)));
            let at_replica = AtReplica { permit, opening, cancels, reads, giving_way };
            at_replica.serve(&inbox, &outbox);
        };
        workers.run(Job::Other(Box::new(serve)))?;
        Ok(Reader { tasks, replies, end, has_told: false, to_clear: false, has_run: false })
    }

    /// Gives it a request. Its reply comes by [`Reader::reply`].
    pub fn request(&mut self, request: Request) {
        let clears = std::mem::take(&mut self.to_clear);
        self.has_run = true;
        // If it has ended there is no reply.
        let _ = self.tasks.send(Task::Request(request, clears));
    }

    /// Whether the tables' age is to be looked at again before this request.
    pub fn is_to_be_young(&self, request: &Request) -> bool {
        self.has_run && matches!(request, Request::Run(run) if !matches!(run.work, Work::RollbackTo(_)))
    }

    /// The reply to the last request. None if it has ended: it has given way, or its replica's database was closed.
    pub fn reply(&mut self) -> Option<Reply> {
        let reply = self.replies.recv().ok()?;
        // An error after the statement was told to end comes from that end.
        (reply.answer.is_ok() || !self.end.is_told()).then_some(reply)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Its thread gives up its locks. It may have ended.
        let _ = self.tasks.send(Task::End);
    }
}

/// What the thread of a reader has.
struct AtReplica {
    permit: ReadPermit,
    opening: Opening,
    cancels: Arc<Mutex<ReaderCancels>>,
    reads: Reads,
    giving_way: Sender<Task>,
}

impl AtReplica {
    fn serve(self, inbox: &Receiver<Task>, outbox: &Sender<Reply>) {
        let mut session: Option<BranchSession> = None;
        while let Ok(Task::Request(request, clears)) = inbox.recv() {
            let Request::Run(run) = request else { return };
            let mut stream = Stream { inbox, outbox, is_over: false };
            let reply = self.run(*run, clears, &mut session, &mut stream);
            if stream.is_over || outbox.send(reply).is_err() || self.reads == Reads::Once {
                return;
            }
        }
    }

    fn run(
        &self,
        mut run: Run,
        clears: bool,
        session: &mut Option<BranchSession>,
        stream: &mut Stream<'_>,
    ) -> Reply {
        // Nothing has to be waited for: what is in the tables is in the memory of each replica in sync. And nothing can be
        // prepared here.
        (run.then_commit, run.settle, run.choices.read_only) = (true, false, true);
        run.choices.durability = Some(Level::Memory);
        let session = match session {
            Some(session) => session,
            None => match self.begin(&run) {
                Ok(begun) => session.insert(begun),
                Err(error) => return failed(&error),
            },
        };
        if clears {
            session.clear_cancellation();
            // What has come since then is not too late.
            let is_cancelled = self.permit.end().is_told() || self.cancels.lock().is_asked;
            if is_cancelled {
                session.canceller().cancel();
            }
        }
        session.run(run, stream)
    }

    fn begin(&self, run: &Run) -> Result<BranchSession, SqlError> {
        let session = self.permit.pool().begin(&self.opening, run)?;
        let canceller = session.canceller();
        self.cancels.lock().add(canceller.clone());
        let told = self.giving_way.clone();
        self.permit.end().set(move || {
            canceller.cancel();
            let _ = told.send(Task::End);
        });
        Ok(session)
    }
}

/// Gives portions to the session, which asks for the next one.
struct Stream<'s> {
    inbox: &'s Receiver<Task>,
    outbox: &'s Sender<Reply>,
    is_over: bool,
}

impl Portions for Stream<'_> {
    fn give(&mut self, reply: Reply) -> Result<Next, SqlError> {
        if self.outbox.send(reply).is_ok() {
            match self.inbox.recv() {
                Ok(Task::Request(Request::Fetch, _)) => return Ok(Next::Fetch),
                Ok(Task::Request(Request::Close, _)) => return Ok(Next::Close),
                Ok(Task::Request(Request::Run(_), _) | Task::End) | Err(_) => {}
            }
        }
        self.is_over = true;
        Err(rialto::Error::Closed.into())
    }
}

fn failed(error: &SqlError) -> Reply {
    Reply { answer: Err(Told::from(error)), has_written: false }
}

/// Whether a reply is the last one of its request.
pub fn is_last(reply: &Reply) -> bool {
    !matches!(reply.answer, Ok(Answer::More(_)))
}
