//! [`ReadingTransaction`]: a transaction that only reads, as a SQL session has it, at replicas of this node that are young enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto::{Lsn, fault_injection};
use rialto_sql::partitions::{
    Answer, Branches, CancelBranches, Cause, Choices, Opening as SqlOpening, PartitionNumber, ReplicaReads,
    Reply, Request, Told, Work,
};
use rialto_sql::{Result, SqlError};

use super::cluster::Transactions;
use super::counts::Counters;
use super::reader::{Reader, ReaderCancels, Reads, is_last};
use super::session::{SessionTransaction, failed, told};
use crate::node::replica::{HostedReplica, NotHere, ReadPermit, ToldPlace};
use crate::protocol::{Epoch, PartitionId};

/// How long a replica of this node may take until it is as young as is wanted. Then the primary is read.
const REPLICA_WITHIN: Duration = Duration::from_millis(250);

/// A transaction that only reads. Each partition that it uses is read at this node's replica, if that is there,
/// follows, and is young enough when the partition is used first; else at the primary. A partition is read there until
/// the end, so it is at one state. If the replica has to go on, grows too old or cannot answer before the session was
/// told of anything there, the partition is read again at the primary.
pub struct ReadingTransaction {
    node: Arc<Transactions>,
    opening: SqlOpening,
    reads: ReplicaReads,
    readers: BTreeMap<PartitionId, Reader>,
    /// What is read at primaries, and where.
    primaries: Box<SessionTransaction>,
    at_primaries: BTreeSet<PartitionId>,
    cancels: Arc<Mutex<ReaderCancels>>,
}

struct Cancel {
    readers: Arc<Mutex<ReaderCancels>>,
    primaries: Arc<dyn CancelBranches>,
}

impl CancelBranches for Cancel {
    fn cancel(&self) {
        self.readers.lock().cancel();
        self.primaries.cancel();
    }
}

/// A request, by its position among all.
type Placed = (usize, PartitionId, Request);

impl ReadingTransaction {
    pub fn new(node: Arc<Transactions>, opening: SqlOpening, reads: ReplicaReads) -> ReadingTransaction {
        let primaries = Box::new(SessionTransaction::new(node.clone(), opening.clone()));
        ReadingTransaction {
            node,
            opening,
            reads,
            readers: BTreeMap::new(),
            primaries,
            at_primaries: BTreeSet::new(),
            cancels: Arc::default(),
        }
    }

    /// Begins to read a partition at this node's replica, which may wait until then. False if it is to be read at the primary.
    fn begin_here(&mut self, partition: PartitionId, reads: Reads, until: Instant) -> Result<bool> {
        let Some(permit) = self.permit(partition, until)? else { return Ok(false) };
        let (opening, cancels) = (self.opening.clone(), self.cancels.clone());
        let Ok(reader) = Reader::start(self.node.workers(), permit, opening, cancels, reads) else {
            return Ok(false);
        };
        Counters::add(&self.node.counters().reads_at_replicas);
        self.readers.insert(partition, reader);
        Ok(true)
    }

    /// Goes on to read at this node's replica, which has to be young enough for this request, too, and may wait until then. False
    /// if it is to be read at the primary.
    fn go_on_here(&mut self, partition: PartitionId, request: &Request, until: Instant) -> Result<bool> {
        let reader = &self.readers[&partition];
        let is_young = |replica: Arc<HostedReplica>| {
            let left = until.saturating_duration_since(Instant::now());
            replica.is_young(self.reads.staleness, left) || fault_injection::is_on("blocks-grow-old")
        };
        if !reader.is_to_be_young(request) || self.node.find_replica(partition).is_some_and(is_young) {
            return Ok(true);
        }
        match self.readers.remove(&partition) {
            Some(reader) if reader.has_told => Err(grew_old(partition)),
            _ => Ok(false),
        }
    }

