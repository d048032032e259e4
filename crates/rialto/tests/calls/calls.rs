//! Calls in the log (System M's TOPER): run again after crashes, beside values, DDL and bulk loads, with one thread and with
//! several; and what is refused, or found out, so that nothing is lost.

mod errors;
mod local_locks;
mod refused;
mod replayed_bodies;
mod tables;
mod versions;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rialto::io::{FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Flow, LockForm, Logging, Options, Procedure, Result,
    Scan, ScanMode, Table, TableDef, Transaction, TxOptions,
};

const ACCOUNTS: i32 = 24;

fn exclusive(
    table: &str,
    body: impl Fn(&mut Transaction, &Table, &[Value]) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Action::exclusive(table, move |tx, arguments, _| body(tx, arguments.table()?, arguments.values()))
}

fn int4(value: &Value) -> i32 {
    match value {
        Value::Int4(value) => *value,
        other => panic!("{other:?}"),
    }
}

fn int8(value: &Value) -> i64 {
    match value {
        Value::Int8(value) => *value,
        other => panic!("{other:?}"),
    }
}

/// Marks transaction `n` as done.
fn done() -> Action {
    exclusive("done", |tx, table, values| tx.insert(table, &values[..1])).by_argument(0)
}

/// From one account to another, and into the history, whose rows have no key: (n, from, to, amount).
fn transfer() -> Procedure {
    let account = |position: usize, sign: i64| {
        exclusive("accounts", move |tx, table, values| {
            let add = |fields: &mut rialto::Fields<'_>| fields.add(1, sign * int8(&values[3])).map(drop);
            tx.modify(table, int4(&values[position]), add).map(drop)
        })
        .by_argument(position)
    };
    let out_of = exclusive("history", |tx, table, values| {
        tx.insert(table, &[values[1].clone(), values[3].clone()])?;
        // One that is taken back takes a row number, too.
        let savepoint = tx.savepoint();
        tx.insert(table, &[values[1].clone(), Value::Int8(0)])?;
        tx.rollback_to(&savepoint)
    });
    let into = exclusive("history", |tx, table, values| {
        tx.insert(table, &[values[2].clone(), Value::Int8(-int8(&values[3]))])
    });
    let history = [out_of.by_argument(1), into.by_argument(2)];
    let flow = Flow::new().phase([account(1, -1), account(2, 1)].into_iter().chain(history)).phase([done()]);
    let types = [ColumnType::Int8, ColumnType::Int4, ColumnType::Int4, ColumnType::Int8];
    Procedure::new("transfer", types, flow).deterministic(1)
}

/// Another text, which may make the row move, and changes its unique key: (n, account, text).
fn rename() -> Procedure {
    let account = exclusive("accounts", |tx, table, values| {
        tx.update(table, int4(&values[1]), &[(2, values[2].clone())]).map(drop)
    });
    let flow = Flow::new().phase([account.by_argument(1)]).phase([done()]);
    Procedure::new("rename", [ColumnType::Int8, ColumnType::Int4, ColumnType::Text], flow).deterministic(3)
}

/// Gives an account a text, and whoever had it another one: (n, account, text). Who that is the index tells, so what the call
/// touches does not follow from its arguments.
fn take_over() -> Procedure {
    let rename = |text: fn(&[Value]) -> Value| {
        move |tx: &mut Transaction, table: &Table, id: i32, values: &[Value]| {
            tx.update(table, id, &[(2, text(values))]).map(drop)
        }
    };
    let find = Action::shared("accounts", |tx, arguments, outputs| {
        let (table, text) = (arguments.table()?, arguments.get_str(2)?);
        let holder = tx.probe(table, arguments.index(), text, ScanMode::Share, |entry| entry.get("id"))?;
        outputs.push(holder.transpose()?);
        Ok(())
    });
    let free = rename(|values| Value::Text(format!("{} free", values[0])));
    let free = Action::exclusive("accounts", move |tx, arguments, outputs| {
        let holder = outputs.get::<i32>(0).expect("it is left out without");
        free(tx, arguments.table()?, holder, arguments.values())
    });
    let give = rename(|values| values[2].clone());
    let give = exclusive("accounts", move |tx, table, values| give(tx, table, int4(&values[1]), values));
    let flow = Flow::new()
        .phase([find.on_index("by_text").by_argument(2)])
        .phase([free.by_output(0).when_output(0)])
        .phase([give.by_argument(1), done()]);
    Procedure::new("take over", [ColumnType::Int8, ColumnType::Int4, ColumnType::Text], flow).deterministic(1)
}

