//! Recoveries at the memory bound, and redo records of absent rows.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::catalog::ROWS_READ;
use super::heaps::{Heaps, SEARCHES};
use super::table::{At, Builder, INDEXES_BUILT, RedoTable, Scratch};
use super::*;
use crate::catalog::{Description, TableDef};
use crate::commit::redo as records;
use crate::engine::replay::ByProcedures;
use crate::io::MemoryDisk;
use crate::row::{Column, ColumnType, Key, Schema, Value};
use crate::store::paged::{DiskTables, PageOptions};
use crate::store::tree::Index;
use crate::{Checkpointing, Database, Flow, Logging, Options, Procedure};

const MEMORY: u64 = 8 << 20;

fn options() -> Options {
    Options { memory_bytes: MEMORY, checkpoint: Checkpointing::None, ..Options::default() }
}

/// Two columns, the first of which is the key.
fn definition(name: &str, key: ColumnType) -> TableDef {
    let columns = vec![Column::new("id", key), Column::new("v", ColumnType::Text)];
    TableDef::new(name, columns).with_primary_key(&["id"])
}

fn text(length: usize) -> Value {
    Value::Text("x".repeat(length))
}

/// Recovers with one thread and without a reserve.
fn recover_within(disk: &Arc<dyn Disk>, memory_bytes: u64, calls: Calls<'_>) -> Result<Recovered> {
    let home = crate::checkpoint::home::read_home(&**disk).map(|(_, home)| home).unwrap();
    let (segments, nodes) = memory(memory_bytes, 0, load::segments_there(&**disk, &home)).unwrap();
    let pages = RecoveryPages::default();
    let recovery = Recovery {
        disk,
        segments: &segments,
        nodes: &nodes,
        pages,
        threads: 1,
        calls,
        tell: None,
        redo_up_to: Lsn::MAX,
    };
    recovery.run(&Start::newest(&home))
}

/// Rows of the system tables arrive when users' tables have all the memory, and none of it holds rows.
#[test]
fn a_definition_finds_room_in_a_recovery_as_it_did() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = db.transact(|tx| tx.create_table(&definition("t", ColumnType::Int4))).unwrap();
    let insert = |id| db.transact(|tx| tx.insert(&table, &[Value::Int4(id), text(30_000)]));
    let rows = (0..).find(|&id| insert(id).is_err()).unwrap();
    (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&table, id)), Ok(true)));
    let column = |n| Column::new(format!("column_{n:04}"), ColumnType::Int4);
    for name in ["a", "b"] {
        db.transact(|tx| tx.create_table(&TableDef::new(name, (0..1600).map(column).collect()))).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let disk: Arc<dyn Disk> = disk;
    let recovered =
        recover_within(&disk, MEMORY, Calls::Left).expect("with the memory that it was used with");
    assert_eq!(recovered.report.tables, 3);
}

/// How many rows of the system tables a recovery reads, from a log with so many definitions beside so many tables.
fn system_rows_read(tables: usize, definitions: usize) -> u64 {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), Options { memory_bytes: 64 << 20, ..options() }).unwrap();
    let table = |name: String| definition(&name, ColumnType::Int4);
    db.transact(|tx| (0..tables).try_for_each(|n| tx.create_table(&table(format!("t{n}"))).map(drop)))
        .unwrap();
    db.checkpoint().unwrap();
    for n in 0..definitions {
        let name = format!("x{n}");
        db.transact(|tx| tx.create_table(&table(name.clone())).map(drop)).unwrap();
        db.transact(|tx| tx.create_index(&name, &format!("{name}_by_v"), &["v"], false)).unwrap();
        let made = db.table(&name).unwrap();
        db.transact(|tx| tx.insert(&made, &[Value::Int4(1), text(10)])).unwrap();
        db.transact(|tx| tx.truncate(&made)).unwrap();
        drop(made);
        db.transact(|tx| tx.drop_table(&name)).unwrap();
    }
    db.close().unwrap();
    let disk: Arc<dyn Disk> = disk;
    let before = ROWS_READ.get();
    let recovered = recover_within(&disk, 64 << 20, Calls::Left).unwrap();
    assert_eq!(recovered.report.tables, tables as u64);
    ROWS_READ.get() - before
}

