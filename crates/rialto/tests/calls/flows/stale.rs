//! Calls that run while definitions change: their bindings are out of date when they use them. (A caller checks for
//! changes of the catalog before each call, so changes between calls do not make a binding in use out of date.)

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Database, Error, Flow, Outputs, Procedure, Result, ScanMode, TableDef, Transaction,
};

use super::definitions::on_every_engine;
use super::{ENGINES, ON_THREADS, database};

/// A key of another type than `int8`, with other bytes.
const SHORT: ColumnType = ColumnType::Int4;

fn make(tx: &mut Transaction, id: ColumnType, number: i64) -> Result<()> {
    let columns = vec![Column::new("id", id), Column::new("number", ColumnType::Int8)];
    let table = tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
    (0..10_i16).try_for_each(|id| tx.insert(&table, &[Value::Int2(id), Value::Int8(number + i64::from(id))]))
}

fn read(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let number = tx.look(arguments.table()?, arguments.get::<i16>(0)?, |row| row.get(1))?;
    outputs.push(number.unwrap_or(Value::Null));
    Ok(())
}

fn add(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let mut number = 0;
    let there = tx.modify(arguments.table()?, arguments.get::<i16>(0)?, |row| {
        number = row.add_i64(1, 1000)?;
        Ok(())
    })?;
    outputs.push(if there { Value::Int8(number) } else { Value::Null });
    Ok(())
}

fn probe(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let (table, index, key) = (arguments.table()?, arguments.index(), arguments.get::<i16>(0)?);
    let found = tx.probe(table, index, key, ScanMode::Share, |entry| entry.get("id"))?;
    outputs.push(found.transpose()?.unwrap_or(Value::Null));
    Ok(())
}

/// A phase in which the call waits until the test has made its change.
struct Pause {
    is_on: Arc<AtomicBool>,
    both: Arc<[Barrier; 2]>,
}

impl Pause {
    fn new() -> Pause {
        Pause { is_on: Arc::default(), both: Arc::new([Barrier::new(2), Barrier::new(2)]) }
    }

    fn flow(&self, touches: bool, behind: impl IntoIterator<Item = Action>) -> Flow {
        let (is_on, both) = (self.is_on.clone(), self.both.clone());
        let pause = Flow::of(move |tx, _, _| {
            if is_on.swap(false, Ordering::SeqCst) {
                for barrier in both.iter() {
                    barrier.wait();
                }
                if touches {
                    // Its context knows the current table.
                    let table = tx.table("things")?;
                    tx.look(&table, 7i16, |_| ())?;
                }
            }
            Ok(())
        });
        Flow::new().phase(pause.phases()[0].clone()).phase(behind)
    }

    fn call(&self, db: &Database, name: &str, argument: i16, meanwhile: impl FnOnce()) -> Result<Vec<Value>> {
        self.is_on.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| db.call(name, &[Value::Int2(argument)]));
            self.both[0].wait();
            // A change that fails lets the call go on: the scope waits for it.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
            self.both[1].wait();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            call.join().unwrap()
        })
    }
}

fn replace(db: &Database, id: ColumnType, number: i64) {
    db.transact(|tx| {
        tx.drop_table("things")?;
        make(tx, id, number)
    })
    .unwrap();
}