/// Takes the oldest row out of the history, by a scan: a plain closure, which may touch anything: (n).
fn forget() -> Procedure {
    let flow = Flow::of(|tx, arguments, _| {
        let (history, done) = (tx.table("history")?, tx.table("done")?);
        let mut oldest = None;
        tx.scan(&history, &Scan::all(), |key, _| {
            oldest = Some(key.clone());
            Ok(ControlFlow::Break(()))
        })?;
        if let Some(oldest) = oldest {
            tx.delete_at(&history, &oldest)?;
        }
        tx.insert(&done, &arguments.values()[..1])
    });
    Procedure::new("forget", [ColumnType::Int8], flow).deterministic(1)
}

/// Closes an account and opens it again with nothing, in one transaction: (n, account).
fn renew() -> Procedure {
    let account = exclusive("accounts", |tx, table, values| {
        let id = int4(&values[1]);
        let row = tx.get(table, id)?;
        if let Some(row) = row {
            tx.delete(table, id)?;
            let text = row.view().get(2);
            tx.insert(table, &[Value::Int4(id), Value::Int8(0), text])?;
        }
        Ok(())
    });
    let flow = Flow::new().phase([account.by_argument(1)]).phase([done()]);
    Procedure::new("renew", [ColumnType::Int8, ColumnType::Int4], flow).deterministic(1)
}

fn procedures() -> Vec<Procedure> {
    vec![transfer(), rename(), take_over(), forget(), renew()]
}

fn options(logging: Logging) -> Options {
    Options {
        memory_bytes: 64 << 20,
        logging,
        procedures: procedures(),
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 3,
        ..Options::default()
    }
}

fn calls() -> Options {
    options(Logging::Transaction)
}

fn prepare(db: &Database) {
    db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("balance", ColumnType::Int8),
            Column::new("text", ColumnType::Text),
        ];
        tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&["id"]))?;
        tx.create_index("accounts", "by_balance", &["balance"], false)?;
        tx.create_index("accounts", "by_text", &["text"], true)?;
        let columns = vec![Column::new("account", ColumnType::Int4), Column::new("delta", ColumnType::Int8)];
        tx.create_table(&TableDef::new("history", columns))?;
        let columns = vec![Column::new("n", ColumnType::Int8)];
        tx.create_table(&TableDef::new("done", columns).with_primary_key(&["n"]))?;
        Ok(())
    })
    .unwrap();
    let accounts = db.table("accounts").unwrap();
    db.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|id| {
            tx.insert(&accounts, &[Value::Int4(id), Value::Int8(0), Value::Text(format!("account {id}"))])
        })
    })
    .unwrap();
}

/// All tables: by each index the rows, as text, in its order.
fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    let mut tx = db.begin().unwrap();
    for table in db.tables() {
        let name = table.name();
        if name.starts_with("rialto_") {
            continue;
        }
        let schema = table.schema();
        let indexes = (0..schema.indexes().len()).map(WhichIndex::Secondary);
        for which in std::iter::once(WhichIndex::Primary).chain(indexes) {
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                let values: Vec<String> =
                    (0..schema.columns().len()).map(|at| row.get(at).to_string()).collect();
                all.push(format!("{name} by {which:?}: {}", values.join(", ")));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        }
        all.push(format!("{name}: {} rows", table.rows_estimate()));
    }
    // The log may have stopped.
    let _ = tx.abort();
    all
}

