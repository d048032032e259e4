//! [`Coordinators`]: the transactions that are coordinated on this node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::work::{Answer, SqlWork};
use crate::net::SendError;
use crate::protocol::transactions::{
    Body, Coordinator, CoordinatorEffect, Message, Opening, Outcome, Pace, Running, Sender, Start,
    TransactionId,
};
use crate::protocol::{NodeId, PartitionId};

/// A session wants what a branch of its transaction runs to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The branch's partition.
    pub partition: PartitionId,
    /// The transaction.
    pub transaction: TransactionId,
}

/// The transactions that are coordinated on this node, in this start of it.
pub struct Coordinators {
    me: NodeId,
    start: Start,
    running: Mutex<Running>,
    open: Mutex<Open>,
}

/// Those that have not ended for their sessions.
#[derive(Default)]
struct Open {
    by_number: HashMap<u64, Arc<Coordinated>>,
    /// The node ends: whatever begins has ended.
    is_closed: bool,
}

/// A transaction that is coordinated here. The thread of its session waits for what its state machine says.
pub struct Coordinated {
    pub id: TransactionId,
    pub state: Mutex<Progress>,
    pub changed: Condvar,
}

/// How far a transaction is.
pub struct Progress {
    /// The state machine; none for a call, which one partition runs alone.
    pub coordinator: Option<Coordinator<SqlWork>>,
    /// For a call: the partition that runs it, and the opening of that.
    pub call: Option<(PartitionId, Opening)>,
    /// When a call is cancelled that the thread of its program runs itself.
    pub cancel_at: Option<Instant>,
    /// The replies to the last phase, once it has ended.
    pub replies: Option<Vec<(PartitionId, Answer)>>,
    /// How it has ended.
    pub ended: Option<Ended>,
}

/// How a transaction has ended, for its session.
#[derive(Debug, Clone)]
pub enum Ended {
    /// As the protocol says.
    As(Outcome<SqlWork>),
    /// Its partition did not open it in this opening.
    NotOpened,
    /// A request was not sent: the transaction has no effect.
    NotSent(SendError),
}

impl Coordinators {
    pub fn new(me: NodeId, start: Start) -> Coordinators {
        Coordinators { me, start, running: Mutex::default(), open: Mutex::default() }
    }

    /// Which start of the node this is.
    pub fn start(&self) -> Start {
        self.start
    }

    /// A new transaction. Its session makes the state machine. It has ended if the node ends.
    pub fn begin(&self, pace: Pace) -> Arc<Coordinated> {
        let number = self.running.lock().begin(pace);
        let id = TransactionId { node: self.me, start: self.start, number };
        let mut open = self.open.lock();
        let ended = open.is_closed.then_some(Ended::NotSent(SendError::NotConnected));
        let progress = Progress { coordinator: None, call: None, cancel_at: None, replies: None, ended };
        let coordinated = Arc::new(Coordinated { id, state: Mutex::new(progress), changed: Condvar::new() });
        open.by_number.insert(number, coordinated.clone());
        coordinated
    }

    /// The node ends: no session gets an answer any more, or waits for one.
    pub fn close(&self) {
        let all: Vec<_> = {
            let mut open = self.open.lock();
            open.is_closed = true;
            open.by_number.values().cloned().collect()
        };
        all.iter().for_each(|coordinated| coordinated.give_up());
    }

    /// Its session has done with a transaction.
    pub fn end(&self, of: &Coordinated) {
        self.running.lock().end(of.id.number);
        self.open.lock().by_number.remove(&of.id.number);
    }

    /// Has done with a transaction when what this gives is dropped: by a panic, too. What stays would keep every
    /// partition from forgetting what has ended since.
    pub fn ending<'c>(&'c self, coordinated: &'c Coordinated) -> Ending<'c> {
        Ending { coordinators: self, coordinated }
    }

    /// The lowest number that runs.
    pub fn low(&self) -> u64 {
        self.running.lock().low()
    }

    /// What runs here, for partitions that may forget all else.
    pub fn heartbeat(&self) -> Body<SqlWork> {
        self.running.lock().heartbeat()
    }

    /// The name under which heartbeats go.
    pub fn no_transaction(&self) -> TransactionId {
        TransactionId { node: self.me, start: self.start, number: 0 }
    }

    /// How many transactions are open.
    pub fn len(&self) -> usize {
        self.open.lock().by_number.len()
    }

