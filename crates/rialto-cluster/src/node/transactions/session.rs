//! [`SessionTransaction`]: a transaction over the cluster's partitions, as a SQL session has it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto::fault_injection;
use rialto_sql::partitions::{
    Answer as SqlAnswer, BranchCanceller, Branches, CancelBranches, Cause, Choices, Opening as SqlOpening,
    PartitionNumber, Reply, Request, Told, Work as SqlRequest,
};
use rialto_sql::{Result, SqlError};

use super::alone::Alone;
use super::cluster::Transactions;
use super::coordinators::{Cancelled, Coordinated, Ended};
use super::counts::Counters;
use super::directory::Serves;
use super::work::{Action as AnyAction, Answer, SqlAction, SqlWork, What, level};
use crate::net::SendError;
use crate::protocol::PartitionId;
use crate::protocol::replication::Unprotected;
use crate::protocol::transactions::{
    Access, Action, Address, Body, BranchRef, Coordinator, Level, Message, Opening, Outcome, Pace, Place,
    Plan, Sender, Tries,
};

/// How long a statement waits for a primary of its partition.
const PRIMARY_WITHIN: Duration = Duration::from_secs(20);
/// How often a statement that waits looks whether it was cancelled.
const LOOK_FOR_PRIMARY: Duration = Duration::from_millis(50);
/// The longest wait for a lock in a transaction that has branches in several partitions: two of them may wait for each other,
/// and no partition sees both waits.
const LOCK_WAIT_OVER_PARTITIONS: Duration = Duration::from_millis(1000);
/// The same where the session runs its statement again by itself.
const LOCK_WAIT_OF_RETRIED: Duration = Duration::from_millis(50);

/// A transaction over the cluster's partitions. Its session's thread waits in its calls.
pub struct SessionTransaction {
    node: Arc<Transactions>,
    pub(super) opening: SqlOpening,
    state: Option<Arc<Coordinated>>,
    branches: Arc<Mutex<Joined>>,
    /// Branches that have not heard that a cancellation was taken back.
    to_clear: BTreeSet<PartitionId>,
    /// What the branch of a statement that is alone in its transaction does when it has given its last row.
    then: Then,
    /// The level that was asked for with the first statement.
    level: Level,
    is_over: bool,
    /// Where the statement that was alone in its transaction has run.
    called: Option<Serves>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Waits,
    Commits,
}

/// The branches, for a cancellation from another thread.
#[derive(Default)]
pub(super) struct Joined {
    branches: BTreeMap<PartitionId, Serves>,
    coordinated: Option<Weak<Coordinated>>,
    /// That of a statement that the session's thread runs itself.
    here: Option<BranchCanceller>,
    is_cancelled: bool,
}

/// A statement runs on the session's thread. A cancellation that comes later does not end it.
pub(super) struct RunsHere<'s>(&'s Mutex<Joined>);

impl Drop for RunsHere<'_> {
    fn drop(&mut self) {
        self.0.lock().here = None;
    }
}

struct Cancel {
    node: Weak<Transactions>,
    joined: Arc<Mutex<Joined>>,
}

impl CancelBranches for Cancel {
    fn cancel(&self) {
        let Some(node) = self.node.upgrade() else { return };
        let mut joined = self.joined.lock();
        joined.is_cancelled = true;
        if let Some(here) = &joined.here {
            here.cancel();
        }
        let Some(coordinated) = joined.coordinated.as_ref().and_then(Weak::upgrade) else { return };
        for serves in joined.branches.values() {
            node.cancel(serves.node, Cancelled { partition: serves.partition, transaction: coordinated.id });
        }
    }
}

impl SessionTransaction {
    pub fn new(node: Arc<Transactions>, opening: SqlOpening) -> SessionTransaction {
        SessionTransaction {
            node,
            opening,
            state: None,
            branches: Arc::default(),
            to_clear: BTreeSet::new(),
            then: Then::Waits,
            level: level(None),
            is_over: false,
            called: None,
        }
    }

    fn action(&mut self, partition: PartitionId, what: What) -> AnyAction {
        let opening = self.opening.clone();
        let clears_cancellation = self.to_clear.remove(&partition);
        AnyAction::Sql(SqlAction { opening, clears_cancellation, what })
    }

