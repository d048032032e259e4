//! A load file of an earlier opening is removed while `archive_log` reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hooked::HookedDisk;
use super::{options, seed, text, tick};
use crate::backup::Archive;
use crate::io::{Disk, FaultyDisk, MemoryDisk};
use crate::row::{Column, ColumnType, Value};
use crate::store::memory::load_file::LoadFileReader;
use crate::{Database, Options, TableDef};

fn create(tx: &mut crate::Transaction, name: &str) -> crate::Result<crate::Table> {
    let columns = vec![Column::new("n", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    tx.create_table(&TableDef::new(name, columns))
}

/// The checkpoint archives the file before it removes it; that `archive_log` can no longer read the rest is no error.
#[test]
fn a_load_file_that_a_checkpoint_removes_meanwhile_is_in_the_archive() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let archiving = || Options { archive: Some(Archive::on(archive.clone())), ..options() };
    let faulty = FaultyDisk::new(seed());
    let db = Database::open_on(faulty.clone(), archiving()).unwrap();
    let columns = vec![Column::new("n", ColumnType::Int4)];
    db.transact(|tx| tx.create_table(&TableDef::new("tick", columns.clone()))).unwrap();
    db.transact(|tx| {
        let table = create(tx, "loaded")?;
        (0..400).try_for_each(|n| tx.insert(&table, &[Value::Int4(n), text(300)]))
    })
    .unwrap();
    db.checkpoint().unwrap();
    let database = db.core().storage.database_id;
    faulty.kill();
    drop(db);

    let disk = HookedDisk::new(faulty.restart());
    let loads = |disk: &dyn Disk| -> Vec<String> {
        disk.list().unwrap().into_iter().filter(|name| name.starts_with("load-")).collect()
    };
    let there = loads(&*disk);
    assert_eq!((there.len(), loads(&*archive).len()), (1, 0), "the test's own premise");
    let db = Database::open_on(disk.clone(), archiving()).unwrap();
    tick(&db);
    let (beside, has_come) = (db.clone(), AtomicBool::new(false));
    disk.before_reads(move |file, offset| {
        if file.starts_with("load-") && offset > 65_536 && !has_come.swap(true, Ordering::SeqCst) {
            beside.checkpoint().unwrap();
        }
    });
    db.archive_log().unwrap();
    disk.unhook();
    assert_eq!((loads(&*disk), db.metrics().archive.unwrap().failure), (Vec::new(), None));
    let number = there[0].trim_start_matches("load-").parse().unwrap();
    assert_eq!(LoadFileReader::is_whole(&*archive, database, number), Ok(true));
    db.close().unwrap();
}
