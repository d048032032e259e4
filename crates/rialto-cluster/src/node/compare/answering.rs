//! How a replica that follows answers comparisons.

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
    // A database without it answers none: the primary's comparisons say so.
    let Ok(system) = follower.database().table(system_rows::TABLE) else { return };
    let rows = system.clone();
    // Only the transaction that writes a comparison has its place. What changes other rows comes later.
    let _ = follower.observe(&system, &system_rows::comparison_row()[..], move |db, _place| {
        if let Some((comparison, found)) = at_this_place(db, &rows) {
            let Comparison { number, by, epoch, .. } = comparison;
            let answer = Compared { partition, epoch, number, from: me, found };
            let _ = sending.send(by, Class::Work, &Packet::Compared(answer), &[]);
        }
    });
}

/// The comparison that was written at this place, if it is one that this version knows, and what is found here.
fn at_this_place(db: &Database, rows: &Table) -> Option<(Comparison, Found)> {
    let bytes = db.transact_with(&reading(), |tx| system_rows::comparison(tx, rows)).ok()??;
    let comparison = Comparison::from_bytes(&bytes)?;
    let found = match comparison.table_in(db) {
        Some(table) => Found::from_result(summed(db, &table, &comparison)),
        None => Found::Missing(format!("there is no table of the number {}", comparison.table)),
    };
    Some((comparison, found))
}

fn summed(db: &Database, table: &Table, comparison: &Comparison) -> rialto::Result<RangeSum> {
    db.transact_with(&reading(), |tx| tx.sum_range(table, &comparison.range()))
}

/// The redo waits for it, so it waits for no disk.
fn reading() -> TxOptions {
    TxOptions { read_only: true, durability: Some(Durability::Memory), ..TxOptions::default() }
}
