//! A table's handle shows only definitions that a transaction has committed, never intermediate ones.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType};
use rialto::{Database, Options, TableDef};

/// Made anew this often in one transaction: each is a version of its own that no other transaction may see.
const TIMES: usize = 20;

#[test]
fn a_handle_never_shows_a_definition_that_was_not_committed() {
    let db = Database::open_on(MemoryDisk::new(), Options::default()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("tag", ColumnType::Int4)];
    let define = TableDef::new("t", columns).with_primary_key(&["id"]);
    let made = db.transact(|tx| tx.create_table(&define)).unwrap();
    db.transact(|tx| tx.create_index("t", "by_tag", &["tag"], false)).unwrap();
    let tables = [made, db.table("t").unwrap()];
    // Handles of the transactions' own, of definitions that are no longer in force when they are read.
    let (is_over, older) = (AtomicBool::new(false), Mutex::new(VecDeque::new()));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0_u64;
            while !is_over.load(Ordering::SeqCst) {
                let mut older = older.lock().unwrap();
                let first = if older.len() > 2 { older.pop_front() } else { None };
                drop(older);
                for table in tables.iter().chain(&first) {
                    let schema = table.schema();
                    let names: Vec<_> = schema.indexes().iter().map(|index| &index.name).collect();
                    assert_eq!(names, ["by_tag"], "a definition within a transaction was seen");
                    seen += 1;
                }
            }
            seen
        });
        for _ in 0..500 {
            let own = db.transact(|tx| {
                (0..TIMES).try_for_each(|_| {
                    tx.drop_index("by_tag")?;
                    tx.create_index("t", "by_tag", &["tag"], false)
                })?;
                tx.table("t")
            });
            older.lock().unwrap().push_back(own.unwrap());
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
}