/// The redo of a definition does not depend on the number of tables.
#[test]
fn the_redo_of_a_definition_reads_the_rows_that_it_changes() {
    let of_ten = |tables| system_rows_read(tables, 20) - system_rows_read(tables, 10);
    assert_eq!(of_ten(10), of_ten(40));
}

/// Procedures that put a row into a table: (id, length), and delete a row of it: (id).
fn procedures() -> Vec<Procedure> {
    let put = Flow::of(|tx, arguments, _| {
        let (table, length) = (tx.table("t")?, arguments.get::<i32>(1)? as usize);
        tx.insert(&table, &[Value::Int4(arguments.get::<i32>(0)?), text(length)])
    });
    let delete = Flow::of(|tx, arguments, _| {
        let table = tx.table("t")?;
        tx.delete(&table, arguments.get::<i32>(0)?).map(drop)
    });
    vec![
        Procedure::new("put", [ColumnType::Int4, ColumnType::Int4], put).deterministic(1),
        Procedure::new("delete", [ColumnType::Int4], delete).deterministic(1),
    ]
}

/// Calls fill the memory and empty it again, and then rows arrive by values in another table.
#[test]
fn values_amid_calls_find_room_in_a_recovery_as_they_did() {
    let disk = MemoryDisk::new();
    let options = Options { logging: Logging::Transaction, procedures: procedures(), ..options() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let made = ["t", "u"].map(|name| db.transact(|tx| tx.create_table(&definition(name, ColumnType::Int4))));
    let put = |id| db.call("put", &[Value::Int4(id), Value::Int4(30_000)]);
    let rows = (0..).find(|&id| put(id).is_err()).unwrap();
    (0..rows).for_each(|id| db.call("delete", &[Value::Int4(id)]).map(drop).unwrap());
    let other = made[1].clone().unwrap();
    (0..rows / 2)
        .for_each(|id| db.transact(|tx| tx.insert(&other, &[Value::Int4(id), text(30_000)])).unwrap());
    drop((made, other));
    db.close().unwrap();
    let disk: Arc<dyn Disk> = disk;
    let recovered = recover_within(&disk, MEMORY, Calls::Replayed(&ByProcedures(&options.procedures)));
    let report = recovered.map(|recovered| recovered.report).expect("with the memory that it was used with");
    assert_eq!((report.calls, report.rows), (2 * rows as u64, rows as u64 / 2));
}

/// Calls and definitions in turn: each definition costs its own table, whatever else exists.
#[test]
fn definitions_among_calls_cost_their_own_tables() {
    let built = |pairs: i32| {
        let disk = MemoryDisk::new();
        let options = Options { logging: Logging::Transaction, procedures: procedures(), ..options() };
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        db.transact(|tx| {
            tx.create_table(&definition("t", ColumnType::Int4))?;
            tx.create_index("t", "by_v", &["v"], false)
        })
        .unwrap();
        for n in 0..pairs {
            db.call("put", &[Value::Int4(n), Value::Int4(10)]).unwrap();
            let name = format!("x{n}");
            db.transact(|tx| tx.create_table(&definition(&name, ColumnType::Int4)).map(drop)).unwrap();
        }
        db.close().unwrap();
        let disk: Arc<dyn Disk> = disk;
        let before = (INDEXES_BUILT.get(), SEARCHES.get());
        let report = recover_within(&disk, MEMORY, Calls::Replayed(&ByProcedures(&options.procedures)))
            .unwrap()
            .report;
        assert_eq!(
            (report.calls, report.tables, report.rows),
            (pairs as u64, pairs as u64 + 1, pairs as u64)
        );
        (INDEXES_BUILT.get() - before.0, SEARCHES.get() - before.1)
    };
    // All segments are searched where the replay begins, and at the end.
    assert_eq!([built(5), built(20)], [(1, 2), (1, 2)]);
}

/// A table that is redone, and what its records and storage are made with.
pub(super) struct OneTable {
    pub table: Arc<RedoTable>,
    nodes: Arc<NodePool>,
    schema: Schema,
}

/// A table that is filled to a tenth: a row of more than a tenth of a segment has a segment to itself.
pub(super) fn one_table(memory_bytes: u64, fill_percent: u8) -> OneTable {
    let (segments, nodes) = memory(memory_bytes, 0, 0).unwrap();
    let mut ids = 100..;
    let def = TableDef { fill_percent, ..definition("t", ColumnType::Text) };
    let description = Description::of(&def, || Ok(ids.next().unwrap())).unwrap();
    let schema = description.schema().unwrap();
    let progress = RecoveryProgress::new(None);
    let disk_tables = Arc::new(DiskTables::new(crate::io::MemoryDisk::new(), 0, PageOptions::default()));
    let builder = Builder {
        segments: &segments,
        nodes: &nodes,
        disk_tables: &disk_tables,
        page_place: Lsn::ZERO,
        threads: 1,
        copy: None,
        progress: &progress,
    };
    OneTable { table: Arc::new(builder.build(description, &[]).unwrap()), nodes, schema }
}

impl OneTable {
    /// A row of this key with a text of so many bytes, and its key in the index.
    pub fn row(&self, key: &str, length: usize) -> (Vec<u8>, Key) {
        let (mut row, mut primary) = (Vec::new(), Key::new());
        crate::row::encode(&self.schema, &[Value::Text(key.to_owned()), text(length)], &mut row).unwrap();
        self.schema.primary_key_of_row(&row, 0, &mut primary);
        (row, primary)
    }

    /// The record that puts a row of this key with a text of so many bytes.
    pub fn put(&self, key: &str, length: usize) -> Vec<u8> {
        let (row, primary) = self.row(key, length);
        let mut bytes = Vec::new();
        records::write_put(&mut bytes, self.table.description.id, &primary, false, &row);
        bytes
    }
}

/// A row gets a segment of its own, and its index entry no node.
#[test]
fn what_a_record_took_itself_is_no_room_for_it() {
    const SEGMENT: u64 = SEGMENT_BYTES as u64;
    let one = one_table(MEMORY, 10);
    let heaps = Heaps::new(one.nodes.clone(), 2);
    heaps.add(&one.table);
    let budget = one.table.heap.segments().budget().clone();
    // Takes all remaining memory, and all nodes that are paid for.
    (0..64).rev().for_each(|power| while budget.free() >> power > 0 && budget.take(1 << power) {});
    let nodes: Vec<_> = std::iter::from_fn(|| Index::new(one.nodes.clone()).ok()).collect();
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let failed = (0..).find_map(|id| {
            budget.give(SEGMENT);
            let bytes = one.put(&format!("{id:0>900}"), 30_000);
            let record = records::read(&bytes).next().unwrap().unwrap();
            let at = At { lsn: Lsn(1), finds_rows: true };
            heaps.redo(&one.table, at, &record, &mut Scratch::new(0)).err()
        });
        let _ = sender.send((failed, heaps.give_back_empty(), budget.free(), nodes));
    });
    let outcome = ended.recv_timeout(Duration::from_secs(100)).expect("it is tried once more, and no more");
    let (failed, given_back, free, _) = outcome;
    assert!(matches!(failed, Some(Error::MemoryLimit { .. })), "{failed:?}");
    assert_eq!((given_back, free), (true, SEGMENT), "a record that fails leaves its segment empty");
}

