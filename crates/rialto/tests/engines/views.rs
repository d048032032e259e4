//! A part of a phase is a view of one transaction: keys of unique indexes, definitions, choices, cancellation, room and
//! contexts are the transaction's on every engine.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Canceller, Database, Durability, Engine, Error, Flow, Options, Outputs, Plan,
    Planning, Procedure, Result, Savepoint, Scan, ScanMode, TableDef, Transaction, TxOptions,
};

use super::{ENGINES, of_threads, options, planned};
use crate::common::in_time;

/// Keys below it belong to another thread than those from it on, where there are two.
const BOUND: i32 = 100;

/// A database with a table `t` of `id`, a unique `u` and a text, whose keys belong to two threads.
fn database_with(options: Options) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.transact(define).unwrap();
    route(&db);
    db
}

fn database(engine: Engine) -> Database {
    database_with(options(engine))
}

fn define(tx: &mut Transaction) -> Result<()> {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::nullable("u", ColumnType::Int4),
        Column::nullable("text", ColumnType::Text),
    ];
    tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
    tx.create_index("t", "t_by_u", &["u"], true)
}

fn route(db: &Database) {
    if db.executors() > 1 {
        db.set_routing("t", WhichIndex::Primary, &[vec![Value::Int4(BOUND)]]).unwrap();
        db.set_routing("t", WhichIndex::Secondary(0), &[vec![Value::Int4(6)]]).unwrap();
    }
}

fn insert(db: &Database, rows: &[(i32, i32)]) {
    let table = db.table("t").unwrap();
    db.transact(|tx| rows.iter().try_for_each(|&(id, u)| tx.insert(&table, &row(id, u)))).unwrap();
}

fn row(id: i32, u: i32) -> [Value; 3] {
    [Value::Int4(id), Value::Int4(u), Value::Null]
}

