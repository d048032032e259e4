//! Tests of `ddl_state`.

use crate::io::MemoryDisk;
use crate::probes::PROBES;
use crate::row::{Column, ColumnType, Value};
use crate::{Checkpointing, Database, Error, Logging, Options, Table, TableDef, Transaction};

fn open() -> Database {
    open_with(Options::default())
}

fn open_with(options: Options) -> Database {
    let (checkpoint, logging) = (Checkpointing::None, Logging::None);
    let options = Options { memory_bytes: 64 << 20, checkpoint, logging, ..options };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

fn create(tx: &mut Transaction, nth: usize) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4)];
    tx.create_table(&TableDef::new(format!("t{nth}"), columns).with_primary_key(&["id"])).unwrap()
}

fn insert(tx: &mut Transaction, table: &Table, ids: std::ops::Range<i32>) {
    ids.for_each(|id| tx.insert(table, &[Value::Int4(id)]).unwrap());
}

/// The number of changes that one more table visits in a transaction that has made `tables` tables.
fn probes_of_a_table_after(tables: usize) -> u64 {
    let db = open();
    let mut tx = db.begin().unwrap();
    (0..tables).for_each(|nth| drop(create(&mut tx, nth)));
    let before = PROBES.get();
    create(&mut tx, tables);
    let probes = PROBES.get() - before;
    tx.abort().unwrap();
    probes
}

#[test]
fn a_definition_takes_a_few_probes_whatever_came_before() {
    let (few, many) = (probes_of_a_table_after(20), probes_of_a_table_after(160));
    assert!(many <= few + 10, "{few} looks after 20 tables, {many} after 160");
}

/// The name of an index is taken as long as its table has the index, in the versions that the transaction sees.
#[test]
fn a_name_of_an_index_is_free_when_its_table_has_it_no_more() {
    let db = open();
    let mut tx = db.begin().unwrap();
    (0..2).for_each(|nth| drop(create(&mut tx, nth)));
    tx.create_index("t0", "i", &["id"], false).unwrap();
    tx.commit().unwrap();

    let mut tx = db.begin().unwrap();
    let is_taken = |tx: &mut Transaction, table: &str| {
        matches!(tx.create_index(table, "i", &["id"], false), Err(Error::NameTaken { .. }))
    };
    assert!(is_taken(&mut tx, "t1"));
    let before = tx.savepoint();
    tx.drop_index("i").unwrap();
    assert!(!is_taken(&mut tx, "t1"));
    assert!(is_taken(&mut tx, "t0"));
    let moved = tx.savepoint();
    tx.drop_table("t1").unwrap();
    assert!(!is_taken(&mut tx, "t0"));
    tx.rollback_to(&moved).unwrap();
    assert!(is_taken(&mut tx, "t0"), "t1 is back, with its index");
    tx.rollback_to(&before).unwrap();
    assert!(is_taken(&mut tx, "t1"), "t0 has its index again");
    tx.drop_index("i").unwrap();
    assert!(!is_taken(&mut tx, "t1"));
    tx.commit().unwrap();

    let mut tx = db.begin().unwrap();
    assert!(is_taken(&mut tx, "t0"));
    tx.drop_table("t1").unwrap();
    assert!(!is_taken(&mut tx, "t0"));
    tx.commit().unwrap();
    assert!(is_taken(&mut db.begin().unwrap(), "t0"));
}

#[test]
fn loaded_rows_are_listed_only_while_a_savepoint_is_open() {
    let db = open();
    let mut tx = db.begin().unwrap();
    let table = create(&mut tx, 0);
    insert(&mut tx, &table, 0..300);
    let [first, second] = [300, 400].map(|from| {
        let savepoint = tx.savepoint();
        insert(&mut tx, &table, from..from + 100);
        savepoint
    });
    tx.release_savepoint(second).unwrap();
    assert_ne!(bytes_of_runs(&mut tx), 0, "the first one may be rolled back to");
    tx.release_savepoint(first).unwrap();
    assert_eq!(bytes_of_runs(&mut tx), 0);
    let savepoint = tx.savepoint();
    insert(&mut tx, &table, 500..600);
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(tx.count(&table).unwrap(), 500);
    tx.commit().unwrap();
}

