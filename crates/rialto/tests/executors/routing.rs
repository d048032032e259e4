//! The executors' lock tables, from outside: routing rules by hand and by the resource manager, and what the locks of a
//! flow's actions exclude.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Database, Error, Executors, Flow, LockPolicy, Options, Procedure, Scan, Table, TableDef,
};

fn database() -> Database {
    database_of(0)
}

fn database_of(threads: usize) -> Database {
    let options = Options {
        memory_bytes: 256 << 20,
        engine: Executors::of(8, threads).handing_over().into(),
        ..Options::default()
    };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

/// Stock by warehouse and item.
fn stock(db: &Database) -> Table {
    db.transact(|tx| {
        let columns = ["warehouse", "item", "quantity"].map(|name| Column::new(name, ColumnType::Int4));
        let def = TableDef::new("stock", columns.to_vec()).with_primary_key(&["warehouse", "item"]);
        tx.create_table(&def)
    })
    .unwrap()
}

fn fill(db: &Database, table: &Table, warehouses: i32, items: i32) {
    for warehouse in 0..warehouses {
        db.transact(|tx| {
            (0..items).try_for_each(|item| {
                tx.insert(table, &[Value::Int4(warehouse), Value::Int4(item), Value::Int4(100)])
            })
        })
        .unwrap();
    }
}

/// Takes one of an item from stock; and reads all of a warehouse's stock as one.
fn procedures() -> [Procedure; 2] {
    let take = Action::exclusive("stock", |tx, arguments, _| {
        let key = (arguments.get::<i32>(0)?, arguments.get::<i32>(1)?);
        let left = tx.get(arguments.table()?, key)?.expect("it is there").get("quantity")?;
        let Value::Int4(left) = left else { unreachable!("an int4") };
        tx.update(arguments.table()?, key, &[(2, Value::Int4(left - 1))]).map(drop)
    });
    let sum = Action::shared("stock", |tx, arguments, outputs| {
        let scan = Scan::prefix(WhichIndex::Primary, vec![Value::Int4(arguments.get::<i32>(0)?)]);
        let mut sum = 0;
        tx.scan(arguments.table()?, &scan, |_, row| {
            sum += i64::from(row.get_i32(2).unwrap());
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        outputs.push(sum);
        Ok(())
    });
    let int = ColumnType::Int4;
    [
        Procedure::new("take", [int, int], take.by_argument(0).by_argument(1)),
        Procedure::new("sum", [int], sum.by_argument(0)),
    ]
}

/// The lock of an identifier of two columns is on one row; the lock of one of a column is on all rows of a warehouse,
/// absent ones included.
#[test]
fn an_actions_identifier_is_what_is_locked() {
    let db = database();
    let table = stock(&db);
    fill(&db, &table, 2, 3);
    procedures().into_iter().for_each(|procedure| db.register(procedure).unwrap());
    let refusing = || {
        let mut tx = db.begin().unwrap();
        tx.set_lock_policy(LockPolicy::Refuse);
        tx
    };
    let hold = |name: &str, arguments: &[Value], check: &dyn Fn()| {
        // A flow of two phases: in the second one the locks of the first are held.
        let inner = procedures().into_iter().find(|procedure| procedure.name == name).unwrap();
        let reached = std::sync::Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
        let told = reached.clone();
        let wait = move |_: &mut rialto::Transaction, _: &rialto::Arguments<'_>, _: &mut rialto::Outputs| {
            told.0.store(true, Ordering::SeqCst);
            while !told.1.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        };
        let mut flow = inner.flow;
        let pause = Flow::of(wait);
        flow = flow.phase(pause.phases()[0].clone());
        let holding = Procedure::new(format!("holding {name}"), inner.arguments, flow);
        if db.registered_version(&holding.name).is_none() {
            db.register(holding).unwrap();
        }
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| db.call(&format!("holding {name}"), arguments).unwrap());
            while !reached.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            check();
            reached.1.store(true, Ordering::SeqCst);
            holder.join().unwrap();
        });
    };
    let is_locked = |answer: Result<bool, Error>| match answer {
        Ok(_) => false,
        Err(Error::WouldWait { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    let get = |warehouse: i32, item: i32| {
        is_locked(refusing().get(&table, (warehouse, item)).map(|row| row.is_some()))
    };
    let insert = |warehouse: i32, item: i32| {
        let row = [warehouse, item, 1].map(Value::Int4);
        is_locked(refusing().insert(&table, &row).map(|()| true))
    };
    hold("take", &[Value::Int4(1), Value::Int4(2)], &|| {
        assert!(get(1, 2));
        assert!(!get(1, 1) && !get(0, 2) && !insert(1, 7));
    });
    hold("sum", &[Value::Int4(1)], &|| {
        assert!(!get(1, 2), "shared");
        assert!(insert(1, 7), "no phantom");
        assert!(!insert(0, 7));
    });
    let counters = db.metrics().locks;
    assert!(counters.local > 0);
    assert_eq!(db.call("sum", &[Value::Int4(1)]).unwrap(), [Value::Int8(299)]);
}

/// A transfer within a warehouse is two actions of one phase, in any order: no two of them deadlock.
#[test]
fn flows_of_one_phase_do_not_deadlock() {
    for threads in [0, 2, 3] {
        let db = database_of(threads);
        let table = stock(&db);
        fill(&db, &table, 4, 5);
        let add = |by: i32, warehouse: usize, item: usize| {
            let action = Action::exclusive("stock", move |tx, arguments, _| {
                let key = (arguments.get::<i32>(warehouse)?, arguments.get::<i32>(item)?);
                let row = tx.get(arguments.table()?, key)?.expect("it is there");
                let Value::Int4(quantity) = row.get("quantity")? else { unreachable!("an int4") };
                tx.update(arguments.table()?, key, &[(2, Value::Int4(quantity + by))]).map(drop)
            });
            action.by_argument(warehouse).by_argument(item)
        };
        // Of four keys: each thread has several, whichever runs the phase.
        let flow = Flow::new().phase([add(-1, 0, 1), add(1, 2, 3), add(-2, 4, 5), add(2, 6, 7)]);
        db.register(Procedure::new("transfer", [ColumnType::Int4; 8], flow)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4i32 {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..400 {
                        let key = |by: i32| [(n * by + thread) % 4, (n * (by + 2) + thread) % 5];
                        let keys = [[n % 4, n % 5], key(7), key(3), key(5)];
                        let arguments: Vec<_> = keys.into_iter().flatten().map(Value::Int4).collect();
                        db.call("transfer", &arguments).unwrap();
                    }
                });
            }
            // The keys move meanwhile.
            for n in 0..100 {
                let bounds: Vec<_> = (0..n % 4)
                    .map(|warehouse| vec![Value::Int4(warehouse + 1), Value::Int4(n % 5)])
                    .collect();
                db.set_routing("stock", WhichIndex::Primary, &bounds).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        assert_eq!(db.metrics().locks.deadlocks, 0, "{threads} threads");
        let mut sum = 0;
        db.transact(|tx| {
            sum = 0;
            tx.scan(&table, &Scan::all(), |_, row| {
                sum += row.get_i32(2)?;
                Ok(std::ops::ControlFlow::Continue(()))
            })
        })
        .unwrap();
        assert_eq!(sum, 4 * 5 * 100);
    }
}

/// By the hash of the warehouse: actions of one warehouse are at one executor, and the same flows have the same
/// results, while rules by hash and by ranges alternate.
#[test]
fn keys_dealt_out_by_a_hash_are_locked_as_others_are() {
    let db = database();
    let table = stock(&db);
    fill(&db, &table, 4, 5);
    procedures().into_iter().for_each(|procedure| db.register(procedure).unwrap());
    db.set_routing_by_hash("stock", WhichIndex::Primary, 1).unwrap();
    assert_eq!(db.executors_of("stock", WhichIndex::Primary).unwrap(), 8);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3i32)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..300 {
                        db.call("take", &[(n + thread) % 4, n % 5].map(Value::Int4)).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                match n % 3 {
                    0 => db.set_routing("stock", WhichIndex::Primary, &[vec![Value::Int4(2)]]).unwrap(),
                    columns => db.set_routing_by_hash("stock", WhichIndex::Primary, columns).unwrap(),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        stop.store(true, Ordering::SeqCst);
    });
    let left: i64 = (0..4)
        .map(|warehouse| match db.call("sum", &[Value::Int4(warehouse)]).unwrap()[..] {
            [Value::Int8(sum)] => sum,
            ref other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(left, 4 * 5 * 100 - 3 * 300);
    let refused = |columns: usize| {
        db.set_routing_by_hash("stock", WhichIndex::Primary, columns).unwrap_err().to_string()
    };
    for columns in [0, 3] {
        let error = refused(columns);
        assert!(error.contains("\"stock\"") && error.contains("which has 2: give 1 to 2"), "{error}");
    }
}

/// A table that grows is divided: its keys' locks are then at several executors.
#[test]
fn the_resource_manager_follows_a_table_that_grows() {
    let db = database();
    let table = stock(&db);
    assert_eq!(db.executors_of("stock", WhichIndex::Primary).unwrap(), 1);
    fill(&db, &table, 20, 500);
    let began = Instant::now();
    while db.executors_of("stock", WhichIndex::Primary).unwrap() < 8 {
        assert!(began.elapsed() < Duration::from_secs(60), "its keys are not shared out");
        std::thread::sleep(Duration::from_millis(5));
    }
    db.transact(|tx| tx.drop_table("stock")).unwrap();
    db.close().unwrap();
}

/// A table that calls only read is given to one executor together, and no longer when it is written.
#[test]
fn what_is_only_read_is_at_one_executor_until_it_is_written() {
    for threads in [0, 2] {
        what_is_only_read(&database_of(threads));
    }
}

fn what_is_only_read(db: &Database) {
    let table = stock(db);
    fill(db, &table, 20, 50);
    procedures().into_iter().for_each(|procedure| db.register(procedure).unwrap());
    let (stop, taken) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        let calls = |seed: i32| {
            let (mut sum, stop, taken) = (db.prepare_call("sum").unwrap(), &stop, &taken);
            move || {
                let mut take = db.prepare_call("take").unwrap();
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    sum.call(&[Value::Int4((seed + n) % 20)]).unwrap();
                    if taken.load(Ordering::SeqCst) >= 0 {
                        take.call(&[(seed + n) % 20, n % 50].map(Value::Int4)).unwrap();
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        };
        let until = |executors: usize, what: &str| {
            let began = Instant::now();
            while db.executors_of("stock", WhichIndex::Primary).unwrap() != executors {
                if began.elapsed() > Duration::from_secs(60) {
                    stop.store(true, Ordering::SeqCst);
                    panic!("{what}: at {:?} executors", db.executors_of("stock", WhichIndex::Primary));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until(8, "it is shared out by its size");
        // Keys below zero are not written.
        taken.store(i64::MIN, Ordering::SeqCst);
        let clients = [0, 7, 13].map(|seed| scope.spawn(calls(seed)));
        until(1, "it is only read");
        taken.store(0, Ordering::SeqCst);
        until(8, "it is written");
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    let left: i64 = (0..20)
        .map(|warehouse| match db.call("sum", &[Value::Int4(warehouse)]).unwrap()[..] {
            [Value::Int8(sum)] => sum,
            ref other => panic!("{other:?}"),
        })
        .sum();
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken > 0);
    assert_eq!(left, 20 * 50 * 100 - taken);
}

/// The processor time of this thread, which other load on the machine does not change.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nothing drains: a change holds up others for as long as copying the entered locks takes, and for no other reason
/// longer with more locks.
#[test]
fn a_change_of_rules_takes_as_long_as_its_locks_are_many() {
    const FEW: i32 = 2_000;
    const MANY: i32 = 20_000;
    // An open transaction that has read this many rows, each locked by itself.
    let mut held = [FEW, MANY].map(|rows| {
        let db = database();
        let table = stock(&db);
        fill(&db, &table, 1, rows);
        let mut open = db.begin().unwrap();
        for item in 0..rows {
            open.get(&table, (0, item)).unwrap().expect("it is there");
        }
        (rows, db, open, Vec::new())
    });
    for turn in 0..9 {
        for (rows, db, _, times) in &mut held {
            let before = db.metrics().routing;
            // No key stays where it was.
            let bounds = [Value::Int4(0), Value::Int4(turn % 2 * 10)];
            let began = thread_time();
            db.set_routing_by_hash("stock", WhichIndex::Primary, 2 - turn as usize % 2).unwrap();
            db.set_routing("stock", WhichIndex::Primary, &[bounds.to_vec()]).unwrap();
            times.push(thread_time() - began);
            let after = db.metrics().routing;
            assert!(after.changes >= before.changes + 2 && !after.held_max.is_zero());
            assert!(after.locks >= before.locks + 2 * *rows as u64, "it found each lock, both times");
        }
    }
    let [few, many] = held.each_mut().map(|(rows, _, _, times)| {
        times.sort();
        let median = times[times.len() / 2];
        println!("{rows} locks: {median:?}, {:?} a lock and change", median / (2 * *rows as u32));
        median
    });
    let times_as_long = many.as_secs_f64() / few.as_secs_f64();
    // More locks are in slower caches. A change that looked at all of them for each would take 100 times as long.
    assert!(times_as_long < 2.5 * f64::from(MANY / FEW), "{times_as_long} times as long");
    for (_, _, open, _) in held {
        open.commit().unwrap();
    }
}

#[test]
fn a_routing_rule_that_makes_no_sense_is_refused_by_name() {
    let db = database();
    stock(&db);
    let bound = |warehouse: i32| vec![Value::Int4(warehouse)];
    let error = db.set_routing("stock", WhichIndex::Primary, &[bound(5), bound(5)]).unwrap_err().to_string();
    assert!(error.contains("\"stock\"") && error.contains("not above the one before it"), "{error}");
    let error = db.set_routing("stock", WhichIndex::Secondary(0), &[]).unwrap_err().to_string();
    assert!(error.contains("no secondary index 0"), "{error}");
    assert!(db.set_routing("stock", WhichIndex::Primary, &[vec![Value::Text("x".into())]]).is_err());
    assert!(matches!(db.set_routing("none", WhichIndex::Primary, &[]), Err(Error::NoSuchTable { .. })));
    let thin = Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() })
        .unwrap();
    let error = thin.set_routing("stock", WhichIndex::Primary, &[]).unwrap_err().to_string();
    assert!(error.contains("Options::engine"), "{error}");
}

/// A body may have leased executors, for which a change of rules or numbers would wait.
#[test]
fn a_body_changes_neither_rules_nor_numbers() {
    let db = database();
    fill(&db, &stock(&db), 1, 1);
    let handle = Arc::new(Mutex::new(Some(db.clone())));
    let body = handle.clone();
    let change = Action::exclusive("stock", move |_, _, _| {
        let handle = body.lock().unwrap();
        let db = handle.as_ref().unwrap();
        let primary = WhichIndex::Primary;
        let changes = [
            db.set_executors(4..=4),
            db.set_routing("stock", primary, &[vec![Value::Int4(5)]]),
            db.set_routing_by_hash("stock", primary, 1),
        ];
        assert!(changes.iter().all(|change| matches!(change, Err(Error::Nested))), "{changes:?}");
        Ok(())
    });
    let flow = Flow::from(change.by_argument(0));
    db.register(Procedure::new("change", [ColumnType::Int4], flow)).unwrap();
    db.call("change", &[Value::Int4(0)]).unwrap();
    db.set_executors(4..=4).unwrap();
    handle.lock().unwrap().take();
}

/// A table that is emptied keeps its indexes, and the division of their keys, whatever the outcome of the transaction.
#[test]
fn a_table_that_is_emptied_keeps_its_routing_rule() {
    let db = database();
    let table = stock(&db);
    fill(&db, &table, 2, 2);
    db.set_routing_by_hash("stock", WhichIndex::Primary, 1).unwrap();
    let executors = || db.executors_of("stock", WhichIndex::Primary);
    let before = executors();
    assert_eq!(before, Ok(8));
    let mut tx = db.begin().unwrap();
    tx.truncate(&table).unwrap();
    tx.abort().unwrap();
    assert_eq!(executors(), before, "after an abort");
    db.transact(|tx| tx.truncate(&table)).unwrap();
    assert_eq!(executors(), before, "after a commit");
    fill(&db, &db.table("stock").unwrap(), 2, 2);
}