/// The rows by number and by the unique index.
fn contents(db: &Database) -> [Vec<(i32, i32)>; 2] {
    let table = db.table("t").unwrap();
    [WhichIndex::Primary, WhichIndex::Secondary(0)].map(|which| {
        let mut rows = Vec::new();
        db.transact(|tx| {
            rows.clear();
            tx.scan(&table, &Scan::prefix(which, vec![]), |_, row| {
                rows.push((row.get_i32(0)?, row.read::<Option<i32>>(1)?.unwrap_or(-1)));
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows.sort_unstable();
        rows
    })
}

/// An action on the row of the argument at this position, with that key.
fn on(
    at: usize,
    body: impl Fn(&mut Transaction, &Arguments<'_>, i32) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Action::exclusive("t", move |tx, arguments, _| body(tx, arguments, arguments.get(at)?)).by_argument(at)
}

fn put(at: usize, u: i32) -> Action {
    on(at, move |tx, arguments, id| tx.insert(arguments.table()?, &row(id, u)))
}

fn delete(at: usize) -> Action {
    on(at, |tx, arguments, id| tx.delete(arguments.table()?, id).map(drop))
}

fn closure(
    body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Flow::of(body).phases()[0][0].clone()
}

/// Calls a flow with these keys.
fn call<const N: usize>(db: &Database, flow: Flow, keys: [i32; N]) -> Result<Vec<Value>> {
    db.register(Procedure::new("p", [ColumnType::Int4; N], flow)).unwrap();
    db.call("p", &keys.map(Value::Int4))
}

fn is_duplicate<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::DuplicateKey { index, .. }) if index == "t_by_u")
}

#[test]
fn a_unique_key_is_given_once_in_a_phase() {
    for engine in ENGINES {
        let db = database(engine);
        let outcome = call(&db, Flow::new().phase([put(0, 7), put(1, 7)]), [1, 101]);
        assert!(is_duplicate(&outcome), "{engine:?}: {outcome:?}");
        assert_eq!(contents(&db), [vec![], vec![]], "{engine:?}");
    }
}

#[test]
fn an_action_after_a_caught_duplicate_goes_on() {
    for engine in ENGINES {
        let db = database(engine);
        let careful = on(1, |tx, arguments, id| {
            let outcome = tx.insert(arguments.table()?, &row(id, 7));
            if is_duplicate(&outcome) { tx.insert(arguments.table()?, &row(id, 8)) } else { outcome }
        });
        assert_eq!(call(&db, Flow::new().phase([put(0, 7), careful]), [1, 101]), Ok(vec![]), "{engine:?}");
        let rows = vec![(1, 7), (101, 8)];
        assert_eq!(contents(&db), [rows.clone(), rows], "{engine:?}");
    }
}

#[test]
fn a_unique_key_of_an_earlier_phase_is_given_and_one_freed_there_is_free() {
    for engine in ENGINES {
        let db = database(engine);
        let given = Flow::new().phase([put(0, 8)]).phase([put(1, 9), put(2, 8)]);
        let outcome = call(&db, given, [101, 2, 102]);
        assert!(is_duplicate(&outcome), "{engine:?}: {outcome:?}");
        let db = database(engine);
        insert(&db, &[(1, 7)]);
        let freed = Flow::new().phase([delete(0)]).phase([put(1, 9), put(2, 7)]);
        assert_eq!(call(&db, freed, [1, 2, 102]), Ok(vec![]), "{engine:?}");
        // In one phase, too, since the flow frees it first.
        let freed = Flow::new().phase([delete(0), put(1, 7)]);
        db.register(Procedure::new("same phase", [ColumnType::Int4; 2], freed)).unwrap();
        assert_eq!(db.call("same phase", &[102, 3].map(Value::Int4)), Ok(vec![]), "{engine:?}");
        let rows = vec![(2, 9), (3, 7)];
        assert_eq!(contents(&db), [rows.clone(), rows], "{engine:?}");
    }
}

/// A procedure whose parts always want one key runs whole, and keeps doing so without running twice each time.
#[test]
fn a_phase_whose_parts_meet_is_run_whole_for_a_while() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let db = database(of_threads(2));
    insert(&db, &[(1, 7), (101, 8)]);
    let set = |at: usize, u: i32| {
        on(at, move |tx, arguments, id| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            tx.update(arguments.table()?, id, &[(1, Value::Int4(u))]).map(drop)
        })
    };
    // The key 7 moves back and forth between rows of two threads.
    let flow = Flow::new().phase([set(0, 9), set(1, 7), set(0, 8), set(1, 9), set(0, 7), set(1, 8)]);
    db.register(Procedure::new("swap", [ColumnType::Int4; 2], flow)).unwrap();
    for _ in 0..60 {
        assert_eq!(db.call("swap", &[1, 101].map(Value::Int4)), Ok(vec![]));
    }
    let rows = vec![(1, 7), (101, 8)];
    assert_eq!(contents(&db), [rows.clone(), rows]);
    let runs = RUNS.load(Ordering::Relaxed);
    assert!((360..=372).contains(&runs), "{runs} actions of 60 calls were run");
}

#[test]
fn actions_see_what_a_closure_has_made_of_their_table() {
    type Definition = fn(&mut Transaction) -> Result<()>;
    let definitions: [(Definition, &[(i32, i32)]); 4] = [
        (|tx| tx.create_index("t", "t_more", &["text"], false), &[(1, 1), (50, 50), (101, 2), (150, 51)]),
        (|tx| tx.drop_index("t_by_u"), &[(1, 1), (50, 50), (101, 2), (150, 51)]),
        (
            |tx| {
                let table = tx.table("t")?;
                tx.truncate(&table)
            },
            &[(1, 1), (101, 2)],
        ),
        (
            |tx| {
                tx.drop_table("t")?;
                define(tx)
            },
            &[(1, 1), (101, 2)],
        ),
    ];
    for engine in ENGINES {
        for (nth, (definition, rows)) in definitions.iter().enumerate() {
            let (db, definition) = (database(engine), *definition);
            insert(&db, &[(50, 50), (150, 51)]);
            let look = |at: usize| {
                let look = Action::shared("t", move |tx, arguments, outputs| {
                    let there = tx.look(arguments.table()?, arguments.get::<i32>(at)?, |_| ())?.is_some();
                    outputs.push(i32::from(there));
                    Ok(())
                });
                look.by_argument(at)
            };
            let flow = Flow::of(move |tx, _, _| definition(tx))
                .phase([look(2), look(3)])
                .phase([put(0, 1), put(1, 2)])
                .phase([look(0), look(1)]);
            let there = Value::Int4(i32::from(rows.len() == 4));
            let expected = vec![there.clone(), there, Value::Int4(1), Value::Int4(1)];
            assert_eq!(call(&db, flow, [1, 101, 50, 150]), Ok(expected), "{engine:?}, definition {nth}");
            let table = db.table("t").unwrap();
            assert_eq!(db.transact(|tx| tx.count(&table)), Ok(rows.len() as u64), "{engine:?}, {nth}");
            for (id, _) in *rows {
                assert_eq!(db.transact(|tx| tx.look(&table, *id, |_| ())), Ok(Some(())), "{engine:?}, {nth}");
            }
        }
    }
}

