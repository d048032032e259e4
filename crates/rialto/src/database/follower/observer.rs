//! [`Observer`]: what is told of changes of a row, amid the redo.

use crate::commit::redo;
use crate::database::Database;
use crate::fault_injection;
use crate::ids::{Lsn, TableId};
use crate::log::Packet;
use crate::row::{IntoKey, Key, Value, WhichIndex};

/// What an observer does.
type Observe = dyn Fn(&Database, Lsn) + Send + Sync;

/// What is told of changes of a row: see [`Follower::observe`](super::Follower::observe).
pub(super) struct Observer {
    database: Database,
    /// The table's name. It may come to be only with a packet that is redone later.
    table: String,
    key: Vec<Value>,
    observe: Box<Observe>,
}

impl Observer {
    /// An observer of the row with this primary key in the table that has this name.
    pub fn new(
        database: &Database,
        (table, key): (&str, &[Value]),
        observe: impl Fn(&Database, Lsn) + Send + Sync + 'static,
    ) -> Observer {
        let (table, key) = (table.to_owned(), key.to_vec());
        Observer { database: database.clone(), table, key, observe: Box::new(observe) }
    }

    /// The table and the row's key in it, if the database has the table by now, and the key is one of its.
    fn row(&self) -> Option<(TableId, Key)> {
        let table = self.database.table(&self.table).ok()?;
        let mut key = Key::new();
        self.key[..].encode_into(table.schema().key_shape(WhichIndex::Primary), &mut key).ok()?;
        Some((table.id(), key))
    }

    /// Whether a packet that was redone writes or deletes the row.
    pub fn is_about(&self, packet: &Packet<'_>) -> bool {
        let Some((table, key)) = self.row() else { return false };
        let any_row = fault_injection::is_on("observer-of-any-row");
        let is_it = |record: &redo::RedoRecord<'_>| record.table == table && (*record.key == *key || any_row);
        redo::read(packet.bytes).any(|record| record.is_ok_and(|record| is_it(&record)))
    }

    /// The transaction at this place is redone.
    pub fn tell(&self, place: Lsn) {
        (self.observe)(&self.database, place);
    }
}