#[test]
fn a_call_is_of_the_table_as_it_is_when_its_phase_begins() {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 100)).unwrap();
        let pause = Pause::new();
        let one = || Action::shared("things", read).by_argument(0);
        let two = || Action::exclusive("things", add).by_argument(0);
        db.register(Procedure::new("one", [ColumnType::Int2], pause.flow(false, [one()]))).unwrap();
        db.register(Procedure::new("two", [ColumnType::Int2], pause.flow(false, [two(), one()]))).unwrap();
        // The contexts know the table.
        for _ in 0..3 {
            assert_eq!(db.call("one", &[Value::Int2(7)]), Ok(vec![Value::Int8(107)]), "{about}");
        }
        let mut base = 100;
        for id in [SHORT, ColumnType::Int8, SHORT, ColumnType::Int8] {
            base += 100;
            let found = pause.call(db, "one", 7, || replace(db, id, base));
            assert_eq!(found, Ok(vec![Value::Int8(base + 7)]), "{about}, {id:?}");
            base += 100;
            let other = if id == SHORT { ColumnType::Int8 } else { SHORT };
            let found = pause.call(db, "two", 7, || replace(db, other, base));
            assert_eq!(found, Ok(vec![Value::Int8(base + 1007); 2]), "{about}, {id:?}");
        }
        // Emptied.
        let found = pause.call(db, "one", 7, || {
            let table = db.table("things").unwrap();
            db.transact(|tx| tx.truncate(&table)).unwrap();
        });
        assert_eq!(found, Ok(vec![Value::Null]), "{about}");
        // Dropped.
        let found = pause.call(db, "one", 7, || db.transact(|tx| tx.drop_table("things")).unwrap());
        assert_eq!(found, Err(Error::NoSuchTable { table: "things".to_owned() }), "{about}");
        // Made again.
        let found = pause.call(db, "one", 7, || db.transact(|tx| make(tx, SHORT, 0)).unwrap());
        assert_eq!(found, Ok(vec![Value::Int8(7)]), "{about}");
    });
}

#[test]
fn a_call_is_of_the_index_as_it_is_when_its_phase_begins() {
    [false, true].iter().for_each(|&touches| of_the_index(touches));
}

fn of_the_index(touches: bool) {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 100)).unwrap();
        db.transact(|tx| tx.create_index("things", "by", &["number"], true)).unwrap();
        let pause = Pause::new();
        let action = Action::shared("things", probe).on_index("by").by_argument(0);
        db.register(Procedure::new("probe", [ColumnType::Int2], pause.flow(touches, [action]))).unwrap();
        for _ in 0..3 {
            assert_eq!(db.call("probe", &[Value::Int2(107)]), Ok(vec![Value::Int8(7)]), "{about}");
        }
        // Another index comes before it.
        let found = pause.call(db, "probe", 7, || {
            db.transact(|tx| {
                tx.drop_index("by")?;
                tx.create_index("things", "another", &["number", "id"], true)?;
                tx.create_index("things", "by", &["id"], true)
            })
            .unwrap();
        });
        assert_eq!(found, Ok(vec![Value::Int8(7)]), "{about}");
        let found = pause.call(db, "probe", 107, || {
            db.transact(|tx| {
                tx.drop_index("another")?;
                tx.drop_index("by")?;
                tx.create_index("things", "by", &["number"], true)
            })
            .unwrap();
        });
        assert_eq!(found, Ok(vec![Value::Int8(7)]), "{about}");
        let found = pause.call(db, "probe", 7, || db.transact(|tx| tx.drop_index("by")).unwrap());
        let error = found.unwrap_err().to_string();
        assert!(error.contains("\"by\""), "{about}: {error}");
        let found = pause.call(db, "probe", 7, || {
            db.transact(|tx| tx.create_index("things", "by", &["id"], true)).unwrap();
        });
        assert_eq!(found, Ok(vec![Value::Int8(7)]), "{about}");
    });
}

/// The table has no key when the call is prepared, and gets one.
#[test]
fn a_call_is_identified_by_a_key_that_its_table_gets_meanwhile() {
    [false, true].iter().for_each(|&touches| by_a_key(touches));
}

