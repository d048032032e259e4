//! Rows come and go at the memory bound: slots and segments move between tables, and no row changes under this.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Engine, Error, KeyBound, Logging, Options, Scan, Table, TableDef, Transaction,
};

/// About half of a segment: a table whose only row of this length is deleted has a segment to give.
const LONG: usize = 30_000;
const SHORT: usize = 7_000;

/// A text that names its row.
fn text(table: &str, id: i32, length: usize) -> Value {
    let one = format!("{table}{id:08} ");
    Value::Text(one.repeat(length / one.len() + 1)[..length].to_owned())
}

fn row(table: &str, id: i32, length: usize) -> [Value; 2] {
    [Value::Int4(id), text(table, id, length)]
}

/// A database of 8 MiB with three tables; the first has as many long rows as fit, or this many.
fn open(engine: Engine, rows: Option<i32>) -> (Database, [Table; 3], i32) {
    let options = Options {
        memory_bytes: 8 << 20,
        checkpoint: Checkpointing::None,
        logging: Logging::None,
        engine,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = || vec![Column::new("id", ColumnType::Int4), Column::new("v", ColumnType::Text)];
    let tables = ["stays", "a", "b"].map(|name| {
        db.transact(|tx| tx.create_table(&TableDef::new(name, columns()).with_primary_key(&["id"]))).unwrap()
    });
    let fits = |id| db.transact(|tx| tx.insert(&tables[0], &row("stays", id, LONG))).is_ok();
    let filled = (0..).find(|&id| rows == Some(id) || !fits(id)).unwrap();
    (db, tables, filled)
}

/// A database of 16 MiB with a log, and tables of these names.
fn open_logged<const N: usize>(
    disk: &Arc<MemoryDisk>,
    engine: Engine,
    definition: impl Fn() -> TableDef,
    names: [&str; N],
) -> (Database, [Table; N]) {
    let db = reopen(disk, engine);
    let tables = names.map(|name| {
        let definition = TableDef { name: name.to_owned(), ..definition() };
        db.transact(|tx| tx.create_table(&definition)).unwrap()
    });
    (db, tables)
}

fn reopen(disk: &Arc<MemoryDisk>, engine: Engine) -> Database {
    let options =
        Options { memory_bytes: 16 << 20, checkpoint: Checkpointing::None, engine, ..Options::default() };
    Database::open_on(disk.clone(), options).expect("with the memory that it was used with")
}

fn definition() -> TableDef {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("v", ColumnType::Text)];
    TableDef::new("", columns).with_primary_key(&["id"])
}

/// Inserts rows until there is no room for one more. Gives their number.
fn fill(db: &Database, table: &Table, name: &str, length: usize) -> i32 {
    let fits = |id| match db.transact(|tx| tx.insert(table, &row(name, id, length))) {
        Err(Error::MemoryLimit { .. }) => false,
        inserted => inserted == Ok(()),
    };
    (0..).find(|&id| !fits(id)).unwrap()
}

fn is_as_inserted(db: &Database, table: &Table, name: &str, id: i32, length: usize) -> bool {
    let found = db.transact(|tx| tx.get(table, id)).unwrap().and_then(|row| row.get(1).ok());
    found == Some(text(name, id, length))
}

/// Two threads insert, read and delete in each of two tables that share room for a few segments.
fn rows_of_two_sizes_come_and_go(engine: Engine, room: i32, seconds: Duration) {
    let (db, [stays, a, b], filled) = open(engine, Some(open(engine, None).2 - room));
    let end = Instant::now() + seconds;
    let (wrong, inserts) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (db, wrong, inserts) = (&db, &wrong, &inserts);
        for (thread, (name, table)) in [("a", &a), ("b", &b), ("a", &a), ("b", &b)].into_iter().enumerate() {
            scope.spawn(move || {
                // A thread's own rows, from the first again when there are no more: no inserted row stays.
                let ids = (0..1_000_000).map(|nth| 1_000_000 * (thread as i32 + 1) + nth);
                for id in ids.cycle() {
                    if Instant::now() >= end || !wrong.lock().unwrap().is_empty() {
                        break;
                    }
                    let length = if id % 2 == 0 { LONG } else { SHORT };
                    match db.transact(|tx| tx.insert(table, &row(name, id, length))) {
                        Ok(()) => inserts.fetch_add(1, Ordering::Relaxed),
                        Err(Error::MemoryLimit { .. }) => continue,
                        Err(error) => panic!("an insert of {name} {id}: {error}"),
                    };
                    std::thread::yield_now();
                    if !is_as_inserted(db, table, name, id, length) {
                        wrong.lock().unwrap().push(format!("{name} {id}"));
                    }
                    assert_eq!(db.transact(|tx| tx.delete(table, id)), Ok(true));
                }
            });
        }
    });
    let stayed = (0..filled).filter(|&id| !is_as_inserted(&db, &stays, "stays", id, LONG));
    let wrong = wrong.into_inner().unwrap().into_iter().chain(stayed.map(|id| format!("stays {id}")));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new(), "{engine}: rows that others were put over");
    assert!(inserts.into_inner() > 0, "{engine}: nothing was inserted");
}

