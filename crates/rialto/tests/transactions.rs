//! What a transaction sees, keeps and gives up. `transactions_central.rs` runs the same scenarios with central locks.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Database, Error, KeyBound, LockForm, LockPolicy, Options, Scan, Table, TableDef, Transaction, TxOptions,
};

fn locks() -> LockForm {
    if env!("CARGO_CRATE_NAME") == "transactions_central" { LockForm::Central } else { LockForm::Thin }
}

fn database() -> Database {
    let options = Options { memory_bytes: 64 << 20, locks: locks(), ..Options::default() };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

fn accounts(db: &Database) -> Table {
    db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("balance", ColumnType::Int8),
            Column::nullable("email", ColumnType::Text),
        ];
        let table = tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&["id"]))?;
        tx.create_index("accounts", "by_email", &["email"], true)?;
        tx.create_index("accounts", "by_balance", &["balance"], false)?;
        Ok(table)
    })
    .unwrap()
}

fn row(id: i32, balance: i64, email: &str) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(balance), Value::Text(email.to_owned())]
}

fn ids(tx: &mut Transaction, table: &Table, scan: &Scan) -> Vec<i32> {
    let mut ids = Vec::new();
    tx.scan(table, scan, |_, row| {
        ids.push(row.get_i32(0)?);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    ids
}

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_after_its_commit() {
    let db = database();
    let table = accounts(&db);
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &row(1, 10, "a")).unwrap();
    tx.update(&table, 1, &[(1, Value::Int8(11))]).unwrap();
    assert_eq!(tx.get(&table, 1).unwrap().unwrap().get("balance").unwrap(), Value::Int8(11));
    assert_eq!(ids(&mut tx, &table, &Scan::all()), [1]);
    let refused = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let mut other = db.begin_with(&refused).unwrap();
    assert!(matches!(other.get(&table, 1), Err(Error::WouldWait { .. })));
    tx.commit().unwrap();
    assert_eq!(other.get(&table, 1).unwrap().unwrap().get("balance").unwrap(), Value::Int8(11));
}

#[test]
fn an_abort_leaves_nothing() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 10, "a"))).unwrap();
    let failed: Result<(), Error> = db.transact(|tx| {
        tx.insert(&table, &row(2, 20, "b"))?;
        tx.update(&table, 1, &[(2, Value::Text("a much longer address than before".repeat(10)))])?;
        tx.delete(&table, 1)?;
        Err(Error::aborted("on purpose"))
    });
    assert_eq!(failed, Err(Error::aborted("on purpose")));
    let db2 = db.clone();
    let panicked = std::thread::spawn(move || {
        db2.transact(|tx| -> Result<(), Error> {
            let table = tx.table("accounts")?;
            tx.insert(&table, &row(3, 30, "c"))?;
            panic!("a body that panics")
        })
    })
    .join();
    assert!(panicked.is_err());
    db.transact(|tx| {
        assert_eq!(ids(tx, &table, &Scan::all()), [1]);
        let by_email = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Text("b".into())]);
        assert!(ids(tx, &table, &by_email).is_empty());
        tx.insert(&table, &row(2, 1, "b"))
    })
    .unwrap();
}