fn by_a_key(touches: bool) {
    on_every_engine(|about, db| {
        let columns = || vec![Column::new("id", ColumnType::Int8), Column::new("number", ColumnType::Int8)];
        db.transact(|tx| {
            let table = tx.create_table(&TableDef::new("things", columns()))?;
            tx.insert(&table, &[Value::Int2(7), Value::Int8(1)])
        })
        .unwrap();
        let pause = Pause::new();
        let action = Action::shared("things", read).by_argument(0);
        db.register(Procedure::new("read", [ColumnType::Int2], pause.flow(touches, [action]))).unwrap();
        let found = pause.call(db, "read", 7, || {
            db.transact(|tx| tx.add_primary_key("things", &["id"])).unwrap();
        });
        assert_eq!(found, Ok(vec![Value::Int8(1)]), "{about}");
    });
}

/// Calls that wait on the queue of a thread while their table is replaced, and then run in parts.
#[test]
fn sent_calls_are_of_the_table_as_it_is_when_they_run() {
    {
        let db = database(ON_THREADS);
        db.transact(|tx| make(tx, ColumnType::Int8, 100)).unwrap();
        let pause = Pause::new();
        let rest = Action::shared("people", |_, _, _| Ok(())).by(|_| Value::Int4(1));
        db.register(Procedure::new("pause", [ColumnType::Int2], pause.flow(false, [rest]))).unwrap();
        let by = |nth: usize| {
            let add = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
                let mut number = 0;
                let there = tx.modify(arguments.table()?, arguments.get::<i16>(nth)?, |row| {
                    number = row.add_i64(1, 1000)?;
                    Ok(())
                })?;
                outputs.push(if there { Value::Int8(number) } else { Value::Null });
                Ok(())
            };
            Action::exclusive("things", add).by_argument(nth)
        };
        let flow = Flow::new().phase([by(0), by(1)]);
        db.register(Procedure::new("both", [ColumnType::Int2; 2], flow)).unwrap();
        for (round, id) in [SHORT, ColumnType::Int8, SHORT, ColumnType::Int8].into_iter().enumerate() {
            let base = 10_000 * (round as i64 + 1);
            let routed = |db: &Database| {
                let bounds = [2, 4, 6].map(|bound| vec![Value::Int2(bound)]);
                db.set_routing("things", WhichIndex::Primary, &bounds).unwrap();
            };
            routed(&db);
            let mut sent = Vec::new();
            pause
                .call(&db, "pause", 0, || {
                    // Calls on the other thread begin at once. They wait for the table that is replaced: a call that had a
                    // part of it locked would wait for the paused thread, and the replacement for the call.
                    let mut replacing = db.begin().unwrap();
                    replacing.drop_table("things").unwrap();
                    make(&mut replacing, id, base).unwrap();
                    for key in 0..10_i16 {
                        sent.push(db.send_call("both", &[Value::Int2(key), Value::Int2(9 - key)]).unwrap());
                    }
                    replacing.commit().unwrap();
                    routed(&db);
                })
                .unwrap();
            for (key, sent) in sent.into_iter().enumerate() {
                let outputs = sent.wait().unwrap();
                assert!(outputs.iter().all(|output| *output != Value::Null), "{round}, {key}: {outputs:?}");
            }
            let table = db.table("things").unwrap();
            let rows: Vec<i64> = (0..10_i16)
                .map(|id| {
                    db.transact(|tx| tx.look(&table, id, |row| row.get_i64(1))).unwrap().unwrap().unwrap()
                })
                .collect();
            println!("round {round}: {rows:?}");
        }
    }
}