#[test]
fn an_action_on_a_table_that_its_flow_has_dropped_is_refused() {
    for engine in ENGINES {
        let db = database(engine);
        let flow = Flow::of(|tx, _, _| tx.drop_table("t")).phase([put(0, 1), put(1, 2)]);
        let outcome = call(&db, flow, [1, 101]);
        assert!(matches!(outcome, Err(Error::NoSuchTable { .. })), "{engine:?}: {outcome:?}");
        assert_eq!(contents(&db), [vec![], vec![]], "{engine:?}");
        // A table that it has made, which others do not know yet.
        let name = "new";
        let make = Flow::of(move |tx, _, _| {
            let columns = vec![Column::new("id", ColumnType::Int4)];
            tx.create_table(&TableDef::new(name, columns).with_primary_key(&["id"])).map(drop)
        });
        let fill = |at: usize| {
            let fill = Action::exclusive(name, move |tx, arguments, _| {
                tx.insert(arguments.table()?, &[arguments.get::<i32>(at)?.into()])
            });
            fill.by_argument(at)
        };
        db.register(Procedure::new("make", [ColumnType::Int4; 2], make.phase([fill(0), fill(1)]))).unwrap();
        assert_eq!(db.call("make", &[1, 101].map(Value::Int4)), Ok(vec![]), "{engine:?}");
        let table = db.table(name).unwrap();
        assert_eq!(db.transact(|tx| tx.count(&table)), Ok(2), "{engine:?}");
    }
}

