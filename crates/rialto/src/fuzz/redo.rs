//! Redo records from any bytes.

use super::script::Script;
use crate::commit::redo::{self, Change, Operations, Patches};
use crate::row::{FieldChange, FieldPatch};
use crate::txn::calls::{LoggedCall, read_call, write_call};

/// Reads the bytes as redo records, and as a call. What is read, written again, is read as the same. Patches change
/// only existing bytes. A malformed record gives an offset in the bytes, and is the last item.
pub fn redo_records(data: &[u8]) {
    if let Some(call) = read_call(data) {
        let mut again = Vec::new();
        let LoggedCall { name, version, checksum, ref numbers, ref arguments } = call;
        write_call(&mut again, name, version, checksum, numbers, arguments);
        let read = read_call(&again).expect("what was written is read");
        // A float may be NaN, which equals nothing.
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
    }
    let mut script = Script::of(data);
    // Most inputs break in the first record, so valid records are made as well.
    let valid = if script.byte().is_multiple_of(2) { Vec::new() } else { written(&mut script) };
    let payload = [&valid[..], script.bytes(usize::MAX)].concat();
    let mut read = 0;
    let mut over = false;
    for item in redo::read_with_bytes(&payload) {
        assert!(!over, "a malformed record is the last item");
        match item {
            Err(offset) => {
                assert_eq!(offset, read, "the offset of the malformed record");
                over = true;
            }
            Ok((record, bytes)) => {
                assert_eq!(payload[read..].as_ptr(), bytes.as_ptr(), "records follow each other");
                read += bytes.len();
                let mut again = Vec::new();
                match &record.change {
                    Change::Put { row_number, row } => {
                        let numbered = bytes[0] & 0x80 != 0;
                        let number = row_number.to_le_bytes();
                        let body = if numbered { [&number[..], row].concat() } else { row.to_vec() };
                        redo::write_put(&mut again, record.table, record.key, numbered, &body);
                    }
                    Change::Patch(patches) => write_patches(&mut again, &record, *patches),
                    Change::Operate(operations) => write_operations(&mut again, &record, *operations),
                    Change::Delete => {
                        redo::write_delete(&mut again, record.table, record.key);
                    }
                    Change::Load { file, digest } => {
                        redo::write_load(&mut again, record.table, *file, *digest);
                        // A load has no key; if one is present it is ignored.
                        assert_eq!(redo::read(&again).count(), 1);
                        continue;
                    }
                }
                let read: Vec<_> = redo::read(&again).collect();
                let [Ok(same)] = &read[..] else { panic!("written again: {read:?}") };
                match (&record.change, &same.change) {
                    (Change::Patch(before), Change::Patch(after)) => {
                        assert_eq!((record.table, record.key), (same.table, same.key));
                        assert!(before.ranges().eq(after.ranges()));
                    }
                    (Change::Operate(before), Change::Operate(after)) => {
                        assert_eq!((record.table, record.key), (same.table, same.key));
                        assert!(before.changes().eq(after.changes()));
                    }
                    _ => assert_eq!(record, *same),
                }
            }
        }
    }
    assert!(over || read == payload.len(), "all bytes were read, or there is an error");
}

fn write_patches(out: &mut Vec<u8>, record: &redo::RedoRecord<'_>, patches: Patches<'_>) {
    let end = patches.ranges().map(|(offset, bytes)| offset + bytes.len()).max().unwrap_or(0);
    for length in [0, end / 2, end] {
        let (mut row, before) = (vec![0x5a; length], vec![0x5a; length]);
        let applied = patches.apply(&mut row);
        assert_eq!(applied, patches.ranges().all(|(offset, bytes)| offset + bytes.len() <= length));
        let mut inside = vec![false; length];
        for (offset, bytes) in patches.ranges() {
            let (from, to) = (offset.min(length), (offset + bytes.len()).min(length));
            inside[from..to].fill(true);
        }
        let changed = (0..length).filter(|&at| row[at] != before[at]);
        assert!(changed.into_iter().all(|at| inside[at]), "a patch changes only its own bytes");
    }
    // As `write_patch` does, but with ranges that need not come from one row.
    redo::write_delete(out, record.table, record.key);
    out[0] = redo::PATCH;
    redo::put_varint(out, patches.ranges().count() as u64);
    for (offset, bytes) in patches.ranges() {
        redo::put_varint(out, offset as u64);
        redo::put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

fn write_operations(out: &mut Vec<u8>, record: &redo::RedoRecord<'_>, operations: Operations<'_>) {
    let end = operations.changes().map(|(offset, change)| offset + change.len()).max().unwrap_or(0);
    for length in [0, end / 2, end] {
        let (mut row, before) = (vec![0x5a; length], vec![0x5a; length]);
        let applied = operations.apply(&mut row);
        assert_eq!(applied, operations.changes().all(|(offset, change)| offset + change.len() <= length));
        let mut inside = vec![false; length];
        for (offset, change) in operations.changes() {
            let (from, to) = (offset.min(length), (offset + change.len()).min(length));
            inside[from..to].fill(true);
        }
        let changed = (0..length).filter(|&at| row[at] != before[at]);
        assert!(changed.into_iter().all(|at| inside[at]), "an operation changes only its own field");
    }
    // As redo's `write_operations` does, but with fields that need not come from one row.
    redo::write_delete(out, record.table, record.key);
    out[0] = redo::OPERATE;
    redo::put_varint(out, operations.changes().count() as u64);
    for (offset, change) in operations.changes() {
        redo::put_varint(out, offset as u64);
        match change {
            FieldChange::Set(bytes) => {
                out.push(bytes.len() as u8);
                out.extend_from_slice(bytes);
            }
            FieldChange::Add { length, delta } => {
                out.push(0x80 | length);
                redo::put_zigzag(out, delta);
            }
        }
    }
}

/// Some valid records.
fn written(script: &mut Script<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..script.byte() % 4 {
        let table = crate::TableId(script.number(2) as u32);
        let length = script.below(12);
        let key = script.bytes(length);
        let row = [&[7; 40][..], key].concat();
        match script.byte() % 5 {
            0 => redo::write_put(&mut out, table, key, script.byte().is_multiple_of(2), &row),
            1 => {
                let first = FieldPatch::new(script.below(20) as u16, &row[..script.below(17)]);
                let patches = [first, FieldPatch::new(3, &[7])];
                redo::write_patch(&mut out, table, key, &patches[..1 + script.below(2)])
            }
            2 => redo::write_delete(&mut out, table, key),
            3 => {
                let length = [2, 4, 8][script.below(3)];
                let sum =
                    FieldPatch::of_sum(script.below(20) as u16, &row[..length], script.number(8) as i64);
                let patches = [sum, FieldPatch::new(3, &[7])];
                redo::write_operations(&mut out, table, key, &patches[..1 + script.below(2)])
            }
            _ => {
                let (file, has_digest) = (script.number(8), script.byte().is_multiple_of(2));
                redo::write_load(&mut out, table, file, has_digest.then(|| script.number(8)));
                redo::RecordAt::default()
            }
        };
    }
    out
}
