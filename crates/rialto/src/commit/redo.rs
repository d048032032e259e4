//! The redo records in a commit packet's payload: values, and with action logging operations (System M, section 3).
//!
//! ```text
//! record   kind: u8   table: varint   key length: varint, key bytes   then by kind
//!   put      row number: u64 in numbered tables, row length: varint, row bytes
//!   patch    count: varint, then per patch  offset: varint, length: varint, bytes     (offsets count from the row)
//!   delete   nothing
//!   load     (the key is empty)  file number: u64, digest of the file: u64
//!            (in logs of programs that knew no digests, a kind of its own: the number alone)
//!   operate  count: varint, then per field  offset: varint, length: u8, bytes
//!                                           or      offset: varint, 0x80 + length: u8, increment: zigzag varint
//! ```
//!
//! The records of a packet are redone in their order, each if its packet's [`Lsn`](crate::Lsn) is not below its row's.
//! Redoing all of a packet's records again gives the same rows, so redo is idempotent (I8).
//!
//! An *operate* record cannot be redone twice. It is redone only if its packet's place is *above* its row's. A packet
//! has at most one for a row, before all other records for that row: later changes of the transaction to the row are
//! logged as values. A row at the packet's own place therefore has the operation, whatever of the packet was redone
//! before, and the values may be put once more. (Why this also suffices beside a fuzzy copy: [`crate::recovery`].)

use crate::ids::TableId;
use crate::row::{FieldChange, FieldPatch};
use crate::unlikely::unlikely;

/// One redo record, borrowing from the packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RedoRecord<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub change: Change<'a>,
}