/// The last choice in the flow's order is the transaction's, whichever action runs last.
#[test]
fn what_actions_choose_is_their_transactions() {
    for engine in ENGINES {
        for slow in [0, 1] {
            let db = database(engine);
            let choose = |at: usize, durability: Durability| {
                on(at, move |tx, arguments, id| {
                    if at == slow {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    tx.set_durability(durability);
                    tx.insert(arguments.table()?, &row(id, id))
                })
            };
            let flow = Flow::new().phase([choose(0, Durability::Memory), choose(1, Durability::Disk)]);
            db.register(Procedure::new("p", [ColumnType::Int4; 2], flow)).unwrap();
            for keys in [[1, 101], [102, 2]] {
                let (_, ticket) = db.submit_call("p", &keys.map(Value::Int4)).unwrap();
                let ticket = format!("{ticket:?}");
                assert!(ticket.contains("Disk"), "{engine:?}, {slow} is slow, {keys:?}: {ticket}");
            }
        }
    }
}

#[test]
fn a_canceller_from_any_action_cancels_the_transaction() {
    for engine in ENGINES {
        let db = database(engine);
        let canceller = Arc::new(Mutex::new(None::<Canceller>));
        let (gives, takes) = (canceller.clone(), canceller);
        let tells = on(1, move |tx, _, _| {
            *gives.lock().unwrap() = Some(tx.canceller());
            Ok(())
        });
        let cancels = on(2, move |tx, arguments, id| {
            takes.lock().unwrap().take().unwrap().cancel();
            tx.insert(arguments.table()?, &row(id, id))
        });
        let flow = Flow::new().phase([put(0, 1), tells]).phase([cancels]);
        assert_eq!(call(&db, flow, [1, 101, 2]), Err(Error::Cancelled), "{engine:?}");
        assert_eq!(contents(&db), [vec![], vec![]], "{engine:?}");
    }
}

/// One action makes a canceller, and another one waits for a lock on another thread.
#[test]
fn a_cancel_ends_the_waits_of_all_parts() {
    for waiting in [0, 1] {
        let db = database_with(Options { lock_timeout: Duration::from_secs(600), ..options(of_threads(2)) });
        insert(&db, &[(1, 1), (101, 2)]);
        let table = db.table("t").unwrap();
        let canceller = Arc::new(Mutex::new(None::<Canceller>));
        let gives = canceller.clone();
        let wants = on(waiting, move |tx, arguments, id| {
            // The unique key of another row, which is locked.
            tx.update(arguments.table()?, id, &[(1, Value::Int4(9))]).map(drop)
        });
        let tells = on(1 - waiting, move |tx, _, _| {
            *gives.lock().unwrap() = Some(tx.canceller());
            Ok(())
        });
        let actions = if waiting == 0 { [wants, tells] } else { [tells, wants] };
        db.register(Procedure::new("p", [ColumnType::Int4; 2], Flow::new().phase(actions))).unwrap();
        let mut other = db.begin().unwrap();
        other.insert(&table, &row(200, 9)).unwrap();
        let sent = db.send_call("p", &[1, 101].map(Value::Int4)).unwrap();
        while canceller.lock().unwrap().is_none() || db.lock_waits().is_empty() {
            std::thread::yield_now();
        }
        let began = Instant::now();
        canceller.lock().unwrap().as_ref().unwrap().cancel();
        assert_eq!(sent.wait(), Err(Error::Cancelled));
        assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
        other.abort().unwrap();
    }
}

/// In place and on one thread the action on the index sees what an earlier one has changed; so it does on any other
/// engine.
#[test]
fn entries_are_those_that_earlier_actions_leave() {
    for engine in ENGINES {
        let db = database(engine);
        insert(&db, &[(1, 3)]);
        let entries = |at: usize| {
            let entries = Action::shared("t", move |tx, arguments, outputs| {
                let u: i32 = arguments.get(at)?;
                let scan = Scan::prefix(WhichIndex::Secondary(0), vec![u.into()]);
                tx.entries(arguments.table()?, &scan, |_, entry| {
                    outputs.push(entry.get_i32(1)?);
                    Ok(ControlFlow::Continue(()))
                })
            });
            entries.on_index("t_by_u").by_argument(at)
        };
        let moves = on(0, |tx, arguments, id| {
            tx.update(arguments.table()?, id, &[(1, arguments.get::<i32>(1)?.into())]).map(drop)
        });
        let flow =
            Flow::new().phase([entries(1), moves, entries(1), entries(2)]).phase([entries(1), put(3, 20)]);
        let found = call(&db, flow, [1, 7, 3, 101]);
        assert_eq!(found, Ok(vec![Value::Int4(7), Value::Int4(7)]), "{engine:?}");
    }
}

#[test]
fn the_parts_of_a_phase_have_the_room_of_one_transaction() {
    const LIMIT: usize = 1 << 20;
    for engine in ENGINES {
        let db = database_with(Options { write_set_bytes_max: LIMIT, ..options(engine) });
        // The bytes of text for the row of this argument.
        let grow = |at: usize| {
            on(at, move |tx, arguments, id| {
                (0..arguments.get::<i32>(at + 2)?).try_for_each(|nth| {
                    let text = Value::Text(["x", "y"][nth as usize % 2].repeat(1_000));
                    tx.update(arguments.table()?, id, &[(2, text)]).map(drop)
                })
            })
        };
        insert(&db, &[(1, 1), (101, 101)]);
        db.register(Procedure::new("p", [ColumnType::Int4; 4], Flow::new().phase([grow(0), grow(1)])))
            .unwrap();
        for (counts, fits) in
            [([600, 300], true), ([10, 900], true), ([600, 600], false), ([10, 1_100], false)]
        {
            let arguments = [1, 101, counts[0], counts[1]].map(Value::Int4);
            match db.call("p", &arguments) {
                Ok(_) => assert!(fits, "{engine:?}, {counts:?}"),
                Err(Error::WriteSetTooLarge { limit, .. }) => {
                    assert_eq!((fits, limit), (false, LIMIT), "{engine:?}, {counts:?}");
                }
                Err(error) => panic!("{engine:?}, {counts:?}: {error}"),
            }
        }
    }
}

#[test]
fn a_closure_among_other_actions_has_its_turn() {
    for engine in ENGINES {
        let db = database(engine);
        insert(&db, &[(1, 1), (101, 101)]);
        let add = |at: usize| {
            on(at, |tx, arguments, id| {
                tx.modify(arguments.table()?, id, |row| row.add_i32(1, 10).map(drop)).map(drop)
            })
        };
        let doubles = closure(|tx, arguments, _| {
            let table = tx.table("t")?;
            (0..2).try_for_each(|at| {
                let id: i32 = arguments.get(at)?;
                let u = tx.look(&table, id, |row| row.get_i32(1))?.unwrap()?;
                tx.update(&table, id, &[(1, Value::Int4(2 * u))]).map(drop)
            })
        });
        assert_eq!(call(&db, Flow::new().phase([add(0), add(1), doubles, add(0)]), [1, 101]), Ok(vec![]));
        let rows = vec![(1, 32), (101, 222)];
        assert_eq!(contents(&db), [rows.clone(), rows], "{engine:?}");
    }
}

/// Each call has parts on all threads, and as many calls run as may.
#[test]
fn calls_that_are_let_in_are_run() {
    const PARTS: usize = 4;
    let db = database_with(Options { transactions_max: 8, ..options(of_threads(PARTS)) });
    let bounds: Vec<_> = (1..PARTS as i32).map(|part| vec![Value::Int4(1_000 * part)]).collect();
    db.set_executors(PARTS..=PARTS).unwrap();
    db.set_routing("t", WhichIndex::Primary, &bounds).unwrap();
    let puts = (0..PARTS).map(|at| {
        on(at, |tx, arguments, id| {
            std::thread::sleep(Duration::from_micros(300));
            tx.insert(arguments.table()?, &row(id, id))
        })
    });
    db.register(Procedure::new("p", [ColumnType::Int4; PARTS], Flow::new().phase(puts))).unwrap();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for nth in 0..50 {
                    let keys = [0, 1, 2, 3].map(|part| Value::Int4(1_000 * part + 50 * client + nth));
                    assert_eq!(db.call("p", &keys), Ok(vec![]));
                }
            });
        }
    });
    assert_eq!(contents(&db)[1].len(), 800);
}