#[test]
fn segments_go_from_table_to_table_without_their_rows_with_locks_in_records() {
    [6, 5].into_iter().for_each(|room| {
        rows_of_two_sizes_come_and_go(Engine::thin(), room, Random::test_time_from_environment() / 2)
    });
}

#[test]
fn segments_go_from_table_to_table_without_their_rows_with_central_locks() {
    [6, 5].into_iter().for_each(|room| {
        rows_of_two_sizes_come_and_go(Engine::central(), room, Random::test_time_from_environment() / 2)
    });
}

#[test]
fn segments_go_from_table_to_table_without_their_rows_with_local_locks() {
    [6, 5].into_iter().for_each(|room| {
        rows_of_two_sizes_come_and_go(Engine::data_oriented(), room, Random::test_time_from_environment() / 2)
    });
}

#[test]
fn rows_that_are_deleted_make_room_for_those_of_another_table() {
    for engine in Engine::ALL {
        let disk = MemoryDisk::new();
        let (db, [a, b]) = open_logged(&disk, engine, definition, ["a", "b"]);
        let in_a = fill(&db, &a, "a", 1_500);
        (0..in_a).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&a, id)), Ok(true)));
        let half = in_a / 2;
        for id in 0..half {
            db.transact(|tx| tx.insert(&b, &row("b", id, 1_500))).unwrap();
        }
        db.checkpoint().unwrap();
        db.close().unwrap();
        let db = reopen(&disk, engine);
        let b = db.table("b").unwrap();
        for id in half..in_a - in_a / 10 {
            db.transact(|tx| tx.insert(&b, &row("b", id, 1_500))).unwrap();
        }
        assert!((0..half).all(|id| is_as_inserted(&db, &b, "b", id, 1_500)));
    }
}

/// Rows of a table beside which others are dropped or emptied, at the bound: each segment is given back once, in either
/// way.
#[test]
fn tables_are_emptied_and_dropped_beside_inserts_at_the_bound() {
    let disk = MemoryDisk::new();
    let (db, [stays]) = open_logged(&disk, Engine::thin(), definition, ["stays"]);
    let end = Instant::now() + Random::test_time_from_environment() / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let name = format!("t{round}");
                let definition = TableDef { name: name.clone(), ..definition() };
                let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
                let rows = fill(&db, &table, &name, SHORT);
                (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&table, id)), Ok(true)));
                if round % 2 == 0 {
                    db.transact(|tx| tx.truncate(&table)).unwrap();
                }
                db.transact(|tx| tx.drop_table(&name)).unwrap();
                if Instant::now() > end {
                    break;
                }
            }
        });
        while Instant::now() < end {
            let rows = fill(&db, &stays, "stays", LONG);
            assert!((0..rows).all(|id| is_as_inserted(&db, &stays, "stays", id, LONG)));
            (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&stays, id)), Ok(true)));
            // The log has room, however fast both are.
            db.checkpoint().unwrap();
        }
    });
    // Nothing is lost on the way.
    let rows = fill(&db, &stays, "stays", LONG);
    (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&stays, id)), Ok(true)));
    assert!(rows > 150, "{rows} rows of {LONG} bytes have room in 16 MiB");
}

/// Rows grow into the part of their segments that inserts leave free.
#[test]
fn rows_that_grew_where_they_were_find_room_in_a_recovery() {
    let disk = MemoryDisk::new();
    let (db, [table]) =
        open_logged(&disk, Engine::thin(), || TableDef { fill_percent: 60, ..definition() }, ["t"]);
    let rows = fill(&db, &table, "t", 1_000);
    let grow = |id| db.transact(|tx| tx.update(&table, id, &[(1, text("t", id, 2_000))])).is_ok();
    let grown = (0..rows).filter(|&id| grow(id)).count();
    assert!(grown > rows as usize / 4, "{grown} of {rows} rows have grown");
    db.close().unwrap();
    reopen(&disk, Engine::thin());
}

