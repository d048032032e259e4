//! DDL in transactions: with writes, with savepoints, rolled back.

use super::*;

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

/// Tables, their indexes and their primary indexes share one space of names, whichever is made first.
#[test]
fn a_primary_index_has_its_name_to_itself() {
    let db = database();
    let columns = || vec![Column::new("a", ColumnType::Int4)];
    let create = |name: &str, keyed: bool| {
        let def = TableDef::new(name, columns());
        let def = if keyed { def.with_primary_key(&["a"]) } else { def };
        db.transact(|tx| tx.create_table(&def).map(drop))
    };
    let index = |table: &str, name: &str| db.transact(|tx| tx.create_index(table, name, &["a"], false));
    let taken = |outcome: Result<(), Error>, name: &str| {
        assert_eq!(outcome, Err(Error::NameTaken { name: name.to_owned() }));
    };
    create("u", true).unwrap();
    index("u", "t_pkey").unwrap();
    for keyed in [true, false] {
        taken(create("t", keyed), "t_pkey");
    }
    db.transact(|tx| tx.drop_index("t_pkey")).unwrap();
    for keyed in [false, true] {
        create("t", keyed).unwrap();
        for table in ["t", "u"] {
            taken(index(table, "t_pkey"), "t_pkey");
        }
        taken(create("t_pkey", true), "t_pkey");
        if !keyed {
            db.transact(|tx| tx.add_primary_key("t", &["a"])).unwrap();
        }
        taken(index("u", "t_pkey"), "t_pkey");
        db.transact(|tx| tx.drop_table("t")).unwrap();
    }
    create("t_pkey", true).unwrap();
    taken(create("t", false), "t_pkey");
    // Within one transaction, too.
    let both = db.transact(|tx| {
        tx.create_index("u", "v_pkey", &["a"], false)?;
        tx.create_table(&TableDef::new("v", columns())).map(drop)
    });
    taken(both, "v_pkey");
}

/// A handle from a transaction's own DDL shows the current table, whatever of that DDL is rolled back.
#[test]
fn a_handle_of_a_definition_that_was_taken_back_goes_over_to_the_one_in_force() {
    let db = database();
    let columns: Vec<Column> = (0..3).map(|nth| Column::new(format!("c{nth}"), ColumnType::Int4)).collect();
    db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["c0"])))
        .unwrap();
    let index = |tx: &mut Transaction, name: &str, column: &str| tx.create_index("t", name, &[column], false);
    let indexes = |table: &Table| -> Vec<String> {
        table.schema().indexes().iter().map(|index| index.name.clone()).collect()
    };

    let mut tx = db.begin().unwrap();
    index(&mut tx, "aborted", "c1").unwrap();
    let handle = tx.table("t").unwrap();
    assert_eq!(indexes(&handle), ["aborted"]);
    tx.abort().unwrap();
    assert_eq!(indexes(&handle), [""; 0]);
    db.transact(|tx| index(tx, "by_2", "c2")).unwrap();
    assert_eq!(indexes(&handle), ["by_2"]);
    assert!(matches!(handle.schema().index_named("aborted"), Err(Error::NoSuchIndex { .. })));
    let row = |values: [i32; 3]| values.map(Value::Int4);
    db.transact(|tx| {
        tx.insert(&handle, &row([1, 5, 7]))?;
        tx.insert(&handle, &row([2, 7, 5]))?;
        let which = handle.schema().index_named("by_2")?;
        assert_eq!(ids(tx, &handle, &Scan::prefix(which, vec![Value::Int4(5)])), [2]);
        Ok(())
    })
    .unwrap();

    let mut tx = db.begin().unwrap();
    tx.drop_index("by_2").unwrap();
    index(&mut tx, "by_1", "c1").unwrap();
    let mark = tx.savepoint();
    index(&mut tx, "gone", "c2").unwrap();
    index(&mut tx, "gone_too", "c1").unwrap();
    let handle = tx.table("t").unwrap();
    tx.rollback_to(&mark).unwrap();
    assert_eq!(indexes(&handle), ["by_1"], "as its transaction has it");
    let which = handle.schema().index_named("by_1").unwrap();
    assert_eq!(ids(&mut tx, &handle, &Scan::prefix(which, vec![Value::Int4(5)])), [1]);
    // Savepoint by savepoint, too: the version in between is gone when the handle is asked.
    let first = tx.savepoint();
    index(&mut tx, "gone", "c2").unwrap();
    let second = tx.savepoint();
    index(&mut tx, "gone_too", "c1").unwrap();
    let another = tx.table("t").unwrap();
    tx.rollback_to(&second).unwrap();
    tx.rollback_to(&first).unwrap();
    assert_eq!(indexes(&another), ["by_1"], "as its transaction has it");
    tx.commit().unwrap();
    db.transact(|tx| index(tx, "last", "c2")).unwrap();
    assert_eq!(indexes(&handle), ["by_1", "last"]);

    let mut tx = db.begin().unwrap();
    index(&mut tx, "never", "c1").unwrap();
    let handle = tx.table("t").unwrap();
    drop(tx);
    db.transact(|tx| tx.drop_table("t")).unwrap();
    assert_eq!(handle.name(), "t");
    assert!(matches!(db.transact(|tx| tx.get(&handle, 1)), Err(Error::NoSuchTable { .. })));
}