/// The actions before the first that fails in the flow's order are run, and that action gives the error, whichever
/// failed first.
#[test]
fn the_first_action_that_fails_in_the_flow_tells() {
    for engine in ENGINES {
        let db = database(engine);
        let fails = |at: usize, after: u64, what: &'static str| {
            on(at, move |_, _, _| {
                std::thread::sleep(Duration::from_millis(after));
                Err(Error::aborted(what))
            })
        };
        let flow =
            Flow::new().phase([put(0, 1), fails(0, 10, "the first"), fails(1, 0, "the second"), put(1, 2)]);
        db.register(Procedure::new("p", [ColumnType::Int4; 2], flow)).unwrap();
        for keys in [[1, 101], [101, 1]] {
            let outcome = db.call("p", &keys.map(Value::Int4));
            assert_eq!(outcome, Err(Error::aborted("the first")), "{engine:?}, {keys:?}");
        }
    }
}

/// An action that only reads is not counted as a writer because an earlier phase has written.
#[test]
fn an_action_in_shared_mode_writes_nothing() {
    for engine in ENGINES {
        let db = database(engine);
        insert(&db, &[(2, 2)]);
        let writes: [fn(&mut Transaction, &Arguments<'_>) -> Result<()>; 4] = [
            |tx, arguments| tx.insert(arguments.table()?, &row(arguments.get(1)?, 7)),
            |tx, arguments| {
                let changes = [(1, Value::Int4(7))];
                tx.update(arguments.table()?, arguments.get::<i32>(1)?, &changes).map(drop)
            },
            |tx, arguments| tx.delete(arguments.table()?, arguments.get::<i32>(1)?).map(drop),
            |tx, arguments| tx.get_for_update(arguments.table()?, arguments.get::<i32>(1)?).map(drop),
        ];
        for (nth, write) in writes.into_iter().enumerate() {
            let shared = Action::shared("t", move |tx, arguments, _| write(tx, arguments)).by_argument(1);
            let flow = Flow::new().phase([put(0, 1)]).phase([shared]);
            db.register(Procedure::new(format!("p{nth}"), [ColumnType::Int4; 2], flow)).unwrap();
            for key in [2, 101] {
                let outcome = db.call(&format!("p{nth}"), &[1, key].map(Value::Int4));
                let refused = matches!(&outcome, Err(Error::Procedure { reason, .. }) if reason.contains("shared mode"));
                assert!(refused, "{engine:?}, {nth}, {key}: {outcome:?}");
            }
        }
        assert_eq!(contents(&db), [vec![(2, 2)], vec![(2, 2)]], "{engine:?}");
    }
}

/// A savepoint belongs to its action: no other action rolls back what that one has done, or loses what came before.
#[test]
fn savepoints_do_not_leave_their_action() {
    for engine in ENGINES {
        for phases in [1, 2] {
            let db = database(engine);
            let made = Arc::new(Mutex::new(None::<Savepoint>));
            let (gives, takes, is_there) = (made.clone(), made, Arc::new(AtomicBool::new(false)));
            let there = is_there.clone();
            let makes = on(0, move |tx, arguments, id| {
                *gives.lock().unwrap() = Some(tx.savepoint());
                tx.insert(arguments.table()?, &row(id, id))?;
                is_there.store(true, Ordering::SeqCst);
                Ok(())
            });
            let uses = on(1, move |tx, arguments, id| {
                while !there.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                let savepoint = takes.lock().unwrap().unwrap();
                let outcome = tx.rollback_to(&savepoint);
                assert!(matches!(outcome, Err(Error::NoSuchSavepoint { .. })), "{outcome:?}");
                let own = tx.savepoint();
                tx.insert(arguments.table()?, &row(id, 5))?;
                tx.rollback_to(&own)?;
                tx.insert(arguments.table()?, &row(id, id))
            });
            let flow = match phases {
                1 => Flow::new().phase([makes, uses]),
                _ => Flow::new().phase([makes]).phase([uses]),
            };
            assert_eq!(call(&db, flow, [1, 101]), Ok(vec![]), "{engine:?}");
            let rows = vec![(1, 1), (101, 101)];
            assert_eq!(contents(&db), [rows.clone(), rows], "{engine:?}");
        }
    }
}

/// I3: a part depends on what its transaction has read before.
#[test]
fn a_part_depends_on_what_earlier_phases_have_read() {
    for engine in ENGINES {
        let db = database(engine);
        insert(&db, &[(1, 1), (2, 2), (101, 101)]);
        let table = db.table("t").unwrap();
        let (_, written) = db.submit(|tx| tx.update(&table, 2, &[(1, Value::Int4(9))])).unwrap();
        let look = |at: usize| {
            let look = Action::shared("t", move |tx, arguments, outputs| {
                tx.look(arguments.table()?, arguments.get::<i32>(at)?, |_| ())?;
                outputs.push(tx.settled().lsn().0 as i64);
                Ok(())
            });
            look.by_argument(at)
        };
        let given = call(&db, Flow::new().phase([look(0)]).phase([look(1), look(2)]), [2, 1, 101]).unwrap();
        assert_eq!(given, vec![Value::Int8(written.lsn().0 as i64); 3], "{engine:?}");
        written.wait().unwrap();
    }
}

/// A database in which one thread runs the phase of `p`, its second action first, because that has aborted often.
fn second_first(first: Action, second: Action, rows: &[(i32, i32)]) -> Database {
    let db = database_with(options(planned(of_threads(2), Planning::Adaptive)));
    insert(&db, rows);
    let flow = Flow::new().phase([first, second]);
    db.register(Procedure::new("p", [ColumnType::Int4; 3], flow)).unwrap();
    let began = Instant::now();
    let is_so = || {
        let plans = db.metrics().plans;
        plans.iter().any(|it| matches!(&it.plan, Plan::Serial { first } if first.first() == Some(&1)))
    };
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", db.metrics().plans);
        (0..20).for_each(|_| assert!(db.call("p", &[102, 3, 1].map(Value::Int4)).is_err()));
    }
    db
}

