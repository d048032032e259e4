//! How a replica that follows answers comparisons.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rialto::{Database, Durability, Follower, RangeSum, Table, TxOptions};

use super::comparison::{Comparison, Found};
use super::message::Compared;
use crate::net::Class;
use crate::node::packet::Packet;
use crate::node::sending::Sending;
use crate::node::transactions::system_rows;
use crate::protocol::PartitionId;
use crate::protocol::replication::Member;

/// From now on a follower answers each comparison that its log has, at the comparison's place. An answer may be lost.
pub fn answer_comparisons(follower: &Follower, partition: PartitionId, me: Member, sending: Arc<Sending>) {
    // By its name: a replica that was made just now may have the table in its log alone. Only the transaction that writes a
    // comparison has its place. What changes other rows comes later.
    follower.observe(system_rows::TABLE, &system_rows::comparison_row(), move |db, _place| {
        if let Some(comparison) = at_this_place(db) {
            let found = found(db, &comparison);
            let Comparison { number, by, epoch, .. } = comparison;
            let answer = Compared { partition, epoch, number, from: me, found };
            let _ = sending.send(by, Class::Work, &Packet::Compared(answer), &[]);
        }
    });
}

/// The comparison that was written at this place, if it is one that this version knows.
fn at_this_place(db: &Database) -> Option<Comparison> {
    let rows = db.table(system_rows::TABLE).ok()?;
    let bytes: Vec<u8> = db.transact_with(&reading(), |tx| system_rows::comparison(tx, &rows)).ok()??;
    Comparison::from_bytes(&bytes)
}

/// What is found here. Whatever the bytes of the tables are, the redo goes on.
fn found(db: &Database, comparison: &Comparison) -> Found {
    let Some(table) = comparison.table_in(db) else {
        return Found::Missing(format!("there is no table of the number {}", comparison.table));
    };
    let sum = || Found::from_result(summed(db, &table, comparison));
    catch_unwind(AssertUnwindSafe(sum))
        .unwrap_or_else(|_| Found::Damaged("its bytes cannot be read, see the node's output".to_owned()))
}

fn summed(db: &Database, table: &Table, comparison: &Comparison) -> rialto::Result<RangeSum> {
    db.transact_with(&reading(), |tx| tx.sum_range(table, &comparison.range()))
}

/// The redo waits for it, so it waits for no disk.
fn reading() -> TxOptions {
    TxOptions { read_only: true, durability: Some(Durability::Memory), ..TxOptions::default() }
}