/// A transaction is open all the time: it might seek a deleted row, so no segment changes hands.
#[test]
fn a_table_has_its_room_while_inserts_into_another_one_look_for_some() {
    let (db, [stays, a, b], _) = open(Engine::thin(), Some(0));
    db.transact(|tx| tx.insert(&b, &row("b", 0, LONG))).unwrap();
    fill(&db, &stays, "stays", LONG);
    db.transact(|tx| tx.delete(&b, 0)).unwrap();
    let idle = db.begin().unwrap();
    let refused = db.transact(|tx| tx.insert(&a, &row("a", 0, LONG)));
    assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "the idle one may seek the row: {refused:?}");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let inserted: Vec<_> =
                (0..20).map(|id| db.transact(|tx| tx.insert(&a, &row("a", id, LONG)))).collect();
            over.store(true, Ordering::Relaxed);
            inserted
        });
        let mut refused = Vec::new();
        for id in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
            match db.transact(|tx| tx.insert(&b, &row("b", id, LONG))) {
                Ok(()) => assert_eq!(db.transact(|tx| tx.delete(&b, id)), Ok(true)),
                Err(error) => refused.push((id, error)),
            }
        }
        let inserted = looking.join().unwrap();
        let are_refused = inserted.iter().all(|outcome| matches!(outcome, Err(Error::MemoryLimit { .. })));
        assert!(are_refused, "while others may seek its rows, a segment changes no hands: {inserted:?}");
        assert_eq!(refused, [], "the segment in which they had room was empty, and theirs");
    });
    idle.abort().unwrap();
    assert_eq!(db.transact(|tx| tx.insert(&a, &row("a", 0, LONG))), Ok(()), "now it may go to another table");
}

/// Slots of rows that a transaction has taken back, in a table that no other transaction sees, are too short for
/// another row.
#[test]
fn a_table_that_only_its_transaction_sees_gives_up_what_it_does_not_need() {
    for engine in Engine::ALL {
        let (db, _, _) = open(engine, Some(0));
        db.transact(|tx| {
            let table = tx.create_table(&TableDef { name: "own".to_owned(), ..definition() })?;
            let savepoint = tx.savepoint();
            let refused = (0..).find_map(|id| tx.insert(&table, &row("own", id, SHORT)).err());
            assert!(
                matches!(refused, Some(Error::MemoryLimit { .. })),
                "the test's own premise: {refused:?}"
            );
            tx.rollback_to(&savepoint)?;
            tx.insert(&table, &row("own", 0, LONG))
        })
        .unwrap_or_else(|error| panic!("{engine}: {error}"));
    }
}

/// Narrow rows, and a table that had all other memory.
#[test]
fn an_index_is_built_in_the_room_that_other_tables_have_left() {
    for engine in Engine::ALL {
        let (db, [stays, a, _], _) = open(engine, Some(0));
        for first in (0..40_000).step_by(1_000) {
            db.transact(|tx| (first..first + 1_000).try_for_each(|id| tx.insert(&stays, &row("s", id, 20))))
                .unwrap();
        }
        let rows = fill(&db, &a, "a", LONG);
        assert!(rows > 20, "the test's own premise: {rows} rows");
        (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&a, id)), Ok(true)));
        db.transact(|tx| tx.create_index("stays", "by_text", &["v"], false)).unwrap();
        let found = db.transact(|tx| tx.get(&stays, 39_999)).unwrap();
        assert_eq!(found.and_then(|row| row.get(1).ok()), Some(text("s", 39_999, 20)));
    }
}

/// The index nodes of many narrow rows, once these are deleted.
#[test]
fn index_nodes_that_are_free_make_room_for_rows() {
    for engine in Engine::ALL {
        let (db, [stays, a, _], _) = open(engine, Some(0));
        let insert = |id| db.transact(|tx| tx.insert(&a, &row("a", id, 20)));
        let narrow = (0..).find(|&id| insert(id).is_err()).unwrap();
        (0..narrow).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&a, id)), Ok(true)));
        let rows = fill(&db, &stays, "stays", LONG);
        assert!(rows > 2 * 8 * 14, "{rows} rows of {LONG} bytes in 8 MiB of which none else needs any");
        (0..rows).for_each(|id| assert_eq!(db.transact(|tx| tx.delete(&stays, id)), Ok(true)));
        for id in 0..narrow * 9 / 10 {
            insert(id).unwrap();
        }
        assert!(is_as_inserted(&db, &a, "a", narrow / 2, 20));
    }
}

