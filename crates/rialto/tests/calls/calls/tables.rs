//! Bodies that ask which tables exist, and definitions beside them: a call finds the same tables when it is run again.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use std::ops::ControlFlow;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Database, Error, Flow, LockPolicy, Options, Procedure, Result, Scan, TableDef, Transaction,
    TxOptions,
};

use crate::common::engines;

use super::calls;
use super::errors::reopened;
use super::prepare;

/// Fails only on a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table `name`, of one column.
fn create(tx: &mut Transaction, name: &str) -> Result<()> {
    tx.create_table(&TableDef::new(name, vec![Column::new("id", ColumnType::Int8)])).map(drop)
}

/// How many calls are run again after a call that writes what `look` has seen. `definition` runs between the look and
/// the call's place, or after it if the call keeps it waiting.
fn replayed(
    look: fn(&mut Transaction) -> Result<i64>,
    definition: fn(&mut Transaction) -> Result<()>,
) -> u64 {
    let (looks, has_looked) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let first = Mutex::new(Some((looks, goes)));
    let body = Flow::of(move |tx, _, _| {
        let seen = look(tx)?;
        if let Some((looks, goes)) = first.lock().unwrap().take() {
            looks.send(()).unwrap();
            goes.recv_timeout(PATIENCE).unwrap();
        }
        let done = tx.table("done")?;
        tx.insert(&done, &[Value::Int8(seen)])
    });
    let procedure = Procedure::new("note", [], body).deterministic(1);
    let options = || Options { procedures: vec![procedure.clone()], ..calls() };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    prepare(&db);
    db.transact(|tx| create(tx, "switch")).unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| db.call("note", &[]).map(drop));
        has_looked.recv_timeout(PATIENCE).unwrap();
        let at_once = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let made = db.transact_with(&at_once, definition);
        go.send(()).unwrap();
        call.join().unwrap().unwrap();
        match made {
            Err(Error::WouldWait { .. }) => db.transact(definition).unwrap(),
            made => made.unwrap(),
        }
    });
    reopened(&disk, db, options())
}

#[test]
fn a_call_that_found_no_table_is_recovered() {
    let look = |tx: &mut Transaction| match tx.table("archive") {
        Err(Error::NoSuchTable { .. }) => Ok(0),
        found => found.map(|_| 1),
    };
    assert_eq!(replayed(look, |tx| create(tx, "archive")), 0, "values");
}

#[test]
fn a_call_that_found_a_table_is_run_again_before_it_is_dropped() {
    let look = |tx: &mut Transaction| Ok(i64::from(tx.table("switch").is_ok()));
    assert_eq!(replayed(look, |tx| tx.drop_table("switch")), 1);
    // Another table has the name at the call's place.
    let look = |tx: &mut Transaction| Ok(i64::from(tx.table("switch")?.id().0));
    let again = |tx: &mut Transaction| tx.drop_table("switch").and_then(|()| create(tx, "switch"));
    assert_eq!(replayed(look, again), 1);
}

#[test]
fn a_call_that_read_a_schema_is_run_again_before_it_changes() {
    let look = |tx: &mut Transaction| Ok(tx.table("switch")?.schema().indexes().len() as i64);
    assert_eq!(replayed(look, |tx| tx.create_index("switch", "by_id", &["id"], false)), 1);
}

/// Three calls are run again on one thread. The first one uses the table before `definition`, and the second one is
/// identified by what that makes.
fn replayed_around(definition: fn(&mut Transaction) -> Result<()>, second: Action) -> u64 {
    let add = Action::exclusive("people", |tx, arguments, _| {
        tx.insert(arguments.table()?, &[Value::Int4(1), arguments.values()[0].clone()])
    });
    let add = Procedure::new("add", [ColumnType::Text], add).deterministic(1);
    let mark = Action::exclusive("marks", |tx, arguments, _| {
        tx.insert(arguments.table()?, &arguments.values()[..1])
    });
    let second = Flow::new().phase([second.by_argument(0)]).phase([mark.by_argument(0)]);
    let second = Procedure::new("second", [ColumnType::Text], second).deterministic(1);
    let options =
        || Options { procedures: vec![add.clone(), second.clone()], recovery_threads: 1, ..calls() };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| {
        let name = || Column::new("name", ColumnType::Text);
        tx.create_table(&TableDef::new("people", vec![Column::new("n", ColumnType::Int4), name()]))?;
        tx.create_table(&TableDef::new("marks", vec![name()]).with_primary_key(&["name"])).map(drop)
    })
    .unwrap();
    db.checkpoint().unwrap();
    db.call("add", &["Ada".into()]).unwrap();
    db.transact(definition).unwrap();
    db.call("second", &["Ada".into()]).unwrap();
    db.call("add", &["Bob".into()]).unwrap();
    reopened(&disk, db, options())
}

#[test]
fn a_call_by_an_index_that_was_made_amid_calls_is_run_again() {
    let find = Action::shared("people", |tx, arguments, _| {
        let scan = Scan::prefix(arguments.index(), arguments.values().to_vec());
        let mut found = 0;
        tx.entries(arguments.table()?, &scan, |_, _| {
            found += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        assert_eq!(found, 1);
        Ok(())
    });
    let made = replayed_around(
        |tx| tx.create_index("people", "people_by_name", &["name"], false),
        find.on_index("people_by_name"),
    );
    assert_eq!(made, 3);
}

#[test]
fn a_call_by_a_primary_key_that_was_made_amid_calls_is_run_again() {
    let change = Action::exclusive("people", |tx, arguments, _| {
        let found = tx.update(arguments.table()?, arguments.get_str(0)?, &[(0, Value::Int4(2))])?;
        assert!(found);
        Ok(())
    });
    assert_eq!(replayed_around(|tx| tx.add_primary_key("people", &["name"]), change), 3);
}

/// A table is dropped, and another one of its name made, in one transaction, for which a call waits. A table of that
/// name exists at every moment, so the call finds one.
#[test]
fn a_call_that_waits_for_a_table_finds_the_one_that_takes_its_name() {
    for engine in engines::each(4) {
        let about = engine.to_string();
        let options = Options { engine, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let make = |tx: &mut Transaction, row: i64| {
            let definition = TableDef::new("t", vec![Column::new("id", ColumnType::Int8)]);
            let table = tx.create_table(&definition.with_primary_key(&["id"]))?;
            tx.insert(&table, &[Value::Int8(row)])
        };
        db.transact(|tx| make(tx, 1)).unwrap();
        let read = Action::shared("t", |tx, arguments, outputs| {
            outputs.push(Value::Bool(tx.get(arguments.table()?, arguments.get::<i64>(0)?)?.is_some()));
            Ok(())
        });
        db.register(Procedure::new("read", [ColumnType::Int8], read.by_argument(0))).unwrap();
        assert_eq!(db.call("read", &[Value::Int8(1)]).unwrap(), [Value::Bool(true)], "{about}");
        let mut change = db.begin().unwrap();
        change.drop_table("t").unwrap();
        make(&mut change, 2).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| db.call("read", &[Value::Int8(2)]));
            // Long enough for the call to find the old table and to wait.
            std::thread::sleep(Duration::from_millis(100));
            change.commit().unwrap();
            assert_eq!(call.join().unwrap().unwrap(), [Value::Bool(true)], "{about}");
        });
    }
}
