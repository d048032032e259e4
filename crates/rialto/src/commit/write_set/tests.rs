//! Tests of `write_set`.

use super::*;
use crate::commit::redo;
use crate::ids::TableId;
use crate::io::MemoryDisk;
use crate::row::{Column, ColumnType, FieldPatch, Value};
use crate::{Checkpointing, Database, Options, TableDef, Transaction};

/// A write of a new row without bytes.
fn new_write() -> Write {
    Write {
        heap: HeapId(1),
        identity: IndexId(2),
        slot: 0,
        kind: WriteKind::Put,
        fresh: true,
        entered: false,
        rekeys: false,
        row_at: 0,
        patches: 0,
        record: RowLocation::from_number(0),
        moved_to: None,
        previous: None,
        superseded: false,
        record_at: RecordAt::default(),
    }
}

fn push(set: &mut WriteSet, packet: &mut Vec<u8>, key: u8, body: &[u8]) {
    let previous = set.find(HeapId(1), IndexId(2), &[key], packet);
    let record_at = redo::write_put(packet, TableId(1), &[key], false, body);
    let (fresh, record) = (previous.is_none(), RowLocation::from_number(u64::from(key)));
    set.push(Write { fresh, record, previous, record_at, ..new_write() }, packet);
}

#[test]
fn the_newest_write_of_a_row_is_found_before_and_after_a_rollback() {
    for many in [4, 40] {
        let (mut set, mut packet) = (WriteSet::default(), Vec::new());
        for key in 0..many {
            push(&mut set, &mut packet, key, b"first");
        }
        let mark = set.mark(packet.len());
        for key in 0..many {
            push(&mut set, &mut packet, key, b"second");
            push(&mut set, &mut packet, key, b"third");
        }
        let body = |set: &WriteSet, packet: &[u8], key: u8| {
            let position = set.find(HeapId(1), IndexId(2), &[key], packet).unwrap();
            let mut body = Vec::new();
            assert!(set.materialize(position, packet, 0, &mut body, &mut |_, _| unreachable!()));
            body
        };
        assert!((0..many).all(|key| body(&set, &packet, key) == b"third"));
        while set.pop_write(&mark, &packet).is_some() {}
        packet.truncate(mark.packet);
        assert!((0..many).all(|key| body(&set, &packet, key) == b"first"));
        assert_eq!(set.find(HeapId(1), IndexId(2), &[200], &packet), None);
    }
}

/// A write to one row after the other: of the whole row when `PATCHES_MIN` requires it, otherwise of its first byte.
fn patch(set: &mut WriteSet, packet: &mut Vec<u8>, key: u8, byte: u8) {
    let previous = set.find(HeapId(1), IndexId(2), &[key], packet).unwrap();
    if set.is_patched_often(previous, 1) {
        return push(set, packet, key, &[byte]);
    }
    let record_at = redo::write_patch(packet, TableId(1), &[key], &[FieldPatch::new(0, &[byte])]);
    let write = Write { kind: WriteKind::Patch, previous: Some(previous), record_at, ..*set.get(previous) };
    set.push(Write { superseded: false, ..write }, packet);
}

fn pop_adds(set: &mut WriteSet, mark: &Mark) {
    while set.last_add(mark).is_some() {
        set.pop_add();
    }
}

fn steps_of(work: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}

/// Reading a row takes a few steps, however often the transaction has changed it.
#[test]
fn a_row_that_is_patched_often_is_read_in_few_steps() {
    let (mut set, mut packet, mut body) = (WriteSet::default(), Vec::new(), Vec::new());
    for key in 0..3 {
        push(&mut set, &mut packet, key, &[0]);
    }
    for round in 1..=200_u8 {
        for key in 0..3 {
            patch(&mut set, &mut packet, key, round);
            let newest = set.find(HeapId(1), IndexId(2), &[key], &packet).unwrap();
            let steps = steps_of(|| {
                assert!(set.materialize(newest, &packet, 0, &mut body, &mut |_, _| unreachable!()));
            });
            assert_eq!(body, [round]);
            assert!(steps <= PATCHES_MIN as u64, "{steps} steps after {round} changes");
        }
    }
}