    fn permit(&self, partition: PartitionId, until: Instant) -> Result<Option<ReadPermit>> {
        let Some(replica) = self.node.find_replica(partition) else { return Ok(None) };
        let after = self.reads.after.of(PartitionNumber(partition.0));
        let after = after.map(|after| ToldPlace { opening: Epoch(after.opening), place: Lsn(after.place) });
        let left = until.saturating_duration_since(Instant::now());
        match replica.read_here(self.reads.staleness, after, left) {
            Ok(permit) => Ok(Some(permit)),
            Err(NotHere::Closed) => Ok(None),
            Err(NotHere::TooOld) => {
                Counters::add(&self.node.counters().reads_sent_on);
                Ok(None)
            }
            Err(NotHere::Lost(before)) => Err(lost(partition, before)),
        }
    }

    /// Runs requests at primaries.
    fn run_at_primaries(&mut self, placed: Vec<Placed>, replies: &mut BTreeMap<usize, Reply>) {
        if placed.is_empty() {
            return;
        }
        let (at, requests): (Vec<usize>, Vec<_>) = placed
            .into_iter()
            .map(|(at, partition, request)| (at, (PartitionNumber(partition.0), request)))
            .unzip();
        replies.extend(at.into_iter().zip(self.primaries.run(requests)));
    }

    /// What is made of a reader's reply: the reply, or None if its request is to be run at the primary.
    fn judge(&mut self, partition: PartitionId, reply: Option<Reply>) -> Option<Reply> {
        let reader = self.readers.get_mut(&partition).expect("it was given a request");
        let runs_again = match &reply {
            None => true,
            Some(reply) => matches!(&reply.answer, Err(told) if is_of_replica(told)),
        };
        if runs_again && !reader.has_told {
            self.readers.remove(&partition);
            self.at_primaries.insert(partition);
            return None;
        }
        let reply = reply.unwrap_or_else(|| failed(gave_way(partition)));
        reader.has_told |= reply.answer.is_ok();
        Some(reply)
    }
}

impl Branches for ReadingTransaction {
    fn run(&mut self, requests: Vec<(PartitionNumber, Request)>) -> Vec<Reply> {
        let count = requests.len();
        let mut replies: BTreeMap<usize, Reply> = BTreeMap::new();
        let (mut here, mut at_primaries) = (Vec::new(), Vec::new());
        // For all replicas together.
        let until = Instant::now() + REPLICA_WITHIN;
        for (at, (PartitionNumber(number), request)) in requests.into_iter().enumerate() {
            let partition = PartitionId(number);
            if writes(&request) {
                replies.insert(at, failed(cannot_write()));
                continue;
            }
            let is_alone = matches!(&request, Request::Run(run) if run.then_commit);
            let reads = if is_alone { Reads::Once } else { Reads::UntilTheEnd };
            let is_here = match self.readers.contains_key(&partition) {
                true => self.go_on_here(partition, &request, until),
                false if self.at_primaries.contains(&partition) => Ok(false),
                // Nothing is there that could go back.
                false if is_roll_back(&request) => {
                    replies.insert(at, done());
                    continue;
                }
                false => self.begin_here(partition, reads, until),
            };
            match is_here {
                Ok(true) => {
                    let reader = self.readers.get_mut(&partition).expect("it was begun");
                    reader.request(request.clone());
                    here.push((at, partition, request));
                }
                Ok(false) => {
                    self.at_primaries.insert(partition);
                    at_primaries.push((at, partition, request));
                }
                Err(error) => drop(replies.insert(at, failed(error))),
            }
        }
        self.run_at_primaries(at_primaries, &mut replies);
        let mut again = Vec::new();
        for (at, partition, request) in here {
            let reply = self.readers.get_mut(&partition).and_then(Reader::reply);
            match self.judge(partition, reply) {
                Some(reply) => {
                    if matches!(&request, Request::Run(run) if run.then_commit)
                        && is_last(&reply)
                        && reply.answer.is_ok()
                    {
                        self.node.has_committed(1);
                    }
                    replies.insert(at, reply);
                }
                None => again.push((at, partition, request)),
            }
        }
        self.run_at_primaries(again, &mut replies);
        debug_assert_eq!(replies.len(), count);
        replies.into_values().collect()
    }

    fn canceller(&self) -> Arc<dyn CancelBranches> {
        Arc::new(Cancel { readers: self.cancels.clone(), primaries: self.primaries.canceller() })
    }

