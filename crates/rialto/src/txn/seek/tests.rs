//! A record between the probe that led to it and its lock (L8 in `isolate/thin/mod.rs`).

use super::*;
use crate::io::MemoryDisk;
use crate::row::{Column, ColumnType, IntoKey, Value};
use crate::{Checkpointing, Database, Options, Table, TableDef};

fn row(id: i32, length: usize) -> [Value; 2] {
    [Value::Int4(id), Value::Text("x".repeat(length))]
}

fn filled() -> (Database, Table) {
    let options = Options { memory_bytes: 16 << 20, checkpoint: Checkpointing::None, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let table = db
        .transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"])))
        .unwrap();
    db.transact(|tx| (0..20).try_for_each(|id| tx.insert(&table, &row(id, 100)))).unwrap();
    (db, table)
}

/// Where the index leads to from `id`.
fn probe(context: &mut Context, slot: u32, id: i32) -> (Found, RowLocation) {
    let table = context.tables.at(slot);
    id.encode_into(table.schema.key_shape(WhichIndex::Primary), &mut context.key).unwrap();
    let found = table.store.find(WhichIndex::Primary, &context.key);
    (found, found.location().expect("the row has an entry"))
}

/// Other transactions delete the row, or move it, and the next one gets its slot. All of them have committed when the
/// seeker, which has probed before, comes to lock. The slot is not locked, it has a row, and the row is not the key's.
#[test]
fn a_slot_that_has_another_row_since_the_probe_is_not_taken_for_the_keys() {
    for (moved, mode) in [false, true]
        .into_iter()
        .flat_map(|moved| [RecordMode::Shared, RecordMode::Exclusive].map(|mode| (moved, mode)))
    {
        let about = format!("{} since, {mode:?}", if moved { "moved" } else { "deleted" });
        let (db, table) = filled();
        let core = db.core();
        let mut seeker = db.begin().unwrap();
        let context = seeker.context();
        let slot = context.get(&table, &0, mode).unwrap().expect("row 0 is there");
        let (found, record) = probe(context, slot, 7);

        let changed = db.transact(|tx| match moved {
            true => tx.update(&table, 7, &[(1, Value::Text("y".repeat(3_000)))]),
            false => tx.delete(&table, 7),
        });
        assert_eq!(changed, Ok(true), "{about}");
        let heir = (100..200).find(|&id| {
            db.transact(|tx| tx.insert(&table, &row(id, 100))).unwrap();
            let mut key = Key::new();
            id.encode_into(table.schema().key_shape(WhichIndex::Primary), &mut key).unwrap();
            table.version().store.find(WhichIndex::Primary, &key).location() == Some(record)
        });
        let heir = heir.unwrap_or_else(|| panic!("{about}: no row took the slot"));
        let is_unlocked = || ThinWord::is_free(core.storage.lock_word(record).load(Ordering::Relaxed));
        assert!(is_unlocked() && !table.version().store.row(record).is_absent(), "{about}");

        assert_eq!(context.lock_found(slot, &found, mode), None, "{about}: it is row {heir}'s");
        assert!(is_unlocked(), "{about}: the lock was given back");
        let known = Some((record, found.leaf));
        let led = context.lock_present(slot, WhichIndex::Primary, None, known, mode).unwrap();
        assert!(is_unlocked(), "{about}: the lock was given back");
        let location = context.seek(slot, mode).unwrap();
        match (led, location) {
            (Probe::Present(now), CurrentLocation::Stored(seen)) => {
                assert!(moved && now == seen && now != record)
            }
            (Probe::Absent { .. }, CurrentLocation::Absent(_)) => assert!(!moved, "{about}"),
            other => panic!("{about}: {other:?}"),
        }
        // A probe that is still valid is believed.
        let (found, again) = probe(context, slot, heir);
        assert_eq!((again, context.lock_found(slot, &found, mode)), (record, Some(record)), "{about}");
    }
}
