//! Calls on threads that own executors, beside the other engines: one meaning, serializable histories, and no lost call
//! when bodies fail, panic, deadlock, or when there are more callers than room.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use crate::common::calls::{self, FAIL, KEYS, READ, STEPS, WRITE, any_call, argument, route};
use crate::common::in_time;
use rialto::io::{MemoryDisk, Random};
use rialto::row::{ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Engine, Error, Executors, Flow, Options, Outputs,
    Plan, Planning, Procedure, Result, Scan, Sent, Transaction, TxOptions,
};

mod plans;

fn options(engine: impl Into<Engine>) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        // Calls wait for handles that a test holds while threads and executors are added and retired.
        lock_timeout: Duration::from_secs(120),
        engine: engine.into(),
        ..Options::default()
    }
}

/// A database with the table and the procedure of `common::calls`.
fn database(options: Options) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    calls::define::<0>(&db);
    db
}

/// The rows by each index.
fn contents(db: &Database) -> Vec<(i32, i32, i64)> {
    let table = db.table("things").unwrap();
    let mut rows = Vec::new();
    for which in [WhichIndex::Primary, WhichIndex::Secondary(0)] {
        db.read(|tx| {
            tx.scan(&table, &Scan::prefix(which, vec![]), |_, row| {
                rows.push((row.get_i32(0)?, row.get_i32(1)?, row.get_i64(2)?));
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
    }
    rows
}

/// The same calls, one after the other, on every engine: their outputs, and the tables in the end, are the same.
#[test]
fn every_engine_comes_to_the_same() {
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let more = |threads| Executors {
        count_max: 6,
        threads_max: if threads > 0 { 4 } else { 0 },
        ..Executors::of(5, threads).handing_over()
    };
    let engines = [Engine::thin(), Engine::central(), more(0).into(), more(1).into(), more(3).into()];
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (mut random, mut calls) = (Random::new(seed), 0);
    while calls == 0 || began.elapsed() < time {
        let inputs: Vec<_> = (0..60).map(|version| any_call(&mut random, version)).collect();
        let outcomes = engines.map(|engine| {
            let db = database(options(engine));
            let mut resized = Random::new(seed);
            let mut call = |arguments: &Vec<Value>| {
                if engine.is_data_oriented() && resized.chance(1, 8) {
                    let executors = 1 + resized.below(6) as usize;
                    db.set_executors(executors..=executors).unwrap();
                    if db.executor_threads() > 0 {
                        let threads = 1 + resized.below(4) as usize;
                        db.set_executor_threads(threads..=threads).unwrap();
                    }
                }
                db.call("steps", arguments).unwrap()
            };
            let given: Vec<_> = inputs.iter().map(&mut call).collect();
            let rows = contents(&db);
            (given, rows)
        });
        for (engine, outcome) in engines.iter().zip(&outcomes) {
            assert_eq!(outcome, &outcomes[0], "{engine:?} against {:?}, RIALTO_SEED={seed}", engines[0]);
        }
        calls += inputs.len();
    }
    println!("tally: engines compared, {calls} calls, RIALTO_SEED={seed}");
}

type Body = fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()>;

/// An action on the row of the key in argument 0, another on that in argument 1; each with its own body.
fn pair(db: &Database, name: &str, bodies: [Body; 2]) {
    let [one, other] = bodies;
    let flow = Flow::new().phase([
        Action::exclusive("things", one).by_argument(0),
        Action::exclusive("things", other).by_argument(1),
    ]);
    db.register(Procedure::new(name, [ColumnType::Int4; 2], flow)).unwrap();
}

fn put<const AT: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let key: i32 = arguments.get(AT)?;
    outputs.push(key);
    tx.insert(arguments.table()?, &[Value::Int4(key), Value::Int4(0), Value::Int8(0)])
}

fn rows(db: &Database) -> u64 {
    let table = db.table("things").unwrap();
    db.transact(|tx| tx.count(&table)).unwrap()
}

fn ints<const N: usize>(values: [i32; N]) -> [Value; N] {
    values.map(Value::Int4)
}

/// Two actions of one phase that each wait until the other runs, too.
#[test]
fn actions_of_one_phase_run_at_the_same_time_on_threads_of_their_own() {
    static THERE: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    fn meet<const ME: usize>(_: &mut Transaction, _: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
        THERE[ME].store(true, Ordering::SeqCst);
        let end = Instant::now() + Duration::from_secs(60);
        while !THERE[1 - ME].load(Ordering::SeqCst) {
            if Instant::now() > end {
                return Err(Error::aborted("the other one never came"));
            }
            std::thread::yield_now();
        }
        outputs.push(ME as i32);
        Ok(())
    }
    let db = database(options(Executors::of(5, 2).handing_over()));
    pair(&db, "meet", [meet::<0>, meet::<1>]);
    // The first and the last dataset belong to the two threads.
    assert_eq!(db.call("meet", &ints([1, i32::MAX])), Ok(ints([0, 1]).to_vec()));
}

#[test]
fn a_body_that_panics_ends_its_transaction_and_no_other() {
    let db = database(options(Executors::of(5, 3).handing_over()));
    pair(&db, "fine", [put::<0>, put::<1>]);
    pair(&db, "first", [|_, _, _| panic!("the first body"), put::<1>]);
    pair(&db, "second", [put::<0>, |_, _, _| panic!("the second body")]);
    for name in ["first", "second"] {
        // On one thread, and on two.
        for keys in [[1, 2], [1, 12], [12, 1]] {
            let panic = catch_unwind(AssertUnwindSafe(|| db.call(name, &ints(keys)))).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&format!("the {name} body")[..]).as_ref());
            assert_eq!(rows(&db), 0);
        }
    }
    assert_eq!(db.call("fine", &ints([1, 12])), Ok(ints([1, 12]).to_vec()));
    assert_eq!(rows(&db), 2);
}

/// Both actions have begun, each on its thread.
static BOTH_RUN: Barrier = Barrier::new(2);

/// The payload of a panic.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the destructor of what a panic carries");
    }
}