    /// Runs a statement that is alone in its transaction, as a call.
    fn call(&mut self, partition: PartitionId, request: Request) -> Reply {
        let mut newer_than = None;
        let writes = may_write(&request);
        if let Some(served) = self.node.find_served(partition)
            && !fault_injection::is_on("sessions-hand-all-over")
        {
            match self.run_here(&served, &request) {
                Alone::Replied(reply) => {
                    if reply.answer.is_ok() {
                        self.node.has_committed(1);
                    }
                    return *reply;
                }
                Alone::TooLarge => return self.run_and_commit(partition, request),
                Alone::NotServed => {}
            }
        }
        loop {
            let serves = match self.find_primary(partition, newer_than) {
                Ok(serves) => serves,
                Err(error) => return failed(error),
            };
            let node = self.node.clone();
            let coordinated = node.coordinators().begin(Pace::Call);
            let _ending = node.coordinators().ending(&coordinated);
            let may_send = coordinated.begin_call(partition, serves.opening);
            self.join(&coordinated, serves);
            self.called = Some(serves);
            let body = Body::Call {
                opening: serves.opening,
                low: self.node.coordinators().low(),
                request: None,
                level: level(choices(&request).and_then(|choices| choices.durability)),
                action: self.action(partition, What::Request(request.clone())),
            };
            if may_send {
                let own = self.node.request_all(vec![Message {
                    from: Sender::Coordinator(self.node.me()),
                    to: Address::Partition(partition),
                    transaction: coordinated.id,
                    body,
                }]);
                self.cancel_if_asked(&coordinated);
                own.run();
            }
            let ended = self.wait_end(&coordinated);
            self.leave(&coordinated);
            match ended {
                Ended::As(Outcome::Answered(Answer::Reply(reply))) => {
                    if reply.answer.is_ok() {
                        self.node.has_committed(1);
                    }
                    return *reply;
                }
                Ended::As(Outcome::Answered(Answer::TooLarge)) => {
                    return self.run_and_commit(partition, request);
                }
                Ended::NotOpened => newer_than = Some(serves.opening),
                Ended::NotSent(SendError::TooLong) => return failed(too_long()),
                // Its connection is gone. It may be back with the same opening.
                Ended::NotSent(_) => std::thread::sleep(Duration::from_millis(10)),
                Ended::As(Outcome::Aborted) => return failed(retry("the partition has aborted it")),
                Ended::As(_) if !writes => return failed(retry("its partition's primary has changed")),
                Ended::As(_) => return failed(unknown()),
            }
        }
    }

