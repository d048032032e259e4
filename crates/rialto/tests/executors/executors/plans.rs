//! How phases are run, by the plans of their procedures.

use super::*;

/// The plan of a procedure's phase.
fn plan_of(db: &Database, procedure: &str, phase: usize) -> Plan {
    let plans = db.metrics().plans;
    let found = plans.into_iter().find(|plan| (&plan.procedure[..], plan.phase) == (procedure, phase));
    found.map_or(Plan::Parallel, |found| found.plan)
}

/// Calls until the plan is this one.
fn call_until(db: &Database, phase: usize, position: Option<u8>, mut call: impl FnMut()) {
    let is_so = |plan| match (plan, position) {
        (Plan::Serial { first }, Some(position)) => first.first() == Some(&position),
        (Plan::Parallel, None) => true,
        _ => false,
    };
    let began = Instant::now();
    while !is_so(plan_of(db, "steps", phase)) {
        (0..20).for_each(|_| call());
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", db.metrics().plans);
    }
}

/// A call that reads, and fails in one of its steps.
fn failing(step: usize) -> Vec<Value> {
    let mut arguments = vec![Value::Int8(0)];
    arguments.extend((0..STEPS as i32).flat_map(|key| [READ, key, 0].map(Value::Int4)));
    arguments[argument(step, 0)] = Value::Int4(FAIL);
    arguments
}

/// The same calls, some of which fail, under parallel and under serial plans: their outputs, and the tables in the end,
/// are the same. The order among actions that overlap is the flow's, and so is that of the outputs.
#[test]
fn plans_change_neither_outcomes_nor_tables() {
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    let inputs: Vec<_> = (0..1_500)
        .map(|version| {
            let mut arguments = any_call(&mut random, version);
            if random.chance(1, 3) {
                let step = random.below(STEPS as u64) as usize;
                arguments[argument(step, 0)] = Value::Int4(FAIL);
            }
            arguments
        })
        .collect();
    let run = |planning, serial: bool| {
        let db = database(options(Executors { planning, ..Executors::of(5, 3).handing_over() }));
        let fail = |step| assert!(db.call("steps", &failing(step)).is_err());
        if serial {
            // The last steps of the phases: their actions are the third and the fifth there.
            call_until(&db, 1, Some(4), || fail(5));
            call_until(&db, 0, Some(4), || fail(2));
        }
        let given: Vec<_> = inputs.iter().map(|arguments| db.call("steps", arguments)).collect();
        (given, contents(&db))
    };
    let parallel = run(Planning::Parallel, false);
    let serial = run(Planning::Adaptive, true);
    for ((parallel, serial), arguments) in parallel.0.iter().zip(&serial.0).zip(&inputs) {
        assert_eq!(serial, parallel, "{arguments:?}, RIALTO_SEED={seed}");
    }
    assert_eq!(serial.1, parallel.1, "RIALTO_SEED={seed}");
}