/// The thread that ends the call drops the payload of the other panic.
#[test]
fn of_two_panics_the_first_in_the_flow_is_told_whatever_the_other_carries() {
    in_time(Duration::from_secs(60), || {
        let db = database(options(Executors::of(5, 3).handing_over()));
        let bodies: [Body; 2] = [
            |_, _, _| {
                BOTH_RUN.wait();
                panic!("the first body")
            },
            |_, _, _| {
                BOTH_RUN.wait();
                std::panic::panic_any(PanicsWhenDropped)
            },
        ];
        pair(&db, "both", bodies);
        pair(&db, "fine", [put::<0>, put::<1>]);
        let panic = catch_unwind(AssertUnwindSafe(|| db.call("both", &ints([1, 12])))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the first body"));
        assert_eq!(db.call("fine", &ints([1, 12])), Ok(ints([1, 12]).to_vec()));
    });
}

#[test]
fn a_body_that_fails_keeps_nothing_and_the_first_in_the_flow_tells() {
    let db = database(options(Executors::of(5, 3).handing_over()));
    pair(
        &db,
        "fails",
        [|_, _, _| Err(Error::aborted("the first")), |_, _, _| Err(Error::aborted("the second"))],
    );
    pair(&db, "half", [put::<0>, |_, _, _| Err(Error::aborted("half of it"))]);
    for keys in [[1, 2], [1, 12], [12, 1]] {
        assert_eq!(db.call("half", &ints(keys)), Err(Error::aborted("half of it")));
        assert_eq!(rows(&db), 0);
        // If both have failed; the other's failure may have spared one of them.
        let failed = db.call("fails", &ints(keys)).unwrap_err();
        assert!([Error::aborted("the first"), Error::aborted("the second")].contains(&failed), "{failed}");
    }
    pair(&db, "leaves_scope", [put::<0>, put::<0>]);
    let refused = db.call("leaves_scope", &ints([1, 12])).unwrap_err();
    assert!(refused.to_string().contains("identifier"), "{refused}");
    assert_eq!(rows(&db), 0);
}

/// Deadlocks between parts of transactions: two phases lock the same two keys in opposite orders.
#[test]
fn cycles_through_parts_of_phases_are_broken_and_run_again() {
    let db = database(options(Executors::of(5, 2).handing_over()));
    pair(&db, "fine", [put::<0>, put::<1>]);
    db.call("fine", &ints([1, 12])).unwrap();
    db.call("fine", &ints([2, 13])).unwrap();
    fn add<const AT: usize>(tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs) -> Result<()> {
        let key: i32 = arguments.get(AT)?;
        assert!(tx.modify(arguments.table()?, key, |row| row.add_i64(2, 1).map(drop))?);
        std::thread::yield_now();
        Ok(())
    }
    let on = |body: Body, at| Action::exclusive("things", body).by_argument(at);
    let flow =
        Flow::new().phase([on(add::<0>, 0), on(add::<1>, 1)]).phase([on(add::<2>, 2), on(add::<3>, 3)]);
    db.register(Procedure::new("around", [ColumnType::Int4; 4], flow)).unwrap();
    const EACH: i64 = 150;
    std::thread::scope(|scope| {
        for keys in [[1, 12, 2, 13], [2, 13, 1, 12], [13, 1, 12, 2], [12, 2, 13, 1]] {
            let db = &db;
            scope.spawn(move || (0..EACH).for_each(|_| db.call("around", &ints(keys)).map(drop).unwrap()));
        }
    });
    let table = db.table("things").unwrap();
    for key in [1, 2, 12, 13] {
        let sum = db.transact(|tx| tx.look(&table, key, |row| row.get_i64(2))).unwrap();
        assert_eq!(sum, Some(Ok(4 * EACH)));
    }
    assert!(db.lock_waits().is_empty());
}

/// So many calls conflict in opposite orders that deadlock detection is most of the work. A holder of locks is run all
/// the same, and no waiter waits for its turn to detect when its lock is free.
#[test]
fn hundreds_of_calls_that_meet_in_opposite_orders_go_on() {
    // Three hundred calls wait for two rows: on a slow machine the last of them for long.
    let lock_timeout = Duration::from_secs(120);
    let db = database(Options {
        transactions_max: 1_000,
        lock_timeout,
        ..options(Executors::of(5, 2).handing_over())
    });
    route(&db, &[1]);
    let things = db.table("things").unwrap();
    let row = |id| [Value::Int4(id), Value::Int4(0), Value::Int8(0)];
    db.transact(|tx| [0, 1].into_iter().try_for_each(|id| tx.insert(&things, &row(id)))).unwrap();
    fn add<const AT: usize>(tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs) -> Result<()> {
        let key: i32 = arguments.get(AT)?;
        tx.modify(arguments.table()?, key, |row| row.add_i64(2, 1).map(drop)).map(drop)
    }
    let on = |body: Body, at| Action::exclusive("things", body).by_argument(at);
    let flow = Flow::new().phase([on(add::<0>, 0)]).phase([on(add::<1>, 1)]);
    db.register(Procedure::new("across", [ColumnType::Int4; 2], flow)).unwrap();
    let mut sent: Vec<Sent> =
        (0..300).map(|nth| db.send_call("across", &ints([nth % 2, 1 - nth % 2])).unwrap()).collect();
    let (began, mut done) = (Instant::now(), 0);
    while done < 10 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{done} of 300 calls have come through in a minute"
        );
        match sent.iter_mut().position(Sent::is_done) {
            Some(at) => {
                sent.swap_remove(at).wait().unwrap();
                done += 1;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// More callers than calls are admitted, on fewer contexts than parts ask for: all get their turn.
#[test]
fn callers_wait_for_room_and_all_have_their_turn() {
    let db = database(Options { transactions_max: 6, ..options(Executors::of(5, 2).handing_over()) });
    const CALLERS: i32 = 40;
    let calls = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (db, calls) = (&db, calls.clone());
            scope.spawn(move || {
                for nth in 0..20 {
                    let mut arguments = vec![Value::Int8(i64::from(caller * 20 + nth))];
                    for step in 0..STEPS as i32 {
                        arguments.extend([WRITE, (caller + 5 * step) % KEYS, 0].map(Value::Int4));
                    }
                    db.call("steps", &arguments).unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), CALLERS as u64 * 20);
}

/// A handle that is dropped in the middle leaves nothing that a call would wait for.
#[test]
fn a_client_that_goes_away_holds_up_no_other() {
    for threads in [0, 2] {
        let db = database(options(Executors::of(5, threads).handing_over()));
        pair(&db, "fine", [put::<0>, put::<1>]);
        let table = db.table("things").unwrap();
        let mut handle = db.begin().unwrap();
        handle.insert(&table, &[Value::Int4(1), Value::Int4(0), Value::Int8(0)]).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| db.call("fine", &ints([1, 12])));
            while db.lock_waits().is_empty() {
                std::thread::yield_now();
            }
            drop(handle);
            assert_eq!(call.join().unwrap(), Ok(ints([1, 12]).to_vec()));
        });
        assert_eq!(rows(&db), 2);
    }
}

/// Waits until the flag is set.
fn until(flag: &AtomicBool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while !flag.load(Ordering::SeqCst) {
        if Instant::now() > end {
            return Err(Error::aborted("waited in vain"));
        }
        std::thread::yield_now();
    }
    Ok(())
}

#[test]
fn a_close_waits_for_no_call_that_waits_for_a_lock() {
    let db = database(options(Executors::of(5, 2).handing_over()));
    pair(&db, "fine", [put::<0>, put::<1>]);
    let table = db.table("things").unwrap();
    let mut handle = db.begin().unwrap();
    handle.insert(&table, &[Value::Int4(1), Value::Int4(0), Value::Int8(0)]).unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| db.call("fine", &ints([1, 12])));
        while db.lock_waits().is_empty() {
            std::thread::yield_now();
        }
        db.clone().close().unwrap();
        assert_eq!(call.join().unwrap(), Err(Error::Closed));
        assert_eq!(db.call("fine", &ints([2, 13])), Err(Error::Closed));
    });
    drop(handle);
}

