//! Calls, on the node that a program calls: [`Transactions::call`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::{Error, Lsn, Transaction, TxOptions, fault_injection};
use rialto_sql::partitions::partition_of;

use super::branch::has_no_effect;
use super::called::{ARGUMENT_BYTES_MAX, is_of_the_moment, is_too_long, options};
use super::cluster::Transactions;
use super::coordinators::{Cancelled, Coordinated, Ended};
use super::counts::Counters;
use super::directory::Serves;
use super::over::Over;
use super::served::ServedPartition;
use super::work::{Action as AnyAction, Answer, SqlWork, unprotected};
use crate::net::SendError;
use crate::node::calls::{
    Call, CallAction, CallError, Failure, Outputs, Part, Procedure, ProcedureAction, words_of,
};
use crate::node::random::random_number;
use crate::protocol::PartitionId;
use crate::protocol::transactions::{
    Access, Address, Body, BranchRef, Coordinator, Level, Message, Opening, Outcome, Pace, Plan, Sender,
    Tries,
};

/// The first pause between two tries of a call, and the longest one. Each is twice as long as the one before it, or up
/// to half of that less.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Why a try was ended, if partitions do not say more.
const OFTEN: &str = "a deadlock, a lock time-out or a change of a primary";

/// How much longer than a call is tried a running try is waited for. Then it is cancelled, and its end is waited for as
/// long again.
const GRACE: Duration = Duration::from_secs(10);
/// No call is tried for longer.
const PATIENCE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How one try of a call has ended.
pub enum Tried {
    /// For good.
    Done(Result<Outputs, CallError>),
    /// It has committed, and its caller has its outputs.
    Here,
    /// Without an effect: it may be tried again. With the opening of the partition that did not open it.
    NoEffect(Option<Opening>),
    /// Without an effect, for a reason that may pass: it may be tried again.
    Passing(String),
    /// It has committed, and its coordinator has its outputs.
    Committed,
    /// Its outcome is not known.
    Unknown,
}

/// A call, ready to be tried.
pub struct Trying<'c> {
    pub call: &'c Call,
    pub procedure: Arc<Procedure>,
    /// The only partition that it needs, if there is only one.
    whole: Option<PartitionId>,
    /// Otherwise the partition of each key.
    partitions: Vec<PartitionId>,
    until: Instant,
    /// A try of it may have had effects, or may run still.
    is_again: bool,
    newer_than: Option<Opening>,
    /// Why a try has had no effect, as far as it is known.
    why: Option<String>,
}

impl Trying<'_> {
    /// The partition of a key that an action has.
    pub fn partition(&self, key: usize) -> PartitionId {
        self.whole.unwrap_or_else(|| self.partitions[key])
    }

    /// What the actions of each partition may do, all in all, if there are several partitions.
    fn accesses(&self) -> BTreeMap<PartitionId, Access> {
        let mut accesses = BTreeMap::new();
        if self.whole.is_some() {
            return accesses;
        }
        for action in self.procedure.actions() {
            let access = accesses.entry(self.partition(action.key())).or_insert(Access::Reads);
            *access = action.access().max(*access);
        }
        accesses
    }

    pub fn action(&self, access: Access, part: Part) -> AnyAction {
        AnyAction::Call(CallAction {
            procedure: self.procedure.name().to_string(),
            version: self.procedure.version(),
            access,
            level: match part {
                Part::Whole { .. } => self.call.level.of_protocol(),
                Part::Some { .. } | Part::Settle => self.call.level.of_protocol().over_partitions(),
            },
            is_numbered: self.call.request.is_some(),
            part,
        })
    }

    fn told(&self, answer: Answer) -> Tried {
        match answer {
            Answer::Called(Ok(outputs)) => Tried::Done(Ok(outputs)),
            Answer::Called(Err(failure)) => self.failed(failure),
            Answer::Nothing => Tried::Committed,
            // It is none of a call.
            Answer::Reply(_) | Answer::TooLarge => Tried::Unknown,
        }
    }

    /// A partition has told this.
    pub fn failed(&self, failure: Failure) -> Tried {
        match failure {
            Failure::NotInstalled => self.refused(CallError::NotInstalled {
                procedure: self.procedure.name().to_string(),
                version: Some(self.procedure.version()),
            }),
            Failure::Failed(why) => Tried::Done(Err(CallError::Failed(why))),
            Failure::TooLong => Tried::Done(Err(CallError::TooLong)),
            Failure::Passing(why) => Tried::Passing(why),
        }
    }

    /// This try has not run. An earlier sending may have, and does not tell.
    pub fn refused(&self, error: CallError) -> Tried {
        Tried::Done(Err(if self.is_again { CallError::Unknown } else { error }))
    }
}

