//! Bodies that go on after an error of an operation: what is logged of their transactions is recovered, whatever the
//! error.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{ColumnType, Value, WhichIndex};
use rialto::{Database, Error, LockPolicy, Options, Procedure, Scan, Transaction, TxOptions};

use super::{calls, done_in, exclusive, int8, prepare};

/// Marks rows as done from its argument on, up to 1000, until an operation gives an error, which it ignores.
fn fill() -> Procedure {
    let fill = exclusive("done", |tx, table, values| {
        let from = int8(&values[0]);
        let insert = |tx: &mut Transaction, n| tx.insert(table, &[Value::Int8(n)]);
        let _ = (from..from + 1000).try_for_each(|n| insert(tx, n));
        Ok(())
    });
    Procedure::new("fill", [ColumnType::Int8], fill).deterministic(1)
}

/// All tables: by each index the rows, as text, in its order.
fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    let mut tx = db.begin().unwrap();
    for table in db.tables() {
        let name = table.name();
        if name.starts_with("rialto_") {
            continue;
        }
        let schema = table.schema();
        let indexes = (0..schema.indexes().len()).map(WhichIndex::Secondary);
        for which in std::iter::once(WhichIndex::Primary).chain(indexes) {
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                let values: Vec<String> =
                    (0..schema.columns().len()).map(|at| row.get(at).to_string()).collect();
                all.push(format!("{name} by {which:?}: {}", values.join(", ")));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        }
        all.push(format!("{name}: {} rows", table.rows_estimate()));
    }
    // The log may have stopped.
    let _ = tx.abort();
    all
}

/// The rows of a table in the order of its key, as text.
pub(super) fn rows(db: &Database, table: &str) -> Vec<String> {
    let by_key = format!("{table} by {:?}: ", WhichIndex::Primary);
    contents(db).iter().filter_map(|line| line.strip_prefix(&by_key).map(str::to_owned)).collect()
}

/// The numbers to this one, as rows.
fn numbers_to(last: u64) -> Vec<String> {
    (1..=last).map(|n| n.to_string()).collect()
}

/// Checks that the recovered contents are those before, which the caller has compared with the expected ones. Gives how
/// many calls were run again.
pub(super) fn reopened(disk: &Arc<MemoryDisk>, db: Database, options: Options) -> u64 {
    let before = contents(&db);
    db.close().unwrap();
    let db = Database::open_on(disk.clone(), options).unwrap();
    assert_eq!(contents(&db), before);
    db.recovery().unwrap().calls
}

/// The write set's limit depends on the opening, not on the rows.
#[test]
fn a_call_that_went_on_after_a_limit_is_recovered() {
    for check_determinism in [false, true] {
        let options =
            || Options { write_set_bytes_max: 4096, check_determinism, procedures: vec![fill()], ..calls() };
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        prepare(&db);
        db.call("fill", &[Value::Int8(1)]).unwrap();
        let filled = done_in(&db);
        assert!((1..1000).contains(&filled), "{filled}: the limit ends it");
        assert_eq!(rows(&db, "done"), numbers_to(filled as u64));
        assert_eq!(reopened(&disk, db, options()), 0, "values");
    }
}

/// A lock of another transaction depends on the moment.
#[test]
fn a_call_that_went_on_after_a_refused_lock_is_recovered() {
    for policy in [LockPolicy::Refuse, LockPolicy::Wait] {
        // Renames an account if no other transaction holds it, and marks its argument as done.
        let body = exclusive("accounts", move |tx, table, values| {
            tx.set_lock_policy(policy);
            match tx.update(table, 1, &[(2, Value::Text("mine".to_owned()))]) {
                Err(Error::LockTimeout { .. } | Error::WouldWait { .. } | Error::Deadlock { .. }) => {}
                other => drop(other?),
            }
            tx.update(table, 2, &[(1, values[0].clone())]).map(drop)
        });
        let procedure = Procedure::new("rename", [ColumnType::Int8], body).deterministic(1);
        let options = || Options { procedures: vec![procedure.clone()], ..calls() };
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        prepare(&db);
        let accounts = db.table("accounts").unwrap();
        let mut other = db.begin().unwrap();
        other.get_for_update(&accounts, 1).unwrap();
        let impatient = TxOptions { lock_timeout: Some(Duration::from_millis(20)), ..TxOptions::default() };
        std::thread::scope(|scope| {
            scope.spawn(|| db.call_with(&impatient, "rename", &[Value::Int8(7)]).map(drop).unwrap());
        });
        other.abort().unwrap();
        assert_eq!(rows(&db, "accounts")[1..3], ["1, 0, account 1", "2, 7, account 2"]);
        assert_eq!(reopened(&disk, db, options()), 0, "{policy:?}: values");
    }
}

/// An error that follows from the rows comes again when the call is run again.
#[test]
fn a_call_that_went_on_after_a_duplicate_key_is_run_again() {
    let options = || Options { procedures: vec![fill()], check_determinism: true, ..calls() };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    prepare(&db);
    let done = db.table("done").unwrap();
    db.transact(|tx| tx.insert(&done, &[Value::Int8(11)])).unwrap();
    db.call("fill", &[Value::Int8(1)]).unwrap();
    assert_eq!(rows(&db, "done"), numbers_to(11));
    assert_eq!(reopened(&disk, db, options()), 1);
}

/// A recovery that reaches the memory bound is tried again with a reserve, whatever the bodies do with the error.
#[test]
fn a_call_that_goes_on_after_the_memory_limit_has_the_second_attempt_too() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Then {
        GiveOn,
        Swallow,
        GiveAnother,
        Panic,
    }
    let opened = |then: Then, memory_bytes: u64| {
        let fill = exclusive("done", move |tx, table, _| {
            for n in 0..100_000 {
                match (tx.insert(table, &[Value::Int8(n)]), then) {
                    (Err(_), Then::Swallow) => break,
                    (Err(error), Then::Panic) => panic!("{error}"),
                    (Err(_), Then::GiveAnother) => return Err(Error::aborted("full")),
                    (done, _) => done?,
                }
            }
            Ok(())
        });
        let procedures = vec![Procedure::new("fill", [], fill).deterministic(1)];
        let options = || Options { procedures: procedures.clone(), ..calls() };
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        prepare(&db);
        db.call("fill", &[]).unwrap();
        db.close().unwrap();
        let opened = Database::open_on(disk, Options { memory_bytes, ..options() });
        opened.map(|db| db.recovery().unwrap().calls).map_err(|error| error.to_string())
    };
    for mebibytes in [4, 5, 6, 7] {
        let given_on = opened(Then::GiveOn, mebibytes << 20);
        for then in [Then::Swallow, Then::GiveAnother, Then::Panic] {
            assert_eq!(opened(then, mebibytes << 20), given_on, "{mebibytes} MiB, {then:?}");
        }
    }
}
