//! A statement that is alone in its transaction, in a partition that its session's node serves: it runs on the session's
//! thread, without the protocol.

use std::sync::Arc;

use rialto::{Durability, Lsn};
use rialto_sql::partitions::{BranchSession, Next, Portions, Reply, Request, Run, Told};
use rialto_sql::{SqlError, SqlState};

use super::branch::has_no_effect;
use super::served::ServedPartition;
use super::session::{SessionTransaction, failed, retry, unknown};
use super::work::{level, unprotected};
use crate::protocol::transactions::Level;

/// Why a statement has no effect if its partition has another primary, or none, by now.
const NOT_SERVED_ANY_MORE: &str = "its partition's primary has changed";

/// How a statement that is alone has ended here.
pub enum Alone {
    /// With this reply.
    Replied(Box<Reply>),
    /// Its result is larger than one portion. It has no effect: it is to be run as a transaction of several actions.
    TooLarge,
    /// The partition is not served at this moment.
    NotServed,
}

impl SessionTransaction {
    /// Runs a statement in a partition of this node, and waits until its reply may be told.
    pub fn run_here(&self, served: &Arc<ServedPartition>, request: &Request) -> Alone {
        let Request::Run(run) = request else { return Alone::NotServed };
        let lead = served.lead();
        // One that drains, or whose promises have run out, may serve again in a moment.
        let Ok(admitted) = lead.admit_here() else { return Alone::NotServed };
        let asked = level(run.choices.durability);
        let (reply, place) = match self.run_alone(served, Run { then_commit: true, ..(**run).clone() }, asked)
        {
            Ok(Some(ended)) => ended,
            Ok(None) => return Alone::TooLarge,
            Err(error) => return Alone::Replied(Box::new(failed(error))),
        };
        let has_effect = reply.answer.is_ok() && reply.has_written;
        match admitted.answer_until(place, asked, None) {
            Ok(_) => Alone::Replied(Box::new(reply)),
            Err(_) if has_effect => Alone::Replied(Box::new(failed(unknown()))),
            Err(_) => Alone::Replied(Box::new(failed(retry(NOT_SERVED_ANY_MORE)))),
        }
    }

    /// Runs a statement, and commits it. Gives its reply, and the place up to which everything has to be durable before that
    /// is told; nothing if the result is too large.
    ///
    /// # Errors
    /// Its commit has failed, or the partition is not served any more.
    fn run_alone(
        &self,
        served: &Arc<ServedPartition>,
        run: Run,
        asked: Level,
    ) -> Result<Option<(Reply, Lsn)>, SqlError> {
        let db = served.lead().database();
        let mut session = match served.pool().begin(&self.opening, &run) {
            Ok(session) => session,
            Err(error) => return Ok(Some((failed(error), db.log_end().lsn))),
        };
        let mut portions = NoPortions { has_more: false };
        let mut reply = {
            let _runs = self.runs_here(session.canceller());
            let _ends_with_the_partition = served.statements().begin(session.canceller());
            session.run(run, &mut portions)
        };
        if portions.has_more {
            let _ = session.abort();
            return Ok(None);
        }
        if served.statements().are_over() {
            let _ = session.abort();
            return Err(retry(NOT_SERVED_ANY_MORE));
        }
        let commits_at_2 = reply.answer.is_ok() && reply.has_written && asked == Level::Standby;
        if commits_at_2 && served.lead().refuses_level_2() {
            let refused = unprotected(served.serves().partition);
            reply = Reply { answer: Err(Told::from(&refused)), has_written: false };
        }
        if reply.answer.is_err() {
            // What it has done so far is not to stay. What led to the error is durable before that is told.
            let _ = session.abort();
            return Ok(Some((reply, db.log_end().lsn)));
        }
        let place = commit(session, asked)?;
        Ok(Some((reply, place)))
    }
}

fn commit(mut session: BranchSession, asked: Level) -> Result<Lsn, SqlError> {
    // A cancellation that has come too late ends no commit.
    session.clear_cancellation();
    let mut tx = session.into_transaction()?;
    if asked == Level::Disk {
        tx.set_durability(Durability::Disk);
    }
    let placed = tx.submit().map(|ticket| ticket.lsn());
    placed.map_err(|error| match has_no_effect(&error) {
        true => retry("the partition has aborted it"),
        false => unknown(),
    })
}

/// A result that is alone in its transaction comes as a whole.
struct NoPortions {
    has_more: bool,
}

impl Portions for NoPortions {
    fn give(&mut self, _: Reply) -> Result<Next, SqlError> {
        self.has_more = true;
        Err(SqlError::new(SqlState::Cancelled, "the result is larger than one portion"))
    }
}