/// Threads call while another thread replaces, empties, indexes, and rolls back.
#[test]
fn calls_beside_definitions_find_their_rows() {
    for engine in ENGINES {
        let about = engine.to_string();
        let db = database(engine);
        db.transact(|tx| make(tx, ColumnType::Int8, 0)).unwrap();
        let touch = |nth: usize, by_output: bool| {
            let touch = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
                let (table, key) = (arguments.table()?, arguments.get::<i16>(nth)?);
                let there = tx.modify(table, key, |row| row.add_i64(1, 1000).map(drop))?;
                if !there {
                    tx.insert(table, &[Value::Int2(key), Value::Int8(i64::from(key))])?;
                }
                let number = tx.look(table, key, |row| row.get_i64(1))?.unwrap()?;
                assert_eq!(number % 1000, i64::from(key));
                outputs.push(number);
                Ok(())
            };
            let touch = Action::exclusive("things", touch);
            if by_output { touch.by_output(0) } else { touch.by_argument(nth) }
        };
        let find = || {
            Action::shared("things", |tx, arguments, outputs| {
                let key = arguments.get::<i16>(0)?;
                let found = tx.look(arguments.table()?, key, |row| row.get_i64(1))?.transpose()?;
                assert!(found.is_none_or(|number| number % 1000 == i64::from(key)));
                outputs.push(Value::Int2(key));
                Ok(())
            })
            .by_argument(0)
        };
        let probe = || {
            let probe = |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
                let (table, index, key) = (arguments.table()?, arguments.index(), arguments.get::<i16>(0)?);
                let scan = rialto::Scan::prefix(index, vec![Value::Int8(i64::from(key))]);
                tx.entries(table, &scan, |_, entry| {
                    assert_eq!(entry.read::<i64>("number")?, i64::from(key));
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
                outputs.push(Value::Int2(key));
                Ok(())
            };
            Action::shared("things", probe).on_index("by").by_argument(0)
        };
        let args = [ColumnType::Int2; 2];
        let register = |name: &str, flow: Flow| db.register(Procedure::new(name, args, flow)).unwrap();
        register("one", Flow::new().phase([touch(0, false)]));
        register("both", Flow::new().phase([touch(0, false), touch(1, false)]));
        register("then", Flow::new().phase([find()]).phase([touch(0, true)]));
        register("many", Flow::new().phase((0..6).map(|nth| touch(nth % 2, false))));
        register("probe", Flow::new().phase([probe()]).phase([touch(0, true), find()]));
        register("look", Flow::new().phase([find()]));
        let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let missing = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..5_usize {
                let (db, stop, done, missing, about) = (&db, &stop, &done, &missing, &about);
                scope.spawn(move || {
                    let judge = |outcome: Result<()>| match outcome {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
                        Err(Error::Procedure { reason, .. })
                            if reason.contains("index \"by\" does not exist") =>
                        {
                            missing.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            stop.store(true, Ordering::Relaxed);
                            panic!("{about}: {error}")
                        }
                    };
                    let names = ["one", "both", "then", "many", "probe", "look"];
                    let read_only = rialto::TxOptions { read_only: true, ..Default::default() };
                    let mut calls: Vec<_> = names
                        .iter()
                        .map(|name| match *name {
                            "look" => db.prepare_call_with(&read_only, name).unwrap(),
                            name => db.prepare_call(name).unwrap(),
                        })
                        .collect();
                    let (mut n, mut sent) = (thread, std::collections::VecDeque::new());
                    while !stop.load(Ordering::Relaxed) {
                        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let (key, other) = ((n >> 33) % 10, (n >> 40) % 10);
                        let arguments = [key, other].map(|key| Value::Int2(key as i16));
                        let at = (n >> 50) % names.len();
                        if thread % 2 == 0 {
                            judge(calls[at].call(&arguments).map(drop));
                        } else {
                            sent.push_back(calls[at].send(&arguments).unwrap());
                            if sent.len() > 12 {
                                judge(sent.pop_front().unwrap().wait().map(drop));
                            }
                        }
                    }
                    sent.into_iter().for_each(|sent| judge(sent.wait().map(drop)));
                });
            }
            let (began, time) = (Instant::now(), Random::test_time_from_environment() / ENGINES.len() as u32);
            let mut round = 0;
            while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
                let before = done.load(Ordering::Relaxed);
                let waited = Instant::now();
                while done.load(Ordering::Relaxed) < before + round % 40 && waited.elapsed().as_millis() < 50
                {
                    std::thread::yield_now();
                }
                round += 1;
                let id = [SHORT, ColumnType::Int8][round / 2 % 2];
                let table = || db.table("things").unwrap();
                let replace = |tx: &mut Transaction| {
                    tx.drop_table("things")?;
                    make(tx, id, 0)
                };
                let outcome = match round % 8 {
                    0 | 2 => db.transact(replace),
                    1 => db.transact(|tx| tx.truncate(&table())),
                    3 => db.transact(|tx| tx.create_index("things", "by", &["number", "id"], true)),
                    4 => db.transact(|tx| replace(tx).and_then(|()| Err(Error::aborted("no")))),
                    5 => db.transact(|tx| {
                        tx.create_index("things", "before", &["id"], true)?;
                        let savepoint = tx.savepoint();
                        replace(tx)?;
                        tx.rollback_to(&savepoint)
                    }),
                    6 => db.transact(|tx| {
                        tx.drop_index("by")?;
                        tx.create_index("things", "by", &["number"], false)
                    }),
                    _ => db.transact(|tx| tx.drop_index("before")),
                };
                match outcome {
                    Ok(()) => {}
                    Err(Error::Deadlock { .. } | Error::LockTimeout { .. } | Error::Aborted { .. }) => {}
                    Err(Error::NoSuchIndex { .. } | Error::NameTaken { .. }) => {}
                    Err(error) => panic!("{about}: {round}: {error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
            println!("{about}: {round} definitions");
        });
        let (done, missing) = (done.into_inner(), missing.into_inner());
        println!("{about}: {done} calls, {missing} missed the index");
        assert!(done > 0, "{about}: calls are done beside definitions");
    }
}