    /// Asks a partition something, which has no effect. Gives the opening that has answered. Waits until that, or a cancellation,
    /// or for as long as for a primary.
    pub(super) fn ask(&mut self, partition: PartitionId, what: What) -> Result<(Opening, Answer)> {
        let until = Instant::now() + PRIMARY_WITHIN;
        let mut newer_than = None;
        loop {
            let serves = self.find_primary(partition, newer_than)?;
            let node = self.node.clone();
            let coordinated = node.coordinators().begin(Pace::Call);
            let _ending = node.coordinators().ending(&coordinated);
            let may_send = coordinated.begin_call(partition, serves.opening);
            let body = Body::Call {
                opening: serves.opening,
                low: self.node.coordinators().low(),
                request: None,
                level: Level::Standby,
                action: self.action(partition, what.clone()),
            };
            if may_send {
                let own = self.node.request_all(vec![Message {
                    from: Sender::Coordinator(self.node.me()),
                    to: Address::Partition(partition),
                    transaction: coordinated.id,
                    body,
                }]);
                own.run();
            }
            let mut ended = None;
            while ended.is_none() && Instant::now() < until && !self.branches.lock().is_cancelled {
                let look = Instant::now() + LOOK_FOR_PRIMARY;
                ended = self.node.wait_end(&coordinated, Some(look.min(until)));
            }
            self.leave(&coordinated);
            match ended {
                Some(Ended::As(Outcome::Answered(answer))) => return Ok((serves.opening, answer)),
                Some(Ended::NotOpened) => newer_than = Some(serves.opening),
                // The cancellation is found in the next round.
                None if Instant::now() < until => {}
                None => return Err(no_answer(partition)),
                Some(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            if Instant::now() >= until {
                return Err(no_primary(partition));
            }
        }
    }

    /// A statement runs on this thread from now on, until this is dropped.
    pub(super) fn runs_here(&self, canceller: BranchCanceller) -> RunsHere<'_> {
        let mut joined = self.branches.lock();
        if joined.is_cancelled {
            canceller.cancel();
        }
        joined.here = Some(canceller);
        RunsHere(&self.branches)
    }

    /// Where a partition is served. Waits for a primary, unless the statement is cancelled.
    fn find_primary(&self, partition: PartitionId, newer_than: Option<Opening>) -> Result<Serves> {
        let began = Instant::now();
        loop {
            if self.branches.lock().is_cancelled {
                return Err(cancelled());
            }
            if let Some(serves) = self.node.directory().wait(partition, newer_than, LOOK_FOR_PRIMARY) {
                return Ok(serves);
            }
            if began.elapsed() >= PRIMARY_WITHIN || self.node.is_closed() {
                return Err(no_primary(partition));
            }
        }
    }

    /// Runs a statement that is alone in its transaction, and whose result comes in portions.
    fn run_and_commit(&mut self, partition: PartitionId, request: Request) -> Reply {
        self.then = Then::Commits;
        let replies = self.phase(vec![(partition, request)]);
        self.after_portion(replies)
    }

    /// The last portion ends the transaction.
    fn after_portion(&mut self, mut replies: Vec<Reply>) -> Reply {
        let reply = replies.pop().unwrap_or_else(|| failed(retry("a reply is missing")));
        match reply.answer {
            Ok(SqlAnswer::More(_)) => reply,
            Ok(_) => match self.commit_all(None) {
                Ok(()) => reply,
                Err(error) => failed(error),
            },
            Err(_) => {
                self.give_up();
                reply
            }
        }
    }

    /// Runs a phase: an action in each of these partitions.
    fn phase(&mut self, requests: Vec<(PartitionId, Request)>) -> Vec<Reply> {
        let count = requests.len();
        let all_fail = |error: &SqlError| (0..count).map(|_| failed(error.clone())).collect();
        if self.is_over {
            return all_fail(&retry("an earlier failure has ended it"));
        }
        let partitions: Vec<PartitionId> = requests.iter().map(|(partition, _)| *partition).collect();
        let asked =
            requests.iter().find_map(|(_, request)| choices(request)).and_then(|choices| choices.durability);
        if let Err(error) = self.join_all(&partitions, asked) {
            self.give_up();
            return all_fail(&error);
        }
        let bounded = self.branches.lock().branches.len() > 1;
        let mut actions = Vec::with_capacity(count);
        let mut is_shortened = false;
        for (partition, mut request) in requests {
            is_shortened |= bounded && bound_lock_wait(&mut request, self.then);
            let what = What::Request(request);
            actions.push(Action { partition, action: self.action(partition, what), place: Place::Open });
        }
        match self.act(actions) {
            Ok(replies) => {
                let mut by_partition: BTreeMap<PartitionId, Answer> = replies.into_iter().collect();
                let reply = |partition: &PartitionId| match by_partition.remove(partition) {
                    Some(Answer::Reply(reply)) if is_shortened => victim(*reply),
                    Some(Answer::Reply(reply)) => *reply,
                    _ => failed(retry("a reply is missing")),
                };
                partitions.iter().map(reply).collect()
            }
            Err(error) => all_fail(&error),
        }
    }

    fn join_all(
        &mut self,
        partitions: &[PartitionId],
        asked: Option<rialto_sql::partitions::Level>,
    ) -> Result<()> {
        for partition in partitions {
            if self.branches.lock().branches.contains_key(partition) {
                continue;
            }
            let serves = self.find_primary(*partition, None)?;
            // It writes once it has: the replies say so.
            let of = BranchRef { partition: *partition, opening: serves.opening, access: Access::Reads };
            match self.state.clone() {
                None => {
                    self.level = level(asked);
                    let coordinated = self.node.coordinators().begin(Pace::Statements);
                    let here = self.node.directory().of_node(self.node.me());
                    let plan = Plan {
                        request: None,
                        deciding: *partition,
                        level: self.level,
                        pace: Pace::Statements,
                        branches: vec![of],
                        tries: Tries::First,
                        local: here.iter().map(|serves| serves.partition).collect(),
                    };
                    let coordinator = Coordinator::new(coordinated.id, plan, self.node.now());
                    coordinated.state.lock().coordinator = Some(coordinator);
                    self.join(&coordinated, serves);
                    self.state = Some(coordinated);
                }
                Some(coordinated) => {
                    let mut progress = coordinated.state.lock();
                    if progress.ended.is_some() {
                        return Err(retry("a partition's primary has changed"));
                    }
                    progress.coordinator.as_mut().expect("it is no call").join(of);
                    drop(progress);
                    self.join(&coordinated, serves);
                }
            }
        }
        Ok(())
    }

    fn join(&self, coordinated: &Arc<Coordinated>, serves: Serves) {
        let mut joined = self.branches.lock();
        joined.coordinated = Some(Arc::downgrade(coordinated));
        joined.branches.insert(serves.partition, serves);
    }

    /// Runs the actions of a phase.
    fn act(&mut self, actions: Vec<Action<SqlWork>>) -> Result<Vec<(PartitionId, Answer)>> {
        let coordinated = self.state.clone().expect("it has a branch");
        let low = self.node.coordinators().low();
        let messages = {
            let mut progress = coordinated.state.lock();
            if progress.ended.is_none() {
                progress.replies = None;
                progress.coordinator.as_mut().expect("it is no call").phase(actions, low);
            }
            coordinated.take_effects(&mut progress)
        };
        let own = self.node.request_all(messages);
        self.cancel_if_asked(&coordinated);
        own.run();
        let mut progress = coordinated.state.lock();
        loop {
            if let Some(replies) = progress.replies.take() {
                return Ok(replies);
            }
            if let Some(ended) = &progress.ended {
                let is_too_long = matches!(ended, Ended::NotSent(SendError::TooLong));
                drop(progress);
                self.is_over = true;
                return Err(match is_too_long {
                    true => too_long(),
                    false => retry("a partition's primary has changed, or a branch had to be ended"),
                });
            }
            Counters::add(&self.node.counters().waits);
            coordinated.changed.wait(&mut progress);
        }
    }

    /// A cancellation may have come before there was a branch.
    fn cancel_if_asked(&self, coordinated: &Coordinated) {
        let joined = self.branches.lock();
        if joined.is_cancelled {
            for serves in joined.branches.values() {
                let cancelled = Cancelled { partition: serves.partition, transaction: coordinated.id };
                self.node.cancel(serves.node, cancelled);
            }
        }
    }

    fn commit_all(&mut self, choices: Option<&Choices>) -> Result<()> {
        let Some(coordinated) = self.state.clone() else { return Ok(()) };
        self.level = choices.map_or(self.level, |choices| level(choices.durability));
        self.ask_for_protection()?;
        let now = self.node.now();
        let messages = {
            let mut progress = coordinated.state.lock();
            if progress.ended.is_none() {
                let coordinator = progress.coordinator.as_mut().expect("it is no call");
                coordinator.set_level(self.level);
                coordinator.commit(Answer::Nothing, now);
            }
            coordinated.take_effects(&mut progress)
        };
        self.node.request_all(messages).run();
        let ended = self.wait_end(&coordinated);
        self.is_over = true;
        match ended {
            Ended::As(Outcome::Answered(_)) => {
                self.node.has_committed(self.branches.lock().branches.len());
                Ok(())
            }
            Ended::As(Outcome::Aborted) | Ended::NotOpened | Ended::NotSent(_) => {
                Err(retry("a partition's primary has changed, or a partition has refused it"))
            }
            Ended::As(Outcome::Unknown | Outcome::TooOld) => Err(unknown()),
        }
    }

    /// Where commits at level 2 are refused in unprotected partitions, the branches are asked before any of them votes: the
    /// client hears why. One that becomes unprotected after that refuses to vote, or to decide.
    fn ask_for_protection(&mut self) -> Result<()> {
        let partitions: Vec<PartitionId> = self.branches.lock().branches.keys().copied().collect();
        let level = if partitions.len() > 1 { self.level.over_partitions() } else { self.level };
        if self.node.unprotected() == Unprotected::WhenOnDisk || level != Level::Standby {
            return Ok(());
        }
        let actions = partitions.into_iter().map(|partition| Action {
            partition,
            action: self.action(partition, What::Admit),
            place: Place::Open,
        });
        let actions = actions.collect();
        let replies = self.act(actions)?;
        let refusal = replies.into_iter().find_map(|(_, reply)| match reply {
            Answer::Reply(reply) => reply.answer.err(),
            Answer::Nothing | Answer::Called(_) | Answer::TooLarge => None,
        });
        match refusal {
            Some(told) => {
                self.give_up();
                Err(SqlError::from(told))
            }
            None => Ok(()),
        }
    }

    fn wait_end(&self, coordinated: &Coordinated) -> Ended {
        let mut progress = coordinated.state.lock();
        loop {
            if let Some(ended) = &progress.ended {
                return ended.clone();
            }
            Counters::add(&self.node.counters().waits);
            coordinated.changed.wait(&mut progress);
        }
    }

    /// Gives the transaction up, if it has not ended.
    fn give_up(&mut self) {
        self.is_over = true;
        let Some(coordinated) = &self.state else { return };
        let messages = {
            let mut progress = coordinated.state.lock();
            if let Some(coordinator) = &mut progress.coordinator {
                coordinator.give_up();
            }
            coordinated.take_effects(&mut progress)
        };
        self.node.request_all(messages).run();
    }

    fn leave(&self, coordinated: &Coordinated) {
        self.node.coordinators().end(coordinated);
        let mut joined = self.branches.lock();
        joined.branches.clear();
        joined.coordinated = None;
    }
}

impl Branches for SessionTransaction {
    fn run(&mut self, requests: Vec<(PartitionNumber, Request)>) -> Vec<Reply> {
        let mut requests: Vec<(PartitionId, Request)> =
            requests.into_iter().map(|(partition, request)| (PartitionId(partition.0), request)).collect();
        let is_alone = matches!(&requests[..], [(_, Request::Run(run))] if run.then_commit);
        if is_alone && self.state.is_none() {
            let (partition, request) = requests.pop().expect("there is one");
            return vec![self.call(partition, request)];
        }
        let replies = self.phase(requests);
        match self.then {
            Then::Commits => vec![self.after_portion(replies)],
            Then::Waits => replies,
        }
    }

