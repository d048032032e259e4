//! Messages and rows in bytes: what is read is what was written, and what is cut or damaged is an error or another
//! message, and ends nothing.

use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::model::{Answer, Bank, Op, Seen};
use crate::protocol::transactions::{
    Access, Act, Address, Body, BranchRef, Branches, Decision, Level, Lost, Message, Opening, Outcome,
    Request, RowChange, Sender, Standing, Start, SystemRows, TransactionId, Verdict,
};
use crate::protocol::{NodeId, PartitionId};

const ID: TransactionId = TransactionId { node: NodeId(300), start: Start(4), number: 1 << 40 };
const REQUEST: Request =
    Request { session: u64::MAX, number: 7, issued: Duration::from_nanos(1_234_567_891) };

fn answer() -> Answer {
    let seen = Seen { key: (PartitionId(1), 2), writers: 3, last: Some(ID), balance: -40 };
    Answer { seen: vec![seen], has_failed: true }
}

fn branches() -> Branches {
    let branch =
        |of, opening, access| BranchRef { partition: PartitionId(of), opening: Opening(opening), access };
    let all = [branch(1, 300, Access::Writes), branch(0, 2, Access::Reads)];
    Branches { deciding: PartitionId(0), all: all.into(), level: Level::Disk }
}

fn bodies() -> Vec<Body<Bank>> {
    let opening = Opening(300);
    let act = |vote| Act {
        opening,
        low: 5,
        deciding: PartitionId(0),
        request: Some(REQUEST),
        level: Level::Standby,
        sequence: 2,
        action: vec![Op::Read(1), Op::Add(2, -7)],
        vote,
    };
    let decide = |verdict| Body::Decide { branches: branches(), request: None, verdict };
    let outcomes = [Outcome::Answered(answer()), Outcome::Aborted, Outcome::Unknown, Outcome::TooOld];
    let standings =
        [Standing::Prepared(Opening(1 << 20)), Standing::Committed, Standing::Ended, Standing::Lost];
    let mut bodies = vec![
        Body::Call { opening, low: 1, request: Some(REQUEST), level: Level::Memory, action: vec![] },
        Body::Act(act(None)),
        Body::Act(act(Some(branches()))),
        Body::Prepare { opening, branches: branches() },
        Body::Confirm { opening, level: Level::Standby },
        decide(Verdict::Commit(answer())),
        decide(Verdict::Fail(answer())),
        Body::Abort,
        Body::Low { low: 8, older: vec![2, 7] },
        Body::Reply { sequence: 1, reply: Some(answer()), access: Access::Writes, votes: true },
        Body::Reply { sequence: 1, reply: None, access: Access::Reads, votes: false },
        Body::Voted,
        Body::StillHeld,
        Body::NoBranch,
        Body::Decided(Decision::Commit, branches()),
        Body::Decided(Decision::Abort, branches()),
        Body::Confirmed(Decision::Commit, branches()),
        Body::Confirmed(Decision::Abort, branches()),
        Body::Forgotten,
        Body::Inquire(branches()),
        Body::NotYet,
        Body::Ask(branches()),
    ];
    bodies.extend(outcomes.map(Body::Outcome));
    bodies.extend(standings.map(|standing| Body::Standing(standing, branches())));
    bodies
}

fn rows() -> Vec<RowChange<Bank>> {
    vec![
        RowChange::Prepared(ID, branches()),
        RowChange::NotPrepared(ID),
        RowChange::Committed(ID, branches()),
        RowChange::Settled(ID),
        RowChange::Bound(ID, Opening(6)),
        RowChange::Decision(ID, Decision::Abort, branches()),
        RowChange::Forgotten(ID),
        RowChange::Answer(REQUEST, answer()),
        RowChange::Expired { session: 9, number: 1 << 40 },
        RowChange::Lost(Lost { in_memories: Some(Opening(1 << 33)), on_disks: None }),
    ]
}

/// Writes and reads it, cuts it everywhere, and changes each of its bytes.
fn goes_there_and_back<T: Debug + Serialize + DeserializeOwned>(value: &T) {
    let bytes = postcard::to_stdvec(value).unwrap();
    let (read, rest) = postcard::take_from_bytes::<T>(&bytes).unwrap();
    assert_eq!((format!("{read:?}"), rest.len()), (format!("{value:?}"), 0));
    assert_eq!(postcard::to_stdvec(&read).unwrap(), bytes);
    for length in 0..bytes.len() {
        assert!(postcard::from_bytes::<T>(&bytes[..length]).is_err(), "{length} bytes of {value:?}");
    }
    for at in 0..bytes.len() {
        for change in [0x01, 0x02, 0x40, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            // It may be another message, as sound as this one.
            if let Ok(read) = postcard::from_bytes::<T>(&damaged) {
                assert_ne!(format!("{read:?}"), format!("{value:?}"), "byte {at}");
            }
        }
    }
}

#[test]
fn messages_and_rows_go_there_and_back() {
    let (node, partition) = (Sender::Coordinator(NodeId(300)), Sender::Partition(PartitionId(1), Opening(9)));
    for body in bodies() {
        for (from, to) in [(node, partition), (partition, node)] {
            let to: Address = to.address();
            goes_there_and_back(&Message { from, to, transaction: ID, body: body.clone() });
        }
    }
    let mut all = SystemRows::default();
    for row in rows() {
        goes_there_and_back(&row);
        all.apply(&row);
    }
    goes_there_and_back(&all);
}

#[test]
fn branches_that_no_transaction_has_are_errors() {
    let read = |deciding: u32, of: &[u32]| {
        let branch = |of: &u32| BranchRef { partition: PartitionId(*of), ..branches().all[0] };
        let all: Vec<_> = of.iter().map(branch).collect();
        let bytes = postcard::to_stdvec(&(PartitionId(deciding), all, Level::Disk)).unwrap();
        postcard::from_bytes::<Branches>(&bytes)
    };
    assert!(read(1, &[0, 1]).is_ok());
    assert!(read(2, &[0, 1]).is_err(), "the deciding partition has no branch");
    assert!(read(0, &[]).is_err(), "no branch");
    assert!(read(1, &[0, 1, 0]).is_err(), "a partition with two branches");
    let bytes = postcard::to_stdvec(&branches()).unwrap();
    let mut unknown = bytes.clone();
    *unknown.last_mut().unwrap() = 3;
    assert!(postcard::from_bytes::<Branches>(&unknown).is_err(), "a level that there is not");
}