/// What a redo record does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The whole row at this key, with its hidden row number (0 in a table without).
    Put { row_number: u64, row: &'a [u8] },
    /// Byte ranges of the row.
    Patch(Patches<'a>),
    /// The row is deleted.
    Delete,
    /// The rows in the load file of this number, and of this digest, if the record has one.
    Load { file: u64, digest: Option<u64> },
    /// Operations on fields of the row.
    Operate(Operations<'a>),
}

const PUT: u8 = 1;
pub(crate) const PATCH: u8 = 2;
const DELETE: u8 = 3;
const LOAD_WITHOUT_DIGEST: u8 = 4;
pub(crate) const OPERATE: u8 = 5;
const LOAD: u8 = 6;

/// A flag in the length of a field: an increment follows.
const ADDS: u8 = 0x80;

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    match *bytes {
        [byte @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            Some(u64::from(*byte))
        }
        _ => take_long_varint(bytes),
    }
}

#[inline(never)]
fn take_long_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Appends a signed number, so that small numbers of either sign take few bytes.
#[inline]
pub(crate) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

pub(crate) fn take_zigzag(bytes: &mut &[u8]) -> Option<i64> {
    take_varint(bytes).map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Where a record's key and body lie in the packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RecordAt {
    pub key_at: u32,
    pub key_bytes: u16,
    pub body_at: u32,
    pub body_bytes: u32,
}

#[inline(always)]
fn begin(out: &mut Vec<u8>, kind: u8, table: TableId, key: &[u8]) -> RecordAt {
    if table.0 < 0x80 && key.len() < 0x80 {
        out.extend_from_slice(&[kind, table.0 as u8, key.len() as u8]);
    } else {
        out.push(kind);
        put_varint(out, u64::from(table.0));
        put_varint(out, key.len() as u64);
    }
    let key_at = out.len() as u32;
    match key.len() {
        4 => out.extend_from_slice(key.first_chunk::<4>().expect("four")),
        8 => out.extend_from_slice(key.first_chunk::<8>().expect("eight")),
        _ => out.extend_from_slice(key),
    }
    RecordAt { key_at, key_bytes: key.len() as u16, ..RecordAt::default() }
}

/// Appends a put. The body is as it lies in the record: the row number, if `numbered`, then the row.
#[inline]
pub(crate) fn write_put(
    out: &mut Vec<u8>,
    table: TableId,
    key: &[u8],
    numbered: bool,
    body: &[u8],
) -> RecordAt {
    let mut record_at = begin(out, PUT | if numbered { 0x80 } else { 0 }, table, key);
    put_varint(out, body.len() as u64);
    record_at.body_at = out.len() as u32;
    out.extend_from_slice(body);
    record_at.body_bytes = body.len() as u32;
    record_at
}

/// Appends a patch.
pub(crate) fn write_patch(out: &mut Vec<u8>, table: TableId, key: &[u8], patches: &[FieldPatch]) -> RecordAt {
    write_usual_patch(out, table, key, patches)
}

/// The same, inlined into its caller.
#[inline(always)]
pub(crate) fn write_usual_patch(
    out: &mut Vec<u8>,
    table: TableId,
    key: &[u8],
    patches: &[FieldPatch],
) -> RecordAt {
    // The usual patch has one field or two, and the key is a number.
    if !unlikely(table.0 >= 0x80) {
        match (patches, key.len()) {
            ([patch], 4) if patch.offset() < 0x80 => {
                return write_few::<4, 1, 26>(out, table, key, [patch]);
            }
            ([patch], 8) if patch.offset() < 0x80 => {
                return write_few::<8, 1, 30>(out, table, key, [patch]);
            }
            ([patch, other], 4) if (patch.offset() | other.offset()) < 0x80 => {
                return write_few::<4, 2, 44>(out, table, key, [patch, other]);
            }
            _ => {}
        }
    }
    write_patches(out, table, key, patches)
}

/// Bytes of a patch's range before its new bytes, and the most new bytes of a range.
const RANGE_HEADER: usize = 2;
const RANGE_BYTES: usize = 16;

/// Appends a patch of few fields. The most bytes that it may take are written, at offsets that are mostly known
/// beforehand, and then cut: this makes no call, and checks the room once.
#[inline(always)]
fn write_few<const KEY: usize, const FIELDS: usize, const ALL: usize>(
    out: &mut Vec<u8>,
    table: TableId,
    key: &[u8],
    patches: [&FieldPatch; FIELDS],
) -> RecordAt {
    const { assert!(ALL == 4 + KEY + FIELDS * (RANGE_HEADER + RANGE_BYTES)) };
    let at = out.len();
    out.extend_from_slice(&[0; ALL]);
    let record = &mut out[at..at + ALL];
    record[..3].copy_from_slice(&[PATCH, table.0 as u8, KEY as u8]);
    record[3..3 + KEY].copy_from_slice(key);
    record[3 + KEY] = FIELDS as u8;
    let mut used = 4 + KEY;
    for patch in patches {
        record[used..used + RANGE_HEADER].copy_from_slice(&[patch.offset() as u8, patch.len()]);
        let bytes = used + RANGE_HEADER;
        record[bytes..bytes + RANGE_BYTES].copy_from_slice(patch.all_bytes());
        used = bytes + usize::from(patch.len());
    }
    out.truncate(at + used);
    let at = at as u32;
    let body_at = at + 3 + KEY as u32;
    RecordAt { key_at: at + 3, key_bytes: KEY as u16, body_at, body_bytes: at + used as u32 - body_at }
}

#[inline(never)]
fn write_patches(out: &mut Vec<u8>, table: TableId, key: &[u8], patches: &[FieldPatch]) -> RecordAt {
    let mut record_at = begin(out, PATCH, table, key);
    record_at.body_at = out.len() as u32;
    put_varint(out, patches.len() as u64);
    for patch in patches {
        // As in `write_few`: the most bytes that it may take, and then cut.
        if patch.offset() < 0x80 {
            let mut record = [0; 18];
            record[..2].copy_from_slice(&[patch.offset() as u8, patch.len()]);
            record[2..].copy_from_slice(patch.all_bytes());
            let end = out.len() + 2 + usize::from(patch.len());
            out.extend_from_slice(&record);
            out.truncate(end);
            continue;
        }
        put_varint(out, u64::from(patch.offset()));
        out.push(patch.len());
        let end = out.len() + usize::from(patch.len());
        out.extend_from_slice(patch.all_bytes());
        out.truncate(end);
    }
    record_at.body_bytes = out.len() as u32 - record_at.body_at;
    record_at
}

/// Appends operations on fields: values that were set, and for sums what was added.
pub(crate) fn write_operations(
    out: &mut Vec<u8>,
    table: TableId,
    key: &[u8],
    patches: &[FieldPatch],
) -> RecordAt {
    let mut record_at = begin(out, OPERATE, table, key);
    record_at.body_at = out.len() as u32;
    put_varint(out, patches.len() as u64);
    for patch in patches {
        put_varint(out, u64::from(patch.offset()));
        match patch.change() {
            FieldChange::Set(bytes) => {
                out.push(bytes.len() as u8);
                out.extend_from_slice(bytes);
            }
            FieldChange::Add { length, delta } => {
                out.push(ADDS | length);
                put_zigzag(out, delta);
            }
        }
    }
    record_at.body_bytes = out.len() as u32 - record_at.body_at;
    record_at
}

/// Appends a delete.
pub(crate) fn write_delete(out: &mut Vec<u8>, table: TableId, key: &[u8]) -> RecordAt {
    begin(out, DELETE, table, key)
}

/// Appends the adoption of a load file. Its digest may be set later ([`set_load_digest`]). Without a digest the record
/// is that of programs which knew none.
pub(crate) fn write_load(out: &mut Vec<u8>, table: TableId, file: u64, digest: Option<u64>) {
    begin(out, if digest.is_some() { LOAD } else { LOAD_WITHOUT_DIGEST }, table, &[]);
    out.extend_from_slice(&file.to_le_bytes());
    out.extend(digest.iter().flat_map(|digest| digest.to_le_bytes()));
}

/// Sets the digest in the record of a load that ends here in the packet.
pub(crate) fn set_load_digest(packet: &mut [u8], record_end: usize, digest: u64) {
    packet[record_end - 8..record_end].copy_from_slice(&digest.to_le_bytes());
}

/// The byte ranges of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patches<'a> {
    bytes: &'a [u8],
}

