//! Data races planted in the kernel and beside it, for `.ci/sanitize` to check that ThreadSanitizer reports them.
//! Without it these tests show nothing, so they run only when `RIALTO_PLANTED_RACE` names one. A program by itself: in
//! any other ThreadSanitizer has to report nothing.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Options, TableDef, TxOptions};

fn is_asked_for(name: &str) -> bool {
    std::env::var("RIALTO_PLANTED_RACE").is_ok_and(|asked| asked == name)
}

struct Cell(UnsafeCell<u64>, AtomicBool);

// SAFETY: it is not; that is what is planted. The race is on one word, and nothing depends on its value.
unsafe impl Sync for Cell {}

impl Cell {
    fn count(&self) {
        // SAFETY: see above.
        unsafe { *self.0.get() += 1 };
    }
}

/// A word handed over by a flag that orders nothing.
#[test]
fn a_word_without_an_order() {
    if !is_asked_for("word") {
        return;
    }
    let cell = Cell(UnsafeCell::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cell.count();
            cell.1.store(true, Ordering::Relaxed);
        });
        while !cell.1.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        cell.count();
    });
}

/// The kernel's own hand-over of a packet slot, made weaker (`RIALTO_BUG=packet-handover-relaxed`).
#[test]
fn a_packet_slot_without_an_order() {
    if !is_asked_for("packet") {
        return;
    }
    let options = Options {
        checkpoint: Checkpointing::None,
        packets_max: 4,
        transactions_max: 4,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..options }).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let table = db
        .transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"])))
        .unwrap();
    let level_1 = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, table, level_1) = (&db, &table, &level_1);
            scope.spawn(move || {
                for id in 0..1000 {
                    db.transact_with(level_1, |tx| tx.insert(table, &[Value::Int4(thread * 1000 + id)]))
                        .unwrap();
                }
            });
        }
    });
}