#[test]
fn a_change_of_a_row_that_is_not_there_is_an_error_where_all_rows_are() {
    let one = one_table(MEMORY, 10);
    let mut delete = Vec::new();
    records::write_delete(&mut delete, one.table.description.id, &one.row("gone", 1).1);
    let redo = |finds_rows| {
        let record = records::read(&delete).next().unwrap().unwrap();
        one.table.redo(At { lsn: Lsn(7), finds_rows }, &record, &mut Scratch::new(0))
    };
    assert_eq!(redo(false), Ok(false), "the copy may have it of a later place");
    let error = redo(true).expect_err("neither the copy nor the log has it").to_string();
    assert!(error.contains("\"t\"") && error.contains("gone") && error.contains("is not there"), "{error}");
}

/// The rows that packets change exist once the clearance is redone, unless commits were never logged.
#[test]
fn rows_are_there_behind_the_clearance() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = db.transact(|tx| tx.create_table(&definition("t", ColumnType::Int4))).unwrap();
    (0..10).for_each(|id| db.transact(|tx| tx.insert(&table, &[Value::Int4(id), text(9)])).unwrap());
    db.checkpoint().unwrap();
    drop(table);
    db.close().unwrap();
    let disk: Arc<dyn Disk> = disk;
    let home = crate::checkpoint::home::read_home(&*disk).map(|(_, home)| home).unwrap();
    let (segments, nodes) = memory(MEMORY, 0, 0).unwrap();
    let recovery = Recovery {
        disk: &disk,
        segments: &segments,
        nodes: &nodes,
        pages: RecoveryPages::default(),
        threads: 1,
        calls: Calls::Left,
        tell: None,
        redo_up_to: Lsn::MAX,
    };
    let progress = RecoveryProgress::new(None);
    let loaded = load::load(&*disk, &home, &segments, 1, &progress).unwrap();
    let disk_tables = Arc::new(recovery.pages.open(&disk, &home).unwrap());
    let mut redo = Redo::new(&recovery, &Start::newest(&home), (loaded, &disk_tables), &progress).unwrap();
    let found = |redo: &Redo<'_>| [home.clearance, home.clearance.next()].map(|lsn| redo.at(lsn).finds_rows);
    assert!(home.clearance > Lsn::ZERO, "the test's own premise");
    assert_eq!(found(&redo), [false, true]);
    redo.unlogged = 1;
    assert_eq!(found(&redo), [false, false]);
}

