//! [`PreparedRecord`]: what a prepared transaction leaves on the disk.

use crate::catalog::system::FIRST_MADE_ID;
use crate::ids::TableId;
use crate::log::Durability;
use crate::row::Value;

/// The system table that has the records, in parts. It is made when a transaction first begins that may be prepared.
pub(crate) const PREPARED: TableId = TableId(FIRST_MADE_ID);
/// Its name.
pub(crate) const PREPARED_NAME: &str = "rialto_prepared";

/// The longest name of a prepared transaction, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 200;
/// The bytes of a record in one row.
const PART_BYTES: usize = 16 << 10;
const VERSION: u8 = 1;
/// The longest note, in bytes.
pub(super) const NOTE_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 2 + 3 * 4;

/// A prepared transaction's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreparedRecord<'a> {
    /// How durable its commit is.
    pub durability: Durability,
    /// What the caller wrote beside it.
    pub note: &'a [u8],
    /// Its locks, as [`NotedLocks`](super::NotedLocks) has them.
    pub locks: &'a [u8],
    /// The redo records of its writes.
    pub changes: &'a [u8],
}

impl<'a> PreparedRecord<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let parts = [self.note, self.locks, self.changes];
        let mut bytes = vec![VERSION, u8::from(self.durability == Durability::Disk)];
        for part in parts {
            let length = u32::try_from(part.len()).expect("a packet, and the notes beside it, are shorter");
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        parts.into_iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// `None`: the bytes make no sense.
    pub fn decode(bytes: &'a [u8]) -> Option<PreparedRecord<'a>> {
        let (header, mut rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let durability = match header[..2] {
            [VERSION, 0] => Durability::Memory,
            [VERSION, 1] => Durability::Disk,
            _ => return None,
        };
        let mut part = |nth: usize| {
            let at = 2 + 4 * nth;
            let length = u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
            let (part, others) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = others;
            Some(part)
        };
        let record = PreparedRecord { durability, note: part(0)?, locks: part(1)?, changes: part(2)? };
        rest.is_empty().then_some(record)
    }
}

/// How many rows a record of this many bytes has.
pub(super) fn rows_of(bytes: usize) -> usize {
    bytes.div_ceil(PART_BYTES)
}

/// The rows of a record.
pub(super) fn rows(name: &str, record: &[u8]) -> impl Iterator<Item = [Value; 3]> {
    let row = move |(nth, part): (usize, &[u8])| {
        let [name, nth] = key(name, nth);
        [name, nth, Value::Bytes(part.to_vec())]
    };
    record.chunks(PART_BYTES).enumerate().map(row)
}

/// The key of a row.
pub(super) fn key(name: &str, nth: usize) -> [Value; 2] {
    [Value::Text(name.to_owned()), Value::Int4(i32::try_from(nth).expect("a record has few rows"))]
}

/// A bound for the bytes of the redo records that delete the rows of a record.
pub(super) fn deletion_bytes(name: &str, rows: usize) -> usize {
    rows * (2 * name.len() + 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let changes = vec![7; 3 * PART_BYTES];
        let record = PreparedRecord {
            durability: Durability::Memory,
            note: b"from afar",
            locks: b"",
            changes: &changes,
        };
        let bytes = record.encode();
        assert_eq!(PreparedRecord::decode(&bytes), Some(record));
        let rows: Vec<_> = rows("name", &bytes).collect();
        assert_eq!(rows.len(), rows_of(bytes.len()));
        let whole: Vec<u8> = rows
            .iter()
            .flat_map(|row| match &row[2] {
                Value::Bytes(part) => part.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(whole, bytes);
        for end in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, bytes.len() - 1] {
            assert_eq!(PreparedRecord::decode(&bytes[..end]), None, "{end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(PreparedRecord::decode(&longer), None);
        longer[0] = 2;
        assert_eq!(PreparedRecord::decode(&longer[..bytes.len()]), None);
    }
}