    fn canceller(&self) -> Arc<dyn CancelBranches> {
        Arc::new(Cancel { node: Arc::downgrade(&self.node), joined: self.branches.clone() })
    }

    fn openings(&self) -> Vec<(PartitionNumber, u64)> {
        let joined = self.branches.lock();
        let all = joined.branches.values().chain(&self.called);
        all.map(|serves| (PartitionNumber(serves.partition.0), serves.opening.0)).collect()
    }

    fn clear_cancellation(&mut self) {
        let mut joined = self.branches.lock();
        joined.is_cancelled = false;
        self.to_clear = joined.branches.keys().copied().collect();
    }

    fn settle(&mut self, choices: &Choices) -> Result<()> {
        if self.state.is_none() || self.is_over {
            return Ok(());
        }
        let partitions: Vec<PartitionId> = self.branches.lock().branches.keys().copied().collect();
        let what = What::Settle(level(choices.durability));
        let actions = partitions.into_iter().map(|partition| Action {
            partition,
            action: self.action(partition, what.clone()),
            place: Place::Open,
        });
        let actions = actions.collect();
        self.act(actions).map(drop)
    }

    fn commit(mut self: Box<Self>, choices: &Choices) -> Result<()> {
        if self.is_over {
            return Err(retry("an earlier failure has ended it"));
        }
        self.commit_all(Some(choices))
    }