    fn clear_cancellation(&mut self) {
        self.cancels.lock().clear();
        self.readers.values_mut().for_each(|reader| reader.to_clear = true);
        self.primaries.clear_cancellation();
    }

    fn settle(&mut self, choices: &Choices) -> Result<()> {
        self.primaries.settle(choices)
    }

    fn commit(self: Box<Self>, choices: &Choices) -> Result<()> {
        let ReadingTransaction { node, readers, primaries, at_primaries, .. } = *self;
        let here = readers.len();
        // Each partition was at one state for as long as it was read.
        drop(readers);
        primaries.commit(choices)?;
        if at_primaries.is_empty() && here > 0 {
            node.has_committed(here);
        }
        Ok(())
    }

    fn abort(self: Box<Self>, choices: &Choices) -> Result<()> {
        self.primaries.abort(choices)
    }
}

/// Whether a request may write: the transaction was read only when it began, and is not any more.
fn writes(request: &Request) -> bool {
    matches!(request, Request::Run(run) if !run.choices.read_only && !run.then_commit)
}

fn is_roll_back(request: &Request) -> bool {
    matches!(request, Request::Run(run) if matches!(run.work, Work::RollbackTo(_)))
}

fn done() -> Reply {
    Reply {
        answer: Ok(Answer::Done { rows: Vec::new(), affected: 0, notices: Vec::new() }),
        has_written: false,
    }
}

/// Whether an error is one of the replica, which the primary may not give: it has gone on, or lacks something, or is in trouble.
fn is_of_replica(told: &Told) -> bool {
    const CLASSES: [&str; 3] = ["53", "58", "XX"];
    matches!(told.cause, Cause::Stale | Cause::Deadlock | Cause::Ended | Cause::LogFailed)
        || told.sqlstate == "55P03"
        || CLASSES.iter().any(|class| told.sqlstate.starts_with(class))
}

fn grew_old(partition: PartitionId) -> SqlError {
    let message = format!(
        "the transaction was ended: the replica of {partition} at this node, which it reads, is older by now than \
         rialto.read_staleness accepts"
    );
    told("40001", message, "Run the transaction again.", Cause::Deadlock)
}

fn cannot_write() -> SqlError {
    told(
        "25006",
        "the transaction has begun to read at replicas, and cannot write".to_owned(),
        "Write in a transaction that is not read only from its beginning.",
        Cause::None,
    )
}

fn gave_way(partition: PartitionId) -> SqlError {
    let message = format!(
        "the transaction was ended: it read {partition} at a replica of this node, which had to go on with what the primary has \
         written, or to lead"
    );
    told("40001", message, "Run the transaction again.", Cause::Deadlock)
}

fn lost(partition: PartitionId, before: Epoch) -> SqlError {
    let message = format!(
        "rialto.read_after names a position of {partition} that may be lost: what was answered there before {before} may be lost"
    );
    told(
        "55000",
        message,
        "Look for what was written; then set rialto.read_after to a newer SHOW rialto.commit_position, or reset it.",
        Cause::None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_is_told_keeps_its_sqlstate() {
        let partition = PartitionId(3);
        let errors = [
            (cannot_write(), "25006"),
            (gave_way(partition), "40001"),
            (grew_old(partition), "40001"),
            (lost(partition, Epoch(7)), "55000"),
        ];
        for (error, code) in errors {
            assert_eq!(SqlError::from(Told::from(&error)).sqlstate.code(), code, "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_replica_is_asked_of_the_primary() {
        let of = |sqlstate, cause| Told::from(&told(sqlstate, "why".to_owned(), "", cause));
        for (sqlstate, cause, is_its_own) in [
            ("0A000", Cause::Stale, true),
            ("40P01", Cause::Deadlock, true),
            ("57P01", Cause::Ended, true),
            ("53300", Cause::None, true),
            ("55P03", Cause::None, true),
            ("58030", Cause::LogFailed, true),
            ("22012", Cause::None, false),
            ("42P01", Cause::None, false),
            ("57014", Cause::None, false),
        ] {
            assert_eq!(is_of_replica(&of(sqlstate, cause)), is_its_own, "{sqlstate}");
        }
    }
}