#[test]
fn secondary_indexes_follow_their_rows() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| {
        for id in 1..=5 {
            tx.insert(&table, &row(id, i64::from(id % 2), &format!("user{id}")))?;
        }
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        let odd = Scan::prefix(WhichIndex::Secondary(1), vec![Value::Int8(1)]);
        assert_eq!(ids(tx, &table, &odd), [1, 3, 5]);
        tx.update(&table, 3, &[(1, Value::Int8(0))])?;
        tx.update(&table, 4, &[(1, Value::Int8(1)), (2, Value::Text("x".repeat(500)))])?;
        assert_eq!(ids(tx, &table, &odd), [1, 4, 5]);
        tx.delete(&table, 5)?;
        tx.insert(&table, &row(5, 1, "user5"))?;
        tx.update(&table, 5, &[(0, Value::Int4(9))])?;
        assert_eq!(ids(tx, &table, &odd), [1, 4, 9]);
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        let odd = Scan::prefix(WhichIndex::Secondary(1), vec![Value::Int8(1)]);
        assert_eq!(ids(tx, &table, &odd), [1, 4, 9]);
        let email = |email: &str| Scan::prefix(WhichIndex::Secondary(0), vec![Value::Text(email.into())]);
        assert_eq!(ids(tx, &table, &email("user5")), [9]);
        assert_eq!(ids(tx, &table, &email(&"x".repeat(500))), [4]);
        assert!(ids(tx, &table, &email("user4")).is_empty());
        let backward = Scan { direction: rialto::Direction::Backward, limit: Some(2), ..Scan::all() };
        assert_eq!(ids(tx, &table, &backward), [9, 4]);
        let between = Scan {
            lower: KeyBound::Excluded(vec![Value::Int4(1)]),
            upper: KeyBound::Included(vec![Value::Int4(4)]),
            ..Scan::all()
        };
        assert_eq!(ids(tx, &table, &between), [2, 3, 4]);
        Ok(())
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), 5);
}

#[test]
fn a_duplicate_is_refused_and_the_transaction_goes_on() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 10, "a"))).unwrap();
    db.transact(|tx| {
        let primary = tx.insert(&table, &row(1, 0, "z")).unwrap_err();
        assert_eq!(
            primary.to_string(),
            "duplicate key (id)=(1) in unique index \"accounts_pkey\" of table \"accounts\""
        );
        let unique = tx.insert(&table, &row(2, 0, "a")).unwrap_err();
        assert_eq!(
            unique.to_string(),
            "duplicate key (email)=(a) in unique index \"by_email\" of table \"accounts\""
        );
        assert!(tx.update(&table, 1, &[(2, Value::Text("a".into()))])?);
        tx.delete(&table, 1)?;
        tx.insert(&table, &row(2, 0, "a"))
    })
    .unwrap();
    db.transact(|tx| {
        assert_eq!(ids(tx, &table, &Scan::all()), [2]);
        assert!(matches!(tx.insert(&table, &row(7, 0, "a")), Err(Error::DuplicateKey { .. })));
        tx.insert(&table, &[Value::Int4(8), Value::Int8(0), Value::Null])?;
        tx.insert(&table, &[Value::Int4(9), Value::Int8(0), Value::Null])
    })
    .unwrap();
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let db = database();
    let table = accounts(&db);
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &row(1, 1, "a")).unwrap();
    let outer = tx.savepoint();
    tx.update(&table, 1, &[(1, Value::Int8(2))]).unwrap();
    let inner = tx.savepoint();
    tx.delete(&table, 1).unwrap();
    tx.insert(&table, &row(2, 2, "b")).unwrap();
    tx.create_table(&TableDef::new("other", vec![Column::new("n", ColumnType::Int4)])).unwrap();
    tx.rollback_to(&inner).unwrap();
    assert!(matches!(tx.table("other"), Err(Error::NoSuchTable { .. })));
    assert_eq!(ids(&mut tx, &table, &Scan::all()), [1]);
    tx.rollback_to(&outer).unwrap();
    assert!(matches!(tx.rollback_to(&inner), Err(Error::NoSuchSavepoint { .. })));
    assert_eq!(tx.get(&table, 1).unwrap().unwrap().get(1).unwrap(), Value::Int8(1));
    tx.release_savepoint(outer).unwrap();
    tx.commit().unwrap();
    db.transact(|tx| {
        assert_eq!(ids(tx, &table, &Scan::all()), [1]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_scan_keeps_phantoms_out() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| {
        for id in (0..100).step_by(10) {
            tx.insert(&table, &row(id, 0, &id.to_string()))?;
        }
        Ok(())
    })
    .unwrap();
    let mut reader = db.begin().unwrap();
    let range = Scan {
        lower: KeyBound::Included(vec![Value::Int4(20)]),
        upper: KeyBound::Excluded(vec![Value::Int4(50)]),
        ..Scan::all()
    };
    assert_eq!(ids(&mut reader, &table, &range), [20, 30, 40]);
    let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let mut writer = db.begin_with(&refuse).unwrap();
    assert!(matches!(writer.insert(&table, &row(25, 0, "p")), Err(Error::WouldWait { .. })));
    assert!(matches!(writer.delete(&table, 30), Err(Error::WouldWait { .. })));
    writer.insert(&table, &row(55, 0, "q")).unwrap();
    reader.commit().unwrap();
    writer.insert(&table, &row(25, 0, "p")).unwrap();
    // And the other way round: a scan waits for an insert that is not applied yet.
    let mut reader = db.begin_with(&refuse).unwrap();
    let all = reader.scan(&table, &range, |_, _| Ok(ControlFlow::Continue(())));
    assert!(matches!(all, Err(Error::WouldWait { .. })));
}

#[test]
fn an_absent_key_stays_absent_for_who_has_looked() {
    let db = database();
    let table = accounts(&db);
    let mut reader = db.begin().unwrap();
    assert_eq!(reader.get(&table, 7).unwrap(), None);
    let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let mut writer = db.begin_with(&refuse).unwrap();
    assert!(matches!(writer.insert(&table, &row(7, 0, "p")), Err(Error::WouldWait { .. })));
}

#[test]
fn a_deadlock_has_a_victim_that_runs_again() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| {
        tx.insert(&table, &row(1, 0, "a"))?;
        tx.insert(&table, &row(2, 0, "b"))
    })
    .unwrap();
    let table = Arc::new(table);
    let threads: Vec<_> = [(1, 2), (2, 1)]
        .map(|(first, second)| {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || {
                for _ in 0..200 {
                    db.transact(|tx| {
                        tx.modify(&table, first, |fields| fields.add_i64(1, 1).map(drop))?;
                        std::thread::yield_now();
                        tx.modify(&table, second, |fields| fields.add_i64(1, 1).map(drop))
                    })
                    .unwrap();
                }
            })
        })
        .into_iter()
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let balance = |id| db.transact(|tx| tx.get(&table, id)?.unwrap().get(1)).unwrap();
    assert_eq!((balance(1), balance(2)), (Value::Int8(400), Value::Int8(400)));
}