/// Aborts if the third argument says so.
fn may_abort(arguments: &Arguments<'_>) -> Result<()> {
    if arguments.get::<i32>(2)? == 1 { Err(Error::aborted("as it was asked to")) } else { Ok(()) }
}

#[test]
fn a_unique_key_goes_from_row_to_row_in_the_flows_order_whatever_the_plan() {
    let takes = on(1, |tx, arguments, id| {
        may_abort(arguments)?;
        tx.insert(arguments.table()?, &row(id, 7))
    });
    let db = second_first(delete(0), takes, &[(102, 7)]);
    assert_eq!(db.call("p", &[102, 3, 0].map(Value::Int4)), Ok(vec![]));
    assert_eq!(contents(&db), [vec![(3, 7)], vec![(3, 7)]]);
}

#[test]
fn the_last_choice_in_the_flows_order_counts_whatever_the_plan() {
    let choose = |at: usize, durability: Durability| {
        on(at, move |tx, arguments, id| {
            if at == 1 {
                may_abort(arguments)?;
            }
            tx.set_durability(durability);
            tx.insert(arguments.table()?, &row(id, id))
        })
    };
    let db = second_first(choose(0, Durability::Memory), choose(1, Durability::Disk), &[]);
    let (_, ticket) = db.submit_call("p", &[102, 3, 0].map(Value::Int4)).unwrap();
    let ticket = format!("{ticket:?}");
    assert!(ticket.contains("Disk"), "{ticket}");
}

