//! Prefetched rows: whatever is requested, only time depends on it.

use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Engine, Error, Flow, Options, Procedure, Table, TableDef, Transaction,
    TxOptions,
};

/// The keys, twice as many as rows: so many that the index is large.
const ROWS: i32 = 180_000;

fn options(engine: Engine) -> Options {
    Options { memory_bytes: 128 << 20, checkpoint: Checkpointing::None, engine, ..Options::default() }
}

fn make(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..ROWS).step_by(2).try_for_each(|id| tx.insert(&table, &row(id)))?;
        Ok(table)
    })
    .unwrap()
}

/// Some rows have more cache lines than are prefetched.
fn length(id: i32) -> usize {
    if id < 2_000 { id as usize % 700 } else { 0 }
}

fn row(id: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Text("x".repeat(length(id)))]
}

fn is_there(tx: &mut Transaction, table: &Table, id: i32) -> bool {
    let text = tx.look(table, id, |row| row.get_str(1).unwrap().len()).unwrap();
    text == Some(length(id))
}

#[test]
fn rows_are_read_and_written_behind_it_as_without_it() {
    for engine in Engine::ALL {
        let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
        let table = make(&db);
        db.transact(|tx| {
            // Present and absent rows; its own writes; more than are looked up side by side.
            tx.prefetch(&table, (0..200).collect::<Vec<i32>>());
            (0..200).for_each(|id| assert_eq!(is_there(tx, &table, id), id % 2 == 0, "{engine}: {id}"));
            tx.insert(&table, &row(1))?;
            tx.delete(&table, 2)?;
            tx.prefetch(&table, [1, 2, 4]);
            assert_eq!([1, 2, 4].map(|id| is_there(tx, &table, id)), [true, false, true]);
            tx.update(&table, 4, &[(0, Value::Int4(5))])?;
            tx.prefetch(&table, [4, 5]);
            assert_eq!([4, 5].map(|id| tx.look(&table, id, |_| ()).unwrap()), [None, Some(())]);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn it_locks_nothing_and_says_nothing() {
    for engine in Engine::ALL {
        let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
        let table = make(&db);
        let mut holder = db.begin().unwrap();
        assert!(holder.delete(&table, 10).unwrap());
        let hasty = TxOptions { lock_timeout: Some(Duration::ZERO), ..TxOptions::default() };
        let mut tx = db.begin_with(&hasty).unwrap();
        // Rows that another transaction has locked; keys of a type that the table does not have; none at all.
        tx.prefetch(&table, [8, 10, 12]);
        tx.prefetch(&table, ["ten", "eleven"]);
        tx.prefetch(&table, [(1, 2), (3, 4)]);
        tx.prefetch(&table, [0_i32; 0]);
        // Nor does it lock what was requested.
        let mut other = db.begin_with(&hasty).unwrap();
        for id in [8, 12] {
            assert!(other.delete(&table, id).unwrap(), "{engine}: {id}");
        }
        other.abort().unwrap();
        holder.abort().unwrap();
        assert!(is_there(&mut tx, &table, 10));
        tx.commit().unwrap();
    }
}

#[test]
fn handles_that_are_no_good_are_left_to_the_operations_behind_it() {
    let open = || Database::open_on(MemoryDisk::new(), options(Engine::thin())).unwrap();
    let (db, foreign) = (open(), open());
    let (table, of_other) = (make(&db), make(&foreign));
    let mut tx = db.begin().unwrap();
    tx.prefetch(&of_other, [0, 2, 4]);
    assert!(matches!(tx.get(&of_other, 0), Err(Error::ForeignHandle { .. })));
    tx.abort().unwrap();
    db.transact(|tx| tx.drop_table("t")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.prefetch(&table, (0..100).collect::<Vec<i32>>());
    assert!(matches!(tx.get(&table, 0), Err(Error::NoSuchTable { .. })));
}

/// Phases of many actions prefetch the rows that they name, before their bodies run.
#[test]
fn a_phase_of_many_actions_reads_and_writes_as_one_of_few() {
    let add = |argument: usize| {
        let action = Action::exclusive("t", move |tx, arguments, outputs| {
            let id: i32 = arguments.get(argument)?;
            let table = arguments.table()?;
            if !tx.delete(table, id)? {
                tx.insert(table, &row(id))?;
            }
            outputs.push(is_there(tx, table, id));
            Ok(())
        });
        action.by_argument(argument)
    };
    let flows = [
        ("many", Flow::new().phase((0..8).map(add))),
        ("few", (0..8).fold(Flow::new(), |flow, nth| flow.phase([add(nth)]))),
    ];
    for engine in Engine::ALL {
        let procedures = flows.clone().map(|(name, flow)| Procedure::new(name, [ColumnType::Int4; 8], flow));
        let options = Options { procedures: procedures.into(), ..options(engine) };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        make(&db);
        // One row twice, and absent rows.
        let arguments = [0, 1, 2, 3, ROWS / 2, ROWS / 2 + 1, 0, 5].map(Value::Int4);
        let many = db.call("many", &arguments).unwrap();
        assert_eq!(many, [false, true, false, true, false, true, true, true].map(Value::Bool), "{engine}");
        // Each is as it was before, except the one that was named twice.
        assert_eq!(
            db.call("few", &arguments).unwrap(),
            [false, false, true, false, true, false, true, false].map(Value::Bool)
        );
    }
}