impl<'a> Patches<'a> {
    /// The patches in `bytes`, which [`write_patch`] wrote or [`read`] has checked.
    pub fn of(bytes: &'a [u8]) -> Patches<'a> {
        Patches { bytes }
    }

    /// The offset in the row and the new bytes of each range.
    #[inline(always)]
    pub fn ranges(self) -> impl Iterator<Item = Range<'a>> {
        let (count, mut rest) = match self.bytes {
            [count @ 0..0x80, rest @ ..] => (u64::from(*count), rest),
            bytes => take_count(bytes),
        };
        (0..count).map_while(move |_| match rest {
            // Both are below 0x80: varints of one byte.
            [offset, length, bytes @ ..]
                if !unlikely((offset | length) >= 0x80 || bytes.len() < usize::from(*length)) =>
            {
                let (bytes, after) = bytes.split_at(usize::from(*length));
                rest = after;
                Some((usize::from(*offset), bytes))
            }
            _ => {
                let (range, after) = take_range(rest)?;
                rest = after;
                Some(range)
            }
        })
    }

    /// Changes `row`. `false` if a range passes its end.
    #[must_use]
    pub fn apply(self, row: &mut [u8]) -> bool {
        self.ranges().all(|(offset, bytes)| match row.get_mut(offset..offset + bytes.len()) {
            Some(range) => {
                range.copy_from_slice(bytes);
                true
            }
            None => false,
        })
    }
}

/// A byte range of a patch: its offset, then its bytes.
type Range<'a> = (usize, &'a [u8]);

/// A number at the beginning of some bytes, and the other bytes.
#[cold]
fn take_count(bytes: &[u8]) -> (u64, &[u8]) {
    let mut rest = bytes;
    (take_varint(&mut rest).unwrap_or(0), rest)
}

/// The first of some ranges, and the ranges behind it.
#[cold]
fn take_range(ranges: &[u8]) -> Option<(Range<'_>, &[u8])> {
    let mut rest = ranges;
    let (offset, length) = (take_varint(&mut rest)?, take_varint(&mut rest)?);
    Some(((offset as usize, take_bytes(&mut rest, length)?), rest))
}

/// Operations on fields of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operations<'a> {
    bytes: &'a [u8],
}