impl Transactions {
    /// The partition that rows with these values in their routing columns lie in, whichever node serves it.
    pub fn partition_of(&self, key: &[rialto::row::Value]) -> PartitionId {
        PartitionId(partition_of(key.iter().map(rialto::row::Value::borrow), self.partitions_count()).0)
    }

    /// Runs a call, and waits until its effects are durable at its level. It is run again after deadlocks and changes
    /// of primaries, as long as the tries before had no effect, and with a number also if that is not known.
    ///
    /// If all its keys lie in a partition that this node serves, and it has no number, it runs on this thread.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, call: &Call) -> Result<Outputs, CallError> {
        let mut outputs = Outputs::new();
        self.call_into(call, &mut outputs).map(|()| outputs)
    }

    /// As [`Transactions::call`], into buffers that are used again: a call without a number that runs on this thread then
    /// allocates nothing at level memory, as far as its bodies do not. At other levels a wait for the level allocates. After
    /// an error the outputs are of no use.
    ///
    /// # Errors
    /// As [`Transactions::call`].
    pub fn call_into(&self, call: &Call, outputs: &mut Outputs) -> Result<(), CallError> {
        let mut trying = self.prepare(call)?;
        let accesses = trying.accesses();
        let mut pause = PAUSE;
        loop {
            let mut tried = match trying.whole {
                Some(partition) => self.try_whole(&trying, partition, outputs),
                None => self.try_over(&trying, &accesses),
            };
            if let Tried::Passing(why) = tried {
                trying.why = Some(why);
                tried = Tried::NoEffect(None);
            }
            match tried {
                Tried::Here => {
                    self.has_committed(1);
                    return Ok(());
                }
                Tried::Done(answer) => {
                    if answer.is_ok() {
                        self.has_committed(accesses.len().max(1));
                    }
                    return answer.map(|given| *outputs = given);
                }
                Tried::NoEffect(opening) => {
                    if opening.is_some() {
                        trying.newer_than = opening;
                    }
                    if Instant::now() >= trying.until || self.is_closed() {
                        // Of a number that was sent before, only a try that is answered tells.
                        let is_known = call.request.is_none() || !(call.is_again || trying.is_again);
                        let why = trying.why.take().unwrap_or_else(|| OFTEN.to_owned());
                        return Err(if is_known { CallError::Aborted(why) } else { CallError::Unknown });
                    }
                }
                // No partition answers so: its outputs are lost.
                Tried::Committed | Tried::Passing(_) => return Err(CallError::Unknown),
                Tried::Unknown => {
                    let may_try = call.request.is_some() || trying.procedure.access() == Access::Reads;
                    if !may_try || Instant::now() >= trying.until || self.is_closed() {
                        return Err(CallError::Unknown);
                    }
                    trying.is_again = true;
                }
            }
            Counters::add(&self.counters().calls_again);
            // Two calls that have waited for each other do not meet again.
            std::thread::sleep(pause.mul_f64(0.5 + (random_number() % 1024) as f64 / 2048.0));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn prepare<'c>(&self, call: &'c Call) -> Result<Trying<'c>, CallError> {
        if call.arguments.len() > ARGUMENT_BYTES_MAX {
            return Err(CallError::TooLong);
        }
        let is_again = call.is_again && call.request.is_some();
        let Some(procedure) = self.procedures().find(&call.procedure, call.version) else {
            let procedure = call.procedure.to_string();
            // Another node may have had it.
            if is_again {
                return Err(CallError::Unknown);
            }
            return Err(CallError::NotInstalled { procedure, version: call.version });
        };
        let (needed, found) = (procedure.keys(), call.keys.len());
        if found < needed {
            return Err(CallError::TooFewKeys { procedure: call.procedure.to_string(), needed, found });
        }
        // Most keys are equal where there is one partition: these are not looked at again.
        let key = |action: &ProcedureAction| &call.keys[action.key()];
        let mut used = procedure.actions().map(key);
        let whole = used.next().and_then(|first| {
            let partition = self.partition_of(first);
            used.all(|key| key == first || self.partition_of(key) == partition).then_some(partition)
        });
        let partitions = match whole {
            Some(_) => Vec::new(),
            None => call.keys.iter().map(|key| self.partition_of(key)).collect(),
        };
        Ok(Trying {
            call,
            procedure: procedure.clone(),
            whole,
            partitions,
            until: Instant::now() + call.patience.min(PATIENCE_MAX),
            is_again,
            newer_than: None,
            why: None,
        })
    }

    /// A call that needs one partition alone.
    fn try_whole(&self, trying: &Trying<'_>, partition: PartitionId, outputs: &mut Outputs) -> Tried {
        let call = trying.call;
        if call.request.is_none()
            && let Some(served) = self.find_served(partition)
        {
            return self.call_here(trying, &served, outputs);
        }
        let serves = match self.primary(partition, trying.newer_than, trying.until) {
            Ok(serves) => serves,
            Err(error) => return Tried::Done(Err(without_primary(trying, error))),
        };
        // Its body may take its time. Partitions need not remember all that has ended since.
        let coordinated = self.coordinators().begin(Pace::Statements);
        let ending = self.coordinators().ending(&coordinated);
        let may_send = coordinated.begin_call(partition, serves.opening);
        let part = Part::Whole { arguments: call.arguments.clone() };
        let body = Body::Call {
            opening: serves.opening,
            low: self.coordinators().low(),
            request: call.request,
            level: call.level.of_protocol(),
            action: trying.action(trying.procedure.access(), part),
        };
        if may_send {
            coordinated.state.lock().cancel_at = Some(trying.until + GRACE);
            let own = self.request_all(vec![Message {
                from: Sender::Coordinator(self.me()),
                to: Address::Partition(partition),
                transaction: coordinated.id,
                body,
            }]);
            own.run();
        }
        let ended = self.wait_end(&coordinated, Some(trying.until + GRACE)).or_else(|| {
            self.cancel(serves.node, Cancelled { partition, transaction: coordinated.id });
            self.wait_end(&coordinated, Some(Instant::now() + GRACE))
        });
        drop(ending);
        match ended {
            None => Tried::Unknown,
            Some(Ended::As(outcome)) => of_outcome(trying, outcome),
            Some(Ended::NotOpened) => Tried::NoEffect(Some(serves.opening)),
            Some(Ended::NotSent(SendError::TooLong)) => trying.refused(CallError::TooLong),
            Some(Ended::NotSent(_)) => Tried::NoEffect(None),
        }
    }

    /// Runs a call in a partition that this node serves, on this thread.
    fn call_here(&self, trying: &Trying<'_>, served: &ServedPartition, outputs: &mut Outputs) -> Tried {
        let lead = served.lead();
        // A replica that drains, or whose promises have run out, may serve again in a moment.
        let Ok(admitted) = lead.admit_here() else { return Tried::NoEffect(None) };
        let (procedure, level) = (&trying.procedure, trying.call.level.of_protocol());
        let db = lead.database();
        let read_only = procedure.access() == Access::Reads;
        let is_refused = lead.refuses_level_2() && !fault_injection::is_on("calls-run-unprotected");
        if !read_only && level == Level::Standby && is_refused {
            return Tried::Passing(unprotected(served.serves().partition).to_string());
        }
        let options = TxOptions { read_only, ..options(db, procedure, level) };
        let (mut has_ended, mut has_too_much) = (false, false);
        let body = |tx: &mut Transaction<'_>| {
            (has_ended, has_too_much) = (false, false);
            procedure.run(tx, &trying.call.arguments, outputs)?;
            has_too_much = is_too_long(outputs, false);
            if has_too_much {
                return Err(Error::aborted("its outputs are too long"));
            }
            has_ended = true;
            Ok(())
        };
        let mut synced = None;
        let ran = match level {
            // All that ran may be answered at this level, whatever its place is.
            Level::Memory => db.transact_with(&options, body).map(|()| Lsn::ZERO),
            Level::Standby | Level::Disk => db.submit_with(&options, body).map(|((), ticket)| {
                let place = ticket.lsn();
                synced = (level == Level::Disk).then_some(ticket);
                place
            }),
        };
        let (answer, place) = match ran {
            Ok(place) => (Tried::Here, place),
            // An error of its commit.
            Err(error) if has_ended && !has_no_effect(&error) => return Tried::Unknown,
            Err(error) if is_of_the_moment(&error) => return Tried::Passing(words_of(&error)),
            // What led to it is durable before it is told.
            Err(_) if has_too_much => (Tried::Done(Err(CallError::TooLong)), db.log_end().lsn),
            Err(error) => (Tried::Done(Err(CallError::Failed(words_of(&error)))), db.log_end().lsn),
        };
        let until = Some(trying.until + GRACE);
        let answered = match synced {
            None => admitted.answer_until(place, level, until),
            Some(ticket) => {
                // A planned change of the primary does not wait for the disk.
                drop(admitted);
                // Its blocks go to the standbys while it goes to the disk, with other commits. A log that fails is
                // noticed then.
                lead.ship();
                let _ = ticket.wait();
                lead.answer_until(place, level, until)
            }
        };
        match answered {
            Ok(true) => {
                Counters::add(&self.counters().calls_here);
                answer
            }
            Ok(false) | Err(_) if matches!(answer, Tried::Done(_)) => Tried::NoEffect(None),
            Ok(false) | Err(_) => Tried::Unknown,
        }
    }

    /// A call over several partitions.
    fn try_over(&self, trying: &Trying<'_>, accesses: &BTreeMap<PartitionId, Access>) -> Tried {
        let mut serves: BTreeMap<PartitionId, Serves> = BTreeMap::new();
        for partition in accesses.keys() {
            match self.primary(*partition, None, trying.until) {
                Ok(found) => drop(serves.insert(*partition, found)),
                Err(error) => return Tried::Done(Err(without_primary(trying, error))),
            }
        }
        let coordinated = self.coordinators().begin(Pace::Call);
        let _ending = self.coordinators().ending(&coordinated);
        let deciding = self.deciding(trying, accesses, &serves);
        // The deciding branch writes the decision, though its actions may only read.
        let mut accesses = accesses.clone();
        accesses.insert(deciding, trying.procedure.access());
        let branches = serves.values().map(|serves| BranchRef {
            partition: serves.partition,
            opening: serves.opening,
            access: accesses[&serves.partition],
        });
        let here = serves.values().filter(|serves| serves.node == self.me());
        let plan = Plan {
            request: trying.call.request,
            deciding,
            level: trying.call.level.of_protocol(),
            pace: Pace::Call,
            branches: branches.collect(),
            tries: if trying.is_again && trying.call.request.is_some() { Tries::Again } else { Tries::First },
            local: here.map(|serves| serves.partition).collect(),
        };
        coordinated.state.lock().coordinator = Some(Coordinator::new(coordinated.id, plan, self.now()));
        let over = Over { node: self, trying, accesses: &accesses, deciding, coordinated: &coordinated };
        over.run()
    }

    /// The deciding partition. With a number it is that of the first key: a function of the call, whatever the version
    /// of the procedure. Otherwise one that costs no message, if there is one that writes.
    fn deciding(
        &self,
        trying: &Trying<'_>,
        accesses: &BTreeMap<PartitionId, Access>,
        serves: &BTreeMap<PartitionId, Serves>,
    ) -> PartitionId {
        let first = trying.procedure.actions().next().expect("a procedure has an action");
        if trying.call.request.is_some() {
            return trying.partition(0);
        }
        let writes = || accesses.iter().filter(|(_, access)| **access == Access::Writes).map(|(of, _)| *of);
        let here = writes().find(|of| serves[of].node == self.me());
        here.or_else(|| writes().next()).unwrap_or_else(|| trying.partition(first.key()))
    }

    /// Where a partition is served. Waits for a primary.
    fn primary(
        &self,
        partition: PartitionId,
        newer_than: Option<Opening>,
        until: Instant,
    ) -> Result<Serves, CallError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // It looks now and then whether the node is closed.
            let patience = left.min(Duration::from_millis(50));
            if let Some(serves) = self.directory().wait(partition, newer_than, patience) {
                return Ok(serves);
            }
            if left.is_zero() || self.is_closed() {
                return Err(CallError::NoPrimary(partition));
            }
        }
    }

    /// Waits for the end of a transaction, until this time.
    pub(super) fn wait_end(&self, coordinated: &Coordinated, until: Option<Instant>) -> Option<Ended> {
        let mut progress = coordinated.state.lock();
        loop {
            if let Some(ended) = &progress.ended {
                return Some(ended.clone());
            }
            Counters::add(&self.counters().waits);
            match until {
                Some(until) if coordinated.changed.wait_until(&mut progress, until).timed_out() => {
                    return progress.ended.clone();
                }
                Some(_) => {}
                None => coordinated.changed.wait(&mut progress),
            }
        }
    }
}

/// A try as the protocol has ended it.
pub fn of_outcome(trying: &Trying<'_>, outcome: Outcome<SqlWork>) -> Tried {
    match outcome {
        Outcome::Answered(answer) => trying.told(answer),
        Outcome::Aborted => Tried::NoEffect(None),
        Outcome::Unknown => Tried::Unknown,
        Outcome::TooOld => Tried::Done(Err(CallError::TooOld)),
    }
}

/// A number that was sent before may have run.
fn without_primary(trying: &Trying<'_>, error: CallError) -> CallError {
    match trying.is_again {
        true => CallError::Unknown,
        false => error,
    }
}