/// The memory of each attempt, in the order of the attempts, and the threads; each attempt fails with this error.
fn attempts(error: &Error) -> (Vec<(usize, u64)>, u64) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| tx.create_table(&definition("t", ColumnType::Int4)).map(drop)).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let (_, home) = crate::checkpoint::home::read_home(&*disk).unwrap();
    let mut attempts = Vec::new();
    let failed = within_memory((&*disk, &home), 3, MEMORY, |room| -> Result<()> {
        attempts.push((room.threads, room.segments.budget().capacity()));
        Err(error.clone())
    });
    assert_eq!(failed.as_ref(), Err(error));
    (attempts, load::copy_bytes(&home))
}

#[test]
fn a_recovery_at_the_bound_is_tried_by_one_thread_and_then_with_more_room() {
    let (with, copy) = attempts(&Error::MemoryLimit { used: MEMORY, limit: MEMORY });
    let kept = MEMORY + MEMORY / 4;
    assert!(copy > 0 && copy < MEMORY, "the test's own premise");
    assert_eq!(with, [(3, MEMORY), (1, kept), (1, kept + copy), (1, kept + MEMORY)]);
    assert_eq!(attempts(&Error::Closed).0, [(3, MEMORY)], "another error is not for want of memory");
}

/// With the room of the second attempt, and with that of the third, of which the database may keep only the second's.
#[test]
fn what_a_recovery_may_keep_is_a_quarter_beyond_the_bound() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| tx.create_table(&definition("t", ColumnType::Int4)).map(drop)).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let (_, home) = crate::checkpoint::home::read_home(&*disk).unwrap();
    for (beyond, keeps) in [(0, true), (MEMORY / 4, true), (MEMORY / 4 + 1, false)] {
        let outcome = within_memory((&*disk, &home), 1, MEMORY, |room| {
            let budget = room.segments.budget().clone();
            let taken = budget.take(MEMORY + beyond);
            taken.then_some(room).ok_or(Error::MemoryLimit { used: 0, limit: MEMORY })
        });
        assert_eq!(outcome.is_ok(), keeps, "{beyond} bytes beyond");
    }
}