/// A body that runs in place has leased lock tables, however long it takes: a request for metrics does not wait for it.
#[test]
fn metrics_wait_for_no_body() {
    static IS_IN: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    fn slow(_: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs) -> Result<()> {
        IS_IN.store(true, Ordering::SeqCst);
        until(&GO_ON)
    }
    let db = database(options(Executors::of(5, 0)));
    pair(&db, "fine", [put::<0>, put::<1>]);
    pair(&db, "slow", [slow, put::<1>]);
    let requests = |db: &Database| db.metrics().executor_requests.iter().sum::<u64>();
    let before = requests(&db);
    db.call("fine", &ints([1, 12])).unwrap();
    let after = requests(&db);
    assert!(after > before);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| db.call("slow", &ints([2, 13])));
        until(&IS_IN).unwrap();
        let asks = db.clone();
        let meanwhile = in_time(Duration::from_secs(30), move || requests(&asks));
        assert!(meanwhile >= after, "{meanwhile}, {after} before");
        GO_ON.store(true, Ordering::SeqCst);
        call.join().unwrap().unwrap();
        assert!(requests(&db) > meanwhile);
    });
}

/// A body that has leased a lock table asks which transactions wait, while one waits for a lock in that table.
#[test]
fn a_body_may_ask_which_transactions_wait() {
    static DATABASE: OnceLock<Database> = OnceLock::new();
    let db = DATABASE.get_or_init(|| database(options(Executors::of(5, 0))));
    pair(db, "fine", [put::<0>, put::<1>]);
    pair(
        db,
        "asks",
        [
            |_, _, outputs| {
                outputs.push(DATABASE.get().map_or(-1, |db| db.lock_waits().len() as i32));
                Ok(())
            },
            put::<1>,
        ],
    );
    let table = db.table("things").unwrap();
    let mut holder = db.begin().unwrap();
    holder.insert(&table, &[Value::Int4(1), Value::Int4(0), Value::Int8(0)]).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| db.call("fine", &ints([1, 12])));
        while db.lock_waits().is_empty() {
            std::thread::yield_now();
        }
        let asked =
            in_time(Duration::from_secs(60), || DATABASE.get().map(|db| db.call("asks", &ints([2, 3]))));
        // The asking body has leased the table, so nothing can be said of the waiters in it.
        assert_eq!(asked, Some(Ok(ints([0, 3]).to_vec())));
        assert_eq!(db.lock_waits().len(), 1);
        drop(holder);
        assert_eq!(waiter.join().unwrap(), Ok(ints([1, 12]).to_vec()));
    });
}