impl<'a> Operations<'a> {
    /// The operations in `bytes`, which [`write_operations`] wrote or [`read`] has checked.
    pub fn of(bytes: &'a [u8]) -> Operations<'a> {
        Operations { bytes }
    }

    /// For each field, its offset in the row and the change.
    pub fn changes(self) -> impl Iterator<Item = (usize, FieldChange<'a>)> {
        let mut rest = self.bytes;
        let count = take_varint(&mut rest).unwrap_or(0);
        (0..count).map_while(move |_| take_operation(&mut rest))
    }

    /// Changes `row`. `false` if a field passes its end.
    #[must_use]
    pub fn apply(self, row: &mut [u8]) -> bool {
        self.changes().all(|(offset, change)| match row.get_mut(offset..offset + change.len()) {
            Some(field) => {
                change.apply(field);
                true
            }
            None => false,
        })
    }
}

fn take_operation<'a>(bytes: &mut &'a [u8]) -> Option<(usize, FieldChange<'a>)> {
    let offset = u16::try_from(take_varint(bytes)?).ok()?;
    let length = *take_bytes(bytes, 1)?.first()?;
    let change = if length & ADDS == 0 {
        FieldChange::Set(take_bytes(bytes, u64::from(length))?)
    } else {
        let length = length & !ADDS;
        if !matches!(length, 2 | 4 | 8) {
            return None;
        }
        FieldChange::Add { length, delta: take_zigzag(bytes)? }
    };
    Some((usize::from(offset), change))
}

fn take_operations<'a>(bytes: &mut &'a [u8]) -> Option<Operations<'a>> {
    let all = *bytes;
    let count = take_varint(bytes)?;
    for _ in 0..count {
        take_operation(bytes)?;
    }
    Some(Operations { bytes: &all[..all.len() - bytes.len()] })
}

fn take_patches<'a>(bytes: &mut &'a [u8]) -> Option<Patches<'a>> {
    let all = *bytes;
    let count = take_varint(bytes)?;
    for _ in 0..count {
        let offset = take_varint(bytes)?;
        let length = take_varint(bytes)?;
        if offset > u64::from(u16::MAX) {
            return None;
        }
        take_bytes(bytes, length)?;
    }
    Some(Patches { bytes: &all[..all.len() - bytes.len()] })
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take_bytes(bytes, 8)?.try_into().ok()?))
}

fn take_record<'a>(bytes: &mut &'a [u8]) -> Option<RedoRecord<'a>> {
    let kind = *take_bytes(bytes, 1)?.first()?;
    let table = TableId(u32::try_from(take_varint(bytes)?).ok()?);
    let key_bytes = take_varint(bytes)?;
    let key = take_bytes(bytes, key_bytes)?;
    let change = match kind & 0x7f {
        PUT => {
            let length = take_varint(bytes)?;
            let mut row = take_bytes(bytes, length)?;
            let row_number = match kind & 0x80 {
                0 => 0,
                _ => take_u64(&mut row)?,
            };
            Change::Put { row_number, row }
        }
        PATCH => Change::Patch(take_patches(bytes)?),
        DELETE => Change::Delete,
        OPERATE => Change::Operate(take_operations(bytes)?),
        LOAD => Change::Load { file: take_u64(bytes)?, digest: Some(take_u64(bytes)?) },
        LOAD_WITHOUT_DIGEST => Change::Load { file: take_u64(bytes)?, digest: None },
        _ => return None,
    };
    Some(RedoRecord { table, key, change })
}

/// The records of a packet's payload. A malformed record is replaced by its offset, which is the last item.
pub(crate) fn read(payload: &[u8]) -> impl Iterator<Item = Result<RedoRecord<'_>, usize>> {
    read_with_bytes(payload).map(|item| item.map(|(record, _)| record))
}

