//! Transactions that only read: without locks at first, and again with them if their reads have become invalid.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::*;

fn balance(tx: &mut Transaction, table: &Table, id: i32) -> i64 {
    let row = tx.get(table, id).unwrap().expect("it is there");
    row.view().get_i64(1).unwrap()
}

/// A transaction that only reads takes no locks at first; a row that it read is changed before its end, so it runs
/// again.
#[test]
fn a_reader_that_is_invalidated_runs_again() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| (0..2).try_for_each(|id| tx.insert(&table, &row(id, 50, &id.to_string())))).unwrap();
    let move_money = || {
        let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let mut writer = db.begin_with(&refuse).unwrap();
        let moved = writer
            .update(&table, 0, &[(1, Value::Int8(40))])
            .and_then(|_| writer.update(&table, 1, &[(1, Value::Int8(60))]));
        match moved {
            Ok(_) => writer.commit().unwrap(),
            Err(error) => assert!(matches!(error, Error::WouldWait { .. }), "{error}"),
        }
    };
    for at_end in [false, true] {
        let mut runs = 0;
        let sum = db.read(|tx| {
            runs += 1;
            let first = balance(tx, &table, 0);
            if !at_end {
                move_money();
            }
            // A reader never sees reads that do not fit together: the second read fails, or is of the same moment.
            let second = tx.get(&table, 1)?.expect("it is there").view().get_i64(1)?;
            assert_eq!(first + second, 100);
            if at_end {
                move_money();
            }
            Ok(first + second)
        });
        assert_eq!(sum.unwrap(), 100);
        // With locks from the start the writer is refused.
        assert_eq!(runs, if ENGINE == Engine::thin() { 2 } else { 1 }, "at the end: {at_end}");
    }
    assert_eq!(db.metrics().aborted_deadlock, 0);
}

#[test]
fn a_reader_is_invalidated_by_rows_that_come_and_go() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(5, 50, "five"))).unwrap();
    type Change<'a> = &'a dyn Fn(&mut Transaction) -> Result<(), Error>;
    let changes: [Change<'_>; 3] =
        [&|tx| tx.insert(&table, &row(7, 1, "seven")), &|tx| tx.delete(&table, 5).map(drop), &|tx| {
            tx.insert(&table, &row(5, 2, "five again"))
        }];
    for change in changes {
        let (mut runs, mut counts) = (0, Vec::new());
        db.read(|tx| {
            runs += 1;
            let all = Scan { limit: Some(100), ..Scan::all() };
            let before = ids(tx, &table, &all);
            let absent = tx.get(&table, 7)?.is_none();
            if runs == 1 && ENGINE == Engine::thin() {
                let mut writer = db.begin()?;
                change(&mut writer)?;
                writer.commit()?;
            }
            counts = before;
            Ok(absent)
        })
        .unwrap();
        assert_eq!(runs, if ENGINE == Engine::thin() { 2 } else { 1 });
        if ENGINE == Engine::thin() {
            let mut now = db.begin().unwrap();
            assert_eq!(counts, ids(&mut now, &table, &Scan::all()));
        }
    }
}

/// A transaction that was begun to read, and chooses to write, has its place before that of a transaction that changes
/// what it has read (I2). The other one changes that as late as possible: when the first has passed all checks of its
/// commit but has no place yet, and writes the file of a bulk load.
#[test]
fn a_reader_that_chooses_to_write_has_its_place_before_a_transaction_that_changes_its_reads() {
    let disk = HookedDisk::new(MemoryDisk::new());
    let db = database_on(disk.clone());
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 50, "one"))).unwrap();
    let changed_at = Arc::new(Mutex::new(None));
    disk.before({
        let (db, table, changed_at) = (db.clone(), table.clone(), changed_at.clone());
        move |file, _| {
            let mut changed_at = changed_at.lock().unwrap();
            if !file.starts_with("load-") || changed_at.is_some() {
                return;
            }
            let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
            let mut writer = db.begin_with(&refuse).unwrap();
            *changed_at = Some(match writer.update(&table, 1, &[(1, Value::Int8(51))]) {
                Ok(_) => Ok(writer.submit().unwrap().lsn()),
                Err(error) => Err(error),
            });
        }
    });
    let copy = TableDef::new("copy", vec![Column::new("balance", ColumnType::Int8)]);
    let read_only = TxOptions { read_only: true, ..TxOptions::default() };
    let (seen, ticket) = db
        .submit_with(&read_only, |tx| {
            let seen = balance(tx, &table, 1);
            tx.choose(&TxOptions::default())?;
            let copy = tx.create_table(&copy)?;
            (0..10_000).try_for_each(|_| tx.insert(&copy, &[Value::Int8(seen)]))?;
            Ok(seen)
        })
        .unwrap();
    disk.unhook();
    let changed_at = changed_at.lock().unwrap().clone().expect("a file was written");
    let is_before = changed_at.as_ref().is_ok_and(|&place| place < ticket.lsn());
    assert_eq!(
        seen,
        if is_before { 51 } else { 50 },
        "changed at {changed_at:?}, placed at {:?}",
        ticket.lsn()
    );
}

/// The payload of a panic.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the destructor of what a panic carries");
    }
}

#[test]
fn a_panic_of_an_invalidated_reader_is_forgotten_and_any_other_is_not() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 50, "one"))).unwrap();
    let mut runs = 0;
    let outcome = db.read(|tx| {
        runs += 1;
        let seen = balance(tx, &table, 1);
        if runs == 1 && ENGINE == Engine::thin() {
            let mut writer = db.begin()?;
            writer.update(&table, 1, &[(1, Value::Int8(51))])?;
            writer.commit()?;
            // The payload is dropped, too.
            std::panic::panic_any(PanicsWhenDropped);
        }
        Ok(seen)
    });
    assert_eq!(outcome, Ok(if ENGINE == Engine::thin() { 51 } else { 50 }));
    let panics =
        catch_unwind(AssertUnwindSafe(|| db.read(|_| -> Result<(), Error> { panic!("on its own account") })));
    assert!(panics.is_err());
    assert_eq!(db.read(|tx| Ok(balance(tx, &table, 1) > 0)), Ok(true), "the database is usable");
}