#[test]
fn keyless_tables_have_row_numbers_until_a_key_is_added() {
    let db = database();
    let columns = vec![Column::new("a", ColumnType::Int4), Column::new("b", ColumnType::Text)];
    let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()))).unwrap();
    db.transact(|tx| {
        for n in 0..1000 {
            tx.insert(&table, &[Value::Int4(n), Value::Text("x".into())])?;
        }
        Ok(())
    })
    .unwrap();
    let mut keys = Vec::new();
    db.transact(|tx| {
        keys.clear();
        tx.scan(&table, &Scan { limit: Some(10), ..Scan::all() }, |key, _| {
            keys.push(key.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        tx.update_at(&table, &keys[3], &[(1, Value::Text("changed".into()))])?;
        assert!(tx.delete_at(&table, &keys[4])?);
        Ok(())
    })
    .unwrap();
    db.transact(|tx| tx.add_primary_key("t", &["a"])).unwrap();
    db.transact(|tx| {
        assert_eq!(tx.get(&table, 3)?.unwrap().get("b")?, Value::Text("changed".into()));
        assert_eq!(tx.get(&table, 4)?, None);
        assert_eq!(tx.count(&table)?, 999);
        tx.insert(&table, &[Value::Int4(4), Value::Text("back".into())])
    })
    .unwrap();
    let twice = db.transact(|tx| tx.add_primary_key("t", &["b"]));
    assert!(matches!(twice, Err(Error::BadDefinition { .. })));
}

#[test]
fn ddl_is_transactional() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 0, "a"))).unwrap();
    let mut tx = db.begin().unwrap();
    tx.truncate(&table).unwrap();
    let fresh = tx.table("accounts").unwrap();
    for id in 0..2000 {
        tx.insert(&fresh, &row(id, 5, &id.to_string())).unwrap();
    }
    assert_eq!(tx.count(&fresh).unwrap(), 2000);
    drop(tx);
    db.transact(|tx| {
        assert_eq!(tx.count(&table)?, 1);
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        tx.truncate(&table)?;
        for id in 0..2000 {
            tx.insert(&table, &row(id, 5, &id.to_string()))?;
        }
        let mark = tx.savepoint();
        tx.insert(&table, &row(5000, 5, "late"))?;
        assert!(matches!(tx.insert(&table, &row(5001, 5, "late")), Err(Error::DuplicateKey { .. })));
        tx.rollback_to(&mark)?;
        tx.delete(&table, 1999)?;
        assert_eq!(tx.count(&table)?, 1999);
        Ok(())
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), 1999);
    db.transact(|tx| {
        let email = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Text("77".into())]);
        assert_eq!(ids(tx, &table, &email), [77]);
        tx.drop_index("by_email")?;
        tx.insert(&table, &row(3000, 5, "77"))
    })
    .unwrap();
    db.transact(|tx| tx.drop_table("accounts")).unwrap();
    assert!(matches!(db.transact(|tx| tx.get(&table, 1)), Err(Error::NoSuchTable { .. })));
    assert!(matches!(db.table("accounts"), Err(Error::NoSuchTable { .. })));
    let used = db.metrics().memory_used;
    for _ in 0..5 {
        accounts(&db);
        let table = db.table("accounts").unwrap();
        db.transact(|tx| (0..3000).try_for_each(|id| tx.insert(&table, &row(id, 5, &id.to_string()))))
            .unwrap();
        db.transact(|tx| tx.drop_table("accounts")).unwrap();
    }
    assert!(db.metrics().memory_used <= used + (1 << 20), "dropped tables give their memory back");
}