/// A choice of whether to write needs the whole transaction where actions run in another order than the flow's. Few
/// calls run twice for it, and none where the plan's order is the flow's.
#[test]
fn calls_of_a_serial_plan_that_choose_whether_to_write_run_once() {
    static BODIES: AtomicU64 = AtomicU64::new(0);
    /// Of these, the actions that do not fail.
    static OTHERS: AtomicU64 = AtomicU64::new(0);
    const CALLS: u64 = 100;
    /// Longer than the other action takes to begin.
    const WITHIN: Duration = Duration::from_millis(5);
    for aborting in [0, 1] {
        let db = database(options(Executors::of(5, 2).handing_over()));
        let action = |at: usize| {
            let body = move |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
                BODIES.fetch_add(1, Ordering::Relaxed);
                let fails: i32 = arguments.get(2)?;
                match fails {
                    9 if at == 0 => tx.choose(&TxOptions { read_only: true, ..TxOptions::default() }),
                    _ if fails == at as i32 => {
                        // When it has failed, the other one is no longer begun: they run at the same time only if it
                        // waits.
                        let (before, began) = (OTHERS.load(Ordering::Relaxed), Instant::now());
                        while OTHERS.load(Ordering::Relaxed) == before && began.elapsed() < WITHIN {
                            std::thread::yield_now();
                        }
                        Err(Error::aborted("as it was asked to"))
                    }
                    _ => {
                        OTHERS.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    }
                }
            };
            Action::shared("things", body).by_argument(at)
        };
        // The keys belong to two threads.
        db.register(Procedure::new(
            "chooses",
            [ColumnType::Int4; 3],
            Flow::new().phase([action(0), action(1)]),
        ))
        .unwrap();
        let call = |fails| db.call("chooses", &[1, 12, fails].map(Value::Int4));
        let began = Instant::now();
        while !matches!(plan_of(&db, "chooses", 0), Plan::Serial { first } if first[0] == aborting) {
            (0..20).for_each(|_| assert!(call(i32::from(aborting)).is_err()));
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", db.metrics().plans);
        }
        BODIES.store(0, Ordering::Relaxed);
        (0..CALLS).for_each(|_| assert_eq!(call(9), Ok(vec![])));
        let bodies = BODIES.load(Ordering::Relaxed);
        assert!(
            (2 * CALLS..2 * CALLS + CALLS / 2).contains(&bodies),
            "action {aborting} first: {bodies} bodies"
        );
    }
}

/// The action that aborts changes over time: the plan follows, back and forth, and no call is lost or done twice.
#[test]
fn a_plan_follows_how_often_actions_abort() {
    let db = database(options(Executors::of(5, 2).handing_over()));
    let change = |at: usize| {
        let change = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
            if arguments.get::<i32>(2)? == at as i32 {
                return Err(Error::aborted("as it was asked to"));
            }
            let key: i32 = arguments.get(at)?;
            outputs.push(key);
            assert!(tx.modify(arguments.table()?, key, |row| row.add_i64(2, 1).map(drop))?);
            Ok(())
        };
        Action::exclusive("things", change).by_argument(at)
    };
    pair(&db, "fine", [put::<0>, put::<1>]);
    db.call("fine", &ints([1, 12])).unwrap();
    // The keys belong to two threads.
    let flow = Flow::new().phase([change(0), change(1)]);
    db.register(Procedure::new("changes", [ColumnType::Int4; 3], flow)).unwrap();
    let (aborting, stop, done) = (AtomicU64::new(9), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (db, aborting, stop, done) = (&db, &aborting, &stop, &done);
            scope.spawn(move || {
                let mut random = Random::new(client);
                while !stop.load(Ordering::Relaxed) {
                    let fails = if random.chance(3, 5) { aborting.load(Ordering::Relaxed) as i32 } else { 9 };
                    match db.call("changes", &[1, 12, fails].map(Value::Int4)) {
                        Ok(given) => {
                            assert_eq!((given, fails), (ints([1, 12]).to_vec(), 9));
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!((error, fails < 2), (Error::aborted("as it was asked to"), true));
                        }
                    }
                }
            });
        }
        let follows = || {
            for (action, expected) in [(1, Some(1)), (9, None), (0, Some(0)), (1, Some(1)), (9, None)] {
                aborting.store(action, Ordering::Relaxed);
                let began = Instant::now();
                loop {
                    let first = match plan_of(&db, "changes", 0) {
                        Plan::Serial { first } => Some(first[0]),
                        Plan::Parallel => None,
                    };
                    if first == expected {
                        break;
                    }
                    if began.elapsed() > Duration::from_secs(60) {
                        return Err(format!(
                            "{action} aborts, expected {expected:?}: {:?}",
                            db.metrics().plans
                        ));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                println!("action {action} aborts, followed in {:?}", began.elapsed());
            }
            Ok(())
        };
        let followed = follows();
        stop.store(true, Ordering::Relaxed);
        followed.unwrap();
    });
    // Read here: a sanitizer does not see the end of a scope.
    let (table, done) = (db.table("things").unwrap(), done.load(Ordering::Relaxed));
    for key in [1, 12] {
        let sum = db.transact(|tx| tx.look(&table, key, |row| row.get_i64(2))).unwrap();
        assert_eq!(sum, Some(Ok(done as i64)));
    }
    let plans = db.metrics().plans;
    let counted = plans.iter().find(|plan| plan.procedure == "changes").unwrap();
    assert!(counted.calls > done && counted.actions[1].aborts > 0 && counted.actions[0].aborts > 0);
    assert!(db.lock_waits().is_empty());
}