    /// The transaction of this name, if it is open here.
    pub fn find(&self, id: TransactionId) -> Option<Arc<Coordinated>> {
        if (id.node, id.start) != (self.me, self.start) {
            return None;
        }
        self.open.lock().by_number.get(&id.number).cloned()
    }

    /// All open transactions.
    pub fn all(&self) -> Vec<Arc<Coordinated>> {
        self.open.lock().by_number.values().cloned().collect()
    }
}

/// A transaction is open, until this is dropped.
#[must_use]
pub struct Ending<'c> {
    coordinators: &'c Coordinators,
    coordinated: &'c Coordinated,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.coordinators.end(self.coordinated);
    }
}

impl Coordinated {
    /// One partition is to run it alone, under this opening. False if it has ended before: then nothing is to be sent.
    pub fn begin_call(&self, partition: PartitionId, opening: Opening) -> bool {
        let mut progress = self.state.lock();
        progress.call = Some((partition, opening));
        progress.ended.is_none()
    }

    /// The node ends, or what runs the transaction has failed in a panic: its session hears what is known. What is to be
    /// sent is not: the ends of connections, and time, tell.
    pub fn give_up(&self) {
        let mut progress = self.state.lock();
        let has_sent = progress.call.is_some();
        match &mut progress.coordinator {
            Some(coordinator) => coordinator.give_up(),
            None if has_sent => progress.end(Ended::As(Outcome::Unknown)),
            None => progress.end(Ended::NotSent(SendError::NotConnected)),
        }
        self.take_effects(&mut progress);
    }

    /// Takes a message, and gives those that are to be sent.
    pub fn receive(&self, message: Message<SqlWork>) -> Vec<Message<SqlWork>> {
        let mut progress = self.state.lock();
        let call = progress.call;
        match (&mut progress.coordinator, call) {
            (Some(coordinator), _) => coordinator.receive(message),
            (None, Some((partition, _))) => {
                if !matches!(message.from, Sender::Partition(from, _) if from == partition) {
                    return Vec::new();
                }
                match message.body {
                    Body::Outcome(outcome) => progress.end(Ended::As(outcome)),
                    Body::NoBranch => progress.end(Ended::NotOpened),
                    _ => {}
                }
            }
            (None, None) => {}
        }
        self.take_effects(&mut progress)
    }

    /// Some time has passed.
    pub fn tick(&self, now: Duration) -> Vec<Message<SqlWork>> {
        let mut progress = self.state.lock();
        if let Some(coordinator) = &mut progress.coordinator {
            coordinator.tick(now);
        }
        self.take_effects(&mut progress)
    }

    /// The partition of a call that is to be cancelled now.
    pub fn is_late(&self) -> Option<PartitionId> {
        let mut progress = self.state.lock();
        progress.cancel_at.take_if(|at| *at <= Instant::now())?;
        progress.call.map(|(partition, _)| partition)
    }

    /// A request for a partition was not sent.
    pub fn not_sent(&self, partition: PartitionId, error: SendError) -> Vec<Message<SqlWork>> {
        let mut progress = self.state.lock();
        progress.end(Ended::NotSent(error));
        if let Some(coordinator) = &mut progress.coordinator {
            coordinator.connection_ended(partition);
        }
        self.take_effects(&mut progress)
    }

    /// The primaries of a partition in openings up to this one are gone, or cannot be reached.
    pub fn partition_gone(&self, partition: PartitionId, up_to: Opening) -> Vec<Message<SqlWork>> {
        let mut progress = self.state.lock();
        let call = progress.call;
        match (&mut progress.coordinator, call) {
            (Some(coordinator), _)
                if coordinator.opening_of(partition).is_some_and(|opening| opening <= up_to) =>
            {
                coordinator.connection_ended(partition);
            }
            (None, Some((called, opening))) if called == partition && opening <= up_to => {
                progress.end(Ended::As(Outcome::Unknown));
            }
            _ => {}
        }
        self.take_effects(&mut progress)
    }

    /// Keeps what the state machine says, and gives what is to be sent.
    pub fn take_effects(&self, progress: &mut Progress) -> Vec<Message<SqlWork>> {
        let effects = progress.coordinator.as_mut().map(Coordinator::take_effects).unwrap_or_default();
        let mut messages = Vec::new();
        for effect in effects {
            match effect {
                CoordinatorEffect::Send(message) => messages.push(message),
                CoordinatorEffect::Rendezvous(replies) => progress.replies = Some(replies),
                CoordinatorEffect::Done(outcome) => progress.end(Ended::As(outcome)),
            }
        }
        if progress.ended.is_some() || progress.replies.is_some() {
            self.changed.notify_all();
        }
        messages
    }
}