/// The list of loaded rows grows by the segments that they fill, of which a small row takes a 2,000th. This also holds
/// where the loads of several tables take turns, and where the slots are those that a rollback has freed.
#[test]
fn loaded_rows_are_listed_by_the_segments_that_they_fill() {
    let db = open();
    let mut tx = db.begin().unwrap();
    let tables: Vec<Table> = (0..3).map(|nth| create(&mut tx, nth)).collect();
    tables.iter().for_each(|table| insert(&mut tx, table, 0..256));
    let outer = tx.savepoint();
    for round in 0..3 {
        insert(&mut tx, &tables[0], 1_000..21_000);
        insert(&mut tx, &tables[1], 500..510);
        let inner = tx.savepoint();
        for id in 30_000..40_000 {
            tables.iter().for_each(|table| insert(&mut tx, table, id..id + 1));
        }
        let bytes = bytes_of_runs(&mut tx);
        assert!((16..800).contains(&bytes), "{bytes} bytes in round {round}");
        let mut rows = [30_256, 10_266, 10_256];
        if round == 0 {
            tx.release_savepoint(inner).unwrap();
        } else {
            tx.rollback_to(&inner).unwrap();
            rows = [20_256, 266, 256];
        }
        let counted = [0, 1, 2].map(|nth: usize| tx.count(&tables[nth]).unwrap());
        assert_eq!(counted, rows, "round {round}");
        tx.rollback_to(&outer).unwrap();
        assert_eq!(bytes_of_runs(&mut tx), 0);
        tables.iter().for_each(|table| assert_eq!(tx.count(table), Ok(256)));
    }
    tx.commit().unwrap();
}

/// A savepoint around each row of a load leaves one run, whose rows are taken back from where a savepoint was made.
#[test]
fn savepoints_do_not_cut_runs() {
    let db = open();
    let mut tx = db.begin().unwrap();
    let table = create(&mut tx, 0);
    insert(&mut tx, &table, 0..300);
    let outer = tx.savepoint();
    for id in 300..1_000 {
        let savepoint = tx.savepoint();
        insert(&mut tx, &table, id..id + 1);
        tx.release_savepoint(savepoint).unwrap();
    }
    assert_eq!(bytes_of_runs(&mut tx), 16);
    let [middle, last] = [1_000, 1_100].map(|from| {
        let savepoint = tx.savepoint();
        insert(&mut tx, &table, from..from + 100);
        savepoint
    });
    assert_eq!(bytes_of_runs(&mut tx), 16);
    let count = |tx: &mut Transaction| tx.count(&table).unwrap();
    tx.rollback_to(&last).unwrap();
    assert_eq!(count(&mut tx), 1_100);
    tx.rollback_to(&middle).unwrap();
    assert_eq!(count(&mut tx), 1_000);
    insert(&mut tx, &table, 2_000..2_010);
    tx.rollback_to(&middle).unwrap();
    assert_eq!(count(&mut tx), 1_000);
    assert_eq!(tx.get(&table, 999).unwrap().map(|row| row.view().values()), Some(vec![Value::Int4(999)]));
    tx.rollback_to(&outer).unwrap();
    assert_eq!(count(&mut tx), 300);
    tx.commit().unwrap();
    assert_eq!(db.transact(|tx| tx.count(&table)), Ok(300));
}

