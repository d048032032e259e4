//! A row that an index entry leads to, and that is not locked, moves elsewhere as soon as it has been read.

use super::*;
use crate::io::MemoryDisk;
use crate::store::AFTER_FOLLOWING;
use crate::{Engine, Error};

fn row(id: i32, code: i64, length: usize) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(code), text(length)]
}

/// The error for a duplicate depends on the row that has the key (I3), even if that row moves and another row comes to
/// its slot before the error is made: everything that is needed of the row is read at once.
#[test]
fn a_duplicate_depends_on_the_row_that_was_seen_wherever_it_is_by_then() {
    const TAKEN: i32 = 3;
    for engine in Engine::ALL {
        let db = Database::open_on(MemoryDisk::new(), Options { engine, ..options() }).unwrap();
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("code", ColumnType::Int8),
            Column::new("text", ColumnType::Text),
        ];
        let table = db
            .transact(|tx| {
                let table =
                    tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
                tx.create_index("t", "by_code", &["code"], true)?;
                (0..10).try_for_each(|id| tx.insert(&table, &row(id, i64::from(id), 1_000)))?;
                Ok(table)
            })
            .unwrap();
        // The last writer of the row, which nothing has made durable.
        let written = commit(&db, |tx| tx.update(&table, TAKEN, &[(2, text(900))]).map(drop));
        let location = record_of(&table, TAKEN);
        AFTER_FOLLOWING.set(Some(Box::new({
            let (db, table) = (db.clone(), table.clone());
            move || {
                let moves = std::thread::spawn(move || {
                    commit(&db, |tx| tx.update(&table, TAKEN, &[(2, text(6_000))]).map(drop));
                    assert_ne!(record_of(&table, TAKEN), location, "the test's own premise: it moves");
                    let mut others = db.begin().unwrap();
                    let comes = (100..200).any(|id| {
                        others.insert(&table, &row(id, i64::from(id), 900)).unwrap();
                        record_of(&table, id) == location
                    });
                    assert!(comes, "the test's own premise: another row comes to its location");
                    assert!(
                        db.core().storage.memory.segments.lsn(location) < written,
                        "the test's own premise: and tells nothing of it"
                    );
                });
                moves.join().unwrap();
            }
        })));
        let mut tx = db.begin().unwrap();
        let refused = tx.insert(&table, &row(900, i64::from(TAKEN), 10));
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        assert!(AFTER_FOLLOWING.take().is_none(), "the test's own premise: the entry was followed");
        assert!(tx.context().depends >= written, "{engine}: {} of {written}", tx.context().depends);
    }
}