#[test]
fn the_memory_limit_is_an_error_that_can_be_aborted() {
    let options = Options { memory_bytes: 4 << 20, locks: locks(), ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = accounts(&db);
    let fill = |from: i32| {
        db.transact(|tx| {
            for id in from.. {
                tx.insert(&table, &row(id, 0, &format!("{id}{}", "-".repeat(1000))))?;
            }
            Ok(())
        })
    };
    let error = fill(0).unwrap_err();
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
    db.transact(|tx| (0..100).try_for_each(|id| tx.insert(&table, &row(id, 0, &id.to_string())))).unwrap();
    db.transact(|tx| {
        assert_eq!(tx.count(&table)?, 100);
        Ok(())
    })
    .unwrap();
}

#[test]
fn nested_transactions_are_refused() {
    let db = database();
    let outcome = db.transact(|_| db.transact(|_| Ok(())));
    assert_eq!(outcome, Err(Error::Nested));
    assert_eq!(db.transact(|_| Ok(1)), Ok(1));
}

#[test]
fn a_closed_database_says_so() {
    let db = database();
    let table = accounts(&db);
    let mut open = db.begin().unwrap();
    open.insert(&table, &row(1, 1, "a")).unwrap();
    db.clone().close().unwrap();
    assert_eq!(open.commit(), Err(Error::Closed));
    assert_eq!(db.transact(|_| Ok(())), Err(Error::Closed));
}

#[test]
fn tickets_are_done_when_the_log_is_durable() {
    let db = database();
    let table = accounts(&db);
    let mut tickets = Vec::new();
    for id in 0..100 {
        let ((), ticket) = db.submit(|tx| tx.insert(&table, &row(id, 0, &id.to_string()))).unwrap();
        tickets.push(ticket);
    }
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    assert_eq!(db.metrics().committed, 101);
}

#[test]
fn ddl_goes_with_writes_in_one_transaction() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| (1..=3).try_for_each(|id| tx.insert(&table, &row(id, 7, &id.to_string())))).unwrap();
    db.transact(|tx| {
        tx.insert(&table, &row(4, 7, "4"))?;
        tx.update(&table, 1, &[(1, Value::Int8(8)), (2, Value::Text("one".repeat(200)))])?;
        tx.delete(&table, 2)?;
        tx.drop_index("by_email")?;
        tx.create_index("accounts", "by_email_again", &["email"], true)?;
        tx.update(&table, 4, &[(2, Value::Text("four".into()))])?;
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        let schema = table.schema();
        let WhichIndex::Secondary(position) = schema.index_named("by_email_again")? else {
            panic!("secondary")
        };
        let email =
            |email: &str| Scan::prefix(WhichIndex::Secondary(position), vec![Value::Text(email.into())]);
        assert_eq!(ids(tx, &table, &email("four")), [4]);
        assert_eq!(ids(tx, &table, &email(&"one".repeat(200))), [1]);
        assert!(ids(tx, &table, &email("2")).is_empty() && ids(tx, &table, &email("4")).is_empty());
        let sevens = schema.index_named("by_balance")?;
        assert_eq!(ids(tx, &table, &Scan::prefix(sevens, vec![Value::Int8(7)])), [3, 4]);
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        tx.insert(&table, &row(9, 0, "nine"))?;
        tx.truncate(&table)?;
        tx.insert(&table, &row(9, 1, "nine"))?;
        tx.insert(&table, &row(3, 1, "three"))
    })
    .unwrap();
    db.transact(|tx| {
        assert_eq!(ids(tx, &table, &Scan::all()), [3, 9]);
        Ok(())
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), 2);
}

