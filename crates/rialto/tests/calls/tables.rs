//! Bodies that ask which tables there are, and definitions beside them: a call finds the same tables when it is run again.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Database, Error, Flow, LockPolicy, Options, Procedure, Result, TableDef, Transaction, TxOptions,
};

use super::calls;
use super::errors::reopened;
use super::prepare;

/// Fails only on a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table `name`, of one column.
fn create(tx: &mut Transaction, name: &str) -> Result<()> {
    tx.create_table(&TableDef::new(name, vec![Column::new("id", ColumnType::Int8)])).map(drop)
}

/// How many calls are run again after one that writes what `look` has seen, with `definition` made between the look and the call's
/// place, or behind that if the call keeps it waiting.
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