/// Narrow rows, whose index has a third of the memory. Some threads redo their inserts in another order.
#[test]
fn a_recovery_leaves_narrow_rows_the_room_that_they_had() {
    let definition =
        || TableDef::new("", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let put = |db: &Database, table: &Table, ids: std::ops::Range<i32>| {
        ids.step_by(100).find(|&first| {
            db.transact(|tx| (first..first + 100).try_for_each(|id| tx.insert(table, &[Value::Int4(id)])))
                .is_err()
        })
    };
    let (db, [table]) = open_logged(&MemoryDisk::new(), Engine::thin(), definition, ["t"]);
    let all = put(&db, &table, 0..10_000_000).expect("there is a bound");
    for percent in [80, 90, 95] {
        let disk = MemoryDisk::new();
        let (db, [table]) = open_logged(&disk, Engine::thin(), definition, ["t"]);
        let before = all / 100 * percent / 100 * 100;
        assert_eq!(put(&db, &table, 0..before / 300 * 100), None);
        db.checkpoint().unwrap();
        assert_eq!(put(&db, &table, before / 300 * 100..before), None);
        drop(table);
        db.close().unwrap();
        let db = reopen(&disk, Engine::thin());
        let after = put(&db, &db.table("t").unwrap(), before..10_000_000).expect("there is a bound");
        assert!(
            after > all / 100 * 97,
            "{after} rows have room, of {all} before, at {percent} percent of them"
        );
    }
}

/// The outcome of a definition that has too little memory. A definition that does not end is abandoned with its
/// database.
fn outcome_of(db: Database, define: impl FnOnce(&Database) -> rialto::Result<()> + Send + 'static) -> Error {
    let (sends, receives) = mpsc::channel();
    std::thread::spawn(move || {
        let outcome = define(&db);
        drop(db);
        // The receiver is gone if it comes too late.
        let _ = sends.send(outcome);
    });
    let outcome = receives.recv_timeout(Duration::from_secs(120)).expect("a definition ends");
    outcome.expect_err("the test's own premise: there is too little memory")
}

fn numbers(count: usize) -> Vec<Column> {
    (0..count).map(|nth| Column::new(format!("c{nth}"), ColumnType::Int4)).collect()
}

/// Fills a table of one number a row up to the bound, and deletes one row in `one_in` again: index nodes become free,
/// but fewer than a definition needs.
fn leave_some_nodes(db: &Database, table: &Table, one_in: i32) {
    let insert = |ids: std::ops::Range<i32>| {
        db.transact(|tx| ids.clone().try_for_each(|id| tx.insert(table, &[Value::Int4(id)])))
    };
    let rows = (0..).step_by(100).find(|&first| insert(first..first + 100).is_err()).unwrap();
    for first in (0..rows / one_in / 100 * 100).step_by(100) {
        db.transact(|tx| (first..first + 100).try_for_each(|id| tx.delete(table, id).map(drop))).unwrap();
    }
}

#[test]
fn an_index_that_has_no_room_is_refused() {
    let (db, _, _) = open(Engine::thin(), Some(0));
    let definition = TableDef::new("t", numbers(1)).with_primary_key(&["c0"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    leave_some_nodes(&db, &table, 20);
    let error = outcome_of(db, |db| db.transact(|tx| tx.create_index("t", "second", &["c0"], false)));
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error:?}");
}

#[test]
fn a_table_that_has_no_room_for_empty_indexes_is_not_emptied() {
    const INDEXES: usize = 60;
    let (db, _, _) = open(Engine::thin(), Some(0));
    let (wide, other) = db
        .transact(|tx| {
            let wide = tx.create_table(&TableDef::new("wide", numbers(INDEXES)).with_primary_key(&["c0"]))?;
            for nth in 1..INDEXES {
                tx.create_index("wide", &format!("by_{nth}"), &[&format!("c{nth}")], false)?;
            }
            Ok((wide, tx.create_table(&TableDef::new("other", numbers(1)).with_primary_key(&["c0"]))?))
        })
        .unwrap();
    let row: Vec<Value> = (0..INDEXES as i32).map(Value::Int4).collect();
    db.transact(|tx| tx.insert(&wide, &row)).unwrap();
    leave_some_nodes(&db, &other, 60);
    let truncated = wide.clone();
    let error = outcome_of(db.clone(), move |db| db.transact(|tx| tx.truncate(&truncated)));
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error:?}");
    assert_eq!(db.transact(|tx| tx.get(&wide, 0)).unwrap().map(|row| row.values()), Some(row));
}

/// A row that is inserted and taken back leaves its slot to the next one of the same transaction.
#[test]
fn rows_that_are_taken_back_take_no_room() {
    for engine in Engine::ALL {
        let (db, [_, a, _], _) = open(engine, Some(0));
        db.transact(|tx| tx.insert(&a, &row("a", -1, SHORT))).unwrap();
        let mut tx = db.begin().unwrap();
        let before = db.metrics().memory_used;
        for id in 0..10_000 {
            let savepoint = tx.savepoint();
            tx.insert(&a, &row("a", id % 3, SHORT)).unwrap();
            tx.update(&a, -1, &[(1, text("a", -1, 2 * SHORT))]).unwrap();
            tx.rollback_to(&savepoint).unwrap();
            tx.release_savepoint(savepoint).unwrap();
        }
        let taken = db.metrics().memory_used - before;
        assert!(taken <= 4 << 16, "{engine}: {taken} bytes");
        tx.insert(&a, &row("a", 0, SHORT)).unwrap();
        tx.commit().unwrap();
        assert!(is_as_inserted(&db, &a, "a", -1, SHORT) && is_as_inserted(&db, &a, "a", 0, SHORT));
    }
}

/// A scan locks row by row while another transaction writes to its table. The memory of these locks has a bound,
/// separate from that of rows.
#[test]
fn locks_on_many_rows_take_their_memory_within_a_bound() {
    const READ: i32 = 30_000;
    let (db, _, _) = open(Engine::thin(), Some(0));
    let definition = TableDef::new("t", numbers(2)).with_primary_key(&["c0"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    let insert = |ids: std::ops::Range<i32>| {
        db.transact(|tx| ids.clone().try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)])))
    };
    // No room is left for rows.
    let rows = (0..).step_by(100).find(|&first| insert(first..first + 100).is_err()).unwrap();
    let count = |tx: &mut Transaction| {
        let mut rows = 0;
        let lower = KeyBound::Excluded(vec![Value::Int4(0)]);
        let upper = KeyBound::Included(vec![Value::Int4(READ)]);
        tx.scan(&table, &Scan { lower, upper, ..Scan::all() }, |_, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    };
    let mut writer = db.begin().unwrap();
    assert!(writer.update(&table, 0, &[(1, Value::Int4(1))]).unwrap());
    for _ in 0..2 {
        let mut readers: Vec<_> = (0..20).map(|_| db.begin().unwrap()).collect();
        let outcomes: Vec<_> = readers.iter_mut().map(count).collect();
        for outcome in &outcomes {
            match outcome {
                Ok(found) => assert_eq!(*found, READ),
                Err(error) => assert_eq!(*error, Error::LockMemory { limit: 1 << 20 }),
            }
        }
        // Each of those has a list of this many locks, of at least 8 bytes each.
        let read = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert!((1..1 << 20).contains(&(read * READ as usize * 8)), "{read} readers of {READ} rows");
    }
    writer.commit().unwrap();
    // One lock on the table.
    assert_eq!(db.transact(count), Ok(READ));
    // A transaction that has as many locks as there is memory for inserts nothing more. The error names the locks, not
    // the rows.
    let mut long = db.begin().unwrap();
    let refused = (1..rows).find_map(|id| long.update(&table, id, &[(1, Value::Int4(2))]).err());
    assert_eq!(refused, Some(Error::LockMemory { limit: 1 << 20 }));
    assert_eq!(
        long.insert(&table, &[Value::Int4(-1), Value::Int4(0)]),
        Err(Error::LockMemory { limit: 1 << 20 })
    );
    drop(long);
    // Rows that are deleted one by one are locked one by one, whatever room there is for rows.
    db.transact(|tx| (rows - 2 * READ..rows).try_for_each(|id| tx.delete(&table, id).map(drop))).unwrap();
}