/// As [`read`], each record with its bytes.
pub(crate) fn read_with_bytes(
    payload: &[u8],
) -> impl Iterator<Item = Result<(RedoRecord<'_>, &[u8]), usize>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let offset = payload.len() - rest.len();
        match take_record(&mut rest) {
            Some(record) => Some(Ok((record, &payload[offset..payload.len() - rest.len()]))),
            None => {
                rest = &[];
                Some(Err(offset))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut out = Vec::new();
        write_put(&mut out, TableId(300), b"key", false, b"a row");
        let mut body = 77u64.to_le_bytes().to_vec();
        body.extend_from_slice(b"numbered");
        write_put(&mut out, TableId(1), b"n", true, &body);
        write_patch(&mut out, TableId(2), b"k", &[FieldPatch::new(2, b"234"), FieldPatch::new(9, b"9")]);
        write_delete(&mut out, TableId(2), b"k");
        write_load(&mut out, TableId(9), 5, None);
        write_load(&mut out, TableId(9), 6, Some(0));
        let end = out.len();
        write_delete(&mut out, TableId(2), b"k");
        set_load_digest(&mut out, end, 77);
        let records: Vec<_> = read(&out).collect::<Result<_, _>>().unwrap();
        assert_eq!(records[0].change, Change::Put { row_number: 0, row: b"a row" });
        assert_eq!(records[1].change, Change::Put { row_number: 77, row: b"numbered" });
        let Change::Patch(patches) = &records[2].change else { panic!("a patch") };
        let mut row = *b"..........";
        assert!(patches.apply(&mut row));
        assert_eq!(&row, b"..234....9");
        assert!(!patches.apply(&mut row[..5]));
        assert_eq!(records[3].change, Change::Delete);
        assert_eq!(records[4].change, Change::Load { file: 5, digest: None });
        assert_eq!(records[5].change, Change::Load { file: 6, digest: Some(77) });
        assert_eq!((records.len(), &records[6].change), (7, &Change::Delete));
    }

    /// What is written without a call for each part equals what is written part by part.
    #[test]
    fn the_usual_patch_is_a_patch() {
        for key in [&b"four"[..], b"eight by", b"another", b""] {
            for (table, offset) in [(1, 0), (127, 127), (128, 5), (3, 128), (70_000, 40_000)] {
                for length in [1, 4, 8, 16] {
                    let patch = FieldPatch::new(offset, &b"0123456789abcdef"[..length]);
                    let (mut usual, mut general) = (b"before".to_vec(), b"before".to_vec());
                    let record_at = write_patch(&mut usual, TableId(table), key, &[patch]);
                    assert_eq!(record_at, write_patches(&mut general, TableId(table), key, &[patch]));
                    assert_eq!(usual, general);
                    let record = read(&usual[6..]).next().unwrap().unwrap();
                    assert_eq!((record.table, record.key), (TableId(table), key));
                    let Change::Patch(patches) = record.change else { panic!("a patch") };
                    let ranges: Vec<_> = patches.ranges().collect();
                    assert_eq!(ranges, [(usize::from(offset), patch.bytes())]);
                }
            }
        }
    }

    #[test]
    fn operations_are_read_as_they_were_written_and_sums_wrap_within_their_fields() {
        let patches = [
            FieldPatch::of_sum(0, &7i64.to_le_bytes(), -9),
            FieldPatch::new(8, b"set"),
            FieldPatch::of_sum(300, &0i16.to_le_bytes(), i64::MIN),
            FieldPatch::of_sum(11, &5i32.to_le_bytes(), 1),
        ];
        let mut out = Vec::new();
        let record_at = write_operations(&mut out, TableId(9), b"k", &patches);
        let body = &out[record_at.body_at as usize..][..record_at.body_bytes as usize];
        let records: Vec<_> = read(&out).collect::<Result<_, _>>().unwrap();
        let [RedoRecord { table: TableId(9), key: b"k", change: Change::Operate(operations) }] = &records[..]
        else {
            panic!("{records:?}")
        };
        assert_eq!(*operations, Operations::of(body));
        let changes: Vec<_> = operations.changes().collect();
        assert_eq!(changes, patches.each_ref().map(|patch| (usize::from(patch.offset()), patch.change())));
        let mut row = vec![0xff; 302];
        row[..8].copy_from_slice(&16i64.to_le_bytes());
        assert!(operations.apply(&mut row));
        assert_eq!((&row[..8], &row[8..11]), (&7i64.to_le_bytes()[..], &b"set"[..]));
        assert_eq!((&row[11..15], row[15], &row[300..]), (&[0; 4][..], 0xff, &[0xff; 2][..]));
        assert!(!operations.apply(&mut row[..301]));
    }

    #[test]
    fn any_cut_or_flip_is_an_error_or_records_never_a_panic() {
        let mut out = Vec::new();
        write_patch(&mut out, TableId(2), b"k", &[FieldPatch::new(2, b"234"), FieldPatch::new(9, b"9")]);
        write_put(&mut out, TableId(300), b"key", true, b"12345678row");
        write_operations(&mut out, TableId(2), b"k", &[FieldPatch::of_sum(2, b"abcd", -1_000_000)]);
        for cut in 0..out.len() {
            read(&out[..cut]).for_each(drop);
        }
        for at in 0..out.len() {
            for bit in 0..8 {
                let mut bad = out.clone();
                bad[at] ^= 1 << bit;
                read(&bad).for_each(drop);
            }
        }
    }
}
