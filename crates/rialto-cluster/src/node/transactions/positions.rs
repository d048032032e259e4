//! Positions of partitions' logs, for clients that read at replicas what they have written.

use std::sync::Arc;

use rialto::row::Value;
use rialto::{Lsn, fault_injection};
use rialto_sql::partitions::{
    Answer as SqlAnswer, Branches, CancelBranches, Cause, Cells, Level as SqlLevel, Opening as SqlOpening,
    PartitionNumber, Position, Positions, Reply, Written,
};
use rialto_sql::{Result, SqlError};

use super::cluster::Transactions;
use super::session::{SessionTransaction, told};
use super::work::{Answer, What};
use crate::protocol::replication::LostBefore;
use crate::protocol::{Epoch, PartitionId};

/// Positions at or after what a session has written in these partitions, each at level 2. `watch` is given what cancels
/// the wait.
///
/// A position is the end of the partition's log, told by its primary after the transaction was answered. So it lies
/// after the commit, or, where another partition has decided, after *Prepared*: what reads at it waits for the end of
/// what is prepared there.
///
/// # Errors
/// A partition has no primary; or what was written may be lost: at level 1 if another primary leads since, at any level if answers
/// of the opening in which it was written may be lost.
pub fn positions(
    node: &Arc<Transactions>,
    opening: &SqlOpening,
    written: &[Written],
    watch: &dyn Fn(Arc<dyn CancelBranches>),
) -> Result<Positions> {
    let begin = |_: &Written| SessionTransaction::new(node.clone(), opening.clone());
    let mut transactions: Vec<SessionTransaction> = written.iter().map(begin).collect();
    watch(Arc::new(Cancels(transactions.iter().map(|transaction| transaction.canceller()).collect())));
    let mut all = written.iter().zip(&mut transactions);
    let first = all.next();
    let positions: Vec<Result<Position>> = std::thread::scope(|scope| {
        // The last transaction of most sessions has written in one partition.
        let others: Vec<_> =
            all.map(|(written, transaction)| scope.spawn(move || position(written, transaction))).collect();
        let first = first.map(|(written, transaction)| position(written, transaction));
        let others = others.into_iter().map(|other| other.join().expect("a thread that asks does not panic"));
        first.into_iter().chain(others).collect()
    });
    let positions = positions.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Positions::new(node.cluster(), positions))
}

struct Cancels(Vec<Arc<dyn CancelBranches>>);

impl CancelBranches for Cancels {
    fn cancel(&self) {
        self.0.iter().for_each(|canceller| canceller.cancel());
    }
}

fn position(written: &Written, transaction: &mut SessionTransaction) -> Result<Position> {
    let PartitionNumber(number) = written.partition;
    let partition = PartitionId(number);
    let (opening, answer) = transaction.ask(partition, What::Position)?;
    let (place, lost_before) = place(&answer).ok_or_else(|| unexpected(partition))?;
    let is_lost = may_be_lost(written, opening.0, lost_before);
    if is_lost && !fault_injection::is_on("lost-writes-have-positions") {
        return Err(lost(partition));
    }
    Ok(Position { partition: written.partition, opening: opening.0, place })
}

/// Whether what was written may be lost, as the primary of this opening tells. An opening that is not known counts as the oldest.
fn may_be_lost(written: &Written, opening: u64, lost_before: LostBefore) -> bool {
    let before = written.opening.unwrap_or(0);
    let Epoch(lost_before) = match written.level {
        Some(SqlLevel::Disk) => lost_before.disks,
        _ => lost_before.memories,
    };
    before < lost_before || written.level == Some(SqlLevel::Memory) && before != opening
}

/// The answer of a branch that was asked for the position: the place, and the epochs before which answers may be lost.
pub fn answer(place: Lsn, lost_before: LostBefore) -> Answer {
    let LostBefore { memories, disks } = lost_before;
    let number = |number: u64| Value::Int8(i64::try_from(number).unwrap_or(i64::MAX));
    let rows = vec![Cells(vec![number(place.0), number(memories.0), number(disks.0)])];
    let answer = Ok(SqlAnswer::Done { rows, affected: 1, notices: Vec::new() });
    Answer::Reply(Box::new(Reply { answer, has_written: false }))
}

fn place(answer: &Answer) -> Option<(u64, LostBefore)> {
    let Answer::Reply(reply) = answer else { return None };
    let Ok(SqlAnswer::Done { rows, .. }) = &reply.answer else { return None };
    match rows.first()?.0[..] {
        [Value::Int8(place), Value::Int8(memories), Value::Int8(disks)] => {
            let [memories, disks] = [memories, disks].map(|epoch| epoch.try_into().ok().map(Epoch));
            Some((place.try_into().ok()?, LostBefore { memories: memories?, disks: disks? }))
        }
        _ => None,
    }
}

fn unexpected(partition: PartitionId) -> SqlError {
    told("XX000", format!("{partition} gave a reply of another kind"), "", Cause::None)
}

/// Not 40001: the transaction was committed, and must not be run again before the client has looked for its effects.
fn lost(partition: PartitionId) -> SqlError {
    let message = format!(
        "what the session's last transaction has written in {partition} may be lost: another primary leads"
    );
    told("55000", message, "Look for what was written, and write it again if it is not there.", Cause::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_answered() {
        let lost_before = LostBefore { memories: Epoch(5), disks: Epoch(3) };
        assert_eq!(place(&answer(Lsn(77), lost_before)), Some((77, lost_before)));
        assert_eq!(place(&Answer::Nothing), None);
        assert_eq!(lost(PartitionId(3)).sqlstate.code(), "55000");
    }

    #[test]
    fn what_may_be_lost_is_told_by_its_opening_and_its_level() {
        let partition = PartitionNumber(3);
        for (opening, level, by, (memories, disks), is_lost) in [
            (Some(4), None, 4, (0, 0), false),
            (Some(4), Some(SqlLevel::Memory), 4, (0, 0), false),
            (Some(4), None, 6, (0, 0), false),
            (Some(4), Some(SqlLevel::Memory), 6, (0, 0), true),
            (Some(4), None, 6, (5, 0), true),
            (Some(4), Some(SqlLevel::Disk), 6, (5, 4), false),
            (Some(4), Some(SqlLevel::Disk), 6, (5, 5), true),
            (Some(5), None, 6, (5, 0), false),
            (None, None, 6, (5, 0), true),
            (None, None, 6, (0, 0), false),
        ] {
            let lost_before = LostBefore { memories: Epoch(memories), disks: Epoch(disks) };
            let written = Written { partition, opening, level };
            assert_eq!(may_be_lost(&written, by, lost_before), is_lost, "{written:?}");
        }
    }
}