/// After savepoint upon savepoint, rows of two tables by turns begin a run each time. The bytes of the runs are
/// bounded.
#[test]
fn runs_of_loaded_rows_are_bounded() {
    let limit = 4 * 10_000;
    let db = open_with(Options { write_set_bytes_max: 10_000, ..Options::default() });
    let mut tx = db.begin().unwrap();
    let mut tables = Vec::new();
    for nth in 0..2 {
        tables.push(create(&mut tx, nth));
        insert(&mut tx, &tables[nth], 0..256);
    }
    let savepoint = tx.savepoint();
    let mut refused = None;
    for id in 10_000..16_000 {
        let each = tx.savepoint();
        let inserted = tables.iter().try_for_each(|table| tx.insert(table, &[Value::Int4(id)]));
        if let Err(error) = inserted {
            tx.rollback_to(&each).unwrap();
            refused = Some(error);
            break;
        }
        tx.release_savepoint(each).unwrap();
    }
    let Some(Error::WriteSetTooLarge { length, limit: told }) = refused else { panic!("{refused:?}") };
    assert!(told == limit && (limit..limit + 32).contains(&length), "{length} of {told}");
    assert!(bytes_of_runs(&mut tx) <= limit + 32);
    tx.release_savepoint(savepoint).unwrap();
    tables.iter().for_each(|table| insert(&mut tx, table, 5_000..6_000));
    let rows = tx.count(&tables[0]).unwrap();
    assert!(rows > 256 + 1_000 + limit as u64 / 32 - 10, "{rows}");
    tx.commit().unwrap();
}

fn bytes_of_runs(tx: &mut Transaction) -> usize {
    tx.context().ddl().loaded_rows.bytes()
}

/// The number does not depend on how many tables, and rows in them, the transaction has made before.
#[test]
fn a_row_of_a_new_table_takes_a_few_probes() {
    let db = open();
    let mut tx = db.begin().unwrap();
    let mut made = Vec::new();
    for nth in 0..100 {
        made.push(create(&mut tx, nth));
        let drops = nth % 4 == 0;
        insert(&mut tx, &made[nth], 0..20);
        if drops {
            tx.drop_table(&format!("t{nth}")).unwrap();
        }
    }
    let before = PROBES.get();
    for table in [&made[1], &made[98], &made[99]] {
        insert(&mut tx, table, 20..30);
    }
    let probes = PROBES.get() - before;
    assert!(probes < 100, "{probes} probes for 30 rows");
}

/// Takes each kind of definition back to a savepoint many times. The list of tables keeps one version of each table,
/// and the transaction works on the table as it was at the savepoint.
#[test]
fn definitions_that_are_taken_back_leave_no_versions_behind() {
    let db = open();
    let columns = ["id", "n"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
    let row = |id| [Value::Int4(id), Value::Int4(id % 2)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("kept", columns.clone()))?;
        tx.create_index("kept", "by_n", &["n"], false)?;
        (0..10).try_for_each(|id| tx.insert(&table, &row(id)))
    })
    .unwrap();
    type Statement = fn(&mut Transaction, &Table);
    let statements: [(&str, Statement); 6] = [
        ("truncate", |tx, table| tx.truncate(table).unwrap()),
        ("create table", |tx, _| drop(create(tx, 0))),
        ("drop table", |tx, _| tx.drop_table("kept").unwrap()),
        ("create index", |tx, _| tx.create_index("kept", "other", &["id"], false).unwrap()),
        ("drop index", |tx, _| tx.drop_index("by_n").unwrap()),
        ("add primary key", |tx, _| tx.add_primary_key("kept", &["id"]).unwrap()),
    ];
    for (what, statement) in statements {
        // In the first case the table enters the list after the savepoint, in the others before it.
        for made_before in [false, true] {
            let table = db.table("kept").unwrap();
            let mut tx = db.begin().unwrap();
            if made_before {
                tx.truncate(&table).unwrap();
                insert_all(&mut tx, &table, 20..25, row);
            }
            let savepoint = tx.savepoint();
            let mut listed = 0;
            for round in 0..20 {
                statement(&mut tx, &table);
                if what != "drop table" {
                    insert_all(&mut tx, &table, 30..32, row);
                }
                tx.rollback_to(&savepoint).unwrap();
                let rows = if made_before { 5 } else { 10 };
                assert_eq!(tx.count(&table), Ok(rows), "{what}, round {round}");
                let now = tx.context().tables.len();
                if round == 1 {
                    listed = now;
                }
                assert!(round < 2 || now == listed, "{what}: {listed} versions, {now} in round {round}");
            }
            insert_all(&mut tx, &table, 40..43, row);
            tx.commit().unwrap();
            let rows = db.transact(|tx| tx.count(&table)).unwrap();
            assert_eq!(rows, if made_before { 8 } else { 13 }, "{what}");
            db.transact(|tx| {
                tx.truncate(&table)?;
                (0..10).try_for_each(|id| tx.insert(&table, &row(id)))
            })
            .unwrap();
        }
    }
}