/// In the thin form a slot's address is a lock's name: a segment may be cut anew only when nobody can seek a record in
/// it by an address that he read before.
#[test]
fn emptied_segments_are_used_again_when_no_open_transaction_may_seek_their_records() {
    let options = Options { memory_bytes: 4 << 20, locks: locks(), ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let table =
        db.transact(|tx| tx.create_table(&TableDef::new("notes", columns.clone()).with_primary_key(&["id"])));
    let table = table.unwrap();
    let insert = |id: i32, length: usize| {
        db.transact(|tx| tx.insert(&table, &[Value::Int4(id), Value::Text("-".repeat(length))]))
    };
    let full = (0..).find_map(|id| insert(id, 100).err().map(|error| (id, error))).unwrap();
    assert!(matches!(full.1, Error::MemoryLimit { .. }), "{full:?}");
    let mut open = db.begin().unwrap();
    open.get(&table, full.0).unwrap();
    db.transact(|tx| (0..full.0).try_for_each(|id| tx.delete(&table, id).map(drop))).unwrap();
    // What was emptied serves rows of the same length at any time, longer ones once the open transaction has ended.
    insert(0, 100).unwrap();
    let held_back = insert(1, 20_000);
    assert_eq!(held_back.is_err(), locks() == LockForm::Thin, "{held_back:?}");
    open.abort().unwrap();
    insert(2, 20_000).unwrap();
    assert_eq!(db.transact(|tx| tx.get(&table, 0)).unwrap().unwrap().get("id").unwrap(), Value::Int4(0));
}

#[test]
fn a_truncated_table_keeps_no_locks_of_its_old_rows() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| (0..500).try_for_each(|id| tx.insert(&table, &row(id, 7, &id.to_string())))).unwrap();
    for round in 0..5 {
        db.transact(|tx| {
            for id in 0..500 {
                tx.update(&table, id, &[(1, Value::Int8(i64::from(id)))])?;
            }
            tx.truncate(&table)?;
            (0..500).try_for_each(|id| tx.insert(&table, &row(id, round, &id.to_string())))
        })
        .unwrap();
        let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let mut other = db.begin_with(&refuse).unwrap();
        for id in 0..500 {
            let row = other.get_for_update(&table, id).unwrap().unwrap();
            assert_eq!(row.get("balance").unwrap(), Value::Int8(round));
        }
        other.abort().unwrap();
    }
}

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
            panic!("on what was");
        }
        Ok(seen)
    });
    assert_eq!(outcome, Ok(if locks() == LockForm::Thin { 51 } else { 50 }));
    let panics =
        catch_unwind(AssertUnwindSafe(|| db.read(|_| -> Result<(), Error> { panic!("on its own account") })));
    assert!(panics.is_err());
    assert_eq!(db.read(|tx| Ok(balance(tx, &table, 1) > 0)), Ok(true), "the database is usable");
}