    fn abort(mut self: Box<Self>, choices: &Choices) -> Result<()> {
        // What cannot be read any more was told to no client as durable.
        let _ = self.settle(choices);
        self.give_up();
        Ok(())
    }
}

impl Drop for SessionTransaction {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
        }
        if let Some(coordinated) = self.state.take() {
            self.leave(&coordinated);
        }
    }
}

fn choices(request: &Request) -> Option<&Choices> {
    match request {
        Request::Run(run) => Some(&run.choices),
        Request::Fetch | Request::Close => None,
    }
}

/// Whether a request may leave something, as far as its text tells.
fn may_write(request: &Request) -> bool {
    let Request::Run(run) = request else { return false };
    match &run.work {
        SqlRequest::Statement(statement) => {
            let text = statement.text.trim_start();
            !text.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))
        }
        SqlRequest::Definition(_) => false,
        SqlRequest::Insert(_) | SqlRequest::TakeMisplaced(_) | SqlRequest::RollbackTo(_) => true,
    }
}

fn bound_lock_wait(request: &mut Request, then: Then) -> bool {
    let Request::Run(run) = request else { return false };
    let bound = match then {
        Then::Commits => LOCK_WAIT_OF_RETRIED,
        Then::Waits => LOCK_WAIT_OVER_PARTITIONS,
    };
    let bound = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
    let is_longer = run.choices.lock_timeout_us > bound;
    run.choices.lock_timeout_us = run.choices.lock_timeout_us.min(bound);
    is_longer
}