/// A chain of any length is walked by a loop, not by recursion.
#[test]
fn a_long_chain_of_patches_is_read_on_a_small_stack() {
    let read = || {
        let (mut set, mut packet, mut body) = (WriteSet::default(), Vec::new(), Vec::new());
        push(&mut set, &mut packet, 1, &[0, 0]);
        for n in 0..200_000_u32 {
            let record_at =
                redo::write_patch(&mut packet, TableId(1), &[1], &[FieldPatch::new(0, &[n as u8])]);
            let write = Write { kind: WriteKind::Patch, previous: Some(n), record_at, ..*set.get(n) };
            set.push(Write { superseded: false, ..write }, &packet);
        }
        assert!(set.materialize(200_000, &packet, 0, &mut body, &mut |_, _| unreachable!()));
        assert_eq!(body, [199_999_u32 as u8, 0]);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(read).unwrap().join().unwrap();
}

/// Each write has the entries that were added with it, and finds them in few steps.
#[test]
fn the_entries_of_a_write_are_found_without_a_look_at_all_others() {
    let (mut set, mut packet) = (WriteSet::default(), Vec::new());
    let entry = |set: &mut WriteSet, n: u8| {
        set.add(0, WhichIndex::Secondary(0), &[n], RowLocation::from_number(u64::from(n)), None);
    };
    let keys = |set: &WriteSet, position| -> Vec<u8> {
        set.adds_of(position).iter().map(|add| set.key_of_add(add)[0]).collect()
    };
    for n in 0..200 {
        push(&mut set, &mut packet, n, b"body");
        (0..n % 3).for_each(|_| entry(&mut set, n));
    }
    let steps = steps_of(|| {
        for n in 0..200 {
            assert_eq!(keys(&set, u32::from(n)), vec![n; usize::from(n % 3)]);
        }
    });
    assert_eq!(steps, set.adds.len() as u64);
    let mark = set.mark(packet.len());
    push(&mut set, &mut packet, 7, b"again");
    entry(&mut set, 8);
    assert_eq!(keys(&set, 200), [8]);
    let before = set.entry_bytes();
    pop_adds(&mut set, &mark);
    assert_eq!(before - set.entry_bytes(), size_of::<IndexAdd>() + 1);
    while set.pop_write(&mark, &packet).is_some() {}
    assert_eq!((keys(&set, 199), keys(&set, 200)), (vec![199], vec![]));
    // A part's writes and entries come after the others.
    let (mut part, mut of_part) = (WriteSet::default(), Vec::new());
    push(&mut part, &mut of_part, 201, b"part");
    entry(&mut part, 9);
    let base = packet.len() as u32;
    packet.extend_from_slice(&of_part);
    set.absorb(&mut part, base, |slot| slot, &packet);
    assert_eq!((keys(&set, 199), keys(&set, 200)), (vec![199], vec![9]));
}

/// Keys that a client has chosen so that their hashes by a known seed collide are found as fast as others.
#[test]
fn keys_that_a_client_chooses_are_found_in_few_steps() {
    let (mut set, mut packet) = (WriteSet::default(), Vec::new());
    let keys = seed::keys_of_one_slot(200, |key| hash_of(key, 0) & seed::LOOKED_AT);
    let steps = steps_of(|| {
        for key in &keys {
            assert_eq!(set.find(HeapId(1), IndexId(2), key, &packet), None);
            let record_at = redo::write_put(&mut packet, TableId(1), key, false, b"body");
            set.push(Write { record_at, ..new_write() }, &packet);
        }
    });
    assert!(steps < 2_000, "{steps} steps for {} keys", keys.len());
}

#[test]
fn a_large_transaction_leaves_no_memory_behind() {
    for is_taken_back in [false, true] {
        let (mut set, mut packet) = (WriteSet::default(), Vec::new());
        let mark = set.mark(0);
        for n in 0..5 * ENTRIES_KEPT {
            push(&mut set, &mut packet, n as u8, b"body");
            set.add(0, WhichIndex::Secondary(0), &[7; 100], RowLocation::from_number(1), None);
        }
        if is_taken_back {
            pop_adds(&mut set, &mark);
            while set.pop_write(&mark, &packet).is_some() {}
        }
        set.clear();
        let room = [set.writes.capacity(), set.adds.capacity(), set.latest.capacity()];
        assert!(room.iter().all(|&room| room <= 2 * ENTRIES_KEPT), "room for {room:?} entries");
        assert!(set.keys.capacity() <= KEY_BYTES_KEPT, "{} bytes of keys", set.keys.capacity());
    }
}

/// A commit takes a few steps for each row whose indexed column has changed, however many there are.
#[test]
fn a_commit_of_many_changed_keys_takes_few_steps_for_each() {
    const ROWS: i32 = 500;
    let options = Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = db
        .transact(|tx| {
            let columns = ["id", "n"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
            let table = tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_n", &["n"], false)?;
            Ok(table)
        })
        .unwrap();
    let insert = |tx: &mut Transaction| {
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))
    };
    db.transact(insert).unwrap();
    let update = |tx: &mut Transaction| {
        (0..ROWS).try_for_each(|id| tx.update(&table, id, &[(1, Value::Int4(ROWS + id))]).map(drop))
    };
    let steps = steps_of(|| db.transact(update).unwrap());
    assert!((ROWS as u64..10 * ROWS as u64).contains(&steps), "{steps} steps for {ROWS} rows");
}