/// Transactions 1 to this are done.
fn done_in(db: &Database) -> i64 {
    let table = db.table("done").unwrap();
    let mut last = 0;
    db.read(|tx| {
        last = 0;
        tx.scan(&table, &Scan::all(), |_, row| {
            last += 1;
            assert_eq!(row.get_i64(0)?, last, "a prefix");
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    last
}

/// Transaction `n`: a call, the same by a closure, DDL or a bulk load.
fn step(db: &Database, n: i64, random: &mut Random, options: &TxOptions) -> Result<()> {
    let account = |random: &mut Random| Value::Int4(random.below(ACCOUNTS as u64) as i32);
    let mut text = || {
        let length = if random.chance(1, 8) { 900 } else { random.below(40) as usize };
        Value::Text(format!("{n} {}", "x".repeat(length)))
    };
    let text = text();
    let n_value = Value::Int8(n);
    match random.below(20) {
        0..9 => {
            let (from, to) = (account(random), account(random));
            let amount = Value::Int8(random.below(2_000) as i64 - 1_000);
            db.call_with(options, "transfer", &[n_value, from, to, amount]).map(drop)
        }
        9 | 10 => db.call_with(options, "rename", &[n_value, account(random), text]).map(drop),
        11 => {
            let text = Value::Text(format!("the {}", random.below(3)));
            db.call_with(options, "take over", &[n_value, account(random), text]).map(drop)
        }
        12 => db.call_with(options, "forget", &[n_value]).map(drop),
        13 => db.call_with(options, "renew", &[n_value, account(random)]).map(drop),
        14 => db.transact_with(options, |tx| {
            // Two rows exchange what is unique.
            let (accounts, done) = (tx.table("accounts")?, tx.table("done")?);
            let texts = [0, 1].map(|id| tx.get(&accounts, id).map(|row| row.unwrap().view().get(2)));
            let [first, second] = texts;
            let (first, second) = (first?, second?);
            tx.update(&accounts, 0, &[(2, Value::Text(format!("{n} meanwhile")))])?;
            tx.update(&accounts, 1, &[(2, first)])?;
            tx.update(&accounts, 0, &[(2, second)])?;
            tx.insert(&done, &[Value::Int8(n)])
        }),
        15 => db.transact_with(options, |tx| {
            tx.create_table(&TableDef::new(format!("t{n}"), vec![Column::new("id", ColumnType::Int4)]))?;
            let table = tx.table(&format!("t{n}"))?;
            (0..random.below(600) as i32).try_for_each(|id| tx.insert(&table, &[Value::Int4(id)]))?;
            let done = tx.table("done")?;
            tx.insert(&done, &[Value::Int8(n)])
        }),
        16 => db.transact_with(options, |tx| {
            match random.chance(1, 2) {
                true => tx.drop_index("by_balance").or(Ok::<_, Error>(())),
                false => tx.create_index("accounts", "by_balance", &["balance"], false).or(Ok(())),
            }?;
            let done = tx.table("done")?;
            tx.insert(&done, &[Value::Int8(n)])
        }),
        _ => {
            let id = int4(&account(random));
            let value = random.below(100) as i64;
            db.transact_with(options, |tx| {
                let tables = ["accounts", "history", "done"].map(|name| tx.table(name));
                let [accounts, history, done] = tables;
                tx.update(&accounts?, id, &[(1, Value::Int8(value))])?;
                tx.insert(&history?, &[Value::Int4(id), Value::Int8(value)])?;
                tx.insert(&done?, &[Value::Int8(n)])
            })
        }
    }
}

/// Logging and checkpoints that go together, at random.
fn combination(random: &mut Random) -> (Logging, Checkpointing) {
    loop {
        let logging = match random.chance(2, 3) {
            true => Logging::Transaction,
            false => Logging::ALL[random.below(Logging::ALL.len() as u64) as usize],
        };
        let checkpoint = match random.chance(1, 3) {
            true => Checkpointing::None,
            false => Checkpointing::ALL[random.below(Checkpointing::ALL.len() as u64) as usize],
        };
        if logging.refuses(checkpoint).is_none() {
            return (logging, checkpoint);
        }
    }
}

/// Lives of a database, each ended by a crash or a SIGKILL at any step, and each with logging and checkpoints of its own.
/// Lives of a database; how many calls were replayed, and how often the power was lost and the process killed.
fn lives(seed: u64) -> (u64, [u64; 2]) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let db = Database::open_on(disk.clone(), calls()).unwrap();
    prepare(&db);
    let mut states = vec![contents(&db)];
    let (mut db, mut first) = (Some(db), 0);
    let (mut replayed, mut ends) = (0, [0; 2]);
    for life in 0..4 {
        let about = format!("RIALTO_SEED={seed}, life {life}");
        let open = db.take().expect("opened before");
        let kill = random.chance(1, 2);
        let at = disk.steps() + 1 + random.below(400);
        if kill {
            disk.kill_at(at)
        } else {
            disk.crash_at(at)
        }
        let (mut acknowledged, mut answered) = (first, first);
        for n in first + 1..first + 1 + 20 + random.below(60) as i64 {
            let durable = random.chance(1, 3);
            let durability = Some(if durable { Durability::Disk } else { Durability::Memory });
            let outcome = step(&open, n, &mut random, &TxOptions { durability, ..TxOptions::default() });
            match outcome {
                Ok(()) => {}
                Err(
                    Error::OutcomeUnknown { .. }
                    | Error::Stopped { .. }
                    | Error::Io { .. }
                    | Error::LogFull { .. },
                ) => {
                    states.push(contents(&open));
                    break;
                }
                Err(error) => panic!("{about}, transaction {n}: {error}"),
            }
            answered = n;
            if durable {
                acknowledged = n;
            }
            states.push(contents(&open));
            if random.chance(1, 25) && open.checkpoint().is_err() {
                break;
            }
        }
        if random.chance(1, 4) {
            let _ = open.close();
        } else {
            drop(open);
        }
        if !disk.is_down() {
            if kill { disk.kill() } else { disk.crash() }
        }
        ends[usize::from(kill)] += 1;
        disk = disk.restart();
        // With one thread, and with several: the same, and again (I8).
        let mut found: Option<Vec<String>> = None;
        for threads in [1, 1 + random.below(4) as usize] {
            let (logging, checkpoint) = combination(&mut random);
            let locks = LockForm::ALL[random.below(3) as usize];
            let options = Options {
                checkpoint,
                locks,
                executors: 1 + random.below(8) as usize,
                executor_threads: if locks == LockForm::Local { random.below(3) as usize } else { 0 },
                checkpoint_interval: Duration::from_millis(1),
                sweep_bytes_per_s: Some(1_000_000 << random.below(6)),
                recovery_threads: threads,
                ..options(logging)
            };
            if let Some(again) = db.take() {
                drop::<Database>(again);
                disk.crash();
                disk = disk.restart();
            }
            let open =
                Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
            replayed += open.recovery().unwrap().calls;
            let now = contents(&open);
            if let Some(found) = &found {
                assert_eq!(&now, found, "{about}: with {threads} threads, and with one");
            }
            found = Some(now);
            db = Some(open);
        }
        let open = db.as_ref().expect("opened twice");
        let reached = done_in(open);
        // Level 1 outlives the process, and an opening writes what it finds of it.
        let least = if kill { answered } else { acknowledged };
        assert!(reached >= least, "{about}: {least} was durable, found {reached}");
        assert_eq!(
            found.as_ref(),
            states.get(reached as usize),
            "{about}: not as after transaction {reached}"
        );
        states.truncate(reached as usize + 1);
        first = reached;
    }
    (replayed, ends)
}

#[test]
fn calls_are_run_again_after_crashes_beside_values_ddl_and_loads() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let (mut seed, mut replayed, mut power_lost, mut killed) = (base, 0, 0, 0);
    // Some lives replay few calls or none.
    while replayed < 50 || Instant::now() < until {
        let (calls, [by_power, by_kill]) = lives(seed);
        (replayed, power_lost, killed) = (replayed + calls, power_lost + by_power, killed + by_kill);
        seed = seed.wrapping_add(1);
    }
    println!(
        "tally: calls under crashes, {replayed} calls replayed, {power_lost} losses of power, {killed} kills, RIALTO_SEED={base}"
    );
}

/// Threads that conflict now and then, slow sweeps all the while: what a replay with one thread makes of it, one with several
/// makes too; and no money is made.
#[test]
fn a_replay_of_many_threads_work_is_what_they_did() {
    for checkpoint in [Checkpointing::TransactionCopyOnUpdate, Checkpointing::TransactionBlackWhite] {
        // A sweep that comes behind the last call leaves nothing to replay; it does not each time.
        assert!((0..10).any(|_| many_threads(checkpoint)), "the test's own premise");
    }
}

/// Whether there were calls to replay.
fn many_threads(checkpoint: Checkpointing) -> bool {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let sweeps = Options {
        checkpoint,
        checkpoint_interval: Duration::from_millis(20),
        sweep_bytes_per_s: Some(4 << 20),
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        ..calls()
    };
    let db = Database::open_on(disk.clone(), sweeps).unwrap();
    prepare(&db);
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                for n in 0..500 {
                    let [from, to] = [0; 2].map(|_| Value::Int4(random.below(ACCOUNTS as u64) as i32));
                    let number = Value::Int8(thread * 1_000 + n);
                    if n % 4 == 0 {
                        let text = Value::Text(format!("the {}", random.below(6)));
                        db.call("take over", &[number, to, text]).unwrap();
                        continue;
                    }
                    db.call("transfer", &[number, from, to, Value::Int8(n)]).unwrap();
                }
            });
        }
    });
    db.sync().unwrap();
    let expected = contents(&db);
    disk.crash();
    drop(db);
    let (mut disk, mut has_replayed) = (disk.restart(), true);
    for recovery_threads in [1, 2, 5] {
        let db = Database::open_on(disk.clone(), Options { recovery_threads, ..calls() }).unwrap();
        has_replayed &= db.recovery().unwrap().calls > 0;
        assert_eq!(contents(&db), expected, "{checkpoint:?}, with {recovery_threads} threads");
        let accounts = db.table("accounts").unwrap();
        let mut sum = 0;
        db.read(|tx| {
            sum = 0;
            tx.scan(&accounts, &Scan::all(), |_, row| {
                sum += row.get_i64(1)?;
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        assert_eq!(sum, 0);
        disk.crash();
        drop(db);
        disk = disk.restart();
    }
    has_replayed
}