/// I3: a call depends on the last definition of its table, though it reads no row.
#[test]
fn a_call_that_reads_no_row_depends_on_the_definition_of_its_table() {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 0)).unwrap();
        let nothing = || Action::shared("things", |_, _, _| Ok(())).by_argument(0);
        let flow = Flow::new().phase([nothing()]);
        db.register(Procedure::new("one", [ColumnType::Int2], flow)).unwrap();
        let flow = Flow::new().phase([nothing(), nothing()]);
        db.register(Procedure::new("two", [ColumnType::Int2], flow)).unwrap();
        let mut calls = ["one", "two"].map(|name| db.prepare_call(name).unwrap());
        for round in 0..4 {
            let table = db.table("things").unwrap();
            let ((), defined) = db
                .submit(|tx| match round {
                    0 | 2 => tx.truncate(&table),
                    1 => tx.create_index("things", "by", &["number"], false),
                    _ => tx.drop_index("by"),
                })
                .unwrap();
            for call in &mut calls {
                for nth in 0..4 {
                    let (_, ticket) = call.submit(&[Value::Int2(1)]).unwrap();
                    assert!(ticket.lsn() >= defined.lsn(), "{about}, round {round}, {}, {nth}", call.name());
                }
            }
        }
    });
}

/// A closure of the same phase replaces the table of an action that is already bound, and locked.
#[test]
fn an_action_is_of_the_table_that_a_closure_of_its_phase_puts_in_its_place() {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 100)).unwrap();
        let replaces = Flow::of(|tx, arguments, _| {
            let number = arguments.get::<i16>(1)?;
            tx.drop_table("things")?;
            make(tx, [SHORT, ColumnType::Int8][number as usize % 2], i64::from(number))
        });
        let phase = [replaces.phases()[0][0].clone(), Action::shared("things", read).by_argument(0)];
        db.register(Procedure::new("p", [ColumnType::Int2; 2], Flow::new().phase(phase))).unwrap();
        for number in [200, 301, 400, 501] {
            let found = db.call("p", &[Value::Int2(7), Value::Int2(number)]);
            assert_eq!(found, Ok(vec![Value::Int8(i64::from(number) + 7)]), "{about}");
        }
    });
}
