//! Positions of partitions' logs, for clients that read at replicas what they have written.

use std::sync::Arc;

use rialto::row::Value;
use rialto_sql::partitions::{
    Answer as SqlAnswer, Cause, Cells, Level as SqlLevel, Opening as SqlOpening, PartitionNumber, Position,
    Positions, Reply, Written,
};
use rialto_sql::{Result, SqlError};

use super::cluster::Transactions;
use super::session::{SessionTransaction, told};
use super::work::{Answer, What};
use crate::protocol::PartitionId;

/// Positions at or behind what a session has written in these partitions, each at level 2.
///
/// A position is the end of the partition's log, told by its primary after the transaction was answered. So it is behind the
/// commit, or, where another partition has decided, behind *Prepared*: what reads at it waits for the end of what is prepared there.
///
/// # Errors
/// A partition has no primary; or it has another one than when a transaction at level 1 was answered, which may be lost.
pub fn positions(node: &Arc<Transactions>, opening: &SqlOpening, written: &[Written]) -> Result<Positions> {
    let position = |written: &Written| {
        let PartitionNumber(number) = written.partition;
        let partition = PartitionId(number);
        let mut transaction = SessionTransaction::new(node.clone(), opening.clone());
        let (opening, answer) = transaction.ask(partition, What::Position)?;
        let place = place(&answer).ok_or_else(|| unexpected(partition))?;
        let is_another = written.opening.is_some_and(|before| before != opening.0);
        if written.level == Some(SqlLevel::Memory) && is_another {
            return Err(may_be_lost(partition));
        }
        Ok(Position { partition: written.partition, opening: opening.0, place })
    };
    Ok(Positions::new(written.iter().map(position).collect::<Result<Vec<_>>>()?))
}

/// The answer of a branch that was asked for the position.
pub fn answer(place: u64) -> Answer {
    let rows = vec![Cells(vec![Value::Int8(i64::try_from(place).unwrap_or(i64::MAX))])];
    let answer = Ok(SqlAnswer::Done { rows, affected: 1, notices: Vec::new() });
    Answer::Reply(Box::new(Reply { answer, has_written: false }))
}

fn place(answer: &Answer) -> Option<u64> {
    let Answer::Reply(reply) = answer else { return None };
    let Ok(SqlAnswer::Done { rows, .. }) = &reply.answer else { return None };
    match rows.first()?.0[..] {
        [Value::Int8(place)] => u64::try_from(place).ok(),
        _ => None,
    }
}

fn unexpected(partition: PartitionId) -> SqlError {
    told("XX000", format!("{partition} gave a reply of another kind"), "", Cause::None)
}

fn may_be_lost(partition: PartitionId) -> SqlError {
    let message = format!(
        "what the session's last transaction has written in {partition} at level memory may be lost: another primary leads"
    );
    told("40001", message, "Look for what was written, and write it again if it is not there.", Cause::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_answered() {
        assert_eq!(place(&answer(77)), Some(77));
        assert_eq!(place(&Answer::Nothing), None);
        let error = may_be_lost(PartitionId(3));
        assert_eq!(error.sqlstate.code(), "40001");
    }
}
