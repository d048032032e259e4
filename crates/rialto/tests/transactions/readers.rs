//! Transactions that only read: without locks at first, and again with them if they were spoiled.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn balance(tx: &mut Transaction, table: &Table, id: i32) -> i64 {
    let row = tx.get(table, id).unwrap().expect("it is there");
    row.view().get_i64(1).unwrap()
}

/// A transaction that only reads takes no locks at first; what it read is changed before its end, so it runs again.
#[test]
fn a_reader_that_is_spoiled_runs_again() {
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
            // A reader is never shown what does not fit together: the second read fails, or is of the same moment.
            let second = tx.get(&table, 1)?.expect("it is there").view().get_i64(1)?;
            assert_eq!(first + second, 100);
            if at_end {
                move_money();
            }
            Ok(first + second)
        });
        assert_eq!(sum.unwrap(), 100);
        // With locks from the start the writer is refused.
        assert_eq!(runs, if locks() == LockForm::Thin { 2 } else { 1 }, "at the end: {at_end}");
    }
    assert_eq!(db.metrics().aborted_deadlock, 0);
}

#[test]
fn a_reader_is_spoiled_by_rows_that_come_and_go() {
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
            if runs == 1 && locks() == LockForm::Thin {
                let mut writer = db.begin()?;
                change(&mut writer)?;
                writer.commit()?;
            }
            counts = before;
            Ok(absent)
        })
        .unwrap();
        assert_eq!(runs, if locks() == LockForm::Thin { 2 } else { 1 });
        if locks() == LockForm::Thin {
            let mut now = db.begin().unwrap();
            assert_eq!(counts, ids(&mut now, &table, &Scan::all()));
        }
    }
}

/// Carried by a panic.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the destructor of what a panic carries");
    }
}

#[test]
fn a_panic_of_a_spoiled_reader_is_forgotten_and_any_other_is_not() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 50, "one"))).unwrap();
    let mut runs = 0;
    let outcome = db.read(|tx| {
        runs += 1;
        let seen = balance(tx, &table, 1);
        if runs == 1 && locks() == LockForm::Thin {
            let mut writer = db.begin()?;
            writer.update(&table, 1, &[(1, Value::Int8(51))])?;
            writer.commit()?;
            // What it carries is forgotten, too.
            std::panic::panic_any(PanicsWhenDropped);
        }
        Ok(seen)
    });
    assert_eq!(outcome, Ok(if locks() == LockForm::Thin { 51 } else { 50 }));
    let panics =
        catch_unwind(AssertUnwindSafe(|| db.read(|_| -> Result<(), Error> { panic!("on its own account") })));
    assert!(panics.is_err());
    assert_eq!(db.read(|tx| Ok(balance(tx, &table, 1) > 0)), Ok(true), "the database is usable");
}