fn insert_all(tx: &mut Transaction, table: &Table, ids: std::ops::Range<i32>, row: fn(i32) -> [Value; 2]) {
    ids.for_each(|id| tx.insert(table, &row(id)).unwrap());
}

/// A new primary key writes the transaction's rows once more, for which there is no room here.
#[test]
fn a_definition_that_fails_leaves_no_version_behind() {
    let db = open_with(Options { write_set_bytes_max: 2_000, ..Options::default() });
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()))).unwrap();
    let mut tx = db.begin().unwrap();
    insert(&mut tx, &table, 0..50);
    let mut listed = None;
    for _ in 0..10 {
        let refused = tx.add_primary_key("t", &["id"]);
        assert!(matches!(refused, Err(Error::WriteSetTooLarge { .. })), "{refused:?}");
        let now = tx.context().tables.len();
        assert_eq!(*listed.get_or_insert(now), now);
    }
    assert_eq!(tx.count(&table), Ok(50));
    tx.commit().unwrap();
}

/// The side of what the transaction has read of a table under a lock on the whole table follows from the version in the
/// list.
#[test]
fn a_table_that_was_locked_behind_a_savepoint_stays_in_the_list() {
    let db = open();
    let tables = db.transact(|tx| Ok([create(tx, 0), create(tx, 1)])).unwrap();
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    for table in &tables {
        tx.truncate(table).unwrap();
    }
    tx.rollback_to(&savepoint).unwrap();
    for table in &tables {
        let tables = &tx.context().tables;
        let slot = tables.find(table.id()).expect("the table is locked still");
        assert!(!tables.at(slot).is_retired());
    }
}

/// A load begins after the same number of rows in the packet, whatever was rolled back before.
#[test]
fn rows_that_are_taken_back_do_not_count_for_a_load() {
    let db = open();
    let mut tx = db.begin().unwrap();
    let tables = [create(&mut tx, 0), create(&mut tx, 1)];
    let loads = |tx: &mut Transaction| tx.context().ddl.as_ref().unwrap().loads().len();
    tables.iter().for_each(|table| insert(&mut tx, table, 0..200));
    let savepoint = tx.savepoint();
    for (round, rows) in [(0, 50), (1, 100), (2, 400)] {
        insert(&mut tx, &tables[0], 200..200 + rows);
        assert_eq!(loads(&mut tx), usize::from(round > 0), "round {round}");
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(loads(&mut tx), 0, "round {round}");
    }
    for (table, begun) in tables.iter().zip(1..) {
        insert(&mut tx, table, 200..256);
        assert_eq!(loads(&mut tx), begun - 1);
        insert(&mut tx, table, 256..300);
        assert_eq!(loads(&mut tx), begun);
    }
    tx.commit().unwrap();
    let rows = |table| db.transact(|tx| tx.count(table)).unwrap();
    assert_eq!([rows(&tables[0]), rows(&tables[1])], [300, 300]);
}