#[test]
fn a_call_inside_of_a_body_is_refused() {
    let db = database(options(Executors::of(5, 2).handing_over()));
    pair(&db, "fine", [put::<0>, put::<1>]);
    let nested = db.transact(|_| db.call("fine", &ints([1, 12])).map(drop));
    assert_eq!(nested, Err(Error::Nested));
}

/// Calls that wait for a lock, on threads that are retired meanwhile, and later calls: each has its outcome, once.
#[test]
fn threads_come_and_go_under_calls_that_wait_and_no_call_is_lost() {
    let db =
        database(options(Executors { threads_max: 5, count_max: 9, ..Executors::of(5, 4).handing_over() }));
    pair(&db, "fine", [put::<0>, put::<1>]);
    let add = |at: usize| {
        let add = move |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
            let key: i32 = arguments.get(at)?;
            assert!(tx.modify(arguments.table()?, key, |row| row.add_i64(2, 1).map(drop))?);
            Ok(())
        };
        Action::exclusive("things", add).by_argument(at)
    };
    let flow = Flow::new().phase([add(0), add(1)]);
    db.register(Procedure::new("adds", [ColumnType::Int4; 2], flow)).unwrap();
    const KEYS_HERE: i32 = 14;
    for key in (0..KEYS_HERE).step_by(2) {
        db.call("fine", &ints([key, key + 1])).unwrap();
    }
    let table = db.table("things").unwrap();
    const CLIENTS: i32 = 8;
    let calls = Arc::new(AtomicU64::new(0));
    for round in 0..30 {
        // Every client's first call needs a row that a handle has locked.
        let mut handle = db.begin().unwrap();
        assert!(handle.modify(&table, 0, |row| row.add_i64(2, 0).map(drop)).unwrap());
        // Not in a scope, which would wait for lost calls.
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (db, calls) = (db.clone(), calls.clone());
                std::thread::spawn(move || {
                    for key in [0, 1 + (client + round) % (KEYS_HERE - 1)] {
                        let other = (key + 1 + client) % KEYS_HERE;
                        let other = if other == key { (other + 1) % KEYS_HERE } else { other };
                        db.call("adds", &ints([key, other])).unwrap();
                        calls.fetch_add(2, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let began = Instant::now();
        while db.lock_waits().is_empty() && began.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        for (threads, executors) in [(1, 9), (5, 1), (2, 5)] {
            db.set_executor_threads(threads..=threads).unwrap();
            db.set_executors(executors..=executors).unwrap();
            assert_eq!((db.executor_threads(), db.executors()), (threads, executors));
        }
        drop(handle);
        let ended = || clients.iter().all(|client| client.is_finished());
        while !ended() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(ended(), "round {round}: a call is lost; {:?}", db.lock_waits());
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
    let mut sum = 0;
    db.transact(|tx| {
        tx.scan(&table, &Scan::all(), |_, row| {
            sum += row.get_i64(2)?;
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(sum as u64, calls.load(Ordering::Relaxed));
    assert!(db.lock_waits().is_empty());
}

/// The engine adds threads and executors with load, within their bounds, and retires them when it is gone.
#[test]
fn numbers_follow_the_load_between_their_bounds() {
    let db = database(options(Executors { threads_max: 2, ..Executors::of(5, 1).handing_over() }));
    assert_eq!((db.executors(), db.executor_threads()), (5, 1));
    let stop = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut random = Random::new(client);
                while !stop.load(Ordering::Relaxed) {
                    let mut arguments = vec![Value::Int8(1)];
                    for _ in 0..STEPS {
                        arguments.extend([READ, random.below(KEYS as u64) as i32, 0].map(Value::Int4));
                    }
                    db.call("steps", &arguments).unwrap();
                }
            });
        }
        let until = |threads| {
            let began = Instant::now();
            while db.executor_threads() != threads && began.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(10));
            }
            db.executor_threads()
        };
        let grown = until(2.min(cores));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(grown, 2.min(cores));
        assert_eq!(until(1), 1);
    });
}

#[test]
fn numbers_out_of_bounds_are_refused_by_name() {
    let db = database(options(Executors { threads_max: 4, ..Executors::of(5, 2).handing_over() }));
    let in_place = database(options(Executors::of(5, 0)));
    let thin = database(options(Engine::thin()));
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let refused = [
        (db.set_executor_threads(1..=5), "1 to 4 (Executors::threads_max)"),
        (db.set_executor_threads(0..=2), "0 to 2 threads"),
        (db.set_executor_threads(3..=2), "3 to 2 threads"),
        (db.set_executors(1..=6), "1 to 5 (Executors::count_max)"),
        (in_place.set_executor_threads(1..=1), "Executors::threads"),
        (thin.set_executors(1..=1), "engine DataOriented"),
    ];
    for (refused, named) in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    assert_eq!((db.executor_threads(), thin.executors(), in_place.executor_threads()), (2, 0, 0));
    let executors = Executors::of(5, 0);
    for (executors, named) in [
        (Executors { count_max: 4, ..executors }, "count_max is 4 with count 5"),
        (Executors { threads_max: 4, ..executors }, "threads_max is 4 without threads"),
        (Executors { threads: 257, ..executors }, "threads is 257"),
    ] {
        let error = Database::open_on(MemoryDisk::new(), options(executors)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    db.clone().close().unwrap();
    assert_eq!(db.set_executor_threads(3..=3), Err(Error::Closed));
}
