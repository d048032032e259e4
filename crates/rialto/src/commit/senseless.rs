//! The errors for a packet of the log whose checksum is right, and whose records make no sense. Each names the packet's
//! place.

use crate::error::Error;
use crate::ids::{Lsn, TableId};

/// Where a packet lies in the log.
pub(crate) fn in_log(lsn: Lsn) -> String {
    format!("the log, place {lsn}")
}

/// The error for what is wrong in the packet at this place.
pub(crate) fn packet(lsn: Lsn, what: String) -> Error {
    Error::Corrupt { file: in_log(lsn), offset: 0, what }
}

/// The error for bytes that are no redo record, at this offset of the packet at this place.
pub(crate) fn no_record(lsn: Lsn, offset: usize) -> Error {
    let what =
        "expected a redo record; the packet's checksum is right, but the record makes no sense".to_owned();
    Error::Corrupt { file: in_log(lsn), offset: offset as u64, what }
}

/// The error for a redo record that makes no sense for its table.
pub(crate) fn record(lsn: Lsn, table: &str, what: &str) -> Error {
    packet(lsn, format!("a redo record for table \"{table}\": {what}"))
}

/// The error for a redo record for a table that does not exist at its place.
pub(crate) fn no_table(lsn: Lsn, id: TableId) -> Error {
    packet(lsn, format!("a redo record for table {}, and at this place there is no such table", id.0))
}

/// The error for a redo record for a system table that this program does not have.
pub(crate) fn no_system_table(lsn: Lsn, id: TableId) -> Error {
    packet(lsn, format!("a redo record for system table {}, which this program does not know", id.0))
}