impl Progress {
    fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::calls::{CallAction, Part};
    use crate::node::transactions::work::Action as AnyAction;
    use crate::protocol::transactions::{Access, Action, BranchRef, Level, Place, Plan, Tries};

    /// A transaction over partitions.
    struct Over {
        id: TransactionId,
        branches: Vec<BranchRef>,
    }

    impl Over {
        /// Its first branch has been sent an action.
        fn coordinator(self) -> Coordinator<SqlWork> {
            let partition = self.branches[0].partition;
            let plan = Plan {
                request: None,
                deciding: partition,
                level: Level::Standby,
                pace: Pace::Statements,
                branches: self.branches,
                tries: Tries::First,
                local: Vec::new(),
            };
            let mut coordinator = Coordinator::new(self.id, plan, Duration::ZERO);
            let action = Action {
                partition,
                action: AnyAction::Call(CallAction {
                    procedure: "deposit".to_owned(),
                    version: 1,
                    access: Access::Writes,
                    level: Level::Standby,
                    is_numbered: false,
                    part: Part::Settle,
                }),
                place: Place::Open,
            };
            coordinator.phase(vec![action], 1);
            coordinator
        }
    }

    /// What is not known of as ended is remembered by all partitions.
    #[test]
    fn a_panic_leaves_no_transaction_open() {
        let coordinators = Coordinators::new(NodeId(0), Start(1));
        let panics = std::panic::AssertUnwindSafe(|| {
            let coordinated = coordinators.begin(Pace::Call);
            let _ending = coordinators.ending(&coordinated);
            panic!("a test's panic");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!((coordinators.len(), coordinators.low()), (0, 2));
    }

    /// What begins when a new primary has just become known does not end with the one before it.
    #[test]
    fn a_transaction_ends_with_the_opening_that_it_runs_under() {
        let (partition, opening) = (PartitionId(4), Opening(3));
        let coordinators = Coordinators::new(NodeId(0), Start(1));
        let call = coordinators.begin(Pace::Call);
        call.state.lock().call = Some((partition, opening));
        let over = coordinators.begin(Pace::Statements);
        let branches = vec![BranchRef { partition, opening, access: Access::Writes }];
        let coordinator = Over { id: over.id, branches }.coordinator();
        over.state.lock().coordinator = Some(coordinator);
        for (gone, up_to, ends) in [
            (PartitionId(5), Opening(9), false),
            (partition, Opening(2), false),
            (partition, Opening(3), true),
        ] {
            for of in [&call, &over] {
                of.partition_gone(gone, up_to);
                assert_eq!(of.state.lock().ended.is_some(), ends, "{gone} up to {up_to:?}");
            }
        }
    }

    /// Nothing waits for an answer that does not come any more, in its decision, too.
    #[test]
    fn a_node_that_ends_leaves_no_transaction_waiting() {
        let (partition, opening) = (PartitionId(4), Opening(3));
        let coordinators = Coordinators::new(NodeId(0), Start(1));
        let [call, deciding, not_begun] = [(); 3].map(|()| coordinators.begin(Pace::Call));
        assert!(call.begin_call(partition, opening));
        let branches = vec![BranchRef { partition, opening, access: Access::Writes }];
        let over = Over { id: deciding.id, branches };
        let mut coordinator = over.coordinator();
        coordinator.receive(Message {
            from: Sender::Partition(partition, opening),
            to: crate::protocol::transactions::Address::Coordinator(NodeId(0)),
            transaction: deciding.id,
            body: Body::Reply {
                sequence: 0,
                reply: Some(Answer::Nothing),
                access: Access::Writes,
                votes: false,
            },
        });
        coordinator.take_effects();
        coordinator.commit(Answer::Nothing, Duration::ZERO);
        deciding.state.lock().coordinator = Some(coordinator);
        coordinators.close();
        let ended = |of: &Coordinated| of.state.lock().ended.clone();
        assert!(matches!(ended(&call), Some(Ended::As(Outcome::Unknown))));
        assert!(matches!(ended(&deciding), Some(Ended::As(Outcome::Unknown))));
        assert!(matches!(ended(&not_begun), Some(Ended::NotSent(_))));
        assert!(!not_begun.begin_call(partition, opening), "nothing of it is sent");
        assert!(!coordinators.begin(Pace::Statements).begin_call(partition, opening));
    }
}
