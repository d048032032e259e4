//! [`Observer`]: what is told of changes of a row, amid the redo.

use crate::commit::redo;
use crate::database::Database;
use crate::error::Result;
use crate::fault_injection;
use crate::ids::{Lsn, TableId};
use crate::log::Packet;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::Table;

/// What is told of changes of a row: see [`Follower::observe`](super::Follower::observe).
pub(super) struct Observer {
    database: Database,
    table: TableId,
    key: Key,
    observe: Box<dyn Fn(&Database, Lsn) + Send + Sync>,
}

impl Observer {
    /// An observer of the row with this primary key.
    ///
    /// # Errors
    /// Those of a key that is none of the table's.
    pub fn new(
        database: &Database,
        (table, key): (&Table, impl IntoKey),
        observe: impl Fn(&Database, Lsn) + Send + Sync + 'static,
    ) -> Result<Observer> {
        let mut encoded = Key::new();
        key.encode_into(table.schema().key_shape(WhichIndex::Primary), &mut encoded)?;
        Ok(Observer {
            database: database.clone(),
            table: table.id(),
            key: encoded,
            observe: Box::new(observe),
        })
    }

    /// Whether a packet writes or deletes the row.
    pub fn is_about(&self, packet: &Packet<'_>) -> bool {
        let any_row = fault_injection::is_on("observer-of-any-row");
        let is_it = |record: &redo::RedoRecord<'_>| {
            record.table == self.table && (*record.key == *self.key || any_row)
        };
        redo::read(packet.bytes).any(|record| record.is_ok_and(|record| is_it(&record)))
    }

    /// The transaction at this place is redone.
    pub fn tell(&self, place: Lsn) {
        (self.observe)(&self.database, place);
    }
}