/// An action that decides whether its transaction may write decides it for the actions after it.
#[test]
fn actions_behind_a_choice_not_to_write_are_refused() {
    let chooses =
        |read_only: bool| on(0, move |tx, _, _| tx.choose(&TxOptions { read_only, ..TxOptions::default() }));
    for engine in ENGINES {
        let db = database(engine);
        let flow = |read_only| Flow::new().phase([chooses(read_only), put(1, 5)]);
        assert_eq!(call(&db, flow(true), [1, 101]), Err(Error::ReadOnly), "{engine:?}");
        assert_eq!(contents(&db), [vec![], vec![]], "{engine:?}");
        let flow = Procedure::new("may write", [ColumnType::Int4; 2], flow(false));
        db.register(flow).unwrap();
        let read_only = TxOptions { read_only: true, ..TxOptions::default() };
        let outcome = db.call_with(&read_only, "may write", &[1, 101].map(Value::Int4));
        assert_eq!(outcome, Ok(vec![]), "{engine:?}");
        assert_eq!(contents(&db), [vec![(101, 5)], vec![(101, 5)]], "{engine:?}");
    }
}

#[test]
fn actions_behind_a_choice_not_to_write_are_refused_whatever_the_plan() {
    let chooses = on(0, |tx, _, _| tx.choose(&TxOptions { read_only: true, ..TxOptions::default() }));
    let writes = on(1, |tx, arguments, id| {
        may_abort(arguments)?;
        tx.insert(arguments.table()?, &row(id, 7))
    });
    let db = second_first(chooses, writes, &[]);
    assert_eq!(db.call("p", &[102, 3, 0].map(Value::Int4)), Err(Error::ReadOnly));
    assert_eq!(contents(&db), [vec![], vec![]]);
}

/// Also where the transaction has the whole table already.
#[test]
fn a_unique_key_is_freed_in_one_part_and_given_in_another_under_a_lock_on_the_table() {
    for engine in ENGINES {
        let db = database(engine);
        let rows: Vec<_> = (1_000..6_000).map(|id| (id, id)).collect();
        insert(&db, &rows);
        insert(&db, &[(102, 7)]);
        let scans = Action::exclusive("t", |tx, arguments, _| {
            let scan = Scan { mode: ScanMode::Update, ..Scan::all() };
            tx.scan(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
        });
        let slow = on(0, |tx, arguments, id| {
            std::thread::sleep(Duration::from_millis(5));
            tx.delete(arguments.table()?, id).map(drop)
        });
        let flow = Flow::new().phase([scans]).phase([slow, put(1, 7)]);
        assert_eq!(call(&db, flow, [102, 3]), Ok(vec![]), "{engine:?}");
    }
}

/// With the least number of packets: no part waits for a packet that another part of its transaction has.
#[test]
fn parts_need_no_more_packets_than_their_transaction() {
    let limit = Duration::from_secs(60);
    in_time(limit, move || {
        for (engine, transactions_max) in ENGINES.into_iter().flat_map(|engine| [(engine, 1), (engine, 2)]) {
            let few =
                Options { packets_max: 1, transactions_max, log_wait_max: 10 * limit, ..options(engine) };
            let db = database_with(few);
            for id in 0..10 {
                db.register(Procedure::new(
                    format!("p{id}"),
                    [ColumnType::Int4; 2],
                    Flow::new().phase([put(0, 2 * id), put(1, 2 * id + 1)]),
                ))
                .unwrap();
                let outcome = db.call(&format!("p{id}"), &[id, 101 + id].map(Value::Int4));
                assert_eq!(outcome, Ok(vec![]), "{engine:?}, {transactions_max} transactions");
            }
            // All packets are free again.
            insert(&db, &[(50, 50)]);
        }
    });
}
