//! How a partition begins to be served by this node, and ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rialto::Error;

use super::cluster::Transactions;
use super::directory::Serves;
use super::rows;
use super::served::ServedPartition;
use crate::node::replica::{HostedReplica, Lead, NotServing};
use crate::protocol::Epoch;
use crate::protocol::replication::LostBefore;
use crate::protocol::transactions::{Level, Lost, Opening, RowChange};

/// How often the role is looked at, beside when it is told.
const POLL: Duration = Duration::from_millis(200);
/// How long a partition that could not be opened is left alone, unless its role changes.
const AGAIN: Duration = Duration::from_millis(5);

/// Serves a partition whenever this node's replica leads, until the replica or the node ends. It is the body of a thread.
pub fn serve(node: &Weak<Transactions>, replica: &Weak<HostedReplica>) {
    loop {
        let (Some(transactions), Some(hosted)) = (node.upgrade(), replica.upgrade()) else { return };
        if transactions.is_closed() {
            return;
        }
        let Some(lead) = hosted.lead() else {
            drop(transactions);
            hosted.wait_for_change(POLL);
            continue;
        };
        match open(&transactions, &hosted, &lead) {
            Ok(served) => {
                transactions.begin_to_serve(&served);
                drop(transactions);
                while lead.goes_on() && node.upgrade().is_some_and(|node| !node.is_closed()) {
                    hosted.wait_for_change(POLL);
                }
                served.end();
                if let Some(node) = node.upgrade() {
                    node.end_to_serve(&served);
                }
            }
            // It may not have been told yet.
            Err(NotOpened::Deposed) => hosted.wait_for_change(AGAIN),
            Err(NotOpened::Failed(error)) => {
                lead.resign(format!("its transactions cannot go on: {error}"));
                hosted.wait_for_change(POLL);
            }
        }
    }
}

enum NotOpened {
    /// The replica leads no more.
    Deposed,
    /// The rows cannot be read or written.
    Failed(Error),
}

impl From<NotServing> for NotOpened {
    fn from(_: NotServing) -> NotOpened {
        NotOpened::Deposed
    }
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> NotOpened {
        NotOpened::Failed(error)
    }
}

/// Opens a partition: its whole log is on the disk, and in each memory in sync, before anything of it is told. Locks of
/// prepared branches were taken when the database began to lead.
fn open(
    node: &Arc<Transactions>,
    replica: &HostedReplica,
    lead: &Lead,
) -> Result<Arc<ServedPartition>, NotOpened> {
    let db = lead.database();
    let opening = Opening(lead.epoch().0);
    let table = db.table(rows::TABLE)?;
    if lead.lost_before() != LostBefore::default() {
        let lost = [RowChange::Lost(lost(lead.lost_before()))];
        db.transact(|tx| rows::apply(tx, &table, &lost))?;
    }
    lead.answer(db.log_end().lsn, Level::Disk)?;
    let rows = rows::read(db)?;
    let serves = Serves { partition: replica.partition(), node: node.me(), opening };
    Ok(ServedPartition::new(serves, lead.clone(), table, rows, node))
}

/// The openings of a partition that its losses concern.
fn lost(before: LostBefore) -> Lost {
    let last = |epoch: Epoch| epoch.0.checked_sub(1).map(Opening);
    Lost { in_memories: last(before.memories), on_disks: last(before.disks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_concern_the_openings_before_their_epochs() {
        let before = |memories, disks| LostBefore { memories: Epoch(memories), disks: Epoch(disks) };
        let of = |memories: Option<u64>, disks: Option<u64>| Lost {
            in_memories: memories.map(Opening),
            on_disks: disks.map(Opening),
        };
        assert_eq!(lost(before(7, 0)), of(Some(6), None));
        assert_eq!(lost(before(7, 4)), of(Some(6), Some(3)));
        assert_eq!(lost(before(7, 7)), of(Some(6), Some(6)));
    }
}