/// I3: rows that a definition has removed, and an index that it has built, are told only when it is durable.
#[test]
fn what_is_read_behind_a_definition_rests_on_its_place() {
    let db = database();
    let columns = vec![Column::new("a", ColumnType::Int4), Column::new("b", ColumnType::Int4)];
    let definition = TableDef::new("t", columns).with_primary_key(&["a"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    let insert = |n| db.transact(|tx| tx.insert(&table, &[Value::Int4(n), Value::Int4(n)])).unwrap();
    // What a read-only transaction depends on.
    let reads = |index| {
        let scan = Scan { index, ..Scan::all() };
        let (_, got) = db.submit(|tx| tx.get(&table, 1)).unwrap();
        let (_, scanned) =
            db.submit(|tx| tx.scan(&table, &scan, |_, _| Ok(ControlFlow::Continue(())))).unwrap();
        [got.lsn(), scanned.lsn()]
    };
    insert(1);
    let ((), emptied) = db.submit(|tx| tx.truncate(&table)).unwrap();
    assert_eq!(reads(WhichIndex::Primary), [emptied.lsn(); 2]);
    insert(1);
    let ((), indexed) = db.submit(|tx| tx.create_index("t", "by_b", &["b"], false)).unwrap();
    assert_eq!(reads(WhichIndex::Secondary(0)), [indexed.lsn(); 2]);
}

fn empty_table(name: &str) -> TableDef {
    TableDef::new(name, vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"])
}

fn is_there(tx: &mut Transaction, name: &str) -> Result<bool, Error> {
    match tx.table(name) {
        Ok(_) => Ok(true),
        Err(Error::NoSuchTable { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a table and changes a row in one transaction; waits for no lock.
fn make_and_pay(db: &Database, table: &Table, name: &str) -> Result<(), Error> {
    let now = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    db.transact_with(&now, |tx| {
        tx.create_table(&empty_table(name))?;
        tx.modify(table, 1, |row| row.add(1, 1).map(drop)).map(drop)
    })
}

/// I7: a transaction that has seen that a table does not exist comes, with all its reads, before the one that makes it.
#[test]
fn the_absence_of_a_table_stays_until_the_transaction_ends() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 0, "a"))).unwrap();
    let mut tx = db.begin().unwrap();
    assert!(!is_there(&mut tx, "new").unwrap());
    let savepoint = tx.savepoint();
    tx.rollback_to(&savepoint).unwrap();
    let refused = make_and_pay(&db, &table, "new");
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    let balance = tx.look(&table, 1, |row| row.get_i64(1)).unwrap();
    assert_eq!((balance, is_there(&mut tx, "new")), (Some(Ok(0)), Ok(false)));
    // The lock that keeps others from definitions does not keep the transaction from its own.
    tx.create_table(&empty_table("mine")).unwrap();
    assert_eq!((is_there(&mut tx, "new"), is_there(&mut tx, "mine")), (Ok(false), Ok(true)));
    tx.commit().unwrap();
    make_and_pay(&db, &table, "new").unwrap();
    // An existing table keeps no definition waiting.
    let mut tx = db.begin().unwrap();
    assert!(is_there(&mut tx, "new").unwrap());
    make_and_pay(&db, &table, "other").unwrap();
    tx.commit().unwrap();
}

/// A reader without locks runs again with them, so that it has its rows and the tables' absence as of one moment.
#[test]
fn a_reader_finds_absent_tables_and_rows_as_of_one_moment() {
    let db = database();
    let table = accounts(&db);
    db.transact(|tx| tx.insert(&table, &row(1, 0, "a"))).unwrap();
    let mut runs = 0;
    let found = db.read(|tx| {
        runs += 1;
        let before = tx.look(&table, 1, |row| row.get_i64(1))?;
        let is_there = is_there(tx, "new")?;
        let other = || std::thread::scope(|scope| scope.spawn(|| make_and_pay(&db, &table, "new")).join());
        let paid = other().unwrap();
        Ok((before, is_there, tx.look(&table, 1, |row| row.get_i64(1))?, paid))
    });
    let (before, is_there, after, paid) = found.unwrap();
    assert_eq!((before, is_there, after), (Some(Ok(0)), false, Some(Ok(0))));
    assert!(matches!(paid, Err(Error::WouldWait { .. })), "{paid:?}");
    assert_eq!(runs, if ENGINE == Engine::thin() { 2 } else { 1 });
}

/// Several transactions make a table if they find none: in the end each finds that one of them has made it.
#[test]
fn a_table_that_many_make_if_it_is_absent_is_made_once() {
    let db = database();
    let made = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..20 {
                    let name = format!("t{number}");
                    let makes = db.transact(|tx| {
                        let makes = !is_there(tx, &name)?;
                        if makes {
                            tx.create_table(&empty_table(&name))?;
                        }
                        Ok(makes)
                    });
                    made.fetch_add(u32::from(makes.unwrap()), std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(made.load(std::sync::atomic::Ordering::SeqCst), 20);
}