/// A wait for a lock that was ended in a transaction over several partitions counts as a deadlock: its session, or its
/// client, tries again.
fn victim(mut reply: Reply) -> Reply {
    if let Err(told) = &mut reply.answer
        && told.sqlstate == LOCK_NOT_AVAILABLE
    {
        told.sqlstate = "40P01".to_owned();
        told.hint = Some(
            "Two transactions over several partitions may have waited for each other. Run the transaction again.".to_owned(),
        );
        told.cause = Cause::Deadlock;
    }
    reply
}

const LOCK_NOT_AVAILABLE: &str = "55P03";

pub(super) fn failed(error: SqlError) -> Reply {
    Reply { answer: Err(Told::from(&error)), has_written: false }
}

pub(super) fn told(sqlstate: &str, message: String, hint: &str, cause: Cause) -> SqlError {
    SqlError::from(Told {
        sqlstate: sqlstate.to_owned(),
        message,
        detail: None,
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
        position: None,
        table: None,
        column: None,
        constraint: None,
        context: None,
        row: None,
        cause,
    })
}

fn cancelled() -> SqlError {
    told("57014", "canceling statement due to user request".to_owned(), "", Cause::None)
}

fn too_long() -> SqlError {
    let message = "the statement with its arguments, or a row, is too long for a message between nodes";
    told("54000", message.to_owned(), "A message has at most 4 MiB.", Cause::None)
}

fn no_primary(partition: PartitionId) -> SqlError {
    let message = format!("{partition} has no primary that serves at the moment");
    told(
        "57P03",
        message,
        "Try again later; `rialto cluster status` shows the partition's replicas.",
        Cause::None,
    )
}

fn no_answer(partition: PartitionId) -> SqlError {
    let message =
        format!("the primary of {partition} did not answer within {} seconds", PRIMARY_WITHIN.as_secs());
    told(
        "57P03",
        message,
        "What was written there is not yet in the memory of each replica in sync, or the primary is cut off. Try again later; \
         `rialto cluster status` shows the partition's replicas.",
        Cause::None,
    )
}

pub(super) fn retry(why: &str) -> SqlError {
    let message = format!("the transaction over partitions has no effect: {why}");
    told("40001", message, "Run the transaction again.", Cause::Deadlock)
}

pub(super) fn unknown() -> SqlError {
    let message = "it is not known whether the transaction has committed: the primary that decides it has gone, or has not \
                   answered in time";
    told(
        "08007",
        message.to_owned(),
        "Look for the transaction's effects before you run it again.",
        Cause::OutcomeUnknown,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::transactions::work::unprotected;

    #[test]
    fn what_a_client_is_told_keeps_its_sqlstate() {
        let errors = [
            (no_primary(PartitionId(3)), "57P03"),
            (no_answer(PartitionId(3)), "57P03"),
            (retry("a primary has changed"), "40001"),
            (unknown(), "08007"),
            (cancelled(), "57014"),
            (too_long(), "54000"),
            (SqlError::from(Told::from(&unprotected(PartitionId(3)))), "53000"),
        ];
        for (error, code) in errors {
            assert_eq!(error.sqlstate.code(), code, "{error}");
        }
    }
}
