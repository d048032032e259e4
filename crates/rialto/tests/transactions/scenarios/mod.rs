//! What a transaction sees, commits and rolls back, with the locks of the module that includes this one:
//! `transactions.rs`, `transactions_central.rs` or `transactions_local.rs`.

mod again;
mod definitions;
mod readers;

use std::ops::ControlFlow;
use std::sync::Arc;

use super::ENGINE;
use crate::common::hooked::HookedDisk;
use rialto::io::{Disk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value, ValueRef, WhichIndex};
use rialto::{
    Database, Engine, Error, KeyBound, LockPolicy, Options, Scan, Table, TableDef, Transaction, TxOptions,
};

fn database() -> Database {
    database_on(MemoryDisk::new())
}

fn database_on(disk: Arc<dyn Disk>) -> Database {
    let options = Options { memory_bytes: 64 << 20, engine: ENGINE, ..Options::default() };
    Database::open_on(disk, options).unwrap()
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
fn borrowed_values_are_inserted_as_owned_ones_are() {
    let db = database();
    let table = accounts(&db);
    let borrowed = [ValueRef::Int4(1), ValueRef::Int8(10), ValueRef::Text("a")];
    db.transact(|tx| {
        tx.insert_borrowed(&table, &borrowed)?;
        tx.insert_borrowed(&table, &[ValueRef::Int2(2), ValueRef::Int8(20), ValueRef::Null])
    })
    .unwrap();
    let found = db.read(|tx| Ok([1, 2].map(|id| tx.get(&table, id).unwrap().unwrap().values()))).unwrap();
    assert_eq!(found, [row(1, 10, "a").to_vec(), vec![Value::Int4(2), Value::Int8(20), Value::Null]]);
    for (wrong, is) in [
        (&borrowed[..2], "ColumnCount"),
        (&borrowed, "DuplicateKey"),
        (&[ValueRef::Text("3"), ValueRef::Int8(1), ValueRef::Null], "TypeMismatch"),
    ] {
        let refused = db.transact(|tx| tx.insert_borrowed(&table, wrong)).unwrap_err();
        assert!(format!("{refused:?}").starts_with(is), "{refused:?}");
    }
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
fn an_absent_key_stays_absent_for_a_transaction_that_has_looked() {
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
fn the_memory_limit_is_an_error_that_can_be_aborted() {
    let options = Options { memory_bytes: 4 << 20, engine: ENGINE, ..Options::default() };
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

/// In the thin form a slot's address is a lock's name: a segment may be divided anew only when no transaction can seek
/// a record in it by an address that it read before.
#[test]
fn emptied_segments_are_used_again_when_no_open_transaction_may_seek_their_records() {
    let options = Options { memory_bytes: 4 << 20, engine: ENGINE, ..Options::default() };
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
    // An emptied segment serves rows of the same length at any time, longer ones once the open transaction has ended.
    // Until then these get only the memory that the keys took.
    insert(0, 100).unwrap();
    let long_rows = |from: i32| (from..).take_while(|&id| insert(id, 20_000).is_ok()).count();
    let beside = long_rows(100_000);
    open.abort().unwrap();
    let behind = long_rows(200_000);
    let (fewer, more) = if ENGINE == Engine::thin() { (beside, behind) } else { (behind, beside) };
    assert!(2 * fewer < more, "{beside} rows beside the open transaction, {behind} behind it");
    assert_eq!(db.transact(|tx| tx.get(&table, 0)).unwrap().unwrap().get("id").unwrap(), Value::Int4(0));
}