/// A hot range that moves is followed: datasets are divided anew, and no call is lost meanwhile.
#[test]
fn a_hot_range_is_shared_out_wherever_it_goes() {
    const ROWS: i32 = 3_000;
    const MANY: u64 = 50;
    const LIMIT: Duration = Duration::from_secs(120);
    for threads in [0, 2] {
        let db = database(options(Executors::of(4, threads).handing_over()));
        let table = db.table("things").unwrap();
        db.transact(|tx| {
            (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0), Value::Int8(0)]))
        })
        .unwrap();
        let touch = Action::exclusive("things", |tx, arguments, _| {
            let key: i32 = arguments.get(0)?;
            tx.modify(arguments.table()?, key, |row| row.add_i64(2, 1).map(drop)).map(drop)
        });
        db.register(Procedure::new("touch", [ColumnType::Int4], touch.by_argument(0))).unwrap();
        // Beside each call, cheap requests for many keys: a table with few requests a second is not examined, and a
        // slow machine makes few calls.
        let touch_many = |random: &mut Random, hot: u64| {
            let mut keys: Vec<i32> = (0..MANY).map(|_| (hot + random.below(200)) as i32).collect();
            keys.sort_unstable();
            db.transact(|tx| {
                keys.iter()
                    .try_for_each(|&key| tx.modify(&table, key, |row| row.add_i64(2, 1).map(drop)).map(drop))
            })
            .unwrap();
        };
        let (hot, stop, touches) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for client in 0..2 {
                let (db, hot, stop, touches, touch_many) = (&db, &hot, &stop, &touches, &touch_many);
                scope.spawn(move || {
                    let mut random = Random::new(client);
                    while !stop.load(Ordering::Relaxed) {
                        let hot = hot.load(Ordering::Relaxed);
                        let key = hot + random.below(200);
                        db.call("touch", &[Value::Int4(key as i32)]).unwrap();
                        touch_many(&mut random, hot);
                        touches.fetch_add(1 + MANY, Ordering::Relaxed);
                    }
                });
            }
            for first in [0, 2_500, 1_100] {
                hot.store(first, Ordering::Relaxed);
                let began = Instant::now();
                loop {
                    let before = db.metrics().executor_requests;
                    let served_since = || {
                        let after = db.metrics().executor_requests;
                        after.iter().zip(&before).map(|(after, before)| after - before).collect()
                    };
                    let mut served: Vec<u64> = served_since();
                    // Few requests are no evidence.
                    while served.iter().sum::<u64>() <= 400 && began.elapsed() <= LIMIT {
                        std::thread::sleep(Duration::from_millis(200));
                        served = served_since();
                    }
                    let (all, most): (u64, u64) = (served.iter().sum(), *served.iter().max().unwrap());
                    if all > 400 && (most * 4) as f64 <= 1.2 * all as f64 {
                        println!(
                            "hot range at {first}, {threads} threads, shared out in {:?}",
                            began.elapsed()
                        );
                        break;
                    }
                    if began.elapsed() > LIMIT {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{threads} threads, hot from {first}: {served:?}");
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut sum = 0;
        db.transact(|tx| {
            tx.scan(&table, &Scan::all(), |_, row| {
                sum += row.get_i64(2)?;
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        // Read here: a sanitizer does not see the end of a scope.
        assert_eq!(sum as u64, touches.load(Ordering::Relaxed));
    }
}
